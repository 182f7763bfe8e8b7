"""Derivatives that are right at the fit and wrong beside it: second derivatives are made there.

Standard errors are held against the dense formula.
"""

import warnings

import numpy as np
import pytest

import implicit_delta as idm

N = 400


class Poisson:
    """A Poisson regression at its maximum, and scores of many kinds."""

    def __init__(self, d, n=N, weights=None, l2=0.0):
        rng = np.random.default_rng(3)
        self.X, self.c = rng.normal(size=(n, d)) / max(1, np.sqrt(d) / 2), rng.poisson(1, size=n)
        self.weights = np.ones(n) if weights is None else weights
        self.l2, self.d, self.n = l2, d, n
        self.theta = np.zeros(d)
        for _ in range(30):
            slope = self.weights @ self.score(self.theta) - l2 * self.theta
            self.theta = self.theta + np.linalg.solve(self.information(), slope)
        self.mu = np.exp(self.X @ self.theta)
        self.known = self.score(self.theta)

    def loglik(self, b):
        return self.c * (self.X @ b) - np.exp(self.X @ b)

    def score(self, b):
        return (self.c - np.exp(self.X @ b))[:, None] * self.X

    def information(self):
        mu = self.weights * np.exp(self.X @ self.theta)
        return (self.X.T * mu) @ self.X + self.l2 * np.eye(self.d)

    def standard_error(self, j):
        return np.sqrt(np.linalg.inv(self.information())[j, j])

    def moved(self, b, share):
        """Rows whose change beside the fit is the right one times a share, (n, 1) or (d,)."""
        return self.known + share * (self.score(b) - self.known)

    def given(self, score, **how):
        how = how or {"theta": self.theta}
        return idm.from_loglik(self.loglik, score=score, weights=self.weights, l2=self.l2, **how)


def _of_half(p, share):
    return np.where(np.arange(p.n) < p.n // 2, share, 1.0)[:, None]


def _of_column(p, share):
    return np.where(np.arange(p.d) == min(7, p.d - 1), share, 1.0)


WRONG = {
    "stale half": lambda p: lambda b: p.moved(b, _of_half(p, 0.0)),
    "half moves by 0.9": lambda p: lambda b: p.moved(b, _of_half(p, 0.9)),
    "slope of one column": lambda p: lambda b: p.moved(b, _of_column(p, 0.5)),
    "slope of one column, 1.2": lambda p: lambda b: p.moved(b, _of_column(p, 1.2)),
    "stale column": lambda p: lambda b: p.moved(b, _of_column(p, 0.0)),
    "scaled up": lambda p: lambda b: p.moved(b, 1.5),
    "scaled down": lambda p: lambda b: p.moved(b, 0.8),
    "wrong sign": lambda p: lambda b: p.moved(b, -1.0),
    "Fisher scoring left over": lambda p: (
        lambda b: p.known - (p.mu * (p.X @ (b - p.theta)))[:, None] * p.X * 1.1
    ),
}
STILL = {
    "constant": lambda p: lambda b: p.known,
    "ignores its argument": lambda p: lambda b: p.score(p.theta),
    "cached under rounded parameters": lambda p: _cached(p, 0),
}
PROBLEMS = {
    "plain": lambda d: Poisson(d),
    "weights": lambda d: Poisson(d, weights=np.random.default_rng(1).integers(1, 5, N) * 1.0),
    "zero weights": lambda d: Poisson(d, weights=1.0 * (np.arange(N) % 4 > 0)),
    "l2": lambda d: Poisson(d, l2=5.0),
}


def _cached(p, digits):
    known = {}

    def score(b):
        key = tuple(np.round(b, digits))
        return known.setdefault(key, p.score(b))

    return score


@pytest.mark.parametrize("d", [1, 3, 10, 40])
@pytest.mark.parametrize("kind", WRONG)
def test_a_score_that_is_wrong_beside_the_fit_is_refused(kind, d):
    p = Poisson(d)
    with pytest.raises(ValueError, match=r"score\(theta\) is right at .* beside"):
        p.given(WRONG[kind](p))


@pytest.mark.parametrize("d", [3, 10, 40])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_under_weights_and_penalties(problem, d):
    p = PROBLEMS[problem](d)
    with pytest.raises(ValueError, match="beside"):
        p.given(WRONG["stale half"](p))
    with pytest.raises(ValueError, match="beside"):
        p.given(WRONG["slope of one column"](p), start=p.theta)


@pytest.mark.parametrize("d", [1, 3, 10, 40])
@pytest.mark.parametrize("kind", STILL)
def test_a_score_that_does_not_move_is_asked_for_its_argument(kind, d):
    p = Poisson(d)
    with pytest.raises(ValueError, match=r"same rows .* does it use its argument, or a cache"):
        p.given(STILL[kind](p))


@pytest.mark.parametrize("d", [1, 3, 10, 40, 120])
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("given", ["theta", "start"])
def test_right_ones_stay(problem, d, given):
    p = PROBLEMS[problem](d)
    model = p.given(p.score, **{given: p.theta})
    found = idm.infer(model, lambda b: b[d - 1]).standard_error
    assert found == pytest.approx(p.standard_error(d - 1), rel=1e-5)


RIGHT = {
    "few rows": (lambda b: -0.5 * (np.array([1.0, 2.0, 4.0]) - b[0]) ** 2, [7 / 3],
                 lambda b: (np.array([1.0, 2.0, 4.0]) - b[0])[:, None]),
    "one term": (lambda b: np.array([3 * b[0] - np.exp(b[0]) + 1e6]), [np.log(3)],
                 lambda b: np.array([[3 - np.exp(b[0])]])),
    "cauchy": (lambda b: -np.log1p((np.array([-2.0, 0.1, 2.0, -0.1]) - b[0]) ** 2), [0.0],
               lambda b: (2 * (np.array([-2.0, 0.1, 2.0, -0.1]) - b[0])
                          / (1 + (np.array([-2.0, 0.1, 2.0, -0.1]) - b[0]) ** 2))[:, None]),
    "scales": (lambda b: -0.5 * (np.array([1e9, 3e9, 5e9]) - b[0]) ** 2 / 1e18
               - 0.5 * (np.array([1e-9, 3e-9, 5e-9]) - b[1]) ** 2 / 1e-18, [3e9, 3e-9],
               lambda b: np.column_stack([(np.array([1e9, 3e9, 5e9]) - b[0]) / 1e18,
                                          (np.array([1e-9, 3e-9, 5e-9]) - b[1]) / 1e-18])),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.filterwarnings("ignore::implicit_delta.errors.ImplicitDeltaWarning")
def test_right_ones_of_small_and_badly_scaled_models_stay(name):
    loglik, theta, score = RIGHT[name]
    with_it = idm.infer(idm.from_loglik(loglik, theta, score=score), lambda b: b, strict=False)
    without = idm.infer(idm.from_loglik(loglik, theta), lambda b: b, strict=False)
    np.testing.assert_allclose(with_it.standard_error, without.standard_error, rtol=1e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [21, 101, 401])
def test_kinks_with_their_score_may_still_be_resampled(n, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 2)), rng.laplace(size=n)
    model = idm.from_loglik(
        lambda b: -abs(y - X @ b), rng.normal(size=2) / 50, score=lambda b: np.sign(y - X @ b)[
            :, None] * X,
    )  # fmt: skip
    assert model.d == 2


@pytest.mark.parametrize("bound", [0.0, -1.0])
def test_beside_a_bound(bound):
    """A domain that ends at the bound: the score is looked at from inside."""
    y = np.array([3.0, 0.0, 2.0, 1.0, 4.0])

    def loglik(b):
        return np.where(b[0] > 0, y * np.log(b[0] + (b[0] <= 0)) - b[0], np.nan) - (b[1] - bound)

    def score(b):
        return np.column_stack([y / b[0] - 1, -np.ones(5)])

    model = idm.from_loglik(loglik, [2.0, bound], score=score, bounds=[(0, None), (bound, None)])
    assert idm.infer(model, lambda b: b[0]).standard_error == pytest.approx(np.sqrt(2 / 5))
    with pytest.raises(ValueError, match="beside"):
        idm.from_loglik(
            loglik, [2.0, bound], score=lambda b: score((b + 2 * np.array([2.0, bound])) / 3),
            bounds=[(0, None), (bound, None)],
        )  # fmt: skip


class Decay:
    """Residuals of a curve at their least squares, and Jacobians of many kinds."""

    def __init__(self):
        self.x = np.linspace(0, 3, 30)
        self.y = 2 * np.exp(-0.7 * self.x) + 0.3 * np.random.default_rng(0).normal(size=30)
        self.model = idm.from_residuals(self.residuals, start=[1.0, 1.0], jacobian=self.jacobian)
        self.theta = np.asarray(self.model.theta)

    def residuals(self, b):
        return self.y - b[0] * np.exp(-b[1] * self.x)

    def jacobian(self, b):
        e = np.exp(-b[1] * self.x)
        return np.column_stack([-e, b[0] * self.x * e])


JACOBIANS = {
    "constant": lambda p: lambda b: p.jacobian(p.theta),
    "stale column": lambda p: (
        lambda b: np.column_stack([p.jacobian(b)[:, 0], p.jacobian(p.theta)[:, 1]])
    ),
    "scaled": lambda p: lambda b: 2 * p.jacobian(b) - p.jacobian(p.theta),
}


@pytest.mark.parametrize("kind", JACOBIANS)
def test_a_jacobian_that_is_wrong_beside_the_fit_is_told(kind):
    """Gauss-Newton needs it at the fit alone, and stays right."""
    p = Decay()
    with pytest.warns(idm.ImplicitDeltaWarning, match=r"jacobian\(theta\) is right at .* beside"):
        model = idm.from_residuals(p.residuals, p.theta, jacobian=JACOBIANS[kind](p))
    found, truth = (idm.infer(m, lambda b: b[1]).standard_error for m in (model, p.model))
    assert found == pytest.approx(truth, rel=1e-6)


def test_jacobians_that_do_not_matter_stay_silent():
    p, X = Decay(), np.random.default_rng(0).normal(size=(50, 12))
    y = X @ np.arange(12.0) + np.random.default_rng(1).normal(size=50)
    theta = np.linalg.lstsq(X, y, rcond=None)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        idm.from_residuals(p.residuals, p.theta, jacobian=p.jacobian)
        idm.from_residuals(lambda b: y - X @ b, theta, jacobian=lambda b: -X)


@pytest.mark.parametrize("digits", [3, 4])
@pytest.mark.parametrize("d", [3, 40])
def test_a_cache_is_told_or_does_not_matter(d, digits):
    """Products over very short steps fall into one entry of the cache, those over longer do not."""
    p = Poisson(d)
    try:
        found = idm.infer(p.given(_cached(p, digits)), lambda b: b[d - 1]).standard_error
    except (idm.ImplicitDeltaError, ValueError):
        return
    assert found == pytest.approx(p.standard_error(d - 1), rel=0.02)


@pytest.mark.parametrize("method", ["cg", "dense"])
def test_a_probe_of_a_matrix_of_zeros(method):
    """Matrices without any curvature are refused as such."""
    zeros = np.zeros((40, 40))
    solver = idm.conjugate_gradient() if method == "cg" else idm.cholesky()
    with pytest.raises(idm.NotAMaximumError):
        solver.solve(lambda v: zeros @ v, np.ones((40, 1)))


@pytest.mark.parametrize("share", [0.0, 1e-12])
@pytest.mark.parametrize("many", [False, True])
def test_a_robust_error_of_nothing_is_told(share, many):
    """A prior written into the terms: no row varies along it, or hardly any."""
    p = Poisson(3)
    model = idm.from_loglik(
        lambda b: p.loglik(b[:3]) - 0.5 * b[3] ** 2 / N + share * np.sin(np.arange(N)) * b[3],
        np.append(p.theta, 0.0),
    )
    with pytest.warns(idm.SmallSampleWarning, match=r"robust standard error, .* next to nothing"):
        idm.infer(model, (lambda b: b) if many else (lambda b: b[3]), robust=True, strict=False)


@pytest.mark.parametrize("rng", range(6))
def test_one_step_names_what_was_refitted(rng):
    """Few rows: each seed ends in a refusal or a warning, about the replicates it looked at."""
    draw = np.random.default_rng(0)
    X = np.column_stack([np.ones(40), draw.normal(size=(40, 3))])
    y = (draw.random(40) < 1 / (1 + np.exp(-X @ [0.5, 1.0, -1.0, 0.5]))).astype(float)
    model = idm.from_loglik(lambda b: y * (X @ b) - np.logaddexp(0, X @ b), start=np.zeros(4))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            idm.infer(model, lambda b: b[1], idm.Bootstrap(100, "one-step", rng=rng))
            texts = [str(w.message) for w in caught]
        except idm.ConvergenceError as error:
            texts = [str(error)]
    told = [text for text in texts if "that were refitted in full" in text]
    assert told
    assert 'kind="resample"' in told[0]
    assert "bayesian" not in "".join(texts)
    assert "(root mean square over 5 " not in told[0]


class Stateful:
    """Terms that depend on how often they were asked for."""

    def __init__(self, d, what):
        rng = np.random.default_rng(0)
        self.X, self.what, self.calls = rng.normal(size=(300, d)), what, 0
        self.y = rng.normal(size=300)

    def __call__(self, b):
        self.calls += 1
        return -0.5 * (self.y - self.X @ b) ** 2 + self.what(self.calls, b)


@pytest.mark.parametrize("d", [3, 10])
@pytest.mark.parametrize(
    "what",
    [
        lambda calls, b: 1e-6 * calls * b[1],
        lambda calls, b: 1e-6 * calls * b[1] ** 2,
        lambda calls, b: 1e-4 * (calls % 7) * b[0],
    ],
)
def test_a_state_that_is_nothing_at_a_start_of_zeros(what, d):
    loglik = Stateful(d, what)
    with pytest.raises(idm.UnsupportedModelError, match=r"not deterministic.* or keeps a state"):
        idm.from_loglik(loglik, start=np.zeros(d))
    assert loglik.calls < 10


def test_a_search_that_gets_stuck_names_kinks_and_single_precision():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 2)), rng.laplace(size=100)
    with pytest.raises(idm.ConvergenceError, match=r"stuck.*kinks.*single precision"):
        idm.from_loglik(lambda b: -abs(y - X @ b), start=np.ones(2), max_calls=10_000)
    with pytest.raises(idm.ConvergenceError, match=r"(3000 calls|stuck).*kinks.*single precision"):
        idm.from_loglik(lambda b: -abs(y - X @ b), start=np.ones(2))


@pytest.mark.parametrize("d", [2, 10])
def test_theta_in_single_precision(d):
    """Right where differences are long enough; else a refusal that names it."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, d)), rng.normal(size=300)

    def loglik(b):
        return -0.5 * (y - X @ np.asarray(b).astype(np.float32).astype(float)) ** 2

    try:
        found = idm.infer(idm.from_loglik(loglik, start=np.ones(d)), lambda b: b[0])
    except idm.ImplicitDeltaError as error:
        assert "single precision" in str(error)  # noqa: PT017
    else:
        truth = np.sqrt(np.linalg.inv(X.T @ X)[0, 0])
        assert found.standard_error == pytest.approx(truth, rel=1e-4)

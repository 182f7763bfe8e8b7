"""Log-likelihoods that break a silent assumption: refused, warned about, or right."""

import time
import warnings

import numpy as np
import pytest
from scipy.special import expit, log_expit
from scipy.stats import norm

import implicit_delta as idm

RNG = np.random.default_rng(0)
Y = RNG.normal(1.0, 2.0, size=60)
REFUSALS = (idm.ImplicitDeltaError, ValueError, TypeError)
SECONDS = 60.0  # on a busy machine; alone a refusal takes a few


def answer(ask):
    """The standard error, or None if an error or a warning says that there is none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = time.monotonic()
        try:
            found, refused = ask(), None
        except REFUSALS as error:
            found, refused = None, str(error)
    if refused is not None:
        assert len(refused) > 40
        assert time.monotonic() - started < SECONDS
        return None
    if any(issubclass(w.category, idm.ImplicitDeltaWarning) for w in caught):
        return None
    return found


def mean_of(loglik, theta=None, **options):
    """The standard error of the first parameter."""
    where = {"start": [0.0]} if theta is None else {"theta": theta}
    model = idm.from_loglik(loglik, **where, **options)
    return idm.infer(model, lambda th: th[0]).standard_error


def normal(th):
    return -((Y - th[0]) ** 2) / 2


TRUE = 1 / np.sqrt(60)


class WithNoise:
    def __init__(self, size):
        self.rng, self.size = np.random.default_rng(1), size

    def __call__(self, th):
        return normal(th) + self.size * self.rng.normal(size=Y.size)


class Counting:
    def __init__(self, size):
        self.calls, self.size = 0, size

    def __call__(self, th):
        self.calls += 1
        return normal(th) + self.size * self.calls


def drifting_weight():
    state = {"w": 1.0}

    def loglik(th):
        state["w"] *= 1.0 + 1e-4
        return state["w"] * normal(th)

    return loglik


RANDOM = {
    "noise of 1": lambda: WithNoise(1.0),
    "noise of 1e-2": lambda: WithNoise(1e-2),
    "noise of 1e-4": lambda: WithNoise(1e-4),
    "noise of 1e-6": lambda: WithNoise(1e-6),
    "a counter": lambda: Counting(1.0),
    "a slow counter": lambda: Counting(1e-3),
    "a weight that grows": drifting_weight,
}


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("given", ["start", "theta", "score"])
def test_a_random_likelihood_is_refused_or_right(name, given):
    loglik = RANDOM[name]()
    options = {"theta": [Y.mean()]} if given != "start" else {}
    if given == "score":
        options["score"] = lambda th: (Y - th[0])[:, None]
    found = answer(lambda: mean_of(loglik, **options))
    assert found is None or found == pytest.approx(TRUE, rel=1e-3)


def laplace(y):
    return lambda th: -abs(y - th[0])


KINKED = {
    **{
        f"Laplace, n = {n}": (lambda y: lambda th: -abs(y - th[0]))(
            np.random.default_rng(n).normal(size=n)
        )
        for n in (5, 9, 21, 40)
    },
    "check loss": lambda th: -np.where(th[0] < Y, 0.3 * (Y - th[0]), 0.7 * (th[0] - Y)),
    "hinge": lambda th: -np.maximum(0.0, 1 - np.sign(Y) * (Y * th[0])),
    "rounded": lambda th: np.round(normal(th), 1),
}


@pytest.mark.parametrize("name", KINKED)
def test_a_likelihood_with_kinks_is_refused(name):
    assert answer(lambda: mean_of(KINKED[name])) is None


def test_a_coefficient_that_a_lasso_dropped_is_refused():
    X = np.random.default_rng(2).normal(size=(50, 2))
    y = X[:, 0] + 0.1 * np.random.default_rng(3).normal(size=50)
    theta = [np.linalg.lstsq(X[:, :1], y, rcond=None)[0][0] - 0.1, 0.0]
    model = idm.from_loglik(
        lambda b: -((y - X @ b) ** 2) / 2, theta, penalty=lambda b: 5.0 * np.sum(abs(b))
    )
    assert answer(lambda: idm.infer(model, lambda b: b[1], strict=False).standard_error) is None


EDGES = {
    "a rate of zero": (lambda th: 0 * np.log(th[0]) - th[0] if th[0] > 0 else -np.inf, [0.0]),
    "no successes": (
        lambda th: np.full(9, np.log1p(-th[0])) if 0 <= th[0] < 1 else np.full(9, -np.inf),
        [0.0],
    ),
    "a uniform's end": (
        lambda th: np.where(abs(Y) <= th[0], -np.log(th[0]), -np.inf),
        [np.max(abs(Y))],
    ),
    "an exponential's shift": (
        lambda th: np.where(th[0] <= Y, th[0] - Y, -np.inf),
        [Y.min()],
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_parameters_at_an_edge_are_refused(name):
    loglik, theta = EDGES[name]
    with np.errstate(all="ignore"):
        assert answer(lambda: mean_of(lambda th: np.atleast_1d(loglik(th)), theta)) is None


def single(th):
    return normal(th).astype(np.float32)


def single_inside(th):
    return -((Y.astype(np.float32) - np.float32(th[0])) ** 2) / np.float32(2)


@pytest.mark.parametrize("loglik", [single, single_inside])
@pytest.mark.parametrize("given", [None, [Y.mean()]])
def test_single_precision_is_refused_by_name_or_right(loglik, given):
    found = answer(lambda: mean_of(loglik, given))
    assert found is None or found == pytest.approx(TRUE, rel=0.01)


def test_single_precision_is_said_at_once():
    started = time.monotonic()
    with pytest.raises(REFUSALS, match=r"float32|precision"):
        mean_of(lambda th: norm.logpdf(1e4 + Y, 1e4 + th[0], 1e-3).astype(np.float32))
    assert time.monotonic() - started < SECONDS


def in_a_work_array(function, shape):
    out = np.empty(shape)

    def reused(th):
        out[:] = function(th)
        return out

    return reused


def rows(th):
    return (Y - th[0])[:, None]


@pytest.mark.parametrize("score", [None, in_a_work_array(rows, (60, 1))])
@pytest.mark.parametrize("robust", [False, True])
def test_a_function_may_return_its_own_work_array(score, robust):
    model = idm.from_loglik(in_a_work_array(normal, 60), [Y.mean()], score=score)
    clusters = np.arange(60) // 2
    plain = idm.from_loglik(normal, [Y.mean()])
    for options in ({"robust": robust}, {"clusters": clusters}):
        found = idm.infer(model, lambda th: th[0], **options).standard_error
        expected = idm.infer(plain, lambda th: th[0], **options).standard_error
        assert found == pytest.approx(expected, rel=1e-6)
    h = idm.Average(in_a_work_array(lambda th: Y - th[0], 60), "training")
    expected = idm.infer(plain, idm.Average(lambda th: Y - th[0], "training")).standard_error
    # the two parts cancel but for rounding; both must say so
    assert idm.infer(model, h).standard_error == pytest.approx(expected, abs=1e-6)


X2 = np.column_stack([np.ones(60), RNG.normal(size=60)])
B2 = (X2 @ [0.2, 0.8] + RNG.logistic(size=60) > 0) * 1.0


def logit_terms(b):
    return log_expit((2 * B2 - 1) * (X2 @ b))


def logit_rows(b):
    return (B2 - expit(X2 @ b))[:, None] * X2


WRONG_SCORES = {
    "twice": lambda b: 2 * logit_rows(b),
    "half": lambda b: logit_rows(b) / 2,
    "a hundred times": lambda b: 100 * logit_rows(b),
    "the other sign": lambda b: -logit_rows(b),
    "a chain-rule factor missing": lambda b: logit_rows(b) * [1.0, 0.73],
    "a mean": lambda b: logit_rows(b) / 60,
    "columns swapped": lambda b: logit_rows(b)[:, ::-1],
    "one row wrong": lambda b: logit_rows(b) + np.eye(60, 2),
    "a column of zeros": lambda b: logit_rows(b) * [1.0, 0.0],
}


@pytest.mark.parametrize("name", WRONG_SCORES)
@pytest.mark.parametrize("given", ["start", "theta"])
def test_a_wrong_score_is_refused(name, given):
    fitted = idm.from_loglik(logit_terms, start=[0.0, 0.0]).theta
    where = {"start": [0.0, 0.0]} if given == "start" else {"theta": fitted}

    def ask():
        model = idm.from_loglik(logit_terms, **where, score=WRONG_SCORES[name])
        return idm.infer(model, lambda b: b[1], robust=True).standard_error

    assert answer(ask) is None


def test_a_right_score_is_accepted_far_from_the_maximum_too():
    model = idm.from_loglik(logit_terms, start=[3.0, -4.0], score=logit_rows)
    plain = idm.from_loglik(logit_terms, start=[0.0, 0.0])
    expected = idm.infer(plain, idm.parameters).standard_error
    np.testing.assert_allclose(idm.infer(model, idm.parameters).standard_error, expected, rtol=1e-6)


T = np.linspace(0.1, 4, 30)
Z = 2 * np.exp(-0.7 * T) + 0.1 * np.random.default_rng(5).normal(size=30)


def decay(b):
    return Z - b[0] * np.exp(-b[1] * T)


def decay_rows(b):
    return np.column_stack([-np.exp(-b[1] * T), b[0] * T * np.exp(-b[1] * T)])


WRONG_JACOBIANS = {
    "twice": lambda b: 2 * decay_rows(b),
    "the sign of one column": lambda b: decay_rows(b) * [1.0, -1.0],
    "a factor missing": lambda b: decay_rows(b) / [1.0, b[0]],
    "of the prediction": lambda b: -decay_rows(b),
}


@pytest.mark.parametrize("name", WRONG_JACOBIANS)
def test_a_wrong_jacobian_is_refused(name):
    def ask():
        model = idm.from_residuals(decay, start=[1.0, 1.0], jacobian=WRONG_JACOBIANS[name])
        return idm.infer(model, lambda b: b[1]).standard_error

    assert answer(ask) is None


def test_least_squares_weights_are_repetitions_and_not_precisions():
    sigma = 0.05 + 0.1 * np.random.default_rng(6).random(60)
    y = 1.0 + sigma * np.random.default_rng(7).normal(size=60)

    def ask():
        model = idm.from_residuals(lambda b: y - b[0], start=[0.0], weights=1 / sigma**2)
        return idm.infer(model, lambda b: b[0]).standard_error

    found = answer(ask)
    # with an estimated variance the unit of the weights must not matter
    assert found is None or found == pytest.approx(np.sum(1 / sigma**2) ** -0.5, rel=0.35)


def no_variance(th):
    return norm.logpdf(Y[:1], th[0], np.exp(th[1]))


@pytest.mark.slow
def test_a_likelihood_without_bound_is_refused_within_seconds():
    def ask():
        return idm.infer(idm.from_loglik(no_variance, start=[0.0, 0.0]), lambda th: th[0])

    assert answer(ask) is None


@pytest.mark.parametrize("sd", [1e-8, 1e-4, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("center", [0.0, 1e-3, 1.0, 1e3])
def test_parameters_near_zero_with_any_standard_error_work(center, sd):
    center *= sd
    y = center + sd * np.random.default_rng(8).normal(size=40)
    model = idm.from_loglik(lambda th: -((y - th[0]) ** 2) / (2 * sd**2), start=[0.0])
    found = idm.infer(model, lambda th: th[0]).standard_error
    assert found == pytest.approx(sd / np.sqrt(40), rel=1e-4)


def test_convergence_is_not_reported_as_a_failure():
    """No message may say that no maximum was found because it has converged."""
    with pytest.raises(idm.ImplicitDeltaError) as caught:
        idm.from_loglik(lambda th: Y[:5] * 0 + th[0] ** 2 - th[1] ** 2, start=[0.0, 1.0])
    assert "CONVERGENCE" not in str(caught.value)


def test_redundant_parameters_have_a_fit():
    model = idm.from_loglik(lambda th: -((Y - th[0] - th[1]) ** 2) / 2, start=[0.0, 0.0])
    assert model.theta.sum() == pytest.approx(Y.mean())


def empty_cell(counts):
    x = np.repeat([0, 0, 1, 1], counts)
    y = np.repeat([0, 1, 0, 1], counts)
    return x, y


@pytest.mark.parametrize("psi", ["log odds ratio", "probability", "ratio"])
@pytest.mark.parametrize("counts", [(5, 0, 7, 3), (0, 4, 6, 6), (9, 9, 0, 2), (3, 8, 8, 0)])
def test_an_empty_cell_is_refused(counts, psi):
    x, y = empty_cell(counts)
    model = None
    evaluations = {
        "log odds ratio": lambda b: b[1],
        "probability": lambda b: expit(b[0] + b[1]) if counts[2] * counts[3] == 0 else expit(b[0]),
        "ratio": lambda b: np.exp(b[1]),
    }

    def ask():
        model = idm.from_loglik(lambda b: log_expit((2 * y - 1) * (b[0] + b[1] * x)), start=[0, 0])
        return idm.infer(model, evaluations[psi]).standard_error

    assert model is None
    assert answer(ask) is None

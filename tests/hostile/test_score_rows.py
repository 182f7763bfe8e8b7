"""Many parameters with `score=`: products in the metric of the score rows, or not where these lie.

Every standard error is held against the dense formula of the model.
"""

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import expit, gammaln

import implicit_delta as idm
from implicit_delta.errors import ImplicitDeltaError

N, D = 400, 36


def _design(n=N, d=D, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[:, 0] = 1.0
    return X


class Glm:
    """Terms f(eta) of a linear predictor, with first and second derivative."""

    def __init__(self, X, y, f, slope, bend):
        self.X, self.y, self.f, self.slope, self.bend = X, y, f, slope, bend
        self.calls = 0

    def loglik(self, b):
        return self.f(self.X @ b, self.y)

    def score(self, b):
        self.calls += 1
        return self.slope(self.X @ b, self.y)[:, None] * self.X

    def information(self, b, weights=1.0, ridge=0.0):
        curvature = -self.bend(self.X @ b, self.y) * weights
        return (self.X.T * curvature) @ self.X + ridge * np.eye(self.X.shape[1])

    def psi(self, b):
        return self.X[1] @ b

    def error(self, A, g=None):
        g = self.X[1] if g is None else g
        return np.sqrt(g @ np.linalg.solve(A, g))


def logit(X, seed=1):
    beta = np.random.default_rng(seed).normal(size=X.shape[1]) / np.linalg.norm(X, axis=0) * 3
    y = (np.random.default_rng(seed + 1).random(len(X)) < expit(X @ beta)).astype(float)
    return Glm(
        X,
        y,
        lambda e, y: y * e - np.logaddexp(0, e),
        lambda e, y: y - expit(e),
        lambda e, y: -expit(e) * expit(-e),
    )


def poisson(X, seed=1):
    beta = np.random.default_rng(seed).normal(size=X.shape[1]) / np.linalg.norm(X, axis=0) * 3
    y = np.random.default_rng(seed + 1).poisson(np.exp(X @ beta)).astype(float)
    return Glm(
        X,
        y,
        lambda e, y: y * e - np.exp(e) - gammaln(y + 1),
        lambda e, y: y - np.exp(e),
        lambda e, y: -np.exp(e),
    )


def cauchy(X, seed=1):
    y = X[:, 0] + np.random.default_rng(seed).standard_cauchy(len(X))
    return Glm(
        X,
        y,
        lambda e, y: -np.log1p((y - e) ** 2),
        lambda e, y: 2 * (y - e) / (1 + (y - e) ** 2),
        lambda e, y: (2 * (y - e) ** 2 - 2) / (1 + (y - e) ** 2) ** 2,
    )


def gauss(X, scale=1.0, seed=1):
    """Normal terms of variance one and residuals of another scale: score rows tell another."""
    y = X[:, 0] + scale * np.random.default_rng(seed).normal(size=len(X))
    return Glm(X, y, lambda e, y: -((y - e) ** 2) / 2, lambda e, y: y - e, lambda e, y: -1 + 0 * e)


def _scaled(X):
    return X * 10.0 ** np.linspace(-4, 4, X.shape[1])


def _collinear(X):
    return np.column_stack([X[:, :-1], X[:, 1] + 1e-4 * X[:, -1]])


PROBLEMS = {
    "logit": lambda: logit(_design()),
    "logit, few rows": lambda: logit(_design(n=150), seed=3),
    "poisson": lambda: poisson(_design()),
    "columns of all scales": lambda: logit(_scaled(_design())),
    "nearly collinear": lambda: logit(_collinear(_design())),
    "noise far below its variance": lambda: gauss(_design(), 1e-3),
    "noise far above its variance": lambda: gauss(_design(), 1e3),
    "cauchy": lambda: cauchy(_design(n=800)),
    "hardly more rows than parameters": lambda: gauss(_design(n=D + 4), 0.3),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("given", [True, False], ids=["theta", "start"])
@pytest.mark.filterwarnings("ignore::implicit_delta.errors.ImplicitDeltaWarning")
def test_equals_the_dense_formula(name, given):
    problem = PROBLEMS[name]()
    start = np.zeros(D)
    model = idm.from_loglik(problem.loglik, start=start, score=problem.score)
    if given:
        model = idm.from_loglik(problem.loglik, model.theta, score=problem.score)
    found = idm.infer(model, problem.psi, strict=False)
    truth = problem.error(problem.information(np.asarray(model.theta)))
    assert found.standard_error == pytest.approx(truth, rel=1e-7)
    assert found.value == pytest.approx(problem.psi(np.asarray(model.theta)))


WEIGHTED = {
    "frequency": lambda rng: rng.integers(0, 4, N).astype(float),
    "precision": lambda rng: rng.uniform(0.2, 5.0, N),
    "sampling": lambda rng: rng.uniform(10.0, 90.0, N),
}


@pytest.mark.parametrize("kind", WEIGHTED)
def test_weights(kind):
    problem, weights = logit(_design()), WEIGHTED[kind](np.random.default_rng(5))
    model = idm.from_loglik(
        problem.loglik, start=np.zeros(D), score=problem.score, weights=weights, weight_kind=kind
    )
    A = problem.information(np.asarray(model.theta), weights)
    truth = problem.error(A)
    if kind == "sampling":
        rows = weights[:, None] * problem.score(np.asarray(model.theta))
        influence = rows @ np.linalg.solve(A, problem.X[1])
        truth = np.linalg.norm(influence)
    found = idm.infer(model, problem.psi).standard_error
    assert found == pytest.approx(truth, rel=2e-3 if kind == "sampling" else 1e-8)


def _smooth(b):
    return 2.0 * np.sum(np.diff(b) ** 2)


def _type_of(b):
    return 3.0 * float(np.sum(np.asarray(b) ** 2))


PENALTIES = {
    "ridge": (lambda b: 3.0 * np.sum(b**2), 0.0, 6.0 * np.eye(D)),
    "ridge twice": (lambda b: 3.0 * np.sum(b**2), 8.0, 14.0 * np.eye(D)),
    "strong": (lambda b: 3e4 * np.sum(b**2), 0.0, 6e4 * np.eye(D)),
    "smooth": (_smooth, 0.0, 4.0 * np.diff(np.eye(D), axis=0).T @ np.diff(np.eye(D), axis=0)),
    "not to be traced": (_type_of, 0.0, 6.0 * np.eye(D)),
}


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.filterwarnings("ignore::implicit_delta.errors.ImplicitDeltaWarning")
def test_penalties(name):
    penalty, l2, bend = PENALTIES[name]
    problem = logit(_design())
    model = idm.from_loglik(
        problem.loglik, start=np.zeros(D), score=problem.score, penalty=penalty, l2=l2
    )
    theta = np.asarray(model.theta)
    left = problem.score(theta).sum(axis=0) - bend @ theta
    assert np.max(abs(left)) < 1e-5
    truth = problem.error(problem.information(theta) + bend)
    assert idm.infer(model, problem.psi).standard_error == pytest.approx(truth, rel=1e-8)


@pytest.mark.parametrize("d", [3, 36])
def test_a_ridge_beside_a_penalty_counts_once(d):
    problem = logit(_design(d=d))
    plain = {"start": np.zeros(d), "penalty": lambda b: 3.0 * np.sum(b**2), "l2": 8.0}
    model = idm.from_loglik(problem.loglik, score=problem.score, **plain)
    other = idm.from_loglik(problem.loglik, start=np.zeros(d), score=problem.score, l2=14.0)
    assert model.theta == pytest.approx(other.theta, abs=1e-8)


def test_bounds():
    problem = logit(_design())
    free = idm.from_loglik(problem.loglik, start=np.zeros(D), score=problem.score)
    at = int(np.argmin(free.theta))
    bounds = [(None, None)] * D
    bounds[at] = (free.theta[at] + 0.3, None)
    start = np.zeros(D)
    start[at] = bounds[at][0] + 0.1
    model = idm.from_loglik(problem.loglik, start=start, score=problem.score, bounds=bounds)
    rest = np.arange(D) != at
    A = problem.information(np.asarray(model.theta))[np.ix_(rest, rest)]
    found = idm.infer(model, problem.psi).standard_error
    assert found == pytest.approx(problem.error(A, problem.X[1][rest]), rel=1e-7)


@pytest.mark.parametrize("count", [2, 4, 5, 20, D])
def test_several_evaluations(count):
    problem = logit(_design())
    model = idm.from_loglik(problem.loglik, start=np.zeros(D), score=problem.score)
    G = problem.X[:count]
    truth = G @ np.linalg.solve(problem.information(np.asarray(model.theta)), G.T)
    assert idm.infer(model, lambda b: G @ b).covariance == pytest.approx(truth, rel=1e-7, abs=1e-10)


@pytest.mark.filterwarnings("ignore::implicit_delta.errors.SmallSampleWarning")
def test_robust_errors_use_the_solution_itself():
    problem = poisson(_design())
    model = idm.from_loglik(problem.loglik, start=np.zeros(D), score=problem.score)
    theta = np.asarray(model.theta)
    w = np.linalg.solve(problem.information(theta), problem.X[1])
    truth = np.linalg.norm(problem.score(theta) @ w)
    assert idm.infer(model, problem.psi, robust=True).standard_error == pytest.approx(truth, 1e-8)


def test_a_buffer_that_is_used_again():
    problem, buffer = logit(_design()), np.empty((N, D))

    def score(b):
        buffer[:] = problem.score(b)
        return buffer

    model = idm.from_loglik(problem.loglik, start=np.zeros(D), score=score)
    truth = problem.error(problem.information(np.asarray(model.theta)))
    assert idm.infer(model, problem.psi).standard_error == pytest.approx(truth, rel=1e-8)


def _asked(loglik, score, **where):
    return idm.infer(idm.from_loglik(loglik, score=score, **where), lambda b: b[1])


def test_a_saddle_that_psi_does_not_see():
    """Two bumps along the last parameter: at zero between them L curves upward."""
    X = _design()
    problem = gauss(X[:, :-1])
    z = X[:, -1] * 0 + 3.0

    def loglik(b):
        bumps = np.logaddexp(-((z - b[-1]) ** 2) / 2, -((z + b[-1]) ** 2) / 2)
        return problem.loglik(b[:-1]) + bumps

    def score(b):
        share = expit(2 * z * b[-1])
        return np.column_stack([problem.score(b[:-1]), z * (2 * share - 1) - b[-1]])

    theta = np.append(np.linalg.lstsq(problem.X, problem.y, rcond=None)[0], 0.0)
    with pytest.raises(ImplicitDeltaError):
        idm.infer(idm.from_loglik(loglik, theta, score=score), lambda b: b[0])


def test_a_saddle_with_score_rows():
    """The same with rows that move: outer products are positive where the curvature is not."""
    X = _design()
    problem, z = gauss(X[:, :-1]), np.repeat([1.0, -1.0], N // 2)

    def loglik(b):
        return problem.loglik(b[:-1]) + z * np.sin(b[-1]) + 0.02 * b[-1] ** 2

    def score(b):
        return np.column_stack([problem.score(b[:-1]), z * np.cos(b[-1]) + 0.04 * b[-1]])

    theta = np.append(np.linalg.lstsq(problem.X, problem.y, rcond=None)[0], 0.0)
    with pytest.raises(ImplicitDeltaError):
        idm.infer(idm.from_loglik(loglik, theta, score=score), lambda b: b[0])


def test_kinks_are_seen():
    """Absolute errors: the curvature is zero almost everywhere."""
    X = _design()
    y = X[:, 0] + np.random.default_rng(3).laplace(size=N)
    n, d = X.shape
    lp = linprog(
        np.r_[np.zeros(2 * d), np.ones(2 * n)],
        A_eq=np.hstack([X, -X, np.eye(n), -np.eye(n)]),
        b_eq=y,
    )
    theta = lp.x[:d] - lp.x[d : 2 * d]
    with pytest.raises((ImplicitDeltaError, ValueError)):
        _asked(lambda b: -abs(y - X @ b), lambda b: np.sign(y - X @ b)[:, None] * X, theta=theta)


def test_redundant_columns():
    """A column twice: psi that the data determine has its answer, and another has none."""
    X = np.column_stack([_design(d=D - 1), _design(d=D - 1)[:, 1]])
    problem = gauss(X)
    theta = np.linalg.lstsq(X, problem.y, rcond=None)[0]
    model = idm.from_loglik(problem.loglik, theta, score=problem.score)
    g = X[1]
    truth = np.sqrt(g @ np.linalg.pinv(X.T @ X) @ g)
    assert idm.infer(model, lambda b: g @ b).standard_error == pytest.approx(truth, rel=1e-6)
    with pytest.raises(ImplicitDeltaError):
        idm.infer(model, lambda b: b[1])


@pytest.mark.filterwarnings("ignore::implicit_delta.errors.ImplicitDeltaWarning")
def test_separated_classes():
    X = _design()
    X[:, 1] = np.where(np.arange(N) < 5, 1.0, 0.0)
    problem = logit(X)
    problem.y[:5] = 1.0
    with pytest.raises(ImplicitDeltaError):
        _asked(problem.loglik, problem.score, start=np.zeros(D))


def test_costs_few_scores():
    problem = logit(_design(n=1000, d=100))
    model = idm.from_loglik(problem.loglik, start=np.zeros(100), score=problem.score)
    fit, problem.calls = problem.calls, 0
    idm.infer(model, problem.psi)
    one, problem.calls = problem.calls, 0
    idm.infer(model, idm.parameters)
    assert fit < 150
    assert one < 100
    assert problem.calls < 300  # of 800 that careful differences take

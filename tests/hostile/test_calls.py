"""Few calls, the same numbers: memories, rough slopes and quick climbs under attack."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import chi2, norm

import implicit_delta as idm
from implicit_delta.models.objective import objective_of
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.redraws import reweight

RNG = np.random.default_rng(0)
Y = RNG.normal(1.0, 2.0, size=60)
X = np.column_stack([np.ones(60), RNG.normal(size=(60, 2))])
Z = X @ [0.5, 1.0, -1.0] + RNG.normal(size=60)
REFUSALS = (idm.ImplicitDeltaError, ValueError, TypeError)
ROOT = np.sqrt(chi2.ppf(0.95, 1))


def regression(design, noise=lambda th: 0.0):
    y = design @ np.ones(design.shape[1]) + np.random.default_rng(5).normal(size=len(design))
    return lambda th: -((y - design @ th) ** 2) / 2 + noise(th)


def nearly_collinear(closeness):
    x = np.random.default_rng(1).normal(size=(80, 2))
    return np.column_stack([x[:, 0], x[:, 0] + closeness * x[:, 1], np.ones(80)])


DESIGNS = {
    "plain": X,
    "few rows": X[:5],
    "tiny unit": X * [1e5, 1.0, 1.0],
    "huge unit": X * [1.0, 1e-8, 1.0],
    "both": X * [1e-6, 1e6, 1.0],
    "correlated": nearly_collinear(0.1),
    "very correlated": nearly_collinear(1e-3),
    "far from zero": X + np.array([0.0, 1e3, 0.0]),
    "many rows": np.tile(X, (100, 1)),
}
STARTS = {"zero": 0.0, "beside": 1.0 + 1e-9, "far": 30.0, "very far": -3e4}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("design", DESIGNS)
def test_standard_errors_are_those_of_algebra(design, start):
    matrix = DESIGNS[design]
    unit = 1 / np.linalg.norm(matrix, axis=0)
    model = idm.from_loglik(regression(matrix), start=1.0 + (STARTS[start] - 1.0) * unit)
    truth = np.sqrt(np.diag(np.linalg.inv(matrix.T @ matrix)))
    estimate = idm.infer(model, idm.parameters)
    y = matrix @ np.ones(3) + np.random.default_rng(5).normal(size=len(matrix))
    best = np.linalg.lstsq(matrix, y, rcond=None)[0]
    np.testing.assert_allclose(estimate.standard_error, truth, rtol=1e-6)
    assert np.all(abs(estimate.value - best) < 1e-6 * truth)


@pytest.mark.parametrize("design", ["plain", "few rows", "tiny unit", "correlated"])
def test_profiles_are_those_of_algebra(design):
    matrix = DESIGNS[design]
    model = idm.from_loglik(regression(matrix), start=1.0 + 1 / np.linalg.norm(matrix, axis=0))
    error = np.sqrt(np.linalg.inv(matrix.T @ matrix)[1, 1])
    found = idm.profile(model, lambda th: th[1])
    expected = model.theta[1] + ROOT * error * np.array([-1, 1])
    assert np.all(abs(np.array(found.interval) - expected) < 1e-6 * error)


def refused(error):
    """A number that never agrees with one that was found."""
    assert len(str(error)) > 40
    return None


def asked(ask):
    with warnings.catch_warnings():
        warnings.simplefilter("error", idm.ImplicitDeltaWarning)
        try:
            return ask()
        except (*REFUSALS, idm.ImplicitDeltaWarning) as error:
            return refused(error)


def normal(th):
    return norm.logpdf(Y, th[0], np.exp(th[1]))


class SameArray:
    """Returns its results in one array."""

    def __init__(self):
        self.out = np.zeros(60)

    def __call__(self, th):
        self.out[:] = normal(th)
        return self.out


def overwrites(th):
    terms = normal(th)
    th[:] = np.nan
    return terms


def raises_outside(th):
    if abs(th[1]) > 5:
        raise np.linalg.LinAlgError("not positive definite")
    return normal(th)


def minus_infinity_outside(th):
    return normal(th) if th[1] < 2 else np.full(60, -np.inf)


def nan_outside(th):
    return normal(th) if th[0] > -1 else np.full(60, np.nan)


FUNCTIONS = [
    normal,
    SameArray(),
    overwrites,
    raises_outside,
    minus_infinity_outside,
    nan_outside,
    lambda th: list(normal(th)),
    lambda th: normal(th)[None, :].sum(axis=0),
    lambda th: normal(th)[::-1],
    lambda th: np.array([normal(th).sum()]),
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("start", [[0.0, 0.0], [1.0, 0.7], [-0.5, 1.9], [20.0, 1.0]])
def test_functions_of_any_habit_give_the_same(function, start):
    found = asked(lambda: idm.infer(idm.from_loglik(function, start=start), idm.parameters))
    if found is None:
        assert start == [20.0, 1.0] or function is nan_outside
        return
    truth = Y.std() / np.sqrt([60, 120]) / [1, Y.std()]
    np.testing.assert_allclose(found.value, [Y.mean(), np.log(Y.std())], atol=1e-7)
    np.testing.assert_allclose(found.standard_error, truth, rtol=1e-6)


def test_terms_that_a_caller_changes_are_not_remembered():
    model = idm.from_loglik(normal, start=[0.0, 0.0])
    model.rows.terms(model.theta)[:] = 7.0
    np.testing.assert_array_equal(model.rows.terms(model.theta), normal(model.theta))


def test_a_model_of_other_weights_has_its_own_curvature():
    model = idm.from_loglik(normal, start=[0.0, 0.0])
    idm.infer(model, idm.parameters)
    twice = reweight(model, np.full(60, 2.0))
    ratio = idm.infer(twice, idm.parameters).standard_error
    np.testing.assert_allclose(
        ratio, idm.infer(model, idm.parameters).standard_error / np.sqrt(2), rtol=1e-9
    )


def test_a_penalty_that_is_taken_off_is_not_remembered():
    model = idm.from_loglik(normal, start=[0.0, 0.0], l2=3.0)
    idm.infer(model, idm.parameters)
    free = replace(model, penalty=Penalty())
    difference = model.information(model.theta, np.eye(2)) - free.information(
        model.theta, np.eye(2)
    )
    np.testing.assert_allclose(difference, 3 * np.eye(2), atol=1e-5)
    np.testing.assert_allclose(
        model.score(model.theta) - free.score(model.theta), -3 * model.theta, atol=1e-6
    )


@pytest.mark.parametrize("step", [0.0, 1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("sign", [-1, 1])
def test_scores_beside_the_maximum_are_those_of_calculus(step, sign):
    model = idm.from_loglik(normal, start=[0.0, 0.0])
    theta = model.theta + sign * step * np.array([0.3, 0.1])
    z = (Y - theta[0]) / np.exp(theta[1])
    expected = [np.sum(z) / np.exp(theta[1]), np.sum(z**2 - 1)]
    unit = np.array([np.exp(theta[1]) / np.sqrt(60), 1 / np.sqrt(120)])
    np.testing.assert_allclose(model.score(theta) * unit, expected * unit, atol=1e-7)
    np.testing.assert_allclose(
        objective_of(model).rough_score(theta) * unit, expected * unit, atol=1e-3
    )


def away(th):
    """How far the first coefficient is above its estimate, in standard errors."""
    best = np.linalg.lstsq(X, Z, rcond=None)[0]
    return (th[1] - best[1]) / np.sqrt(np.linalg.inv(X.T @ X)[1, 1])


def linear(th):
    return -((Z - X @ th) ** 2) / 2


FAR_OUT = {
    "noise of 1e-9": (lambda th: 1e-9 * np.sin(1e9 * th.sum()), 1e-6),
    "noise of 1e-4": (lambda th: 1e-4 * np.sin(1e9 * th.sum()), 1e-2),
    "noise of 1e-2": (lambda th: 1e-2 * np.sin(1e9 * th.sum()), 1e-1),
    "noise of 1": (lambda th: np.sin(1e9 * th.sum()), 1e-1),
    "a kink": (lambda th: -3 * abs(away(th) - 1.7), None),
    "an edge": (lambda th: -np.inf if away(th) > 1.8 else 0.0, None),
    "a wall": (lambda th: -1e3 * max(away(th) - 1.8, 0.0), None),
}


@pytest.mark.parametrize("what", FAR_OUT)
def test_what_a_profile_meets_on_its_way_is_refused_or_hardly_matters(what):
    """Beyond 1.5 standard errors the log-likelihood is no longer smooth."""
    extra, slack = FAR_OUT[what]

    def loglik(th):
        terms = linear(th)
        if away(th) > 1.5:
            terms[0] += extra(th)
        return terms

    best = np.linalg.lstsq(X, Z, rcond=None)[0]
    model = idm.from_loglik(loglik, best)
    error = np.sqrt(np.linalg.inv(X.T @ X)[1, 1])
    found = asked(lambda: idm.profile(model, lambda th: th[1]))
    if found is not None and slack is not None:
        low, high = found.interval
        assert abs(low - (best[1] - ROOT * error)) < 1e-6 * error
        assert abs(high - (best[1] + ROOT * error)) < slack * error
    elif found is not None:  # the first value whose deviance is beyond the quantile, or the edge
        shares = np.linspace(0, ROOT, 20001)
        falls = [
            shares**2 / 2 - [extra(best + s * error * np.eye(3)[1]) * (s > 1.5) for s in shares]
        ]
        last = shares[np.argmax(np.append(falls[0] > ROOT**2 / 2 + 1e-9, True)) - 1]
        assert found.interval.high <= best[1] + (last + 1e-3) * error


@pytest.mark.parametrize("strength", [0.03, 0.3, 3.0, 30.0])
def test_a_kink_of_another_parameter_beyond_is_refused_or_right(strength):
    """The best second coefficient sits at a kink where the path of the first ends."""
    best = np.linalg.lstsq(X, Z, rcond=None)[0]
    fall = (X.T @ X)[1:, 1:] - np.outer(
        (X.T @ X)[1:, 0], (X.T @ X)[0, 1:]
    ) / 60  # less the constant
    error = np.sqrt(np.linalg.inv(fall)[0, 0])

    def penalty(th):
        return strength * abs(th[2] - best[2] - 0.05) if away(th) > 1.5 else 0.0

    def deviance(a):
        def at(b):
            step = np.array([a - best[1], b - best[2]])
            return step @ fall @ step + 2 * penalty(np.array([0.0, a, b]))

        return min(at(b) for b in best[2] + np.linspace(-0.4, 0.4, 1601))

    def loglik(th):
        terms = linear(th)
        terms[0] -= penalty(th)
        return terms

    model = idm.from_loglik(loglik, best)
    found = asked(lambda: idm.profile(model, lambda th: th[1]))
    if found is not None:
        truth = brentq(lambda a: deviance(a) - ROOT**2, best[1] + 1.51 * error, best[1] + 2 * error)
        assert abs(found.interval.high - truth) < 1e-3 * error


CLASSES = (np.arange(40) >= 20).astype(float)
GRID = np.linspace(-1, 1, 40)
NO_MAXIMUM = {
    "separated classes": (
        lambda th: -np.logaddexp(0, (1 - 2 * CLASSES) * (th[0] + th[1] * GRID)),
        [0.0, 0.0],
    ),
    "a line": (lambda th: np.full(5, th[0]), [0.0]),
    "an exponential": (lambda th: -np.exp(-th[0]) * np.ones(5), [0.0]),
    "a saddle": (lambda th: np.array([th[0] * th[1]]), [0.1, 0.2]),
    "a minimum": (lambda th: np.array([th @ th]), [0.0, 0.0]),
    "redundant": (lambda th: -((Y - th[0] - th[1]) ** 2) / 2, [0.0, 0.0]),
    "one column for all": (lambda th: -((Z - X @ th[:3] - th[3]) ** 2) / 2, np.zeros(4)),
}


@pytest.mark.parametrize("case", NO_MAXIMUM)
def test_what_has_no_maximum_is_refused(case):
    loglik, start = NO_MAXIMUM[case]
    assert asked(lambda: idm.infer(idm.from_loglik(loglik, start=start), idm.parameters)) is None


def test_a_start_that_curves_upward_is_left():
    def loglik(th):
        return np.array([-((th[0] ** 2 - 1) ** 2) - th[1] ** 2])

    np.testing.assert_allclose(idm.from_loglik(loglik, start=[0.3, 1]).theta, [1, 0], atol=1e-6)


@pytest.mark.parametrize("start", [[0.0, 0.0], [4.0, -4.0], [-30.0, 30.0]])
def test_logits_from_any_start(start):
    y = (np.random.default_rng(2).random(60) < expit(X[:, 1])).astype(float)

    def loglik(th):
        eta = th[0] + th[1] * X[:, 1]
        return y * eta - np.logaddexp(0, eta)

    model = idm.from_loglik(loglik, start=start)
    p = expit(model.theta[0] + model.theta[1] * X[:, 1])
    D = X[:, :2]
    np.testing.assert_allclose(D.T @ (y - p), 0, atol=1e-6)
    truth = np.sqrt(np.diag(np.linalg.inv(D.T @ ((p * (1 - p))[:, None] * D))))
    np.testing.assert_allclose(idm.infer(model, idm.parameters).standard_error, truth, rtol=1e-6)

"""`model.constrain`: bounds and constraints of models of any library, against other optimizers."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("statsmodels")

import statsmodels.api as sm
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize
from scipy.special import expit, gammaln
from sklearn.linear_model import LogisticRegression

import implicit_delta as idm

RNG = np.random.default_rng(19)
N = 160
X = RNG.normal(size=(N, 3))
DESIGN = sm.add_constant(X)
LINE = DESIGN @ [1.0, 0.5, -0.3, 0.2] + RNG.normal(size=N)
COUNTS = RNG.poisson(np.exp(DESIGN @ [0.3, 0.3, -0.2, 0.1])).astype(float)
BINARY = (RNG.random(N) < expit(DESIGN @ [0.2, 0.6, -0.5, 0.1])).astype(float)
START = sm.Poisson(COUNTS, DESIGN).fit(disp=0).params


def poisson_terms(b, rows=slice(None)):
    eta = DESIGN[rows] @ b
    return COUNTS[rows] * eta - np.exp(eta) - gammaln(COUNTS[rows] + 1)


def loglik(rows=slice(None)):
    def terms(th):
        return poisson_terms(np.array([th.const, th.x1, th.x2, th.x3]), rows)

    names = ("const", "x1", "x2", "x3")
    return idm.from_loglik(terms, theta=dict(zip(names, START, strict=True)))


def torch_model():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(4, 1, bias=False).double()
    with torch.no_grad():
        module.weight[:] = torch.tensor(START)
    data = (torch.tensor(DESIGN), torch.tensor(COUNTS))
    return idm.from_torch(module, data, idm.Poisson())


POISSON = {
    "glm": lambda: idm.from_statsmodels(sm.GLM(COUNTS, DESIGN, family=sm.families.Poisson()).fit()),
    "discrete": lambda: idm.from_statsmodels(sm.Poisson(COUNTS, DESIGN).fit(disp=0)),
    "loglik": loglik,
    "torch": torch_model,
    "shards": lambda: idm.from_shards(loglik, [slice(0, 70), slice(70, N)]),
    "sum": lambda: loglik(slice(0, 70)) + loglik(slice(70, N)),
    "mixed sum": lambda: (
        idm.from_shards(loglik, [slice(0, 40), slice(40, 70)])
        + idm.from_statsmodels(sm.GLM(COUNTS[70:], DESIGN[70:], family=sm.families.Poisson()).fit())
    ),
}
NEAR = pytest.mark.filterwarnings("ignore:The estimate is close to a limit")


@NEAR
@pytest.mark.parametrize("kind", POISSON)
def test_bounded_fits_are_those_of_scipy(kind):
    bounds = [(None, None), (None, 0.2), (-0.1, None), (None, None)]
    model = POISSON[kind]().constrain(bounds=bounds)
    found = minimize(
        lambda b: -poisson_terms(b).sum(),
        START,
        jac=lambda b: -DESIGN.T @ (COUNTS - np.exp(DESIGN @ b)),
        bounds=bounds,
        method="L-BFGS-B",
        options={"ftol": 1e-14, "gtol": 1e-9},
    )
    np.testing.assert_allclose(model.theta, found.x, atol=1e-6)
    at = np.isclose(found.x, [9, 0.2, -0.1, 9], atol=1e-12)
    assert at.any()
    A = DESIGN.T @ (np.exp(DESIGN @ found.x)[:, None] * DESIGN)
    V = np.zeros((4, 4))
    V[np.ix_(~at, ~at)] = np.linalg.inv(A[np.ix_(~at, ~at)])
    covariance = np.array(model.covariance)
    np.testing.assert_allclose(covariance, V, rtol=1e-5, atol=1e-9)


def equal(th):
    return th[1] + th[2]


EQUALITIES = {
    "dict": {"type": "eq", "fun": equal},
    "linear": LinearConstraint([0, 1, 1, 0], 0, 0),
    "nonlinear": NonlinearConstraint(equal, 0, 0),
}


@pytest.mark.parametrize("how", EQUALITIES)
@pytest.mark.parametrize("kind", POISSON)
def test_equalities_are_those_of_fit_constrained(kind, how):
    model = POISSON[kind]().constrain(constraints=EQUALITIES[how])
    theirs = sm.GLM(COUNTS, DESIGN, family=sm.families.Poisson()).fit_constrained("x1 + x2 = 0")
    np.testing.assert_allclose(model.theta, theirs.params, atol=1e-6)
    np.testing.assert_allclose(np.sqrt(np.diag(model.covariance)), theirs.bse, rtol=1e-5)


def test_a_least_squares_scale_is_that_of_the_constrained_fit():
    model = idm.from_statsmodels(sm.OLS(LINE, DESIGN).fit())
    ours = model.constrain(constraints={"type": "eq", "fun": lambda th: th.x1 + th.x2})
    theirs = sm.GLM(LINE, DESIGN).fit_constrained("x1 + x2 = 0")
    est = idm.infer(ours, idm.parameters)
    np.testing.assert_allclose(est.value, theirs.params, rtol=1e-7)
    np.testing.assert_allclose(est.standard_error, theirs.bse, rtol=1e-6)
    assert ours.facts.df == N - 3


def test_a_ridge_of_sklearn_under_a_bound():
    fitted = LogisticRegression(C=0.7, tol=1e-10).fit(X, BINARY)
    model = idm.from_sklearn(fitted, X, BINARY).constrain(bounds={"x1": (-0.2, None)})

    def fall(b):
        eta = X @ b[:3] + b[3]
        return b[:3] @ b[:3] / 1.4 - BINARY @ eta + np.logaddexp(0, eta).sum()

    bounds = [(None, None), (-0.2, None), (None, None), (None, None)]
    found = minimize(fall, np.zeros(4), bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-8})
    np.testing.assert_allclose(model.theta, found.x, atol=1e-5)
    assert model.theta[1] == -0.2


def test_bounds_that_do_not_bind_change_nothing():
    model = POISSON["glm"]()
    wide = model.constrain(bounds={"x1": (-5, 5)})
    np.testing.assert_allclose(wide.theta, model.theta, rtol=1e-9)
    np.testing.assert_allclose(wide.covariance, model.covariance, rtol=1e-8)


def test_constraints_add_and_stay_with_fixed_parameters():
    model = POISSON["glm"]().constrain(bounds={"x1": (None, 0.2)})
    both = model.constrain(bounds={"x2": (-0.1, None)})
    assert (both.theta[1], both.theta[2]) == (0.2, -0.1)
    fixed = both.fix(x3=0.0)
    assert (fixed.theta[1], fixed.theta[3]) == (0.2, 0.0)
    np.testing.assert_allclose(fixed.release().theta, both.theta, atol=1e-7)
    at_once = POISSON["glm"]().fix(x3=0.0).constrain(bounds={"x1": (None, 0.2), "x2": (-0.1, None)})
    np.testing.assert_allclose(at_once.theta, fixed.theta, atol=1e-7)


@NEAR
def test_the_same_bounds_given_to_from_loglik():
    bounds = {"x1": (None, 0.2)}

    def terms(th):
        return poisson_terms(np.array([th.const, th.x1, th.x2, th.x3]))

    start = {"const": 0.0, "x1": 0.0, "x2": 0.0, "x3": 0.0}
    there = idm.from_loglik(terms, start=start, bounds=bounds)
    here = loglik().constrain(bounds=bounds)
    np.testing.assert_allclose(here.theta, there.theta, atol=1e-7)
    np.testing.assert_allclose(here.covariance, there.covariance, rtol=1e-5, atol=1e-10)
    ours, theirs = (idm.profile(m, "x1").interval for m in (here, there))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_likelihood_that_ends_at_a_bound():
    """Counts of zero: the maximum is at a rate of zero, where the logarithm ends."""
    from scipy.stats import poisson

    other = np.array([3.0, 5.0, 4.0])

    def terms(th):
        return np.append(poisson.logpmf(other, th.B), poisson.logpmf(3.0, th.S + th.B))

    start = {"S": 1.0, "B": 4.0}
    model = idm.from_loglik(terms, start=start).constrain(bounds={"S": (0, None)})
    assert model.theta["S"] == 0
    assert model.theta["B"] == pytest.approx(15 / 4, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda m: m.constrain(), "Give bounds or constraints"),
        (lambda m: m.constrain(bounds={"z": (0, 1)}), "no parameter"),
        (lambda m: m.constrain(bounds={"x1": (1, 0)}), "lower one"),
        (lambda m: m.constrain(bounds=[(0, 1)]), "1 pairs"),
        (lambda m: m.constrain(constraints="x1 = 0"), "constraints"),
    ],
)
def test_refusals(call, text):
    with pytest.raises((ValueError, TypeError), match=text):
        call(POISSON["glm"]())


def test_equations_and_estimates_take_none():
    model = idm.from_equations(lambda b: (LINE - DESIGN @ b)[:, None] * DESIGN, start=np.zeros(4))
    with pytest.raises(idm.ImplicitDeltaError, match="estimating equations"):
        model.constrain(bounds=[(0, 1)] * 4)
    with pytest.raises(idm.ImplicitDeltaError):
        idm.from_estimates({"a": 1.0}, [[0.1]]).constrain(bounds={"a": (2, None)})

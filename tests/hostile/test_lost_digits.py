"""Columns whose cross products have lost the digits that the columns themselves have.

The truth is the same fit in centered columns: a linear map that numbers below 2^53 take exactly.
"""

import warnings

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.errors import NotAMaximumError

sm = pytest.importorskip("statsmodels.api")

RNG = np.random.default_rng(0)
YEAR = np.repeat(np.arange(2000, 2021.0), 5)
TREND = 0.3 * (YEAR - 2010) - 0.02 * (YEAR - 2010) ** 2
NOISE = RNG.standard_normal(YEAR.size)
COUNTS = RNG.poisson(np.exp(1 + 0.1 * TREND))
EXPOSURE = RNG.uniform(0.5, 2.0, YEAR.size)
NEGLIGIBLE = 1e-3  # of a variance: directions that look flat and add less are left out


def powers(x, degree=2):
    return np.column_stack([x**k for k in range(degree + 1)])


def least_squares(X):
    return idm.from_statsmodels(sm.OLS(TREND + NOISE, X).fit())


def weighted(X):
    return idm.from_statsmodels(sm.WLS(TREND + NOISE, X, weights=EXPOSURE).fit())


def glm(family, y):
    return lambda X: idm.from_statsmodels(sm.GLM(y, X, family=family).fit(tol=1e-12))


def residuals(X, **options):
    theta = np.linalg.lstsq(X / (size := np.linalg.norm(X, axis=0)), TREND + NOISE)[0] / size
    return idm.from_residuals(lambda b: TREND + NOISE - X @ b, theta, variance=0.8, **options)


HOSTS = {
    "OLS": least_squares,
    "WLS": weighted,
    "Poisson": glm(sm.families.Poisson(), COUNTS),
    "logit": glm(sm.families.Binomial(), COUNTS > 2),
    "from_residuals": residuals,
    "from_residuals with a Jacobian": lambda X: residuals(X, jacobian=lambda b: -X),
}
QUESTIONS = {
    "prediction": lambda x: powers(np.array([x]))[0],
    "slope": lambda x: np.array([0.0, 1.0, 2 * x]),
    "bend": lambda x: np.array([0.0, 0.0, 1.0]),
}
CASES = [(host, way) for host in HOSTS for way in (False, "HC0")]
SECOND_DERIVATIVES = [("from_residuals", "HC0"), ("from_residuals with a Jacobian", "HC0")]


def along(weights):
    return lambda b: np.asarray(b) @ weights


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(("host", "way"), [c for c in CASES if c not in SECOND_DERIVATIVES])
def test_polynomials_in_calendar_years(host, question, way):
    """They were refused as flat: relative to its diagonal the curvature is 1e-13."""
    weights = QUESTIONS[question]
    found = idm.infer(HOSTS[host](powers(YEAR)), along(weights(2014.0)), robust=way)
    exact = idm.infer(HOSTS[host](powers(YEAR - 2010)), along(weights(4.0)), robust=way)
    close = NEGLIGIBLE / 2 if question == "prediction" else 1e-6
    assert found.standard_error == pytest.approx(exact.standard_error, rel=close)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("host", ["OLS", "WLS", "Poisson", "logit"])
def test_conjugate_gradients_in_calendar_years(host, question):
    """In units of the columns; in those of the data a third of the error was missing in silence."""
    weights, method = QUESTIONS[question], idm.Infinitesimal(idm.conjugate_gradient)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = idm.infer(HOSTS[host](powers(YEAR)), along(weights(2014.0)), method)
        except NotAMaximumError:
            return
    exact = idm.infer(HOSTS[host](powers(YEAR - 2010)), along(weights(4.0)))
    told = any("may be too small" in str(w.message) for w in caught)
    assert told or found.standard_error == pytest.approx(exact.standard_error, rel=0.01)


@pytest.mark.parametrize(
    ("mean", "unit"), [(1e5, 1.0), (1e6, 1.0), (1e6, 1e-6), (1e6, 1e6), (3e6, 1.0)]
)
def test_columns_far_from_zero_in_other_units(mean, unit):
    x, z = np.random.default_rng(1).integers(-4, 5, (2, YEAR.size)).astype(float)
    far = np.column_stack([np.ones(x.size), mean + x, unit * z])
    near = np.column_stack([np.ones(x.size), x, z])
    for j, scale in ((1, 1.0), (2, unit)):
        found = idm.infer(least_squares(far), along(np.eye(3)[j]))
        exact = idm.infer(least_squares(near), along(np.eye(3)[j]))
        assert found.standard_error * scale == pytest.approx(exact.standard_error, rel=1e-5)


REDUNDANT = {
    "a column twice": powers(YEAR)[:, [0, 1, 2, 2]],
    "a sum of others": np.column_stack([powers(YEAR), YEAR + YEAR**2]),
    "beside rounding": np.column_stack([powers(YEAR), YEAR**2 * (1 + 1e-16 * NOISE)]),
}


@pytest.mark.parametrize("host", ["OLS", "Poisson", "from_residuals"])
@pytest.mark.parametrize("name", REDUNDANT)
def test_what_the_columns_do_not_determine_is_still_refused(name, host):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of statsmodels, about the design
        model = HOSTS[host](REDUNDANT[name])
        with pytest.raises(idm.ImplicitDeltaError, match=r"redundant|uncertain"):
            idm.infer(model, along(np.eye(4)[3]), idm.Infinitesimal())


@pytest.mark.parametrize("degree", [3, 4, 5])
@pytest.mark.parametrize("host", ["OLS", "Poisson"])
def test_a_fit_that_is_off_is_not_answered_in_silence(host, degree):
    """The host leaves directions out: its parameters are those of another fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, centered = (HOSTS[host](powers(x, degree)) for x in (YEAR, YEAR - 2010))
    for k in range(degree + 1):
        # The coefficient of the highest power is the same; those before it follow from all.
        g = np.eye(degree + 1)[k]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = idm.infer(model, along(g))
            except idm.ImplicitDeltaError:
                continue
            to_centered = np.array(
                [
                    [np.prod([(m - i) / (i + 1) for i in range(j)]) * 2010.0 ** (m - j)
                     if m >= j else 0.0 for m in range(degree + 1)]
                    for j in range(degree + 1)
                ]
            )  # fmt: skip
            exact = idm.infer(centered, along(np.linalg.solve(to_centered.T, g)))
        off = abs(found.value - exact.value) / exact.standard_error
        told = any("maximum" in str(w.message) for w in caught)
        assert told or off < 0.1
        assert found.standard_error == pytest.approx(exact.standard_error, rel=0.1)

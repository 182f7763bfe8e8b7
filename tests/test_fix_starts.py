"""Parameters fixed in columns that are far from centered: the intercept moves along with them."""

import numpy as np
import pytest

pytest.importorskip("statsmodels")

import pandas as pd
import statsmodels.api as sm

import implicit_delta as idm

N = 200
LOG = sm.families.links.Log()


def years(seed):
    rng = np.random.default_rng(seed)
    year = rng.integers(1960, 2024, N) * 1.0
    X = pd.DataFrame({"c": 1.0, "year": year, "x": rng.normal(size=N)})
    return rng, year - 1990, X


OUTCOMES = {
    "logit": (
        sm.families.Binomial(),
        lambda rng, eta: (rng.random(N) < 1 / (1 + np.exp(-eta))) * 1.0,
    ),
    "poisson": (sm.families.Poisson(), lambda rng, eta: rng.poisson(np.exp(0.3 + eta / 5))),
    "gamma": (sm.families.Gamma(LOG), lambda rng, eta: rng.gamma(2, np.exp(eta / 5))),
}


@pytest.mark.parametrize("slope", [0.03, 0.1, 0.3])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_a_slope_of_calendar_years_is_fixed(kind, slope):
    """At the means the predictor moves by slope times 2000 unless the intercept makes up for it."""
    rng, u, X = years(0)
    family, draw = OUTCOMES[kind]
    y = draw(rng, slope * u)
    model = idm.from_statsmodels(sm.GLM(y, X, family=family).fit())
    rest = sm.GLM(y, X[["c", "x"]], family=family).fit(tol=1e-12)
    fixed = model.fix(year=0.0)
    np.testing.assert_allclose(fixed.theta[[0, 2]], rest.params, rtol=1e-5)
    error = np.sqrt(np.diag(fixed.covariance))[[0, 2]]
    np.testing.assert_allclose(error, rest.bse, rtol=1e-5)


@pytest.mark.parametrize("kind", ["logit", "poisson"])
@pytest.mark.parametrize("seed", range(3))
def test_the_square_of_calendar_years_is_fixed(kind, seed):
    """The test of curvature in time, with its likelihood ratio."""
    rng, u, _ = years(seed)
    family, draw = OUTCOMES[kind]
    y = draw(rng, 0.03 * u)
    X = pd.DataFrame(np.vander(u + 1990, 3, increasing=True), columns=["c", "y1", "y2"])
    centered = np.vander(u / 10, 3, increasing=True)  # the same model, well conditioned
    full, rest = (sm.GLM(y, M, family=family).fit() for M in (centered, centered[:, :2]))
    model = idm.from_statsmodels(sm.GLM(y, X, family=family).fit(tol=1e-12))
    found = idm.likelihood_ratio(model.fix(y2=0.0), model)
    assert found.statistic == pytest.approx(2 * (full.llf - rest.llf), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("values", [{"year": 5.0}, {"c": 1e4}, {"year": 2.0, "c": 1.0}])
def test_a_value_at_which_the_predictor_overflows_is_refused_with_its_cause(values):
    rng, u, X = years(0)
    family, draw = OUTCOMES["logit"]
    model = idm.from_statsmodels(sm.GLM(draw(rng, 0.1 * u), X, family=family).fit())
    with pytest.raises(idm.NotAMaximumError, match="not finite at the given parameters"):
        model.fix(values)


@pytest.mark.parametrize("slope", [0.1, 0.3])
@pytest.mark.parametrize("kind", ["logit", "gamma"])
def test_a_slope_of_calendar_years_is_bounded(kind, slope):
    """At the bound it is an offset."""
    rng, u, X = years(0)
    family, draw = OUTCOMES[kind]
    y = draw(rng, slope * u)
    results = sm.GLM(y, X, family=family).fit()
    half = float(results.params["year"]) / 2
    rest = sm.GLM(y, X[["c", "x"]], family=family, offset=half * u).fit()
    bounded = idm.from_statsmodels(results).constrain(bounds={"year": (None, half)})
    assert bounded.theta[1] == pytest.approx(half, rel=1e-12)
    error = np.sqrt(bounded.covariance[2, 2])
    assert error == pytest.approx(rest.bse["x"], rel=1e-5)

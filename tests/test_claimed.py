"""The covariance that a fit in statsmodels claims is the one that counts, until something moves."""

import warnings
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest

import implicit_delta as idm
from implicit_delta.models.redraws import reweight

sm = pytest.importorskip("statsmodels.api")
from statsmodels.miscmodels.ordinal_model import OrderedModel
from test_statsmodels import (
    BINARY,
    COUNTS,
    EXACT,
    GROUPS,
    POSITIVE,
    REAL,
    ROUGH,
    SPREAD_COUNTS,
    N,
    X,
    quietly,
)

TIME = np.arange(N) % 50  # six panels of fifty periods, one after the other
PANEL = np.arange(N) // 50
TWO_WAYS = np.column_stack([GROUPS, np.arange(N) % 30])
CLAIMS = {
    "HC0": {"cov_type": "HC0"},
    "HC1": {"cov_type": "HC1"},
    "HC2": {"cov_type": "HC2"},
    "HC3": {"cov_type": "HC3"},
    "HC3, t": {"cov_type": "HC3", "use_t": True},
    "hc1, small letters": {"cov_type": "hc1"},
    "cluster": {"cov_type": "cluster", "cov_kwds": {"groups": GROUPS}},
    "cluster, t": {"cov_type": "cluster", "cov_kwds": {"groups": GROUPS}, "use_t": True},
    "cluster, t, plain df": {
        "cov_type": "cluster",
        "cov_kwds": {"groups": GROUPS, "df_correction": False},
        "use_t": True,
    },
    "cluster, uncorrected": {
        "cov_type": "cluster",
        "cov_kwds": {"groups": GROUPS, "use_correction": False},
    },
    "cluster, scaled": {
        "cov_type": "cluster",
        "cov_kwds": {"groups": GROUPS, "scaling_factor": 1.5},
    },
    "two-way": {"cov_type": "cluster", "cov_kwds": {"groups": TWO_WAYS}},
    "HAC": {"cov_type": "HAC", "cov_kwds": {"maxlags": 3}},
    "HAC, uniform": {"cov_type": "HAC", "cov_kwds": {"maxlags": 2, "kernel": "uniform"}},
    "hac-panel": {"cov_type": "hac-panel", "cov_kwds": {"groups": PANEL, "maxlags": 2}},
    "hac-groupsum": {"cov_type": "hac-groupsum", "cov_kwds": {"time": TIME, "maxlags": 2}},
}
OTHERS = {
    "OrderedModel": lambda **cov: OrderedModel(np.digitize(REAL, [-1, 1]), X[:, 1:]).fit(
        method="bfgs", gtol=1e-8, disp=0, **cov
    ),
    "NB1": lambda **cov: sm.NegativeBinomial(SPREAD_COUNTS, X, loglike_method="nb1").fit(
        maxiter=200, disp=0, **cov
    ),
    "GeneralizedPoisson": lambda **cov: sm.GeneralizedPoisson(SPREAD_COUNTS, X).fit(
        maxiter=200, disp=0, **cov
    ),
}
FITS = {**EXACT, **OTHERS}

# The groups of PHReg have a covariance of their own from 0.15 on.
needs_new_phreg = pytest.mark.skipif(
    tuple(map(int, version("statsmodels").split(".")[:2])) < (0, 15),
    reason="statsmodels before 0.15",
)


def flat(values):
    return np.asarray(values).ravel(order="F")


def freedom_of(results):
    if not results.use_t:
        return np.inf
    return getattr(results, "df_resid_inference", None) or results.df_resid


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("name", FITS)
def test_standard_errors_and_degrees_of_freedom_are_those_of_the_fit(name, claim):
    try:
        results = quietly(FITS[name], **CLAIMS[claim])
    except Exception as error:  # which covariances a model has is not our subject
        pytest.skip(f"statsmodels: {error!r:.60}")
    bse = flat(results.bse)
    if not np.all(np.isfinite(bse)):
        pytest.skip("statsmodels: not finite")
    model = idm.from_statsmodels(results)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.DriftWarning)  # theirs stops where it likes
        found = idm.infer(model, idm.parameters, strict=False)
    np.testing.assert_allclose(found.standard_error, bse, rtol=1e-8)
    assert model.facts.host.covariance.df == found.df == freedom_of(results)
    assert found.diagnostics.notes["variance"].endswith("of the fit")


@pytest.mark.parametrize("name", [*EXACT, *ROUGH])
def test_without_a_robust_covariance_nothing_is_claimed(name):
    results = quietly(EXACT[name] if name in EXACT else ROUGH[name][1])
    model = idm.from_statsmodels(results)
    assert model.facts.host.covariance is None
    if name in ("OLS", "WLS", "GLS"):
        assert model.facts.df == results.df_resid
    elif name != "PHReg":
        assert model.facts.df == freedom_of(results)


def test_normal_quantiles_of_least_squares_are_honored():
    assert idm.from_statsmodels(sm.OLS(REAL, X).fit(use_t=False)).facts.df == np.inf
    assert idm.from_statsmodels(sm.OLS(REAL, X).fit(use_t=True)).facts.df == N - 4
    fixed = sm.OLS(REAL, X).fit(cov_type="fixed scale", cov_kwds={"scale": 2.0})
    model = idm.from_statsmodels(fixed)
    assert model.facts.host.covariance is None
    found = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(found.standard_error, fixed.bse, rtol=1e-8)


@needs_new_phreg
def test_groups_of_proportional_hazards_are_honored():
    results = sm.PHReg(POSITIVE, X[:, 1:]).fit(groups=GROUPS)
    found = idm.infer(idm.from_statsmodels(results), idm.parameters)
    np.testing.assert_allclose(found.standard_error, results.bse, rtol=1e-8)
    assert found.diagnostics.notes["variance"] == "cluster of the fit"


@needs_new_phreg
@pytest.mark.parametrize("censored", [False, True])
@pytest.mark.parametrize("strata", [False, True])
def test_groups_of_efron_ties_have_scores_of_efron(censored, strata):
    """Score residuals of statsmodels are Breslow's: 13 % off with heavy ties."""
    options = {"status": BINARY} if censored else {}
    options |= {"strata": np.arange(N) % 2} if strata else {}
    tied = sm.PHReg(np.ceil(2 * POSITIVE), X[:, 1:], ties="efron", **options)
    plain = idm.from_statsmodels(tied.fit())
    model = idm.from_statsmodels(quietly(lambda: tied.fit(groups=GROUPS)))
    found = idm.infer(model, idm.parameters)
    expected = idm.infer(plain, idm.parameters, clusters=GROUPS)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-8)
    assert found.diagnostics.notes["variance"] == "cluster (Efron's score residuals) of the fit"


@needs_new_phreg
def test_a_covariance_that_is_not_finite_is_not_believed():
    censored = sm.PHReg(POSITIVE, X[:, 1:], status=BINARY)
    assert np.all(np.isnan(quietly(lambda: censored.fit(groups=GROUPS)).bse))
    with pytest.warns(idm.ImplicitDeltaWarning, match="NaN or infinite"):
        model = idm.from_statsmodels(quietly(lambda: censored.fit(groups=GROUPS)))
    expected = censored.fit().bse
    found = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(found.standard_error, expected, rtol=1e-8)


def ols(**cov):
    return idm.from_statsmodels(sm.OLS(REAL, X).fit(**cov))


def growth(params):
    return np.exp(params[1] / 4) + params[2]


def test_any_function_of_the_parameters_has_the_covariance_of_the_fit():
    results = sm.OLS(REAL, X).fit(cov_type="HC3")
    b = results.params
    slope = np.array([0, np.exp(b[1] / 4) / 4, 1, 0])
    expected = np.sqrt(slope @ results.cov_params() @ slope)
    model = idm.from_statsmodels(results)
    assert idm.infer(model, growth).standard_error == pytest.approx(expected, rel=1e-8)
    # the push of a refit is finite: second order
    refit = idm.infer(model, growth, idm.FiniteDifference())
    assert refit.standard_error == pytest.approx(expected, rel=1e-2)


def test_draws_and_jumps_have_the_covariance_of_the_fit():
    model = ols(cov_type="cluster", cov_kwds={"groups": GROUPS})
    psi = lambda params: params[1] + params[2]
    solved = idm.infer(model, psi).standard_error
    drawn = idm.infer(model, psi, idm.Simulation(400, rng=0))
    assert drawn.standard_error == pytest.approx(solved, rel=1e-6)
    assert np.std(drawn.draws) == pytest.approx(solved, rel=0.2)
    grid = np.linspace(-3, 3, 4001)
    steps = lambda params: np.mean(grid < params[1] + params[2]) * 6  # the same, in steps
    jumps = idm.infer(model, steps, idm.Simulation(400, rng=0))
    assert jumps.standard_error == pytest.approx(solved, rel=0.1)


def test_what_is_asked_for_overrides_the_fit():
    plain, claimed = ols(), ols(cov_type="HC3")
    for asked in ({"robust": True}, {"robust": "HC1"}, {"clusters": GROUPS}):
        expected = idm.infer(plain, growth, **asked)
        found = idm.infer(claimed, growth, **asked)
        assert found.standard_error == expected.standard_error
        assert "of the fit" not in found.diagnostics.notes["variance"]


@pytest.mark.parametrize("kind", ["resample", "bayesian", "parametric"])
def test_a_bootstrap_finds_the_variance_by_itself(kind):
    expected = idm.infer(ols(), growth, idm.Bootstrap(60, kind, rng=0))
    found = idm.infer(ols(cov_type="HC3"), growth, idm.Bootstrap(60, kind, rng=0))
    assert found.standard_error == expected.standard_error
    assert found.df == expected.df
    assert "variance" not in found.diagnostics.notes


AVERAGES = {
    "HC0": ({"cov_type": "HC0"}, {"robust": True}),
    "HC1": ({"cov_type": "HC1"}, {"robust": "HC1"}),
    "cluster": (
        {"cov_type": "cluster", "cov_kwds": {"groups": GROUPS}},
        {"robust": "CR1S", "clusters": GROUPS},
    ),
    "cluster, uncorrected": (
        {"cov_type": "cluster", "cov_kwds": {"groups": GROUPS, "use_correction": False}},
        {"clusters": GROUPS},
    ),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_an_average_over_the_training_rows_has_the_clusters_of_the_fit(name):
    claim, asked = AVERAGES[name]
    mean = idm.Average(lambda params: np.exp(X @ params / 5), sample="training")
    expected = idm.infer(ols(), mean, **asked)
    found = idm.infer(ols(**claim), mean)
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-10)
    assert found.diagnostics.notes["variance"] == expected.diagnostics.notes["variance"]


@pytest.mark.parametrize("claim", ["HAC", "two-way", "hac-panel"])
def test_an_average_over_the_training_rows_of_dependent_ones_is_refused(claim):
    model = ols(**CLAIMS[claim])
    mean = idm.Average(lambda params: np.exp(X @ params / 5), sample="training")
    with pytest.raises(idm.UnsupportedModelError, match="robust=True"):
        idm.infer(model, mean)
    assert idm.infer(model, mean, robust=True).standard_error > 0  # the advice works
    drawn = idm.infer(model, mean, idm.Bootstrap(100, rng=0))  # its own rows, drawn anew
    plain = idm.infer(ols(), mean, idm.Bootstrap(100, rng=0))
    assert drawn.standard_error == plain.standard_error


def test_a_profile_says_that_it_is_that_of_the_likelihood():
    with pytest.warns(idm.ImplicitDeltaWarning, match="HC3 of the fit"):
        found = idm.profile(ols(cov_type="HC3"), lambda params: params[1])
    expected = idm.profile(ols(), lambda params: params[1])
    assert found.interval.low == pytest.approx(expected.interval.low, rel=1e-6)


def test_a_claim_is_lost_with_its_parameters_or_rows():
    model = ols(cov_type="HC3")
    errors = np.sqrt(np.diag(model.facts.host.covariance.covariance))
    assert model.at(model.theta + 1e-6 * errors).facts.host.covariance is not None
    assert model.at(model.theta + 0.1 * errors).facts.host.covariance is None
    assert reweight(model, model.weights.values).facts.host.covariance is not None
    assert reweight(model, 2 * model.weights.values).facts.host.covariance is None
    assert idm.polish(model).facts.host.covariance is not None
    rough = quietly(
        lambda: sm.Logit(BINARY, X).fit(maxiter=2, disp=0, cov_type="HC0", start_params=np.ones(4))
    )
    with pytest.warns(idm.ImplicitDeltaWarning, match=r"HC0.*Ask for `robust=`"):
        finished = idm.polish(idm.from_statsmodels(rough))
    assert finished.facts.host.covariance is None


def test_statsmodels_computes_one_robust_covariance_for_other_models():
    model = idm.from_statsmodels(sm.Logit(BINARY, X).fit(disp=0, cov_type="HC3"))
    note = idm.infer(model, idm.parameters).diagnostics.notes["variance"]
    assert note == "HC3 (which is HC0 in Logit) of the fit"


ZEROS = np.where(np.random.default_rng(0).random(N) < 0.3, 0, COUNTS)


def test_a_hessian_that_is_none_is_told():
    fit = {"method": "bfgs", "maxiter": 600, "gtol": 1e-8, "disp": 0, "cov_type": "HC0"}
    off = quietly(lambda: sm.ZeroInflatedPoisson(ZEROS, X).fit(**fit))
    with pytest.warns(idm.ImplicitDeltaWarning, match="ZeroInflatedPoisson.*doubtful"):
        model = idm.from_statsmodels(off)
    found = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(found.standard_error, off.bse, rtol=1e-8)
    right = quietly(lambda: sm.ZeroInflatedGeneralizedPoisson(ZEROS, X).fit(**fit))
    model = idm.from_statsmodels(right)
    plain = idm.infer(model, idm.parameters, robust=True)
    np.testing.assert_allclose(plain.standard_error, right.bse, rtol=1e-3)


GROUPS_GIVEN = {
    "array": GROUPS,
    "list": [list(GROUPS)],
    "column": GROUPS[:, None],
    "Series": pd.Series(GROUPS),
    "frame": pd.DataFrame({"village": GROUPS}),
    "two": [GROUPS, np.arange(N) % 30],
}


@pytest.mark.parametrize("given", GROUPS_GIVEN)
def test_groups_may_be_given_in_any_way(given):
    claim = {"cov_type": "cluster", "cov_kwds": {"groups": GROUPS_GIVEN[given]}}
    results = quietly(EXACT["OLS"], **claim)
    model = idm.from_statsmodels(results)
    found = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(found.standard_error, results.bse, rtol=1e-8)
    assert model.facts.host.covariance.by_rows == (given != "two")


@pytest.mark.parametrize("kind", ["HC0", "HC1", "HC2", "HC3", "cluster"])
def test_a_covariance_that_was_chosen_after_the_fit_is_honored(kind):
    asked = {"groups": GROUPS} if kind == "cluster" else {}
    results = sm.OLS(REAL, X).fit().get_robustcov_results(kind, **asked)
    found = idm.infer(idm.from_statsmodels(results), idm.parameters)
    np.testing.assert_allclose(found.standard_error, results.bse, rtol=1e-8)
    assert found.df == freedom_of(results)

"""Fits of statsmodels without a likelihood by rows, which come in with their own covariance."""

import warnings

import numpy as np
import pytest

import implicit_delta as idm

sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")
pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(11)
N = 240
GROUPS = np.arange(N) // 6
FRAME = pd.DataFrame({"x": RNG.normal(size=N), "z": RNG.normal(size=N), "g": GROUPS})
FRAME["treated"] = RNG.integers(0, 2, N)
FRAME["site"] = RNG.choice(["a", "b", "c"], N)
FRAME["y"] = (
    1 + FRAME.x - 0.5 * FRAME.treated + RNG.normal(size=40)[GROUPS] + RNG.standard_t(5, size=N)
)
FRAME["count"] = RNG.poisson(np.exp(0.3 * FRAME.x + 0.2 * FRAME.treated))
FRAME["yes"] = (FRAME.y > 1).astype(float)
FRAME["years"] = RNG.uniform(0.5, 2.0, size=N)
FRAME.index = [f"row {i}" for i in range(N)]
LINE = "y ~ x * treated + site"
X = sm.add_constant(FRAME[["x", "treated"]])
Z = sm.add_constant(FRAME[["x", "z", "treated"]])


def ivs():
    from statsmodels.sandbox.regression.gmm import IV2SLS

    return IV2SLS(FRAME.y, X, Z).fit()


FITS = {
    "GEE": lambda: smf.gee(LINE, "g", FRAME).fit(),
    "GEE, naive": lambda: smf.gee(LINE, "g", FRAME).fit(cov_type="naive"),
    "GEE, bias reduced": lambda: smf.gee(LINE, "g", FRAME).fit(cov_type="bias_reduced"),
    "GEE of arrays": lambda: sm.GEE(FRAME.y.to_numpy(), X.to_numpy(), GROUPS).fit(),
    "GEE, logit": lambda: smf.gee(
        "yes ~ x * treated + site", "g", FRAME, family=sm.families.Binomial(),
        cov_struct=sm.cov_struct.Exchangeable(),
    ).fit(),
    "GEE, counts": lambda: smf.gee(
        "count ~ x * treated", "g", FRAME, family=sm.families.Poisson(), exposure=FRAME.years,
    ).fit(),
    "OrdinalGEE": lambda: sm.OrdinalGEE(np.minimum(FRAME["count"], 2), X[["x"]], GROUPS).fit(),
    "NominalGEE": lambda: sm.NominalGEE(np.minimum(FRAME["count"], 2), X[["x"]], GROUPS).fit(),
    "QuantReg": lambda: smf.quantreg(LINE, FRAME).fit(q=0.3),
    "QuantReg, iid": lambda: smf.quantreg(LINE, FRAME).fit(q=0.5, vcov="iid"),
    "RLM": lambda: smf.rlm(LINE, FRAME).fit(),
    "RLM, H2": lambda: sm.RLM(FRAME.y, X, M=sm.robust.norms.TukeyBiweight()).fit(cov="H2"),
    "IV2SLS": ivs,
    "MixedLM": lambda: smf.mixedlm(LINE, FRAME, groups="g").fit(),
    "MixedLM, slopes": lambda: smf.mixedlm("y ~ x", FRAME, groups="g", re_formula="~x").fit(),
}  # fmt: skip
KINDS = {
    "GEE": "robust", "GEE, naive": "naive", "GEE, bias reduced": "bias reduced",
    "GEE, logit": "robust", "RLM": "H1", "RLM, H2": "H2", "IV2SLS": "nonrobust", "MixedLM": "REML",
}  # fmt: skip
PREDICTS = [name for name in FITS if "inalGEE" not in name]


@pytest.fixture(params=FITS)
def fit(request):
    return request.param, fitted(request.param)


def fitted(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FITS[name]()


def test_parameters_have_the_errors_and_quantiles_of_the_fit(fit):
    name, results = fit
    model = idm.from_statsmodels(results)
    answer = idm.infer(model, idm.parameters)
    np.testing.assert_array_equal(answer.value, np.asarray(results.params))
    np.testing.assert_allclose(answer.standard_error, results.bse, rtol=1e-12)
    np.testing.assert_allclose(answer.covariance, results.cov_params(), rtol=1e-9, atol=1e-15)
    low, high = answer.confidence_interval()
    np.testing.assert_allclose(np.column_stack([low, high]), results.conf_int(), rtol=1e-9)
    if hasattr(results.params, "index"):
        assert list(answer.names) == list(results.params.index)
    described = answer.diagnostics.notes["variance"]
    assert described.startswith("covariance as estimated by statsmodels")
    assert described.endswith(KINDS.get(name, ""))


@pytest.mark.parametrize("name", PREDICTS)
def test_questions_are_the_delta_method(name):
    results = fitted(name)
    model, params = idm.from_statsmodels(results), np.asarray(results.params)
    offset = FRAME.years.to_numpy() if "counts" in name else np.ones(N)
    design = np.asarray(results.model.exog)
    link = getattr(getattr(results.model, "family", None), "link", None)
    inverse = (lambda eta: eta) if link is None else link.inverse
    slope = np.ones_like if link is None else link.inverse_deriv
    eta = design @ params[: design.shape[1]] + np.log(offset)
    g = np.zeros(params.size)
    g[: design.shape[1]] = (slope(eta)[:, None] * design).mean(axis=0)
    answer = idm.infer(model, idm.average_prediction())
    assert answer.value == pytest.approx(inverse(eta).mean(), rel=1e-12)
    V = np.asarray(results.cov_params())
    assert answer.standard_error == pytest.approx(np.sqrt(g @ V @ g), rel=1e-10)
    by_params = idm.infer(model, lambda params: params.predict().mean())
    assert by_params.standard_error == pytest.approx(answer.standard_error, rel=1e-9)


@pytest.mark.parametrize("name", [n for n in PREDICTS if n not in ("GEE of arrays", "IV2SLS")])
def test_slopes_go_through_the_formula(name):
    results = fitted(name)
    model = idm.from_statsmodels(results)
    slope = idm.infer(model, idm.average_slope("x"))
    if "logit" not in name and "counts" not in name:
        params = results.params
        rows = [label for label in params.index if label == "x" or label.startswith("x:treated")]
        share = FRAME["treated"].mean()
        g = np.array([{"x": 1.0, "x:treated": share}.get(label, 0.0) for label in params.index])
        assert rows
        assert slope.value == pytest.approx(g @ params, rel=1e-9)
        error = np.sqrt(g @ results.cov_params().to_numpy() @ g)
        assert slope.standard_error == pytest.approx(error, rel=1e-9)
    drawn = idm.infer(model, idm.average_slope("x"), idm.Simulation(2000, rng=0))
    assert drawn.standard_error == pytest.approx(slope.standard_error, rel=0.1)


def test_gee_of_independent_rows_agrees_with_a_clustered_glm():
    """One row per group, independence: the sandwich of GEE is HC0 of the GLM."""
    formula = "yes ~ x * treated"
    binomial = sm.families.Binomial()
    gee = smf.gee(formula, np.arange(N), FRAME, family=binomial).fit(ctol=1e-12)
    glm = smf.glm(formula, FRAME, family=binomial).fit(cov_type="HC0", tol=1e-12)
    asked = [idm.average_comparison("treated"), idm.average_slope("x", by="site")]
    one, other = (idm.infer(idm.from_statsmodels(results), asked) for results in (gee, glm))
    np.testing.assert_allclose(one.value, other.value, rtol=1e-6)
    np.testing.assert_allclose(one.standard_error, other.standard_error, rtol=1e-5)


def test_what_needs_rows_is_refused(fit):
    _, results = fit
    model = idm.from_statsmodels(results)
    for call in (
        lambda: idm.infer(model, idm.parameters, robust="HC1"),
        lambda: idm.infer(model, idm.parameters, clusters=GROUPS),
        lambda: idm.infer(model, idm.parameters, idm.Bootstrap(20)),
        lambda: idm.profile(model, lambda params: np.asarray(params)[0]),
    ):
        with pytest.raises(idm.UnsupportedModelError, match="as estimated by statsmodels"):
            call()
    with pytest.raises(ValueError, match="weight_kind"):
        idm.from_statsmodels(results, weight_kind="sampling")
    with pytest.raises(ValueError, match="alpha="):
        idm.from_statsmodels(results, alpha=0.1)

"""Labels, claims and rates that were once taken in silence."""

import numpy as np
import pytest

import implicit_delta as idm

pd = pytest.importorskip("pandas")
sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"x": RNG.normal(size=60), "z": RNG.normal(size=60) / 100})
FRAME["g"] = np.arange(60) // 5
FRAME["y"] = FRAME.x + RNG.normal(size=12)[FRAME.g] + RNG.normal(size=60)


def test_clusters_are_aligned_with_the_rows_of_a_data_frame_in_scikit_learn():
    linear = pytest.importorskip("sklearn.linear_model")
    X = FRAME[["x", "z"]]
    model = idm.from_sklearn(linear.LinearRegression().fit(X, FRAME.y), X, FRAME.y)
    kwargs = {"robust": "CR2"}
    right = idm.infer(model, lambda m: m.coef_, clusters=FRAME.g, **kwargs)
    shuffled = idm.infer(model, lambda m: m.coef_, clusters=FRAME.g.sample(frac=1.0), **kwargs)
    np.testing.assert_allclose(shuffled.standard_error, right.standard_error)


def test_a_covariance_is_aligned_by_its_labels():
    results = smf.ols("y ~ x + z", FRAME).fit()
    order = ["z", "x", "Intercept"]
    V = results.cov_params().loc[order, order]
    estimate = idm.infer(idm.from_statsmodels(results), idm.parameters, covariance=V)
    np.testing.assert_allclose(estimate.standard_error, results.bse)


def test_few_clusters_of_a_fit_are_warned_about():
    fit = smf.ols("y ~ x", FRAME).fit(cov_type="cluster", cov_kwds={"groups": FRAME.g})
    with pytest.warns(idm.SmallSampleWarning, match="only 12 clusters"):
        estimate = idm.infer(idm.from_statsmodels(fit), idm.parameters)
    np.testing.assert_allclose(estimate.standard_error, fit.bse)


def test_an_average_over_training_rows_says_that_it_is_robust():
    model = idm.from_statsmodels(smf.ols("y ~ x", FRAME).fit())
    h = lambda b: b["x"] * FRAME.x.to_numpy()
    estimate = idm.infer(model, idm.Average(h, sample="training"))
    assert estimate.diagnostics.notes["variance"] == "robust (HC0)"
    few = FRAME.iloc[:9].assign(x=np.exp(np.arange(9.0)))
    model = idm.from_statsmodels(smf.ols("y ~ x", few).fit())
    with pytest.warns(idm.SmallSampleWarning, match="HC0"):
        idm.infer(model, idm.Average(lambda b: b["x"] * np.arange(9.0), sample="training"))


def test_claimed_hc3_is_that_of_the_rows_of_an_average():
    h = lambda b: b["x"] * FRAME.x.to_numpy()
    average = idm.Average(h, sample="training")
    claimed = idm.from_statsmodels(smf.ols("y ~ x", FRAME).fit(cov_type="HC3"))
    plain = idm.from_statsmodels(smf.ols("y ~ x", FRAME).fit())
    asked = idm.infer(plain, average, robust="HC3")
    assert idm.infer(claimed, average).standard_error == pytest.approx(asked.standard_error)


def test_proportions_are_not_repeated_rows():
    trials = RNG.integers(5, 20, size=60)
    share = RNG.binomial(trials, 0.4) / trials
    glm = sm.GLM(share, sm.add_constant(FRAME.x), sm.families.Binomial(), freq_weights=trials)
    with pytest.warns(idm.ImplicitDeltaWarning, match="proportions of so many trials.*var_weights"):
        idm.from_statsmodels(glm.fit())


def test_a_psi_that_ignores_its_argument_is_told():
    results = smf.ols("y ~ x", FRAME).fit()
    with pytest.raises(idm.EvaluationError, match=r"params.predict\(new\)"):
        idm.infer(idm.from_statsmodels(results), lambda params: results.predict(FRAME).mean())


def test_plots_take_what_tables_take():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    estimate = idm.infer(idm.from_statsmodels(smf.ols("y ~ x", FRAME).fit()), idm.parameters)
    points = estimate.plot(transform="exp").containers[0].lines[0].get_xdata()
    np.testing.assert_allclose(points, estimate.to_dict(transform="exp")["estimate"])
    pyplot.close("all")

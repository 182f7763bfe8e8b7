"""Fixed parameters, tests between nested fits, summaries, and several optima."""

import warnings

import numpy as np
import pytest
from scipy.stats import chi2, genextreme, norm

import implicit_delta as idm
from implicit_delta.inference.likelihood_ratio import mixture
from implicit_delta.models.loglik_rows import LoglikRows
from implicit_delta.models.model import FittedModel
from implicit_delta.models.printing import log_likelihood_of
from implicit_delta.models.redraws import reweight
from implicit_delta.models.weights import Weights

sm = pytest.importorskip("statsmodels.api")

RNG = np.random.default_rng(5)
X = RNG.normal(size=90)
Y = 1.0 + 0.3 * X + RNG.normal(size=90)
COUNTS = RNG.poisson(np.exp(0.5 + 0.2 * X))


def normal(th):
    return norm.logpdf(Y, th.mu + th.b * X, np.exp(th.ls))


def poisson(th):
    eta = th.a + th.b * X
    return COUNTS * eta - np.exp(eta)


NORMAL = idm.from_loglik(normal, start={"mu": 0.0, "b": 0.0, "ls": 0.0}, bounds={"ls": (-5, 5)})
POISSON = idm.from_loglik(poisson, start={"a": 0.0, "b": 0.0})
LINE = idm.from_residuals(lambda th: Y - th.a - th.b * X, start={"a": 0.0, "b": 0.0})


@pytest.mark.parametrize("values", [{"b": 0.1}, {1: 0.1}, {-2: 0.1}, {"b": np.array(0.1)}])
def test_a_fixed_model_is_the_one_written_without_the_parameter(values):
    fixed = NORMAL.fix(values)
    other = idm.from_loglik(
        lambda th: norm.logpdf(Y, th[0] + 0.1 * X, np.exp(th[1])), start=[0.0, 0.0]
    )
    # A fit ends within 1e-6 standard errors, which are about a tenth here.
    np.testing.assert_allclose(np.asarray(fixed.theta)[[0, 2]], other.theta, rtol=0, atol=2e-7)
    assert fixed.theta.b == 0.1
    ours = idm.infer(fixed, lambda th: th.mu + 2 * th.b + np.exp(th.ls))
    theirs = idm.infer(other, lambda th: th[0] + 0.2 + np.exp(th[1]))
    assert ours.value == pytest.approx(theirs.value, abs=2e-6 * theirs.standard_error)
    assert ours.standard_error == pytest.approx(theirs.standard_error, rel=1e-5)


def test_what_is_fixed_has_no_error_and_that_is_said():
    fixed = NORMAL.fix(b=0.1)
    assert idm.infer(fixed, idm.parameters).standard_error[1] == 0
    assert "b == 0.1" in str(fixed)
    assert "(1 fixed)" in str(fixed)
    assert "Fixed, so without an error: b" in repr(fixed.summary())


def test_released_it_is_the_first_model_again():
    fixed = NORMAL.fix(b=0.1, mu=0.5)
    assert fixed.space.fixed == {1: 0.1, 0: 0.5}
    half = fixed.release("mu")
    assert half.theta.b == 0.1
    for again in (fixed.release(), half.release("b"), fixed.release("b", 0)):
        np.testing.assert_allclose(again.theta, NORMAL.theta, rtol=1e-6, atol=1e-8)
        assert str(again.space.constraints) == str(NORMAL.space.constraints)
        assert not again.space.fixed


def test_fixing_again_moves_the_value():
    assert NORMAL.fix(b=0.1).fix(b=0.2).theta.b == 0.2


def test_bounds_come_back_when_released():
    model = idm.from_loglik(normal, start={"mu": 0.0, "b": 0.0, "ls": 0.0}, bounds={"b": (-1, 0.1)})
    assert model.theta.b == 0.1
    fixed = model.fix(b=-0.5)
    assert fixed.theta.b == -0.5
    assert fixed.release("b").theta.b == 0.1


def test_least_squares_counts_what_is_free():
    fixed = LINE.fix(b=0.0)
    assert fixed.facts.df == 89
    expected = Y.std(ddof=1) / np.sqrt(90)
    assert idm.infer(fixed, "a").standard_error == pytest.approx(expected)


def test_an_array_is_fixed_as_a_whole():
    Z = np.column_stack([np.ones(90), X, X**2])
    model = idm.from_loglik(
        lambda th: norm.logpdf(Y, Z @ th.beta, np.exp(th.ls)),
        start={"beta": np.zeros(3), "ls": 0.0},
    )
    fixed = model.fix(beta=[1.0, 0.3, 0.0])
    np.testing.assert_array_equal(fixed.theta.beta, [1.0, 0.3, 0.0])
    one = model.fix({"beta[2]": 0.0})
    np.testing.assert_allclose(one.theta.beta[:2], NORMAL.theta[:2], rtol=1e-6)


def test_least_squares_tests_are_those_of_statsmodels():
    large = sm.OLS(Y, sm.add_constant(X)).fit()
    small = sm.OLS(Y, np.ones(90)).fit()
    found = idm.likelihood_ratio(LINE.fix(b=0.0), LINE)
    statistic, p_value, df = large.compare_lr_test(small)
    assert (found.statistic, found.p_value, found.df) == pytest.approx((statistic, p_value, df))
    f, f_p, _ = large.compare_f_test(small)
    assert (found["F"].statistic, found["F"].p_value) == pytest.approx((f, f_p))
    assert found["Wald"].statistic == pytest.approx(large.tvalues[1] ** 2)
    assert found["Wald"].p_value == pytest.approx(large.pvalues[1])
    score, score_p, _ = large.compare_lm_test(small)
    assert (found["score"].statistic, found["score"].p_value) == pytest.approx((score, score_p))


def test_poisson_tests_are_those_of_statsmodels():
    design = sm.add_constant(X)
    large = sm.GLM(COUNTS, design, family=sm.families.Poisson()).fit(tol=1e-12)
    small = sm.GLM(COUNTS, np.ones(90), family=sm.families.Poisson()).fit(tol=1e-12)
    found = idm.likelihood_ratio(POISSON.fix(b=0.0), POISSON)
    assert found.statistic == pytest.approx(2 * (large.llf - small.llf), rel=1e-6)
    assert found.p_value == pytest.approx(chi2.sf(found.statistic, 1))
    assert found["Wald"].statistic == pytest.approx(large.tvalues[1] ** 2, rel=1e-5)
    at_null = sm.GLM(COUNTS, design, family=sm.families.Poisson())
    point = np.array([small.params[0], 0.0])
    slope, curve = at_null.score(point), -at_null.hessian(point)
    expected = slope @ np.linalg.solve(curve, slope)
    assert found["score"].statistic == pytest.approx(expected, rel=1e-5)


def test_fits_with_functions_of_their_own_are_compared_by_name():
    small = idm.from_loglik(lambda th: COUNTS * th.a - np.exp(th.a), start={"a": 0.0})
    found, fixed = (idm.likelihood_ratio(m, POISSON) for m in (small, POISSON.fix(b=0.0)))
    for test in fixed.tests:
        assert found[test.name].statistic == pytest.approx(test.statistic, rel=1e-5)
    unnamed = idm.from_loglik(lambda th: COUNTS * th[0] - np.exp(th[0]), start=[0.0])
    found = idm.likelihood_ratio(unnamed, POISSON)
    assert [test.name for test in found.tests] == ["likelihood ratio"]
    assert "No Wald and score tests" in repr(found)


def test_two_degrees_of_freedom():
    found = idm.likelihood_ratio(NORMAL.fix(mu=1.0, b=0.3), NORMAL)
    assert found.df == 2
    names = [test.name for test in found.tests]
    assert names == ["likelihood ratio", "Wald", "score"]
    covariance = idm.infer(NORMAL, ["mu", "b"]).covariance
    gap = np.asarray(NORMAL.theta)[:2] - [1.0, 0.3]
    expected = gap @ np.linalg.solve(covariance, gap)
    assert found["Wald"].statistic == pytest.approx(expected, rel=1e-6)


def test_at_a_bound_the_p_value_is_halved():
    model = idm.from_loglik(normal, start={"mu": 0.0, "b": 0.1, "ls": 0.0}, bounds={"b": (0, None)})
    found = idm.likelihood_ratio(model.fix(b=0.0), model)
    assert found.p_value == pytest.approx(chi2.sf(found.statistic, 1) / 2)
    assert "50:50 mixture" in repr(found)
    inside = idm.likelihood_ratio(model.fix(b=0.1), model)
    assert inside.p_value == pytest.approx(chi2.sf(inside.statistic, 1))


def test_at_a_bound_that_holds_nothing_is_said_against_the_smaller_model():
    model = idm.from_loglik(
        lambda th: norm.logpdf(-Y, th.mu + th.b * X, 1.0),
        start={"mu": 0.0, "b": 0.1},
        bounds={"b": (0, None)},
    )
    assert model.theta.b == 0
    found = idm.likelihood_ratio(model.fix(b=0.0), model)
    assert (found.statistic, found.p_value) == (0.0, 1.0)


@pytest.mark.parametrize(("statistic", "df"), [(0.0, 1), (1.3, 1), (2.0, 2), (5.5, 3)])
def test_the_mixture_is_half_and_half(statistic, df):
    normals = np.random.default_rng(0).normal(size=(200_000, df))
    normals[:, 0] = np.maximum(normals[:, 0], 0.0)
    share = np.mean(np.sum(normals**2, axis=1) >= statistic)
    assert mixture(statistic, df, 1) == pytest.approx(share, abs=4 * 0.5 / np.sqrt(200_000))


def test_the_size_of_the_test_at_a_bound():
    rng, rejected, sets = np.random.default_rng(0), 0, 60
    for y in rng.normal(size=(sets, 40)):
        model = idm.from_residuals(
            lambda th, y=y: y - th.m - th.k * X[:40],
            start={"m": 0.5, "k": 0.1},
            bounds={"m": (0, 9)},
            variance=1.0,
        )
        rejected += idm.likelihood_ratio(model.fix(m=0.0), model).p_value < 0.1
    assert rejected / sets == pytest.approx(0.1, abs=3 * np.sqrt(0.1 * 0.9 / sets))


def test_the_summary_of_least_squares_is_that_of_statsmodels():
    results = sm.OLS(Y, sm.add_constant(X)).fit()
    summary = LINE.summary()
    np.testing.assert_allclose(summary.estimate.standard_error, results.bse, rtol=1e-6)
    found = summary.statistics
    assert found.log_likelihood == pytest.approx(results.llf)
    assert found.aic == pytest.approx(
        results.aic + 2
    )  # R counts the variance, statsmodels does not
    assert found.noise == pytest.approx(results.scale)
    assert found.df == 88
    correlation = results.cov_params()[0, 1] / np.prod(results.bse)
    assert summary.correlations[0, 1] == pytest.approx(correlation, abs=1e-6)


def test_precisions_have_the_likelihood_of_weighted_least_squares():
    weights = np.linspace(0.5, 2.0, 90)
    results = sm.WLS(Y, sm.add_constant(X), weights=weights).fit()
    model = idm.from_residuals(
        lambda th: Y - th[0] - th[1] * X, start=[0.0, 0.0], weights=weights, weight_kind="precision"
    )
    assert log_likelihood_of(model) == pytest.approx(results.llf)


def test_chi_square_of_a_known_variance():
    model = idm.from_residuals(lambda th: Y - th[0] - th[1] * X, start=[0.0, 0.0], variance=1.2)
    found = model.summary().statistics
    squares = np.sum((Y - model.theta[0] - model.theta[1] * X) ** 2) / 1.2
    assert found.squares == pytest.approx(squares)
    assert found.p_value == pytest.approx(chi2.sf(squares, 88))
    expected = norm.logpdf(Y, model.theta[0] + model.theta[1] * X, np.sqrt(1.2)).sum()
    assert found.log_likelihood == pytest.approx(expected)


def test_the_summary_measures_the_distance_of_bounds():
    summary = NORMAL.summary(0.9)
    gap = (5 - NORMAL.theta.ls) / summary.estimate.standard_error[2]
    near = {limit.limit: limit.distance for limit in summary.limits}
    assert near["ls <= 5"] == pytest.approx(gap, rel=1e-4)
    assert "90% confidence intervals" in repr(summary)
    assert "AIC" in repr(summary)


def test_the_print_has_the_log_likelihood():
    total = normal(NORMAL.theta).sum()
    assert str(NORMAL).splitlines()[0] == (
        f"from_loglik: 90 rows, 3 parameters, log-likelihood {total:.1f}"
    )
    assert str(LINE).startswith("from_residuals: 90 rows, 2 parameters, log-likelihood ")
    roots = idm.from_equations(lambda th: Y - th[0], start=[0.0])
    assert str(roots).startswith("from_equations: 90 rows, 1 parameters")
    assert repr(NORMAL).startswith(f"{type(NORMAL).__name__}: 90 observations, 3 parameters")


MODES = np.array([-6.0, -5.8, -5.5, 4.9, 5.0, 5.1, 5.2, 5.3])


def cauchy(th):
    return -np.log1p((MODES - th.m) ** 2 / 0.5)


@pytest.mark.parametrize("starts", [8, [{"m": 5.0}, [0.3]], [[-5.0], [4.0]]])
def test_several_starts_find_the_best_optimum(starts):
    local = idm.from_loglik(cauchy, start={"m": -5.5})
    model = idm.from_loglik(cauchy, start={"m": -5.5}, starts=starts, bounds={"m": (-10, 10)})
    assert local.theta.m < 0 < model.theta.m
    assert len(model.facts.optima) >= 2
    assert model.facts.optima[0].objective == pytest.approx(model.objective(model.theta))
    assert model.facts.optima[1].objective < model.facts.optima[0].objective
    assert f"{len(model.facts.optima)} found in" in str(model)


def test_several_starts_are_the_same_each_time():
    first, second = (idm.from_loglik(cauchy, start={"m": -5.5}, starts=6) for _ in range(2))
    np.testing.assert_array_equal(first.theta, second.theta)
    assert [o.count for o in first.facts.optima] == [o.count for o in second.facts.optima]


def test_one_maximum_is_one_optimum():
    model = idm.from_loglik(poisson, start={"a": 0.0, "b": 0.0}, starts=5)
    assert len(model.facts.optima) == 1
    np.testing.assert_allclose(model.theta, POISSON.theta, rtol=1e-6)


def test_a_better_optimum_met_by_the_bootstrap_is_told():
    local = idm.from_loglik(cauchy, start={"m": -5.5})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        idm.infer(local, "m", idm.Bootstrap(60, kind="bayesian", rng=0))
    (text,) = [str(w.message) for w in caught if "better optimum" in str(w.message)]
    start = eval(text.rpartition("start=")[2].removesuffix(")."))
    assert idm.from_loglik(cauchy, start=start).theta.m > 4


def test_a_better_optimum_met_by_a_profile_is_told():
    local = idm.from_loglik(cauchy, start={"m": -5.5})
    with pytest.raises(idm.ConvergenceError, match=r"start=\{'m': ") as caught:
        idm.profile(local, "m", 0.9999999)
    start = eval(str(caught.value).rpartition("start=")[2].removesuffix(")`."))
    assert idm.from_loglik(cauchy, start=start).theta.m > 4


def test_a_row_of_weight_zero_is_not_there():
    """A resample without the largest value may lead to where that would be impossible."""
    z = genextreme.rvs(0.15, 10, 2, size=50, random_state=1)
    weights = (z < np.sort(z)[-2]).astype(float)

    def gev(th):
        return genextreme.logpdf(z, -th.xi, th.mu, np.exp(th.ls))

    start = {"xi": -0.1, "mu": 10.0, "ls": 0.7}
    model = reweight(idm.from_loglik(gev, start=start), weights)
    kept = z[weights > 0]
    other = idm.from_loglik(
        lambda th: genextreme.logpdf(kept, -th.xi, th.mu, np.exp(th.ls)), start=start
    )
    np.testing.assert_allclose(idm.polish(model).theta, other.theta, rtol=1e-5)
    beyond = np.array([-0.5, 10.0, 0.5])
    assert np.isneginf(gev(model.space.layout.named(beyond))).any()
    assert model.objective(beyond) == pytest.approx(other.objective(beyond))


def test_minus_infinity_at_weight_zero_with_a_score():
    y = np.array([1.0, 2.0, 3.0, 0.0])

    def exponential(th):
        with np.errstate(all="ignore"):
            return np.log(th[0] * y) - th[0] * y

    def score(th):
        with np.errstate(all="ignore"):
            return ((1 - th[0] * y) * (y / y) / th[0])[:, None]

    weights = np.array([1.0, 1.0, 1.0, 0.0])
    full = idm.from_loglik(lambda th: exponential(th)[:3], start=[1.0])
    rows = LoglikRows(exponential, n=4, d=1, scores=score)
    model = FittedModel(full.theta, rows, Weights(weights))
    assert np.all(np.isfinite(model.score(full.theta)))
    assert model.objective(full.theta) == pytest.approx(full.objective(full.theta))


def test_the_bootstrap_of_extremes_loses_no_replicate():
    z = genextreme.rvs(-0.1, 10, 2, size=50, random_state=1)  # three of 40 were lost
    model = idm.from_loglik(
        lambda th: genextreme.logpdf(z, -th.xi, th.mu, np.exp(th.ls)),
        start={"xi": -0.1, "mu": 10.0, "ls": 0.7},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimate = idm.infer(
            model,
            lambda th: genextreme.ppf(0.99, -th.xi, th.mu, np.exp(th.ls)),
            idm.Bootstrap(40, rng=0),
        )
    assert estimate.diagnostics.notes["failed"] == 0

"""Student's t and F where a noise variance was estimated, and the null of every table."""

import numpy as np
import pytest
import scipy.stats

import implicit_delta as idm
from implicit_delta.estimate import Estimate

N = 12
RNG = np.random.default_rng(3)
X = np.column_stack([np.ones(N), RNG.normal(size=N)])
Y = X @ [1.0, 0.6] + RNG.normal(size=N)


def line(**options):
    return idm.from_residuals(lambda b: Y - X @ b, start=[0.0, 0.0], **options)


def by_hand():
    """Value, standard errors and p-values of ordinary least squares."""
    b = np.linalg.solve(X.T @ X, X.T @ Y)
    s2 = np.sum((Y - X @ b) ** 2) / (N - 2)
    errors = np.sqrt(s2 * np.diag(np.linalg.inv(X.T @ X)))
    return b, errors, 2 * scipy.stats.t.sf(abs(b / errors), N - 2)


def test_least_squares_has_t_intervals_and_p_values():
    estimate = idm.infer(line(), idm.parameters)
    b, errors, p = by_hand()
    assert estimate.df == N - 2
    np.testing.assert_allclose(estimate.standard_error, errors, rtol=1e-6)
    np.testing.assert_allclose(estimate.test().p_value, p, rtol=1e-5)
    half = scipy.stats.t.ppf(0.975, N - 2) * errors
    np.testing.assert_allclose(estimate.confidence_interval(), (b - half, b + half), rtol=1e-6)


def test_all_backends_and_hosts_have_the_same_degrees_of_freedom():
    torch, sm = pytest.importorskip("torch"), pytest.importorskip("statsmodels.api")
    module = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    b = by_hand()[0]
    module.weight.data[:] = torch.tensor(b)
    data = torch.tensor(X), torch.tensor(Y)[:, None]
    of_torch = idm.infer(idm.from_torch(module, data, idm.Gaussian()), idm.parameters)
    of_host = idm.infer(idm.from_statsmodels(sm.OLS(Y, X).fit()), idm.parameters)
    for estimate in (of_torch, of_host):
        assert estimate.df == N - 2
        np.testing.assert_allclose(estimate.test().p_value, by_hand()[2], rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "df"),
    [
        ({}, N - 2),
        ({"variance": "unbiased"}, N - 2),
        ({"variance": "mle"}, N - 2),
        ({"variance": 1.0}, np.inf),
    ],
)
def test_only_an_estimated_variance_costs_degrees_of_freedom(options, df):
    assert idm.infer(line(**options), idm.parameters).df == df


def test_the_default_variance_is_unbiased_without_a_penalty_and_mle_with_one():
    def likelihood(**options):
        return line(**options).rows.outputs.likelihood

    assert likelihood() == likelihood(variance="unbiased")
    assert likelihood(l2=1.0) == likelihood(l2=1.0, variance="mle")


def test_a_ridge_leaves_more_degrees_of_freedom():
    assert N - 2 < line(l2=3.0).facts.df < N


def test_a_user_decides():
    model = line()
    assert idm.infer(model, idm.parameters, df=5).df == 5
    normal = idm.infer(model, idm.parameters, df=np.inf)
    half = np.diff(normal.confidence_interval(), axis=0)[0] / 2
    np.testing.assert_allclose(half, scipy.stats.norm.ppf(0.975) * normal.standard_error)
    for wrong in (0, -1, np.nan, [1.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match="degrees of freedom"):
            idm.infer(model, idm.parameters, df=wrong)


def test_joint_test_is_f_and_equals_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    reference = sm.OLS(Y, X).fit().f_test(np.eye(2))
    found = idm.infer(line(), idm.parameters).test(joint=True)
    assert found.statistic == pytest.approx(float(reference.fvalue), rel=1e-6)
    assert found.p_value == pytest.approx(float(reference.pvalue), rel=1e-6)


def test_one_evaluation_of_a_joint_test_is_its_t_test():
    one = idm.infer(line(), lambda b: b[1])
    assert one.test(joint=True).p_value == pytest.approx(one.test().p_value, rel=1e-9)


def test_a_simultaneous_band_is_that_of_the_multivariate_t():
    """Of independent evaluations over one estimated scale, by numerical integration."""
    df, K, level = 6, 3, 0.95
    estimate = Estimate(np.zeros(K), np.eye(K), ("a", "b", "c"), "by hand", df=df)
    critical = estimate.confidence_interval(level, simultaneous=True, rng=1).high[0]
    scale = np.sqrt(scipy.stats.chi2.ppf((np.arange(4000) + 0.5) / 4000, df) / df)
    inside = (2 * scipy.stats.norm.cdf(critical * scale) - 1) ** K
    assert np.mean(inside) == pytest.approx(level, abs=0.003)


def test_contrasts_take_the_smallest_degrees_of_freedom_they_use():
    estimate = Estimate(np.zeros(3), np.eye(3), ("a", "b", "c"), "by hand", df=[5.0, 9.0, np.inf])
    with pytest.warns(idm.SmallSampleWarning, match="the combination itself"):
        assert estimate.contrast([1, -1, 0]).df == 5
    assert estimate.contrast([0, 1, 0]).df == 9
    np.testing.assert_array_equal(estimate.contrast([[0, 0, 1], [1, 0, 0]]).df, [np.inf, 5])


def test_degrees_of_freedom_are_saved(tmp_path):
    for df in (7.0, np.array([5.0, np.inf])):
        est = Estimate([1.0, 2.0], np.eye(2), ("a", "b"), "by hand", df=df, target="the truth")
        est.save(tmp_path / "est.npz")
        loaded = Estimate.load(tmp_path / "est.npz")
        np.testing.assert_array_equal(loaded.df, df)
        assert loaded.target == "the truth"
        assert repr(loaded) == repr(est)


def test_an_evaluation_sample_dilutes_the_degrees_of_freedom():
    """Welch and Satterthwaite: only the model's variance was estimated from few numbers."""
    units = np.random.default_rng(0).normal(size=500) * 5
    estimate = idm.infer(line(), idm.Average(lambda b: units + b[0]))
    model, total = estimate.budget["model"], estimate.standard_error
    assert estimate.df == pytest.approx((N - 2) * (total / model) ** 4)


@pytest.mark.slow
def test_coverage_with_ten_observations():
    """Normal quantiles cover 90.7 %; the tolerance is three binomial errors."""
    rng, hits, rounds = np.random.default_rng(5), 0, 1500
    x = np.linspace(-1, 1, 10)
    for _ in range(rounds):
        y = 1 + 2 * x + rng.normal(size=10)
        model = idm.from_residuals(
            lambda b, y=y: y - b[0] - b[1] * x,
            start=[1.0, 2.0],
            jacobian=lambda b: np.column_stack([-np.ones(10), -x]),
        )
        low, high = idm.infer(model, lambda b: b[1]).confidence_interval()
        hits += low <= 2 <= high
    assert abs(hits / rounds - 0.95) < 3 * np.sqrt(0.95 * 0.05 / rounds)


def test_a_profile_of_least_squares_has_t_limits():
    """Of a linear model the profile is the t interval."""
    found = idm.profile(line(), lambda b: b[1])
    expected = idm.infer(line(), lambda b: b[1]).confidence_interval()
    np.testing.assert_allclose(found.interval, expected, rtol=1e-6)
    np.testing.assert_allclose(found.wald(), expected, rtol=1e-6)


# The null that a table tests.


def test_tables_say_what_they_test():
    pytest.importorskip("pandas")
    estimate = Estimate([1.0, 3.0], np.eye(2), ("a", "b"), "by hand")
    assert repr(estimate).endswith("Tests of value = 0; normal quantiles.")
    assert "value = 2; t quantiles, df = 7." in Estimate(
        1.0, [[1.0]], ("a",), "by hand", df=7
    ).summary(null=2.0)
    by_row = estimate.summary(null=[1.0, 3.0])
    assert "value = null" in by_row
    assert "null" in by_row.splitlines()[2]
    assert estimate.to_frame(null=[1.0, 3.0]).p_value.tolist() == [1.0, 1.0]
    assert estimate.to_dict()["null"] == [0.0, 0.0]


def test_exponentials_are_tested_against_one():
    estimate = Estimate([0.5], [[0.04]], ("log odds",), "by hand")
    shown = estimate.to_dict(transform="exp")
    assert shown["null"] == [1.0]
    assert shown["p_value"] == estimate.to_dict()["p_value"]
    np.testing.assert_allclose(shown["estimate"], np.exp(0.5))
    np.testing.assert_allclose(shown["std_error"], np.exp(0.5) * 0.2)
    low, high = estimate.confidence_interval()
    np.testing.assert_allclose([shown["conf_low"], shown["conf_high"]], np.exp([low, high]))
    assert "value = 1;" in estimate.summary(transform="exp")
    against_two = estimate.to_dict(transform="exp", null=2.0)
    assert against_two["p_value"][0] == pytest.approx(estimate.test(np.log(2.0)).p_value[0])


def test_probabilities_are_tested_against_one_half():
    shown = Estimate(0.0, [[1.0]], ("logit",), "by hand").to_dict(transform="expit")
    assert (shown["estimate"], shown["std_error"], shown["null"]) == ([0.5], [0.25], [0.5])


@pytest.mark.parametrize("options", [{"transform": "exp", "null": 0.0}, {"transform": "log"}])
def test_bad_tables_are_refused(options):
    with pytest.raises(ValueError, match=r"above 0|'exp', 'expit' or None"):
        Estimate(1.0, [[1.0]], ("a",), "by hand").to_dict(**options)


# Intervals of replicates.


def test_basic_reflects_and_bca_corrects():
    """BCa of the mean of skewed data, against SciPy's."""
    rng = np.random.default_rng(0)
    y = rng.exponential(size=30)
    draws = rng.choice(y, (20_000, 30)).mean(axis=1)[:, None]
    influence = (y - y.mean()) / 30
    skew = np.sum(influence**3) / np.sum(influence**2) ** 1.5 / 6
    est = Estimate(y.mean(), [[draws.var()]], ("m",), "b", draws=draws, acceleration=[skew])
    low, high = est.confidence_interval(kind="percentile")
    basic = est.confidence_interval(kind="basic")
    np.testing.assert_allclose(basic, (2 * y.mean() - high, 2 * y.mean() - low))
    reference = scipy.stats.bootstrap((y,), np.mean, n_resamples=20_000, method="BCa", rng=1)
    np.testing.assert_allclose(
        est.confidence_interval(kind="bca"), reference.confidence_interval, atol=0.02
    )


def test_bca_without_influences_is_refused():
    est = Estimate(1.0, [[1.0]], ("a",), "by hand", draws=np.arange(9.0)[:, None])
    with pytest.raises(ValueError, match="needs the influence"):
        est.confidence_interval(kind="bca")


def test_joint_tests_of_several_degrees_of_freedom_are_those_of_hotelling():
    estimate = Estimate([1.0, 2.0], np.eye(2), ("a", "b"), "by hand", df=[6.0, 9.0])
    F = 5.0 * 5 / (6 * 2)
    found = estimate.test(joint=True)
    assert found.statistic == pytest.approx(F)
    assert found.p_value == pytest.approx(scipy.stats.f.sf(F, 2, 5))
    few = Estimate(np.zeros(3), np.eye(3), ("a", "b", "c"), "by hand", df=[1.5, 1.6, 1.7])
    with pytest.raises(ValueError, match="freedom than the 1"):
        few.test(joint=True)


def test_a_table_of_what_overflows():
    assert "inf" in Estimate(1000.0, [[1.0]], ("a",), "by hand").summary(transform="exp")

"""Data sets that share parameters: one fit, and the share of each in the error."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm

import implicit_delta as idm

RNG = np.random.default_rng(0)
Y1, Y2 = RNG.normal(5.0, 2.0, 60), RNG.normal(5.0, 1.0, 40)


def of_first(th):
    return norm.logpdf(Y1, th.mu, np.exp(th.ls1))


def of_second(th):
    return norm.logpdf(Y2, th["mu"], np.exp(th["ls2"]))


@pytest.fixture(scope="module")
def first():
    return idm.from_loglik(of_first, start={"mu": 0.0, "ls1": 0.0})


@pytest.fixture(scope="module")
def second():
    return idm.from_loglik(of_second, start={"ls2": 0.0, "mu": 0.0})


def by_hand():
    def both(th):
        return np.concatenate(
            [norm.logpdf(Y1, th[0], np.exp(th[1])), norm.logpdf(Y2, th[0], np.exp(th[2]))]
        )

    return idm.from_loglik(both, start=[5.0, 0.5, 0.0], names=["mu", "ls1", "ls2"])


@pytest.mark.parametrize("robust", [False, True])
def test_sum_is_the_joint_fit(first, second, robust):
    model, hand = first + second, by_hand()
    assert model.names == ("mu", "ls1", "ls2")
    np.testing.assert_allclose(model.theta, hand.theta, rtol=1e-6)
    found = idm.infer(model, idm.parameters, robust=robust)
    expected = idm.infer(hand, idm.parameters, robust=robust)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("robust", [False, True])
def test_squares_of_the_sources_add_up(first, second, robust):
    est = idm.infer(first + second, idm.parameters, robust=robust)
    *sources, total = est.budget.values()
    np.testing.assert_allclose(np.sum(np.square(sources), axis=0), np.square(total), rtol=1e-6)
    assert list(est.budget) == ["of_first", "of_second", "total"]


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("sample", ["independent", "unknown", "training"])
def test_averages_of_sums_are_those_of_the_joint_fit(first, second, sample, robust):
    """In a sample of unknown relation standard errors add: the model's part is not split."""
    rows = np.concatenate([Y1, Y2])
    psi = idm.Average(lambda th: np.exp(0.1 * (rows - th[0])), sample=sample)
    found = idm.infer(first + second, psi, robust=robust)
    expected = idm.infer(by_hand(), psi, robust=robust)
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-5)


def test_shares_of_two_means_are_those_of_the_weighted_mean():
    """Variance of a weighted mean: each data set gives (w_k / w)^2 s_k^2 / n_k."""
    m1 = idm.from_loglik(lambda th: norm.logpdf(Y1, th.mu, 2.0), start={"mu": 0.0})
    m2 = idm.from_loglik(lambda th: norm.logpdf(Y2, th.mu, 1.0), start={"mu": 0.0})
    budget = idm.infer(idm.combine(wide=m1, narrow=m2), "mu").budget
    precision = np.array([60 / 4, 40.0])
    shares = np.sqrt(precision) / precision.sum()
    np.testing.assert_allclose([budget["wide"], budget["narrow"]], shares, rtol=1e-8)


def test_measurement_is_a_constraint_term(first):
    model = first + idm.measurement(mu=(4.0, 0.1))
    hand = idm.from_loglik(
        lambda th: np.append(norm.logpdf(Y1, th[0], np.exp(th[1])), norm.logpdf(4.0, th[0], 0.1)),
        start=[4.0, 0.5],
    )
    np.testing.assert_allclose(model.theta, hand.theta, rtol=1e-6)
    found, expected = idm.infer(model, "mu"), idm.infer(hand, lambda th: th[0])
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-6)
    assert list(found.budget) == ["of_first", "mu", "total"]


def test_measurements_that_are_correlated():
    V = np.array([[0.04, 0.01], [0.01, 0.09]])
    est = idm.infer(idm.measurement(V, a=1.0, b=2.0), ["a", "b"])
    np.testing.assert_allclose(est.covariance, V, rtol=1e-6)


def test_sums_are_associative_and_keep_their_sources(first, second):
    third = idm.measurement(mu=(5.0, 0.2))
    one, other = (first + second) + third, first + (second + third)
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-5)
    assert [s.name for s in one.facts.sources] == [s.name for s in other.facts.sources]
    assert len(one.facts.sources) == 3


def test_bounds_of_a_part_hold_for_all(first):
    low = idm.from_loglik(
        lambda th: norm.logpdf(Y2, th.mu, 1.0), start={"mu": 7.0}, bounds={"mu": (6.0, None)}
    )
    assert (first + low).theta["mu"] == pytest.approx(6.0)


def test_arrays_of_parameters_are_shared_as_one():
    x = np.linspace(0, 1, 30)
    y = 1 + 2 * x + RNG.normal(0, 0.1, 30)
    line = idm.from_loglik(
        lambda th: norm.logpdf(y, th.beta[0] + th.beta[1] * x, 0.1), start={"beta": np.zeros(2)}
    )
    model = line + idm.from_loglik(
        lambda th: norm.logpdf(np.array([3.0]), th.beta.sum(), 0.01), theta={"beta": [1.0, 2.0]}
    )
    at_one = idm.infer(model, lambda th: th.beta.sum())
    assert at_one.value == pytest.approx(3.0, abs=0.02)


def test_parts_with_scores_keep_them():
    def make(y):
        return idm.from_loglik(
            lambda th: norm.logpdf(y, th.mu, 1.0),
            start={"mu": 0.0},
            score=lambda th: (y - th.mu)[:, None],
        )

    model = make(Y1) + make(Y2)
    est = idm.infer(model, "mu")
    assert est.standard_error == pytest.approx(0.1, rel=1e-8)
    assert est.budget["data 1"] == pytest.approx(np.sqrt(60) / 100, rel=1e-6)


def test_estimates_of_sums_compose_and_are_saved(first, second, tmp_path):
    est = idm.infer(first + second, ["mu", "ls1"], influence=True)
    twice = 2 * est["mu"]
    assert twice.budget["of_first"] == pytest.approx(2 * est["mu"].budget["of_first"])
    alone = idm.infer(first + second, "ls2", influence=True)
    assert (alone - est["ls1"]).standard_error > 0
    est.save(tmp_path / "est.npz")
    assert list(idm.Estimate.load(tmp_path / "est.npz").budget) == list(est.budget)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda m: m + idm.from_loglik(lambda t: -((t[0] - Y1) ** 2), start=[0.0]), "has none"),
        (lambda m: idm.combine(m), "two models or more"),
        (lambda m: idm.combine(total=m, other=m), "every budget has"),
        (lambda m: idm.combine(m, 3), "not int"),
        (lambda m: idm.measurement(), "by name"),
        (lambda m: idm.measurement(a=(1.0, 0.0)), "above zero"),
        (lambda m: idm.measurement(a=1.0), "no measurement"),
        (lambda m: idm.measurement(np.eye(3), a=1.0), "shape"),
        (lambda m: idm.measurement(-np.eye(1), a=1.0), "positive definite"),
        (lambda m: m + idm.from_loglik(
            lambda t: -((t.mu - 1) ** 2), start={"mu": np.zeros(2)}), "shape"),
    ],
)  # fmt: skip
def test_refusals(first, call, text):
    with pytest.raises((TypeError, ValueError), match=text):
        call(first)


def test_what_is_no_model_is_not_added(first):
    with pytest.raises(TypeError):
        first + 1


COUNTS = np.random.default_rng(29).poisson(40.0, 12)


def seen(th):
    return COUNTS * np.log(th.N * th.eff) - th.N * th.eff


@pytest.fixture(scope="module")
def calibrated():
    model = idm.from_loglik(seen, start={"N": 50.0, "eff": 0.9}, bounds={"N": (0, None)})
    return model + idm.measurement(eff=(0.9, 0.03))


BY_HAND = np.hypot(np.std(COUNTS) / np.sqrt(12) / 0.9, COUNTS.mean() / 0.9 * 0.03 / 0.9)


@pytest.mark.parametrize("influence", [False, True])
def test_robust_errors_keep_what_a_measurement_states(calibrated, influence):
    est = idm.infer(calibrated, ["N", "eff"], robust=True, influence=influence)
    np.testing.assert_allclose(est.standard_error, [BY_HAND, 0.03], rtol=1e-5)
    assert est["eff"].budget["eff"] == pytest.approx(0.03)


def test_bootstrap_of_rows_measures_again(calibrated):
    est = idm.infer(calibrated, ["N", "eff"], idm.Bootstrap(300, rng=0))
    np.testing.assert_allclose(est.standard_error, [BY_HAND, 0.03], rtol=4 / np.sqrt(600))


@pytest.mark.parametrize("seed", range(6))
def test_parts_that_contribute_nothing_are_zero(seed):
    counts = np.random.default_rng(seed).poisson(40.0, 12)
    model = idm.from_loglik(
        lambda th: counts * np.log(th.N * th.eff) - th.N * th.eff, start={"N": 50.0, "eff": 0.9}
    ) + idm.measurement(eff=(0.9, 0.03))
    assert idm.infer(model, "eff").standard_error == pytest.approx(0.03, rel=1e-5)
    assert "log-likelihood" in str(model.summary())


def test_data_sets_in_tension_have_a_total():
    ya = np.random.default_rng(3).normal(0, 1, 20)
    model = idm.from_loglik(
        lambda th: norm.logpdf(ya, th.mu, th.s),
        start={"mu": 0.0, "s": 1.0},
        bounds={"s": (0.01, None)},
    ) + idm.measurement(mu=(1.5, 0.05))
    assert idm.infer(model, "mu").standard_error == pytest.approx(0.05, rel=0.05)


def test_log_likelihoods_of_parts_add_with_their_constants():
    m1 = idm.from_residuals(lambda t: Y1 - t.mu, start={"mu": 0.0}, variance=4.0)
    m2 = idm.from_residuals(lambda t: Y2 - t.mu, start={"mu": 0.0})
    model = m1 + m2

    def both(mu):
        free = np.mean((Y2 - mu) ** 2)
        return norm.logpdf(Y1, mu, 2.0).sum() + norm.logpdf(Y2, mu, np.sqrt(free)).sum()

    right = -minimize_scalar(lambda mu: -both(mu), bracket=(4.0, 6.0), tol=1e-10).fun
    found = model.summary().statistics
    assert found.log_likelihood == pytest.approx(right, rel=1e-9)
    assert found.parameters == 2


def test_the_same_data_do_not_count_twice(first):
    with pytest.raises(ValueError, match="count twice"):
        first + first
    with pytest.warns(idm.ImplicitDeltaWarning, match="count twice"):
        first + idm.from_loglik(lambda th: norm.logpdf(Y1, th.mu, 2.0), start={"mu": 0.0})


def test_a_name_that_nobody_shares_is_told(first):
    with pytest.warns(idm.ImplicitDeltaWarning, match="spelled otherwise"):
        first + idm.measurement(Mu=(5.0, 0.1))


def test_fixed_parts_are_fixed_after_combining(first, second):
    with pytest.raises(ValueError, match=r"parameters \(mu\).*\(m1 \+ m2\)\.fix\("):
        first.fix(mu=5.0) + second
    assert (first + second).fix(mu=5.0).theta["mu"] == 5.0


SECOND = np.random.default_rng(4).poisson(45.0, 12)


def test_bootstraps_under_an_equality_are_those_of_the_substitution():
    """The efficiency is measured again in both, and the same rows are drawn."""

    def joint(name):
        def background(th):
            return SECOND * np.log(th[name]) - th[name]

        first = idm.from_loglik(seen, start={"N": 50.0, "eff": 0.9})
        second = idm.from_loglik(background, start={name: 40.0})
        return idm.combine(first=first, eff=idm.measurement(eff=(0.9, 0.03)), second=second)

    with pytest.warns(idm.ImplicitDeltaWarning, match="shares no parameter"):
        apart = joint("B")
    held = apart.constrain(constraints={"type": "eq", "fun": lambda th: th.N - th.B})
    found, expected = (
        idm.infer(m, ["N", "eff"], idm.Bootstrap(40, rng=0)) for m in (held, joint("N"))
    )
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-4)


def test_a_data_set_without_free_parameters_has_robust_errors(calibrated):
    fixed = calibrated.fix(eff=0.9)
    est = idm.infer(fixed, "N", robust="HC0")
    assert est.standard_error == pytest.approx(np.std(COUNTS) / np.sqrt(12) / 0.9, rel=1e-5)
    assert est.budget["eff"] == 0


@pytest.mark.filterwarnings("ignore:h is the same for all")
@pytest.mark.parametrize("influence", [False, True])
def test_robust_errors_of_data_in_tension_count_a_measurement_once(influence):
    """The error that it states, and not its distance from the fit as well."""
    rows = norm.rvs(0.0, 1.0, 400, random_state=3)
    model = idm.from_loglik(lambda th: norm.logpdf(rows, th.mu, 1.0), start={"mu": 0.0})
    joint = model + idm.measurement(mu=(0.3, 0.05))
    est = idm.infer(joint, "mu", robust=True, influence=influence)
    share = 0.5  # of either: the precisions are 400 and 1 / 0.05**2
    mu = joint.theta["mu"]
    expected = share * np.hypot(np.sqrt(np.mean((rows - mu) ** 2) / 400), 0.05)
    assert est.standard_error == pytest.approx(expected, rel=1e-6)
    *sources, total = est.budget.values()
    assert total == pytest.approx(np.sqrt(np.sum(np.square(sources))), rel=1e-6)
    rows_of_mu = idm.Average(lambda th: np.full(401, th.mu), sample="training")
    average = idm.infer(joint, rows_of_mu, influence=influence)
    assert average.standard_error == pytest.approx(expected, rel=1e-6)


def lagged(rows, lags):
    total = rows @ rows
    for lag in range(1, lags + 1):
        total += 2 * (1 - lag / (lags + 1)) * (rows[lag:] @ rows[:-lag])
    return total


def test_correlation_in_time_is_within_each_data_set(tmp_path):
    """The last rows of one are no neighbors of the first of the next, whichever comes first."""
    trend, noise = np.linspace(-1, 1, 60), np.random.default_rng(0).normal(0, 0.3, (2, 60))
    series = [2 * trend + noise[0], 1 + 2 * trend + noise[1]]

    def model(k):
        y = series[k]
        return idm.from_residuals(lambda th: y - th.m, start={"m": 0.0}, variance=1.0)

    found = []
    for order in ([0, 1], [1, 0]):
        both = model(order[0]) + model(order[1])
        est = idm.infer(both, "m", robust=idm.HAC(6), influence=True)
        m = both.theta["m"]
        right = np.sqrt(sum(lagged(own - m, 6) for own in series)) / 120
        assert est.standard_error == pytest.approx(right, rel=1e-6)
        found.append((3 * est - est).standard_error / 2)
        est.save(tmp_path / "est.npz")
        again = idm.Estimate.load(tmp_path / "est.npz")
        found.append((again + again).standard_error / 2)
    np.testing.assert_allclose(found, right, rtol=1e-6)


def test_series_are_as_long_as_the_lags_reach(first):
    short = idm.from_loglik(lambda th: norm.logpdf(Y2[:5], th.mu, 1.0), start={"mu": 0.0})
    with pytest.raises(ValueError, match="5 rows in the shortest"):
        idm.infer(first + short, "mu", robust=idm.HAC(6))

"""Upper and lower limits: closed forms, bounds, mixtures, coverage, runaway parameters."""

import json
from functools import partial

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import erf, pdtr, xlogy
from scipy.stats import binom, chi2, norm
from scipy.stats import poisson as poisson_law

import implicit_delta as idm

Z95 = norm.ppf(0.95)
Y = np.array([3.0, 5.0, 2.0, 4.0])


def poisson(bounds=None):
    return idm.from_loglik(
        lambda th: Y * np.log(np.maximum(th[0], 1e-300)) - th[0], start=[1.0], bounds=bounds
    )


def poisson_end(sign, quantile):
    n, s = Y.size, Y.sum()

    def gap(rate):
        return 2 * (s * np.log(s / n) - s - s * np.log(rate) + n * rate) - quantile

    return brentq(gap, s / n, 50.0) if sign > 0 else brentq(gap, 1e-9, s / n)


def bounded_mean(x, sigma=1.0, low=0.0):
    """One Gaussian measurement x of a mean of at least `low`, in 4 rows."""
    return idm.from_loglik(
        lambda th: np.full(4, -0.125) * ((x - th[0]) / sigma) ** 2,
        start=[low + 1.0],
        bounds=[(low, None)],
    )


def lifted(beyond):
    """Deviance of a 95 % limit whose estimate would lie so far beyond its bound."""
    return Z95**2 + erf(beyond / 2) * (-2 * np.log(0.05) - Z95**2)


@pytest.mark.parametrize("bounds", [None, [(0.01, None)]], ids=["free", "far bound"])
@pytest.mark.parametrize("psi", [lambda th: th[0], lambda th: 3 * th[0] - 1])
def test_one_sided_limits_have_their_closed_form(bounds, psi):
    model = poisson(bounds)
    upper, lower = (poisson_end(sign, Z95**2) for sign in (1, -1))
    found = idm.profile(model, psi, side="upper")
    assert found.interval.high == pytest.approx(psi([upper]), rel=1e-6)
    assert found.interval.low == -np.inf
    assert float(idm.limit(model, psi)) == found.interval.high
    assert float(idm.limit(model, psi, side="lower")) == pytest.approx(psi([lower]), rel=1e-6)
    both = idm.profile(model, psi, 0.9).interval
    assert both.high == pytest.approx(found.interval.high, rel=1e-8)


def test_a_falling_psi_swaps_the_sides():
    upper = float(idm.limit(poisson(), lambda th: 1 / th[0]))
    assert upper == pytest.approx(1 / poisson_end(-1, Z95**2), rel=1e-6)


@pytest.mark.parametrize("x", [-3.0, -1.0, -0.2, 0.0, 0.3, 1.5, 4.0])
def test_limits_of_a_bounded_mean_are_its_likelihood_ratio(x):
    """(u - x)^2 - (max(x, 0) - x)^2 = q: never below the bound, never empty.

    q is 1.645^2, and rises to the 5.99 of no event where x lies beyond the bound.
    """
    quantile = lifted(max(-x, 0.0))
    expected = x + np.sqrt(quantile + (max(x, 0.0) - x) ** 2)
    found = idm.limit(bounded_mean(x), lambda th: th[0])
    assert found.value == pytest.approx(expected, abs=1e-5)
    assert found.value > 0
    assert float(idm.limit(bounded_mean(x), lambda th: np.sqrt(th[0] + 1))) == pytest.approx(
        np.sqrt(expected + 1), abs=1e-5
    )
    lower = idm.limit(bounded_mean(x), lambda th: th[0], side="lower").value
    assert lower == pytest.approx(max(x - Z95, 0.0), abs=1e-5)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("hours", [1.0, 7.5])
def test_no_event_gives_the_exact_limit(level, hours):
    """Poisson: -log(1 - level) / exposure. The 2.71 of a parabola would give 1.35 for 3.0."""
    time = np.full(3, hours / 3)
    model = idm.from_loglik(lambda th: -th[0] * time, start=[0.1], bounds=[(0, None)])
    found = float(idm.limit(model, lambda th: th[0], level))
    assert found == pytest.approx(-np.log(1 - level) / hours, rel=1e-5)


def test_no_success_gives_the_exact_limit():
    """Binomial, 0 of 20: P(0) = 0.05 at the Clopper-Pearson limit."""
    model = idm.from_loglik(
        lambda th: np.full(20, np.log1p(-min(th[0], 1 - 1e-12))),
        start=[0.1],
        bounds=[(0, 0.999)],
    )
    found = float(idm.limit(model, lambda th: th[0]))
    assert binom.pmf(0, 20, found) == pytest.approx(0.05, rel=1e-2)


def test_no_event_beside_a_background_has_a_limit_too():
    counts = np.array([9.0, 7.0, 8.0, 11.0])
    model = idm.from_loglik(
        lambda th: np.append(counts * np.log(max(th[0], 1e-300)) - th[0], -th[1]),
        start=[8.0, 0.5],
        bounds=[(0.1, None), (0, None)],
    )
    assert float(idm.limit(model, lambda th: th[1])) == pytest.approx(-np.log(0.05), rel=1e-4)


def correlated(z, rho):
    """Two correlated Gaussian estimates; the second has a mean of at least zero."""
    precision = np.linalg.inv([[1.0, rho], [rho, 1.0]])

    def loglik(th):
        gap = z - th
        return np.full(2, -0.25 * gap @ precision @ gap)

    return idm.from_loglik(loglik, start=[0.0, 1.0], bounds=[(None, None), (0, None)])


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, -0.9])
@pytest.mark.parametrize("side", ["upper", "lower"])
def test_a_nuisance_bound_enters_the_quantile(rho, side):
    """Coverage with the truth at the bound, of limits whose quantile is that of the mixture."""
    draws = np.random.default_rng(5).multivariate_normal([0, 0], [[1, rho], [rho, 1]], size=40_000)
    root = critical(rho, side)
    covered = np.mean([covers(z, rho, side, root) for z in draws[:8000]])
    assert covered > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 8000)
    assert root >= Z95 - 1e-12


def critical(rho, side):
    """Root of the deviance at the limit that the library finds, for an estimate at the bound."""
    found = idm.limit(correlated(np.array([0.0, 0.0]), rho), lambda th: th[0], side=side)
    return deviance(np.zeros(2), rho, found.value) ** 0.5


def deviance(z, rho, psi):
    """min over nu >= 0 at psi, less the minimum over all psi."""
    conditional = max(z[1] + rho * (psi - z[0]), 0.0)
    gap = np.array([psi - z[0], conditional - z[1]])
    precision = np.linalg.inv([[1.0, rho], [rho, 1.0]])
    best = min(z[1], 0.0) ** 2
    return max(gap @ precision @ gap - best, 0.0)


def covers(z, rho, side, root):
    """Whether the truth psi = 0 is inside: its one-sided deviance is at most the quantile."""
    estimate = z[0] - rho * min(z[1], 0.0)
    on_side = estimate < 0 if side == "upper" else estimate > 0
    return not on_side or deviance(z, rho, 0.0) <= root**2


def test_plain_quantiles_would_miss_it():
    """Without the mixture the limit of rho = 0.9 covers below 94 %: the red side of the test."""
    draws = np.random.default_rng(5).multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], size=8000)
    worst = min(np.mean([covers(z, 0.9, side, Z95) for z in draws]) for side in ("upper", "lower"))
    assert worst < 0.94


@pytest.mark.slow
@pytest.mark.parametrize("distance", [0.0, 0.5, 2.0])
def test_upper_limits_cover_beside_the_bound(distance):
    """Seeded and small; the record of 500 data sets is in results/coverage/table.csv."""
    pytest.importorskip("experiments")
    from experiments.coverage.limits import variance_limit

    streams = np.random.SeedSequence(7).spawn(DATA_SETS)
    found = [covered_or_refused(variance_limit, stream, distance) for stream in streams]
    assert np.mean(found) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / DATA_SETS)


DATA_SETS = 40


def covered_or_refused(trial, stream, distance):
    """A data set whose limit is refused counts as one that is not covered."""
    try:
        return all(trial(np.random.default_rng(stream), 0.95, distance).values())
    except idm.ImplicitDeltaError:
        return False


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, psi: idm.profile(m, psi, side="left"), "side"),
        (lambda m, psi: idm.limit(m, psi, side="both"), "side"),
        (lambda m, psi: idm.limit(m, psi, 0.4), "0.5"),
        (lambda m, psi: idm.limit(m, psi, 0.5), "0.5"),
        (lambda m, psi: idm.limit(m, psi, 95), "confidence"),
    ],
)
def test_bad_sides_and_levels_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(poisson(), lambda th: th[0])


def test_a_limit_prints_its_side_and_level():
    found = idm.limit(poisson(), lambda th: th[0], name="rate")
    assert repr(found) == "rate <= 5.2719 at 95% confidence, estimate 3.5000 (likelihood ratio)"
    assert found.wald == pytest.approx(3.5 + Z95 * np.sqrt(3.5 / 4), rel=1e-6)
    assert "upper limits" in found.profile.summary()


def test_the_other_side_is_not_looked_at():
    """A logarithm of a rate with few events: its lower end is of no interest here."""
    model = idm.from_loglik(lambda th: Y * th[0] - np.exp(th[0]), start=[0.0])
    both = idm.profile(model, lambda th: np.exp(th[0]), 0.9)
    one = idm.profile(model, lambda th: np.exp(th[0]), side="upper")
    assert one.passes < both.passes


MEANS = np.linspace(-0.1, 0.1, 8)
NONE, TRIALS = np.zeros(5), np.full(5, 10.0)
RUNAWAYS = {
    "log-variance": (
        lambda th: norm.logpdf(MEANS, th[0], np.sqrt(0.2 + np.exp(th[1]))),
        [0.0, 0.0],
        r"theta\[1\]",
    ),
    "log-variance, far start": (
        lambda th: norm.logpdf(MEANS, th[0], np.sqrt(0.2 + np.exp(th[1]))),
        [0.0, -20.0],
        r"theta\[1\]",
    ),
    "logit, none": (lambda th: -TRIALS * np.logaddexp(0, th[0]), [0.0], "-infinity"),
    "logit, all": (lambda th: -TRIALS * np.logaddexp(0, -th[0]), [0.0], r"\+infinity"),
    "log-rate": (lambda th: -np.exp(th[0]) + NONE, [0.0], "-infinity"),
    "log-rate, scaled": (lambda th: -np.exp(100 * th[0]) + NONE, [0.0], "-infinity"),
    "one of two rates": (
        lambda th: np.array([0, 0, 3, 4]) * th[[0, 0, 1, 1]] - np.exp(th[[0, 0, 1, 1]]),
        [0.0, 0.0],
        r"theta\[0\]",
    ),
}


@pytest.mark.parametrize("name", RUNAWAYS)
def test_a_parameter_that_runs_away_is_named(name):
    loglik, start, words = RUNAWAYS[name]
    if len(start) == 1:  # nothing else was fitted
        with pytest.raises(idm.ConvergenceError, match=words) as refused:
            idm.from_loglik(loglik, start=start)
        assert "limit(model, psi)" in str(refused.value)
        return
    with pytest.warns(idm.ImplicitDeltaWarning, match=words):
        model = idm.from_loglik(loglik, start=start)
    with pytest.warns(idm.ImplicitDeltaWarning, match="limit"):
        idm.from_loglik(loglik, model.theta)


REGULAR = {
    "far from zero": (lambda th: norm.logpdf(MEANS + 1e6, th[0], 1.0), [1e6 - 1]),
    "small": (lambda th: norm.logpdf(1e-7 * MEANS, th[0], 1e-8), [0.0]),
    "log scale": (lambda th: norm.logpdf(MEANS, th[0], np.exp(th[1])), [0.0, 0.0]),
    "rare": (lambda th: np.array([1.0, 0, 0, 0]) * th[0] - np.exp(th[0]), [0.0]),
    "one of 1000": (lambda th: np.array([th[0] - 1000 * np.logaddexp(0, th[0])]), [0.0]),
    "at its bound": (lambda th: norm.logpdf(MEANS - 1, th[0], 1.0), [1.0], [(0, None)]),
}


@pytest.mark.parametrize("name", REGULAR)
def test_regular_fits_are_not_called_runaways(name):
    loglik, start, *bounds = REGULAR[name]
    idm.from_loglik(loglik, start=start, bounds=bounds[0] if bounds else None)


def test_the_advice_works():
    """The variance itself, with its bound, has a limit."""
    y = 4.2 * MEANS
    model = idm.from_loglik(
        lambda th: norm.logpdf(y, th[0], np.sqrt(0.1 + th[1])),
        start=[0.0, 0.1],
        bounds=[(None, None), (0, None)],
    )
    found = idm.limit(model, lambda th: th[1])

    def deviance(v):
        return 8 * np.log(v / 0.1) + np.sum(y**2) * (1 / v - 1 / 0.1)

    def end(quantile):
        return brentq(lambda v: deviance(v) - quantile, 0.1, 9.0)

    slope = 8 / 0.1 - np.sum(y**2) / 0.1**2  # of the deviance at zero: the part of a line
    share = slope * (end(Z95**2) - 0.1) / Z95**2
    assert 0 < share < 1
    beyond = share * Z95 / np.sqrt(1 - share) / 2
    assert found.value == pytest.approx(end(lifted(beyond)) - 0.1, rel=1e-5)


@pytest.mark.parametrize("side", ["upper", "lower", "both"])
@pytest.mark.parametrize("x", [-1.0, 0.5])
def test_profiles_beside_a_bound_are_drawn(side, x):
    pytest.importorskip("matplotlib")
    found = idm.profile(bounded_mean(x), lambda th: th[0], side=side)
    ax = found.plot()
    low, high = ax.get_xlim()
    assert all(low <= end <= high for end in found.interval if np.isfinite(end))


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("factor", [1e-7, 1.0, 1e7])
def test_printed_ends_have_the_digits_of_the_interval_in_any_unit(unit, factor):
    """At the bound of zero there is no Wald error that digits could follow from."""
    model = idm.from_loglik(
        lambda th: -th.r / unit * np.ones(5), start={"r": unit}, bounds={"r": (0, None)}
    )

    def psi(th):
        return factor * th.r

    found = idm.limit(model, psi, name="r")
    value = float(found)
    assert value == pytest.approx(-np.log(0.05) / 5 * unit * factor, rel=1e-6)
    assert float(repr(found).split()[2]) == pytest.approx(value, rel=1e-3)
    assert len(repr(found).split()[2]) <= 10
    path = idm.profile(model, psi, name="r")
    assert float(repr(path).split()[-3]) == pytest.approx(path.interval.high, rel=1e-3)
    assert f"{found:.3g}" == f"{value:.3g}"
    assert f"{found}" == str(found)


def counting(n, background):
    """One count over a known background, and how such counts are drawn."""

    def loglik(th, n=n):
        return np.array([xlogy(n, th.s + background) - th.s - background])

    return idm.from_loglik(
        loglik,
        start={"s": max(n - background, 1.0)},
        bounds={"s": (0, None)},
        simulate=lambda th, rng: partial(loglik, n=rng.poisson(th.s + background)),
    )


def cls_of_counts(n, b, level=0.95):
    """Sums of Poisson probabilities: their ratio is one less the level."""
    return brentq(lambda s: pdtr(n, s + b) / pdtr(n, b) - 1 + level, 0, 100)


@pytest.mark.parametrize(
    ("n", "garwood"), [(0, 2.9957), (1, 4.7439), (2, 6.2958), (3, 7.7537), (10, 16.9622)]
)
def test_counts_without_background_have_their_classical_limit(n, garwood):
    """Garwood (1936): half the quantile of chi-squared with 2n + 2 degrees of freedom."""
    expected = chi2.ppf(0.95, 2 * n + 2) / 2
    assert expected == pytest.approx(garwood, abs=5e-5)
    for method in (None, "toys", "cls-toys"):
        found = idm.limit(counting(n, 0.0), "s", method=method)
        assert found.value == pytest.approx(expected, rel=1e-6)
        assert found.monte_carlo_error == 0


@pytest.mark.parametrize("level", [0.68, 0.9, 0.95])
@pytest.mark.parametrize(("n", "b"), [(0, 3.0), (1, 0.5), (3, 3.0), (4, 10.0), (14, 10.0)])
def test_cls_of_a_count_is_its_ratio_of_sums(n, b, level):
    found = idm.limit(counting(n, b), "s", level)
    assert found.method == "cls-toys"
    assert found.value == pytest.approx(cls_of_counts(n, b, level), rel=1e-6)


@pytest.mark.parametrize(("n", "b"), [(0, 3.5), (2, 1.0), (6, 3.0)])
def test_toys_of_a_count_are_classical(n, b):
    """Garwood's limit of the sum less the background; zero where it is below."""
    found = idm.limit(counting(n, b), "s", method="toys")
    assert found.value == pytest.approx(max(chi2.ppf(0.95, 2 * n + 2) / 2 - b, 0), abs=1e-6)


@pytest.mark.parametrize(("n", "b"), [(0, 0.0), (1, 0.0), (4, 3.0), (5, 1.0), (8, 2.0)])
def test_lower_limits_of_a_count_are_classical(n, b):
    low = chi2.ppf(0.05, 2 * n) / 2 if n else 0.0
    found = idm.limit(counting(n, b), "s", side="lower", method="toys")
    assert found.value == pytest.approx(max(low - b, 0.0), abs=1e-6)


@pytest.mark.parametrize("x", [-2.0, -0.5, 0.0, 0.4, 2.0, 5.0])
@pytest.mark.parametrize("level", [0.68, 0.9, 0.95])
def test_asymptotic_cls_of_a_normal_mean_is_exact(x, level):
    r"""\Phi(x - u) / \Phi(x) = 1 - level, whether the mean is at its bound or not."""
    expected = x - norm.ppf((1 - level) * norm.cdf(x))
    found = idm.limit(bounded_mean(x), lambda th: th[0], level, method="cls")
    assert found.value == pytest.approx(expected, rel=1e-5)
    assert found.method == "cls"


@pytest.mark.parametrize("b", [0.5, 3.0, 20.0])
def test_asymptotic_cls_of_no_event_is_exact(b):
    found = idm.limit(counting(0, b), "s", method="cls")
    assert found.value == pytest.approx(-np.log(0.05), rel=1e-4)


@pytest.mark.parametrize("method", ["cls", "cls-toys", "toys"])
def test_limits_follow_monotone_transforms_and_units(method):
    model = counting(3, 1.0)
    plain = idm.limit(model, "s", method=method).value
    for psi, back in (
        (lambda th: np.log(th.s), np.exp),
        (lambda th: 1000 * th.s, lambda x: x / 1000),
        (lambda th: th.s / (th.s + 1.0), lambda x: x / (1 - x)),
    ):
        assert back(idm.limit(model, psi, method=method).value) == pytest.approx(plain, rel=1e-6)
    falling = idm.limit(model, lambda th: 1 / (1 + th.s), side="lower", method=method).value
    assert 1 / falling - 1 == pytest.approx(plain, rel=1e-6)


PEAK = np.exp(-0.5 * (np.arange(6) - 2.5) ** 2)


def spectrum(counts):
    """Bins with an unknown background, and a signal in the middle."""

    def loglik(th, n=counts):
        mean = np.maximum(th.b + th.s * PEAK, 1e-300)
        return n * np.log(mean) - mean

    return idm.from_loglik(
        loglik,
        start={"b": 3.0, "s": 1.0},
        bounds={"b": (0.1, None), "s": (0, None)},
        simulate=lambda th, rng: partial(loglik, n=rng.poisson(th.b + th.s * PEAK)),
    )


def test_toys_say_how_uncertain_they_are():
    """Two seeds differ by their Monte-Carlo errors, and the same seed by nothing."""
    model = spectrum(np.array([3, 1, 4, 6, 2, 3]))
    one, other = (idm.limit(model, "s", method="toys", toys=200, rng=k) for k in (1, 2))
    again = idm.limit(model, "s", method="toys", toys=200, rng=1)
    assert again.value == one.value
    assert 0 < one.monte_carlo_error < 0.25 * one.value
    gap = np.hypot(one.monte_carlo_error, other.monte_carlo_error)
    assert abs(one.value - other.value) < 4.5 * gap  # once in 10^5
    assert float(repr(one).split()[4]) == pytest.approx(one.monte_carlo_error, rel=0.05)


def test_the_default_follows_how_the_data_are_drawn():
    """Not from the limit: counts of few values are added up, many events have a normal law."""
    assert idm.limit(bounded_mean(1.0), lambda th: th[0]).method == "likelihood"
    assert idm.limit(poisson(), lambda th: th[0]).method == "likelihood"  # how is it drawn?
    assert idm.limit(counting(300, 3.0), "s").method == "cls-toys"
    assert idm.limit(counting(2, 1.0), "s", side="lower").method == "toys"
    assert idm.limit(spectrum(np.array([30, 41, 52, 48, 37, 33])), "s").method == "cls"
    few = idm.limit(spectrum(np.array([0, 1, 0, 2, 0, 1])), "s", toys=20)
    assert few.method == "cls-toys"
    assert few.monte_carlo_error > 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: idm.limit(poisson(), lambda th: th[0], method="toys"), "simulate="),
        (lambda: idm.limit(poisson(), lambda th: th[0], method="cls"), "null="),
        (lambda: idm.limit(counting(2, 1.0), "s", side="lower", method="cls"), "null="),
        (lambda: idm.limit(counting(2, 1.0), "s", method="Bayes"), "cls-toys"),
        (lambda: idm.limit(counting(2, 1.0), "s", toys=2), "toys"),
        (lambda: idm.limit(counting(2, 1.0), "s", method="cls", null=-2.0), "null"),
    ],
)
def test_methods_that_cannot_be_are_refused_with_what_works(call, words):
    with pytest.raises((ValueError, idm.ImplicitDeltaError), match=words):
        call()


def test_null_says_where_there_is_no_signal():
    bound = idm.limit(counting(4, 3.0), "s", method="cls-toys").value
    given = idm.limit(counting(4, 3.0), "s", method="cls-toys", null=0.0).value
    assert given == pytest.approx(bound, rel=1e-6)


def worst_coverage(limits, b, farthest):
    """Sums of Poisson probabilities of the counts whose limit is at least the true signal.

    The smallest is just above a limit: between two of them the coverage grows.
    """
    limits = np.array(limits)
    signals = limits[limits < farthest] * (1 + 1e-9)
    chances = poisson_law.pmf(np.arange(limits.size), signals[:, None] + b)
    return 1 - np.max((chances * (limits < signals[:, None])).sum(axis=1), initial=0.0)


def limits_of_counts(b, farthest, **options):
    counts = range(int(poisson_law.isf(1e-6, b + farthest)) + 1)
    return [idm.limit(counting(n, b), "s", **options).value for n in counts]


@pytest.mark.parametrize(
    ("b", "farthest"),
    [
        (0.5, 6.0),
        *(pytest.param(b, 20.0, marks=pytest.mark.slow) for b in (0.0, 0.5, 1.0, 3.0, 10.0)),
    ],
)
def test_the_limit_of_a_count_covers_and_rises(b, farthest):
    """The sum leaves out 1e-6; the record of all signals is benchmarks/count_limits.json."""
    limits = limits_of_counts(b, farthest)
    assert np.all(np.diff(limits) > 0)
    assert worst_coverage(limits, b, farthest) >= 0.95 - 2e-6


def test_the_likelihood_ratio_would_not_cover():
    """The red side of the test above: 87.9 % for signals just above the limit of one event."""
    limits = limits_of_counts(0.5, 6.0, method="likelihood")
    assert worst_coverage(limits, 0.5, 6.0) == pytest.approx(0.8788, abs=1e-4)


@pytest.mark.parametrize(("n", "b"), [(3, 1.0), (12, 10.0), (40, 10.0)])
def test_asymptotic_cls_is_above_the_likelihood_away_from_the_bound(n, b):
    r"""Where the estimate is above its bound: it divides by \Phi(\sqrt{q_0}), at most one."""
    plain, ratio = (idm.limit(counting(n, b), "s", method=m).value for m in ("likelihood", "cls"))
    q0 = 2 * (n * np.log(n / b) - n + b)

    def probability(s):
        return norm.sf(np.sqrt(2 * (s + b - n - n * np.log((s + b) / n))))

    expected = brentq(lambda s: probability(s) / norm.cdf(np.sqrt(q0)) - 0.05, n - b, 100)
    assert ratio == pytest.approx(expected, rel=1e-6)
    assert ratio >= plain


# Feldman and Cousins (1998), upper ends of 90 % (table IV) and of 95 % (table VI), 0 to 10 events.
PUBLISHED = {
    (0.9, 0.0): [2.44, 4.36, 5.91, 7.42, 8.60, 9.99, 11.47, 12.53, 13.99, 15.30, 16.50],
    (0.95, 0.0): [3.09, 5.14, 6.72, 8.25, 9.76, 11.26, 12.75, 13.81, 15.29, 16.77, 17.82],
    (0.9, 3.0): [1.08, 1.88, 3.04, 4.42, 5.60, 6.99, 8.47, 9.53, 10.99, 12.30, 13.50],
}


def test_the_record_of_limits_has_the_published_intervals():
    """To its grid of backgrounds, over which an upper end is not to rise: 0.05."""
    study = pytest.importorskip("benchmarks.count_limits")
    for (level, b), ends in PUBLISHED.items():
        assert study.feldman_cousins(b, level)[1] == pytest.approx(ends, abs=0.05)


def test_the_record_of_limits_is_of_this_library():
    pytest.importorskip("benchmarks.count_limits")
    from benchmarks.shown import LIMITS, benchmarks_limit_coverage

    rows = {row["background"]: row for row in json.loads(LIMITS.read_text())}
    for b, n in ((0.5, 1), (3.0, 2), (10.0, 10)):
        stored = rows[b]["limits"]["0.95"]
        assert stored["default"][n] == pytest.approx(cls_of_counts(n, b), rel=1e-6)
        assert stored["classical"][n] == pytest.approx(stored["toys"][n], abs=1e-3)
        now = idm.limit(counting(n, b), "s", method="likelihood").value
        assert stored["likelihood"][n] == pytest.approx(now, rel=1e-6)
    bad = [row[1] for row in benchmarks_limit_coverage()[1] if row[-1]]
    assert set(bad) == {"likelihood", "cls"}


def on_off(n, m, tau=2.0):
    """A count with a signal, and one of the background alone in tau times the time."""

    def loglik(th, n=n, m=m):
        return np.array([xlogy(n, th.s + th.b) - th.s - th.b, xlogy(m, tau * th.b) - tau * th.b])

    return idm.from_loglik(
        loglik,
        start={"s": 1.0, "b": 1.0},
        bounds={"s": (0, None), "b": (1e-6, None)},
        simulate=lambda th, rng: partial(
            loglik, n=rng.poisson(th.s + th.b), m=rng.poisson(tau * th.b)
        ),
    )


def profiled_background(n, m, s, tau):
    """Background that is likeliest with a signal: the root of a quadratic."""
    linear = n + m - (1 + tau) * s
    return (linear + np.sqrt(linear**2 + 4 * (1 + tau) * m * s)) / (2 * (1 + tau))


def on_off_statistic(n, m, s, tau=2.0):
    def loglik(s, b):
        return xlogy(n, s + b) - s - b + xlogy(m, tau * b) - tau * b

    free = np.where(n > m / tau, loglik(n - m / tau, m / tau), 0.0)
    held = loglik(0.0, (n + m) / (1 + tau))
    top = np.where(n > m / tau, free, held)
    return np.where(n - m / tau >= s, 0.0, 2 * (top - loglik(s, profiled_background(n, m, s, tau))))


def on_off_probability(n, m, s, tau=2.0):
    """Sum over both counts, the background at its likeliest value for this signal."""
    counts, others = np.meshgrid(np.arange(60), np.arange(60), indexing="ij")
    b = profiled_background(n, m, s, tau)
    chances = poisson_law.pmf(counts, s + b) * poisson_law.pmf(others, tau * b)
    least = on_off_statistic(n, m, s) - 1e-6
    return float(chances[on_off_statistic(counts, others, s) >= least].sum())


def test_two_counts_are_summed_over_both():
    """An unknown background, by formulas of its own; the probability jumps, here by little."""
    found = idm.limit(on_off(2, 3), "s", method="toys")
    assert found.monte_carlo_error == 0
    below, above = (on_off_probability(2, 3, found.value * x) for x in (0.999, 1.001))
    assert above <= 0.05 <= below
    assert below - above < 0.01


@pytest.mark.parametrize("method", ["toys", "cls-toys"])
def test_a_background_that_is_measured_well_is_a_known_one(method):
    """By simulation, to 4.5 of its errors; a measurement makes it no longer a sum."""

    def loglik(th, n=4):
        return np.array([xlogy(n, th.s + th.b) - th.s - th.b])

    count = idm.from_loglik(
        loglik,
        start={"s": 1.0, "b": 2.0},
        bounds={"s": (0, None), "b": (0.01, None)},
        simulate=lambda th, rng: partial(loglik, n=rng.poisson(th.s + th.b)),
    )
    model = count + idm.measurement(b=(2.0, 0.01))
    found = idm.limit(model, "s", method=method, toys=200)
    known = chi2.ppf(0.95, 10) / 2 - 2 if method == "toys" else cls_of_counts(4, 2.0)
    assert found.monte_carlo_error > 0
    assert abs(found.value - known) < 4.5 * found.monte_carlo_error


def test_a_product_has_no_limit_at_the_bound_of_a_factor():
    """The efficiency is at most one, which bounds no product with a free signal."""

    def loglik(th, n=2, x=0.7):
        rate = th.s * th.e + 0.5
        return np.array([n * np.log(rate) - rate, -0.5 * ((x - th.e) / 0.1) ** 2])

    model = idm.from_loglik(
        loglik,
        start={"s": 1.0, "e": 0.7},
        bounds={"s": (0, None), "e": (0.05, 1)},
        simulate=lambda th, rng: partial(
            loglik, n=rng.poisson(th.s * th.e + 0.5), x=rng.normal(th.e, 0.1)
        ),
    )
    found = idm.limit(model, lambda th: th.s * th.e, method="cls-toys", toys=200)
    assert abs(found.value - cls_of_counts(2, 0.5)) < 4.5 * found.monte_carlo_error


def test_numbers_of_events_are_random_too():
    """Extended likelihoods: as many terms as events, and a default all the same."""
    events = np.array([-0.7, -0.3, -0.1, 0.0, 0.05, 0.1, 0.4, 0.8])

    def loglik(th, x=events):
        return np.log(th.s * norm.pdf(x, 0, 0.1) + th.b / 2) - (th.s + th.b) / x.size

    def simulate(th, rng):
        peak, flat = rng.poisson(th.s), rng.poisson(th.b)
        return partial(loglik, x=np.append(rng.normal(0, 0.1, peak), rng.uniform(-1, 1, flat)))

    model = idm.from_loglik(
        loglik,
        start={"s": 3.0, "b": 5.0},
        bounds={"s": (0, None), "b": (0.1, None)},
        simulate=simulate,
    )
    found = idm.limit(model, "s", toys=40)
    assert found.method == "cls-toys"
    assert found.value > found.estimate > 0

"""Data that a user's own simulator draws; series in blocks; simulated likelihoods; bins."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import kstest, norm, poisson

import implicit_delta as idm
from implicit_delta.errors import SmallSampleWarning, UnsupportedModelError

Y = np.random.default_rng(0).gamma(2.0, 1.0, 40)


def exponential(th, y=Y):
    return -th[0] - y * np.exp(-th[0])


def simulated(th, rng):
    return partial(exponential, y=rng.exponential(np.exp(th[0]), size=Y.size))


def test_parametric_bootstrap_of_a_simulator():
    """The mean of n exponentials has the standard error mean / sqrt(n), exactly."""
    model = idm.from_loglik(exponential, start=[0.0], simulate=simulated)
    method = idm.Bootstrap(400, kind="parametric", rng=0)
    est = idm.infer(model, lambda th: np.exp(th[0]), method)
    exact = Y.mean() / np.sqrt(Y.size)
    assert est.standard_error == pytest.approx(exact, rel=4 / np.sqrt(2 * 400))


def test_dependent_data_are_one_term_and_still_drawn():
    def series(th, rng, n=150):
        e, y = rng.normal(size=n), np.zeros(n)
        for t in range(1, n):
            y[t] = th * y[t - 1] + e[t]
        return y

    y = series(0.6, np.random.default_rng(1))

    def whole(th, y=y):
        return np.atleast_1d(norm.logpdf(y[1:] - th[0] * y[:-1]).sum())

    model = idm.from_loglik(
        whole, start=[0.0], simulate=lambda th, rng: partial(whole, y=series(th[0], rng))
    )
    est = idm.infer(model, lambda th: th[0], idm.Bootstrap(200, kind="parametric", rng=0))
    assert est.standard_error == pytest.approx(np.sqrt((1 - 0.6**2) / 150), rel=0.25)
    with pytest.raises(UnsupportedModelError, match="there is 1 of them"):
        idm.infer(model, lambda th: th[0], idm.Bootstrap(200, rng=0))


def test_simulator_with_names_and_scores():
    def loglik(th, y=Y):
        return -th.tau - y * np.exp(-th.tau)

    def score(th, y=Y):
        return (-1 + y * np.exp(-th.tau))[:, None]

    def simulate(th, rng):
        y = rng.exponential(np.exp(th.tau), size=Y.size)
        return partial(loglik, y=y), partial(score, y=y)

    model = idm.from_loglik(loglik, start={"tau": 0.0}, score=score, simulate=simulate)
    est = idm.infer(model, "tau", idm.Bootstrap(100, kind="parametric", rng=0))
    assert est.standard_error == pytest.approx(1 / np.sqrt(Y.size), rel=0.3)


@pytest.mark.parametrize("drawn", [np.ones(3), (exponential, 3), None])
def test_simulator_that_returns_data(drawn):
    model = idm.from_loglik(exponential, start=[0.0], simulate=lambda th, rng: drawn)
    with pytest.raises(TypeError, match="must return the log-likelihood"):
        idm.infer(model, lambda th: th[0], idm.Bootstrap(10, kind="parametric"))


def normal_model(y):
    def loglik(th, y=y):
        return norm.logpdf(y, th[0], np.exp(th[1]))

    def simulate(th, rng):
        return partial(loglik, y=rng.normal(th[0], np.exp(th[1]), size=y.size))

    return idm.from_loglik(loglik, start=[0.0, 0.0], simulate=simulate)


def counts_model(y):
    def loglik(th, y=y):
        return poisson.logpmf(y, np.exp(th[0]))

    def score(th, y=y):
        return (y - np.exp(th[0]))[:, None]

    def simulate(th, rng):
        drawn = rng.poisson(np.exp(th[0]), size=y.size)
        return partial(loglik, y=drawn), partial(score, y=drawn)

    return idm.from_loglik(loglik, theta=[np.log(y.mean())], score=score, simulate=simulate)


@pytest.mark.slow
def test_p_values_of_a_right_model_are_uniform():
    rng = np.random.default_rng(2)
    found = [
        idm.goodness_of_fit(counts_model(rng.poisson(3.0, 15)), replicates=19, rng=seed).p_value
        for seed in range(30)
    ]
    assert kstest(found, "uniform").pvalue > 1e-3


def test_statistic_of_a_user_sees_what_the_likelihood_does_not():
    """A normal fitted to exponentials: its skewness gives it away."""
    y = np.random.default_rng(3).exponential(size=80)

    def skewness(model):
        data = model.rows.loglik.keywords["y"] if hasattr(model.rows.loglik, "keywords") else y
        return abs(np.mean((data - data.mean()) ** 3)) / data.std() ** 3

    fit = idm.goodness_of_fit(normal_model(y), skewness, replicates=99, rng=0)
    assert fit.p_value == 0.01
    assert "p = 0.0100" in str(fit)


def test_goodness_of_fit_of_a_model_without_draws():
    model = idm.from_loglik(exponential, start=[0.0])
    with pytest.raises(UnsupportedModelError, match="simulate="):
        idm.goodness_of_fit(model)
    with pytest.raises(ValueError, match="replicates"):
        idm.goodness_of_fit(model, replicates=1)


def autoregression(n, rho, rng):
    y = np.zeros(n)
    for t in range(1, n):
        y[t] = rho * y[t - 1] + rng.normal()
    return y


def test_blocks_see_the_dependence_between_rows():
    n, rho = 2000, 0.5
    y = autoregression(n, rho, np.random.default_rng(4))
    model = idm.from_loglik(
        lambda th: -((y - th[0]) ** 2) / 2,
        start=[0.0],
        score=lambda th: (y - th[0])[:, None],
    )
    mean = lambda th: th[0]
    truth = 1 / (1 - rho) / np.sqrt(n)
    blocks = idm.infer(model, mean, idm.Bootstrap(200, kind="blocks", block=40, rng=0))
    rows = idm.infer(model, mean, idm.Bootstrap(200, rng=0))
    assert blocks.standard_error == pytest.approx(truth, rel=0.25)
    assert rows.standard_error < 0.75 * truth
    low, high = blocks.confidence_interval(kind="bca")
    assert low < blocks.value < high


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kind": "blocks", "block": 500}, "less than 4"),
        ({"kind": "blocks", "block": 0}, "less than 4"),
        ({"kind": "resample", "block": 5}, "of `Bootstrap"),
        ({"kind": "blocks", "block": 2.5}, "an integer"),
    ],
)
def test_bad_blocks(options, text):
    model = idm.from_loglik(exponential, start=[0.0])
    with pytest.raises(ValueError, match=text):
        idm.infer(model, lambda th: th[0], idm.Bootstrap(10, **options))


def test_blocks_take_neither_clusters_nor_weights():
    labels = np.repeat(np.arange(10), 4)
    model = idm.from_loglik(exponential, start=[0.0])
    with pytest.raises(ValueError, match="not clusters"):
        idm.infer(model, lambda th: th[0], idm.Bootstrap(10, kind="blocks"), clusters=labels)
    weighted = idm.from_loglik(exponential, start=[0.0], weights=np.r_[2.0, np.ones(39)])
    with pytest.raises(UnsupportedModelError, match="Repeat the rows"):
        idm.infer(weighted, lambda th: th[0], idm.Bootstrap(10, kind="blocks"))


def mixed(th, rng):
    """A probit with a random effect, integrated by simulation."""
    z = rng.normal(size=(200, 1))
    x = np.linspace(-2, 2, 50)
    y = (np.arange(50) % 7 > 2 * (x < 0)).astype(float)
    p = norm.cdf(th[0] * x + 0.5 * z).mean(axis=0)
    return y * np.log(p) + (1 - y) * np.log1p(-p)


def test_simulated_likelihood_with_common_random_numbers():
    one = idm.infer(idm.from_loglik(mixed, start=[0.1], rng=0), lambda th: th[0])
    again = idm.infer(idm.from_loglik(mixed, start=[0.1], rng=0), lambda th: th[0])
    assert (one.value, one.standard_error) == (again.value, again.standard_error)
    assert one.standard_error > 0


def test_fresh_noise_is_named():
    rng = np.random.default_rng(0)
    with pytest.raises(UnsupportedModelError, match="fresh random numbers"):
        idm.from_loglik(lambda th: mixed(th, rng), start=[0.1])
    with pytest.raises(TypeError, match="no argument called rng"):
        idm.from_loglik(exponential, start=[0.0], rng=0)


def histogram():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(5.2, 0.3, 400), rng.exponential(4, 2600)])
    counts, edges = np.histogram(x[x < 10], 50, (0, 10))

    def expected(th):
        below = 1 - np.exp(-edges / th[4])
        return th[0] * np.diff(norm.cdf(edges, th[1], th[2])) + th[3] * np.diff(below) / below[-1]

    return idm.from_loglik(
        lambda th: counts * np.log(expected(th)) - expected(th), start=[300, 5, 0.4, 2500, 3]
    )


def test_bins_are_not_what_was_sampled():
    with pytest.warns(SmallSampleWarning, match="bins of a histogram"):
        idm.infer(histogram(), lambda th: th[0], robust=True)


def test_many_rows_are_not_warned_of(recwarn):
    idm.infer(normal_model(np.random.default_rng(5).normal(size=200)), idm.parameters, robust=True)
    assert not [w for w in recwarn if issubclass(w.category, SmallSampleWarning)]


def test_extended_likelihood_has_no_robust_error():
    x = np.random.default_rng(0).normal(size=400)
    model = idm.from_loglik(lambda th: np.log(th[0] * norm.pdf(x)) - th[0] / x.size, start=[300.0])
    assert idm.infer(model, lambda th: th[0]).standard_error == pytest.approx(20.0, rel=1e-5)
    with pytest.warns(SmallSampleWarning, match="number of events is random"):
        idm.infer(model, lambda th: th[0], robust=True)


@pytest.mark.parametrize(
    ("size", "weights", "text"), [(5, None, "drew 5 rows"), (40, np.full(40, 4.0), "weights")]
)
def test_simulators_of_other_data_are_refused(size, weights, text):
    model = idm.from_loglik(
        exponential,
        start=[0.0],
        weights=weights,
        simulate=lambda th, rng: partial(exponential, y=rng.exponential(np.exp(th[0]), size)),
    )
    with pytest.raises(UnsupportedModelError, match=text):
        idm.infer(model, lambda th: th[0], idm.Bootstrap(10, kind="parametric"))

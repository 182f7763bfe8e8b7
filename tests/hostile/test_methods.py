"""Methods other than `Infinitesimal`: pushes too far, constants, seeds, rows that are no sample."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

import implicit_delta as idm

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(4.0, 54)
NORMAL = RNG.normal(size=40)


def poisson(y=COUNTS, **options):
    return idm.from_loglik(
        lambda t: y * t[0] - np.exp(t[0]),
        start=[1.0],
        score=lambda t: (y - np.exp(t[0]))[:, None],
        **options,
    )


def normal():
    y = NORMAL
    return idm.from_loglik(
        lambda t: -t[1] - (y - t[0]) ** 2 * np.exp(-2 * t[1]) / 2, start=[0.0, 0.0]
    )


PROBLEMS = {
    "log rate": (poisson, lambda t: t[0]),
    "rate": (poisson, lambda t: np.exp(t[0])),
    "square of a rate": (poisson, lambda t: np.exp(2 * t[0])),
    "bounded": (poisson, lambda t: np.tanh(3 * (t[0] - 1.5))),
    "log deviation": (normal, lambda t: t[1]),
    "variance": (normal, lambda t: np.exp(2 * t[1])),
    "both": (normal, lambda t: np.array([t[0], np.exp(2 * t[1])])),
}


def exact(problem):
    make, psi = PROBLEMS[problem]
    return idm.infer(make(), psi).standard_error


# Pushes

TOO_FAR = [
    ("log rate", {"central": True}, 8.0),
    ("rate", {"central": True}, 8.0),
    ("square of a rate", {"central": True}, 2.0),
    ("bounded", {"central": True}, 4.0),
    ("bounded", {"central": True}, 100.0),
    ("variance", {"central": True}, 1.0),
    ("log deviation", {"central": True}, 4.0),
    ("log rate", {"central": False}, 8.0),
    ("log rate", {"central": False}, 40.0),
    ("rate", {"central": False}, 2.0),
    ("square of a rate", {"central": False}, 1.0),
    ("bounded", {"central": False}, 4.0),
    ("variance", {"central": False}, 0.5),
    ("rate", {"maximizer": idm.nelder_mead}, 8.0),
    ("rate", {"maximizer": idm.newton_krylov}, 8.0),
]


@pytest.mark.filterwarnings("ignore:psi bends:implicit_delta.NonlinearityWarning")
@pytest.mark.parametrize(("problem", "options", "push"), TOO_FAR, ids=str)
def test_a_push_that_goes_too_far_is_seen_and_measured(problem, options, push):
    make, psi = PROBLEMS[problem]
    method = idm.FiniteDifference(lam=push / exact(problem), **options)
    with pytest.warns(idm.NonlinearityWarning, match="too long") as caught:
        estimate = idm.infer(make(), psi, method, strict=False)
    off = abs(estimate.standard_error / exact(problem) - 1)
    said = next(str(w.message) for w in caught if "too long" in str(w.message))
    stated = float(re.search(r"off by about (\d+)%", said)[1]) / 100
    assert off > 0.04
    assert off / 2 < stated < 2 * off + 0.01  # the leading order is enough for a warning


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("options", [{}, {"push": 0.1, "central": False}, {"push": 0.5}], ids=str)
def test_pushes_that_are_short_enough_are_left_alone(problem, options):
    make, psi = PROBLEMS[problem]
    estimate = idm.infer(make(), psi, idm.FiniteDifference(**options))
    np.testing.assert_allclose(estimate.standard_error, exact(problem), rtol=0.04)


def test_a_long_push_is_right_where_all_is_linear():
    y = NORMAL
    model = idm.from_loglik(lambda m: -((y - m[0]) ** 2) / 2, start=[0.0])
    for central in (True, False):
        method = idm.FiniteDifference(lam=1e3, central=central)
        assert idm.infer(model, lambda m: m[0], method).standard_error == pytest.approx(40**-0.5)


@pytest.mark.parametrize("problem", ["log rate", "rate", "variance"])
def test_one_end_bends_as_two_do(problem):
    make, psi = PROBLEMS[problem]
    one, two = (
        idm.infer(make(), psi, idm.FiniteDifference(push=0.12, central=central))
        for central in (False, True)
    )
    assert one.diagnostics.nonlinearity == pytest.approx(two.diagnostics.nonlinearity, rel=0.2)


@pytest.mark.parametrize(("combine", "warns"), [("richardson", False), ("mean", True)])
def test_of_several_lambdas_those_count_that_are_used(combine, warns):
    make, psi = PROBLEMS["rate"]
    lams = np.array([0.5, 8.0]) / exact("rate")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimate = idm.infer(make(), psi, idm.FiniteDifference(lam=lams, combine=combine))
    assert any("too long" in str(w.message) for w in caught) == warns
    assert (abs(estimate.standard_error / exact("rate") - 1) > 0.05) == warns


def test_a_stochastic_push_that_goes_too_far_is_seen():
    make, psi = PROBLEMS["square of a rate"]
    options = {"batch_size": 54, "runs": 2, "samples": 5, "rng": 0, "anchored": False}
    short = idm.StochasticFiniteDifference(lam=0.1 / exact("square of a rate"), **options)
    long = idm.StochasticFiniteDifference(lam=2.5 / exact("square of a rate"), **options)
    estimate = idm.infer(make(), psi, short)
    assert estimate.standard_error == pytest.approx(exact("square of a rate"), rel=0.02)
    with pytest.warns(idm.NonlinearityWarning, match="pushes psi so far"):
        idm.infer(make(), psi, long)


# Constants


def probabilities(t):
    e = np.exp(t[0] * np.arange(50.0))
    return e / e.sum()


CONSTANT = {
    "a number": lambda t: 3.3,
    "zero times the parameter": lambda t: 3.3 + 0 * t[0],
    "a sum of probabilities": lambda t: probabilities(t).sum(),
    "in single precision": lambda t: probabilities(t).astype(np.float32).sum(),
    "beside one that moves": lambda t: np.array([t[0], 3.3]),
    "rounding beside one that moves": lambda t: np.array([probabilities(t).sum(), t[0]]),
    "a count without a step nearby": lambda t: float(np.sum(np.arange(10) > t[0] * 1e-3)),
    "large": lambda t: 1e12 + 0 * t[0],
}
DRAWN = [
    idm.Simulation(200, rng=0),
    idm.Simulation(20, rng=1),
    idm.Bootstrap(10, rng=0),
    idm.Bootstrap(10, "bayesian", rng=0),
]


@pytest.mark.parametrize("attack", CONSTANT)
@pytest.mark.parametrize("method", DRAWN, ids=repr)
def test_a_constant_is_refused(method, attack):
    with pytest.raises(idm.EvaluationError, match="is the same at every") as refusal:
        idm.infer(poisson(), CONSTANT[attack], method)
    assert "Simulation" not in str(refusal.value)  # that is no way out of this mistake


@pytest.mark.parametrize("attack", CONSTANT)
def test_a_smoothed_constant_is_refused(attack):
    with pytest.raises(idm.EvaluationError, match=r"did not change at any draw|no slope"):
        idm.infer(poisson(), idm.Smoothed(CONSTANT[attack], draws=100, rng=0))


SMALL = {  # psi whose standard error is small beside its value, and known
    "a millionth": (lambda t: 1e6 + t[0], 1.0),
    "a millionth of a millionth": (lambda t: 1.0 + 1e-9 * t[0], 1e-9),
    "a large count in single precision": (lambda t: np.float32(1000) + np.float32(t[0]), 1.0),
}


@pytest.mark.parametrize("case", SMALL)
def test_what_moves_a_little_is_no_constant(case):
    psi, scale = SMALL[case]
    estimate = idm.infer(poisson(), psi, idm.Simulation(rng=0))
    assert estimate.standard_error == pytest.approx(scale * exact("log rate"), rel=0.01)


# Robust percentiles

GROUPS = np.repeat(np.arange(40), 5)
WIDE = RNG.normal(size=200) * 3 + 2 * RNG.normal(size=40)[GROUPS]


def mean_of_wide(**options):
    model = idm.from_loglik(
        lambda m: -((WIDE - m[0]) ** 2) / 2, start=[0.0], score=lambda m: (WIDE - m[0])[:, None]
    )
    return model, options


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"robust": True}, {"robust": "HC1"}, {"clusters": GROUPS}], ids=str
)
@pytest.mark.parametrize("average", [False, True])
def test_percentiles_are_as_robust_as_the_standard_error(options, average):
    """The model has a third of the standard error, so its draws would be three times too narrow."""
    model, _ = mean_of_wide()
    units = np.linspace(-5, 5, 50)
    psi = idm.Average(lambda m: units + m[0]) if average else (lambda m: m[0])
    estimate = idm.infer(model, psi, idm.Simulation(20_000, rng=0), **options)
    reference = idm.infer(model, psi, **options)
    assert estimate.standard_error == pytest.approx(reference.standard_error, rel=1e-6)
    np.testing.assert_allclose(
        estimate.confidence_interval(kind="percentile"),
        replace(reference, df=np.inf).confidence_interval(),
        atol=0.05 * reference.standard_error,
    )


@pytest.mark.slow
def test_percentiles_of_a_robust_simulation_cover():
    """Coverage over data sets: 95 % within three binomial errors; 57 % of them before."""
    hits, repeats = 0, 200
    for seed in range(repeats):
        y = 3.0 * np.random.default_rng(seed).normal(size=60)
        score = lambda m, y=y: (y - m[0])[:, None]
        model = idm.from_loglik(lambda m, y=y: -((y - m[0]) ** 2) / 2, [y.mean()], score=score)
        est = idm.infer(model, lambda m: m[0], idm.Simulation(200, rng=seed), robust=True)
        low, high = est.confidence_interval(kind="percentile")
        hits += low < 0 < high
    assert hits / repeats == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / repeats))


# Rows that are no sample


def one_term():
    return idm.from_loglik(lambda t: np.array([np.sum(COUNTS * t[0] - np.exp(t[0]))]), start=[1.0])


NO_SAMPLE = {
    "one term": one_term,
    "one term of weight 54": lambda: idm.from_loglik(
        lambda t: np.array([np.mean(COUNTS) * t[0] - np.exp(t[0])]), start=[1.0], weights=[54.0]
    ),
    "one row of weight, the others of none": lambda: poisson(weights=np.eye(54)[0] * 30),
    "weights that sum to one": lambda: poisson(weights=np.full(54, 1 / 54)),
    "unequal weights that sum to one": lambda: poisson(weights=COUNTS / COUNTS.sum()),
}


@pytest.mark.filterwarnings("ignore:weights counts repetitions")
@pytest.mark.parametrize("kind", ["resample", "bayesian"])
@pytest.mark.parametrize("attack", NO_SAMPLE)
def test_a_bootstrap_of_what_cannot_be_drawn_is_refused_at_once(attack, kind):
    model = NO_SAMPLE[attack]()
    before = model.rows.passes
    with pytest.raises(idm.UnsupportedModelError, match=r"draws observations.*repetitions"):
        idm.infer(model, lambda t: np.exp(t[0]), idm.Bootstrap(200, kind, rng=0))
    assert model.rows.passes - before < 10  # no refit was begun


def test_the_advice_for_one_term_works():
    assert idm.infer(one_term(), lambda t: t[0]).standard_error == pytest.approx(
        COUNTS.sum() ** -0.5, rel=1e-6
    )


def test_compare_shows_no_number_for_the_bootstrap_of_one_term():
    table = idm.compare(one_term(), lambda t: t[0], [idm.Infinitesimal(), idm.Bootstrap(20)])
    assert "draws observations" in table.failures["Bootstrap"]
    assert np.isnan(next(row for row in table.rows if row.method == "Bootstrap").std_error)


def test_identical_rows_have_no_bootstrap():
    with pytest.raises(idm.EvaluationError, match="same at every replicate"):
        idm.infer(poisson(np.full(30, 4)), lambda t: t[0], idm.Bootstrap(20, rng=0))


@pytest.mark.parametrize("rows", [2, 4])
def test_a_bootstrap_of_few_rows_is_doubted(rows):
    with pytest.warns(idm.ImplicitDeltaWarning, match="underestimates"):
        idm.infer(poisson(COUNTS[:rows]), lambda t: t[0], idm.Bootstrap(100, "bayesian", rng=0))


EVENTS = RNG.normal(100.0, 15.0, 4000)
BINS, EDGES = np.histogram(EVENTS, 60)
CENTERS = (EDGES[1:] + EDGES[:-1]) / 2


def log_density(t):
    return -t[1] - ((CENTERS - t[0]) * np.exp(-t[1])) ** 2 / 2


@pytest.mark.slow
def test_a_bootstrap_of_bins_is_doubted_and_the_advice_works():
    inside = idm.from_loglik(lambda t: BINS * log_density(t), start=[100.0, 2.7])
    advised = idm.from_loglik(log_density, start=[100.0, 2.7], weights=BINS)
    method, true = idm.Bootstrap(100, rng=0), EVENTS.std() / np.sqrt(4000)
    with pytest.warns(idm.NonlinearityWarning, match="bins with their counts"):
        assert idm.infer(inside, lambda t: t[0], method).standard_error > 5 * true
    right = idm.infer(advised, lambda t: t[0], method)
    assert right.standard_error == pytest.approx(true, rel=4 / np.sqrt(200))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*have no fit:implicit_delta.ImplicitDeltaWarning")
def test_a_bootstrap_of_the_bins_of_a_peak_is_doubted():
    centers = np.linspace(0.125, 9.875, 40)
    peak, floor = np.exp(-((centers - 5) ** 2) / 0.08), np.exp(-centers / 5)
    peak, floor = peak / peak.sum(), floor / floor.sum()
    seen = np.random.default_rng(0).poisson(300 * peak + 2000 * floor)

    def loglik(t):
        mean = t[0] * peak + t[1] * floor
        return seen * np.log(mean) - mean

    model = idm.from_loglik(loglik, start=[300.0, 2000.0])
    with pytest.warns(idm.NonlinearityWarning, match="times the robust one"):
        estimate = idm.infer(model, lambda t: t[0], idm.Bootstrap(200, rng=0))
    assert estimate.standard_error > 1.3 * idm.infer(model, lambda t: t[0]).standard_error


@pytest.mark.filterwarnings("ignore:weights counts repetitions")
def test_replicates_that_fail_end_a_bootstrap_early():
    """Two parameters and weights that leave four draws: most replicates have no maximum."""
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(400), rng.normal(size=400)])
    y = (rng.random(400) < 1 / (1 + np.exp(-X[:, 1]))).astype(float)
    model = idm.from_loglik(
        lambda b: y * (X @ b) - np.logaddexp(0, X @ b),
        start=[0.0, 0.0],
        score=lambda b: (y - expit(X @ b))[:, None] * X,
        weights=np.full(400, 4 / 400),
    )
    with (
        pytest.raises(idm.ConvergenceError, match="have no fit") as refusal,
        pytest.warns(idm.ImplicitDeltaWarning, match="underestimates"),
    ):
        idm.infer(model, lambda b: b[1], idm.Bootstrap(2000, rng=0), strict=False)
    assert int(re.search(r"of the first (\d+) bootstrap", str(refusal.value))[1]) < 100


# Seeds


def many(d):
    """A quadratic in d dimensions with unit curvature."""
    return idm.from_loglik(
        lambda t: np.array([-t @ t / 2, 0.0]),
        np.zeros(d),
        score=lambda t: np.array([-t, np.zeros(d)]),
    )


SEEDS = {
    "two replicates": (lambda: (poisson(), lambda t: t[0]), idm.Bootstrap(2, rng=0)),
    "three replicates": (lambda: (poisson(), lambda t: t[0]), idm.Bootstrap(3, rng=3)),
    "four draws in 30 dimensions": (lambda: (many(30), np.sum), idm.Simulation(4, rng=0)),
    "12 draws in 30 dimensions": (lambda: (many(30), np.sum), idm.Simulation(12, rng=0)),
    "smoothed, eight draws": (
        lambda: (many(30), idm.Smoothed(np.sum, draws=8, rng=0)),
        idm.Infinitesimal(),
    ),
}


@pytest.mark.filterwarnings("ignore::implicit_delta.NonlinearityWarning")
@pytest.mark.parametrize("attack", SEEDS)
def test_a_standard_error_that_hangs_on_a_seed_is_doubted(attack):
    (model, psi), method = SEEDS[attack][0](), SEEDS[attack][1]
    with pytest.warns(idm.NotDeterministicWarning, match=r"uncertain by about \d+%.*[Uu]se more"):
        idm.infer(model, psi, method)


def test_draws_that_are_enough_are_left_alone():
    for method in (idm.Simulation(rng=0), idm.Simulation(100, rng=0)):
        assert idm.infer(many(30), np.sum, method).standard_error == pytest.approx(
            np.sqrt(30), rel=0.3
        )


# A psi that is noisy beside its standard error, not beside its value


def noisy():
    generator = np.random.default_rng(1)
    return lambda t: 1000 + 0.01 * t[0] + 1e-4 * generator.normal()


@pytest.mark.filterwarnings("ignore::implicit_delta.NonlinearityWarning")
@pytest.mark.parametrize(
    "method",
    [
        idm.Simulation(200, rng=0),
        idm.Bootstrap(30, rng=0),
        idm.FiniteDifference(maximizer=idm.nelder_mead),
        idm.FiniteDifference(maximizer=idm.nelder_mead, lam=500.0),
    ],
    ids=repr,
)
def test_noise_that_counts_beside_the_standard_error_is_seen(method):
    with pytest.raises((idm.ImplicitDeltaWarning, idm.ImplicitDeltaError)):
        idm.infer(poisson(), noisy(), method, strict=False)

"""Intervals of bootstrap replicates: BCa against R's boot.ci, and where there is none."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import implicit_delta as idm
from implicit_delta.estimate import Estimate
from implicit_delta.models.redraws import reweight

pytestmark = pytest.mark.slow

CASES = json.loads((Path(__file__).parent / "golden" / "bca.json").read_text())["cases"]


def squares(*columns):
    """Means of some columns, by least squares: theta is their weighted means."""
    data = np.column_stack(columns)
    size = data.std(axis=0)

    def score(th):
        return (data - th) / size**2

    return idm.from_loglik(
        lambda th: -(((data - th) / size) ** 2).sum(axis=1) / 2, data.mean(axis=0), score=score
    )


def model_of(name):
    """A model and a psi whose weighted maximum is the weighted statistic of R's script."""
    data = {key: np.array(column, dtype=float) for key, column in CASES[name]["data"].items()}
    if name == "mean":
        return squares(data["y"]), lambda th: th[0]
    x, y = data["x"], data["y"]
    if name == "ratio":
        return squares(x, y), lambda th: th[1] / th[0]
    moments = squares(x, y, x * x, y * y, x * y)

    def correlation(th):
        return (th[4] - th[0] * th[1]) / np.sqrt((th[2] - th[0] ** 2) * (th[3] - th[1] ** 2))

    return moments, correlation


@pytest.mark.filterwarnings("ignore::implicit_delta.NonlinearityWarning")  # a variance left at one
@pytest.mark.parametrize("name", CASES)
def test_bca_is_that_of_boot_ci(name):
    case, replicates = CASES[name], 1500
    model, psi = model_of(name)
    est = idm.infer(model, psi, idm.Bootstrap(replicates, rng=0))
    assert est.value == pytest.approx(case["value"], rel=1e-9)
    # R differentiates in the weights, over steps of 0.001 / n
    np.testing.assert_allclose(est.acceleration, case["acceleration"], rtol=5e-3)
    for kind in ("bca", "basic"):
        ends = np.array(est.confidence_interval(kind=kind))
        expected = np.array(case[f"{kind}_95"])
        assert np.all(abs(ends - expected) < 4 * monte_carlo(est, kind, replicates, case))
    if name == "mean":  # the only one of these that is far from its percentiles
        bca = np.array(est.confidence_interval(kind="bca"))
        gaps = [abs(bca - case[f"{kind}_95"]) for kind in ("bca", "percentile")]
        assert np.all(gaps[0] < gaps[1] / 2)


def monte_carlo(est, kind, replicates, case):
    """Standard deviation of the difference of two ends: of quantiles, and for BCa of the bias.

    The bias enters both the level and the center: twice its deviation in standard errors. Around
    a level p, replicates are as far apart as the quantiles at p -/+ its binomial error.
    """
    levels = np.array([0.025, 0.975])
    if kind == "bca":
        bias = norm.ppf(np.mean(est.draws < est.value))
        shifted = bias + norm.ppf(levels)
        levels = norm.cdf(bias + shifted / (1 - est.acceleration[0] * shifted))
    share = 1 / replicates + 1 / case["replicates"]
    error = np.sqrt(levels * (1 - levels) * share)
    if kind == "bca":
        error = np.hypot(error, norm.pdf(norm.ppf(levels)) * 2 * np.sqrt(np.pi / 2 * share))
    ends = [np.quantile(est.draws, np.clip(levels + side * error, 0, 1)) for side in (-1, 1)]
    spread = (ends[1] - ends[0]) / 2
    return spread if kind == "bca" else spread[::-1]


@pytest.mark.parametrize("kind", ["bca", "basic"])
@pytest.mark.parametrize("name", CASES)
def test_the_same_replicates_give_the_interval_of_boot_ci(name, kind):
    case = CASES[name]
    draws = np.array(case["few"]["draws"])[:, None]
    est = Estimate(
        case["value"],
        [[draws.var()]],
        ("psi",),
        "R",
        draws=draws,
        acceleration=[case["acceleration"]],
    )
    ends = est.confidence_interval(kind=kind)
    # R interpolates between order statistics on the normal scale: within two gaps between them
    ordered = np.sort(draws[:, 0])
    for end, expected in zip(ends, case["few"][f"{kind}_95"], strict=True):
        place = np.searchsorted(
            ordered, 2 * case["value"] - expected if kind == "basic" else expected
        )
        near = ordered[max(place - 2, 0) : place + 2]
        assert abs(end - expected) <= np.ptp(near)


def test_clusters_are_the_units_of_the_acceleration():
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(40), 5)
    y = np.repeat(rng.gamma(0.5, size=40), 5) + 0.1 * rng.normal(size=200)
    est = idm.infer(squares(y), lambda th: th[0], idm.Bootstrap(50, rng=0), clusters=ids)
    sums = (y - y.mean()).reshape(40, 5).sum(axis=1)
    expected = np.sum(sums**3) / np.sum(sums**2) ** 1.5 / 6
    np.testing.assert_allclose(est.acceleration, expected, rtol=1e-8)
    rows = idm.infer(squares(y), lambda th: th[0], idm.Bootstrap(50, rng=0))
    assert abs(rows.acceleration[0]) < 0.6 * expected


def test_weights_are_repetitions_in_the_acceleration_too():
    rng = np.random.default_rng(1)
    y, counts = rng.gamma(0.5, size=30), rng.integers(1, 4, size=30)
    copies = np.repeat(y, counts)
    weighted = reweight(squares(y), counts.astype(float))
    weighted = weighted.at(np.array([copies.mean()]))
    one = idm.infer(weighted, lambda th: th[0], idm.Bootstrap(20, rng=0)).acceleration
    two = idm.infer(squares(copies), lambda th: th[0], idm.Bootstrap(20, rng=0)).acceleration
    np.testing.assert_allclose(one, two, rtol=1e-8)


Y = np.random.default_rng(2).gamma(2.0, size=40)
WITHOUT = {
    "smooth weights": (lambda th: th[0], idm.Bootstrap(50, "bayesian", rng=0), "skewed themselves"),
    "steps": (lambda th: np.floor(30 * th[0]), idm.Bootstrap(50, rng=0), "moves in steps"),
    "other rows": (
        idm.Average(lambda th: Y - th[0]),
        idm.Bootstrap(50, rng=0),
        "of the evaluation",
    ),
    "simulation": (lambda th: th[0], idm.Simulation(100, rng=0), "only Bootstrap computes it"),
    "no replicates": (lambda th: th[0], None, "makes none"),
}


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("case", WITHOUT)
def test_bca_says_why_there_is_none(case):
    psi, method, reason = WITHOUT[case]
    est = idm.infer(squares(Y), psi, method)
    with pytest.raises(ValueError, match=reason):
        est.confidence_interval(kind="bca")


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_bca_needs_a_replicate_for_each_parameter():
    X = np.random.default_rng(3).normal(size=(200, 6))
    est = idm.infer(squares(*X.T), lambda th: th[0], idm.Bootstrap(5, rng=0))
    with pytest.raises(ValueError, match="at least 6 replicates"):
        est.confidence_interval(kind="bca")


def test_a_combination_has_percentiles_and_no_bca():
    x = np.random.default_rng(4).gamma(2.0, size=(50, 2))
    both = idm.infer(squares(*x.T), idm.parameters, idm.Bootstrap(200, rng=0))
    difference = both.contrast([1, -1])
    difference.confidence_interval(kind="percentile")
    with pytest.raises(ValueError, match="not for combinations"):
        difference.confidence_interval(kind="bca")


def test_levels_without_end_are_refused_and_those_beyond_the_replicates_warn():
    draws = np.random.default_rng(5).normal(size=(50, 1))
    skewed = Estimate(0.0, [[1.0]], ("psi",), "by hand", draws=draws, acceleration=[0.6])
    with pytest.raises(ValueError, match="no end"):
        skewed.confidence_interval(kind="bca")
    few = Estimate(0.0, [[1.0]], ("psi",), "by hand", draws=draws, acceleration=[0.0])
    with pytest.warns(idm.ImplicitDeltaWarning, match="beyond the outermost of 50"):
        few.confidence_interval(0.99, kind="bca")


def test_the_reason_is_stored(tmp_path):
    est = idm.infer(squares(Y), lambda th: th[0], idm.Bootstrap(50, "bayesian", rng=0))
    est.save(tmp_path / "est.npz")
    with pytest.raises(ValueError, match="skewed themselves"):
        Estimate.load(tmp_path / "est.npz").confidence_interval(kind="bca")

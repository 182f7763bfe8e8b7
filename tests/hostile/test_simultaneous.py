"""Critical values of all evaluations at once: closed forms, seeds, cost, and one set of draws."""

import numpy as np
import pytest
from scipy.stats import chi2, f, norm, t

from implicit_delta import Estimate
from implicit_delta.core.factored import Factored
from implicit_delta.estimate import intervals
from implicit_delta.estimate.quantiles import sup_t_quantile


def sphere(rank, K=4000, seed=0):
    """Directions that cover a circle or a sphere nearly without gaps."""
    if rank == 2:
        angles = np.linspace(0, np.pi, K)
        return np.column_stack([np.cos(angles), np.sin(angles)])
    u = np.random.default_rng(seed).normal(size=(K, rank))
    return u / np.linalg.norm(u, axis=1, keepdims=True)


def scheffe(rank, level, df):
    """Critical value of every combination of `rank` coefficients."""
    inside = chi2.ppf(level, rank) if np.isinf(df) else rank * f.ppf(level, rank, df)
    return np.sqrt(inside)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.9999])
@pytest.mark.parametrize("df", [np.inf, 5.0])
@pytest.mark.parametrize(
    ("rank", "K", "rtol"), [(1, 700, 1e-8), (2, 4000, 1e-5), (3, 20_000, 1e-3)]
)
def test_bands_without_gaps_have_the_quantile_of_scheffe(rank, K, rtol, df, level):
    found = sup_t_quantile(Factored(sphere(rank, K)), level, None, df)
    exact = scheffe(rank, level, df)
    assert exact * (1 - rtol) <= found <= exact * (1 + 1e-6)


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e100])
@pytest.mark.parametrize("df", [np.inf, 3.0])
def test_copies_in_other_units_have_the_quantile_of_one(scale, df):
    units = scale * np.array([1.0, -2.0, 300.0])
    found = sup_t_quantile(np.outer(units, units), 0.95, None, df)
    assert found == pytest.approx(t.ppf(0.975, df) if np.isfinite(df) else norm.ppf(0.975), 1e-7)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("rank", [2, 6, 20])
def test_seeds_agree_within_the_error_of_many_plain_draws(rank, level):
    V = Factored(sphere(rank, 600, seed=3))
    found = [sup_t_quantile(V, level, seed) for seed in range(8)]
    z = np.random.default_rng(9).normal(size=(40_000, rank))
    largest = np.abs(z @ V.left.T).max(axis=1)
    covered = np.mean(largest[:, None] < found, axis=0)
    allowed = 5 * np.sqrt(level * (1 - level)) * (40_000**-0.5 + 100_000**-0.5)
    assert np.max(abs(covered - level)) < allowed


@pytest.mark.parametrize("K", [4000, 40_000])
def test_few_directions_are_drawn_where_the_rank_is_small(K):
    counted = Counting(np.random.PCG64(0))
    sup_t_quantile(Factored(sphere(20, K)), 0.95, counted)
    assert counted.numbers < 20 * 8000  # where there were 100 000 draws, and 37 500


class Counting(np.random.Generator):
    numbers = 0

    def standard_normal(self, size):
        self.numbers += int(np.prod(size))
        return super().standard_normal(size)


@pytest.fixture
def asked(monkeypatch):
    """Log of the critical values that were simulated."""
    log = []

    def simulated(V, level, rng, df):
        log.append((level, rng))
        return sup_t_quantile(V, level, rng, df, draws=2000)

    monkeypatch.setattr(intervals, "sup_t_quantile", simulated)
    return log


def band(K=50):
    left = sphere(3, K)
    return Estimate(np.ones(K), left @ left.T, tuple(map(str, range(K))), "by hand")


def test_a_critical_value_is_simulated_once(asked):
    pytest.importorskip("pandas")
    est = band()
    first = est.confidence_interval(simultaneous=True)
    again = est.confidence_interval(simultaneous=True, rng=0)
    np.testing.assert_array_equal(again, first)
    est.confidence_interval(simultaneous=True, transform="log")
    est.to_frame(simultaneous=True)
    assert asked == [(0.95, None)]
    est.confidence_interval(0.9, simultaneous=True)
    est.confidence_interval(simultaneous=True, rng=1)
    assert asked[1:] == [(0.9, None), (0.95, 1)]


def test_generators_and_other_estimates_draw_anew(asked):
    est, rng = band(), np.random.default_rng(0)
    one, two = (est.confidence_interval(simultaneous=True, rng=rng).low for _ in range(2))
    assert not np.array_equal(one, two)
    est.confidence_interval(simultaneous=True)
    (2 * est).confidence_interval(simultaneous=True)
    est[:7].confidence_interval(simultaneous=True)
    assert len(asked) == 5


def test_tables_have_the_simultaneous_interval():
    pytest.importorskip("pandas")
    est = band()
    low, high = est.confidence_interval(0.9, simultaneous=True)
    frame = est.to_frame(0.9, simultaneous=True)
    np.testing.assert_array_equal(frame["conf_low"], low)
    np.testing.assert_array_equal(est.to_dict(0.9, simultaneous=True)["conf_high"], high)
    np.testing.assert_array_equal(frame["p_value"], est.to_frame()["p_value"])
    shown = est.to_dict(0.9, simultaneous=True, transform="exp")
    np.testing.assert_allclose(shown["conf_high"], np.exp(high))

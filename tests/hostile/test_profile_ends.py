"""Ends of profiles behind poles of one parameter, and where a constraint holds the maximum."""

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize
from scipy.special import ndtri

import implicit_delta as idm

Z = ndtri(0.975)


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize(("top", "error"), [(1.0, 0.7), (-1.0, 0.7), (0.3, 1.5)])
def test_the_pieces_of_a_reciprocal(top, error, second):
    """Fieller: what is behind the pole is a piece of its own, however many parameters there are."""
    rows = [lambda t: -(((top - t[0]) / error) ** 2) / 2, lambda t: -(t[1] ** 2)]
    model = idm.from_loglik(
        lambda t: np.array([row(t) for row in rows[: 1 + second]]), start=[top, 0.1][: 1 + second]
    )
    low, high = sorted(1 / (top + s * Z * error) for s in (-1, 1))
    found = idm.profile(model, lambda t: 1 / t[0]).pieces[0.95]
    np.testing.assert_allclose([found[0].high, found[1].low], [low, high], rtol=1e-6)
    assert (found[0].low, found[1].high) == (-np.inf, np.inf)


def test_nothing_beyond_the_constraints_is_a_better_optimum():
    """The profile of t0 lies on the line t0 + t1 = 1 above the estimate, and leaves it below."""
    center, A = np.array([2.0, 3.0]), np.linalg.inv([[1, 0.6], [0.6, 1]])
    model = idm.from_loglik(
        lambda t: np.array([-0.5 * (t - center) @ A @ (t - center)]),
        start=[0.2, 0.2],
        constraints=LinearConstraint([1, 1], -np.inf, 1),
    )
    grid = np.linspace(-2, 2, 40_001)
    free = center[1] + 0.6 * (grid - center[0])  # the best t1 for each t0
    t = np.column_stack([grid, np.minimum(free, 1 - grid)]) - center
    L = -0.5 * np.einsum("ij,jk,ik->i", t, A, t)
    inside = grid[2 * (L.max() - L) <= Z**2]
    found = idm.profile(model, lambda t: t[0]).interval
    np.testing.assert_allclose(found, [inside[0], inside[-1]], atol=2e-4)
    upper = idm.limit(model, lambda t: t[0])
    assert upper.value == pytest.approx(0.8774, abs=2e-3)


@pytest.mark.parametrize("seed", range(6))
def test_poisson_regression_with_ordered_slopes(seed):
    rng = np.random.default_rng(100 + seed)
    X = np.column_stack([np.ones(30), rng.normal(size=(30, 2))])
    y = rng.poisson(np.exp(X @ (rng.normal(size=3) * [1, 0.3, 0.3])))
    model = idm.from_loglik(
        lambda t: y * (X @ t) - np.exp(X @ t),
        start=[0.1, 0.1, 0.05],
        constraints=LinearConstraint([0, 1, -1], 0, np.inf),
    )
    low, high = idm.profile(model, lambda t: t[1]).interval
    assert low < model.theta[1] < high


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_a_limit_beyond_a_pole_is_infinite():
    model = idm.from_loglik(lambda t: np.array([-(((1 + t[0]) / 0.8) ** 2) / 2]), start=[-1.0])
    assert idm.limit(model, lambda t: 1 / t[0]).value == np.inf


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("other", [-8.0, -6.0, 6.0, 8.0])
def test_a_second_maximum_is_seen_on_either_side_of_a_turn(other):
    """Of a square, whose lower end is inside of the region."""
    near, far = -1.96, 1.96
    model = idm.from_loglik(
        lambda t: np.array([np.logaddexp(-(t[0] ** 2) / 2, -((t[0] - other) ** 2) / 2)]),
        start=[0.0],
    )
    pieces = idm.profile(model, lambda t: (t[0] + 0.5) ** 2).pieces[0.95]
    ends = sorted((other + 0.5 + x) ** 2 for x in (near, far))
    assert len(pieces) == 2
    np.testing.assert_allclose(pieces[1], ends, rtol=0.02)


TURNS = {
    "turn": (lambda b: b[0] / (1 + b[0] ** 2), "lower"),
    "decay": (lambda b: b[0] * np.exp(-b[0]), "lower"),
    "sum": (lambda b: b[0] + 0.05 / b[0], "upper"),
}


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("name", TURNS)
def test_a_limit_sees_the_other_branch_of_a_psi_that_turns(name):
    psi, side = TURNS[name]
    center, error = (0.6, 0.25) if name == "sum" else (0.6, 0.4)
    model = idm.from_loglik(
        lambda b: np.array([-(((b[0] - center) / error) ** 2) / 2]), start=[0.5]
    )
    reach = ndtri(0.95) * error
    grid = psi([np.linspace(center - reach, center + reach, 200_001)])
    found = idm.limit(model, psi, side=side).value
    assert found == pytest.approx(min(grid) if side == "lower" else max(grid), rel=1e-6)


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("seed", range(12))
def test_linear_psi_of_a_parabola_with_bounds(seed):
    """The region is convex, so that SciPy finds the ends from anywhere."""
    rng = np.random.default_rng(seed)
    root = np.linalg.inv(np.linalg.cholesky(np.cov(rng.normal(size=(2, 5)))))
    top, c = rng.normal(0.4, 0.3, 2), rng.normal(size=2)
    model = idm.from_loglik(
        lambda b: -((root @ (np.asarray(b) - top)) ** 2) / 2,
        start=[0.5, 0.5],
        bounds=[(0, None)] * 2,
    )
    region = {
        "type": "ineq",
        "fun": lambda b: Z**2 / 2 + model.objective(np.array(b)) - model.objective(model.theta),
    }
    found = idm.profile(model, lambda b: c @ b).interval
    for sign, end in ((1, found.low), (-1, found.high)):
        best = min(
            minimize(
                lambda b, s=sign: s * c @ b, start, bounds=[(0, None)] * 2, constraints=region,
                method="SLSQP", options={"ftol": 1e-12, "maxiter": 500},
            ).fun
            for start in (np.array(model.theta), np.array(model.theta) + 0.1)
        )  # fmt: skip
        assert sign * end == pytest.approx(best, abs=1e-4 * (found.high - found.low))

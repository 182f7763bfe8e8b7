"""Profiles within constraints, against closed forms and brute force."""

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, NonlinearConstraint
from scipy.stats import norm

import implicit_delta as idm

Z = 1.959963984540054
N = 25
GRID = np.linspace(-3, 3, 1201)
RNG = np.random.default_rng(2)
X = RNG.normal(size=(N, 2)) @ [[1.0, 0.6], [0.0, 0.8]]
Y = X @ [0.1, -0.3] + RNG.normal(size=N)


def mean_model(x, **given):
    """A normal mean with the estimate x and the standard error 1/5."""
    z = RNG.normal(size=N)
    z = z - z.mean() + x
    return idm.from_loglik(lambda th: -((z - th[0]) ** 2) / 2, start=[0.1], **given)


def plane(b):
    return -((Y - X @ b) ** 2) / 2


@pytest.mark.parametrize("shift", [-3.0, -1.0, 0.0, 0.5, 1.0, 1.9, 2.1, 3.0, 20.0])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_a_bounded_mean_has_its_closed_form(shift, level):
    x, q = shift / 5, norm.ppf(0.5 + level / 2) / 5
    high = x + q if x > 0 else x + np.sqrt(x**2 + q**2)
    found = idm.profile(mean_model(x, bounds=[(0, None)]), lambda th: th[0], level)
    assert found.interval.low == pytest.approx(max(x - q, 0), abs=1e-7)
    if x < q:
        assert found.interval.low == 0  # exactly: a truth at the bound is covered
    assert found.interval.high == pytest.approx(high, rel=1e-7)


@pytest.mark.parametrize("seed", range(6))
def test_an_interval_beside_a_nuisance_parameter_starts_exactly_at_the_bound(seed):
    peak = np.exp(-0.5 * np.linspace(-3, 3, 30) ** 2)
    counts = np.random.default_rng(seed).poisson(8.0, size=30)

    def terms(th):
        rate = th[0] + th[1] * peak
        return counts * np.log(rate) - rate

    model = idm.from_loglik(terms, start=[8.0, 1.0], bounds=[(0.1, None), (0, None)])
    deviance = 2 * (
        model.objective(model.theta) - np.sum(counts * np.log(counts.mean()) - counts.mean())
    )
    assert (idm.profile(model, lambda th: th[1]).interval.low == 0) == (deviance < Z**2)


def test_a_monotone_transform_transforms_the_interval():
    model = mean_model(0.1, bounds=[(0, None)])
    plain, root = (
        idm.profile(model, f).interval for f in (lambda th: th[0], lambda th: np.exp(th[0]))
    )
    np.testing.assert_allclose(np.exp(plain), root, rtol=1e-7)


def test_several_levels_share_a_path():
    model = mean_model(0.1, bounds=[(0, None)])
    both = idm.profile(model, lambda th: th[0], [0.8, 0.95])
    for level in (0.8, 0.95):
        one = idm.profile(model, lambda th: th[0], level).interval
        np.testing.assert_allclose(both.confidence_interval(level), one, rtol=1e-7)
    assert "theta[0] >= 0" in both.summary()
    assert both.limits == ("theta[0] >= 0",)


CONSTRAINTS = {
    "quadrant": (
        {"bounds": [(0, None), (0, None)]},
        lambda a, b: (a >= 0) & (b >= 0),
    ),
    "strip": (
        {"bounds": [(None, 0.05), (-0.2, None)]},
        lambda a, b: (a <= 0.05) & (b >= -0.2),
    ),
    "half plane": (
        {"constraints": LinearConstraint([1, 1], 0.1, np.inf)},
        lambda a, b: a + b >= 0.1,
    ),
    "disk": (
        {"constraints": NonlinearConstraint(lambda b: b @ b, -np.inf, 0.1)},
        lambda a, b: a**2 + b**2 <= 0.1,
    ),
}
PSIS = {
    "first": lambda b: b[0],
    "second": lambda b: b[1],
    "difference": lambda b: b[0] - b[1],
    "bent": lambda b: np.exp(b[0] + 0.5 * b[1]),
}


@pytest.mark.parametrize("psi", PSIS.values(), ids=PSIS)
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_the_ends_are_those_of_a_grid(name, psi):
    given, inside = CONSTRAINTS[name]
    model = idm.from_loglik(plane, start=[0.1, 0.1], **given)
    low, high = idm.profile(model, psi).interval
    a, b = np.meshgrid(GRID, GRID)
    points = np.stack([a.ravel(), b.ravel()])
    loglik = -np.sum((Y[:, None] - X @ points) ** 2, axis=0) / 2
    kept = inside(*points) & (2 * (model.objective(model.theta) - loglik) <= Z**2)
    values = np.array([psi(point) for point in points[:, kept].T])
    step = 4 * (GRID[1] - GRID[0])  # psi moves by at most 3 units per unit of b
    assert values.min() - step <= low <= values.min() + 1e-9
    assert values.max() - 1e-9 <= high <= values.max() + step


def test_equalities_and_inequalities_together():
    def terms(th):
        return plane(th[:2]) - (th[2] - 1) ** 2 / 2

    model = idm.from_loglik(
        terms,
        start=[0.1, 0.1, 0.2],
        bounds=[(0, None), (0, None), (None, None)],
        constraints={"type": "eq", "fun": lambda th: th[2] - th[0] - th[1]},
    )
    other = idm.from_loglik(
        lambda b: terms([b[0], b[1], b[0] + b[1]]), start=[0.1, 0.1], bounds=[(0, None)] * 2
    )
    np.testing.assert_allclose(model.theta[:2], other.theta, atol=1e-8)
    ours = idm.profile(model, lambda th: th[2]).interval
    theirs = idm.profile(other, lambda b: b[0] + b[1]).interval
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_psi_that_is_not_defined_beyond_its_bound():
    model = mean_model(0.1, bounds=[(0, None)])
    with pytest.warns(idm.ImplicitDeltaWarning, match="lower end"):
        found = idm.profile(model, lambda th: np.sqrt(th[0]))
    assert found.interval.low == pytest.approx(0, abs=1e-6)
    high = np.sqrt(idm.profile(model, lambda th: th[0]).interval.high)
    assert found.interval.high == pytest.approx(high, rel=1e-6)


def test_a_vector_has_a_profile_of_each_entry():
    model = idm.from_loglik(plane, start=[0, 0], bounds=[(0, 1)] * 2)
    for k, found in enumerate(idm.profile(model, lambda b: b)):
        alone = idm.profile(model, lambda b, k=k: b[k]).interval
        np.testing.assert_allclose(found.interval, alone, rtol=1e-7, atol=1e-9)

"""Joint regions of two quantities, and profiles of many: closed forms, laws, refusals."""

import numpy as np
import pytest
from scipy.stats import chi2, f

import implicit_delta as idm

Y = np.array([1.2, 0.4, 2.2, 1.4, 0.8, 1.9, 1.1, 0.3])
N, MEAN, V = Y.size, Y.mean(), Y.var()
RNG = np.random.default_rng(2)
X = np.column_stack([np.ones(30), RNG.normal(size=(30, 2))])
T = X @ [1.0, 0.5, -0.3] + RNG.normal(size=30)


def normal():
    return idm.from_loglik(
        lambda th: -(((Y - th[0]) / np.exp(th[1])) ** 2) / 2 - th[1], start=[0.0, 0.0]
    )


def both(th):
    return np.stack([th[0], np.exp(th[1])])


def deviance(mu, sigma):
    return N * (np.log(sigma**2 / V) + (V + (MEAN - mu) ** 2) / sigma**2 - 1)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_the_boundary_has_the_deviance_of_the_quantile(level):
    region = idm.contour(normal(), both, level)
    mu, sigma = region.points().T
    np.testing.assert_allclose(deviance(mu, sigma), chi2.ppf(level, 2), rtol=1e-4)
    grid = np.stack(np.meshgrid(np.linspace(0, 2.5, 61), np.linspace(0.2, 2, 61)), -1).reshape(
        -1, 2
    )
    inside = deviance(*grid.T) <= chi2.ppf(level, 2)
    close = abs(deviance(*grid.T) - chi2.ppf(level, 2)) < 0.1
    assert np.array_equal(region.contains(grid)[~close], inside[~close])
    assert region.area() == pytest.approx(exact_area(level), rel=2e-3)


def exact_area(level):
    sigma = np.linspace(0.1, 5.0, 200_001)
    room = sigma**2 * (chi2.ppf(level, 2) / N - np.log(sigma**2 / V) + 1) - V
    return float(np.sum(2 * np.sqrt(np.maximum(room, 0.0))) * (sigma[1] - sigma[0]))


def test_a_linear_model_has_its_ellipse_by_f():
    model = idm.from_residuals(lambda b: T - X @ b, start=np.zeros(3))
    region = idm.contour(model, lambda b: b[1:])
    np.testing.assert_allclose(region.points(), region.ellipse(), atol=1e-5)
    est = idm.infer(model, lambda b: b[1:])
    gaps = region.points() - est.value
    statistic = np.einsum("ij,jk,ik->i", gaps, np.linalg.inv(est.covariance), gaps) / 2
    np.testing.assert_allclose(statistic, f.ppf(0.95, 2, 27), rtol=1e-4)
    assert region.area() == pytest.approx(region.ellipse_area(), rel=1e-4)


def test_a_transform_of_the_quantities_transforms_the_region():
    region = idm.contour(normal(), both)
    logs = idm.contour(normal(), lambda th: np.stack([2 * th[0] + 1, th[1]]))
    mapped = np.column_stack([2 * region.points()[:, 0] + 1, np.log(region.points()[:, 1])])
    eta = np.linalg.solve(np.linalg.cholesky(logs.covariance), (mapped - logs.value).T)
    np.testing.assert_allclose(np.hypot(*eta), logs.radius(np.arctan2(eta[1], eta[0])), rtol=3e-3)


def test_nuisance_parameters_are_profiled_out():
    """Two of three coefficients of a Poisson regression, against a constrained refit."""
    counts = np.random.default_rng(0).poisson(np.exp(X @ [0.5, 0.4, -0.2]))
    model = idm.from_loglik(lambda b: counts * (X @ b) - np.exp(X @ b), start=np.zeros(3))
    region = idm.contour(model, [lambda b: b[1], lambda b: b[2]], rays=12, names=["a", "b"])
    top = model.objective(model.theta)
    for a, b in region.points()[::4]:
        part = idm.from_loglik(
            lambda c, a=a, b=b: (
                counts * (c[0] + X[:, 1:] @ [a, b]) - np.exp(c[0] + X[:, 1:] @ [a, b])
            ),
            start=[0.0],
        )
        assert 2 * (top - part.objective(part.theta)) == pytest.approx(5.9915, rel=1e-3)
    assert region.names == ("a", "b")
    wide = idm.profile(model, lambda b: b[1]).interval
    assert region.points()[:, 0].min() < wide.low
    assert region.points()[:, 0].max() > wide.high


def test_bounds_are_respected():
    z = np.array([0.3, 1.0])
    model = idm.from_loglik(
        lambda th: -0.5 * (z - th) ** 2, start=[1.0, 1.0], bounds=[(0, None), (None, None)]
    )
    region = idm.contour(model, lambda th: th)
    assert region.points()[:, 0].min() >= -1e-6
    inside = idm.contour(
        idm.from_loglik(lambda th: -0.5 * (z - th) ** 2, start=[1.0, 1.0]), lambda th: th
    )
    assert region.area() < inside.area()
    right = region.points()[region.points()[:, 0] > 0.5]
    np.testing.assert_allclose(np.sum((right - z) ** 2, axis=1), 5.9915, rtol=1e-3)


def test_several_levels_are_nested_and_a_table_and_a_picture():
    pytest.importorskip("matplotlib")
    region = idm.contour(normal(), both, [0.68, 0.95], names=["mu", "sigma"], rays=16)
    assert region.area(0.68) < region.area(0.95)
    assert region.contains(region.points(0.68), 0.95).all()
    assert "sigma" in repr(region)
    assert "<table" in region._repr_html_()
    assert len(region.to_dict()["mu"]) == 32
    ax = region.plot()
    assert ax.get_xlabel() == "mu"


REFUSED = {
    "one": (lambda: idm.contour(normal(), lambda th: th[0]), idm.EvaluationError, "two"),
    "three": (
        lambda: idm.contour(normal(), lambda th: np.stack([th[0], th[1], th[0]])),
        idm.EvaluationError,
        "two",
    ),
    "same": (
        lambda: idm.contour(normal(), lambda th: np.stack([th[0], 2 * th[0]])),
        idm.EvaluationError,
        "line",
    ),
    "constant": (
        lambda: idm.contour(normal(), lambda th: np.stack([th[0], 0 * th[1]])),
        idm.EvaluationError,
        "does not change",
    ),
    "rays": (lambda: idm.contour(normal(), both, rays=3), ValueError, "rays"),
    "level": (lambda: idm.contour(normal(), both, 1.2), ValueError, "confidence"),
    "unbounded": (
        lambda: idm.contour(normal(), lambda th: np.stack([1 / (th[0] - 0.6), th[1]]), 0.99),
        idm.ImplicitDeltaError,
        "region",
    ),
    "point": (
        lambda: idm.contour(normal(), both, rays=8).contains([1, 2, 3]),
        ValueError,
        "shape",
    ),
    "other level": (lambda: idm.contour(normal(), both, rays=8).area(0.5), ValueError, "levels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_joint_region_is_refused(name):
    ask, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        ask()


def test_profiles_of_all_parameters_are_those_of_each():
    model = normal()
    many = idm.profile(model, idm.parameters)
    assert isinstance(many, idm.Profiles)
    assert len(many) == 2
    for k, one in enumerate(many):
        alone = idm.profile(model, lambda th, k=k: th[k])
        np.testing.assert_allclose(one.interval, alone.interval, rtol=1e-8)
    assert many[many.names[1]] is many[1]
    np.testing.assert_allclose(many.interval.low, [p.interval.low for p in many])
    assert repr(many).count("95%") == 2
    with pytest.raises(KeyError, match="none of"):
        many["tau"]


def test_profiles_of_a_list_with_names_sides_and_levels():
    found = idm.profile(
        normal(), [lambda th: th[0], lambda th: np.exp(th[1])], [0.8, 0.95], name=["mu", "sigma"],
        side="upper",
    )  # fmt: skip
    assert found.names == ("mu", "sigma")
    assert np.all(np.isinf(found.confidence_interval(0.95).low))
    assert len(found.to_dict()["term"]) == 4
    pytest.importorskip("matplotlib")
    assert len(found.plot()) == 2


@pytest.mark.slow
def test_processes_give_the_same_and_their_warnings():
    model = normal()
    psi = lambda th: np.stack([th[0], np.exp(th[1]), np.minimum(th[0], 1.4)])
    with pytest.warns(idm.ImplicitDeltaWarning, match="most extreme"):
        here = idm.profile(model, psi)
    with pytest.warns(idm.ImplicitDeltaWarning, match="most extreme"):
        there = idm.profile(model, psi, n_jobs=2)
    np.testing.assert_allclose(here.interval, there.interval, rtol=1e-12)


@pytest.mark.parametrize("psi", [[], [3], [lambda th: th[0], "S"]])
def test_lists_of_something_else_are_refused(psi):
    with pytest.raises((TypeError, ValueError, idm.ImplicitDeltaError)):
        idm.profile(normal(), psi)


def test_a_slow_profile_shows_its_passes(monkeypatch, capfd):
    monkeypatch.setenv("IMPLICIT_DELTA_PROGRESS", "on")
    monkeypatch.setattr("implicit_delta.core.progress.DELAY", 0.0)
    idm.profile(normal(), lambda th: th[0], name="mu")
    shown = capfd.readouterr().err
    assert "profiling mu" in shown
    assert "pass" in shown


def banana(bend):
    return idm.from_loglik(
        lambda t: np.array([-0.5 * (t[0] - 1) ** 2, -bend * (t[1] - t[0] ** 2) ** 2]),
        start=[0.5, 1.0],
    )


def test_arms_that_rays_miss_are_told():
    """They lie behind the boundary along the rays."""
    with pytest.raises(idm.ConvergenceError, match="is bent"):
        idm.contour(banana(5.0), lambda t: t)
    with pytest.warns(idm.ImplicitDeltaWarning, match="is bent"):
        idm.contour(banana(1.0), lambda t: t)
    straight = idm.contour(banana(5.0), lambda t: np.stack([t[0], t[1] - t[0] ** 2]))
    np.testing.assert_allclose(np.ptp(straight.outline()[:, 0]), 2 * 2.4477, rtol=1e-3)

"""Likelihood-ratio intervals: against R, against closed forms, and their laws."""

import json

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import expit, stdtrit
from scipy.stats import chi2
from test_golden import GOLDEN, function

import implicit_delta as idm
from benchmarks.nist import PROBLEMS
from benchmarks.nist.profiles import RIGHT, errors_of, profiled

CASES = json.loads((GOLDEN / "profile.json").read_text())["cases"]
EVALUATIONS = [
    pytest.param(case, evaluation, id=f"{name}-{title}")
    for name, case in CASES.items()
    for title, evaluation in case["evaluations"].items()
]
QUANTILE = chi2.ppf(0.95, 1)


def model_of(case):
    return idm.from_loglik(function(case["loglik"], case["data"]), case["theta"])


@pytest.mark.slow
@pytest.mark.parametrize(("case", "evaluation"), EVALUATIONS)
def test_limits_as_in_r(case, evaluation):
    psi = function(evaluation["formula"], case["data"])
    limits = {float(level): entry for level, entry in evaluation["limits"].items()}
    found = idm.profile(model_of(case), psi, list(limits))
    error = evaluation["standard_error"]
    assert found.standard_error == pytest.approx(error, rel=1e-6)
    for level, entry in limits.items():
        np.testing.assert_allclose(found.interval[level], entry["profile"], atol=1e-8 * error)
        np.testing.assert_allclose(found.wald(level), entry["wald"], atol=1e-5 * error)
        if "confint" in entry:  # interpolated by splines
            np.testing.assert_allclose(found.interval[level], entry["confint"], atol=1e-5 * error)
        for end, lam in zip(found.interval[level], entry["lambda"], strict=True):
            point = np.flatnonzero(found.curve.psi == end)[0]
            assert found.curve.lam[point] == pytest.approx(lam, rel=1e-5)
            assert found.curve.deviance[point] == pytest.approx(chi2.ppf(level, 1), rel=1e-12)


def gaussian(center):
    """A likelihood that is exactly quadratic, with unit variances."""
    center = np.asarray(center, dtype=float)
    return idm.from_loglik(lambda th: -((th - center) ** 2) / 2, theta=center)


def normal_sample(n=15, seed=0):
    y = np.random.default_rng(seed).normal(1.0, 2.0, size=n)
    model = idm.from_loglik(
        lambda th: -(((y - th[0]) / np.exp(th[1])) ** 2) / 2 - th[1], start=[0.0, 0.0]
    )
    return y, model


MONOTONE = {
    "identity": (lambda x: x, lambda x: x),
    "log": (np.log, np.log),
    "minus square root": (lambda x: -np.sqrt(x), lambda x: -np.sqrt(x)),
    "exp": (lambda x: np.exp(x), np.exp),
    "steep power": (lambda x: x**9, lambda x: x**9),
    "reciprocal": (lambda x: 1 / x, lambda x: 1 / x),
}


@pytest.mark.parametrize("name", MONOTONE)
def test_a_monotone_transform_of_psi_transforms_the_interval(name):
    _, model = normal_sample()
    variance = lambda th: np.exp(2 * th[1])
    transform, same = MONOTONE[name]
    plain = idm.profile(model, variance).interval
    transformed = idm.profile(model, lambda th: transform(variance(th))).interval
    np.testing.assert_allclose(sorted(map(same, plain)), transformed, rtol=1e-8)


def test_reparametrizing_theta_changes_nothing():
    y, model = normal_sample()
    other = idm.from_loglik(
        lambda a: -((y - a[0] * a[1]) ** 2) / (2 * a[1]) - np.log(a[1]) / 2,
        start=[0.5, 2.0],
    )
    point = lambda mean, variance: mean + 1.645 * np.sqrt(variance)
    one = idm.profile(model, lambda th: point(th[0], np.exp(2 * th[1]))).interval
    two = idm.profile(other, lambda a: point(a[0] * a[1], a[1])).interval
    np.testing.assert_allclose(one, two, rtol=1e-8)


def test_several_levels_share_a_path():
    _, model = normal_sample()
    psi = lambda th: np.exp(th[1])
    together = idm.profile(model, psi, [0.95, 0.5, 0.99])
    assert list(together.interval) == [0.95, 0.5, 0.99]
    apart = [idm.profile(model, psi, level) for level in together.interval]
    for level, alone in zip(together.interval, apart, strict=True):
        np.testing.assert_allclose(together.interval[level], alone.interval, rtol=1e-9)
        assert together.confidence_interval(level) == together.interval[level]
    assert together.passes < sum(alone.passes for alone in apart)
    with pytest.raises(ValueError, match=r"levels \[0.95, 0.5, 0.99\], not for 0.9"):
        together.confidence_interval(0.9)


@pytest.mark.parametrize("center", [(1.0, 6.0), (4.0, 3.0), (-2.0, 2.5)])
def test_ratio_as_by_fieller(center):
    a, b = center
    deviance = lambda ratio: (a - ratio * b) ** 2 / (1 + ratio**2) - QUANTILE
    value = a / b
    low, high = idm.profile(gaussian(center), lambda th: th[0] / th[1]).interval
    assert low == pytest.approx(brentq(deviance, value - 50, value, xtol=1e-13), rel=1e-9)
    assert high == pytest.approx(brentq(deviance, value, value + 50, xtol=1e-13), rel=1e-9)


def test_an_unbounded_side_is_infinite_and_says_so():
    a, b = 4.0, 1.5  # the denominator is within 1.96 standard errors of zero
    ratio = lambda th: th[0] / th[1]
    opaque = lambda th: float(th[0]) / float(th[1])  # differentiated by differences
    for psi in (ratio, opaque):
        with pytest.warns(idm.ImplicitDeltaWarning, match="upper end is infinite"):
            found = idm.profile(gaussian([a, b]), psi)
        assert found.interval.high == np.inf
    deviance = lambda ratio: (a - ratio * b) ** 2 / (1 + ratio**2) - QUANTILE
    assert found.interval.low == pytest.approx(brentq(deviance, 0.0, a / b), rel=1e-9)
    assert "inf" in repr(found)


def plateau():
    """A likelihood that falls by no more than 1.5, which is not enough for 95 %."""
    center = np.array([0.5, 1.0])
    return idm.from_loglik(
        lambda th: -1.5 * (1 - np.exp(-np.sum((th - center) ** 2) / 3)) * np.ones(1), theta=center
    )


def test_a_likelihood_that_levels_off_bounds_nothing():
    with pytest.warns(idm.ImplicitDeltaWarning, match="end is infinite"):
        found = idm.profile(plateau(), lambda th: th[0] + th[1])
    assert found.interval == (-np.inf, np.inf)
    with pytest.warns(idm.ImplicitDeltaWarning, match="most extreme"):
        bounded = idm.profile(plateau(), lambda th: expit(th[0]))
    np.testing.assert_allclose(bounded.interval, [0.0, 1.0], atol=1e-12)


@pytest.mark.parametrize("center", [[0.5], [0.5, 1.5]], ids=["d = 1", "d = 2"])
def test_an_extreme_of_psi_inside_the_region_is_the_end(center):
    with pytest.warns(idm.ImplicitDeltaWarning, match="upper end 1 of the interval"):
        found = idm.profile(gaussian(center), lambda th: np.sin(th[0]))
    assert found.interval.high == pytest.approx(1.0, abs=1e-10)
    assert found.interval.low == pytest.approx(np.sin(0.5 - np.sqrt(QUANTILE)), abs=1e-10)
    with pytest.warns(idm.ImplicitDeltaWarning, match="lower end"):
        square = idm.profile(gaussian(center), lambda th: th[0] ** 2)
    assert square.interval.low == pytest.approx(0.0, abs=1e-10)
    assert square.interval.high == pytest.approx((0.5 + np.sqrt(QUANTILE)) ** 2)


def test_where_the_likelihood_is_quadratic_it_is_the_wald_interval():
    model = gaussian(np.arange(5.0))
    psi = lambda th: th @ np.array([1.0, -2.0, 0.5, 3.0, 0.0])
    found = idm.profile(model, psi)
    np.testing.assert_allclose(found.interval, found.wald(), rtol=1e-9)
    np.testing.assert_allclose(
        found.interval, idm.infer(model, psi).confidence_interval(), rtol=1e-9
    )


def test_the_path_is_stationary_and_its_slope_is_twice_lambda():
    _, model = normal_sample()
    psi = lambda th: th[0] + 1.645 * np.exp(th[1])
    curve = idm.profile(model, psi, list(np.linspace(0.05, 0.95, 19))).curve
    assert np.all(np.diff(curve.psi) > 0)
    middle = np.argmin(curve.deviance)
    assert (curve.deviance[middle], curve.lam[middle]) == (0.0, 0.0)
    slopes = np.gradient(curve.deviance, curve.psi)[1:-1]
    np.testing.assert_allclose(slopes, 2 * curve.lam[1:-1], atol=0.02 * np.max(np.abs(slopes)))


def test_weights_equal_repetition():
    y = np.random.default_rng(1).poisson(3.0, size=12).astype(float)
    counts = np.random.default_rng(2).integers(0, 4, size=12)
    copies = np.repeat(y, counts)
    one = idm.from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0], weights=counts)
    many = idm.from_loglik(lambda th: copies * th[0] - np.exp(th[0]), start=[0.0])
    psi = lambda th: np.exp(th[0])
    np.testing.assert_allclose(
        idm.profile(one, psi).interval, idm.profile(many, psi).interval, rtol=1e-8
    )


def test_a_penalty_belongs_to_the_objective():
    y = np.array([1.0, 2.0, 4.0])
    model = idm.from_loglik(lambda th: -((y - th[0]) ** 2) / 2, start=[0.0], l2=2.0)
    half = np.sqrt(QUANTILE / 5)
    np.testing.assert_allclose(
        idm.profile(model, lambda th: th[0]).interval, [7 / 5 - half, 7 / 5 + half], rtol=1e-9
    )


def test_a_ridge_of_least_squares_belongs_to_the_objective():
    """Straight residuals: the region is that of Wald. Bent ones: L is maximal at fixed psi."""
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(60, 3)), rng.normal(size=60)
    y = X @ [1.0, 0.5, -1.0] + noise
    straight = idm.from_residuals(lambda th: y - X @ th, start=np.zeros(3), l2=2.0)
    found = idm.profile(straight, lambda th: th[0] - 2 * th[1])
    np.testing.assert_allclose(found.interval, found.wald(0.95), rtol=1e-6)
    bent = idm.from_residuals(
        lambda th: y - np.exp(X @ th), start=np.zeros(3), l2=3.0, variance=1.0
    )
    for end in idm.profile(bent, lambda th: th[0] * np.exp(th[1])).interval:
        held = minimize(
            lambda z, end=end: -bent.objective(np.array([end * np.exp(-z[0]), *z])),
            bent.theta[1:],
            method="BFGS",
        )
        deviance = 2 * (bent.objective(bent.theta) + held.fun)
        assert deviance == pytest.approx(QUANTILE, rel=1e-4)


def test_a_small_drift_does_not_matter():
    _, model = normal_sample()
    psi = lambda th: np.exp(2 * th[1])
    nearly = model.at(model.theta + np.array([0.0, 0.01]))  # 0.05 standard errors away
    np.testing.assert_allclose(
        idm.profile(nearly, psi).interval, idm.profile(model, psi).interval, rtol=1e-8
    )


def test_many_parameters_without_a_factorization(monkeypatch):
    from implicit_delta.methods import ascent

    case = CASES["logit_birthwt"]
    X, y = (np.asarray(case["data"][name], dtype=float) for name in ("X", "y"))
    X = X / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    model = idm.from_loglik(
        lambda b: y * (X @ b) - np.logaddexp(0, X @ b),
        start=np.zeros(4),
        score=lambda b: (y - expit(X @ b))[:, None] * X,
    )
    psi = lambda b: b[2] / b[1] + np.exp(b[3])
    dense = idm.profile(model, psi).interval
    monkeypatch.setattr(ascent, "DENSE_LIMIT", 1)
    np.testing.assert_allclose(idm.profile(model, psi).interval, dense, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "rtol"), [("float64", 1e-6), ("float32", 1e-4)])
def test_a_torch_model_has_a_profile(precision, rtol):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    X = torch.randn(80, 2, dtype=torch.float64)
    chance = torch.sigmoid(X @ X.new_tensor([1.0, -0.5]))
    y = (torch.rand(80, dtype=torch.float64) < chance).double()
    dtype = getattr(torch, precision)
    net = torch.nn.Linear(2, 1, dtype=dtype)
    data = X.to(dtype), y[:, None].to(dtype)
    model = idm.polish(idm.from_torch(net, data, idm.Bernoulli()))
    XX, yy = np.column_stack([X.numpy(), np.ones(80)]), y.numpy()
    same = idm.from_loglik(lambda b: yy * (XX @ b) - np.logaddexp(0, XX @ b), start=np.zeros(3))
    by_torch = idm.profile(model, lambda net: torch.exp(net.weight[0, 0]))
    by_numpy = idm.profile(same, lambda b: np.exp(b[0]))
    np.testing.assert_allclose(by_torch.interval, by_numpy.interval, rtol=rtol)


BAD = [
    (lambda th: 1.0, 0.95, idm.EvaluationError, "does not change with the parameters"),
    (lambda th: th[0], 95, ValueError, "between 0 and 1"),
    (lambda th: th[0], [], ValueError, "at least one"),
    (lambda th: th[0], [0.9, "a"], ValueError, "between 0 and 1"),
]


@pytest.mark.parametrize(("psi", "level", "error", "message"), BAD)
def test_what_has_no_profile(psi, level, error, message):
    with pytest.raises(error, match=message):
        idm.profile(gaussian([1.0, 2.0]), psi, level)


def test_a_flat_profile_is_refused():
    y = np.array([1.0, 2.0, 4.0])
    redundant = idm.from_loglik(lambda th: -((y - th[0] - th[1]) ** 2) / 2, theta=[7 / 3, 0.0])
    with pytest.raises(idm.NotAMaximumError, match="flat"):
        idm.profile(redundant, lambda th: th[0])


def test_a_model_that_is_not_at_its_maximum_is_refused():
    _, model = normal_sample()
    with pytest.raises(idm.ConvergenceError, match="polish"):
        idm.profile(model.at(model.theta + np.array([0.7, 0.0])), lambda th: th[0])


def test_a_higher_maximum_nearby_is_told():
    two_hills = idm.from_loglik(
        lambda th: np.log(np.exp(-((th - 0.0) ** 2) / 2) + 9 * np.exp(-((th - 4.0) ** 2) / 2)),
        start=[0.0],
    )
    assert abs(two_hills.theta[0]) < 0.5
    with pytest.raises(idm.ConvergenceError, match="higher by"):
        idm.profile(two_hills, lambda th: th[0])


def test_table_and_picture():
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    _, model = normal_sample()
    found = idm.profile(model, lambda th: np.exp(2 * th[1]), [0.8, 0.95], name="variance")
    frame = found.to_frame()
    assert list(frame.index) == ["variance"] * 2
    assert list(frame.conf_high) == [found.interval[0.8].high, found.interval[0.95].high]
    assert "variance" in repr(found)
    assert "passes over the data" in found.summary()
    assert found._repr_html_().count("<tr>") == 3
    ax = found.plot()
    curve = ax.lines[0].get_xydata()
    assert curve[0, 0] == pytest.approx(found.interval[0.95].low)
    assert curve[-1, 1] == pytest.approx(QUANTILE)
    y, _ = normal_sample()
    ratio = curve[:, 0] / y.var()  # the deviance is known: n (1 / ratio - 1 + log(ratio))
    np.testing.assert_allclose(curve[:, 1], 15 * (1 / ratio - 1 + np.log(ratio)), atol=0.03)


@pytest.mark.parametrize(("name", "j"), [("Bennett5", 1), ("MGH10", 2), ("MGH17", 3), ("Rat43", 2)])
def test_profiles_of_curved_valleys_end_at_the_quantile(name, j):
    """With the parameter held at an end, refits by SciPy have the deviance of the quantile."""
    problem = PROBLEMS[name]
    ends, _, refusal = profiled(problem, j)
    assert not refusal
    root = float(stdtrit(problem.y.size - problem.theta.size, 0.975))
    with np.errstate(all="ignore"):
        assert np.max(np.abs(errors_of(problem, j, ends, root))) < RIGHT

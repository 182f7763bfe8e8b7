"""Calls of a log-likelihood without derivatives: as few as iminuit's, and the numbers of before."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import implicit_delta as idm
from benchmarks.calls import AIMS, AROUND, SQUARES, around, fit_curve, measure
from benchmarks.calls_problems import CURVES, PROBLEMS, Counted, many_coefficients
from implicit_delta.calculus.differentiate import central_differences, differentiate
from implicit_delta.calculus.units import natural_units
from implicit_delta.core import progress
from implicit_delta.core.cache import MOST_BYTES, Recent
from implicit_delta.optimize import Objective, variable_metric

STORED = Path(__file__).parents[1] / "benchmarks"
MINUIT = json.loads((STORED / "calls_minuit.json").read_text())
BEFORE = json.loads((STORED / "calls_before.json").read_text())
Y = np.random.default_rng(0).normal(1.0, 2.0, size=60)


@pytest.fixture(scope="module", params=PROBLEMS)
def measured(request):
    return request.param, measure(PROBLEMS[request.param]())


def test_calls_are_a_few_times_those_of_iminuit(measured):
    name, found = measured
    for ours, (theirs, most) in AIMS.items():
        assert found[ours] <= most * MINUIT[name][theirs], ours
        assert found[ours] < BEFORE[name][ours] / 3, ours
    assert found["afresh"] <= 4 * MINUIT[name]["hesse"]


def test_sixty_parameters_take_three_times_the_calls_of_iminuit():
    problem, peer = many_coefficients(), MINUIT["many_coefficients"]
    loglik = Counted(problem.loglik)
    estimate = idm.infer(idm.from_loglik(loglik, start=problem.start), problem.psi)
    assert loglik.calls <= 3 * (peer["migrad"] + peer["hesse"])
    assert estimate.standard_error == pytest.approx(0.0446897696, rel=1e-6)  # of the closed form


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.filterwarnings("ignore:The joint region at confidence level .* is bent")
def test_a_contour_takes_few_calls_and_is_that_of_before(name):
    """The points of 7743a6d, by sequential quadratic programming with careful derivatives."""
    problem = PROBLEMS[name]()
    calls, points = around(problem, rays=12)
    assert calls <= AROUND * MINUIT[name]["mncontour"] / 4
    before = np.array(BEFORE[name]["contour"])
    assert np.max(abs(points - before) / np.ptp(before, axis=0)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian_process", "binned_peak", "extreme_values"])
def test_rounding_changes_the_calls_of_a_contour_little(name):
    """Another processor rounds otherwise: each term is off by a few units in the last place."""
    problem = PROBLEMS[name]()
    loglik, eps = problem.loglik, np.finfo(float).eps

    def rounded(th, seed):
        terms = loglik(th)
        key = np.append(th, seed).view(np.uint64)  # the same theta is rounded in the same way
        return terms * (1 + 4 * eps * np.random.default_rng(key).uniform(-1, 1, terms.size))

    counts = [
        around(replace(problem, loglik=partial(rounded, seed=seed)), rays=12)[0]
        for seed in np.arange(5.0)
    ]
    assert max(counts) <= 1.1 * min(counts)
    assert max(counts) <= AROUND * MINUIT[name]["mncontour"] / 4


@pytest.mark.parametrize("name", CURVES)
def test_least_squares_take_few_calls(name):
    (calls, theta, errors), (peers, other, others) = fit_curve(CURVES[name])
    assert calls <= SQUARES * peers
    np.testing.assert_allclose(errors, others, rtol=1e-3)
    assert np.all(abs(theta - other) < 1e-3 * others)
    curve = CURVES[name]
    steps = 1e-30j * np.eye(theta.size)  # complex ones: no error but rounding
    exact = idm.from_residuals(
        lambda th: curve.y - curve.function(curve.x, *th),
        start=curve.start,
        jacobian=lambda th: (
            -np.stack([curve.function(curve.x, *(th + h)).imag for h in steps], axis=1) / 1e-30
        ),
    )
    assert np.all(abs(theta - exact.theta) < 1e-6 * errors)


def test_numbers_are_those_of_before(measured):
    name, found = measured
    before = BEFORE[name]
    errors = np.array(before["errors"])
    np.testing.assert_allclose(
        np.array(found["theta"]) / errors, before["theta"] / errors, atol=1e-6
    )
    np.testing.assert_allclose(found["errors"], errors, rtol=1e-6)
    np.testing.assert_allclose(found["error"], before["error"], rtol=1e-6)
    ends = np.array(found["interval"]) - before["interval"]
    assert np.all(abs(ends) < 1e-6 * before["error"])


def test_numbers_are_those_of_iminuit(measured):
    """To what its tolerances leave: MINOS stops at 1e-2 of a standard error or so."""
    name, found = measured
    peer = MINUIT[name]
    errors = np.array(found["errors"])
    assert np.all(abs(np.array(found["theta"]) - peer["theta"]) < 1e-2 * errors)
    np.testing.assert_allclose(found["errors"], peer["errors"], rtol=2e-3)
    ends = np.array(found["interval"]) - peer["interval"]
    assert np.all(abs(ends) < 1e-2 * found["error"])


@pytest.mark.parametrize("width", [0.1, 0.2, 0.3])
@pytest.mark.parametrize("name", ["unbinned_peak", "binned_peak"])
def test_a_climb_stays_on_its_hill(name, width):
    """The likelihood is the same for minus the width; a long first step would lead there."""
    problem = PROBLEMS[name]()
    start = [*problem.start[:3], width, problem.start[4]]
    model = idm.from_loglik(problem.loglik, start=start)
    np.testing.assert_allclose(model.theta, BEFORE[name]["theta"], rtol=1e-6)


def normal(th):
    return norm.logpdf(Y, th[0], np.exp(th[1]))


def test_an_infer_after_the_fit_asks_for_hardly_anything():
    loglik = Counted(normal)
    model = idm.from_loglik(loglik, start=[0.0, 0.0])
    before = loglik.calls
    first = idm.infer(model, idm.parameters)
    assert loglik.since(before) <= 6
    again = idm.infer(idm.from_loglik(normal, model.theta), idm.parameters)
    np.testing.assert_allclose(first.standard_error, again.standard_error, rtol=1e-7)


def test_passes_are_calls():
    loglik = Counted(normal)
    model = idm.from_loglik(loglik, [Y.mean(), np.log(Y.std())])
    before = loglik.calls
    assert idm.infer(model, idm.parameters).diagnostics.passes == loglik.since(before)


def test_a_memory_keeps_the_most_recent_results():
    made = []

    def squared(x):
        made.append(x[0])
        return x**2

    memory = Recent()
    large = np.zeros(MOST_BYTES // 8 // 2)  # two of these are all that it holds
    for k in (0, 1, 0, 2, 0, 1):
        key = large[:1] + k
        memory.get(key, lambda key=key: np.resize(squared(key), large.size))
    assert made == [0, 1, 2, 1]


def test_slopes_end_when_they_are_known():
    count = Counted(lambda x: np.array([np.sin(x[0]), np.exp(x[1])]))
    x, expected = np.array([0.3, -0.2]), np.array([np.cos(0.3), np.exp(-0.2)])
    rows = differentiate(count, x, np.full(2, 0.1), rtol=1e-5)
    assert count.calls == 2 * 2 * 3
    np.testing.assert_allclose(rows.value, np.diag(expected), atol=1e-11)
    slopes, bends = central_differences(count, x, np.full(2, 1e-3))
    np.testing.assert_allclose(slopes, expected, atol=1e-6)
    np.testing.assert_allclose(bends, 1e-6 * np.array([-np.sin(0.3), np.exp(-0.2)]), rtol=1e-4)


@pytest.mark.parametrize("guess", [None, 1.0, 1.9, 0.6, 1e-6, 1e6])
def test_units_are_those_of_the_curvature_whatever_the_guess(guess):
    scales = np.array([1e-5, 1.0, 1e4])
    found = natural_units(
        lambda x: -((x / scales) ** 2) / 2, scales, None if guess is None else guess * scales
    )
    kept = guess is not None and 0.5 <= guess <= 2
    np.testing.assert_allclose(found, scales * (guess if kept else 1.0), rtol=1e-6)


@pytest.mark.parametrize("start", [[-1.2, 1.0], [2.0, 2.0], [0.0, 0.0], [-3.0, -4.0]])
def test_a_variable_metric_climbs_a_bent_ridge(start):
    def value(x):
        return -(100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2)

    def gradient(x):
        bend = x[1] - x[0] ** 2
        return np.array([400 * x[0] * bend + 2 * (1 - x[0]), -200 * bend])

    found = variable_metric.maximize(Objective(value, gradient), np.array(start))
    assert found.converged
    np.testing.assert_allclose(found.x, [1.0, 1.0], atol=1e-5)


@pytest.mark.parametrize(
    ("value", "gradient"),
    [
        (lambda x: x[0], lambda x: np.ones(1)),
        (lambda x: -abs(x[0] - 1), lambda x: -np.sign(x - 1)),
        (lambda x: np.log(-x[0]) if x[0] < 0 else np.nan, lambda x: 1 / x),
        (lambda x: 0.0 if x[0] < 0.5 else np.nan, lambda x: np.full(1, np.nan)),
    ],
)
def test_a_variable_metric_says_when_it_has_not_converged(value, gradient):
    with np.errstate(all="ignore"):
        found = variable_metric.maximize(Objective(value, gradient), np.array([-0.3]))
    assert not found.converged
    assert found.message


@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_a_slow_likelihood_foretells_its_calls(monkeypatch, seconds):
    opened = []

    class Bar:
        def __init__(self, label, total, unit):
            self.label, self.total, self.unit, self.count = label, total, unit, 0
            opened.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def update(self, count):
            self.count += count

    clock = iter(range(10**9))
    monkeypatch.setattr(
        progress, "progress", lambda label, total=None, unit="": Bar(label, total, unit)
    )
    monkeypatch.setattr(
        "implicit_delta.models.loglik_rows.perf_counter", lambda: seconds * next(clock)
    )
    model = idm.from_loglik(normal, start=[0.0, 0.0])
    idm.profile(model, lambda th: th[0])
    labels = [bar.label for bar in opened]
    if not seconds:
        assert not any("about" in label for label in labels)
        return
    assert [label.split(" (")[0] for label in labels] == [
        "maximizing",
        "second differences",
        "profile",
    ]
    assert labels[0] == "maximizing (about 72 calls, 12 min)"
    for bar in opened:
        assert bar.total / 3 < bar.count < 3 * bar.total

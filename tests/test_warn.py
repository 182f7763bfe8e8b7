"""Warnings point at the line of the user, however deep they come from."""

import inspect
import warnings

import numpy as np
import pytest

import implicit_delta as idm

Y = np.random.default_rng(0).normal(size=12)


def mean_model(theta=0.0):
    return idm.from_loglik(lambda m: -((Y - Y.mean() - m[0]) ** 2) / 2, [theta])


def drifting():
    return idm.infer(mean_model(0.1), lambda m: m[0])


def bending():
    return idm.infer(mean_model(), lambda m: (m[0] + 0.15) ** 2, strict=False)


def coarse():
    return idm.infer(mean_model(), idm.Smoothed(lambda m: float(m[0] > 0.1), rng=0), strict=False)


def noisy():
    rng = np.random.default_rng(0)
    return idm.refit(lambda bonus: 1.0 + bonus(1.0) + 0.1 * rng.normal(), lambda m: m, lam=0.5)


def simulated():
    return idm.infer(mean_model(), lambda m: m[0] ** 2, idm.Simulation(rng=0))


def unbounded():
    return idm.profile(mean_model(), lambda m: np.tanh(50 * m[0]))


CASES = [drifting, bending, coarse, noisy, simulated]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_warning_points_at_the_users_line(case):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        case()
    lines, first = inspect.getsourcelines(case)
    assert caught
    for warning in caught:
        assert warning.filename == __file__
        assert first < warning.lineno < first + len(lines)

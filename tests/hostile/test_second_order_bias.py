"""Second-order bias of psi: exact where it matters, also if psi bends along one direction."""

import numpy as np
import pytest

import implicit_delta as idm

N, D = 400, 12
Y = np.random.default_rng(0).normal(1.0, 1.0, size=(N, D))
THETA = Y.mean(axis=0)
RNG = np.random.default_rng(1)
AXES = np.eye(D)
MIXED = RNG.normal(size=D)
SIGNS = np.resize([1.0, -1.0], D)


def estimate(psi):
    model = idm.from_loglik(
        lambda th: -((Y - th) ** 2).sum(axis=1) / 2, THETA, score=lambda th: Y - th
    )
    return idm.infer(model, psi, strict=False)


def quadratic(H, size):
    """Psi with the Hessian `size * H` and a slope of one along the first parameter."""
    return lambda th: th[0] + size / 2 * ((th - THETA) @ H) @ (th - THETA)


HESSIANS = {
    "all alike": np.eye(D),
    "one parameter": np.outer(AXES[3], AXES[3]),
    "one direction": np.outer(MIXED, MIXED),
    "alternating": np.outer(SIGNS, SIGNS),
    **{
        f"difference of 0 and {j}": np.outer(AXES[0] - AXES[j], AXES[0] - AXES[j])
        for j in (1, 5, 9)
    },
    "indefinite": np.diag(RNG.normal(size=D)),
    "full": MIXED[:, None] * RNG.normal(size=(D, D)) * MIXED,
}


@pytest.mark.parametrize("name", HESSIANS)
@pytest.mark.parametrize("times", [1.0, 3.0])
@pytest.mark.filterwarnings("ignore")
def test_a_bias_that_matters_is_exact(name, times):
    H = (HESSIANS[name] + HESSIANS[name].T) / 2
    size = times * np.sqrt(N) / abs(np.trace(H))  # covariance I / N: a bias of times / 2
    assert np.isclose(estimate(quadratic(H, size)).diagnostics.bias, times / 2, rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_no_difference_of_two_parameters_is_overlooked():
    for i in range(1, D):
        for j in range(i + 1, D):
            H = np.outer(AXES[i] - AXES[j], AXES[i] - AXES[j])
            bias = estimate(quadratic(H, np.sqrt(N) / 2)).diagnostics.bias
            assert np.isclose(bias, 0.5, rtol=1e-6), (i, j)


@pytest.mark.parametrize("name", HESSIANS)
def test_a_small_bias_is_small(name):
    H = (HESSIANS[name] + HESSIANS[name].T) / 2
    size = 1e-4 * np.sqrt(N) / np.linalg.norm(H)
    assert estimate(quadratic(H, size)).diagnostics.bias < 0.01


def test_a_small_bias_takes_few_calls():
    calls = []

    def psi(th):
        calls.append(1)
        return th[0] + 1e-9 * (th @ th)

    estimate(psi)
    assert len(calls) <= 16

"""Residuals and totals with noise, as solvers and rounding leave it: answered, or refused."""

import zlib

import numpy as np
import pytest

import implicit_delta as idm

X = np.linspace(0, 5, 40)


def noise(theta, size):
    """Draw for each theta, always the same: as a solver that chooses its steps."""
    seed = zlib.crc32(np.asarray(theta, dtype=float).tobytes())
    return size * np.random.default_rng(seed).normal(size=X.size)


def fitted(seed, size):
    y = 2 * np.exp(-0.6 * X) + 0.1 * np.random.default_rng(seed).normal(size=X.size)
    return idm.from_residuals(
        lambda th: y - th[0] * np.exp(-th[1] * X) + 0.1 * noise(th, size), start=[1.0, 1.0]
    )


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("seed", range(4))
def test_noise_in_residuals_is_named_and_does_no_harm(seed):
    exact = idm.infer(fitted(seed, 0.0), idm.parameters)
    found = idm.infer(fitted(seed, 1e-5), idm.parameters)
    assert "noise" in [finding.code for finding in found.diagnostics.findings]
    np.testing.assert_allclose(found.standard_error, exact.standard_error, rtol=0.03)
    assert np.all(abs(found.value - exact.value) < 0.02 * exact.standard_error)


@pytest.mark.parametrize("seed", range(4))
def test_noise_that_hides_the_curvature_is_refused_by_its_size(seed):
    with pytest.raises(idm.ImplicitDeltaError, match="nois"):
        idm.infer(fitted(seed, 3e-4), idm.parameters)


@pytest.mark.parametrize("digits", [10, 8, 7, 6])
def test_a_rounded_total(digits):
    counts = np.random.default_rng(1).poisson(np.exp(0.5 + 0.4 * X))
    terms = lambda th: counts * (th[0] + th[1] * X) - np.exp(th[0] + th[1] * X)
    exact = idm.infer(idm.from_loglik(terms, start=[0.0, 0.0]), idm.parameters)
    model = idm.from_loglik(lambda th: np.round(terms(th).sum(keepdims=True), digits), start=[0, 0])
    found = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(found.standard_error, exact.standard_error, rtol=0.01)


def test_curve_fits_hear_nothing_of_networks():
    """A saddle of the sum of squares, at which no fit ends."""
    y = np.array([-1.0, -1.2, -0.8])
    model = idm.from_residuals(lambda th: y - th[0] ** 2, theta=[0.0], variance=1.0)
    with pytest.raises(idm.ImplicitDeltaError) as caught:
        idm.profile(model, lambda th: th[0])
    assert "etwork" not in str(caught.value)

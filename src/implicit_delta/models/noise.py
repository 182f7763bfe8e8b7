"""The noise variance of a Gaussian likelihood, estimated at the fitted parameters."""

from collections.abc import Callable

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.base import FittedModel

MOST_PARAMETERS = 5_000  # whose effective number is counted exactly


def with_variance(
    likelihood: Gaussian, model: FittedModel, outputs: int, gauss_newton: Callable[[], Array] | None
) -> Gaussian:
    """Fill in the variance that a likelihood left open.

    Parameters
    ----------
    likelihood : Gaussian
        With the variance "mle" or "unbiased".
    model : FittedModel
        Of this likelihood: its terms take the variance to be 1.
    outputs : int
        How many outputs each row has.
    gauss_newton : callable or None
        Makes the model's Gauss-Newton matrix (d, d); None if a penalty other than l2 is part of it.
    """
    count = float(np.sum(model.weights)) * outputs
    squares = -2.0 * float(model.weights @ model.terms(model.theta))
    spectrum = _spectrum(model, gauss_newton) if likelihood.variance == "unbiased" else None
    return Gaussian(noise_variance(squares, count, spectrum, model.l2))


def noise_variance(squares: float, count: float, spectrum: Array | None, l2: float) -> float:
    r"""Estimate :math:`s^2` from a sum of squares of `count` residuals.

    Without a spectrum it is their mean ("mle"). With the eigenvalues of :math:`J'J`, J the
    derivative of the means, the divisor is count less the effective number of parameters
    :math:`\mathrm{tr}\, G (G + \text{l2})^{-1}`, with :math:`G = J'J / s^2` ("unbiased").
    """
    if squares == 0.0:
        raise ValueError(
            "All residuals are zero, so the noise variance is not identified: the model "
            "interpolates the data. Give `Gaussian(variance=...)` as a number, or a penalty (l2=)."
        )
    if spectrum is None:
        return squares / count
    values = spectrum[spectrum > spectrum.max() * 1e-12]
    noise = squares / count
    for _ in range(200):
        freedom = count - float(np.sum(values / (values + l2 * noise)))
        if freedom <= 0:
            raise ValueError(
                f"{values.size} parameters leave no degree of freedom to estimate the noise "
                f'variance from {count:g} residuals: use Gaussian("mle"), a number, or l2=.'
            )
        previous, noise = noise, squares / freedom
        if abs(noise - previous) <= 1e-14 * noise:
            break
    return noise


def _spectrum(model: FittedModel, gauss_newton: Callable[[], Array] | None) -> Array:
    """Eigenvalues of the sum of J'J, (d,)."""
    if model.d > MOST_PARAMETERS:
        raise UnsupportedModelError(
            f'Gaussian("unbiased") counts the effective parameters of up to {MOST_PARAMETERS} '
            f'parameters, and there are {model.d}. Use "mle", or give the variance as a number.'
        )
    if gauss_newton is None:
        raise UnsupportedModelError(
            'Gaussian("unbiased") counts the effective parameters under no penalty or l2=, but '
            'penalty= was given. Use "mle", or give the variance as a number.'
        )
    matrix = gauss_newton() - model.l2 * np.eye(model.d)
    return np.asarray(np.linalg.eigvalsh(matrix), dtype=np.float64)

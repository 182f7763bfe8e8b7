"""The noise variance of a Gaussian likelihood, estimated at the fitted parameters."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from implicit_delta._typing import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models._torch_terms import Supervised

if TYPE_CHECKING:
    from implicit_delta.models._torch_model import TorchModel

MOST_PARAMETERS = 5_000  # whose effective number is counted exactly


def with_noise(model: "TorchModel") -> "TorchModel":
    """Plug in the noise variance of a Gaussian likelihood that left it open."""
    terms = model.row_terms
    if not isinstance(terms, Supervised) or not isinstance(terms.likelihood, Gaussian):
        return model
    variance = terms.likelihood.variance
    if isinstance(variance, float):
        return model
    batch = next(iter(model.batches))
    outputs = model.functional(terms.outputs, model.functional.flat(model.theta), batch)
    count = float(np.sum(model.weights)) * outputs.numel() / len(outputs)
    squares = -2.0 * float(model.weights @ model.terms(model.theta))
    spectrum = _spectrum(model) if variance == "unbiased" else None
    noise = noise_variance(squares, count, spectrum, model.l2)
    return replace(model, row_terms=Supervised(Gaussian(noise)))


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


def _spectrum(model: "TorchModel") -> Array:
    """Eigenvalues of the sum of J'J, (d,)."""
    if model.d > MOST_PARAMETERS:
        raise UnsupportedModelError(
            f'Gaussian("unbiased") counts the effective parameters of up to {MOST_PARAMETERS} '
            f'parameters, and there are {model.d}. Use "mle", or give the variance as a number.'
        )
    ridge = model.l2 * np.eye(model.d)
    matrix = model.gauss_newton_matrix(model.theta) - ridge
    return np.asarray(np.linalg.eigvalsh(matrix), dtype=np.float64)

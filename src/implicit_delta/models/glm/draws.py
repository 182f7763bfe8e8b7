"""Draws from exponential dispersion models, by the power of their variance function."""

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.models.redraws import cannot_draw


def draw_tweedie(mean: Array, power: float, dispersion: Array, rng: np.random.Generator) -> Array:
    r"""Draw with this mean and variance ``dispersion * mean^power``, in the shape of the mean.

    The mean of w draws of dispersion :math:`\phi` is one draw of dispersion :math:`\phi / w`, for
    all of these distributions: normal (0), Poisson (1), gamma (2), inverse Gaussian (3), and
    between 1 and 2 sums of a Poisson number of gamma variables.
    """
    if power == 0:
        return np.asarray(mean + np.sqrt(dispersion) * rng.normal(size=mean.shape))
    if power == 1:
        return np.asarray(rng.poisson(mean / dispersion) * dispersion)
    if power == 2:
        return rng.gamma(1 / dispersion, mean * dispersion)
    if power == 3:
        return rng.wald(mean, 1 / dispersion)
    if not 1 < power < 2:
        raise cannot_draw(f"a variance of power {power:g} of the mean has no simple distribution")
    number = rng.poisson(mean ** (2 - power) / ((2 - power) * dispersion))
    shape, scale = (2 - power) / (power - 1), dispersion * (power - 1) * mean ** (power - 1)
    # The sum of k gamma variables is one of k times their shape; of none it is zero.
    return np.where(number > 0, rng.gamma(np.maximum(number, 1) * shape, scale), 0.0)

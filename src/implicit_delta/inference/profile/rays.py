"""Rays along which psi runs away to infinity inside a likelihood region.

Where the numerator and the denominator of a ratio may both be zero, the path ends at a point where
psi takes every value at once and no search converges. A ray beside that point is proof enough.
"""

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.inference.profile.peaks import peak_of
from implicit_delta.inference.profile.region import Region
from implicit_delta.inference.profile.values import End

RAYS, LOOKS = 180, 24
STRAIGHT = 1e-6  # sine of the angle between two gradients of psi that are the same


def runaway(region: Region, tangent: Array, sign: int, root: float) -> End | None:
    """Find a ray in the region along which psi rises, or falls, to a pole."""
    for ray in root * _plane(region, tangent):
        theta = _pole(region, ray, sign)
        if theta is not None and region.deviance(theta) <= root**2:
            return End(sign * np.inf, theta, region.deviance(theta), "pole")
    return None


def _plane(region: Region, tangent: Array) -> Array:
    """Rays in the plane of two gradients of psi, (RAYS, d), one standard error long each.

    All gradients of a ratio are in one plane, whatever the number of parameters.
    """
    center, scale = region.model.theta, region.ascent.scale
    none = np.zeros((0, center.size))
    if scale is None or center.size == 1:
        return none
    try:
        gradients = [region.gradient(center + x * tangent) for x in (0.0, 0.5)]
    except EvaluationError:
        return none
    if not all(map(np.any, gradients)):
        return none
    along, other = (_unit(scale.half_transpose(gradient)) for gradient in gradients)
    across = other - (other @ along) * along
    size = np.linalg.norm(across)
    if not size > STRAIGHT:
        return none
    angles = np.linspace(0, 2 * np.pi, RAYS, endpoint=False)
    plane = np.multiply.outer(along, np.cos(angles)) + np.multiply.outer(
        across / size, np.sin(angles)
    )
    return np.asarray(scale.half(plane).T)


def _pole(region: Region, ray: Array, sign: int) -> Array | None:
    """Follow psi along a ray for as long as it rises: theta beside a pole, if it ends in one."""
    center = region.model.theta
    looks = np.linspace(0, 1, LOOKS)
    psi = [sign * region.psi(center + x * ray) for x in looks]
    turn = next((k for k in range(LOOKS - 1) if not psi[k + 1] > psi[k]), LOOKS - 1)
    if turn == LOOKS - 1 or turn == 0:
        return None
    start, step = looks[turn - 1], 2 * looks[1]
    unit = abs(psi[turn] - psi[0]) or 1.0
    peak = peak_of(lambda x: (sign * region.psi(center + (start + x * step) * ray) - psi[0]) / unit)
    if peak is None or not peak.diverges:
        return None
    return np.asarray(center + (start + peak.x * step) * ray)


def _unit(vector: Array) -> Array:
    return np.asarray(vector / np.linalg.norm(vector))

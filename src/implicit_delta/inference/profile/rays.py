"""Rays along which psi runs away to infinity inside a likelihood region.

Where the numerator and the denominator of a ratio may both be zero, the path ends at a point where
psi takes every value at once and no search converges. A ray beside that point is proof enough.
"""

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.inference.profile.path import Side
from implicit_delta.inference.profile.peaks import peak_of
from implicit_delta.inference.profile.region import Region
from implicit_delta.inference.profile.values import End

RAYS, LOOKS = 90, 24
STRAIGHT = 1e-12  # squared distance of the path from a line, in standard errors


def runaway(region: Region, sides: tuple[Side, Side], sign: int, root: float) -> End | None:
    """Find a ray in the plane of the path along which psi rises, or falls, to a pole."""
    for ray in root * _plane(region, sides):
        theta = _pole(region, ray, sign)
        if theta is not None and region.deviance(theta) <= root**2:
            return End(sign * np.inf, theta, region.deviance(theta), "pole")
    return None


def _plane(region: Region, sides: tuple[Side, Side]) -> Array:
    """Rays in the plane of both sides of the path, (RAYS, d), one standard error long each.

    Those of a ratio are all in one plane, whatever the number of parameters.
    """
    model = region.model
    last = [side.points[-1] for side in sides]
    if not all(point.root > 0 for point in last):
        return np.zeros((0, model.d))
    first, second = ((point.theta - model.theta) / point.root for point in last)
    along, across = first - second, first + second
    image = model.information(model.theta, along, region.ascent.curvature)
    along, image = (x / np.sqrt(along @ image) for x in (along, image))
    across = across - (across @ image) * along
    size = across @ model.information(model.theta, across, region.ascent.curvature)
    if not size > STRAIGHT:
        return np.zeros((0, model.d))
    angles = np.linspace(0, 2 * np.pi, RAYS, endpoint=False)[:, None]
    return np.asarray(np.cos(angles) * along + np.sin(angles) * across / np.sqrt(size))


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

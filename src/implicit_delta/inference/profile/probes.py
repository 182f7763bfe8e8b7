"""Points all over a likelihood region, at which psi is looked at."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.inference.profile.region import Region
from implicit_delta.inference.profile.surface import FARTHEST, Surface
from implicit_delta.inference.profile.values import End

ALONG = (0.2, 0.4, 0.6, 0.8)  # of the way to an end
INSIDE = 0.97  # of the radius of the region, were the objective a parabola
LINE, CLOUD = 200, 256  # points where psi is not monotone: on a ray, and in a region
MOST_DIRECTIONS, ALIKE = 8, 0.95


@dataclass(frozen=True, eq=False)
class Probes:
    """Where to look.

    Attributes
    ----------
    region : Region
    tangent : (d,) array
        Derivative of theta with respect to r at the fitted point.
    """

    region: Region
    tangent: Array

    def few(self, ends: Iterable[End], root: float) -> Iterator[Array]:
        """Look along the path and to either side of it."""
        center = self.region.model.theta
        for end in ends:
            yield from (center + x * (end.theta - center) for x in ALONG)
        for way in self.across:
            yield from (center + side * root * way for side in (-INSIDE, INSIDE))

    def many(self, root: float) -> list[Array]:
        """Look all over the region: along its only line, or at random."""
        center, scale = self.region.model.theta, self.region.ascent.scale
        if center.size == 1:
            return [*self._ray(root, self.tangent), *self._ray(root, -self.tangent)]
        if scale is None:
            return []
        rng = np.random.default_rng(0)
        cloud = rng.standard_normal((center.size, CLOUD))
        radius = root * rng.uniform(size=CLOUD) ** (1 / center.size)
        return list(center + scale.half(cloud * radius / np.linalg.norm(cloud, axis=0)).T)

    def _ray(self, root: float, u: Array) -> Iterator[Array]:
        surface = Surface(self.region, root)
        endless = surface.is_open(u)
        steps = np.geomspace(1e-3 / FARTHEST, 1, LINE) if endless else np.arange(1, LINE + 1) / LINE
        yield from (surface.center + x * surface.length(u) * u for x in steps)

    @cached_property
    def across(self) -> list[Array]:
        """Directions across the path, one standard error long: each moves one parameter most."""
        scale, d = self.region.ascent.scale, self.region.model.d
        if scale is None or d == 1:
            return []
        gradient = self.region.evaluation.jacobian(self.region.model.theta)[0]
        along = _unit(scale.half_transpose(gradient))
        few = d <= MOST_DIRECTIONS
        rng = np.random.default_rng(0)
        axes = scale.half_transpose(np.eye(d)) if few else rng.normal(size=(d, MOST_DIRECTIONS))
        chosen: list[Array] = []
        for axis in map(_unit, axes.T):
            rest = axis - (axis @ along) * along
            size = np.linalg.norm(rest)
            if size > 1e-6 and all(abs(rest @ other) < ALIKE * size for other in chosen):
                chosen.append(rest / size)
        return [scale.half(axis) for axis in chosen]


def _unit(vector: Array) -> Array:
    return np.asarray(vector / np.linalg.norm(vector))

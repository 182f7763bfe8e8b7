"""Points all over a likelihood region, at which psi is looked at."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.inference.profile.region import Region
from implicit_delta.inference.profile.surface import FARTHEST, Surface
from implicit_delta.inference.profile.values import End

ALONG = (0.2, 0.4, 0.6, 0.8)  # of the way to an end
INSIDE = 0.97  # of the radius of the region, were the objective a parabola
LINE, CLOUD, FEW = 200, 256, 32  # points on a ray, in a region, and around an end inside of it
AROUND = 0.1  # standard errors
MOST_AXES, ALIKE = 8, 0.95


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

    def along(self, ends: Iterable[End]) -> list[Array]:
        """Look along the path."""
        center = self.region.model.theta
        return [center + x * (end.theta - center) for end in ends for x in ALONG]

    def beside(self, root: float) -> list[Array]:
        """Look to either side of the path."""
        center = self.region.model.theta
        return [center + side * root * way for way in self.across for side in (-INSIDE, INSIDE)]

    def many(self, ends: Iterable[End], root: float) -> list[Array]:
        """Look all over the region, and around ends that lie inside of it."""
        if self.region.model.d == 1:
            return [*self._ray(root, self.tangent), *self._ray(root, -self.tangent)]
        inner = [end.theta for end in ends if end.kind != "quantile"]
        around = (theta + AROUND * way for theta in inner for way in self._cloud(FEW))
        return [*(self.region.model.theta + root * self._cloud(CLOUD)), *around]

    @cached_property
    def across(self) -> list[Array]:
        """Directions across the path where it starts, one standard error long each."""
        return self.level(self.region.gradient(self.region.model.theta))

    def level(self, gradient: Array) -> list[Array]:
        """Directions along which psi has no slope, one standard error long each.

        Each of them moves one parameter more than the others do.
        """
        scale, chosen = self.region.ascent.scale, list[Array]()
        if scale is None or gradient.size == 1 or not np.any(gradient):
            return chosen
        slope = _unit(scale.half_transpose(gradient))
        for axis in self._axes:
            rest = axis - (axis @ slope) * slope
            size = np.linalg.norm(rest)
            if size > 1e-6 and all(abs(rest @ other) < ALIKE * size for other in chosen):
                chosen.append(rest / size)
        return [scale.half(axis) for axis in chosen]

    @cached_property
    def _axes(self) -> list[Array]:
        """Each parameter in units of standard errors, or, of many, random sums of them."""
        scale, d = self.region.ascent.scale, self.region.model.d
        assert scale is not None
        many = d > MOST_AXES
        rng = np.random.default_rng(0)
        axes = rng.normal(size=(d, MOST_AXES)) if many else scale.half_transpose(np.eye(d))
        return list(map(_unit, axes.T))

    def _cloud(self, count: int) -> Array:
        """Draw from the ellipsoid of one standard error, (count, d)."""
        scale, d = self.region.ascent.scale, self.region.model.d
        if scale is None:
            return np.zeros((0, d))
        rng = np.random.default_rng(0)
        cloud = rng.standard_normal((d, count))
        radius = rng.uniform(size=count) ** (1 / d)
        return np.asarray(scale.half(cloud * radius / np.linalg.norm(cloud, axis=0)).T)

    def _ray(self, root: float, u: Array) -> Iterator[Array]:
        surface = Surface(self.region, root)
        endless = surface.is_open(u)
        steps = np.geomspace(1e-3 / FARTHEST, 1, LINE) if endless else np.arange(1, LINE + 1) / LINE
        yield from (surface.center + x * surface.length(u) * u for x in steps)


def _unit(vector: Array) -> Array:
    return np.asarray(vector / np.linalg.norm(vector))

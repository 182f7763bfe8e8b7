"""Second hills of the likelihood, outside of a region."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, UnsupportedModelError
from implicit_delta.estimate import Interval
from implicit_delta.inference.profile.probes import Probes
from implicit_delta.inference.profile.region import Region
from implicit_delta.inference.profile.surface import Surface
from implicit_delta.inference.profile.values import End, Values

BEHIND = (1.5, 2.2, 3.2, 4.7)  # times as far out as an end, or as two standard errors
ASIDE = (2.0, 4.0)  # times as far out as the region, across the path
FALLS = 1e-6  # relative fall of the deviance on the way out that is no rounding error
SAME = 0.1  # of the region: the climb has led back to the maximum that is known
LOOKS = 100  # evaluations of psi on a hill


def with_hills(probes: Probes, found: list[Values]) -> list[Values]:
    """Add the values on hills that are seen from the region, where they are high enough."""
    region = probes.region
    tops = [_top(region, ray, times) for ray, times in _rays(probes, found)]
    for top in tops:
        if top is not None:
            deviance = region.deviance(top)
            found = [_with(probes, v, top) if deviance < v.root**2 else v for v in found]
    return found


def _rays(probes: Probes, found: list[Values]) -> Iterator[tuple[Array, tuple[float, ...]]]:
    """Rays that reach the surface of the region, and the multiples of them to look at."""
    for values in found:
        for _, end in values.ends:
            if end.kind == "quantile":
                far = max(1.0, 2 / values.root)
                yield end.theta - probes.region.model.theta, tuple(far * x for x in BEHIND)
    for way in probes.across:
        yield from ((side * found[-1].root * way, ASIDE) for side in (-1, 1))


def _top(region: Region, ray: Array, times: tuple[float, ...]) -> Array | None:
    """Follow a ray, on which the deviance must not fall again, and climb from where it does."""
    center, before = region.model.theta, 0.0
    for theta in (center + x * ray for x in times):
        deviance = _deviance(region, theta)
        if deviance < before * (1 - FALLS):
            top = _climbed(region, theta)
            return top if np.linalg.norm(top - center) > SAME * np.linalg.norm(ray) else None
        before = deviance
    return None


def _deviance(region: Region, theta: Array) -> float:
    try:
        return region.deviance(theta)
    except (ArithmeticError, ValueError):  # a log-likelihood need not be defined out there
        return np.inf


def _climbed(region: Region, theta: Array) -> Array:
    try:
        found = region.ascent.climb(region.model.at(theta))
    except UnsupportedModelError:
        return theta
    return found.x if found.converged else theta


def _with(probes: Probes, values: Values, top: Array) -> Values:
    """Add the values on one hill.

    With one parameter they are a piece of their own. With several the hills may be connected
    elsewhere, so what lies between is kept.
    """
    region, tangent = probes.region, probes.tangent
    values = replace(values, second=region.deviance(top))
    if top.size == 1:
        return values.joined(_on_line(region, tangent, values, top))
    for sign in (-1, 1):
        surface = Surface(region, values.root, top)
        point, failure = surface.search(sign * values.root * tangent, sign, region.psi(top))
        if point is None:
            raise _unfinished(values, region.psi(top), failure)
        end = End(point.psi, point.theta, values.root**2, "quantile", point.lam)
        values = values.moved(sign, [end])
    return values


def _on_line(region: Region, tangent: Array, values: Values, top: Array) -> Interval:
    surface = Surface(region, values.root, top)
    if surface.is_open(tangent) or surface.is_open(-tangent):
        raise _unfinished(values, region.psi(top), "The likelihood levels off there.")
    low, high = surface.theta(-tangent), surface.theta(tangent)
    psi = [region.psi(low + x * (high - low)) for x in np.linspace(0, 1, LOOKS)]
    return Interval(float(np.nanmin(psi)), float(np.nanmax(psi)))


def _unfinished(values: Values, psi: float, failure: str) -> ConvergenceError:
    return ConvergenceError(
        "The log-likelihood has a second maximum that the data do not exclude: psi is "
        f"{psi:.6g} there, and the deviance {values.second:.3g}, below the quantile "
        f"{values.root**2:.3g}. How far psi extends around it could not be found. {failure} Try "
        "a lower confidence_level, or fit again with a penalty or a start that leaves one "
        "maximum."
    )

"""Second hills of the likelihood, behind the ends of an interval."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import ConvergenceError, UnsupportedModelError
from implicit_delta.estimate import Interval
from implicit_delta.inference.profile.region import Region
from implicit_delta.inference.profile.surface import Surface
from implicit_delta.inference.profile.values import End, Values

BEHIND = (1.5, 2.2, 3.2, 4.7)  # times as far out as an end, or as two standard errors
FALLS = 1e-6  # relative fall of the deviance on the way out that is no rounding error
SAME = 0.1  # of the way to an end: the climb has led back to the maximum that is known
LOOKS = 100  # evaluations of psi on a hill


def with_hills(region: Region, tangent: Array, found: list[Values]) -> list[Values]:
    """Add the values on hills that are seen from the ends, where they are high enough."""
    tops = [top for values in found for top in _tops(region, values)]
    for top in tops:
        deviance = region.deviance(top)
        found = [_with(region, tangent, v, top) if deviance < v.root**2 else v for v in found]
    return found


def _tops(region: Region, values: Values) -> Iterator[Array]:
    """Follow the rays through the ends, on which the deviance must not fall again."""
    center = region.model.theta
    for _, end in values.ends:
        if end.kind != "quantile":
            continue
        before, step = values.root**2, max(1.0, 2 / values.root) * (end.theta - center)
        for times in BEHIND:
            theta = center + times * step
            deviance = _deviance(region, theta)
            if deviance < before * (1 - FALLS):
                top = _climbed(region, theta)
                if np.linalg.norm(top - center) > SAME * np.linalg.norm(end.theta - center):
                    yield top
                break
            before = deviance


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


def _with(region: Region, tangent: Array, values: Values, top: Array) -> Values:
    """Add the values on one hill.

    With one parameter they are a piece of their own. With several the hills may be connected
    elsewhere, so what lies between is kept.
    """
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

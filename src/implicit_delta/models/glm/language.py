"""Language of a host library: psi gets its parameters, or a copy of a fitted estimator."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from implicit_delta.calculus.tracing import trace
from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.jacobian import jacobian_of
from implicit_delta.models.language import NO_TANGENT, Language, RestrictedLanguage
from implicit_delta.models.parametrization import Parametrization


class Watches(Protocol):
    """Looks for mistakes in psi while it is evaluated."""

    def call(self, psi: Psi, argument: Any, b: Array) -> Any:
        """Call psi with its argument, which is that of coefficients b, and watch."""

    def doubt_of(self, psi: Any) -> str:
        """Describe a mistake that can be read off psi, if there is one."""


@dataclass(frozen=True, eq=False)
class HostLanguage:
    """Psi gets an object of the host library.

    Attributes
    ----------
    to_host : callable
        Turns coefficients, plain or traced, into the object that psi expects.
    watch : Watches
    to_tangent : callable, optional
        Turns coefficients and a step of them into such an object whose outputs are linear in the
        step; for networks.
    linear : bool
        Whether psi gets linear predictors, which are their own tangent.
    chart : Parametrization, optional
        Coordinates that theta is given in.
    """

    to_host: Callable[[Any], Any]
    watch: Watches
    to_tangent: Callable[[Any, Any], Any] | None = None
    linear: bool = False
    chart: Parametrization | None = None

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        b = self._coefficients(theta)
        return self.watch.call(psi, self.to_host(b), b)

    def jacobian(self, psi: Psi, theta: Array, units: Callable[[], Array]) -> Array:
        b = self._coefficients(theta)
        traced = trace(lambda coefficients: psi(self.to_host(coefficients)), b)
        if traced is not None and self.chart is not None:
            traced = traced[0], self.chart.pull(b, traced[1].T).T

        def near(point: Array) -> Any:
            """Of a network by its tangent, which has the same derivative and no kinks (relu)."""
            if self.to_tangent is not None:
                return self.evaluate_tangent(psi, theta, point - theta)
            return self.evaluate(psi, point)

        return jacobian_of(near, theta, units(), traced)

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        if self.to_tangent is not None:
            b = self._coefficients(theta)
            step = delta if self.chart is None else self.chart.push(b, delta)
            return psi(self.to_tangent(b, step))
        if self.linear:
            return self.evaluate(psi, theta + delta)
        raise UnsupportedModelError(NO_TANGENT)

    def psi_warning(self, psi: Any) -> str:
        return self.watch.doubt_of(psi)

    def along(self, chart: Parametrization) -> Language:
        if self.chart is None:
            return replace(self, chart=chart)
        return RestrictedLanguage(self, chart)  # type: ignore[arg-type]

    def tangent(self, theta: Array) -> "HostLanguage":
        if self.to_tangent is None:
            raise UnsupportedModelError(NO_TANGENT)
        moved = partial(_moved_from, self.to_tangent, self._coefficients(theta))
        return replace(self, to_host=moved, to_tangent=moved)

    def _coefficients(self, theta: Array) -> Array:
        """All coefficients, which psi may change."""
        return np.array(theta) if self.chart is None else self.chart.point(theta)


def _moved_from(to_tangent: Callable[[Any, Any], Any], b: Array, *parts: Any) -> Any:
    """Object of the tangent at b whose coefficients are the sum of these parts."""
    return to_tangent(b, sum(parts) - b)

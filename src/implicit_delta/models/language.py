"""Language of psi: an array, named numbers, a module or an estimator as its argument."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from implicit_delta.calculus.tracing import trace
from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.along import Along
from implicit_delta.models.constraints import Chart
from implicit_delta.models.jacobian import jacobian_of
from implicit_delta.models.moments import Moments
from implicit_delta.models.named_theta import Layout, speaking

NO_TANGENT = (
    "The tangent of a model is that of its outputs (means, logits), and in this one psi gets the "
    "parameters themselves. Draw these: `Simulation(tangent=False)`. Networks of `from_torch` and, "
    "with `model.apply` in psi, of `from_jax` have a tangent."
)


class Language(Protocol):
    """Evaluate and differentiate functions of theta in the types that a user writes psi for.

    It depends on no row of the data, and is a field of `Space`.
    """

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        """Psi at theta, in NumPy: (), (K,), or (m, K) to average."""

    def jacobian(self, psi: Psi, theta: Array, units: Callable[[], Array]) -> Array:
        """Jacobian of psi, (K, d); where it is by differences, in fractions of these units."""

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        r"""Psi of the tangent :math:`f(x; \theta) + J(x) \delta` of the outputs."""

    def psi_warning(self, psi: Any) -> str:
        """Describe what psi most likely gets wrong about this model; usually nothing."""

    def along(self, chart: Chart) -> "Language":
        """Take the coordinates of a chart instead of theta."""


@runtime_checkable
class TangentLanguage(Protocol):
    """Language of a network: psi can be evaluated with its linearized outputs throughout."""

    def tangent(self, theta: Array) -> Language:
        """Linearize the outputs around theta."""


@runtime_checkable
class FittedLanguage(Protocol):
    """Language that knows the fitted theta, where it looks at psi more closely."""

    def at(self, theta: Array) -> Language:
        """Take another theta for the fitted one."""


@runtime_checkable
class SummingLanguage(Protocol):
    """Language that can add up the rows of an average where these are stored."""

    def moments(self, psi: Any, theta: Array) -> Moments | None:
        """Add up the rows of a plain average; None if they are evaluated in this process."""


@dataclass(frozen=True, eq=False)
class VectorLanguage:
    """Psi gets theta itself, with names if it has any.

    Attributes
    ----------
    layout : Layout or None
        Names of the entries.
    chart : Chart or None
        Coordinates that theta is given in; psi gets all parameters.
    """

    layout: Layout | None = None
    chart: Chart | None = None

    def evaluate(self, psi: Psi, theta: Array) -> Array:
        point = np.array(theta) if self.chart is None else self.chart.point(theta)
        return np.asarray(psi(point if self.layout is None else self.layout.named(point)))

    def jacobian(self, psi: Psi, theta: Array, units: Callable[[], Array]) -> Array:
        psi = speaking(psi, self.layout)
        if self.chart is None:
            return jacobian_of(psi, theta, units(), trace(psi, theta))
        point = self.chart.point(theta)
        traced = trace(psi, point)
        if traced is not None:
            traced = traced[0], traced[1] @ self.chart.slope(point)
        return jacobian_of(Along(psi, self.chart), theta, units(), traced)

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        raise UnsupportedModelError(NO_TANGENT)

    def psi_warning(self, psi: Any) -> str:
        return ""

    def along(self, chart: Chart) -> "VectorLanguage":
        return VectorLanguage(self.layout, chart)


@dataclass(frozen=True, eq=False)
class RestrictedLanguage:
    """A language in the coordinates of a chart: the chain rule."""

    language: Language
    chart: Chart

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        return self.language.evaluate(psi, self.chart.point(theta))

    def jacobian(self, psi: Psi, theta: Array, units: Callable[[], Array]) -> Array:
        point = self.chart.point(theta)
        slope = self.chart.slope(point)

        def units_of_all() -> Array:
            return np.asarray(np.sqrt(np.sum((slope * units()) ** 2, axis=1)))

        return np.asarray(self.language.jacobian(psi, point, units_of_all) @ slope)

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        point = self.chart.point(theta)
        return self.language.evaluate_tangent(psi, point, self.chart.slope(point) @ delta)

    def psi_warning(self, psi: Any) -> str:
        return self.language.psi_warning(psi)

    def along(self, chart: Chart) -> "RestrictedLanguage":
        return RestrictedLanguage(self, chart)


class OfLanguage:
    """A member of the language of psi, as one of the model: ``model.module``.

    A model of another language raises AttributeError.
    """

    def __init__(self, source: str, doc: str) -> None:
        self.source, self.__doc__ = source, doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        if model is None:
            return self
        language = model.space.language
        if not hasattr(type(language), self.name):
            raise AttributeError(
                f"`{self.name}` is for models of `{self.source}`, and this one is made by "
                f"`{model.facts.source or 'another function'}`."
            )
        return getattr(language, self.name)


def moments_of(model: Any, psi: Any) -> Moments | None:
    """Add up the rows of an average where they are stored; None if they are in this process."""
    language = model.space.language
    return language.moments(psi, model.theta) if isinstance(language, SummingLanguage) else None

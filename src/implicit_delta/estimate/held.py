"""Covariances as an estimate holds them: matrices, or factors of one made when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from implicit_delta.core.factored import Covariance, Factored
from implicit_delta.core.types import Array

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

KEPT = "_covariance"  # a matrix that was asked for


class MadeWhenAsked:
    """Field of a frozen dataclass that holds a matrix, or factors, and returns the matrix."""

    def __get__(self, holder: Any, owner: type) -> Any:
        if holder is None:
            return self
        held = vars(holder)["covariance"]
        if not isinstance(held, Factored):
            return held
        if KEPT not in vars(holder):
            vars(holder)[KEPT] = locked(held.array())
        return vars(holder)[KEPT]

    def __set__(self, holder: Any, content: Any) -> None:
        vars(holder)["covariance"] = content


class Parts(Mapping[str, Array]):
    """Read-only mapping of parts to their matrices, which are made when asked for."""

    def __init__(self, held: Mapping[str, Covariance]) -> None:
        self.held = MappingProxyType(dict(held))

    def __getitem__(self, part: str) -> Array:
        V = self.held[part]
        return locked(V.array()) if isinstance(V, Factored) else V

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)

    def __repr__(self) -> str:
        return repr(dict(self.held))


def covariance_of(estimate: Estimate) -> Covariance:
    """Return the covariance as it is held."""
    found: Covariance = vars(estimate)["covariance"]
    return found


def parts_of(estimate: Estimate) -> Mapping[str, Covariance]:
    """Return the parts as they are held."""
    return held_parts(estimate.parts)


def held_parts(parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return parts without making the matrix of any."""
    return parts.held if isinstance(parts, Parts) else parts


def content(estimate: Estimate) -> dict[str, Any]:
    """Return all fields as they are held."""
    return {item.name: vars(estimate)[item.name] for item in fields(estimate)}


def changed(estimate: Estimate, **changes: Any) -> Estimate:
    """Replace fields, without making a matrix of factors."""
    return type(estimate)(**{**content(estimate), **changes})


def locked(array: Array) -> Array:
    """Make an array read-only."""
    array.setflags(write=False)
    return array

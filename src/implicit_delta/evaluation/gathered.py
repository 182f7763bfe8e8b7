"""Functions and names together, as one psi: ``{"ratio": lambda th: th.S / th.B, "S": "S"}``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from implicit_delta._core.labels import near_match
from implicit_delta.errors import EvaluationError
from implicit_delta.models.base import FittedModel
from implicit_delta.models.named_theta import Layout


@dataclass(frozen=True)
class Gathered:
    """Psi that returns a dict: an entry for each function, or parameter by name."""

    parts: tuple[tuple[str, Any], ...]

    def __call__(self, fitted: Any) -> dict[str, Any]:
        """Evaluate each."""
        return {
            name: fitted[part] if isinstance(part, str) else part(fitted)
            for name, part in self.parts
        }


def gathered(model: FittedModel, psi: Any) -> Any:
    """Make one psi of a dict of functions and names, or of a list of both; else leave it."""
    mixed = isinstance(psi, list | tuple) and any(map(callable, psi))
    if not mixed and not isinstance(psi, Mapping):
        return psi
    items = list(psi.items()) if isinstance(psi, Mapping) else _labeled(psi)
    if not items or not all(map(_is_plain, (part for _, part in items))):
        raise TypeError(
            "A dict or a list as psi holds plain functions of the model and names of parameters. "
            "Ask for an `Average`, a `Statistic` or another wrapper on its own; a function may "
            'return a dict, `lambda th: {"a": th[0], "b": th[1]}`.'
        )
    for _, part in items:
        if isinstance(part, str):
            _check_name(model.layout, part)
    return Gathered(tuple((str(name), part) for name, part in items))


def _labeled(psi: Any) -> list[tuple[str, Any]]:
    """Name by the name of a parameter or function; lambdas have only a place."""
    names = [part if isinstance(part, str) else getattr(part, "__name__", "") for part in psi]
    return [
        (name if name.isidentifier() and names.count(name) == 1 else f"psi[{k}]", part)
        for k, (name, part) in enumerate(zip(names, psi, strict=True))
    ]


def _is_plain(part: Any) -> bool:
    return isinstance(part, str) or (callable(part) and not hasattr(part, "sample"))


def _check_name(layout: Layout | None, name: str) -> None:
    if layout is None:
        raise EvaluationError(
            f"{name!r} beside functions is a parameter by name, and this model gives psi none. "
            'Give names to its start, `start={"a": 1.0, ...}`, or a function, `lambda th: th[0]`.'
        )
    if name not in layout.blocks:
        near = near_match(name, layout.spoken)
        raise EvaluationError(f"{name!r} is no parameter of this model: {near}")

"""Parameters as psi: all of them, or some by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.labels import near_match
from implicit_delta.errors import EvaluationError
from implicit_delta.models.model import FittedModel
from implicit_delta.models.named_theta import Layout


def parameters(model: Any) -> Any:
    """Evaluate to the parameters themselves: psi = theta.

    Its covariance is the inverse Fisher information (the paper's remark on computing it). Pass the
    function itself, ``infer(model, parameters)``; it works with the models of every ecosystem.
    """
    return model


@dataclass(frozen=True)
class Picked:
    """Entries of theta: their names and, unless they are all, their places."""

    names: tuple[str, ...]
    places: tuple[int, ...] | None = None
    scalar: bool = False

    @classmethod
    def of(cls, model: FittedModel, psi: Any) -> "Picked | None":
        """Find the parameters that are asked for; None if psi is something else."""
        asked = (psi,) if isinstance(psi, str) else _as_list(psi)
        if psi is not parameters and asked is None:
            return None
        names = model.space.names or tuple(f"theta[{j}]" for j in range(model.d))
        if asked is None:
            return cls(names)
        layout = model.space.layout or Layout(names)
        found = np.concatenate([_places(layout, name) for name in asked])
        if len(set(found)) < len(found):
            raise EvaluationError(f"A parameter is there twice: {', '.join(asked)}.")
        scalar = isinstance(psi, str) and layout.blocks[psi].shape is None
        return cls(tuple(names[j] for j in found), tuple(map(int, found)), scalar)


def _as_list(psi: Any) -> Sequence[str] | None:
    several = isinstance(psi, list | tuple | np.ndarray) or hasattr(psi, "to_numpy")
    if not several or len(psi) == 0 or not all(isinstance(name, str) for name in psi):
        return None
    return [str(name) for name in psi]


def _places(layout: Layout, name: str) -> Any:
    if name not in layout.blocks:
        raise EvaluationError(
            f"{name!r} is no parameter of this model: {near_match(name, layout.spoken)} Anything "
            "else is a function, such as `lambda th: th[0] / th[1]`."
        )
    return layout.places(name)

"""States of a JAX training, as pytrees."""

from typing import Any

import jax
import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning
from implicit_delta.models.jax.module import JaxFunctional, named_parameters
from implicit_delta.models.states import (
    Kind,
    check_names,
    check_shape,
    checked_start,
    checked_states,
    listed_states,
)

KNOWN = 1e-6  # relative: by how much what is taken as known may differ between states
UNSTACK = "pytrees (of a stacked one, `[jax.tree.map(lambda a: a[i], stacked) for i in range(c)]`)"


def states_of(kind: Kind, states: Any, params: Any, functional: JaxFunctional) -> Array | None:
    """Flatten pytrees to (c, d), the parameters that theta is made of."""
    if states is None:
        return None
    alone = () if type(params) in (list, tuple) else (type(params),)  # these may be of layers
    given = listed_states(kind, states, (jax.Array, np.ndarray, *alone), UNSTACK)
    own, layout = dict(named_parameters(params)), dict(functional.layout)
    found = [dict(named_parameters(state)) for state in given]
    rows = [_flat(f"{kind}[{i}]", state, layout) for i, state in enumerate(found)]
    _check_known(kind, found, {name: p for name, p in own.items() if name not in layout})
    return checked_states(kind, rows, _flat("params", own, layout))


def start_of(start: Any, params: Any, functional: JaxFunctional) -> Array | None:
    """Flatten the pytree that a training began with, (d,)."""
    if start is None:
        return None
    layout = dict(functional.layout)
    began = _flat("start", dict(named_parameters(start)), layout)
    return checked_start(began, _flat("params", dict(named_parameters(params)), layout))


def _flat(where: str, state: dict[str, Any], layout: dict[str, Any]) -> Array:
    """Join the parameters that theta is made of, checked, to (d,)."""
    check_names(where, state, layout)
    for name, shape in layout.items():
        check_shape(where, name, tuple(np.shape(state[name])), tuple(shape))
    return np.concatenate([_wide(state[name]).ravel() for name in layout])


def _wide(leaf: Any) -> Array:
    return np.asarray(np.asarray(leaf).astype(np.float64))


def _check_known(kind: Kind, found: list[dict[str, Any]], known: dict[str, Any]) -> None:
    """See that parameters which are not part of theta are the same in all states."""
    moved = [name for name, p in known.items() if any(_differs(p, s.get(name)) for s in found)]
    if not moved:
        return
    what = f"{moved[0]!r} ({len(moved)} arrays that `parameters=` leaves out)"
    if kind == "replicates":
        raise ValueError(
            f"The replicates differ from params in {what}. Their parameters have no meaning beside "
            "what this model has there. Give replicates that share it: train the part that "
            "`parameters=` names again."
        )
    warn(
        f"The checkpoints also differ in {what}. Psi is evaluated with what params has there, so "
        "that the line `training` has the noise of the selected parameters alone.",
        ImplicitDeltaWarning,
    )


def _differs(own: Any, other: Any) -> bool:
    if other is None:
        return False
    if np.shape(other) != np.shape(own):
        return True
    a, b = _wide(own), _wide(other)
    return bool(np.max(abs(a - b)) > KNOWN * np.max(abs(a))) if a.size else False

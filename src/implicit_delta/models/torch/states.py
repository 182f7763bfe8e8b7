"""States of a torch training, as state_dicts, modules or lists of parameters."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from implicit_delta.core.types import Array
from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning
from implicit_delta.models.states import (
    Kind,
    check_names,
    check_shape,
    checked_start,
    checked_states,
    listed_states,
)
from implicit_delta.models.torch.module import flatten, uncertain
from implicit_delta.models.torch.wrappers import unwrapped

KNOWN = 1e-6  # relative: by how much what is taken as known may differ between states


def states_of(kind: Kind, states: Any, module: nn.Module, selection: Any) -> Array | None:
    """Flatten states to (c, d), the parameters that theta is made of."""
    if states is None:
        return None
    module = unwrapped(module)
    chosen = uncertain(module, selection)
    given = listed_states(kind, states, (nn.Module, Tensor), "state_dicts or modules")
    found = [_named(f"{kind}[{i}]", state, module, chosen) for i, state in enumerate(given)]
    _check_known(kind, found, module, set(chosen))
    rows = [_flat([state[name] for name in chosen]) for state in found]
    return checked_states(kind, rows, _flat(list(chosen.values())))


def start_of(start: Any, module: nn.Module, selection: Any) -> Array | None:
    """Flatten the state that a training began with to (d,)."""
    if start is None:
        return None
    module = unwrapped(module)
    chosen = uncertain(module, selection)
    state = _named("start", start, module, chosen)
    return checked_start(_flat([state[name] for name in chosen]), _flat(list(chosen.values())))


def _flat(tensors: list[Tensor]) -> Array:
    """Flatten as theta is, whatever the types: in float64 unless there are very many."""
    return flatten(tensors, torch.float32)


def _named(
    where: str, state: Any, module: nn.Module, chosen: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Tensors of a state by the names that the module has for them."""
    if isinstance(state, nn.Module):
        inner = unwrapped(state)
        tensors = dict(inner.named_parameters(remove_duplicate=False))
        found = _renamed(where, {**tensors, **dict(inner.named_buffers())}, module, chosen)
    elif isinstance(state, Mapping):
        found = _renamed(where, state, module, chosen)
    else:
        found = _in_order(where, state, module, chosen)
    for name, p in chosen.items():
        check_shape(where, name, tuple(found[name].shape), tuple(p.shape))
    return found


def _renamed(
    where: str, state: Mapping[Any, Any], module: nn.Module, chosen: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Take wrappers off the names, and give shared parameters all of theirs."""
    found = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
    prefix = _prefix(where, found, list(chosen))
    found = {n.removeprefix(prefix): value for n, value in found.items() if n.startswith(prefix)}
    aliases = list(module.named_parameters(remove_duplicate=False))
    for name, p in chosen.items():
        others = (alias for alias, q in aliases if q is p and alias in found)
        if name not in found and (other := next(others, None)) is not None:
            found[name] = found[other]
    inside = [key for key, value in state.items() if _holds(value, chosen)]
    if inside and not set(chosen) <= set(found):
        raise ValueError(
            f"{where} is a whole checkpoint, with the parameters in its entry {inside[0]!r}: give "
            f"`[checkpoint[{inside[0]!r}] for checkpoint in ...]`."
        )
    check_names(where, found, {name: tuple(p.shape) for name, p in chosen.items()})
    return found


def _prefix(where: str, found: Mapping[str, Tensor], names: list[str]) -> str:
    """Find what a wrapper (DDP, SWA, torch.compile, Lightning) has put before all names."""
    first = "." + names[0]
    before = [key.removesuffix(first) + "." for key in found if key.endswith(first)]
    fitting = [prefix for prefix in before if all(prefix + name in found for name in names)]
    if names[0] in found or not fitting:
        return ""
    if len(fitting) > 1:
        raise ValueError(
            f"{where} has the parameters under {fitting[0]!r} and under {fitting[1]!r}: keep one, "
            f"`{{k: v for k, v in state.items() if k.startswith({fitting[0]!r})}}`."
        )
    return fitting[0]


def _holds(value: Any, chosen: Mapping[str, Tensor]) -> bool:
    """Whether an entry of a checkpoint is a state_dict itself."""
    if not isinstance(value, Mapping):
        return False
    return all(any(str(key).endswith(name) for key in value) for name in chosen)


def _in_order(
    where: str, state: Any, module: nn.Module, chosen: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Tensors in the order of `module.parameters()`, or of those that theta is made of."""
    tensors = list(state) if isinstance(state, Iterable) and not isinstance(state, Tensor) else []
    if not tensors or not all(isinstance(value, Tensor) for value in tensors):
        raise TypeError(
            f"{where} is a {type(state).__name__}; give a state_dict, a module, or a list of its "
            "parameters, `[p.detach().clone() for p in module.parameters()]`."
        )
    orders = [[name for name, _ in module.named_parameters()], list(chosen)]
    for names in orders:
        if len(names) == len(tensors):
            return dict(zip(names, tensors, strict=True))
    raise ValueError(
        f"{where} has {len(tensors)} parameters, and the module {len(orders[0])}: give all of "
        "`module.parameters()`, or state_dicts, which have names."
    )


def _check_known(
    kind: Kind, found: list[dict[str, Tensor]], module: nn.Module, chosen: set[str]
) -> None:
    """See that what is not part of theta is the same in all states.

    Psi at a state has the module's own running averages and fixed parameters. Those of another
    training have nothing to do with the weights of this one.
    """
    own = [*module.named_parameters(), *module.named_buffers()]
    known = {name: p.detach() for name, p in own if name not in chosen and p.is_floating_point()}
    moved = [name for name, p in known.items() if any(_differs(p, s.get(name)) for s in found)]
    if not moved:
        return
    what = f"{moved[0]!r} ({len(moved)} tensors that are no part of theta: buffers such as the "
    what += "running averages of BatchNorm, frozen parameters, or those left out by `parameters=`)"
    if kind == "replicates":
        raise ValueError(
            f"The replicates differ from the module in {what}. Their weights have no meaning "
            "beside what this module has there. Give replicates that share it (train the part "
            "that `parameters=` names again); or evaluate psi on each network yourself, and add "
            "the variance over them."
        )
    warn(
        f"The checkpoints also differ in {what}. Psi is evaluated with what the module has there, "
        "so that the line `training` has the noise of the selected parameters alone.",
        ImplicitDeltaWarning,
    )


def _differs(own: Tensor, other: Tensor | None) -> bool:
    if other is None:
        return False
    if other.shape != own.shape:
        return True
    a, b = own.cpu().double(), other.detach().cpu().double()
    return bool((a - b).abs().max() > KNOWN * a.abs().max()) if a.numel() else False

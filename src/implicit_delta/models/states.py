"""States of a training as rows of an array: checkpoints of its last steps, replicates of it."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.models.facts import Training

Kind: TypeAlias = Literal["checkpoints", "replicates"]

LEAST = {"checkpoints": 3, "replicates": 2}  # a trend takes two, a mean one
SHOWN = 4  # names in a message
COPY = (
    "A state_dict holds the parameters themselves, which go on changing: copy it when it is made, "
    "`copy.deepcopy(module.state_dict())`, or `{k: v.clone() for k, v in "
    "module.state_dict().items()}`."
)


def listed_states(kind: Kind, states: Any, single: tuple[type, ...], copies: str) -> list[Any]:
    """List what was given; refuse one state in place of several, and too few."""
    if isinstance(states, (*single, Mapping, str, bytes)) or not isinstance(states, Iterable):
        raise TypeError(
            f"{kind} is one {type(states).__name__}, but must be a list of {copies}, one for each "
            f"of {LEAST[kind]} or more {kind}."
        )
    found = list(states)
    if len(found) < LEAST[kind]:
        raise ValueError(
            f"{kind} has {len(found)} state(s), and at least {LEAST[kind]} are needed to see how "
            "much psi differs between them; eight or more tell it well."
        )
    return found


def check_names(where: str, given: Iterable[str], needed: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a state without some of the parameters, with names of both."""
    there = list(given)
    missing = [name for name in needed if name not in set(there)]
    if missing:
        raise ValueError(
            f"{where} has no parameter {missing[0]!r} ({len(missing)} of {len(needed)} are not "
            f"there). It has {_shown(there)}; the model has {_shown(list(needed))}. Give states of "
            "the same model."
        )


def check_shape(where: str, name: str, shape: tuple[int, ...], needed: tuple[int, ...]) -> None:
    """Refuse a parameter of another shape."""
    if shape != needed:
        raise ValueError(
            f"{name} has shape {shape} in {where}, and {needed} in the model: give states of the "
            "same architecture."
        )


def checked_states(kind: Kind, rows: list[Array], theta: Array) -> Array:
    """Stack states to (c, d); refuse what is not finite, or there twice."""
    states = np.array(rows, dtype=theta.dtype)
    bad = np.flatnonzero(~np.isfinite(states).all(axis=1))
    if bad.size:
        raise ValueError(
            f"{kind}[{bad[0]}] has entries that are NaN or infinite: that training diverged."
        )
    own = np.flatnonzero((states == theta).all(axis=1))
    if own.size == len(states) or not np.any(np.ptp(states, axis=0)):
        whose = "the model itself" if own.size else "one and the same state"
        raise ValueError(f"All {len(states)} {kind} are {whose}. {COPY}")
    if kind == "replicates" and own.size:
        raise ValueError(
            f"replicates[{own[0]}] is the model itself: give the *other* trainings, from other "
            f"seeds. {COPY}"
        )
    _check_twice(kind, states)
    return states


def checked_start(start: Array, theta: Array) -> Array:
    """Refuse a start (d,) that is not finite, or is where the training ended."""
    if not np.all(np.isfinite(start)):
        raise ValueError("start has entries that are NaN or infinite.")
    if np.array_equal(start, theta):
        raise ValueError(f"start is the model itself, as if it had never been trained. {COPY}")
    return start


def check_near(training: Training, theta: Array) -> None:
    """Refuse checkpoints that are farther away from theta than the start of the training is."""
    if training.checkpoints is None or training.start is None:
        return
    away = np.linalg.norm(training.checkpoints - theta, axis=1)
    far = np.flatnonzero(away > np.linalg.norm(training.start - theta))
    if far.size:
        raise ValueError(
            f"checkpoints[{far[0]}] is farther away from the model than start= is: it is no state "
            "of the last steps of this training. Trainings from other starts are `replicates=`."
        )


def _check_twice(kind: Kind, states: Array) -> None:
    """Refuse equal neighbors among checkpoints, and any equal replicates."""
    apart = 1 if kind == "checkpoints" else len(states) - 1
    for step in range(1, apart + 1):
        same = np.flatnonzero((states[step:] == states[:-step]).all(axis=1))
        if same.size:
            i = int(same[0])
            raise ValueError(
                f"{kind}[{i}] and {kind}[{i + step}] are the same, which would make the noise look "
                "smaller than it is. Was one state saved twice, or one seed used for both? Leave "
                f"one of them out. {COPY}"
            )


def _shown(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")

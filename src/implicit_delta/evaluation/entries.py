"""Entries of a list or dict as psi: functions, parameters by name, questions and wrappers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from implicit_delta.core.types import Array
from implicit_delta.evaluation.average import Average
from implicit_delta.evaluation.picked import parameters
from implicit_delta.evaluation.questions import (
    Question,
    average_comparison,
    average_prediction,
    average_slope,
    predictions,
)
from implicit_delta.evaluation.replicated import Replicated
from implicit_delta.evaluation.smoothed import Smoothed
from implicit_delta.evaluation.statistic import Statistic

WRAPPERS = (Average, Replicated, Smoothed, Statistic)
CALLS = (
    (average_comparison, 'average_comparison("x")'),
    (average_slope, 'average_slope("x")'),
    (average_prediction, "average_prediction()"),
    (predictions, "predictions(data)"),
    (Average, "Average(h)"),
    (Statistic, "Statistic(units, function)"),
    (Replicated, "Replicated(psi)"),
    (Smoothed, "Smoothed(psi)"),
)
ONE_BY_ONE = (
    "Ask for each with the same variance and join the answers: `join(infer(model, a, robust=True, "
    "influence=True), infer(model, b, robust=True, influence=True))`."
)


@dataclass(frozen=True)
class Entry:
    """One entry: its evaluation and its key, if it has one other than its own names."""

    psi: Any
    key: str | None

    def names(self, own: Sequence[str]) -> list[str]:
        """Name the numbers of the entry: by its key, ``key[west]`` if they are several."""
        if self.key is None:
            return list(own)
        stem = _stem(self.psi)
        return [self.key + _within(name, stem) for name in own] if len(own) > 1 else [self.key]


def entries_of(psi: Any) -> list[Entry] | None:
    """List the entries of a dict, or of a list that is not one of names alone; None for one psi.

    Those of a list keep their own names; unnamed functions, and those of one name, are numbered.
    """
    _check_called(psi)
    if isinstance(psi, Mapping | list | tuple) and not psi:
        raise TypeError(f"psi is an empty {type(psi).__name__}: there is nothing to infer.")
    if isinstance(psi, Mapping):
        return [Entry(part, str(key)) for key, part in psi.items()]
    if not isinstance(psi, list | tuple) or all(isinstance(part, str) for part in psi):
        return None
    stems = [_stem(part) if _is_function(part) else "" for part in psi]
    numbered = [len(psi) > 1 and (stem == "psi" or stems.count(stem) > 1) for stem in stems]
    return [
        Entry(part, f"psi[{k}]" if stem and numbered[k] else None)
        for k, (part, stem) in enumerate(zip(psi, stems, strict=True))
    ]


def _check_called(psi: Any) -> None:
    """Raise if psi, perhaps in a wrapper, is a function or class that makes evaluations."""
    while isinstance(psi, WRAPPERS):
        psi = _inside(psi)
    for maker, call in CALLS:
        if psi is maker:
            raise TypeError(
                f"psi is `{call.partition('(')[0]}` itself, which makes an evaluation when it is "
                f"called: write `{call}`, with your own arguments."
            )


def draws_from_model(psi: Any) -> bool:
    """Whether psi, or an entry of it, is smoothed over draws from the model."""
    entries = entries_of(psi)
    if entries is not None:
        return any(draws_from_model(entry.psi) for entry in entries)
    return isinstance(psi, Statistic | Smoothed)


class _Part(Protocol):
    """Sample and noise of an evaluation."""

    @property
    def sample(self) -> str | None: ...
    @property
    def noise(self) -> Array | None: ...


def check_together(parts: Sequence[tuple[str, _Part]]) -> None:
    """Refuse entries whose errors have no joint covariance that is known, by name."""
    training = [name for name, part in parts if part.sample == "training"]
    others = [name for name, part in parts if part.sample != "training"]
    if training and others:
        raise TypeError(
            f"{training[0]!r} stands for the population of the training rows, which makes its "
            f"variance robust, and {others[0]!r} does not, so that one estimate cannot hold both. "
            + ONE_BY_ONE
        )
    sampled = [name for name, part in parts if part.sample in ("independent", "unknown")]
    if len(sampled) > 1:
        raise TypeError(
            f"{sampled[0]!r} and {sampled[1]!r} both have the sampling error of evaluation rows, "
            "and which rows they share does not follow from two entries of a list or dict. For "
            'the same rows use one: `Average(lambda model: {"a": ..., "b": ...})` with one column '
            "for each, or one `Statistic` whose function returns an array of both."
        )
    noisy = [name for name, part in parts if part.noise is not None]
    if len(noisy) > 1:
        raise TypeError(
            f"{noisy[0]!r} and {noisy[1]!r} are both random, and their noise may come from the "
            "same seeds. Return both from one function, `def psi(model, rng): return {...}`."
        )


def merged_notes(notes: Sequence[Mapping[str, float | str]]) -> dict[str, float | str]:
    """Merge the notes of all entries: texts one after the other, of numbers the largest."""
    merged: dict[str, float | str] = {}
    for name, value in _items(notes):
        known = merged.get(name, value)
        if isinstance(known, str) or isinstance(value, str):
            texts = dict.fromkeys((str(known), str(value)))
            merged[name] = "; ".join(texts) if len(texts) > 1 else value
        else:
            merged[name] = max(known, value)
    return merged


def _items(notes: Sequence[Mapping[str, float | str]]) -> Iterator[tuple[str, float | str]]:
    for own in notes:
        yield from own.items()


def _is_function(psi: Any) -> bool:
    """Whether psi is a function of the model, perhaps in a wrapper: its name is the function's."""
    named = psi is parameters or isinstance(psi, Question)
    return isinstance(psi, WRAPPERS) or (callable(psi) and not named)


def _stem(psi: Any) -> str:
    """Return the name of an evaluation: "psi" for what has none."""
    if isinstance(psi, str):
        return psi
    if isinstance(psi, WRAPPERS):
        return _stem(_inside(psi))
    name = str(getattr(psi, "__name__", "psi"))
    return "psi" if name == "<lambda>" else name


def _inside(wrapper: Any) -> Any:
    """Return the function in a wrapper."""
    inside = (getattr(wrapper, name, None) for name in ("psi", "h", "function"))
    return next(function for function in inside if function is not None)


def _within(name: str, stem: str) -> str:
    """Write the name of one number of several behind a key: "f[0]" of f as "[0]"."""
    if name.startswith(f"{stem}["):
        return name[len(stem) :]
    head, bracket, rest = name.partition("[")
    return f"[{head}]{bracket}{rest}"

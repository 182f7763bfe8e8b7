"""Several functions of what was fitted, as one: a list or dict of functions and questions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.labels import distinct
from implicit_delta.evaluation.entries import Entry, merged_notes
from implicit_delta.evaluation.questions import Worded
from implicit_delta.inference.fit_again import labels_of, takes_data


@dataclass(frozen=True, eq=False)
class Several(Worded):
    """One dict of all entries: by their keys, or by their own names.

    How many numbers each entry is, is known from the last call.
    """

    entries: Sequence[Entry]
    functions: Sequence[Any]
    _sizes: list[int] = field(init=False, default_factory=list, repr=False)

    @property
    def scale(self) -> str | tuple[str, ...]:
        """Scale of the intervals, one for each number; see `Estimate.scale`."""
        owns = [f.scale if isinstance(f, Worded) else "" for f in self.functions]
        pairs = zip(owns, self._sizes, strict=True)
        scales = [str(s) for own, size in pairs for s in np.broadcast_to(own, size)]
        return scales[0] if len(set(scales)) == 1 else tuple(scales)

    def sentence(self) -> str:
        """Tell all questions in words."""
        told = [f.sentence() for f in self.functions if isinstance(f, Worded)]
        return str(merged_notes([{"question": text} for text in told if text]).get("question", ""))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about the data of the questions."""
        return tuple(one for f in self.functions if isinstance(f, Worded) for one in f.findings)

    def __call__(self, fitted: Any) -> dict[str, Any]:
        return self._answers([f(fitted) for f in self.functions])

    def _answers(self, values: list[Any]) -> dict[str, Any]:
        self._sizes[:] = [_size(value) for value in values]
        pairs = [
            pair
            for entry, function, value in zip(self.entries, self.functions, values, strict=True)
            for pair in _named(entry, function, value)
        ]
        names = distinct([name for name, _ in pairs])
        return dict(zip(names, (value for _, value in pairs), strict=True))


class SeveralOfRows(Several):
    """Functions some of which need the rows of each fit, too."""

    def __call__(self, fitted: Any, data: Any) -> dict[str, Any]:  # type: ignore[override]
        return self._answers(
            [f(fitted, data) if takes_data(f) else f(fitted) for f in self.functions]
        )


def several(entries: Sequence[Entry], functions: Sequence[Callable[..., Any]]) -> Several:
    """Make one function of (fitted), or of (fitted, data) if one of them is."""
    kind = SeveralOfRows if any(map(takes_data, functions)) else Several
    return kind(entries, functions)


def _named(entry: Entry, function: Any, value: Any) -> list[tuple[str, Any]]:
    if entry.key is not None:
        return [(entry.key, value)]
    labels = labels_of(value)
    if labels is not None:
        return list(zip(labels, np.asarray(value), strict=True))
    if isinstance(value, Mapping):
        return [(str(name), number) for name, number in value.items()]
    name = str(getattr(function, "__name__", "psi"))
    return [("psi" if name == "<lambda>" else name, value)]


def _size(value: Any) -> int:
    if isinstance(value, Mapping | list | tuple):
        inner = value.values() if isinstance(value, Mapping) else value
        return sum(map(_size, inner))
    return int(np.prod(value.shape)) if hasattr(value, "shape") else int(np.size(value))

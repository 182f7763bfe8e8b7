"""Profiles of many quantities: in parallel, with progress, resumed from a file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from implicit_delta import errors
from implicit_delta.core.optional import optional
from implicit_delta.core.parallel import run_all
from implicit_delta.core.progress import progress
from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaError, ImplicitDeltaWarning
from implicit_delta.estimate import Interval
from implicit_delta.estimate.tables import aligned, as_html, data_frame
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.profile.result import Profile
from implicit_delta.inference.profile.store import Store, key_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


@dataclass(frozen=True, eq=False, repr=False)
class Profiles(Sequence[Profile]):
    """Profiles of several quantities: a sequence, and by name a mapping.

    Attributes
    ----------
    profiles : tuple of Profile
        In the order of the quantities.
    """

    profiles: tuple[Profile, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the quantities."""
        return tuple(profile.name for profile in self.profiles)

    def confidence_interval(self, confidence_level: float | None = None) -> Interval:
        """Return the intervals of one level as two arrays, (K,); by default the first level."""
        found = [profile.confidence_interval(confidence_level) for profile in self.profiles]
        low, high = (np.array([float(end) for end in ends]) for ends in zip(*found, strict=True))
        return Interval(low, high)

    @property
    def interval(self) -> Interval:
        """The intervals of the first level."""
        return self.confidence_interval()

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self.names:
                raise KeyError(f"{key!r} is none of {', '.join(self.names)}.")
            return self.profiles[self.names.index(key)]
        found = self.profiles[key]
        return Profiles(found) if isinstance(found, tuple) else found

    def __len__(self) -> int:
        return len(self.profiles)

    def __iter__(self) -> Iterator[Profile]:
        return iter(self.profiles)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the table as columns, one row per quantity, confidence level and piece."""
        tables = [profile.to_dict() for profile in self.profiles]
        return {name: [x for table in tables for x in table[name]] for name in tables[0]}

    def to_frame(self) -> DataFrame:
        """Return the table as a pandas data frame."""
        return data_frame("pandas", self.to_dict()).set_index("term")

    def summary(self) -> str:
        """Return the table, notes and cost of each quantity."""
        return "\n\n".join(profile.summary() for profile in self.profiles)

    def __repr__(self) -> str:
        return aligned(self._cells())

    def _repr_html_(self) -> str:
        return as_html(self._cells(), "Likelihood-ratio (profile) and Wald intervals")

    def plot(self, axes: Sequence[Axes] | None = None, **style: Any) -> list[Axes]:
        """Draw each profile on axes of its own."""
        if axes is None:
            _, grid = optional("matplotlib.pyplot", "plot()").subplots(
                1, len(self), squeeze=False, figsize=(3.2 * len(self), 2.8), layout="constrained"
            )
            axes = list(grid[0])
        return [profile.plot(ax, **style) for profile, ax in zip(self.profiles, axes, strict=True)]

    def _cells(self) -> list[list[str]]:
        tables = [profile.cells() for profile in self.profiles]
        return [tables[0][0], *(row for table in tables for row in table[1:])]


class Told(NamedTuple):
    """A warning, as its category and text: those of another process have to be given again."""

    category: str
    text: str


class Outcome(NamedTuple):
    """A profile, or the error that it ended with, and what was warned of on the way."""

    profile: Profile | None
    error: Exception | None
    told: tuple[Told, ...] = ()


def profiles_of(
    evaluations: Sequence[Evaluation],
    one: Callable[[Evaluation], Profile],
    settings: str,
    n_jobs: int = 1,
    cache: str | Path | None = None,
) -> tuple[Profile, ...]:
    """Profile each; those that the file has are taken from it, and new ones are added to it."""
    store = None if cache is None else Store.open(cache)
    keys = [key_of(evaluation, settings) if store else "" for evaluation in evaluations]
    known = {key: store.read(key) for key in keys if store and key in store}
    missing = [k for k, key in enumerate(keys) if key not in known]
    found: dict[int, Outcome] = {
        k: Outcome(known[key][0], None, tuple(Told(*told) for told in known[key][1]))
        for k, key in enumerate(keys)
        if key in known
    }
    waiting = iter(missing)

    with progress("profiles", total=len(evaluations), unit="quantity") as bar:
        bar.update(len(found))

        def done(outcome: Outcome) -> None:
            k = next(waiting)
            found[k] = outcome
            bar.update(1)
            if store is not None and outcome.profile is not None:
                store.write(keys[k], outcome.profile, outcome.told)

        run_all(_caught, [(one, evaluations[k]) for k in missing], n_jobs, done)
    return tuple(_given(found[k], len(evaluations)) for k in range(len(evaluations)))


def _caught(one: Callable[[Evaluation], Profile], evaluation: Evaluation) -> Outcome:
    """Profile one quantity; an error is kept until the others are finished and stored."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        try:
            profile, error = one(evaluation), None
        except ImplicitDeltaError as failure:
            profile, error = None, failure
    told = tuple(Told(type(w.message).__name__, str(w.message)) for w in record)
    if error is not None:
        error.add_note(f"This was the profile of {evaluation.names[0]}.")
    return Outcome(profile, error, told)


def _given(outcome: Outcome, count: int) -> Profile:
    """Warn again, in the user's process, of what was warned of."""
    for category, text in outcome.told:
        known = getattr(errors, category, None)
        warn(text, known if known is not None else ImplicitDeltaWarning)
    if outcome.profile is None:
        assert outcome.error is not None
        raise outcome.error
    return outcome.profile

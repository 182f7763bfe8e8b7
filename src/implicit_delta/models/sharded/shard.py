"""One shard: a part of the data with its model, and errors that name it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.arguments import NoRowsError
from implicit_delta.core.types import Array
from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.models.model import FittedModel
from implicit_delta.models.runaway import of_a_part

LEFT_OUT = (
    "It adds nothing: leave it out of `parts`; partitions of a filtered Dask data frame are put "
    "together by `table.repartition(npartitions=...)`."
)
LONGEST = 60  # characters of a part in a message


@dataclass(frozen=True, eq=False)
class Shard:
    """The model of one part.

    Attributes
    ----------
    model : FittedModel
        Of these rows alone.
    part : object
        What `build` was given.
    label : str
        Number and short name of the part, for messages.
    silent : bool
        Whether no row of it has any weight, so that its sums are zero.
    codes : (n,) array of int, optional
        Clusters of the rows, where a bootstrap draws these many times.
    places : array of int, optional
        Entries of theta that are the parameters of the shard; all of them by default.
    """

    model: FittedModel
    part: Any
    label: str
    silent: bool = False
    codes: NDArray[np.intp] | None = None
    places: NDArray[np.intp] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether its derivatives are zero: no row counts, or no parameter of it varies."""
        return self.silent or not self.model.d

    def own(self, value: Any) -> Any:
        """Take the entries of an array, (d,) or (d, k), that are those of the shard."""
        part = self.places is not None and isinstance(value, np.ndarray)
        return value[self.places] if part else value

    def spread(self, value: Any, whole: Array) -> Array:
        """Put an array of the shard's parameters into one of all, (d,) or (d, k)."""
        if self.places is None:
            return np.asarray(value)
        whole[self.places] = value
        return whole


class Answer(NamedTuple):
    """The answer of a shard, and the passes over its rows that it took."""

    value: Any
    passes: int


class Failed(NamedTuple):
    """An error that a shard has raised, which travels like an answer."""

    error: Exception


Ask = Callable[..., Any]  # ask(shard, *arguments), a function of a module: it may travel by name


def label_of(number: int, part: Any) -> str:
    """Name a part by its number, from 0, and by its path or type."""
    if isinstance(part, str) or hasattr(part, "__fspath__"):
        return f"part {number} ({str(part)[-LONGEST:]})"
    if isinstance(part, int | float | slice | range):
        return f"part {number} ({part!r:.{LONGEST}})"
    return f"part {number} ({type(part).__name__})"


def built(build: Callable[[Any], Any], part: Any, label: str) -> Shard:
    """Build the model of a part; an error names it."""
    try:
        with of_a_part():
            model = build(part)
    except NoRowsError as error:
        raise ValueError(f"There are no rows that count in {label}: {error} {LEFT_OUT}") from error
    except Exception as error:
        raise named(error, f"build failed for {label}") from error
    if not isinstance(model, FittedModel):
        raise TypeError(
            f"build returned {type(model).__name__} for {label}, but must return a fitted model "
            "of that part, `return idm.from_loglik(loglik_of(part), theta=theta)`."
        )
    if model.n == 0:
        raise ValueError(f"There are no rows in {label}. {LEFT_OUT}")
    return Shard(model, part, label)


def answered(shard: Shard, ask: Ask, arguments: tuple[Any, ...], name: bool = True) -> Answer:
    """Ask a shard; an error names its part."""
    before = shard.model.rows.passes
    try:
        with of_a_part():
            value = ask(shard, *arguments)
    except Exception as error:
        if not name:
            raise
        raise named(error, f"In {shard.label}") from error
    return Answer(value, shard.model.rows.passes - before)


def named(error: Exception, where: str) -> Exception:
    """Put the part in front of the text of an error, of the same class where that is ours."""
    text = f"{where}: {error}" if isinstance(error, ImplicitDeltaError | ValueError) else (
        f"{where}: {type(error).__name__}: {error}"
    )  # fmt: skip
    if isinstance(error, ImplicitDeltaError):
        error.args = (text, *error.args[1:])  # with the attributes that it has
        return error
    return TypeError(text) if isinstance(error, TypeError) else ValueError(text)


def caught(function: Callable[[], Any]) -> Any:
    """Give an error back as a result, for who asks from elsewhere."""
    try:
        return function()
    except Exception as error:
        return Failed(error)

"""The floating-point type that a model is worked with."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from implicit_delta.errors import ConvergenceError, NotAMaximumError

P = ParamSpec("P")
R = TypeVar("R")
MOST_PROMOTED = 1_000_000  # parameters: float64 takes about twice the time and memory of float32


@dataclass(frozen=True)
class Precision:
    """The type of the numbers that a model computes with.

    Attributes
    ----------
    dtype : str
        Of the work.
    given : str
        Of the model as it was given.
    reason : str
        Why float64 was not taken, if it was tried.
    """

    dtype: str = "float64"
    given: str = "float64"
    reason: str = ""

    @property
    def is_single(self) -> bool:
        """Whether derivatives are good to three or four digits only."""
        return self.dtype != "float64" or bool(self.reason)

    @property
    def rounding(self) -> float:
        """Relative rounding error of one number."""
        return float(np.finfo("float32" if self.is_single else "float64").eps)

    @property
    def note(self) -> dict[str, str]:
        """A note for the diagnostics, by its name; none for models that are float64 themselves."""
        if self.is_single:
            why = f": the model cannot be worked with in float64 ({self.reason})"
            return {"precision": f"float32{why if self.reason else ''}"}
        if self.given == self.dtype:
            return {}
        return {"precision": f"{self.dtype}, on a copy of the {self.given} model"}

    @property
    def caution(self) -> str:
        """A sentence about refusals: in float32 rounding may be their cause."""
        if self.reason:
            return (
                "The model computes in float32, so that rounding may be the cause of this, and "
                f"cannot be used in float64 ({self.reason})."
            )
        if self.is_single:
            return (
                "The model computes in float32, so that rounding may be the cause of this: make it "
                'with `dtype="float64"` first.'
            )
        return ""

    def __str__(self) -> str:
        return self.dtype if self.given == self.dtype else f"{self.dtype} copy of {self.given}"


DOUBLE = Precision()


def cautious(function: Callable[P, R]) -> Callable[P, R]:
    """Put the caution of the first argument, a model in float32, before what is refused of it."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (ConvergenceError, NotAMaximumError) as error:
            model = args[0] if args else kwargs.get("model")
            caution = getattr(getattr(model, "facts", None), "precision", DOUBLE).caution
            if caution and caution not in str(error):
                error.args = (f"{caution} {error}",)
            raise

    return call

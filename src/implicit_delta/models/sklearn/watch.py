"""Watch for the user's own estimator inside psi: its coefficients stay while those of psi vary."""

from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from implicit_delta.core.types import Array, Psi
from implicit_delta.models.module_checks import refuse_own

# Attributes that depend on the coefficients; the last is read by copies.
COEFFICIENTS = frozenset({"coef_", "intercept_", "coefs_", "intercepts_", "__getstate__"})
LOSSES = frozenset({"loss_", "best_loss_", "loss_curve_", "validation_scores_"})

_watched: ContextVar[Any] = ContextVar("watched", default=None)


@dataclass(frozen=True, eq=False)
class Watch:
    """The estimator that was given to `from_sklearn`, or the last step of it.

    Psi is given a copy. While psi runs, the original is of a class that refuses to give away its
    coefficients. A pickled watch has no estimator, and sees nothing.
    """

    estimator: Any

    def call(self, psi: Psi, argument: Any, b: Array) -> Any:
        """Call psi with its argument, and watch."""
        kind: Any = type(self.estimator)
        token = _watched.set(self.estimator)
        try:
            if self.estimator is not None and not hasattr(kind, "_unwatched"):
                self.estimator.__class__ = _watching(kind)
            return psi(argument)
        finally:
            if self.estimator is not None:
                self.estimator.__class__ = getattr(kind, "_unwatched", kind)
            _watched.reset(token)

    def doubt_of(self, psi: Any) -> str:
        """Describe fitted numbers inside psi: none are looked for."""
        return ""

    def __reduce__(self) -> Any:
        return Watch, (None,)


@lru_cache(maxsize=64)
def _watching(kind: Any) -> Any:
    """Derive a class whose instances refuse their coefficients to the thread that watches them."""

    def get(self: Any, name: str) -> Any:
        if name in COEFFICIENTS | LOSSES and _watched.get() is self:
            refuse_own(
                "coefficients" if name in COEFFICIENTS else name,
                "from_sklearn",
                "copy.deepcopy(estimator)",
                "estimator",
            )
        return kind.__getattribute__(self, name)

    members = {"__getattribute__": get, "__module__": kind.__module__, "_unwatched": kind}
    return type(kind)(kind.__name__, (kind,), members)

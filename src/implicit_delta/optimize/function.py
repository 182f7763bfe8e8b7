"""An optimizer of another library, given as a function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.optimize.base import Maximizer
from implicit_delta.optimize.objective import Maximum
from implicit_delta.optimize.scaled import ScaledObjective

Minimize: TypeAlias = Callable[[Callable[[Array], float], Array], Any]


@dataclass(frozen=True, repr=False)
class FunctionMaximizer(Maximizer):
    """A function ``minimize(fun, x0)`` that returns a `scipy.optimize.OptimizeResult`.

    It is called without gradients, in the scaled coordinates: x0 is zero, and close to the maximum
    `fun` is ``|x|^2 / 2`` up to a constant, so that lengths are standard errors.

    Examples
    --------
    >>> from scipy import optimize
    >>> from implicit_delta.optimize import Objective
    >>> hill = Objective(lambda x: -np.sum((x - 1.0) ** 2))
    >>> cobyqa = FunctionMaximizer(lambda fun, x0: optimize.minimize(fun, x0, method="COBYQA"))
    >>> cobyqa.maximize(hill, np.zeros(2)).x.round(4)
    array([1., 1.])
    """

    minimize: Minimize
    max_distance: float = 1e3

    name: ClassVar[str] = "function"
    needs_gradient: ClassVar[bool] = False

    def climb(self, scaled: ScaledObjective) -> Maximum:
        result = self.minimize(lambda z: -scaled.finite_rise(z), scaled.best.copy())
        if not hasattr(result, "x") or not hasattr(result, "success"):
            raise TypeError(
                f"maximizer {self!r} returned {type(result).__name__}, but must return a "
                "scipy.optimize.OptimizeResult, with at least `x` and `success`."
            )
        # Where worker processes evaluate, the best point is known from the result alone.
        scaled.rise(np.asarray(result.x, dtype=np.float64).reshape(scaled.best.shape))
        message, steps = getattr(result, "message", ""), getattr(result, "nit", 0)
        return scaled.maximum(scaled.best, bool(result.success), str(message), int(steps))

    def __repr__(self) -> str:
        """Return the name of the function."""
        return str(getattr(self.minimize, "__name__", repr(self.minimize)))


def as_maximizer(given: Maximizer | Minimize | None) -> Maximizer | None:
    """Wrap a function; raise TypeError for the name or the class of a maximizer."""
    if given is None or isinstance(given, Maximizer):
        return given
    if isinstance(given, type) or not callable(given):
        raise TypeError(
            f"maximizer is {given!r:.40}: give the object itself, such as `idm.lbfgs`, or one "
            "with settings, `idm.nelder_mead(tolerance=1e-4)`; or a function `minimize(fun, x0)`, "
            "such as `scipy.optimize.minimize`."
        )
    return FunctionMaximizer(given)

"""Fits with a little of psi added to the objective, and the rise between two of them."""

import math
from dataclasses import dataclass

from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.ascent import Ascent, Push
from implicit_delta.models.model import FittedModel
from implicit_delta.models.user_calls import isolated_cache
from implicit_delta.optimize import Maximum

AT_A_KINK = 5e-3  # standard errors of gradient left: it does not vanish at a kink of psi


@dataclass(frozen=True)
class End:
    """One refit: its end, the objective L + lam psi and the gradient left there, and its cost."""

    lam: float
    theta: Array
    value: float
    gradient: float
    passes: int


@dataclass(frozen=True)
class Rise:
    """The rise of psi and theta between two ends, and L at those that were pushed: one or two."""

    top: Array
    bottom: Array
    theta: Array
    width: float
    objectives: tuple[float, ...]
    gradient: float
    passes: int

    @classmethod
    def between(cls, evaluation: Evaluation, k: int, ahead: End, behind: End) -> "Rise":
        """Evaluate at both ends; psi must have risen from one to the other."""
        top, bottom = evaluation(ahead.theta), evaluation(behind.theta)
        _check_rose(evaluation.names[k], ahead.lam, float(top[k] - bottom[k]))
        return cls(
            top=top,
            bottom=bottom,
            theta=ahead.theta - behind.theta,
            width=ahead.lam - behind.lam,
            objectives=tuple(
                end.value - end.lam * float(psi[k])
                for end, psi in ((ahead, top), (behind, bottom))
                if end.lam
            ),
            gradient=max(ahead.gradient, behind.gradient),
            passes=ahead.passes + (behind.passes if behind.lam else 0),
        )

    def push(self, k: int) -> float:
        """Distance of an end in standard errors of psi_k."""
        return self._lam * math.sqrt((self.top[k] - self.bottom[k]) / self.width)

    def bias(self, k: int, highest: float) -> float:
        r"""Relative error of V because the push is finite, from the fall of L below its maximum.

        Along the path of maxima :math:`dL = -\lambda\, d\psi`, so that L falls by :math:`\int
        \lambda V(\lambda) d\lambda` where psi rises by :math:`\int V(\lambda) d\lambda`. For a
        constant V the fall is half of lambda times the rise. V that goes with lambda, or for two
        ends with its square, makes a difference of a third, or half, of the error of V.
        """
        fall = len(self.objectives) * highest - sum(self.objectives)
        rise = float(self.top[k] - self.bottom[k])
        return (4 - len(self.objectives)) * (2 * fall / (self._lam * rise) - 1)

    @property
    def _lam(self) -> float:
        return self.width / len(self.objectives)


@dataclass(frozen=True, eq=False)  # Dask wants a function that can be hashed
class PushedFit:
    """Maximize L + lam * psi from the model's theta."""

    model: FittedModel
    ascent: Ascent

    def __call__(self, evaluation: Evaluation, lam: float) -> End:
        """Refit for one evaluation and one push."""
        before = self.model.rows.passes
        with isolated_cache(self.model):
            found = self.ascent.climb(self.model, Push(evaluation, lam))
        _check_converged(found, lam, AT_A_KINK if self.ascent.scale else 0.0)
        return End(lam, found.x, found.value, found.gradient_norm, self.model.rows.passes - before)


def _check_converged(found: Maximum, lam: float, tolerated: float) -> None:
    if not found.converged and not found.gradient_norm <= tolerated:
        raise ConvergenceError(
            f"The refit with lambda = {lam:.3g} did not converge: {found.message} Usual causes: "
            "lambda is so large that L + lambda * psi has no maximum nearby (leave lam out to have "
            "it chosen as half a standard error), or psi is not smooth (try `Simulation()`)."
        )


def _check_rose(name: str, lam: float, rise: float) -> None:
    if not rise > 0:
        raise ConvergenceError(
            f"{name} changed by {rise:.3g} when the objective was pushed toward larger values of "
            f"it (lambda = {lam:.3g}), but must rise: the refits are not converged well enough for "
            "so small a push, or ended at different optima. Use a larger lam (left out, it is half "
            "a standard error), or another `maximizer=`."
        )

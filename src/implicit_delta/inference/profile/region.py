"""Likelihood region: deviance and psi at any theta, also where one of them is not defined."""

from dataclasses import dataclass, replace

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, EvaluationError
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.evaluation import Function
from implicit_delta.inference.profile.ticks import tick
from implicit_delta.methods.ascent import Ascent
from implicit_delta.models.coordinates import start_text
from implicit_delta.models.model import FittedModel

HIGHER = 1e-3  # a deviance below minus this shows that the fitted theta is no maximum


@dataclass(frozen=True, eq=False)
class Region:
    """The deviance around a maximum, and psi there.

    Attributes
    ----------
    evaluation : Evaluation
        Of one number, on the model at its maximum.
    ascent : Ascent
        How to climb.
    top : float
        The objective at the maximum.
    """

    evaluation: Evaluation
    ascent: Ascent
    top: float

    @classmethod
    def of(cls, evaluation: Evaluation, ascent: Ascent) -> "Region":
        """Guard psi, which may not be defined everywhere in the region."""
        assert evaluation.function is not None
        guarded = replace(evaluation, function=_Guarded(evaluation.function))
        return cls(guarded, ascent, evaluation.model.objective(evaluation.model.theta))

    @property
    def model(self) -> FittedModel:
        """The model at its maximum."""
        return self.evaluation.model

    @property
    def value(self) -> float:
        """Psi at the maximum."""
        return float(self.evaluation.value[0])

    def moved(self, theta: Array) -> "Region":
        """Take the units of all steps, and the curvature, from another theta.

        Raises
        ------
        NotAMaximumError, UnsupportedModelError
            The curvature is of no use there.
        """
        guarded = self.evaluation.function
        assert isinstance(guarded, _Guarded)
        plain = replace(self.evaluation, function=guarded.function).on(self.model.at(theta))
        ascent = Ascent.of(plain.model, self.ascent.maximizer, self.ascent.curvature)
        return replace(self.of(plain, ascent), top=self.top)

    def seen_from(self, c: float) -> "Region":
        r"""Look at :math:`-1 / (\psi - c)`, which rises with psi and has a zero at its poles."""
        guarded = self.evaluation.function
        assert isinstance(guarded, _Guarded)
        function = _Guarded(_Reciprocal(guarded.function, self.model, c))
        value = function.value(self.model.theta)
        return replace(self, evaluation=replace(self.evaluation, value=value, function=function))

    def psi(self, theta: Array) -> float:
        """Psi, NaN where it is not defined."""
        try:
            return float(self.evaluation(theta)[0])
        except EvaluationError:
            return np.nan

    def gradient(self, theta: Array) -> Array:
        """Gradient of psi, (d,)."""
        return np.asarray(self.evaluation.jacobian(theta)[0])

    def deviance(self, theta: Array) -> float:
        """Twice the fall of the objective; infinite where that is not defined."""
        tick(self.model)
        with np.errstate(all="ignore"):
            deviance = 2 * (self.top - self.model.objective(theta))
        if deviance < -HIGHER:
            raise ConvergenceError(
                "The model is not at its maximum: the objective is higher by "
                f"{-deviance / 2:.3g} elsewhere, found on the way to the end of the interval. "
                "Usual causes: training stopped early, or at a local maximum. Use "
                "`polish(model)`, or fit again from this better optimum, "
                f"`{self.model.facts.source or 'from_...'}(..., "
                f"start={start_text(self.model, theta)})`."
            )
        return max(deviance, 0.0) if deviance < np.inf else np.inf


@dataclass(frozen=True, eq=False)
class _Guarded:
    """Psi at any theta: what it raises where it is not defined becomes an `EvaluationError`."""

    function: Function

    def value(self, theta: Array) -> Array:
        with np.errstate(all="ignore"):
            try:
                return self.function.value(theta)
            except (ArithmeticError, ValueError) as error:
                raise EvaluationError(f"psi is not defined: {error}") from error

    def jacobian(self, theta: Array) -> Array:
        with np.errstate(all="ignore"):
            try:
                return self.function.jacobian(theta)
            except (ArithmeticError, ValueError) as error:
                raise EvaluationError(f"psi has no derivative: {error}") from error

    def component(self, k: int) -> "_Guarded":
        return _Guarded(self.function.component(k))


@dataclass(frozen=True, eq=False)
class _Reciprocal:
    """Psi as -1 / (psi - c), differentiated in the model's own language where psi is known."""

    function: Function
    model: FittedModel
    c: float

    def value(self, theta: Array) -> Array:
        gap = self.function.value(theta) - self.c
        if not np.all(gap):
            raise EvaluationError("psi is at the pole of its reciprocal.")
        return np.asarray(-1 / gap)

    def jacobian(self, theta: Array) -> Array:
        psi = getattr(self.function, "psi", None)  # a surrogate has none, and no pole either
        if psi is not None:
            return self.model.jacobian(lambda own: -1 / (psi(own) - self.c), theta)
        gap = self.function.value(theta) - self.c
        return np.asarray(self.function.jacobian(theta) / gap[:, None] ** 2)

    def component(self, k: int) -> "_Reciprocal":
        return _Reciprocal(self.function.component(k), self.model, self.c)

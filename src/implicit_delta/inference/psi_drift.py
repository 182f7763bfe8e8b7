"""Drift of psi on the way to the maximum: the end of a climb that is about psi."""

import logging
from dataclasses import dataclass, field

import numpy as np

from implicit_delta.core.types import Array, Asked
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
    NotAMaximumError,
    UnsupportedModelError,
)
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.entries import draws_from_model
from implicit_delta.linalg.arrays import ratio
from implicit_delta.linalg.solvers import conjugate_gradient
from implicit_delta.methods.base import described_range
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.optimize.newton import LOOSEST

logger = logging.getLogger("implicit_delta")
# The standard error to 1 %, and the response itself to about 14 % of its length: see `Look`.
SOLVER = conjugate_gradient(rtol=1e-2, certify=False)
QUIET = 3  # steps
UNKNOWN = (ConvergenceError, EvaluationError, NotAMaximumError)


@dataclass(frozen=True, eq=False)
class Look:
    r"""Standard errors and drift of every psi_k at one point, (K,).

    With w about :math:`A^{-1} g` and p about :math:`A^{-1} s`, the step that is planned, the drift
    is :math:`w's + p'(g - A w)`: both errors multiply.
    """

    slopes: Array
    errors: Array
    drift: Array
    curvature: Curvature

    @classmethod
    def at(cls, model: FittedModel, evaluation: Evaluation, step: Array) -> "Look":
        """Solve with the Hessian, or where that is not positive with the Gauss-Newton matrix."""
        slopes = evaluation.jacobian(model.theta)
        try:
            return cls._solved(model, slopes, step, "hessian")
        except NotAMaximumError as error:
            try:
                return cls._solved(model, slopes, step, "ggn")
            except UnsupportedModelError:
                raise error from None

    def __str__(self) -> str:
        return (
            f"When psi was last looked at, it was {np.max(self.drift):.2g} standard errors from "
            f"where it will end (standard error {described_range(self.errors)})."
        )

    @classmethod
    def _solved(
        cls, model: FittedModel, slopes: Array, step: Array, curvature: Curvature
    ) -> "Look":
        def curve(v: Array) -> Array:
            return model.information(model.theta, v, curvature)

        floor = model.penalty.floor if curvature == "ggn" else 0.0
        solution = SOLVER.solve(curve, slopes.T, floor=floor)
        errors = np.sqrt(solution.quadratic.diagonal())
        move = solution.x.T @ model.score(model.theta)
        move = move + (slopes.T - curve(solution.x)).T @ step
        return cls(slopes, errors, ratio(np.abs(move), errors), curvature)


@dataclass
class PsiDrift:
    r"""A climb is done when the drift of psi is below a tolerance; keeps the last look at it.

    A drift is the move of psi by one Newton step, and tells where psi ends only if that step ends
    there. So the Newton decrement :math:`\delta = \sqrt{s'A^{-1}s}`, the largest drift of any psi,
    has to be below the tolerance too, and to have shrunk as the solves of `newton_krylov` plan it
    where the objective is quadratic: they leave a part :math:`\min(0.1, \delta)` of
    :math:`\delta^2`. Near a shoulder or a saddle, where the curvature vanishes, it shrinks by a
    constant factor only (with decrements down to 0.005, psi still had 0.08 standard errors to go).

    Where the Hessian is not positive the climb leads away from a saddle, and a drift by the
    Gauss-Newton matrix says little about where to: psi itself has to stand still for some steps,
    with a decrement below the tolerance.
    """

    model: FittedModel
    psi: Asked
    tolerance: float
    last: Look | None = field(default=None, init=False)
    evaluation: Evaluation | None = field(default=None, init=False)
    value: Array | None = field(default=None, init=False)
    quiet: int = field(default=0, init=False)
    decrement: float = field(default=np.inf, init=False)
    converges: bool = field(default=False, init=False)

    def __call__(self, theta: Array, step: Array) -> bool:
        """Look only where the step that is planned moves psi by little, as it was seen last."""
        try:
            return self._settled(self.model.at(theta), step)
        except UNKNOWN:  # the climb goes on to where there is an answer
            return False

    def _settled(self, here: FittedModel, step: Array) -> bool:
        self._compare(abs(float(step @ here.score(here.theta))) ** 0.5)
        if self.evaluation is None:
            self.evaluation = Evaluation.of(here, self.psi)
        self._count(self.evaluation(here.theta))
        if self.last is not None and not (
            (self.converges or self.quiet >= QUIET)
            and self._small(self.last.slopes @ step, self.last.errors)
        ):
            return False
        if not self._look(here, self.evaluation, step):
            return False
        if not draws_from_model(self.psi):
            return True
        self.evaluation = Evaluation.of(here, self.psi)  # its slopes were those of another point
        return self._look(here, self.evaluation, step)

    def _count(self, value: Array) -> None:
        """Count the steps over which psi has stood still."""
        if self.value is not None and self.last is not None:
            still = self._small(value - self.value, self.last.errors)
            self.quiet = self.quiet + 1 if still else 0
        self.value = value

    def _compare(self, decrement: float) -> None:
        """Compare the decrement with the tolerance, and with the last one."""
        planned = self.decrement * min(LOOSEST, self.decrement) ** 0.5
        self.converges = decrement <= min(self.tolerance, planned)
        self.decrement = decrement

    def _look(self, here: FittedModel, evaluation: Evaluation, step: Array) -> bool:
        self.last = last = Look.at(here, evaluation, step)
        logger.info("polish: %d passes. %s", self.model.rows.passes, last)
        at_rest = self.quiet >= QUIET and self.decrement <= self.tolerance
        sure = self.converges if last.curvature == "hessian" else at_rest
        return sure and bool(np.max(last.drift) <= self.tolerance)

    def _small(self, move: Array, errors: Array) -> bool:
        return bool(np.max(ratio(np.abs(move), errors)) <= self.tolerance)

"""The infinitesimal implicit delta method (IIDM): one linear solve per evaluation."""

from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.base import PROBE, Method, Response, relative_bend
from implicit_delta.models.base import Curvature, FittedModel
from implicit_delta.numerics.solvers import Solver, cholesky, conjugate_gradient

# Networks of 300 to 2000 parameters took conjugate gradients some 100 to 1000 products for each
# psi, a factorization never more than d: it wins below 1000 parameters, and for many psi.
SMALL, LARGEST, PRODUCTS = 1000, 5000, 500
MOST_PROBES = 16  # evaluations whose straightness is checked


@dataclass(frozen=True, repr=False)
class Infinitesimal(Method):
    r"""The response to an infinitesimal push (the paper's IIDM, Theorem 1).

    With A minus the Hessian of the objective and g the gradient of psi, the optimum of
    :math:`L + \lambda \psi` moves along :math:`w = A^{-1} g` and psi at the rate
    :math:`V = g' A^{-1} g`, its variance. K evaluations share one factorization (Theorem 3).

    Parameters
    ----------
    solver : cholesky or conjugate_gradient(...), optional
        How :math:`A^{-1} g` is found. By default a factorization for up to 1000 parameters, or
        up to 5000 if there are not more than 500 for each psi; otherwise conjugate gradients,
        which stop on the standard error.
    curvature : {"hessian", "ggn"}
        Which A: minus the Hessian, or its generalized Gauss-Newton part, which is never
        indefinite and is what the Laplace approximation uses.
    damping : float
        Added to the diagonal of A. A training of T gradient steps at rate eta reaches about what
        ``damping = 1 / (eta * T)`` gives (on the scale of the summed log-likelihood).

    Examples
    --------
    >>> from implicit_delta import from_residuals, infer
    >>> y = np.array([1.0, 2.0, 4.0])
    >>> model = from_residuals(lambda m: y - m[0], start=[0.0], variance=1.0)
    >>> round(infer(model, lambda m: m[0], Infinitesimal()).standard_error ** 2, 9)
    0.333333333
    """

    solver: Solver | None = None
    curvature: Curvature = "hessian"
    damping: float = 0.0

    def __post_init__(self) -> None:
        """Check what was configured."""
        if self.curvature not in ("hessian", "ggn"):
            raise ValueError(f'curvature must be "hessian" or "ggn", not {self.curvature!r}.')
        if not np.isfinite(self.damping) or self.damping < 0:
            raise ValueError(f"damping must be a finite number >= 0, not {self.damping!r}.")

    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        """Solve for the directions and multiply out the covariance."""
        jacobian = evaluation.jacobian(model.theta)
        _check_moves(jacobian)
        solver = self._solver(model, evaluation)
        floor = self.damping + (model.l2 if self.curvature == "ggn" else 0.0)
        solution = solver.solve(lambda v: self._curve(model, v), jacobian.T, floor=floor)
        return Response(
            covariance=solution.quadratic,
            directions=solution.x,
            method=repr(replace(self, solver=solver)),
            smallest_curvature=solution.smallest_curvature,
            nonlinearity=_straightness(evaluation, solution.x, solution.quadratic),
            residual=solution.residual,
            exact=self.curvature == "hessian" and self.damping == 0,
        )

    def _solver(self, model: FittedModel, evaluation: Evaluation) -> Solver:
        if self.solver is not None:
            return self.solver
        few = model.d <= max(SMALL, min(LARGEST, PRODUCTS * evaluation.size))
        return cholesky if few else conjugate_gradient

    def _curve(self, model: FittedModel, v: Array) -> Array:
        product = model.information(model.theta, v, self.curvature)
        return product + self.damping * v if self.damping else product


def _check_moves(jacobian: Array) -> None:
    if not np.any(jacobian):
        _refuse_flat("psi does not change with the parameters: its derivative is exactly zero.")


def _refuse_flat(what: str) -> NoReturn:
    raise EvaluationError(
        f"{what} If psi uses the model, it is piecewise constant (a count, an accuracy, a rank, an "
        "argmax), or its parameters are detached. Such a psi has a standard error all the same: "
        "use `Simulation()`, wrap it in `Smoothed(psi)`, or use a gradient-free refit, "
        "`FiniteDifference(maximizer=nelder_mead)`."
    )


def _straightness(evaluation: Evaluation, directions: Array, covariance: Array) -> float:
    """Push theta half a standard error either way along each direction and watch psi.

    It must not bend, and must rise in proportion to its derivative, which is unrelated to the
    course of a psi with jumps or many kinks.
    """
    errors = np.sqrt(np.diag(covariance))
    moving = np.flatnonzero(errors > 0)
    chosen = moving[np.linspace(0, moving.size - 1, min(moving.size, MOST_PROBES)).astype(int)]
    worst = 0.0
    for k in chosen:
        step = PROBE / errors[k] * directions[:, k]
        try:
            ahead = evaluation(evaluation.model.theta + step)
            behind = evaluation(evaluation.model.theta - step)
        except EvaluationError:
            return np.inf
        _check_still(evaluation, errors, ahead - behind)
        bend = relative_bend(ahead[k], evaluation.value[k], behind[k])
        worst = max(worst, bend, _mismatch(ahead[k] - behind[k], 2 * PROBE * errors[k]))
    return worst


def _mismatch(rise: float, expected: float) -> float:
    return float(abs(rise - expected) / min(rise, expected)) if rise > 0 else np.inf


def _check_still(evaluation: Evaluation, errors: Array, move: Array) -> None:
    jumping = np.flatnonzero((errors == 0) & (abs(move) > 1e-9 * abs(evaluation.value)))
    if jumping.size:
        _refuse_flat(f"{evaluation.names[jumping[0]]} moves, but its derivative is exactly zero.")

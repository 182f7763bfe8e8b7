"""Finish an optimization that stopped early."""

import logging
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

import numpy as np

from implicit_delta._core.progress import progress
from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import ConvergenceError, NotAMaximumError
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.infinitesimal import Infinitesimal
from implicit_delta.models.base import FittedModel
from implicit_delta.numerics.maximizers import Maximizer, Maximum, Objective, lbfgs, newton_krylov
from implicit_delta.numerics.solvers import Factor, factorize

DENSE_LIMIT = 500  # parameters up to which the curvature is factorized to scale the ascent
MOST_ROUNDS = 20
FINISHED = 1e-7  # of a standard error of any evaluation
STALLED = 1e-4  # of a standard error: what rounding in the objective may leave

Model = TypeVar("Model", bound=FittedModel)
logger = logging.getLogger("implicit_delta")


@dataclass(frozen=True)
class Polished(Generic[Model]):
    """What `polish(model, psi)` found.

    Attributes
    ----------
    model : FittedModel
        At the maximum.
    moved : (K,) array or float
        By how many standard errors each evaluation moved.
    gain : float
        By how much the objective rose.
    iterations : int
    """

    model: Model
    moved: float | Array
    gain: float
    iterations: int


@overload
def polish(model: Model, psi: None = None, *, maximize: Maximizer | None = None) -> Model: ...
@overload
def polish(model: Model, psi: Psi, *, maximize: Maximizer | None = None) -> Polished[Model]: ...
def polish(
    model: Model, psi: Psi | None = None, *, maximize: Maximizer | None = None
) -> Model | Polished[Model]:
    """Maximize the model's objective to the end, starting where it is.

    Parameters
    ----------
    model : FittedModel
        Anything made by `from_*`; it is not changed.
    psi : callable, optional
        An evaluation; with it, the result also says by how many standard errors psi moved.
    maximize : maximizer, optional
        By default `lbfgs`, scaled by the factorized curvature, for up to 500 parameters and
        `newton_krylov` beyond.

    Returns
    -------
    FittedModel, or Polished if psi is given
        How far the objective rose is also logged (logger ``implicit_delta``, level INFO).

    Raises
    ------
    ConvergenceError
        If no maximum was found.

    Examples
    --------
    >>> import implicit_delta as idm
    >>> y = np.array([1.0, 2.0, 6.0])
    >>> rough = idm.from_residuals(lambda m: y - m[0], theta=[2.9], variance=1.0)
    >>> idm.polish(rough).theta
    array([3.])
    >>> round(idm.polish(rough, lambda m: m[0]).moved, 6)  # 0.1 * sqrt(3)
    0.173205
    """
    before = model.objective(model.theta)
    found, iterations = _climb(model, maximize)
    finished = model.at(found)
    gain = finished.objective(found) - before
    logger.info("polish: the objective rose by %.4g in %d iterations", gain, iterations)
    if psi is None:
        return finished
    return Polished(finished, _moved(model, finished, psi), gain, iterations)


def _climb(model: FittedModel, maximizer: Maximizer | None) -> tuple[Array, int]:
    """Climb in rounds, each scaled by the curvature where the last one ended."""
    theta, iterations = model.theta, 0
    if maximizer is None and model.d > DENSE_LIMIT:
        maximizer = newton_krylov
    with progress("maximizing", unit="evaluation") as bar:
        for _ in range(MOST_ROUNDS):
            scale, at_maximum = _scale(model, theta)
            if at_maximum and _decrement(model, theta, scale) < FINISHED:
                return _finish(model, theta, scale), iterations
            found = (maximizer or lbfgs).maximize(_objective(model, scale, bar), theta)
            theta, iterations = found.x, iterations + found.iterations
            if scale is None and found.converged:
                return theta, iterations
            if at_maximum and found.converged and found.gradient_norm < STALLED:
                return _finish(model, theta, scale), iterations
    raise ConvergenceError(_advice(found))


def _objective(model: FittedModel, scale: Factor | None, bar: object) -> Objective:
    def value(theta: Array) -> float:
        bar.update()  # type: ignore[attr-defined]
        return model.objective(theta)

    return Objective(value, model.score, model.information, scale)


def _scale(model: FittedModel, theta: Array) -> tuple[Factor | None, bool]:
    """Factorize the curvature; away from a maximum only the size of its diagonal is of use."""
    if model.d > DENSE_LIMIT:
        return None, False
    matrix = model.information(theta, np.eye(model.d))
    try:
        return factorize((matrix + matrix.T) / 2), True
    except NotAMaximumError:
        size = abs(np.diag(matrix))
        return factorize(np.diag(np.maximum(size, 1e-8 * size.max() + 1e-12))), False


def _decrement(model: FittedModel, theta: Array, scale: Factor | None) -> float:
    """By how many standard errors the worst evaluation would still move."""
    assert scale is not None
    return float(np.linalg.norm(scale.half_transpose(model.score(theta))))


def _finish(model: FittedModel, theta: Array, scale: Factor | None) -> Array:
    """Newton steps with the curvature at hand, as long as each shrinks the gradient."""
    assert scale is not None
    slope = model.score(theta)
    size = np.linalg.norm(scale.half_transpose(slope))
    for _ in range(10):
        candidate = theta + scale.solve(slope)
        slope = model.score(candidate)
        smaller = np.linalg.norm(scale.half_transpose(slope))
        if not smaller < 0.5 * size:
            break
        theta, size = candidate, smaller
    return np.asarray(theta)


def _moved(model: FittedModel, finished: FittedModel, psi: Psi) -> float | Array:
    evaluation = Evaluation.of(finished, psi)
    variance = np.diag(Infinitesimal().respond(finished, evaluation).covariance)
    moved = (evaluation.value - evaluation(model.theta)) / np.sqrt(variance)
    return float(moved[0]) if evaluation.scalar else np.asarray(moved)


def _advice(found: Maximum) -> str:
    return (
        f"No maximum was found: {found.message} Usual causes: the objective has no finite maximum "
        "(perfectly separated classes, an unpenalized network: add `l2=`), redundant parameters, "
        "or a start far away (give another `start=` or fit it yourself and give `theta=`)."
    )

"""Finish an optimization that stopped early."""

import logging
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

import numpy as np

from implicit_delta._core.deprecated import renamed
from implicit_delta._core.types import Array, Psi
from implicit_delta._core.warn import warn
from implicit_delta.errors import EvaluationError, ImplicitDeltaWarning
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.infinitesimal import Infinitesimal
from implicit_delta.models._maximize import maximum_of
from implicit_delta.models.base import FittedModel
from implicit_delta.numerics.arrays import ratio
from implicit_delta.numerics.maximizers import Maximizer

Model = TypeVar("Model", bound=FittedModel)
logger = logging.getLogger("implicit_delta")


@dataclass(frozen=True)
class Polished(Generic[Model]):
    """The result of `polish(model, psi)`.

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
def polish(
    model: Model,
    psi: None = None,
    *,
    tangent: bool = False,
    maximizer: Maximizer | None = None,
    maximize: Maximizer | None = None,
) -> Model: ...
@overload
def polish(
    model: Model,
    psi: Psi,
    *,
    tangent: bool = False,
    maximizer: Maximizer | None = None,
    maximize: Maximizer | None = None,
) -> Polished[Model]: ...
def polish(
    model: Model,
    psi: Psi | None = None,
    *,
    tangent: bool = False,
    maximizer: Maximizer | None = None,
    maximize: Maximizer | None = None,
) -> Model | Polished[Model]:
    """Maximize the model's objective to the end, starting where it is.

    Parameters
    ----------
    model : FittedModel
        Anything made by `from_*`; it is not changed.
    psi : callable, optional
        An evaluation; with it, the result also says by how many standard errors psi moved.
    tangent : bool
        Whether to maximize the likelihood of the tangent of a network, whose outputs are linear in
        the step from where it is. It is concave, so that with a penalty there is one maximum, for
        ReLU too, and the result is a model of that tangent: psi sees the module with these outputs.
    maximizer : maximizer, optional
        By default `lbfgs`, scaled by the factorized curvature, for up to 500 parameters and
        `newton_krylov` beyond.
    maximize : maximizer, optional
        Deprecated name of `maximizer`.

    Returns
    -------
    FittedModel, or Polished if psi is given
        How far the objective rose is also logged (logger ``implicit_delta``, level INFO). The
        summary of an estimate made from the finished model has how far psi has moved: it is
        about that model, and not about the one that was deployed.

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
    model = model.tangent() if tangent else model
    before = model.objective(model.theta)
    found, iterations = maximum_of(model, renamed(maximizer, maximize))
    finished = model.at(found)
    start = model.theta if model.before is None else model.before
    object.__setattr__(finished, "before", start)  # models are frozen, and `at` knows no polish
    if model.claimed is not None and finished.claimed is None:
        warn(
            f"The parameters have moved, and the covariance of the fit ({model.claimed.name}) is "
            "not that of the new ones: the inverse information is used from here on. Ask for "
            "`robust=` or `clusters=`, or fit again to the end.",
            ImplicitDeltaWarning,
        )
    if model.replicates is not None and finished.replicates is None:
        warn(
            "The parameters have moved, and those of the replicates have not: the budget has no "
            "line `initialization` from here on. Polish each replicate as a model of its own, and "
            "give `.module` of each to `from_torch(..., replicates=)` (`.params` in JAX).",
            ImplicitDeltaWarning,
        )
    gain = finished.objective(found) - before
    logger.info("polish: the objective rose by %.4g in %d iterations", gain, iterations)
    if psi is None:
        return finished
    return Polished(finished, _moved(model, finished, psi), gain, iterations)


def move_by_polish(evaluation: Evaluation, errors: Array) -> dict[str, str]:
    """Note how far psi is from where it was before `polish`, if the model was polished.

    Parameters
    ----------
    evaluation : Evaluation
    errors : (K,) array
        Standard errors.
    """
    before = None if evaluation.fitted is None else evaluation.fitted.before
    if before is None:
        return {}
    try:
        first = evaluation(before)
    except EvaluationError:
        return {"polished": "psi is not defined where the training had ended"}
    moved = float(np.max(ratio(np.abs(evaluation.value - first), errors)))
    where = f"psi was {first[0]:.4g} before, " if evaluation.scalar else "psi has moved by up to "
    return {"polished": f"{where}{moved:.2g} standard errors{' away' * evaluation.scalar}"}


def _moved(model: FittedModel, finished: FittedModel, psi: Psi) -> float | Array:
    evaluation = Evaluation.of(finished, psi)
    variance = np.diag(Infinitesimal().respond(finished, evaluation).covariance)
    moved = (evaluation.value - evaluation(model.theta)) / np.sqrt(variance)
    return float(moved[0]) if evaluation.scalar else np.asarray(moved)

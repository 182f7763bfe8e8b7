"""The front door: from a fitted model and an evaluation to an estimate."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from implicit_delta.core.findings import Finding, present
from implicit_delta.core.hints import also
from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.core.precision import cautious
from implicit_delta.core.types import Array, Asked
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
    SaddlePointError,
)
from implicit_delta.estimate import Estimate
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.entries import draws_from_model
from implicit_delta.inference.assemble import Cost, Options, assemble
from implicit_delta.inference.hac import HAC
from implicit_delta.inference.influence import Correction, Sandwich
from implicit_delta.inference.stopped import as_trained
from implicit_delta.inference.target import debiased
from implicit_delta.inference.training_loss import refuse_training_loss
from implicit_delta.linalg.solvers import Solver, cholesky, conjugate_gradient
from implicit_delta.methods.base import Method, Response
from implicit_delta.methods.delta_method import DeltaMethod
from implicit_delta.methods.implicit_function import ImplicitFunction
from implicit_delta.methods.infinitesimal import Infinitesimal
from implicit_delta.methods.simulation import Simulation
from implicit_delta.models.claimed import checked_covariance
from implicit_delta.models.coordinates import in_free_coordinates
from implicit_delta.models.early_stop import early_stopped
from implicit_delta.models.foreign import refuse_foreign
from implicit_delta.models.isolation import with_own_caches
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import check_maximum
from implicit_delta.models.outputs import displacement, is_formable, is_network

IDENTITIES: WeakKeyDictionary[FittedModel, str] = WeakKeyDictionary()
# A training that stopped early is known to its ridge, to some percent; a solve need not be better.
LOOSE = conjugate_gradient(rtol=1e-3)
PLAIN = Options()


@also(name="names")
@cautious
def infer(
    model: FittedModel,
    psi: Asked,
    method: Method | None = None,
    *,
    robust: bool | Correction | HAC = False,
    clusters: Any = None,
    covariance: ArrayLike | None = None,
    df: float | None = None,
    debias: bool = False,
    influence: bool = False,
    strict: bool = True,
    names: Sequence[str] | str | None = None,
) -> Estimate:
    """Put an error bar on anything computed from a fitted model.

    Parameters
    ----------
    model : FittedModel
        Made by one of the `from_*` functions.
    psi : callable, str, or list or dict of them
        The evaluation: a function of the model in its own language (a parameter vector, a module,
        an estimator) that returns a number, a one-dimensional array or a dict of these, whose keys
        are the names; or `parameters`. It is an `Average` if it stands for a population, is wrapped
        in `Smoothed` if it jumps, and takes an argument `rng` if it is random (see `Replicated`).
        Parameters by name are strings: ``"S"``, ``["S", "B"]``. Several evaluations are a list, or
        a dict with their names, ``{"ratio": lambda th: th.S / th.B, "effect":
        average_comparison("x", how="ratio")}``: each has the scale and the error that it has alone.
    method : Method, optional
        How the response to ``L + lambda * psi`` is found. Left out, it is chosen like this:

        ===================================  =============================================
        d up to 1000, or up to 500 K (5000)  ``Infinitesimal(solver=cholesky)``
        d beyond                             ``Infinitesimal(solver=conjugate_gradient)``
        a network whose training stopped     the same with ``curvature="ggn"`` and a ridge around
        early                                its start, by the evidence; robust ("HC2")
        ===================================  =============================================

        and ``estimate.method`` names it.
    robust : bool, {"HC0", "HC1", "HC2", "HC3", "CR0", "CR1", "CR1S", "CR2"} or HAC
        Variance that stays valid when the model is misspecified (sandwich). True is "HC0", or
        "CR0" with clusters: no small-sample factor. "HC1" is n / (n - d) times that; with G
        clusters "CR1" is G / (G - 1) times that, and "CR1S" (n - 1) / (n - d) times "CR1",
        as in Stata and statsmodels. "HC2", "HC3" and "CR2" make up for what the fit takes away
        from the residuals of each row or cluster (leverage); they need a model that knows the
        outputs of a row, and are best where rows or clusters are few. `HAC(lags)` is for rows in
        time order. A `Bootstrap` is robust by itself, and makes no correction.
    clusters : (n,) array, list or pandas Series, or a tuple of two, optional
        Labels of three or more groups within which observations may be dependent; the variance is
        then the clustered sandwich, or for `Bootstrap` that of resampling whole groups. A Series
        is aligned by its index if the model has labels for its rows. A tuple of two,
        ``(firm, year)``, is for rows that are alike in either way.
    covariance : (d, d) array, optional
        A covariance of the parameters from elsewhere, to take instead of the model's own.
    df : float, optional
        Degrees of freedom of quantiles and tests; ``np.inf`` for normal ones. By default those of
        the noise variance, if one was estimated, or of the clusters: their number less one.
    debias : bool
        Take the penalty out by one Newton step of the likelihood alone, and with it the variance:
        the interval is then around the truth rather than around the penalized maximum.
    influence : bool
        Keep the influence of each observation in ``estimate.influence``.
    strict : bool
        Refuse results that are very doubtful (drift above 1, a psi that does not even move
        both ways); with False these become warnings. A network whose training stopped early is
        taken as it is, with its drift as a line of the budget.
    names : sequence of str, optional
        Names of the evaluations, for tables (or `name`).

    Returns
    -------
    Estimate

    Examples
    --------
    >>> import numpy as np
    >>> import implicit_delta as idm
    >>> y = np.array([3, 0, 2, 5, 1, 4, 2, 3])
    >>> model = idm.from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])
    >>> rate = idm.infer(model, lambda th: np.exp(th[0]))
    >>> print(f"{rate.value:.3f} +- {rate.standard_error:.3f}")
    2.500 +- 0.559
    """
    if not isinstance(model, FittedModel):
        refuse_foreign(model, "infer")
        raise TypeError(
            f"infer needs a fitted model, not {type(model).__name__}. Make one with `from_loglik`, "
            "`from_residuals`, `from_statsmodels`, `from_sklearn`, `from_torch` or `from_jax`."
        )
    cost = Cost.start(model)
    given, model = model, in_free_coordinates(with_own_caches(model))
    sandwich: Callable[[FittedModel], Sandwich | None]
    sandwich = partial(Sandwich.of, robust=robust, clusters=clusters)
    by_default = _takes_stops(method, model) and not debias
    if not by_default or not is_network(model):  # other models are asked as they are
        known = sandwich(model)
        sandwich = lambda _: known  # noqa: E731
    brought = _checked_covariance(covariance, given, robust is not False or clusters is not None)
    brought = (
        brought if brought is None or model.space.chart is None else model.space.chart.part(brought)
    )
    model = debiased(model) if debias else model
    options = Options(
        covariance=brought, df=df, debias=debias, influence=influence, strict=strict, cost=cost,
        fit=_identity(given),
    )  # fmt: skip
    try:
        if by_default:
            evaluation, idle = _as_trained(model, psi, names)
        else:
            evaluation, idle = Evaluation.of(model, psi, names), None
        doubt = model.space.language.psi_warning(psi)
        found = present(idle, Finding("warn", "host_results", doubt) if doubt else None)
        options = replace(options, sandwich=sandwich(evaluation.model), findings=found)
        return answer(evaluation, method, options)
    except SaddlePointError:
        if not by_default or not is_network(model) or not np.any(displacement(model)):
            raise
    evaluation = Evaluation.of(
        early_stopped(model), psi, names
    )  # at rest, but at no strict maximum
    options = replace(options, sandwich=sandwich(evaluation.model), findings=())
    return answer(evaluation, method, options)


def _identity(model: FittedModel) -> str:
    """Identify the model that an estimate is of: two of one model are not independent."""
    if is_network(model):  # a network has no other's weights, whoever wraps it again
        return hashlib.blake2b(model.theta.tobytes(), digest_size=16).hexdigest()
    return IDENTITIES.setdefault(model, uuid4().hex)


def _takes_stops(method: Method | None, model: FittedModel) -> bool:
    """Whether a training that stopped early is taken as it is.

    By default; and by draws in the tangent, which without any ridge may have no bounds.
    """
    drawn = isinstance(method, Simulation) and method.tangent is not False
    return method is None or (drawn and not model.penalty.given)


def _as_trained(
    model: FittedModel, psi: Asked, names: Sequence[str] | str | None
) -> tuple[Evaluation, Finding | None]:
    """Ask psi of a model as it was trained; what is wrong with psi is said before any work."""
    if draws_from_model(psi):
        trained, idle = as_trained(model)
        return Evaluation.of(trained, psi, names), idle
    asked = Evaluation.of(model, psi, names)
    trained, idle = as_trained(asked.model)
    return asked.on(trained), idle


def _checked_covariance(
    covariance: ArrayLike | None, model: FittedModel, robust: bool
) -> Array | None:
    """Check a covariance that a user brings."""
    if covariance is None:
        return None
    if robust:
        raise ValueError("Give robust= and clusters=, or covariance=, but not both.")
    return checked_covariance(covariance, model.space.names, model.d)


def answer(
    evaluation: Evaluation, method: Method | None = None, options: Options = PLAIN
) -> Estimate:
    """Answer a question that has been bound to a model; see `infer`."""
    model, sandwich, brought = evaluation.model, options.sandwich, options.covariance
    options = replace(options, cost=options.cost or Cost.start(model))
    if sandwich is None and model.weights.kind == "sampling":
        sandwich = Sandwich.of(model, False, None)
    host = model.facts.host
    if (
        sandwich is None
        and brought is None
        and (not model.rows.symmetric)
        and host.covariance is None
    ):
        sandwich = Sandwich.of(model, False, host.clusters) or Sandwich()
    if method is not None and not isinstance(method, Method):
        raise TypeError(
            f"method is {method!r:.60}, but must be a method with its settings, such as "
            "`Bootstrap(200)`, `FiniteDifference()` or `Infinitesimal(solver=cholesky)`."
        )
    if method is None:
        if model.penalty.early_stop and sandwich is None and brought is None:
            sandwich = Sandwich(name="HC2", stopped=True)
        method = _default_method(model, sandwich is not None or options.influence)
    robust = sandwich is not None and sandwich.asked
    method.check(robust=robust, covariance=brought is not None, influence=options.influence)
    if sandwich is not None and method.robust:
        sandwich.refuse_beside(method)
    if sandwich is not None:
        sandwich = replace(sandwich, by_method=method.accounts_for(sandwich.clusters))
    if sandwich is not None and sandwich.clusters is not None:
        clustered = method.by_clusters(sandwich.clusters)
        _check_returned(method, "by_clusters", clustered, Method)
        method = clustered
    _check_constant(evaluation, method)
    try:
        response = _response(model, evaluation, method)
        return assemble(evaluation, response, replace(options, sandwich=sandwich))
    except (ConvergenceError, EvaluationError) as error:
        refuse_training_loss(evaluation, error)
        raise


def _check_constant(evaluation: Evaluation, method: Method) -> None:
    """Refuse a list with an entry that does not depend on the parameters, where pushes move it."""
    if not np.any(evaluation.constant):
        return
    constant = np.broadcast_to(evaluation.constant, evaluation.size)
    solves = isinstance(method, Infinitesimal | ImplicitFunction) or method.robust
    if not np.all(constant) and not solves:
        raise EvaluationError(
            f"{evaluation.names[int(np.argmax(constant))]!r} does not depend on the parameters, so "
            f"that {type(method).__name__} finds nothing to move. Ask for it in a call of its own, "
            "or leave `method=` out."
        )


def _response(model: FittedModel, evaluation: Evaluation, method: Method) -> Response:
    """Find the response by a method, which moves nothing where no entry depends on theta."""
    if np.all(evaluation.constant):
        return _still(model, evaluation, method)
    response = method.respond(model, evaluation)
    _check_returned(method, "respond", response, Response)
    return response


def _check_returned(method: Method, member: str, found: Any, wanted: Any) -> None:
    """Raise unless a member of a method has returned what it must."""
    if isinstance(found, wanted):
        return
    own = type(method).__name__
    example = f'Response(covariance=V, method="{own}()")' if wanted is Response else f"{own}(...)"
    raise TypeError(
        f"{own}.{member} returned {type(found).__name__} {found!r:.60}, but must return a "
        f"{wanted.__name__}, such as `{example}`."
    )


def _still(model: FittedModel, evaluation: Evaluation, method: Method) -> Response:
    """Make the response of what does not depend on the parameters: none."""
    K = evaluation.size
    return Response(
        covariance=np.zeros((K, K)),
        method=f"{type(method).__name__}()",
        directions=np.zeros((model.d, K)),
        nonlinearity=0.0,
        notes={"model_part": "none: the statistic does not depend on the parameters"},
    )


def _default_method(model: FittedModel, by_rows: bool) -> Method:
    """Solve; more tightly when the direction itself is used, and not only the variance."""
    if (not model.rows.symmetric) and model.facts.host.covariance is not None:
        return DeltaMethod()
    if not model.rows.symmetric:
        return ImplicitFunction()
    if not by_rows:
        check_maximum(model)
        return Infinitesimal(curvature=model.facts.curvature)
    dense = model.d <= DENSE_LIMIT
    if model.penalty.early_stop:
        solver: Solver = cholesky if dense and is_formable(model) else LOOSE
        return Infinitesimal(solver=solver, curvature="ggn")
    return Infinitesimal(solver=cholesky if dense else conjugate_gradient(rtol=1e-6))

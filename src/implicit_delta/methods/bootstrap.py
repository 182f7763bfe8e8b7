"""The bootstrap: refit to drawn data, as often as it takes."""

from dataclasses import InitVar, dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from implicit_delta.core.arguments import as_seed
from implicit_delta.core.clusters import Clusters
from implicit_delta.core.findings import present, report
from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.core.thresholds import FEW_REPLICATES
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, UnsupportedModelError
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.ascent import Ascent
from implicit_delta.methods.base import (
    Method,
    Response,
    check_moved,
    first_of,
    uncertainty,
)
from implicit_delta.methods.better import better_optimum
from implicit_delta.methods.first_order import FirstOrder
from implicit_delta.methods.nearby import Nearby
from implicit_delta.methods.one_step import OneStepError
from implicit_delta.methods.outcomes import (
    failed_replicates,
    largest_ratio,
    monte_carlo_error,
)
from implicit_delta.methods.refitted import Refitted
from implicit_delta.methods.replication import (
    Blocks,
    NewTargets,
    Replication,
    Rows,
    WholeClusters,
    otherwise_of,
)
from implicit_delta.models.boundaries import near_limits
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.models.processes import processes_of
from implicit_delta.models.user_calls import progress_for
from implicit_delta.optimize import Maximizer, Minimize, as_maximizer, lbfgs

SEARCH = lbfgs(max_iterations=100)  # in natural units a maximum close by takes 10 to 30 steps
GRADIENTS = 5  # of a usual refit, to foretell its calls

Kind: TypeAlias = Literal["resample", "bayesian", "parametric", "blocks", "one-step"]


@dataclass(frozen=True, repr=False)
class Bootstrap(Method):
    r"""Psi at refits to data that are drawn anew, each started at the fitted parameters.

    A replicate maximizes :math:`\sum_i w_i \ell_i(\theta) - \text{penalty}(\theta)` with random
    weights in place of the given ones: drawing with replacement is a matter of weights, so the
    model needs no change. The covariance is that of psi over the replicates. It
    is robust to misspecification, like a sandwich; `infer` with clusters draws these whole. An
    ``Average(h, sample="training")`` is that of the rows of each replicate, with the budget line
    ``rows`` for model and sample together. Intervals of the replicates themselves:
    ``estimate.confidence_interval(kind="percentile")``, ``"basic"`` or ``"bca"``.

    A *parametric* replicate keeps the rows and draws their targets from the fitted model. It
    rests on the model, like the inverse information, and follows small samples and a psi that
    bends.

    Parameters
    ----------
    replicates : int
        B; the standard error is known up to a relative error of about
        :math:`1 / \sqrt{2 (B - 1)}`, reported as ``monte_carlo_error``.
    kind : {"resample", "bayesian", "parametric", "blocks", "one-step"}
        Draw observations with replacement (multinomial weights); give them smooth Dirichlet
        weights, which keep every observation in and so fail less often in small samples; draw
        new targets from the fitted model, where its distribution is known: `from_residuals`, most
        of `from_statsmodels` and `from_sklearn`, likelihood objects with torch and JAX, and
        ``from_loglik(simulate=...)``; or, of a series whose rows are in order of time, draw blocks
        of successive rows (moving blocks, of which the last one goes on at the start). With
        "one-step" observations or clusters are drawn as in "resample", and a refit is one Newton
        step from the fitted parameters, with what all replicates share: two to three times as
        fast, and without what is left after that step. Five replicates (20 where these leave a
        doubt) are refitted in full; by how much psi differs there is ``one_step_error``, in
        standard errors.
    rng : int or numpy.random.Generator, optional
        Source of the draws; fresh unless given. Replicate b has its own stream of random
        numbers, so the result does not depend on `n_jobs`.
    n_jobs : int
        How many replicates run at once (joblib; with ``joblib.parallel_config`` on Dask or Ray).
    maximizer : maximizer or callable, optional
        As in `FiniteDifference`. By default `lbfgs`, scaled by the factorized curvature, and
        `newton_krylov` beyond 2500 parameters.
    curvature : {"hessian", "ggn"}
        What the refits are scaled by.
    block : int, optional
        Rows in a block; about 1.4 times the cube root of n unless given. It has to span the
        dependence between rows.

    Notes
    -----
    Replicates that have no fit (classes that are separated in the resample, say) are counted in
    ``diagnostics.notes`` with a warning; with more than 10 % of them there is no result.

    A draw takes terms of the log-likelihood, so these must be the units that were sampled. The bins
    of a histogram are not, nor is the one term of dependent data. For counted values give one
    term for each value and ``weights=`` counts, which are then drawn as that many observations.

    In a parametric replicate a row with weight w is the mean of w draws, a penalty is the same, and
    an estimated noise variance or dispersion is the one that was plugged in: it sets the spread of
    the draws, and the refit of theta does not depend on it, but for the balance with a penalty,
    which is held too. Psi is given the new parameters, not the new targets.

    BCa intervals (Efron 1987) take the acceleration from the influences of what is drawn: rows,
    clusters, or targets of the model. They need at least d replicates, a psi with a slope, and
    draws that are not skewed by themselves, as Dirichlet weights are.

    Examples
    --------
    >>> from implicit_delta import from_loglik, infer
    >>> y = np.array([3.0, 0.0, 2.0, 5.0, 1.0, 4.0, 2.0, 3.0])
    >>> model = from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])
    >>> rate = infer(model, lambda th: np.exp(th[0]), Bootstrap(400, rng=0))
    >>> print(f"{rate.standard_error:.2f}")  # near std(y) / sqrt(8) = 0.53
    0.53
    """

    robust = True

    replicates: int = 200
    kind: Kind = "resample"
    rng: int | np.random.Generator | None = None
    n_jobs: int = 1
    maximizer: Maximizer | Minimize | None = None
    curvature: Curvature = "hessian"
    clusters: InitVar[Any] = None
    block: int | None = None

    def __post_init__(self, clusters: Any) -> None:
        """Check what was configured."""
        if clusters is not None:
            raise TypeError("Give the labels to `infer(model, psi, Bootstrap(), clusters=labels)`.")
        as_maximizer(self.maximizer)
        if self.replicates != int(self.replicates) or self.replicates < 2:
            raise ValueError(f"replicates must be an integer above 1, not {self.replicates!r}.")
        if self.kind not in get_args(Kind):
            raise ValueError(
                'kind must be "resample", "bayesian", "parametric", "blocks" or "one-step", not '
                f"{self.kind!r}."
            )
        if self.block is not None and (self.kind != "blocks" or self.block != int(self.block)):
            raise ValueError(
                f"block={self.block!r} is the number of rows in a block, an integer, of "
                '`Bootstrap(kind="blocks")`.'
            )

    def check(self, *, robust: bool, covariance: bool, influence: bool) -> None:
        """Refuse, before any replicate is fitted, what replicates cannot give."""
        if influence:
            raise UnsupportedModelError(
                "Bootstrap does not find the direction in which the parameters respond, which "
                "influences are made of. Use `Infinitesimal` or `FiniteDifference`."
            )
        if covariance:
            raise ValueError(
                "Bootstrap finds the variance by itself: leave out covariance=, or the method."
            )
        if robust and self.kind == "parametric":
            raise ValueError(
                'Bootstrap(kind="parametric") draws from the fitted model and so believes it: its '
                "standard errors are neither robust nor clustered. Leave out robust= and "
                'clusters=, or use `Bootstrap(kind="resample")`.'
            )

    def by_clusters(self, clusters: Clusters) -> "Method":
        """Draw whole clusters."""
        if self.kind == "blocks":
            raise ValueError(
                'Bootstrap(kind="blocks") draws blocks of one series, not clusters. Leave out '
                'clusters=, or draw whole series with `Bootstrap(kind="resample")`.'
            )
        return _ClusterBootstrap(self, clusters)

    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        """Refit all replicates and take moments."""
        return self.over(self._replication(model.n), model, evaluation)

    def _replication(self, n: int) -> Replication:
        if self.kind == "blocks":
            return Blocks.of(n, None if self.block is None else int(self.block))
        return NewTargets() if self.kind == "parametric" else Rows(self.weighing)

    @property
    def weighing(self) -> str:
        """The way to draw weights."""
        return "resample" if self.kind == "one-step" else self.kind

    def over(
        self, replication: Replication, model: FittedModel, evaluation: Evaluation
    ) -> Response:
        """Refit to data drawn in some way and take moments."""
        seed = processes_of(model).broadcast_seed(as_seed(self.rng))
        named = replace(self, rng=seed)
        _check_average(evaluation, replication)
        _check_limits(model)
        few = replication.check(model)
        replication = replace(  # type: ignore[type-var]
            replication, otherwise=otherwise_of(self.kind, bool(model.penalty.given))
        )
        ascent = Ascent.of(model, self.maximizer, self.curvature)
        at_rest = ascent.climb(model)
        climb = ascent if self.maximizer is not None else _in_reach(ascent)
        nearby = self._nearby(replication, model, ascent)
        measure = partial(_psi, evaluation)
        refit = Refitted(model, climb, replication, measure, at_rest.value, nearby)
        single = self._single(refit)
        rest = evaluation(at_rest.x) - evaluation.value
        passes = model.rows.passes
        with progress_for(model, "bootstrap", int(self.replicates) * GRADIENTS * (2 * model.d + 1)):
            try:
                outcomes = (single or refit).run(seed, int(self.replicates), self.n_jobs)
            except ConvergenceError:
                report([few])  # few units are the usual cause
                raise
        seen_here = model.rows.passes - passes
        values = [outcome.psi for outcome in outcomes if outcome.psi is not None]
        failures = [outcome.failure for outcome in outcomes if outcome.psi is None]
        failed = failed_replicates(failures, len(outcomes), replication.otherwise)
        ends = [(outcome.gain, outcome.theta) for outcome in outcomes if outcome.theta is not None]
        better = better_optimum(model, ends, "by a replicate of the bootstrap")
        draws = np.array(values)
        check_moved(evaluation, draws, "replicate")
        covariance = np.atleast_2d(np.cov(draws, rowvar=False))
        errors, uncertain = np.sqrt(np.diag(covariance)), monte_carlo_error(draws)
        left = OneStepError.of(refit, outcomes, seed, errors) if single else OneStepError()
        limit = FirstOrder.of(evaluation, ascent, replication, draws)
        notes: dict[str, float | str] = {
            "replicates": float(len(outcomes)),
            "failed": float(len(failures)),
            "monte_carlo_error": uncertain,
        }
        return Response(
            covariance=covariance,
            draws=draws,
            acceleration=limit.acceleration,
            robust=not replication.from_model,
            refitted=True,
            whole=evaluation.sample == "training",
            method=repr(named if nearby else replace(named, maximizer=ascent.maximizer)),
            drift=largest_ratio(abs(rest), errors),
            passes=max(sum(outcome.passes for outcome in outcomes) - seen_here, 0),
            findings=(
                *present(few, failed, better),
                *first_of(
                    left.finding,
                    limit.finding,
                    uncertainty(uncertain, "Use more replicates.", FEW_REPLICATES),
                ),
            ),
            notes=notes | left.notes | ({"no_bca": limit.reason} if limit.reason else {}),
        )

    def _nearby(
        self, replication: Replication, model: FittedModel, ascent: Ascent
    ) -> Nearby | None:
        """Warm steps, unless the user has chosen a maximizer or there is no scale."""
        if self.maximizer is not None or ascent.scale is None:
            return None
        return Nearby.of(model, ascent, int(self.replicates), replication.reweights(model))

    def _single(self, refit: Refitted) -> Refitted | None:
        """Replicates of one step, if that is what they are to be."""
        if self.kind != "one-step":
            return None
        if refit.nearby is None:
            raise UnsupportedModelError(
                f'Bootstrap(kind="one-step") takes steps with a factorized curvature, up to '
                f"{DENSE_LIMIT} parameters, and without a maximizer=. Use "
                '`Bootstrap(kind="resample")` here, or `infer(model, psi, robust=True)`.'
            )
        return replace(refit, single=True, top=np.inf)


@dataclass(frozen=True, repr=False)
class _ClusterBootstrap(Method):
    """A bootstrap that draws whole clusters."""

    bootstrap: Bootstrap
    clusters: Clusters

    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        replication = WholeClusters(self.bootstrap.weighing, self.clusters)
        response = self.bootstrap.over(replication, model, evaluation)
        return replace(response, method=f"{response.method} of {self.clusters.count} clusters")


def _psi(evaluation: Evaluation, replicate: FittedModel, theta: Array) -> Array:
    """Evaluate at a refit; an average over training rows is that of the replicate's."""
    if evaluation.sample != "training":
        return evaluation(theta)
    return evaluation.weighed(theta, replicate.weights.values)


def _in_reach(ascent: Ascent) -> Ascent:
    """Limit the steps in natural units: drawn data may have a likelihood without bounds."""
    return ascent if ascent.scale is None else replace(ascent, maximizer=SEARCH)


def _check_average(evaluation: Evaluation, replication: Replication) -> None:
    """Refuse new targets for an average over rows that were themselves sampled."""
    if replication.from_model and evaluation.sample == "training":
        raise UnsupportedModelError(
            'Bootstrap(kind="parametric") leaves the training rows where they are and draws their '
            'targets, so it does not see that these rows are a sample: Average(sample="training") '
            'needs `Bootstrap(kind="resample")`. For the average over these very rows give a '
            "plain psi, without `Average`."
        )


def _check_limits(model: FittedModel) -> None:
    """Refuse limits close by, at which many replicates would end."""
    near = near_limits(model)
    if near:
        raise UnsupportedModelError(
            f"The bootstrap is not consistent this close to a limit ({near[0]}): many replicates "
            "would end at it, and their spread is not that of the estimate (Andrews, 2000). Use "
            "`profile(model, psi)`, whose intervals respect the constraints."
        )

"""The bootstrap: refit with random weights, as often as it takes."""

from collections import Counter
from dataclasses import InitVar, dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from implicit_delta._core.arguments import as_seed
from implicit_delta._core.clusters import Clusters
from implicit_delta._core.deprecated import renamed
from implicit_delta._core.parallel import run_all
from implicit_delta._core.progress import progress
from implicit_delta._core.types import Array
from implicit_delta._core.warn import warn
from implicit_delta.errors import (
    ConvergenceError,
    ImplicitDeltaError,
    ImplicitDeltaWarning,
    NonlinearityWarning,
    UnsupportedModelError,
)
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.ascent import Ascent
from implicit_delta.methods.base import (
    Method,
    Response,
    check_moved,
    uncertainty,
)
from implicit_delta.models.base import Curvature, FittedModel
from implicit_delta.numerics.arrays import ratio
from implicit_delta.numerics.maximizers import Maximizer

FEW = 0.4  # of a standard error: from four replicates; five are somebody's choice
SHORT = 0.1  # of a standard error that is too small: five observations
RESAMPLING = 1.5  # times the sandwich: far beyond the Monte-Carlo error and small samples
MISFIT = 3.0  # times the error of the model: overdispersion alone seldom is ninefold
FIRST = 20  # replicates: with 10 % of failures on average, a third fails in 2 of 1000
MOST_FAILED = 0.1  # share of replicates without a fit beyond which the rest says little


@dataclass(frozen=True, repr=False)
class Bootstrap(Method):
    r"""Psi at refits to resampled data, each started at the fitted parameters.

    A replicate maximizes :math:`\sum_i w_i \ell_i(\theta) - \text{penalty}(\theta)` with random
    weights in place of the given ones: drawing with replacement is a matter of weights, so the
    model needs to know nothing about it. The covariance is that of psi over the replicates. It
    is robust to misspecification, like a sandwich; `infer` with clusters draws these whole.
    Percentile intervals: ``estimate.confidence_interval(kind="percentile")``.

    Parameters
    ----------
    replicates : int
        B; the standard error is known up to a relative error of about
        :math:`1 / \sqrt{2 (B - 1)}`, reported as ``monte_carlo_error``.
    kind : {"resample", "bayesian"}
        Draw observations with replacement (multinomial weights), or give them smooth Dirichlet
        weights, which keep every observation in and so fail less often in small samples.
    rng : int or numpy.random.Generator, optional
        Source of the weights; fresh unless given. Replicate b has its own stream of random
        numbers, so the result does not depend on `n_jobs`.
    n_jobs : int
        How many replicates run at once (joblib; with ``joblib.parallel_config`` on Dask or Ray).
    maximizer : maximizer, optional
        By default `lbfgs`, scaled by the factorized curvature, and `newton_krylov` beyond 2500
        parameters.
    curvature : {"hessian", "ggn"}
        What the refits are scaled by.
    maximize : maximizer, optional
        Deprecated name of `maximizer`.

    Notes
    -----
    Replicates that have no fit (classes that are separated in the resample, say) are counted in
    ``diagnostics.notes`` with a warning; with more than 10 % of them there is no result.

    A draw takes terms of the log-likelihood, so these must be the units that were sampled. The bins
    of a histogram are not, nor is the one term of dependent data. For counted values give one
    term for each value and ``weights=`` counts, which are then drawn as that many observations.

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
    kind: Literal["resample", "bayesian"] = "resample"
    rng: int | np.random.Generator | None = None
    n_jobs: int = 1
    maximizer: Maximizer | None = None
    curvature: Curvature = "hessian"
    maximize: InitVar[Maximizer | None] = None
    clusters: InitVar[Any] = None

    def __post_init__(self, maximize: Maximizer | None, clusters: Any) -> None:
        """Check what was configured."""
        if clusters is not None:
            raise TypeError("Give the labels to `infer(model, psi, Bootstrap(), clusters=labels)`.")
        object.__setattr__(self, "maximizer", renamed(self.maximizer, maximize))
        if self.replicates != int(self.replicates) or self.replicates < 2:
            raise ValueError(f"replicates must be an integer above 1, not {self.replicates!r}.")
        if self.kind not in ("resample", "bayesian"):
            raise ValueError(f'kind must be "resample" or "bayesian", not {self.kind!r}.')

    def by_clusters(self, clusters: Clusters) -> "Method":
        """Draw whole clusters."""
        return _ClusterBootstrap(self, clusters)

    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        """Refit all replicates and take moments."""
        return self.over(_Rows(model.weights, self.kind), model, evaluation)

    def over(self, sampling: "_Sampling", model: FittedModel, evaluation: Evaluation) -> Response:
        """Refit to weights drawn from a sampling scheme and take moments."""
        named = replace(self, rng=as_seed(self.rng))
        _check_units(sampling.units)
        ascent = Ascent.of(model, self.maximizer, self.curvature)
        refit = _Replicate(model, evaluation, ascent, sampling)
        rest = evaluation(ascent.climb(model).x) - evaluation.value
        passes = model.passes
        outcomes = named._run(refit)
        seen_here = model.passes - passes
        values = [outcome.psi for outcome in outcomes if outcome.psi is not None]
        failures = [outcome.failure for outcome in outcomes if outcome.psi is None]
        _report_failures(failures, len(outcomes))
        draws = np.array(values)
        check_moved(evaluation.names, draws, "replicate")
        covariance = np.atleast_2d(np.cov(draws, rowvar=False))
        errors, uncertain = np.sqrt(np.diag(covariance)), _monte_carlo_error(draws)
        doubt = uncertainty(uncertain, "Use more replicates.", FEW)
        if model.d <= len(draws):  # the derivative of psi then costs no more than the draws
            doubt = _disagreement(errors, evaluation, ascent, sampling.clusters) or doubt
        return Response(
            covariance=covariance,
            draws=draws,
            robust=True,
            method=repr(replace(named, maximizer=ascent.maximizer)),
            drift=_largest_ratio(abs(rest), errors),
            passes=max(sum(outcome.passes for outcome in outcomes) - seen_here, 0),
            doubt=doubt,
            notes={
                "replicates": float(len(outcomes)),
                "failed": float(len(failures)),
                "monte_carlo_error": uncertain,
            },
        )

    def _run(self, refit: "_Replicate") -> list["_Outcome"]:
        streams = np.random.SeedSequence(as_seed(self.rng)).spawn(int(self.replicates))
        jobs = [(stream,) for stream in streams]
        outcomes: list[_Outcome] = []
        with progress("bootstrap", total=len(jobs), unit="fit") as bar:

            def done(outcome: _Outcome) -> None:
                bar.update()
                outcomes.append(outcome)
                if self.n_jobs == 1 and _hopeless(outcomes, len(jobs)):
                    _report_failures([o.failure for o in outcomes if o.psi is None], len(outcomes))

            return run_all(refit, jobs, self.n_jobs, done)


@dataclass(frozen=True)
class _Outcome:
    """One replicate: psi (K,), or why there is none; and what it cost."""

    psi: Array | None
    failure: str
    passes: int


@dataclass(frozen=True, repr=False)
class _ClusterBootstrap(Method):
    """A bootstrap that draws whole clusters."""

    bootstrap: Bootstrap
    clusters: Clusters

    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        sampling = _Clusters(model.weights, self.bootstrap.kind, self.clusters)
        response = self.bootstrap.over(sampling, model, evaluation)
        return replace(response, method=f"{response.method} of {self.clusters.count} clusters")


class _Sampling(Protocol):
    """A way to draw the weight of each observation, (n,), out of a number of units."""

    @property
    def clusters(self) -> Clusters | None: ...

    @property
    def units(self) -> float: ...

    def draw(self, rng: np.random.Generator) -> Array: ...


@dataclass(frozen=True, eq=False)
class _Rows:
    """Spread the total weight anew, each observation in proportion to its own weight."""

    own: Array
    kind: str
    clusters: None = None

    @property
    def units(self) -> float:
        return float(self.own.sum()) if np.count_nonzero(self.own) > 1 else 1.0

    def draw(self, rng: np.random.Generator) -> Array:
        total = self.own.sum()
        if self.kind == "resample":
            counts = rng.multinomial(max(round(total), 1), self.own / total)
            return counts.astype(np.float64)
        spread = rng.gamma(self.own)  # a Dirichlet draw, once it is normalized
        return np.asarray(total * spread / spread.sum())


@dataclass(frozen=True, eq=False)
class _Clusters:
    """Draw clusters; their observations keep their weights."""

    own: Array
    kind: str
    clusters: Clusters

    @property
    def units(self) -> float:
        return float(self.clusters.count)

    def draw(self, rng: np.random.Generator) -> Array:
        often = np.append(_Rows(np.ones(self.clusters.count), self.kind).draw(rng), 0.0)
        return np.asarray(self.own * often[self.clusters.codes])


@dataclass(frozen=True, eq=False)  # Dask wants a function that can be hashed
class _Replicate:
    """Draw weights and maximize from the fitted parameters."""

    model: FittedModel
    evaluation: Evaluation
    ascent: Ascent
    sampling: _Sampling

    def __call__(self, stream: np.random.SeedSequence) -> _Outcome:
        weights = self.sampling.draw(np.random.default_rng(stream))
        before = self.model.passes
        psi, failure = None, ""
        try:
            replicate = self.model.reweighted(weights)
            found = self.ascent.climb(replicate)
            if not found.converged:
                failure = found.message
            elif _still_rises(replicate, found.x):
                failure = "The resampled data have no finite maximum."
            else:
                psi = self.evaluation(found.x)
        except (ImplicitDeltaError, FloatingPointError, np.linalg.LinAlgError) as error:
            failure = str(error)
        return _Outcome(psi, failure, self.model.passes - before)


def _check_units(units: float) -> None:
    """Refuse to draw from one unit; warn of few, whose spread is that of n - 1 out of n."""
    if units < 2:
        raise UnsupportedModelError(
            f"The bootstrap draws observations with replacement, and there is {units:.3g} of them. "
            "Usual causes: a log-likelihood of dependent data, which is one term; or weights that "
            "sum to one, while they count repetitions (multiply them by the number of "
            "observations). `infer(model, psi)` takes the variance from the curvature and draws "
            "nothing."
        )
    short = 1 - np.sqrt(1 - 1 / units)
    if short > SHORT:
        warn(
            f"The bootstrap of {units:.3g} observations or clusters underestimates the standard "
            f"error by about {short:.0%}, and their draws are few. Use `infer(model, psi)`.",
            ImplicitDeltaWarning,
        )


def _still_rises(model: FittedModel, theta: Array) -> bool:
    """Whether the objective is higher half as far again from the start: there is no maximum.

    A vanishing gradient alone does not show one: far out it vanishes for separated classes too.
    """
    top = model.objective(theta)
    with np.errstate(all="ignore"):
        farther = model.objective(theta + (theta - model.theta) / 2)
    return bool(farther > top + 1e-12 * abs(top))


def _hopeless(outcomes: list[_Outcome], replicates: int) -> bool:
    """Whether the rest need not be tried: too many have failed, or a third of those so far."""
    failed, tried = sum(outcome.psi is None for outcome in outcomes), len(outcomes)
    return failed > MOST_FAILED * replicates or (tried >= FIRST and failed > tried / 3)


def _report_failures(failures: list[str], replicates: int) -> None:
    if not failures:
        return
    reason, _ = Counter(failures).most_common(1)[0]
    text = (
        f"{len(failures)} of {replicates} bootstrap replicates have no fit and are left out. The "
        f"most common reason: {reason}"
    )
    if len(failures) > MOST_FAILED * replicates or replicates - len(failures) < 2:
        raise ConvergenceError(
            f"{text} With so many left out the rest says little. Usual causes: few observations, "
            'rare classes. Use `Bootstrap(kind="bayesian")`, which keeps every observation in, a '
            "penalty (`l2=`), or `infer(model, psi, robust=True)`."
        )
    warn(text, ImplicitDeltaWarning)


def _disagreement(
    errors: Array, evaluation: Evaluation, ascent: Ascent, clusters: Clusters | None
) -> Warning | None:
    """Hold the bootstrap against the sandwich, its limit for many rows, and against the model.

    Clusters are there because the model is not believed.
    """
    model = evaluation.model
    if ascent.scale is None:
        return None
    try:
        scaled = ascent.scale.half_transpose(evaluation.jacobian(model.theta).T)
    except ImplicitDeltaError:
        return None
    scatter = model.scatter(model.theta, ascent.scale.half(scaled), clusters)
    for expected, limit, name in (
        (np.sqrt(np.diag(scatter)), RESAMPLING, "the robust one of the same rows"),
        (np.linalg.norm(scaled, axis=0), np.inf if clusters else MISFIT, "the one of the model"),
    ):
        times = ratio(errors, expected, otherwise=1.0)
        k = int(np.argmax(times))
        if times[k] > limit:
            return NonlinearityWarning(
                f"The bootstrap has a standard error of {errors[k]:.4g}, {times[k]:.2g} times "
                f"{name}, {expected[k]:.4g}. Usual causes: a few rows that carry the fit, and "
                "resamples without them; a log-likelihood whose scale is not that of the data (a "
                "variance left at one); or terms that were not sampled, such as bins with their "
                "counts: give one term for each value and `weights=` counts."
            )
    return None


def _monte_carlo_error(draws: Array) -> float:
    """Relative error of the standard errors from the number of replicates, the largest.

    Few squares may agree by accident: they are not known better than those of a normal.
    """
    squares = (draws - draws.mean(axis=0)) ** 2
    size = np.mean(squares, axis=0)
    spread = np.sqrt(np.maximum(np.var(squares, axis=0), 2 * size**2) / (len(draws) - 1))
    return _largest_ratio(spread, 2 * size)


def _largest_ratio(above: Array, below: Array) -> float:
    return float(np.max(ratio(above, below)))

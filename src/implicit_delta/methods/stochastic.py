"""The stochastic finite-difference method (SG-FDIDM): train on, with a little of psi added."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from implicit_delta.core.arguments import as_seed
from implicit_delta.core.budget import check_budget
from implicit_delta.core.findings import Finding
from implicit_delta.core.progress import progress
from implicit_delta.core.thresholds import REACHED
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, DriftWarning, NonlinearityWarning
from implicit_delta.evaluation import Evaluation
from implicit_delta.linalg.arrays import ratio
from implicit_delta.methods.base import Method, Response, described_range, first_of, uncertainty
from implicit_delta.methods.slopes import derivative_mismatch
from implicit_delta.methods.training_pair import Ends, Responses, TrainingPair
from implicit_delta.methods.training_plan import BLOCK, MOST_SAMPLES, Plan
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.models.processes import processes_of

PUSH_WARNS = 0.05  # of the standard error; an error because the push is finite
SURE = 3.0  # Monte-Carlo errors beyond which that is not an accident
ONE_SIGMA = 0.8413  # few runs know their own spread badly: t instead of normal quantiles


@dataclass(frozen=True, repr=False)
class StochasticFiniteDifference(Method):
    r"""The response to a finite push, by stochastic training (the paper's Algorithm 2).

    Two training runs start at theta, one of :math:`L + \lambda \psi_k` and one of
    :math:`L - \lambda \psi_k`. After `steps` steps psi is averaged over `samples` more, and

    .. math:: V = \frac{\bar\psi(\lambda) - \bar\psi(-\lambda)}{2 \lambda}.

    Both runs see **identical minibatches**: their common noise, which is much larger than
    the response, cancels. What is left of it is a bias, since the runs wander about in a
    region around the maximum, where psi and the curvature differ. So the runs are
    **anchored**: in every step the batch's score at theta is replaced by that of all data (SVRG,
    the variance reduction of Johnson and Zhang, 2013). Then the noise shrinks with the push.
    Independent runs measure how much of it remains. For psi its tangent at
    theta is added, so that only the samples evaluate psi; this changes V only in the order of
    lambda that the difference is wrong in anyway.

    Parameters
    ----------
    lam : float, optional
        The push, in units of 1 / psi. By default a tenth of a standard error of each psi_k, from a
        rough pilot solve.
    optimizer : float or callable, optional
        The learning rate of plain stochastic gradient ascent on the *mean* log-likelihood; or, for
        torch models, a function that makes an optimizer of a list of parameters, such as
        ``lambda p: torch.optim.Adam(p, lr=1e-3)``, and for JAX models an optax optimizer, such as
        ``optax.adam(1e-3)``. By default half of the largest stable rate, if the curvature that psi
        sees lets 250 steps finish. Otherwise "preconditioned": up to 2500 parameters the curvature
        of all rows is factorized (d products), so that a few dozen steps do. That changes the way
        of the training, and not its end.
    batch_size : int, optional
        Rows in a minibatch: 256, or all where preconditioned steps on 256 would be so noisy that
        they visited more rows. They are drawn anew for every step of an anchored training: in
        epochs, batches would depend on each other, which leaves a bias.
    steps : int, optional
        Steps before sampling starts. By default as many as the curvature that psi sees asks for,
        doubled until the variance changes by less than `tolerance` or than its own noise.
    samples : int, optional
        S, the number of steps over which psi is averaged. By default 20 at a time until the
        Monte-Carlo error is below `tolerance`, at most 200.
    runs : int
        Independent repetitions.
    central : bool
        Push to both sides, or train with :math:`\lambda` and without psi, as in the paper.
    anchored : bool
        Whether to train as above, which takes half a gradient more for each step and none of psi,
        or as in the paper, on all rows in turn.
    tolerance : float
        Relative change of the variance at which doubling the steps ends.
    max_steps : int
        Number of steps at which doubling stops.
    budget : float, optional
        Most passes over the data, the pilot solve included: with a larger cost foretold, nothing
        is trained.
    curvature : {"hessian", "ggn"}
        Of the pilot solve, the default rate and the share that was reached.
    rng : int or numpy.random.Generator, optional
        Source of the minibatches; fresh unless given.

    Notes
    -----
    ``diagnostics.notes`` has ``monte_carlo_error``, the standard deviation of the standard error
    over minibatches, relative to it: with r runs the standard error that infinitely many would
    give lies within a t quantile (r - 1 degrees of freedom) times that. ``foretold`` is the cost
    that was expected before the training, after timing a few steps; it is also logged (logger
    ``implicit_delta``, level INFO). ``most_reached`` is about too few steps: T of them at rate
    :math:`\eta` reach a share :math:`1 - (1 - \eta h / n)^T` of the variance along a direction of
    curvature h, and underestimate. Whatever the optimizer did, :math:`g'w` can be at most the share
    :math:`w'Aw / g'w` of V, for the response w that was found: V is at least
    :math:`(g'w)^2 / w'Aw`, by the inequality of Cauchy and Schwarz.

    Examples
    --------
    >>> from implicit_delta import from_loglik, infer
    >>> y = np.random.default_rng(0).poisson(3.0, size=1000)
    >>> model = from_loglik(
    ...     lambda t: y * t[0] - np.exp(t[0]),
    ...     start=[0.0],
    ...     score=lambda t: (y - np.exp(t[0]))[:, None],
    ... )
    >>> rate = infer(model, lambda t: np.exp(t[0]), StochasticFiniteDifference(rng=0))
    >>> print(f"{rate.standard_error:.3f}")  # sqrt(mean(y) / 1000)
    0.055
    """

    lam: float | None = None
    optimizer: Any = None
    batch_size: int | None = None
    steps: int | None = None
    samples: int | None = None
    runs: int = 5
    central: bool = True
    anchored: bool = True
    tolerance: float = 0.01
    max_steps: int = 100_000
    curvature: Curvature = "hessian"
    rng: int | np.random.Generator | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        """Check what was configured."""
        if self.lam is not None and not (np.isfinite(self.lam) and self.lam > 0):
            raise ValueError(f"lam must be positive and finite, not {self.lam!r}.")
        least = {"batch_size": 1, "samples": 1, "runs": 2, "max_steps": 1}
        for name, smallest in least.items():
            given = getattr(self, name)
            if given is not None and given < smallest:
                raise ValueError(f"{name} must be at least {smallest}.")
        if self.steps is not None and self.steps < 0:
            raise ValueError(f"steps must not be negative, but is {self.steps!r}.")
        if not 0 < self.tolerance < 1:
            raise ValueError(f"tolerance must be between 0 and 1, not {self.tolerance!r}.")
        check_budget(self.budget)

    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        """Train pairs for every psi_k and take differences."""
        seed = processes_of(model).broadcast_seed(as_seed(self.rng))
        plan = Plan.of(replace(self, rng=seed), model, evaluation)
        cost = plan.foretell()
        with progress(f"training pairs ({cost})", total=plan.total, unit="step") as bar:
            columns = [_trained(_Runs(plan, k, bar)) for k in range(evaluation.size)]
        directions = np.column_stack([column.direction for column in columns])
        variances = np.array([column.psi[k] for k, column in enumerate(columns)])
        slopes, shares = _shares(model, evaluation, directions, self.curvature)
        noise = max(c.monte_carlo_error(k) for k, c in enumerate(columns))
        mismatch = derivative_mismatch(evaluation, np.sqrt(abs(variances)), self.curvature)
        random = noise * float(stdtrit(self.runs - 1, ONE_SIGMA))
        pushes = np.array(plan.pushes)
        notes: dict[str, float | str] = {
            "lam": float(pushes[0]) if len(pushes) == 1 else described_range(pushes),
            "steps": float(max(column.steps for column in columns)),
            "foretold": cost,
            "monte_carlo_error": noise,
            "most_reached": float(min(np.min(shares), 1.0)),
        }
        return Response(
            covariance=np.column_stack([column.psi for column in columns]),
            directions=directions,
            method=repr(plan.method),
            findings=(
                *_unfinished(shares, columns),
                *_too_far(variances, slopes, shares, noise),
                *first_of(mismatch, uncertainty(random, "Use more `runs` and `samples`.")),
            ),
            notes=notes,
        )


class _Runs:
    """Independent pairs of trainings for psi_k, each at the same number of steps."""

    def __init__(self, plan: Plan, k: int, bar: Any) -> None:
        self.plan, self.k, self.bar, self.done = plan, k, bar, 0
        self.pairs = [plan.pair(k, run) for run in range(plan.runs)]
        self.paths = [self._counted(pair) for pair in self.pairs]

    def advance(self, steps: int) -> None:
        """Train all of them on."""
        for path in self.paths:
            for _ in itertools.islice(path, steps):
                pass
        self.done += steps

    def sample(self, samples: int) -> "_Column":
        """Average psi over some more steps."""
        found = [
            pair.averaged(path, samples) for pair, path in zip(self.pairs, self.paths, strict=True)
        ]
        column = _Column.of(found, self.done)
        self.done += samples
        return column

    def _counted(self, pair: TrainingPair) -> Iterator[Ends]:
        for ends in pair.path():
            self.bar.update()
            self.plan.budget.spend(self.plan.passes)
            yield ends


@dataclass(frozen=True)
class _Column:
    """The response to psi_k: of psi (runs, K), of theta on average (d,), and the steps it took."""

    psi_by_run: Array
    direction: Array
    steps: int

    @classmethod
    def of(cls, found: list[Responses], steps: int) -> "_Column":
        psi = np.array([responses.psi for responses in found])
        return cls(psi, np.mean([responses.theta for responses in found], axis=0), steps)

    @property
    def psi(self) -> Array:
        """Average over the runs, (K,)."""
        return np.asarray(self.psi_by_run.mean(axis=0))

    def joined(self, other: "_Column", share: float) -> "_Column":
        """Average with samples of which the other column has a share."""
        psi = (1 - share) * self.psi_by_run + share * other.psi_by_run
        return _Column(psi, (1 - share) * self.direction + share * other.direction, self.steps)

    def changed(self, later: "_Column", k: int, tolerance: float) -> bool:
        """Whether the variance of psi_k differs by more than the tolerance and than its noise."""
        change = later.psi_by_run[:, k] - self.psi_by_run[:, k]
        noise = SURE * _error_of_mean(change)
        return bool(abs(change.mean()) > max(tolerance * abs(later.psi[k]), noise))

    def monte_carlo_error(self, k: int) -> float:
        """Relative error of the standard error of psi_k: half of that of its variance."""
        variances = self.psi_by_run[:, k]
        if variances.mean() <= 0:
            raise ConvergenceError(
                f"The variance came out as {variances.mean():.3g}: the noise of the training is "
                "larger than the response. Use more `samples`, a larger batch, or a "
                "smaller learning rate."
            )
        return float(_error_of_mean(variances) / variances.mean() / 2)


def _error_of_mean(values: Array) -> float:
    """Of independent runs; a single one is on all rows, and has no noise."""
    return float(values.std(ddof=1)) / math.sqrt(values.size) if values.size > 1 else 0.0


def _trained(runs: _Runs) -> _Column:
    """Train until the variance settles, if the steps were left open; then average."""
    method = runs.plan.method
    runs.advance(runs.plan.steps)
    column = runs.sample(method.samples or BLOCK)
    while method.steps is None:
        if runs.done > 2 * method.max_steps:
            raise _unsettled(column, runs.k)
        runs.advance(max(2 * column.steps - runs.done, 0))
        before, column = column, runs.sample(method.samples or BLOCK)
        if not before.changed(column, runs.k, method.tolerance):
            break
    return column if method.samples else _averaged(runs, column)


def _averaged(runs: _Runs, column: _Column) -> _Column:
    """Take more samples until the Monte-Carlo error is met."""
    for taken in range(BLOCK, MOST_SAMPLES, BLOCK):
        if column.monte_carlo_error(runs.k) <= runs.plan.method.tolerance:
            break
        column = column.joined(runs.sample(BLOCK), BLOCK / (taken + BLOCK))
    return column


def _unsettled(column: _Column, k: int) -> ConvergenceError:
    return ConvergenceError(
        f"The variance still changes after {column.steps} steps (now {column.psi[k]:.4g}). Use a "
        "larger learning rate or another optimizer, a larger `max_steps`, or give `steps` to "
        "accept what they reach: too few underestimate, as `Infinitesimal(damping=...)` would."
    )


def _shares(
    model: FittedModel, evaluation: Evaluation, directions: Array, curvature: Curvature
) -> tuple[Array, Array]:
    """Variances to first order, g'w, and the share of each that was reached at most, (K,)."""
    slopes = np.sum(evaluation.jacobian(model.theta).T * directions, axis=0)
    curved = np.sum(directions * model.information(model.theta, directions, curvature), axis=0)
    return slopes, ratio(curved, slopes, otherwise=1.0)


def _unfinished(shares: Array, columns: list[_Column]) -> Iterator[Finding]:
    if np.min(shares) < REACHED:
        steps = columns[int(np.argmin(shares))].steps
        yield Finding(
            "warn",
            "too_few_steps",
            f"{steps} training steps can have reached at most {np.min(shares):.0%} of the "
            "variance, so the standard error is too small.",
            number=float(np.min(shares)),
            remedies=(
                "Use more steps or a larger learning rate, or a method that solves, such as "
                "`Infinitesimal()`.",
            ),
            warning=DriftWarning,
        )


def _too_far(variances: Array, slopes: Array, shares: Array, noise: float) -> Iterator[Finding]:
    """Find a push over which psi bends (V is not g'w), or L does (w'Aw is above g'w)."""
    too_large = ratio(variances, slopes, otherwise=1.0) * np.maximum(shares, 1.0)
    error = float(np.max(abs(too_large - 1))) / 2
    if error > PUSH_WARNS + SURE * noise:
        yield Finding(
            "warn",
            "long_push",
            "`lam` pushes psi so far that its response is no longer in proportion: the standard "
            f"error is off by about {error:.0%}.",
            number=error,
            remedies=("Leave `lam` out: it is then chosen.",),
            warning=NonlinearityWarning,
        )

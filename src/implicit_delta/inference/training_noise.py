"""Noise of the training in psi: the wobble of the last steps, and the spread of other trainings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import matmul_toeplitz
from scipy.special import stdtr

from implicit_delta.core.factored import Covariance
from implicit_delta.core.findings import Finding
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation import Evaluation
from implicit_delta.linalg.arrays import ratio
from implicit_delta.models.model import FittedModel

BATCHES = 16  # of checkpoints, for the error of their mean
CORRELATIONS = np.concatenate([[0.0], 1 - np.geomspace(0.95, 0.01, 40)])  # that are tried
INDEPENDENT = 4  # checkpoints that the correlation must leave for it to be believed
ENOUGH = 16  # checkpoints from which on neighbors that are alike can be told from chance
AT_MEAN = 0.02  # of the distance of checkpoints from their mean: rounding of an average is less
DOMINATES = 0.5  # of the variance
APART = 1e-3  # chance at which psi is too far from its states to be one of them


@dataclass(frozen=True)
class TrainingNoise:
    """Error of psi that the training adds.

    Attributes
    ----------
    parts : mapping of str to (K, K) array
        ``training`` or ``initialization``, or nothing.
    df : mapping of str to (K,) array
    states : str
        Description of the states it was found from.
    remedy : str
        Advice for where it is most of the error.
    apart, alike : Finding or None
        Of a model that is not one of the states, and of states that are too close in time.
    """

    parts: Mapping[str, Array] = field(default_factory=dict)
    df: Mapping[str, Array] = field(default_factory=dict)
    states: str = ""
    remedy: str = ""
    apart: Finding | None = None
    alike: Finding | None = None

    @property
    def variance(self) -> Array | float:
        """Variances of all parts together, (K,), or none."""
        return sum((part.diagonal() for part in self.parts.values()), 0.0)

    def notes(self, total: Covariance) -> dict[str, float | str]:
        """Describe the states, with advice if they are most of the total covariance (K, K)."""
        found: dict[str, float | str] = {}
        for name, part in self.parts.items():
            share = float(np.max(ratio(part.diagonal(), total.diagonal())))
            advice = f"; {share:.0%} of the variance: {self.remedy}" if share > DOMINATES else ""
            found[f"{name}_noise"] = self.states + advice
        return found


def training_noise(evaluation: Evaluation) -> TrainingNoise:
    r"""Find what the training has left in psi, from the states that came with the model.

    *Replicates*: the covariance of psi over them, r - 1 degrees of freedom. It has the noise of
    minibatches in it, so that it takes the place of that of checkpoints.

    *Checkpoints*: psi at each of them less a straight line in time, since a slow drift is no noise.
    The residuals e have :math:`E\, e'e = \gamma\, \mathrm{tr}(M R)` with M the projection off the
    line and R the correlation of the states, here :math:`R_{st} = \rho^{|s - t|}`, and
    :math:`\rho \ge 0` such that the correlation of neighboring residuals is the expected one. A
    theta that is one of the states has the whole wobble, the variance :math:`\gamma`; the mean of
    the c states has :math:`\gamma\, 1'R1 / c^2`, found from means of up to 16 batches of neighbors.
    The degrees of freedom are Satterthwaite's, :math:`\mathrm{tr}(MR)^2 / \mathrm{tr}(MRMR)`: c - 2
    without correlation.
    """
    model = evaluation.fitted
    if model is None:
        return TrainingNoise()
    training = model.facts.training
    if training.replicates is not None:
        return _over_replicates(evaluation, training.replicates)
    if training.checkpoints is not None:
        return _over_checkpoints(evaluation, model, training.checkpoints)
    return TrainingNoise()


def _over_replicates(evaluation: Evaluation, states: Array) -> TrainingNoise:
    values = _values(evaluation, states, "replicates")
    deviations, df = values - values.mean(axis=0), float(len(values) - 1)
    covariance = np.asarray(deviations.T @ deviations / df)
    gap = abs(evaluation.value - values.mean(axis=0))
    variance = np.diag(covariance) * (1 + 1 / len(values))
    return TrainingNoise(
        {"initialization": covariance},
        {"initialization": np.full(evaluation.size, df)},
        f"{len(values)} replicates",
        "average psi over several trainings, or train an ensemble",
        apart=_apart("replicates", gap, variance, df, evaluation),
    )


def _over_checkpoints(evaluation: Evaluation, model: FittedModel, states: Array) -> TrainingNoise:
    averaged = is_mean(model.theta, states)
    values = _values(evaluation, states, "checkpoints")
    wobble = Wobble.of(_batch_means(values) if averaged else values)
    gap, variance = _beyond_line(evaluation.value, values), wobble.variance * wobble.ahead
    correlation = f"correlation of neighbors {float(np.median(wobble.correlation)):.2g}"
    which = "theta is their mean" if averaged else "theta is one state"
    return TrainingNoise(
        {"training": wobble.covariance(of_mean=averaged)},
        {"training": wobble.df},
        f"{len(states)} checkpoints, {which}, {correlation}",
        "train longer before averaging, or average more states"
        if averaged
        else "`averaged(model)` has much less",
        None if averaged else _apart("checkpoints", gap, variance, wobble.df, evaluation),
        _alike(wobble, len(states), averaged),
    )


def _values(evaluation: Evaluation, states: Array, kind: str) -> Array:
    """Psi at each state, (c, K)."""
    try:
        return evaluation.at_states(states)
    except EvaluationError as error:
        raise EvaluationError(f"At one of the {kind}: {error}") from error


def is_mean(theta: Array, states: Array) -> bool:
    """Whether theta (d,) is the average of the states (c, d), up to rounding."""
    center = states.mean(axis=0)
    spread = np.sqrt(np.mean(np.sum((states - center) ** 2, axis=1)))
    return bool(np.linalg.norm(theta - center) <= AT_MEAN * spread)


def _batch_means(values: Array) -> Array:
    """Means of up to 16 batches of neighbors, (c, K) to (B, K); the first few may be left out."""
    size = max(1, len(values) // BATCHES)
    kept = values[len(values) % size :]
    return np.asarray(kept.reshape(-1, size, values.shape[1]).mean(axis=1))


@dataclass(frozen=True)
class Wobble:
    """A stationary series around a straight line.

    Attributes
    ----------
    residuals : (c, K) array
        About the line.
    variance, df, correlation : (K,) array
        Of one state; of that variance; and between neighbors.
    mean : (K,) array
        Variance of the mean of the states, over that of one.
    ahead : (K,) array
        Variance of another state less the end of the line, likewise.
    alike : (K,) array of bool
        Whether neighbors are so much alike that c states are worth only a few.
    """

    residuals: Array
    variance: Array
    df: Array
    correlation: Array
    mean: Array
    ahead: Array
    alike: NDArray[np.bool_]

    @classmethod
    def of(cls, values: Array) -> "Wobble":
        """Fit to values (c, K)."""
        c = len(values)
        line = _line(c)
        values = values - values[0]  # what does not move has no residuals, not even rounding
        residuals = values - line @ (line.T @ values)
        squares = np.sum(residuals**2, axis=0)
        found = ratio(np.sum(residuals[1:] * residuals[:-1], axis=0), squares)
        tried = [_Expected.of(rho, line) for rho in CORRELATIONS if _believed(rho, c)]
        neighbors = np.maximum.accumulate([each.neighbors for each in tried])
        i = np.minimum(np.searchsorted(neighbors, found), len(tried) - 1)

        def picked(name: str) -> Array:
            return np.array([getattr(each, name) for each in tried])[i]

        return cls(
            residuals,
            squares / picked("trace"),
            picked("df"),
            picked("correlation"),
            picked("mean"),
            picked("ahead"),
            (i == len(tried) - 1) & (squares > 0) & (c >= ENOUGH),
        )

    def covariance(self, of_mean: bool) -> Array:
        """Covariance of one state, or of the mean of all, (K, K)."""
        variance = self.variance * self.mean if of_mean else self.variance
        scale = np.sqrt(ratio(variance, np.sum(self.residuals**2, axis=0)))
        scaled = self.residuals * scale
        return np.asarray(scaled.T @ scaled)


@dataclass(frozen=True)
class _Expected:
    """Expectations about the residuals of c states with unit variance and one correlation."""

    correlation: float
    trace: float  # of their squares, summed
    neighbors: float  # of products of neighbors, over that
    df: float
    mean: float
    ahead: float

    @classmethod
    def of(cls, rho: float, line: Array) -> "_Expected":
        """Compute in the time and memory of c, as there may be thousands."""
        lags = rho ** np.arange(len(line))  # R is that Toeplitz matrix, and M = I - line line'
        seen = matmul_toeplitz(lags, line)
        inner = line.T @ seen
        trace = len(line) - float(np.trace(inner))
        squares = len(line) + 2 * float(
            np.sum((len(line) - np.arange(1, len(line))) * lags[1:] ** 2)
        )
        products = (len(line) - 1) * rho + np.sum(
            line[1:] * (line[:-1] @ inner) - line[1:] * seen[:-1] - seen[1:] * line[:-1]
        )
        end = line @ line[-1]  # weights of the states in the end of the line
        return cls(
            correlation=rho,
            trace=trace,
            neighbors=float(products) / trace,
            df=trace**2 / (squares - 2 * float(np.sum(seen**2)) + float(np.sum(inner * inner.T))),
            mean=float(np.mean(matmul_toeplitz(lags, np.ones(len(line))))) / len(line),
            ahead=1 + float(end @ matmul_toeplitz(lags, end)),
        )


def _believed(rho: float, c: int) -> bool:
    """Whether c states with this correlation are worth a few independent ones."""
    return rho == 0 or c * (1 - rho) / (1 + rho) >= INDEPENDENT


def _line(c: int) -> Array:
    """Orthonormal basis of straight lines over c states, (c, 2)."""
    return np.linalg.qr(np.column_stack([np.ones(c), np.linspace(-1, 1, c)]))[0]


def _beyond_line(value: Array, values: Array) -> Array:
    """Distance of a value (K,) from the range of the straight line through the states (c, K)."""
    line = _line(len(values))
    ends = (line @ (line.T @ values))[[0, -1]]
    return np.asarray(np.maximum(np.maximum(ends.min(axis=0) - value, value - ends.max(axis=0)), 0))


def _apart(
    kind: str, gap: Array, variance: Array, df: float | Array, evaluation: Evaluation
) -> Finding | None:
    """Find a model that is not one of its own states, judged by psi."""
    chance = 2 * stdtr(np.broadcast_to(df, gap.shape), -ratio(gap, np.sqrt(variance)))
    k = int(np.argmin(chance))
    if not chance[k] < APART / gap.size:
        return None
    return Finding(
        "warn",
        "states_apart",
        f"{evaluation.names[k]} at the model is {gap[k]:.3g} away from what it is at the "
        f"{kind}, {gap[k] / np.sqrt(variance[k]):.2g} times as far as their noise explains.",
        number=float(chance[k]),
        causes=(
            f"the {kind} come from another training (other data, another rate, other steps), or "
            "from long before its end",
        ),
        remedies=("The line of the budget is theirs, and may not be that of this model.",),
    )


def _alike(wobble: Wobble, count: int, averaged: bool) -> Finding | None:
    if not np.mean(wobble.alike) > 0.5:
        return None
    of = "batches of checkpoints" if averaged else "checkpoints"
    correlation = float(np.median(wobble.correlation))
    return Finding(
        "warn",
        "states_alike",
        f"psi at neighboring {of} is so much alike (correlation above {correlation:.2g}) that "
        f"{count} of them are worth {INDEPENDENT} or fewer, and the noise of the training may be "
        "larger than they show.",
        number=correlation,
        remedies=(
            "Space them out: ends of epochs, or `continue_training(..., every=10)` and more.",
        ),
    )

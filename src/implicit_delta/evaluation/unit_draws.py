"""A statistic at draws of its units, which move along their tangent with the parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.errors import (
    EvaluationError,
    NotAMaximumError,
    UnsupportedModelError,
)
from implicit_delta.evaluation.normal_draws import NormalDraws
from implicit_delta.evaluation.row_weights import APART, SPLITS, Groups
from implicit_delta.evaluation.smoothed import Surrogate
from implicit_delta.evaluation.unit_slopes import slopes_in_units
from implicit_delta.linalg.arrays import ratio
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import is_network

PAIRS, PER_PARAMETER, MOST_MATCHED = 200, 2, 1000  # pairs; for each parameter, up to so many
FEW_PAIRS = 16  # where each one is a solve
STEP = 1 / 32  # of a standard error: most units are straight over it, and it is far beyond rounding
SHRINK, LEVELS = 1 / 16, 3  # of steps, for weights of networks along which the data say little
# Of the move of the units, by which it changes with a step of another size.
STRAIGHT, ROUGH = 0.01, 0.5
LEAST_SLOPE = 0.01  # of the squared length of a slope: it keeps a direction, however noisy
MOST_NUMBERS = 5 * 10**7  # of a Jacobian of the units that is kept
SEED = 0
ROUNDING = 1e3  # roundings that a sum over rows may accumulate

JUMPS = (
    "units of the Statistic jump when the parameters change a little: they are decisions (a class, "
    "a rank, a rounded number) or rounded in single precision. Return probabilities or logits, in "
    "float64, and decide in `function`."
)
STILL = (
    "units of the Statistic do not change with the parameters. Either they do not use the model "
    "that they are given, or they are decisions (a class, a rank) and not scores: return "
    "probabilities or logits, and decide in `function`."
)


@dataclass(frozen=True, eq=False)
class OverUnits:
    """A statistic over draws of its units.

    Attributes
    ----------
    surrogate : Surrogate
        Straight: what bends is in the variance.
    shift : (K,) array
        Size of the mean over the draws less the value, in the population: a possible bias.
    notes : mapping
    constant : (K,) array of bool, or False
        Whether the statistic does not depend on the parameters.
    """

    surrogate: Surrogate
    shift: Array
    notes: Mapping[str, float | str]
    constant: NDArray[np.bool_] | bool = False


def smoothed_over_units(
    model: FittedModel,
    units: Callable[[Array], Array],
    function: Callable[[Array, Array], Array],
    weight: Array,
    groups: Groups,
    by_rows: bool,
    solve_once: Callable[[Array], Array] | None = None,
) -> OverUnits:
    """Find a straight stand-in of T(u(theta), w), (K,), around theta.

    Parameters
    ----------
    model : FittedModel
    units : callable
        (d,) to (M,), smooth.
    function : callable
        T: (M,) and (m,) to (K,), which need not be smooth.
    weight : (m,) array
    groups : Groups
        Rows that were sampled together.
    solve_once : callable, optional
        Jacobian (K, d) of combinations of the units, (M, K): for a network that is too large for
        enough draws, the statistic is smoothed row by row instead.
    by_rows : bool
        Whether the slope is to be part of influences of rows, and not a variance alone.
    """
    draws, steps = _drawn(model)
    tangent = _Tangent(units, model.theta, draws, steps)
    if solve_once is not None and not draws.matched:
        moves = np.array([tangent.move(p) for p in range(draws.pairs)])
        return _over_rows(model, tangent, function, weight, moves, solve_once)
    splits = _splits(weight, groups)
    odd, even = _two_parts(tangent, function, splits)
    value = function(tangent.center, weight)
    constant = _constant(odd, even, value)
    _check_invariant(constant, tangent, function, splits)
    odd[..., constant], even[..., constant] = 0.0, 0.0
    variance, error = _variance(odd, even)
    if by_rows:
        variance = _odd_variance(odd)
    raw = odd.mean(axis=1)
    slopes = tangent.shrunk(raw)
    directions = steps @ slopes / draws.pairs
    gradient = draws.information(directions)
    scale = np.sqrt(ratio(variance, np.sum(directions * gradient, axis=0)))
    return OverUnits(
        Surrogate(model.theta, value, (gradient * scale).T, np.sqrt(variance), 0 * variance),
        _shift(even),
        {"statistic_draws": 2.0 * draws.pairs, "statistic_error": error},
        constant,
    )


def _over_rows(
    model: FittedModel,
    tangent: "_Tangent",
    function: Callable[[Array, Array], Array],
    weight: Array,
    moves: Array,
    solve_once: Callable[[Array], Array],
) -> OverUnits:
    """Smooth row by row, with the spread of each row over the draws as its width."""
    units = tangent.center.reshape(weight.size, -1)
    slopes = slopes_in_units(function, units, weight, moves.reshape(-1, *units.shape))
    slopes = slopes.reshape(units.size, -1)
    along = moves @ slopes
    _refuse_still(~np.any(along, axis=0))
    variance = np.mean(along**2, axis=0)
    value = function(tangent.center, weight)
    return OverUnits(
        Surrogate(
            model.theta, value, solve_once(slopes), np.sqrt(variance), np.zeros_like(variance)
        ),
        np.zeros_like(variance),
        {"statistic_draws": float(len(moves)), "statistic": "smoothed row by row"},
    )


def _splits(weight: Array, groups: Groups) -> Array:
    """Weights of two complementary halves of the rows, many times: (S, 2, m)."""
    halves = [groups.spread(factors) for factors in groups.halves()]
    return np.array([(weight * half, weight * (2 - half)) for half in halves])


def _two_parts(
    tangent: "_Tangent", function: Callable[[Array, Array], Array], splits: Array
) -> tuple[Array, Array]:
    """Odd and even parts of T on both halves over pairs of draws, (P, 2, K) each."""
    center = tangent.center
    rest = np.array([[function(center, half) for half in split] for split in splits])
    pairs = tangent.draws.pairs
    odd, even = [], []
    for p in range(pairs):
        move, s = tangent.move(p), p % len(splits)
        ahead, behind = (
            np.array([function(center + side, half) for half in splits[s]])
            for side in (move, -move)
        )
        odd.append((ahead - behind) / 2)
        even.append((ahead + behind) / 2 - rest[s])
    return np.array(odd), np.array(even)


def _variance(odd: Array, even: Array) -> tuple[Array, float]:
    """Variance of T in the population over the draws, (K,), and its relative uncertainty.

    T of a finite sample has jumps of its own, which are part of the sampling error already. In two
    halves of the rows these are independent, and what both have in common is the population's.
    """
    even = even - even.mean(axis=0)
    common = _common(odd) + _common(even)
    whole = odd.mean(axis=1) ** 2 + even.mean(axis=1) ** 2
    doubt = np.std(common, axis=0) / np.sqrt(len(common))
    # What cannot be told from nothing is not reported as nothing, but as what cannot be told.
    variance = np.minimum(np.maximum(common.mean(axis=0), doubt), whole.mean(axis=0))
    return variance, float(np.max(ratio(doubt, 2 * variance)))


def _shift(even: Array) -> Array:
    """Size of the mean even part, (K,), beyond what jumps of a finite sample make of it."""
    splits = range(min(SPLITS, len(even)))
    apart = [np.mean(even[s::SPLITS, 0] - even[s::SPLITS, 1], axis=0) / 2 for s in splits]
    noise = np.mean(np.square(apart), axis=0) / APART**2
    return np.asarray(np.sqrt(np.maximum(np.mean(even, axis=(0, 1)) ** 2 - noise, 0.0)))


def _odd_variance(odd: Array) -> Array:
    """Variance without the curved part, which no row is to blame for, nor doubts, (K,)."""
    whole = np.mean(odd.mean(axis=1) ** 2, axis=0)
    return np.asarray(np.clip(_common(odd).mean(axis=0), LEAST_SLOPE * whole, whole))


def _common(parts: Array) -> Array:
    """Square of what both halves have in common, (P, 2, K) to (P, K), right on average."""
    apart = (parts[:, 0] - parts[:, 1]) / (2 * APART)
    return np.asarray(parts.mean(axis=1) ** 2 - apart**2)


@dataclass(frozen=True, eq=False)
class _Tangent:
    """Moves of the units, (M,), along each step of the parameters, by central differences."""

    units: Callable[[Array], Array]
    theta: Array
    draws: NormalDraws
    steps: Array

    @cached_property
    def center(self) -> Array:
        return self.units(self.theta)

    @cached_property
    def roots(self) -> Array | None:
        """Moves along a root of the covariance, (M, d): cheaper than along more steps than d."""
        if not self.draws.matched or self.center.size * self.theta.size > MOST_NUMBERS:
            return None
        roots = self.steps @ self.draws.z / self.draws.pairs
        return np.stack([self.along(root, self._short * self.scale) for root in roots.T], axis=1)

    def move(self, p: int) -> Array:
        """Return the move along step p."""
        if self.roots is None:
            return self.along(self.steps[:, p], self._short * self.scale)
        return np.asarray(self.roots @ self.draws.z[p])

    def shrunk(self, odd: Array) -> Array:
        """Take noise of jumps out of the slopes in z that odd parts (P, K) of T have.

        Slopes b = z' odd / P are those of the units times the root D, and lie where `D' D` is
        large; noise lies anywhere. So b is shrunk like a random effect of covariance ``t D' D``.
        """
        if self.roots is None:
            return odd
        z, P, d = self.draws.z, self.draws.pairs, self.theta.size
        slopes = z.T @ odd / P
        noise = np.sum((odd - z @ slopes) ** 2, axis=0) / (P - d) / P
        length = np.sum(slopes**2, axis=0)
        left = np.maximum(length - d * noise, LEAST_SLOPE * length)
        sizes, axes = np.linalg.eigh(self.roots.T @ self.roots)
        prior = np.outer(np.maximum(sizes, 0.0), left / np.sum(sizes))
        return np.asarray(z @ (axes @ (ratio(prior, prior + noise) * (axes.T @ slopes))))

    def along(self, direction: Array, step: float) -> Array:
        ahead, behind = (self.units(self.theta + s * direction) for s in (step, -step))
        return np.asarray((ahead - behind) / (2 * step))

    @property
    def _short(self) -> float:
        """Length of a difference along a step, which is as long as all roots together."""
        return float(STEP / np.sqrt(self.theta.size))

    @cached_property
    def scale(self) -> float:
        """Share of the usual difference over which units are straight; refuse if there is none."""
        scales = SHRINK ** np.arange(LEVELS + 1)
        moves = (self.along(self.steps[:, 0], self._short * scale) for scale in scales)
        gaps: dict[float, float] = {}
        for scale, (move, other) in zip(scales, pairwise(moves), strict=False):
            size = np.linalg.norm(move) + np.linalg.norm(other)
            gaps[float(np.linalg.norm(move - other) / size) if size else np.inf] = float(scale)
            if min(gaps) <= STRAIGHT or not size:
                break
        if min(gaps) <= ROUGH:
            return gaps[min(gaps)]
        raise EvaluationError(JUMPS if np.isfinite(min(gaps)) else STILL)


def _drawn(model: FittedModel) -> tuple[NormalDraws, Array]:
    """Draw steps of the parameters, (d, P).

    Of a network with the Gauss-Newton matrix, which is the curvature of its tangent: where the
    Hessian is nearly flat, its draws are far wider than any method's error. Elsewhere the steps
    only set the width of the smoothing, so that the Gauss-Newton matrix will do where the Hessian
    is not positive: the method decides what to think of that.
    """
    pairs = max(PAIRS, PER_PARAMETER * model.d) if model.d <= MOST_MATCHED else PAIRS
    pairs = FEW_PAIRS if model.d > DENSE_LIMIT else pairs
    kinds: tuple[Curvature, ...] = (model.facts.curvature, "ggn")
    errors: list[NotAMaximumError] = []
    for curvature in reversed(kinds) if is_network(model) else kinds:
        draws = NormalDraws(model, pairs, SEED, curvature)
        try:
            return draws, np.concatenate(list(draws.steps()), axis=1)
        except NotAMaximumError as error:
            errors.append(error.named(model.space.names))
        except UnsupportedModelError as error:  # there is no other curvature
            if not errors:
                raise
            raise errors[0] from error
    raise errors[0]


def _constant(odd: Array, even: Array, value: Array) -> NDArray[np.bool_]:
    """Find the outputs that are the same at every draw, up to rounding, (K,)."""
    size = np.maximum(np.max(abs(odd), axis=(0, 1)), np.max(abs(even), axis=(0, 1)))
    return np.asarray(size <= ROUNDING * np.finfo(np.float64).eps * abs(value))


def _check_invariant(
    constant: NDArray[np.bool_],
    tangent: "_Tangent",
    function: Callable[[Array, Array], Array],
    splits: Array,
) -> None:
    """Refuse outputs that are constant because no row has moved far enough to change them.

    A statistic of the order of rows does not depend on parameters that move all of them along one
    curve, such as the AUC of a single feature. It does change if rows move as far and as they like:
    so the moves of the draws, made longer until moves of random sign for each row change the
    statistic, must leave it as it is.
    """
    if not np.any(constant):
        return
    shape = splits.shape[-1], -1
    spread = np.linalg.norm(tangent.center - tangent.center.mean())
    rng, factor = np.random.default_rng(SEED), 1.0
    moves = np.array([tangent.move(p) for p in range(min(SPLITS, tangent.draws.pairs))])
    longest = np.linalg.norm(moves, axis=1).max()
    open_ = constant.copy()
    while np.any(open_) and factor * longest <= max(spread, longest):
        signs = rng.choice([-1.0, 1.0], size=(len(moves), shape[0], 1))
        apart = (moves.reshape(len(moves), *shape) * signs).reshape(moves.shape)
        seen, kept = (~_same(tangent, function, factor * some, splits) for some in (apart, moves))
        _refuse_still(open_ & kept)  # the statistic does depend on the parameters, a little
        open_ &= ~seen
        factor *= 2.0
    _refuse_still(open_)


def _same(
    tangent: "_Tangent", function: Callable[[Array, Array], Array], moves: Array, splits: Array
) -> NDArray[np.bool_]:
    """Whether T on both halves is the same after each of the moves, up to rounding, (K,)."""
    center, found = tangent.center, []
    for split, move in zip(splits, moves, strict=False):
        for half in split:
            rest = function(center, half)
            ends = [function(center + side * move, half) for side in (1.0, -1.0)]
            room = ROUNDING * np.finfo(np.float64).eps * abs(rest)
            found.append(np.max(abs(np.array(ends) - rest), axis=0) <= room)
    return np.asarray(np.all(found, axis=0))


def _refuse_still(still: NDArray[np.bool_]) -> None:
    if np.any(still):
        k = f"[{int(np.argmax(still))}]" if still.size > 1 else ""
        raise EvaluationError(
            f"function{k} of the Statistic is the same at every draw of the units: no row passes a "
            "threshold or another row within the uncertainty of its score, so that the error of "
            "the model is below what this sample shows. Use more evaluation rows; or the smooth "
            "counterpart of the statistic, such as the mean probability of the true class, as an "
            "`Average`. A function that does not use its units is the same, too."
        )

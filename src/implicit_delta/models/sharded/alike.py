"""Compare shards: rows that change or are there twice, and penalties that are not one."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from implicit_delta.calculus.units import sizes
from implicit_delta.core.rounding import eps_of, sum_rounding
from implicit_delta.core.types import Array
from implicit_delta.core.warn import warn
from implicit_delta.errors import (
    ImplicitDeltaWarning,
    NotDeterministicWarning,
    UnsupportedModelError,
)
from implicit_delta.models.coordinates import satisfies_constraints

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

ALIKE = 1e-5  # of the gradient of a penalty, which may be by differences
BESIDE = (1e-2, 1e-6, 0.0)  # of parameters: at zero, a usual start, rows and penalties look alike
CHANGED = 1e-9  # of a sum over rows: other sums of the same rows differ by less in float64
EQUAL = 1e-7  # of means over rows, each term of which may be rounded to float32
BY_CHANCE = 1e-2  # probability of equal rows above which nothing is said
UNSEEN = 3.0  # of pairs: as many may be alike where none was seen, by 95 %
EXCLUDED = 1e-6  # and below which the same rows are taken for sure
GOLDEN = 0.6180339887498949  # its multiples fill the unit interval evenly


class Print(NamedTuple):
    """Sums over the rows of a shard, by which it is known again.

    `total` is the sum of weighted terms, `ordered` that with a number for each place, and
    `rounding` what another sum of the same terms may differ by.
    """

    label: str
    total: float
    ordered: float
    rounding: float


class Looks(NamedTuple):
    """Means over the rows of a shard that do not depend on their order.

    `chance` is the probability that as many other rows of the same kinds have the same means, and
    `alike` the number of pairs of equal rows.
    """

    label: str
    n: int
    means: Array
    chance: float
    alike: float


def print_of(model: "FittedModel", label: str) -> Print:
    """Reduce the rows of a shard to sums, beside theta."""
    own = model.weights.values * _terms_beside(model)
    places = np.random.default_rng(0).random(own.size)
    share = max(CHANGED, sum_rounding(own.size, eps_of(own)))
    return Print(label, float(own.sum()), float(own @ places), share * float(abs(own).sum()))


def looks_of(model: "FittedModel", label: str) -> Looks:
    """Reduce the rows of a shard to means, beside theta."""
    terms, weights = _terms_beside(model), model.weights.values
    z = (terms - terms.mean()) / max(terms.std(), 1e-12 * abs(terms).max(), 1e-300)
    waves = [np.cos(z), np.sin(z), np.cos(2 * z), weights * np.cos(z), weights]
    means = np.array([terms.mean(), terms.std(), *(wave.mean() for wave in waves)])
    counts = np.unique(np.round(z, 6), return_counts=True)[1]
    pairs = float(counts @ (counts - 1) / 2)
    return Looks(label, terms.size, means, chance_of(counts), pairs)


def chance_of(counts: NDArray[np.intp]) -> float:
    """Probability that other rows have these counts of kinds, about.

    The difference of two counts near c has a standard deviation of sqrt(2 c), and is zero with a
    probability of 1 / sqrt(4 pi c); the last count follows from the others.
    """
    others = np.sort(counts)[:-1]
    return float(np.exp(-0.5 * np.log(4 * np.pi * others).sum()))


def pulls(model: "FittedModel", theta: Array) -> Array:
    """Gradient of the penalty at theta and beside, (2, d); NaN where it has none."""
    if not model.penalty:
        return np.zeros((2, theta.size))
    return np.stack([pull_at(model, theta), pull_at(model, beside(model, theta, BESIDE[0]))])


def pull_at(model: "FittedModel", theta: Array) -> Array:
    """Gradient of the penalty, (d,); NaN where it cannot be evaluated."""
    if not model.penalty:
        return np.zeros(theta.size)
    try:
        with np.errstate(all="ignore"):
            return np.asarray(model.penalty.score(theta), dtype=np.float64)
    except (ArithmeticError, ValueError):  # outside of its range
        return np.full(theta.size, np.nan)


def beside(model: "FittedModel", theta: Array, share: float) -> Array:
    """Parameters in a generic direction from theta, unless constraints forbid these."""
    step = share * sizes(theta) * (0.5 + np.arange(1, theta.size + 1) * GOLDEN % 1)
    allowed = (
        point for point in (theta + step, theta - step) if satisfies_constraints(model, point)
    )
    return next(allowed, theta)


def _terms_beside(model: "FittedModel") -> Array:
    """Terms where rows that differ have different ones, (n,)."""
    theta = np.asarray(model.theta, dtype=np.float64)
    for share in BESIDE[:-1]:
        try:
            with np.errstate(all="ignore"):
                terms = model.rows.terms(beside(model, theta, share))
        except (ArithmeticError, ValueError):  # outside of their range
            continue
        terms = np.where(model.weights.values > 0, terms, 0.0)
        if np.isfinite(terms).all():
            return terms
    return np.where(model.weights.values > 0, model.rows.terms(theta), 0.0)


def check_prints(before: Sequence[Print], after: Sequence[Print], maker: str) -> None:
    """Refuse rows that have changed since the model was made; warn of another order."""
    for known, now in zip(before, after, strict=True):
        if not abs(now.total - known.total) <= known.rounding:
            raise UnsupportedModelError(
                f"The log-likelihood of {now.label} was {known.total:.10g} when the model was "
                f"made, and is {now.total:.10g} now at the same parameters: its data have changed "
                f"since, or build is random. Make the model again with `{maker}`."
            )
    moved = [
        now.label
        for known, now in zip(before, after, strict=True)
        if not abs(now.ordered - known.ordered) <= known.rounding
    ]
    if moved:
        warn(
            f"The rows of {moved[0]} come in another order than when it was first read: what is "
            "said of rows by their number (clusters=, weights, influences, a bootstrap) goes to "
            "other rows and is wrong. Let build sort them by a key, `ORDER BY id` or "
            "`frame.sort_values('id')`.",
            NotDeterministicWarning,
        )


def check_double(prints: Sequence[Looks], hint: str, tells: bool) -> None:
    """Refuse two shards with the same rows, in any order: they would count twice."""
    order = sorted(range(len(prints)), key=lambda i: (prints[i].n, prints[i].means[0]))
    pairs = len(prints) * (len(prints) - 1) / 2
    repeated = _repeated(prints)
    for one, two in pairwise(order):
        first, second = prints[min(one, two)], prints[max(one, two)]
        log_matched = gammaln(first.n + 1) + first.n * np.log(repeated)
        chance = pairs * min(first.chance, np.exp(min(log_matched, 0.0)))
        if chance > BY_CHANCE or not _same_rows(first, second):
            continue
        text = (
            f"{_both(first.label, second.label)} have the same {first.n} rows, which would count "
            f"twice. {hint}"
        )
        if chance < EXCLUDED:
            raise ValueError(text)
        if tells:
            alike = " If they are other rows that happen to look alike, all is well."
            warn(text + alike, ImplicitDeltaWarning)


def _repeated(prints: Sequence[Looks]) -> float:
    """Share of pairs of rows within shards that are alike, at most."""
    among = sum(own.n * (own.n - 1) / 2 for own in prints)
    return min(1.0, (sum(own.alike for own in prints) + UNSEEN) / max(among, UNSEEN))


def _same_rows(one: Looks, two: Looks) -> bool:
    gap = abs(one.means - two.means)
    return one.n == two.n and bool(np.all(gap <= EQUAL * np.maximum(abs(one.means), 1.0)))


def _both(one: str, two: str) -> str:
    """Name two ranks or parts: "Ranks 0 and 1"."""
    kind, first = one.split(" ", 1)
    return f"{kind.capitalize()}s {first} and {two.split(' ', 1)[1]}"


def check_pulls(labels: Sequence[str], found: Sequence[Array]) -> None:
    """Refuse penalties with different gradients: there is one, of the whole."""
    for label, other in zip(labels, found, strict=True):
        size = np.max(np.nan_to_num(abs(found[0]) + abs(other)))
        gap = np.nan_to_num(abs(found[0] - other))
        if np.any(gap > ALIKE * size):
            at = np.unravel_index(np.argmax(gap), gap.shape)
            raise ValueError(
                f"The penalty of {label} is not that of {labels[0]}: at the same parameters its "
                f"derivative is {other[at]:.4g}, and {found[0][at]:.4g} there. It belongs to the "
                "whole model and counts once: give the same, undivided, in every part."
            )

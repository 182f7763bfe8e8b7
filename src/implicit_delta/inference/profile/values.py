"""Values of psi in a likelihood region: an interval, or pieces of the line."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from scipy.special import chdtr

from implicit_delta.core.types import Array
from implicit_delta.estimate import Interval

Kind: TypeAlias = Literal[
    "quantile", "extreme", "limit", "edge", "pole", "infinite", "bound", "open"
]


@dataclass(frozen=True)
class End:
    """One end of an interval.

    Attributes
    ----------
    psi : float
    theta : (d,) array
        Where psi is that, or close to it if psi is infinite.
    deviance : float
        Of theta.
    kind : str
        The deviance is at its ``quantile``; or it is below, and psi has an ``extreme`` there,
        tends to a ``limit`` along a ray without end, ends with the log-likelihood at an
        ``edge``, is ``infinite`` along such a ray, or has a ``pole``; or a constraint is a
        ``bound`` of it; or that side was not asked for and is ``open``.
    lam : float
        The multiplier at a quantile.
    """

    psi: float
    theta: Array
    deviance: float
    kind: Kind
    lam: float = np.nan


@dataclass(frozen=True)
class Values:
    """The values of psi where the root of the deviance is at most `root`.

    Attributes
    ----------
    root : float
    low, high : End
        Of the path from the estimate either way.
    others : tuple of Interval
        What else psi is there: behind a pole, or on a second hill of the likelihood.
    second : float
        Deviance of a second maximum in the region; NaN if none was met.
    followed : float
        Root up to which the path was followed either way.
    """

    root: float
    low: End
    high: End
    others: tuple[Interval, ...] = ()
    second: float = np.nan
    followed: float = np.nan

    @property
    def bounded_level(self) -> float:
        """Round down the confidence level up to which the path was followed."""
        return bounded_level(self.followed**2)

    @property
    def ends(self) -> tuple[tuple[int, End], tuple[int, End]]:
        """Both ends, each with its sign."""
        return (-1, self.low), (1, self.high)

    @property
    def pieces(self) -> tuple[Interval, ...]:
        """All values, as intervals that do not touch, in ascending order."""
        return merged((Interval(self.low.psi, self.high.psi), *self.others))

    @property
    def interval(self) -> Interval:
        """The piece that holds the estimate."""
        return next(piece for piece in self.pieces if piece.low <= self.low.psi <= piece.high)

    def end(self, sign: int) -> End:
        """The upper or the lower end."""
        return self.high if sign > 0 else self.low

    def holds(self, psi: float, slack: float = 0.0) -> bool:
        """Whether psi lies in one of the pieces, or close to it."""
        return any(low - slack <= psi <= high + slack for low, high in self.pieces)

    def moved(self, sign: int, ends: Iterable[End]) -> "Values":
        """Take the most extreme of the upper (or lower) end and those that are in no piece yet."""
        new = [end for end in ends if not self.holds(end.psi)]
        best = max([self.end(sign), *new], key=lambda end: sign * end.psi)
        if best is self.end(sign):
            return self
        return replace(self, high=best) if sign > 0 else replace(self, low=best)

    def joined(self, piece: Interval) -> "Values":
        """Add a piece."""
        return replace(self, others=(*self.others, piece))


def merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Unite intervals that overlap or touch."""
    pieces: list[Interval] = []
    for low, high in sorted((float(low), float(high)) for low, high in intervals):
        if pieces and low <= pieces[-1].high:
            pieces[-1] = Interval(pieces[-1].low, max(pieces[-1].high, high))
        else:
            pieces.append(Interval(low, high))
    return tuple(pieces)


def bounded_level(deviance: float) -> float:
    """Round down the confidence level whose quantile is this deviance."""
    return math.floor(100 * float(chdtr(1, deviance))) / 100

"""The values of psi in a likelihood region: both ends, pieces, and findings about them."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from scipy.special import chdtr

from implicit_delta.core.findings import Finding
from implicit_delta.core.types import Array
from implicit_delta.estimate import Interval
from implicit_delta.inference.profile.problem import Point

Kind: TypeAlias = Literal[
    "quantile", "extreme", "limit", "edge", "pole", "infinite", "bound", "open"
]
WORDS = {-1: "lower", 1: "upper"}


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
        ``bound`` of it; or that side was not requested and is ``open``.
    point : Point or None
        What is known at a quantile.
    """

    psi: float
    theta: Array
    deviance: float
    kind: Kind
    point: Point | None = None


@dataclass(frozen=True)
class Values:
    """The values of psi where the root of the deviance is at most `root`.

    Attributes
    ----------
    root : float
    low, high : End
        Of the path from the estimate either way.
    others : tuple of Interval
        What else psi is there: behind a pole, or around a second maximum of the likelihood.
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
        pieces: list[Interval] = []
        every = (Interval(self.low.psi, self.high.psi), *self.others)
        for low, high in sorted((float(low), float(high)) for low, high in every):
            if pieces and low <= pieces[-1].high:
                last = pieces.pop()
                pieces.append(Interval(last.low, max(last.high, high)))
            else:
                pieces.append(Interval(low, high))
        return tuple(pieces)

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


def bounded_level(deviance: float) -> float:
    """Round down the confidence level whose quantile is this deviance."""
    return math.floor(100 * float(chdtr(1, deviance))) / 100


def findings_of(name: str, found: Mapping[float, Values]) -> tuple[Finding, ...]:
    """List each thing once, at the highest level at which it is so."""
    findings: dict[tuple[str, int], Finding] = {}
    for level in sorted(found, reverse=True):
        for sign, finding in _findings(name, level, found[level]):
            findings.setdefault((finding.code, sign), finding)
    return tuple(findings.values())


def _findings(name: str, level: float, values: Values) -> Iterator[tuple[int, Finding]]:
    whole = all(map(math.isinf, values.interval))
    if len(values.pieces) > 1:
        count = float(len(values.pieces))
        yield 0, Finding("warn", "several_pieces", _pieces(name, level, values), count)
    elif values.second == values.second:
        text = _second(name, level, values)
        yield 0, Finding("warn", "second_maximum", text, values.second)
    elif whole and any(end.kind == "pole" for _, end in values.ends):
        pole = min(end.deviance for _, end in values.ends if end.kind == "pole")
        yield 0, Finding("warn", "no_bounds", _whole(name, level, values, pole), pole)
    for sign, end in values.ends:
        if end.kind in ("extreme", "limit", "edge") and not whole:
            text = _extreme(name, values, sign, end)
            yield sign, Finding("warn", "extreme_of_psi", text, end.deviance)
        elif end.kind == "infinite" or (end.kind == "pole" and not values.others and not whole):
            text = _open(name, level, values, sign, end)
            yield sign, Finding("warn", "infinite_end", text, end.deviance)


def union_text(pieces: tuple[Interval, ...]) -> str:
    """Write a union of intervals."""
    return " and ".join(map(_interval_text, pieces))


def _interval_text(piece: Interval) -> str:
    low, high = map(float, piece)
    left, right = "(" if math.isinf(low) else "[", ")" if math.isinf(high) else "]"
    return f"{left}{low:.6g}, {high:.6g}{right}"


def _pieces(name: str, level: float, values: Values) -> str:
    text = (
        f"The values of {name} at confidence level {level:g} are not one interval, but "
        f"{union_text(values.pieces)}: `pieces` has them all, `interval` the one around the "
        "estimate."
    )
    poles = [(WORDS[sign], end) for sign, end in values.ends if end.kind == "pole"]
    if not poles:
        return f"{text} {_maximum(values)} Fit from other starts to see which maximum is meant."
    ((word, end),) = poles
    gap = float(values.pieces[0].high), float(values.pieces[1].low)
    return (
        f"{text} Its {word} end is infinite: psi runs to infinity where the deviance is "
        f"{end.deviance:.3g}, below the quantile {values.root**2:.3g}, and comes back from the "
        "other side, as a ratio does whose denominator may be zero (Fieller). Its reciprocal from "
        f"a value in the gap has one interval, `lambda m: 1 / (psi(m) - {_between(*gap):.6g})`, "
        "and so have the numerator and the denominator."
    )


def _between(low: float, high: float) -> float:
    return 0.0 if low < 0 < high else (low + high) / 2


def _second(name: str, level: float, values: Values) -> str:
    return (
        f"The interval of {name} at confidence level {level:g} spans two maxima, and values in "
        f"between that the data may exclude. {_maximum(values)} Fit from other starts to see "
        "which maximum is meant."
    )


def _maximum(values: Values) -> str:
    return (
        f"The log-likelihood has a second maximum: the deviance there is {values.second:.3g}, "
        f"below the quantile {values.root**2:.3g}."
    )


def _whole(name: str, level: float, values: Values, pole: float) -> str:
    return (
        f"The interval of {name} is unbounded: the data exclude no value at confidence level "
        f"{level:g}. Psi runs to infinity where the deviance is {pole:.3g}, below the quantile "
        f"{values.root**2:.3g}, as a ratio does whose denominator may be zero (Fieller). Its "
        f"interval is bounded up to `confidence_level={values.bounded_level:g}`; the numerator and "
        "the denominator have intervals of their own."
    )


def _open(name: str, level: float, values: Values, sign: int, end: End) -> str:
    text = (
        f"The interval of {name} is unbounded: its {WORDS[sign]} end is infinite at confidence "
        f"level {level:g}, since the deviance never reaches {values.root**2:.3g} on that side."
    )
    if end.kind == "infinite":
        return (
            f"{text} The log-likelihood levels off, the deviance is {end.deviance:.3g} far out: "
            "the data do not bound psi (separated classes, a rate of zero, too few observations). "
            "A bounded function of psi, such as a probability, or a penalty (`l2=`) has an "
            "interval with two ends."
        )
    return (
        f"{text} Psi runs to infinity where the deviance is {end.deviance:.3g}, as a ratio or a "
        "logarithm does. A function of it that stays finite, `lambda m: 1 / psi(m)` or "
        "`lambda m: np.exp(psi(m))`, has an interval with two ends."
    )


def _extreme(name: str, values: Values, sign: int, end: End) -> str:
    reasons = {
        "extreme": "psi turns or stays constant there",
        "limit": "psi tends to it far out, where the log-likelihood levels off",
        "edge": "the log-likelihood is not defined beyond",
    }
    return (
        f"The {WORDS[sign]} end {end.psi:.6g} of the interval of {name} is the most extreme value "
        f"that psi takes in the likelihood region: {reasons[end.kind]}. The deviance is "
        f"{end.deviance:.3g}, below the quantile {values.root**2:.3g}, so this end comes from psi "
        "and the model, not from the data."
    )

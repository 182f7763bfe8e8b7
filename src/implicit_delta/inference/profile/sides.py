"""Sides of an interval: both ends, or one limit with its one-sided quantile."""

from typing import Literal, TypeAlias, get_args

import numpy as np
from scipy.special import erf

from implicit_delta.core.types import Array
from implicit_delta.estimate.quantiles import t_quantile
from implicit_delta.inference.profile.path import End

Sides: TypeAlias = Literal["both", "upper", "lower"]
SIGNS: dict[str, tuple[int, ...]] = {"both": (-1, 1), "upper": (1,), "lower": (-1,)}
BOTH = SIGNS["both"]


def checked_side(side: str) -> str:
    """Refuse what is no side."""
    if side not in get_args(Sides):
        raise ValueError(f"side is one of {', '.join(map(repr, get_args(Sides)))}, not {side!r}.")
    return side


def two_sided(level: float, side: str) -> float:
    r"""Level of the two-sided interval that has a limit of this level for its end.

    The deviance of a value on one side of the estimate is zero in half of all samples, a mixture
    :math:`\tfrac12 \chi^2_0 + \tfrac12 \chi^2_1`: its 95 % quantile is 2.71, that of
    :math:`\chi^2_1` at 90 %.
    """
    if side == "both":
        return level
    if level <= 0.5:
        raise ValueError(
            f"A limit of confidence level {level:g} is on the other side of the estimate: give "
            "one above 0.5, such as 0.95."
        )
    return 2 * level - 1


def critical_root(level: float, df: float, side: str) -> float:
    """Root of the deviance up to which values belong to the interval."""
    return float(t_quantile(two_sided(level, side), df))


def lifted_roots(levels: list[float], roots: list[float], beyond: list[float]) -> list[float]:
    r"""Roots of the deviance for limits of what is held at a bound.

    With no event seen the log-likelihood falls by the rate times the exposure, and the probability
    of no event is the likelihood ratio itself: the limit is where that is one less the level, at
    the deviance :math:`-2 \log(1 - \text{level})`, 5.99 at 95 %, and exact; the 2.71 of a parabola
    would cover 74 % at worst. Between the two the deviance rises with the standard errors
    :math:`\delta` by which the top of a parabola would lie beyond the bound, by the share
    :math:`\operatorname{erf}(\delta / 2)` of the difference: steeply enough to reach 5.99 where no
    sample of a parabola gets, and not so steeply that a top closer to the bound could have the
    lower limit (more events, a smaller limit). For a normal estimate that takes a slope below
    2 * 1.645 at zero; it is 1.85.
    """
    base = np.square(roots)
    exact = np.maximum(-2 * np.log1p(-np.array(levels)), base)
    lifted = np.sqrt(base + erf(np.array(beyond) / 2) * (exact - base))
    return [float(root) for root in np.maximum.accumulate(lifted)]


def open_end(sign: int, theta: Array) -> End:
    """End on the side that was not asked for."""
    return End(sign * np.inf, theta, 0.0, "open")

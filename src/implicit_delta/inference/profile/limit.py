"""Upper and lower limits from the likelihood ratio."""

from dataclasses import dataclass
from typing import Any, Literal

from implicit_delta.core.types import Asked
from implicit_delta.estimate.quantiles import checked_level
from implicit_delta.estimate.tables import number, percent
from implicit_delta.inference.profile.door import profile
from implicit_delta.inference.profile.result import Profile
from implicit_delta.models.isolation import isolated
from implicit_delta.models.model import FittedModel


@dataclass(frozen=True, eq=False, repr=False)
class Limit:
    """An upper or lower limit of one evaluation; ``float(limit)`` is its value.

    Attributes
    ----------
    value : float
        The limit.
    estimate : float
        Psi at the maximum.
    confidence_level : float
    side : {"upper", "lower"}
    profile : Profile
        The path it was found along, the symmetric (Wald) limit, the constraints that it reaches.
    """

    value: float
    estimate: float
    confidence_level: float
    side: Literal["upper", "lower"]
    profile: Profile

    @property
    def wald(self) -> float:
        """Estimate and quantile times standard error, for comparison; it knows no bounds."""
        interval = self.profile.wald(self.confidence_level)
        return float(interval.high if self.side == "upper" else interval.low)

    def __float__(self) -> float:
        return self.value

    def __format__(self, spec: str) -> str:
        """Write the value with the spec; without a spec the whole sentence."""
        return format(self.value, spec) if spec else str(self)

    def __repr__(self) -> str:
        places = self.profile.decimals()
        sign = "<=" if self.side == "upper" else ">="
        level = percent(self.confidence_level)
        told = f" ({', '.join(self.profile.limits)})" if self.profile.limits else ""
        return (
            f"{self.profile.name} {sign} {number(self.value, places)} at {level} confidence, "
            f"estimate {number(self.estimate, places)}{told}"
        )


@isolated
def limit(
    model: FittedModel,
    psi: Asked,
    confidence_level: float = 0.95,
    *,
    side: Literal["upper", "lower"] = "upper",
    **options: Any,
) -> Limit:
    r"""Find the upper (or lower) limit of a scalar psi from the likelihood ratio.

    It is the largest psi whose deviance from the maximum *within the constraints* is at most the
    quantile of its one-sided distribution, :math:`\tfrac12 \chi^2_0 + \tfrac12 \chi^2_1`: 2.71 at
    95 %. Where a bound holds psi it rises smoothly with the distance at which the data would put
    psi beyond, to 5.99 where no event makes the log-likelihood a line (then it is exact). A rate,
    a fraction or a variance component at zero has an upper limit above zero. Close to a bound of
    psi itself the limit covers more often than it claims; where bounds of other parameters are
    within two standard errors and correlated with psi, the quantile is that of the mixture with
    the truth at those bounds (chi-bar-squared).

    Parameters
    ----------
    model : FittedModel
        Made by one of the `from_*` functions, with its `bounds=` if there are any.
    psi : callable or str
        The evaluation, of one number: any function of the model, or a parameter by name.
    confidence_level : float
        Between 0.5 and 1, one-sided.
    side : {"upper", "lower"}
    **options
        Those of `profile`: ``maximizer``, ``curvature``, ``strict``, ``name``.

    Returns
    -------
    Limit

    Examples
    --------
    No event in three hours:

    >>> import implicit_delta as idm
    >>> import numpy as np
    >>> hours = np.array([1.0, 2.0])
    >>> model = idm.from_loglik(lambda th: -th[0] * hours, start=[0.1], bounds=[(0, None)])
    >>> idm.limit(model, lambda th: th[0], name="rate")
    rate <= 0.9986 at 95% confidence, estimate 0.0000
    """
    if side not in ("upper", "lower"):
        raise ValueError(f'side of a limit is "upper" or "lower", not {side!r}.')
    level = checked_level(confidence_level)
    found = profile(model, psi, level, side=side, **options)
    if not isinstance(found, Profile):
        raise TypeError(
            f"psi has {len(found)} values, and a limit is one of each: ask for them one by one, "
            "`limit(model, name)`, or for all with `profile(model, psi, side=...)`."
        )
    interval = found.confidence_interval(level)
    value = interval.high if side == "upper" else interval.low
    return Limit(float(value), found.value, level, side, found)

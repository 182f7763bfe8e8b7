"""Upper and lower limits: from the likelihood ratio, by CLs, and calibrated by simulation."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from implicit_delta.core.arguments import as_seed
from implicit_delta.core.types import Asked
from implicit_delta.estimate.quantiles import checked_level
from implicit_delta.estimate.tables import number, percent
from implicit_delta.inference.limits.search import Search, Way
from implicit_delta.inference.profile.profile import profile
from implicit_delta.inference.profile.result import Profile
from implicit_delta.models.isolation import isolated
from implicit_delta.models.model import FittedModel

SPELLED = {
    "likelihood": "likelihood ratio",
    "cls": "CLs",
    "toys": "toys",
    "cls-toys": "CLs by toys",
}


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
        The path of the likelihood, its limit, the symmetric (Wald) one, the constraints it reaches.
    method : {"likelihood", "cls", "toys", "cls-toys"}
    monte_carlo_error : float
        Standard error of the limit due to the simulation; zero where there was none.
    """

    value: float
    estimate: float
    confidence_level: float
    side: Literal["upper", "lower"]
    profile: Profile
    method: Way = "likelihood"
    monte_carlo_error: float = 0.0

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
        level, error = percent(self.confidence_level), self.monte_carlo_error
        told = [SPELLED[self.method], *self.profile.limits]
        drawn = f" +- {number(error, places)}" if error else ""
        return (
            f"{self.profile.name} {sign} {number(self.value, places)}{drawn} at {level} "
            f"confidence, estimate {number(self.estimate, places)} ({', '.join(told)})"
        )


@isolated
def limit(
    model: FittedModel,
    psi: Asked,
    confidence_level: float = 0.95,
    *,
    side: Literal["upper", "lower"] = "upper",
    method: Way | None = None,
    null: float | None = None,
    toys: int = 1000,
    rng: Any = 0,
    **options: Any,
) -> Limit:
    r"""Find the upper (or lower) limit of a scalar psi: the largest that the data do not exclude.

    ``"likelihood"``
        Its deviance from the maximum *within the constraints* is at most the quantile of its
        one-sided distribution, :math:`\tfrac12 \chi^2_0 + \tfrac12 \chi^2_1`: 2.71 at 95 %. Where a
        bound holds psi it rises with the distance at which the data would put psi beyond, to the
        5.99 of no event (then it is exact). Where bounds of other parameters are within two
        standard errors and correlated with psi, the quantile is that of the mixture with the truth
        at those bounds (chi-bar-squared).
    ``"cls"``
        The probability of a deviance as large as the one observed, over that without a signal
        (CLs; Read, 2002), is one less the level; for large samples (Cowan, Cranmer, Gross and
        Vitells, 2011) :math:`\Phi(-\sqrt{q}) / \Phi(\sqrt{q_0})`, q and :math:`q_0` the deviances
        of psi and of no signal. That is the bound where psi is the smallest, or `null`.
    ``"toys"``
        The probability is that of simulated data, with other parameters at their fit to this psi.
        If Poisson counts are all that is random and have few likely values, it is a sum over these
        and exact: without a background Garwood's limit of a count.
    ``"cls-toys"``
        CLs with both probabilities by toys.

    Parameters
    ----------
    model : FittedModel
        Made by one of the `from_*` functions, with its `bounds=` if there are any.
    psi : callable or str
        The evaluation, of one number: any function of the model, or a parameter by name.
    confidence_level : float
        Between 0.5 and 1, one-sided.
    side : {"upper", "lower"}
    method : {"likelihood", "cls", "toys", "cls-toys"}, optional
        By default "likelihood", but for data that are drawn as Poisson counts: ``rng.poisson`` in
        ``from_loglik(simulate=)``, or a Poisson model of another library. For these "cls-toys" if
        they have at most `toys` likely values, or if fewer than 25 events decide between the
        estimate and the likelihood's limit, and "cls" otherwise; where psi has no bound on the
        other side, "toys" and "likelihood".
    null : float, optional
        Psi without a signal.
    toys : int
        Data sets that are drawn at each psi, unless there are fewer likely values.
    rng : int or numpy.random.Generator, optional
        Seed of the draws: antithetic pairs, the same at each psi.
    **options
        Those of `profile`: ``maximizer``, ``curvature``, ``strict``, ``name``.

    Returns
    -------
    Limit

    Examples
    --------
    Three events where two are expected without a signal:

    >>> import implicit_delta as idm
    >>> import numpy as np
    >>> from functools import partial
    >>> def loglik(th, n=3):
    ...     return np.array([n * np.log(th.s + 2.0) - th.s - 2.0])
    >>> def simulate(th, rng):
    ...     return partial(loglik, n=rng.poisson(th.s + 2.0))
    >>> model = idm.from_loglik(
    ...     loglik, start={"s": 1.0}, bounds={"s": (0, None)}, simulate=simulate
    ... )
    >>> idm.limit(model, "s")
    s <= 5.983 at 95% confidence, estimate 1.000 (CLs by toys)
    >>> idm.limit(model, "s", method="likelihood")
    s <= 4.814 at 95% confidence, estimate 1.000 (likelihood ratio)
    """
    if side not in ("upper", "lower"):
        raise ValueError(f'side of a limit is "upper" or "lower", not {side!r}.')
    if method is not None and method not in get_args(Way):
        known = ", ".join(f'"{way}"' for way in get_args(Way))
        raise ValueError(f"method of a limit is one of {known}, not {method!r}.")
    if isinstance(toys, bool) or toys != int(toys) or toys < 10:
        raise ValueError(f"toys is a number of data sets, an integer of 10 or more: {toys!r}.")
    level = checked_level(confidence_level)
    found = profile(model, psi, level, side=side, **options)
    if not isinstance(found, Profile):
        raise TypeError(
            f"psi has {len(found)} values, and a limit is one of each: ask for them one by one, "
            "`limit(model, name)`, or for all with `profile(model, psi, side=...)`."
        )
    interval = found.confidence_interval(level)
    value, error = float(interval.high if side == "upper" else interval.low), 0.0
    if method != "likelihood":
        sign = 1 if side == "upper" else -1
        search = Search(model, psi, found, sign, value, null, int(toys), as_seed(rng))
        method = method or search.usual()
        if method != "likelihood":
            value, error = search.limit(method, 1 - level)
    return Limit(value, found.value, level, side, found, method, error)

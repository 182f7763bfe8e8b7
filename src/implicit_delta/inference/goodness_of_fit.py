"""Goodness of fit by data that are drawn from the fitted model."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from implicit_delta.core.arguments import as_seed
from implicit_delta.core.findings import Finding, report
from implicit_delta.core.types import Array
from implicit_delta.methods.ascent import Ascent
from implicit_delta.methods.bounded_refits import BoundedRefits
from implicit_delta.methods.outcomes import failed_replicates
from implicit_delta.methods.refitted import Refitted
from implicit_delta.methods.replication import NewTargets
from implicit_delta.models.coordinates import in_free_coordinates
from implicit_delta.models.isolation import isolated
from implicit_delta.models.model import FittedModel
from implicit_delta.models.processes import processes_of
from implicit_delta.optimize import Maximizer, Minimize


@dataclass(frozen=True, eq=False)
class GoodnessOfFit:
    """A statistic of the data beside those of data drawn from the fitted model.

    Attributes
    ----------
    statistic : float
        Of the data; large where the model fits badly.
    draws : (B,) array
        Of data drawn from the model, each with its own fit.
    p_value : float
        Share of the draws that fit as badly or worse, the data themselves among them.
    failed : int
        Draws without a fit, which are left out.
    findings : tuple of Finding
        What was found about the draws, as in `Diagnostics`.
    """

    statistic: float
    draws: Array = field(repr=False)
    p_value: float
    failed: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def monte_carlo_error(self) -> float:
        """Standard error of the p-value from the number of draws."""
        return float(np.sqrt(self.p_value * (1 - self.p_value) / (len(self.draws) + 1)))

    def __str__(self) -> str:
        left = f" ({self.failed} without a fit left out)" if self.failed else ""
        return (
            f"statistic {self.statistic:.6g}, "
            f"p = {self.p_value:.4f} +- {self.monte_carlo_error:.4f} "
            f"from {len(self.draws)} fits to simulated data{left}"
        )


@isolated
def goodness_of_fit(
    model: FittedModel,
    statistic: Callable[[Any], float] | None = None,
    *,
    replicates: int = 200,
    rng: int | np.random.Generator | None = None,
    n_jobs: int = 1,
    maximizer: Maximizer | Minimize | None = None,
) -> GoodnessOfFit:
    """Hold a statistic of the data against its distribution over data drawn from the fitted model.

    Each draw is fitted again, so that the parameters may be estimated from the same data, and no
    large-sample distribution is needed.

    Parameters
    ----------
    model : FittedModel
        One that can draw data: ``from_loglik(simulate=...)``, `from_residuals`, most of
        `from_statsmodels` and `from_sklearn`.
    statistic : callable, optional
        ``statistic(model)`` of the fitted model, large where the fit is bad: of `model.theta` and
        ``model.rows.terms(model.theta)``. Minus twice the log-likelihood unless given, a good one
        for counts in bins with their full probabilities, and a weak one for values without
        bins, where a distance between distributions sees more. It is called with the model of the
        data, and with that of each draw, whose ``model.rows.loglik`` is what `simulate` has
        returned: the data are in its keywords (see the examples).
    replicates : int
        How many data sets are drawn.
    rng : int or numpy.random.Generator, optional
        Source of the draws; fresh unless given.
    n_jobs : int
        How many fits run at once.
    maximizer : maximizer, optional
        As in `Bootstrap`; a model with bounds is fitted within them, as `from_loglik` does.

    Returns
    -------
    GoodnessOfFit

    Examples
    --------
    Counts that vary more than a Poisson distribution allows:

    >>> from functools import partial
    >>> from scipy.stats import poisson
    >>> import implicit_delta as idm
    >>> y = np.array([0, 9, 2, 14, 1, 0, 11, 3, 8, 2])
    >>> def loglik(th, y=y):
    ...     return poisson.logpmf(y, np.exp(th[0]))
    >>> def simulate(th, rng):
    ...     return partial(loglik, y=rng.poisson(np.exp(th[0]), size=10))
    >>> model = idm.from_loglik(loglik, start=[1.0], simulate=simulate)
    >>> idm.goodness_of_fit(model, replicates=199, rng=0).p_value
    0.005

    A distance between distributions (Kolmogorov and Smirnov), of the data that belong to each fit.
    With `partial` from the start, the data of a fit are always found in the same place:

    >>> from scipy.stats import expon, kstest
    >>> def loglik(th, y):
    ...     return expon.logpdf(y, scale=th[0])
    >>> def simulate(th, rng):
    ...     return partial(loglik, y=rng.exponential(th[0], size=30))
    >>> def distance(model):
    ...     y = model.rows.loglik.keywords["y"]
    ...     return kstest(y, expon(scale=model.theta[0]).cdf).statistic
    >>> y = np.linspace(1.0, 2.0, 30)
    >>> model = idm.from_loglik(partial(loglik, y=y), start=[1.0], simulate=simulate)
    >>> idm.goodness_of_fit(model, distance, replicates=99, rng=0).p_value
    0.01
    """
    if replicates != int(replicates) or replicates < 2:
        raise ValueError(f"replicates must be an integer above 1, not {replicates!r}.")
    draw = NewTargets()
    draw.check(model)
    measure = partial(_measured, _deviance if statistic is None else statistic)
    refits = _refits(model, draw, measure, maximizer)
    own = float(measure(refits.model, refits.model.theta)[0])
    outcomes = refits.run(processes_of(model).broadcast_seed(as_seed(rng)), int(replicates), n_jobs)
    failures = [outcome.failure for outcome in outcomes if outcome.psi is None]
    found = report([failed_replicates(failures, len(outcomes), draw.otherwise)])
    draws = np.array([outcome.psi[0] for outcome in outcomes if outcome.psi is not None])
    p_value = (1 + np.count_nonzero(draws >= own)) / (1 + len(draws))
    return GoodnessOfFit(own, draws, float(p_value), len(failures), found)


def _refits(
    model: FittedModel,
    draw: NewTargets,
    measure: Callable[[FittedModel, Array], Array],
    maximizer: Maximizer | Minimize | None,
) -> Refitted | BoundedRefits:
    """Fit within constraints where the model has any: drawn data may reach a bound, or leave it."""
    if model.space.constraints is not None and model.space.chart is None:
        return BoundedRefits(model, draw, measure)
    free = in_free_coordinates(model)
    return Refitted(free, Ascent.of(free, maximizer, "hessian"), draw, measure)


def _deviance(model: FittedModel) -> float:
    return -2 * float(model.weights.values @ model.rows.terms(model.theta))


def _measured(statistic: Callable[[Any], float], model: FittedModel, theta: Array) -> Array:
    """Apply the statistic to the model at a maximum, (1,)."""
    value = np.asarray(statistic(model.at(theta)), dtype=np.float64)
    if value.size != 1 or not np.isfinite(value).all():
        raise ValueError(f"statistic(model) must return one finite number, not {value!r:.60}.")
    return value.reshape(1)

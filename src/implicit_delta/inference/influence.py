"""Influence of each training row, and the robust and clustered variances made of it."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from implicit_delta.core.cache import LastCache
from implicit_delta.core.clusters import Clusters, ways_of
from implicit_delta.core.factored import MANY, Covariance, check_bytes, quadratic
from implicit_delta.core.labels import label_codes
from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.errors import (
    UnsupportedModelError,
)
from implicit_delta.estimate.rows import Rows, label_texts
from implicit_delta.inference.hac import HAC
from implicit_delta.inference.leverage import Leverage, check_leverage, leverage_of
from implicit_delta.inference.leverage_probes import probed_correction
from implicit_delta.methods.base import Method, Response
from implicit_delta.models.claimed import Claimed
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import is_formable
from implicit_delta.models.processes import processes_of
from implicit_delta.models.reducers import scatter_of
from implicit_delta.models.sources import strata_of

Correction: TypeAlias = Literal["HC0", "HC1", "HC2", "HC3", "CR0", "CR1", "CR1S", "CR2"]

MOST_LABELS = 10**6  # in an estimate without influences: 8 MB
POWERS = {"HC2": -0.5, "HC3": -1.0, "CR2": -0.5}  # of what the fit leaves of the noise
SATTERTHWAITE = ("HC2", "CR2")
MOST_ROWS = 10**7  # influences that are made at a time
FEWER = "Ask for fewer evaluations at a time."
MOST_LOST = 0.01  # of a variance: half that of a standard error


@dataclass(frozen=True)
class Sandwich:
    r"""Robust covariance :math:`\sum_i w_i f_i f_i'` of influences f, or of sums within clusters.

    Attributes
    ----------
    clusters : Clusters or None
    factor : float
        The small-sample correction.
    name : str
        One of the corrections, or that of a HAC variance.
    crossed : tuple of (Clusters, float)
        What is added for a second way of clustering: that way, and minus the groups that are alike
        in both, with their factors.
    hac : HAC or None
    stopped : bool
        Of a training that stopped early: of one row no t quantiles follow, and where leverages are
        not known they are found by random directions.
    by_method : bool
        Whether a response that is robust has this variance already; see `Method.accounts_for`.
    """

    clusters: Clusters | None = None
    factor: float = 1.0
    name: str = "HC0"
    crossed: tuple[tuple[Clusters, float], ...] = ()
    hac: HAC | None = None
    stopped: bool = False
    by_method: bool = False
    _last: LastCache = field(init=False, default_factory=LastCache, compare=False, repr=False)

    @classmethod
    def of(
        cls, model: FittedModel, robust: "bool | Correction | HAC", clusters: Any
    ) -> "Sandwich | None":
        """Check what a user asked for; None if that is the model's own variance."""
        if robust or clusters is not None:
            model.facts.require_rows()
        if isinstance(robust, HAC):
            return _hac(model, robust, clusters)
        ways: tuple[Clusters, ...] = ()
        if clusters is not None:
            host, labels = model.facts.host, processes_of(model).gather_labels(clusters)
            ways = ways_of(labels, model.weights.values, host.labels, host.grouped)
        first = ways[0] if ways else None
        if model.weights.kind == "sampling" and not robust:
            count = float(model.weights.counts.sum()) if first is None else first.count
            if count < 2:
                raise UnsupportedModelError(
                    'The design-based variance of weight_kind="sampling" is that between rows, and '
                    "there is only one with any weight. Give the log-likelihood of each row."
                )
            crossed = _crossed(model, "CR1", *ways) if len(ways) == 2 else ()
            return cls(first, count / (count - 1), "design", crossed)
        factor = small_sample_factor(model, robust, first)
        plain = "HC0" if first is None else "CR0"
        name = plain if isinstance(robust, bool) else str(robust)
        if name in POWERS:
            check_leverage(model)
        if not robust and first is None:
            return None
        if len(ways) < 2:
            return cls(first, factor, name)
        return cls(first, factor, name, _crossed(model, robust, *ways))

    def __str__(self) -> str:
        groups = f"{' x '.join(map(str, self.counts))} clusters" if self.counts else ""
        if self.name == "design":
            return f"design-based ({groups})" if groups else "design-based"
        return f"clustered ({self.name}, {groups})" if groups else f"robust ({self.name})"

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of clusters of each way."""
        return tuple(way.count for way in self.ways)

    @property
    def ways(self) -> tuple[Clusters, ...]:
        """Clusters of one way or two."""
        own = () if self.clusters is None else (self.clusters,)
        return (*own, *(way for way, sign in self.crossed if sign > 0))

    @property
    def by_terms(self) -> bool:
        """Whether influences are the derivatives of terms, and nothing is made up for."""
        return self.name not in POWERS

    @property
    def asked(self) -> bool:
        """Whether it was asked for, and is not due to sampling weights alone."""
        return self.clusters is not None or self.name != "design"

    @property
    def fewest(self) -> int | None:
        """The number of clusters, the smaller one of two ways."""
        return min(self.counts, default=None)

    def influences(self, model: FittedModel, directions: Array) -> Array:
        """Make the influences of all rows, (d, K) to (n, K), adjusted for leverage if it is asked.

        With "HC3" they are one Newton step to the fit without the row.
        """
        rows = model.terms_along(model.theta, directions)
        if self.stopped:
            rows = rows + self._of_stopped(model, directions)
        elif self.name in POWERS:
            rows = rows + self._leverage(model, directions).correction
        return model.weights.per_observation(rows)

    def _of_stopped(self, model: FittedModel, directions: Array) -> Array:
        """Adjustment for leverage, (n, K), by random directions in large networks."""
        if model.d > DENSE_LIMIT or not is_formable(model):
            return probed_correction(model, directions, POWERS[self.name])
        return self._leverage(model, directions).correction

    def of_rows(self, model: FittedModel, rows: Array) -> Covariance:
        """Make the covariance of influences, (n, K) to (K, K)."""
        if self.hac is not None:
            check_bytes(rows.shape[1], FEWER)
            weighted = model.weights.counts[:, None] * rows
            return self.factor * self.hac.scatter(weighted, strata_of(model))
        total = self.factor * _scatter(rows, model.weights.counts, self.clusters)
        for way, factor in self.crossed:
            total = total + factor * _scatter(rows, model.weights.counts, way)
        return total

    def of_directions(self, model: FittedModel, directions: Array) -> Covariance:
        """Make the covariance of responses, (d, K) to (K, K); no row leaves the data."""
        if self.hac is not None or self.name in POWERS:
            return self.of_rows(model, self.influences(model, directions))
        total = self.factor * model.scatter(model.theta, directions, self.clusters)
        for way, factor in self.crossed:
            total = total + factor * model.scatter(model.theta, directions, way)
        return total

    def of_basis(self, model: FittedModel, basis: Array) -> Array:
        """Make the covariance of responses along a basis of very many, (d, r) to (r, r).

        Rows of leverage 1 matter along the responses themselves: there `df` looks for them.
        """
        if self.name not in POWERS:
            return np.asarray(self.of_directions(model, basis))
        change = leverage_of(model, basis, POWERS[self.name], self.clusters, moments=False)
        rows = model.terms_along(model.theta, basis) + change.correction
        return np.asarray(self.of_rows(model, model.weights.per_observation(rows)))

    def df(self, model: FittedModel, response: Response) -> float | Array:
        """Degrees of freedom of t quantiles: one number, or (K,) for "HC2", "HC3" and "CR2".

        These have Satterthwaite's ("HC3" those of "HC2": with n - d it covered 87 to 91 % where
        noise grows with leverage, and with these 93 to 95 %); other clustered variances the number
        of clusters less one (of the way that has fewer), and those of independent rows the model's
        own. For sampling weights it is the number of rows, or of clusters, less that of parameters,
        as in R's `survey`.
        """
        if self.stopped:
            return np.inf
        if self.name in POWERS:
            return self._satterthwaite(model, checked_directions(model, response))
        if model.weights.kind == "sampling":
            units = self.fewest or np.count_nonzero(model.weights.values)
            return float(max(units - model.d, 1))
        return model.facts.df if self.fewest is None else float(self.fewest - 1)

    def _satterthwaite(self, model: FittedModel, directions: Array) -> Array:
        """Degrees of freedom, (K,), of some evaluations after the other: (n, K) may be too much."""
        width, K = max(1, MOST_ROWS // model.n), directions.shape[1]
        if width < K:
            blocks = np.array_split(directions, -(-K // width), axis=1)
            return np.concatenate([self._satterthwaite(model, block) for block in blocks])
        found = self._leverage(model, directions)  # of HC3 too, which refuses by its own name
        return (
            replace(self, name="HC2")._leverage(model, directions) if self.name == "HC3" else found
        ).df

    def refuse_beside(self, method: Method) -> None:
        """Refuse corrections that a method which is robust by itself would not make."""
        kind = type(method).__name__
        if self.crossed:
            raise UnsupportedModelError(
                f"`{kind}` draws clusters of one way of grouping only: give one array of labels, "
                "or leave the method out for the two-way sandwich."
            )
        if self.name not in ("HC0", "CR0", "design"):
            raise UnsupportedModelError(
                f"`{kind}` is robust by itself and makes no correction {self.name}: leave robust= "
                "out, or leave the method out for the sandwich with that correction."
            )

    def positive(self, covariance: Covariance) -> Covariance:
        """Refuse a two-way variance that is not positive: the groups overlap too much."""
        if self.crossed and np.any(covariance.diagonal() <= 0):
            raise UnsupportedModelError(
                "The two-way clustered variance is not positive: within the groups that are alike "
                "in both ways the rows vary more than between the groups of each, which happens "
                "with few groups. Give the one way of grouping that matters most."
            )
        return covariance

    def _leverage(self, model: FittedModel, directions: Array) -> Leverage:
        """Leverage of the rows or clusters, made once."""
        found: Leverage = self._last.get(
            directions,
            "leverage",
            lambda: leverage_of(
                model,
                directions,
                POWERS[self.name],
                self.clusters,
                moments=self.name in SATTERTHWAITE and not self.stopped,
            ),
        )
        if np.max(found.lost) > MOST_LOST and not self.stopped:
            what = "row" if self.clusters is None else "cluster"
            raise UnsupportedModelError(
                f"{np.max(found.lost):.0%} of the variance of psi is due to a {what} that the "
                "model fits whatever its noise (leverage 1: a parameter of its own), so the "
                f"residuals tell nothing about it, and {self.name} is not defined. Ask for a psi "
                f"that does not rest on one {what}, or leave that parameter out of the model."
            )
        return found


def _scatter(rows: Array, counts: Array, clusters: Clusters | None) -> Covariance:
    """Sum outer products of rows, in the rank of these where evaluations are more."""
    n, K = rows.shape
    if max(MANY, n) >= K:
        check_bytes(K, FEWER)
        return scatter_of(rows, counts, clusters)
    if clusters is None:
        return quadratic(np.sqrt(counts) * rows.T)
    return quadratic(clusters.sums(counts[:, None] * rows).T)


def _hac(model: FittedModel, hac: HAC, clusters: Any) -> Sandwich:
    if clusters is not None:
        raise ValueError(
            "robust=HAC(...) is for one series of rows in time order, and clusters= for rows that "
            "are independent between groups: give one of them. For a panel, cluster by unit."
        )
    hac.check(model)
    factor = small_sample_factor(model, "HC1", None) if hac.adjust else 1.0
    return Sandwich(factor=factor, name=repr(hac), hac=hac)


def _crossed(
    model: FittedModel, robust: bool | Correction, first: Clusters, second: Clusters
) -> tuple[tuple[Clusters, float], ...]:
    """Cameron, Gelbach and Miller: both ways, less the groups that are alike in both."""
    if robust == "CR2":
        raise ValueError(
            'robust="CR2" is defined for one way of clustering. With two ways use robust="CR1", or '
            "CR2 for the way that has fewer groups."
        )
    both = first.crossed(second)
    return (
        (second, small_sample_factor(model, robust, second)),
        (both, -small_sample_factor(model, robust, both)),
    )


def rows_of(
    model: FittedModel, sandwich: Sandwich, claimed: Claimed | None, by_row: bool, fit: str = ""
) -> Rows:
    """Describe the training rows for joins: labels, counts, and which depend on each other.

    Without influences, not `by_row`, nobody prints labels, and those of many rows are not kept.
    """
    if not by_row and model.n > MOST_LABELS:
        return Rows(model.n, fit=fit)
    clusters = claimed.clusters if claimed is not None else sandwich.clusters
    ways = [] if clusters is None else [(clusters, sandwich.factor), *sandwich.crossed]
    unknown = "" if claimed is None or claimed.by_rows else model.facts.no_rows or (
        f"{claimed} is not a sum over rows or clusters. Ask `infer` for `robust=` or `clusters=`."
    )  # fmt: skip
    host = model.facts.host
    codes, outcomes = label_codes(host.labels), host.response.values
    function = getattr(model.rows, "loglik", None)  # of `DifferencedRows`
    if function is not None:
        function = getattr(model.rows.outputs, "residuals", function)  # which have a sign
    strata = strata_of(model)
    series = np.repeat(np.arange(float(len(strata))), [own.stop - own.start for own in strata])
    return Rows(
        model.n,
        None if np.all(model.weights.counts == 1) else model.weights.counts,
        codes,
        tuple(way.labeled() for way, _ in ways),
        tuple(factor for _, factor in ways),
        () if sandwich.hac is None else tuple(sandwich.hac.weights()),
        unknown,
        host.response.digest,
        label_texts(host.labels, codes) if by_row else None,
        all(way.labels is not None for way, _ in ways),
        outcomes if outcomes is not None and outcomes.size == model.n else None,
        fit,
        None if codes is not None or function is None else partial(function, model.theta),
        series if sandwich.hac is not None and len(strata) > 1 else None,
    )


def checked_directions(model: FittedModel, response: Response) -> Array:
    """Return the directions, (d, K), if influences can be made of them; explain otherwise."""
    if response.directions is None:
        raise UnsupportedModelError(
            f"{response.method.split('(')[0]} does not find the direction in which the parameters "
            "respond, which robust and clustered errors and influences are made of. Use "
            "`Infinitesimal` or `FiniteDifference`."
        )
    if model.n == 1:
        raise UnsupportedModelError(
            "Robust and clustered errors and influences need the log-likelihood of each "
            "observation, but the model has only one (its data are dependent)."
        )
    return response.directions


def small_sample_factor(
    model: FittedModel, robust: bool | Correction, clusters: Clusters | None
) -> float:
    r"""Return the factor by which small samples inflate a robust covariance.

    With n observations (the sum of `counts`), d parameters (effective ones of a training that
    stopped early) and G clusters:

    ===================  ===========================================================
    HC0, CR0, True       1
    HC1                  n / (n - d)
    CR1                  G / (G - 1)
    CR1S                 G / (G - 1) * (n - 1) / (n - d), as in Stata and statsmodels
    HC2, HC3, CR2        1: the influences themselves are adjusted
    ===================  ===========================================================
    """
    if isinstance(robust, bool):
        return 1.0
    if robust not in get_args(Correction):
        raise ValueError(
            f"robust is True, False or one of {get_args(Correction)}, or `HAC(lags)`, not "
            f"{robust!r}."
        )
    if robust.startswith("CR") != (clusters is not None):
        raise ValueError(
            f"robust={robust!r} does not fit: HC0 to HC3 are for independent observations, CR0, "
            f"CR1, CR1S and CR2 for clusters, and clusters were {'not ' * (clusters is None)}given."
        )
    factor = 1.0
    if robust in ("CR1", "CR1S") and clusters is not None:
        factor = clusters.count / (clusters.count - 1)
    if robust in ("HC1", "CR1S"):
        n = float(model.weights.counts.sum())
        d = model.facts.training.effective if model.penalty.early_stop else model.d
        if n <= d:
            raise ValueError(
                f"robust={robust!r} divides by n - d, but there are {n:g} observations and "
                f"{d:.6g} parameters. Use robust=True."
            )
        factor *= (n if robust == "HC1" else n - 1) / (n - d)
    return factor

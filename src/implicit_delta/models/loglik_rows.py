"""Rows of a log-likelihood function in NumPy."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.arguments import Counter
from implicit_delta.core.cache import Recent
from implicit_delta.core.types import Array
from implicit_delta.models.along import Along, RowsAlong
from implicit_delta.models.checks import check_unchanged
from implicit_delta.models.constraints import Chart
from implicit_delta.models.inside import Inside
from implicit_delta.models.loglik_objective import (
    Approach,
    LocalDerivatives,
    LoglikObjective,
    weighted,
)
from implicit_delta.models.penalty import NO_PENALTY, Penalty
from implicit_delta.models.redraws import cannot_draw
from implicit_delta.models.residual_outputs import ResidualOutputs
from implicit_delta.models.rows import sum_of_blocks
from implicit_delta.models.traced_loglik import is_traced
from implicit_delta.models.weights import Weights

Draw: TypeAlias = "Callable[[LoglikRows, Array, Weights, np.random.Generator], LoglikRows]"


@dataclass
class TermsCache:
    """Terms at recent parameters, the objective around the last place, and where a climb was.

    A pickled one has no terms, but the units at that place.
    """

    terms: Recent = field(default_factory=Recent)
    place: LoglikObjective | None = None
    approach: Approach | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"terms": Recent(), "place": self.place, "approach": self.approach}


@dataclass(frozen=True, eq=False)
class LoglikRows:
    """Terms of a function (d,) to (n,), with derivatives as `LoglikObjective` takes them.

    Every call of the function, or of its derivative, counts as a pass.

    Attributes
    ----------
    loglik : callable
        The log-likelihood of each row.
    n, d : int
    scores : callable, optional
        Derivative of each term, (d,) to (n, d): given, or traced.
    outputs : ResidualOutputs or None
        Residuals, of least squares.
    draw : callable, optional
        Make rows of new data at theta.
    counter : Counter
    is_bounded : bool
        Whether the parameters are under constraints, at which the function may end.
    climbs : bool
        Whether derivatives may be uncertain, on the way to a maximum.
    approach : Approach or None
        Where a climb has taken its last differences.
    local : LocalDerivatives or None
        Derivatives of the objective of a fitted model.
    cache : TermsCache
    """

    loglik: Callable[[Array], Any]
    n: int
    d: int
    scores: Callable[[Array], Any] | None = None
    outputs: ResidualOutputs | None = None
    draw: "Draw | None" = None
    counter: Counter = field(default_factory=Counter)
    is_bounded: bool = False
    climbs: bool = False
    approach: Approach | None = None
    local: LocalDerivatives | None = None
    cache: TermsCache = field(default_factory=TermsCache)

    @property
    def symmetric(self) -> bool:
        return True

    @property
    def passes(self) -> int:
        return self.counter.count

    @property
    def is_traced(self) -> bool:
        """Whether derivatives are traced."""
        return is_traced(self.scores)

    @property
    def last_approach(self) -> Approach | None:
        """Where differences were taken last, by this climb or the one before."""
        return self.cache.approach or self.approach

    def terms(self, theta: Array) -> Array:
        started = perf_counter()
        terms = np.array(self.loglik(theta.copy()), dtype=np.float64)  # it may reuse its result
        self.counter.called(perf_counter() - started)
        return terms

    def recalled(self, theta: Array) -> Array:
        """Terms at theta, from the cache if they are there."""
        return self.cache.terms.get(theta, lambda: self.terms(theta))

    def score_rows(self, theta: Array) -> Array:
        """Derivative of each term by the function for them, (n, d)."""
        assert self.scores is not None
        self.counter.count += not self.is_traced
        return np.asarray(self.scores(theta.copy()), dtype=np.float64)

    def sized_rows(self, theta: Array) -> Array:
        """Rows whose squares sum to about the curvature: of scores, or of residuals' slopes."""
        return self.score_rows(theta) if self.outputs is None else self.outputs.slopes(theta)

    def score(self, theta: Array, weights: Array) -> Array:
        return self._here(theta, weights).score(theta)

    def curvature(self, theta: Array, weights: Array, v: Array) -> Array:
        return self._here(theta, weights).information(theta, v)

    def terms_along(self, theta: Array, v: Array) -> Iterator[tuple[slice, Array]]:
        yield slice(0, self.n), self._here(theta, np.ones(self.n)).terms_along(theta, v)

    def sum_blocks(
        self, theta: Array, v: Array, reduce: Callable[..., Any], *row_arrays: NDArray[Any]
    ) -> Any:
        return sum_of_blocks(self, theta, v, reduce, *row_arrays)

    def _here(self, theta: Array, weights: Array) -> LoglikObjective:
        return LoglikObjective(self, np.array(theta), Weights(weights), NO_PENALTY)

    def around(self, theta: Array, weights: Weights, penalty: Penalty) -> LoglikObjective:
        found = self.cache.place
        if found is None or not found.is_at(theta, weights, penalty):
            found = self.cache.place = LoglikObjective(self, np.array(theta), weights, penalty)
        elif found.rows is not self:
            found = self.cache.place = found.of_rows(self)
        return found

    def at_rest(self, theta: Array, weights: Weights, penalty: Penalty) -> "LoglikRows":
        """Carry the derivatives at theta as data, and nothing else that was computed before."""
        rows = self.with_terms(climbs=False, approach=None, local=None)
        local = rows.around(theta, weights, penalty).local()
        terms = Recent()
        terms.get(np.array(theta), lambda: rows.recalled(theta))
        fresh = getattr(self.scores, "without_cache", None)
        return replace(
            rows, local=local, cache=TermsCache(terms), scores=fresh() if fresh else self.scores
        )

    def units(self, theta: Array, weights: Weights, penalty: Penalty) -> Array:
        return self.around(theta, weights, penalty).units

    def at(self, theta: Array, weights: Weights) -> "LoglikRows":
        return self.with_terms()

    def for_climbing(self) -> "LoglikRows":
        return self.with_terms(climbs=True)

    def arrived(self) -> "LoglikRows":
        return self.with_terms(climbs=False, cache=TermsCache())

    def with_terms(self, **changes: Any) -> "LoglikRows":
        """Make changes that leave the terms as they are: keep those that are cached."""
        kept = {
            "approach": self.last_approach,
            "outputs": self.outputs and self.outputs.without_cache(),
            "cache": TermsCache(self.cache.terms, self.cache.place),
        }
        return replace(self, **{**kept, **changes})

    def of(self, **changes: Any) -> "LoglikRows":
        """Make changes that leave nothing of what is cached."""
        return replace(self, **{"approach": None, "local": None, "cache": TermsCache(), **changes})

    def along(self, chart: Chart) -> "LoglikRows":
        """Eliminate parameters, as a user would by hand: all functions are those of the rest."""
        return self.of(
            loglik=Along(self.loglik, chart),
            d=chart.free.size,
            scores=None if self.scores is None else RowsAlong(self.scores, chart),
            outputs=self.outputs and self.outputs.along(chart),
            draw=self.draw and DrawAlong(self, chart, self.draw),
        )

    def within(self, low: Array, high: Array) -> "LoglikRows":
        """Continue the function where it ends at a bound; residuals are defined beyond."""
        function = self.loglik if self.outputs is not None else Inside(self.loglik, low, high)
        return self.of(loglik=function, is_bounded=True)

    def redraw(self, theta: Array, weights: Weights, rng: np.random.Generator) -> "LoglikRows":
        if self.draw is None:
            raise cannot_draw("the log-likelihood is a function of the parameters", self.n)
        return self.draw(self, theta, weights, rng)

    def log_likelihood(self, theta: Array, weights: Weights) -> float:
        if weights.kind == "sampling":
            return np.nan
        if weights.kind == "precision" and self.outputs is None:
            return np.nan  # known up to a common factor
        whole = getattr(self.loglik, "log_likelihood", None)  # of terms that lack constants
        if whole is not None:
            return float(whole(theta, weights))
        return float(np.sum(weighted(weights.values, self.terms(theta))))

    def check_unchanged(self, theta: Array) -> None:
        known = self.cache.terms.sample(np.asarray(theta))
        if known is not None:
            check_unchanged(known[1], self.terms(known[0]))


def rows_of(model: Any) -> LoglikRows:
    """Rows of a model of `from_loglik` or `from_residuals`."""
    assert isinstance(model.rows, LoglikRows)
    return model.rows


@dataclass(frozen=True, eq=False)
class DrawAlong:
    """Draw new data in the coordinates of a chart, from the rows of all parameters."""

    rows: LoglikRows
    chart: Chart
    draw: Draw

    def __call__(
        self, rows: LoglikRows, theta: Array, weights: Weights, rng: np.random.Generator
    ) -> LoglikRows:
        """Draw at all parameters."""
        return self.draw(self.rows, self.chart.point(theta), weights, rng).along(self.chart)

r"""Estimating equations as rows, and what follows from their Jacobian at a root."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, gmres

from implicit_delta.calculus.functions import Derivative
from implicit_delta.calculus.units import sizes
from implicit_delta.core.cache import LastCache
from implicit_delta.core.clusters import Clusters
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, UnsupportedModelError
from implicit_delta.linalg.arrays import symmetric
from implicit_delta.models.equation_system import BalancedLU, Equations, System, check_regular
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.reducers import scatter_of
from implicit_delta.models.rows import sum_of_blocks
from implicit_delta.models.weights import Weights

ROUGH = 1e-2  # of the size of a parameter: a step where there is no standard error
NOISELESS = 1e-12  # of the size of a parameter: a standard error that is rounding
GMRES_RTOL, GMRES_ROUNDS = 1e-10, 200

NO_OBJECTIVE = (
    "Estimating equations have no log-likelihood, which this method or call is about: they are "
    "known by a root and by the rows that sum to zero there. Use `infer(model, psi)` without "
    "`method=`, whose variance is the sandwich."
)


@dataclass(frozen=True, eq=False)
class EquationRows:
    """Estimating equations; made by `from_equations`.

    More equations than parameters are combined to as many, ``combination @ m_i``: the condition of
    first order of GMM, whose root theta is. There are no terms; the score is the weighted sum of
    the (combined) equations, and directions are weights of these, so that `terms_along` makes the
    influences.

    Attributes
    ----------
    equations : Equations
    n, d : int
    clusters : Clusters or None
        Groups within which rows may be dependent.
    slope : (q, d) array or None
        Derivative of the sum, at one theta with one set of weights: see `at`. Not kept for many
        parameters.
    combination : (d, q) array or None
        Of more equations than parameters.
    """

    equations: Equations
    n: int
    d: int
    clusters: Clusters | None = None
    slope: Array | None = None
    combination: Array | None = None
    cache: LastCache = field(default_factory=LastCache, repr=False)

    symmetric = False
    outputs = None

    @property
    def passes(self) -> int:
        return self.equations.counter.count

    def combined(self, theta: Array) -> Array:
        """Equations of each row, (n, d), combined to as many as parameters."""
        rows = self.equations.rows(theta)
        return rows if self.combination is None else np.asarray(rows @ self.combination.T)

    def scatter(self, theta: Array, weights: Weights) -> Array:
        """Sum of outer products of the (combined) equations, within clusters if there are any."""
        rows = weights.per_observation(self.combined(theta))
        return scatter_of(rows, weights.counts, self.clusters)

    def terms(self, theta: Array) -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def score(self, theta: Array, weights: Array) -> Array:
        return np.asarray(weights @ self.combined(theta))

    def curvature(self, theta: Array, weights: Array, v: Array) -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def terms_along(self, theta: Array, v: Array) -> Iterator[tuple[slice, Array]]:
        yield slice(0, self.n), self.combined(theta) @ v

    def sum_blocks(
        self, theta: Array, v: Array, reduce: Callable[..., Any], *row_arrays: NDArray[Any]
    ) -> Any:
        return sum_of_blocks(self, theta, v, reduce, *row_arrays)

    def units(self, theta: Array, weights: Weights, penalty: Penalty) -> Array:
        return self.root(theta, weights).units

    def root(self, theta: Array, weights: Weights) -> "Root":
        key = theta, weights.values
        found: Root = self.cache.get(key, "root", lambda: Root(self, theta, weights))
        return found

    def at(self, theta: Array, weights: Weights) -> "EquationRows":
        """Differentiate anew, in steps of standard errors; the combination stays."""
        if self.slope is None:
            return self
        units = self.root(theta, weights).units
        return self._with_slope(self.system(weights).slope(theta, units).value, self.combination)

    def system(self, weights: Weights) -> System:
        """Weigh the equations, (n, q)."""
        return System(self.equations, weights.values)

    def differentiated(
        self,
        theta: Array,
        weights: Weights,
        weighting: Array | None,
        names: Sequence[str] | None = None,
    ) -> "EquationRows":
        """Differentiate the sum and combine the equations by W; raise if that is singular."""
        system = self.system(weights)
        rough = system.slope(theta)
        certain = Derivative(rough.value, np.zeros_like(rough.error))  # steps are rough, too
        check_regular(system, theta, certain, names)
        found = self._with_slope(rough.value, combination_of(rough.value, weighting))
        if not np.any(rough.error):
            return found
        slope = system.slope(theta, found.root(theta, weights).units)
        check_regular(system, theta, slope, names)
        return self._with_slope(slope.value, combination_of(slope.value, weighting))

    def _with_slope(self, slope: Array, combination: Array | None) -> "EquationRows":
        return replace(self, slope=slope, combination=combination, cache=LastCache())


def combination_of(slope: Array, W: Array | None) -> Array | None:
    """Combine more equations than parameters to as many: the condition of first order of GMM."""
    return None if W is None else np.asarray(slope.T @ W)


@dataclass(frozen=True, eq=False)
class Root:
    """Parameters at which weighted equations sum to zero, with B the Jacobian of that sum."""

    rows: EquationRows
    theta: Array
    weights: Weights

    @property
    def given(self) -> Callable[[Array], Any] | None:
        """The derivative of the sum, if the user gave it."""
        return self.rows.equations.given

    def total(self, theta: Array) -> Array:
        """Weighted sum of the (combined) equations, (d,)."""
        return self.rows.score(theta, self.weights.values)

    @cached_property
    def factor(self) -> BalancedLU:
        """The factorized B, (d, d)."""
        slope, combination = self.rows.slope, self.rows.combination
        if slope is None:
            raise UnsupportedModelError(
                f"The covariance of {self.theta.size} parameters is not formed, and a `Statistic` "
                "or `Smoothed` of estimating equations takes it. Use `bootstrap(fit, data, psi)`."
            )
        return BalancedLU.of(slope if combination is None else combination @ slope)

    @cached_property
    def scatter(self) -> Array:
        """Sum of outer products of the equations, (d, d)."""
        return self.rows.scatter(self.theta, self.weights)

    @cached_property
    def covariance(self) -> Array:
        """The sandwich, (d, d), without a correction for small samples."""
        return symmetric(self.factor.solve(self.factor.solve(self.scatter).T))

    @property
    def errors(self) -> Array:
        """Standard errors, (d,); zero where they are rounding."""
        errors = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return np.where(errors > NOISELESS * abs(self.theta), errors, 0.0)

    @cached_property
    def units(self) -> Array:
        """The standard error of each parameter: the unit of all steps, (d,)."""
        rough = ROUGH * sizes(self.theta)
        return rough if self.rows.slope is None else np.where(self.errors > 0, self.errors, rough)

    def duals(self, gradients: Array) -> Array:
        r"""Solve :math:`-B' v = g` for each column: (d, K) to weights of the equations, (d, K)."""
        if self.rows.slope is not None:
            return -self.factor.solve_transposed(gradients)
        return np.stack([-self._gmres(g) for g in gradients.T], axis=1)

    def moves(self, v: Array) -> Array | None:
        """Move theta, (d, K), by one standard deviation of the equations along v, if B is known."""
        return None if self.rows.slope is None else -self.factor.solve(self.scatter @ v)

    def _gmres(self, g: Array) -> Array:
        """Solve with products of B' alone, each a traced pass."""
        system, d = self.rows.system(self.weights), self.theta.size
        B = LinearOperator((d, d), lambda u: system.pulled(self.theta, u.ravel()))
        u, left = gmres(B, g, rtol=GMRES_RTOL, restart=min(d, 100), maxiter=GMRES_ROUNDS)
        if left:
            raise ConvergenceError(
                f"GMRES did not solve with the Jacobian of {d} equations to "
                f"{GMRES_RTOL:g}. Usual causes: equations of very different scales, or nearly "
                "redundant parameters. Scale each equation and parameter to about one."
            )
        return np.asarray(u)

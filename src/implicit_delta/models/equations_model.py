"""Estimating equations at their root: a model that is known by its rows alone."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

import numpy as np
from scipy.sparse.linalg import LinearOperator, gmres

from implicit_delta._core.arguments import as_parameters
from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import ConvergenceError, UnsupportedModelError
from implicit_delta.models.base import Curvature, FittedModel, Whitened, scatter_of
from implicit_delta.models.equation_roots import Hansen
from implicit_delta.models.equation_system import BalancedLU, System, check_regular
from implicit_delta.models.facts import NO_FACTS, Facts
from implicit_delta.models.jacobian import jacobian_of
from implicit_delta.models.named_theta import Layout, as_named, speaking
from implicit_delta.models.weights import Weights
from implicit_delta.numerics.arrays import symmetric
from implicit_delta.numerics.derivatives import Derivative
from implicit_delta.numerics.lengths import sizes
from implicit_delta.numerics.tracing import trace

ROUGH = 1e-2  # of the size of a parameter: a step where there is no standard error
NOISELESS = 1e-12  # of the size of a parameter: a standard error that is rounding
GMRES_RTOL, GMRES_ROUNDS = 1e-10, 200

NO_OBJECTIVE = (
    "Estimating equations have no log-likelihood, which this method or call is about: they are "
    "known by a root and by the rows that sum to zero there. Use `infer(model, psi)` without "
    "`method=`, whose variance is the sandwich."
)
NO_LEVERAGE = (
    "HC2, HC3 and CR2 make up for the leverage of rows on their outputs (means, logits), and "
    'estimating equations show none. Use robust="HC1" or, with clusters, robust="CR1" or "CR1S".'
)


@dataclass(frozen=True, eq=False, repr=False)
class EquationsModel(FittedModel):
    """Estimating equations at their root; made by `from_equations`.

    More equations than parameters are combined to as many, ``combination @ m_i``: the condition of
    first order of GMM, whose root theta is. There are no terms and no objective; `score` is the
    sum of the (combined) equations, and directions of responses are weights of these, so that
    `terms_along` makes the influences.
    """

    system: System
    theta: Array
    weights: Weights
    facts: Facts = NO_FACTS
    names: tuple[str, ...] | None = None
    slope: Array | None = None  # of the summed equations, (q, d); not kept for many parameters
    combination: Array | None = None
    hansen: Hansen | None = None
    layout: Layout | None = None
    sandwiched = True
    maker = "from_equations"

    def __post_init__(self) -> None:
        object.__setattr__(self, "theta", as_named(self.theta, self.layout))

    @property
    def passes(self) -> int:
        return self.system.counter.count

    def equations(self, theta: Array) -> Array:
        """Equations of each row, (n, d), combined to as many as parameters."""
        rows = self.system.rows(theta)
        return rows if self.combination is None else np.asarray(rows @ self.combination.T)

    def scatter_at(self, theta: Array) -> Array:
        """Sum of outer products of the rows of all equations, (q, q)."""
        rows = self.weights.per_observation(self.system.rows(theta))
        return scatter_of(rows, self.weights.counts, self.facts.host.clusters)

    def score(self, theta: Array) -> Array:
        return np.asarray(self.weights.values @ self.equations(theta))

    def terms_along(self, theta: Array, v: Array) -> Array:
        return np.asarray(self.equations(theta) @ v)

    def duals(self, gradients: Array) -> Array:
        r"""Solve :math:`-B' v = g` for each column: (d, K) to weights of the equations, (d, K)."""
        if self.slope is not None:
            return -self.factor.solve_transposed(gradients)
        return np.stack([-self._gmres(g) for g in gradients.T], axis=1)

    def moves(self, v: Array) -> Array | None:
        """Move theta, (d, K), by one standard deviation of the equations along v."""
        if self.slope is None:
            return None
        return -self.factor.solve(self._scatter @ v)

    def evaluate(self, psi: Psi, theta: Array) -> Array:
        return np.asarray(speaking(psi, self.layout)(theta.copy()))

    def jacobian(self, psi: Psi, theta: Array) -> Array:
        psi = speaking(psi, self.layout)
        return jacobian_of(psi, theta, self.units, trace(psi, theta))

    def reweighted(self, weights: Array) -> "EquationsModel":
        checked = self.weights.replaced(weights)
        system = replace(self.system, weights=checked.values)
        changed = replace(self, system=system, weights=checked)
        return changed._relinearized()

    def at(self, theta: Array) -> "EquationsModel":
        point = as_parameters(theta)
        facts = self.facts.moved(point - np.asarray(self.theta))
        return replace(self, theta=point, facts=facts)._relinearized()

    def terms(self, theta: Array) -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def objective(self, theta: Array) -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        raise UnsupportedModelError(NO_LEVERAGE)

    def describe(self) -> dict[str, str]:
        more = "" if self.hansen is None else f", {self.hansen.df} more than parameters"
        label = {"equations": f"{getattr(self.system.function, '__name__', 'a function')}{more}"}
        if self.hansen is None:
            return label
        return {**label, "Hansen's J": f"{self.hansen.statistic:.4g} (p {self.hansen.p_value:.3g})"}

    @cached_property
    def units(self) -> Array:
        """The standard error of each parameter: the unit of all steps."""
        rough = ROUGH * sizes(self.theta)
        return rough if self.slope is None else np.where(self.errors > 0, self.errors, rough)

    @property
    def errors(self) -> Array:
        """Standard errors, (d,); zero where they are rounding."""
        errors = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return np.where(errors > NOISELESS * abs(self.theta), errors, 0.0)

    @cached_property
    def covariance(self) -> Array:
        """The sandwich, (d, d), without a correction for small samples."""
        if self.slope is None:
            raise UnsupportedModelError(
                f"The covariance of {self.d} parameters is not formed, and a `Statistic` or "
                "`Smoothed` of estimating equations takes it. Use `bootstrap(fit, data, psi)`."
            )
        return symmetric(self.factor.solve(self.factor.solve(self._scatter).T))

    def linearized(self, weighting: Array | None) -> Array:
        """Differentiate the sum, (q, d), in steps of standard errors; refuse what is singular."""
        rough = self.system.slope(self.theta)
        check_regular(self.system, self.theta, _certain(rough), self.names)
        if not np.any(rough.error):
            return rough.value
        combination = combination_of(rough.value, weighting)
        units = replace(self, slope=rough.value, combination=combination).units
        slope = self.system.slope(self.theta, units)
        check_regular(self.system, self.theta, slope, self.names)
        return slope.value

    def _relinearized(self) -> "EquationsModel":
        """Differentiate anew; the combination of equations stays."""
        if self.slope is None:
            return self
        return replace(self, slope=self.system.slope(self.theta, self.units).value)

    @property
    def _square(self) -> Array:
        assert self.slope is not None
        return self.slope if self.combination is None else np.asarray(self.combination @ self.slope)

    @cached_property
    def factor(self) -> BalancedLU:
        """The Jacobian B of the summed, combined equations."""
        return BalancedLU.of(self._square)

    @cached_property
    def _scatter(self) -> Array:
        rows = self.weights.per_observation(self.equations(self.theta))
        return scatter_of(rows, self.weights.counts, self.facts.host.clusters)

    def _gmres(self, g: Array) -> Array:
        """Solve with products of B' alone, each a traced pass."""
        B = LinearOperator((self.d, self.d), lambda u: self.system.pulled(self.theta, u.ravel()))
        u, left = gmres(B, g, rtol=GMRES_RTOL, restart=min(self.d, 100), maxiter=GMRES_ROUNDS)
        if left:
            raise ConvergenceError(
                f"GMRES did not solve with the Jacobian of {self.d} equations to "
                f"{GMRES_RTOL:g}. Usual causes: equations of very different scales, or nearly "
                "redundant parameters. Scale each equation and parameter to about one."
            )
        return np.asarray(u)


def _certain(slope: Derivative) -> Derivative:
    """Leave the error of rough steps out: these are not yet in the unit of the parameters."""
    return Derivative(slope.value, np.zeros_like(slope.error))


def combination_of(slope: Array, W: Array | None) -> Array | None:
    """Combine more equations than parameters to as many: the condition of first order of GMM."""
    return None if W is None else np.asarray(slope.T @ W)

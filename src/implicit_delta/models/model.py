"""The fitted model: final, and made of parts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np

from implicit_delta.core.arguments import as_parameters
from implicit_delta.core.clusters import Clusters
from implicit_delta.core.doors import door
from implicit_delta.core.types import Array, Psi
from implicit_delta.models.facts import NO_FACTS, Curvature, Facts
from implicit_delta.models.language import OfLanguage
from implicit_delta.models.named_theta import as_named
from implicit_delta.models.objective import objective_of
from implicit_delta.models.outputs import gauss_newton
from implicit_delta.models.penalty import NO_PENALTY, Penalty
from implicit_delta.models.printing import described, headline
from implicit_delta.models.reducers import Outer, SumsWithin
from implicit_delta.models.refit_fixed import fit_constrained, fit_fixed, fit_released
from implicit_delta.models.rows import DifferencedRows, LocalRows, Rows
from implicit_delta.models.space import Space
from implicit_delta.models.weights import Weights


@final
@dataclass(frozen=True, eq=False, repr=False)
class FittedModel:
    r"""A log-likelihood that is a sum over observations, and the parameters that maximize it.

    The objective is :math:`L(\theta) = \sum_i w_i \ell_i(\theta) - \text{penalty}(\theta)` with n
    terms :math:`\ell_i`, weights :math:`w_i` and d parameters. At this boundary every array is
    NumPy float64 (vectors of length d may be float32 if d is too large for that) and the parameters
    are one flat vector. Made by the `from_*` functions; a backend of your own is a `Rows`, and
    `implicit_delta.testing.check_model` checks it.

    Attributes
    ----------
    theta : (d,) array
        Where the objective is maximal.
    rows : Rows
        The terms, from a backend.
    weights : Weights
        How much each term counts, and what that means.
    penalty : Penalty
        What is subtracted from the log-likelihood.
    space : Space
        Names, constraints and fixed parameters; how psi gets theta.
    facts : Facts
        Training, host library and noise: what is known about the fit apart from its likelihood.
    """

    theta: Array
    rows: Rows
    weights: Weights
    penalty: Penalty = NO_PENALTY
    space: Space = field(default_factory=Space)
    facts: Facts = NO_FACTS

    module: ClassVar = OfLanguage("from_torch", "The fitted module: a copy, in eval mode.")
    params: ClassVar = OfLanguage("from_jax", "The fitted pytree of parameters.")
    apply: ClassVar = OfLanguage("from_jax", "Outputs by the fitted function, for psi to call.")

    def __post_init__(self) -> None:
        """Name theta; let a penalty that is differentiated have the units of the model."""
        if self.space.layout is not None and self.space.chart is None:
            object.__setattr__(self, "theta", as_named(self.theta, self.space.layout))
        object.__setattr__(self, "penalty", self.penalty.of_model(self))

    @property
    def n(self) -> int:
        """Number of observations."""
        return self.rows.n

    @property
    def d(self) -> int:
        """Number of parameters."""
        return self.theta.size

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the parameters, if they have any."""
        return self.space.names

    def objective(self, theta: Array) -> float:
        """Weighted sum of the terms less the penalty, L."""
        return objective_of(self).objective(theta)

    def score(self, theta: Array) -> Array:
        """Gradient of L, (d,)."""
        return objective_of(self).score(theta)

    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> Array:
        """Minus the Hessian of L (or its Gauss-Newton part) times v, for (d,) or a block (d, k)."""
        if curvature == "hessian" or not self.rows.symmetric:
            return objective_of(self).information(theta, v)
        own = gauss_newton(self, theta, v)
        return own + self.penalty.curvature(theta, v) if self.penalty.parts else own

    def terms_along(self, theta: Array, v: Array) -> Array:
        """Derivative of each term along each column of v: (d, k) to (n, k), not weighted."""
        self.facts.require_rows()
        return objective_of(self).terms_along(theta, v)

    def scatter(self, theta: Array, v: Array, clusters: Clusters | None = None) -> Array:
        r"""Sum over observations of outer products of influences along v: (d, k) to (k, k).

        :math:`\sum_i w_i f_i f_i'` with :math:`f_i` the derivatives of term i along the columns of
        v (:math:`\sum_i w_i^2 f_i f_i'` where weights are no counts), or with clusters the sum over
        these of the outer product of their sums of :math:`w_i f_i`. It is all that robust and
        clustered variances need of the rows.
        """
        self.facts.require_rows()
        objective, arrays = objective_of(self), (self.weights.counts, self.weights.factors)
        if clusters is None:
            return np.asarray(objective.sum_blocks(theta, v, Outer(), *arrays))
        within = SumsWithin(clusters.count)
        sums = objective.sum_blocks(theta, v, within, *arrays, clusters.codes)
        return np.asarray(sums.outer())

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        """Psi of the model at theta, in NumPy: (), (K,), or (m, K) to average."""
        return self.space.language.evaluate(psi, theta)

    def jacobian(self, psi: Psi, theta: Array) -> Array:
        """Jacobian of psi, (K, d); K = 1 for a scalar psi."""
        return self.space.language.jacobian(psi, theta, lambda: objective_of(self).units)

    def at(self, theta: Array) -> "FittedModel":
        """Build the same model at another theta."""
        self.facts.require_terms()
        point = as_parameters(theta).astype(self.theta.dtype, copy=False)
        rows = self.rows.at(point, self.weights) if isinstance(self.rows, LocalRows) else self.rows
        return replace(
            self,
            theta=point,
            rows=rows.arrived() if isinstance(rows, DifferencedRows) else rows,
            space=self.space.at(point),
            facts=self.facts.moved(point - np.asarray(self.theta)),
        )

    # For users.

    @property
    def covariance(self) -> Array:
        """Covariance of the parameters, (d, d), as ``infer(model, parameters)`` finds it.

        It is computed at each access. Parameters that are fixed have zeros.
        """
        return np.asarray(door("covariance")(self))

    @property
    def aic(self) -> float:
        """Akaike's criterion; an estimated noise variance counts as a parameter, as in R.

        Raises `UnsupportedModelError` where the constants of the log-likelihood are not known:
        models of other libraries (use ``results.aic``), networks, penalized fits.
        """
        return float(door("criterion")(self, "aic"))

    @property
    def bic(self) -> float:
        """The criterion of Schwarz, the Bayesian one; see `aic`."""
        return float(door("criterion")(self, "bic"))

    def fix(self, values: Mapping[Any, Any] | None = None, /, **named: Any) -> "FittedModel":
        """Hold parameters at given values, and fit the rest from where it is.

        ``model.fix(mu=5.0)``, or by position ``model.fix({0: 5.0})``. Psi still gets all of theta;
        among `parameters`, what is fixed has an error of zero. Bounds stay for when it is released.
        """
        return fit_fixed(self, values, named)

    def release(self, *names: Any) -> "FittedModel":
        """Let parameters that `fix` holds vary again, all of them by default, and fit the model."""
        return fit_released(self, names)

    def constrain(self, bounds: Any = None, constraints: Any = ()) -> "FittedModel":
        """Add bounds and constraints, and fit the parameters under them from where they are.

        ``model.constrain(bounds={"x1": (0, None)})``, or
        ``model.constrain(constraints={"type": "eq", "fun": lambda th: th.x1 - th.x2})``: what
        `from_loglik` takes as ``bounds=`` and ``constraints=``, for models of every library.
        Functions get the parameters by name; standard errors are along what is active.
        """
        return fit_constrained(self, bounds, constraints)

    def summary(self, confidence_level: float = 0.95) -> Any:
        """Put parameters, fit, correlations and distances from bounds in a table.

        The standard errors are those of ``infer(model, parameters)``. AIC and BIC count a noise
        variance that was estimated as a parameter, like R.

        Returns
        -------
        Summary
        """
        return door("summary")(self, confidence_level)

    def __add__(self, other: Any) -> "FittedModel":
        """Fit both data sets together; see `combine`."""
        if not isinstance(other, FittedModel):
            return NotImplemented
        from implicit_delta.models.combined import combine

        return combine(self, other)

    def __radd__(self, other: Any) -> "FittedModel":
        """Let `sum([m1, m2])` begin with its zero."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def _repr_html_(self) -> str | None:
        """Return the table of `summary` for notebooks, if there is one."""
        found: str | None = door("html")(self)
        return found

    def __repr__(self) -> str:
        rows = f"{self.n} observations, " if self.n else ""
        return described(self, f"FittedModel: {rows}{self.d} parameters")

    def __str__(self) -> str:
        return described(self, headline(self)) if self.facts.source else repr(self)

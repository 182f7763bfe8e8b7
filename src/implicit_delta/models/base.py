"""Contract of a fitted model: every backend implements it, and methods see nothing else."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_delta._core.arguments import as_rate
from implicit_delta._core.clusters import Clusters
from implicit_delta._core.doors import door
from implicit_delta._core.limits import GAUSS_NEWTON_LIMIT
from implicit_delta._core.precision import DOUBLE, Precision
from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import NotAMaximumError, SaddlePointError, UnsupportedModelError
from implicit_delta.models.constraints import Active, Chart, Constraints, refuse_no_freedom
from implicit_delta.models.facts import NO_FACTS, Facts
from implicit_delta.models.facts import Curvature as Curvature
from implicit_delta.models.language import NO_TANGENT as NO_TANGENT
from implicit_delta.models.named_theta import Layout
from implicit_delta.models.outer_products import OuterProducts
from implicit_delta.models.penalty import NO_PENALTY, Penalty
from implicit_delta.models.processes import processes_of
from implicit_delta.models.rows import Whitened as Whitened
from implicit_delta.models.rows import units_of
from implicit_delta.models.weights import Weights
from implicit_delta.numerics.solvers import Factor

RowNumbers: TypeAlias = NDArray[np.integer[Any]]  # of the observations in a batch, (B,)
Bonus: TypeAlias = Callable[[Array, RowNumbers], Array]  # gradient of what is added to L, (d,)

NO_OUTPUTS = (
    "Leverage is that of the outputs of a row (means, linear predictors, logits), and a "
    "log-likelihood function of the parameters shows none. Use `from_residuals` or, for a "
    "generalized linear model or a network, a likelihood such as `Bernoulli()` or `Poisson()`; "
    'with this model robust="HC1", robust="CR1" or `Bootstrap()`.'
)

NO_LEVERAGE = (
    "HC2, HC3 and CR2 make up for the leverage of rows on their outputs (means, logits), and "
    'estimating equations show none. Use robust="HC1" or, with clusters, robust="CR1" or "CR1S".'
)

NOT_FIXED = (
    "Parameters are fixed in models of `from_loglik`, `from_residuals`, `from_statsmodels` and "
    "`from_sklearn`, which are fitted again here. Fit this one again in its own library, without "
    "the term; write a fixed number into estimating equations."
)


class FittedModel(ABC):
    r"""A log-likelihood that is a sum over observations, and the parameters that maximize it.

    The objective is :math:`L(\theta) = \sum_i w_i \ell_i(\theta) - \text{penalty}(\theta)` with n
    terms :math:`\ell_i`, weights :math:`w_i` and d parameters. At this boundary every
    array is NumPy float64 (vectors of length d may be float32 if d is too large for that) and the
    parameters are one flat vector; inside, a backend works in its own types. A backend is one
    final class with these members and nothing optional; `implicit_delta.testing.check_model`
    checks it.

    Attributes
    ----------
    theta : (d,) array
        Where the objective is maximal.
    weights : Weights
        How much each term counts, and what that means.
    penalty : Penalty
        What is subtracted from the log-likelihood.
    passes : int
        How many times all n observations have been visited so far.
    names : tuple of str or None
        Names of the d parameters, if they have any.
    layout : Layout or None
        Names by which functions of theta get its entries.
    curvature : {"hessian", "ggn"}
        The default method's choice for a variance that is not robust: "ggn" only where the
        host library's own standard errors rest on it.
    precision : Precision
        The type of the numbers that it computes with.
    bends : bool
        Whether the outputs of a row bend in the parameters, as those of a network do: draws are
        then made in the tangent.
    sandwiched : bool
        Whether the model has no terms and no objective: its variance is always the sandwich of the
        rows, or the covariance of the host.
    constraints : Constraints or None
        What theta was fitted under.
    chart : Chart or None
        Of a model that `free` has made: how all parameters follow from its theta.
    whole : FittedModel or None
        Of such a model: the one of all parameters.
    fixed : mapping of int to float
        Values of the parameters that `fix` holds, by their places.
    facts : Facts
        Training, host library and noise: what is known about the fit apart from its likelihood.
    """

    theta: Array
    weights: Weights
    penalty: Penalty = NO_PENALTY
    names: tuple[str, ...] | None
    layout: Layout | None = None
    curvature: Curvature = "hessian"
    precision: Precision = DOUBLE
    bends: bool = False
    sandwiched: bool = False
    constraints: Constraints | None = None
    chart: Chart | None = None
    whole: "FittedModel | None" = None
    fixed: Mapping[int, float] = MappingProxyType({})
    facts: Facts = NO_FACTS

    @property
    def checkpoints(self) -> Array | None:
        """States of the last steps of the training that theta comes from, (c, d), if given."""
        return self.facts.training.checkpoints

    @property
    def n(self) -> int:
        """The number of observations."""
        return self.weights.values.size

    @property
    def d(self) -> int:
        """The number of parameters."""
        return self.theta.size

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
        return float(door("aic")(self))

    @property
    def formable(self) -> bool:
        """Whether the Gauss-Newton matrix is better formed than multiplied with."""
        return self.d <= GAUSS_NEWTON_LIMIT

    def gauss_newton_part(self, theta: Array, columns: int) -> Array | None:
        """Matrix (d, d) that is at most the Gauss-Newton matrix, near to it and cheaper to form.

        None where there is none, or where the products that make up for the rest, some ten for
        each of so many columns, take longer.
        """
        return None

    @property
    def outer_products(self) -> OuterProducts | None:
        """Curvature at theta in the metric of the score rows, where these tell it."""
        return None

    def metric(self, theta: Array) -> Factor | None:
        """Factorize the sum of outer products of the score rows, where these are at hand."""
        return None

    @property
    def travelled(self) -> Array:
        """Way of the training from its start, or from zero, (d,)."""
        start = self.facts.training.start
        return self.theta if start is None else self.theta - start

    @property
    @abstractmethod
    def passes(self) -> int:
        """Passes over all n observations so far."""

    @abstractmethod
    def terms(self, theta: Array) -> Array:
        """Log-likelihood of each observation, (n,), not weighted."""

    @abstractmethod
    def objective(self, theta: Array) -> float:
        """L: the weighted sum of the terms less the penalty."""

    @abstractmethod
    def score(self, theta: Array) -> Array:
        """Gradient of L, (d,)."""

    def swift_score(self, theta: Array) -> Array:
        """Gradient of L for products that are checked later, (d,); NaN where there is none."""
        return self.score(theta)

    def explained(self, error: NotAMaximumError) -> NotAMaximumError:
        """Name the parameters that an error is about, or what to do about a network."""
        if isinstance(error, SaddlePointError) and self.bends and np.any(self.travelled):
            return error.of_network()
        return error.named(self.names)

    def check_unchanged(self) -> None:  # noqa: B027
        """Refuse a model whose data have changed since its fit, where that can be seen."""

    def approached(self) -> Self | None:
        """Build the model close to its maximum, where that can be had cheaply."""
        return None

    @abstractmethod
    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> Array:
        """Minus the Hessian of L (or its Gauss-Newton part) times v, for (d,) or a block (d, k)."""

    @abstractmethod
    def terms_along(self, theta: Array, v: Array) -> Array:
        """Derivative of each term along each column of v: (d, k) to (n, k), not weighted."""

    @abstractmethod
    def evaluate(self, psi: Psi, theta: Array) -> Array:
        """Psi of the model at theta, in NumPy: (), (K,), or (m, K) to average."""

    @abstractmethod
    def jacobian(self, psi: Psi, theta: Array) -> Array:
        """Jacobian of psi, (K, d); K = 1 for a scalar psi."""

    @abstractmethod
    def reweighted(self, weights: Array) -> Self:
        """Build the same model at the same theta with these weights instead of its own."""

    @abstractmethod
    def at(self, theta: Array) -> Self:
        """Build the same model at another theta."""

    def renoised(self) -> tuple[Self, float]:
        """Estimate the noise variance again, at theta; with its ratio to the one before.

        A model without an estimated variance is returned as it is.
        """
        return self, 1.0

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        r"""Evaluate psi like `evaluate`, of the tangent :math:`f(x; \theta) + J(x) \delta`.

        The outputs of the model are linear in delta, (d,); psi may do with them whatever it does.
        """
        raise UnsupportedModelError(NO_TANGENT)

    def tangent(self) -> Self:
        """Build the tangent of this model at its theta, as a model of its own."""
        raise UnsupportedModelError(
            "The tangent of a model is that of the outputs of a network, and this one has linear "
            "predictors, or parameters that psi gets themselves: `polish(model)` is for these."
        )

    def tethered(self) -> Self:
        """Build the model of a training that stopped where it is: tied to its start.

        Stopping early is read as a ridge around the start of the training, whose strength is that
        of the evidence. The objective has that ridge in it, so that theta is close to its maximum.
        """
        raise UnsupportedModelError(
            "A training that stopped early is one of a network with a likelihood such as "
            "`Categorical()`: `from_torch` or `from_jax`."
        )

    def redrawn(self, rng: np.random.Generator) -> Self:
        """Build the same model at the same theta with targets that are drawn from it.

        A backend that knows a distribution, and not only a log-likelihood, overrides it.
        """
        raise cannot_draw("the log-likelihood is a function of the parameters", self.n)

    def check_maximum(self) -> None:
        """Refuse a saddle, which a Gauss-Newton matrix does not show, where that is the default."""
        return

    @property
    def strata(self) -> tuple[slice, ...]:
        """Rows that were sampled together: all, or those of each of several data sets."""
        return (slice(0, self.n),)

    def stated(self, theta: Array, v: Array) -> Array | None:
        """Variance, (K, K), of what was measured once with a stated error, along (d, K).

        Rows cannot tell it: the score of one alone is zero at the maximum.
        """
        return None

    def measured_again(self, rng: np.random.Generator) -> Self:
        """Build the same model with new draws of what was measured once."""
        return self

    # Derived from the members above; a backend may know a faster way.

    @property
    def units(self) -> Array:
        """Standard error of each parameter, the others held fixed, (d,)."""
        return units_of(self.information(self.theta, np.eye(self.d)))

    def active(self, strict: bool = False) -> Active | None:
        """Find the constraints that hold theta where it is; None without any constraints."""
        if self.constraints is None:
            return None
        if self.chart is not None:
            return self.chart.active
        return self.constraints.active(self.theta, self.slope_inside, self.units, strict)

    def fix(self, values: Mapping[Any, Any] | None = None, /, **named: Any) -> "FittedModel":
        """Hold parameters at given values, and fit the rest from where it is.

        ``model.fix(mu=5.0)``, or by position ``model.fix({0: 5.0})``. Psi still gets all of theta;
        the error of what is fixed is zero. Bounds stay for when it is released.
        """
        raise UnsupportedModelError(NOT_FIXED)

    def release(self, *names: Any) -> "FittedModel":
        """Let parameters that `fix` holds vary again, all of them by default, and fit the model."""
        raise UnsupportedModelError(NOT_FIXED)

    def slope_inside(self, theta: Array) -> Array:
        """Gradient of L, (d,); from inside of the constraints where that is."""
        return self.score(theta)

    def free(self) -> "FittedModel":
        """Build the same model in coordinates along its active constraints, if there are any."""
        active = None if self.chart is not None else self.active()
        chart = None if active is None else active.chart(self.theta, self.units)
        if active is None or chart is None:
            return self
        if not chart.free.size:
            refuse_no_freedom(active)
        return self.along(chart)

    def allows(self, theta: Array) -> bool:
        """Whether theta satisfies the constraints."""
        if self.constraints is None:
            return True
        return self.constraints.holds(theta if self.chart is None else self.chart.point(theta))

    def along(self, chart: Chart) -> "FittedModel":
        """Build the same model in the coordinates of a chart."""
        raise UnsupportedModelError(f"{type(self).__name__} takes no constraints.")

    def describe(self) -> dict[str, str]:
        """Describe the objective for `print(model)`: short texts by label, three at most."""
        l2 = self.penalty.given.floor
        return {"l2": f"{l2:g}"} if l2 else {}

    def __repr__(self) -> str:
        """Print class, sizes and objective in at most five lines, without arrays.

        A dataclass needs ``repr=False`` to inherit it.
        """
        rows = f"{self.n} observations, " if self.n else ""
        return self._told(f"{type(self).__name__}: {rows}{self.d} parameters")

    def __str__(self) -> str:
        """Print the same below a line with the log-likelihood, where that is known."""
        return self._told(self.headline()) if self.maker else repr(self)

    def headline(self) -> str:
        """Write where the model comes from, its sizes and its log-likelihood in one line."""
        held = f" ({len(self.fixed)} fixed)" if self.fixed else ""
        rows = f"{self.n} rows, " if self.n else ""
        sizes = f"{self.maker or type(self).__name__}: {rows}{self.d} parameters{held}"
        value = np.nan if processes_of(self).is_collective else self.log_likelihood()
        if not np.isfinite(value):
            return sizes
        digits = f"{value:.1f}" if 100 <= abs(value) < 1e9 else f"{value:.4g}"
        return f"{sizes}, log-likelihood {digits}"

    def summary(self, confidence_level: float = 0.95) -> Any:
        """Put parameters, fit, correlations and distances from bounds in a table.

        The standard errors are those of ``infer(model, parameters)``. AIC and BIC count a noise
        variance that was estimated as a parameter, like R.

        Returns
        -------
        Summary
        """
        return door("summary")(self, confidence_level)

    def as_start(self, theta: Array) -> str:
        """Write all parameters as one would give them as `start=`."""
        point = theta if self.chart is None else self.chart.point(theta)
        numbers = [f"{value:.6g}" for value in point]
        layout = self.layout
        if layout is None or layout.arrays:
            return f"[{', '.join(numbers)}]"
        pairs = zip(layout.names, numbers, strict=True)
        return "{" + ", ".join(f"{name!r}: {number}" for name, number in pairs) + "}"

    @property
    def maker(self) -> str:
        """The function that makes such models, for `print`; none where that is not known."""
        return ""

    def log_likelihood(self) -> float:
        """Log-likelihood at theta with all its constants; NaN where these are not known."""
        return np.nan

    def _told(self, sizes: str) -> str:
        labels = {**self.describe()}
        if np.any(self.weights.values != 1):
            labels["weights"] = f"{range_of(self.weights.values)} ({self.weights.kind})"
        return "\n".join([sizes, *(f"  {label}: {text}" for label, text in labels.items())])

    def doubt_of(self, psi: Any) -> str:
        """Describe what psi most likely gets wrong about this model; usually nothing."""
        return ""

    @property
    def pseudo(self) -> str:
        """Options with which the terms are no log-densities; usually none."""
        return ""

    def with_penalty(self, penalty: Penalty, **others: Any) -> Self:
        """Build the same model at the same theta with another penalty, and what comes with it."""
        return replace(self, penalty=penalty, **others)  # type: ignore[type-var]

    def scatter(self, theta: Array, v: Array, clusters: Clusters | None = None) -> Array:
        r"""Sum over observations of outer products of `influences` along v: (d, k) to (k, k).

        :math:`\sum_i w_i f_i f_i'` with :math:`f_i` the derivatives of term i along the columns of
        v (:math:`\sum_i w_i^2 f_i f_i'` where weights are no counts), or with clusters the sum over
        these of the outer product of their sums of :math:`w_i f_i`. It is all that robust and
        clustered variances need of the rows.
        """
        return scatter_of(self.influences(theta, v), self.weights.counts, clusters)

    def influences(self, theta: Array, v: Array) -> Array:
        """Derivative of the weighted term of each *observation* along v: (d, k) to (n, k).

        Of a row that stands for several, `counts`, that of each of them.
        """
        return self.weights.per_observation(self.terms_along(theta, v))

    def curvature_noise(self, theta: Array, rng: np.random.Generator, count: int) -> Array | None:
        """Draw vectors with the Gauss-Newton matrix as covariance, (d, count).

        None where only products with that matrix are known.
        """
        return None

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        """Go through all rows, some at a time, with the derivatives of their outputs along v.

        Not weighted. A model that does not know the outputs of a row explains why.
        """
        raise UnsupportedModelError(NO_OUTPUTS)

    def squared_residuals(self) -> Array | None:
        """Squares of the whitened residuals, (n,), with mean one; None where they say nothing."""
        try:
            parts = [rows.residuals for rows in self.whitened(self.theta, np.zeros((self.d, 1)))]
        except UnsupportedModelError:
            return None
        residuals = np.concatenate(parts)
        return residuals[:, 0] ** 2 if residuals.shape[1] == 1 else None

    def dispersion(self) -> float:
        """Sum of squared whitened residuals over their number less d; NaN where it says nothing.

        It is about one if the model is right, or has estimated it.
        """
        freedom = float(np.sum(self.weights.counts)) - self.d
        squares = self.squared_residuals() if freedom > 0 else None
        return np.nan if squares is None else float(self.weights.values @ squares) / freedom

    def batch_score(self, theta: Array, rows: RowNumbers) -> Array:
        """Estimate the score, (d,), from a batch of observations given by their numbers, (B,)."""
        return self.reweighted(self.weights.of_batch(rows)).score(theta)

    def ascend(
        self, bonus: Bonus | None, batches: Iterable[RowNumbers], optimizer: Any
    ) -> Iterator[Array]:
        """Yield theta (d,) after each step of a stochastic training that starts at theta.

        A step climbs ``(L + bonus) / n`` along the `batch_score` of one batch. The bonus is given
        by its gradient; `optimizer` is a learning rate, or whatever else the backend trains with.
        """
        theta, rate = self.theta, as_rate(optimizer)
        for rows in batches:
            slope = self.batch_score(theta, rows)
            theta = theta + rate / self.n * (slope if bonus is None else slope + bonus(theta, rows))
            yield theta


def require_rows(model: FittedModel) -> None:
    """Raise if the model has no per-row terms."""
    if model.facts.no_rows:
        raise UnsupportedModelError(model.facts.no_rows)


def cannot_draw(reason: str, n: int = 2) -> UnsupportedModelError:
    """Explain why there are no draws from a model of n terms."""
    advice = (
        'Use `Bootstrap(kind="resample")`, which draws rows; `from_residuals`, `from_statsmodels` '
        "and `from_sklearn` know the distribution of most models, so do `from_torch` and "
        "`from_jax` with a likelihood such as `Poisson()`, and `from_loglik` has `simulate=`."
        if n > 1
        else "Give `simulate=` to from_loglik, or use `infer(model, psi)`, by the curvature."
    )
    return UnsupportedModelError(
        f'Bootstrap(kind="parametric") cannot draw new data from this model: {reason}. {advice}'
    )


def range_of(values: Array) -> str:
    """Write the smallest and the largest of some numbers."""
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def scatter_of(rows: Array, counts: Array, clusters: Clusters | None = None) -> Array:
    """Sum outer products of rows (n, k), or of their sums within clusters, to (k, k)."""
    if clusters is None:
        return np.asarray((counts[:, None] * rows).T @ rows)
    sums = clusters.sums(counts[:, None] * rows)
    return np.asarray(sums.T @ sums)

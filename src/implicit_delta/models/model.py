"""The fitted model: final, and made of parts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from implicit_delta._core.arguments import as_parameters
from implicit_delta._core.clusters import Clusters
from implicit_delta._core.limits import GAUSS_NEWTON_LIMIT
from implicit_delta._core.precision import Precision
from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import NotAMaximumError, UnsupportedModelError
from implicit_delta.models.base import (
    NO_LEVERAGE,
    NO_OUTPUTS,
    Bonus,
    FittedModel,
    RowNumbers,
    Whitened,
    cannot_draw,
    range_of,
    require_rows,
)
from implicit_delta.models.claimed import Claimed
from implicit_delta.models.constrained_fit import inner_slope, maximum_along
from implicit_delta.models.constraints import Chart, Constraints
from implicit_delta.models.early_stop import early_stopped
from implicit_delta.models.facts import NO_FACTS, Curvature, Facts
from implicit_delta.models.fixed import fixed_at, released_from
from implicit_delta.models.language import OfLanguage, TangentLanguage, VectorLanguage
from implicit_delta.models.named_theta import Layout, as_named
from implicit_delta.models.noise import with_noise_again, with_scale_again
from implicit_delta.models.outer_products import OuterProducts
from implicit_delta.models.penalty import NO_PENALTY, Penalty, names_of
from implicit_delta.models.prediction import InCoordinates
from implicit_delta.models.reducers import Outer, SumsWithin
from implicit_delta.models.restricted import Restricted
from implicit_delta.models.rows import (
    BatchedRows,
    CheckedRows,
    ComposableRows,
    DifferencedRows,
    FormedOutputs,
    LocalObjective,
    LocalRows,
    MeasuredRows,
    NormalizedRows,
    Outputs,
    PearsonOutputs,
    RedrawableRows,
    RoughRows,
    Rows,
    ScaledRows,
    TangentOutputs,
    TangentRows,
    TotalRows,
    TrainableRows,
)
from implicit_delta.models.sources import measurement_variance
from implicit_delta.models.space import Space
from implicit_delta.models.starts import Optimum, spelled_optima
from implicit_delta.models.weights import Weights
from implicit_delta.numerics.arrays import symmetric
from implicit_delta.numerics.solvers import Factor

if TYPE_CHECKING:
    from implicit_delta.models.equation_roots import Hansen

SADDLE = -0.05  # curvature, in units of each parameter's own, that rough differences leave certain
FEW_COLUMNS = 100  # as many products as a solve and the evidence take
NO_GAUSS_NEWTON = (
    'curvature="ggn" needs to know the outputs of the model and the likelihood of the targets '
    "given them: use `Gaussian()`, `Bernoulli()`, `Categorical()` or `Poisson()`, with `outputs=` "
    "and `targets=` for batches of any make. A loglik function of your own has only "
    'curvature="hessian".'
)
NO_INNER_FUNCTION = (
    'curvature="ggn" needs a model with an inner function whose curvature is left out: '
    "`from_residuals`, `from_torch` or `from_jax`. A plain log-likelihood has only "
    'curvature="hessian".'
)
NO_CURVATURE = 1e-6  # of a redundant direction, by rounding on either side of zero


@final
@dataclass(frozen=True, eq=False, repr=False)
class ComposedModel(FittedModel):
    r"""A sum over rows, and the parameters that maximize it less a penalty.

    The objective is :math:`L(\theta) = \sum_i w_i \ell_i(\theta) - \text{penalty}(\theta)` with n
    terms :math:`\ell_i`, weights :math:`w_i` and d parameters.

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

    def __post_init__(self) -> None:
        """Name theta; let a penalty that is differentiated have the units of the model."""
        if self.space.layout is not None and self.space.chart is None:
            object.__setattr__(self, "theta", as_named(self.theta, self.space.layout))
        object.__setattr__(self, "penalty", self.penalty.of_model(self))

    # What a user's language has, such as `model.module` of `from_torch`.

    module: ClassVar = OfLanguage("from_torch", "The fitted module: a copy, in eval mode.")
    params: ClassVar = OfLanguage("from_jax", "The fitted pytree of parameters.")
    apply: ClassVar = OfLanguage("from_jax", "Outputs by the fitted function, for psi to call.")

    # What the parts know, under the names that the rest of the package uses so far.

    @property
    def names(self) -> tuple[str, ...] | None:  # type: ignore[override]
        return self.space.names

    @property
    def layout(self) -> Layout | None:  # type: ignore[override]
        return self.space.layout

    @property
    def constraints(self) -> Constraints | None:  # type: ignore[override]
        return self.space.constraints

    @property
    def limits(self) -> Constraints | None:
        return self.space.limits

    @property
    def chart(self) -> Chart | None:  # type: ignore[override]
        return self.space.chart

    @property
    def whole(self) -> FittedModel | None:  # type: ignore[override]
        return self.space.whole

    @property
    def fixed(self) -> Mapping[int, float]:  # type: ignore[override]
        return self.space.fixed

    @property
    def curvature(self) -> Curvature:  # type: ignore[override]
        return self.facts.curvature

    @property
    def precision(self) -> Precision:  # type: ignore[override]
        return self.facts.precision

    @property
    def outputs(self) -> Outputs:
        if self.rows.outputs is None:
            usual = NO_OUTPUTS if self.rows.symmetric else NO_LEVERAGE
            raise UnsupportedModelError(self.facts.no_outputs or usual)
        return self.rows.outputs

    @property
    def bends(self) -> bool:  # type: ignore[override]
        psi_gets_theta = isinstance(self.space.language, VectorLanguage)
        outputs = self.rows.outputs
        return outputs is not None and not outputs.is_linear and not psi_gets_theta

    @property
    def sandwiched(self) -> bool:  # type: ignore[override]
        return not self.rows.symmetric

    @property
    def passes(self) -> int:
        return self.rows.passes

    @property
    def maker(self) -> str:
        return self.facts.source

    @property
    def hansen(self) -> "Hansen | None":
        """Hansen's J test, of estimating equations that are more than the parameters."""
        return self.facts.hansen

    @property
    def claimed(self) -> Claimed | None:
        """Covariance of a robust fit of a host library; None if that is the inverse information."""
        return self.facts.host.covariance

    @property
    def pseudo(self) -> str:
        return "" if self.rows.outputs is None else self.rows.outputs.pseudo

    @property
    def optima(self) -> tuple[Optimum, ...]:
        """Maxima that were found from several starts, the best first."""
        return self.facts.optima

    @property
    def strata(self) -> tuple[slice, ...]:
        return tuple(source.rows for source in self.facts.sources) or super().strata

    @property
    def local(self) -> LocalObjective | None:
        """The objective of a user's function, differentiated in the units here."""
        if not isinstance(self.rows, DifferencedRows):
            return None
        return self.rows.around(self.theta, self.weights, self.penalty)

    # The objective and its derivatives.

    def terms(self, theta: Array) -> Array:
        return self.rows.terms(theta)

    def objective(self, theta: Array) -> float:
        if self.local is not None:
            return self.local.objective(theta)
        if isinstance(self.rows, TotalRows):
            total = self.rows.total(theta, self.weights.values)
        else:
            total = self.weights.total(self.rows.terms(theta))
        return total - self.penalty.value(theta)

    def score(self, theta: Array) -> Array:
        if self.local is not None:
            return self.local.score(theta)
        return self.rows.score(theta, self.weights.values) - self.penalty.score(theta)

    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> Array:
        weights, local = self.weights.values, self.local
        if curvature == "hessian" and local is not None:
            return local.information(theta, v)
        if curvature == "hessian" or not self.rows.symmetric:
            own = self.rows.curvature(theta, weights, v)
        elif self.rows.outputs is None:
            usual = NO_GAUSS_NEWTON if local is None else NO_INNER_FUNCTION
            raise UnsupportedModelError(self.facts.no_outputs or usual)
        else:
            own = self.rows.outputs.gauss_newton(theta, weights, v)
        return own + self.penalty.curvature(theta, v) if self.penalty.parts else own

    def terms_along(self, theta: Array, v: Array) -> Array:
        require_rows(self)
        if self.local is not None:
            return self.local.terms_along(theta, v)
        found = np.empty((self.rows.n, v.shape[1]))
        for span, block in self.rows.terms_along(theta, v):
            found[span] = block
        return found

    def scatter(self, theta: Array, v: Array, clusters: Clusters | None = None) -> Array:
        require_rows(self)
        if self.local is not None:
            return super().scatter(theta, v, clusters)
        counts, factors = self.weights.counts, self.weights.factors
        if clusters is None:
            return np.asarray(self.rows.sum_blocks(theta, v, Outer(), counts, factors))
        within = SumsWithin(clusters.count)
        sums = self.rows.sum_blocks(theta, v, within, counts, factors, clusters.codes)
        return np.asarray(sums.outer())

    @property
    def units(self) -> Array:
        if isinstance(self.rows, ScaledRows):
            return self.rows.units(self.theta, self.weights, self.penalty)
        return super().units

    @property
    def outer_products(self) -> OuterProducts | None:
        return None if self.local is None else self.local.outer_products

    def metric(self, theta: Array) -> Factor | None:
        return None if self.local is None else self.local.metric(theta)

    def swift_score(self, theta: Array) -> Array:
        return self.score(theta) if self.local is None else self.local.swift_score(theta)

    def slope_inside(self, theta: Array) -> Array:
        """Differentiate one-sidedly where L ends together with what bounds allow."""
        try:
            return self.score(theta)
        except UnsupportedModelError:
            if self.local is None:
                raise
            return inner_slope(self.objective, theta, self.constraints)

    def explained(self, error: NotAMaximumError) -> NotAMaximumError:
        fitted_here = self.local is not None and self.layout is not None
        if not fitted_here or self.names is None or abs(error.curvature) > NO_CURVATURE:
            return super().explained(error)
        return error.of_own(self.names, np.asarray(self.theta).tolist())

    # Psi.

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        return self.space.language.evaluate(psi, theta)

    def jacobian(self, psi: Psi, theta: Array) -> Array:
        return self.space.language.jacobian(psi, theta, lambda: self.units)

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        return self.space.language.evaluate_tangent(psi, theta, delta)

    def doubt_of(self, psi: Any) -> str:
        return self.space.language.psi_warning(psi)

    # Other models.

    def reweighted(self, weights: Array) -> "ComposedModel":
        same = np.array_equal(weights, self.weights.values)
        facts = self.facts if same else self.facts.with_host(covariance=None)
        fresh = self.weights.replaced(weights)
        return replace(self, rows=self._prepared(self.theta, fresh), weights=fresh, facts=facts)

    def at(self, theta: Array) -> "ComposedModel":
        self._require_likelihood()
        point = as_parameters(theta).astype(self.theta.dtype, copy=False)
        facts = self.facts.moved(point - np.asarray(self.theta))
        rows = self._prepared(point, self.weights)
        return replace(
            self,
            theta=point,
            rows=rows.arrived() if isinstance(rows, DifferencedRows) else rows,
            space=self.space.at(point),
            facts=facts,
        )

    def _prepared(self, theta: Array, weights: Weights) -> Rows:
        return self.rows.at(theta, weights) if isinstance(self.rows, LocalRows) else self.rows

    def with_penalty(self, penalty: Penalty, **others: Any) -> "ComposedModel":
        facts = others.get("facts", self.facts)
        facts = replace(facts, curvature=others.get("curvature", facts.curvature))
        return replace(self, penalty=penalty, facts=facts)

    def renoised(self) -> "tuple[ComposedModel, float]":
        return with_noise_again(self)

    def tethered(self) -> "ComposedModel":
        if not self.bends:
            return super().tethered()
        found: ComposedModel = early_stopped(self)
        return found

    def fix(self, values: Mapping[Any, Any] | None = None, /, **named: Any) -> "ComposedModel":
        self._require_fixing()
        self.check_unchanged()
        return fitted_again(fixed_at(self, values, named))

    def held_at(self, values: Mapping[Any, Any]) -> "ComposedModel":
        """Hold these parameters, all of them if they are all given: the null of a test."""
        self.check_unchanged()
        return fitted_again(fixed_at(self, values, {}, everything=True))

    def release(self, *names: Any) -> "ComposedModel":
        self._require_fixing()
        self.check_unchanged()
        return fitted_again(released_from(self, names))

    def approached(self) -> "ComposedModel | None":
        near = None if self.local is None else self.local.approached()
        return None if near is None else replace(self, theta=near)

    def __add__(self, other: Any) -> "ComposedModel":
        """Fit both data sets together; see `combine`."""
        if not isinstance(other, FittedModel):
            return NotImplemented
        from implicit_delta.models.combined import combine

        return combine(self, other)

    def __radd__(self, other: Any) -> "ComposedModel":
        """Let `sum([m1, m2])` begin with its zero."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def _require_likelihood(self) -> None:
        """Raise if there is nothing to evaluate at another theta."""
        if self.local is None:  # a function of the user has terms, though not always of rows
            require_rows(self)

    def _require_fixing(self) -> None:
        self._require_likelihood()
        if self.facts.no_fixing:
            raise UnsupportedModelError(self.facts.no_fixing)

    def along(self, chart: Chart) -> "ComposedModel":
        composable = isinstance(self.rows, ComposableRows)
        rows = self.rows.along(chart) if composable else Restricted(self.rows, chart)  # type: ignore[attr-defined]
        host, start = self.facts.host, self.facts.training.start
        known = host.covariance
        facts = self.facts.with_training(
            before=None, start=None if start is None else chart.coordinates(start)
        ).with_host(
            predictor=host.predictor and InCoordinates(host.predictor, chart),
            covariance=known and replace(known, covariance=chart.part(known.covariance)),
        )
        return replace(
            self,
            theta=chart.coordinates(self.theta),
            rows=rows,
            penalty=self.penalty.along(chart),
            space=self.space.along(chart, self),
            facts=facts,
        )

    def stated(self, theta: Array, v: Array) -> Array | None:
        return measurement_variance(self, theta, v)

    def measured_again(self, rng: np.random.Generator) -> "ComposedModel":
        if not isinstance(self.rows, MeasuredRows):
            return self
        rows = self.rows.measured_again(self.theta, self.weights, rng)
        return self if rows is self.rows else replace(self, rows=rows)

    def redrawn(self, rng: np.random.Generator) -> "ComposedModel":
        self._require_likelihood()
        if not isinstance(self.rows, RedrawableRows):
            raise cannot_draw("the log-likelihood is a function of the parameters", self.rows.n)
        rows = self.rows.redraw(self.theta, self.weights, rng)
        drawn = rows.n != self.rows.n  # a simulation of another number of events
        weights = replace(self.weights, values=np.ones(rows.n)) if drawn else self.weights
        facts = self.facts.with_host(covariance=None)
        return replace(self, rows=rows, weights=weights, facts=facts)

    # Functions of the outputs.

    def gauss_newton_part(self, theta: Array, columns: int) -> Array | None:
        if not isinstance(self.rows.outputs, FormedOutputs):
            return None
        found = self.rows.outputs.gauss_newton_part(theta, self.weights.values, columns)
        return None if found is None else found + self.penalty.curvature(theta, np.eye(self.d))

    @property
    def formable(self) -> bool:
        outputs = self.rows.outputs
        few = self.d <= FEW_COLUMNS or outputs is None or outputs.size <= self.d
        return self.d <= GAUSS_NEWTON_LIMIT and few

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        self._require_likelihood()
        return self.outputs.whitened(theta, v)

    def squared_residuals(self) -> Array | None:
        outputs = self.rows.outputs
        if outputs is None or not outputs.can_be_overdispersed:
            return None
        if isinstance(outputs, PearsonOutputs):
            return outputs.squared_residuals(np.asarray(self.theta))
        return super().squared_residuals()

    def curvature_noise(self, theta: Array, rng: np.random.Generator, count: int) -> Array | None:
        if self.rows.outputs is None or self.rows.outputs.is_linear or self.penalty.functions:
            return None
        drawn = self.rows.outputs.noise(theta, self.weights.values, rng, count)
        if drawn is None:
            return None
        return np.asarray(
            sum((ridge.noise(rng, self.d, count) for ridge in self.penalty.ridges), drawn)
        )

    def tangent(self) -> "ComposedModel":
        outputs, language, rows = self.rows.outputs, self.space.language, None
        if isinstance(self.rows, TangentRows):
            rows = self.rows.tangent(self.theta)
        elif isinstance(outputs, TangentOutputs):
            rows = outputs.tangent(self.theta)
        if rows is None or not isinstance(language, TangentLanguage):
            return super().tangent()
        predictor = self.facts.host.predictor
        facts = self.facts.with_training(replicates=None)  # far from where it is linearized
        facts = facts.with_host(predictor=predictor and predictor.tangent(self.theta))
        return replace(
            self,
            rows=rows,
            space=replace(self.space, language=language.tangent(self.theta)),
            facts=facts,
        )

    def batch_score(self, theta: Array, rows: RowNumbers) -> Array:
        if self.local is not None:
            return self.local.weighted_score(theta, self.weights.of_batch(rows))
        if not isinstance(self.rows, BatchedRows):
            own = self.rows.score(theta, self.weights.of_batch(rows))
        else:
            scale = self.rows.n / len(rows)
            own = scale * self.rows.batch_score(theta, self.weights.values, rows)
        return own - self.penalty.score(theta)

    def ascend(
        self, bonus: Bonus | None, batches: Iterable[RowNumbers], optimizer: Any
    ) -> Iterator[Array]:
        if not isinstance(self.rows, TrainableRows):
            return super().ascend(bonus, batches, optimizer)
        return self.rows.ascend(
            self.theta, self.weights.values, self.penalty, bonus, batches, optimizer
        )

    def log_likelihood(self) -> float:
        if not isinstance(self.rows, NormalizedRows):
            return np.nan
        return self.rows.log_likelihood(self.theta, self.weights)

    def check_maximum(self) -> None:
        """Raise at a saddle where the default is a Gauss-Newton matrix, which shows none."""
        if self.curvature == "hessian" or self.penalty.early_stop:
            return
        if self.local is not None:
            self.local.check_saddle()
        elif isinstance(self.rows, RoughRows):
            v = np.diag(self.units)
            own = self.rows.rough_curvature(self.theta, self.weights.values, v)
            matrix = symmetric(v @ (own + self.penalty.curvature(self.theta, v)))
            least = np.linalg.eigvalsh(matrix)[0] if np.isfinite(matrix).all() else 0.0
            if least < SADDLE:
                raise NotAMaximumError.saddle(float(least))

    def check_unchanged(self) -> None:
        if isinstance(self.rows, CheckedRows):
            self.rows.check_unchanged(np.asarray(self.theta))

    def describe(self) -> dict[str, str]:
        ridges = [np.ravel(ridge.strength) for ridge in self.penalty.given.ridges]
        strengths = np.concatenate(ridges) if ridges else np.zeros(1)
        written = names_of(self.penalty.functions)
        lines = {**self.facts.notes, **({"penalty": written} if written else {})}
        if np.any(strengths):
            lines["l2" if strengths.size == 1 else "ridge"] = range_of(strengths)
        if stop := self.penalty.early_stop:
            lines["early stop"] = f"ridge {stop.strength:.3g} (evidence)"
        if self.space.constraints is not None:
            lines["constraints"] = str(self.space.constraints)
        if self.facts.optima:
            lines["optima"] = spelled_optima(self.facts.optima)
        return lines


SETTLED = 1e-8  # relative change of a noise variance
MOST_FITS = 100


def fitted_again(model: ComposedModel) -> ComposedModel:
    """Fit a model under its constraints from where it is; with an estimated noise variance, too.

    Under a penalty the parameters depend on the variance, so both are found in turns.
    """
    for _ in range(MOST_FITS):
        model, ratio = model.at(maximum_along(model)).renoised()
        if not model.penalty or abs(ratio - 1) < SETTLED:
            break
    rescaled: ComposedModel = with_scale_again(model)
    return rescaled

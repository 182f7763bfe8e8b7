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
from implicit_delta.errors import UnsupportedModelError
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
from implicit_delta.models.constrained_fit import maximum_along
from implicit_delta.models.constraints import Chart, Constraints
from implicit_delta.models.early_stop import early_stopped
from implicit_delta.models.facts import NO_FACTS, Curvature, Facts
from implicit_delta.models.fixed import fixed_at, released_from
from implicit_delta.models.language import OfLanguage, TangentLanguage
from implicit_delta.models.named_theta import Layout, as_named
from implicit_delta.models.noise import with_noise_again
from implicit_delta.models.penalty import NO_PENALTY, Penalty, names_of
from implicit_delta.models.prediction import InCoordinates
from implicit_delta.models.reducers import Outer, SumsWithin
from implicit_delta.models.restricted import Restricted
from implicit_delta.models.rows import (
    BatchedRows,
    CheckedRows,
    ComposableRows,
    FormedOutputs,
    LocalRows,
    NormalizedRows,
    Outputs,
    RedrawableRows,
    Rows,
    ScaledRows,
    TangentOutputs,
    TangentRows,
    TotalRows,
    TrainableRows,
)
from implicit_delta.models.space import Space
from implicit_delta.models.weights import Weights

if TYPE_CHECKING:
    from implicit_delta.models.equation_roots import Hansen

FEW_COLUMNS = 100  # as many products as a solve and the evidence take
NO_GAUSS_NEWTON = (
    'curvature="ggn" needs to know the outputs of the model and the likelihood of the targets '
    "given them: use `Gaussian()`, `Bernoulli()`, `Categorical()` or `Poisson()`, with `outputs=` "
    "and `targets=` for batches of any make. A loglik function of your own has only "
    'curvature="hessian".'
)


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
        """Name theta."""
        if self.space.layout is not None and self.space.chart is None:
            object.__setattr__(self, "theta", as_named(self.theta, self.space.layout))

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
            raise UnsupportedModelError(NO_OUTPUTS if self.rows.symmetric else NO_LEVERAGE)
        return self.rows.outputs

    @property
    def bends(self) -> bool:  # type: ignore[override]
        return self.rows.outputs is not None and not self.rows.outputs.is_linear

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
    def pseudo(self) -> str:
        return "" if self.rows.outputs is None else self.rows.outputs.pseudo

    # The objective and its derivatives.

    def terms(self, theta: Array) -> Array:
        return self.rows.terms(theta)

    def objective(self, theta: Array) -> float:
        if isinstance(self.rows, TotalRows):
            total = self.rows.total(theta, self.weights.values)
        else:
            total = self.weights.total(self.rows.terms(theta))
        return total - self.penalty.value(theta)

    def score(self, theta: Array) -> Array:
        return self.rows.score(theta, self.weights.values) - self.penalty.score(theta)

    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> Array:
        weights = self.weights.values
        if curvature == "hessian" or not self.rows.symmetric:
            own = self.rows.curvature(theta, weights, v)
        elif self.rows.outputs is None:
            raise UnsupportedModelError(NO_GAUSS_NEWTON)
        else:
            own = self.rows.outputs.gauss_newton(theta, weights, v)
        return own + self.penalty.curvature(theta, v) if self.penalty.parts else own

    def terms_along(self, theta: Array, v: Array) -> Array:
        require_rows(self)
        found = np.empty((self.rows.n, v.shape[1]))
        for span, block in self.rows.terms_along(theta, v):
            found[span] = block
        return found

    def scatter(self, theta: Array, v: Array, clusters: Clusters | None = None) -> Array:
        require_rows(self)
        counts, factors = self.weights.counts, self.weights.factors
        if clusters is None:
            return np.asarray(self.rows.sum_blocks(theta, v, Outer(), counts, factors))
        within = SumsWithin(clusters.count)
        sums = self.rows.sum_blocks(theta, v, within, counts, factors, clusters.codes)
        return np.asarray(sums.T @ sums)

    @property
    def units(self) -> Array:
        if isinstance(self.rows, ScaledRows):
            return self.rows.units(self.theta, self.weights, self.penalty)
        return super().units

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
        require_rows(self)
        point = as_parameters(theta).astype(self.theta.dtype, copy=False)
        facts = self.facts.moved(point - np.asarray(self.theta))
        return replace(
            self,
            theta=point,
            rows=self._prepared(point, self.weights),
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

    def _require_fixing(self) -> None:
        require_rows(self)
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
            predictor=host.predictor and InCoordinates(host.predictor, ChartCoordinates(chart)),
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

    def redrawn(self, rng: np.random.Generator) -> "ComposedModel":
        require_rows(self)
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
        require_rows(self)
        return self.outputs.whitened(theta, v)

    def squared_residuals(self) -> Array | None:
        outputs = self.rows.outputs
        return super().squared_residuals() if outputs and outputs.can_be_overdispersed else None

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
        return lines


@dataclass(frozen=True)
class ChartCoordinates:
    """A chart as the linear map from free parameters to all of them, for predictions."""

    chart: Chart

    def coefficients(self, theta: Array) -> Array:
        return self.chart.point(theta)

    def push(self, v: Array) -> Array:
        return np.asarray(self.chart.slope(self.chart.around) @ v)

    def pull(self, g: Array) -> Array:
        return np.asarray(self.chart.slope(self.chart.around).T @ g)


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
    return model

"""The whole question: values, Jacobian, evaluation sample and noise of psi, bound to a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from implicit_delta._core.cache import LastCache
from implicit_delta._core.labels import distinct, places_in
from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import EvaluationError, UnsupportedModelError
from implicit_delta.evaluation.asked import Asked
from implicit_delta.evaluation.average import (
    Sampling,
    checked_units,
    clusters_of,
    sampling_of_moments,
)
from implicit_delta.evaluation.composed import Composed, Owned, composed
from implicit_delta.evaluation.gathered import gathered
from implicit_delta.evaluation.picked import Picked
from implicit_delta.evaluation.questions import Question
from implicit_delta.evaluation.row_weights import Groups, sampling_of_statistic, slopes_of_rows
from implicit_delta.evaluation.smoothed import Smoothed
from implicit_delta.evaluation.statistic import (
    OfRows,
    Statistic,
    check_function,
    check_shift,
    checked_scores,
)
from implicit_delta.evaluation.unit_draws import smoothed_over_units
from implicit_delta.evaluation.values import (
    blur_of,
    check_same,
    checked_value,
    evaluation_names,
    noise_of_mean,
    raw_at,
    value_at,
)
from implicit_delta.models.base import FittedModel
from implicit_delta.models.constraints import Chart
from implicit_delta.numerics.arrays import ratio


class Function(Protocol):
    """Psi as a function of theta, with its derivative."""

    def value(self, theta: Array) -> Array:
        """Evaluate at theta: (d,) to (K,)."""

    def jacobian(self, theta: Array) -> Array:
        """Differentiate at theta: (d,) to (K, d)."""

    def component(self, k: int) -> "Function":
        """Take the k-th evaluation alone."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Psi bound to a model: always (K,) values and a (K, d) Jacobian, checked on the way.

    Attributes
    ----------
    value : (K,) array
        At the model's theta.
    scalar : bool
        Whether psi returned a number rather than an array.
    names : tuple of str
    noise : (K, K) array or None
        Covariance of the noise that a random psi has left in `value`.
    units : (m, K) array or None
        The rows that an `Average` is the mean of, at the model's theta.
    sampling : Sampling or None
        Error from the sampling of these rows; not for training rows.
    sample : {"independent", "training", "unknown"} or None
        Relation of these rows to the training rows.
    notes : mapping
        Diagnostics of the evaluation, beside those of the method.
    function : Function or None
        Psi away from theta: itself, or the surrogate of a `Smoothed` one. None for a black box.
    fitted : FittedModel or None
        None for a black box, which is known only through its training runs.
    blur : (K,) array or None
        By how much psi differs between two calls, or is rounded in a type of its own.
    straight : bool
        Whether psi moves along the tangent of the model, so that its bend is not one against the
        objective: weights of a network go astray where their outputs do not.
    itself : callable or None
        Psi, (d,) to (K,), where `function` is a surrogate of it.
    scale : {"", "log"}
        Scale of the intervals and tests; see `Estimate.scale`.
    """

    value: Array
    scalar: bool
    names: tuple[str, ...]
    noise: Array | None = None
    units: Array | None = None
    sampling: Sampling | None = None
    sample: str | None = None
    notes: Mapping[str, float | str] = field(default_factory=dict)
    function: Function | None = None
    fitted: FittedModel | None = None
    blur: Array | None = None
    straight: bool = False
    itself: Callable[[Array], Array] | None = None
    scale: str = ""
    _cache: LastCache = field(init=False, default_factory=LastCache, repr=False)

    @classmethod
    def of(cls, model: FittedModel, psi: Any, names: Any = None) -> "Evaluation":
        """Evaluate psi and check that a standard error of it makes sense."""
        model.check_unchanged()
        model = model.free()
        psi = gathered(model.whole or model, psi)
        if isinstance(psi, Statistic):
            return _of_statistic(model, psi, names)
        if isinstance(psi, Question):
            return _of_question(model, psi, names)
        smoothed = psi if isinstance(psi, Smoothed) else None
        asked = psi if smoothed is None else smoothed.psi
        picked = Picked.of(model.whole or model, asked)
        if picked is not None:
            labels = evaluation_names(names, picked.names)
            identity = _Identity(picked.places, model.chart)
            value = identity.value(model.theta)
            return cls(value, picked.scalar, labels, function=identity, fitted=model)
        if isinstance(asked, Question):
            raise TypeError("A question is smooth: pass it as psi, without Smoothed around it.")
        inner = composed(asked, model.shares)
        units, sampling, groups = _units(model, inner)
        raw, values, blur = _first_look(model, inner)
        value = values.mean(axis=0)
        plain = cls(
            value=np.atleast_1d(value),
            scalar=value.ndim == 0,
            names=evaluation_names(names, groups or inner, raw, None if groups else value),
            noise=noise_of_mean(values),
            units=units,
            sampling=sampling,
            sample=inner.sample if isinstance(inner, Composed) else None,
            function=_PsiOfModel(model, inner, value.size),
            fitted=model,
            blur=blur,
        )
        if smoothed is None:
            return plain
        surrogate, notes = smoothed.linearize(model, plain, plain.value)
        return replace(plain, function=surrogate, notes=notes, itself=plain)

    @property
    def size(self) -> int:
        """K, the number of evaluations."""
        return self.value.size

    @property
    def model(self) -> FittedModel:
        """The model that psi is bound to."""
        if self.fitted is None:
            raise UnsupportedModelError(
                "The model is a black box: only its training runs are known. Make a "
                "fitted model with `from_torch` or another `from_*` function."
            )
        return self.fitted

    def __call__(self, theta: Array) -> Array:
        """Evaluate at theta, (K,)."""
        assert self.function is not None
        return self.function.value(theta)

    def on_scale(self, values: Array) -> Array:
        """Map values of psi to the scale of its intervals."""
        return np.log(values) if self.scale == "log" else values

    def asked_by(self, psi: Any) -> "Evaluation":
        """Take the scale and the sentence of a question over, if psi is one."""
        if not isinstance(psi, Question):
            return self
        return replace(self, scale=psi.scale, notes={**self.notes, "question": psi.sentence()})

    def center(self) -> Array:
        """Evaluate at the model's theta, (K,), as away from it; once if that is known."""
        known = isinstance(self.function, _PsiOfModel) and self.noise is None
        return self.value if known else self(self.model.theta)

    def bends(self, steps: Array) -> Array:
        """Second differences of psi along steps (S, d) from the model's theta: (S, K)."""
        theta = self.model.theta
        exact = self.function.bends(theta, steps) if isinstance(self.function, Asked) else None
        if exact is not None:
            return exact
        center = self.center()
        found = [self(theta + step) + self(theta - step) - 2 * center for step in steps]
        rounding = 4 * np.spacing(abs(center))
        return np.array([np.where(abs(bend) > rounding, bend, 0.0) for bend in found])

    def at_states(self, states: Array) -> Array:
        """Evaluate psi itself, and no surrogate, at states of a training: (c, d) to (c, K)."""
        psi = self.itself or self
        return np.array([psi(theta) for theta in states])

    def all_units(self) -> Array | None:
        """Bring the rows of an average here, (m, K), if they have been added up elsewhere."""
        function = self.itself.function if isinstance(self.itself, Evaluation) else self.function
        psi = function.psi if isinstance(function, _PsiOfModel) else None
        if self.units is not None or not isinstance(psi, Composed) or self.sampling is None:
            return self.units
        return psi.sampled(raw_at(self.model, psi.units, self.model.theta), self.model.shares)[0]

    @property
    def deviations(self) -> Array:
        """Influence of each training row on the average alone, (n, K)."""
        assert self.units is not None
        shares = self.model.shares
        each = ratio(shares, self.model.counts) / shares.sum()
        return np.asarray(each[:, None] * (self.units - self.value))

    def weighed(self, theta: Array, weights: Array) -> Array:
        """Evaluate at theta, (K,), with these weights (n,) of the rows of an average over them."""
        if self.sample != "training":
            return self(theta)
        shares = ratio(weights, self.model.weights) * self.model.shares
        function = self.function
        if isinstance(function, Asked):
            return function.weighed(theta, shares)
        if not isinstance(function, _PsiOfModel) or not isinstance(function.psi, Composed):
            assert self.units is not None
            moved = self.units + (self(theta) - self.value)  # rows of a surrogate move together
            return np.asarray(shares @ moved / shares.sum())
        raw = np.asarray(raw_at(function.model, function.psi.units, theta), dtype=np.float64)
        kept = shares * (self.model.shares.sum() / shares.sum())  # a total is one of as many rows
        value = function.psi.summary(raw, kept)
        return np.atleast_1d(checked_value(value, "near the fitted parameters"))

    def jacobian(self, theta: Array) -> Array:
        """Differentiate at theta, (K, d); once at the model's own."""
        if np.array_equal(theta, self.model.theta):
            kept: Array = self._cache.get(
                self.model.theta, "jacobian", lambda: self._differentiated(theta)
            )
            return kept
        return self._differentiated(theta)

    def component(self, k: int) -> "Evaluation":
        """Take the k-th evaluation alone, with its own units and noise."""
        if self.size == 1:
            return self
        one, itself = slice(k, k + 1), self.itself
        return replace(
            self,
            value=self.value[one],
            scalar=True,
            names=self.names[one],
            noise=None if self.noise is None else self.noise[one, one],
            units=None if self.units is None else self.units[:, one],
            sampling=None if self.sampling is None else self.sampling.component(k),
            blur=None if self.blur is None else self.blur[one],
            function=None if self.function is None else self.function.component(k),
            itself=None if itself is None else lambda theta: itself(theta)[one],
        )

    def on(self, model: FittedModel) -> "Evaluation":
        """Ask the same of another copy of the model, or of the same model at another theta."""
        function = self.function
        if isinstance(function, _PsiOfModel):
            function = replace(function, model=model)
        if isinstance(function, _Identity):
            function = replace(function, chart=model.chart)
        moved = replace(self, function=function, fitted=model)
        same = np.array_equal(model.theta, self.model.theta)
        return moved if same else replace(moved, value=moved(model.theta))

    def in_tangent(self) -> "Evaluation":
        """Ask the same of the tangent of the model at its theta."""
        function = self.function
        if isinstance(function, Asked) and self.model.bends:
            return replace(self, function=function.in_tangent(self.model.theta))
        if not isinstance(function, _PsiOfModel):
            return self  # theta itself, or a surrogate in theta
        return replace(self, function=replace(function, model=_Tangent(self.model)))

    def _differentiated(self, theta: Array) -> Array:
        assert self.function is not None
        jacobian = self.function.jacobian(theta)
        if not np.all(np.isfinite(jacobian)):
            raise EvaluationError(
                "The derivative of psi is NaN or infinite at the fitted parameters. Usual causes: "
                "a square root or logarithm of zero, a division by zero, 0 * inf in a mask."
            )
        chart = self.model.chart
        if chart is not None and not np.any(jacobian):
            if chart.active.constraints.equal[chart.active.rows].all():
                raise EvaluationError(
                    f"psi does not change along the equalities ({chart.active}): the equality "
                    "fixes it, so it has neither a standard error nor an interval. Leave it out."
                )
            raise EvaluationError(
                f"psi does not change along the active constraints ({chart.active}): they fix it, "
                "and its standard error is zero. Does psi use its argument? Then its interval "
                "within the constraints is that of `profile(model, psi)`."
            )
        if self.blur is not None and np.any(self.blur) and not np.any(jacobian):
            raise EvaluationError(
                f"The derivative of psi is exactly zero, and psi is uncertain by "
                f"{np.max(self.blur):.1g} in its own type, which hides small changes. Compute psi "
                "in float64. If it is piecewise constant (a count, an accuracy, a rank), use "
                "`Simulation()` or `Smoothed(psi)`."
            )
        return jacobian


@dataclass(frozen=True, eq=False)
class _Tangent:
    """The tangent of a model at its theta, as far as psi is concerned."""

    model: FittedModel

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        return self.model.evaluate_tangent(psi, self.model.theta, theta - self.model.theta)

    def jacobian(self, psi: Psi, theta: Array) -> Array:
        """Differentiate where the tangent touches the model."""
        assert np.array_equal(theta, self.model.theta)
        return self.model.jacobian(psi, theta)


@dataclass(frozen=True, eq=False)
class _PsiOfModel:
    """Psi in the model's own language."""

    model: FittedModel | _Tangent
    psi: Psi
    size: int

    def value(self, theta: Array) -> Array:
        value = np.atleast_1d(value_at(self.model, self.psi, theta, "near the fitted parameters"))
        if value.size != self.size:
            raise EvaluationError(
                f"psi returned {self.size} value(s) at the fitted parameters and "
                f"{value.size} nearby. It must always return the same shape; a selection that "
                "depends on the parameters (a filter, a top-k) has to keep its length."
            )
        return value

    def jacobian(self, theta: Array) -> Array:
        return self.model.jacobian(self.psi, theta.copy())

    def component(self, k: int) -> "_PsiOfModel":
        return _PsiOfModel(self.model, _Entry(self.psi, k), 1)


@dataclass(frozen=True, eq=False)
class _Entry:
    """Entry k of psi, in the model's own language."""

    psi: Psi
    k: int

    def __call__(self, model: Any) -> Any:
        entries: Any = self.psi(model)
        by_position: Any = getattr(entries, "iloc", entries)  # [k] of a Series is the label k
        return by_position[self.k]


@dataclass(frozen=True)
class _Identity:
    """Theta itself, or some entries of it: the model of an ecosystem need not be an array.

    Of a model along constraints, all parameters.
    """

    places: tuple[int, ...] | None = None
    chart: Chart | None = None

    def value(self, theta: Array) -> Array:
        whole = np.array(theta) if self.chart is None else self.chart.point(theta)
        return whole if self.places is None else whole[list(self.places)]

    def jacobian(self, theta: Array) -> Array:
        if self.chart is not None:
            slope = self.chart.slope(self.chart.point(theta))
            return slope if self.places is None else slope[list(self.places)]
        if self.places is None:
            return np.eye(theta.size)
        rows = np.zeros((len(self.places), theta.size))
        rows[range(len(self.places)), self.places] = 1.0
        return rows

    def component(self, k: int) -> "_Identity":
        return _Identity((k if self.places is None else self.places[k],), self.chart)


def _units(
    model: FittedModel, psi: Psi
) -> tuple[Array | None, Sampling | None, tuple[str, ...] | None]:
    """Evaluate each row of an average, before anything else: a bad row is then named.

    With the error from sampling these, and the names of groups.
    """
    if not isinstance(psi, Composed) or psi.sample is None:
        return None, None, None
    found = model.moments(psi, model.theta)
    if found is not None and found.rows and found.products.size:
        return None, sampling_of_moments(found, psi.summary.total), None
    raw = raw_at(model, psi.units, model.theta)
    if psi.sample == "training":
        check_order(raw, model.rows)
    return *psi.sampled(raw, model.shares), psi.summary.names(raw, psi.function.names)


def check_order(raw: Any, rows: Any) -> None:
    """Refuse labeled rows that are not the training rows, or not in their order."""
    places = places_in(getattr(raw, "index", None), rows)
    if places is None or len(places) != len(raw):
        return  # another number of rows is refused by itself
    raise EvaluationError(
        "h returned rows with the labels "
        f"{list(raw.index[:3])!r:.60}, ..., but the training rows are {list(rows[:3])!r:.60}, ...: "
        'sample="training" means that row i is training row i. Return them in that order, for '
        "example with `.loc[results.model.data.row_labels]`; if they are in that order and only "
        "the labels differ, return `.to_numpy()`."
    )


def _of_question(model: FittedModel, question: Question, names: Any) -> Evaluation:
    """Read the tables of a question; as a sample, the training rows are units in first order."""
    bound = question.bound(model)
    value = bound.asked.value(model.theta)
    units = None
    if question.population:
        units = checked_units(bound.asked.units(model.theta), "training", model.n)
    return Evaluation(
        value=checked_value(value, "at the fitted parameters"),
        scalar=bound.scalar,
        names=evaluation_names(names, distinct(bound.names)),
        units=units,
        sample="training" if question.population else None,
        notes={"question": bound.sentence},
        function=bound.asked,
        fitted=model,
        scale=question.scale,
    )


def _of_statistic(model: FittedModel, psi: Statistic, names: Any) -> Evaluation:
    """Evaluate a statistic, smooth it over its units, and weigh its rows."""
    own, owned = Owned(psi.units, rows=True), Owned(psi.function)
    rows = raw_at(model, own, model.theta)
    training = psi.sample == "training"
    if training:
        check_order(rows, model.rows)
    scores = checked_scores(rows, psi.sample, model.n)
    function = OfRows(owned, scores.shape)
    weight = model.shares if training else np.ones(len(scores))
    clusters = clusters_of(psi.clusters, rows)
    value = check_function(function, scores, weight)
    raw = function.raw(scores, weight)

    def weighed(w: Array) -> Array:
        return function(scores, w, "with other weights of the rows")

    def units(theta: Array) -> Array:
        return checked_scores(raw_at(model, own, theta), psi.sample, model.n).ravel()

    over = smoothed_over_units(
        model,
        units,
        lambda u, w: function(u, w, "at draws of the units"),
        weight,
        Groups.of(weight, clusters),
        by_rows=training,
        solve_once=partial(_slope_of_units, model, own) if model.tether else None,
    )
    pseudo, sampling, notes = None, None, over.notes
    if training:
        pseudo = value + weight.sum() * ratio(slopes_of_rows(weighed, weight), weight[:, None])
    else:
        sampling, way = sampling_of_statistic(weighed, weight, clusters)
        errors = np.hypot(over.surrogate.error, np.sqrt(np.diag(sampling.covariance)))
        notes = {**notes, "evaluation_part": way}
        if not model.tether:  # which stands for itself: on average over trainings it is not off
            notes = {**notes, "statistic_shift": check_shift(over.shift, errors)}
    return Evaluation(
        value=value,
        scalar=np.ndim(raw) == 0,
        names=evaluation_names(names, owned, raw, np.asarray(raw)),
        units=pseudo,
        sampling=sampling,
        sample=psi.sample,
        notes=notes,
        function=over.surrogate,
        fitted=model,
        straight=True,
        itself=lambda theta: function(units(theta), weight, "at another state of the training"),
    )


def _slope_of_units(model: FittedModel, units: Any, slopes: Array) -> Array:
    """Differentiate combinations of the units, with coefficients (M, K): (K, d)."""

    def combined(fitted: Any, column: Array) -> Any:
        rows = units(fitted)
        shaped = column.reshape(np.shape(rows))
        return (rows * (rows.new_tensor(shaped) if hasattr(rows, "new_tensor") else shaped)).sum()

    columns = [partial(combined, column=column) for column in slopes.T]
    return np.vstack([model.jacobian(psi, model.theta) for psi in columns])


def _first_look(model: FittedModel, psi: Psi) -> tuple[Any, Array, Array]:
    """Evaluate at the fitted parameters: as returned, checked by replicate, and uncertain by.

    The first evaluation is made twice, to see that it is the same.
    """
    where = "at the fitted parameters"
    looks = psi.replicates() if isinstance(psi, Composed) and psi.seeds else [psi]
    values = [value_at(model, look, model.theta, where) for look in looks]
    raw = raw_at(model, looks[0], model.theta)
    again = checked_value(raw, where)
    check_same(values[0], again)
    return raw, np.array(values), blur_of(raw, values[0], again)

"""The whole question: values, Jacobian, evaluation sample and noise of psi, bound to a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.cache import LastCache
from implicit_delta.core.factored import block_diagonal
from implicit_delta.core.findings import Finding, present, report
from implicit_delta.core.labels import distinct, places_in
from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import EvaluationError, UnsupportedModelError
from implicit_delta.evaluation.asked import Asked
from implicit_delta.evaluation.average import (
    Average,
    Sampling,
    all_alike,
    checked_units,
    clusters_of,
    same_rows,
    sampling_of_moments,
)
from implicit_delta.evaluation.composed import Composed, Owned, composed
from implicit_delta.evaluation.entries import Entry, check_together, entries_of, merged_notes
from implicit_delta.evaluation.picked import Picked
from implicit_delta.evaluation.questions import Question
from implicit_delta.evaluation.replicated import Replicated
from implicit_delta.evaluation.row_weights import Groups, sampling_of_statistic, slopes_of_rows
from implicit_delta.evaluation.smoothed import Smoothed
from implicit_delta.evaluation.statistic import (
    OfRows,
    Statistic,
    check_function,
    checked_scores,
    shifted,
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
from implicit_delta.linalg.arrays import ratio
from implicit_delta.models.constraints import Chart
from implicit_delta.models.coordinates import in_free_coordinates
from implicit_delta.models.language import moments_of
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import is_network
from implicit_delta.models.processes import processes_of
from implicit_delta.models.refit_fixed import check_unchanged
from implicit_delta.models.sharded.units import lives_on_shards

LABELS = ("by", "clusters")  # of the rows of an average


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
    straight : bool, or one for each evaluation
        Whether psi moves along the tangent of the model, so that its bend is not one against the
        objective: weights of a network go astray where their outputs do not.
    itself : callable or None
        Psi, (d,) to (K,), where `function` is a surrogate of it.
    scale : {"", "log"}, or one for each evaluation
        Scale of the intervals and tests; see `Estimate.scale`.
    constant : bool, or one for each evaluation
        Whether psi is known not to depend on the parameters, so that only its sampling has an
        error: the AUC of a single feature.
    parts : tuple of Evaluation
        The entries of a list or dict, each bound by itself; empty for one evaluation.
    findings : tuple of Finding
        What was found about psi and the rows that it is about.
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
    straight: bool | NDArray[np.bool_] = False
    itself: Callable[[Array], Array] | None = None
    scale: str | tuple[str, ...] = ""
    constant: bool | NDArray[np.bool_] = False
    parts: "tuple[Evaluation, ...]" = ()
    findings: tuple[Finding, ...] = ()
    _cache: LastCache = field(init=False, default_factory=LastCache, repr=False)

    @classmethod
    def of(cls, model: FittedModel, psi: Any, names: Any = None) -> "Evaluation":
        """Evaluate psi, check that a standard error of it makes sense, and report findings."""
        check_unchanged(model)
        found = cls._bound(in_free_coordinates(model), psi, names)
        report(found.findings)
        return found

    @classmethod
    def _bound(cls, model: FittedModel, psi: Any, names: Any = None) -> "Evaluation":
        entries = entries_of(psi)
        if entries is not None:
            return _together(model, [(e, cls._bound(model, e.psi)) for e in entries], names)
        if isinstance(psi, Statistic):
            return _of_statistic(model, psi, names)
        if isinstance(psi, Question):
            return _of_question(model, psi, names)
        smoothed = psi if isinstance(psi, Smoothed) else None
        asked = psi if smoothed is None else smoothed.psi
        picked = Picked.of(model.space.whole or model, asked)
        if picked is not None:
            labels = evaluation_names(names, picked.names)
            identity = _Identity(picked.places, model.space.chart)
            value = identity.value(model.theta)
            return cls(value, picked.scalar, labels, function=identity, fitted=model)
        if isinstance(asked, Question):
            raise TypeError("A question is smooth: pass it as psi, without Smoothed around it.")
        inner = composed(_with_labels(model, asked), model.weights.shares)
        units, sampling, groups, same = _units(model, inner)
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
            findings=present(same),
        )
        if smoothed is None:
            return plain
        surrogate, notes, found = smoothed.linearize(model, plain, plain.value)
        found = *plain.findings, *found
        return replace(plain, function=surrogate, notes=notes, findings=found, itself=plain)

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

    @property
    def is_function(self) -> bool:
        """Whether psi is a function that the user wrote, with a derivative of its own."""
        parts = any(part.is_function for part in self.parts)
        return parts or isinstance(self.function, _PsiOfModel)

    def __call__(self, theta: Array) -> Array:
        """Evaluate at theta, (K,)."""
        assert self.function is not None
        return self.function.value(theta)

    @property
    def logs(self) -> NDArray[np.bool_]:
        """Whether the intervals of each evaluation are made on the log scale, (K,)."""
        same = isinstance(self.scale, str)
        return np.array([s == "log" for s in ((self.scale,) * self.size if same else self.scale)])

    def on_scale(self, values: Array, k: int) -> Array:
        """Map values of the k-th evaluation to the scale of its intervals."""
        return np.log(values) if self.logs[k] else values

    def center(self) -> Array:
        """Evaluate at the model's theta, (K,), as away from it; once if that is known."""
        if self.parts:
            return np.concatenate([part.center() for part in self.parts])
        known = isinstance(self.function, _PsiOfModel) and self.noise is None
        return self.value if known else self(self.model.theta)

    def bends(self, steps: Array) -> Array:
        """Second differences of psi along steps (S, d) from the model's theta: (S, K)."""
        if self.parts:
            return np.hstack([part.bends(steps) for part in self.parts])
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
        if self.parts:
            return np.hstack([part.at_states(states) for part in self.parts])
        psi = self.itself or self
        return np.array([psi(theta) for theta in states])

    def all_units(self) -> Array | None:
        """Bring the rows of an average here, (m, K), if they have been added up elsewhere."""
        if self.parts:
            return _side_by_side(self.parts, [part.all_units() for part in self.parts])
        function = self.itself.function if isinstance(self.itself, Evaluation) else self.function
        psi = function.psi if isinstance(function, _PsiOfModel) else None
        if self.units is not None or not isinstance(psi, Composed) or self.sampling is None:
            return self.units
        raw = raw_at(self.model, psi.units, self.model.theta)
        return psi.sampled(raw, self.model.weights.shares)[0]

    @property
    def deviations(self) -> Array:
        """Influence of each training row on the average alone, (n, K)."""
        assert self.units is not None
        shares = self.model.weights.shares
        each = ratio(shares, self.model.weights.counts) / shares.sum()
        return np.asarray(each[:, None] * (self.units - self.value))

    def weighed(self, theta: Array, weights: Array) -> Array:
        """Evaluate at theta, (K,), with these weights (n,) of the rows of an average over them."""
        if self.parts:
            return np.concatenate([part.weighed(theta, weights) for part in self.parts])
        if self.sample != "training":
            return self(theta)
        shares = ratio(weights, self.model.weights.values) * self.model.weights.shares
        function = self.function
        if isinstance(function, Asked):
            return function.weighed(theta, shares)
        if not isinstance(function, _PsiOfModel) or not isinstance(function.psi, Composed):
            assert self.units is not None
            moved = self.units + (self(theta) - self.value)  # rows of a surrogate move together
            return np.asarray(shares @ moved / shares.sum())
        raw = np.asarray(raw_at(function.model, function.psi.units, theta), dtype=np.float64)
        count = self.model.weights.shares.sum()  # a total is one of as many rows
        kept = shares * (count / shares.sum())
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
        if self.parts:
            entry, place = _place(self.parts, k)
            return replace(entry.component(place), scalar=True, names=self.names[k : k + 1])
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
            constant=np.broadcast_to(self.constant, self.size)[one],
            function=None if self.function is None else self.function.component(k),
            itself=None if itself is None else lambda theta: itself(theta)[one],
        )

    def on(self, model: FittedModel) -> "Evaluation":
        """Ask the same of another copy of the model, or of the same model at another theta."""
        if self.parts:
            return self._of([part.on(model) for part in self.parts])
        function = self.function
        if isinstance(function, _PsiOfModel):
            function = replace(function, model=model)
        if isinstance(function, _Identity):
            function = replace(function, chart=model.space.chart)
        moved = replace(self, function=function, fitted=model)
        same = np.array_equal(model.theta, self.model.theta)
        return moved if same else replace(moved, value=moved(model.theta))

    def in_tangent(self) -> "Evaluation":
        """Ask the same of the tangent of the model at its theta."""
        if self.parts:
            return self._of([part.in_tangent() for part in self.parts])
        function = self.function
        if isinstance(function, Asked) and is_network(self.model):
            return replace(self, function=function.in_tangent(self.model.theta))
        if not isinstance(function, _PsiOfModel):
            return self  # theta itself, or a surrogate in theta
        return replace(self, function=replace(function, model=_Tangent(self.model)))

    def _of(self, parts: "list[Evaluation]") -> "Evaluation":
        """Take other parts with the same errors, of a model that is theirs."""
        value = np.concatenate([part.value for part in parts])
        function, fitted = _Stacked(tuple(parts)), parts[0].fitted
        return replace(self, parts=tuple(parts), value=value, function=function, fitted=fitted)

    def _differentiated(self, theta: Array) -> Array:
        assert self.function is not None
        jacobian = self.function.jacobian(theta)
        if not np.all(np.isfinite(jacobian)):
            raise EvaluationError(
                "The derivative of psi is NaN or infinite at the fitted parameters. Usual causes: "
                "a square root or logarithm of zero, a division by zero, 0 * inf in a mask."
            )
        chart = self.model.space.chart
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
        return self.model.space.language.evaluate_tangent(
            psi, self.model.theta, theta - self.model.theta
        )

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


@dataclass(frozen=True, eq=False)
class _Stacked:
    """The functions of several evaluations, one after the other."""

    parts: tuple[Evaluation, ...]

    def value(self, theta: Array) -> Array:
        return np.concatenate([part(theta) for part in self.parts])

    def jacobian(self, theta: Array) -> Array:
        return np.vstack([_function(part).jacobian(theta) for part in self.parts])

    def component(self, k: int) -> Function:
        part, place = _place(self.parts, k)
        return _function(part).component(place)


def _function(part: Evaluation) -> Function:
    assert part.function is not None
    return part.function


def _place(parts: tuple[Evaluation, ...], k: int) -> tuple[Evaluation, int]:
    """Find the part that the k-th of all evaluations is in, and its place there."""
    ends = np.cumsum([part.size for part in parts])
    number = int(np.searchsorted(ends, k, side="right"))
    return parts[number], int(k - ends[number] + parts[number].size)


def _together(model: FittedModel, bound: list[tuple[Entry, Evaluation]], names: Any) -> Evaluation:
    """Make one evaluation of several, each with its own names, scale, sample and noise."""
    labels = [entry.names(part.names) for entry, part in bound]
    parts = tuple(part for _, part in bound)
    check_together([(own[0], part) for own, part in zip(labels, parts, strict=True)])
    sampled = next((part for part in parts if part.sample is not None), None)
    blurs = [np.zeros(part.size) if part.blur is None else part.blur for part in parts]
    blank = all(part.blur is None for part in parts)
    noises = [part.noise for part in parts]
    samplings = [None if p.sampling is None else p.sampling.covariance for p in parts]
    df = min((part.sampling.df for part in parts if part.sampling is not None), default=np.inf)
    covariance = _blocks(parts, samplings)
    scales = tuple("log" if log else "" for part in parts for log in part.logs)
    return Evaluation(
        value=np.concatenate([part.value for part in parts]),
        scalar=False,
        names=evaluation_names(names, distinct([name for own in labels for name in own])),
        noise=_blocks(parts, noises),
        units=_side_by_side(parts, [part.units for part in parts]),
        sampling=None if covariance is None else Sampling(covariance, df),
        sample=None if sampled is None else sampled.sample,
        notes=merged_notes([part.notes for part in parts]),
        function=_Stacked(parts),
        fitted=model,
        blur=None if blank else np.concatenate(blurs),
        straight=np.concatenate([np.broadcast_to(p.straight, p.size) for p in parts]),
        constant=np.concatenate([np.broadcast_to(p.constant, p.size) for p in parts]),
        itself=None
        if all(part.itself is None for part in parts)
        else lambda theta: np.concatenate([(part.itself or part)(theta) for part in parts]),
        scale=scales[0] if len(set(scales)) == 1 else scales,
        parts=parts,
        findings=tuple(dict.fromkeys(found for part in parts for found in part.findings)),
    )


def _blocks(parts: tuple[Evaluation, ...], blocks: list[Any]) -> Any:
    """Put covariances of the parts on a diagonal, zero where a part has none; None without any."""
    if all(block is None for block in blocks):
        return None
    zeros = [np.zeros((part.size, part.size)) for part in parts]
    return block_diagonal([z if b is None else b for z, b in zip(zeros, blocks, strict=True)])


def _side_by_side(parts: tuple[Evaluation, ...], units: list[Array | None]) -> Array | None:
    """Put rows (m, K) of the parts side by side: what has none is the same in every row."""
    m = next((len(rows) for rows in units if rows is not None), None)
    if m is None:
        return None
    pairs = zip(parts, units, strict=True)
    return np.hstack([np.tile(part.value, (m, 1)) if u is None else u for part, u in pairs])


def _units(
    model: FittedModel, psi: Psi
) -> tuple[Array | None, Sampling | None, tuple[str, ...] | None, Finding | None]:
    """Evaluate each row of an average, before anything else: a bad row is then named.

    With the error from sampling these, the names of groups, and whether all rows are the same.
    """
    if not isinstance(psi, Composed) or psi.sample is None:
        return None, None, None, None
    found = moments_of(model, psi)
    if found is not None and found.rows and found.products.size:
        same = None if np.any(found.high > found.low) else all_alike(found.rows)
        return None, sampling_of_moments(found, psi.summary.total), None, same
    raw = raw_at(model, psi.units, model.theta)
    if psi.sample == "training":
        check_order(raw, model.facts.host.labels)
    units, sampling = psi.sampled(raw, model.weights.shares)
    if psi.sample == "training":
        processes_of(model).check_order(psi.units)
    return units, sampling, psi.summary.names(raw, psi.function.names), same_rows(raw)


def _with_labels(model: FittedModel, psi: Any) -> Any:
    """Give an average the labels of all rows, where processes have given each its own."""
    if isinstance(psi, Replicated):
        return replace(psi, psi=_with_labels(model, psi.psi))
    if not isinstance(psi, Average) or (psi.by is None and psi.clusters is None):
        return psi
    labels = {name: _gathered(model, psi.h, getattr(psi, name), name) for name in LABELS}
    return replace(psi, **labels)


def _gathered(model: FittedModel, units: Any, labels: Any, name: str) -> Any:
    """Concatenate labels of units that live on shards, where ranks have given each its own."""
    if labels is None or lives_on_shards(units) is None:
        return labels
    return processes_of(model).gather_labels(labels, name)


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
    units, same = None, None
    if question.population:
        units = checked_units(bound.asked.units(model.theta), "training", model.n)
        same = same_rows(units)
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
        findings=present(*bound.findings, same),
    )


def _of_statistic(model: FittedModel, psi: Statistic, names: Any) -> Evaluation:
    """Evaluate a statistic, smooth it over its units, and weigh its rows."""
    own, owned = Owned(psi.units, rows=True), Owned(psi.function)
    rows = raw_at(model, own, model.theta)
    training = psi.sample == "training"
    if training:
        check_order(rows, model.facts.host.labels)
    scores = checked_scores(rows, psi.sample, model.n)
    if training:
        processes_of(model).check_order(psi.units)
    function = OfRows(owned, scores.shape)
    weight = model.weights.shares if training else np.ones(len(scores))
    labels = _gathered(model, psi.units, psi.clusters, "clusters")
    clusters = clusters_of(labels, rows)
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
        solve_once=partial(_slope_of_units, model, own) if model.penalty.early_stop else None,
    )
    pseudo, sampling, notes, shift = None, None, over.notes, 0.0
    if training:
        pseudo = value + weight.sum() * ratio(slopes_of_rows(weighed, weight), weight[:, None])
    else:
        sampling, way, shares = sampling_of_statistic(weighed, weight, clusters)
        pseudo = None if shares is None else value + len(shares) * shares
        errors = np.hypot(over.surrogate.error, np.sqrt(np.diag(sampling.covariance)))
        notes = {**notes, "evaluation_part": way}
        if not model.penalty.early_stop:  # stands for itself: on average over trainings not off
            shift = float(np.max(ratio(abs(over.shift), errors)))
            notes = {**notes, "statistic_shift": shift}
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
        constant=over.constant,
        itself=lambda theta: function(units(theta), weight, "at another state of the training"),
        findings=present(shifted(shift)),
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

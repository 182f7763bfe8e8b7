"""Data sets that share parameters, fitted together: ``m1 + m2``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.arguments import Counter
from implicit_delta.core.rounding import is_symmetric
from implicit_delta.core.types import Array
from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning, UnsupportedModelError
from implicit_delta.models.constrained_fit import constrained_maximum
from implicit_delta.models.constraints import Constraints, Rows
from implicit_delta.models.facts import Facts
from implicit_delta.models.language import VectorLanguage
from implicit_delta.models.loglik import from_loglik, notes_of
from implicit_delta.models.loglik_rows import LoglikRows
from implicit_delta.models.model import FittedModel
from implicit_delta.models.named_theta import Layout, of_arrays
from implicit_delta.models.objective import objective_of
from implicit_delta.models.printing import log_likelihood_of, name_of_model
from implicit_delta.models.redraws import redraw
from implicit_delta.models.residual_outputs import ResidualOutputs
from implicit_delta.models.same_data import columns_in, unwrapped
from implicit_delta.models.sources import Source
from implicit_delta.models.space import Space
from implicit_delta.models.weights import Weights
from implicit_delta.models.written_penalty import penalty_of
from implicit_delta.models.written_rows import TermsOf, can_be_written, written_rows

RESERVED = {"model", "rows", "evaluation", "noise", "training", "initialization", "drift", "total"}


def combine(*models: FittedModel, **named: FittedModel) -> FittedModel:
    """Fit data sets together that share parameters, by name.

    The log-likelihoods add, and each parameter that several of them have by the same name is one.
    ``m1 + m2`` is the same. An auxiliary measurement that constrains a parameter is such a model:
    `measurement`.

    Parameters
    ----------
    *models, **named : FittedModel
        Fitted models with names (``start={"S": 100.0}``), of `from_loglik`, `from_residuals` or
        `measurement` (or of a backend that knows its log-likelihood with all constants). Keywords
        name the sources of error in `Estimate.budget`.

    Returns
    -------
    FittedModel
        At the joint maximum. The budget of an estimate has a line for each source, what the data of
        this one contribute to the standard error: the squares add up. Robust errors and a bootstrap
        of rows see each source by itself, and a source of one term, such as a `measurement`, with
        the error that it states.

    Examples
    --------
    A count with an efficiency that was calibrated elsewhere to 5 %:

    >>> import numpy as np
    >>> import implicit_delta as idm
    >>> count = np.array([90.0])
    >>> seen = idm.from_loglik(
    ...     lambda th: count * np.log(th.S * th.eff) - th.S * th.eff,
    ...     theta={"S": 100.0, "eff": 0.9},
    ... )
    >>> model = idm.combine(statistics=seen, efficiency=idm.measurement(eff=(0.9, 0.045)))
    >>> est = idm.infer(model, "S")
    >>> {source: round(error, 2) for source, error in est.budget.items()}
    {'statistics': 10.54, 'efficiency': 5.0, 'total': 11.67}
    """
    given = [*((None, model) for model in models), *named.items()]
    parts = [part for name, model in given for part in _parts(name, model)]
    if len(parts) < 2:
        raise TypeError("combine takes two models or more: `combine(m1, m2)`, or `m1 + m2`.")
    labels = _labels([name for name, _ in parts], [model for _, model in parts])
    found = [model for _, model in parts]
    layout = _joint_layout(found)
    _warn_of_strangers(found, labels)
    _check_other_data(found, labels)
    return _fitted(found, labels, layout)


def measurement(covariance: Any = None, /, **values: tuple[float, float] | float) -> FittedModel:
    """Make a model of an auxiliary measurement: parameters that were measured elsewhere.

    Parameters
    ----------
    covariance : (d, d) array, optional
        Of several values that were measured together; the keywords are then the values alone.
    **values : (value, standard error)
        For each parameter, by name, what was measured: a normal with this error.

    Returns
    -------
    FittedModel
        One term. Add it to the model of the data: ``model + measurement(eff=(0.9, 0.02))``.

    Examples
    --------
    >>> import implicit_delta as idm
    >>> idm.infer(idm.measurement(eff=(0.9, 0.02)), "eff").standard_error
    0.02
    """
    if not values:
        raise TypeError("measurement takes parameters by name: `measurement(eff=(0.9, 0.02))`.")
    centers, root = _measured(values, covariance)
    found = _Measured(tuple(values), np.array(centers), root)
    return from_loglik(
        found, theta=dict(zip(values, centers, strict=True)), simulate=found.measure_again
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """The normal log-likelihood of one measurement of all parameters."""

    names: tuple[str, ...]
    center: Array
    root: Array  # of the covariance, lower triangular

    @property
    def __name__(self) -> str:
        return f"measurement of {', '.join(self.names)}"

    def __call__(self, theta: Array) -> Array:
        errors = np.linalg.inv(self.root) @ (np.asarray(theta) - self.center)
        constant = np.log(self.root.diagonal()).sum() + errors.size * np.log(2 * np.pi) / 2
        return np.atleast_1d(-(errors @ errors) / 2 - constant)

    def measure_again(self, theta: Array, rng: np.random.Generator) -> "_Measured":
        """Draw other centers around theta."""
        errors = self.root @ rng.standard_normal(self.center.size)
        return replace(self, center=np.asarray(theta) + errors)


def _measured(values: Mapping[str, Any], covariance: Any) -> tuple[list[float], Array]:
    """Centers and the root of their covariance, found in units of the errors."""
    if covariance is None:
        pairs = [_pair(name, value) for name, value in values.items()]
        return [center for center, _ in pairs], np.diag([error for _, error in pairs])
    centers = [float(value) for value in values.values()]
    V = np.asarray(covariance, dtype=np.float64)
    if V.shape != (len(centers),) * 2 or not np.isfinite(V).all() or not is_symmetric(V):
        raise ValueError(
            f"The covariance of {len(centers)} measurements has shape {V.shape}, and must be "
            f"symmetric, ({len(centers)}, {len(centers)})."
        )
    errors = np.sqrt(np.maximum(V.diagonal(), 0.0))
    try:
        root = np.linalg.cholesky(V / np.outer(errors, errors)) if errors.all() else None
    except np.linalg.LinAlgError:
        root = None
    if root is None:
        raise ValueError("The covariance of the measurements is not positive definite.")
    return centers, np.asarray(errors[:, None] * root)


def _pair(name: str, value: Any) -> tuple[float, float]:
    pair = np.asarray(value, dtype=np.float64)
    if pair.shape != (2,) or not np.all(np.isfinite(pair)) or pair[1] <= 0:
        raise ValueError(
            f"{name}={value!r} is no measurement: give (value, standard error), "
            f"`measurement({name}=(0.9, 0.02))`, with an error above zero."
        )
    return float(pair[0]), float(pair[1])


def _parts(name: str | None, model: Any) -> list[tuple[str | None, FittedModel]]:
    """Take a model as one part, or as the parts that it was made of."""
    written = isinstance(model, FittedModel) and can_be_written(model)
    if not written or model.space.whole is not None:
        raise TypeError(
            f"combine takes models of from_loglik, from_residuals or measurement, not "
            f"{name_of_model(model)}. Others add by their "
            "log-likelihoods: write one function of all parameters."
        )
    if model.space.layout is None:
        raise ValueError(
            "Parameters are shared by name, and this model has none: give them, "
            '`from_loglik(loglik, start={"S": 100.0, "mu": 5.2})`.'
        )
    if model.space.fixed:
        raise ValueError(
            "A model with fixed parameters would fix them for all: combine first, and fix then, "
            f"`(m1 + m2).fix({_spelled_fixed(model)})`."
        )
    model, sources = replace(model, rows=written_rows(model.rows)), model.facts.sources
    if not sources or name is not None:
        return [(name, model)]
    return [(source.name, _restored(model, i)) for i, source in enumerate(sources)]


def _spelled_fixed(model: FittedModel) -> str:
    names = model.space.names or ()
    return ", ".join(f"{names[j]}={value:.6g}" for j, value in model.space.fixed.items())


def _restored(model: FittedModel, i: int) -> FittedModel:
    joint = _function(model)
    assert isinstance(joint, Stacked)
    part = joint.parts[i]
    return replace(part.model, theta=np.asarray(model.theta)[part.places])


def _labels(names: Sequence[str | None], models: Sequence[FittedModel]) -> list[str]:
    """Name the sources: as given, by the function, the parameters measured, or a number."""
    labels = [
        name or _own_name(model) or f"data {number}"
        for number, (name, model) in enumerate(zip(names, models, strict=True), 1)
    ]
    given = [name for name in names if name is not None]
    for name in given:
        if name in RESERVED or given.count(name) > 1:
            raise ValueError(
                f"{name!r} is there twice, or a line that every budget has: name the sources "
                "otherwise, `combine(peak=m1, calibration=m2)`."
            )
    numbered = [f"data {k}" if label in RESERVED else label for k, label in enumerate(labels, 1)]
    return [
        f"{label} {numbered[: k + 1].count(label)}" if numbered.count(label) > 1 else label
        for k, label in enumerate(numbered)
    ]


def _warn_of_strangers(models: Sequence[FittedModel], labels: Sequence[str]) -> None:
    """Warn of a part that shares no parameter with the others: a slip in a name, mostly."""
    names = [set(model.space.names or ()) for model in models]
    for k, own in enumerate(names):
        others = set().union(*(names[:k] + names[k + 1 :]))
        if own & others:
            continue
        warn(
            f"{labels[k]} shares no parameter with the other models: it has "
            f"{', '.join(sorted(own))}, and they {', '.join(sorted(others))}. Parameters are "
            "shared by name; is one of them spelled otherwise? Data sets without a common "
            "parameter need no common fit.",
            ImplicitDeltaWarning,
        )
        return


def _check_other_data(models: Sequence[FittedModel], labels: Sequence[str]) -> None:
    """Refuse the same model twice; warn of data that two of them share."""
    for k, one in enumerate(models):
        for j, other in enumerate(models[:k]):
            if _source(one) is _source(other):
                raise ValueError(
                    f"{labels[j]} and {labels[k]} are the same data, which would count twice. Add "
                    "models of independent data sets; for repetitions of rows use `weights=`."
                )
            shared = _data(one) == _data(other) and one.n == other.n
            if shared and _data(one):
                warn(
                    f"{labels[j]} and {labels[k]} use the same arrays of numbers, and a sum takes "
                    "data sets for independent of each other: data that are in both count twice, "
                    "and the standard errors are too small. Write one log-likelihood for them.",
                    ImplicitDeltaWarning,
                )


def _data(model: FittedModel) -> set[str]:
    """Digest the data of a model: its columns, or what was measured."""
    source = _source(model)
    if isinstance(source, _Measured):
        return {f"{source.names} {source.center} {source.root}"}
    return columns_in(source, model.n)


def _source(model: FittedModel) -> Any:
    """Take the user's function, or the rows of a backend."""
    function = unwrapped(_function(model))
    return function.rows if isinstance(function, TermsOf) else function


def _own_name(model: FittedModel) -> str:
    function = getattr(_function(model), "function", _function(model))
    if isinstance(function, _Measured):
        assert model.space.names is not None
        return ", ".join(model.space.names)
    name = getattr(function, "__name__", "")
    return "" if name in ("<lambda>", "loglik", "") else name


@dataclass(frozen=True, eq=False)
class Placed:
    """A part of a combined model, and where its parameters are among all, (k,) of d."""

    model: FittedModel
    places: NDArray[np.intp]
    d: int

    @property
    def rows(self) -> LoglikRows:
        """Rows of the part."""
        return _rows(self.model)

    def wide(self, rows: Any) -> Array:
        """Put derivatives (n, k) among those of all parameters, (n, d)."""
        columns = np.asarray(rows, dtype=np.float64)
        found = np.zeros((len(columns), self.d))
        found[:, self.places] = columns
        return found


@dataclass(frozen=True, eq=False)
class Stacked:
    """The terms of all parts, one below the other, or another function of their rows."""

    parts: tuple[Placed, ...]
    pick: Callable[[LoglikRows], Callable[[Array], Any] | None]
    wide: bool = False

    def __call__(self, theta: Array) -> Array:
        """Evaluate each part at its own parameters."""
        plain = np.asarray(theta)
        found = []
        for part in self.parts:
            function = self.pick(part.rows)
            assert function is not None
            rows = function(plain[part.places])
            found.append(part.wide(rows) if self.wide else np.asarray(rows, dtype=np.float64))
        return np.concatenate(found)

    def log_likelihood(self, theta: Array, weights: Weights) -> float:
        """Sum those of the parts, with all their constants."""
        plain = np.asarray(theta)
        return sum(log_likelihood_of(p.model.at(plain[p.places])) for p in self.parts)

    @property
    def estimated(self) -> int:
        """The number of noise variances that were estimated."""
        return sum(part.model.facts.noise_rule is not None for part in self.parts)

    @property
    def __name__(self) -> str:
        """Names of the parts."""
        return " + ".join(getattr(self.pick(p.rows), "__name__", "loglik") for p in self.parts)


@dataclass(frozen=True, eq=False)
class PlacedRows:
    """Rows of the constraints of a part, as those of all parameters."""

    rows: Rows
    part: Placed

    @property
    def linear(self) -> bool:
        """Whether they are linear."""
        return self.rows.linear

    def value(self, theta: Array) -> Array:
        """Evaluate at the parameters of the part."""
        return self.rows.value(np.asarray(theta)[self.part.places])

    def slope(self, theta: Array) -> Array:
        """Differentiate, with zeros for the other parameters."""
        return self.part.wide(self.rows.slope(np.asarray(theta)[self.part.places]))


@dataclass(frozen=True, eq=False)
class SummedPenalty:
    """Penalties of all parts."""

    parts: tuple[Placed, ...]

    def __call__(self, theta: Array) -> float:
        """Add them up."""
        plain = np.asarray(theta)
        return sum(p.model.penalty.value(plain[p.places]) for p in self.parts)


@dataclass(frozen=True, eq=False)
class RedrawnParts:
    """Draw new data of every part."""

    parts: tuple[Placed, ...]
    single: bool = False  # only those of one term, which cannot be drawn by rows

    def __call__(
        self, rows: LoglikRows, theta: Array, weights: Weights, rng: np.random.Generator
    ) -> LoglikRows:
        """Draw at the parameters of the combined model."""
        theta = np.asarray(theta)
        drawn = [
            p
            if self.single and p.model.n > 1
            else replace(p, model=redraw(p.model.at(theta[p.places]), rng))
            for p in self.parts
        ]
        sizes = [p.model.n for p in drawn], [p.model.n for p in self.parts]
        if sizes[0] != sizes[1]:
            raise UnsupportedModelError(
                f"The simulated parts have {sizes[0]} terms, and the data {sizes[1]}: simulate "
                "as many."
            )
        return rows.of(**_functions(tuple(drawn), rows.counter))


def _functions(parts: tuple[Placed, ...], counter: Counter) -> dict[str, Any]:
    """Stack the functions of the parts that all of them have."""
    has_scores = all(part.rows.scores is not None for part in parts)
    has_residuals = all(part.rows.outputs is not None for part in parts)
    outputs = ResidualOutputs(
        Stacked(parts, _slopes, wide=True), Stacked(parts, _residuals), counter
    )
    return {
        "loglik": Stacked(parts, _loglik),
        "scores": Stacked(parts, _scores, wide=True) if has_scores else None,
        "outputs": outputs if has_residuals else None,
    }


def _loglik(rows: LoglikRows) -> Callable[[Array], Any]:
    return rows.loglik


def _scores(rows: LoglikRows) -> Callable[[Array], Any] | None:
    return rows.scores


def _slopes(rows: LoglikRows) -> Callable[[Array], Any] | None:
    return None if rows.outputs is None else rows.outputs.slopes


def _residuals(rows: LoglikRows) -> Callable[[Array], Any] | None:
    return None if rows.outputs is None else rows.outputs.residuals


def _rows(model: FittedModel) -> LoglikRows:
    assert isinstance(model.rows, LoglikRows)
    return model.rows


def _function(model: FittedModel) -> Callable[[Array], Any]:
    return _rows(model).loglik


def _fitted(models: Sequence[FittedModel], labels: Sequence[str], layout: Layout) -> FittedModel:
    own = [model.weights for model in models]
    kinds = {w.kind for w in own if np.ptp(w.values) > 0 or w.values.size > 1}
    if len(kinds) > 1:
        raise ValueError(f"The weights of the models are of different kinds: {sorted(kinds)}.")
    d = len(layout.names)
    where = {name: j for j, name in enumerate(layout.names)}
    parts = tuple(
        Placed(m, np.array([where[name] for name in m.space.names or ()]), d) for m in models
    )
    ends = np.cumsum([0, *(model.n for model in models)])
    sources = tuple(
        Source(label, slice(int(a), int(b)))
        for label, a, b in zip(labels, ends[:-1], ends[1:], strict=True)
    )
    penalized = any(model.penalty for model in models)
    under, counter = _constraints(parts), Counter()
    rows = LoglikRows(
        n=int(ends[-1]),
        d=d,
        draw=RedrawnParts(parts) if all(p.rows.draw is not None for p in parts) else None,
        measure=RedrawnParts(parts, single=True) if any(m.n == 1 for m in models) else None,
        counter=counter,
        is_bounded=under is not None,
        climbs=True,
        **_functions(parts, counter),
    )
    facts = Facts(
        source="from_loglik" if rows.outputs is None else "from_residuals",
        notes=notes_of(rows),
        df=min(model.facts.df for model in models),
        sources=sources,
    )
    model = FittedModel(
        _start(parts),
        rows,
        Weights(np.concatenate([w.values for w in own]), next(iter(kinds), "frequency")),
        penalty_of(SummedPenalty(parts) if penalized else None, 0.0),
        Space(layout.names, layout, under, language=VectorLanguage(layout)),
        facts,
    )
    return model.at(constrained_maximum(model))


def _joint_layout(models: Sequence[FittedModel]) -> Layout:
    """Name all parameters once, in order of appearance."""
    shapes: dict[str, tuple[int, ...] | None] = {}
    for model in models:
        assert model.space.layout is not None
        for name in model.space.layout.spoken:
            shape = model.space.layout.blocks[name].shape
            if shapes.setdefault(name, shape) != shape:
                raise ValueError(
                    f"{name!r} has the shape {shape} in one model and {shapes[name]} in another."
                )
    return of_arrays(shapes)


def _start(parts: Sequence[Placed]) -> Array:
    """Average the maxima of the parts, each with its own precision."""
    total, weight = np.zeros(parts[0].d), np.zeros(parts[0].d)
    for part in parts:
        precision = objective_of(part.model).units ** -2.0
        total[part.places] += precision * np.asarray(part.model.theta)
        weight[part.places] += precision
    return total / weight


def _constraints(parts: Sequence[Placed]) -> Constraints | None:
    given = [
        (part, part.model.space.constraints)
        for part in parts
        if part.model.space.constraints is not None
    ]
    if not given:
        return None
    return Constraints(
        tuple(PlacedRows(rows, part) for part, own in given for rows in own.parts),
        np.concatenate([own.low for _, own in given]),
        np.concatenate([own.high for _, own in given]),
        tuple(label for _, own in given for label in own.labels),
        np.concatenate([own.linear for _, own in given]),
    )

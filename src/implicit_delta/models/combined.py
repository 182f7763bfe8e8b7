"""Data sets that share parameters, fitted together: ``m1 + m2``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.precision import DOUBLE
from implicit_delta.core.rounding import is_symmetric
from implicit_delta.core.types import Array
from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning, UnsupportedModelError
from implicit_delta.models.constrained_fit import constrained_maximum
from implicit_delta.models.constraints import Constraints, Rows
from implicit_delta.models.facts import Facts
from implicit_delta.models.language import VectorLanguage
from implicit_delta.models.loglik import from_loglik
from implicit_delta.models.model import FittedModel
from implicit_delta.models.named_theta import Layout, of_arrays
from implicit_delta.models.noise_of_sums import joint_penalty
from implicit_delta.models.objective import objective_of
from implicit_delta.models.outputs import pseudo_options
from implicit_delta.models.parametrization import LinearMap
from implicit_delta.models.penalty import NO_PENALTY
from implicit_delta.models.printing import name_of_model
from implicit_delta.models.processes import processes_of
from implicit_delta.models.redraws import on_the_way
from implicit_delta.models.refit_fixed import fitted_again
from implicit_delta.models.rows import DifferencedRows
from implicit_delta.models.same_rows import have_equal_rows, source_of
from implicit_delta.models.sharded.at_hand import AtHand
from implicit_delta.models.sharded.described import OutputFacts, outputs_of_shard
from implicit_delta.models.sharded.rows import SumOver
from implicit_delta.models.sharded.shard import Shard
from implicit_delta.models.sigma import MIXED
from implicit_delta.models.sources import Source
from implicit_delta.models.space import Space
from implicit_delta.models.weights import Weights

WHITEN = (
    ", which its covariance matrix mixes. Take this into the function instead of `sigma=`: "
    "`np.linalg.solve(np.linalg.cholesky(matrix), residuals(theta))` are residuals of rows"
)
RESERVED = {"model", "rows", "evaluation", "noise", "training", "initialization", "drift", "total"}


def combine(*models: FittedModel, **named: FittedModel) -> FittedModel:
    """Fit data sets together that share parameters, by name.

    The log-likelihoods add, and each parameter that several of them have by the same name is one.
    ``m1 + m2`` is the same. An auxiliary measurement that constrains a parameter is such a model:
    `measurement`.

    Parameters
    ----------
    *models, **named : FittedModel
        Fitted models with names (``start={"S": 100.0}``, or those of a library) and a
        log-likelihood: of `from_loglik`, `from_residuals`, `measurement`, of statsmodels or
        scikit-learn, of networks, of shards. Keywords name the sources of error in
        `Estimate.budget`.

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
    names, found = [name for name, _ in parts], [model for _, model in parts]
    labels, layout = _labels(names, found), _joint_layout(found)
    _warn_of_strangers(found, labels)
    _check_other_data(found, labels)
    under = _constraints([model for _, model in given], layout)
    return _fitted(found, labels, [name is not None for name in names], under, layout)


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
    """Take a model as one part, or as the data sets that it was made of."""
    _check_part(model)
    sources = model.facts.sources
    if not sources or name is not None:
        return [(name, model)]
    return [
        (source.name if source.is_named else None, _restored(model, shard))
        for source, shard in zip(sources, model.rows.engine.shards, strict=True)
    ]


def _check_part(model: Any) -> None:
    """Refuse what has no log-likelihood of rows, or no names."""
    if not isinstance(model, FittedModel) or not model.rows.symmetric or model.facts.no_terms:
        raise TypeError(
            f"combine takes models with a log-likelihood, and not {name_of_model(model)}. Of "
            "estimates alone, `measurement(covariance, **values)` makes one."
        )
    if obstacle := _obstacle(model):
        raise UnsupportedModelError(f"A model cannot be added to others: {obstacle}.")
    if model.space.names is None:
        raise ValueError(
            "Parameters are shared by name, and this model has none: give them, "
            '`from_loglik(loglik, start={"S": 100.0, "mu": 5.2})`.'
        )
    if model.space.fixed:
        fixed = ", ".join(model.space.names[j] for j in model.space.fixed)
        raise ValueError(
            f"A model with fixed parameters ({fixed}) would fix them for all. Combine the models "
            "before `.fix(...)`, and fix the parameters of the sum: `(m1 + m2).fix(name=value)`."
        )


def _obstacle(model: FittedModel) -> str:
    """Tell why the objective of a model is no log-likelihood that adds to others."""
    covariance, pseudo = model.facts.host.covariance, pseudo_options(model)
    if covariance is not None:
        return (
            f"its covariance ({covariance.name}) is that of this fit alone. Fit it without "
            "`cov_type`, and use `infer(m1 + m2, psi, robust=True)`"
        )
    if pseudo:
        return f"with {pseudo} its terms are no log-densities"
    if model.facts.no_rows:
        return f"its terms are not those of rows{WHITEN if model.facts.no_rows == MIXED else ''}"
    if model.penalty.early_stop:
        return "its training stopped early. Use `polish(model)` before"
    if processes_of(model).is_collective:
        return "its rows are on several ranks, which would each add the other data"
    return ""


def _restored(model: FittedModel, shard: Shard) -> FittedModel:
    """Take the model of one data set as it was given, at the joint maximum."""
    given: FittedModel = shard.part
    return replace(given, theta=np.asarray(model.theta)[shard.places])


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
    """Refuse the same model twice; warn of rows that two of them share."""
    for k, one in enumerate(models):
        for j, other in enumerate(models[:k]):
            if source_of(one) is source_of(other):
                raise ValueError(
                    f"{labels[j]} and {labels[k]} are the same data, which would count twice. Add "
                    "models of independent data sets; for repetitions of rows use `weights=`."
                )
            if have_equal_rows(one, other) or _is_same_measurement(one, other):
                warn(
                    f"{labels[j]} and {labels[k]} have the same rows, and a sum takes data sets "
                    "for independent of each other: data that are in both count twice, and the "
                    "standard errors are too small. Write one log-likelihood for them.",
                    ImplicitDeltaWarning,
                )


def _is_same_measurement(one: FittedModel, other: FittedModel) -> bool:
    first, second = source_of(one), source_of(other)
    if not isinstance(first, _Measured) or not isinstance(second, _Measured):
        return False
    same = first.names == second.names and np.array_equal(first.center, second.center)
    return same and np.array_equal(first.root, second.root)


def _own_name(model: FittedModel) -> str:
    function = getattr(model.rows, "loglik", None)
    if function is None:
        return model.facts.source.removeprefix("from_")
    function = getattr(function, "function", function)
    if isinstance(function, _Measured):
        assert model.space.names is not None
        return ", ".join(model.space.names)
    name = getattr(function, "__name__", "")
    return "" if name in ("<lambda>", "loglik", "") else name


def _fitted(
    models: Sequence[FittedModel],
    labels: Sequence[str],
    named: Sequence[bool],
    under: Constraints | None,
    layout: Layout,
) -> FittedModel:
    own = [model.weights for model in models]
    kinds = {w.kind for w in own if np.ptp(w.values) > 0 or w.values.size > 1}
    if len(kinds) > 1:
        raise ValueError(f"The weights of the models are of different kinds: {sorted(kinds)}.")
    places = [_places(model, layout) for model in models]
    shards = [
        _shard(model, label, where)
        for model, label, where in zip(models, labels, places, strict=True)
    ]
    ends = np.cumsum([0, *(model.n for model in models)])
    sources = tuple(
        Source(label, slice(int(a), int(b)), is_named, _is_scaled(model))
        for label, a, b, is_named, model in zip(
            labels, ends[:-1], ends[1:], named, models, strict=True
        )
    )
    weights = Weights(np.concatenate([w.values for w in own]), next(iter(kinds), "frequency"))
    start = _start(models, places, len(layout.names))
    rows = SumOver(
        AtHand(tuple(shards)),
        tuple(model.n for model in models),
        start,
        weights.values,
        output_facts=_outputs(models),
    )
    precisions = [model.facts.precision for model in models]
    facts = Facts(
        source=_maker(models),
        notes={"log-likelihood": " + ".join(labels)},
        df=min(model.facts.df for model in models),
        sources=sources,
        precision=next((own for own in precisions if own.is_single), DOUBLE),
    )
    space = Space(layout.names, layout, under, language=VectorLanguage(layout))
    model = FittedModel(
        start, rows, weights, joint_penalty(models, places, start.size), space, facts
    )
    found = model.at(constrained_maximum(model))
    return fitted_again(found) if any(source.is_scaled for source in sources) else found


def _is_scaled(model: FittedModel) -> bool:
    """Whether a noise variance or dispersion was estimated, here or by a library."""
    return model.facts.noise_rule is not None or model.facts.host.scale_rule is not None


def _maker(models: Sequence[FittedModel]) -> str:
    """Name the function that made all of them, from functions of a user, or the sum."""
    makers = {model.facts.source for model in models}
    written = all(isinstance(model.rows, DifferencedRows) for model in models)
    return makers.pop() if written and len(makers) == 1 else "combine"


def _shard(model: FittedModel, label: str, places: NDArray[np.intp]) -> Shard:
    """Take a data set as a part: penalties and constraints are those of the whole."""
    bare = replace(model, penalty=NO_PENALTY, space=Space())
    return Shard(on_the_way(bare), model, label, places=places)


def _places(model: FittedModel, layout: Layout) -> NDArray[np.intp]:
    """Find the parameters of a part among all."""
    where = {name: j for j, name in enumerate(layout.names)}
    return np.array([where[name] for name in model.space.names or ()])


def _outputs(models: Sequence[FittedModel]) -> OutputFacts | None:
    """Describe the outputs of all parts, if each has as many."""
    known = [outputs_of_shard(model) for model in models]
    found = [own for own in known if own is not None]
    if len(found) < len(known) or len({own.size for own in found}) > 1:
        return None
    return OutputFacts(
        is_linear=all(own.is_linear for own in found),
        size=found[0].size,
        pseudo="",
        can_be_overdispersed=all(own.can_be_overdispersed for own in found),
        noise=None,
    )


def _joint_layout(models: Sequence[FittedModel]) -> Layout:
    """Name all parameters once, in order of appearance."""
    shapes: dict[str, tuple[int, ...] | None] = {}
    for model in models:
        own = _layout(model)
        for name in own.spoken:
            shape = own.blocks[name].shape
            if shapes.setdefault(name, shape) != shape:
                raise ValueError(
                    f"{name!r} has the shape {shape} in one model and {shapes[name]} in another."
                )
    return of_arrays(shapes)


def _layout(model: FittedModel) -> Layout:
    return model.space.layout or Layout(model.space.names or ())


def _start(models: Sequence[FittedModel], places: Sequence[NDArray[np.intp]], d: int) -> Array:
    """Average the maxima of the parts, each with its own precision."""
    total, weight = np.zeros(d), np.zeros(d)
    for model, where in zip(models, places, strict=True):
        precision = objective_of(model).units ** -2.0
        total[where] += precision * np.asarray(model.theta)
        weight[where] += precision
    return total / weight


@dataclass(frozen=True, eq=False)
class PlacedRows:
    """Rows of the constraints of a part, as those of all parameters."""

    rows: Rows
    chart: LinearMap

    @property
    def linear(self) -> bool:
        """Whether they are linear."""
        return self.rows.linear

    def value(self, theta: Array) -> Array:
        """Evaluate at the parameters of the part."""
        return self.rows.value(self.chart.point(np.asarray(theta)))

    def slope(self, theta: Array) -> Array:
        """Differentiate, with zeros for the other parameters."""
        own = self.rows.slope(self.chart.point(np.asarray(theta)))
        return np.asarray(self.chart.pull(theta, own.T).T)


def _constraints(models: Sequence[FittedModel], layout: Layout) -> Constraints | None:
    """Join the constraints of all models, as they were given."""
    found = []
    for model in models:
        own, where = model.space.constraints, _places(model, layout)
        if own is not None:
            chart = LinearMap.selecting(where, len(layout.names))
            found.append(replace(own, parts=tuple(PlacedRows(rows, chart) for rows in own.parts)))
    return Constraints.joined(found)

"""Data sets that share parameters, fitted together: ``m1 + m2``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

from implicit_delta._core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.base import FittedModel
from implicit_delta.models.constrained_fit import constrained_maximum
from implicit_delta.models.constraints import Constraints, Rows
from implicit_delta.models.loglik import LoglikModel, from_loglik
from implicit_delta.models.named_theta import Layout, of_arrays

RESERVED = {"model", "rows", "evaluation", "noise", "training", "initialization", "drift", "total"}


@dataclass(frozen=True)
class Source:
    """A data set of a combined model: its name and its rows among all."""

    name: str
    rows: slice


def combine(*models: FittedModel, **named: FittedModel) -> LoglikModel:
    """Fit data sets together that share parameters, by name.

    The log-likelihoods add, and each parameter that several of them have by the same name is one.
    ``m1 + m2`` is the same. An auxiliary measurement that constrains a parameter is such a model:
    `measurement`.

    Parameters
    ----------
    *models, **named : LoglikModel
        Fitted models with names (``start={"S": 100.0}``), of `from_loglik`, `from_residuals` or
        `measurement`. Keywords name the sources of error in `Estimate.budget`.

    Returns
    -------
    LoglikModel
        At the joint maximum. The budget of an estimate has a line for each source, what the data of
        this one contribute to the standard error: the squares add up.

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
    return _fitted([model for _, model in parts], labels)


def measurement(covariance: Any = None, /, **values: tuple[float, float] | float) -> LoglikModel:
    """Make a model of an auxiliary measurement: parameters that were measured elsewhere.

    Parameters
    ----------
    covariance : (d, d) array, optional
        Of several values that were measured together; the keywords are then the values alone.
    **values : (value, standard error)
        For each parameter, by name, what was measured: a normal with this error.

    Returns
    -------
    LoglikModel
        One term. Add it to the model of the data: ``model + measurement(eff=(0.9, 0.02))``.

    Examples
    --------
    >>> import implicit_delta as idm
    >>> idm.infer(idm.measurement(eff=(0.9, 0.02)), "eff").standard_error
    0.02
    """
    if not values:
        raise TypeError("measurement takes parameters by name: `measurement(eff=(0.9, 0.02))`.")
    centers, V = _measured(values, covariance)
    joint = multivariate_normal(np.zeros(len(centers)), V)
    point = np.array(centers)
    return from_loglik(
        _Measured(point, joint),
        theta=dict(zip(values, centers, strict=True)),
        simulate=lambda theta, rng: _Measured(rng.multivariate_normal(theta, V), joint),
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """The normal log-likelihood of one measurement of all parameters."""

    center: Array
    joint: Any

    def __call__(self, theta: Array) -> Array:
        return np.atleast_1d(self.joint.logpdf(np.asarray(theta) - self.center))


def _measured(values: Mapping[str, Any], covariance: Any) -> tuple[list[float], Array]:
    if covariance is not None:
        centers = [float(value) for value in values.values()]
        V = np.asarray(covariance, dtype=np.float64)
        if V.shape != (len(centers),) * 2 or not np.allclose(V, V.T):
            raise ValueError(
                f"The covariance of {len(centers)} measurements has shape {V.shape}, and must be "
                f"symmetric, ({len(centers)}, {len(centers)})."
            )
        if np.linalg.eigvalsh(V)[0] <= 0:
            raise ValueError("The covariance of the measurements is not positive definite.")
        return centers, V
    pairs = [_pair(name, value) for name, value in values.items()]
    return [center for center, _ in pairs], np.diag([error**2 for _, error in pairs])


def _pair(name: str, value: Any) -> tuple[float, float]:
    pair = np.asarray(value, dtype=np.float64)
    if pair.shape != (2,) or not np.all(np.isfinite(pair)) or pair[1] <= 0:
        raise ValueError(
            f"{name}={value!r} is no measurement: give (value, standard error), "
            f"`measurement({name}=(0.9, 0.02))`, with an error above zero."
        )
    return float(pair[0]), float(pair[1])


def _parts(name: str | None, model: Any) -> list[tuple[str | None, LoglikModel]]:
    """Take a model as one part, or as the parts that it was made of."""
    if not isinstance(model, LoglikModel) or model.whole is not None:
        raise TypeError(
            f"combine takes models of from_loglik, from_residuals or measurement, not "
            f"{type(model).__name__}. Others add by their log-likelihoods: write one function of "
            "all parameters."
        )
    if model.layout is None:
        raise ValueError(
            "Parameters are shared by name, and this model has none: give them, "
            '`from_loglik(loglik, start={"S": 100.0, "mu": 5.2})`.'
        )
    if not model.sources or name is not None:
        return [(name, model)]
    return [(s.name, _restored(model, i)) for i, s in enumerate(model.sources)]


def _restored(model: LoglikModel, i: int) -> LoglikModel:
    joint = model.loglik
    assert isinstance(joint, Stacked)
    part = joint.parts[i]
    return replace(part.model, theta=np.asarray(model.theta)[part.places])


def _labels(names: Sequence[str | None], models: Sequence[LoglikModel]) -> list[str]:
    """Name the sources: as given, by the function, the parameters measured, or a number."""
    labels = [
        name or _own_name(model) or f"data {number}"
        for number, (name, model) in enumerate(zip(names, models, strict=True), 1)
    ]
    twice = {label for label in labels if labels.count(label) > 1} | (RESERVED & set(labels))
    for name in names:
        if name in twice:
            raise ValueError(
                f"{name!r} is there twice, or a line that every budget has: name the sources "
                "otherwise, `combine(peak=m1, calibration=m2)`."
            )
    return [f"data {k}" if label in twice else label for k, label in enumerate(labels, 1)]


def _own_name(model: LoglikModel) -> str:
    function = getattr(model.loglik, "function", model.loglik)
    if isinstance(function, _Measured):
        assert model.names is not None
        return ", ".join(model.names)
    name = getattr(function, "__name__", "")
    return "" if name in ("<lambda>", "loglik", "") else name


@dataclass(frozen=True, eq=False)
class Placed:
    """A part of a combined model, and where its parameters are among all, (k,) of d."""

    model: LoglikModel
    places: NDArray[np.intp]
    d: int

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
    pick: Callable[[LoglikModel], Callable[[Array], Any] | None]
    wide: bool = False

    def __call__(self, theta: Array) -> Array:
        """Evaluate each part at its own parameters."""
        plain = np.asarray(theta)
        found = []
        for part in self.parts:
            function = self.pick(part.model)
            assert function is not None
            rows = function(plain[part.places])
            found.append(part.wide(rows) if self.wide else np.asarray(rows, dtype=np.float64))
        return np.concatenate(found)

    @property
    def __name__(self) -> str:
        """Names of the parts."""
        return " + ".join(getattr(self.pick(p.model), "__name__", "loglik") for p in self.parts)


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


def _loglik(model: LoglikModel) -> Callable[[Array], Any]:
    return model.loglik


def _row_scores(model: LoglikModel) -> Callable[[Array], Any] | None:
    return model.row_scores


def _gauss_newton(model: LoglikModel) -> Callable[[Array], Any] | None:
    return model.gauss_newton


def _residuals(model: LoglikModel) -> Callable[[Array], Any] | None:
    return model.residuals


@dataclass(frozen=True, eq=False)
class SummedPenalty:
    """Penalties of all parts."""

    parts: tuple[Placed, ...]

    def __call__(self, theta: Array) -> float:
        """Add them up, ridges too."""
        plain = np.asarray(theta)
        own = [(p.model, plain[p.places]) for p in self.parts]
        ridges = sum(model.l2 / 2 * point @ point for model, point in own)
        return float(ridges) + sum(float(m.penalty(x)) for m, x in own if m.penalty is not None)


@dataclass(frozen=True, eq=False)
class RedrawnParts:
    """Draw new data of every part."""

    parts: tuple[Placed, ...]

    def __call__(self, model: LoglikModel, rng: np.random.Generator) -> LoglikModel:
        """Draw at the parameters of the combined model."""
        theta = np.asarray(model.theta)
        drawn = [replace(p, model=p.model.at(theta[p.places]).redrawn(rng)) for p in self.parts]
        sizes = [p.model.n for p in drawn], [p.model.n for p in self.parts]
        if sizes[0] != sizes[1]:
            raise UnsupportedModelError(
                f"The simulated parts have {sizes[0]} terms, and the data {sizes[1]}: simulate "
                "as many."
            )
        return replace(model, **_functions(tuple(drawn)))


def _functions(parts: tuple[Placed, ...]) -> dict[str, Any]:
    """Stack the functions of the parts that all of them have."""

    def stacked(pick: Callable[[LoglikModel], Any], wide: bool) -> Stacked | None:
        known = all(pick(part.model) is not None for part in parts)
        return Stacked(parts, pick, wide) if known else None

    return {
        "loglik": Stacked(parts, _loglik),
        "row_scores": stacked(_row_scores, True),
        "gauss_newton": stacked(_gauss_newton, True),
        "residuals": stacked(_residuals, False),
    }


def _fitted(models: Sequence[LoglikModel], labels: Sequence[str]) -> LoglikModel:
    kinds = {model.weight_kind for model in models if np.ptp(model.weights) > 0 or model.n > 1}
    if len(kinds) > 1:
        raise ValueError(f"The weights of the models are of different kinds: {sorted(kinds)}.")
    layout = _joint_layout(models)
    d = len(layout.names)
    where = {name: j for j, name in enumerate(layout.names)}
    parts = tuple(Placed(m, np.array([where[name] for name in m.names or ()]), d) for m in models)
    ends = np.cumsum([0, *(model.n for model in models)])
    sources = tuple(
        Source(label, slice(int(a), int(b)))
        for label, a, b in zip(labels, ends[:-1], ends[1:], strict=True)
    )
    penalized = any(model.penalized for model in models)
    draws = all(model.redraw is not None for model in models)
    model = LoglikModel(
        theta=_start(parts),
        weights=np.concatenate([model.weights for model in models]),
        penalty=SummedPenalty(parts) if penalized else None,
        names=layout.names,
        layout=layout,
        weight_kind=next(iter(kinds), "frequency"),
        df=min(model.df for model in models),
        redraw=RedrawnParts(parts) if draws else None,
        constraints=_constraints(parts),
        sources=sources,
        climbing=True,
        **_functions(parts),
    )
    return model.at(constrained_maximum(model))


def _joint_layout(models: Sequence[LoglikModel]) -> Layout:
    """Name all parameters once, in order of appearance."""
    shapes: dict[str, tuple[int, ...] | None] = {}
    for model in models:
        assert model.layout is not None
        for name in model.layout.spoken:
            shape = model.layout.blocks[name].shape
            if shapes.setdefault(name, shape) != shape:
                raise ValueError(
                    f"{name!r} has the shape {shape} in one model and {shapes[name]} in another."
                )
    return of_arrays(shapes)


def _start(parts: Sequence[Placed]) -> Array:
    """Average the maxima of the parts, each with its own precision."""
    total, weight = np.zeros(parts[0].d), np.zeros(parts[0].d)
    for part in parts:
        precision = part.model.units**-2.0
        total[part.places] += precision * np.asarray(part.model.theta)
        weight[part.places] += precision
    return total / weight


def _constraints(parts: Sequence[Placed]) -> Constraints | None:
    given = [(part, part.model.constraints) for part in parts if part.model.constraints is not None]
    if not given:
        return None
    return Constraints(
        tuple(PlacedRows(rows, part) for part, own in given for rows in own.parts),
        np.concatenate([own.low for _, own in given]),
        np.concatenate([own.high for _, own in given]),
        tuple(label for _, own in given for label in own.labels),
        np.concatenate([own.linear for _, own in given]),
    )

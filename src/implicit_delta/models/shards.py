"""Make a model of parts of the data, which may be larger than memory."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from implicit_delta.calculus.units import sizes
from implicit_delta.core.progress import WAIT
from implicit_delta.core.types import Array
from implicit_delta.models.constrained_fit import checked_under_constraints
from implicit_delta.models.model import FittedModel
from implicit_delta.models.noise import with_noise
from implicit_delta.models.penalty import NO_PENALTY, Penalty
from implicit_delta.models.runaway import check_runaways
from implicit_delta.models.sharded.alike import check_double, check_pulls
from implicit_delta.models.sharded.calls import with_penalty
from implicit_delta.models.sharded.dask import dask_engine
from implicit_delta.models.sharded.described import Described, described
from implicit_delta.models.sharded.engine import Engine
from implicit_delta.models.sharded.language import ShardLanguage
from implicit_delta.models.sharded.noise import noise_over
from implicit_delta.models.sharded.penalty import OfFirstShard
from implicit_delta.models.sharded.rows import Origin, SumOver
from implicit_delta.models.sharded.serial import KEEP, Serial
from implicit_delta.models.sharded.shard import label_of
from implicit_delta.models.weights import Weights

logger = logging.getLogger("implicit_delta")
SAME = 1e-9  # of a parameter: copies of one vector may be rounded
OWN_PARTS = "Give every row in one part only; build(part) has to use the part that it is given."
BY_VALUE = (str, int, float, slice, range)  # parts that are the same if they are equal
FIT = 20  # walks of a usual `polish`
PASSES = 10  # of a usual `infer`, to foretell its time


def from_shards(
    build: Callable[[Any], FittedModel], parts: Any, *, client: Any = None, keep: float = KEEP
) -> FittedModel:
    """Make a fitted model that is the sum of the models of parts of the data.

    Parameters
    ----------
    build : callable
        ``build(part)`` makes the fitted model of the rows of one part, by any ``from_*``, at the
        *common* parameters: it gives ``theta=`` and does not fit. It must return the same model
        each time, as parts that do not fit into memory are built again. Penalties and `l2` are
        those of the whole: every part has the same, and it counts once.
    parts : sequence
        Paths, slices, tables: whatever `build` takes. Rows are numbered in this order, as for
        ``clusters=``. With a client also a Dask data frame or array, or a list with delayed
        objects: `build` gets what they compute to, a partition each.
    client : distributed.Client, optional
        Of a Dask cluster: `build` runs on the worker that holds the part, and the model stays
        there. Without it parts are walked one after the other in this process.
    keep : float
        Bytes of the built models that stay in memory; with 0 only the first, beside the one at
        work. On a cluster all stay.

    Returns
    -------
    FittedModel
        For `infer`, `profile`, `polish` and all methods. Finish a fit over all parts with
        ``polish(model)``.

    Examples
    --------
    >>> import implicit_delta as idm
    >>> y = np.array([3, 0, 2, 5, 1, 4, 2, 3])
    >>> def build(rows):
    ...     return idm.from_loglik(lambda th: y[rows] * th[0] - np.exp(th[0]), theta=[0.9])
    >>> model = idm.polish(from_shards(build, [slice(0, 5), slice(5, 8)]))
    >>> round(idm.infer(model, lambda th: np.exp(th[0])).standard_error, 3)
    0.559
    """
    if not callable(build):
        raise TypeError(f"build is a function of one part, not {type(build).__name__}.")
    if not keep >= 0:
        raise ValueError(f"keep is a number of bytes, 0 or more, not {keep!r}.")
    if client is not None:
        lazy = hasattr(parts, "to_delayed")
        return model_over(dask_engine(build, parts if lazy else _listed(parts), client))
    if hasattr(parts, "to_delayed"):
        raise TypeError(
            f"parts is a Dask collection, {type(parts).__name__}: give the client of its cluster, "
            "`from_shards(build, parts, client=client)`, with `client = Client()` of "
            "`dask.distributed` for this machine."
        )
    given = _listed(parts)
    return model_over(Serial(build, given, keep))


def model_over(engine: Engine) -> FittedModel:
    """Make the model of the shards of an engine: look at each once, and compare."""
    found: list[Described] = list(engine.each(described))
    _check_all(found, engine)
    first, sizes = found[0], tuple(own.n for own in found)
    engine = engine.of_sizes(sizes)
    penalty = _ridges(found)
    if first.has_function:
        penalty = replace(penalty, functions=(OfFirstShard(engine),))
    weights = Weights(_joined(found), first.weight_kind)
    bare = engine.changed(with_penalty, [NO_PENALTY] * engine.count)
    compared = bool(penalty) and not penalty.by_rows
    origin = Origin(engine, tuple(own.seen for own in found), compared)
    rows = SumOver(bare, sizes, first.theta, weights.values, origin, first.outputs)
    kind = f"{engine.count} of {first.kind}, {min(sizes)} to {max(sizes)} rows each"
    facts = replace(first.facts, source=engine.maker, notes={"shards": kind})
    space = replace(first.space, language=ShardLanguage(bare))
    model = FittedModel(first.theta, rows, weights, penalty, space, facts)
    if facts.noise_rule:
        noise = noise_over(bare, model.d, weights, penalty)
        model = with_noise(model, noise, facts.noise_rule)
    if frozenset.intersection(*(own.level for own in found)):  # not even together
        check_runaways(model, False)
    _tell_plan(model, engine)
    return checked_under_constraints(model)


def _check_all(found: list[Described], engine: Engine) -> None:
    """Refuse shards that are not parts of one model, or have the same rows."""
    for other in found:
        _check(found[0], other)
    if not found[0].penalty.by_rows:
        check_pulls([own.label for own in found], [own.pull for own in found])
    check_double([own.looks for own in found], engine.own_rows or OWN_PARTS, engine.is_primary)


def _listed(parts: Any) -> tuple[Any, ...]:
    if isinstance(parts, Iterator):
        raise TypeError(
            "parts is an iterator, which can be walked once only: give a list of paths, slices or "
            "tables, `from_shards(build, sorted(folder.glob('*.parquet')))`."
        )
    if hasattr(parts, "columns") or hasattr(parts, "column_names"):
        raise TypeError(
            f"parts is a data frame, {type(parts).__name__}, which is walked by columns: give a "
            "list of tables with some rows each, `[table[:5000], table[5000:]]`, or `[table]`."
        )
    if isinstance(parts, str | bytes) or not hasattr(parts, "__len__"):
        raise TypeError(f"parts is a sequence of parts, not {type(parts).__name__} {parts!r:.60}.")
    given = tuple(parts)
    if not given:
        raise ValueError("parts is empty: there is no model without data.")
    seen: set[Any] = set()
    for i, part in enumerate(given):
        named = isinstance(part, BY_VALUE) or hasattr(part, "__fspath__")
        key = (type(part), str(part)) if named else id(part)
        if key in seen:
            label = str(part) if named else label_of(i, part)
            raise ValueError(f"{label} is there twice in parts, and its rows would count twice.")
        seen.add(key)
    return given


def _check(first: Described, other: Described) -> None:
    """Refuse shards that are not parts of one model."""
    pairs = [
        ("kind", first.kind, other.kind),
        ("dtype", first.facts.precision.dtype, other.facts.precision.dtype),
        ("number of parameters", first.theta.size, other.theta.size),
        ("names", first.space.names, other.space.names),
        ("weight_kind", first.weight_kind, other.weight_kind),
        ("curvature", first.facts.curvature, other.facts.curvature),
        ("rule of the noise variance", first.facts.noise_rule, other.facts.noise_rule),
        ("fixed parameters", first.space.fixed, other.space.fixed),
        ("constraints", str(first.space.constraints), str(other.space.constraints)),
    ]
    for what, one, two in pairs:
        if one != two:
            raise ValueError(
                f"The {what} of {other.label} is {two!s:.80}, and that of {first.label} "
                f"{one!s:.80}. All parts need the same model; columns that are made of the data "
                "(dummies, categories) have to be those of the whole table."
            )
    gap = float(np.max(abs(first.theta - other.theta) / sizes(first.theta)))
    if gap > SAME:
        raise ValueError(
            f"The parameters of {other.label} differ from those of {first.label}, by up to "
            f"{gap:.2g} of their size: build has fitted each part by itself. Give it the common "
            "parameters, `from_loglik(loglik_of(part), theta=theta)`, and finish the fit over all "
            "parts with `polish(model)`."
        )
    _check_ridges(first, other)
    if not np.isfinite(other.value):
        raise ValueError(
            f"The log-likelihood of {other.label} is {other.value}: are there missing values in "
            "its data, or parameters outside their range?"
        )


def _check_ridges(first: Described, other: Described) -> None:
    """Refuse different ridges, and parts without a penalty: there is one, of the whole."""
    one, two = ((own.penalty.floor, _is_penalized(own)) for own in (first, other))
    if not first.penalty.by_rows and one != two:
        raise ValueError(
            f"The penalty of {other.label} ({_penalty(other)}) is not that of {first.label} "
            f"({_penalty(first)}). It belongs to the whole model and counts once: give the same, "
            "undivided, in every part."
        )


def _penalty(own: Described) -> str:
    l2 = own.penalty.floor
    return f"l2={l2:g}" if l2 or not _is_penalized(own) else "penalty="


def _is_penalized(own: Described) -> bool:
    return bool(own.penalty) or own.has_function


def _ridges(found: list[Described]) -> Penalty:
    """Ridges of the whole: those of the first shard, or the sums of all."""
    first = found[0].penalty
    if not first.by_rows:
        return first
    rows = zip(*(own.penalty.ridges for own in found), strict=True)
    added = (replace(own[0], strength=sum(ridge.strength for ridge in own)) for own in rows)
    return replace(first, ridges=tuple(added))


def _joined(found: list[Described]) -> Array:
    """Weights of all rows, (n,); where they are one they take no memory."""
    if all(own.weights is None for own in found):
        return np.broadcast_to(np.float64(1.0), (sum(own.n for own in found),))
    return np.concatenate([np.ones(own.n) if own.weights is None else own.weights for own in found])


def _tell_plan(model: FittedModel, engine: Engine) -> None:
    """Tell what the first walk took, loudly if an answer will take long."""
    seconds = engine.counter.seconds
    text = (
        f"{model.facts.source}: {engine.count} shards, {model.n} rows, {model.d} parameters; the "
        f"first walk took about {seconds:.1g} s, with imports and the building of parts; `infer` "
        f"takes about {PASSES} walks, and `polish` before it about {FIT}"
    )
    (logger.warning if PASSES * seconds >= WAIT else logger.info)(text)

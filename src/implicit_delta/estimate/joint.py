r"""Join estimates of different models: their joint covariance, from the influences of shared rows.

With influences :math:`f_a`, (n, K), of the same rows the sandwich has the cross block
:math:`\sum_i f_{ai} f_{bi}'`, over clusters where there are some. Each estimate has a covariance of
its own, :math:`V_a`, model-based or with small-sample factors, and keeps it: its influences are
carried to :math:`f_a T_a`, with the :math:`T_a` that makes :math:`V_a` of their scatter,
:math:`T_a' S_{aa} T_a = V_a` (the optimal transport between two normal distributions, on the scale
of correlations; a number where :math:`V_a` is a multiple of :math:`S_{aa}`). So the whole is
:math:`T' S T`, positive semi-definite like S, and for two numbers their correlation is that of
their influences. A leaf has one T whatever it is joined with: no order of joining matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.factored import Covariance, Factored, block_diagonal
from implicit_delta.core.findings import Finding, report
from implicit_delta.core.labels import distinct
from implicit_delta.core.types import Array
from implicit_delta.estimate.combination import added, without_sources
from implicit_delta.estimate.diagnostics import Diagnostics
from implicit_delta.estimate.held import covariance_of, parts_of
from implicit_delta.estimate.quantiles import deviations
from implicit_delta.estimate.rows import Rows, matched_by_order, same_response, same_rows

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate
    from implicit_delta.estimate.lineage import Lineage

PROPORTIONAL = 1e-10  # relative: one covariance is a multiple of another
SINGULAR = 1e-11  # of the largest eigenvalue of a correlation: a direction without any influence
UNSPANNED = 1e-5  # of a variance: more of it than influences can carry is another's
OTHER_SCALE = 1.1  # between two kinds of variance: more would pass for an error of a difference
BY_ORDER = (
    "taken for the same by their order: without an index, or with one that counts 0, 1, 2, ..., "
    "nothing tells separate samples, `join(a, b, independent=True)`"
)
TRAINED = "noise of each training as of its own seed and minibatches: less if these are the same"
MODEL_BASED = "that of the model"
# Diagnostics of which the worst is not the largest number.
APART = {"notes", "passes", "seconds", "smallest_curvature", "warnings", "findings"}
INDEFINITE = 1e-8  # of a correlation, times K: what rounding makes of zero


def base_of(lineage: Lineage) -> Estimate:
    """Join the leaves of a lineage: a lone one is itself."""
    leaves = lineage.leaves
    if len(leaves) == 1:
        return leaves[0]
    pieces = [_pieces(leaf) for leaf in leaves]
    _check_adding(leaves, pieces)
    if any("rows" in piece for piece in pieces):
        pieces = [_renamed(piece) for piece in pieces]
    columns, names = lineage.columns(), distinct([name for leaf in leaves for name in leaf.names])
    apart = all(lineage.separates(a, b) for a, b in combinations(leaves, 2))
    if not apart:
        pieces = [{part: np.array(V) for part, V in piece.items()} for piece in pieces]
    none = [0.0 * covariance_of(leaf) for leaf in leaves]
    parts: dict[str, Any] = {
        part: block_diagonal([p.get(part, zero) for p, zero in zip(pieces, none, strict=True)])
        for part in dict.fromkeys(part for piece in pieces for part in piece)
    }
    found: list[Finding | None] = []
    for i, j in combinations(range(len(leaves)), 2):
        if lineage.separates(leaves[i], leaves[j]):
            continue
        for part, V in _crosses(leaves[i], leaves[j], pieces[i], pieces[j]).items():
            parts[part][columns[i], columns[j]] = V
            parts[part][columns[j], columns[i]] = V.T
        taking = [abs(lineage.jacobian[:, columns[k]]).sum(axis=0) > 0 for k in (i, j)]
        found.append(_other_samples(leaves[i], leaves[j]))
        found.append(_other_kinds((leaves[i], leaves[j]), (pieces[i], pieces[j]), taking))
    adds = any(leaf.errors_add for leaf in leaves)
    total: Any
    if apart:
        total = block_diagonal([covariance_of(leaf) for leaf in leaves])
    else:
        total = added(parts) if adds else sum(parts.values(), np.zeros((len(names),) * 2))
        for leaf, own in zip(leaves, columns, strict=True):
            total[own, own] = leaf.covariance  # exactly, and not the sum of its parts
    same = not any(lineage.separates(leaves[0], leaf) for leaf in leaves[1:])
    rows, influence = _side_by_side(leaves) if same else (None, None)
    return type(leaves[0])(
        value=np.concatenate([np.atleast_1d(leaf.value) for leaf in leaves]),
        covariance=total,
        names=names,
        method=" and ".join(dict.fromkeys(leaf.method for leaf in leaves)),
        diagnostics=with_findings(joint_diagnostics(leaves, lineage), report(found)),
        influence=influence,
        parts=parts if any(leaf.parts for leaf in leaves) else {},
        errors_add=adds,
        df=np.concatenate([np.broadcast_to(leaf.df, len(leaf.names)) for leaf in leaves]),
        target="; ".join(dict.fromkeys(leaf.target for leaf in leaves if leaf.target)),
        drift=_drift(leaves),
        rows=rows,
        deviations=_common_deviations(leaves) if same else None,
        scale=tuple(np.concatenate([np.broadcast_to(x.scale, len(x.names)) for x in leaves])),
    )


def carried(influence: Array, rows: Rows, V: Array, names: Sequence[str]) -> Array:
    """Carry influences (n, K) over to those whose scatter is V, by the symmetric map T."""
    S = rows.scatter(influence)
    size = np.sqrt(np.maximum(np.diag(S), 0.0))
    if np.any((size == 0) & (np.diag(V) > 0)):
        name = names[int(np.argmax((size == 0) & (np.diag(V) > 0)))]
        raise ValueError(
            f"No row has any influence on {name!r}, which has an error nevertheless, so how it "
            "depends on other estimates is unknown. Join estimates that the rows do move."
        )
    moving = (size > 0) & (np.diag(V) > 0)
    if not moving.any():
        return np.zeros_like(influence)
    scale = np.trace(V) / np.trace(S)
    units = scale * np.outer(size, size)
    if np.all(np.abs(V - scale * S) <= PROPORTIONAL * units):
        return np.asarray(np.sqrt(scale) * influence)
    T = _transport(S[np.ix_(moving, moving)], V[np.ix_(moving, moving)], size[moving], names)
    found = np.zeros_like(influence)
    found[:, moving] = influence[:, moving] @ T.T
    return found


def _transport(S: Array, V: Array, size: Array, names: Sequence[str]) -> Array:
    """Return T with ``T S T' = V``, on the scale of the correlation of S."""
    unit = np.outer(size, size)
    values, vectors = np.linalg.eigh(S / unit)
    kept = values > SINGULAR * values[-1]
    root, inverse = (
        (vectors[:, kept] * values[kept] ** power) @ vectors[:, kept].T for power in (0.5, -0.5)
    )
    middle = root @ (V / unit) @ root
    squares, axes = np.linalg.eigh((middle + middle.T) / 2)
    T = inverse @ (axes * np.sqrt(np.maximum(squares, 0.0))) @ axes.T @ inverse
    errors = deviations(V) / size
    missing = np.abs(T @ (S / unit) @ T.T - V / unit) - UNSPANNED * np.outer(errors, errors)
    if np.any(missing > 0):
        raise ValueError(
            f"The influences of the rows do not span the errors of {len(names)} evaluations "
            f"({names[0]!r}, ...): there are more of them than rows, or parameters that only a "
            "penalty determines. Ask `infer` for fewer at a time, those that are to be joined."
        )
    return np.asarray(size[:, None] * T / size)


def _pieces(leaf: Estimate) -> dict[str, Any]:
    """Split a covariance into parts that add up: an average over training rows is one of them."""
    parts = without_sources(parts_of(leaf)) or {"model": covariance_of(leaf)}
    if leaf.errors_add or (len(parts) == 1 and "model" in parts and not leaf.parts):
        return parts
    total = sum(parts.values(), np.zeros_like(leaf.covariance))
    errors = deviations(leaf.covariance)
    if np.all(np.abs(total - leaf.covariance) <= PROPORTIONAL * np.outer(errors, errors)):
        return parts
    others = {part: V for part, V in parts.items() if part not in ("model", "evaluation")}
    return {"rows": leaf.covariance - sum(others.values(), 0.0 * leaf.covariance), **others}


def _renamed(piece: Mapping[str, Array]) -> dict[str, Array]:
    return {"rows" if part == "model" else part: V for part, V in piece.items()}


def _check_adding(leaves: Sequence[Estimate], pieces: Sequence[Mapping[str, Array]]) -> None:
    """Refuse errors that add beside those that do not: one bound for both would change one."""
    kinds = {leaf.errors_add for leaf, p in zip(leaves, pieces, strict=True) if "evaluation" in p}
    rows = any("rows" in p for p in pieces) and any(leaf.errors_add for leaf in leaves)
    if len(kinds) == 2 or rows:
        raise ValueError(
            'Errors of averages with sample="unknown" add, and those of other averages do not, so '
            "the two have no joint covariance. Ask for all of them with the same `sample=`."
        )


def _crosses(
    one: Estimate, other: Estimate, own: Mapping[str, Array], others: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the cross block of each part that two leaves share."""
    names = f"{one.names[0]!r} and {other.names[0]!r}"
    if one.influence is None or other.influence is None:
        without = one if one.influence is None else other
        if without.draws is not None:
            raise ValueError(
                f"How {names} depend on each other follows from the influences of the rows, and "
                f"{without.names[0]!r} was found by draws, which have none. Ask for both in one "
                "call: `bootstrap(lambda data: (fit1(data), fit2(data)), data, psi)` with a psi of "
                f"both, or a psi that returns both. {_other_way(one, other)}"
            )
        if without.rows is not None and without.rows.unknown:
            told = f"Joint errors of {names}: {without.rows.unknown}"
            raise ValueError(f"{told} {_other_way(one, other)}")
        raise ValueError(
            f"How {names} depend on each other follows from the influences of the rows, which "
            f"were not kept for {without.names[0]!r}: ask for them with `infer(model, psi, "
            f"influence=True)`. {_other_way(one, other)}"
        )
    assert one.rows is not None
    assert other.rows is not None
    kind = "rows" if "rows" in own else "model"
    mine = carried(one.influence, one.rows, own[kind], one.names)
    theirs = carried(other.influence, other.rows, others[kind], other.names)
    found = {kind: one.rows.product(mine, other.rows, theirs, names)}
    if _moves(own, others, "evaluation"):
        found["evaluation"] = _evaluation(one, other, own, others, names)
    for part in own.keys() - {kind, "evaluation"}:
        if part == "training" and len(_fits(one, other)) == 2:
            continue  # of two trainings, each with numbers of its own
        if _moves(own, others, part):
            raise ValueError(
                f"{names} both have random errors ({part}), and how these depend on each other is "
                "unknown. Of a random psi draw the numbers once, outside of psi, and use the same "
                "in both; of one training ask for both in one call, `infer(model, [psi1, psi2])`."
            )
    return found


def _other_way(one: Estimate, other: Estimate) -> str:
    """Advise on a join without influences."""
    if len(_fits(one, other)) == 1:
        return "Both are of one model: ask for both in one call, `infer(model, [psi1, psi2])`."
    return "For estimates from separate samples use `join(a, b, independent=True)`."


def _fits(one: Estimate, other: Estimate) -> set[str]:
    """Identify the fitted models of two estimates; nothing if one of them is unknown."""
    found = {"" if leaf.rows is None else leaf.rows.fit for leaf in (one, other)}
    return set() if "" in found else found


def _other_samples(one: Estimate, other: Estimate) -> Finding | None:
    """Find a response with other values in rows that their order or a counting index pairs."""
    a, b = one.rows, other.rows
    assert a is not None
    assert b is not None
    if not (a.counted or b.counted or matched_by_order(a, b)):
        return None
    pairs = same_rows(a, b, "they")
    if same_response(a, b, pairs) is not False:
        return None
    count = a.n if pairs is None else pairs[0].size
    return Finding(
        "warn",
        "other_samples",
        f"{one.names[0]!r} and {other.names[0]!r} are taken for fits to the same {count} rows, "
        f"those with the same place or number in an index that counts 0, 1, 2, ..., but "
        f"{a.response.rpartition(' ')[0]!r} has other values in each.",
        number=float(count),
        remedies=(
            "For separate samples use `join(a, b, independent=True)`; for rows of one data frame "
            "keep its index, without `reset_index`.",
        ),
    )


def _other_kinds(
    leaves: Sequence[Estimate],
    pieces: Sequence[Mapping[str, Array]],
    taking: Sequence[NDArray[np.bool_]],
) -> Finding | None:
    """Find two kinds of variance that scale influences differently.

    What two estimates share cancels in their difference only on one scale: of one coefficient with
    two standard errors ``a - b`` has the difference of these for an error.
    """
    kinds = [str(leaf.diagnostics.notes.get("variance", MODEL_BASED)) for leaf in leaves]
    if kinds[0] == kinds[1]:
        return None
    one, two = map(_scales, leaves, pieces, taking)
    apart = np.nan_to_num(np.abs(np.log(one[:, None] / two)))
    k, m = np.unravel_index(np.argmax(apart), apart.shape)
    if not apart[k, m] > np.log(OTHER_SCALE):
        return None
    first, second = leaves[0].names[k], leaves[1].names[m]
    return Finding(
        "warn",
        "other_kinds",
        f"{first!r} and {second!r} have two kinds of variance ({kinds[0]}; {kinds[1]}), whose "
        f"standard errors are {one[k]:.3g} and {two[m]:.3g} times those of their influences. "
        "In a difference that gap counts as an error, which may be far too large.",
        number=float(np.exp(apart[k, m])),
        remedies=("Ask for both with the same `robust=`: `infer(model, psi, robust=True)`.",),
    )


def _scales(leaf: Estimate, pieces: Mapping[str, Array], taking: NDArray[np.bool_]) -> Array:
    """Standard errors over those of the influences, (K,); NaN for what is left out or still."""
    assert leaf.rows is not None
    assert leaf.influence is not None
    own = deviations(pieces["rows" if "rows" in pieces else "model"])
    plain = deviations(leaf.rows.scatter(leaf.influence))
    known = taking & (own > 0) & (plain > 0)
    return np.where(known, own, np.nan) / np.where(known, plain, 1.0)


def _moves(own: Mapping[str, Array], others: Mapping[str, Array], part: str) -> bool:
    return all(part in pieces and np.any(pieces[part]) for pieces in (own, others))


def _evaluation(
    one: Estimate,
    other: Estimate,
    own: Mapping[str, Array],
    others: Mapping[str, Array],
    names: str,
) -> Array:
    """Return the cross block of two averages over the same evaluation rows, in order."""
    if one.deviations is None or other.deviations is None:
        raise ValueError(
            f"{names} both have a sampling error of evaluation rows, of which no rows were kept: "
            "with `infer(model, psi, influence=True)` those of an `Average` without clusters are, "
            "and those of a `Statistic` of up to 2000 rows that is smooth in their weights, as an "
            "AUC is and a quantile is not. Ask for the rows at hand, without `Average` or "
            "`Statistic`; for separate samples, of training and evaluation rows, use "
            "`join(a, b, independent=True)`."
        )
    if len(one.deviations) != len(other.deviations):
        raise ValueError(
            f"{names} are averages over {len(one.deviations)} and {len(other.deviations)} "
            "evaluation rows, and nobody knows which of them are the same. Average over the same "
            "rows in the same order."
        )
    rows = Rows(len(one.deviations))
    mine = carried(one.deviations, rows, own["evaluation"], one.names)
    theirs = carried(other.deviations, rows, others["evaluation"], other.names)
    return np.asarray(mine.T @ theirs)


def check_positive(V: Covariance) -> None:
    """Refuse an indefinite covariance, which only two-way clustered errors can make."""
    if isinstance(V, Factored):
        return  # of separate samples, each of which is positive
    errors = deviations(V)
    moving = errors > 0
    correlation = (V / np.outer(errors + ~moving, errors + ~moving))[np.ix_(moving, moving)]
    if moving.any() and np.linalg.eigvalsh(correlation)[0] < -INDEFINITE * len(V) - UNSPANNED:
        raise ValueError(
            f"The joint covariance of {len(V)} evaluations is not positive semi-definite, which "
            "happens with two ways of clustering and few groups. Join fewer of them, or ask for "
            "both estimates with the one way of grouping that matters most."
        )


def _side_by_side(leaves: Sequence[Estimate]) -> tuple[Rows | None, Array | None]:
    """Put the influences of all leaves side by side, if all have the same rows."""
    first, columns = leaves[0].rows, []
    for leaf in leaves:
        if first is None or leaf.rows is None or leaf.influence is None or leaf.rows.n != first.n:
            return None, None
        pairs = None if leaf.rows is first else same_rows(first, leaf.rows, "they")
        whole = pairs is None or pairs[0].size == first.n
        if not whole or not np.array_equal(leaf.rows.present, first.present):
            return None, None
        columns.append(leaf.influence if pairs is None else leaf.influence[pairs[1]])
    return first, np.hstack(columns)


def _common_deviations(leaves: Sequence[Estimate]) -> Array | None:
    """Put the deviations of evaluation rows side by side; none where some are unknown."""
    lengths = {len(leaf.deviations) for leaf in leaves if leaf.deviations is not None}
    lost = any(
        leaf.deviations is None and np.any(leaf.parts.get("evaluation", 0.0)) for leaf in leaves
    )
    if len(lengths) != 1 or lost:
        return None
    m = lengths.pop()
    blocks = [
        np.zeros((m, len(leaf.names))) if leaf.deviations is None else leaf.deviations
        for leaf in leaves
    ]
    return np.hstack(blocks)


def _drift(leaves: Sequence[Estimate]) -> Array | None:
    """Drifts of all leaves; those of trainings that were finished are none."""
    if all(leaf.drift is None for leaf in leaves):
        return None
    known = [np.zeros(len(leaf.names)) if leaf.drift is None else leaf.drift for leaf in leaves]
    return np.concatenate(known)


def joint_diagnostics(estimates: Sequence[Estimate], lineage: Lineage) -> Diagnostics:
    """Combine diagnostics, with a note where nothing but their order tells that rows are shared."""
    found = worst([estimate.diagnostics for estimate in estimates])
    by_order = any(
        one.rows is not None and other.rows is not None and matched_by_order(one.rows, other.rows)
        for one, other in combinations(lineage.leaves, 2)
        if not lineage.separates(one, other)
    )
    notes: dict[str, float | str] = {**found.notes}
    if by_order:
        notes["rows"] = BY_ORDER
    if sum(bool(np.any(leaf.parts.get("training", 0.0))) for leaf in lineage.leaves) > 1:
        notes["training"] = TRAINED
    found = with_findings(found, lineage.findings)
    return found if notes == found.notes else replace(found, notes=notes)


def with_findings(known: Diagnostics, found: tuple[Finding, ...]) -> Diagnostics:
    """Add findings and, of those that were warned of, the texts."""
    if not found:
        return known
    texts = [str(finding) for finding in found if finding.level != "note"]
    return replace(
        known,
        findings=tuple(dict.fromkeys(known.findings + found)),
        warnings=tuple(dict.fromkeys([*known.warnings, *texts])),
    )


def worst(found: Sequence[Diagnostics]) -> Diagnostics:
    """Combine diagnostics: the worst of each, costs in total, notes on which all agree."""
    first, *others = {id(one): one for one in found}.values()
    for other in others:
        changes: dict[str, object] = {
            item.name: np.fmax(getattr(first, item.name), getattr(other, item.name))
            for item in fields(first)
            if item.name not in APART
        }
        low = float(np.fmin(first.smallest_curvature, other.smallest_curvature))
        notes = {k: v for k, v in first.notes.items() if k in other.notes and other.notes[k] == v}
        first = replace(
            first,
            **{name: float(number) for name, number in changes.items()},  # type: ignore[arg-type]
            smallest_curvature=low,
            passes=first.passes + other.passes,
            seconds=first.seconds + other.seconds,
            notes=notes,
            warnings=tuple(dict.fromkeys(first.warnings + other.warnings)),
            findings=tuple(dict.fromkeys(first.findings + other.findings)),
        )
    return first

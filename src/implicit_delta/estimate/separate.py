"""Data that two estimates share which are said to be from separate samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.labels import HASHED
from implicit_delta.core.types import Array
from implicit_delta.estimate.rows import (
    Pairs,
    Rows,
    same_response,
    shared_clusters,
    shared_labels,
)

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

BY_CHANCE = 1e-3  # share of joins of separate samples whose influences may be called correlated
ONE_CALL = "Ask for both in one call, `infer(model, [psi1, psi2])`."
INFLUENCES = (
    "Leave independent=True out: `join(a, b)` finds their covariance from the influences of the "
    "rows, which `infer(model, psi, influence=True)` keeps."
)
ON_ROWS = (
    "If they are the same evaluation rows, ask about these very rows, by a plain function that "
    "returns the mean and without `Average`: the errors that are left are those of the models."
)
OTHERS = "{} that only happen to have the same labels in two tables need labels of their own: {}"
OTHER_ROWS = OTHERS.format("Rows", "`df.index = 'a' + df.index.astype(str)` before the fit.")
OTHER_CLUSTERS = OTHERS.format("Clusters", "`clusters='a' + df['village'].astype(str)`.")


def shared_data(one: Estimate, other: Estimate) -> Finding | None:
    """Find a model, rows or clusters that estimates share which are called independent."""
    found = None
    if one.rows is not None and other.rows is not None:
        found = _shared(one, other, one.rows, other.rows)
    found = found or _evaluated_alike(one, other)
    if found is None:
        return None
    return Finding(
        "warn",
        "shared_data",
        f"independent=True, but {one.names[0]!r} and {other.names[0]!r} {found[0]}, so that "
        "their errors depend on each other, and those of differences and sums of them are wrong.",
        remedies=(found[1],),
    )


def _shared(one: Estimate, other: Estimate, a: Rows, b: Rows) -> tuple[str, str] | None:
    """Return what both share and what to do about it; None if nothing tells of anything."""
    if a.fit and a.fit == b.fit:
        return "are of the same fitted model", f"{ONE_CALL} {INFLUENCES}"
    clusters = shared_clusters(a, b)
    if clusters:
        told = f"have {clusters} clusters in common"
        return told, f"{INFLUENCES} Sums over clusters do. {OTHER_CLUSTERS}"
    pairs = shared_labels(a, b)
    if a.labels is None or b.labels is None:
        pairs = (np.arange(a.n if a.n == b.n else 0),) * 2
    told = f"were fitted to rows with the same labels ({pairs[0].size} of {a.n} and {b.n})"
    if a.labels is not None and np.any(a.labels[pairs[0]] < HASHED):
        return told, f"{INFLUENCES} {OTHER_ROWS}"  # texts, which no table has by itself
    same = same_response(a, b, pairs)
    if not pairs[0].size or same is False:
        return None
    if same:
        return f"have the same response in {pairs[0].size} rows", INFLUENCES
    if one.influence is not None and other.influence is not None and not (a.ways or b.ways):
        r = _correlation(one.influence, other.influence, a, b, pairs)
        text = f"have influences of {pairs[0].size} rows with a rank correlation of {r:.2g}"
        return (text, INFLUENCES) if r else None
    if a.terms is not None and b.terms is not None:
        x, y = (np.asarray(terms(), dtype=np.float64) for terms in (a.terms, b.terms))
        r = _correlation(x[:, None], y[:, None], a, b, pairs)
        text = f"have residuals or terms of {pairs[0].size} rows with a rank correlation of {r:.2g}"
        return (text, INFLUENCES) if r else None
    if a.labels is None or b.labels is None:
        return None
    if a.counted and b.counted and a.n != b.n:
        return None  # as any two tables have it
    return told, f"{INFLUENCES} {OTHER_ROWS}"


def _evaluated_alike(one: Estimate, other: Estimate) -> tuple[str, str] | None:
    """Tell of two averages over evaluation rows that seem to be the same."""
    x, y = one.deviations, other.deviations
    if x is None or y is None or len(x) != len(y):
        return None
    r = _correlation(x, y, Rows(len(x)), Rows(len(x)), (np.arange(len(x)),) * 2)
    text = f"are averages over {len(x)} rows each, with a rank correlation of {r:.2g} between them"
    return (text, ON_ROWS) if r else None


def _correlation(x: Array, y: Array, a: Rows, b: Rows, pairs: Pairs) -> float:
    """Return the rank correlation of influences, (n, K) and (m, L), if chance does not make it.

    Of separate samples it is about normal with variance 1 / (n - 1), over lags of so many fewer.
    """
    from scipy import stats

    present = (a.present[pairs[0]] > 0) & (b.present[pairs[1]] > 0)
    ranks = [stats.rankdata(z[own][present], axis=0) for z, own in zip((x, y), pairs, strict=True)]
    moving = [z - z.mean(axis=0) for z in (z[:, np.ptp(z, axis=0) > 0] for z in ranks)]
    if not all(z.size for z in moving):
        return 0.0
    one, other = (z / np.linalg.norm(z, axis=0) for z in moving)
    r = one.T @ other
    largest = float(r.flat[np.argmax(abs(r))])
    effective = max(present.sum() / max(len(a.lags), len(b.lags), 1) - 1, 0.0)
    chance = 2 * stats.norm.sf(abs(largest) * np.sqrt(effective)) * r.size
    return largest if chance < BY_CHANCE else 0.0

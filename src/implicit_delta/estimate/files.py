"""Fields of an estimate as texts and arrays for a file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.factored import Covariance, Factored
from implicit_delta.core.types import Array
from implicit_delta.estimate.diagnostics import described, restored
from implicit_delta.estimate.held import covariance_of, parts_of
from implicit_delta.estimate.rows import Rows
from implicit_delta.estimate.storage import LEFT, MIDDLE, plain

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate


def content_of(estimate: Estimate) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the texts and the arrays of an estimate; its lineage is not kept."""
    texts = {
        "names": estimate.names,
        "method": str(estimate.method),
        "parts": list(estimate.parts),
        "errors_add": bool(estimate.errors_add),
        "target": estimate.target,
        "scale": estimate.scale,
        "identity": estimate.identity,
        "diagnostics": plain(described(estimate.diagnostics)),
    }
    many: dict[str, Any] = {
        "influence": estimate.influence,
        "draws": estimate.draws,
        "acceleration": estimate.acceleration,
        "drift": estimate.drift,
        "deviations": estimate.deviations,
        "df": np.broadcast_to(estimate.df, len(estimate.names)),
    }
    rows = estimate.rows
    if rows is not None and estimate.influence is not None:
        texts["rows"] = {
            "factors": rows.factors,
            "lags": rows.lags,
            "unknown": rows.unknown,
            "response": rows.response,
            "texts": rows.texts,
            "groups": rows.groups,
            "fit": rows.fit,
        }
        many |= {"rows_counts": rows.counts, "rows_labels": rows.labels}
        many |= {"rows_series": rows.series}
        many |= {f"rows_way{i}": way for i, way in enumerate(rows.ways)}
    arrays = {name: array for name, array in many.items() if array is not None}
    covariances = {"covariance": covariance_of(estimate)}
    covariances |= {f"part{i}": V for i, V in enumerate(parts_of(estimate).values())}
    return texts, {"value": estimate.value, **arrays, **_written(covariances)}


def _written(covariances: Mapping[str, Covariance]) -> dict[str, Array]:
    """Name the arrays of covariances: matrices, or the factors of one."""
    arrays: dict[str, Array] = {}
    for name, V in covariances.items():
        if isinstance(V, Factored):
            arrays[name + LEFT] = V.left
            arrays |= {} if V.middle is None else {name + MIDDLE: V.middle}
        else:
            arrays[name] = V
    return arrays


def _covariance(name: str, arrays: Mapping[str, Array]) -> Covariance:
    if name + LEFT in arrays:
        return Factored(arrays[name + LEFT], arrays.get(name + MIDDLE))
    return arrays[name]


def fields_of(texts: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return the fields of the estimate that a file holds."""
    parts = {name: _covariance(f"part{i}", arrays) for i, name in enumerate(texts["parts"])}
    covariance = _covariance("covariance", arrays)
    known = {"identity": str(texts["identity"])} if "identity" in texts else {}
    return {
        "value": arrays["value"],
        "covariance": covariance,
        "names": texts["names"],
        "method": texts["method"],
        "diagnostics": restored(texts["diagnostics"]),
        "influence": arrays.get("influence"),
        "parts": parts,
        "draws": arrays.get("draws"),
        "errors_add": texts["errors_add"],
        "df": arrays.get("df", np.inf),
        "target": texts.get("target", ""),
        "scale": texts.get("scale", ""),
        "acceleration": arrays.get("acceleration"),
        "drift": arrays.get("drift"),
        "rows": _rows(texts, arrays),
        "deviations": arrays.get("deviations"),
        **known,
    }


def _rows(texts: Mapping[str, Any], arrays: Mapping[str, Array]) -> Rows | None:
    described = texts.get("rows")
    if "influence" not in arrays or described is None:
        return None
    return Rows(
        len(arrays["influence"]),
        arrays.get("rows_counts"),
        arrays.get("rows_labels"),
        tuple(arrays[f"rows_way{i}"] for i in range(len(described["factors"]))),
        tuple(described["factors"]),
        tuple(described["lags"]),
        str(described["unknown"]),
        str(described.get("response", "")),
        None if described.get("texts") is None else tuple(described["texts"]),
        bool(described.get("groups", False)),
        fit=str(described.get("fit", "")),
        series=arrays.get("rows_series"),
    )

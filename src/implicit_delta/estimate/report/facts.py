"""Facts that an answer rests on: its variance, and how many rows or groups there are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

OF_MODEL = "of the model (assumes that it is right and that rows are independent)"
REFITS = "between refits to rows drawn anew (assumes that rows are independent)"
BY_CLUSTERS = "between refits to whole clusters drawn anew"
BROUGHT = "from a covariance of the parameters that was given (covariance=)"
# Methods whose variance is that of the model, if nothing else is noted.
BY_MODEL = re.compile(
    r"(Infinitesimal|FiniteDifference|StochasticFiniteDifference|Simulation|profile)\b"
    r"|Bootstrap\(.*kind='parametric'"
)
CLUSTERS = re.compile(r"(\d+(?: x \d+)*) clusters")


def known_facts(estimate: Estimate, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variance, and the number of rows if nobody has told about the data."""
    rows = {} if estimate.rows is None or "Data" in given else {"Rows": f"{estimate.rows.n:,}"}
    return {"Variance": variance_of(estimate), **rows}


def variance_of(estimate: Estimate) -> str:
    """Describe the variance in words; an estimate that was made by hand does not know it."""
    noted = str(estimate.diagnostics.notes.get("variance", ""))
    if noted:
        return BROUGHT if noted == "covariance=" else noted
    if BY_MODEL.match(estimate.method):
        return OF_MODEL
    if re.match(r"[Bb]ootstrap\(", estimate.method):
        return BY_CLUSTERS if clusters_of(estimate) else REFITS
    return ""


def clusters_of(estimate: Estimate) -> str:
    """Return the number of clusters as it is told, such as 40 or 40 x 8; empty without any."""
    told = f"{estimate.diagnostics.notes.get('variance', '')} {estimate.method}"
    found = CLUSTERS.search(told)
    return found[1] if found else ""

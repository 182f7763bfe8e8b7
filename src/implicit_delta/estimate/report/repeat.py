"""The end of a page: all that it takes to get the same numbers again."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from implicit_delta.estimate.report.notes import settings_of
from implicit_delta.estimate.report.text import escaped, tag
from implicit_delta.estimate.tables import degrees, percent

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

LIBRARIES = ("numpy", "scipy", "pandas", "statsmodels", "sklearn", "torch", "jax")
DOORS = {"bootstrap(": "bootstrap(fit, data, psi, ", "refit(": "refit(train, psi, "}


def repeat(estimate: Estimate, level: float, date: str, command: str = "") -> list[str]:
    """Write the command or the call, the settings, the versions and the date."""
    found = estimate.diagnostics
    seed = re.search(r"\brng=(\w+)", estimate.method)
    entries = {
        "method": estimate.method,
        "quantiles": _quantiles(estimate),
        "confidence level": percent(level),
        **({"seed": seed[1]} if seed else {}),
        **settings_of(estimate),
        "cost": f"{found.passes:,} passes over the data, {found.seconds:.3g} seconds",
        "versions": ", ".join(_versions()),
        "written": date,
    }
    pairs = ((escaped(name.replace("_", " ")), escaped(entry)) for name, entry in entries.items())
    return [
        tag("p", "The command:" if command else "The call, as far as the estimate knows it:"),
        tag("pre", tag("code", escaped(command or _call(estimate)))),
        tag("dl", *(tag("dt", name) + tag("dd", entry) for name, entry in pairs)),
    ]


def _quantiles(estimate: Estimate) -> str:
    least, most = float(np.min(estimate.df)), float(np.max(estimate.df))
    if np.isinf(least):
        return "normal"
    span = " to ".join(dict.fromkeys(degrees(df) for df in (least, most)))
    return f"Student's t, {span} degrees of freedom"


def _call(estimate: Estimate) -> str:
    """Write the call: methods print as the code that makes them."""
    for name, whole in DOORS.items():
        if estimate.method.startswith(name):
            return whole + estimate.method.removeprefix(name)
    if re.match(r"[A-Z]\w*\(", estimate.method):
        return f"infer(model, psi, {estimate.method}{_robust(estimate)})"
    return estimate.method


def _robust(estimate: Estimate) -> str:
    """Write the arguments behind the variance, as far as its description has them."""
    told = str(estimate.diagnostics.notes.get("variance", ""))
    if told == "covariance=":
        return ", covariance=..."
    kind = re.match(r"(clustered|robust) \((\w+)", told)
    if kind is None:
        return ""
    return f"{', clusters=...' * (kind[1] == 'clustered')}, robust={kind[2]!r}"


def _versions() -> Iterator[str]:
    """Versions of what is loaded."""
    own = getattr(sys.modules.get("implicit_delta"), "__version__", "unknown")
    yield f"implicit-delta {own}"
    yield f"Python {platform.python_version()}"
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            yield f"{name} {version}"

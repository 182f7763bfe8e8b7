"""Store of the table: numbers of all cases with the versions and the code that made them."""

import json
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import implicit_delta
from benchmarks.timing import Case, Measured

PATH = Path(__file__).with_name("results.json")
PACKAGES = ("numpy", "scipy", "torch", "jax", "statsmodels", "laplace-torch")


def load(path: Path = PATH) -> dict:
    return json.loads(path.read_text()) if path.exists() else {}


def store(measured: Iterable[Measured], code: str, path: Path = PATH) -> None:
    """Write the numbers over those of the same names; the others stay."""
    rows = load(path) | {m.case.name: _row(m) | {"code": code} for m in measured}
    path.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


def kept(case: Case, code: str, rows: dict) -> float | None:
    """Number of the same code and the same packages, if it is stored."""
    row = rows.get(case.name, {})
    same = row.get("code") == code and _packages(row["versions"]) == _packages(versions())
    return row["value"] if same else None


def _packages(found: dict[str, str]) -> dict[str, str]:
    """Versions of everything but the library, whose code is compared instead."""
    return {name: version for name, version in found.items() if name != "implicit-delta"}


def line(case: Case, value: float | None, rows: dict) -> str:
    """One line of the table: today's number, the stored one, the aim, the one before."""
    stored = rows.get(case.name, {}).get("value")
    numbers = "".join(f"{_short(x):>10}" for x in (value, stored, case.aim, case.before))
    verdict = "" if value is None or value <= case.aim else "  missed"
    return f"{case.name:52}{numbers}  {case.unit}{verdict}"


HEADER = f"{'':52}{'today':>10}{'stored':>10}{'aim':>10}{'before':>10}"


def _row(measured: Measured) -> dict:
    case = measured.case
    row = {"value": measured.value, "unit": case.unit, "aim": case.aim, "before": case.before}
    if case.hand is not None:
        row |= {
            "rounds": case.rounds, "cpu_ours": measured.ours, "cpu_hand": measured.hand,
        }  # fmt: skip
    return row | {"versions": versions()}


def versions() -> dict[str, str]:
    found = {"implicit-delta": implicit_delta.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"

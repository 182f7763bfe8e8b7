"""An estimate as text and as HTML."""

import html
import math
from collections.abc import Callable, Iterable
from typing import Any

from implicit_delta.core.optional import optional
from implicit_delta.estimate.diagnostics import Diagnostics
from implicit_delta.estimate.quantiles import checked_level


class Columns(dict[str, list[Any]]):
    """A table by columns, and the scale on which its rows are tested: one, or that of each."""

    def __init__(self, columns: dict[str, list[Any]], scale: str | tuple[str, ...]) -> None:
        """Keep the scale for the line below the table."""
        super().__init__(columns)
        self.scale = scale

    def __reduce__(self) -> Any:
        """Rebuild through the constructor, which takes the scale too."""
        return Columns, (dict(self), self.scale)


def percent(level: float) -> str:
    """Write a confidence level as a percentage."""
    return f"{100 * checked_level(level):.10g}%"


def elided(
    header: list[str], rows: list[tuple[Any, ...]], cells: Callable[..., list[str]]
) -> list[list[str]]:
    """Turn rows into cells; of more than 20 rows, the first and last five."""
    if len(rows) <= 20:
        return [header, *(cells(*row) for row in rows)]
    gap = ["..."] * len(header)
    return [header, *(cells(*r) for r in rows[:5]), gap, *(cells(*r) for r in rows[-5:])]


def estimate_table(columns: dict[str, list[Any]]) -> str:
    """Format the columns of an estimate as text, with a line on what its tests are."""
    return f"{aligned(estimate_rows(columns))}\n{tests_line(columns)}"


def degrees(df: float) -> str:
    """Write degrees of freedom with four digits, and without an exponent."""
    return f"{float(f'{df:.4g}'):.12g}"


def tests_line(columns: dict[str, list[Any]]) -> str:
    """Write the hypothesis and the distribution behind the p-values and intervals."""
    null, df = (_only(columns[name]) for name in ("null", "df"))
    hypothesis = "null" if null is None else f"{null:.6g}"
    scale = getattr(columns, "scale", "")
    hypothesis += {"": "", "log": " on the log scale"}.get(scale, ", of ratios on the log scale")
    freedom = "" if df is None else f", df = {degrees(df)}"
    return f"Tests of value = {hypothesis}; " + (
        "normal quantiles." if df == math.inf else f"t quantiles{freedom}."
    )


def estimate_rows(columns: dict[str, list[Any]]) -> list[list[str]]:
    """Format the columns of an estimate as cells; null and df only where they differ by row."""
    digits = decimals(columns["std_error"], columns["estimate"])
    dull = {name for name in ("null", "df") if _only(columns[name]) is not None}
    header = [name for name in columns if name not in dull]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return elided(
        ["", *header[1:]],
        list(zip(digits, rows, strict=True)),
        lambda digits, row: estimate_cells(digits, {name: row[name] for name in header}),
    )


def _only(values: list[float]) -> float | None:
    return values[0] if len(set(values)) == 1 else None


def estimate_cells(decimals: int, row: dict[str, Any]) -> list[str]:
    """Format one row of the table of estimates; without any error there is nothing to test."""
    untested = math.isnan(row["statistic"])
    formats: dict[str, Callable[[Any], str]] = {
        "term": shortened,
        "statistic": _statistic,
        "p_value": _p_value,
        "df": lambda df: "-" if math.isinf(df) else f"{df:.1f}",
        "null": lambda null: f"{null:.6g}",
    }
    empty = {"statistic", "p_value", "conf_low", "conf_high"} if untested else set()
    return [
        "-" if name in empty else formats.get(name, lambda x: number(x, decimals))(cell)
        for name, cell in row.items()
    ]


def budget_cells(decimals: int, name: str, *errors: float) -> list[str]:
    """Format one row of the table of sources of error."""
    return [shortened(name), *(number(error, decimals) for error in errors)]


def shortened(name: str, width: int = 28) -> str:
    """Cut a long name, and blank what would break a line."""
    line = "".join(letter if letter.isprintable() else " " for letter in name)
    return line if len(line) <= width else line[: width - 3] + "..."


def decimals(errors: Iterable[float], values: Iterable[float]) -> list[int]:
    """Return the decimals that show four digits of each standard error, the same if close."""
    sizes = [
        next((size for size in (error, abs(value)) if size and math.isfinite(size)), 1.0)
        for error, value in zip(errors, values, strict=True)
    ]
    digits = [3 - math.floor(math.log10(size)) for size in sizes]
    found = [
        max(count, 0) if size < 1e6 else count for count, size in zip(digits, sizes, strict=True)
    ]
    most = max(found)
    return [most] * len(found) if most - min(found) <= 2 else found


def number(x: float, decimals: int) -> str:
    """Format a number with so many decimals, or in scientific notation."""
    size = abs(x)
    if 0 <= decimals <= 8 or (8 < decimals <= 12 and size >= 1e-4):
        return f"{x:.{decimals}f}"
    if size == 0 or not math.isfinite(x):
        return f"{x:g}"
    return f"{x:.{min(max(math.floor(math.log10(size)) + decimals, 0), 12)}e}"


def _statistic(z: float) -> str:
    return f"{z:.2f}" if abs(z) < 1e4 else f"{z:.3g}"


def _p_value(p: float) -> str:
    if p < 1e-300:
        return "<1e-300"
    return f"{p:.1e}" if p < 1e-4 else f"{p:.4f}"


_MEANINGS = {
    "drift": "standard errors psi would move if training were finished",
    "smallest_curvature": "of minus the objective, among the directions met",
    "nonlinearity": "bend of psi within half a standard error (0 is straight)",
    "bias": "of psi to second order, in standard errors",
    "asymmetry": "of the covariance before it was symmetrized",
    "residual": "of the solve, relative",
    "shrinkage": "standard errors the penalty has moved psi",
    "passes": "over the data",
    "seconds": "wall-clock time",
}
_MEANINGS_OF_NOTES = {
    "replicates": "fits to drawn data",
    "failed": "of these, without a value",
    "monte_carlo_error": "of the standard error, relative: what another seed would change",
    "one_step_error": "standard errors that finished refits differ from one step by",
}


def diagnostic_cells(diagnostics: Diagnostics) -> list[list[str]]:
    """Format the diagnostics that are known, with their meanings."""
    values = {name: getattr(diagnostics, name) for name in _MEANINGS}
    uncounted = {name for name in ("passes", "seconds") if values[name] == 0}
    known = [name for name in values if math.isfinite(values[name]) and name not in uncounted]
    cells = [[name, _brief(values[name]), _MEANINGS[name]] for name in known]
    notes = diagnostics.notes.items()
    return cells + [[name, _brief(x), _MEANINGS_OF_NOTES.get(name, "")] for name, x in notes]


def _brief(content: Any) -> str:
    return f"{content:.4g}" if isinstance(content, float) else str(content)


def aligned(cells: list[list[str]], *, left: bool = False) -> str:
    """Pad to columns; the first is flush left, the others right unless ``left``."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = ["<"] + ["<" if left else ">"] * (len(widths) - 1)
    lines = (
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def as_html(cells: list[list[str]], caption: str) -> str:
    """Format cells as an HTML table for notebooks."""

    def line(tag: str, row: list[str]) -> str:
        first, *others = (html.escape(cell) for cell in row)
        numbers = "".join(f'<{tag} style="text-align: right">{cell}</{tag}>' for cell in others)
        return f'<tr><th style="text-align: left">{first}</th>{numbers}</tr>'

    head, *body = cells
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return "\n".join(
        [
            f"<table>{title}",
            f"<thead>{line('th', head)}</thead>",
            "<tbody>",
            *(line("td", row) for row in body),
            "</tbody></table>",
        ]
    )


def in_words(spec: str, columns: dict[str, list[Any]]) -> str:
    """Write each evaluation as value [low, high], with its name if there are several.

    Examples
    --------
    >>> in_words(".1f", {"term": ["a"], "estimate": [2.0], "conf_low": [1.25], "conf_high": [2.75]})
    '2.0 [1.2, 2.8]'
    """
    rows = zip(*(columns[c] for c in ("term", "estimate", "conf_low", "conf_high")), strict=True)
    texts = {term: f"{x:{spec}} [{low:{spec}}, {high:{spec}}]" for term, x, low, high in rows}
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{term}: {text}" for term, text in texts.items())


def data_frame(library: str, columns: dict[str, list[Any]]) -> Any:
    """Make a data frame of one of two libraries, or say what to install."""
    if library not in ("pandas", "polars"):
        raise ValueError(f"library is 'pandas' or 'polars', not {library!r}")
    return optional(library, "to_frame()").DataFrame(columns)

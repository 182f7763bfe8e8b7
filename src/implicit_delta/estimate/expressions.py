"""Linear expressions of evaluations by name, such as ``"(a + b) / 2 - `C(g)[T.b]`"``.

Python's own parser reads them, and nothing in them is run: sums, differences, products with numbers
and quotients by numbers are worked out, and everything else is refused.
"""

import ast
import difflib
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from implicit_delta.core.types import Array

LONGEST = 100_000  # characters
QUOTED = re.compile(r"`(?P<tick>[^`]*)`|\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'")


class Affine(NamedTuple):
    """Coefficients (K,) and a constant."""

    row: Array
    constant: float


def read_expression(text: str, names: tuple[str, ...]) -> Affine:
    """Read a linear expression of names; one with odd characters stands as it is, or in backticks.

    Examples
    --------
    >>> read_expression("x - 2 * `C(g)[T.b]` + 1", ("x", "C(g)[T.b]"))
    Affine(row=array([ 1., -2.]), constant=1.0)
    """
    if len(text) > LONGEST:
        raise ValueError(f"An expression of {len(text)} characters: give a matrix, (q, K).")
    found, used = _read(text, names, names)
    for name in used:
        others = tuple(other for other in names if other != name)
        try:
            _read(text, names, others)
        except ValueError:
            continue
        raise ValueError(
            f"{text!r} has two readings: the evaluation named {name!r}, and an expression of "
            f"others. Write the name in backticks, `{name}`, or as est[{name!r}]."
        )
    return found


def _read(
    text: str, names: tuple[str, ...], bare: tuple[str, ...]
) -> tuple[Affine, tuple[str, ...]]:
    """Read with these names outside of quotes; tell which of them are no plain identifiers."""
    code, places, used = _with_places(text, names, bare)
    try:
        tree = ast.parse(" ".join(code.split()), mode="eval").body
        _check_known(tree, places, names)
        with np.errstate(all="ignore"):
            found = _value(tree, places, text)
    except (SyntaxError, RecursionError, MemoryError, OverflowError):
        raise ValueError(
            f"{text!r:.200} is not an expression of names. Write for example {_example(names)!r}; "
            "a name with spaces or brackets goes in backticks, and for a hypothesis a = b give "
            "the difference, 'a - b'."
        ) from None
    if not np.all(np.isfinite([*found.row, found.constant])):
        raise ValueError(f"{text!r:.200} has a coefficient that is not finite.")
    return found, used


def _with_places(
    text: str, names: tuple[str, ...], bare: tuple[str, ...]
) -> tuple[str, dict[str, Array], tuple[str, ...]]:
    """Put identifiers for names, which are in no text: names in quotes, then the longest."""
    prefix, used = "v" + "_" * (text.count("_") + 1), dict[str, None]()
    places = dict(zip((f"{prefix}{k}" for k in range(len(names))), np.eye(len(names)), strict=True))
    pieces, end = [], 0
    for match in _written(text, names, bare):
        quoted = match.lastgroup in ("tick", "double", "single")
        name = match[match.lastgroup] if quoted and match.lastgroup else match[0]
        if name not in names:
            raise unknown(name, names)
        if not quoted and not name.isidentifier():
            used[name] = None
        pieces += [text[end : match.start()], f" {prefix}{names.index(name)} "]
        end = match.end()
    return "".join([*pieces, text[end:]]), places, tuple(used)


def _written(text: str, names: tuple[str, ...], bare: tuple[str, ...]) -> list[re.Match[str]]:
    longest = sorted(bare, key=len, reverse=True)
    options = [QUOTED.pattern, *(_bounded(name) for name in longest if name.strip())]
    quotes = [name for name in names if QUOTED.search(name)]
    if quotes:  # a name that has quotes in it goes before quotes
        options = [*(_bounded(name) for name in longest if name in quotes), *options]
    return list(re.finditer("|".join(options), text))


def _bounded(name: str) -> str:
    """Match a name that is not part of a longer word."""
    before = r"(?<!\w)" if re.match(r"\w", name) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", name) else ""
    return f"{before}{re.escape(name)}{after}"


def _value(node: ast.expr, places: Mapping[str, Array], text: str) -> Affine:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Affine(np.zeros(len(places)), float(number))
        case ast.Name(id=name) if name in places:
            return Affine(places[name], 0.0)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
            inner = _value(operand, places, text)
            return inner if isinstance(op, ast.UAdd) else _scaled(inner, -1.0)
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(_value(left, places, text), op, _value(right, places, text), text)
    raise ValueError(_refusal(text))


def _check_known(tree: ast.AST, places: Mapping[str, Array], names: tuple[str, ...]) -> None:
    """Refuse a name that no evaluation has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in places:
            raise unknown(node.id, names)


def _combined(left: Affine, op: ast.operator, right: Affine, text: str) -> Affine:
    if isinstance(op, ast.Add | ast.Sub):
        sign = 1.0 if isinstance(op, ast.Add) else -1.0
        return Affine(left.row + sign * right.row, left.constant + sign * right.constant)
    if isinstance(op, ast.Mult) and not np.any(left.row):
        return _scaled(right, left.constant)
    if isinstance(op, ast.Mult) and not np.any(right.row):
        return _scaled(left, right.constant)
    if isinstance(op, ast.Div) and not np.any(right.row):
        if right.constant == 0:
            raise ValueError(f"{text!r:.200} divides by zero.")
        return Affine(left.row / right.constant, left.constant / right.constant)
    raise ValueError(_refusal(text))


def _scaled(inner: Affine, factor: float) -> Affine:
    return Affine(factor * inner.row, factor * inner.constant)


def _refusal(text: str) -> str:
    return (
        f"{text!r:.200} is not linear in the evaluations: a contrast has sums, differences and "
        "multiples. Products, quotients and functions go through `est.apply(f)`, as "
        "`est.apply(lambda v: v[0] / v[1])`, or `est['a'] / est['b']`; for a hypothesis a = b "
        "give the difference, 'a - b'."
    )


def _example(names: tuple[str, ...]) -> str:
    quoted = [name if name.isidentifier() else f"`{name}`" for name in names[:2]]
    return " - ".join(quoted)


class NoSuchEvaluation(KeyError, IndexError, ValueError):
    """A name or a number that no evaluation has; its text is not quoted, as that of KeyError is."""

    __str__ = Exception.__str__


def unknown(name: object, names: tuple[str, ...]) -> NoSuchEvaluation:
    """Name the evaluations there are, those that resemble a wrong one first."""
    near = difflib.get_close_matches(str(name), names, n=3)
    listed = near or list(names[:5])
    more = "" if near or len(names) <= 5 else f" and {len(names) - 5} more"
    return NoSuchEvaluation(
        f"There is no evaluation {name!r}. There {'are' if len(names) > 1 else 'is'} "
        f"{', '.join(map(repr, listed))}{more}."
    )

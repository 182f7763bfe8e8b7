"""Number of columns that a formula makes, counted before an engine makes them."""

import ast
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from math import prod
from typing import Any, NamedTuple

import numpy as np

from implicit_delta.command.failure import Failure
from implicit_delta.core.optional import optional

CELLS = 10**9  # numbers of a design, rows times columns: 8 GB, of which a fit holds several copies
WORK = 10**12  # rows times the square of columns: least squares take about five minutes for it
PRODUCTS = 10**5  # of terms in interactions: an engine multiplies them out in about a second
DEGREE = 19  # of a spline: FITPACK has room for no more, and crashes

Term = frozenset[str]  # the code of its factors; empty for the intercept
CONSTANT: Term = frozenset()
# Arguments of the functions that make several columns, in their order.
SPLINES = {
    "bs": ("x", "df", "knots", "degree", "include_intercept"),
    "cr": ("x", "df", "knots"),
    "cc": ("x", "df", "knots"),
    "poly": ("x", "degree"),
}
ENDS = {"cr": 2, "cc": 1}  # columns beside those of inner knots


def check_size(
    program: Sequence[Any], frame: Any, times: int = 1, more: int = 0, side: str = "formula"
) -> None:
    """Refuse a side of a formula with more columns than the rows or the machine can bear.

    Parameters
    ----------
    program : sequence of operators and expressions
        The side in postfix order.
    frame : DataFrame
        The rows of the fit.
    times, more : int
        Coefficients of a column, and beside those of columns: classes and thresholds.
    """
    rows = len(frame)
    nodes = {ast.unparse(node): node for node in program if isinstance(node, ast.expr)}
    widths = {code: _factor(node, frame) for code, node in nodes.items()}
    columns = times * _count(_Terms().of(program), widths, rows) + more
    made = f"The {side} makes {columns} coefficients of {rows} rows"
    widest = max(widths, key=lambda code: widths[code].size)
    size, labels = widths[widest]
    each = ", one for each of its values but the first" if labels else ""
    alone = f" {widest:.80} alone makes {size}{each}." if size > 1 else ""
    if columns >= rows:
        raise Failure(f"{made}: more rows are needed, or fewer coefficients.{alone}")
    if rows * columns > CELLS or rows * columns**2 > WORK:
        raise Failure(
            f"{made}, which is too many for one fit: the limits are {CELLS:.0e} for the product of "
            f"both and {WORK:.0e} for that of rows and squared coefficients.{alone}"
        )


class Factor(NamedTuple):
    """Columns of a factor: of numbers, or of labels but for the first one."""

    size: int
    labels: bool = False


@dataclass
class _Terms:
    """Terms of a formula, multiplied out as patsy does it, up to a number of products."""

    products: int = 0
    stack: list[set[Term] | None] = field(default_factory=list)

    def of(self, program: Sequence[Any]) -> set[Term]:
        """Multiply out; None stands for a zero, which takes the intercept away."""
        for step in program:
            self._take(step)
        return self.stack.pop() or set()

    def _take(self, step: Any) -> None:
        match step:
            case ast.Constant(value=0):
                self.stack.append(None)
            case ast.Constant(value=1):
                self.stack.append({CONSTANT})
            case ast.AST():
                self.stack.append({frozenset([ast.unparse(step)])})
            case "negative":
                self.stack.append(None if self.stack.pop() else {CONSTANT})
            case int() as power:
                base = found = self.stack.pop() or set()
                for _ in range(power - 1):
                    found = found | self._times(found, base)
                self.stack.append(found)
            case operator:
                right, left = self.stack.pop(), self.stack.pop()
                self.stack.append(self._combined(operator, left, right))

    def _combined(
        self, operator: str, left: set[Term] | None, right: set[Term] | None
    ) -> set[Term] | None:
        a, b = left or set(), right or set()
        match operator:
            case "+":
                return self._plus(left, right)
            case "-":
                return a | {CONSTANT} if right is None else a - b
            case ":":
                return self._times(a, b)
            case "/":
                return a | self._times({frozenset(chain(*a))}, b)
        return a | b | self._times(a, b)

    def _plus(self, left: set[Term] | None, right: set[Term] | None) -> set[Term] | None:
        if right is None:
            return None if left is None else left - {CONSTANT}
        return (left or set()) | right

    def _times(self, a: set[Term], b: set[Term]) -> set[Term]:
        self.products += len(a) * len(b)
        if self.products > PRODUCTS:
            raise Failure(
                f"The interactions of the formula multiply out to {self.products} products of "
                f"terms, more than {PRODUCTS}: write the ones that you mean, a + b + a:b."
            )
        return {one | other for one in a for other in b}


def _count(terms: set[Term], widths: dict[str, Factor], rows: int) -> int:
    """Count columns without those that are sums of others.

    An interaction of labels spans those of all subsets of them, each with the labels but the first.
    """
    parts: set[tuple[Term, Term]] = set()
    for term in terms:
        labels = [code for code in term if widths[code].labels and widths[code].size]
        numbers = frozenset(code for code in term if not widths[code].labels)
        if len(labels) > rows.bit_length():
            return int(2 ** len(labels))  # each of the subsets has a column at least
        parts.update((numbers, frozenset(some)) for some in _subsets(labels))
    return sum(prod(widths[code].size for code in chain(*part)) for part in parts)


def _subsets(labels: list[str]) -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(combinations(labels, k) for k in range(len(labels) + 1))


def _factor(node: ast.expr, frame: Any) -> Factor:
    """Find the columns of a factor: of a spline by its settings, of others by their values."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    if any(isinstance(call.func, ast.Name) and call.func.id in SPLINES for call in calls):
        return Factor(_width(node))
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            values = _value(node, frame)
    except Exception:  # the engine says what is wrong with it
        return Factor(1)
    pandas = optional("pandas", "implicit-delta fit")
    categories = getattr(values.dtype, "categories", None)
    asked = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "C"
    if categories is not None:
        return Factor(len(categories) - 1, labels=True)
    if values.dtype == bool:  # both, whether they occur or not
        return Factor(1, labels=True)
    if asked or not pandas.api.types.is_numeric_dtype(values.dtype):
        return Factor(int(values.nunique()) - 1, labels=True)
    return Factor(1)


def _value(node: ast.expr, frame: Any) -> Any:
    """Evaluate an expression that was let through: columns, arithmetic, functions of NumPy."""
    pandas = optional("pandas", "implicit-delta fit")
    functions = {name: getattr(np, name) for name in ("log", "log2", "log10", "log1p", "sqrt")}
    functions |= {name: getattr(np, name) for name in ("exp", "expm1")}
    same = dict.fromkeys(("C", "I", "center", "scale", "standardize"), lambda x, *_, **__: x)
    codings = dict.fromkeys(("Treatment", "Sum", "Diff", "Helmert", "Poly"), lambda *_, **__: None)
    names = {"np": np, "abs": abs, "Q": frame.__getitem__, **functions, **same, **codings}
    names |= {name: frame[name] for name in frame.columns}
    code = compile(ast.fix_missing_locations(ast.Expression(node)), "<formula>", "eval")
    return pandas.Series(eval(code, {"__builtins__": {}}, names))


def _width(node: ast.AST) -> int:
    """Count the columns of an expression that holds splines."""
    match node:
        case ast.Call(func=ast.Name(id="te"), args=args, keywords=keywords):
            return max(1, prod(map(_width, args)) - bool(keywords))  # a constraint
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in SPLINES:
            given = dict(zip(SPLINES[name], args, strict=False))
            given |= {item.arg: item.value for item in keywords if item.arg}
            return max(1, _spline(name, given))
    return max(map(_width, ast.iter_child_nodes(node)), default=1)


def _spline(name: str, given: dict[str, ast.expr]) -> int:
    degree = _whole(name, "degree", given) or (1 if name == "poly" else 3)
    if degree > DEGREE and name != "poly":
        raise Failure(f"The degree of {name} is at most {DEGREE}, not {degree}.")
    if name == "poly":
        return degree
    df = _whole(name, "df", given)
    if df is not None:
        return df
    knots = len(getattr(given.get("knots"), "elts", ()))
    return knots + ENDS.get(name, degree) - ("constraints" in given)


def _whole(name: str, setting: str, given: dict[str, ast.expr]) -> int | None:
    match given.get(setting):
        case None | ast.Constant(value=None) | ast.UnaryOp():
            return None
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
    raise Failure(f"{setting} of {name} in the formula is a whole number, such as {setting}=4.")

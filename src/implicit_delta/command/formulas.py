"""Formulas, checked before they are evaluated.

A formula of patsy holds Python code. Let through are columns, numbers, arithmetic and calls of the
functions below; and the columns of the design are counted before any of them is made.
"""

import ast
import keyword
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, combinations
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy import exp, expm1, log, log1p, log2, log10, sqrt  # noqa: F401 (formulas call them)

from implicit_delta.command.failure import Failure, no_column
from implicit_delta.core.optional import optional

LONGEST = 10_000  # characters
HIGHEST = 9  # power of a sum of terms: their number grows exponentially
CELLS = 10**9  # numbers of a design, rows times columns: 8 GB, of which a fit holds several copies
WORK = 10**12  # rows times the square of columns: least squares take about five minutes for it
PRODUCTS = 10**5  # of terms in interactions: patsy multiplies them out in about a second
DEGREE = 19  # of a spline: FITPACK has room for no more, and crashes

PLAIN = {"log", "log2", "log10", "log1p", "exp", "expm1", "sqrt", "abs"}
FUNCTIONS = PLAIN | {
    "C", "Q", "I", "bs", "cr", "cc", "te", "center", "scale", "standardize",
    "Treatment", "Sum", "Diff", "Helmert", "Poly",
}  # fmt: skip
NUMPY = PLAIN | {
    "absolute", "arcsinh", "arctan", "ceil", "clip", "cos", "floor", "maximum", "minimum", "power",
    "sign", "sin", "square", "tan", "tanh", "where",
}  # fmt: skip
ARITHMETIC = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.Pow,
)  # fmt: skip
COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
# Arguments of the functions that make several columns, in their order.
SPLINES = {
    "bs": ("x", "df", "knots", "degree", "include_intercept"),
    "cr": ("x", "df", "knots"),
    "cc": ("x", "df", "knots"),
}
Term = tuple[str, ...]  # the code of its factors; empty for the intercept


@dataclass(frozen=True)
class Formula:
    """A formula that was checked.

    Attributes
    ----------
    text : str
    left, right : tuple of Term
    factors : mapping of str to ast.expr
        The code of each factor, parsed.
    columns : tuple of str
        Columns of the table that are used.
    """

    text: str
    left: tuple[Term, ...]
    right: tuple[Term, ...]
    factors: Mapping[str, ast.expr]
    columns: tuple[str, ...]

    @property
    def outcomes(self) -> tuple[str | None, ...]:
        """The columns on the left, None for what is computed."""
        nodes = (self.factors[code] for term in self.left for code in term)
        return tuple(map(_column, nodes))

    @property
    def bare(self) -> set[str]:
        """Columns that stand as terms of their own."""
        return {name for node in self.factors.values() if (name := _column(node)) is not None}

    @property
    def computed(self) -> set[str]:
        """Columns in arithmetic and in functions of NumPy."""
        parts = chain.from_iterable(map(ast.walk, self.factors.values()))
        arithmetic = (
            part
            for part in parts
            if isinstance(part, ast.BinOp | ast.UnaryOp)
            or (isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute))
        )
        return {name for part in arithmetic for name in _names(part)} & set(self.columns)


def read_formula(text: str, columns: Collection[str]) -> Formula:
    """Check a formula against the columns of a table.

    Examples
    --------
    >>> read_formula("y ~ x + C(g)", ["y", "x", "g"]).columns
    ('y', 'x', 'g')
    """
    text = text.replace("\n", " ").strip()
    if len(text) > LONGEST:
        raise Failure(f"The formula has {len(text)} characters, more than {LONGEST}.")
    patsy, shown = optional("patsy", "implicit-delta fit"), f"The formula {text!r:.120}"
    try:
        _check_products(optional("patsy.parse_formula", "").parse_formula(text))
        found = patsy.ModelDesc.from_formula(text)
    except RecursionError:
        raise Failure("The formula has too many operators in a row: write fewer terms.") from None
    except (patsy.PatsyError, SyntaxError, AssertionError) as error:
        reason = str(error).partition("\n")[0] or "an operator that it does not have"
        raise Failure(f"{shown} does not parse: {reason}.{_quoting(text, columns)}") from None
    left, right = (
        tuple(tuple(str(factor.name()) for factor in term.factors) for term in terms)
        for terms in (found.lhs_termlist, found.rhs_termlist)
    )
    if () in left or not left:
        raise Failure(f"{shown} has no outcome: write it before a '~', 'y ~ x + C(group)'.")
    if not right:
        raise Failure(f"{shown} has no columns on its right: write 'y ~ 1'.")
    codes = dict.fromkeys(code for term in (*left, *right) for code in term)
    factors = {code: _factor(code, columns) for code in codes}
    used = (name for node in factors.values() for name in _names(node) if name in columns)
    return Formula(text, left, right, factors, tuple(dict.fromkeys(used)))


def parsed(code: str) -> ast.expr | None:
    """Return the syntax tree of an expression, or None if it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the parser, on escapes and odd calls
            return ast.parse(code.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _check_products(node: Any) -> tuple[int, frozenset[str]]:
    """Bound the number of terms of a parsed formula before patsy multiplies them out."""
    if not node.args:
        return 1, frozenset([node.token.extra])
    if node.type == "**":
        power = getattr(node.args[1].token, "extra", None) or ""  # none of a sum in brackets
        if not power.isdigit() or not 1 <= int(power[:9]) <= HIGHEST:
            raise Failure(
                f"In a formula '**' takes interactions, up to {HIGHEST}: (a + b)**2. A power of a "
                "column is I(x**2)."
            )
        a, names = _check_products(node.args[0])
        terms = min(a ** int(power), 2 ** len(names))
        work = int(power) * terms * a
    else:
        sizes, parts = zip(*map(_check_products, node.args), strict=True)
        names, a, b = frozenset().union(*parts), sizes[0], sizes[-1]
        work = {"*": a * b, ":": a * b}.get(node.type, 0)
        terms = min((a + b) * (node.type != ":") + work, 2 ** len(names))
    if work > PRODUCTS:
        raise Failure(
            f"The interactions of the formula multiply out to more than {PRODUCTS} products of "
            "terms: write the ones that you mean, a + b + a:b."
        )
    return terms, names


def _factor(code: str, columns: Collection[str]) -> ast.expr:
    """Parse a factor, and let it through if it is a column or a call of a known function."""
    node = parsed(code)
    if node is None:
        hint = " List the columns: a dot does not stand for all." * (code == ".")
        raise Failure(f"{code!r:.80} in the formula does not parse.{hint}{_quoting(code, columns)}")
    if not isinstance(node, ast.Name | ast.Call):
        raise Failure(
            f"{code!r:.80} is not a column, nor a function of columns: arithmetic and comparisons "
            f"go into I(...), as in I(x > 3).{_quoting(code, columns)}"
        )
    if isinstance(node, ast.Name) and node.id not in columns:
        raise no_column(node.id, columns)
    try:
        _check(node, columns)
    except RecursionError:
        raise Failure("The formula is nested too deeply.") from None
    return node


def _check(node: ast.expr, columns: Collection[str]) -> None:
    """Let through calls of known functions on columns and literals, and arithmetic."""
    match node:
        case ast.Name(id=name) if name not in columns and name not in FUNCTIONS:
            raise no_column(name, columns)
        case ast.Name() | ast.Constant(value=bool() | int() | float() | str() | None):
            return
        case ast.Call(func=ast.Name(id="Q"), args=[ast.Constant(value=str() as name)], keywords=[]):
            if name not in columns:
                raise no_column(name, columns)
            return
        case ast.Call(func=func, args=args, keywords=keywords):
            _check_function(func, columns)
            parts = [*args, *(item.value for item in keywords)]
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, ARITHMETIC):
            parts = [left, right]
            _check_operands(op, left, right)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert(), operand=operand):
            parts = [operand]
            _check_operands(node.op, operand)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            isinstance(op, COMPARISONS) for op in ops
        ):
            parts = [left, *others]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            pass
        case _:
            raise Failure(
                f"{ast.unparse(node)!r:.80} is not allowed in a formula: it takes columns, "
                "numbers, arithmetic, and functions such as C, Q, I, bs, np.log."
            )
    for part in parts:
        _check(part, columns)


def _check_operands(op: ast.AST, *operands: ast.expr) -> None:
    """Let through numbers and columns; powers of numbers alone have no bound."""
    for part in operands:
        if isinstance(part, ast.Constant | ast.List | ast.Tuple) and not _is_number(part):
            raise Failure(f"{ast.unparse(part)!r:.80} is not a number that can be added.")
    if isinstance(op, ast.Pow):
        base, power = operands
        power = power.operand if isinstance(power, ast.UnaryOp) else power
        if not any(isinstance(part, ast.Name) for part in ast.walk(base)) or not _is_number(power):
            raise Failure(f"'{ast.unparse(base)} ** ...' is not a power of a column.")


def _check_function(func: ast.expr, columns: Collection[str]) -> None:
    match func:
        case ast.Name(id=name) if name in FUNCTIONS and name in columns:
            raise Failure(f"The column {name!r} hides the function {name}: rename the column.")
        case ast.Name(id=name) if name in FUNCTIONS and name != "Q":
            return
        case ast.Attribute(value=ast.Name(id="np"), attr=name) if name in NUMPY:
            return
        case ast.Name(id="Q"):
            raise Failure('Q takes the name of a column in quotes: Q("my column").')
    raise Failure(
        f"{ast.unparse(func)!r:.80} is not a function for formulas. Known are "
        f"{', '.join(sorted(FUNCTIONS))}, and of NumPy np.log, np.where and the like."
    )


def _is_number(node: ast.expr) -> bool:
    value = getattr(node, "value", None)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _column(node: ast.expr) -> str | None:
    """Return the column that a factor is."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Call(func=ast.Name(id="Q"), args=[ast.Constant(value=str() as name)]):
            return name
    return None


def _names(node: ast.AST) -> Iterator[str]:
    """Yield names and quoted texts, which are names in Q("...")."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def _quoting(text: str, columns: Collection[str]) -> str:
    """Show how to write a column that is not a plain name and stands in a text."""
    for name in sorted(columns, key=len, reverse=True):
        plain = name.isidentifier() and not keyword.iskeyword(name)
        if name and not plain and name in text:
            return f' Write Q("{name}") for the column {name!r}.'
    return ""


def check_size(
    terms: Collection[Term], formula: Formula, frame: Any, times: int = 1, more: int = 0
) -> None:
    """Refuse terms with more columns than the rows or the machine can bear.

    ``times`` and ``more`` are the coefficients of a column and those beside: classes, thresholds.
    """
    rows = len(frame)
    codes = dict.fromkeys(chain(*terms))
    widths = {code: _width(code, formula.factors[code], frame) for code in codes}
    columns = times * _count(terms, widths, rows) + more
    made = f"The {'outcome' if terms is formula.left else 'formula'} makes {columns} coefficients"
    widest = max(widths, key=lambda code: widths[code].size, default="")
    size, labels = widths.get(widest, Width(1))
    each = ", one for each of its values but the first" if labels else ""
    alone = f" {widest:.80} alone makes {size}{each}." if size > 1 else ""
    if columns >= rows:
        raise Failure(f"{made} of {rows} rows: more rows or fewer coefficients are needed.{alone}")
    if rows * columns > CELLS or rows * columns**2 > WORK:
        raise Failure(
            f"{made} of {rows} rows, which is too many for one fit: the limits are {CELLS:.0e} for "
            f"the product of both and {WORK:.0e} for rows times squared coefficients.{alone}"
        )


class Width(NamedTuple):
    """Columns of a factor: of numbers, or of labels but for the first one."""

    size: int
    labels: bool = False


def _count(terms: Collection[Term], widths: Mapping[str, Width], rows: int) -> int:
    """Count columns without those that are sums of others.

    An interaction of labels spans those of all subsets of them, each with the labels but the first.
    """
    parts = set()
    for term in terms:
        labels = [code for code in term if widths[code].labels and widths[code].size]
        numbers = frozenset(code for code in term if not widths[code].labels)
        if len(labels) > rows.bit_length():
            return int(2 ** len(labels))  # each of the subsets has a column at least
        subsets = chain.from_iterable(combinations(labels, k) for k in range(len(labels) + 1))
        parts |= {numbers.union(some) for some in subsets}
    return sum(prod(widths[code].size for code in part) for part in parts)


def _width(code: str, node: ast.expr, frame: Any) -> Width:
    """Find the columns of a factor, by making it of the rows once its splines are small enough."""
    size = prod(_spline_size(part) for part in ast.walk(node) if isinstance(part, ast.Call))
    if len(frame) * size > CELLS or len(frame) * size**2 > WORK:
        return Width(size)
    patsy = optional("patsy", "implicit-delta fit")
    term = patsy.Term([patsy.EvalFactor(code)])
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            (info,) = patsy.build.design_matrix_builders(
                [[term]], lambda: iter([frame]), patsy.EvalEnvironment.capture()
            )
    except Exception:  # patsy says what is wrong when the design is made
        return Width(1)
    (factor,) = info.factor_infos.values()
    if factor.type == "categorical":
        return Width(len(factor.categories) - 1, labels=True)
    return Width(factor.num_columns)


def _spline_size(call: ast.Call) -> int:
    """Bound the columns of a spline by its settings: whole numbers, or knots one by one."""
    name = ast.unparse(call.func)
    given = dict(zip(SPLINES.get(name, ()), call.args, strict=False))
    given |= {str(item.arg): item.value for item in call.keywords}
    sizes = {}
    for setting in ("df", "degree") if name in SPLINES else ():
        node = given.get(setting, ast.Constant(None))
        value = node.value if isinstance(node, ast.Constant) else "computed"
        if isinstance(value, bool) or not isinstance(value, int | None):
            raise Failure(
                f"{setting} of {name} in the formula is a whole number, such as {setting}=4."
            )
        sizes[setting] = value or 1
    if sizes.get("degree", 0) > DEGREE:
        raise Failure(f"The degree of {name} is at most {DEGREE}, not {sizes['degree']}.")
    return max(sizes.values(), default=1)

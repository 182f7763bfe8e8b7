"""Formulas, checked before an engine evaluates them: formulas of patsy hold Python code.

Operators of formulas, names of columns, numbers and calls of the functions below are let through,
and everything else is refused, so that nothing in a formula is run but arithmetic on columns.
"""

import ast
import io
import keyword
import tokenize
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from implicit_delta.command.failure import Failure, meant
from implicit_delta.command.literals import parsed

LONGEST = 10_000  # characters
HIGHEST = 9  # power of a sum of terms: their number grows exponentially
OPERATORS = {"+": 1, "-": 1, "*": 2, "/": 2, ":": 3}  # and how tightly they bind
TIGHTEST = 4  # signs and powers
# Functions of patsy and formulaic, and of NumPy, with and without its prefix.
ENGINE = {
    "C", "Q", "I", "bs", "cr", "cc", "te", "poly", "center", "scale", "standardize",
    "Treatment", "Sum", "Diff", "Helmert", "Poly",
}  # fmt: skip
PLAIN = {"log", "log2", "log10", "log1p", "exp", "expm1", "sqrt", "abs"}
NUMPY = PLAIN | {
    "absolute", "arcsinh", "arctan", "ceil", "clip", "cos", "floor", "maximum", "minimum", "power",
    "sign", "sin", "square", "tan", "tanh", "where",
}  # fmt: skip
FUNCTIONS = ENGINE | PLAIN
ARITHMETIC = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr,
)  # fmt: skip
COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@dataclass(frozen=True)
class Formula:
    """A formula that was checked, its outcome if that is a column, and the columns it uses."""

    text: str
    outcome: str | None
    columns: tuple[str, ...]
    bare: tuple[str, ...]  # columns that stand as terms of their own
    pair: tuple[str | None, ...]  # successes and failures
    computed: tuple[str, ...]  # columns in arithmetic
    sides: tuple[tuple[Any, ...], tuple[Any, ...]]  # operators and operands, in postfix order


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
    reader = _Reader(text, columns)
    sides = _sides(_tokens(text), text)
    programs = [reader.program(side) for side in sides]
    left, right = ([node for node in one[1:] if isinstance(node, ast.expr)] for one in programs)
    if not left or not right:
        raise Failure(f"The formula {text!r:.120} has an empty side: write 'y ~ x', or 'y ~ 1'.")
    if all(isinstance(term, ast.Constant) and not term.value for term in right):
        raise Failure(f"The formula {text!r:.120} has no columns on its right: write 'y ~ 1'.")
    outcome = reader.column(left[0]) if len(left) == 1 else None
    pair = tuple(map(reader.column, left)) if len(left) == 2 else ()
    bare = tuple(name for term in right if (name := reader.column(term)) is not None)
    computed = {name: None for term in (*left, *right) for name in _computed(term)}
    both = (tuple(programs[0]), tuple(programs[1]))
    return Formula(text, outcome, tuple(reader.used), bare, pair, tuple(computed), both)


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    allowed = {tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING}
    dull = {tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER}
    try:
        found = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        raise Failure(f"The formula {text!r:.120} does not parse: check its brackets.") from None
    found = [token for token in found if token.type not in dull]
    for token in found:
        if token.type not in allowed:
            raise Failure(
                f"The formula {text!r:.120} does not parse at {token.string!r:.20}. Names with "
                'blanks or odd letters go into Q("...").'
            )
    return found


def _sides(
    tokens: list[tokenize.TokenInfo], text: str
) -> tuple[list[tokenize.TokenInfo], list[tokenize.TokenInfo]]:
    places = [k for k, token in enumerate(tokens) if token.string == "~"]
    if len(places) != 1:
        raise Failure(
            f"The formula {text!r:.120} has {len(places) or 'no'} '~': write the outcome, '~' and "
            "the columns that explain it, 'y ~ x + C(group)'."
        )
    return tokens[: places[0]], tokens[places[0] + 1 :]


@dataclass(frozen=True)
class _Reader:
    """Terms of the sides of a formula; columns are noted as they are met."""

    text: str
    columns: Collection[str]
    used: dict[str, None] = field(default_factory=dict)

    def program(self, tokens: list[tokenize.TokenInfo]) -> list[Any]:
        """Walk over operands and operators in turn; put them in postfix order, after a constant.

        Operands that are code are checked; a power is its number, a minus sign "negative".
        """
        k, operand = 0, True
        found: list[Any] = [ast.Constant(1)]
        waiting = ["+"]  # operators and open brackets

        def release(binding: int) -> None:
            while waiting and waiting[-1] != "(":
                if OPERATORS.get(waiting[-1], TIGHTEST) < binding:
                    break
                found.append(waiting.pop())

        while k < len(tokens):
            token = tokens[k]
            if operand and token.string == "(":
                waiting.append("(")
            elif not operand and token.string == ")" and "(" in waiting:
                release(0)
                waiting.pop()
            elif not operand and token.string == "**":
                release(TIGHTEST)
                k, operand = self._power(tokens, k), False
                found.append(int(tokens[k].string))
            elif not operand and token.string in OPERATORS:
                release(OPERATORS[token.string])
                waiting.append(token.string)
                operand = True
            elif operand and token.type == tokenize.NUMBER and token.string in ("0", "1"):
                operand = False
                found.append(ast.Constant(int(token.string)))
            elif operand and token.type == tokenize.NAME:
                end = _end(tokens, k)
                found.append(self._checked(self.text[token.start[1] : tokens[end - 1].end[1]]))
                k, operand = end - 1, False
            elif operand and token.string == "-":
                waiting.append("negative")
            elif not operand or token.string != "+":
                raise self._unexpected(token)
            k += 1
        if tokens and (operand or "(" in waiting):
            raise Failure(f"The formula {self.text!r:.120} does not parse: it breaks off.")
        release(0)
        return found

    def column(self, node: ast.expr) -> str | None:
        """Return the column that a term is."""
        match node:
            case ast.Name(id=name):
                return name
            case ast.Call(func=ast.Name(id="Q"), args=[ast.Constant(value=str() as name)]):
                return name
        return None

    def _power(self, tokens: list[tokenize.TokenInfo], k: int) -> int:
        power = tokens[k + 1].string if k + 1 < len(tokens) else ""
        if not power.isdigit() or not 1 <= int(power[:9]) <= HIGHEST:
            raise Failure(
                f"In a formula '**' takes interactions, up to {HIGHEST}: (a + b)**2. A power of a "
                "column is I(x**2)."
            )
        return k + 1

    def _checked(self, code: str) -> ast.expr:
        node = parsed(code)
        if node is None:
            raise Failure(f"{code!r:.80} in the formula does not parse.{self._quoting()}")
        if isinstance(node, ast.Attribute) and code in self.columns:
            raise Failure(f'The column {code} has a dot in its name: write Q("{code}").')
        try:
            self._check(node)
        except RecursionError:
            raise Failure("The formula is nested too deeply.") from None
        return node

    def _check(self, node: ast.expr) -> None:
        """Let through calls of known functions on columns and literals, and arithmetic."""
        match node:
            case ast.Name(id=name):
                self._check_name(name)
            case ast.Constant(value=bool() | int() | float() | str() | None):
                pass
            case ast.Call(func=func, args=args, keywords=keywords):
                self._check_function(func)
                if isinstance(func, ast.Name) and func.id == "Q":
                    self._check_quoted(args)
                for part in [*args, *(item.value for item in keywords)]:
                    self._check(part)
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, ARITHMETIC):
                self._check_operands(left, right)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                self._check_power(left, right)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert(), operand=operand):
                self._check_operands(operand)
            case ast.Compare(left=left, ops=ops, comparators=others) if all(
                isinstance(op, COMPARISONS) for op in ops
            ):
                for part in (left, *others):
                    self._check(part)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                for item in items:
                    self._check(item)
            case _:
                raise Failure(
                    f"{ast.unparse(node)!r:.80} is not allowed in a formula: it takes columns, "
                    "numbers, arithmetic, and functions such as C, Q, I, bs, np.log."
                )

    def _check_operands(self, *operands: ast.expr) -> None:
        for part in operands:
            if isinstance(part, ast.Constant | ast.List | ast.Tuple) and not _is_number(part):
                raise Failure(f"{ast.unparse(part)!r:.80} is not a number that can be added.")
            self._check(part)

    def _check_power(self, left: ast.expr, right: ast.expr) -> None:
        """Powers are of columns, with a number: those of whole numbers alone have no bound."""
        exponent = right.operand if isinstance(right, ast.UnaryOp) else right
        named = any(isinstance(part, ast.Name) for part in ast.walk(left))
        if not named or not _is_number(exponent):
            raise Failure(
                f"'{ast.unparse(left)} ** ...' in the formula is not a power of a column."
            )
        self._check_operands(left, right)

    def _check_name(self, name: str) -> None:
        if name in self.columns:
            self.used[name] = None
        elif name not in FUNCTIONS:
            raise Failure(
                f"There is no column {name!r}: {meant(name, self.columns)}{self._quoting()}"
            )

    def _check_quoted(self, args: list[ast.expr]) -> None:
        match args:
            case [ast.Constant(value=str() as name)] if name in self.columns:
                self.used[name] = None
            case [ast.Constant(value=str() as name)]:
                raise Failure(f"There is no column {name!r}: {meant(name, self.columns)}")
            case _:
                raise Failure('Q takes the name of a column in quotes: Q("my column").')

    def _check_function(self, func: ast.expr) -> None:
        match func:
            case ast.Name(id=name) if name in FUNCTIONS and name not in self.columns:
                return
            case ast.Name(id=name) if name in FUNCTIONS:
                raise Failure(f"The column {name!r} hides the function {name}: rename the column.")
            case ast.Attribute(value=ast.Name(id="np"), attr=name) if name in NUMPY:
                return
        raise Failure(
            f"{ast.unparse(func)!r:.80} is not a function for formulas. Known are "
            f"{', '.join(sorted(FUNCTIONS))}, and of NumPy np.log, np.where and the like."
        )

    def _unexpected(self, token: tokenize.TokenInfo) -> Failure:
        if token.string == ".":
            tail = ' A dot is no column: list them, or write Q("a.b") for a name with a dot.'
        elif token.string == "|":
            tail = " Random effects and bars have no place here."
        elif token.string in ("<", ">", "==", "!=", "<=", ">="):
            tail = " A comparison goes into I(...): I(x > 3)."
        else:
            tail = self._quoting()
        return Failure(
            f"The formula {self.text!r:.120} does not parse at {token.string!r:.20}.{tail}"
        )

    def _quoting(self) -> str:
        """Show how to write a column that is no plain name and stands in the formula."""
        for name in sorted(self.columns, key=len, reverse=True):
            plain = name.isidentifier() and not keyword.iskeyword(name)
            if not plain and name and name in self.text:
                return f' Write Q("{name}") for the column {name!r}.'
        return ""


def _end(tokens: list[tokenize.TokenInfo], k: int) -> int:
    """Find the end of a name, with its dots and the brackets of its call."""
    k += 1
    while k + 1 < len(tokens) and tokens[k].string == ".":
        k += 2
    depth = 0
    while k < len(tokens) and (depth or tokens[k].string in ("(", "[")):
        depth += (tokens[k].string in ("(", "[", "{")) - (tokens[k].string in (")", "]", "}"))
        k += 1
    return k


def _computed(term: ast.expr) -> Iterator[str]:
    """Columns in arithmetic and in functions of NumPy."""
    for node in ast.walk(term):
        of_numpy = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if of_numpy or isinstance(node, ast.BinOp | ast.UnaryOp):
            for part in ast.walk(node):
                if isinstance(part, ast.Name):
                    yield part.id
                elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value  # of Q("...")


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=int() | float() as value):
            return not isinstance(value, bool)
    return False

"""Calls with literal arguments, read from text by Python's parser and never run."""

import ast
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from implicit_delta.command.failure import Failure, meant

LONGEST = 2_000  # characters: nobody types more, and the parser recurses
LARGEST = 10**15  # whole numbers that floats hold exactly


@dataclass(frozen=True)
class Call:
    """A name with literal arguments, of which some may be calls of names that were allowed."""

    name: str
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)


def parsed(text: str) -> ast.expr | None:
    """Return the syntax tree of an expression, or None if it is none."""
    if len(text) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the parser, on escapes and odd calls
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def read_call(
    text: str, known: Collection[str], nested: Collection[str] = (), example: str = ""
) -> Call:
    """Read ``name`` or ``name(1, "a", by=["g"])``; everything but literals is refused.

    Examples
    --------
    >>> read_call("Bootstrap(200, rng=1)", {"Bootstrap"})
    Call(name='Bootstrap', arguments=(200,), keywords={'rng': 1})
    """
    match parsed(text):
        case ast.Name(id=name):
            node: ast.expr = ast.Call(ast.Name(name), [], [])
        case ast.Call(func=ast.Name()) as call:
            node = call
        case _:
            raise _refusal(text, example)
    try:
        return _call(node, known, nested)
    except (TypeError, RecursionError):
        raise _refusal(text, example) from None


def _call(node: ast.expr, known: Collection[str], nested: Collection[str]) -> Call:
    match node:
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            if name not in known:
                raise Failure(f"{name} is not known here: {meant(name, sorted(known))}.")
            if any(item.arg is None for item in keywords):
                raise TypeError("a starred keyword")
            named = {str(item.arg): _value(item.value, nested) for item in keywords}
            return Call(name, tuple(_value(item, nested) for item in args), named)
    raise TypeError("no call")


def _value(node: ast.expr, nested: Collection[str]) -> Any:
    match node:
        case ast.Constant(value=bool() | str() | None as value):
            return value
        case ast.Constant(value=int() | float() as number):
            if abs(number) > LARGEST:
                raise Failure(
                    f"A number is at most {LARGEST:.0e} here, not {ast.unparse(node):.20}."
                )
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float()) as operand):
            return -_value(operand, nested)
        case ast.Tuple(elts=items):
            return tuple(_value(item, nested) for item in items)
        case ast.List(elts=items):
            return [_value(item, nested) for item in items]
        case ast.Call(func=ast.Name(id=name)) if name in nested:
            return _call(node, nested, ())
    raise TypeError("no literal")


def _refusal(text: str, example: str) -> Failure:
    return Failure(
        f"{text!r:.120} is not a name with plain arguments (numbers, text in quotes, lists of "
        f"them){f', such as {example}' if example else ''}; it is read, never run as code."
    )

"""Questions, methods and corrections from text, read as calls with literals and never run."""

import ast
import dataclasses
import inspect
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

import implicit_delta
from implicit_delta import HAC, Estimate, infer, parameters
from implicit_delta.command.failure import Failure, listed, meant
from implicit_delta.command.fitting import Fit
from implicit_delta.command.formulas import parsed
from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.estimate.expressions import read_expression

QUESTIONS = ("average_comparison", "average_slope", "average_prediction", "predictions")
ASKED = (*QUESTIONS, "contrast", "parameters")
EXAMPLE = "average_comparison('x') or contrast('x - z')"
METHODS = ("Infinitesimal", "FiniteDifference", "Simulation", "Bootstrap")
CORRECTIONS = ("HC0", "HC1", "HC2", "HC3", "CR0", "CR1", "CR1S", "CR2")
LONGEST = 2_000  # characters: nobody types more, and the parser recurses
LARGEST = 10**15  # whole numbers that floats hold exactly
MOST_ROWS = 2_000  # of predictions and groups: their covariance has the square of that
MOST_DRAWS = 10**6  # the standard error is then known to 1 / sqrt(2e6) of itself, 0.07%


class Call(NamedTuple):
    """A name with literal arguments; some may be calls of a name that was allowed."""

    name: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = {}


class Ask(NamedTuple):
    """A question as it was typed, the call it is, and the columns of its groups.

    The call is None for the name of a coefficient.
    """

    text: str
    call: Call | None
    by: tuple[str, ...] = ()


def read_call(
    text: str, known: Collection[str], nested: Collection[str] = (), example: str = ""
) -> Call:
    """Read ``name`` or ``name(1, "a", by=["g"])``; everything but literals is refused.

    Examples
    --------
    >>> read_call("Bootstrap(200, rng=1)", {"Bootstrap"})
    Call(name='Bootstrap', arguments=(200,), keywords={'rng': 1})
    """
    node = parsed(text) if len(text) <= LONGEST else None
    node = ast.Call(node, [], []) if isinstance(node, ast.Name) else node
    try:
        return _call(node, known, nested)
    except (TypeError, ValueError, RecursionError):
        such = f", such as {example}" if example else ""
        raise Failure(
            f"{text!r:.120} is not a name with plain arguments (numbers, text in quotes, lists of "
            f"them){such}; it is read, never run as code."
        ) from None


def _call(node: ast.AST | None, known: Collection[str], nested: Collection[str]) -> Call:
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
    """Read a literal, or a call of a nested name."""
    if isinstance(node, ast.Call):
        return _call(node, nested, ())
    value = ast.literal_eval(node)
    for number in (part.value for part in ast.walk(node) if isinstance(part, ast.Constant)):
        if not isinstance(number, bool | str | int | float | None):
            raise TypeError("another literal")
        if isinstance(number, int | float) and abs(number) > LARGEST:
            raise Failure(f"A number is at most {LARGEST:.0e} here, not {number!r:.20}.")
    if isinstance(value, bool | str | int | float | list | tuple | None):
        return value
    raise TypeError("another literal")


def read_ask(text: str) -> Ask:
    """Read a question and check its arguments; other text may be the name of a coefficient."""
    text = text.strip()
    if not any(text == name or text.startswith((f"{name}(", f"{name} (")) for name in ASKED):
        return Ask(text, None)
    call = read_call(text, ASKED, ("datagrid",), EXAMPLE)
    if call.name == "contrast":
        if len(call.arguments) != 1 or call.keywords or not isinstance(call.arguments[0], str):
            raise Failure("contrast takes one expression in quotes: contrast('x - z').")
        return Ask(text, call)
    if call.name == "parameters":
        if call.arguments or call.keywords:
            raise Failure("parameters takes no arguments.")
        return Ask(text, call)
    if call.name == "predictions" and not call.arguments and "data" not in call.keywords:
        call = call._replace(arguments=(None,))  # of the rows of the file
    takes = inspect.signature(getattr(implicit_delta, call.name))
    try:
        by = takes.bind(*call.arguments, **call.keywords).arguments.get("by")
    except TypeError as error:
        raise Failure(f"{call.name}: {error}; it takes {listed(takes.parameters)}.") from None
    columns = () if by is None else by if isinstance(by, list | tuple) else (by,)
    if not all(isinstance(name, str) for name in columns):
        raise Failure("by= takes names of columns in quotes: by='group', or by=['a', 'b'].")
    return Ask(text, call, tuple(columns))


def read_method(text: str | None, seed: int) -> Any:
    """Read a method with its settings; one that draws gets the seed."""
    if text is None:
        return None
    known = {name.lower(): name for name in METHODS}
    call = read_call(text, (*METHODS, *known), example="Bootstrap(500)")
    make = getattr(implicit_delta, known.get(call.name, call.name))
    seeded = {"rng": seed} if "rng" in {item.name for item in dataclasses.fields(make)} else {}
    try:
        made = make(*call.arguments, **{**seeded, **call.keywords})
    except (TypeError, ValueError, OverflowError) as error:
        raise Failure(f"--method {text}: {error}") from None
    for setting in ("replicates", "draws"):
        if getattr(made, setting, 0) > MOST_DRAWS:
            raise Failure(f"--method {text}: {setting} are at most {MOST_DRAWS} here.")
    return made


def read_robust(text: str | None) -> Any:
    """Read a correction of the sandwich, or HAC with its lags."""
    if text is None or text == "plain":
        return text is not None
    if text.upper() in CORRECTIONS:
        return text.upper()
    if not text.upper().startswith("HAC("):
        known = ", ".join(CORRECTIONS)
        raise Failure(f"--robust is one of {known} or HAC(lags), not {text!r:.60}.")
    call = read_call(f"HAC{text[3:]}", ("HAC",), example="HAC(4)")
    try:
        return HAC(*call.arguments, **call.keywords)
    except (TypeError, ValueError) as error:
        raise Failure(f"--robust {text}: {error}") from None


def answer(fit: Fit, ask: Ask, **settings: Any) -> Estimate:
    """Answer one question with these settings of `infer`."""
    names = tuple(fit.model.names)
    if ask.text in names:
        return infer(fit.model, parameters, **settings)[ask.text]
    if ask.call is None:
        raise Failure(
            f"{ask.text!r:.80} is neither a coefficient ({meant(ask.text, names)}) nor one of the "
            f"questions {', '.join(ASKED)}, with plain arguments: {EXAMPLE}."
        )
    if ask.call.name == "parameters":
        return infer(fit.model, parameters, **settings)
    if ask.call.name == "contrast":
        expression = ask.call.arguments[0]
        return infer(fit.model, _contrast(expression, names), names=expression, **settings)
    keywords = {name: _grid(fit, value) for name, value in ask.call.keywords.items()}
    arguments = [_grid(fit, value) for value in ask.call.arguments]
    groups = [name for name in ask.by if name in fit.frame]
    if ask.call.name == "predictions" and ask.call.arguments == (None,):
        _check_rows(len(fit.frame))
    _check_rows(len(fit.frame[groups].drop_duplicates()) if groups else 1)
    return infer(
        fit.model, getattr(implicit_delta, ask.call.name)(*arguments, **keywords), **settings
    )


def _contrast(expression: str, names: tuple[str, ...]) -> Any:
    """Linear combination of the coefficients, which may stand in a table of classes."""
    try:
        row, constant = read_expression(expression, names)
    except (ImplicitDeltaError, ValueError, KeyError):
        raise Failure(
            f"{expression!r:.80} is not a sum, difference or multiple of coefficients, of which "
            f"there are {listed(names)}."
        ) from None

    def psi(params: Any) -> Any:
        values = params.to_numpy() if hasattr(params, "to_numpy") else params
        return row @ (values.T.reshape(-1) if values.ndim == 2 else values) + constant

    return psi


def _grid(fit: Fit, value: Any) -> Any:
    """Make the grid that a nested call stands for, with its rows named by the given values."""
    if not isinstance(value, Call):
        return value
    if value.arguments:
        raise Failure("datagrid takes values of columns by name: datagrid(x=[0, 1]).")
    _check_rows(math.prod(np.size(entry) for entry in value.keywords.values()))
    grid = implicit_delta.datagrid(fit.model, **value.keywords)
    rows = zip(*(grid[name] for name in value.keywords), strict=True)
    labels = [", ".join(map("{}={}".format, value.keywords, row)) for row in rows]
    return grid.set_axis(labels, axis=0) if labels else grid


def _check_rows(rows: int) -> None:
    if rows > MOST_ROWS:
        raise Failure(
            f"{rows} answers have a joint covariance of {rows} x {rows}: ask for at most "
            f"{MOST_ROWS}, by predictions(datagrid(x=[0, 1])) or average_prediction(by='group')."
        )

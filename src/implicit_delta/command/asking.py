"""Questions from text to estimates: a call of a question, a coefficient, or a contrast of some."""

import dataclasses
import inspect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import implicit_delta
from implicit_delta import HAC, Estimate, infer, parameters
from implicit_delta.command.failure import Failure, listed, meant
from implicit_delta.command.fitting import Fit
from implicit_delta.command.literals import Call, parsed, read_call
from implicit_delta.estimate.expressions import read_expression

QUESTIONS = ("average_comparison", "average_slope", "average_prediction", "predictions")
ASKED = (*QUESTIONS, "contrast", "parameters")
EXAMPLE = "average_comparison('x') or contrast('x - z')"
METHODS = ("Infinitesimal", "FiniteDifference", "Simulation", "Bootstrap")
MOST_ROWS = 2_000  # of predictions and groups: their covariance has the square of that
MOST_DRAWS = 10**6  # the standard error is then known to 1 / sqrt(2e6) of itself, 0.07%
CORRECTIONS = ("HC0", "HC1", "HC2", "HC3", "CR0", "CR1", "CR1S", "CR2")


@dataclass(frozen=True)
class Ask:
    """A question as it was typed, and the call it is; None for the name of a coefficient."""

    text: str
    call: Call | None


@dataclass(frozen=True)
class Settings:
    """Method and variance of all answers."""

    method: Any = None
    robust: Any = False
    df: float | None = None


def read_ask(text: str) -> Ask:
    """Read a question; what is no call of one may be the name of a coefficient."""
    text = text.strip()
    node = parsed(text)
    names = [name for name in ASKED if text == name or text.startswith((f"{name}(", f"{name} ("))]
    if node is None and not names:
        return Ask(text, None)  # such as a:b, which is no Python
    if names:
        call = read_call(text, ASKED, ("datagrid",), EXAMPLE)
        _check_call(call)
        return Ask(text, call)
    return Ask(text, None)


def _check_call(call: Call) -> None:
    """Hold a call against the signature of its question, before any work."""
    if call.name == "contrast":
        if len(call.arguments) != 1 or call.keywords or not isinstance(call.arguments[0], str):
            raise Failure("contrast takes one expression in quotes: contrast('x - z').")
    elif call.name == "parameters":
        if call.arguments or call.keywords:
            raise Failure("parameters takes no arguments.")
    else:
        question = getattr(implicit_delta, call.name)
        try:
            inspect.signature(question).bind(*_placed(call), **call.keywords)
        except TypeError as error:
            takes = inspect.signature(question)
            names = listed(takes.parameters)
            raise Failure(f"{call.name}: {error}; it takes {names}.") from None


def _placed(call: Call) -> tuple[Any, ...]:
    """Arguments of a call; predictions without any are those of the rows of the file."""
    if call.name == "predictions" and not call.arguments and "data" not in call.keywords:
        return (None,)
    return call.arguments


def columns_of(ask: Ask) -> tuple[str, ...]:
    """Columns whose groups a question asks for, whether the formula has them or not."""
    if ask.call is None or ask.call.name not in QUESTIONS:
        return ()
    signature = inspect.signature(getattr(implicit_delta, ask.call.name))
    return _groups(signature.bind(*_placed(ask.call), **ask.call.keywords).arguments.get("by"))


def _groups(by: Any) -> tuple[str, ...]:
    columns = () if by is None else by if isinstance(by, list | tuple) else (by,)
    if not all(isinstance(name, str) for name in columns):
        raise Failure("by= takes names of columns in quotes: by='group', or by=['a', 'b'].")
    return tuple(columns)


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
    if text is None:
        return False
    if text == "plain":
        return True
    if text.upper() in CORRECTIONS:
        return text.upper()
    if text.upper().startswith("HAC("):
        call = read_call(f"HAC{text[3:]}", ("HAC",), example="HAC(4)")
        try:
            return HAC(*call.arguments, **call.keywords)
        except (TypeError, ValueError) as error:
            raise Failure(f"--robust {text}: {error}") from None
    raise Failure(f"--robust is one of {', '.join(CORRECTIONS)} or HAC(lags), not {text!r:.60}.")


def answer(fit: Fit, ask: Ask, settings: Settings, influence: bool = False) -> Estimate:
    """Answer one question."""
    names = tuple(fit.model.names)
    options = {
        "method": settings.method,
        "robust": settings.robust,
        "df": settings.df,
        "clusters": fit.clusters,
        "influence": influence and not getattr(settings.method, "robust", False),
    }
    if ask.text in names:
        return infer(fit.model, parameters, **options)[ask.text]
    if ask.call is None:
        raise Failure(
            f"{ask.text!r:.80} is neither a coefficient ({meant(ask.text, names)}) nor one of the "
            f"questions {', '.join(ASKED)}, with plain arguments: {EXAMPLE}."
        )
    if ask.call.name == "parameters":
        return infer(fit.model, parameters, **options)
    if ask.call.name == "contrast":
        return infer(fit.model, _contrast(ask.call, names), names=ask.call.arguments[0], **options)
    return infer(fit.model, _question(fit, ask.call), **options)


def _contrast(call: Call, names: tuple[str, ...]) -> Any:
    """Linear combination of the coefficients, which may stand in a table of classes."""
    row, constant = read_expression(call.arguments[0], names)

    def psi(params: Any) -> Any:
        values = params.to_numpy() if hasattr(params, "to_numpy") else params
        return row @ (values.T.reshape(-1) if values.ndim == 2 else values) + constant

    return psi


def _question(fit: Fit, call: Call) -> Any:
    keywords = {name: _grid(fit, value) for name, value in call.keywords.items()}
    arguments = [_grid(fit, value) for value in _placed(call)]
    if call.name == "predictions" and _placed(call) == (None,):
        _check_size(len(fit.frame))
    question = getattr(implicit_delta, call.name)
    by = inspect.signature(question).bind(*arguments, **keywords).arguments.get("by")
    groups = [name for name in _groups(by) if name in fit.frame]
    _check_size(len(fit.frame[groups].drop_duplicates()) if groups else 1)
    return question(*arguments, **keywords)


def _grid(fit: Fit, value: Any) -> Any:
    """Make the grid that a nested call stands for, with its rows named by the given values."""
    if not isinstance(value, Call):
        return value
    if value.arguments:
        raise Failure("datagrid takes values of columns by name: datagrid(x=[0, 1]).")
    _check_size(math.prod(np.size(entry) for entry in value.keywords.values()))
    grid = implicit_delta.datagrid(fit.model, **value.keywords)
    rows = zip(*(grid[name] for name in value.keywords), strict=True)
    labels = [", ".join(map("{}={}".format, value.keywords, row)) for row in rows]
    return grid.set_axis(labels, axis=0) if labels else grid


def _check_size(rows: int) -> None:
    if rows > MOST_ROWS:
        raise Failure(
            f"{rows} answers have a joint covariance of {rows} x {rows}: ask for at most "
            f"{MOST_ROWS}, by predictions(datagrid(x=[0, 1])) or average_prediction(by='group')."
        )

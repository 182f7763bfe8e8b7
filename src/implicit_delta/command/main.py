"""Entry of the command ``implicit-delta``, and the one place where errors become exit codes."""

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from implicit_delta._core.progress import VARIABLE
from implicit_delta.command.check import found, report
from implicit_delta.command.demonstration import run_demo
from implicit_delta.command.failure import Failure, one_line
from implicit_delta.command.outputs import Outputs
from implicit_delta.command.parser import parser
from implicit_delta.errors import ImplicitDeltaError

DONE, REFUSED, BUG, INTERRUPTED = 0, 2, 70, 130
COMMANDS = ("fit", "check", "demo")
# Of the libraries, for those who call them.
INTERNAL = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning)
ISSUES = "https://github.com/implicit-delta/implicit-delta/issues"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _encode_anything()
        return _run(given)
    except BrokenPipeError:  # of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in given:
            traceback.print_exception(error)
        code, text = _verdict(error)
        print(f"error: {text}", file=sys.stderr)
        return code


def _verdict(error: BaseException) -> tuple[int, str]:
    """Exit code and line of an error."""
    match error:
        case Failure() | ImplicitDeltaError() | ImportError():
            return REFUSED, one_line(error)
        case MemoryError():
            return REFUSED, "out of memory: the file or the formula is too large."
        case OSError():
            return REFUSED, one_line(error)
        case KeyboardInterrupt():
            return INTERRUPTED, "interrupted"
    told = one_line(f"{type(error).__name__}: {error}")
    return BUG, f"this is a bug, please report it at {ISSUES} with --debug: {told:.300}"


def _run(given: list[str]) -> int:
    options = parser().parse_args(given)
    if options.command == "fit":
        _fit(options, given)
    elif options.command == "check":
        print("\n".join(report()))
    elif options.command == "demo":
        run_demo(options.picture if found("matplotlib") else None)
    else:
        raise Failure(f"name a command: {', '.join(COMMANDS)} (see implicit-delta --help)")
    return DONE


def _fit(options: argparse.Namespace, given: list[str]) -> None:
    """Read, fit, ask and write; what can be refused without work is refused first."""
    from implicit_delta.command.asking import (
        Settings,
        answer,
        read_ask,
        read_method,
        read_robust,
    )
    from implicit_delta.command.fitting import Specification, fit
    from implicit_delta.command.printing import as_json, as_text, document
    from implicit_delta.command.reading import read_table

    if not 0 < options.level < 1:
        raise Failure(f"--level is between 0 and 1, not {options.level:g}.")
    settings = Settings(
        read_method(options.method, options.seed), read_robust(options.robust), _df(options.df)
    )
    asks = [read_ask(text) for text in options.ask or ["parameters"]]
    outputs = Outputs(options.csv, options.report, options.plot, options.save)
    outputs.check(options.data)
    asked = Specification(
        formula=options.formula,
        family=options.family,
        link=options.link,
        weights=options.weights,
        weight_kind=options.weight_kind,
        offset=options.offset,
        exposure=options.exposure,
        clusters=tuple(options.clusters or ()),
        success=options.success,
        levels=tuple(filter(None, (options.levels or "").split(","))),
    )
    notes = _Notes(options.quiet)
    with _bars(not options.quiet), _recorded() as warned:
        table = read_table(options.data, _dialect(options))
        fitted = fit(table, asked)
        notes(*fitted.notes)
        notes(f"{type(fitted.results.model).__name__} fitted to {len(fitted.frame)} rows")
        answers = [
            (ask.text, _refusing(answer, fitted, ask, settings, options.report is not None))
            for ask in asks
        ]
    if options.json or options.output == "json":
        made = {"method": options.method, "seed": options.seed, "robust": options.robust}
        made |= {"df": options.df}
        content = document(
            answers,
            options.level,
            arguments=given,
            table=table,
            asked=asked,
            fit=fitted,
            settings=made,
            warned=warned,
        )
        print(as_json(content))
    else:
        print(as_text(answers, options.level))
    sys.stdout.flush()
    for path in outputs.write(answers, options.level, f"{asked.formula} ({asked.family})"):
        notes(f"wrote {path}")


def _refusing(function: Any, *arguments: Any) -> Any:
    """Turn refusals of the library into failures: these are texts for users."""
    try:
        return function(*arguments)
    except (ImplicitDeltaError, ValueError, TypeError, KeyError) as error:
        raise Failure(one_line(error)) from error


def _df(given: float | None) -> float | None:
    if given is not None and not given > 0:
        raise Failure(f"--df is positive, not {given:g}.")
    return given


def _dialect(options: argparse.Namespace) -> Any:
    from implicit_delta.command.reading import Dialect

    named = {"tab": "\t", "\\t": "\t", "comma": ",", "space": " ", "semicolon": ";"}
    delimiter = named.get(options.delimiter, options.delimiter)
    if delimiter is not None and len(delimiter) != 1:
        raise Failure(f"--delimiter is one character or 'tab', not {delimiter!r:.40}.")
    if len(options.decimal) != 1:
        raise Failure(f"--decimal is one character, not {options.decimal!r:.40}.")
    return Dialect(delimiter, options.decimal, options.encoding)


class _Notes:
    """Print lines on stderr, unless told to be quiet."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet

    def __call__(self, *lines: str) -> None:
        for line in lines:
            if not self.quiet:
                print(f"note: {one_line(line)}", file=sys.stderr)


@contextmanager
def _bars(shown: bool) -> Iterator[None]:
    """Hide progress bars while a quiet command runs."""
    before = os.environ.get(VARIABLE)
    if not shown:
        os.environ[VARIABLE] = "off"
    try:
        yield
    finally:
        if before is not None:
            os.environ[VARIABLE] = before
        elif not shown:
            del os.environ[VARIABLE]


@contextmanager
def _recorded() -> Iterator[list[tuple[str, str]]]:
    """Record warnings, and print each once when the work is done or has failed."""
    told: list[tuple[str, str]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield told
        finally:
            for item in caught:
                entry = (item.category.__name__, one_line(item.message))
                if not issubclass(item.category, INTERNAL) and entry not in told:
                    told.append(entry)
                    print(f"warning: {entry[1]}", file=sys.stderr)


def _encode_anything() -> None:
    """Print names in every script, also where the terminal knows only ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

"""Entry of the command ``implicit-delta``, and the one place where errors become exit codes."""

import argparse
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from implicit_delta.command.check import found, report
from implicit_delta.command.demonstration import run_demo
from implicit_delta.command.failure import Failure, one_line
from implicit_delta.command.parser import parser
from implicit_delta.command.wording import told
from implicit_delta.core.progress import VARIABLE
from implicit_delta.errors import ImplicitDeltaError

DONE, REFUSED, BUG, INTERRUPTED = 0, 2, 70, 130
LONGEST = 1_000  # characters of an error
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
        if len(text) > LONGEST:  # of a text that was given
            text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
        print(f"error: {text}", file=sys.stderr)
        return code


def _verdict(error: BaseException) -> tuple[int, str]:
    """Exit code and line of an error."""
    match error:
        case ImplicitDeltaError():
            return REFUSED, told(error)
        case Failure() | ImportError():
            return REFUSED, one_line(error)
        case MemoryError():
            return REFUSED, "out of memory: the file or the formula is too large."
        case OSError():
            return REFUSED, one_line(error)
        case KeyboardInterrupt():
            return INTERRUPTED, "interrupted"
    named = one_line(f"{type(error).__name__}: {error}")
    return BUG, f"this is a bug, please report it at {ISSUES} with --debug: {named:.300}"


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
        columns_of,
        read_ask,
        read_method,
        read_robust,
    )
    from implicit_delta.command.fitting import Specification, fit
    from implicit_delta.command.outputs import Outputs, Page
    from implicit_delta.command.printing import Answer, as_json, as_text, document
    from implicit_delta.command.reading import read_table

    if not 0 < options.level < 1:
        raise Failure(f"--level is between 0 and 1, not {options.level:g}.")
    if options.seed < 0:
        raise Failure(f"--seed is a whole number, 0 or more, not {options.seed}.")
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
        by=tuple(dict.fromkeys(name for ask in asks for name in columns_of(ask))),
    )
    notes = _Notes(options.quiet)
    with _bars(not options.quiet), _recorded(len(asks), options.transform) as warned:
        table = read_table(options.data, _dialect(options))
        fitted = fit(table, asked)
        fitted_as = f"{type(fitted.results.model).__name__} fitted to {len(fitted.frame)} rows"
        notes(*fitted.notes, fitted_as)
        answers = []
        for ask in asks:
            with warned.about(ask.text):
                made = _refusing(answer, fitted, ask, settings, options.report is not None)
                shown = _refusing(Answer.of, ask.text, made, options)
            answers.append(shown)
    if options.json or options.output == "json":
        content = document(
            answers,
            options.level,
            arguments=given,
            table=table,
            asked=asked,
            fit=fitted,
            settings=_settings(options),
            warned=warned.entries(),
        )
        print(as_json(content))
    else:
        print(as_text(answers, options.level))
    sys.stdout.flush()
    facts = {
        "Data": f"{table.name}, {len(fitted.frame):,} of {fitted.rows_read:,} rows",
        "Left out": fitted.left_out,
        "Model": f"{asked.formula} ({asked.family})",
        "Clusters": " x ".join(asked.clusters),
    }
    page = Page(
        options.title, options.question, facts, " ".join(["implicit-delta", *map(_quoted, given)])
    )
    for path in outputs.write(answers, options.level, page):
        notes(f"wrote {path}")


def _quoted(word: str) -> str:
    """Quote a word for a shell, readably where it holds single quotes."""
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Settings as they were given; null and transform only if they were."""
    always = {name: getattr(options, name) for name in ("method", "seed", "robust", "df")}
    extra = {name: getattr(options, name) for name in ("null", "transform")}
    return {**always, **{name: entry for name, entry in extra.items() if entry is not None}}


def _refusing(function: Any, *arguments: Any) -> Any:
    """Turn refusals of the library into failures: these are texts for users."""
    try:
        return function(*arguments)
    except (ImplicitDeltaError, ValueError, TypeError, KeyError) as error:
        raise Failure(told(error)) from error


def _df(given: float | None) -> float | None:
    if given is not None and not given >= 1:
        raise Failure(f"--df is 1 or more, not {given:g}.")
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


@dataclass
class _Warned:
    """Warnings by category and text, each with the questions that it is about."""

    asks: int
    scale: str | None = None
    found: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    asked: str | None = None

    @contextmanager
    def about(self, ask: str) -> Iterator[None]:
        """Take what is recorded here to be about a question; say so of an error too."""
        self.asked = ask
        try:
            with self.recorded():
                yield
        except Failure as error:
            raise (Failure(f"{ask}: {error}") if self.asks > 1 else error) from error
        finally:
            self.asked = None

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record warnings, but for those for programmers."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield
            finally:
                for item in caught:
                    if not issubclass(item.category, INTERNAL):
                        self.add(item.category.__name__, told(item.message, self.scale))

    def add(self, category: str, text: str) -> None:
        asks = self.found.setdefault((category, text), [])
        if self.asked is not None and self.asked not in asks:
            asks.append(self.asked)

    def about_some(self, asks: list[str]) -> list[str]:
        """Questions to name: none where it is about all of them."""
        return asks if len(asks) < self.asks else []

    def entries(self) -> list[dict[str, Any]]:
        """Warnings as JSON has them."""
        return [
            {"category": category, "message": text, "asks": asks}
            for (category, text), asks in self.found.items()
        ]


@contextmanager
def _recorded(asks: int, scale: str | None) -> Iterator[_Warned]:
    """Record warnings, and print each once when the work is done or has failed."""
    warned = _Warned(asks, scale)
    try:
        with warned.recorded():
            yield warned
    finally:
        for (_, text), about in warned.found.items():
            named = "; ".join(map(one_line, warned.about_some(about)))
            print(f"warning: {named}: {text}" if named else f"warning: {text}", file=sys.stderr)


def _encode_anything() -> None:
    """Print names in every script, also where the terminal knows only ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

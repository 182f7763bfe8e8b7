"""Entry of the command ``implicit-delta``, and the one place where errors become exit codes."""

import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from implicit_delta.command.check import found, report, run_demo
from implicit_delta.command.failure import Failure, listed, one_line
from implicit_delta.command.parser import parser
from implicit_delta.core.progress import VARIABLE
from implicit_delta.errors import ImplicitDeltaError, NotAMaximumError
from implicit_delta.estimate.report.advice import for_user

DONE, REFUSED, BUG, INTERRUPTED = 0, 2, 70, 130
LONGEST = 1_000  # characters of an error
COMMANDS = ("fit", "check", "demo")
# Of the libraries, for those who call them.
INTERNAL = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning)
ISSUES = "https://github.com/implicit-delta/implicit-delta/issues"
MODEL = (
    "formula", "family", "link", "weights", "weight_kind", "offset", "exposure", "clusters",
    "success", "levels", "by",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):  # names in every script, also on ASCII terminals
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        _run(given)
    except BrokenPipeError:  # of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in given:
            traceback.print_exception(error)
        code, text = _verdict(error)
        if len(text) > LONGEST:  # of a text that was given
            text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
        print(f"error: {text}", file=sys.stderr)
        return code
    return DONE


def _verdict(error: BaseException) -> tuple[int, str]:
    """Exit code and line of an error."""
    match error:
        case MemoryError():
            return REFUSED, "out of memory: the file or the formula is too large."
        case ImplicitDeltaError() | Failure() | ImportError() | OSError():
            return REFUSED, one_line(error)
        case KeyboardInterrupt():
            return INTERRUPTED, "interrupted"
    named = one_line(f"{type(error).__name__}: {error}")
    return BUG, f"this is a bug, please report it at {ISSUES} with --debug: {named:.300}"


def _run(given: list[str]) -> None:
    options = parser().parse_args(given)
    if options.command == "fit":
        _fit(options, given)
    elif options.command == "check":
        print("\n".join(report()))
    elif options.command == "demo":
        run_demo(options.picture if found("matplotlib") else None)
    else:
        raise Failure(f"name a command: {', '.join(COMMANDS)} (see implicit-delta --help)")


def _fit(options: Any, given: list[str]) -> None:
    """Read, fit, ask and write; what can be refused without work is refused first."""
    from implicit_delta.command.fitting import fit
    from implicit_delta.command.output import Answer, as_json, as_text, check_places, write_files
    from implicit_delta.command.questions import answer, read_ask, read_method, read_robust
    from implicit_delta.command.reading import read_table

    method, robust = read_method(options.method, options.seed), read_robust(options.robust)
    asks = [read_ask(text) for text in options.ask or ["parameters"]]
    options.by = tuple(dict.fromkeys(name for ask in asks for name in ask.by))
    check_places(options)
    with _bars(options.quiet), _messages(options, len(asks)) as messages:
        with messages.about(None):
            table = read_table(options.data, options.delimiter, options.decimal, options.encoding)
            fitted = fit(table, options)
        read, used = len(table.frame), len(fitted.frame)
        kind = type(fitted.results.model)
        messages.notes(*fitted.notes, f"{kind.__name__} fitted to {used} rows")
        settings = {"method": method, "robust": robust, "df": options.df}
        settings["clusters"] = fitted.clusters
        settings["influence"] = options.report is not None and not getattr(method, "robust", False)
        answers = []
        for ask in asks:
            with messages.about(ask.text, fitted.model.names):
                estimate = answer(fitted, ask, **settings)
                answers.append(Answer.of(ask.text, estimate, options))
    if options.output == "json":
        about = {
            "command": ["implicit-delta", *given],
            "data": {
                "file": table.name, "sha256": table.sha256, "rows_read": read, "rows_used": used,
            },
            "model": {
                **{name: getattr(options, name) for name in MODEL},
                "class": f"{kind.__module__}.{kind.__qualname__}",
                "coefficients": list(fitted.model.names),
            },
            "settings": _settings(options),
        }  # fmt: skip
        notes = list(fitted.notes)
        print(as_json(answers, about, notes=notes, warnings=messages.entries()))
    else:
        print(as_text(answers, options.level))
    sys.stdout.flush()
    facts = {
        "Data": f"{table.name}, {used:,} of {read:,} rows",
        "Left out": fitted.dropped.removeprefix("dropped "),
        "Model": f"{options.formula} ({options.family})",
        "Clusters": " x ".join(options.clusters),
    }
    command = " ".join(["implicit-delta", *map(_quoted, given)])
    for path in write_files(answers, options, facts, command):
        messages.notes(f"wrote {path}")


def _settings(options: Any) -> dict[str, Any]:
    """Settings as they were given; null and transform only if they were."""
    always = {name: getattr(options, name) for name in ("level", "method", "seed", "robust", "df")}
    extra = {name: getattr(options, name) for name in ("null", "transform")}
    return {**always, **{name: entry for name, entry in extra.items() if entry is not None}}


def _quoted(word: str) -> str:
    """Quote a word for a shell, readably where it holds single quotes."""
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)


@contextmanager
def _bars(hidden: bool) -> Iterator[None]:
    """Hide progress bars while a quiet command runs."""
    before = os.environ.get(VARIABLE)
    if hidden:
        os.environ[VARIABLE] = "off"
    try:
        yield
    finally:
        if hidden and before is None:
            del os.environ[VARIABLE]
        elif hidden:
            os.environ[VARIABLE] = str(before)


@dataclass
class _Messages:
    """Warnings by category and text, each with the questions that it is about."""

    asks: int
    quiet: bool
    transform: str | None
    found: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    @contextmanager
    def about(self, ask: str | None, names: Sequence[str] = ()) -> Iterator[None]:
        """Record the warnings of a question; findings are put in the words of the command.

        Refusals of the library become failures, which name the question if there are several.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield
            except (Failure, ImplicitDeltaError, ValueError, TypeError, KeyError) as error:
                if ask is None and not isinstance(error, Failure | ImplicitDeltaError):
                    raise
                place = f"{ask}: " if ask is not None and self.asks > 1 else ""
                raise Failure(f"{place}{self._words(error, names)}") from error
            finally:
                for item in caught:
                    if not issubclass(item.category, INTERNAL):
                        entry = item.category.__name__, self._words(item.message)
                        asks = self.found.setdefault(entry, [])
                        asks += [ask] if ask is not None and ask not in asks else []

    def entries(self) -> list[dict[str, Any]]:
        """Return the warnings as JSON has them."""
        return [
            {"category": category, "message": text, "asks": asks}
            for (category, text), asks in self.found.items()
        ]

    def notes(self, *lines: str) -> None:
        """Print notes on stderr, unless they are not wanted."""
        for line in () if self.quiet else lines:
            print(f"note: {one_line(line)}", file=sys.stderr)

    def warnings(self) -> None:
        """Print each warning once, with its questions unless it is about all of them."""
        for (_, text), asks in self.found.items():
            named = f"{'; '.join(map(one_line, asks))}: " if 0 < len(asks) < self.asks else ""
            print(f"warning: {named}{text}", file=sys.stderr)

    def _words(self, message: Any, names: Sequence[str] = ()) -> str:
        """Put an error or a warning in words of the command, as far as it is data."""
        if getattr(message, "finding", None) is not None:
            return one_line(for_user(message.finding, self.transform))
        if isinstance(message, NotAMaximumError) and message.positions:
            moved = listed(names[k] for k in message.positions)
            return (
                f"The data do not determine {moved}: the log-likelihood is flat where these change "
                "together. Leave out columns that are sums or multiples of others."
            )
        return one_line(message)


@contextmanager
def _messages(options: Any, asks: int) -> Iterator[_Messages]:
    """Print the warnings when the work is done or has failed."""
    messages = _Messages(asks, options.quiet, options.transform)
    try:
        yield messages
    finally:
        messages.warnings()

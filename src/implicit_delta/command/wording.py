"""Messages of the library in the words of the command, which has options and no Python."""

import re
from collections.abc import Callable

from implicit_delta.command.failure import one_line

METHODS = "Bootstrap|Simulation|FiniteDifference"
Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]


def _method(found: re.Match[str]) -> str:
    """Write a method with plain arguments as the option; others stay as they are."""
    call = found[1].replace('"', "'").removesuffix("()")
    return f'--method "{call}"' if "(" in call else f"--method {call}"


SCALES = "Give --transform log for an answer that is positive, --transform logit for a probability."
# In this order: whole pieces of advice first, then single arguments.
RULES: tuple[Rule, ...] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            r"Use `profile\(model, psi\)`, `Simulation\(\)`, `Smoothed\(psi\)` if it has steps or "
            r"many kinks, or a transform of psi that is closer to linear\.",
            SCALES,
        ),
        (r"the rows of data=", "the rows of datagrid"),
        (r"leave these rows out with data=", "leave these rows out of the file"),
        (r"For the training rows with their own leave out data=; ", "Without datagrid "),
        (r"`by=` takes groups of these", "averages are over the rows of the file with their own"),
        (r" Pass `strict=False` to get the number anyway\.", ""),
        (r"[;:,]? (?:or )?add `l2=`", ""),
        (r",? a penalty \(`l2=`\)", ""),
        (r"\(`score=`, ", "("),
        (r", as in `results\.predict\(data\)`", ""),
        (r"`infer\(model, psi, [^`]*robust=\"(\w+)\"[^`]*\)`", r"--robust \1"),
        (r"`infer\(model, psi, robust=True\)`", "--robust"),
        (r"`infer\(model, psi, clusters=\w+\)`", "--clusters COLUMN"),
        (r"`infer\(model, psi\)`", "no --method"),
        (rf"`((?:{METHODS})\((?:[^`()]*)\))`", _method),
        (r"`?robust=\"(\w+)\"`?", r"--robust \1"),
        (r"`?\brobust=True\b`?", "--robust"),
        (r"`?\b(robust|clusters|df)=`?(?!\w)", r"--\1"),
    )
)
SENTENCE = re.compile(r"(?<=[.?])\s+(?=[A-Z`-])")
# Code that a command cannot run: in backticks, but for questions, and names of arguments.
PYTHON = re.compile(r"`(?!average_|predictions|pip |values=|by=|[A-Z][\w.]*\(x\))[^`]*[(=][^`]*`")


def told(text: object, scale: str | None = None) -> str:
    """Put a message on one line, with options for arguments and without advice to write Python.

    The scale of the intervals is the one that was asked for, so that no other is advised.

    Examples
    --------
    >>> told('Rows are few. Use robust="HC3", or `polish(model)`.')
    'Rows are few.'
    >>> told('Use `infer(model, psi, clusters=..., robust="CR2")`.')
    'Use --robust CR2.'
    """
    line = one_line(text)
    for pattern, words in RULES:
        line = pattern.sub(words, line)
    if scale in ("log", "logit"):
        line = line.replace(SCALES, f"The interval here is made on the {scale} scale instead.")
    what, *advice = SENTENCE.split(line)
    kept = [what, *(one for one in advice if not PYTHON.search(one))]
    line = re.sub(r"\bpsi\b", "the answer", " ".join(kept))
    return re.sub(r"(^|[.:?] )the answer\b", r"\1The answer", line)

"""Sentences of a page: the question, the answer, what is covered."""

from __future__ import annotations

import math
from collections.abc import Sequence

from implicit_delta.estimate.report.text import escaped, listed, one_line, shown, tag
from implicit_delta.estimate.tables import percent

MOST_SENTENCES = 3  # beyond, a table says it better
TRUTH = "what this model would give with unlimited data of this kind"


def question_of(names: Sequence[str]) -> str:
    """Ask for the evaluations by name."""
    if len(names) == 1:
        return f"How large is {one_line(names[0])}, and how sure is that?"
    if len(names) <= MOST_SENTENCES:
        return f"How large are {listed([one_line(name) for name in names])}, and how sure is that?"
    return f"How large are {len(names)} quantities, and how sure is that?"


def answer_sentence(
    name: str, value: float, spans: Sequence[tuple[float, float]], places: int, level: float
) -> str:
    """Write the answer for one evaluation, as HTML; without a name it is that of the heading."""
    subject = f"<b>{escaped(name)}</b> is" if name else "This is"
    opening = f"{subject} estimated at {_number(value, places)}"
    if not any(high > low for low, high in spans):
        return f"{opening}, without any error."
    span = ", or with ".join(_range(low, high, places) for low, high in spans)
    return f"{opening}; the data are compatible with {span} ({percent(level)} confidence)."


def _range(low: float, high: float, places: int) -> str:
    if math.isinf(low) and math.isinf(high):
        return "any value"
    if math.isinf(high):
        return f"{_number(low, places)} and anything above"
    if math.isinf(low):
        return f"{_number(high, places)} and anything below"
    return f"{_number(low, places)} to {_number(high, places)}"


def _number(x: float, places: int) -> str:
    return tag("span", shown(x, places), class_="number")


def many_sentence(count: int, level: float) -> str:
    """Introduce a table, and say what many intervals at once mean."""
    return (
        f"{count:,} quantities were estimated, each with a {percent(level)} confidence interval. "
        f"Each interval alone misses in {100 * (1 - level):.4g}% of repetitions; that at least one "
        f"of the {count:,} misses is more likely."
    )


def reading(level: float, target: str) -> str:
    """Explain the interval, and what it is for."""
    return (
        f"A {percent(level)} confidence interval comes from a procedure that covers its target in "
        f"{percent(level)} of repetitions, if the assumptions behind it hold. The target here: "
        f"{escaped(target or TRUTH)}."
    )

"""A check: a diagnostic with a mark and a sentence, and the sum of several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from implicit_delta.estimate.report.text import tag

Level = Literal["problem", "look", "ok", "note"]
# Of a finding, by its own.
LEVELS: Mapping[str, Level] = {
    "error": "problem",
    "refuse": "problem",
    "warn": "look",
    "note": "note",
}
WORDS: Mapping[Level, str] = {"problem": "Problem", "look": "Look", "ok": "OK", "note": "Note"}
SIGNS: Mapping[Level, str] = {"problem": "✕", "look": "!", "ok": "✓", "note": "○"}
COUNTED: Mapping[Level, tuple[str, str]] = {
    "problem": ("check fails", "checks fail"),
    "look": ("check needs a look", "checks need a look"),
    "ok": ("check passed", "checks passed"),
}


@dataclass(frozen=True)
class Check:
    """A diagnostic, its value, its mark, and a sentence on what it means here."""

    name: str
    value: str
    level: Level
    sentence: str


def graded(x: float, looks: float, fails: float = inf) -> Level:
    """Mark a number that should be small."""
    return "problem" if x > fails else "look" if x > looks else "ok"


def little(x: float) -> str:
    """Write a number of standard errors."""
    return "less than 0.01" if x < 0.01 else f"about {x:.2g}" if x < 1000 else "more than 1000"


def mark(level: Level) -> str:
    """Show a level by its sign, its word and its color."""
    sign = tag("span", SIGNS[level], aria_hidden="true")
    return tag("span", sign, f" {WORDS[level]}", class_=f"mark {level}")


def worst_first(checks: Sequence[Check]) -> list[Check]:
    """Sort by level, and keep the order within each."""
    return sorted(checks, key=lambda check: list(WORDS).index(check.level))


def verdict_of(checks: Sequence[Check]) -> tuple[Level, str]:
    """Sum up: the worst level, and how many checks have it."""
    for level, (one, more) in COUNTED.items():
        count = sum(check.level == level for check in checks)
        if count:
            return level, f"{count} {one if count == 1 else more}"
    return "note", "nothing was checked"

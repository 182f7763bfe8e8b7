"""Findings: what a check of a result has found, as data; prose comes last."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaError, ImplicitDeltaWarning

Level: TypeAlias = Literal["error", "refuse", "warn", "note"]
ANYWAY = " Pass `strict=False` to get the number anyway."


@dataclass(frozen=True)
class Finding:
    """One thing that a check has found.

    Attributes
    ----------
    level : {"error", "refuse", "warn", "note"}
        An error is raised always, a refusal unless ``strict=False``, where it is a warning.
    code : str
        Short name, such as "drift"; `docs/trust/refusals.md` has a section for each.
    text : str
        What was found, in one or two sentences.
    number : float or None
        The size that decided, if there is one.
    causes, remedies : tuple of str
        Usual causes, and what to do, each a clause.
    error, warning : type
        Classes that are raised and warned with.
    """

    level: Level
    code: str
    text: str
    number: float | None = None
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    error: type[ImplicitDeltaError] = ImplicitDeltaError
    warning: type[Warning] = ImplicitDeltaWarning

    def __str__(self) -> str:
        causes = f" Usual causes: {'; or '.join(self.causes)}." if self.causes else ""
        return " ".join([self.text + causes, *self.remedies])

    def raises(self, strict: bool) -> bool:
        """Whether `report` raises it."""
        return self.level == "error" or (self.level == "refuse" and strict)


def present(*findings: Finding | None) -> tuple[Finding, ...]:
    """Leave out what was not found."""
    return tuple(filter(None, findings))


def report(findings: Iterable[Finding | None], strict: bool = False) -> tuple[Finding, ...]:
    """Warn of findings in their order, raise the first error or refusal; return what there is.

    The error, and each warning, has its ``finding``.
    """
    found = present(*findings)
    for finding in found:
        if finding.raises(strict):
            error = finding.error(f"{finding}{ANYWAY * (finding.level == 'refuse')}")
            error.finding = finding
            raise error
        if finding.level != "note":
            warn(str(finding), finding.warning, finding)
    return found

"""Diagnostics of an estimate."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from implicit_delta import errors
from implicit_delta.core.findings import Finding

KINDS = {"error": errors.ImplicitDeltaError, "warning": errors.ImplicitDeltaWarning}
# Target of an estimate from which a penalty was taken; its drift has limits of its own.
DEBIASED = "psi at the true parameters, by one Newton step without the penalty"


@dataclass(frozen=True)
class Diagnostics:
    """Measures of how far an estimate can be trusted; NaN where the method cannot tell.

    Attributes
    ----------
    drift : float
        Largest ``|w' score| / SE`` over the evaluations: by how many standard errors psi would
        still move if training were finished.
    smallest_curvature : float
        Smallest curvature of minus the objective met by the solver.
    nonlinearity : float
        ``|psi(+) + psi(-) - 2 psi(0)| / |psi(+) - psi(-)|`` at the two ends of a push of half a
        standard error: 0 is straight, 1 means that one end does not move.
    bias : float
        Second-order bias of psi in standard errors, the largest: half the trace of its Hessian
        times the covariance of the parameters, for up to 30 of these. One below 0.01 is an estimate
        from three random directions.
    asymmetry : float
        Largest ``|V - V'|`` relative to ``SE_j SE_k``, before the covariance was symmetrized.
    residual : float
        Relative residual (or relative gap of the bounds) of the linear solve; for refits, the
        remaining gradient in standard errors.
    shrinkage : float
        Largest move of psi by the penalty, in standard errors: to psi one Newton step of the
        likelihood alone away; NaN without a penalty, and where that cannot be known.
    passes : int
        Passes over the data.
    seconds : float
        Wall-clock time.
    notes : mapping of str to float or str
        Diagnostics of one method alone. Of a bootstrap ``replicates`` are the fits to drawn data,
        of which ``failed`` gave no value; ``monte_carlo_error`` is the relative change of the
        standard error to expect of another seed (of `Simulation` too), and ``one_step_error`` the
        difference of finished refits from one step, in standard errors.
    warnings : tuple of str
        Texts of the warnings that were issued while the question was answered.
    findings : tuple of Finding
        What the checks of the result have found, as data: ``code``, ``level``, ``number``,
        ``text``, ``causes`` and ``remedies``.
    """

    drift: float = math.nan
    smallest_curvature: float = math.nan
    nonlinearity: float = math.nan
    bias: float = math.nan
    asymmetry: float = math.nan
    residual: float = math.nan
    shrinkage: float = math.nan
    passes: int = 0
    seconds: float = 0.0
    notes: Mapping[str, float | str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", dict(self.notes))
        object.__setattr__(self, "warnings", tuple(map(str, self.warnings)))
        object.__setattr__(self, "findings", tuple(self.findings))

    def _repr_html_(self) -> str:
        """Return a table that folds, for notebooks."""
        from implicit_delta.estimate.written import diagnostics_html  # which knows diagnostics

        return diagnostics_html(self)


def described(found: Diagnostics) -> dict[str, Any]:
    """Return the fields for a file, with findings as mappings of texts and numbers."""
    findings = [
        {**vars(one), **{kind: getattr(one, kind).__name__ for kind in KINDS}}
        for one in found.findings
    ]
    return {**vars(found), "findings": findings}


def restored(content: Mapping[str, Any]) -> Diagnostics:
    """Rebuild diagnostics from a file; those that this release does not know become notes."""
    found = dict(content)
    notes, warnings = dict(found.pop("notes", {})), _texts(found.pop("warnings", []))
    findings = tuple(map(_finding, found.pop("findings", [])))
    known = [item.name for item in fields(Diagnostics) if item.name in found]
    numbers = {name: _number(found.pop(name)) for name in known}
    return Diagnostics(**numbers, notes={**found, **notes}, warnings=warnings, findings=findings)


def _finding(content: Mapping[str, Any]) -> Finding:
    """Rebuild a finding; a class that this release does not know is the root of its kind."""
    known = {item.name: content[item.name] for item in fields(Finding) if item.name in content}
    parts = {name: _texts(known.get(name, [])) for name in ("causes", "remedies")}
    classes = {kind: getattr(errors, str(known.get(kind)), root) for kind, root in KINDS.items()}
    return Finding(**{**known, **parts, **classes})


def _texts(content: Any) -> tuple[str, ...]:
    if not isinstance(content, list) or not all(isinstance(text, str) for text in content):
        raise TypeError(f"{content!r:.60} is not a list of texts")
    return tuple(content)


def _number(content: Any) -> Any:
    if isinstance(content, bool | str):
        raise TypeError(f"{content!r:.60} is not a number")
    float(content)  # of a list there is none, nor of an integer with hundreds of digits
    return content

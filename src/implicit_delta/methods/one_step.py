"""Error of a one-step bootstrap: some of its replicates are refitted in full."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, NonlinearityWarning
from implicit_delta.linalg.arrays import ratio
from implicit_delta.methods.outcomes import MOST_FAILED, Outcome
from implicit_delta.methods.refitted import Refitted

CHECKED, MORE = 5, 20  # replicates that are refitted, and where these leave a doubt
DOUBTFUL = 0.2  # standard errors: of five replicates, another seed may tell twice or half of it
ERROR_WARNS, ERROR_REFUSES = 0.1, 0.5  # standard errors, root mean square over these replicates
OTHERWISE = 'Use `Bootstrap(kind="resample")`, which refits all replicates.'


@dataclass(frozen=True)
class OneStepError:
    """By how much psi after one step differs from psi after a refit."""

    finding: Finding | None = None
    notes: dict[str, float | str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, refit: Refitted, outcomes: Sequence[Outcome], seed: int, errors: Array
    ) -> "OneStepError":
        """Refit the first replicates, and compare in standard errors, (K,)."""
        streams = np.random.SeedSequence(seed).spawn(len(outcomes))  # of the same draws
        full = [refit(stream) for stream in streams[:CHECKED]]
        if not _error(outcomes, full, errors) <= DOUBTFUL or _failures(full):
            full += [refit(stream) for stream in streams[CHECKED:MORE]]
        error, failures = _error(outcomes, full, errors), _failures(full)
        text = _described(error, len(full), failures)
        if not error <= ERROR_REFUSES or len(failures) > MOST_FAILED * len(full):
            raise ConvergenceError(text)
        found = Finding("warn", "one_step", text, number=error, warning=NonlinearityWarning)
        return cls(found if error > ERROR_WARNS or failures else None, {"one_step_error": error})


def _error(outcomes: Sequence[Outcome], full: Sequence[Outcome], errors: Array) -> float:
    """Root mean square of the differences in standard errors, the largest; infinite of none."""
    pairs = [(a.psi, b.psi) for a, b in zip(outcomes, full, strict=False)]
    gaps = [a - b for a, b in pairs if a is not None and b is not None]
    if not gaps:
        return np.inf
    return float(np.max(ratio(np.sqrt(np.mean(np.square(gaps), axis=0)), errors)))


def _failures(full: Sequence[Outcome]) -> list[str]:
    return [outcome.failure for outcome in full if outcome.psi is None]


def _described(error: float, checked: int, failures: list[str]) -> str:
    fitted = checked - len(failures)
    away = (
        f"After one step psi is {error:.2g} standard errors away from psi after a refit (root "
        f"mean square over {fitted} replicates that were refitted in full). "
    )
    lost = (
        f"{len(failures)} of the {checked} replicates that were refitted in full "
        f"{'has' if len(failures) == 1 else 'have'} no fit, so that one step leads to nowhere "
        "there. "
    )
    return (
        (away if fitted else "")
        + (lost if failures else "")
        + "Usual causes: few observations, rare classes, or a log-likelihood that is far from a "
        f"parabola. {OTHERWISE}"
    )

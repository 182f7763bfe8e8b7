"""Error of a one-step bootstrap: some of its replicates are refitted in full."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import ConvergenceError, NonlinearityWarning
from implicit_delta.methods.outcomes import Outcome, report_failures
from implicit_delta.methods.refitted import Refitted
from implicit_delta.numerics.arrays import ratio

CHECKED = 5  # replicates that are refitted
ERROR_WARNS, ERROR_REFUSES = 0.1, 0.5  # standard errors, root mean square over these replicates
OTHERWISE = 'Use `Bootstrap(kind="resample")`, which refits all replicates.'


@dataclass(frozen=True)
class OneStepError:
    """By how much psi after one step differs from psi after a refit."""

    doubt: Warning | None = None
    notes: dict[str, float | str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, refit: Refitted, outcomes: Sequence[Outcome], seed: int, errors: Array
    ) -> "OneStepError":
        """Refit the first replicates, and compare in standard errors, (K,)."""
        full = refit.run(seed, len(outcomes), 1, CHECKED)
        report_failures([o.failure for o in full if o.psi is None], len(full), OTHERWISE)
        pairs = [(a.psi, b.psi) for a, b in zip(outcomes, full, strict=False)]
        gaps = [a - b for a, b in pairs if a is not None and b is not None]
        sizes = ratio(np.sqrt(np.mean(np.square(gaps), axis=0)), errors)
        error = float(np.max(sizes))
        text = (
            f"After one step psi is {error:.2g} standard errors away from psi after a refit (root "
            f"mean square over {len(gaps)} replicates that were refitted). Usual causes: few "
            "observations, rare classes, or a log-likelihood that is far from a parabola. "
            f"{OTHERWISE}"
        )
        if not error <= ERROR_REFUSES:
            raise ConvergenceError(text)
        doubt = NonlinearityWarning(text) if error > ERROR_WARNS else None
        return cls(doubt, {"one_step_error": error})

"""Outcomes of replicates: those without a fit, and the Monte-Carlo error of the rest."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.parallel import run_all
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError
from implicit_delta.linalg.arrays import ratio

FIRST = 20  # replicates: with 10 % of failures on average, a third fails in 2 of 1000
MOST_FAILED = 0.1  # share of replicates without a fit beyond which the rest says little
OUT_OF_STEPS = "The search of the maximum ran out of steps"
NEWTON = "`maximizer=newton_krylov()`, whose steps follow the curvature of the drawn data, or "
MORE_STEPS = "Use {newton}`maximizer=newton_krylov(max_iterations=500)`."


@dataclass(frozen=True)
class Outcome:
    """One replicate: psi (K,), or why there is none; what it cost; and where it has ended.

    `gain` is by how much the objective of the data themselves is higher there than at the fit.
    """

    psi: Array | None
    failure: str
    passes: int = 0
    theta: Array | None = None
    gain: float = 0.0


def run_replicates(
    replicate: Callable[..., Outcome],
    jobs: Sequence[tuple[Any, ...]],
    n_jobs: int,
    bar: Any,
    otherwise: str,
) -> list[Outcome]:
    """Make all replicates; give up, with that advice, as soon as too many have failed."""
    outcomes: list[Outcome] = []

    def done(outcome: Outcome) -> None:
        bar.update()
        outcomes.append(outcome)
        if n_jobs == 1 and _hopeless(outcomes, len(jobs)):
            failures = [o.failure for o in outcomes if o.psi is None]
            failed_replicates(failures, len(outcomes), otherwise, len(jobs))

    return run_all(replicate, jobs, n_jobs, done)


def _hopeless(outcomes: list[Outcome], replicates: int) -> bool:
    """Whether the rest need not be tried: too many have failed, or a third of those so far."""
    failed, tried = sum(outcome.psi is None for outcome in outcomes), len(outcomes)
    return failed > MOST_FAILED * replicates or (tried >= FIRST and failed > tried / 3)


def failed_replicates(
    failures: list[str], replicates: int, otherwise: str, asked: int | None = None
) -> Finding | None:
    """Find replicates without a fit; raise where these are many."""
    if not failures:
        return None
    reason, _ = Counter(failures).most_common(1)[0]
    text = (
        f"{len(failures)} of {_tried(replicates, asked)} have no fit and are left out. The most "
        f"common reason: {reason}"
    )
    if reason.startswith(OUT_OF_STEPS):
        otherwise = MORE_STEPS.format(newton="" if "newton_krylov" in reason else NEWTON)
    if len(failures) > MOST_FAILED * replicates or replicates - len(failures) < 2:
        raise ConvergenceError(f"{text} With so many left out, the rest means little. {otherwise}")
    return Finding("warn", "failed_replicates", text, number=len(failures) / replicates)


def _tried(replicates: int, asked: int | None) -> str:
    """Write how many were tried, of how many if the rest was given up."""
    if asked is None or asked == replicates:
        return f"{replicates} bootstrap replicates"
    return f"the first {replicates} bootstrap replicates ({asked} asked for)"


def monte_carlo_errors(draws: Array) -> Array:
    """Relative error of each standard error from the number of replicates, (K,).

    Few squares may agree by accident: they are not known better than those of a normal.
    """
    squares = (draws - draws.mean(axis=0)) ** 2
    size = np.mean(squares, axis=0)
    spread = np.sqrt(np.maximum(np.var(squares, axis=0), 2 * size**2) / (len(draws) - 1))
    return ratio(spread, 2 * size)


def monte_carlo_error(draws: Array) -> float:
    """Return the largest of these errors."""
    return float(np.max(monte_carlo_errors(draws)))


def largest_ratio(above: Array, below: Array) -> float:
    """Return the largest of these ratios; zero over zero is zero."""
    return float(np.max(ratio(above, below)))

"""Coverage study: data drawn from a known truth, and the intervals made from them."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

import numpy as np

import implicit_delta as idm

CHUNK = 100  # replications that are computed, stored and resumed as one


class Outcome(NamedTuple):
    """Of one interval: whether it covers the truth, was warned about, or refused; its error."""

    covered: bool
    warned: bool = False
    refused: bool = False
    error: float = np.nan  # of the estimate, in its standard errors

    def __bool__(self) -> bool:
        """Whether the interval covers."""
        return self.covered


def asked(
    ask: Callable[[], idm.Estimate], truth: float, level: float, kind: str = "normal"
) -> Outcome:
    """Ask for an estimate, and look at its interval."""

    def judge(estimate: idm.Estimate) -> tuple[bool, float]:
        interval = estimate.confidence_interval(level, kind=kind)
        error = (estimate.value - truth) / estimate.standard_error
        return covers(interval, truth), float(error)

    return _told(ask, judge)


def profiled(ask: Callable[[], idm.Profile], truth: float, level: float) -> Outcome:
    """Ask for likelihood-ratio intervals, and look at all of their pieces."""
    return _told(
        ask, lambda found: (any(covers(piece, truth) for piece in found.pieces[level]), np.nan)
    )


def limited(ask: Callable[[], float], truth: float) -> Outcome:
    """Ask for an upper limit."""
    return _told(ask, lambda limit: (bool(float(limit) >= truth), np.nan))


def covers(interval: idm.Interval, truth: float) -> bool:
    """Whether the truth lies inside."""
    return bool(interval.low <= truth <= interval.high)


def _told(ask, judge):
    """Ask with warnings counted; what is refused covers nothing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            covered, error = judge(ask())
        except idm.ImplicitDeltaError:
            return Outcome(covered=False, refused=True)
    warned = any(issubclass(w.category, idm.ImplicitDeltaWarning) for w in caught)
    return Outcome(covered, warned, error=error)


@dataclass(frozen=True)
class Study:
    """Simulation of the coverage of some methods on one task.

    Attributes
    ----------
    task : str
        In a few words: data and evaluation.
    n : int
        Observations in each data set.
    trial : callable
        ``trial(rng, level)`` draws a data set and returns the `Outcome` of each method by name. It
        must not depend on anything but its arguments.
    nominal : float
        The confidence level.
    replications : int
        Data sets, in whole chunks of 100.
    """

    task: str
    n: int
    trial: Callable[[np.random.Generator, float], Mapping[str, Outcome]] = field(repr=False)
    nominal: float = 0.95
    replications: int = 2000

    def chunk(self, number: int) -> list[dict]:
        """Count over one chunk of replications; a trial that raises covers nothing."""
        counts: dict[str, Counter] = {}
        failed = 0
        for stream in np.random.SeedSequence([crc32(self.task.encode()), self.n, number]).spawn(
            CHUNK
        ):
            try:
                outcomes = self._quiet_trial(np.random.default_rng(stream))
            except idm.ImplicitDeltaError:
                failed += 1
                continue
            for method, outcome in outcomes.items():
                counts.setdefault(method, Counter()).update(_counted(outcome))
        return [
            {"method": method, **count, "failed": count["failed"] + failed}
            for method, count in counts.items()
        ]

    def _quiet_trial(self, rng: np.random.Generator) -> Mapping[str, Outcome]:
        """Run one trial; the warnings that count are those of its questions."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
            return self.trial(rng, self.nominal)


def _counted(outcome: Outcome) -> dict:
    """What is summed over data sets."""
    silent = not (outcome.warned or outcome.refused)
    error = outcome.error if np.isfinite(outcome.error) else None
    counts = {
        "covered": outcome.covered,
        "failed": outcome.refused,
        "warned": outcome.warned,
        "silent": silent,
        "silent_covered": silent and outcome.covered,
        "estimates": error is not None,
        "above": not outcome.covered and outcome.error > 0,
    }
    # As numbers: two booleans of NumPy add up to one.
    return {name: int(count) for name, count in counts.items()} | {
        "error": error or 0.0,
        "squared_error": (error or 0.0) ** 2,
    }

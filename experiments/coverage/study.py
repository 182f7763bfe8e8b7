"""Coverage study: data drawn from a known truth, and the intervals made from them."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

import numpy as np

import implicit_delta as idm


class Outcome(NamedTuple):
    """Of one interval: whether it covers the truth, was warned about, or refused."""

    covered: bool
    warned: bool = False
    refused: bool = False


CHUNK = 100  # replications that are computed, stored and resumed as one


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
        ``trial(rng, level)`` draws a data set and returns, for each method by name, whether its
        interval covers the truth, or an `Outcome`. It must not depend on anything but its
        arguments.
    nominal : float
        The confidence level.
    replications : int
        Data sets, in whole chunks of 100.
    """

    task: str
    n: int
    trial: Callable[[np.random.Generator, float], Mapping[str, bool | Outcome]] = field(repr=False)
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
            for method, found in outcomes.items():
                outcome = found if isinstance(found, Outcome) else Outcome(bool(found))
                silent = not (outcome.warned or outcome.refused)
                counts.setdefault(method, Counter()).update(
                    covered=outcome.covered,
                    failed=outcome.refused,
                    warned=outcome.warned,
                    silent=silent,
                    silent_covered=silent and outcome.covered,
                )
        return [
            {"method": method, **count, "failed": count["failed"] + failed}
            for method, count in counts.items()
        ]

    def _quiet_trial(self, rng: np.random.Generator) -> Mapping[str, bool | Outcome]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
            return self.trial(rng, self.nominal)


def covers(interval: idm.Interval, truth: float) -> bool:
    """Whether the truth lies inside."""
    return bool(interval.low <= truth <= interval.high)

"""Refits to drawn data within the constraints of a model: a bound may hold some, and not others."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array
from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.methods.outcomes import Outcome, run_replicates
from implicit_delta.methods.replication import Replication
from implicit_delta.models.constrained_fit import constrained_maximum
from implicit_delta.models.model import FittedModel
from implicit_delta.models.user_calls import isolated_cache


@dataclass(frozen=True, eq=False)  # Dask wants a function that can be hashed
class BoundedRefits:
    """Draw data and maximize under the constraints, as the fit itself has done.

    Attributes
    ----------
    model : FittedModel
        With its constraints, and not in coordinates along those that are active.
    replication : Replication
    measure : callable
        Of the model of the drawn data and its maximum, (K,).
    """

    model: FittedModel
    replication: Replication
    measure: Callable[[FittedModel, Array], Array]

    def run(self, seed: int, replicates: int, n_jobs: int) -> list[Outcome]:
        """Refit so often, each time with a stream of random numbers of its own."""
        jobs = [(stream,) for stream in np.random.SeedSequence(seed).spawn(replicates)]
        with progress("fits within bounds", total=len(jobs), unit="fit") as bar:
            return run_replicates(self, jobs, n_jobs, bar, self.replication.otherwise)

    def __call__(self, stream: np.random.SeedSequence) -> Outcome:
        """Make one replicate."""
        before = self.model.rows.passes
        found, failure, theta = None, "", None
        with isolated_cache(self.model):
            try:
                replicate = self.replication.draw(self.model, np.random.default_rng(stream))
                with np.errstate(all="ignore"):  # a search looks beyond the bounds
                    theta = constrained_maximum(replicate)
                found = self.measure(replicate, theta)
            except (ImplicitDeltaError, FloatingPointError, np.linalg.LinAlgError) as error:
                failure = str(error)
        return Outcome(found, failure, self.model.rows.passes - before, theta)

"""Refits to drawn data, and a number measured at each."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array
from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.methods.ascent import Ascent
from implicit_delta.methods.better import risen
from implicit_delta.methods.nearby import Nearby
from implicit_delta.methods.outcomes import OUT_OF_STEPS, Outcome, run_replicates
from implicit_delta.methods.replication import Replication
from implicit_delta.models.coordinates import satisfies_constraints
from implicit_delta.models.model import FittedModel
from implicit_delta.models.user_calls import isolated_cache


@dataclass(frozen=True, eq=False)  # Dask wants a function that can be hashed
class Refitted:
    """Draw data and maximize from the fitted parameters.

    Attributes
    ----------
    model : FittedModel
    ascent : Ascent
    replication : Replication
    measure : callable
        Of the model of the drawn data and its maximum, (K,).
    top : float
        The objective of the data themselves, to tell of a higher one that a replicate leads to.
    nearby : Nearby, optional
        Steps that are tried before the ascent, which is there for what is left.
    single : bool
        Whether one of these steps is all.
    """

    model: FittedModel
    ascent: Ascent
    replication: Replication
    measure: Callable[[FittedModel, Array], Array]
    top: float = np.inf
    nearby: Nearby | None = None
    single: bool = False

    def run(self, seed: int, replicates: int, n_jobs: int) -> list[Outcome]:
        """Refit so often, each time with a stream of its own."""
        jobs = [(stream,) for stream in np.random.SeedSequence(seed).spawn(replicates)]
        with progress("bootstrap", total=len(jobs), unit="fit") as bar:
            return run_replicates(self, jobs, n_jobs, bar, self.replication.otherwise)

    def __call__(self, stream: np.random.SeedSequence) -> Outcome:
        """Make one replicate."""
        with isolated_cache(self.model):
            return self._outcome(stream)

    def _outcome(self, stream: np.random.SeedSequence) -> Outcome:
        before = self.model.rows.passes
        found, failure, theta, gain = None, "", None, 0.0
        try:
            replicate = self.replication.draw(self.model, np.random.default_rng(stream))
            end, failure = self._climbed(replicate)
            if not failure:
                found = self.measure(replicate, end)
                theta = end
                gain = risen(self.model, theta, self.top) if np.isfinite(self.top) else 0.0
        except (ImplicitDeltaError, FloatingPointError, np.linalg.LinAlgError) as error:
            failure = str(error)
        return Outcome(found, failure, self.model.rows.passes - before, theta, gain)

    def _climbed(self, replicate: FittedModel) -> tuple[Array, str]:
        """Where the climb ends, (d,), and why that is no maximum, if it is none."""
        if self.single:
            assert self.nearby is not None
            end = self.nearby.one_step(replicate)
            return end, _violated(replicate, end)
        near = None if self.nearby is None else self.nearby.maximum(replicate)
        if near is not None and (near[1] or not _still_rises(replicate, near[0])):
            return near[0], _violated(replicate, near[0])
        top = self.ascent.climb(replicate)
        if not top.converged:
            spent = top.iterations >= getattr(self.ascent.maximizer, "max_iterations", np.inf)
            return top.x, self._out_of_steps if spent else top.message
        if _still_rises(replicate, top.x):
            return top.x, "The drawn data have no finite maximum."
        return top.x, _violated(replicate, top.x)

    @property
    def _out_of_steps(self) -> str:
        return f"{OUT_OF_STEPS} ({self.ascent.maximizer!r})."


def _violated(replicate: FittedModel, theta: Array) -> str:
    allowed = satisfies_constraints(replicate, theta)
    return "" if allowed else "The maximum of the drawn data violates a constraint."


def _still_rises(model: FittedModel, theta: Array) -> bool:
    """Whether the objective is higher half as far again from the start: there is no maximum.

    A vanishing gradient alone does not show one: far out it vanishes for separated classes too.
    """
    top = model.objective(theta)
    with np.errstate(all="ignore"):
        farther = model.objective(theta + (theta - model.theta) / 2)
    return bool(farther > top + 1e-12 * abs(top))

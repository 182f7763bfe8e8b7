"""Choices before a stochastic training: pushes, steps and how they are made, and their cost."""

import itertools
import logging
import math
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta._core.budget import Budget, foretold
from implicit_delta._core.limits import DENSE_LIMIT
from implicit_delta.errors import ConvergenceError
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.base import described_range
from implicit_delta.methods.pilot import Pilot, Preconditioned, largest_stable_rate
from implicit_delta.methods.training_pair import Anchor, TrainingPair
from implicit_delta.models.base import FittedModel

if TYPE_CHECKING:
    from implicit_delta.methods.stochastic import StochasticFiniteDifference

PUSH = 0.1  # of a standard error; the noise of paired trainings shrinks with it
PLAIN_STEPS = 1000  # of plain gradients: beyond, a preconditioner is worth its d products
BLOCK, MOST_SAMPLES = 20, 200  # samples at a time, and in all, unless their number is given
TIMED = 5  # steps, to foretell the seconds
HOPELESS = 2.0  # times `max_steps`: a pilot may be off by some, so less is tried

logger = logging.getLogger("implicit_delta")


@dataclass(frozen=True, eq=False)
class Plan:
    """A training to be done.

    Attributes
    ----------
    method : StochasticFiniteDifference
        With everything named that was left open.
    pushes : list of float
        Lambda for every psi_k.
    stepper : float, Preconditioned, or the user's optimizer
    steps : int
        At which to look first.
    budget : Budget
    """

    method: "StochasticFiniteDifference"
    model: FittedModel
    evaluation: Evaluation
    pushes: list[float]
    stepper: Any
    steps: int
    anchor: Anchor | None
    budget: Budget

    @classmethod
    def of(
        cls, method: "StochasticFiniteDifference", model: FittedModel, evaluation: Evaluation
    ) -> "Plan":
        """Choose what was left open, by a pilot solve."""
        budget, before, pilot = Budget(method.budget), model.passes, None
        if method.lam is None or method.optimizer is None:
            pilot = Pilot.of(model, evaluation.jacobian(model.theta), method.curvature)
        stepper, needed = _stepper(method, model, pilot)
        named = "preconditioned" if isinstance(stepper, Preconditioned) else stepper
        plan = cls(
            method=replace(method, optimizer=named),
            model=model,
            evaluation=evaluation,
            pushes=_pushes(method, evaluation.size, pilot),
            stepper=stepper,
            steps=method.steps
            if method.steps is not None
            else max(needed, method.samples or BLOCK),
            anchor=Anchor(model, evaluation) if method.anchored else None,
            budget=budget,
        )
        budget.spend(model.passes - before, _known(pilot))
        Budget(method.budget).spend(budget.spent + plan.total * plan.passes, _known(pilot))
        return plan

    @property
    def total(self) -> int:
        """Steps of all pairs, if the first look at them is confirmed by the second."""
        method = self.method
        looks = self.steps * (1 if method.steps is not None else 2)
        return self.evaluation.size * method.runs * (looks + (method.samples or BLOCK))

    @property
    def passes(self) -> float:
        """Passes over the data that a step of one pair takes."""
        gradients = 2 if self.anchor is None else 3
        return gradients * min(self.method.batch_size, self.model.n) / self.model.n

    def pair(self, k: int, run: int) -> TrainingPair:
        """Make a pair of trainings for psi_k."""
        seed = (int(self.method.rng), k, run)  # type: ignore[arg-type]
        return TrainingPair(
            self.method, self.model, self.evaluation, k, self.pushes[k], seed, self.anchor,
            self.stepper,
        )  # fmt: skip

    def foretell(self) -> str:
        """Time a few steps, and log what all of them will take."""
        path, started = self.pair(0, 0).path(), perf_counter()
        for _ in itertools.islice(path, TIMED):
            self.budget.spend(self.passes)
        seconds = (perf_counter() - started) / TIMED
        cost = foretold(self.total, self.total * self.passes, self.total * seconds)
        logger.info("StochasticFiniteDifference: %s", cost)
        return cost


def _pushes(method: "StochasticFiniteDifference", size: int, pilot: Pilot | None) -> list[float]:
    if method.lam is not None or pilot is None:
        assert method.lam is not None
        return [float(method.lam)] * size
    return [PUSH / error if error > 0 else 1.0 for error in np.sqrt(pilot.variances)]


def _stepper(
    method: "StochasticFiniteDifference", model: FittedModel, pilot: Pilot | None
) -> tuple[Any, int]:
    """How steps are made, and how many of them the curvature asks for; 0 if that is unknown."""
    if method.optimizer == "preconditioned":
        return _preconditioned(method, model)
    if method.optimizer is not None or pilot is None:
        return method.optimizer, 0
    rate = largest_stable_rate(model, method.curvature) / 2
    needed = pilot.steps(rate / model.n, method.tolerance)
    slow = needed > PLAIN_STEPS and method.anchored and method.steps is None
    if slow and model.d <= DENSE_LIMIT:
        return _preconditioned(method, model)
    if method.steps is None and needed > HOPELESS * method.max_steps:
        raise _hopeless(pilot, needed, method.max_steps)
    return rate, int(min(needed, method.max_steps))


def _preconditioned(
    method: "StochasticFiniteDifference", model: FittedModel
) -> tuple[Preconditioned, int]:
    stepper = Preconditioned.of(model, method.curvature, method.batch_size, int(method.rng))  # type: ignore[arg-type]
    return stepper, math.ceil(math.log(method.tolerance) / math.log1p(-stepper.rate))


def _known(pilot: Pilot | None) -> str:
    if pilot is None:
        return ""
    return f"A pilot solve has the standard error at about {_errors(pilot)}."


def _errors(pilot: Pilot) -> str:
    return described_range(np.sqrt(pilot.variances))


def _hopeless(pilot: Pilot, needed: float, most: int) -> ConvergenceError:
    steps = f"about {needed:.1g}" if math.isfinite(needed) else "more than 1e9"
    return ConvergenceError(
        f"By the curvature that psi sees, the variance still changes after {most} steps: {steps} "
        "plain gradient steps would be needed, so that none was made. Use a larger `max_steps`, "
        "another optimizer (momentum, Adam), `steps=` to accept what they reach, or a method that "
        f"solves, such as `Infinitesimal()`. {_known(pilot)}"
    )

"""Choices before a stochastic training: pushes, steps and how they are made, and their cost."""

import itertools
import logging
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.core.budget import Budget, foretold
from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.errors import ConvergenceError, NotAMaximumError
from implicit_delta.evaluation import Evaluation
from implicit_delta.linalg.arrays import ratio, symmetric
from implicit_delta.linalg.solvers import stiffened
from implicit_delta.methods.base import described_range
from implicit_delta.methods.pilot import Pilot, Preconditioned, largest_stable_rate
from implicit_delta.methods.training_pair import Anchor, TrainingPair
from implicit_delta.models.model import FittedModel

if TYPE_CHECKING:
    from implicit_delta.methods.stochastic import StochasticFiniteDifference

PUSH = 0.1  # of a standard error; the noise of paired trainings shrinks with it
NEAR = 1e-3  # where A is to hold over the push as a preconditioner: networks bend within a tenth
BATCH = 256  # rows, unless given
PLAIN_STEPS = 250  # of plain gradients, as in the paper; beyond, a preconditioner may be worth it
LONG = 1e9  # steps that are as good as infinitely many
SIGNAL = 1e3  # times the rounding of psi
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
        budget, before, pilot = Budget(method.budget), model.rows.passes, None
        if method.lam is None or method.optimizer is None:
            pilot = Pilot.of(model, evaluation.jacobian(model.theta), method.curvature)
        stepper = _stepper(method, model, pilot)
        plan = cls(
            method=replace(method, optimizer=stepper.name, batch_size=stepper.batch_size),
            model=model,
            evaluation=evaluation,
            pushes=_pushes(method, evaluation, pilot, stepper.name == "preconditioned"),
            stepper=stepper.step,
            steps=max(stepper.needed, method.samples or BLOCK)
            if method.steps is None
            else method.steps,
            anchor=Anchor(model, evaluation) if method.anchored else None,
            budget=budget,
        )
        budget.spend(model.rows.passes - before, _known(pilot))
        Budget(method.budget).spend(budget.spent + plan.total * plan.passes, _known(pilot))
        return plan

    @property
    def total(self) -> int:
        """Steps of all pairs, if the first look at them is confirmed by the second."""
        looks = self.steps * (1 if self.method.steps is not None else 2)
        return self.evaluation.size * self.runs * (looks + (self.method.samples or BLOCK))

    @property
    def runs(self) -> int:
        """Pairs to train for each psi_k; on all rows at once they are all alike."""
        return 1 if self.batch_size == self.model.n else self.method.runs

    @property
    def batch_size(self) -> int:
        """Rows of a minibatch."""
        assert self.method.batch_size is not None
        return min(self.method.batch_size, self.model.n)

    @property
    def passes(self) -> float:
        """Passes over the data that a step of one pair takes."""
        return (2 if self.anchor is None else 3) * self.batch_size / self.model.n

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


def _pushes(
    method: "StochasticFiniteDifference", evaluation: Evaluation, pilot: Pilot | None, near: bool
) -> list[float]:
    """Lambda for every psi_k: as far as given, or far enough for the rounding of psi."""
    if pilot is None or method.lam is not None:
        assert method.lam is not None
        return [float(method.lam)] * evaluation.size
    errors = np.sqrt(pilot.variances)
    blur = 0.0 if evaluation.blur is None else ratio(evaluation.blur, errors)
    pushes = np.clip(SIGNAL * blur, NEAR if near else PUSH, PUSH) + np.zeros(errors.size)
    return list(ratio(pushes, errors, otherwise=1.0))


@dataclass(frozen=True)
class _Stepper:
    """A way to step, on so many rows, and the steps that the curvature asks for; 0 if unknown."""

    step: Any
    batch_size: int
    needed: int = 0

    @property
    def name(self) -> Any:
        return "preconditioned" if isinstance(self.step, Preconditioned) else self.step

    def passes(self, method: "StochasticFiniteDifference", n: int) -> float:
        """Expected passes over the data for one psi."""
        runs = 1 if self.batch_size >= n else method.runs
        return runs * (2 * self.needed + (method.samples or BLOCK)) * 3 * self.batch_size / n


def _stepper(
    method: "StochasticFiniteDifference", model: FittedModel, pilot: Pilot | None
) -> _Stepper:
    size = method.batch_size or BATCH
    if method.optimizer == "preconditioned":
        return _preconditioned(method, model)
    if method.optimizer is not None or pilot is None:
        return _Stepper(method.optimizer, size)
    rate = largest_stable_rate(model, method.curvature) / 2
    if method.steps is not None:
        return _Stepper(rate, size)
    needed = pilot.steps(rate / model.n, method.tolerance)
    plain = _Stepper(rate, size, int(min(needed, LONG)))
    slow = needed > PLAIN_STEPS and plain.passes(method, model.n) > model.d
    if slow and method.anchored and model.d <= DENSE_LIMIT:
        other = _preconditioned(method, model)
        plain = min(plain, other, key=lambda stepper: stepper.passes(method, model.n))
    if plain.needed > HOPELESS * method.max_steps:
        raise _hopeless(pilot, plain.needed, method.max_steps)
    return plain


def _preconditioned(method: "StochasticFiniteDifference", model: FittedModel) -> _Stepper:
    r"""Factorize the curvature; take all rows where minibatches are too noisy to be worth it.

    The noise of a step is :math:`c (n / B - 1)`, and the rows that a response takes are in
    proportion to :math:`B (1 + c (n / B - 1))`: least for few rows if c is below one, else for all.
    """
    rng, size = np.random.default_rng(method.rng), min(method.batch_size or BATCH, model.n)
    matrix = symmetric(model.information(model.theta, np.eye(model.d), method.curvature))
    try:
        factor = stiffened(matrix)
    except NotAMaximumError as error:  # a training would leave along that direction
        raise error.named(model.space.names) from None
    step = Preconditioned.of(model, factor, size, rng)
    if method.batch_size is None and step.noise > model.n / size - 1 > 0:
        size = model.n
        step = Preconditioned.of(model, factor, size, rng)
    return _Stepper(step, size, step.steps(method.tolerance))


def _known(pilot: Pilot | None) -> str:
    if pilot is None:
        return ""
    return f"A pilot solve has the standard error at about {_errors(pilot)}."


def _errors(pilot: Pilot) -> str:
    return described_range(np.sqrt(pilot.variances))


def _hopeless(pilot: Pilot, needed: float, most: int) -> ConvergenceError:
    steps = f"about {needed:.1g}" if needed < LONG else "very many"
    return ConvergenceError(
        f"By the curvature that psi sees, the variance still changes after {most} steps: {steps} "
        "plain gradient steps would be needed, so that none was made. Use a larger `max_steps`, "
        "another optimizer (momentum, Adam), `steps=` to accept what they reach, or a method that "
        f"solves, such as `Infinitesimal()`. {_known(pilot)}"
    )

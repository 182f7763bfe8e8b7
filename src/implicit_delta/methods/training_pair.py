"""Two trainings that differ by a little of psi and by nothing else."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from implicit_delta.core.cache import LastCache
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.pilot import Preconditioned
from implicit_delta.models.batches import Bonus, RowNumbers, ascend, batch_score
from implicit_delta.models.model import FittedModel

if TYPE_CHECKING:
    from implicit_delta.methods.stochastic import StochasticFiniteDifference

Ends: TypeAlias = tuple[Array, ...]  # parameters of both trainings, (d,) each


@dataclass(frozen=True)
class Responses:
    """Slopes in lambda of psi (K,) and theta (d,)."""

    psi: Array
    theta: Array


class Anchor:
    """SVRG control variate: the score of all rows, and the slopes of psi, at the start.

    Adding the error of a batch in that score to every step leaves, of the noise of minibatches,
    only the part that grows with the distance from the start (Johnson and Zhang, 2013).
    """

    def __init__(self, model: FittedModel, evaluation: Evaluation) -> None:
        self.model, self.score = model, model.score(model.theta)
        self.slopes = evaluation.jacobian(model.theta)
        self._last = LastCache()

    def __call__(self, rows: RowNumbers) -> Array:
        """Correct a step on these rows; computed once for both ends of a pair."""
        correction: Array = self._last.get(
            rows, "correction", lambda: self.score - batch_score(self.model, self.model.theta, rows)
        )
        return correction


@dataclass(frozen=True)
class TrainingPair:
    """Two trainings on identical minibatches, with a bonus of +lam psi_k and of -lam psi_k.

    The stepper is a learning rate, an optimizer that the model trains with, or `Preconditioned`.
    """

    method: "StochasticFiniteDifference"
    model: FittedModel
    evaluation: Evaluation
    k: int
    lam: float
    seed: tuple[int, ...]
    anchor: Anchor | None
    stepper: Any

    def path(self) -> Iterator[Ends]:
        """Parameters of both trainings after each step."""
        signs = (1.0, -1.0) if self.method.central else (1.0, 0.0)
        ends = (
            self._ascend(self._bonus(sign), batches)
            for sign, batches in zip(signs, itertools.tee(self._minibatches()), strict=True)
        )
        return zip(*ends, strict=True)

    def averaged(self, path: Iterator[Ends], samples: int) -> Responses:
        """Average the responses over the next steps."""
        width = (2 if self.method.central else 1) * self.lam
        psi, theta = np.zeros(self.evaluation.size), np.zeros(self.model.d)
        for ahead, behind in itertools.islice(path, samples):
            psi += self.evaluation(ahead) - self.evaluation(behind)
            theta += ahead - behind
        return Responses(psi / (samples * width), theta / (samples * width))

    def _ascend(self, bonus: Bonus, batches: Iterator[RowNumbers]) -> Iterator[Array]:
        if not isinstance(self.stepper, Preconditioned):
            yield from ascend(self.model, bonus, batches, self.stepper)
            return
        theta, rest = self.model.theta, 0.0 if self.anchor is None else self.anchor.score
        for rows in batches:
            # Less the score at the start: what an early end has left is drift, and no response.
            slope = batch_score(self.model, theta, rows) + bonus(theta, rows) - rest
            if not np.all(np.isfinite(slope)):
                raise ConvergenceError(
                    "The training diverged: within the push the objective is not close to a "
                    "parabola. Usual causes: kinks (ReLU), a training that stopped early. Give a "
                    'learning rate as `optimizer`, or use `Infinitesimal(curvature="ggn")`.'
                )
            theta = theta + self.stepper.step(slope)
            yield theta

    def _bonus(self, sign: float) -> Bonus:
        push = sign * self.lam

        def bonus(theta: Array, rows: RowNumbers) -> Array:
            if self.anchor is not None:
                return np.asarray(self.anchor(rows) + push * self.anchor.slopes[self.k])
            return push * self.evaluation.jacobian(theta)[self.k] if push else np.zeros(theta.size)

        return bonus

    def _minibatches(self) -> Iterator[RowNumbers]:
        """Rows of every step: drawn anew, or in the paper's way, from epochs without end.

        Batches of an epoch depend on each other, which would leave a bias in anchored training.
        """
        generator, n = np.random.default_rng(self.seed), self.model.n
        size = min(self.method.batch_size or n, n)
        while self.anchor is not None:
            yield generator.choice(n, size, replace=False)
        while True:
            order = generator.permutation(n)
            for start in range(0, n - size + 1, size):
                yield order[start : start + size]

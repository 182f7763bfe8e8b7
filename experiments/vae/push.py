"""Method of our own for `implicit_delta.infer`: a push along psi that minibatches estimate."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np

import implicit_delta as idm
from implicit_delta.models.batches import ascend, batch_score


@dataclass(frozen=True, repr=False, eq=False)
class Continuation:
    """Training that goes on from a fitted model, on the same minibatches for every push.

    Attributes
    ----------
    model : FittedModel
    optimizer : callable
        Makes an optimizer of a list of parameters.
    steps, batch_size, seed : int
        Rows are taken in epochs, each in a new order.
    """

    model: idm.FittedModel
    optimizer: Callable
    steps: int
    batch_size: int
    seed: int

    def end(self, bonus=None):
        """Theta (d,) after all steps, with a bonus given by its gradient ``bonus(theta, rows)``."""
        batches = islice(self._minibatches(), self.steps)
        *_, theta = ascend(self.model, bonus, batches, self.optimizer)
        return theta

    def _minibatches(self):
        generator, n = np.random.default_rng(self.seed), self.model.n
        size = min(self.batch_size, n)
        while True:
            order = generator.permutation(n)
            yield from (order[start : start + size] for start in range(0, n - size + 1, size))


@dataclass(frozen=True, repr=False, eq=False)
class MinibatchPush(idm.Method):
    r"""Forward difference :math:`V = (\psi(\lambda) - \psi(0)) / \lambda` by stochastic training.

    The paper's Algorithm 2, as in ``StochasticFiniteDifference(central=False, anchored=False)``,
    for a psi that is a sum over training rows: lambda psi is estimated from the rows of each
    minibatch, as L is. A step then takes no pass over all rows of psi, and a psi that is an
    expectation over latent noise sees other draws in each step.

    Of one psi at a time.

    Attributes
    ----------
    lam : float
    terms : FittedModel
        Its terms are those of psi, one for each row of the model.
    pushed : (n,) array of bool
        Rows over which psi sums.
    training : Continuation
    rest : (d,) array
        End of the training without a push, which all pushes have in common.
    score : (d,) array
        Of the model at its theta, for the drift.
    """

    lam: float
    terms: idm.FittedModel
    pushed: np.ndarray
    training: Continuation
    rest: np.ndarray
    score: np.ndarray

    def respond(self, model, evaluation):
        """Train with the push, and compare with the training without."""
        ahead = self.training.end(self.bonus)
        variance = (evaluation(ahead) - evaluation(self.rest)) / self.lam
        if not np.all(variance > 0):
            raise idm.ConvergenceError(
                f"psi did not rise although it was pushed to (lambda = {self.lam:g}): the noise "
                "of the training is larger than the response. Train longer, or on larger batches."
            )
        return idm.Response(
            covariance=variance[:, None],
            directions=((ahead - self.rest) / self.lam)[:, None],
            score=self.score,
            method=f"MinibatchPush(lam={self.lam:g})",
        )

    def bonus(self, theta, rows):
        """Gradient of lambda psi, (d,), estimated from the pushed rows of a minibatch."""
        inside = rows[self.pushed[rows]]
        if not inside.size:
            return np.zeros(theta.size)
        share = inside.size / rows.size
        return self.lam * share * batch_score(self.terms, theta, inside)

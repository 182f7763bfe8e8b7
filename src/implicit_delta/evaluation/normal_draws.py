"""Psi at draws of the parameters from the normal distribution of the estimate."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.budget import Budget
from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.core.parallel import run_all
from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError, UnsupportedModelError
from implicit_delta.linalg.arrays import covariance_root, pseudo_solve, symmetric
from implicit_delta.linalg.krylov import inverse_root
from implicit_delta.linalg.solvers import conjugate_gradient, factorize
from implicit_delta.models.covariance import parameter_covariance
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import curvature_noise

ROUNDING = 1e3  # roundings that psi may accumulate, in double precision
SINGLE_ROUNDING = 4  # and where its values are single: a standard error below that is unknown too
BLOCK_NUMBERS = 2**17  # numbers in a block of vectors beyond that; the basis holds hundreds of them
# Steps to about 4 % of their length: what is missing is 0.2 % of a variance.
SOLVER = conjugate_gradient(rtol=1e-3, certify=False)
CHUNKS = 64  # pieces of work: enough for a smooth bar, few enough that handing out data is cheap


@dataclass(frozen=True, eq=False)
class NormalDraws:
    r"""Steps :math:`H z` with :math:`H H' = A^{-1}` and z standard normal, used with both signs.

    For more pairs than parameters the z are matched to their moments, :math:`\sum z z' / P = I`
    exactly, so that what is linear in theta has no Monte-Carlo error at all.
    """

    model: FittedModel
    pairs: int
    seed: int
    curvature: Curvature = "hessian"
    budget: Budget = field(default_factory=Budget)

    @property
    def dense(self) -> bool:
        """Whether the curvature is factorized."""
        return self.model.d <= DENSE_LIMIT

    @property
    def matched(self) -> bool:
        """Whether the second moments of z are exact."""
        return self.dense and self.pairs > self.model.d

    @cached_property
    def z(self) -> Array:
        """Standard normal, (pairs, d); only where `dense`."""
        z = np.random.default_rng(self.seed).standard_normal((self.pairs, self.model.d))
        if not self.matched:
            return z
        left, _, right = np.linalg.svd(z, full_matrices=False)
        return np.asarray(np.sqrt(self.pairs) * left @ right)

    def steps(self) -> Iterator[Array]:
        """Blocks of steps, one per column: (d, b), `pairs` columns in all."""
        if not self.model.rows.symmetric:
            yield covariance_root(parameter_covariance(self.model)) @ self.z.T
            return
        if self.dense:
            matrix = self.information(np.eye(self.model.d))
            yield factorize(symmetric(matrix)).half(self.z.T)
            return
        generator = np.random.default_rng(self.seed)
        size = max(1, BLOCK_NUMBERS // self.model.d)
        for done in range(0, self.pairs, size):
            yield self._block(generator, min(size, self.pairs - done))

    def _block(self, generator: np.random.Generator, count: int) -> Array:
        r"""Steps without a factor, (d, count): sampled and solved, or by an inverse root.

        With b from :math:`N(0, A)`, which a Gauss-Newton matrix is made of, :math:`A^{-1} b` is
        from :math:`N(0, A^{-1})`: a solve keeps a few vectors, a root hundreds of them.
        """
        noise = None
        if self.curvature == "ggn":
            noise = curvature_noise(self.model, self.model.theta, generator, count)
        if noise is None:
            z = generator.standard_normal((self.model.d, count))
            return inverse_root(self.information, z)
        return SOLVER.solve(self.information, noise, floor=self.model.penalty.floor).x

    def information(self, v: Array) -> Array:
        """A times v: of a model that has a covariance and no curvature, its inverse."""
        if not self.model.rows.symmetric:
            return pseudo_solve(parameter_covariance(self.model), v)
        self.budget.spend(v.size // self.model.d, "No draw was finished.")
        return self.model.information(self.model.theta, v, self.curvature)


@dataclass(frozen=True, eq=False)
class Pairs:
    r"""Psi at :math:`\hat\theta \pm` width times each step.

    Attributes
    ----------
    odd : (P, K) array
        Half the difference of the two ends, over the width.
    even : (P, K) array
        Their mean.
    directions : (d, K) array
        The mean of step times odd part, :math:`\hat{w}`: on average :math:`A^{-1} g`.
    linear : (P, K) array or None
        The part of `odd` that is linear in z, by least squares; None unless matched.
    """

    odd: Array
    even: Array
    directions: Array
    linear: Array | None

    @property
    def values(self) -> Array:
        """Psi at all draws, (2 P, K), if the width is one."""
        ends = np.stack([self.even + self.odd, self.even - self.odd], axis=1)
        return ends.reshape(-1, self.odd.shape[1])


def simulate(
    psi: Callable[[Array], Array], draws: NormalDraws, width: float, n_jobs: int, where: str
) -> Pairs:
    """Evaluate psi, (d,) to (K,), at both ends of every step; `where` opens the error message."""
    odd, even, directions, done = [], [], np.zeros(()), 0
    with progress("draws", total=2 * draws.pairs, unit="draw") as bar:
        for steps in draws.steps():
            ends = draws.model.theta + width * both_signs(steps)
            work = _Work(psi, ends, 2 * done, where)
            values = work.run(n_jobs, bar.update)
            odd.append((values[::2] - values[1::2]) / (2 * width))
            even.append((values[::2] + values[1::2]) / 2)
            directions = directions + steps @ odd[-1]
            done += steps.shape[1]
    together = np.concatenate(odd)
    linear = draws.z @ (draws.z.T @ together) / draws.pairs if draws.matched else None
    return Pairs(together, np.concatenate(even), directions / draws.pairs, linear)


def both_signs(steps: Array) -> Array:
    """Turn b columns into 2 b rows: each step, followed by its opposite."""
    return np.stack([steps.T, -steps.T], axis=1).reshape(-1, steps.shape[0])


def still(values: Array) -> NDArray[np.bool_]:
    """Find the outputs that do not change over the draws, (B, K) to K truth values.

    Up to rounding, that is, which is that of single precision where all values are such numbers.
    """
    with np.errstate(over="ignore"):
        single = np.all(values == values.astype(np.float32), axis=0)
    rounding = np.where(
        single, SINGLE_ROUNDING * np.finfo(np.float32).eps, ROUNDING * np.finfo(np.float64).eps
    )
    return np.asarray(np.ptp(values, axis=0) <= rounding * np.max(abs(values), axis=0))


def check_draws(draws: Any, curvature: Any) -> None:
    """Refuse a number of draws that does not make pairs, and an unknown curvature."""
    if curvature not in ("hessian", "ggn", None):
        raise ValueError(f'curvature must be "hessian" or "ggn", not {curvature!r}.')
    if not isinstance(draws, int | np.integer) or draws < 4 or draws % 2:
        raise ValueError(
            f"draws must be an even number of 4 or more, since they come in pairs: {draws!r}."
        )


@dataclass(frozen=True, eq=False)
class _Work:
    """Points to evaluate psi at; the first one is draw number `first`."""

    psi: Callable[[Array], Array]
    points: Array
    first: int
    where: str

    def run(self, n_jobs: int, done: Callable[[int], object]) -> Array:
        bounds = np.linspace(0, len(self.points), min(CHUNKS, len(self.points)) + 1).astype(int)
        jobs = [
            (self.psi, self.points[a:b], self.first + a, self.where) for a, b in pairwise(bounds)
        ]
        return np.concatenate(run_all(_evaluate, jobs, n_jobs, lambda chunk: done(len(chunk))))


def _evaluate(psi: Callable[[Array], Array], points: Array, first: int, where: str) -> Array:
    return np.array([_at(psi, point, first + b, where) for b, point in enumerate(points)])


def _at(psi: Callable[[Array], Array], point: Array, number: int, where: str) -> Array:
    try:
        return psi(point)
    except UnsupportedModelError:
        raise  # of the model, at every draw
    except Exception as error:
        raise EvaluationError(
            f"psi failed at draw {number} of {where}: {type(error).__name__}: {error} The draws "
            "lie a few standard errors around the fitted parameters: psi has to be defined there. "
            "Extend psi, or choose a parametrization without edges (the logarithm of a scale)."
        ) from error

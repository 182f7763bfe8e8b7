"""Pilot of a stochastic training: rough variances, and the steps that the curvature asks for."""

import math
from dataclasses import dataclass

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import NotAMaximumError
from implicit_delta.linalg.krylov import Krylov
from implicit_delta.linalg.solvers import Factor
from implicit_delta.methods.base import refuse_flat
from implicit_delta.models.batches import batch_score
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel

ROUGH = 0.01  # of a variance: gain per iteration, times iterations, at which the pilot ends
MOST_PRODUCTS = 250  # for each psi
RATE_PRODUCTS = 20
LONGEST = 1e9  # steps
PROBES, BATCHES = 4, 8  # directions and minibatches that measure the noise of a step
PROBE = 1e-3  # length of such a direction, in standard errors: short, for the curvature at theta


@dataclass(frozen=True)
class Pilot:
    """Rough variances (K,), and by psi_k the curvatures that they are made of, with their shares.

    From conjugate gradients on A w = g, which are Gauss quadrature of the spectrum that g sees.
    """

    variances: Array
    curvatures: list[Array]
    shares: list[Array]

    @classmethod
    def of(cls, model: FittedModel, jacobian: Array, curvature: Curvature) -> "Pilot":
        """Iterate for all psi_k at once until each variance is roughly known."""
        if not np.any(jacobian):
            what = "psi does not change with the parameters: its derivative is exactly zero."
            refuse_flat(what, model)
        try:
            krylov = Krylov(
                lambda v: model.information(model.theta, v, curvature),
                np.asarray(jacobian.T, dtype=np.float64),
            )
            _iterate(krylov)
        except NotAMaximumError as error:
            raise error.named(model.space.names) from None
        spectra = [_spectrum(krylov, k) for k in range(krylov.solved)]
        return cls(krylov.lower, [values for values, _ in spectra], [w for _, w in spectra])

    def steps(self, pace: float, tolerance: float) -> float:
        """Gradient steps after which less than the tolerance of every variance is missing.

        A step leaves ``1 - pace * h`` along a curvature h. Infinite if that does not shrink.
        """
        return max(
            _steps(np.abs(1 - pace * values), shares, tolerance)
            for values, shares in zip(self.curvatures, self.shares, strict=True)
        )


def _iterate(krylov: Krylov) -> None:
    while krylov.active.size and krylov.iterations < MOST_PRODUCTS:
        before = krylov.lower.copy()
        krylov.step()
        gain = krylov.iterations * (krylov.lower - before)
        krylov.retire(gain <= ROUGH * krylov.lower)


def _spectrum(krylov: Krylov, k: int) -> tuple[Array, Array]:
    """Ritz values of A in the space searched for a column, and their shares of b' A^-1 b."""
    if not krylov.lengths[k]:
        return np.ones(1), np.ones(1)
    values, vectors = krylov.spectrum(k)
    shares = vectors[0] ** 2 / values
    return values, shares / shares.sum()


def _steps(decay: Array, shares: Array, tolerance: float) -> float:
    for steps in np.unique(np.geomspace(1, LONGEST, 500).astype(int)):
        if shares @ decay**steps <= tolerance:
            return float(steps)
    return math.inf


def largest_stable_rate(model: FittedModel, curvature: Curvature) -> float:
    """Rate up to which gradient ascent on L / n is stable, 2 n / largest h, by Ritz values."""
    start = np.random.default_rng(0).normal(size=(model.d, 1))
    krylov = Krylov(lambda v: model.information(model.theta, v, curvature), probes=start)
    while krylov.active.size and krylov.iterations < RATE_PRODUCTS:
        krylov.step()
    return 2 * model.n / krylov.ritz(0, -1)


@dataclass(frozen=True)
class Preconditioned:
    r"""Steps :math:`\theta \mathrel{+}= \eta A^{-1} \nabla` on the sum over all rows.

    A preconditioner changes the way and not the end, which is where the gradient is zero. All
    curvatures are then one, so that a step leaves :math:`1 - \eta` of every response.
    """

    rate: float
    factor: Factor

    @classmethod
    def of(
        cls, model: FittedModel, factor: Factor, batch_size: int, rng: np.random.Generator
    ) -> "Preconditioned":
        r"""Take a quarter of the largest stable rate, :math:`2 / \rho`.

        With :math:`H_B` the curvature of a minibatch, a step leaves on average
        :math:`1 - 2 \eta + \eta^2 \rho` of a squared error e, where :math:`\rho` is
        :math:`e' H_B A^{-1} H_B e / e' A e`: one for all rows at once, and more the fewer they are.
        It is measured by power iteration over a few minibatches.
        """
        if batch_size >= model.n:
            return cls(0.5, factor)
        theta, growth = model.theta, 1.0
        z = rng.standard_normal((model.d, PROBES))
        for _ in range(BATCHES):
            z = PROBE * z / np.linalg.norm(z, axis=0)
            rows = rng.choice(model.n, batch_size, replace=False)
            here = batch_score(model, theta, rows)
            points = theta[:, None] + factor.half(z)
            bends = [here - batch_score(model, point, rows) for point in points.T]
            z = factor.half_transpose(np.column_stack(bends)) / PROBE
            growth = max(growth, float(np.mean(np.sum(z**2, axis=0))))
        return cls(1 / (2 * growth), factor)

    @property
    def noise(self) -> float:
        r"""Measured :math:`\rho` less one."""
        return 1 / (2 * self.rate) - 1

    def steps(self, tolerance: float) -> int:
        """Steps that leave less than the tolerance of a response."""
        return math.ceil(math.log(tolerance) / math.log1p(-self.rate))

    def step(self, slope: Array) -> Array:
        """Turn a gradient into a step, (d,)."""
        return self.rate * self.factor.solve(slope)

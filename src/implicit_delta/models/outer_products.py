"""Curvature of a log-likelihood in the metric of its score rows: few products tell it all.

Where a model fits, the outer products of the score rows sum to about the curvature, S'S ~ A. In
coordinates in which S'S is the identity A has no eigenvalue far from one, whatever the scales and
correlations of the parameters, so that a dozen products solve with it to all digits, where forming
it takes several scores for each parameter. Where S'S is another matrix (few rows, another scale,
kinks) that shows in the eigenvalues, and None is returned: differences along each parameter then
have to do.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.errors import NotAMaximumError
from implicit_delta.linalg.krylov import Krylov
from implicit_delta.linalg.solvers import Factor, Solution, conjugate_gradient
from implicit_delta.linalg.solvers.factor import try_to_factorize
from implicit_delta.linalg.solvers.floor import CHANCE, Probe, random_vector

# Fewer parameters are differentiated one by one, for about the same, and their curvature is formed
# anyway, for the bias.
FEWEST = 30
STEP = (
    2.0**-12
)  # of a standard error: leaves out 1e-8 of the bend of the curvature, rounds at 1e-12
LEAST, MOST = 1 / 16, 16.0  # eigenvalues of a metric that is of use: units are right to a factor 4
ENOUGH = 0.3  # of the smallest Ritz value: a floor that hardly gains by further steps
MOST_STEPS = 30
NOISE = 1e-7  # of a product, that its symmetry shows: more, and it is no derivative
SAME = 1e-9  # of a product, by short steps and by those that know their error
RTOL = 1e-17  # of a standard error: 5e-9 of the solution itself, of which robust errors are made


@dataclass(frozen=True)
class OuterProducts:
    """Minus the Hessian of L at theta, in the metric of the score rows there.

    Parameters
    ----------
    factor : Factor
        Of the sum of outer products, with the ridge.
    score : callable
        Gradient of L, (d,) to (d,).
    theta : (d,) array
    floor : float
        Below all eigenvalues in this metric, with probability 0.999.
    """

    factor: Factor
    score: Callable[[Array], Array]
    theta: Array
    floor: float = 0.0

    @property
    def units(self) -> Array:
        """About the standard error of each parameter, the others held fixed, (d,)."""
        return self.factor.scale

    def half_transpose(self, g: Array) -> Array:
        """Take a gradient to the coordinates of the metric."""
        return self.factor.half_transpose(g)

    def product(self, block: Array) -> Array:
        """Multiply a block (d, k) in the coordinates of the metric; two scores a column."""
        return np.column_stack([self._along(column) for column in block.T])

    def _along(self, z: Array) -> Array:
        """Difference of two scores, over one short step."""
        length = STEP / (float(np.linalg.norm(z)) or 1.0)
        step = length * self.factor.half(z)
        change = self.score(self.theta - step) - self.score(self.theta + step)
        return self.factor.half_transpose(change) / (2 * length)

    def images(self, block: Array) -> Array:
        """Multiply a block (d, k) of directions; two scores a column."""
        triangle, scale = self.factor.triangle, self.factor.scale[:, None]
        return np.asarray(triangle @ self.product(triangle.T @ (block / scale)) / scale)

    def agrees(self, images: Array, others: Array) -> bool:
        """Whether products by other means (d, k) are the same, but for what a short step rounds."""
        apart = np.linalg.norm(self.half_transpose(images - others))
        return bool(apart <= SAME * np.linalg.norm(self.half_transpose(others)))

    def solve(self, b: Array) -> Array:
        """Solve with the curvature for (d,)."""
        return self.solved(b[:, None], b.size).x[:, 0]

    def solved(self, b: Array, most: int) -> Solution:
        """Solve for a block (d, K), in at most so many steps of conjugate gradients."""
        solver = conjugate_gradient(rtol=RTOL, max_iterations=most)
        found = solver.solve(self.product, self.factor.half_transpose(b), floor=self.floor)
        x = self.factor.half(found.x)
        return Solution(
            x=x,
            quadratic=found.quadratic,
            residual=found.residual,
            smallest_curvature=self._smallest_curvature(x, found.quadratic.diagonal()),
            products=found.products,
            iterations=found.iterations,
            lower=found.lower,
            upper=found.upper,
            probability=1 - CHANCE,
        )

    def _smallest_curvature(self, x: Array, variances: Array) -> float:
        """Curvature along the solutions, and along the weakest direction of the metric."""
        weakest = self.factor.scale * self.factor.weakest()
        z = self.factor.triangle.T @ (weakest / self.factor.scale)
        lengths = np.append(np.linalg.norm(x, axis=0), np.linalg.norm(weakest)) ** 2
        bends = np.append(variances, z @ self._along(z))
        return float(np.min(bends[lengths > 0] / lengths[lengths > 0]))


def worth_a_metric(n: int, d: int) -> bool:
    """Whether outer products of n rows may tell the curvature of d parameters, and save calls."""
    return FEWEST < d <= min(DENSE_LIMIT, n - 1)


def metric(rows: Array, weights: Array, ridges: Array) -> Factor | None:
    """Factorize the weighted sum of outer products of rows (n, d), and ridges (d,).

    None if it is singular or not finite.
    """
    if not np.isfinite(rows).all() or not np.isfinite(ridges).all():
        return None
    scaled = rows if np.all(weights == 1) else np.sqrt(weights)[:, None] * rows
    matrix = scaled.T @ scaled
    matrix[np.diag_indices_from(matrix)] += ridges
    return try_to_factorize(matrix)


def outer_products(
    factor: Factor | None, score: Callable[[Array], Array], theta: Array
) -> OuterProducts | None:
    """Look at the curvature in a metric; None unless all its eigenvalues are of the size of one."""
    if factor is None:
        return None
    found = OuterProducts(factor, score, theta)
    start, nothing = random_vector(theta.size), np.empty((theta.size, 0))
    probe = Probe(Krylov(found.product, probes=start), nothing)
    try:
        while probe.steps < MOST_STEPS and not probe.exhausted:
            probe.krylov.step()
            if probe.due(False):
                sight = probe.look()
                if sight.floor >= ENOUGH * sight.ritz:
                    break
    except NotAMaximumError:  # not finite
        return None
    return _of_use(found, probe)


def _of_use(found: OuterProducts, probe: Probe) -> OuterProducts | None:
    sight = probe.look()
    largest = probe.krylov.ritz(probe.column, -1)
    known = not sight.flat and sight.floor >= LEAST and largest <= MOST
    if not known or probe.noise > NOISE * sight.floor:
        return None
    return OuterProducts(found.factor, found.score, found.theta, sight.floor)

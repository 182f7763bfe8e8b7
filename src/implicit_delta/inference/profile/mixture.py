r"""Quantiles of a one-sided deviance where limits of *other* quantities are close: chi-bar-squared.

A limit of psi itself only makes its deviance smaller, but one of a nuisance parameter that is
correlated with psi may make it larger: in a sample that would put the nuisance parameter beyond its
limit, psi has to give way. With the truth at these limits the deviance is, in coordinates in which
the estimate is standard normal, the difference of two squared distances from a cone :math:`C`,

.. math:: D = \min_{x \in C,\; g'x = 0} |z - x|^2 - \min_{x \in C} |z - x|^2,

a mixture of chi-squared distributions (Self and Liang, 1987) whose quantile is found by draws.
"""

import numpy as np
from scipy.linalg import LinAlgError
from scipy.optimize import nnls
from scipy.special import ndtr

from implicit_delta.core.types import Array
from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.ascent import Ascent
from implicit_delta.models.boundaries import NEAR
from implicit_delta.models.constraints import Constraints

OWN = 0.99  # cosine between the gradients of psi and of a limit: psi's own
DRAWS = 8192  # their quantile is uncertain by about 1 %


def mixed_roots(
    whole: Evaluation, constraints: Constraints, roots: list[float], sign: int
) -> list[float]:
    """Enlarge the roots of a limit, upper for sign 1, by what nuisance limits make of them.

    `whole` is psi on the model without inequalities, at the constrained maximum.
    """
    cone = _cone(whole, constraints)
    if cone is None:
        return roots
    deviance = np.sort(_deviances(*cone, sign))
    places = (DRAWS * ndtr(np.array(roots))).astype(int)
    found = np.sqrt(deviance[np.minimum(places, DRAWS - 1)])
    return [max(root, float(mixed)) for root, mixed in zip(roots, found, strict=True)]


def _cone(whole: Evaluation, constraints: Constraints) -> tuple[Array, Array] | None:
    """Gradient of psi, (d,), and inner normals of near limits, (m, d), in standard errors."""
    model = whole.model
    try:
        scale = Ascent.of(model).scale
        gradient = whole.jacobian(model.theta)[0]
    except (ImplicitDeltaError, LinAlgError):  # the log-likelihood ends with its limits
        return None
    if scale is None or not np.any(gradient):
        return None
    theta = model.theta if model.space.chart is None else model.space.chart.point(model.theta)
    slopes, value = constraints.slope(theta), constraints.value(theta)
    slopes = slopes if model.space.chart is None else slopes @ model.space.chart.slope(theta)
    rows = np.asarray(scale.half_transpose(slopes.T)).T
    errors = np.linalg.norm(rows, axis=1)
    g = _units(np.asarray(scale.half_transpose(gradient))[None])[0]
    normals = [
        side * rows[k] / errors[k]
        for side, gap in ((1, value - constraints.low), (-1, constraints.high - value))
        for k in np.flatnonzero((gap < NEAR * errors) & ~constraints.equal & (errors > 0))
    ]
    others = [row for row in normals if abs(row @ g) < OWN]
    return (g, np.array(others)) if others else None


def _deviances(g: Array, normals: Array, sign: int) -> Array:
    """Draw deviances of the true psi; zero where the estimate is on the other side of it."""
    basis = np.linalg.qr(np.vstack([g, normals]).T)[0]  # nothing else matters
    g, normals = g @ basis, normals @ basis
    level = normals - np.outer(normals @ g, g)
    draws = np.random.default_rng(0).standard_normal((DRAWS, g.size))
    free = _projected(normals, draws)
    held = _projected(level, draws - np.outer(draws @ g, g))
    # of a point and its projection onto a cone, the squared distance is the difference of squares
    deviance = np.sum(free**2, axis=1) - np.sum(held**2, axis=1)
    return np.where(sign * (free @ g) < 0, np.maximum(deviance, 0.0), 0.0)


def _projected(normals: Array, z: Array) -> Array:
    """Project points, (m, d), onto the cone of all x with normals @ x >= 0 (Moreau)."""
    if len(normals) == 1:
        beyond = np.minimum(z @ normals[0], 0.0) / (normals[0] @ normals[0])
        return np.asarray(z - np.outer(beyond, normals[0]))
    outside = np.flatnonzero(np.any(z @ normals.T < 0, axis=1))
    strength = np.array([nnls(-normals.T, z[k])[0] for k in outside])
    found = z.copy()
    if outside.size:
        found[outside] += strength @ normals
    return found


def _units(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))

r"""Leverage of the rows of a large network, from a few random directions.

Row i has the leverage :math:`P = U A^{-1} U'`, (p, p) with U its whitened Jacobian, and without the
row the inverse of the curvature is some :math:`C`: :math:`P = U C U' (I + U C U')^{-1}`. If C is
taken to be a multiple :math:`\kappa` of the identity, :math:`M = U U'` is all that is needed of a
row: the covariance of its outputs over random directions. Leverages sum to the number of effective
parameters, which is known, and that gives :math:`\kappa`. In trials (19 networks of 141 to 1141
parameters) standard errors came within 4 % of those with the leverages themselves, unless the
network had all but memorized its rows.
"""

import numpy as np
from scipy.optimize import brentq

from implicit_delta.core.types import Array
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import whitened_rows

PROBES = 16
WIDEST = 60.0  # powers of e that the scale is looked for in
SEED = 0


def probed_correction(model: FittedModel, directions: Array, power: float) -> Array:
    """Adjust influences along directions (d, K) by ``(I - P) ** power``: what to add, (n, K)."""
    values, vectors = _covariances(model)
    if model.weights.kind != "frequency":  # of a row that stands for several, each has its own
        values = values * model.weights.values[:, None]
    scale = _scale(values, model.weights.counts, model.facts.training.effective)
    factors = (1 + scale * values) ** -power - 1
    correction, start = np.zeros((model.n, directions.shape[1])), 0
    for rows, residuals, _ in whitened_rows(model, model.theta, directions):
        places = slice(start, start + len(rows))
        turned = np.einsum("npj,np->nj", vectors[places], residuals) * factors[places]
        change = np.einsum("npj,nj->np", vectors[places], turned)
        correction[places] = np.einsum("npk,np->nk", rows, change)
        start = places.stop
    return correction


def _covariances(model: FittedModel) -> tuple[Array, Array]:
    """Decompose the covariance of the outputs of each row over random directions."""
    signs = np.random.default_rng(SEED).choice([-1.0, 1.0], size=(model.d, PROBES))
    found = [
        np.linalg.eigh(rows @ np.swapaxes(rows, 1, 2) / PROBES)
        for rows, _, _ in whitened_rows(model, model.theta, signs)
    ]
    values, vectors = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return np.maximum(values, 0.0), vectors


def _scale(values: Array, counts: Array, effective: float) -> float:
    """Find the scale with which leverages sum to the number of effective parameters."""
    present = counts[:, None] * (values > 0)
    most = float(np.sum(present))

    def excess(log: float) -> float:
        moved = np.exp(log) * values
        return float(np.sum(counts[:, None] * moved / (1 + moved))) - min(effective, 0.99 * most)

    return float(np.exp(brentq(excess, -WIDEST, WIDEST)))

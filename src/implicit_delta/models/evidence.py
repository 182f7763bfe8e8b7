r"""Evidence for the strength of a ridge: how firmly a training that stopped early holds its start.

Read as a ridge :math:`\tfrac{\delta}{2} |\theta - \theta_0|^2` around the start of the training,
its strength is where :math:`\delta\, |\theta - \theta_0|^2 = \gamma(\delta)`, with
:math:`\gamma = \mathrm{tr}\, G (G + \text{l2} + \delta)^{-1}` the number of parameters that the
data determine (MacKay). It takes the curvature G and the way from the start, but no score, which at
the last weights of a stochastic training is mostly noise.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import brentq

from implicit_delta.core.types import Array
from implicit_delta.linalg.krylov import Krylov
from implicit_delta.models.outputs import curvature_noise, displacement, is_formable
from implicit_delta.models.penalty import NO_PENALTY

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

PROBES = 2  # random vectors for the trace; each has gamma to about sqrt(2 / gamma)
CHECK_EVERY, MOST_STEPS = 5, 25
SETTLED = 0.02  # relative change of the strength: a hundredth of a standard error
WIDEST = 60.0  # powers of e that the strength is looked for in
SEED = 0


class Spectrum(NamedTuple):
    r"""Nodes :math:`\lambda_j` and weights with :math:`\gamma = \sum_j w_j / (\lambda_j + r)`."""

    nodes: Array
    weights: Array

    def effective(self, ridge: float) -> float:
        """Count the parameters that the data determine under a ridge."""
        return float(np.sum(self.weights / (self.nodes + ridge)))


class Evidence(NamedTuple):
    """Strength of the ridge, and the number of parameters that the data determine under it."""

    strength: float
    effective: float

    @classmethod
    def of(cls, spectrum: Spectrum, travelled: float, l2: float = 0.0) -> "Evidence":
        """Find the strength for a squared way from the start."""

        def excess(log: float) -> float:
            strength = np.exp(log)
            effective = max(spectrum.effective(strength + l2), np.finfo(float).tiny)
            return float(log + np.log(travelled) - np.log(effective))

        strength = float(np.exp(brentq(excess, -WIDEST, WIDEST)))
        return cls(strength, spectrum.effective(strength + l2))


def evidence_of(model: "FittedModel", scale: float = 1.0) -> Evidence:
    """Find the ridge around its start that a training stands for, of L over a scale."""
    nodes, weights = spectrum_of(model)
    way = float(displacement(model) @ displacement(model))
    l2 = model.penalty.given.floor / scale
    return Evidence.of(Spectrum(nodes / scale, weights / scale), way, l2)


def spectrum_of(model: "FittedModel") -> Spectrum:
    r"""Eigenvalues of the Gauss-Newton matrix of the data, or a quadrature for its traces.

    With z from N(0, G), :math:`z' (G + r)^{-1} z` is :math:`\gamma(r)` on average; one Lanczos
    process gives it for every r.
    """
    if is_formable(model):
        one = np.eye(model.d)
        own = model.information(model.theta, one, "ggn")
        own = own - model.penalty.curvature(model.theta, one)
        values = np.maximum(np.linalg.eigvalsh(own), 0.0)
        return Spectrum(values, values)
    return _quadrature(model)


def _quadrature(model: "FittedModel") -> Spectrum:
    way = float(displacement(model) @ displacement(model))
    bare = replace(model, penalty=NO_PENALTY)
    noise = curvature_noise(bare, model.theta, np.random.default_rng(SEED), PROBES)
    assert noise is not None
    krylov = Krylov(lambda v: bare.information(model.theta, v, "ggn"), probes=noise)
    before = np.inf
    while krylov.active.size and krylov.iterations < MOST_STEPS:
        krylov.step()
        if krylov.iterations % CHECK_EVERY == 0 or not krylov.active.size:
            spectrum = _nodes(krylov)
            strength = Evidence.of(spectrum, way, model.penalty.given.floor).strength
            if abs(strength - before) <= SETTLED * strength:
                break
            before = strength
    return spectrum


def _nodes(krylov: Krylov) -> Spectrum:
    pairs = ((krylov.spectrum(k), size) for k, size in enumerate(krylov.first_size))
    parts = [(values, size * vectors[0] ** 2) for (values, vectors), size in pairs]
    nodes, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Spectrum(np.maximum(nodes, 0.0), weights / len(parts))

"""A training that stopped early, as a model with a ridge around the start of the training."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.errors import UnsupportedModelError
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.evidence import evidence_of
from implicit_delta.models.noise import Noise, with_noise
from implicit_delta.models.outputs import is_network

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

NOT_A_NETWORK = (
    "A training that stopped early is one of a network with a likelihood such as "
    "`Categorical()`: `from_torch` or `from_jax`."
)


def early_stopped(model: "FittedModel") -> "FittedModel":
    """Add the ridge of the evidence around the start of the training to a network.

    An estimated noise variance is then the mean squared residual: in trials that came closer to the
    spread of retrainings than with effective parameters taken off.
    """
    if not is_network(model):
        raise UnsupportedModelError(NOT_A_NETWORK)
    if model.facts.noise_rule:
        model = with_noise(model, _mean_square(model), model.facts.noise_rule)
    scale = scale_of_weights(model)
    found = evidence_of(model, scale)
    facts = model.facts.with_training(effective=found.effective)
    penalty = model.penalty.stopped_early(scale * found.strength, facts.training.start)
    return replace(model, penalty=penalty, facts=replace(facts, curvature="ggn"))


def scale_of_weights(model: Any) -> float:
    """Mean of weights that are no counts, and so have no scale.

    Precisions of squared errors are in units of a noise variance, estimated or known.
    """
    gaussian = isinstance(model.rows.outputs.likelihood, Gaussian)
    if model.weights.kind == "frequency" or (gaussian and model.weights.kind == "precision"):
        return 1.0
    values = model.weights.values
    return float(np.mean(values[values > 0]))


def _mean_square(model: Any) -> Noise:
    outputs = model.rows.outputs
    count = model.weights.count * outputs.size
    bare = model.objective(model.theta) + model.penalty.value(model.theta)
    return Noise(-2.0 * model.weights.mean_one * bare * outputs.likelihood.noise / count, np.inf)

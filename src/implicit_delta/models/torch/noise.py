"""The noise variance of a Gaussian likelihood of a torch module."""

from dataclasses import replace
from typing import TYPE_CHECKING

from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.noise import with_variance
from implicit_delta.models.torch.terms import Supervised

if TYPE_CHECKING:
    from implicit_delta.models.torch.model import TorchModel


def with_noise(model: "TorchModel") -> "TorchModel":
    """Plug in the noise variance of a Gaussian likelihood that left it open."""
    terms = model.row_terms
    if not isinstance(terms, Supervised) or not isinstance(terms.likelihood, Gaussian):
        return model
    if isinstance(terms.likelihood.variance, float):
        return model
    batch = next(iter(model.batches))
    outputs = model.functional(terms.outputs, model.functional.flat(model.theta), batch)
    matrix = None if model.penalty else lambda: model.gauss_newton_matrix(model.theta)
    filled = with_variance(terms.likelihood, model, outputs[0].numel(), matrix)
    return replace(model, row_terms=Supervised(filled))

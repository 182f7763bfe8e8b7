"""What is computed from a module and a batch: log-likelihood terms, and outputs where there are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from implicit_delta.errors import UnsupportedModelError
from implicit_delta.likelihoods import Likelihood


@dataclass(frozen=True)
class Supervised:
    """A likelihood of the last tensor of a batch given the module of all others."""

    likelihood: Likelihood

    def __call__(self, module: nn.Module, batch: Any) -> Tensor:
        """Log-likelihood of each row of a batch, (b,)."""
        terms: Tensor = self.likelihood.terms(self.outputs(module, batch), batch[-1])
        return terms

    def outputs(self, module: nn.Module, batch: Any) -> Tensor:
        """What the module makes of the inputs, (b, ...)."""
        outputs = module(*batch[:-1])
        if not isinstance(outputs, Tensor):
            raise UnsupportedModelError(
                f"The module returns a {type(outputs).__name__}, not a tensor of outputs. Give a "
                "function `loglik(module, batch)` that returns the log-likelihood of each row of "
                "the batch instead of a likelihood."
            )
        return outputs


@dataclass(frozen=True)
class Written:
    """A log-likelihood of a batch that the user wrote."""

    loglik: Callable[[nn.Module, Any], Any]

    def __call__(self, module: nn.Module, batch: Any) -> Tensor:
        """Log-likelihood of each row of a batch, (b,)."""
        terms: Tensor = self.loglik(module, batch)
        return terms


def terms_of(likelihood: Any) -> Supervised | Written:
    """Tell a likelihood from a log-likelihood function."""
    if isinstance(likelihood, Likelihood):
        return Supervised(likelihood)
    if isinstance(likelihood, type) and issubclass(likelihood, Likelihood):
        return Supervised(likelihood())
    if isinstance(likelihood, nn.modules.loss._Loss) or not callable(likelihood):
        raise TypeError(
            f"likelihood is {likelihood!r:.60}; give Gaussian(), Bernoulli(), Categorical() or "
            "Poisson(), or a function `loglik(module, batch)` that returns the log-likelihood "
            "(minus the loss) of each row of the batch: not their mean, not their sum."
        )
    return Written(likelihood)

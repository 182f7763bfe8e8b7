"""Log-likelihood terms of a batch, from a likelihood of outputs or a function of the user's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from implicit_delta.likelihoods import Likelihood


def call(parameters: Any, *inputs: Any) -> Any:
    """Outputs of parameters that can be called."""
    return parameters(*inputs)


@dataclass(frozen=True)
class SupervisedTerms:
    """A likelihood of the last array of a batch given the outputs for all others.

    The outputs are ``apply(parameters, *others)``, with a module or a pytree as parameters.
    """

    likelihood: Likelihood
    apply: Callable[..., Any]

    def __call__(self, parameters: Any, batch: Any) -> Any:
        """Log-likelihood of each row of a batch, (b,)."""
        return self.likelihood.terms(self.outputs(parameters, batch), batch[-1])

    def outputs(self, parameters: Any, batch: Any) -> Any:
        """Outputs for the inputs of a batch, (b, ...)."""
        return self.apply(parameters, *batch[:-1])

    def __str__(self) -> str:
        return str(self.likelihood)


@dataclass(frozen=True)
class LoglikTerms:
    """A log-likelihood function ``loglik(parameters, batch)`` of the user's."""

    loglik: Callable[[Any, Any], Any]

    def __call__(self, parameters: Any, batch: Any) -> Any:
        """Log-likelihood of each row of a batch, (b,)."""
        return self.loglik(parameters, batch)

    def __str__(self) -> str:
        return getattr(self.loglik, "__name__", type(self.loglik).__name__)


RowTerms: TypeAlias = SupervisedTerms | LoglikTerms


def terms_of(likelihood: Any, apply: Any, owner: str, refused: type | tuple[()] = ()) -> RowTerms:
    """Distinguish a likelihood from a log-likelihood function of the owner and a batch."""
    if isinstance(likelihood, type) and issubclass(likelihood, Likelihood):
        likelihood = likelihood()
    if isinstance(likelihood, Likelihood):
        return SupervisedTerms(likelihood, apply)
    if isinstance(likelihood, refused) or not callable(likelihood):
        raise TypeError(
            f"likelihood is {likelihood!r:.60}; give Gaussian(), Bernoulli(), Categorical() or "
            f"Poisson(), or a function `loglik({owner}, batch)` that returns the log-likelihood "
            "(minus the loss) of each row of the batch: not their mean, not their sum."
        )
    return LoglikTerms(likelihood)

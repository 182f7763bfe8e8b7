"""Log-likelihood terms of a batch, from a likelihood of outputs or a function of the user's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from implicit_delta.likelihoods import Likelihood


def call(parameters: Any, *inputs: Any) -> Any:
    """Outputs of parameters that can be called."""
    return parameters(*inputs)


class Retargeted(NamedTuple):
    """A batch of any make with other targets."""

    batch: Any
    targets: Any


@dataclass(frozen=True)
class SupervisedTerms:
    """A likelihood of the targets of a batch given its outputs.

    The outputs are ``outputs_of(parameters, batch)``, with a module or a pytree as parameters, and
    the targets ``targets_of(batch)``. Without these functions the targets are the last array of a
    batch and the outputs ``apply(parameters, *others)``.
    """

    likelihood: Likelihood
    apply: Callable[..., Any]
    outputs_of: Callable[[Any, Any], Any] | None = None
    targets_of: Callable[[Any], Any] | None = None

    def __call__(self, parameters: Any, batch: Any) -> Any:
        """Log-likelihood of each row of a batch, (b,)."""
        return self.likelihood.terms(self.outputs(parameters, batch), self.targets(batch))

    def outputs(self, parameters: Any, batch: Any) -> Any:
        """Outputs for the inputs of a batch, (b, ...)."""
        if isinstance(batch, Retargeted):
            batch = batch.batch
        if self.outputs_of is not None:
            return self.outputs_of(parameters, batch)
        return self.apply(parameters, *batch[:-1])

    def targets(self, batch: Any) -> Any:
        """Targets of a batch, (b, ...)."""
        if isinstance(batch, Retargeted):
            return batch.targets
        return batch[-1] if self.targets_of is None else self.targets_of(batch)

    def retargeted(self, batch: Any, targets: Any) -> Any:
        """Replace the targets of a batch."""
        if self.targets_of is None:
            return (*batch[:-1], targets)
        return Retargeted(batch.batch if isinstance(batch, Retargeted) else batch, targets)

    @property
    def pairs(self) -> bool:
        """Whether a batch has to be a tuple of inputs and targets."""
        return self.outputs_of is None or self.targets_of is None

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


def terms_of(
    likelihood: Any,
    apply: Any,
    owner: str,
    refused: type | tuple[()] = (),
    outputs: Any = None,
    targets: Any = None,
) -> RowTerms:
    """Distinguish a likelihood from a log-likelihood function of the owner and a batch."""
    for name, given, call in (
        ("outputs", outputs, f"{owner}, batch"),
        ("targets", targets, "batch"),
    ):
        if given is not None and not callable(given):
            raise TypeError(
                f"{name} is a {type(given).__name__}; give a function `{name}({call})` that "
                "returns an array with a row per observation."
            )
    if isinstance(likelihood, type) and issubclass(likelihood, Likelihood):
        likelihood = likelihood()
    if isinstance(likelihood, Likelihood):
        return SupervisedTerms(likelihood, apply, outputs, targets)
    if isinstance(likelihood, refused) or not callable(likelihood):
        raise TypeError(
            f"likelihood is {likelihood!r:.60}; give Gaussian(), Bernoulli(), Categorical() or "
            f"Poisson(), or a function `loglik({owner}, batch)` that returns the log-likelihood "
            "(minus the loss) of each row of the batch: not their mean, not their sum."
        )
    if outputs is not None or targets is not None:
        raise TypeError(
            "outputs= and targets= go with Gaussian(), Bernoulli(), Categorical() or Poisson(). A "
            f"function `loglik({owner}, batch)` calls the model itself: leave them out."
        )
    return LoglikTerms(likelihood)

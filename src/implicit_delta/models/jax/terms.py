"""What is computed from a pytree and a batch: log-likelihood terms, and outputs where there are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from implicit_delta.errors import UnsupportedModelError
from implicit_delta.likelihoods import Likelihood


@dataclass(frozen=True)
class Supervised:
    """A likelihood of the last array of a batch given the outputs for all others."""

    likelihood: Likelihood
    apply: Callable[..., Any]

    def __call__(self, params: Any, batch: Any) -> jax.Array:
        """Log-likelihood of each row of a batch, (b,)."""
        terms: jax.Array = self.likelihood.terms(self.outputs(params, batch), batch[-1])
        return terms

    def outputs(self, params: Any, batch: Any) -> jax.Array:
        """What the model makes of the inputs, (b, ...)."""
        outputs = self.apply(params, *batch[:-1])
        if not isinstance(outputs, jax.Array):
            raise UnsupportedModelError(
                f"apply(params, x) returns a {type(outputs).__name__}, not an array of outputs. "
                "Return one, or give a function `loglik(params, batch)` that returns the "
                "log-likelihood of each row of the batch instead of a likelihood."
            )
        return outputs


@dataclass(frozen=True)
class Written:
    """A log-likelihood of a batch that the user wrote."""

    loglik: Callable[[Any, Any], Any]

    @property
    def name(self) -> str:
        """What the user called it."""
        return getattr(self.loglik, "__name__", type(self.loglik).__name__)

    def __call__(self, params: Any, batch: Any) -> jax.Array:
        """Log-likelihood of each row of a batch, (b,)."""
        terms: jax.Array = self.loglik(params, batch)
        return terms


def terms_of(params: Any, likelihood: Any, apply: Any) -> Supervised | Written:
    """Tell a likelihood from a log-likelihood function."""
    if isinstance(likelihood, type) and issubclass(likelihood, Likelihood):
        likelihood = likelihood()
    if isinstance(likelihood, Likelihood):
        return Supervised(likelihood, _checked_apply(params, apply))
    if not callable(likelihood):
        raise TypeError(
            f"likelihood is {likelihood!r:.60}; give Gaussian(), Bernoulli(), Categorical() or "
            "Poisson(), or a function `loglik(params, batch)` that returns the log-likelihood "
            "(minus the loss) of each row of the batch: not their mean, not their sum."
        )
    if apply is not None:
        raise TypeError(
            "apply= goes with Gaussian(), Bernoulli(), Categorical() or Poisson(). A function "
            "`loglik(params, batch)` calls the model itself: leave apply out."
        )
    return Written(likelihood)


def _checked_apply(params: Any, apply: Any) -> Callable[..., Any]:
    if apply is None and callable(params):
        return _call
    if callable(apply):
        return apply  # type: ignore[no-any-return]
    what = f"apply is a {type(apply).__name__}" if apply is not None else "apply= is missing"
    raise TypeError(
        f"{what}: give a function `apply(params, x)` that returns the outputs for a batch of "
        f"inputs. (params is a {type(params).__name__}, which cannot be called without it.)"
        if not callable(params)
        else f"{what}: give a function `apply(params, x)`, or leave it out to call params itself."
    )


def _call(params: Any, *inputs: Any) -> Any:
    return params(*inputs)

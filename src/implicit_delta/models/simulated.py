"""Log-likelihoods that draw random numbers, and data that are drawn from them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.arguments import as_seed, check_rows, count_terms
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.loglik_rows import LoglikRows
from implicit_delta.models.named_theta import Layout, speaking
from implicit_delta.models.traced_loglik import TracedScore, can_be_traced
from implicit_delta.models.weights import Weights

Loglik = Callable[..., Any]
FAR = 5.0  # standard deviations of a Poisson number of events


@dataclass(frozen=True)
class CommonNumbers:
    """A log-likelihood with an argument `rng`, which is given the same random numbers each time."""

    function: Loglik
    seed: int

    def __call__(self, theta: Array) -> Any:
        """Evaluate with a generator of its own."""
        return self.function(theta, rng=np.random.default_rng(self.seed))

    @property
    def __name__(self) -> str:
        """The function's own name."""
        return getattr(self.function, "__name__", type(self.function).__name__)


def with_common_numbers(loglik: Loglik, rng: int | np.random.Generator | None) -> Loglik:
    """Hold the random numbers of a log-likelihood that takes `rng`; leave others as they are."""
    if "rng" in _arguments(loglik):
        return CommonNumbers(loglik, as_seed(rng))
    if rng is not None:
        raise TypeError(
            "rng= is for a log-likelihood that draws random numbers, and takes them from its "
            "argument: `def loglik(theta, rng)`. This one has no argument called rng."
        )
    return loglik


@dataclass(frozen=True)
class Simulated:
    """Draw new data by the user's own simulator."""

    simulate: Callable[[Array, np.random.Generator], Any]
    layout: Layout | None = None

    def __call__(
        self, rows: LoglikRows, theta: Array, weights: Weights, rng: np.random.Generator
    ) -> LoglikRows:
        """Make rows of data simulated at theta."""
        drawn = speaking(self.simulate, self.layout)(theta, rng)
        loglik, *rest = drawn if isinstance(drawn, tuple) else (drawn,)
        if not callable(loglik) or len(rest) > 1 or not all(map(callable, rest)):
            raise TypeError(
                f"simulate(theta, rng) returned a {type(drawn).__name__}, but must return the "
                "log-likelihood of the data that it draws, a function like the first argument of "
                "from_loglik (or a pair, with its score): with `def loglik(theta, y=y)` it is "
                "`lambda theta, rng: functools.partial(loglik, y=rng.normal(theta[0], size=n))`."
            )
        loglik, *rest = (speaking(function, self.layout) for function in (loglik, *rest))
        terms = np.asarray(loglik(theta.copy()))
        count_terms(terms, "loglik")
        if np.any(weights.values != 1):
            raise UnsupportedModelError(
                "simulate(theta, rng) draws rows that count once, and these have weights. Repeat "
                "the rows, or put precisions into the log-likelihood."
            )
        if abs(terms.size - rows.n) > FAR * np.sqrt(max(terms.size, rows.n)):
            raise UnsupportedModelError(
                f"simulate(theta, rng) drew {terms.size} rows, and the data have {rows.n}. It has "
                "to draw as many, or a number of events that is random like theirs."
            )
        score = rest[0] if rest else None
        if score is not None:
            check_rows(score(theta.copy()), (terms.size, rows.d), "score")
        if score is None and rows.is_traced and can_be_traced(loglik, np.array(theta), False):
            score = TracedScore(loglik, rows.counter)
        return rows.of(loglik=loglik, n=terms.size, scores=score)


def _arguments(function: Loglik) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)[1:]
    except (TypeError, ValueError):
        return ()

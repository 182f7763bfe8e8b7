"""Evaluations that are random themselves: simulators with their own noise."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_delta.core.arguments import as_seed
from implicit_delta.errors import EvaluationError


@dataclass(frozen=True, eq=False)
class Replicated:
    r"""The mean of a random evaluation over a fixed stream of seeds.

    For a simulator psi(model, rng) the estimate is of its expectation. It is evaluated as the mean
    :math:`\bar\psi(\theta) = \frac1R \sum_r \psi(\theta, \text{seed}_r)` with the same R seeds at
    every theta (common random numbers), so that a difference between two parameters is due to the
    parameters. The noise left in the mean, the variance over seeds divided by R, is part of the
    standard error and has its own line, ``noise``, in the budget.

    A plain psi that has an argument called ``rng`` is treated as ``Replicated(psi)``.

    Parameters
    ----------
    psi : callable
        ``psi(model, rng=generator)``, a number or (K,); or an `Average` whose h accepts rng.
    repeats : int
        R, at least 2: the noise falls like one over its square root.
    rng : int or numpy.random.Generator, optional
        Where the seeds come from; fresh ones unless given.

    Examples
    --------
    >>> import implicit_delta as idm
    >>> y = np.array([1.0, 2.0, 4.0, 5.0])
    >>> model = idm.from_loglik(lambda m: -((y - m[0]) ** 2) / 2, start=[0.0])
    >>> def demand(m, rng):
    ...     return m[0] + rng.normal()
    >>> est = idm.infer(model, idm.Replicated(demand, repeats=400, rng=0))
    >>> {part: round(error, 3) for part, error in est.budget.items()}
    {'model': 0.5, 'noise': 0.05, 'total': 0.502}
    """

    psi: Callable[..., Any]
    repeats: int = 10
    rng: int | np.random.Generator | None = None

    def __post_init__(self) -> None:
        """Check what was configured."""
        if self.repeats != int(self.repeats) or self.repeats < 2:
            raise ValueError(
                f"repeats must be an integer of 2 or more, not {self.repeats!r}: the noise of psi "
                "is estimated from how much the repeats differ."
            )

    def seeds(self) -> tuple[int, ...]:
        """Return the R seeds."""
        stream = np.random.SeedSequence(as_seed(self.rng)).generate_state(int(self.repeats))
        return tuple(map(int, stream))


def accepts_rng(function: Callable[..., Any]) -> bool:
    """Whether a function has an argument called rng that can be given by name."""
    try:
        arguments = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    return any(a.name == "rng" and a.kind is not a.POSITIONAL_ONLY for a in arguments[1:])


def mean_over_seeds(function: Callable[..., Any], seeds: tuple[int, ...], model: Any) -> Any:
    """Average function(model, rng) over the seeds, in the model's own language."""
    total = _with_seed(function, seeds[0], model)
    for seed in seeds[1:]:
        total = total + _with_seed(function, seed, model)
    return total / len(seeds)


def _with_seed(function: Callable[..., Any], seed: int, model: Any) -> Any:
    try:
        value = function(model, rng=np.random.default_rng(seed))
    except Exception as error:
        raise EvaluationError(
            f"psi raised {type(error).__name__} with rng = numpy.random.default_rng({seed}): "
            f"{error}"
        ) from error
    return np.asarray(value) if isinstance(value, list | tuple) else value

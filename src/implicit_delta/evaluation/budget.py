"""Combine the sources of error: the model, the evaluation sample, noise of psi and of training."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from implicit_delta.core.dependence import add_errors
from implicit_delta.core.factored import Covariance
from implicit_delta.core.types import Array
from implicit_delta.evaluation.evaluation import Evaluation
from implicit_delta.linalg.arrays import ratio


@dataclass(frozen=True)
class TotalError:
    """The covariance of an estimate and the parts it is made of.

    Attributes
    ----------
    covariance : (K, K) array or Factored
        The total.
    parts : mapping of str to (K, K) array or Factored
        ``model``, ``evaluation`` and ``noise``, or for a bootstrap of the rows of an average
        ``rows`` in place of the first two, and whatever else was added, such as ``training``;
        empty if there is only the model.
    influence : (n, K) array or None
        Of each training row, on the average too if it is one of these rows.
    draws : (B, K) array or None
        Stretched to the total: their spread is that of the model alone.
    errors_add : bool
        Whether the standard errors of model and evaluation were added.
    """

    covariance: Covariance
    parts: Mapping[str, Covariance]
    influence: Array | None
    draws: Array | None
    errors_add: bool = False


def total_error(
    evaluation: Evaluation,
    covariance: Covariance,
    influence: Array | None = None,
    draws: Array | None = None,
    sandwich: Callable[[Array], Covariance] | None = None,
    whole: bool = False,
    others: Mapping[str, Covariance] | None = None,
) -> TotalError:
    """Combine the model's part with what the evaluation adds.

    Parameters
    ----------
    evaluation : Evaluation
    covariance : (K, K) array
        Of the model's part.
    influence : (n, K) array or None
        Of the model's part; needed for an average over the training rows.
    draws : (B, K) array or None
        With the variances of the model's part.
    sandwich : callable or None
        Makes a covariance of influences, (n, K) to (K, K); needed likewise.
    whole : bool
        Whether the covariance has the sampling error of the training rows in it.
    others : mapping of str to (K, K) array, optional
        Independent sources of error, which add.
    """
    parts: dict[str, Covariance] = {"rows" if whole else "model": covariance}
    total = covariance
    unknown = evaluation.sample == "unknown"
    if evaluation.sample == "training" and not whole:
        assert influence is not None
        assert sandwich is not None
        sampling = evaluation.deviations
        parts = {"model": sandwich(influence), "evaluation": sandwich(sampling)}
        influence = influence + sampling
        total = sandwich(influence)
    elif evaluation.sampling is not None and not whole:
        parts["evaluation"] = evaluation.sampling.covariance
        sampled = parts["evaluation"]
        total = add_errors(covariance, sampled) if unknown else covariance + sampled
    noise = {} if evaluation.noise is None else {"noise": evaluation.noise}
    for name, added in {**noise, **(others or {})}.items():
        parts[name] = added
        total = total + added
    if len(parts) == 1:
        return TotalError(covariance, parts if whole else {}, influence, draws)
    return TotalError(total, parts, influence, stretched(draws, covariance, total), unknown)


def stretched(draws: Array | None, own: Covariance, covariance: Covariance) -> Array | None:
    """Stretch draws (B, K) whose covariance is `own` to the variances of another covariance."""
    if draws is None:
        return None
    before, after = own.diagonal(), covariance.diagonal()
    stretch = np.sqrt(ratio(after, before, otherwise=1.0))
    center = draws.mean(axis=0)
    return np.asarray(center + stretch * (draws - center)) if np.any(stretch != 1) else draws

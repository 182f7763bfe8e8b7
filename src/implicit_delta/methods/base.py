"""The contract of a method, and what it returns."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from implicit_delta._typing import Array
from implicit_delta.evaluation import Evaluation
from implicit_delta.models.base import FittedModel
from implicit_delta.numerics._named import changed_fields

PUSH = 0.5  # of a standard error: large against rounding, small against the bend of most psi


@dataclass(frozen=True)
class Response:
    r"""How theta and psi move when :math:`\lambda \psi_k` is added to the objective.

    Attributes
    ----------
    covariance : (K, K) array
        Column k: :math:`d\psi / d\lambda` under :math:`\psi_k`. Not yet symmetric.
    directions : (d, K) array or None
        Column k: :math:`d\theta / d\lambda` under :math:`\psi_k`, where the method finds it.
    draws : (B, K) array or None
        Psi over replicates, for methods that make them.
    method : str
        The method with everything that was left open filled in.
    smallest_curvature, linearity, residual : float
        See `implicit_delta.estimate.Diagnostics`; nan where a method has nothing to say.
    passes : int
        Passes over the data made in other processes, which the model's own count misses.
    notes : mapping
        What only this method reports.
    """

    covariance: Array
    method: str
    directions: Array | None = None
    draws: Array | None = None
    smallest_curvature: float = np.nan
    linearity: float = np.nan
    residual: float = np.nan
    passes: int = 0
    notes: Mapping[str, float | str] = field(default_factory=dict)


class Method(ABC):
    """Configuration of one way to find the response: a frozen dataclass with ``repr=False``."""

    @abstractmethod
    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        """Find the response of the model's optimum to each of the K evaluations."""

    def __repr__(self) -> str:
        """Return the code that makes this configuration."""
        return f"{type(self).__name__}({changed_fields(self)})"


def nonlinearity(ahead: Array, center: Array, behind: Array) -> float:
    r"""Compare the two ends of a push, each (K,): :math:`|p + m - 2c| / |p - m|`, the largest."""
    bend, rise = abs(ahead + behind - 2 * center), abs(ahead - behind)
    return float(np.max(np.divide(bend, rise, out=np.zeros_like(bend), where=rise > 0)))

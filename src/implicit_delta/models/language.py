"""Language of psi: an array, named numbers, a module or an estimator as its argument."""

from collections.abc import Callable
from typing import Any, Protocol

from implicit_delta._core.types import Array, Psi


class Language(Protocol):
    """Evaluate and differentiate functions of theta in the types that a user writes psi for.

    It depends on no row of the data, and is a field of `Space`.
    """

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        """Psi at theta, in NumPy: (), (K,), or (m, K) to average."""

    def jacobian(self, psi: Psi, theta: Array, units: Callable[[], Array]) -> Array:
        """Jacobian of psi, (K, d); where it is by differences, in fractions of these units."""

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        r"""Psi of the tangent :math:`f(x; \theta) + J(x) \delta` of the outputs."""

    def psi_warning(self, psi: Any) -> str:
        """Describe what psi most likely gets wrong about this model; usually nothing."""

"""Maximizers that look alike from outside, with gradients and without."""

from dataclasses import dataclass
from typing import ClassVar

from implicit_delta._typing import Array
from implicit_delta.numerics._objective import Maximizer, Maximum, Objective, Scale

__all__ = [
    "BayesianOptimization",
    "Cobyqa",
    "LBFGS",
    "Maximizer",
    "Maximum",
    "NelderMead",
    "NewtonKrylov",
    "Objective",
    "Scale",
    "bayesian_optimization",
    "cobyqa",
    "lbfgs",
    "nelder_mead",
    "newton_krylov",
]


@dataclass(frozen=True, repr=False)
class LBFGS(Maximizer):
    """Limited-memory quasi-Newton."""

    tolerance: float = 1e-7
    max_iterations: int = 500
    max_distance: float = 1e3

    name: ClassVar[str] = "lbfgs"
    needs_gradient: ClassVar[bool] = True

    def maximize(self, problem: Objective, start: Array) -> Maximum:
        """Maximize from ``start``; see `Maximizer.maximize`."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class NewtonKrylov(Maximizer):
    """Newton's method with conjugate gradients."""

    tolerance: float = 1e-9
    max_iterations: int = 50
    max_distance: float = 1e3

    name: ClassVar[str] = "newton_krylov"
    needs_gradient: ClassVar[bool] = True

    def maximize(self, problem: Objective, start: Array) -> Maximum:
        """Maximize from ``start``; see `Maximizer.maximize`."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class NelderMead(Maximizer):
    """The simplex method."""

    tolerance: float = 1e-6
    max_evaluations: int | None = None
    max_distance: float = 1e3

    name: ClassVar[str] = "nelder_mead"
    needs_gradient: ClassVar[bool] = False
    max_dimension: ClassVar[int | None] = 20

    def maximize(self, problem: Objective, start: Array) -> Maximum:
        """Maximize from ``start``; see `Maximizer.maximize`."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Cobyqa(Maximizer):
    """Quadratic models in a trust region."""

    tolerance: float = 1e-6
    max_evaluations: int | None = None
    max_distance: float = 1e3

    name: ClassVar[str] = "cobyqa"
    needs_gradient: ClassVar[bool] = False
    max_dimension: ClassVar[int | None] = 60

    def maximize(self, problem: Objective, start: Array) -> Maximum:
        """Maximize from ``start``; see `Maximizer.maximize`."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class BayesianOptimization(Maximizer):
    """Gaussian-process search in a box."""

    evaluations: int = 60
    radius: float = 2.0
    seed: int = 0

    name: ClassVar[str] = "bayesian_optimization"
    needs_gradient: ClassVar[bool] = False
    max_dimension: ClassVar[int | None] = 6

    def maximize(self, problem: Objective, start: Array) -> Maximum:
        """Maximize from ``start``; see `Maximizer.maximize`."""
        raise NotImplementedError


lbfgs = LBFGS()
newton_krylov = NewtonKrylov()
nelder_mead = NelderMead()
cobyqa = Cobyqa()
bayesian_optimization = BayesianOptimization()

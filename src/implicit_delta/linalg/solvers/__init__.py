"""Linear solvers for symmetric positive definite matrices given as functions.

Direct and iterative solvers have one interface:

>>> import numpy as np
>>> A = np.array([[2.0, 1.0], [1.0, 2.0]])
>>> b = np.array([[1.0], [0.0]])
>>> for solver in (cholesky, conjugate_gradient(rtol=1e-8)):
...     print(solver, solver.solve(lambda v: A @ v, b).quadratic.round(6))
cholesky [[0.666667]]
conjugate_gradient(rtol=1e-08) [[0.666667]]
"""

from implicit_delta.linalg.arrays import Operator
from implicit_delta.linalg.solvers.base import Solution, Solver
from implicit_delta.linalg.solvers.direct import Cholesky, cholesky
from implicit_delta.linalg.solvers.factor import Factor, factorize
from implicit_delta.linalg.solvers.flat import FlatFactor, stiffened
from implicit_delta.linalg.solvers.iterative import ConjugateGradient, conjugate_gradient

__all__ = [
    "Cholesky",
    "ConjugateGradient",
    "Factor",
    "FlatFactor",
    "Operator",
    "Solution",
    "Solver",
    "cholesky",
    "conjugate_gradient",
    "factorize",
    "stiffened",
]

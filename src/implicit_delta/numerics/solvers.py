"""Linear solvers for symmetric positive definite matrices given as functions.

Direct and iterative solvers look alike from outside:

>>> import numpy as np
>>> A = np.array([[2.0, 1.0], [1.0, 2.0]])
>>> b = np.array([[1.0], [0.0]])
>>> for solver in (cholesky, conjugate_gradient(rtol=1e-8)):
...     print(solver, solver.solve(lambda v: A @ v, b).quadratic.round(6))
cholesky [[0.666667]]
conjugate_gradient(rtol=1e-08) [[0.666667]]
"""

from implicit_delta.numerics._cholesky import Cholesky, cholesky
from implicit_delta.numerics._conjugate_gradient import ConjugateGradient, conjugate_gradient
from implicit_delta.numerics._factor import Factor, factorize
from implicit_delta.numerics._solution import Operator, Solution, Solver

__all__ = [
    "Cholesky",
    "ConjugateGradient",
    "Factor",
    "Operator",
    "Solution",
    "Solver",
    "cholesky",
    "conjugate_gradient",
    "factorize",
]

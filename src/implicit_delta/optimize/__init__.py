"""Maximizers with one interface, with gradients and without.

>>> import numpy as np
>>> hill = Objective(value=lambda x: -np.sum((x - 1.0) ** 2), gradient=lambda x: -2.0 * (x - 1.0))
>>> for maximizer in (lbfgs, nelder_mead(tolerance=1e-7)):
...     print(maximizer, maximizer.maximize(hill, np.zeros(2)).x.round(4))
lbfgs [1. 1.]
nelder_mead(tolerance=1e-07) [1. 1.]
"""

from implicit_delta.optimize.base import Maximizer
from implicit_delta.optimize.climbing import climb
from implicit_delta.optimize.derivative_free import NelderMead, nelder_mead
from implicit_delta.optimize.function import FunctionMaximizer, Minimize, as_maximizer
from implicit_delta.optimize.newton import NewtonKrylov, newton_krylov
from implicit_delta.optimize.objective import LinearScale, Maximum, Objective, Squares
from implicit_delta.optimize.quasi_newton import LBFGS, lbfgs
from implicit_delta.optimize.variable_metric import VariableMetric, variable_metric

__all__ = [
    "LBFGS",
    "FunctionMaximizer",
    "LinearScale",
    "Maximizer",
    "Maximum",
    "Minimize",
    "NelderMead",
    "NewtonKrylov",
    "Objective",
    "Squares",
    "VariableMetric",
    "as_maximizer",
    "climb",
    "lbfgs",
    "nelder_mead",
    "newton_krylov",
    "variable_metric",
]

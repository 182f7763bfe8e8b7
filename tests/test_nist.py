"""The nonlinear regressions of NIST: the data are those that are certified."""

import numpy as np
import pytest

from benchmarks.nist import PROBLEMS


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "Lanczos1"])
def test_the_certified_parameters_leave_the_certified_squares(name):
    """Rounding of theta to 11 digits moves the sum of squares by a second-order amount."""
    problem = PROBLEMS[name]
    squares = float(np.sum(problem.residuals(problem.theta) ** 2))
    assert squares == pytest.approx(problem.sum_of_squares, rel=1e-7)
    assert problem.theta.size == problem.errors.size == problem.starts.shape[1]

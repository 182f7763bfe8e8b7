"""No length is absolute: what is refused in one unit is refused in all, and answered in all.

Each case is stated in a unit u of its parameters or of what a function returns. Nothing that is
compared has a scale other than its own, so that u must not matter.
"""

import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import NonlinearConstraint

import implicit_delta as idm
from implicit_delta.models.coordinates import inner_slope

UNITS = [1e-12, 1e-9, 1.0, 1e9]
_rng = np.random.default_rng(0)
X = _rng.normal(size=(80, 2))
Y = X @ [0.6, 0.8] + _rng.normal(size=80)


def terms(theta):
    return -0.5 * (Y - X @ theta) ** 2


@pytest.mark.parametrize("unit", UNITS)
def test_a_turning_point_is_refused_in_any_unit_of_the_function(unit):
    est = idm.Estimate([0.0, 1.0], np.diag([0.01, 0.04]), names=("a", "b"), method="by hand")
    with pytest.raises(idm.EvaluationError, match="turning point"):
        est.apply(lambda v: unit * v[0] ** 2)


@pytest.mark.parametrize("unit", UNITS)
def test_a_wrong_jac_is_refused_in_any_unit_of_the_constraint(unit):
    circle = NonlinearConstraint(
        lambda th: unit * (th @ th - 1), 0, 0, jac=lambda th: unit * th[None]
    )
    with pytest.raises(ValueError, match="is not the derivative of its function"):
        idm.from_loglik(terms, start=[0.6, 0.8], constraints=circle)


@pytest.mark.parametrize("unit", UNITS)
def test_parts_with_other_parameters_are_refused_in_any_unit(unit):
    def build(rows):
        theta = unit * np.array([0.6, 0.8 + rows[0] / 100])
        return idm.from_loglik(lambda th: -0.5 * (Y[rows] - X[rows] @ th / unit) ** 2, theta=theta)

    with pytest.raises(ValueError, match="differ from those of"):
        idm.from_shards(build, [np.arange(40), np.arange(40, 80)])


@pytest.mark.parametrize("unit", UNITS)
def test_a_psi_that_ends_within_a_huge_error_has_its_derivative_in_any_unit(unit):
    """The second column is all but zero: 0.5 with a standard error of some millions."""
    Z = np.column_stack([X[:, 0], 1e-7 * X[:, 1]])
    response = Z @ [0.5, 0.5] + scipy.linalg.null_space(Z.T / [[1.0], [1e-7]])[:, 0]
    model = idm.from_residuals(
        lambda th: response - Z @ th / unit, start=unit * np.array([0.4, 0.4])
    )

    def psi(theta):
        with np.errstate(all="ignore"):  # infinite a standard error away
            return theta[0] / unit + np.exp(theta[1] / unit)

    found = model.jacobian(psi, model.theta)[0] * unit
    np.testing.assert_allclose(found, [1.0, np.exp(model.theta[1] / unit)], rtol=1e-6)


@pytest.mark.parametrize("unit", UNITS)
def test_a_one_sided_slope_in_any_unit(unit):
    found = inner_slope(
        lambda th: -((th[0] / unit) ** 3), unit * np.array([2.0]), np.array([unit]), None
    )
    np.testing.assert_allclose(found * unit, [-12.0], rtol=1e-6)

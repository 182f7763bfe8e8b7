"""Noise variances of data sets that are fitted together: one model for all that is said of it."""

import numpy as np
import pytest
from scipy.optimize import minimize

import implicit_delta as idm

RNG = np.random.default_rng(1)
N = 50
U = RNG.normal(size=N)
V = RNG.normal(size=N)
Y = 1 + 0.5 * U + RNG.normal(size=N)
Z = 2 + 1.5 * V + 2 * RNG.normal(size=N)


def residuals(**options):
    return idm.from_residuals(lambda t: Y - t.a - t.b * U, start={"a": 0.0, "b": 0.0}, **options)


def others():
    return idm.from_residuals(lambda t: Z - t.d - t.b * V, start={"d": 0.0, "b": 0.0})


def shards():
    def build(k):
        return idm.from_residuals(
            lambda t: Y[k::3] - t.a - t.b * U[k::3], theta={"a": 1.0, "b": 0.5}
        )

    return idm.polish(idm.from_shards(build, [0, 1, 2]))


def regression():
    sm = pytest.importorskip("statsmodels.api")
    pd = pytest.importorskip("pandas")
    return idm.from_statsmodels(sm.OLS(Y, pd.DataFrame({"a": 1.0, "b": U})).fit())


def machine():
    linear_model = pytest.importorskip("sklearn.linear_model")
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame({"b": U})
    model = idm.from_sklearn(linear_model.LinearRegression().fit(X, Y), X, Y)
    assert model.names == ("b", "intercept")
    return model


def network():
    torch = pytest.importorskip("torch")
    data = torch.tensor(np.column_stack([np.ones(N), U])), torch.tensor(Y[:, None])
    module = torch.nn.Linear(2, 1, bias=False).double()
    return idm.polish(idm.from_torch(module, data, idm.Gaussian()))


def joint(known=None):
    """Alternate weighted least squares of both lines and the unbiased variances of each."""
    free = [0, 1, 2] if known is None else [0, 2]
    designs = np.zeros((2, N, 3))
    designs[0, :, 0], designs[0, :, 1] = 1, U
    designs[1, :, 2], designs[1, :, 1] = 1, V
    theta, variances = np.array([0.0, known or 0.0, 0.0]), [1.0, 1.0]
    left = [y - X[:, 1] * theta[1] for X, y in zip(designs, (Y, Z), strict=True)]
    for _ in range(500):
        own = [X[:, free] for X in designs]
        if known is None:
            left = [Y, Z]
        A = sum(X.T @ X / s for X, s in zip(own, variances, strict=True))
        b = sum(X.T @ y / s for X, y, s in zip(own, left, variances, strict=True))
        theta[free] = np.linalg.solve(A, b)
        count = 2 if known is None else 1
        variances = [
            np.sum((y - X @ theta[free]) ** 2) / (N - count) for X, y in zip(own, left, strict=True)
        ]
    return theta, np.sqrt(np.diag(np.linalg.inv(A)))


@pytest.mark.parametrize("first", [residuals, shards, regression, machine])
def test_each_variance_is_that_at_the_joint_maximum(first):
    model = first() + others()
    names = ["intercept" if first is machine else "a", "b", "d"]
    theta, errors = joint()
    est = idm.infer(model, names)
    np.testing.assert_allclose(est.value, theta, rtol=1e-5)
    np.testing.assert_allclose(est.standard_error, errors, rtol=1e-5)
    theta, errors = joint(known=0.9)
    est = idm.infer(model.fix(b=0.9), [names[0], "d"])
    np.testing.assert_allclose(est.value, theta[[0, 2]], rtol=1e-5)
    np.testing.assert_allclose(est.standard_error, errors, rtol=1e-5)


def test_a_network_and_a_measurement_weigh_by_the_variance_where_they_meet():
    model = network()
    by_name = dict(zip(model.names, range(2), strict=True))
    both = model + idm.measurement(
        np.diag([1e6, 0.01]), **dict(zip(by_name, [0, 1.5], strict=True))
    )
    line = residuals() + idm.measurement(np.diag([1e6, 0.01]), a=0.0, b=1.5)
    np.testing.assert_allclose(both.theta, line.theta, rtol=1e-5)


def fall(t, value):
    """Minus the log-likelihood of a line with the logarithm of its variance, and a measurement."""
    line = np.sum((Y - t[0] - t[1] * U) ** 2) * np.exp(-t[2]) + N * (t[2] + np.log(2 * np.pi))
    measured = ((t[1] - value) / 0.1) ** 2 + 2 * np.log(0.1) + np.log(2 * np.pi)
    return (line + measured) / 2


def lowest(function, start):
    return minimize(function, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-11})


@pytest.mark.parametrize("value", [1.2, 3.0])
@pytest.mark.parametrize("first", [residuals, shards, lambda: residuals(variance="mle")])
def test_criteria_and_likelihood_ratios_are_at_the_joint_maximum(first, value):
    large = lowest(lambda t: fall(t, value), [1.0, value, 1.0])
    b = value - 0.2
    small = lowest(lambda t: fall([t[0], b, t[1]], value), [1.0, 1.0])
    model = first() + idm.measurement(b=(value, 0.1))
    assert model.aic == pytest.approx(2 * large.fun + 6, abs=1e-6)
    assert model.bic == pytest.approx(2 * large.fun + 3 * np.log(N + 1), abs=1e-6)
    found = idm.likelihood_ratio(model.fix(b=b), model)
    assert found.statistic == pytest.approx(2 * (small.fun - large.fun), abs=1e-5)


def test_the_maximum_likelihood_rule_is_the_joint_maximum():
    large = lowest(lambda t: fall(t, 3.0), [1.0, 3.0, 1.0])
    model = residuals(variance="mle") + idm.measurement(b=(3.0, 0.1))
    np.testing.assert_allclose(model.theta, large.x[:2], atol=1e-5)


def test_a_penalty_of_a_library_is_in_units_of_the_variance():
    linear_model = pytest.importorskip("sklearn.linear_model")
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame({"b": U})
    model = idm.from_sklearn(linear_model.Ridge(alpha=3.0).fit(X, Y), X, Y)
    model = model + idm.measurement(b=(3.0, 0.1))
    b, a = model.theta
    design, D = np.column_stack([U, np.ones(N)]), np.diag([3.0, 0.0])
    gram = design.T @ design
    s2 = np.sum((Y - a - b * U) ** 2) / (N - np.trace(np.linalg.solve(gram + D, gram)))
    A, right = (gram + D) / s2, design.T @ Y / s2
    A[0, 0], right[0] = A[0, 0] + 100, right[0] + 300
    np.testing.assert_allclose(model.theta, np.linalg.solve(A, right), rtol=1e-5)


def test_data_sets_without_a_free_parameter_have_the_mean_square():
    flat = idm.from_residuals(lambda t: Z - 2 - t.b * V, start={"b": 0.0})
    model = (residuals() + flat).fix(b=1.0)
    found = model.rows.models[1].rows.outputs.likelihood.noise
    assert found == pytest.approx(np.mean((Z - 2 - V) ** 2), rel=1e-9)

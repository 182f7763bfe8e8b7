"""Exact fits have no noise to estimate an error from: they say so, and a known noise is enough."""

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LinearRegression, Ridge

import implicit_delta as idm

T = np.linspace(0, 10, 40)
X = np.column_stack([T, np.random.default_rng(0).normal(size=40)])
DESIGN = sm.add_constant(X)
CURVES = {
    "line": (lambda p: p[0] + p[1] * T, [1.3, 0.7], [0.0, 0.0]),
    "mean": (lambda p: p[0] + 0 * T, [3.3], [0.0]),
    "decay": (lambda p: p[0] * np.exp(-p[1] * T), [3.0, 0.4], [1.0, 1.0]),
    "logistic": (lambda p: p[0] / (1 + np.exp(-p[1] * (T - p[2]))), [5, 0.6, 5], [4.0, 1.0, 4.0]),
    "sinusoid": (lambda p: p[0] * np.sin(p[1] * T), [2.0, 1.1], [1.0, 1.0]),
    "power": (lambda p: p[0] * (T + 1) ** p[1], [2.0, 0.5], [1.0, 1.0]),
}
UNITS = (1.0, 1e-9, 1e-6, 1e6, 1e9)


def weighted(y):
    w = np.linspace(1, 2, 40) * 1e-12
    fit = LinearRegression().fit(X, y, sample_weight=w)
    return idm.from_sklearn(fit, X, y, sample_weight=w, weight_kind="precision")


HOSTS = {
    "OLS": lambda y: idm.from_statsmodels(sm.OLS(y, DESIGN).fit()),
    "WLS": lambda y: idm.from_statsmodels(sm.WLS(y, DESIGN, weights=1e12 * (1 + T)).fit()),
    "GLM": lambda y: idm.from_statsmodels(sm.GLM(y, DESIGN).fit()),
    "LinearRegression": lambda y: idm.from_sklearn(LinearRegression().fit(X, y), X, y),
    "weighted": weighted,
    "Ridge": lambda y: idm.from_sklearn(Ridge(alpha=1e-20).fit(X, y), X, y),
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("given", [{}, {"variance": "mle"}, {"sigma": 0.1}])
@pytest.mark.parametrize(("curve", "true", "start"), CURVES.values(), ids=CURVES)
def test_residuals(curve, true, start, given, unit):
    y = unit * curve(true)
    for point in ({"start": start}, {"theta": true}):
        with pytest.raises(ValueError, match="fits these data exactly"):
            idm.from_residuals(lambda p: y - unit * curve(p), **point, **given)
    known = idm.from_residuals(
        lambda p: y - unit * curve(p), start=start, sigma=0.1 * unit, variance=1.0
    )
    assert np.all(idm.infer(known, idm.parameters).standard_error > 0)


@pytest.mark.filterwarnings("ignore:Perfect separation")
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_hosts(host, unit):
    y = (1.3 + X @ [0.7, 0.2]) * unit
    with pytest.raises(ValueError, match="fits these data exactly"):
        host(y)
    noise = 1e-9 * unit * np.random.default_rng(1).normal(size=40)  # of a billionth: that is some
    assert np.all(idm.infer(host(y + noise), idm.parameters).standard_error > 0)


def test_the_advice_works_as_printed():
    b, y = np.array([1.3, 0.7, 0.2]), DESIGN @ [1.3, 0.7, 0.2]
    model = idm.from_residuals(lambda b: y - DESIGN @ b, b, sigma=0.1, variance=1.0)
    exact = 0.1 * np.sqrt(np.diag(np.linalg.inv(DESIGN.T @ DESIGN)))
    np.testing.assert_allclose(idm.infer(model, idm.parameters).standard_error, exact, rtol=1e-6)


def test_torch():
    torch = pytest.importorskip("torch")
    y = 1.3 + X @ [0.7, 0.2]
    fit, net = LinearRegression().fit(X, y), torch.nn.Linear(2, 1).double()
    with torch.no_grad():
        net.weight[:] = torch.tensor(fit.coef_)[None]
        net.bias[:] = float(fit.intercept_)
    data = (torch.tensor(X), torch.tensor(y)[:, None])
    with pytest.raises(ValueError, match="fits these data exactly"):
        idm.from_torch(net, data, idm.Gaussian())
    known = idm.from_torch(net, data, idm.Gaussian(variance=0.01))
    assert np.all(idm.infer(known, idm.parameters).standard_error > 0)

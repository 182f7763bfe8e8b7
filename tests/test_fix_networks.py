"""Fixed parameters of torch modules and JAX pytrees: the constrained fit, and its errors."""

import numpy as np
import pytest

import implicit_delta as idm

torch = pytest.importorskip("torch")

N = 150
RNG = np.random.default_rng(4)
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
Y = (RNG.random(N) < 1 / (1 + np.exp(-X @ [0.2, 1.0, -0.5]))).astype(float)


def logit(theta):
    return Y * (X @ theta) - np.logaddexp(0, X @ theta)


WRITTEN = idm.from_loglik(logit, start=np.zeros(3))


def torch_model():
    net = torch.nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        net.weight[:] = torch.tensor(np.array(WRITTEN.theta))
    return idm.from_torch(net, (torch.tensor(X), torch.tensor(Y)[:, None]), idm.Bernoulli())


def jax_model():
    jax = pytest.importorskip("jax")
    params = {"w": jax.numpy.asarray(np.array(WRITTEN.theta))}
    apply = lambda p, x: (x @ p["w"])[:, None]
    return idm.from_jax(params, (X, Y[:, None]), idm.Bernoulli(), apply=apply)


MODELS = {"torch": torch_model, "jax": jax_model}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("robust", [False, "HC0", "HC1"])
def test_it_is_the_constrained_fit(name, robust):
    model, written = MODELS[name]().fix({1: 0.5}), WRITTEN.fix({1: 0.5})
    np.testing.assert_allclose(model.theta, written.theta, rtol=1e-7)
    found, expected = (idm.infer(m, idm.parameters, robust=robust) for m in (model, written))
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-6)
    assert found.standard_error[1] == 0


@pytest.mark.parametrize("name", MODELS)
def test_released_it_is_the_first_fit(name):
    model = MODELS[name]().fix({0: 0.0, 2: -1.0})
    partly = model.release(0)
    assert partly.theta[2] == -1.0
    np.testing.assert_allclose(partly.release().theta, WRITTEN.theta, atol=1e-7)


def test_psi_gets_the_module_with_the_fixed_parameter():
    fixed = torch_model().fix({1: 0.5})
    assert fixed.module.weight[0, 1].item() == 0.5
    row = torch.tensor([[1.0, 2.0, 0.0]], dtype=torch.float64)
    found = idm.infer(fixed, lambda net: net(row).sum())
    expected = idm.infer(WRITTEN.fix({1: 0.5}), lambda th: th[0] + 2 * th[1])
    assert found.value == pytest.approx(expected.value, rel=1e-7)
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-6)


def test_hidden_units_are_fitted_around_a_fixed_weight():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
    data = torch.tensor(X[:, 1:]), torch.tensor(Y)[:, None]
    model = idm.polish(idm.from_torch(net.double(), data, idm.Bernoulli(), l2=1.0))
    fixed = model.fix({0: 0.1})
    units = 1 / np.sqrt(np.diag(fixed.information(fixed.theta, np.eye(fixed.d))))
    assert fixed.theta[0] == 0.1
    assert np.max(abs(fixed.score(fixed.theta) * units)[1:]) < 1e-4  # in standard errors
    assert fixed.objective(fixed.theta) < model.objective(model.theta)

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


COLUMNS, KEPT = RNG.normal(size=(40, 20)), 2
LINE = COLUMNS[:, 0] + RNG.normal(size=40)
BEST = np.linalg.lstsq(COLUMNS, LINE, rcond=None)[0]


def torch_line(**options):
    net = torch.nn.Linear(20, 1, bias=False).double()
    with torch.no_grad():
        net.weight[:] = torch.tensor(BEST)
    data = (torch.tensor(COLUMNS), torch.tensor(LINE)[:, None])
    return idm.from_torch(net, data, idm.Gaussian(**options))


def jax_line(**options):
    jax = pytest.importorskip("jax")
    line = lambda p, x: (x @ p["w"])[:, None]
    data = (COLUMNS, LINE[:, None])
    return idm.from_jax({"w": jax.numpy.asarray(BEST)}, data, idm.Gaussian(**options), apply=line)


WAYS = {
    "fix": lambda model: model.fix(dict.fromkeys(range(KEPT, 20), 0.0)),
    "constrain": lambda model: model.constrain(
        constraints={"type": "eq", "fun": lambda theta: np.asarray(theta)[KEPT:]}
    ),
}


@pytest.mark.parametrize("build", [torch_line, jax_line])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", [None, "unbiased"])
def test_fixed_parameters_do_not_count_for_the_noise_variance(build, way, rule):
    """It is that of least squares of the columns that stay: s2 = RSS / (n - 2)."""
    found = idm.infer(WAYS[way](build(variance=rule)), idm.parameters)
    kept = COLUMNS[:, :KEPT]
    rest, squares = np.linalg.lstsq(kept, LINE, rcond=None)[:2]
    covariance = squares[0] / (40 - KEPT) * np.linalg.inv(kept.T @ kept)
    assert found.df == 40 - KEPT
    np.testing.assert_allclose(found.value[:KEPT], rest, rtol=1e-6)
    np.testing.assert_allclose(found.standard_error[:KEPT], np.sqrt(np.diag(covariance)), rtol=1e-6)
    assert not found.standard_error[KEPT:].any()


@pytest.mark.parametrize("build", [torch_line, jax_line])
def test_a_released_noise_variance_is_the_first_one(build):
    model = build()
    again = model.fix({3: 0.0}).release()
    assert (model.facts.df, again.facts.df) == (20, 20)
    np.testing.assert_allclose(again.covariance, model.covariance, rtol=1e-6)


def test_a_constraint_between_parameters_takes_one_degree_of_freedom():
    equal = torch_line().constrain(
        constraints={"type": "eq", "fun": lambda theta: theta[0] + 3 * theta[1]}
    )
    assert equal.facts.df == 21

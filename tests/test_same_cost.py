"""A model remembers nothing: the same question costs the same and has the same bits."""

import numpy as np
import pytest

import implicit_delta as idm

N = 120
RNG = np.random.default_rng(8)
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
Y = (RNG.random(N) < 1 / (1 + np.exp(-X @ [0.2, 1.0, -0.5]))).astype(float)


def logit(theta):
    eta = X @ theta
    return Y * eta - np.logaddexp(0, eta)


def opaque(theta):
    eta = np.array([float(value) for value in X @ np.asarray(theta)])
    return Y * eta - np.logaddexp(0, eta)


def moments(theta):
    return X * (Y - 1 / (1 + np.exp(-X @ theta)))[:, None]


def torch_model():
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        net.weight[:] = torch.tensor(idm.from_loglik(logit, start=np.zeros(3)).theta)
    return idm.from_torch(net, (torch.tensor(X), torch.tensor(Y)[:, None]), idm.Bernoulli())


def statsmodels_model():
    discrete = pytest.importorskip("statsmodels.api")
    return idm.from_statsmodels(discrete.Logit(Y, X).fit(disp=0))


MODELS = {
    "fitted": lambda: idm.from_loglik(logit, start=np.zeros(3)),
    "given": lambda: idm.from_loglik(logit, theta=MODELS["fitted"]().theta),
    "by differences": lambda: idm.from_loglik(opaque, start=np.zeros(3)),
    "residuals": lambda: idm.from_residuals(lambda b: Y - X @ b, start=np.zeros(3)),
    "equations": lambda: idm.from_equations(moments, start=np.zeros(3)),
    "statsmodels": statsmodels_model,
    "torch": torch_model,
    "fixed": lambda: idm.from_loglik(logit, start=np.zeros(3)).fix({1: 0.5}),
}


def psi_of(name):
    if name == "torch":
        return lambda net: net.weight.exp().sum()
    return lambda theta: np.exp(theta[0]) + theta[2]


@pytest.mark.parametrize("name", MODELS)
def test_the_same_question_costs_the_same_whatever_was_asked_before(name):
    model, psi = MODELS[name](), psi_of(name)
    first = idm.infer(model, psi)
    idm.infer(model, psi, robust=True)
    idm.infer(model, psi)
    if name != "equations":
        idm.polish(model)
    again = idm.infer(model, psi)
    assert again.diagnostics.passes == first.diagnostics.passes
    assert again.standard_error == first.standard_error  # to the last bit
    assert again.value == first.value


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"equations"}))
def test_so_does_a_profile(name):
    model, psi = MODELS[name](), psi_of(name)
    first = idm.profile(model, psi)
    idm.infer(model, psi)
    again = idm.profile(model, psi)
    assert again.passes == first.passes
    assert tuple(again.interval) == tuple(first.interval)


def test_answers_of_copies_are_of_one_model():
    model = MODELS["fitted"]()
    one, two = (idm.infer(model, lambda th, k=k: th[k], robust=True) for k in (0, 1))
    joint = idm.infer(model, lambda th: th[0] - th[1], robust=True)
    assert (one - two).standard_error == pytest.approx(joint.standard_error, rel=1e-6)

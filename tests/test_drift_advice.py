"""Advice about drift is true for the model at hand: it names no call that was just made."""

import warnings

import numpy as np
import pytest

import implicit_delta as idm

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)
X = torch.from_numpy(rng.normal(size=(120, 2)))
Y = torch.sin(X.sum(1, keepdim=True)) + torch.from_numpy(rng.normal(size=(120, 1)))
TAKEN = "`infer(model, psi)` without a method"


def psi(module):
    return module(X[:1])[0, 0]


def network(steps, rate=0.01):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    net = net.double()
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        ((net(X) - Y) ** 2).mean().backward()
        optimizer.step()
    return net


def messages(call):
    """Return all messages of a call: warnings, and the error that ended it if there was one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
        except idm.ImplicitDeltaError as error:
            return [*(str(w.message) for w in caught), str(error)]
    return [str(w.message) for w in caught]


@pytest.mark.parametrize("steps", [20, 100, 1000])
@pytest.mark.parametrize(
    "call",
    [
        lambda model: idm.profile(model, psi),
        lambda model: idm.infer(model, psi, idm.Infinitesimal()),
        lambda model: idm.infer(model, psi, idm.Infinitesimal(curvature="ggn")),
    ],
)
def test_where_the_method_is_advised_against_the_default_answers(call, steps):
    model = idm.from_torch(network(steps), (X, Y), idm.Gaussian())
    told = " ".join(messages(lambda: call(model)))
    assert "eave the method out" not in told
    if TAKEN in told:
        answered = messages(lambda: idm.infer(model, psi))
        assert not any("not at its maximum" in text for text in answered)


def test_the_default_does_not_advise_the_default():
    finished = idm.polish(idm.from_torch(network(200), (X, Y), idm.Gaussian(), l2=1.0))
    root = np.linalg.inv(np.linalg.cholesky(finished.information(finished.theta, np.eye(13)))).T
    g = finished.jacobian(psi, finished.theta)[0]
    step = root @ (root.T @ g) / np.linalg.norm(root.T @ g)
    near = finished.at(finished.theta + 0.5 * step)  # half a standard error of psi
    told = [text for text in messages(lambda: idm.infer(near, psi)) if "(drift)" in text]
    assert len(told) == 1
    assert TAKEN not in told[0]
    assert "`polish(model)`" in told[0]


@pytest.mark.slow
def test_a_polished_model_is_told_which_polish_is_left():
    rows = torch.from_numpy(np.random.default_rng(1).normal(size=(700, 510)))
    torch.manual_seed(0)
    line = torch.nn.Linear(510, 1).double()
    model = idm.from_torch(line, (rows, rows[:, :1]), idm.Gaussian(1.0), l2=1.0)

    def first(module):
        return module(rows[:1])[0, 0]

    rough = idm.polish(model, maximizer=idm.lbfgs(tolerance=100.0))
    told = " ".join(messages(lambda: idm.infer(rough, first, idm.Infinitesimal())))
    assert "was polished" in told
    again = messages(lambda: idm.infer(idm.polish(rough), first, idm.Infinitesimal()))
    assert not any("drift" in text for text in again)


def test_a_loose_tolerance_is_named():
    torch.manual_seed(0)
    model = idm.from_torch(torch.nn.Linear(2, 1).double(), (X, Y > 0), idm.Bernoulli(), l2=1.0)
    with pytest.raises(idm.ConvergenceError, match=r"standard errors from the maximum.*tolerance"):
        idm.polish(model, maximizer=idm.lbfgs(tolerance=3.0))


def test_a_linear_module_that_stopped_early():
    torch.manual_seed(0)
    model = idm.from_torch(torch.nn.Linear(2, 1).double(), (X, Y), idm.Gaussian())
    told = " ".join(messages(lambda: idm.profile(model, psi)))
    assert TAKEN in told
    assert "not at its maximum" not in " ".join(messages(lambda: idm.infer(model, psi)))
    assert not messages(lambda: idm.profile(idm.polish(model), psi))

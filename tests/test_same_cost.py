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


# However a model was made: fitted from a start, or given at that maximum.

WEIGHTS = np.arange(N) % 3 + 1.0
WAYS = {
    "by differences": (opaque, {}),
    "traced": (lambda theta: logit(theta[:3]) - 0.1 * (theta[3:] ** 2).sum(), {}),
    "ridge": (opaque, {"l2": 2.0}),
    "weights": (opaque, {"weights": WEIGHTS}),
    "penalty": (opaque, {"penalty": lambda theta: float(np.sum(np.asarray(theta) ** 4))}),
    "bounds": (opaque, {"bounds": [(-5, 5), (None, 9), (-9, None)]}),
    "score": (opaque, {"score": moments}),
    "one term": (lambda theta: opaque(theta).sum()[None], {}),
}
QUESTIONS = {
    "infer": lambda model, psi: idm.infer(model, psi),
    "parameters": lambda model, psi: idm.infer(model, idm.parameters),
    "robust": lambda model, psi: idm.infer(model, psi, robust=True),
    "profile": lambda model, psi: idm.profile(model, psi),
    "fixed": lambda model, psi: idm.infer(model.fix({1: 0.5}), psi),
}


def numbers(answer):
    if hasattr(answer, "interval"):
        return [*answer.interval]
    return [answer.value, answer.standard_error]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("way", WAYS)
def test_however_a_model_was_made_an_answer_costs_the_same_and_has_the_same_bits(way, question):
    if way == "one term" and question == "robust":
        pytest.skip("one term has no scatter")
    function, given = WAYS[way]
    calls = [0]

    def counted(theta):
        calls[0] += 1
        return function(theta)

    def asked(model):
        before = calls[0]
        answer = QUESTIONS[question](model, lambda theta: np.exp(theta[0]) + theta[2])
        return calls[0] - before, numbers(answer)

    d = 9 if way == "traced" else 3
    fitted = idm.from_loglik(counted, start=np.zeros(d), **given)
    again = idm.from_loglik(counted, theta=fitted.theta, **given)
    (cost, found), (other, same) = asked(fitted), asked(again)
    assert cost == other
    np.testing.assert_array_equal(np.array(found), np.array(same))

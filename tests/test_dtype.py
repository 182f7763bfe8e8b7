"""Torch modules in float32: float64 on a copy by default, and messages about float32 if not."""

import copy
import warnings

import numpy as np
import pytest

import implicit_delta as idm

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional as F


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM):
        super().__init__()
        self.rnn, self.out = kind(2, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.rnn(x.reshape(-1, 4, 2))[0][:, -1])


class OwnStates(nn.Module):
    """States that are made in forward, in the default type."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(2, 3), nn.Linear(3, 2)

    def forward(self, x):
        h = torch.zeros(len(x), 3)
        for t in range(4):
            h = self.cell(x[:, 2 * t : 2 * t + 2], h)
        return self.out(h)


class Written(nn.Module):
    """Writes into a tensor in the type of the inputs."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 3), nn.Linear(3, 2)

    def forward(self, x):
        h = x.new_zeros(len(x), 3)
        h[:, :2] = self.a(x)[:, :2]
        h[torch.arange(len(x)), 2] = self.a(x)[:, 2]
        return self.b(torch.tanh(h))


class Normalized(nn.Module):
    """Casts to float32 on the way, as language models do."""

    def __init__(self):
        super().__init__()
        self.w, self.out = nn.Parameter(1 + 0.1 * torch.randn(8)), nn.Linear(8, 2)

    def forward(self, x):
        h = x.to(torch.float32)
        h = self.w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)
        share = torch.softmax(h, -1, dtype=torch.float32)[:, :1]
        return self.out(h).float() * (1 + share)


class Rotary(nn.Module):
    """A complex buffer."""

    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(8, 8), nn.Linear(8, 2)
        self.register_buffer("turn", torch.polar(torch.ones(4), torch.arange(4.0)))

    def forward(self, x):
        h = torch.view_as_complex(self.a(x).reshape(-1, 4, 2)) * self.turn
        return self.out(torch.tanh(torch.view_as_real(h).flatten(1)))


class Constants(nn.Module):
    """Tensors that are neither parameters nor buffers, and random ones of a fixed seed."""

    def __init__(self):
        super().__init__()
        self.out, self.shift, self.turn = nn.Linear(8, 2), torch.linspace(0, 1, 8), torch.eye(8)

    def forward(self, x):
        noise = torch.randn(8, 8, generator=torch.Generator().manual_seed(3))
        return self.out(torch.tanh((x - self.shift) @ (self.turn + 0.1 * noise)))


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.out = nn.Embedding(10, 3), nn.Linear(24, 2)

    def forward(self, x):
        return self.out(self.rows((2 * x + 5).long().clamp(0, 9)).flatten(1))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(2, 4), nn.Linear(4, 2)
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True)

    def forward(self, x):
        return self.out(self.layer(self.first(x.reshape(-1, 4, 2))).mean(1))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(8, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.out(Square.apply(torch.tanh(self.a(x))))


def perceptron(activation=nn.Tanh):
    return nn.Sequential(nn.Linear(8, 5), activation(), nn.Linear(5, 2))


def convolutions():
    norm = nn.BatchNorm2d(3)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    first = [nn.Unflatten(1, (1, 2, 4)), nn.Conv2d(1, 3, 2), norm, nn.SiLU()]
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(9, 2))


def bert():
    transformers = pytest.importorskip("transformers")
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(
        vocab_size=12, intermediate_size=8, max_position_embeddings=8, num_labels=2, **size
    )
    return Tokens(transformers.BertForSequenceClassification(config))


def lora():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["0", "2"], init_lora_weights=False)
    return peft.get_peft_model(perceptron(), config)


def lightning():
    module = pytest.importorskip("lightning").LightningModule

    class Lit(module):
        def __init__(self):
            super().__init__()
            self.net = perceptron()

        def forward(self, x):
            return self.net(x)

    return Lit()


class Tokens(nn.Module):
    """Real inputs as tokens of a language model."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner((2 * x + 5).long().clamp(0, 9)).logits


MODULES = {
    "relu": lambda: perceptron(nn.ReLU),
    "tanh": perceptron,
    "layer norm": lambda: nn.Sequential(
        nn.Linear(8, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2)
    ),
    "weight norm": lambda: nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)), nn.Tanh(), nn.Linear(3, 2)
    ),
    "batch norm": convolutions,
    "lstm": Recurrent,
    "gru": lambda: Recurrent(nn.GRU),
    "states": OwnStates,
    "written": Written,
    "casts": Normalized,
    "complex buffer": Rotary,
    "constants": Constants,
    "embedding": Embedded,
    "transformer": Attention,
    "own autograd function": Custom,
    "bert": bert,
    "lora": lora,
    "lightning": lightning,
    "half": lambda: perceptron().half(),
    "bfloat16": lambda: perceptron().bfloat16(),
    "two types": lambda: nn.Sequential(nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 2).double()),
}


def data_of(seed, n=60):
    rng = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 8, generator=rng)
    return X, (X[:, 0] + 0.5 * torch.randn(n, generator=rng) > 0).long()


def of_double(net):
    """The module as a user would make it double, with all that it uses."""
    double = copy.deepcopy(net)
    wide = {torch.complex64: torch.complex128}
    double._apply(
        lambda t: t.to(wide.get(t.dtype, torch.float64 if t.is_floating_point() else t.dtype))
    )
    for part in double.modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                setattr(part, name, value.double())
    return double


def answered(net, X, y, psi, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of weights that were never trained
        model = idm.from_torch(net, (X, y), idm.Categorical(), l2=1.0, **given)
        return model, idm.infer(model, psi, idm.Infinitesimal(curvature="ggn"), strict=False)


@pytest.mark.parametrize("name", MODULES)
def test_answers_are_those_of_the_module_made_double(name, monkeypatch):
    """To the rounding of float64, but where the double module itself casts to float32."""
    torch.manual_seed(1)
    net = MODULES[name]().eval()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    (X, y), (Xv, yv) = data_of(2), data_of(3, 20)
    model, est = answered(net, X, y, lambda net: F.cross_entropy(net(Xv), yv))
    assert "float64, on a copy of the" in est.diagnostics.notes["precision"]
    assert "float64 copy of" in repr(model)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    restored = {key: value.dtype for key, value in model.module.state_dict().items()}
    assert restored == {key: value.dtype for key, value in before.items()}
    if name != "two types":  # which meet in the module
        x = X.to(next(net.parameters()).dtype)
        torch.testing.assert_close(model.module(x), net(x))
    if name in ("states", "constants"):  # float32 noise is drawn in float32
        draw = torch.randn
        monkeypatch.setattr(torch, "zeros", lambda *s: torch.full(s, 0.0, dtype=torch.float64))
        monkeypatch.setattr(torch, "randn", lambda *s, **k: draw(*s, **k).double())
    _, expected = answered(
        of_double(net), X.double(), y, lambda net: F.cross_entropy(net(Xv.double()), yv)
    )
    assert "precision" not in expected.diagnostics.notes
    rounding = 1e-6 if name in ("casts", "constants") else 1e-10
    np.testing.assert_allclose(est.value, expected.value, rtol=rounding)
    np.testing.assert_allclose(est.standard_error, expected.standard_error, rtol=rounding)


def with_gradient_of_inputs(net, X, y):
    x = X.clone().requires_grad_()
    (slope,) = torch.autograd.grad(net(x)[:, 0].sum(), x, create_graph=True)
    return slope.pow(2).mean()


def in_a_buffer(net, X, y):
    out = torch.zeros(len(X), 2)
    out[: len(X) // 2] = net(X[: len(X) // 2])
    out[torch.arange(len(X) // 2, len(X))] = net(X[len(X) // 2 :])
    return out.pow(2).mean()


WEIGHT = torch.tensor([0.3, 0.7])
EVALUATIONS = {
    "net": lambda net, X, y: net(X).mean(),
    "a part": lambda net, X, y: net[0](X).pow(2).mean(),
    "weights alone": lambda net, X, y: F.linear(X, net[0].weight).pow(2).mean(),
    "matmul": lambda net, X, y: (X @ net[0].weight.T).pow(2).mean(),
    "float": lambda net, X, y: net(X).float().softmax(1)[:, 0].mean(),
    "class weights": lambda net, X, y: F.cross_entropy(net(X), y, weight=WEIGHT.to(X)),
    "soft targets": lambda net, X, y: F.cross_entropy(net(X), F.one_hot(y, 2).to(X)),
    "bce": lambda net, X, y: F.binary_cross_entropy_with_logits(net(X)[:, 0], y.to(X)),
    "mse": lambda net, X, y: F.mse_loss(net(X)[:, 0], X[:, 1]),
    "einsum": lambda net, X, y: torch.einsum("ij,kj->ik", X, net[0].weight).mean(),
    "concatenated": lambda net, X, y: torch.cat([net(X), X], dim=1).pow(2).mean(),
    "where": lambda net, X, y: torch.where(X[:, 0] > 0, net(X)[:, 0], X[:, 1]).mean(),
    "vmap": lambda net, X, y: torch.func.vmap(lambda x: net(x))(X).mean(),
    "inference": lambda net, X, y: (net(X)[:, 0] * (X[:, 0] > 0)).mean(),
    "gradient of inputs": with_gradient_of_inputs,
    "in a buffer": in_a_buffer,
    "several": lambda net, X, y: [net(X)[:, k].mean() for k in range(2)],
    "rows": lambda net, X, y: net(X[:3])[:, 0],
    "numpy inputs": lambda net, X, y: net(torch.from_numpy(X.numpy())).mean(),
    "new tensor": lambda net, X, y: net(torch.tensor(X.tolist()).to(X)).mean(),
}


@pytest.mark.parametrize("name", EVALUATIONS)
def test_psi_uses_its_own_float32_tensors(name, monkeypatch):
    torch.manual_seed(0)
    net, psi = perceptron(), EVALUATIONS[name]
    (X, y), (Xv, yv) = data_of(0), data_of(1, 20)
    _, est = answered(net, X, y, lambda net: psi(net, Xv, yv))
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *s: zeros(*s, dtype=torch.float64))
    double = copy.deepcopy(net).double()
    _, expected = answered(double, X.double(), y, lambda net: psi(net, Xv.double(), yv))
    rounding = 1e-6 if name in ("float", "gradient of inputs") else 1e-10
    np.testing.assert_allclose(est.value, expected.value, rtol=rounding)
    np.testing.assert_allclose(est.standard_error, expected.standard_error, rtol=rounding)


def logit(seed):
    rng = torch.Generator().manual_seed(seed)
    n, p = 200 + 50 * (seed % 5), 3 + seed % 4
    X = torch.randn(n, p, generator=rng) * (1.0 if seed % 3 else 10.0)
    b = torch.randn(p, generator=rng)
    y = (torch.rand(n, generator=rng) < torch.sigmoid(X @ b / X.std())).float()
    return nn.Sequential(nn.Linear(p, 1), nn.Flatten(0)), X, y


@pytest.mark.parametrize("seed", range(60))
def test_no_logit_in_float32_is_refused(seed):
    """20 of these 60 were refused as separated classes."""
    net, X, y = logit(seed)
    model = idm.polish(idm.from_torch(net, (X, y), idm.Bernoulli()))
    est = idm.infer(model, lambda net: torch.sigmoid(net(X)).mean())
    double = copy.deepcopy(net).double()
    fitted = idm.polish(idm.from_torch(double, (X.double(), y.double()), idm.Bernoulli()))
    expected = idm.infer(fitted, lambda net: torch.sigmoid(net(X.double())).mean())
    np.testing.assert_allclose(est.value, expected.value, rtol=1e-9)
    np.testing.assert_allclose(est.standard_error, expected.standard_error, rtol=1e-9)


@pytest.mark.parametrize("seed", range(0, 60, 5))
def test_no_logit_is_refused_that_is_kept_in_float32(seed):
    """24 of the 60 were: rounding hides the last rise of the objective, and not its slope."""
    net, X, y = logit(seed)
    found, double = (
        idm.infer(
            idm.polish(idm.from_torch(net, (X, y), idm.Bernoulli(), dtype=dtype)),
            lambda net: torch.sigmoid(net(X)).mean(),
        )
        for dtype in ("float32", torch.float64)
    )
    assert found.diagnostics.notes["precision"] == "float32"
    np.testing.assert_allclose(found.standard_error, double.standard_error, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_refusals_in_float32_name_rounding_first(dtype):
    """Classes that are separated are refused in any type."""
    X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    model = idm.from_torch(net, (X, (X[:, 0] > 0).float()), idm.Bernoulli(), dtype=dtype)
    with pytest.raises(idm.ConvergenceError, match="separated classes") as refusal:
        idm.infer(idm.polish(model), lambda net: torch.sigmoid(net(X)).mean())
    assert str(refusal.value).startswith("The model computes in") is (dtype == "float32")


def test_a_psi_in_float32_is_not_called_detached_alone():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 2))
    X, y = data_of(0)
    psi = lambda net: net(X)[:, 0].mean() + net(X)[:, 1].detach().mean()
    for dtype, says in (("float32", True), ("float64", False)):
        with pytest.raises(idm.EvaluationError, match="derivative implies") as refusal:
            answered(net, X, y, psi, dtype=dtype)
        assert ("rounding may be the cause" in str(refusal.value)) is says


def test_many_parameters_stay_in_their_type(monkeypatch):
    monkeypatch.setattr("implicit_delta.models.torch.module.MOST_PROMOTED", 20)
    X, y = data_of(0)
    for kind, dtype, note in (
        (torch.float32, None, "float32"),
        (torch.float32, "float64", "float64, on a copy of the float32 model"),
        (torch.bfloat16, torch.float32, "float32"),
    ):
        _, est = answered(perceptron().to(kind), X, y, lambda net: net(X).mean(), dtype=dtype)
        assert est.diagnostics.notes["precision"] == note
    with pytest.raises(idm.UnsupportedModelError, match=r"dtype=torch\.float64"):
        answered(perceptron().bfloat16(), X, y, lambda net: net(X).mean())


class Picky(nn.Module):
    """Raises unless its inputs are float32."""

    def __init__(self, error):
        super().__init__()
        self.error, self.out = error, nn.Linear(8, 2)

    def forward(self, x):
        if x.dtype != torch.float32:
            raise self.error
        return self.out(x)


@pytest.mark.parametrize("error", [ValueError("Inputs are not float32."), AssertionError()])
def test_a_module_that_refuses_float64_stays_in_float32(error):
    X, y = data_of(0)
    _, est = answered(Picky(error), X, y, lambda net: net(X).mean())
    reason = str(error).rstrip(".") or "AssertionError"
    assert est.diagnostics.notes["precision"].startswith("float32: ")
    assert reason in est.diagnostics.notes["precision"]


@pytest.mark.parametrize("given", [{}, {"dtype": torch.float64}])
def test_modules_are_given_out_in_the_types_of_the_user(given):
    """By default as the module that was given; averaged and finished modules take its inputs."""
    net = convolutions().eval()
    X, y = data_of(0)
    states = [convolutions().state_dict() for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of running averages
        model = idm.from_torch(net, (X, y), idm.Categorical(), l2=1.0, checkpoints=states, **given)
        modules = [model.module, idm.averaged(model).module, model.at(model.theta + 0.1).module]
    kind = given.get("dtype", torch.float32)
    for module in modules:
        assert module(X.to(kind)).dtype == kind
        module.train()(X.to(kind)).mean().backward()

"""Parts of a network, batches of any make and wrappers, against dense references."""

import pytest

pytest.importorskip("torch")

import pickle
import re
import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, hessian, jacrev
from torch.utils.data import DataLoader, Dataset

import implicit_delta as idm
from implicit_delta.models.outputs import whitened_rows
from implicit_delta.models.redraws import redraw
from implicit_delta.testing import check_model

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
GGN = idm.Infinitesimal(curvature="ggn")
rng = np.random.default_rng(3)
X = torch.as_tensor(rng.normal(size=(40, 3)))
Y = torch.as_tensor(rng.integers(0, 3, 40))
POINT = torch.as_tensor(rng.normal(size=(4, 3)))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.head = nn.Linear(4, 3)
        self.header = nn.Parameter(torch.zeros(3))  # begins like the head

    def forward(self, x):
        return self.head(torch.tanh(self.body(x))) + self.header


def network(dtype=torch.float64):
    torch.manual_seed(0)
    return Network().to(dtype)


def psi(module):
    return torch.softmax(module(POINT.to(next(module.parameters()).dtype)), 1)[:, 0]


def dense(module, names, l2=0.5):
    """Covariance of psi from the dense Gauss-Newton matrix of a part, and from the Hessian."""
    values = {name: p.detach() for name, p in module.named_parameters()}
    sizes = [values[name].numel() for name in names]

    def filled(flat):
        pieces = torch.split(flat, sizes)
        shaped = {n: p.view_as(values[n]) for n, p in zip(names, pieces, strict=True)}
        return lambda x: functional_call(module, {**values, **shaped}, (x,))

    flat = torch.cat([values[name].ravel() for name in names])
    J = jacrev(lambda t: filled(t)(X))(flat)
    p = torch.softmax(filled(flat)(X), 1)
    H = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    A = torch.einsum("icd,icb,ibe->de", J, H, J)
    loss = lambda t: nn.functional.cross_entropy(filled(t)(X), Y, reduction="sum")
    eye = l2 * torch.eye(len(flat), dtype=flat.dtype)
    G = jacrev(lambda t: torch.softmax(filled(t)(POINT), 1)[:, 0])(flat)
    return [(G @ torch.linalg.solve(M + eye, G.T)).numpy() for M in (A, hessian(loss)(flat))]


HEAD, BODY = ["head.weight", "head.bias"], ["body.weight", "body.bias"]
SELECTIONS = {
    "prefix": ("head", HEAD),
    "prefix with a dot": ("head.", HEAD),
    "name": ("head.bias", ["head.bias"]),
    "glob": ("*.bias", ["body.bias", "head.bias"]),
    "regex": (r"^(head|body)\.bias$", ["body.bias", "head.bias"]),
    "compiled": (re.compile("weight$"), ["body.weight", "head.weight"]),
    "regex with a star": (".*ody.*", BODY),
    "list": (["body.bias", "head*.weight"], ["body.bias", "head.weight"]),
    "function": (lambda name: name.startswith("body"), BODY),
    "whatever the order": (["head", "body"], BODY + HEAD),
}


@pytest.mark.parametrize("case", SELECTIONS)
def test_a_part_equals_the_dense_reference(case):
    selection, names = SELECTIONS[case]
    net = network()
    model = idm.from_torch(net, (X, Y), idm.Categorical(), l2=0.5, parameters=selection)
    named = dict(net.named_parameters())
    assert model.d == sum(named[name].numel() for name in names)
    assert all(p.requires_grad for p in net.parameters())
    flat = np.concatenate([named[name].detach().numpy().ravel() for name in names])
    np.testing.assert_array_equal(model.theta, flat)
    G = model.jacobian(psi, model.theta)
    for curvature, expected in zip(("ggn", "hessian"), dense(net, names), strict=True):
        A = model.information(model.theta, np.eye(model.d), curvature)
        np.testing.assert_allclose(G @ np.linalg.solve(A, G.T), expected, rtol=1e-8, atol=1e-12)


def test_head_only_inference_ends_in_the_same_covariance():
    net = network()
    model = idm.polish(idm.from_torch(net, (X, Y), idm.Categorical(), l2=0.5, parameters="head"))
    estimate = idm.infer(model, psi, GGN)
    np.testing.assert_allclose(estimate.covariance, dense(model.module, HEAD)[0], rtol=1e-6)
    np.testing.assert_array_equal(model.module.body.weight.detach(), net.body.weight.detach())
    check_model(model, psi)


NEAR = {
    "haed": "head",
    "classifier": "There are header, body.weight",
    "eader": "Near: header",
    "hea": "Near: header, head.weight",
}


@pytest.mark.parametrize("wrong", NEAR)
def test_nothing_that_matches_is_an_error_with_near_names(wrong):
    with pytest.raises(ValueError, match=NEAR[wrong]):
        idm.from_torch(network(), (X, Y), idm.Categorical(), parameters=wrong)
    with pytest.raises(ValueError, match="matches none of 5"):
        idm.from_torch(network(), (X, Y), idm.Categorical(), parameters=["head", wrong])


@pytest.mark.parametrize("wrong", [3, [], [3], 1.5])
def test_what_is_no_selection_is_refused(wrong):
    with pytest.raises(TypeError, match="parameters is"):
        idm.from_torch(network(), (X, Y), idm.Categorical(), parameters=wrong)


def test_a_function_that_selects_nothing_is_an_error():
    with pytest.raises(ValueError, match="selects none of 5"):
        idm.from_torch(network(), (X, Y), idm.Categorical(), parameters=lambda name: False)


def test_frozen_parameters_count_only_if_all_of_the_named_are_frozen():
    net = network()
    net.head.weight.requires_grad_(False)
    assert idm.from_torch(net, (X, Y), idm.Categorical(), parameters="head").d == 3
    net.requires_grad_(False)
    assert idm.from_torch(net, (X, Y), idm.Categorical(), parameters="head").d == 15
    assert not any(p.requires_grad for p in net.parameters())


def test_a_shared_parameter_is_found_by_either_name():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(5, 4)
            self.out = nn.Linear(4, 5, bias=False)
            self.out.weight = self.embedding.weight

        def forward(self, x):
            return self.out(self.embedding(x))

    words = torch.arange(5).repeat(4)
    for name in ("embedding", "out"):
        model = idm.from_torch(Tied().double(), (words, words), idm.Categorical(), parameters=name)
        assert model.d == 20


# Batches of any make


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@dataclass(frozen=True)
class Batch:
    x: torch.Tensor
    y: torch.Tensor


class Rows(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return {"x": X[i], "y": Y[i]}


def cut(start, stop):
    return X[start:stop], Y[start:stop]


CUTS = [(0, 7), (7, 30), (30, 40)]
by_key = {"outputs": lambda m, b: m(b["x"]), "targets": lambda b: b["y"]}
by_name = {"outputs": lambda m, b: m(b.x), "targets": lambda b: b.y}
BATCHES = {
    "dict of tensors": ({"x": X, "y": Y}, by_key),
    "dict, targets first": ({"y": Y, "x": X}, by_key),
    "loader of dicts": (DataLoader(Rows(), batch_size=9), by_key),
    "named tuple": (Pair(X, Y), by_name),
    "targets first": ((Y, X), {"outputs": lambda m, b: m(b[1]), "targets": lambda b: b[0]}),
    "targets only": ((X, Y), {"targets": lambda b: b[1]}),
    "outputs only": ((X, Y), {"outputs": lambda m, b: m(b[0])}),
    "list of tuples": ([cut(*ends) for ends in CUTS], {}),
    "list of lists": ([list(cut(*ends)) for ends in CUTS], {}),
    "list of arrays": ([[a.numpy() for a in cut(*ends)] for ends in CUTS], {}),
    "list of dicts": ([dict(zip("xy", cut(*ends), strict=True)) for ends in CUTS], by_key),
    "list of dataclasses": ([Batch(*cut(*ends)) for ends in CUTS], by_name),
    "list of objects": (
        [SimpleNamespace(x=x, y=y, note="b") for x, y in (cut(*ends) for ends in CUTS)],
        by_name,
    ),
    "list with a number": (
        [{"x": X[:25], "y": Y[:25], "step": 0}, {"x": X[25:], "y": Y[25:], "step": 1}],
        by_key,
    ),
    "list(loader)": (list(DataLoader(Rows(), batch_size=16)), by_key),
    "as before": ([X, Y], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", BATCHES)
def test_every_make_of_batch_gives_the_same_model(case):
    data, functions = BATCHES[case]
    reference = idm.from_torch(network(), (X, Y), idm.Categorical(), l2=0.5)
    model = idm.from_torch(network(), data, idm.Categorical(), l2=0.5, **functions)
    theta, v = reference.theta, rng.normal(size=(reference.d, 40))
    np.testing.assert_allclose(model.rows.terms(theta), reference.rows.terms(theta), rtol=1e-12)
    for block in (v, v[:, 0]):
        for curvature in ("ggn", "hessian"):
            mine, theirs = (m.information(theta, block, curvature) for m in (model, reference))
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-10)
    for mine, theirs in zip(
        whitened_rows(model, theta, v), whitened_rows(reference, theta, v), strict=False
    ):
        rows = min(len(mine.rows), len(theirs.rows))
        np.testing.assert_allclose(mine.rows[:rows], theirs.rows[:rows], atol=1e-9)


@pytest.mark.parametrize("case", ["dict of tensors", "loader of dicts", "list of dataclasses"])
def test_targets_are_drawn_whatever_a_batch_is(case):
    data, functions = BATCHES[case]
    reference = idm.from_torch(network(), (X, Y), idm.Categorical(), l2=0.5)
    model = idm.from_torch(network(), data, idm.Categorical(), l2=0.5, **functions)
    for _ in range(2):
        model, reference = (redraw(m, np.random.default_rng(1)) for m in (model, reference))
        np.testing.assert_allclose(
            model.rows.terms(model.theta), reference.rows.terms(model.theta), rtol=1e-12
        )


def test_batches_of_different_lengths_are_padded_by_nobody():
    """Sequences of 4 and of 6 tokens, one sequence one observation, against a dense reference."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(5, 3), nn.Tanh(), nn.Linear(3, 5)).double()
    short, long = torch.randint(0, 5, (6, 4)), torch.randint(0, 5, (5, 6))
    labels = lambda b: torch.where(b["ids"] == 0, -100, b["ids"])
    model = idm.from_torch(
        net, [{"ids": short}, {"ids": long}], idm.Categorical(ignore_index=-100), l2=0.5,
        outputs=lambda m, b: m(b["ids"]), targets=labels,
    )  # fmt: skip
    assert model.n == 11
    tokens = torch.cat([short.ravel(), long.ravel()])
    tokens = tokens[tokens != 0]
    flat = idm.from_torch(net, (tokens, tokens), idm.Categorical(), l2=0.5)
    eye = np.eye(model.d)
    for curvature in ("ggn", "hessian"):
        mine, theirs = (m.information(m.theta, eye, curvature) for m in (model, flat))
        np.testing.assert_allclose(mine, theirs, atol=1e-10)
    np.testing.assert_allclose(model.score(model.theta), flat.score(flat.theta), atol=1e-10)
    with pytest.raises(idm.UnsupportedModelError, match="different shapes"):
        redraw(model, np.random.default_rng(0))


def test_no_way_to_the_targets_is_an_error_that_names_them():
    with pytest.raises(
        idm.UnsupportedModelError, match=r"outputs\(module, batch\).*targets\(batch"
    ):
        idm.from_torch(network(), {"x": X, "y": Y}, idm.Categorical())
    with pytest.raises(TypeError, match="leave them out"):
        idm.from_torch(network(), (X, Y), lambda m, b: -m(b[0]).sum(1), targets=lambda b: b[1])
    with pytest.raises(TypeError, match="outputs is a str"):
        idm.from_torch(network(), (X, Y), idm.Categorical(), outputs="logits")
    with pytest.raises(ValueError, match="targets are a list"):
        idm.from_torch(network(), (X, Y), idm.Categorical(), targets=lambda b: [1, 2])
    with pytest.raises(TypeError, match="list of examples"):
        idm.from_torch(network(), [(X[0], 1), (X[1], 2)], idm.Categorical())


def test_outputs_of_many_numbers_take_columns_not_rows():
    torch.manual_seed(0)
    net = nn.Linear(2, 40).double()
    x, y = torch.randn(9, 2).double(), torch.randint(0, 40, (9,))
    model = idm.from_torch(net, (x, y), idm.Categorical(), l2=0.5, parameters="weight")
    few = idm.from_torch(
        net, (x[:, None], y[:, None]), idm.Categorical(), l2=0.5, parameters="bias"
    )
    for m in (model, few):
        A = m.information(m.theta, np.eye(m.d), "ggn")
        H = m.information(m.theta, np.eye(m.d), "hessian")  # the same: linear outputs
        np.testing.assert_allclose(A, H, atol=1e-10)


# Wrappers


def ddp(net):
    if not torch.distributed.is_available():
        pytest.skip("torch without torch.distributed")
    wrapped = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
    nn.Module.__init__(wrapped)  # without a group of processes
    wrapped.module = net
    return wrapped


def compiled_inside(net):
    net.head = torch.compile(net.head)
    return net


WRAPPERS = {
    "compile": torch.compile,
    "DataParallel": nn.DataParallel,
    "DistributedDataParallel": ddp,
    "both": lambda net: torch.compile(nn.DataParallel(net)),
    "a compiled part": compiled_inside,
}


@pytest.mark.slow
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("part", [None, "head"])
def test_wrappers_are_taken_off(wrapper, part):
    reference = idm.from_torch(network(), (X, Y), idm.Categorical(), l2=0.5, parameters=part)
    wrapped = WRAPPERS[wrapper](network())
    model = idm.from_torch(wrapped, (X, Y), idm.Categorical(), l2=0.5, parameters=part)
    assert model.names == reference.names
    np.testing.assert_array_equal(model.theta, reference.theta)
    v = np.eye(model.d)
    mine, theirs = (m.information(m.theta, v, "ggn") for m in (model, reference))
    np.testing.assert_allclose(mine, theirs, atol=1e-12)
    assert type(model.module) is Network


def test_a_sharded_module_is_refused_with_the_way_out():
    class FSDPModule(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            return self.inner(x)

    with pytest.raises(idm.UnsupportedModelError, match="full_state_dict=True"):
        idm.from_torch(nn.Sequential(FSDPModule()), (X, Y), idm.Categorical())


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("part", [None, "head"])
def test_half_precision_is_converted(half, part, monkeypatch):
    with monkeypatch.context() as many:
        many.setattr("implicit_delta.models.torch.module.MOST_PROMOTED", 2)
        with pytest.raises(idm.UnsupportedModelError, match=r"Give `dtype=torch\.float32`"):
            idm.from_torch(network(half), (X, Y), idm.Categorical())
    model = idm.from_torch(
        network(half), (X.to(half), Y), idm.Categorical(), l2=0.5, parameters=part
    )
    assert model.facts.precision.dtype == "float64"
    lifted = network(half).double()
    same = idm.from_torch(
        lifted, (X.to(half).double(), Y), idm.Categorical(), l2=0.5, parameters=part
    )
    mine, theirs = (m.information(m.theta, np.eye(m.d), "ggn") for m in (model, same))
    np.testing.assert_allclose(mine, theirs, atol=1e-12)
    with pytest.raises(ValueError, match=r"torch\.float32 or torch\.float64"):
        idm.from_torch(network(half), (X, Y), idm.Categorical(), dtype=half)


def test_sparse_embeddings_are_dense_here():
    words = torch.arange(5).repeat(4)
    models = []
    for sparse in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Embedding(5, 2, sparse=sparse), nn.Linear(2, 5)).double()
        models.append(idm.from_torch(net, (words, words), idm.Categorical(), l2=0.5))
        assert net[0].sparse is sparse
    for curvature in ("ggn", "hessian"):
        A, B = (m.information(m.theta, np.eye(m.d), curvature) for m in models)
        np.testing.assert_allclose(A, B, atol=1e-12)


class SparseByHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(5, 5, dtype=torch.float64))

    def forward(self, x):
        return nn.functional.embedding(x, self.weight, sparse=True)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return slope * (1 - x.tanh() ** 2)


class OnceNet(Network):
    def forward(self, x):
        return self.head(Once.apply(self.body(x)))


def inference_tensor():
    with torch.inference_mode():
        return torch.ones(3, 3, dtype=torch.float64)


KEPT = inference_tensor()
WORDS = torch.arange(5).repeat(4)
REASONS = {
    "sparse by hand": (SparseByHand, (WORDS, WORDS), "sparse gradients"),
    "once differentiable": (OnceNet, (X, Y), "once_differentiable"),
}


@pytest.mark.parametrize("case", REASONS)
def test_the_real_reason_is_given(case):
    make, data, reason = REASONS[case]
    with pytest.raises(idm.UnsupportedModelError, match=reason):
        idm.from_torch(make().double(), data, idm.Categorical())


class Calls(nn.Module):
    """A function of a (4, 3) weight and the inputs, with a linear layer behind it."""

    def __init__(self, function, width=3):
        super().__init__()
        self.function, self.head = function, nn.Linear(width, 1)
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x):
        return self.head(self.function(x, self.weight))


BAGS = torch.randint(0, 4, (30, 2), generator=torch.Generator().manual_seed(0))
ROWS = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
F = nn.functional
NO_DERIVATIVE = {
    "bag": (lambda x, w: F.embedding_bag(x, w), 3, BAGS, "EmbeddingBag"),
    "bag, sum": (lambda x, w: F.embedding_bag(x, w, mode="sum"), 3, BAGS, "EmbeddingBag"),
    "bag, max": (lambda x, w: F.embedding_bag(x, w, mode="max"), 3, BAGS, "EmbeddingBag"),
    "bag, padding": (lambda x, w: F.embedding_bag(x, w, padding_idx=0), 3, BAGS, "EmbeddingBag"),
    "bag, offsets": (
        lambda x, w: F.embedding_bag(x.flatten(), w, torch.arange(0, x.numel(), 2)),
        3, BAGS, "EmbeddingBag",
    ),
    "cdist, p=1": (lambda x, w: torch.cdist(x, w.to(x.dtype), p=1.0), 4, ROWS, "torch.cdist"),
    "cdist, p=3": (lambda x, w: torch.cdist(x, w.to(x.dtype), p=3.0), 4, ROWS, "torch.cdist"),
    "pdist": (
        lambda x, w: torch.stack([F.pdist(row + w[:2]) for row in x]), 1, ROWS, "_pdist_backward"
    ),
    "segments": (
        lambda x, w: torch.segment_reduce(
            x @ w.T, "mean", lengths=torch.ones(len(x), dtype=torch.long)
        ),
        4, ROWS, "_segment_reduce_backward",
    ),
    "igamma": (
        lambda x, w: torch.igamma(F.softplus(x @ w.T), torch.ones_like(x[:, :1])),
        4, ROWS, "igamma",
    ),
    "max_norm": (lambda x, w: F.embedding(x, w, max_norm=0.1).mean(1), 3, BAGS, "max_norm"),
}  # fmt: skip


@pytest.mark.parametrize("likelihood", [idm.Gaussian(1.0), "a function"])
@pytest.mark.parametrize("case", NO_DERIVATIVE)
def test_an_operation_without_a_derivative_is_refused(case, likelihood):
    function, width, x, reason = NO_DERIVATIVE[case]
    if likelihood == "a function":
        likelihood = lambda module, batch: -(module(batch[0]) - batch[1]).square().sum(1)
    net = Calls(function, width).double()
    with pytest.raises(idm.UnsupportedModelError, match=reason):
        idm.polish(idm.from_torch(net, (x, ROWS[:, :1]), likelihood, l2=1.0))


REWRITTEN = {
    "bag": (lambda x, w: F.embedding(x, w).mean(1), 3, BAGS),
    "cdist, p=1": (lambda x, w: (x[:, None] - w).abs().sum(-1), 4, ROWS),
    "cdist, p=2": (lambda x, w: torch.cdist(x, w.to(x.dtype)), 4, ROWS),
}


@pytest.mark.parametrize("case", REWRITTEN)
def test_what_the_refusal_advises_has_curvature(case):
    function, width, x = REWRITTEN[case]
    net = Calls(function, width).double()
    model = idm.from_torch(net, (x, ROWS[:, :1]), idm.Gaussian(1.0), l2=1.0)
    assert np.all(np.linalg.eigvalsh(model.information(model.theta, np.eye(model.d), "ggn")) > 0)
    if case in NO_DERIVATIVE:
        w = torch.randn(4, 3).double()
        x = x if x is BAGS else x.double()
        torch.testing.assert_close(function(x, w), NO_DERIVATIVE[case][0](x, w))


def test_once_differentiable_functions_before_fixed_parameters_are_no_obstacle():
    torch.manual_seed(0)
    once = OnceNet().double()
    model = idm.from_torch(once, (X, Y), idm.Categorical(), l2=0.5, parameters="head")
    same = idm.from_torch(network(), (X, Y), idm.Categorical(), l2=0.5, parameters="head")
    mine, theirs = (m.information(m.theta, np.eye(m.d)) for m in (model, same))
    np.testing.assert_allclose(mine, theirs, atol=1e-12)


def test_inference_mode_changes_nothing():
    reference = idm.from_torch(network(), (X, Y), idm.Categorical(), l2=0.5)
    with torch.inference_mode():
        x, net = X.clone(), network()
        net.register_buffer("scale", torch.ones(3))
        inside = idm.from_torch(net, (x, Y), idm.Categorical(), l2=0.5)
        A = inside.information(inside.theta, np.eye(inside.d))
    outside = idm.from_torch(net, (x, Y), idm.Categorical(), l2=0.5, parameters="head")
    np.testing.assert_allclose(A, reference.information(inside.theta, np.eye(inside.d)), atol=1e-12)
    assert np.all(np.isfinite(outside.information(outside.theta, np.eye(outside.d))))
    with torch.inference_mode():
        G = inside.jacobian(psi, inside.theta)
    np.testing.assert_allclose(G, reference.jacobian(psi, inside.theta), atol=1e-12)


def test_psi_with_an_inference_tensor_gets_the_reason():
    model = idm.from_torch(network(), (X, Y), idm.Categorical())
    with pytest.raises(idm.EvaluationError, match="inference_mode"):
        idm.infer(model, lambda m: m(KEPT).sum(), strict=False)


def test_a_model_with_an_inference_tensor_gets_the_reason():
    outputs = lambda m, b: m(b[0]) + m.body(KEPT).sum()
    with pytest.raises(idm.UnsupportedModelError, match="inference_mode"):
        idm.from_torch(network(), (X, Y), idm.Categorical(), outputs=outputs)


LOSSES = {
    "cross entropy": lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1], reduction="none"),
    "squares": lambda m, b: (m(b[0])[:, 0] - b[1]) ** 2,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_with_the_wrong_sign_is_recognized(loss):
    with pytest.raises(ValueError, match="minus the loss"):
        idm.from_torch(network(), (X, Y), LOSSES[loss])
    idm.from_torch(network(), (X, Y), lambda m, b: -LOSSES[loss](m, b))


def test_a_density_may_be_large():
    """Positive terms of a narrow density are no losses."""
    line = nn.Linear(3, 1).double()
    y = line(X).detach()[:, 0] + 0.01 * torch.as_tensor(rng.normal(size=40))
    narrow = lambda m, b: torch.distributions.Normal(m(b[0])[:, 0], 0.01).log_prob(b[1])
    assert idm.from_torch(line, (X, y), narrow).rows.terms(
        np.append(line.weight.detach().numpy(), line.bias.item())
    ).mean() > 0  # fmt: skip


def test_the_model_prints_short_and_is_pickled():
    weights = list(np.linspace(1, 2, 3))
    likelihood = idm.Categorical(ignore_index=-100, class_weights=weights)
    model = idm.from_torch(network(), (X, Y), likelihood, l2=0.5, parameters="head")
    assert len(repr(model)) < 150
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.rows.terms(model.theta), model.rows.terms(model.theta))
    assert repr(idm.Categorical()) == "Categorical()"
    assert repr(idm.Categorical(-100)) == "Categorical(ignore_index=-100)"


def test_class_weights_warn_unless_robust():
    likelihood = idm.Categorical(class_weights=[1.0, 5.0, 2.0])
    model = idm.polish(idm.from_torch(network(), (X, Y), likelihood, l2=2.0))
    with pytest.warns(idm.DispersionWarning, match="class_weights"):
        idm.infer(model, psi, GGN)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        idm.infer(model, psi, GGN, robust=True)
    assert not any(issubclass(w.category, idm.DispersionWarning) for w in found)


class LowRank(nn.Module):
    def __init__(self, linear, rank):
        super().__init__()
        self.linear = linear
        self.lora_A = nn.Parameter(torch.randn(rank, linear.in_features, dtype=torch.float64))
        self.lora_B = nn.Parameter(torch.randn(linear.out_features, rank, dtype=torch.float64))

    def forward(self, x):
        return self.linear(x) + x @ self.lora_A.T @ self.lora_B.T


def test_an_adapter_equals_the_pseudo_inverse():
    """Without a penalty: a rotation of its factors changes nothing, and psi does not see it."""
    torch.manual_seed(0)
    x = torch.randn(200, 5, dtype=torch.float64)
    adapted = LowRank(nn.Linear(5, 4, dtype=torch.float64), 2)
    y = (adapted(x) + 0.5 * torch.randn(200, 4, dtype=torch.float64)).detach()
    model = idm.from_torch(adapted, (x, y), idm.Gaussian(0.25), parameters="lora_*")
    model = idm.polish(model)
    psi = lambda m: m(x[:3]).sum(1)
    estimate = idm.infer(model, psi, GGN)
    A = model.information(model.theta, np.eye(model.d), "ggn")
    G = model.jacobian(psi, model.theta)
    np.testing.assert_allclose(
        estimate.covariance, G @ np.linalg.pinv(A, rcond=1e-10) @ G.T, rtol=1e-4
    )
    assert np.linalg.matrix_rank(A, tol=1e-8 * np.linalg.norm(A)) == model.d - 4

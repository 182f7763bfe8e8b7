"""Transformers from a configuration against dense algebra: BERT, GPT-2, their heads, LoRA."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import numpy as np
import torch
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

import implicit_delta as idm

pytestmark = pytest.mark.slow
N, LENGTH, WORDS = 24, 5, 8


def data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, WORDS, (N, LENGTH), generator=generator)
    mask = (torch.arange(LENGTH) < torch.randint(2, LENGTH + 1, (N, 1), generator=generator)).long()
    return ids * mask, mask


def bert(attention="sdpa"):
    ids, mask = data()
    config = BertConfig(
        vocab_size=WORDS, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_labels=3,
        intermediate_size=16, max_position_embeddings=LENGTH, attn_implementation=attention,
    )  # fmt: skip
    batch = {"input_ids": ids, "attention_mask": mask, "labels": ids[:, 0] % 3}
    outputs = lambda m, b: m(b["input_ids"], attention_mask=b["attention_mask"]).logits
    return BertForSequenceClassification(config), batch, outputs, lambda b: b["labels"]


def gpt2(attention="sdpa"):
    ids, mask = data()
    config = GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=2, bos_token_id=0,
        eos_token_id=0, attn_implementation=attention,
    )  # fmt: skip
    batch = {"input_ids": ids, "attention_mask": mask, "labels": torch.where(mask > 0, ids, -100)}
    outputs = lambda m, b: m(b["input_ids"], attention_mask=b["attention_mask"]).logits[:, :-1]
    return GPT2LMHeadModel(config), batch, outputs, lambda b: b["labels"][:, 1:]


def fitted(make, parameters=None, l2=1.0, adapt=None, **options):
    torch.manual_seed(0)
    net, batch, outputs, targets = make(**options)
    net = net.double() if adapt is None else adapt(net).double()
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(outputs(net, batch).movedim(-1, 1), targets(batch)).backward()
        optimizer.step()
    model = idm.from_torch(
        net.eval(), batch, idm.Categorical(ignore_index=-100), outputs=outputs, targets=targets,
        parameters=parameters, l2=l2,
    )  # fmt: skip
    kept = targets(batch) != -100  # nothing is known of what is written after the end
    probability = lambda m: outputs(m, batch).softmax(-1)[..., 0][kept].mean()
    return model, net, batch, outputs, targets, probability


def dense(model, net, batch, outputs, targets, psi):
    """Gauss-Newton matrix and gradient of psi, by one backward pass of the module per output."""
    chosen = {name.partition("[")[0] for name in model.names}
    leaves = [p for name, p in net.named_parameters() if name in chosen]

    def slope(value):
        found = torch.autograd.grad(value, leaves, retain_graph=True, materialize_grads=True)
        return torch.cat([g.ravel() for g in found])

    logits = outputs(net, batch).flatten(0, -2)
    kept = targets(batch).flatten() != -100
    total = torch.zeros(model.d, model.d, dtype=torch.float64)
    for row in logits[kept]:
        J, p = torch.stack([slope(z) for z in row]), row.softmax(-1).detach()
        total += J.T @ (torch.diag(p) - torch.outer(p, p)) @ J
    return total.numpy() + model.penalty.floor * np.eye(model.d), slope(psi(net)).numpy()


CASES = {
    "bert": (bert, {}),
    "bert, eager": (bert, {"attention": "eager"}),
    "bert, head": (bert, {"parameters": "classifier"}),
    "gpt2": (gpt2, {}),
    "gpt2, eager": (gpt2, {"attention": "eager"}),
    "gpt2, last norm": (gpt2, {"parameters": "transformer.ln_f"}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_all_parameters_and_the_head_equal_a_dense_reference(case):
    make, options = CASES[case]
    model, *rest = fitted(make, **options)
    assert model.d < 2000
    A, g = dense(model, *rest)
    expected = np.sqrt(g @ np.linalg.solve(A, g))
    for solver in (idm.cholesky, idm.conjugate_gradient(rtol=1e-5)):
        method = idm.Infinitesimal(solver, "ggn")
        found = idm.infer(model, rest[-1], method, strict=False).standard_error
        assert found == pytest.approx(expected, rel=1e-5)
    v = np.random.default_rng(0).normal(size=(model.d, 3))
    np.testing.assert_allclose(
        model.information(model.theta, v, "ggn"), A @ v, rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("make", [bert, gpt2])
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_lora_equals_the_pseudo_inverse(make):
    peft = pytest.importorskip("peft")
    layers = ["query", "value"] if make is bert else ["c_attn"]

    def adapt(net):
        config = peft.LoraConfig(r=2, target_modules=layers, fan_in_fan_out=make is gpt2)
        return peft.get_peft_model(net, config)

    model, *rest = fitted(make, l2=0.0, adapt=adapt)
    A, g = dense(model, *rest)
    sizes = np.linalg.eigvalsh(A)
    assert np.sum(sizes < 1e-13 * sizes[-1]) >= 4  # rotations of the two factors, 2 x 2 each
    expected = np.sqrt(g @ np.linalg.pinv(A, rcond=1e-13, hermitian=True) @ g)
    est = idm.infer(model, rest[-1], idm.Infinitesimal(curvature="ggn"), strict=False)
    assert est.standard_error == pytest.approx(expected, rel=1e-4)
    assert est.diagnostics.notes["flat_directions"] >= 4

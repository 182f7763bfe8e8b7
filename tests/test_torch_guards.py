"""What `from_torch` refuses or warns about, and what it leaves alone."""

import pytest

pytest.importorskip("torch")

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import implicit_delta as idm

torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)
X = torch.randn(30, 2, generator=g)
Y = torch.randint(0, 2, (30,), generator=g).float()


def net(*layers):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 3), *layers, nn.Tanh(), nn.Linear(3, 1))


def terms(module, batch):
    x, y = batch
    return -F.binary_cross_entropy_with_logits(module(x).squeeze(1), y, reduction="none")


def fitted(module=None, data=(X, Y), likelihood=None, **options):
    module = net().double() if module is None else module
    likelihood = idm.Bernoulli() if likelihood is None else likelihood
    return idm.from_torch(module, data, likelihood, **{"l2": 1.0, **options})


def test_the_users_module_and_random_numbers_are_left_alone():
    module = net(nn.Dropout(0.5), nn.BatchNorm1d(3)).train()
    module[0].weight.grad = torch.ones(3, 2)
    state, mode = copy.deepcopy(module.state_dict()), [m.training for m in module.modules()]
    gradient, random = module[0].weight.grad.clone(), torch.random.get_rng_state()
    loader = DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True)
    for data in ((X, Y), loader):
        model = idm.polish(fitted(module, data, dtype=torch.float64))
        idm.infer(model, lambda m: m(X.double()).mean(), robust=True)
    assert [m.training for m in module.modules()] == mode
    assert all(torch.equal(state[name], value) for name, value in module.state_dict().items())
    assert torch.equal(module[0].weight.grad, gradient)
    assert module[2].weight.grad is None
    assert torch.equal(torch.random.get_rng_state(), random)


def test_psi_cannot_leave_the_private_copy_in_training_mode():
    model = fitted(net(nn.Dropout(0.5)).double())
    before = model.rows.terms(model.theta)
    model.evaluate(lambda m: m.train()(X.double()).mean(), model.theta)
    np.testing.assert_array_equal(model.rows.terms(model.theta), before)


class AlwaysDropout(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.linear, self.p = nn.Linear(2, 1), p

    def forward(self, x):
        return F.dropout(self.linear(x), self.p)


def test_dropout_that_ignores_eval_mode_is_refused():
    with pytest.raises(idm.UnsupportedModelError, match=r"two different.*training=self\.training"):
        fitted(AlwaysDropout(0.5))


def test_a_little_randomness_is_warned_about():
    def noisy(module, batch):
        return terms(module, batch) * (1 + 1e-5 * torch.rand(()))

    with pytest.warns(idm.NotDeterministicWarning, match="two different"):
        fitted(likelihood=noisy)


class Augmented(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return X[i] + 0.1 * torch.randn(2), Y[i]


def test_random_augmentation_is_refused():
    with pytest.raises(idm.UnsupportedModelError, match="augmentation"):
        fitted(data=Augmented())


def test_training_mode_within_the_log_likelihood_is_refused():
    with pytest.raises(idm.UnsupportedModelError, match=r"module\.train\(\)"):
        fitted(likelihood=lambda module, batch: terms(module.train(), batch))


def test_drop_last_is_warned_about():
    loader = DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True, drop_last=True)
    with pytest.warns(idm.NotDeterministicWarning, match="drops the last 6 of 30"):
        assert fitted(data=loader).n == 30


def test_a_sampler_that_weights_rows_is_refused():
    weighted = WeightedRandomSampler(torch.ones(30), 30)
    repeated = RandomSampler(range(30), replacement=True)
    for sampler in (weighted, repeated):
        with pytest.raises(idm.UnsupportedModelError, match="Sampler"):
            fitted(data=DataLoader(TensorDataset(X, Y), sampler=sampler))


def test_a_subset_is_read_in_order():
    loader = DataLoader(TensorDataset(X, Y), sampler=SubsetRandomSampler([7, 3, 20]), batch_size=2)
    model, expected = fitted(data=loader), fitted(data=(X[[3, 7, 20]], Y[[3, 7, 20]]))
    np.testing.assert_array_equal(model.rows.terms(model.theta), expected.rows.terms(model.theta))


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(X, Y, strict=True)


def test_a_stream_is_read_again_and_again():
    model = fitted(data=DataLoader(Stream(), batch_size=7))
    expected = fitted()
    np.testing.assert_allclose(model.score(model.theta), expected.score(model.theta))
    once = fitted(data=Stream())
    np.testing.assert_allclose(once.score(model.theta), expected.score(model.theta))


@pytest.mark.parametrize(
    ("loglik", "match"),
    [
        (lambda m, b: terms(m, b).mean(), r"one number.*sqrt\(n\)"),
        (lambda m, b: terms(m, b)[:, None], r"shape \(16, 1\)"),
        (lambda m, b: terms(m, b).detach().numpy(), "ndarray"),
        (lambda m, b: terms(m, b) / 0.0, "not finite"),
    ],
)
def test_a_log_likelihood_returns_one_finite_term_per_row(loglik, match):
    with pytest.raises(ValueError, match=match):
        fitted(likelihood=loglik)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"module": "net"}, TypeError, "torch.nn.Module"),
        ({"l2": -1.0}, ValueError, "l2"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"data": (X, Y[:-1])}, ValueError, "different lengths"),
        ({"data": (X[:0], Y[:0])}, ValueError, "no rows"),
        ({"data": 3}, TypeError, "DataLoader"),
        ({"data": (X,)}, idm.UnsupportedModelError, r"\(x, y\)"),
        ({"data": {"x": X, "y": Y}}, idm.UnsupportedModelError, "loglik"),
        ({"likelihood": nn.BCELoss()}, TypeError, "not their mean"),
        ({"likelihood": "bernoulli"}, TypeError, "Bernoulli"),
        ({"weights": np.ones(3)}, ValueError, "30 observations"),
        ({"penalty": lambda m: 1.0}, ValueError, "penalty"),
        ({"penalty": lambda m: m[0].weight}, ValueError, "one number"),
        ({"data": (X.where(X < 1, float("nan")), Y)}, ValueError, "row.*missing values"),
    ],
)
def test_bad_arguments_are_explained(change, error, match):
    with pytest.raises(error, match=match):
        fitted(**change)


def test_modules_that_cannot_be_used_are_explained(monkeypatch):
    frozen = net().double().requires_grad_(False)
    with pytest.raises(idm.UnsupportedModelError, match="no trainable parameters"):
        fitted(frozen)
    with monkeypatch.context() as many:
        many.setattr("implicit_delta.models.torch.module.MOST_PROMOTED", 2)
        with pytest.raises(idm.UnsupportedModelError, match=r"dtype=torch\.float32"):
            fitted(net().to(torch.bfloat16))
    with pytest.raises(idm.UnsupportedModelError, match="call it once"):
        fitted(nn.LazyLinear(1))
    broken = net().double()
    with torch.no_grad():
        broken[0].bias[0] = float("inf")
    with pytest.raises(ValueError, match=r"0\.bias has entries"):
        fitted(broken)
    caching = net().double()
    caching.last = caching(X.double())
    with pytest.raises(idm.UnsupportedModelError, match="cannot be copied"):
        fitted(caching)


def test_a_module_that_returns_no_tensor_needs_a_log_likelihood():
    class Dictionary(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 1).double()

        def forward(self, x):
            return {"logits": self.linear(x)}

    with pytest.raises(idm.UnsupportedModelError, match=r"dict.*loglik"):
        fitted(Dictionary())


@pytest.mark.parametrize(
    "psi",
    [
        lambda m: float(m(X.double()).mean()),
        lambda m: (m(X.double()) > 0).double().mean(),
        lambda m: m(X.double()).mean().detach(),
        lambda m: m(X.double()).numpy().mean(),
    ],
    ids=["float", "comparison", "detached", "numpy"],
)
def test_a_psi_without_a_gradient_is_told_where_to_go(psi):
    model = idm.polish(fitted())
    with pytest.raises(idm.EvaluationError, match=r"Simulation\(\)"):
        idm.infer(model, psi)


def test_psi_on_another_device_or_in_another_type_is_explained():
    model = idm.polish(fitted())
    with pytest.raises(idm.EvaluationError, match="float64"):
        idm.infer(model, lambda m: m(X).mean())
    with pytest.raises(idm.EvaluationError, match="on cpu"):
        idm.infer(model, lambda m: (m(X.double()) * torch.ones(30, 1, device="meta")).mean())


def test_psi_may_differentiate_the_module_itself():
    """The average slope of the output in its inputs."""
    model = idm.polish(fitted())

    def slope(module):
        x = X.double().requires_grad_()
        (gradient,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        return gradient.mean(0)

    jacobian = model.jacobian(slope, model.theta)
    step = 1e-5 * np.random.default_rng(0).normal(size=model.d)
    ahead, behind = (model.evaluate(slope, model.theta + s * step) for s in (1, -1))
    np.testing.assert_allclose(jacobian @ step, (ahead - behind) / 2, rtol=1e-6)


def test_psi_may_return_a_list_of_numbers():
    model = idm.polish(fitted())
    x = X.double()
    listed = idm.infer(model, lambda m: [m(x)[0, 0], m(x)[1, 0]])
    stacked = idm.infer(model, lambda m: m(x)[:2, 0])
    np.testing.assert_array_equal(listed.covariance, stacked.covariance)


def test_a_log_likelihood_of_ones_own_has_no_gauss_newton_curvature():
    model = fitted(likelihood=terms)
    with pytest.raises(idm.UnsupportedModelError, match="Bernoulli"):
        idm.infer(model, lambda m: m(X.double()).mean(), idm.Infinitesimal(curvature="ggn"))


def test_a_saddle_is_refused_with_its_curvature_and_advice():
    """At zero weights the product of two layers has no slope and curves both ways."""
    module = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 1, bias=False)).double()
    for p in module.parameters():
        nn.init.zeros_(p)
    model = fitted(module, l2=0.0)
    psi = lambda m: m[0].weight[0, 0]
    with pytest.raises(idm.NotAMaximumError, match=r'l2.*curvature="ggn"') as caught:
        idm.infer(model, psi)
    assert caught.value.curvature <= 0


def test_sizes_of_batches_do_not_change_the_result():
    reference = fitted()
    v = np.random.default_rng(0).normal(size=(reference.d, 2))
    for batch_size in (1, 7, 30, 100):
        model = fitted(batch_size=batch_size)
        np.testing.assert_allclose(
            model.information(model.theta, v), reference.information(model.theta, v), rtol=1e-9
        )
        np.testing.assert_allclose(
            model.terms_along(model.theta, v), reference.terms_along(model.theta, v), rtol=1e-9
        )


def test_graphs_that_are_not_kept_give_the_same_products():
    from dataclasses import replace

    kept = fitted(batch_size=7)
    streamed = replace(kept, rows=replace(kept.rows, keep_graphs=False))
    v = np.random.default_rng(0).normal(size=(kept.d, 2))
    for curvature in ("hessian", "ggn"):
        a, b = (m.information(m.theta, v, curvature) for m in (kept, streamed))
        np.testing.assert_array_equal(a, b)


def test_gradients_turned_off_by_the_caller_do_not_matter():
    model = fitted(l2=1.0)
    psi = lambda m: torch.stack([p.sum() for p in m.parameters()])
    with torch.no_grad():
        np.testing.assert_array_equal(
            model.jacobian(psi, model.theta), fitted(l2=1.0).jacobian(psi, model.theta)
        )
    assert np.any(model.jacobian(psi, model.theta))

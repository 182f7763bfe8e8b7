"""One implementation of each likelihood, in three array libraries."""

import pytest

pytest.importorskip("jax")
pytest.importorskip("torch")

import contextlib

import jax
import numpy as np
import torch
from scipy import stats

import implicit_delta as idm
from implicit_delta.models.jax.module import x64

rng = np.random.default_rng(7)
N = 6

CASES = {
    "gaussian": (idm.Gaussian(1.7), rng.normal(size=N), rng.normal(size=N)),
    "gaussian, two outputs": (idm.Gaussian(0.3), rng.normal(size=(N, 2)), rng.normal(size=(N, 2))),
    "bernoulli": (idm.Bernoulli(), 3 * rng.normal(size=N), rng.integers(0, 2, N)),
    "categorical": (idm.Categorical(), 2 * rng.normal(size=(N, 4)), rng.integers(0, 4, N)),
    "sequence": (idm.Categorical(), rng.normal(size=(N, 3, 4)), rng.integers(0, 4, (N, 3))),
    "soft labels": (idm.Categorical(), rng.normal(size=(N, 3)), rng.dirichlet([1, 1, 1], N)),
    "poisson": (idm.Poisson(), rng.normal(size=N), rng.poisson(2.0, N)),
}
PADDED = np.where(rng.random((N, 3)) < 0.3, -100, rng.integers(0, 4, (N, 3)))
WEIGHTS = [0.5, 2.0, 1.0, 3.0]
OPTIONS = {
    "ignored": (idm.Categorical(ignore_index=-100), rng.normal(size=(N, 3, 4)), PADDED),
    "a class ignored": (idm.Categorical(ignore_index=0), *CASES["categorical"][1:]),
    "smoothed": (idm.Categorical(label_smoothing=0.1), *CASES["categorical"][1:]),
    "weighted": (idm.Categorical(class_weights=WEIGHTS), *CASES["categorical"][1:]),
    "all": (idm.Categorical(-100, 0.2, WEIGHTS), rng.normal(size=(N, 3, 4)), PADDED),
    "soft and smoothed": (
        idm.Categorical(label_smoothing=0.2, class_weights=WEIGHTS),
        rng.normal(size=(N, 4)),
        rng.dirichlet([1, 1, 1, 1], N),
    ),
    "labels that sum to other numbers": (
        idm.Categorical(),
        rng.normal(size=(N, 4)),
        rng.random((N, 4)),
    ),
}


def as_numpy(array):
    return np.asarray(array)


def as_torch(array):
    return torch.as_tensor(array)


def as_jax(array):
    return jax.numpy.asarray(array)


@pytest.fixture(params=[as_numpy, as_torch, as_jax], ids=["numpy", "torch", "jax"])
def convert(request):
    with contextlib.ExitStack() as stack:
        if request.param is as_jax:
            stack.enter_context(x64(True))
        yield request.param


def expected_terms(name, outputs, targets):
    """The same densities from scipy, up to a constant for the Gaussian."""
    if name.startswith("gaussian"):
        variance = 1.7 if outputs.ndim == 1 else 0.3
        full = stats.norm.logpdf(targets, outputs, variance**0.5) + np.log(2 * np.pi * variance) / 2
        return full.reshape(N, -1).sum(1)
    if name == "bernoulli":
        return stats.bernoulli.logpmf(targets, 1 / (1 + np.exp(-outputs)))
    if name == "poisson":
        return stats.poisson.logpmf(targets, np.exp(outputs))
    p = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
    if name == "soft labels":
        return (targets * np.log(p)).sum(-1)
    return np.log(np.take_along_axis(p, targets[..., None], -1)).reshape(N, -1).sum(1)


@pytest.mark.parametrize("name", CASES)
def test_terms_are_log_densities(name, convert):
    likelihood, outputs, targets = CASES[name]
    terms = likelihood.terms(convert(outputs), convert(targets))
    np.testing.assert_allclose(
        np.asarray(terms), expected_terms(name, outputs, targets), rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("name", CASES)
def test_slope_is_the_derivative_of_the_terms(name, convert):
    likelihood, outputs, targets = CASES[name]
    f = torch.tensor(outputs, requires_grad=True)
    (expected,) = torch.autograd.grad(likelihood.terms(f, torch.as_tensor(targets)).sum(), f)
    slope = likelihood.slope(convert(outputs), convert(targets))
    assert slope.shape == outputs.shape
    np.testing.assert_allclose(np.asarray(slope), expected.numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_curvature_is_minus_the_second_derivative_of_the_terms(name):
    likelihood, outputs, targets = CASES[name]
    f, y = torch.as_tensor(outputs), torch.as_tensor(targets)
    hessian = torch.autograd.functional.hessian(lambda f: likelihood.terms(f, y).sum(), f)
    hessian = -hessian.reshape(f.numel(), f.numel()).numpy()
    basis = np.eye(f.numel()).reshape(-1, *outputs.shape)
    products = likelihood.curvature(outputs)(basis).reshape(f.numel(), -1)
    np.testing.assert_allclose(products, hessian, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_root_squared_is_the_curvature(name, convert):
    likelihood, outputs, _ = CASES[name]
    basis = convert(np.eye(outputs.size).reshape(-1, *outputs.shape))
    root = np.asarray(likelihood.root(convert(outputs))(basis)).reshape(outputs.size, -1)
    curvature = np.asarray(likelihood.curvature(convert(outputs))(basis)).reshape(outputs.size, -1)
    np.testing.assert_allclose(root @ root.T, curvature, atol=1e-13)


@pytest.mark.parametrize("likelihood", [idm.Gaussian(1.0), idm.Bernoulli(), idm.Poisson()])
def test_a_column_of_outputs_is_not_broadcast_against_a_row_of_targets(likelihood):
    f, y = np.array([0.3, -1.0, 2.0]), np.array([1.0, 0.0, 1.0])
    terms = likelihood.terms(f[:, None], y)
    np.testing.assert_array_equal(terms, likelihood.terms(f, y))
    np.testing.assert_array_equal(likelihood.slope(f[:, None], y), likelihood.slope(f, y)[:, None])


@pytest.mark.parametrize("logit", [0.0, 40.0, -40.0, 800.0, -800.0])
def test_bernoulli_is_stable_at_any_logit(logit):
    f = torch.tensor([logit], dtype=torch.float64)
    y = torch.ones(1)
    value = idm.Bernoulli().terms(f, y)[0]
    second = torch.autograd.functional.hessian(lambda f: idm.Bernoulli().terms(f, y)[0], f)
    p = stats.logistic.cdf(logit)
    assert value == pytest.approx(stats.logistic.logcdf(logit), rel=1e-12, abs=1e-16)
    assert float(second) == pytest.approx(-p * (1 - p), abs=1e-12)


def test_gaussian_variance_must_be_a_rule_or_positive():
    for variance in ("ml", 0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="variance must be"):
            idm.Gaussian(variance)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "targets", "match"),
    [
        (idm.Gaussian(), np.zeros((3, 2)), np.zeros(3), "as many outputs as targets"),
        (idm.Gaussian(), np.zeros(3), np.array([1.0, np.nan, 0.0]), "NaN"),
        (idm.Bernoulli(), np.zeros(3), np.array([-1, 1, 1]), "0 or 1.*from -1 to 1"),
        (idm.Categorical(), np.zeros((3, 1)), np.zeros(3, int), "use Bernoulli"),
        (idm.Categorical(), np.zeros((3, 2)), np.array([0, 1, 2]), "2 logits.*from 0 to 2"),
        (idm.Categorical(), np.zeros((3, 2)), np.array([0, 1, -100]), "2 logits.*from -100"),
        (idm.Categorical(), np.zeros((3, 2)), np.zeros(3), "integer type"),
        (idm.Categorical(), np.zeros((3, 4, 5)), np.zeros((3, 5), int), "last axis"),
        (idm.Poisson(), np.zeros(3), np.array([-1, 0, 1]), "counts"),
    ],
)
def test_targets_that_do_not_fit_are_refused(likelihood, outputs, targets, match):
    with pytest.raises(ValueError, match=match):
        likelihood.check(outputs, targets)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_those_of_cross_entropy(name, convert):
    likelihood, outputs, targets = OPTIONS[name]
    given = {} if likelihood.ignore_index is None else {"ignore_index": likelihood.ignore_index}
    weights = likelihood.class_weights
    loss = torch.nn.functional.cross_entropy(
        torch.as_tensor(np.moveaxis(outputs, -1, 1)), torch.as_tensor(targets), reduction="none",
        weight=None if weights is None else torch.tensor(weights, dtype=torch.float64),
        label_smoothing=likelihood.label_smoothing, **given,
    )  # fmt: skip
    terms = likelihood.terms(convert(outputs), convert(targets))
    np.testing.assert_allclose(np.asarray(terms), -loss.numpy().reshape(N, -1).sum(1), rtol=1e-12)


@pytest.mark.parametrize("name", OPTIONS)
def test_derivatives_with_options_belong_together(name, convert):
    likelihood, outputs, targets = OPTIONS[name]
    size = outputs[0].size
    terms = lambda f: likelihood.terms(f.reshape(outputs.shape), torch.as_tensor(targets)).sum()
    f = torch.tensor(outputs).ravel()
    slope = torch.func.grad(terms)(f).numpy().reshape(N, size)
    H = -torch.autograd.functional.hessian(terms, f).numpy().reshape(N, size, N, size)
    blocks = np.array([H[i, :, i] for i in range(N)])
    mine = likelihood.slope(convert(outputs), convert(targets))
    np.testing.assert_allclose(np.asarray(mine).reshape(N, size), slope, atol=1e-12)
    basis = np.eye(size).reshape(size, 1, *outputs.shape[1:]) + np.zeros(outputs.shape)
    mass = likelihood.mass(convert(outputs), convert(targets))
    curved = mass * likelihood.curvature(convert(outputs))(convert(basis))
    rooted = mass**0.5 * likelihood.root(convert(outputs))(convert(basis))
    curved, rooted = (np.asarray(a).reshape(size, N, size).swapaxes(0, 1) for a in (curved, rooted))
    np.testing.assert_allclose(curved, blocks, atol=1e-12)
    np.testing.assert_allclose(rooted @ rooted.swapaxes(1, 2), blocks, atol=1e-12)
    residual = np.asarray(likelihood.residual(outputs, targets)).reshape(N, size, 1)
    np.testing.assert_allclose((rooted @ residual)[..., 0], slope, atol=1e-12)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("count", [1, 4])
def test_draws_with_options_have_no_slope_on_average(name, count):
    """The outputs are the fit to what is drawn; what is ignored remains so."""
    likelihood, outputs, targets = OPTIONS[name]
    draws = 4000
    share = likelihood.label_smoothing
    p = np.asarray(likelihood.class_weights or 1.0) * (
        (1 - share) * np.array([0.4, 0.3, 0.2, 0.1]) + share / 4
    )
    if likelihood.ignore_index == 0:
        return  # drawn like any other class
    f = np.broadcast_to(np.log(p), outputs.shape)
    seeded = np.random.default_rng(0)
    total, squares = np.zeros(outputs.shape), np.zeros(outputs.shape)
    for _ in range(draws // 100):
        many = np.tile(f, (100,) + (1,) * (f.ndim - 1))
        old = np.tile(targets, (100,) + (1,) * (targets.ndim - 1))
        drawn = likelihood.redraw(many, old, seeded, np.full(len(many), float(count)))
        slope = likelihood.slope(many, drawn).reshape(100, *outputs.shape)
        total += slope.sum(0)
        squares += (slope**2).sum(0)
    error = np.sqrt(squares) / draws
    assert np.all(abs(total / draws) <= 5 * error + 1e-12)
    if likelihood.ignore_index is not None:
        assert np.all(total[targets == likelihood.ignore_index] == 0)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"label_smoothing": 1.0}, "below 1"),
        ({"label_smoothing": -0.1}, "at least 0"),
        ({"class_weights": [1.0, 0.0]}, "positive"),
        ({"class_weights": [1.0, np.nan]}, "positive"),
        ({"class_weights": []}, "positive"),
        ({"ignore_index": 0.5}, "integer"),
    ],
)
def test_options_without_a_meaning_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        idm.Categorical(**options)


def test_options_are_checked_against_the_data():
    with pytest.raises(ValueError, match="2 class_weights for 3"):
        idm.Categorical(class_weights=[1, 2]).check(np.zeros((2, 3)), np.zeros(2, int))
    with pytest.raises(ValueError, match=r"from -100.*ignore_index=-100"):
        idm.Categorical().check(np.zeros((2, 3)), np.array([-100, 1]))
    idm.Categorical(-100).check(np.zeros((2, 3)), np.array([-100, 1]))
    with pytest.raises(ValueError, match="from -1 to"):
        idm.Categorical(-100).check(np.zeros((2, 3)), np.array([-1, 1]))

"""Sums in another order, of another batch size or processor, raise no alarm; violations do."""

from itertools import pairwise

import numpy as np
import pytest

import implicit_delta as idm

torch = pytest.importorskip("torch")
from torch import nn

from implicit_delta.core.rounding import eps_of, is_same, is_symmetric, sum_rounding


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [10, 1000, 100_000])
@pytest.mark.parametrize("sign", ["positive", "mixed", "cancelling", "wide"])
def test_sums_in_another_order_differ_by_less(dtype, length, sign):
    """One by one, in pairs, in blocks, backwards: summation that is worse than any library's."""
    rng = np.random.default_rng(length)
    limit = sum_rounding(length, float(np.finfo(dtype).eps))
    for _ in range(5):
        summands = {
            "positive": rng.random(length),
            "mixed": rng.normal(size=length),
            "cancelling": np.repeat(rng.normal(size=length // 2), 2)
            * np.tile([1, -1], length // 2),
            "wide": rng.normal(size=length) * np.exp(3 * rng.normal(size=length)),
        }[sign].astype(dtype)
        orders = summands, summands[::-1], rng.permutation(summands)
        sums = [np.cumsum(one, dtype=dtype)[-1] for one in orders]
        sums += [np.sum(one) for one in orders]
        sums += [np.sum(np.add.reduceat(one, np.arange(0, length, 7))) for one in orders]
        assert np.ptp(np.array(sums, dtype=np.float64)) <= limit * np.sum(abs(summands))


def test_precision_of_an_array():
    values = np.random.default_rng(0).normal(size=5)
    single = np.finfo(np.float32).eps
    assert eps_of(values) == np.finfo(np.float64).eps
    assert eps_of(values.astype(np.float32)) == single
    assert eps_of(values.astype(np.float32).astype(np.float64)) == single
    assert eps_of(np.arange(5.0)) == np.finfo(np.float64).eps
    assert eps_of(np.arange(5, dtype=np.float32)) == single


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1.0, 1e9])
def test_comparisons_do_not_depend_on_units(unit):
    rng = np.random.default_rng(0)
    units = unit ** rng.random(6)
    V = np.cov(rng.normal(size=(6, 30))) * np.outer(units, units)
    wrong = V.copy()
    wrong[0, 1] += 1e-3 * np.sqrt(V[0, 0] * V[1, 1])
    assert is_symmetric(V)
    assert not is_symmetric(wrong)
    assert is_symmetric(V.astype(np.float32))
    assert is_same(V, V * (1 + 1e-9), 1e-8)
    assert not is_same(V, V * (1 + 1e-7), 1e-8)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_a_covariance_that_is_not_symmetric_is_refused_in_any_unit(unit):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(40, 3))
    y = unit * z
    model = idm.from_loglik(
        lambda theta: -0.5 * np.sum(((y - theta) / unit) ** 2, axis=1), theta=y.mean(0)
    )
    V = unit**2 * (np.eye(3) + 0.5 * np.eye(3, k=1) + 0.4 * np.eye(3, k=-1)) / 40
    more = lambda theta: z - [theta[0], theta[1], theta[0] + theta[1]]
    for entry in (
        lambda V: idm.infer(model, lambda theta: theta, covariance=V),
        lambda V: idm.Estimate(np.zeros(3), V, names=["a", "b", "c"], method="theirs"),
        lambda V: idm.from_equations(more, start=[0.0, 0.0], weighting=V),
    ):
        entry((V + V.T) / 2)
        with pytest.raises(ValueError, match="symmetric"):
            entry(V)


class Sequences(nn.Module):
    def __init__(self, body, width):
        super().__init__()
        self.body, self.last = body, nn.Linear(width, 1)

    def forward(self, x):
        out = self.body(x)
        out = out[0] if isinstance(out, tuple) else out
        return self.last(out.mean(1))


def layers(width, depth, activation, inputs=5):
    sizes = [inputs] + depth * [width]
    return nn.Sequential(
        *(part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), activation())),
        nn.Linear(width, 1),
    )


def images(channels):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * channels, 1),
    )


def encoder(width):
    block = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True)
    return Sequences(nn.Sequential(nn.Linear(3, width), nn.TransformerEncoder(block, 2)), width)


MODULES = {
    "linear": (lambda: nn.Linear(2000, 1), (2000,)),
    "width 8": (lambda: layers(8, 2, nn.Tanh), (5,)),
    "width 64": (lambda: layers(64, 2, nn.ReLU), (5,)),
    "width 512": (lambda: layers(512, 3, nn.SiLU), (5,)),
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(5, 99), nn.LayerNorm(99), layers(7, 1, nn.ELU, 99)),
        (5,),
    ),
    "images": (lambda: images(8), (1, 9, 9)),
    "lstm": (lambda: Sequences(nn.LSTM(3, 32, batch_first=True), 32), (11, 3)),
    "gru": (lambda: Sequences(nn.GRU(3, 17, batch_first=True), 17), (11, 3)),
    "words": (lambda: Sequences(nn.Embedding(500, 31), 31), 500),
    "encoder": (lambda: encoder(32), (7, 3)),
}


def data_for(shape, n, dtype, seed):
    rng = torch.Generator().manual_seed(seed)
    if isinstance(shape, int):
        return torch.randint(0, shape, (n, 13), generator=rng)
    return torch.randn(n, *shape, generator=rng).to(dtype)


def gaussian_terms(module, batch):
    x, y = batch
    return -0.5 * (module(x)[:, 0] - y) ** 2


@pytest.mark.parametrize("place", [0.0, 1e5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODULES)
def test_ordinary_modules_raise_no_alarm(name, dtype, place):
    """In odd and even batches; a response far from zero leaves terms that are small differences."""
    make, shape = MODULES[name]
    for seed, n in enumerate((5, 16, 33, 50)):
        torch.manual_seed(seed)
        module = make().to(dtype).eval()
        x = data_for(shape, n, dtype, seed)
        with torch.no_grad():
            *_, bias = module.parameters()
            bias += place
            y = module(x)[:, 0] + torch.randn(n, dtype=dtype)
        idm.from_torch(module, (x, y), gaussian_terms, dtype=dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_wide_module_raises_no_alarm(dtype):
    module = layers(2048, 2, nn.ReLU).to(dtype)
    x = data_for((5,), 33, dtype, 0)
    idm.from_torch(module, (x, module(x)[:, 0].detach() + 1), gaussian_terms, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [3, 30, 300])
def test_columns_far_from_zero_raise_no_alarm(columns, dtype):
    """The year and an intercept: products of 1e3 times the outputs cancel."""
    for seed, n in enumerate((7, 40, 101)):
        torch.manual_seed(seed)
        x = 2000 + 5 * torch.randn(n, columns, dtype=torch.float64)
        module = nn.Linear(columns, 1).double()
        with torch.no_grad():
            module.bias -= module(x).mean()
            y = module(x)[:, 0] + torch.randn(n, dtype=torch.float64)
        idm.from_torch(module.to(dtype), (x.to(dtype), y.to(dtype)), gaussian_terms, dtype=dtype)


def test_terms_that_are_nothing_but_rounding_raise_no_alarm():
    """An exact fit: all residuals are those of rounding, and so are their differences."""
    for seed in range(5):
        torch.manual_seed(seed)
        module = layers(64, 2, nn.Tanh).double()
        x = data_for((5,), 31, torch.float64, seed)
        idm.from_torch(module, (x, module(x)[:, 0].detach()), gaussian_terms)


def centered(size):
    def terms(module, batch):
        x, y = batch
        return gaussian_terms(module, (x + size * (x - x.mean(0)), y))

    return terms


def normalized(size):
    def terms(module, batch):
        x, y = batch
        f = module(x)[:, 0]
        return -0.5 * (f * (1 + size * torch.tanh(f.std())) - y) ** 2

    return terms


def random(size):
    def terms(module, batch):
        return gaussian_terms(module, batch) * (1 + size * torch.randn(len(batch[1])))

    return terms


def contrastive(size):
    def terms(module, batch):
        f = module(batch[0])[:, 0]
        return gaussian_terms(module, batch) - size * torch.log_softmax(f, 0)

    return terms


@pytest.mark.parametrize("width", [8, 512])
@pytest.mark.parametrize("size", [1e-6, 1.0])
@pytest.mark.parametrize("violation", [centered, normalized, random, contrastive])
def test_violations_are_still_seen(violation, size, width):
    torch.manual_seed(0)
    module = layers(width, 2, nn.Tanh).double()
    x = data_for((5,), 33, torch.float64, 0)
    y = module(x)[:, 0].detach() + torch.randn(33, dtype=torch.float64)
    with pytest.raises((idm.UnsupportedModelError, idm.NotDeterministicWarning)):
        idm.from_torch(module, (x, y), violation(size))


@pytest.mark.parametrize("violation", [centered, normalized, random, contrastive])
def test_violations_are_seen_in_single_precision(violation):
    torch.manual_seed(0)
    module = layers(512, 2, nn.Tanh)
    x = data_for((5,), 33, torch.float32, 0)
    y = module(x)[:, 0].detach() + torch.randn(33)
    with pytest.raises((idm.UnsupportedModelError, idm.NotDeterministicWarning)):
        idm.from_torch(module, (x, y), violation(1e-2), dtype=torch.float32)


def checked(inside):
    """A log-likelihood that raises where its parameters are not allowed."""

    def terms(module, batch):
        if not inside(module.weight.detach()[0]):
            raise AssertionError("not defined there")
        return gaussian_terms(module, batch)

    return terms


EDGES = {
    "a probability of almost 1": lambda w: w[0] <= 1,
    "an ordered pair": lambda w: w[1] > 0.9999999 * w[2],
    "a sum of 1": lambda w: abs(w[3:].sum() - 1) < 1e-5,
    "a correlation": lambda w: w[0] ** 2 <= 1,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EDGES)
def test_parameters_at_an_edge_of_their_domain_raise_no_alarm(name, dtype):
    """Nothing need be defined beside the fitted parameters."""
    module = nn.Linear(5, 1).to(dtype)
    module.weight.data[0] = torch.tensor([1.0, 0.3, 0.3, 0.25, 0.75])
    for seed, n in enumerate((16, 33)):
        x = data_for((5,), n, dtype, seed)
        y = module(x)[:, 0].detach() + torch.randn(n, dtype=dtype)
        idm.from_torch(module, (x, y), checked(EDGES[name]), dtype=dtype)


WEIGHTS = np.random.default_rng(0).normal(size=30_000)
ANEW = np.random.default_rng()  # another order at each call, as threads have it


def shuffled_sum(summands):
    parts = np.add.reduceat(ANEW.permutation(summands), np.arange(0, summands.size, 999))
    return np.sum(parts)


IN_ANOTHER_ORDER = {
    "mean": lambda v: shuffled_sum(np.exp(WEIGHTS * v[0]) * v[1]) / WEIGHTS.size,
    "log of a sum": lambda v: np.log(shuffled_sum(np.exp(WEIGHTS * v[0] + v[1]))),
    "two": lambda v: np.array([shuffled_sum((WEIGHTS + 9 + v[0]) ** 2), v[1]]),
    "of either sign": lambda v: shuffled_sum(WEIGHTS * v[0]) + v[1],
    "tiny unit": lambda v: 1e-30 * shuffled_sum((WEIGHTS + 9 + v[0]) ** 2),
    "huge unit": lambda v: 1e30 * shuffled_sum((WEIGHTS + 9 + v[0]) ** 2),
}


@pytest.mark.parametrize("name", IN_ANOTHER_ORDER)
def test_functions_that_sum_in_another_order_are_not_called_random(name):
    f = IN_ANOTHER_ORDER[name]
    V = np.diag([0.01, 0.04])
    est = idm.Estimate(np.array([0.3, 1.2]), V, names=["a", "b"], method="theirs")
    found = [est.apply(f) for _ in range(5)]
    for other in found[1:]:  # differences over steps of a standard error magnify it
        np.testing.assert_allclose(other.standard_error, found[0].standard_error, rtol=1e-6)


@pytest.mark.parametrize("noise", [1e-9, 1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_random_functions_still_are(noise, unit):
    V, rng = np.diag([0.01, 0.04]), np.random.default_rng(7)  # two draws may be alike by chance
    est = idm.Estimate(np.array([0.3, 1.2]), V, names=["a", "b"], method="theirs")
    with pytest.raises(idm.EvaluationError, match="f is random"):
        est.apply(lambda v: unit * v[0] * (1 + noise * rng.uniform(0.5, 1.5)))

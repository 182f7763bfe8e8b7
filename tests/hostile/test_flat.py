"""Flat directions: no error if psi does not see them, and a refusal that names them if it does."""

import warnings

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.errors import NotAMaximumError
from implicit_delta.linalg.solvers import cholesky, conjugate_gradient

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional

N = 120
RNG = np.random.default_rng(5)
GROUP = RNG.integers(0, 3, N)
SLOPE = RNG.standard_normal(N)
TRAP = np.column_stack([np.ones(N), np.eye(3)[GROUP], SLOPE])  # one dummy too many
FULL = np.column_stack([np.eye(3)[GROUP], SLOPE])
COUNTS = RNG.poisson(np.exp(FULL @ [0.3, -0.2, 0.5, 0.4]))
MEANS = FULL @ [0.3, -0.2, 0.5, 0.4] + 0.7 * RNG.standard_normal(N)
CLUSTERS = np.arange(N) // 4
NAMES = ("const", "a", "b", "c", "slope")


def poisson_fit(X):
    beta = np.zeros(X.shape[1])
    for _ in range(50):
        rate = np.exp(X @ beta)
        beta = beta + np.linalg.lstsq(X.T @ (rate[:, None] * X), X.T @ (COUNTS - rate), 1e-12)[0]
    return beta


def poisson(X, theta=None, **options):
    theta = poisson_fit(X) if theta is None else theta
    return idm.from_loglik(lambda b: COUNTS * (X @ b) - np.exp(X @ b), theta=theta, **options)


def poisson_with_score(X, theta=None):
    return poisson(X, theta, score=lambda b: (COUNTS - np.exp(X @ b))[:, None] * X)


def least_squares(X):
    beta = np.linalg.lstsq(X, MEANS, rcond=None)[0]
    return idm.from_residuals(lambda b: MEANS - X @ b, theta=beta, variance=0.5)


def statsmodels_poisson(X):
    sm = pytest.importorskip("statsmodels.api")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the singular design
        return idm.from_statsmodels(sm.GLM(COUNTS, X, family=sm.families.Poisson()).fit())


def torch_poisson(X):
    module = nn.Linear(X.shape[1], 1, bias=False).double()
    with torch.no_grad():
        module.weight[:] = torch.as_tensor(poisson_fit(X))
    data = (torch.as_tensor(X), torch.as_tensor(COUNTS[:, None]).double())
    return idm.from_torch(module, data, idm.Poisson())


BACKENDS = {
    "numeric": poisson,
    "score": poisson_with_score,
    "residuals": least_squares,
    "statsmodels": statsmodels_poisson,
    "torch": torch_poisson,
}
# What the data determine: weights on (const, a, b, c, slope), and the same without the constant.
ESTIMABLE = {
    "contrast": ([0, -1, 1, 0, 0], [-1, 1, 0, 0]),
    "slope": ([0, 0, 0, 0, 1], [0, 0, 0, 1]),
    "prediction": ([1, 0, 1, 0, 0.7], [0, 1, 0, 0.7]),
    "mean of groups": ([1, 1 / 3, 1 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3, 0]),
}
WAYS = {
    "default": {},
    "conjugate gradients": {"method": idm.Infinitesimal(conjugate_gradient(rtol=1e-6))},
    "robust": {"robust": True},
    "HC1 of clusters": {"robust": "CR1", "clusters": CLUSTERS},
    "influence": {"influence": True},
}


def linear(weights):
    """Return a psi of NumPy parameters, or of a linear module."""

    def psi(model):
        if isinstance(model, nn.Module):
            return model.weight[0] @ torch.as_tensor(weights, dtype=torch.float64)
        return np.asarray(weights, dtype=float) @ model

    return psi


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("question", ESTIMABLE)
@pytest.mark.parametrize("backend", BACKENDS)
def test_estimable_functions_of_a_dummy_trap(backend, question, way):
    long, short = ESTIMABLE[question]
    exact = idm.infer(BACKENDS[backend](FULL), linear(short), **WAYS[way])
    est = idm.infer(BACKENDS[backend](TRAP), linear(long), **WAYS[way])
    assert est.value == pytest.approx(exact.value, rel=1e-6)
    assert est.standard_error == pytest.approx(exact.standard_error, rel=1e-6)
    assert est.diagnostics.drift < 1e-3
    if "conjugate" not in way:
        assert est.diagnostics.notes["flat_directions"] == 1


NOT_ESTIMABLE = {
    "a level": [0, 1, 0, 0, 0],
    "the constant": [1, 0, 0, 0, 0],
    "a contrast and a little of a level": [0, -1, 1 + 1e-6, 0, 0],
    "a slope and a little of a level": [0, 1e-5, 0, 0, 1],
}


@pytest.mark.parametrize("question", NOT_ESTIMABLE)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_the_data_do_not_determine_is_refused(backend, question):
    with pytest.raises(NotAMaximumError, match="redundant"):
        idm.infer(BACKENDS[backend](TRAP), linear(NOT_ESTIMABLE[question]))


def test_one_psi_that_sees_it_is_enough_for_a_refusal():
    psi = lambda b: np.array([b[2] - b[1], b[4], b[3]])
    with pytest.raises(NotAMaximumError, match="redundant"):
        idm.infer(poisson(TRAP), psi)


def test_a_refusal_names_the_parameters():
    pandas = pytest.importorskip("pandas")
    named = poisson(TRAP, names=NAMES)
    with pytest.raises(NotAMaximumError, match=r"parameters const, a, b, c "):
        idm.infer(named, idm.parameters)
    with pytest.raises(NotAMaximumError, match=r"parameters at positions 0, \d, \d "):
        idm.infer(poisson(TRAP), idm.parameters)
    frame = pandas.DataFrame({"x": SLOPE, "twice": 2 * SLOPE, "one": 1.0})
    with pytest.raises(NotAMaximumError, match=r"parameters x, twice "):
        idm.infer(statsmodels_poisson(frame), lambda p: p["x"])


def test_fits_of_redundant_parameters_find_a_maximum():
    started = idm.from_loglik(lambda b: COUNTS * (TRAP @ b) - np.exp(TRAP @ b), start=np.zeros(5))
    est = idm.infer(started, linear([0, -1, 1, 0, 0]))
    exact = idm.infer(poisson(FULL), linear([-1, 1, 0, 0]))
    assert est.value == pytest.approx(exact.value, rel=1e-6)
    assert est.standard_error == pytest.approx(exact.standard_error, rel=1e-6)


def duplicated(gap, trap):
    """A design in which two columns differ by so much of their size, and the exact algebra."""
    other = SLOPE + gap * np.random.default_rng(0).standard_normal(N)
    X = np.column_stack([TRAP if trap else FULL, other])
    beta = np.linalg.lstsq(X, MEANS, rcond=1e-15)[0]
    return X, idm.from_residuals(
        lambda b: MEANS - X @ b, theta=beta, jacobian=lambda b: -X, variance=1.0
    )


def exact_error(X, weights):
    """Solve min |v|^2 with X' v = weights by an SVD of X, which does not square its condition."""
    _, sizes, right = np.linalg.svd(X, full_matrices=False)
    kept = sizes > 1e-13 * sizes[0]
    return np.linalg.norm((right[kept] @ weights) / sizes[kept])


@pytest.mark.parametrize("trap", [False, True])
@pytest.mark.parametrize("gap", [1e-1, 1e-3, 1e-4, 5e-5])
def test_a_parameter_that_is_hardly_identified_is_not_taken_for_flat(gap, trap):
    """The curvature is 2.5e-9 of the rest, beside a direction that is really flat."""
    X, model = duplicated(gap, trap)
    weights = np.eye(X.shape[1])[-1]
    est = idm.infer(model, lambda b: b[-1], idm.Infinitesimal(cholesky, curvature="ggn"))
    assert est.standard_error == pytest.approx(exact_error(X, weights), rel=1e-4)
    assert est.standard_error > 0.05 / gap
    assert est.diagnostics.notes.get("flat_directions", 0) == trap


@pytest.mark.parametrize("trap", [False, True])
@pytest.mark.parametrize("gap", [3e-6, 1e-6, 1e-7, 1e-8])
@pytest.mark.parametrize("last", [1.0, 1e-3])
def test_below_working_precision_psi_is_refused_or_right(gap, trap, last):
    X, model = duplicated(gap, trap)
    weights = np.eye(X.shape[1])[-2] + last * np.eye(X.shape[1])[-1]
    try:
        est = idm.infer(model, lambda b: b[-2] + last * b[-1])
    except NotAMaximumError:
        return
    assert est.standard_error == pytest.approx(exact_error(X, weights), rel=1e-3)


def test_exact_duplicates_leave_their_sum():
    _, model = duplicated(0.0, trap=True)
    est = idm.infer(model, lambda b: b[-2] + b[-1])
    exact = idm.infer(least_squares(FULL), linear([0, 0, 0, 1])).standard_error / np.sqrt(0.5)
    assert est.standard_error == pytest.approx(exact, rel=1e-6)
    assert est.diagnostics.notes["flat_directions"] == 2


UNITS = [1e-9, 1e-3, 1.0, 1e6, 1e9]


@pytest.mark.parametrize("unit", UNITS)
def test_units_do_not_decide_what_is_flat(unit):
    units = np.array([1.0, 1.0, 1.0, 1.0, unit])
    model = poisson_with_score(TRAP * units, poisson_fit(TRAP) / units)
    contrast = idm.infer(model, linear([0, -1, 1, 0, 0]))
    exact = idm.infer(poisson(FULL), linear([-1, 1, 0, 0])).standard_error
    assert contrast.standard_error == pytest.approx(exact, rel=1e-6)
    with pytest.raises(NotAMaximumError, match="redundant"):
        idm.infer(model, linear([0, 1, 0, 0, 0]))


def test_a_parameter_without_any_effect():
    model = idm.from_loglik(lambda b: -((MEANS - b[0]) ** 2) / 2, theta=[MEANS.mean(), 3.0])
    est = idm.infer(model, lambda b: b[0])
    assert est.standard_error == pytest.approx(1 / np.sqrt(N), rel=1e-6)
    assert est.diagnostics.notes["flat_directions"] == 1
    for psi in (lambda b: b[1], lambda b: b[0] + 1e-12 * b[1]):
        with pytest.raises(NotAMaximumError, match=r"flat.*position 1 "):
            idm.infer(model, psi)


FIRST = np.arange(N) == 0
RISING = {
    "alone": lambda b: 0.5 * (b[1] - b[2]) * FIRST,
    "beside a curvature": lambda b: 0.5 * (b[1] - b[2]) * FIRST - (b[1] + b[2]) ** 2,
}


@pytest.mark.parametrize("case", RISING)
def test_a_slope_without_curvature_is_no_maximum(case):
    model = idm.from_loglik(
        lambda b: -((MEANS - b[0]) ** 2) / 2 + RISING[case](b), theta=[MEANS.mean(), 1.0, -1.0]
    )
    with pytest.raises(idm.ImplicitDeltaError, match=r"it still rises|no finite maximum"):
        idm.infer(model, lambda b: b[0])


def test_saddles_are_refused_though_psi_does_not_see_them():
    saddle = idm.from_loglik(lambda b: np.array([-(b[0] ** 2) + 0.01 * b[1] ** 2]), theta=[0, 0])
    with pytest.raises(NotAMaximumError, match="not at a strict maximum"):
        idm.infer(saddle, lambda b: b[0])


@pytest.mark.parametrize("seed", range(6))
def test_a_noisy_hessian_has_flat_directions_of_either_sign(seed):
    """The products are off by 1e-8 of their size, as after a rough numerical derivative."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([TRAP, rng.standard_normal((N, 3))])
    A = X.T @ X
    weights = np.r_[0.0, -1.0, 1.0, np.zeros(5)]
    exact = weights @ np.linalg.pinv(A) @ weights

    def operator(v):
        return A @ v + 1e-8 * np.abs(A) @ (np.abs(v) * rng.standard_normal(v.shape))

    solution = cholesky.solve(operator, weights[:, None])
    assert solution.quadratic[0, 0] == pytest.approx(exact, rel=1e-5)
    assert solution.flat_directions == 1
    with pytest.raises(NotAMaximumError):
        cholesky.solve(operator, np.eye(8)[:, 1:2])


# Networks


def trained(module, inputs, targets, loss):
    optimizer = torch.optim.LBFGS(
        module.parameters(),
        max_iter=2000,
        tolerance_grad=1e-12,
        tolerance_change=0,
        history_size=30,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        value = loss(module(inputs), targets)
        value.backward()
        return value

    for _ in range(3):
        optimizer.step(closure)
    return module


class Adapter(nn.Module):
    """A frozen layer and a product of two small factors (LoRA): B R, R^-1 A is the same."""

    def __init__(self, width=5, outputs=3, rank=2):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
        self.register_buffer("frozen", draw(outputs, width))
        self.A, self.B = nn.Parameter(draw(rank, width)), nn.Parameter(draw(outputs, rank))

    def forward(self, x):
        return x @ (self.frozen + self.B @ self.A).T


class FixedAdapter(nn.Module):
    """The same with the first columns of A set to the identity: no redundant parameter."""

    def __init__(self, adapter):
        super().__init__()
        A, B = adapter.A.detach(), adapter.B.detach()
        rank = len(A)
        self.register_buffer("frozen", adapter.frozen)
        self.register_buffer("identity", torch.eye(rank, dtype=A.dtype))
        self.rest = nn.Parameter(torch.linalg.solve(A[:, :rank], A[:, rank:]).contiguous())
        self.B = nn.Parameter((B @ A[:, :rank]).contiguous())

    def forward(self, x):
        A = torch.cat([self.identity, self.rest], dim=1)
        return x @ (self.frozen + self.B @ A).T


def inputs(width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(N, width, generator=generator, dtype=torch.float64)


def adapted(dtype=torch.float64):
    x, adapter = inputs(5), Adapter()
    noise = inputs(3, seed=1)
    y = x @ (adapter.frozen + Adapter().B.detach() @ (0.5 * adapter.A.detach())).T + 0.5 * noise
    module = trained(adapter, x, y, functional.mse_loss)
    return module.to(dtype), FixedAdapter(module.double()), x, y


def gaussian(module, x, y):
    dtype = next(module.parameters()).dtype
    return idm.from_torch(module, (x.to(dtype), y.to(dtype)), idm.Gaussian(0.25))


def outputs(x, rows=3):
    return lambda module: module(x[:rows].to(next(module.parameters()).dtype)).sum(dim=1)


NETWORK_WAYS = {
    "default": {},
    "ggn": {"method": idm.Infinitesimal(curvature="ggn")},
    "conjugate gradients": {"method": idm.Infinitesimal(conjugate_gradient(rtol=1e-5))},
    "robust": {"robust": True},
    "clusters": {"clusters": CLUSTERS},
}


@pytest.mark.slow
@pytest.mark.parametrize("way", NETWORK_WAYS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_rotations_of_an_adapter(dtype, way):
    module, fixed, x, y = adapted(dtype)
    exact = idm.infer(gaussian(fixed, x, y), outputs(x), **NETWORK_WAYS[way])
    with warnings.catch_warnings():
        if dtype == torch.float32 and "conjugate" in way:
            warnings.filterwarnings("ignore", "The standard error may be too small")
        est = idm.infer(gaussian(module, x, y), outputs(x), **NETWORK_WAYS[way])
    close = 1e-5 if dtype == torch.float64 else 1e-3
    np.testing.assert_allclose(est.standard_error, exact.standard_error, rtol=close)
    if "conjugate" not in way:
        assert est.diagnostics.notes["flat_directions"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_factors_of_an_adapter_are_refused_by_name(dtype):
    module, _, x, y = adapted(dtype)
    with pytest.raises(NotAMaximumError):
        idm.infer(gaussian(module, x, y), lambda m: m.A[0, 0])
    if dtype == torch.float64:
        with pytest.raises(NotAMaximumError, match=r"parameters? [AB]\[\d,\d\]"):
            idm.infer(idm.polish(gaussian(module, x, y)), lambda m: m.A[0, 0])


def test_polish_of_an_adapter_that_stopped_early():
    module, fixed, x, y = adapted()
    exact = idm.infer(gaussian(fixed, x, y), outputs(x))
    with torch.no_grad():
        module.A += 0.01 * torch.randn(module.A.shape, generator=torch.Generator().manual_seed(0))
    with pytest.raises(idm.ImplicitDeltaError):
        idm.infer(gaussian(module, x, y), outputs(x), idm.Infinitesimal())
    est = idm.infer(idm.polish(gaussian(module, x, y)), outputs(x))
    np.testing.assert_allclose(est.value, exact.value, rtol=1e-6)
    np.testing.assert_allclose(est.standard_error, exact.standard_error, rtol=1e-5)
    assert est.diagnostics.drift < 1e-5
    polished = idm.polish(gaussian(module, x, y), outputs(x))
    assert np.all(np.isfinite(polished.moved))


class FixedSoftmax(nn.Module):
    """A linear softmax with the logit of the first class at zero."""

    def __init__(self, layer):
        super().__init__()
        self.weight = nn.Parameter((layer.weight[1:] - layer.weight[:1]).detach().clone())
        self.bias = nn.Parameter((layer.bias[1:] - layer.bias[:1]).detach().clone())

    def forward(self, x):
        return functional.pad(functional.linear(x, self.weight, self.bias), (1, 0))


@pytest.mark.parametrize("way", NETWORK_WAYS)
def test_softmax_with_one_column_too_many(way):
    x = inputs(3, seed=2)
    y = torch.as_tensor(GROUP)
    torch.manual_seed(0)
    layer = trained(nn.Linear(3, 3).double(), x, y, functional.cross_entropy)
    predict = lambda module: module(x[:3]).softmax(dim=1)[:, 1]
    model, fixed = (
        idm.from_torch(module, (x, y), idm.Categorical()) for module in (layer, FixedSoftmax(layer))
    )
    est, exact = (idm.infer(m, predict, **NETWORK_WAYS[way]) for m in (model, fixed))
    np.testing.assert_allclose(est.standard_error, exact.standard_error, rtol=1e-5)
    with pytest.raises(NotAMaximumError, match=r"bias\[0\]"):
        idm.infer(model, lambda module: module.bias[0])


class Embedded(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.table, self.layer = nn.Embedding(rows, 1), nn.Linear(1, 1, bias=False)

    def forward(self, x):
        return self.table(x[:, 0].long()) + self.layer(x[:, 1:])


@pytest.mark.parametrize("way", NETWORK_WAYS)
def test_unused_rows_of_an_embedding(way):
    x = torch.as_tensor(np.column_stack([GROUP, SLOPE]))
    y = torch.as_tensor(MEANS[:, None])
    torch.manual_seed(0)
    large, small = Embedded(40).double(), Embedded(3).double()
    trained(large, x, y, functional.mse_loss)
    with torch.no_grad():
        small.table.weight.copy_(large.table.weight[:3])
        small.layer.weight.copy_(large.layer.weight)
    est, exact = (
        idm.infer(gaussian(m, x, y), outputs(x), **NETWORK_WAYS[way]) for m in (large, small)
    )
    np.testing.assert_allclose(est.standard_error, exact.standard_error, rtol=1e-5)
    if "conjugate" not in way:
        assert est.diagnostics.notes["flat_directions"] == 37
    with pytest.raises(NotAMaximumError, match=r"parameter table.weight\[17,0\] "):
        idm.infer(gaussian(large, x, y), lambda m: m.table.weight[17, 0])


class Bump(nn.Module):
    """One tanh unit, its weight with or without a normalized direction."""

    def __init__(self, normalized):
        super().__init__()
        layer = nn.Linear(2, 1)
        self.layer = nn.utils.parametrizations.weight_norm(layer) if normalized else layer
        self.height = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.height * torch.tanh(self.layer(x))


@pytest.mark.parametrize("way", NETWORK_WAYS)
def test_the_scale_of_a_normalized_weight(way):
    x = inputs(2, seed=3)
    y = torch.tanh(1.5 * x[:, :1] - 0.5) * 2 + 0.3 * inputs(1, seed=4)
    torch.manual_seed(1)
    normal, plain = Bump(True).double(), Bump(False).double()
    trained(normal, x, y, functional.mse_loss)
    with torch.no_grad():
        plain.layer.weight.copy_(normal.layer.weight)
        plain.layer.bias.copy_(normal.layer.bias)
        plain.height.copy_(normal.height)
    est, exact = (
        idm.infer(gaussian(m, x, y), outputs(x), **NETWORK_WAYS[way]) for m in (normal, plain)
    )
    np.testing.assert_allclose(est.standard_error, exact.standard_error, rtol=1e-5)


class Ramp(nn.Module):
    """ReLU units; the heights of the living ones may be fixed, as they only scale the rest."""

    def __init__(self, units, fixed):
        super().__init__()
        self.layer = nn.Linear(2, units)
        self.height = nn.Parameter(torch.ones(units), requires_grad=not fixed)

    def forward(self, x):
        return torch.relu(self.layer(x)) @ self.height[:, None]


@pytest.mark.parametrize("way", NETWORK_WAYS)
def test_dead_units(way):
    x = inputs(2, seed=6)
    y = torch.relu(x[:, :1] + 3) + 0.3 * inputs(1, seed=7)
    dead, alive = Ramp(3, fixed=False).double(), Ramp(1, fixed=True).double()
    with torch.no_grad():
        for module in (dead, alive):
            module.layer.weight[0] = torch.tensor([1.0, 0.0])
            module.layer.bias[0] = 3.0
        dead.layer.bias[1:] = -50.0
    trained(alive, x, y, functional.mse_loss)
    with torch.no_grad():
        dead.layer.weight[0], dead.layer.bias[0] = alive.layer.weight[0], alive.layer.bias[0]
    est, exact = (
        idm.infer(gaussian(m, x, y), outputs(x), **NETWORK_WAYS[way]) for m in (dead, alive)
    )
    np.testing.assert_allclose(est.standard_error, exact.standard_error, rtol=1e-5)
    if "conjugate" not in way:
        assert est.diagnostics.notes["flat_directions"] == 9  # two units of four, and a scale


@pytest.mark.slow
def test_rotations_in_jax():
    jax = pytest.importorskip("jax")
    module, fixed, x, y = adapted()
    exact = idm.infer(gaussian(fixed, x, y), outputs(x))
    jnp, frozen = jax.numpy, module.frozen.numpy()
    params = {"A": module.A.detach().numpy(), "B": module.B.detach().numpy()}
    apply = lambda p, x: x @ (frozen + p["B"] @ p["A"]).T
    model = idm.from_jax(params, (x.numpy(), y.numpy()), idm.Gaussian(0.25), apply=apply)
    est = idm.infer(model, lambda p: jnp.sum(apply(p, x[:3].numpy()), axis=1))
    np.testing.assert_allclose(est.standard_error, exact.standard_error, rtol=1e-4)
    assert est.diagnostics.notes["flat_directions"] == 4


@pytest.mark.slow
def test_a_large_dummy_trap_goes_through_conjugate_gradients():
    """Answered, or refused by name: the doubt of conjugate gradients ends in a factorization."""
    d, rng = 1100, np.random.default_rng(0)
    X = np.column_stack([np.ones(2000), np.eye(3)[rng.integers(0, 3, 2000)]])
    X = np.column_stack([X, rng.standard_normal((2000, d - 4))])
    y = X @ rng.standard_normal(d) / 30 + rng.standard_normal(2000)
    module = nn.Linear(d, 1, bias=False).double()
    with torch.no_grad():
        module.weight[:] = torch.as_tensor(np.linalg.lstsq(X, y, rcond=None)[0])
    data = (torch.as_tensor(X), torch.as_tensor(y[:, None]))
    model = idm.from_torch(module, data, idm.Gaussian(1.0))
    inverse = np.linalg.pinv(X.T @ X)
    contrast = np.r_[0.0, -1.0, 1.0, np.zeros(d - 3)]
    est = idm.infer(model, linear(contrast))
    assert "conjugate_gradient" in est.method
    assert est.standard_error == pytest.approx(np.sqrt(contrast @ inverse @ contrast), rel=1e-3)
    with pytest.raises(NotAMaximumError, match="redundant"):
        idm.infer(model, linear(contrast + 1e-6 * np.eye(d)[2]))


@pytest.mark.parametrize("spelled", ["traced", "opaque"])
@pytest.mark.parametrize("damping", [1e-3, 1e-1])
@pytest.mark.parametrize("weights", [(20.0, 9.0), (22.0, 10.0), (30.0, 14.0)])
def test_saturated_unit_that_psi_sees_beyond_the_data(spelled, damping, weights):
    """All rows together hardly move one tanh unit: their own step would be 1e7 to 1e16 long."""
    x = np.linspace(0.5, 2.0, 40)
    y = 1 + 0.3 * x + 0.1 * RNG.standard_normal(x.size)

    def curve(th, x):  # (a, b) of the first unit, which is 1 on all rows; slope and level
        return th[2] * np.tanh(th[0] * x + th[1]) + th[3] * x

    first = np.array(weights)
    rest = np.linalg.lstsq(np.column_stack([np.tanh(first[0] * x + first[1]), x]), y, None)[0]
    theta = np.concatenate([first, rest])

    def jacobian(th, x):
        inside = np.tanh(th[0] * x + th[1])
        slope = th[2] * (1 - inside**2)
        return np.column_stack([slope * x, slope, inside, x])

    at = np.array([-0.47])  # where the unit is about to turn
    psi = lambda th: curve(th, at)[0]
    if spelled == "opaque":
        psi = lambda th: float(curve(np.asarray(th, dtype=object).astype(float), at)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
        model = idm.from_residuals(
            lambda th: y - curve(th, x), theta, jacobian=lambda th: -jacobian(th, x)
        )
        method = idm.Infinitesimal(curvature="ggn", damping=damping)
        found = idm.infer(model, psi, method, strict=False)
    rows, g = jacobian(theta, x), jacobian(theta, at)[0]
    noise = np.mean((y - curve(theta, x)) ** 2)
    variance = g @ np.linalg.solve(rows.T @ rows / noise + damping * np.eye(4), g)
    assert found.standard_error == pytest.approx(variance**0.5, rel=1e-5)

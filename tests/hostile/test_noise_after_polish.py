"""Noise variance where a climb has ended, and of all parts: never that of a start or of one part.

The truth is that of ordinary least squares, or of one fit in one process.
"""

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.models.redraws import reweight

N = 60
rng = np.random.default_rng(8)
x = rng.normal(size=N)
X = np.column_stack([np.ones(N), x])
y = X @ [1.0, 2.0] + rng.normal(size=N)
w = rng.integers(1, 4, size=N).astype(float)
s = rng.uniform(0.5, 2.0, size=N)
EVERY = slice(0, N)
CUTS = {
    "1": [EVERY],
    "2": [slice(0, 30), slice(30, N)],
    "3": [slice(0, 20), slice(20, 40), slice(40, N)],
    "60": [slice(i, i + 1) for i in range(N)],
    "one row first": [slice(0, 1), slice(1, N)],
    "as many rows as parameters first": [slice(0, 2), slice(2, N)],
    "one row last": [slice(0, N - 1), slice(N - 1, N)],
}
STARTS = [(0.0, 0.0), (1.0, 1.0), (10.0, 10.0)]
RULES = {
    "default": {},
    "mle": {"variance": "mle"},
    "unbiased": {"variance": "unbiased"},
    "number": {"variance": 2.0},
    "weights": {"weights": w},
    "precisions": {"weights": w, "weight_kind": "precision"},
    "sigma": {"sigma": s},
    "known sigma": {"sigma": s, "variance": 1.0},
    "l2": {"l2": 5.0},
    "l2 unbiased": {"l2": 5.0, "variance": "unbiased"},
    "strong l2": {"l2": 50.0},
}


def slope(b):
    return b[1]


def residuals_of(rows=EVERY, jacobian=True, **options):
    """Least squares of some rows; options of rows are cut."""
    own = {key: v[rows] if np.size(v) == N else v for key, v in options.items()}
    own |= {"jacobian": lambda b: -X[rows]} if jacobian else {}
    return idm.from_residuals(lambda b: y[rows] - X[rows] @ b, **own)


def answer(model):
    estimate = idm.infer(model, slope)
    return estimate.value, estimate.standard_error, model.facts.df


def least_squares(variance="unbiased", weights=None):
    """Closed form: estimate, standard error, degrees of freedom."""
    own = np.ones(N) if weights is None else weights
    inverse = np.linalg.inv(X.T @ (own[:, None] * X))
    b = inverse @ X.T @ (own * y)
    count = own.sum()
    squares = own @ (y - X @ b) ** 2
    s2 = squares / (count - 2 if variance == "unbiased" else count)
    return b[1], np.sqrt(s2 * inverse[1, 1]), count - 2


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("jacobian", [True, False])
@pytest.mark.parametrize("variance", ["unbiased", "mle"])
def test_polished_residuals_are_least_squares(start, jacobian, variance):
    model = idm.polish(residuals_of(jacobian=jacobian, theta=start, variance=variance))
    assert answer(model) == pytest.approx(least_squares(variance), rel=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("jacobian", [True, False])
def test_polish_ends_where_a_fit_ends(rule, jacobian):
    options = RULES[rule]
    model = idm.polish(residuals_of(jacobian=jacobian, theta=(0.0, 0.0), **options))
    fit = residuals_of(start=(0.0, 0.0), **options)
    assert answer(model) == pytest.approx(answer(fit), rel=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("cut", CUTS)
def test_polish_over_parts_ends_where_a_fit_ends(rule, cut):
    options = RULES[rule]
    model = idm.from_shards(lambda rows: residuals_of(rows, theta=(0.0, 0.0), **options), CUTS[cut])
    fit = residuals_of(start=(0.0, 0.0), **options)
    assert answer(idm.polish(model)) == pytest.approx(answer(fit), rel=1e-6)


@pytest.mark.parametrize("variance", ["unbiased", "mle"])
@pytest.mark.parametrize("cut", CUTS)
def test_variance_of_parts_is_pooled(variance, cut):
    b = np.linalg.lstsq(X, y, rcond=None)[0]
    model = idm.from_shards(lambda rows: residuals_of(rows, theta=b, variance=variance), CUTS[cut])
    assert answer(model) == pytest.approx(least_squares(variance), rel=1e-6)


@pytest.mark.parametrize("variance", ["unbiased", "mle"])
@pytest.mark.parametrize("place", [0, 1])
def test_part_that_is_fitted_exactly_counts(variance, place):
    level = np.array([1.0, 1.0, 1.0, 0.0, 2.0, 0.5, 1.5])
    parts = [slice(0, 3), slice(3, 7)]

    def build(rows):
        return idm.from_residuals(lambda m: level[rows] - m[0], theta=[1.0], variance=variance)

    model = idm.from_shards(build, parts if place == 0 else parts[::-1])
    s2 = level.var(ddof=variance == "unbiased")
    found = idm.infer(model, lambda m: m[0]).standard_error
    assert found == pytest.approx(np.sqrt(s2 / level.size), rel=1e-6)


def test_all_parts_fitted_exactly_are_refused():
    with pytest.raises(ValueError, match="residuals are zero"):
        idm.from_shards(lambda r: idm.from_residuals(lambda m: np.ones(3) * m[0], [0.0]), [0, 1])


def test_fewer_rows_than_parameters_in_all_parts_are_refused():
    with pytest.raises(ValueError, match="no degree of freedom"):
        idm.from_shards(lambda r: residuals_of(r, theta=(0.0, 0.0)), [slice(0, 1), slice(1, 2)])


def test_exact_data_are_refused_where_the_climb_ends():
    model = idm.from_residuals(lambda b: X @ [1.0, 2.0] - X @ b, theta=(0.0, 0.0))
    with pytest.raises(ValueError, match="zero"):
        idm.polish(model)


@pytest.mark.parametrize("variance", ["unbiased", "mle"])
def test_curve(variance):
    z = np.linspace(0.0, 3.0, 40)
    curve = 2.0 * np.exp(-0.7 * z) + 0.05 * np.sin(37.0 * z)

    def residuals(b):
        return curve - b[0] * np.exp(-b[1] * z)

    polished = idm.polish(idm.from_residuals(residuals, theta=[1.0, 0.3], variance=variance))
    fit = idm.from_residuals(residuals, start=[1.0, 0.3], variance=variance)
    assert answer(polished) == pytest.approx(answer(fit), rel=1e-5)


def test_bounds_and_fixed_parameters():
    def build(**options):
        return residuals_of(bounds=[(None, None), (None, 1.5)], **options)

    fit = build(start=(0.0, 0.0))
    polished = idm.polish(build(theta=fit.theta)).fix({0: 0.5})
    assert polished.facts.df == fit.fix({0: 0.5}).facts.df
    assert idm.polish(fit).facts.df == fit.facts.df == N - 1
    assert fit.theta[1] == pytest.approx(1.5)


def test_gain_is_that_of_one_variance():
    result = idm.polish(residuals_of(theta=(0.0, 0.0), l2=5.0), slope)
    end = result.model
    assert result.gain == pytest.approx(end.objective(end.theta) - end.objective(np.zeros(2)))
    errors = idm.infer(end, slope).standard_error
    assert result.moved == pytest.approx(end.theta[1] / errors, rel=1e-3)


def test_polish_twice_changes_nothing():
    once = idm.polish(residuals_of(theta=(10.0, 10.0), l2=5.0))
    assert answer(idm.polish(once)) == pytest.approx(answer(once), rel=1e-7)


# Networks: a line in torch and in JAX.


def line_of(rows=EVERY, variance=None, backend="torch", start=(0.0, 0.0), **options):
    own = {key: v[rows] if np.size(v) == N else v for key, v in options.items()}
    if backend == "jax":
        jnp = pytest.importorskip("jax.numpy")
        data, options = (X[rows], y[rows]), {"apply": lambda b, inputs: inputs @ b} | own
        likelihood = idm.Gaussian(variance)
        return idm.from_jax(jnp.array(start), data, likelihood, dtype="float64", **options)
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    torch.nn.init.constant_(net.weight, start[0])
    data = torch.tensor(X[rows]), torch.tensor(y[rows, None])
    return idm.from_torch(net, data, idm.Gaussian(variance), **own)


def line_answer(model, backend):
    psi = (lambda b: b[1]) if backend == "jax" else (lambda net: net.weight[0, 1])
    estimate = idm.infer(model, psi, idm.Infinitesimal())
    return estimate.value, estimate.standard_error, model.facts.df


LINES = {
    "default": {},
    "mle": {"variance": "mle"},
    "unbiased": {"variance": "unbiased"},
    "number": {"variance": 2.0},
    "weights": {"weights": w},
    "l2": {"l2": 5.0},
}


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize("rule", LINES)
def test_polished_line(rule, backend):
    options = LINES[rule]
    model = idm.polish(line_of(backend=backend, **options))
    fit = residuals_of(start=(0.0, 0.0), **options)
    assert line_answer(model, backend) == pytest.approx(answer(fit), rel=1e-5)


OVER_PARTS = [
    *((rule, cut, "torch") for rule in LINES for cut in ("1", "3", "one row first")),
    *(("default", cut, "jax") for cut in ("1", "3", "one row first")),
    ("l2", "1", "jax"),  # each variance is compiled
]


@pytest.mark.parametrize(("rule", "cut", "backend"), OVER_PARTS)
def test_polished_line_over_parts(rule, cut, backend):
    options = LINES[rule]
    model = idm.from_shards(lambda rows: line_of(rows, backend=backend, **options), CUTS[cut])
    fit = residuals_of(start=(0.0, 0.0), **options)
    assert line_answer(idm.polish(model), backend) == pytest.approx(answer(fit), rel=1e-5)


def test_line_over_sixty_parts():
    model = idm.polish(idm.from_shards(line_of, CUTS["60"]))
    assert line_answer(model, "torch") == pytest.approx(least_squares(), rel=1e-5)


def wide(l2=0.0, start=0.0):
    """Network of more parameters than a climb factorizes, most of them held by the penalty."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(900, 600, generator=generator, dtype=torch.float64)
    targets = inputs[:, :1] + torch.randn(900, 1, generator=generator, dtype=torch.float64)
    net = torch.nn.Linear(600, 1, bias=False, dtype=torch.float64)
    torch.nn.init.constant_(net.weight, start)
    return idm.from_torch(net, (inputs, targets), idm.Gaussian(), l2=l2), inputs, targets


@pytest.mark.parametrize(("l2", "start"), [(0.0, 0.3), (200.0, 0.0)])
def test_climb_that_ends_by_psi(l2, start):
    model, inputs, targets = wide(l2, start)
    A, b = (inputs.T @ inputs).numpy(), (inputs.T @ targets).numpy()[:, 0]
    s2 = 1.0
    for _ in range(200):  # the fixed point by dense algebra
        theta = np.linalg.solve(A + l2 * s2 * np.eye(600), b)
        squares = np.sum((targets.numpy()[:, 0] - inputs.numpy() @ theta) ** 2)
        s2 = squares / (900 if l2 else 300)
    error = np.sqrt(np.linalg.inv(A / s2 + l2 * np.eye(600))[0, 0])
    result = idm.polish(model, lambda net: net.weight[0, 0])
    estimate = idm.infer(result.model, lambda net: net.weight[0, 0], idm.Infinitesimal())
    assert estimate.standard_error == pytest.approx(error, rel=5e-3)
    assert abs(estimate.value - theta[0]) < 0.02 * error
    assert abs(result.moved - (theta[0] - start) / error) < 0.02 * abs(result.moved) + 0.02


def test_budget_is_that_of_all_climbs():
    model = line_of(l2=5.0)
    first = model.rows.passes
    idm.polish(model)
    spent = model.rows.passes - first
    with pytest.raises(idm.ConvergenceError, match="budget"):
        idm.polish(line_of(l2=5.0), budget=spent // 2)


@pytest.mark.parametrize("first", [2.0, "mle"])
def test_parts_with_other_rules_are_refused(first):
    def build(rows):
        variance = first if rows.start == 0 else "unbiased"
        return residuals_of(rows, theta=(0.0, 0.0), variance=variance)

    with pytest.raises(ValueError, match="rule of the noise variance"):
        idm.from_shards(build, CUTS["2"])


@pytest.mark.parametrize("drop", [0, 1])
def test_part_without_weight_does_not_count(drop):
    parts = CUTS["3"]
    kept = np.ones(N)
    kept[parts[drop]] = 0.0
    model = idm.from_shards(lambda rows: residuals_of(rows, theta=(0.0, 0.0)), parts)
    found = answer(idm.polish(reweight(model, kept)))
    assert found == pytest.approx(least_squares(weights=kept), rel=1e-6)

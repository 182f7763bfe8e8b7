"""Outputs of psi with a large constant in them, and outputs hidden among many others.

Truth is a closed form (means of normal data, least squares) or the same output alone.
"""

import numpy as np
import pytest

import implicit_delta as idm

Y = np.random.default_rng(0).normal(size=(100, 2))
X = np.random.default_rng(2).normal(size=(300, 12))
TARGET = X @ np.full(12, 0.2) + np.random.default_rng(3).normal(size=300)
Z = 0.3 * np.random.default_rng(4).normal(size=(600, 12))
V = np.linalg.inv(X.T @ X)
HAT = V @ X.T @ TARGET
MEAN = Y.mean(axis=0)
ERROR = 0.1  # of each mean


def means():
    return idm.from_loglik(lambda t: -0.5 * ((Y - t) ** 2).sum(axis=1), start=[0.0, 0.0])


def line():
    return idm.from_loglik(lambda b: -0.5 * (TARGET - X @ b) ** 2, HAT)


def opaque(psi):
    """Psi of plain numbers alone, which cannot be traced."""
    return lambda t: np.array([float(v) for v in psi(np.array([float(x) for x in t]))])


def errors(model, psi):
    return np.atleast_1d(idm.infer(model, psi).standard_error)


# Large constants: (offset, relative accuracy that its rounding leaves).
OFFSETS = [(1.7e9, 1e-3), (-1.7e9, 1e-3), (3e9, 1e-3), (1e10, 1e-3), (1e11, 1e-2)]


@pytest.mark.parametrize(("offset", "accuracy"), OFFSETS)
@pytest.mark.parametrize("slopes", [(0.3,), (0.3, 1.0), (1.0, 2.0, 0.3)])
def test_a_large_constant_leaves_the_error(offset, accuracy, slopes):
    psi = opaque(lambda t: [s * t[0] + offset for s in slopes])
    assert errors(means(), psi) == pytest.approx(ERROR * np.array(slopes), rel=accuracy)


@pytest.mark.parametrize("offset", [1e9, 3e9, 1e10])
def test_a_large_constant_in_many_outputs(offset):
    right = np.exp(Z @ HAT) * np.sqrt(np.einsum("ki,ij,kj->k", Z, V, Z))
    found = errors(line(), opaque(lambda b: np.exp(Z @ b) + offset))
    assert found == pytest.approx(right, rel=3e-3)


def test_a_large_constant_in_each_unit_of_an_average():
    psi = idm.Average(lambda t: 1.7e9 + np.array([float(t[0]) * u for u in (0.1, 0.3, 0.5)]))
    part = idm.infer(means(), psi).budget["model"]
    assert part == pytest.approx(0.3 * ERROR, rel=1e-3)


def test_a_large_constant_in_a_function_of_an_estimate():
    est = idm.infer(means(), idm.parameters)
    shifted = est.apply(lambda v: np.array([float(0.3 * v[0]) + 1.7e9, float(v[1])]))
    assert shifted.standard_error == pytest.approx([0.03, 0.1], rel=1e-3)


@pytest.mark.parametrize("offset", [1e12, 1e13, 1e14])
@pytest.mark.parametrize("neighbor", [True, False])
def test_a_constant_that_hides_too_much_is_to_be_subtracted(offset, neighbor):
    psi = opaque(lambda t: [0.1 * t[0] + offset, t[0]][: 1 + neighbor])
    with pytest.raises(idm.EvaluationError, match="Subtract the constant"):
        idm.infer(means(), psi)


@pytest.mark.parametrize(
    ("offset", "slope"), [(2e14, 0.5), (2e14, 0.7), (2e14, 1.0), (1e15, 2.0), (1e15, 5.0)]
)
def test_a_move_by_a_few_roundings_is_refused_or_warned_about(offset, slope):
    model = means()
    psi = opaque(lambda t: [slope * t[0] + offset, t[0]])
    refused = idm.EvaluationError, idm.ImplicitDeltaWarning  # warnings are errors here
    with pytest.raises(refused, match="ubtract the constant"):
        idm.infer(model, psi)


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e10])
@pytest.mark.parametrize("width", [1.0, 2.0**-6, 1e-3])  # differences are exact over halves
def test_steps_stay_steps_beside_a_constant(offset, width):
    psi = opaque(lambda t: [t[0], offset + np.floor(t[1] / (width * ERROR))])
    with pytest.raises(idm.EvaluationError):
        idm.infer(means(), psi)


# Outputs that bend, alone and among others.
def kinked(K, place, at):
    """Linear outputs, one of which is steeper from a fraction of its standard error on."""
    z = Z[:K]
    edge = z[place] @ HAT + at * np.sqrt(z[place] @ V @ z[place])
    steep = np.where(np.arange(K) == place, 5.0, 0.0)
    return lambda b: z @ b + steep * np.maximum(z @ b - edge, 0.0)


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize(
    ("K", "place"), [(10, 3), (17, 9), (20, 1), (50, 2), (50, 48), (600, 5), (600, 333)]
)
@pytest.mark.parametrize("at", [0.1, 0.2])
def test_a_kink_is_seen_at_any_place(K, place, at, traced):
    psi = kinked(K, place, at)
    with pytest.raises(idm.ConvergenceError, match="bends within half"):
        idm.infer(line(), psi if traced else opaque(psi))


@pytest.mark.parametrize("K", [17, 50, 300])
@pytest.mark.parametrize("place", [0, 1, 8, -1])
def test_a_pole_beside_is_seen_at_any_place(K, place):
    row = np.eye(K)[place]
    with pytest.raises(idm.ConvergenceError, match="bends within half"):
        idm.infer(means(), lambda t: t[0] + row * (1 / (t[0] - MEAN[0] + 0.06) - t[0]))


def test_an_output_of_a_parameter_of_its_own_is_seen():
    y = np.random.default_rng(5).normal(size=(200, 40))
    model = idm.from_loglik(
        lambda t: -0.5 * ((y - t) ** 2).sum(axis=1), y.mean(axis=0), score=lambda t: y - t
    )
    h = y.mean(axis=0)
    steep = np.where(np.arange(40) == 23, 5.0, 0.0)
    with pytest.raises(idm.ConvergenceError, match=r"\[23\]"):
        idm.infer(model, lambda t: t + steep * np.maximum(t - h - 0.1 / 200**0.5, 0.0))


@pytest.mark.parametrize("K", [17, 100, 600])
def test_many_outputs_that_hardly_bend_stay(K):
    right = np.exp(Z[:K] @ HAT) * np.sqrt(np.einsum("ki,ij,kj->k", Z[:K], V, Z[:K]))
    assert errors(line(), lambda b: np.exp(Z[:K] @ b)) == pytest.approx(right, rel=1e-6)


@pytest.mark.parametrize(("K", "calls"), [(1, 60), (17, 120), (600, 120)])
def test_no_more_calls_than_before(K, calls):
    count = []
    idm.infer(line(), lambda b: count.append(1) or Z[:K] @ b)
    assert len(count) <= calls


def test_a_psi_that_ends_a_standard_error_away_is_no_error():
    def psi(b):
        if np.any(abs(Z @ (b - HAT)) > 0.6 * np.sqrt(np.einsum("ki,ij,kj->k", Z, V, Z))):
            raise ValueError("too far")
        return Z[:20] @ b

    right = np.sqrt(np.einsum("ki,ij,kj->k", Z[:20], V, Z[:20]))
    assert errors(line(), psi) == pytest.approx(right, rel=1e-6)


# Outputs with a derivative of zero.
STATIONARY = {
    "square": lambda x: x**2,
    "tiny square": lambda x: 1e-8 * x**2,
    "square beside a constant": lambda x: 1e4 + x**2,
    "absolute value": abs,
    "fourth power": lambda x: x**4,
    "cosine": np.cos,
    "cube": lambda x: x**3,
}


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("neighbor", [lambda t: t[0], lambda t: np.exp(t[0] + t[1])])
@pytest.mark.parametrize("name", STATIONARY)
def test_a_stationary_output_beside_another_is_refused(name, neighbor, traced):
    model = means()
    hat, f = np.array(model.theta), STATIONARY[name]

    def psi(t):
        return np.stack([neighbor(t), f(t[1] - hat[1])])

    with pytest.raises(idm.EvaluationError):
        idm.infer(model, psi if traced else opaque(psi))


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("K", [2, 17, 600])
def test_a_stationary_output_among_many_is_refused(K, traced):
    last = np.arange(K) == K - 1

    def psi(b):
        return np.where(last, (b[3] - HAT[3]) ** 2, Z[:K] @ b)

    with pytest.raises(idm.EvaluationError, match="derivative is exactly zero"):
        idm.infer(line(), psi if traced else opaque(psi))


def test_a_stationary_output_of_torch_is_refused():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 1, bias=False).double()
    x = torch.as_tensor(X[:, :2].copy())
    y = torch.as_tensor(TARGET[:, None].copy())
    hat = torch.linalg.lstsq(x, y).solution.T
    with torch.no_grad():
        module.weight.copy_(hat)
    model = idm.from_torch(module, (x, y), idm.Gaussian(variance=1.0))

    def psi(m):
        return torch.stack([m.weight[0, 0], (m.weight[0, 1] - hat[0, 1]).abs() ** 2])

    with pytest.raises(idm.EvaluationError, match="derivative is exactly zero"):
        idm.infer(model, psi)


def shares(t):
    w = np.exp(t)
    return np.stack([t[0], w[0] / w.sum() + w[1] / w.sum(), (w[0] - w[0]) / w.sum()])


CONSTANT = {
    "a number": lambda t: np.stack([t[0], 3.0 + 0 * t[0]]),
    "zero": lambda t: np.stack([t[0], 0 * t[1]]),
    "a large number": lambda t: np.stack([t[0], 1.7e9 + 0 * t[0]]),
    "shares that sum to one": shares,
}


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("name", CONSTANT)
def test_a_constant_output_beside_another_has_no_error(name, traced):
    psi = CONSTANT[name]
    found = errors(means(), psi if traced else opaque(psi))
    assert found == pytest.approx([ERROR] + [0.0] * (found.size - 1), rel=1e-6, abs=1e-12)


# Constant but for noise.
def noisy(K, level, value):
    rows = np.random.default_rng(5).normal(size=(K, 2))
    rows[::10] = 0.0

    def psi(t):
        return rows @ t + value + level * np.sin(1e9 * (t[0] + 2 * t[1]) * np.arange(1, K + 1))

    return opaque(psi), ERROR * np.linalg.norm(rows, axis=1)


@pytest.mark.parametrize("K", [20, 100, 800])
@pytest.mark.parametrize("level", [1e-10, 1e-9, 1e-8])
@pytest.mark.parametrize("value", [0.0, 0.5])
def test_constants_with_noise_beside_others_are_warned_about(K, level, value):
    psi, right = noisy(K, level, value)
    with pytest.warns(idm.ImplicitDeltaWarning, match="rounding or noise"):
        found = errors(means(), psi)
    assert found == pytest.approx(right, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("level", [1e-3, 1.0])
def test_noise_that_matters_is_refused(level):
    with pytest.raises(idm.ImplicitDeltaError):
        idm.infer(means(), noisy(30, level, 0.0)[0])


def test_a_jump_right_here_is_no_noise():
    model = means()
    hat = float(model.theta[1])
    with pytest.raises(idm.EvaluationError):
        idm.infer(model, opaque(lambda t: [t[0], np.sign(t[1] - hat)]))


# The same of a root of equations.
def equations():
    return idm.from_equations(lambda t: Y - t, start=[0.0, 0.0])


def test_a_stationary_output_of_equations_is_refused():
    hat = np.array(equations().theta)
    with pytest.raises(idm.EvaluationError, match="derivative is exactly zero"):
        idm.infer(equations(), lambda t: np.stack([t[0], (t[1] - hat[1]) ** 2]))


def test_a_pole_among_outputs_of_equations_is_seen():
    row = np.eye(50)[20]
    with pytest.raises(idm.ConvergenceError, match="bends within half"):
        idm.infer(equations(), lambda t: t[0] + row * (1 / (t[0] - MEAN[0] + 0.06) - t[0]))


def test_a_large_constant_in_a_psi_of_equations():
    psi = opaque(lambda t: [0.3 * t[0] + 1.7e9, t[0]])
    found = errors(equations(), psi)
    assert found[0] == pytest.approx(0.3 * found[1], rel=1e-3)

"""Conjugate gradients that keep residuals, and products in single precision."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from implicit_delta.numerics.solvers import cholesky, conjugate_gradient

D = 300
NETWORK = np.r_[np.ones(200), np.geomspace(1.0, 5e4, 100)]  # a ridge, and what data determine


def matrix_of(values, seed=0):
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((values.size, values.size)))[0]
    return (basis * values) @ basis.T


def in_single(A, calls=None):
    single = A.astype(np.float32)

    def operator(v):
        if calls is not None:
            calls.append(v.shape[1])
        return np.asarray(single @ v.astype(np.float32), dtype=np.float64)

    return operator


def roots(A, b):
    return np.sqrt(np.einsum("dk,dk->k", b, np.linalg.solve(A, b)))


@pytest.mark.parametrize("d", [20, 60, 150])
def test_it_ends_after_d_steps(d):
    """As in exact arithmetic; plain conjugate gradients take up to five times as many."""
    A = matrix_of(np.geomspace(1.0, 1e6, d))
    b, solver = np.random.default_rng(1).standard_normal((d, 2)), conjugate_gradient(rtol=1e-8)
    kept = solver.solve(lambda v: A @ v, b, floor=0.99)
    plain = replace(solver, memory=0).solve(lambda v: A @ v, b, floor=0.99)
    assert kept.iterations <= d < plain.iterations
    np.testing.assert_allclose(np.diag(kept.quadratic), np.diag(plain.quadratic), rtol=1e-7)


@pytest.mark.parametrize("vectors", [10, 20, 1000])
@pytest.mark.parametrize("single", [False, True])
def test_the_first_residuals_save_steps(vectors, single):
    A, b = matrix_of(NETWORK), np.random.default_rng(2).standard_normal((D, 1))
    operator = in_single(A) if single else lambda v: A @ v
    kept = conjugate_gradient(memory=8 * D * vectors).solve(operator, b, floor=1.0)
    plain = conjugate_gradient(memory=0).solve(operator, b, floor=1.0)
    assert kept.products < 0.85 * plain.products
    error = np.sqrt(kept.quadratic[0, 0]) / roots(A, b)[0] - 1
    assert abs(error) <= kept.residual + 1e-5 * single


@pytest.mark.parametrize(("vectors", "most"), [(7, 5), (16, 21)])
def test_memory_is_a_limit(vectors, most):
    """Fewer than eight vectors are none; beyond x, r, p, the product and chunks."""
    d = 200_000
    values, b = np.geomspace(1.0, 100.0, d)[:, None], np.ones((d, 1))
    tracemalloc.start()
    conjugate_gradient(memory=vectors * b.nbytes).solve(lambda v: values * v, b, floor=1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < most * b.nbytes


def test_memory_is_checked():
    with pytest.raises(ValueError, match="memory"):
        conjugate_gradient(memory=-1)


def test_the_probe_of_a_complete_space_ends():
    """Redundant parameters and rounding: it went on for ten times as many steps."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 15)) @ rng.standard_normal((15, 20))
    A = X.T @ X
    noisy = A + 1e-8 * np.linalg.norm(A, 2) * rng.standard_normal(A.shape)
    b = A @ rng.standard_normal((20, 1))
    solution = conjugate_gradient.solve(lambda v: noisy @ v, b)
    truth = (b.T @ np.linalg.pinv(A, rcond=1e-6) @ b).item()
    assert solution.products <= 50
    assert solution.quadratic[0, 0] == pytest.approx(truth, rel=1e-6)
    assert not solution.doubtful


@pytest.mark.parametrize("rtol", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("K", [1, 3])
def test_single_precision_is_corrected_once(rtol, K):
    A, b = matrix_of(NETWORK), np.random.default_rng(3).standard_normal((D, K))
    exact = []

    def operator(v):
        exact.append(v.shape[1])
        return A @ v

    solver = conjugate_gradient(rtol=rtol)
    solution = solver.solve(operator, b, floor=1.0, rough=in_single(A))
    truth = roots(A, b)
    assert exact == [K]
    assert solution.guaranteed
    assert solution.residual <= rtol
    assert np.all(np.sqrt(solution.lower) <= truth * (1 + 1e-12))
    assert np.all(truth <= np.sqrt(solution.upper))
    assert np.all(abs(np.sqrt(np.diag(solution.quadratic)) / truth - 1) <= solution.residual)
    others = cholesky.solve(lambda v: A @ v, b).quadratic
    np.testing.assert_allclose(solution.quadratic, others, rtol=0, atol=4 * rtol * others.max())


def refuse(v):
    raise RuntimeError("expected Double but found Float")


ROUGH = {
    "a type that does not fit": lambda A: refuse,
    "overflow": lambda A: lambda v: np.full_like(v, np.inf),
    "one per cent off": lambda A: lambda v: 1.01 * (A @ v),
    "another matrix": lambda A: lambda v: A[::-1, ::-1] @ v,
    "a part missing": lambda A: lambda v: A @ v - 0.1 * v,
    "a saddle": lambda A: lambda v: A @ v - 2 * v,
    "random": lambda A: lambda v: A @ v + 1e-3 * np.random.default_rng().standard_normal(v.shape),
    "half precision": lambda A: lambda v: (A @ v).astype(np.float16).astype(np.float64),
}


@pytest.mark.parametrize("name", ROUGH)
def test_a_rough_operator_never_decides(name):
    A, b = matrix_of(NETWORK), np.random.default_rng(3).standard_normal((D, 2))
    solution = conjugate_gradient.solve(lambda v: A @ v, b, floor=1.0, rough=ROUGH[name](A))
    truth = roots(A, b)
    assert solution.residual <= 1e-3
    assert np.all(abs(np.sqrt(np.diag(solution.quadratic)) / truth - 1) <= 1e-3)


@pytest.mark.parametrize("condition", [1e4, 1e7, 1e9])
def test_single_precision_is_left_where_it_does_not_do(condition):
    values = np.geomspace(1.0, condition, D)
    A, b = matrix_of(values), np.random.default_rng(4).standard_normal((D, 1))
    solution = conjugate_gradient.solve(lambda v: A @ v, b, floor=0.9, rough=in_single(A))
    truth = roots(A, b)
    assert abs(np.sqrt(solution.quadratic[0, 0]) / truth[0] - 1) <= solution.residual <= 1e-3

"""Conjugate gradients that keep residuals, and products in single precision."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from implicit_delta.errors import ConvergenceError, NotAMaximumError
from implicit_delta.linalg.solvers import conjugate_gradient

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


@pytest.mark.parametrize("single", [False, True])
def test_the_more_residuals_are_kept_the_fewer_the_steps(single):
    for seed in range(5):
        A, b = matrix_of(NETWORK, seed), np.random.default_rng(2).standard_normal((D, 1))
        operator = in_single(A) if single else lambda v, A=A: A @ v
        products = []
        for vectors in (0, 10, 20, 1000):
            solver = conjugate_gradient(memory=8 * D * vectors)
            found = solver.solve(operator, b, floor=0.99, single=single)
            error = np.sqrt(found.quadratic[0, 0]) / roots(A, b)[0] - 1
            assert abs(error) <= found.residual
            products.append(found.products)
        assert np.all(np.diff(products) < 0)


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


REFUSED = {
    "flat": lambda values: np.where(np.arange(values.size) == 5, 0.0, values),
    "half flat": lambda values: np.where(np.arange(values.size) % 2, 0.0, values),
    "saddle": lambda values: np.where(np.arange(values.size) == 5, -5.0, values),
}


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("name", REFUSED)
def test_memory_of_a_refusal(name, kind):
    """Ten vectors: x, two each of residuals, directions, products; what a refusal sorts.

    None lives on in the traceback of the error.
    """
    d = 200_000
    values = REFUSED[name](np.geomspace(1.0, 1e3, d)).astype(kind)[:, None]
    b = np.ones((d, 1), dtype=kind)
    tracemalloc.start()
    with pytest.raises(NotAMaximumError):
        conjugate_gradient(memory=0).solve(lambda v: values * v, b)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < (10 if kind is np.float64 else 12) * b.nbytes  # numbers that are sorted are long
    assert held < 2 * b.nbytes


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


SPECTRA = {
    "a network": lambda d: np.r_[np.ones(d - d // 3), np.geomspace(1.0, 5e4, d // 3)],
    "well conditioned": lambda d: np.linspace(1.0, 50.0, d),
    "1e3": lambda d: np.geomspace(1.0, 1e3, d),
    "1e5": lambda d: np.geomspace(1.0, 1e5, d),
    "1e7": lambda d: np.geomspace(1.0, 1e7, d),
    "a few large": lambda d: np.r_[np.ones(d - 5), np.full(5, 1e6)],
}


def rotated(values, rng):
    """A matrix with these eigenvalues, by three reflections."""
    A = np.diag(values)
    for v in rng.standard_normal((3, values.size)):
        v /= np.linalg.norm(v)
        A -= 2 * np.outer(v, v @ A)
        A -= 2 * np.outer(A @ v, v)
    return (A + A.T) / 2


@pytest.mark.parametrize(
    "d",
    [20, 75, pytest.param(300, marks=pytest.mark.slow), pytest.param(1000, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_bounds_hold_in_single_precision(spectrum, d):
    """Over 20 seeds, three accuracies and vectors of both precisions; the truth is that of A."""
    values = SPECTRA[spectrum](d)
    reached = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        A = rotated(values, rng)
        b = rng.standard_normal((d, 2))
        b[:, 1] = A @ b[:, 1]  # large directions alone
        for rtol, kind in ((1e-2, np.float64), (1e-3, np.float32), (1e-4, np.float64)):
            right = b.astype(np.float32).astype(np.float64)
            truth = roots(A, right)
            solver = conjugate_gradient(rtol=rtol)
            found = solver.solve(in_single(A), right.astype(kind), floor=0.99, single=True)
            if found.probability < 1:  # the rounding is larger than the floor: no bound is stated
                assert found.doubtful
                continue
            off = abs(np.sqrt(np.diag(found.quadratic)) / truth - 1)
            assert np.all(off <= found.residual)
            assert np.all(np.sqrt(np.maximum(found.lower, 0)) <= truth)
            assert np.all(truth <= np.sqrt(found.upper))
            reached.append(found.residual <= rtol)
    if spectrum == "well conditioned":
        assert all(reached)
        assert len(reached) == 60


@pytest.mark.parametrize("d", [20, 75, 300])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_bounds_hold_in_double_precision(spectrum, d):
    values = SPECTRA[spectrum](d)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        A, b = rotated(values, rng), rng.standard_normal((d, 2))
        truth = roots(A, b)
        for rtol in (1e-2, 1e-4, 1e-6):
            found = conjugate_gradient(rtol=rtol).solve(lambda v, A=A: A @ v, b, floor=0.99)
            assert found.probability == 1
            assert found.residual <= rtol
            off = abs(np.sqrt(np.diag(found.quadratic)) / truth - 1)
            assert np.all(off <= found.residual + 1e-16 * values[-1] * np.sqrt(d))


def test_the_rounding_of_single_precision_takes_two_products():
    A, b = matrix_of(NETWORK), np.random.default_rng(3).standard_normal((D, 3))
    plain, measured = [], []
    for calls, single in ((plain, False), (measured, True)):
        conjugate_gradient.solve(in_single(A, calls), b, floor=1.0, single=single)
    assert measured == [*plain, 3, 3]


def test_a_product_of_which_rounding_is_all_has_no_bound():
    A, b = matrix_of(NETWORK), np.random.default_rng(3).standard_normal((D, 2))

    def half(v):
        """Eight bits of each number."""
        digits, exponents = np.frexp(A @ v)
        return np.ldexp(np.round(digits * 256) / 256, exponents)

    try:
        found = conjugate_gradient.solve(half, b, floor=1.0, single=True)
    except (NotAMaximumError, ConvergenceError):
        return
    truth = roots(A, b)
    off = abs(np.sqrt(np.diag(found.quadratic)) / truth - 1)
    assert found.doubtful or np.all(off <= found.residual)

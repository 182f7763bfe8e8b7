"""Linear solvers against dense solves, and their refusals."""

import pytest

pytest.importorskip("hypothesis")

import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_delta.errors import ConvergenceError, NotAMaximumError
from implicit_delta.linalg.solvers import (
    Factor,
    Solution,
    Solver,
    cholesky,
    conjugate_gradient,
    factorize,
)

MEMORY = conjugate_gradient.memory
EPS = np.finfo(float).eps


def random_spd(d, condition, seed=0, spacing=np.geomspace):
    """A matrix with known eigenvalues, and its exact inverse to rounding."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    values = spacing(1.0, condition, d)
    matrix = (basis * values) @ basis.T
    return (matrix + matrix.T) / 2, (basis / values) @ basis.T


def relative_to_errors(quadratic, truth):
    errors = np.sqrt(np.diag(truth))
    return np.abs((quadratic - truth) / np.outer(errors, errors)).max()


SOLVERS = [cholesky, cholesky(block_size=7), conjugate_gradient(rtol=1e-9)]


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6])
def test_solvers_agree_with_the_inverse(solver, condition):
    A, inverse = random_spd(50, condition)
    b = np.random.default_rng(1).standard_normal((50, 3))
    solution = solver.solve(lambda v: A @ v, b)
    truth = b.T @ inverse @ b
    # The matrix is stored to EPS * condition relative to its smallest eigenvalue.
    assert relative_to_errors(solution.quadratic, truth) < 1e-9 + 100 * EPS * condition
    assert np.array_equal(solution.quadratic, solution.quadratic.T)
    error = solution.x - inverse @ b
    energy = np.einsum("dk,dk->k", error, A @ error) / np.diag(truth)
    assert energy.max() < 4e-9 + (100 * EPS * condition) ** 2


@pytest.mark.parametrize("condition", [1e8, 1e10])
def test_cholesky_stands_bad_conditioning(condition):
    A, inverse = random_spd(50, condition)
    b = np.random.default_rng(1).standard_normal((50, 2))
    solution = cholesky.solve(lambda v: A @ v, b)
    assert relative_to_errors(solution.quadratic, b.T @ inverse @ b) < 100 * EPS * condition
    assert solution.smallest_curvature == pytest.approx(1.0, rel=100 * EPS * condition + 1e-6)


@pytest.mark.parametrize("condition", [1e8, 1e10])
def test_conjugate_gradient_stands_bad_conditioning(condition):
    A, inverse = random_spd(50, condition)
    b = np.random.default_rng(1).standard_normal((50, 2))
    solver = conjugate_gradient(rtol=1e-10, max_iterations=4000)
    solution = solver.solve(lambda v: A @ v, b, floor=0.999)
    assert solution.residual <= 1e-10
    assert relative_to_errors(solution.quadratic, b.T @ inverse @ b) < 100 * EPS * condition


@pytest.mark.parametrize("floor", [1.0, 1e-3, 1e-9])
@pytest.mark.parametrize("rtol", [0.3, 1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("spacing", [np.geomspace, np.linspace])
def test_guaranteed_bounds_bracket_the_truth(floor, rtol, spacing):
    A, inverse = random_spd(60, 1e3, seed=3, spacing=spacing)
    b = np.random.default_rng(2).standard_normal((60, 4))
    solution = conjugate_gradient(rtol=rtol).solve(lambda v: A @ v, b, floor=floor)
    truth = np.diag(b.T @ inverse @ b)
    rounding = 1e3 * 100 * EPS
    assert solution.probability == 1
    assert np.all(solution.lower <= truth * (1 + rounding))
    assert np.all(truth <= solution.upper * (1 + rounding))
    assert solution.residual <= rtol
    assert np.allclose(np.sqrt(np.diag(solution.quadratic) / truth), 1, rtol=rtol, atol=0)


@pytest.mark.parametrize("memory", [0, MEMORY])
@pytest.mark.parametrize("floor", [1.0, 1e-6])
def test_bounds_bracket_the_truth_at_every_iteration(floor, memory):
    A, inverse = random_spd(40, 1e4, seed=5)
    b = np.random.default_rng(4).standard_normal((40, 1))
    truth = float((b.T @ inverse @ b)[0, 0])
    gaps = []
    for rtol in np.geomspace(0.9, 1e-9, 60):
        solver = conjugate_gradient(rtol=float(rtol), memory=memory)
        solution = solver.solve(lambda v: A @ v, b, floor=floor)
        assert solution.lower[0] <= truth * (1 + 1e-9)
        assert truth <= solution.upper[0] * (1 + 1e-9)
        gaps.append(solution.residual)
    assert gaps == sorted(gaps, reverse=True)
    assert len(set(gaps)) > (3 if memory else 10)  # it ends for good after 40 steps


def test_estimated_bounds_hold_on_ordinary_spectra():
    for seed in range(10):
        A, inverse = random_spd(60, 1e4, seed=seed)
        b = np.random.default_rng(100 + seed).standard_normal((60, 2))
        solution = conjugate_gradient.solve(lambda v, A=A: A @ v, b)
        truth = np.diag(b.T @ inverse @ b)
        assert solution.probability < 1
        assert np.all(solution.lower <= truth * (1 + 1e-9))
        assert np.all(truth <= solution.upper * (1 + 1e-9))
        assert np.allclose(np.sqrt(np.diag(solution.quadratic) / truth), 1, rtol=1e-3, atol=0)


def test_one_small_estimate_is_not_enough_to_stop():
    """After one step the residual is small, and lies where the curvature is smaller still."""
    values = np.r_[np.ones(20), np.geomspace(1e-6, 1e-5, 20)]
    b = np.r_[np.ones(20), np.full(20, 1e-3)][:, None]
    truth = np.sum(b[:, 0] ** 2 / values)
    solution = conjugate_gradient.solve(lambda v: values[:, None] * v, b)
    assert np.sqrt(solution.quadratic[0, 0] / truth) == pytest.approx(1, abs=1e-3)


def test_certify_false_stops_earlier_and_reports_the_guaranteed_bound():
    A, _ = random_spd(200, 1e4)
    b = np.random.default_rng(0).standard_normal((200, 1))
    sure = conjugate_gradient.solve(lambda v: A @ v, b, floor=1e-6)
    quick = conjugate_gradient(certify=False).solve(lambda v: A @ v, b, floor=1e-6)
    assert quick.iterations < sure.iterations
    assert quick.probability == 1
    assert quick.residual > 1e-3 >= sure.residual


def test_a_floor_that_the_curvature_contradicts_is_no_guarantee():
    A, _ = random_spd(30, 1e2)
    solution = conjugate_gradient.solve(lambda v: A @ v, np.ones((30, 1)), floor=50.0)
    assert solution.probability < 1


def test_columns_do_not_influence_each_other():
    A, _ = random_spd(50, 1e3)
    b = np.random.default_rng(1).standard_normal((50, 6)) * np.geomspace(1e-8, 1e8, 6)
    b[:, 0] = A @ b[:, 0]  # one that finishes at another time
    solver = conjugate_gradient(rtol=1e-5)
    together = solver.solve(lambda v: A @ v, b, floor=1.0)
    alone = [solver.solve(lambda v: A @ v, b[:, [k]], floor=1.0) for k in range(6)]
    # Rounding differs with the width of the block, which may move a stop by one iteration.
    assert abs(together.products - sum(one.products for one in alone)) <= 6
    assert abs(together.iterations - max(one.iterations for one in alone)) <= 1
    for k, one in enumerate(alone):
        difference = together.x[:, k] - one.x[:, 0]
        assert difference @ A @ difference <= 4e-5 * one.quadratic[0, 0]
        assert together.quadratic[k, k] == pytest.approx(one.quadratic[0, 0], rel=2e-5)


def test_covariances_are_of_second_order_in_the_error():
    """At rtol = 1e-3 x is off by 4 %; without the correction term so would the covariances be."""
    worst = plain = 0.0
    for seed in range(5):
        A, inverse = random_spd(100, 1e4, seed=seed)
        b = np.random.default_rng(seed).standard_normal((100, 8))
        solution = conjugate_gradient(rtol=1e-3).solve(lambda v, A=A: A @ v, b, floor=1.0)
        truth = b.T @ inverse @ b
        worst = max(worst, relative_to_errors(solution.quadratic, truth))
        plain = max(plain, relative_to_errors(b.T @ solution.x, truth))
    assert worst <= 2e-3
    assert plain > worst


def test_a_preconditioner_changes_the_work_and_not_the_answer():
    A, inverse = random_spd(50, 1e2)
    units = np.geomspace(1, 1e4, 50)
    A, inverse = A * np.outer(units, units), inverse / np.outer(units, units)
    b = np.random.default_rng(1).standard_normal((50, 2)) * units[:, None]
    truth = np.diag(b.T @ inverse @ b)
    scaling = conjugate_gradient(preconditioner=lambda r: r / np.diag(A)[:, None])
    solution = scaling.solve(lambda v: A @ v, b, floor=1.0)
    assert np.allclose(np.sqrt(np.diag(solution.quadratic) / truth), 1, rtol=1e-3, atol=0)
    assert solution.iterations < 50
    assert solution.probability < 1
    assert solution.smallest_curvature >= np.linalg.eigvalsh(A)[0] * (1 - 1e-6)
    exact = conjugate_gradient(preconditioner=factorize(A).solve)
    assert exact.solve(lambda v: A @ v, b).iterations <= 3


def test_a_preconditioner_must_be_positive_definite():
    with pytest.raises(ValueError, match="preconditioner"):
        conjugate_gradient(preconditioner=lambda r: -r).solve(lambda v: v, np.ones((3, 1)))


def test_zero_columns_have_zero_solutions():
    A, _ = random_spd(10, 10.0)
    b = np.zeros((10, 3))
    b[0, 1] = 1.0
    for solver in SOLVERS:
        solution = solver.solve(lambda v: A @ v, b)
        assert not solution.x[:, [0, 2]].any()
        assert not solution.quadratic[[0, 2]].any()
        assert solution.quadratic[1, 1] > 0
    nothing = conjugate_gradient.solve(lambda v: A @ v, np.zeros((10, 2)))
    assert nothing.products == 0
    assert nothing.residual == 0


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_an_operator_may_return_its_argument(solver):
    b = np.random.default_rng(0).standard_normal((5, 2))
    assert np.allclose(solver.solve(lambda v: v, b).x, b, rtol=1e-12, atol=0)
    kept = b.copy()
    solver.solve(lambda v: 2 * v, b)
    assert np.array_equal(b, kept)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_saddles_are_refused_with_the_curvature(solver):
    A = np.diag([4.0, 1.0, -0.031])
    with pytest.raises(NotAMaximumError, match=r"not at a strict maximum.*`polish") as caught:
        solver.solve(lambda v: A @ v, np.array([[0.0], [0.0], [1.0]]))
    assert caught.value.curvature == pytest.approx(-0.031)
    assert "-3.1e-02" in str(caught.value)


def test_cholesky_finds_a_saddle_that_the_diagonal_hides():
    A = np.array([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(NotAMaximumError) as caught:
        factorize(A)
    assert caught.value.curvature == pytest.approx(-1.0)


def test_cholesky_finds_a_saddle_in_bad_units():
    units = np.array([1e12, 1e-6, 1e-6])
    A = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 2.0, 1.0]]) * np.outer(units, units)
    with pytest.raises(NotAMaximumError, match="not at a strict maximum") as caught:
        factorize(A)
    assert caught.value.curvature == pytest.approx(-1e-12)


def test_flat_directions_are_refused_with_their_parameters():
    X = np.random.default_rng(0).standard_normal((40, 5))
    X[:, 3] = -2.0 * X[:, 1]
    with pytest.raises(NotAMaximumError, match=r"flat.*positions 1, 3 ") as caught:
        factorize(X.T @ X)
    assert abs(caught.value.curvature) < 1e-12
    X[:, 3] = 0.0
    with pytest.raises(NotAMaximumError, match=r"flat.*position 3 "):
        factorize(X.T @ X)


def test_flat_directions_are_told_from_bad_units():
    units = np.geomspace(1e-9, 1e9, 6)
    A, inverse = random_spd(6, 1e3)
    A, inverse = A * np.outer(units, units), inverse / np.outer(units, units)
    assert np.allclose(factorize(A).solve(np.eye(6)), inverse, rtol=1e-9, atol=0)
    near, _ = random_spd(6, 1e8)
    factorize(near)
    with pytest.raises(NotAMaximumError, match="flat"):
        factorize(random_spd(6, 1e12)[0])


def test_conjugate_gradient_refuses_a_flat_direction_that_b_needs():
    A = np.diag([1.0, 2.0, 0.0])
    with pytest.raises(NotAMaximumError, match="flat"):
        conjugate_gradient.solve(lambda v: A @ v, np.ones((3, 1)))


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_products_that_are_not_finite_are_refused(solver):
    with pytest.raises(NotAMaximumError, match="not finite"):
        solver.solve(lambda v: v * np.nan, np.ones((3, 1)))


def test_too_few_iterations_are_an_error_that_names_the_bounds():
    A, inverse = random_spd(100, 1e6)
    b = np.random.default_rng(0).standard_normal((100, 1))
    with pytest.raises(ConvergenceError, match=r"lies between ([\d.e+]+) and ([\d.e+]+)") as caught:
        conjugate_gradient(max_iterations=5).solve(lambda v: A @ v, b, floor=1.0)
    words = str(caught.value).split()
    low, high = float(words[words.index("between") + 1]), words[words.index("between") + 3]
    assert low <= np.sqrt(b.T @ inverse @ b).item() <= float(high.rstrip("."))


def test_no_vectors_are_allocated_along_the_way():
    d = 200_000
    values = np.geomspace(1.0, 100.0, d)[:, None]
    b = np.ones((d, 1))
    tracemalloc.start()
    conjugate_gradient(memory=0).solve(lambda v: values * v, b, floor=1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # x, r, p and the product, and chunks
    assert peak < 5 * b.nbytes


def test_asymmetry_is_measured():
    A = np.array([[2.0, 1.0], [0.5, 2.0]])
    solution = cholesky.solve(lambda v: A @ v, np.eye(2))
    assert solution.asymmetry == pytest.approx(0.5 / 2.0)
    assert np.allclose(solution.x, np.linalg.inv((A + A.T) / 2))


def test_factor_halves():
    A, inverse = random_spd(8, 1e3)
    factor = factorize(A)
    assert isinstance(factor, Factor)
    half = factor.half(np.eye(8))
    assert np.allclose(half @ half.T, inverse, rtol=1e-10, atol=1e-12)
    assert np.allclose(factor.half_transpose(np.eye(8)), half.T, rtol=1e-10, atol=1e-12)
    assert np.allclose(half.T @ A @ half, np.eye(8), rtol=0, atol=1e-10)
    b = np.arange(8.0)
    assert np.allclose(factor.solve(b), inverse @ b, rtol=1e-10, atol=0)
    assert factor.half(b).shape == factor.half_transpose(b).shape == (8,)


def test_configurations_print_as_they_are_written():
    assert repr(cholesky) == repr(cholesky()) == "cholesky"
    assert repr(conjugate_gradient(rtol=1e-4)) == "conjugate_gradient(rtol=0.0001)"
    assert isinstance(cholesky, Solver)
    assert cholesky == cholesky()
    with pytest.raises(ValueError, match="rtol"):
        conjugate_gradient(rtol=0.0)
    with pytest.raises(ValueError, match="max_iterations"):
        conjugate_gradient(max_iterations=0)
    with pytest.raises(ValueError, match="block_size"):
        cholesky(block_size=0)


problems = st.tuples(st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("solver", [cholesky, conjugate_gradient(rtol=1e-6)], ids=repr)
@settings(max_examples=30, deadline=None)
@given(problem=problems, scale=st.floats(1e-3, 1e3))
def test_laws(solver, problem, scale):
    """A scaled by c divides the quadratic by c; b scaled by c multiplies it by c squared."""
    d, K, seed = problem
    A, _ = random_spd(d, 1e3, seed=seed)
    b = np.random.default_rng(seed).standard_normal((d, K))
    once: Solution = solver.solve(lambda v: A @ v, b)
    close = {"rtol": 0, "atol": 1e-5 * np.diag(once.quadratic).max()}
    stiffer = solver.solve(lambda v: scale * (A @ v), b).quadratic
    assert np.allclose(stiffer * scale, once.quadratic, **close)
    longer = solver.solve(lambda v: A @ v, scale * b).quadratic
    assert np.allclose(longer / scale**2, once.quadratic, **close)
    eigenvalues = np.linalg.eigvalsh(A)
    assert once.smallest_curvature >= eigenvalues[0] * (1 - 1e-9)
    assert once.smallest_curvature <= eigenvalues[-1] * (1 + 1e-9)
    assert np.linalg.eigvalsh(once.quadratic)[0] >= -1e-5 * np.diag(once.quadratic).max()


def test_single_precision_stays_single_and_is_summed_in_double():
    A, _ = random_spd(50, 1e2, seed=3)
    b = np.random.default_rng(3).standard_normal((50, 2))
    types = set()

    def operator(v):
        types.add(v.dtype)
        return (A @ v).astype(np.float32)

    single = conjugate_gradient(rtol=1e-4).solve(operator, b.astype(np.float32))
    double = cholesky.solve(lambda v: A @ v, b)
    assert types == {np.dtype(np.float32)}
    assert single.x.dtype == np.float32
    assert single.lower.dtype == np.float64
    np.testing.assert_allclose(np.diag(single.quadratic), np.diag(double.quadratic), rtol=3e-4)

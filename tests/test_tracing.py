"""Traced derivatives equal numerical ones, and what cannot be traced is refused, not guessed."""

import numpy as np
import pytest
from scipy import special

import implicit_delta as idm
from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.calculus.tracing import trace, trace_terms
from implicit_delta.calculus.tracing.partials import PARTIALS

X = np.random.default_rng(0).normal(size=(7, 4))
POINT = np.array([0.3, 0.7, 0.2, 0.55])  # inside the domain of every function in the table


def traced_jacobian(f, x):
    traced = trace(f, x)
    return None if traced is None else traced[1]


def agree(f, x=POINT):
    exact = traced_jacobian(f, x)
    assert exact is not None
    unit = 0.1  # the first step is a quarter of it: well inside the domain of every function
    numeric = differentiate(lambda t: np.atleast_1d(np.asarray(f(t), float)), x, np.full(4, unit))
    # Extrapolated differences of functions of order one are good to some 1e-10.
    np.testing.assert_allclose(exact, numeric.value, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("ufunc", PARTIALS, ids=lambda ufunc: ufunc.__name__)
def test_partial_derivatives(ufunc):
    if ufunc.nin == 1:
        agree(ufunc)
        return
    agree(lambda x: ufunc(x[:2], x[2:]))
    agree(lambda x: ufunc(x, 0.4))
    agree(lambda x: ufunc(0.4, x))
    agree(lambda x: ufunc(x[:, None], X[:3, 0] ** 2 + 0.1).ravel())


FUNCTIONS = {
    "matrix times vector": lambda x: X @ x,
    "vector times matrix": lambda x: x @ X.T,
    "vector times vector": lambda x: x @ X[0] + X[1] @ x + x @ x,
    "matrix times matrix": lambda x: (X @ x.reshape(4, 1) @ x.reshape(1, 4)).ravel(),
    "dot": lambda x: np.dot(X, x) * np.dot(2.0, x[0]),
    "outer": lambda x: np.outer(x, x[:2]).ravel(),
    "index": lambda x: x[1] * x[-1],
    "slices": lambda x: x[::2] * x[1::2],
    "repeated index": lambda x: x[[0, 0, 3]] ** 2,
    "mask": lambda x: x[np.array([True, False, True, False])] ** 2,
    "row and column": lambda x: (x[:, None] * X[:4])[[0, 1], [2, 2]],
    "sum of an axis": lambda x: (X * x).sum(axis=1),
    "sum, dimensions kept": lambda x: (x / x.sum(keepdims=True)) ** 2,
    "mean": lambda x: np.mean(np.exp(X @ x)),
    "weighted average": lambda x: np.average(np.exp(x), weights=x**2),
    "variance": lambda x: np.var(X * x, axis=0, ddof=1),
    "standard deviation": lambda x: np.std(X @ x),
    "largest": lambda x: np.max(X * x, axis=1) * np.max(x) - (X * x).min(axis=0).sum(),
    "cumulative sum": lambda x: np.cumsum(x**2),
    "differences": lambda x: np.diff(x**2),
    "Fortran order": lambda x: np.exp(x).reshape((2, 2), order="F") @ np.array([1.0, 2.0]),
    "transpose": lambda x: (x.reshape(2, 2).T ** 2).ravel(),
    "broadcast": lambda x: np.broadcast_to(x**2, (3, 4)).sum(axis=0),
    "concatenate": lambda x: np.concatenate([x[:1], np.exp(x[1:]), [3.0]]).cumsum(),
    "stack": lambda x: np.stack([x, x**2], axis=1).ravel(),
    "columns": lambda x: np.column_stack([np.ones(7), X @ x]).sum(axis=1),
    "rows": lambda x: np.vstack([1 - x, x]).T.ravel(),
    "append": lambda x: np.append(x, x**2),
    "where": lambda x: np.where(X @ x > 0, np.exp(X @ x), X @ x),
    "clip": lambda x: np.clip(X @ x, -0.5, 0.5),
    "norm by hand": lambda x: np.sqrt(np.sum(x**2)),
    "asarray": lambda x: 1 / (1 + np.exp(-np.asarray(X @ x))),
    "asarray, then a function": lambda x: np.exp(np.asarray(x)),
    "list of numbers": lambda x: [x[0] / x[1], 2.0, x[2] ** 2],
    "array of numbers": lambda x: np.array([x[0] / x[1], x[2] ** 2]),
    "power of a constant": lambda x: 2.0**x + x**-2,
    "expand and squeeze": lambda x: np.squeeze(np.expand_dims(x, 1) ** 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_arrays(name):
    agree(FUNCTIONS[name])


def second_derivatives(f, x=POINT):
    """Exact Hessian of a weighted sum, and differences of exact gradients."""
    weights = 1.0 + np.arange(np.size(f(x))) % 3

    def total(point):
        return np.sum(np.reshape(f(point), -1) * weights)

    history = trace_terms(lambda point: np.atleast_1d(total(point)), x)
    exact = history.hessian(np.ones(1), np.eye(x.size))
    unit = 0.1
    numeric = differentiate(lambda t: traced_jacobian(total, t)[0], x, np.full(x.size, unit))
    size = max(1.0, abs(exact).max())
    np.testing.assert_allclose(exact, numeric.value, rtol=1e-7, atol=1e-8 * size)
    np.testing.assert_allclose(exact, exact.T, rtol=1e-12, atol=1e-13 * size)


@pytest.mark.parametrize("ufunc", PARTIALS, ids=lambda ufunc: ufunc.__name__)
def test_second_partial_derivatives(ufunc):
    if ufunc.nin == 1:
        second_derivatives(ufunc)
        return
    second_derivatives(lambda x: ufunc(x[:2], x[2:]))
    second_derivatives(lambda x: ufunc(x, 0.4))
    second_derivatives(lambda x: ufunc(0.4, x))
    second_derivatives(lambda x: ufunc(x[:, None], X[:3, 0] ** 2 + 0.1).ravel())


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "of numbers" not in name])
def test_second_derivatives_of_functions_of_arrays(name):
    second_derivatives(FUNCTIONS[name])


CLOSED = {
    "quadratic": (lambda x: x @ X[:4] @ x, lambda x: X[:4] + X[:4].T),
    "cubic form": (
        lambda x: np.einsum("ni,nj,i,j,n->", X, X, x, x, X @ x),
        lambda x: 6 * np.einsum("ni,nj,n->ij", X, X, X @ x),
    ),
    "logistic": (
        lambda x: np.sum(np.logaddexp(0, X @ x)),
        lambda x: (X.T * (special.expit(X @ x) * special.expit(-X @ x))) @ X,
    ),
    "Gaussian": (
        lambda x: np.exp(-x @ x / 2),
        lambda x: np.exp(-x @ x / 2) * (np.outer(x, x) - np.eye(4)),
    ),
    "linear": (lambda x: np.sum(X @ x), lambda x: np.zeros((4, 4))),
}


@pytest.mark.parametrize("name", CLOSED)
def test_hessians_are_exact_to_rounding(name):
    f, closed = CLOSED[name]
    history = trace_terms(lambda x: np.atleast_1d(f(x)), POINT)
    found, wanted = history.hessian(np.ones(1), np.eye(4)), closed(POINT)
    # A sum of 7 x 4 x 4 products of factors of order one.
    np.testing.assert_allclose(found, wanted, atol=1e3 * np.finfo(float).eps * abs(X).max() ** 3)


def test_a_hessian_is_taken_in_blocks(monkeypatch):
    whole = trace_terms(lambda x: np.exp(X @ x), POINT).hessian(np.ones(7), np.eye(4))
    monkeypatch.setattr("implicit_delta.calculus.tracing.LARGEST_SWEEP", 20)
    blocks = trace_terms(lambda x: np.exp(X @ x), POINT).hessian(np.ones(7), np.eye(4))
    np.testing.assert_allclose(blocks, whole, rtol=1e-14)


def test_an_exact_hessian_is_one_call():
    rng = np.random.default_rng(2)
    wide, calls = rng.normal(size=(200, 12)), [0]
    counts = rng.poisson(np.exp(wide @ np.full(12, 0.1))) * 1.0

    def loglik(th):
        calls[0] += 1
        return counts * (wide @ th) - np.exp(wide @ th)

    model = idm.from_loglik(loglik, start=np.zeros(12))
    given = idm.from_loglik(loglik, theta=model.theta)
    before = calls[0]
    afresh = idm.infer(given, idm.parameters)
    exact = np.linalg.inv((wide.T * np.exp(wide @ model.theta)) @ wide)
    np.testing.assert_allclose(afresh.standard_error, np.sqrt(np.diag(exact)), rtol=1e-12)
    assert calls[0] - before < 2 * 12  # as differences of gradients took for the Hessian alone


def softmax_in_place(x):
    scores = X @ x.reshape(4, 1) * np.array([[1.0, 2.0, -1.0]])
    shifted = scores - scores.max(axis=1)[:, None]
    np.exp(shifted, out=scores)
    scores /= scores.sum(axis=1)[:, None]
    return scores.ravel()


def test_code_that_works_in_place():
    agree(softmax_in_place)
    agree(lambda x: special.expit(y := X @ x, out=y if not isinstance(y, np.ndarray) else None))


REFUSED = {
    "float": lambda x: float(x[0]),
    "a loop over floats": lambda x: sum(float(entry) for entry in x),
    "float array": lambda x: np.asarray(x, dtype=float) * 2,
    "written into an array": lambda x: np.put(np.zeros(4), 0, x[0]),
    "an unknown function": lambda x: np.fft.rfft(x).real,
    "an unknown ufunc": lambda x: special.jv(1, x),
    "a reduction of a ufunc": lambda x: np.multiply.reduce(x),
    "not used": lambda x: 3.0,
    "an exception": lambda x: x.no_such_method(),
    "a matrix": lambda x: np.outer(x, x),
    "a warning": lambda x: np.log(x - x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    assert traced_jacobian(REFUSED[name], POINT) is None


def test_many_evaluations_are_swept_in_blocks(monkeypatch):
    monkeypatch.setattr("implicit_delta.calculus.tracing.LARGEST_SWEEP", 20)
    agree(lambda x: np.exp(X @ x))


def test_the_argument_is_not_changed():
    kept = POINT.copy()
    traced_jacobian(lambda x: np.exp(x, out=x) * 2, POINT)
    np.testing.assert_array_equal(POINT, kept)

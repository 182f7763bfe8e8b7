"""The contracts as public checks, for other people's backends and methods too."""

from typing import Any

import numpy as np

from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.inference.infer import infer
from implicit_delta.methods.base import Method
from implicit_delta.models.base import Curvature, FittedModel
from implicit_delta.models.loglik import from_loglik
from implicit_delta.numerics.derivatives import differentiate


def check_model(
    model: FittedModel, psi: Psi | None = None, *, rtol: float = 1e-5, rng: Any = 0
) -> None:
    """Check that a model keeps the contract of `FittedModel`.

    Values against their derivatives, the Hessian against the score, blocks against columns,
    weights against terms, and that nothing is changed on the way; at the fitted parameters and at
    a point nearby. An evaluation is differentiated too if one is given.

    Parameters
    ----------
    model : FittedModel
    psi : callable, optional
        A smooth evaluation in the model's own language.
    rtol : float
        How well analytic and numerical derivatives must agree; about 1e-2 for float32 backends.
    rng : seed or numpy.random.Generator

    Raises
    ------
    AssertionError
        Naming the member that breaks the contract.

    Examples
    --------
    >>> y = np.array([1.0, 2.0, 4.0])
    >>> check_model(from_loglik(lambda m: -((y - m[0]) ** 2) / 2, theta=[7 / 3]))
    """
    generator = np.random.default_rng(rng)
    _check_shapes(model)
    block = _directions(model, generator)
    near = model.theta + 0.3 * block[:, 0]
    for theta in (model.theta, near):
        _check_terms(model, theta)
        _check_score(model, theta, block, rtol)
        _check_information(model, theta, block, rtol)
        _check_terms_along(model, theta, block, rtol)
        if psi is not None:
            _check_evaluation(model, psi, theta, block, rtol)
    _check_copies(model, near, generator)


def check_method(method: Method, *, rtol: float = 0.01) -> None:
    """Check that a method finds the covariance of problems with a closed form.

    Parameters
    ----------
    method : Method
    rtol : float
        Of standard errors and, in units of them, of covariances.

    Raises
    ------
    AssertionError
        Naming the problem.

    Examples
    --------
    >>> from implicit_delta import Infinitesimal
    >>> check_method(Infinitesimal(), rtol=1e-6)
    """
    generator = np.random.default_rng(0)
    X = np.column_stack([np.ones(60), generator.normal(size=(60, 2))])
    y = X @ [1.0, -1.0, 0.5] + generator.normal(size=60)
    beta = np.linalg.lstsq(X, y, rcond=None)[0].astype(np.float64)
    linear = from_loglik(lambda b: -((y - X @ b) ** 2) / 2, theta=beta)
    _compare(method, linear, lambda b: X[:4] @ b, X[:4] @ np.linalg.inv(X.T @ X) @ X[:4].T, rtol)
    counts = generator.poisson(3.0, size=80)
    rate = from_loglik(lambda t: counts * t[0] - np.exp(t[0]), theta=[np.log(counts.mean())])
    _compare(method, rate, lambda t: np.exp(t[0]), np.array([[counts.mean() / 80]]), rtol)


def _compare(method: Method, model: FittedModel, psi: Psi, exact: Array, rtol: float) -> None:
    covariance = infer(model, psi, method).covariance
    errors = np.sqrt(np.diag(exact))
    gap = float(np.max(abs(covariance - exact) / np.outer(errors, errors)))
    _require(gap <= 2 * rtol, f"{method} is off by {gap:.2g} (relative variance), above {2 * rtol}")


def _check_shapes(model: FittedModel) -> None:
    _require(model.theta.shape == (model.d,) and model.d > 0, "theta must have shape (d,), d > 0")
    _require(model.theta.dtype == np.float64, "theta must be float64")
    _require(model.weights.shape == (model.n,), "weights must have shape (n,)")
    _require(model.weights.dtype == np.float64, "weights must be float64")
    _require(model.l2 >= 0, "l2 must not be negative")


def _check_terms(model: FittedModel, theta: Array) -> None:
    kept, passes = theta.copy(), model.passes
    terms = model.terms(theta)
    _require(model.passes > passes, "terms must count as a pass over the data")
    _require(terms.shape == (model.n,), f"terms must have shape (n,), not {terms.shape}")
    _require(terms.dtype == np.float64, "terms must be float64")
    _require(np.array_equal(terms, model.terms(theta)), "terms must be deterministic")
    _require(np.array_equal(kept, theta), "terms must not change its argument")


def _check_score(model: FittedModel, theta: Array, block: Array, rtol: float) -> None:
    score = model.score(theta)
    _require(score.shape == (model.d,), "score must have shape (d,)")
    numeric = differentiate(lambda t: np.array([model.objective(t)]), theta, block)
    _close(score @ block, numeric.value[0], rtol, 1.0, "score is not the gradient of objective")
    if model.n > 1:
        halves = np.array_split(np.arange(model.n), 2)
        parts = [model.batch_score(theta, rows) * (len(rows) / model.n) for rows in halves]
        text = "batch_score, averaged over all rows, is not the score"
        _close(sum(parts) @ block, score @ block, rtol, 1.0, text)


def _check_information(model: FittedModel, theta: Array, block: Array, rtol: float) -> None:
    product = model.information(theta, block)
    numeric = -differentiate(model.score, theta, block).value
    _close(block.T @ product, block.T @ numeric, rtol, 1.0, "information is not minus the Hessian")
    for curvature in _curvatures(model, theta, block):
        _check_product(model, theta, block, curvature, rtol)


def _check_product(
    model: FittedModel, theta: Array, block: Array, curvature: Curvature, rtol: float
) -> None:
    product = model.information(theta, block, curvature)
    _require(product.shape == block.shape, "information must map (d, k) to (d, k)")
    single = model.information(theta, block[:, 0], curvature)
    _require(single.shape == (model.d,), "information must map (d,) to (d,)")
    bilinear = block.T @ product
    _close(block.T @ single, bilinear[:, 0], rtol, 1.0, "information of a block and of its column")
    _close(bilinear, bilinear.T, rtol, 1.0, f"information ({curvature}) is not symmetric")
    if curvature == "ggn":
        _require(np.all(np.diag(bilinear) >= -rtol), "the Gauss-Newton curvature is negative")


def _curvatures(model: FittedModel, theta: Array, block: Array) -> list[Curvature]:
    try:
        model.information(theta, block, "ggn")
    except UnsupportedModelError:
        return ["hessian"]
    return ["hessian", "ggn"]


def _check_terms_along(model: FittedModel, theta: Array, block: Array, rtol: float) -> None:
    along = model.terms_along(theta, block)
    _require(along.shape == (model.n, block.shape[1]), "terms_along must have shape (n, k)")
    numeric = differentiate(model.terms, theta, block).value
    _close(along, numeric, rtol, 1.0, "terms_along is not the derivative of terms")


def _check_evaluation(
    model: FittedModel, psi: Psi, theta: Array, block: Array, rtol: float
) -> None:
    value = np.atleast_1d(model.evaluate(psi, theta))
    jacobian = model.jacobian(psi, theta)
    _require(jacobian.shape == (value.size, model.d), "jacobian must have shape (K, d)")
    numeric = differentiate(lambda t: np.atleast_1d(model.evaluate(psi, t)), theta, block).value
    size = float(np.max(abs(numeric)))
    _close(jacobian @ block, numeric, rtol, size, "jacobian is not the derivative of evaluate")


def _check_copies(model: FittedModel, near: Array, generator: np.random.Generator) -> None:
    weights = generator.integers(0, 3, size=model.n).astype(np.float64) + 0.5
    other = model.reweighted(weights)
    expected = (weights - model.weights) @ model.terms(near)
    actual = other.objective(near) - model.objective(near)
    size = float(np.sum(abs(model.terms(near)))) + 1.0
    _close(actual, expected, 1e-6, size, "reweighted does not weight the terms")
    moved = model.at(near)
    _require(np.allclose(moved.theta, near, rtol=1e-6), "at(theta) must have that theta")
    _require(not np.array_equal(model.theta, near), "at must not change the model it is called on")
    _close(moved.objective(near), model.objective(near), 1e-6, size, "at changes the objective")


def _directions(model: FittedModel, generator: np.random.Generator) -> Array:
    """Three random directions, each about a standard error long."""
    block = generator.normal(size=(model.d, 3))
    curvature = abs(np.sum(block * model.information(model.theta, block), axis=0))
    return np.asarray(block / np.sqrt(np.where(curvature > 0, curvature, 1.0)))


def _close(actual: Any, expected: Any, rtol: float, size: float, text: str) -> None:
    gap = float(np.max(abs(np.asarray(actual) - np.asarray(expected))))
    limit = rtol * max(size, float(np.max(abs(np.asarray(expected)))))
    _require(gap <= limit, f"{text}: they differ by {gap:.3g}, more than {limit:.3g}")


def _require(condition: Any, text: str) -> None:
    if not condition:
        raise AssertionError(text)

"""The contracts as public checks, for other people's backends and methods too."""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from implicit_delta._core.rounding import is_repeated
from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import (
    ImplicitDeltaError,
    ImplicitDeltaWarning,
    UnsupportedModelError,
)
from implicit_delta.evaluation import Average
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

    Of a method that declares `robust`, the robust covariance. Then everything that can be requested
    of it must be found or refused: weights, robust and clustered variances, influences, and the
    error of an average over the training rows.

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
    labels = np.repeat(np.arange(12), 5)
    y = X @ [1.0, -1.0, 0.5] + generator.normal(size=60)
    problem = _Linear(X, y, np.ones(60))
    weighted = _Linear(X, y + generator.normal(size=12)[labels], np.tile([1.0, 2.0, 3.0], 20))
    psi = lambda b: X[:4] @ b  # noqa: E731
    rows = problem.influences(X[:4])
    plain = rows.T @ rows if method.robust else X[:4] @ problem.inverse @ X[:4].T
    _compare(method, problem.model, psi, plain, rtol)
    counts = generator.poisson(3.0, size=80)
    rate = from_loglik(lambda t: counts * t[0] - np.exp(t[0]), theta=[np.log(counts.mean())])
    known = counts.var() if method.robust else counts.mean()
    _compare(method, rate, lambda t: np.exp(t[0]), np.array([[known / 80]]), rtol)
    w, rows = weighted.weights, weighted.influences(X[:4])
    by_rows, sums = (w * rows.T) @ rows, weighted.sums(rows, labels)
    exact = by_rows if method.robust else X[:4] @ weighted.inverse @ X[:4].T
    compare = partial(_compare_requested, method, weighted.model, rtol=rtol)
    compare("weights=", psi, exact)
    compare("robust=True", psi, by_rows, robust=True)
    compare("clusters=", psi, sums.T @ sums, clusters=labels)
    compare("influence=True", psi, exact, rows=rows, influence=True)
    value = X @ weighted.beta
    rows = (
        weighted.influences((w @ X)[None, :] / w.sum())
        + ((value - w @ value / w.sum()) / w.sum())[:, None]
    )
    average = Average(lambda b: X @ b, sample="training")
    compare('Average(sample="training")', average, (w * rows.T) @ rows)


@dataclass(frozen=True)
class _Linear:
    """Least squares with a variance of one: everything has a closed form."""

    X: Array
    y: Array
    weights: Array

    @property
    def inverse(self) -> Array:
        return np.asarray(np.linalg.inv((self.weights * self.X.T) @ self.X), dtype=np.float64)

    @property
    def beta(self) -> Array:
        return np.asarray(self.inverse @ self.X.T @ (self.weights * self.y))

    @property
    def model(self) -> FittedModel:
        loglik = lambda b: -((self.y - self.X @ b) ** 2) / 2  # noqa: E731
        return from_loglik(loglik, theta=self.beta, weights=self.weights, weight_kind="frequency")

    def influences(self, G: Array) -> Array:
        """Influence of one observation of each row on ``G @ beta``, (n, K)."""
        return (self.y - self.X @ self.beta)[:, None] * (self.X @ self.inverse @ G.T)

    def sums(self, rows: Array, labels: Any) -> Array:
        """Sums of influences within clusters, (G, K)."""
        return np.array([self.weights[labels == k] @ rows[labels == k] for k in np.unique(labels)])


def _compare(method: Method, model: FittedModel, psi: Psi, exact: Array, rtol: float) -> None:
    _compare_covariance(str(method), infer(model, psi, method).covariance, exact, rtol)


def _compare_requested(
    method: Method,
    model: FittedModel,
    what: str,
    psi: Any,
    exact: Array,
    rtol: float,
    rows: Array | None = None,
    **requested: Any,
) -> None:
    """Compare what was requested with its closed form, unless it is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImplicitDeltaWarning)
        try:
            found = infer(model, psi, method, **requested)
        except (ImplicitDeltaError, ValueError):
            return
    _compare_covariance(f"{method} with {what}", np.atleast_2d(found.covariance), exact, rtol)
    if rows is not None:
        gap = float(np.max(abs(np.asarray(found.influence) - rows)) / np.max(abs(rows)))
        _require(gap <= 2 * rtol, f"{method} with {what}: influences are off by {gap:.2g}")


def _compare_covariance(what: str, covariance: Any, exact: Array, rtol: float) -> None:
    errors = np.sqrt(np.diag(exact))
    gap = float(np.max(abs(covariance - exact) / np.outer(errors, errors)))
    _require(gap <= 2 * rtol, f"{what} is off by {gap:.2g} (relative variance), above {2 * rtol}")


def _check_shapes(model: FittedModel) -> None:
    _require(model.theta.shape == (model.d,) and model.d > 0, "theta must have shape (d,), d > 0")
    _require(model.theta.dtype == np.float64, "theta must be float64")
    _require(model.weights.values.shape == (model.n,), "weights must have shape (n,)")
    _require(model.weights.values.dtype == np.float64, "weights must be float64")
    _require(model.penalty.floor >= 0, "the strengths of ridges must not be negative")


def _check_terms(model: FittedModel, theta: Array) -> None:
    kept, passes = theta.copy(), model.passes
    terms = model.terms(theta)
    _require(model.passes > passes, "terms must count as a pass over the data")
    _require(terms.shape == (model.n,), f"terms must have shape (n,), not {terms.shape}")
    _require(terms.dtype == np.float64, "terms must be float64")
    _require(is_repeated(terms, model.terms(theta)), "terms must be deterministic")
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
    expected = (weights - model.weights.values) @ model.terms(near)
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

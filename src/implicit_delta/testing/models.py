"""Check a fitted model and its parts: rows, outputs, language, copies."""

from typing import Any

import numpy as np
from scipy.optimize import NonlinearConstraint

from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.core.rounding import is_repeated
from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.batches import batch_score
from implicit_delta.models.constraints import Active, constraints_of
from implicit_delta.models.coordinates import restricted
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of
from implicit_delta.models.redraws import influences_of, reweight
from implicit_delta.models.reducers import scatter_of
from implicit_delta.testing.comparing import close, require
from implicit_delta.testing.rows import check_equations, check_rows


def check_model(
    model: FittedModel, psi: Psi | None = None, *, rtol: float = 1e-5, rng: Any = 0
) -> None:
    """Check that a model, and the rows that it is made of, keep their contracts.

    Values against their derivatives, the Hessian against the score, blocks against columns, sums
    against rows, weights against terms, whitened outputs against the terms, the chain rule under a
    constraint, and that nothing is changed on the way; at the fitted parameters and at a point
    nearby. What rows can do beyond `models.rows.Rows` is checked where they can. An evaluation is
    differentiated too if one is given.

    Parameters
    ----------
    model : FittedModel
        Such as ``FittedModel(theta, rows, weights)`` with rows of your own.
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
    >>> import implicit_delta as idm
    >>> y = np.array([1.0, 2.0, 4.0])
    >>> check_model(idm.from_loglik(lambda m: -((y - m[0]) ** 2) / 2, theta=[7 / 3]))
    """
    generator = np.random.default_rng(rng)
    model.facts.require_rows()
    _check_shapes(model)
    if not model.rows.symmetric:
        check_equations(model, generator, rtol)
        return
    block = _directions(model, generator)
    near = model.theta + 0.3 * block[:, 0]
    points = (np.asarray(model.theta), near)
    for theta in points:  # at a maximum any multiple of the score is zero, too
        _check_terms(model, theta)
        _check_score(model, theta, block, rtol)
    for theta in points:
        _check_derivatives(model, theta, block, rtol)
        check_rows(model, theta, block, rtol)
        if psi is not None:
            _check_evaluation(model, psi, theta, block, rtol)
    _check_copies(model, near, generator)
    if model.space.chart is None and model.d > 1:
        _check_restricted(model, psi, generator, rtol)


def _check_derivatives(model: FittedModel, theta: Array, block: Array, rtol: float) -> None:
    _check_information(model, theta, block, rtol)
    _check_terms_along(model, theta, block, rtol)


def _check_restricted(
    model: FittedModel, psi: Psi | None, generator: np.random.Generator, rtol: float
) -> None:
    """Check the chain rule along a random constraint that bends."""
    around, units = np.array(model.theta), np.array(objective_of(model).units)
    slant = generator.choice([-1.0, 1.0], size=model.d) * generator.uniform(0.5, 1.0, size=model.d)

    def held(theta: Array) -> Any:
        moved = (theta - around) / units
        return slant @ moved + moved @ moved / 10

    def slope(theta: Array) -> Array:
        return np.asarray((slant + (theta - around) / units / 5) / units)

    under = constraints_of(None, NonlinearConstraint(held, 0.0, 0.0, slope), around)
    assert under is not None
    one = np.zeros(1)
    chart = Active(under, one.astype(np.intp), one.astype(np.int_), one).chart(around, units)
    assert chart is not None
    along = restricted(model, chart)
    block = _directions(along, generator)
    z = np.asarray(along.theta + 0.1 * block[:, 0])
    try:
        _check_terms(along, z)
        _check_score(along, z, block, rtol)
        _check_derivatives(along, z, block, rtol)
        check_rows(along, z, block, rtol)
        if psi is not None:
            _check_evaluation(along, psi, z, block, rtol)
    except AssertionError as error:
        raise AssertionError(f"In the coordinates of a constraint: {error}") from None


def _check_shapes(model: FittedModel) -> None:
    require(model.theta.shape == (model.d,) and model.d > 0, "theta must have shape (d,), d > 0")
    require(model.theta.dtype == np.float64, "theta must be float64")
    require(model.weights.values.shape == (model.n,), "weights must have shape (n,)")
    require(model.weights.values.dtype == np.float64, "weights must be float64")
    require(model.penalty.floor >= 0, "the strengths of ridges must not be negative")


def _check_terms(model: FittedModel, theta: Array) -> None:
    kept, passes = theta.copy(), model.rows.passes
    terms = model.rows.terms(theta)
    require(model.rows.passes > passes, "terms must count as a pass over the data")
    require(terms.shape == (model.n,), f"terms must have shape (n,), not {terms.shape}")
    require(terms.dtype == np.float64, "terms must be float64")
    require(is_repeated(terms, model.rows.terms(theta)), "terms must be deterministic")
    require(np.array_equal(kept, theta), "terms must not change its argument")


def _check_score(model: FittedModel, theta: Array, block: Array, rtol: float) -> None:
    score = model.score(theta)
    require(score.shape == (model.d,), "score must have shape (d,)")
    numeric = differentiate(lambda t: np.array([model.objective(t)]), theta, directions=block)
    close(score @ block, numeric.value[0], rtol, 1.0, "score is not the gradient of objective")
    if model.n > 1:
        halves = np.array_split(np.arange(model.n), 2)
        parts = [batch_score(model, theta, rows) * (len(rows) / model.n) for rows in halves]
        text = "batch_score, averaged over all rows, is not the score"
        close(sum(parts) @ block, score @ block, rtol, 1.0, text)


def _check_information(model: FittedModel, theta: Array, block: Array, rtol: float) -> None:
    product = model.information(theta, block)
    numeric = -differentiate(model.score, theta, directions=block).value
    close(block.T @ product, block.T @ numeric, rtol, 1.0, "information is not minus the Hessian")
    for curvature in _curvatures(model, theta, block):
        _check_product(model, theta, block, curvature, rtol)


def _check_product(
    model: FittedModel, theta: Array, block: Array, curvature: Curvature, rtol: float
) -> None:
    product = model.information(theta, block, curvature)
    require(product.shape == block.shape, "information must map (d, k) to (d, k)")
    single = model.information(theta, block[:, 0], curvature)
    require(single.shape == (model.d,), "information must map (d,) to (d,)")
    bilinear = block.T @ product
    close(block.T @ single, bilinear[:, 0], rtol, 1.0, "information of a block and of its column")
    close(bilinear, bilinear.T, rtol, 1.0, f"information ({curvature}) is not symmetric")
    if curvature == "ggn":
        require(np.all(np.diag(bilinear) >= -rtol), "the Gauss-Newton curvature is negative")


def _curvatures(model: FittedModel, theta: Array, block: Array) -> list[Curvature]:
    try:
        model.information(theta, block, "ggn")
    except UnsupportedModelError:
        return ["hessian"]
    return ["hessian", "ggn"]


def _check_terms_along(model: FittedModel, theta: Array, block: Array, rtol: float) -> None:
    along = model.terms_along(theta, block)
    require(along.shape == (model.n, block.shape[1]), "terms_along must have shape (n, k)")
    numeric = differentiate(model.rows.terms, theta, directions=block).value
    close(along, numeric, rtol, 1.0, "terms_along is not the derivative of terms")
    rows = influences_of(model, theta, block)
    total, text = model.scatter(theta, block), "the scatter is not that of terms_along"
    close(total, scatter_of(rows, model.weights.counts), rtol, 1.0, text)


def _check_evaluation(
    model: FittedModel, psi: Psi, theta: Array, block: Array, rtol: float
) -> None:
    value = np.atleast_1d(model.evaluate(psi, theta))
    jacobian = model.jacobian(psi, theta)
    require(jacobian.shape == (value.size, model.d), "jacobian must have shape (K, d)")
    numeric = differentiate(
        lambda t: np.atleast_1d(model.evaluate(psi, t)), theta, directions=block
    ).value
    size = float(np.max(abs(numeric)))
    close(jacobian @ block, numeric, rtol, size, "jacobian is not the derivative of evaluate")


def _check_copies(model: FittedModel, near: Array, generator: np.random.Generator) -> None:
    weights = generator.integers(0, 3, size=model.n).astype(np.float64) + 0.5
    other = reweight(model, weights)
    expected = (weights - model.weights.values) @ model.rows.terms(near)
    actual = other.objective(near) - model.objective(near)
    size = float(np.sum(abs(model.rows.terms(near)))) + 1.0
    close(actual, expected, 1e-6, size, "reweighted does not weight the terms")
    moved = model.at(near)
    require(np.allclose(moved.theta, near, rtol=1e-6), "at(theta) must have that theta")
    require(not np.array_equal(model.theta, near), "at must not change the model it is called on")
    close(moved.objective(near), model.objective(near), 1e-6, size, "at changes the objective")


def _directions(model: FittedModel, generator: np.random.Generator) -> Array:
    """Three random directions, each about a standard error long."""
    block = generator.normal(size=(model.d, 3))
    curvature = abs(np.sum(block * model.information(model.theta, block), axis=0))
    return np.asarray(block / np.sqrt(np.where(curvature > 0, curvature, 1.0)))

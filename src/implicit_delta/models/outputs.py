"""Functions of the outputs of the rows: residuals, dispersion, noise of the curvature."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from implicit_delta.core.limits import GAUSS_NEWTON_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.language import TangentLanguage, VectorLanguage
from implicit_delta.models.rows import (
    DifferencedRows,
    FormedOutputs,
    Outputs,
    TangentRows,
    Whitened,
)

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

ROW_ERROR = 0.005  # of the derivatives of all rows: half a percent of a standard error
FEW_COLUMNS = 100  # as many products as a solve and the evidence take
NO_OUTPUTS = (
    "Leverage is that of the outputs of a row (means, linear predictors, logits), and a "
    "log-likelihood function of the parameters shows none. Use `from_residuals` or, for a "
    "generalized linear model or a network, a likelihood such as `Bernoulli()` or `Poisson()`; "
    'with this model robust="HC1", robust="CR1" or `Bootstrap()`.'
)
NO_GAUSS_NEWTON = (
    'curvature="ggn" needs to know the outputs of the model and the likelihood of the targets '
    "given them: use `Gaussian()`, `Bernoulli()`, `Categorical()` or `Poisson()`, with `outputs=` "
    "and `targets=` for batches of any make. A loglik function of your own has only "
    'curvature="hessian".'
)
NO_INNER_FUNCTION = (
    'curvature="ggn" needs a model with an inner function whose curvature is left out: '
    "`from_residuals`, `from_torch` or `from_jax`. A plain log-likelihood has only "
    'curvature="hessian".'
)
NO_LEVERAGE = (
    "HC2, HC3 and CR2 make up for the leverage of rows on their outputs (means, logits), and "
    'estimating equations show none. Use robust="HC1" or, with clusters, robust="CR1" or "CR1S".'
)
NOT_A_NETWORK = (
    "The tangent of a model is that of the outputs of a network, and this one has linear "
    "predictors, or parameters that psi gets themselves: `polish(model)` is for these."
)


def outputs_of(model: "FittedModel") -> Outputs:
    """Return the outputs of the rows; raise if they are not known."""
    if model.rows.outputs is None:
        usual = NO_OUTPUTS if model.rows.symmetric else NO_LEVERAGE
        raise UnsupportedModelError(model.facts.no_outputs or usual)
    return model.rows.outputs


def is_network(model: "FittedModel") -> bool:
    """Whether psi gets outputs of rows that are nonlinear in the parameters.

    Draws are then made in the tangent.
    """
    outputs, language = model.rows.outputs, model.space.language
    return (
        outputs is not None and not outputs.is_linear and not isinstance(language, VectorLanguage)
    )


def is_formable(model: "FittedModel") -> bool:
    """Whether the Gauss-Newton matrix is better formed than multiplied with.

    With more outputs in a row (of tokens) than parameters, each column would be a product.
    """
    outputs = model.rows.outputs
    few = model.d <= FEW_COLUMNS or outputs is None or outputs.size <= model.d
    return model.d <= GAUSS_NEWTON_LIMIT and few


def gauss_newton_part(model: "FittedModel", theta: Array, columns: int) -> Array | None:
    """Form a matrix that is at most the Gauss-Newton matrix and cheaper, penalty included.

    None where there is none, or where the products that make up for the rest, some ten for each
    of so many columns, take longer.
    """
    outputs = model.rows.outputs
    if not isinstance(outputs, FormedOutputs):
        return None
    found = outputs.gauss_newton_part(theta, model.weights.values, columns)
    return None if found is None else found + model.penalty.curvature(theta, np.eye(model.d))


def gauss_newton(model: "FittedModel", theta: Array, v: Array) -> Array:
    """Gauss-Newton matrix of the weighted rows times v, (d,) or (d, k)."""
    outputs = model.rows.outputs
    if outputs is None:
        differenced = isinstance(model.rows, DifferencedRows)
        raise UnsupportedModelError(NO_INNER_FUNCTION if differenced else NO_GAUSS_NEWTON)
    return outputs.gauss_newton(theta, model.weights.values, v)


def gauss_newton_gram(model: "FittedModel", theta: Array, basis: Array) -> Array | None:
    r"""Return :math:`T' G T` for T, (d, k), from the derivatives of the rows along T.

    Where G itself has the condition number of the rows squared, and has lost the digits of
    directions of little curvature, T can make up for that before the rows are squared. None if
    derivatives of the terms along T, found another way, show that the rows are not that accurate.
    """
    total, slopes = basis.T @ model.penalty.curvature(theta, basis), []
    for found in outputs_of(model).whitened(theta, basis):
        slopes.append(np.einsum("npk,np->nk", found.rows, found.residuals))
        first = sum(map(len, slopes[:-1]))
        weights = model.weights.values[first : first + len(slopes[-1])]
        root = (np.sqrt(weights)[:, None, None] * found.rows).reshape(-1, basis.shape[1])
        total = total + root.T @ root
    expected = np.concatenate([block for _, block in model.rows.terms_along(theta, basis)])
    gap = np.linalg.norm(np.concatenate(slopes) - expected, axis=0)
    accurate = np.all(gap <= ROW_ERROR * np.linalg.norm(expected, axis=0))
    return np.asarray(total) if accurate else None


def whitened_rows(model: "FittedModel", theta: Array, v: Array) -> Iterator[Whitened]:
    """Whiten all rows, some at a time, with derivatives of their outputs along v, unweighted."""
    model.facts.require_terms()
    return outputs_of(model).whitened(theta, v)


def squared_residuals(model: "FittedModel") -> Array | None:
    """Squares of the whitened residuals, (n,), with mean one; None where they say nothing."""
    outputs = model.rows.outputs
    if outputs is None or not outputs.can_be_overdispersed:
        return None
    known = getattr(outputs, "squared_residuals", None)  # known without derivatives
    if known is not None:
        return known(np.asarray(model.theta))  # type: ignore[no-any-return]
    nothing = np.zeros((model.d, 1))
    residuals = np.concatenate([r.residuals for r in outputs.whitened(model.theta, nothing)])
    return residuals[:, 0] ** 2 if residuals.shape[1] == 1 else None


def dispersion_of(model: "FittedModel") -> float:
    """Sum of squared whitened residuals over their number less d; NaN where it says nothing.

    It is about one if the model is right, or has estimated it.
    """
    freedom = float(np.sum(model.weights.counts)) - model.d
    squares = squared_residuals(model) if freedom > 0 else None
    return np.nan if squares is None else float(model.weights.values @ squares) / freedom


def curvature_noise(
    model: "FittedModel", theta: Array, rng: np.random.Generator, count: int
) -> Array | None:
    """Draw vectors with the Gauss-Newton matrix as covariance, (d, count), if that is possible."""
    outputs = model.rows.outputs
    if outputs is None or outputs.is_linear or model.penalty.functions:
        return None
    ridges = model.penalty.ridges
    plain = [ridge for ridge in ridges if ridge.basis is None and np.ndim(ridge.strength) == 0]
    strength = sum(float(ridge.strength) for ridge in plain)
    total = np.sqrt(strength) * rng.standard_normal((count, model.d)).T
    drawn = outputs.noise(theta, model.weights.values, rng, count)
    if drawn is None:
        return None
    others = (ridge.noise(rng, model.d, count) for ridge in ridges if ridge not in plain)
    return np.asarray(sum(others, total + drawn))


def tangent_model(model: "FittedModel") -> "FittedModel":
    """Linearize the outputs of a network around theta: a model of its own."""
    language, rows = model.space.language, None
    if isinstance(model.rows, TangentRows):
        rows = model.rows.tangent(model.theta)
    if rows is None or not isinstance(language, TangentLanguage):
        raise UnsupportedModelError(NOT_A_NETWORK)
    predictor = model.facts.host.predictor
    facts = model.facts.with_training(replicates=None)  # far from where it is linearized
    facts = facts.with_host(predictor=predictor and predictor.tangent(model.theta))
    space = replace(model.space, language=language.tangent(model.theta))
    return replace(model, rows=rows, space=space, facts=facts)


def pseudo_options(model: "FittedModel") -> str:
    """Options with which the terms are not log-densities; usually none."""
    return "" if model.rows.outputs is None else model.rows.outputs.pseudo


def displacement(model: "FittedModel") -> Array:
    """Step of the training from its start, or from zero, (d,)."""
    start = model.facts.training.start
    return model.theta if start is None else model.theta - start

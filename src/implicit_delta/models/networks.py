"""Make a fitted model of a network: what `from_torch` and `from_jax` share."""

from dataclasses import replace
from typing import Any

import numpy as np

from implicit_delta.core.precision import Precision
from implicit_delta.core.types import Array
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.batched import BatchRows
from implicit_delta.models.early_stop import early_stopped
from implicit_delta.models.facts import Facts, Host, Training
from implicit_delta.models.model import FittedModel
from implicit_delta.models.module_checks import EVIDENCE, Options
from implicit_delta.models.module_prediction import (
    ModuleLanguage,
    ModulePredictor,
    checked_columns,
)
from implicit_delta.models.noise import with_noise
from implicit_delta.models.program import penalty_of
from implicit_delta.models.space import Space
from implicit_delta.models.states import check_near
from implicit_delta.models.terms import SupervisedTerms
from implicit_delta.models.weights import observation_weights

PROBES = 32  # random directions for the trace of a curvature


def fitted_network(
    source: str,
    rows: BatchRows,
    language: ModuleLanguage,
    theta: Array,
    training: Training,
    options: Options,
    not_double: str = "",
) -> FittedModel:
    """Put the parts together: the noise, and a ridge by the evidence; refuse terms that are losses.

    `source` is the user's function, and `not_double` why the work cannot be done in float64.
    """
    weights = observation_weights(options.weights, rows.n, options.weight_kind)
    predictor = _predictor(rows, language, options.columns)
    _refuse_losses(rows, theta, weights.values)
    check_near(training, theta)
    precision = Precision(rows.functional.kind, rows.functional.given, not_double)
    model = FittedModel(
        theta,
        rows,
        weights,
        penalty_of(rows.program, options.ridge, rows.sizes[0]),
        Space(rows.functional.names, language=language),
        Facts(
            training,
            Host(predictor=predictor),
            source=source,
            notes={"log-likelihood": f"{rows.program.row_terms}, {precision}"},
            precision=precision,
        ),
    )
    model = _with_open_noise(model)
    return early_stopped(model) if options.l2 == EVIDENCE else model


def without_double(model: FittedModel, reason: str) -> FittedModel:
    """Note why a model cannot be worked with in float64."""
    precision = replace(model.facts.precision, reason=reason)
    return replace(model, facts=replace(model.facts, precision=precision))


def _predictor(rows: BatchRows, language: ModuleLanguage, columns: Any) -> ModulePredictor | None:
    """Read tables for questions, if the columns of the inputs have names."""
    if columns is None:
        return None
    terms = rows.program.row_terms
    known = isinstance(terms, SupervisedTerms) and terms.pairs and terms.outputs_of is None
    with rows.functional.context():
        names = checked_columns(columns, next(iter(rows.batches))[0], known)
    return ModulePredictor(names, rows.inputs, rows.program.mean, language)


def _with_open_noise(model: FittedModel) -> FittedModel:
    """Plug in the noise variance of a Gaussian likelihood that left it open."""
    outputs: Any = model.rows.outputs  # which have a noise variance if they are Gaussian
    likelihood = None if outputs is None else outputs.likelihood
    if not isinstance(likelihood, Gaussian) or isinstance(likelihood.variance, float):
        return model
    rule = likelihood.variance
    noise = outputs.estimated_noise(model.theta, model.weights, model.penalty, rule)
    found: FittedModel = with_noise(model, noise, str(rule))
    return found


def _refuse_losses(rows: BatchRows, theta: Array, weights: Array) -> None:
    """Refuse a log-likelihood function that is positive where it has a minimum."""
    if rows.outputs is not None or np.mean(rows.terms(theta)) <= 0:
        return
    d = rows.d
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(d, PROBES))
    v = np.sqrt(d) * np.eye(d) if d <= PROBES else signs
    traces = np.sum(v * rows.curvature(theta, weights, v), axis=0)  # together the trace itself
    error = 0.0 if d <= PROBES else float(np.std(traces)) / PROBES**0.5
    if np.mean(traces) + 2 * error < 0:
        raise ValueError(
            "The log-likelihood has the curvature of a minimum here, and its terms are "
            "positive: they are losses. Return minus the loss of each row."
        )

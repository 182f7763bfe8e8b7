"""Fit a model again under its constraints, with some parameters fixed or released."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from implicit_delta.errors import ConvergenceError, UnsupportedModelError
from implicit_delta.models.constrained_fit import maximum_along
from implicit_delta.models.fixed import constrained_by, fixed_at, released_from
from implicit_delta.models.noise import with_noise_again, with_scale_again
from implicit_delta.models.noise_of_sums import with_noises_again

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

NOT_FIXED = (
    "Parameters are fixed and constrained in models with a log-likelihood, such as those of "
    "`from_loglik`. Write the number into the estimating equations, and leave one of these out."
)
SETTLED = 1e-8  # relative change of a noise variance
MOST_FITS = 100


def fit_fixed(model: "FittedModel", values: Any, named: Mapping[str, Any]) -> "FittedModel":
    """Fix parameters and fit the rest."""
    _check(model)
    return fitted_again(fixed_at(model, values, named))


def fit_constrained(model: "FittedModel", bounds: Any, constraints: Any) -> "FittedModel":
    """Add bounds and constraints, and fit."""
    _check(model)
    return fitted_again(constrained_by(model, bounds, constraints))


def fit_null(model: "FittedModel", values: Mapping[Any, Any]) -> "FittedModel":
    """Fix these parameters, all of them if they are all given: the null hypothesis of a test."""
    check_unchanged(model)
    return fitted_again(fixed_at(model, values, {}, everything=True))


def fit_released(model: "FittedModel", names: tuple[Any, ...]) -> "FittedModel":
    """Release fixed parameters and fit."""
    _check(model)
    return fitted_again(released_from(model, names))


def fitted_again(model: "FittedModel") -> "FittedModel":
    """Fit a model under its constraints from where it is; with an estimated noise variance, too.

    Under a penalty, and where data sets are fitted together, the parameters depend on the variance,
    so both are found in turns. Each turn raises the likelihood.
    """
    if model.facts.sources:
        return _together(model)
    for _ in range(MOST_FITS):
        model, ratio = with_noise_again(model.at(maximum_along(model)))
        if not model.penalty or abs(ratio - 1) < SETTLED:
            break
    rescaled: FittedModel = with_scale_again(model)[0]
    return rescaled


def _together(model: "FittedModel") -> "FittedModel":
    for _ in range(MOST_FITS):
        model, ratio = with_noises_again(model.at(maximum_along(model)))
        if abs(ratio - 1) < SETTLED:
            return model
    raise ConvergenceError(
        f"The noise variances of the data sets have not settled after {MOST_FITS} fits: the last "
        f"has changed one by the factor {ratio:.6g}. The data sets may contradict each other; give "
        "the variances as numbers, `variance=`."
    )


def check_unchanged(model: "FittedModel") -> None:
    """Raise if the data have changed since the fit, as far as that can be seen."""
    check = getattr(model.rows, "check_unchanged", None)
    if check is not None:
        check(model.theta)


def _check(model: "FittedModel") -> None:
    model.facts.require_terms()
    if not model.rows.symmetric:
        raise UnsupportedModelError(NOT_FIXED)
    check_unchanged(model)

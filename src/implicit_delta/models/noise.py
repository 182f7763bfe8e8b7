"""Noise variance of squared error, and the effective number of parameters behind it."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import numpy as np

from implicit_delta.core.limits import GAUSS_NEWTON_LIMIT
from implicit_delta.core.rounding import EPS
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.coordinates import active_constraints, in_free_coordinates
from implicit_delta.models.objective import objective_of
from implicit_delta.models.outputs import squared_residuals
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.restricted import Restricted
from implicit_delta.models.rows import ComposableRows, NoisyOutputs, RescaledOutputs
from implicit_delta.models.runaway import OF_A_PART

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

MOST_ITERATIONS = 200
# Roundings of an outcome: residuals of less are none. Least squares of a design without collinear
# columns leave a few of them, and any noise that was measured is more.
NOTHING = 64.0
T_MATTERS = 1000  # residuals: with more, effective parameters are not counted for t quantiles alone


class Wording(NamedTuple):
    """Spelling of the noise variance, its rows and its rule at the user's door, for messages."""

    number: str = "Give the variance as a number, `Gaussian(variance=...)`."
    rows: str = "residuals"
    rule: str = 'Gaussian("mle")'


def refuse_exact(remedy: str) -> NoReturn:
    """Explain that residuals which are zero tell no noise variance."""
    raise ValueError(
        "The model fits these data exactly: all residuals are zero up to rounding, so there is no "
        "noise to estimate a standard error from. Usual causes: data made by the formula itself, "
        f"without noise, or as many parameters as observations. {remedy}"
    )


def check_noise(variance: float, mean_square: float, remedy: str = Wording().number) -> None:
    """Refuse a noise variance that is the rounding of an outcome with this mean square.

    Of a part of the data nothing follows.
    """
    if not OF_A_PART.get() and not variance > (NOTHING * EPS) ** 2 * mean_square:
        refuse_exact(remedy)


class Noise(NamedTuple):
    """An estimated noise variance, and the degrees of freedom behind it."""

    variance: float
    df: float


def estimated_noise(
    likelihood: Gaussian,
    model: "FittedModel",
    targets: Array,
    gauss_newton: Callable[[], Array] | None,
) -> Noise:
    """Estimate the variance that a likelihood left open.

    Parameters
    ----------
    likelihood : Gaussian
        With the variance "mle", "unbiased" or None.
    model : FittedModel
        Of this likelihood: its terms take the variance to be 1.
    targets : (n, C) array
        What the outputs of each row are compared with.
    gauss_newton : callable or None
        Makes the model's Gauss-Newton matrix (d, d); None if a penalty other than l2 is part of it.
    """
    count = float(np.sum(model.weights.counts)) * targets.shape[1]
    weights = model.weights.mean_one * model.weights.values
    squares = -2.0 * float(weights @ model.rows.terms(model.theta))
    noise = noise_by_rule(likelihood.variance, model, squares, count, gauss_newton)
    check_noise(noise.variance, float(weights @ np.sum(targets**2, axis=1)) / count)
    return noise


class Penalized(Protocol):
    """Number of parameters and their penalty, which a rule depends on."""

    @property
    def d(self) -> int: ...

    @property
    def penalty(self) -> Penalty: ...


def noise_by_rule(
    rule: Any,
    model: Penalized,
    squares: float,
    count: float,
    gauss_newton: Callable[[], Array] | None,
) -> Noise:
    """Estimate the variance from a sum of squares by a rule, or by the one that suits the model."""
    counted = not model.penalty and model.d <= min(GAUSS_NEWTON_LIMIT, count - 1)
    chosen = str(rule or ("unbiased" if counted else "mle"))
    wanted = chosen == "unbiased" or (model.penalty.floor > 0 and count <= T_MATTERS)
    can = gauss_newton is not None and model.d <= GAUSS_NEWTON_LIMIT
    known = chosen == "unbiased" or (wanted and can)
    spectrum = _spectrum(model, gauss_newton) if known else None
    return noise_variance(squares, count, spectrum, model.penalty.floor, chosen, model.d, Wording())


def noise_variance(
    squares: float,
    count: float,
    spectrum: Array | None,
    l2: float,
    rule: str,
    d: int,
    wording: Wording,
) -> Noise:
    r"""Estimate :math:`s^2` from a sum of squares of `count` residuals.

    It is their mean ("mle"). With the eigenvalues of :math:`J'J`, J the derivative of the means,
    and the rule "unbiased", the divisor is the expected square of the residuals :math:`(I - H) y`
    of pure noise, count less :math:`\mathrm{tr}(2 H - H^2)` under the ridge
    :math:`s^2\, \text{l2}`, by iteration; without a ridge, count less parameters. These are the
    degrees of freedom too; without a spectrum count less d, or infinite if that is none.

    A part of the data need not identify it: that of all parts is estimated afterwards.
    """
    if squares == 0.0:
        if OF_A_PART.get():
            return Noise(1.0, np.inf)
        refuse_exact(wording.number)
    noise = squares / count
    if spectrum is None:
        return Noise(noise, count - d if count > d and l2 == 0 else np.inf)
    if rule == "mle":
        freedom = _freedom(spectrum, l2 * noise, count)
        return Noise(noise, freedom if freedom > 0 else np.inf)
    for _ in range(MOST_ITERATIONS):
        freedom = _freedom(spectrum, l2 * noise, count)
        if freedom <= 0 and OF_A_PART.get():
            return Noise(squares / count, np.inf)
        if freedom <= 0:
            raise ValueError(
                f"{spectrum.size} parameters leave no degree of freedom to estimate the noise "
                f"variance from {count:g} {wording.rows}: use {wording.rule}, a number, or l2=."
            )
        previous, noise = noise, squares / freedom
        if abs(noise - previous) <= 1e-14 * noise:
            break
    return Noise(noise, freedom)


def _freedom(spectrum: Array, ridge: float, count: float) -> float:
    kept = ridge / (spectrum[spectrum > 0] + ridge)  # of the noise, by direction
    return count - float(np.sum(1 - kept**2))


def effective_parameters(curvature: Array, ridge: Array | float) -> float:
    r"""Count the parameters that the data determine: :math:`\mathrm{tr}\, G (G + R)^{-1}`.

    Parameters
    ----------
    curvature : (d, d) or (d,) array
        G, the Gauss-Newton curvature of the log-likelihood; or its eigenvalues, for a ridge that is
        one number. Zeros count as directions that the data do not see.
    ridge : (d,) array or float
        The diagonal of R, on the same scale.

    Examples
    --------
    >>> effective_parameters(np.array([4.0, 1.0, 0.0]), 0.0)
    2.0
    >>> effective_parameters(np.diag([4.0, 1.0, 0.0]), np.array([4.0, 0.0, 0.0]))
    1.5
    """
    if curvature.ndim == 1:
        seen = curvature[curvature > 0]
        return float(np.sum(seen / (seen + ridge)))
    whole = curvature + np.diag(ridge)
    units = _units(whole)  # which the trace does not depend on, but rounding does
    inverse = np.linalg.pinv(whole * units, hermitian=True)
    return float(np.sum(inverse * curvature * units))


def _units(matrix: Array) -> Array:
    """Factors that give a matrix a diagonal of ones, (d, d)."""
    size = np.diag(matrix)
    root = 1 / np.sqrt(np.where(size > 0, size, 1.0))
    return np.outer(root, root)


def _spectrum(model: Penalized, gauss_newton: Callable[[], Array] | None) -> Array:
    """Eigenvalues of the sum of J'J, (d,); zero where they are lost in rounding."""
    if model.d > GAUSS_NEWTON_LIMIT:
        raise UnsupportedModelError(
            f'Gaussian("unbiased") counts the effective parameters of up to {GAUSS_NEWTON_LIMIT} '
            f'parameters, and there are {model.d}. Use "mle", or give the variance as a number.'
        )
    if gauss_newton is None:
        raise UnsupportedModelError(
            'Gaussian("unbiased") counts the effective parameters under no penalty or l2=, but '
            'penalty= was given. Use "mle", or give the variance as a number.'
        )
    matrix = gauss_newton() - model.penalty.floor * np.eye(model.d)
    if not model.penalty:  # only the number of eigenvalues counts, and units must not hide any
        matrix = matrix * _units(matrix)
    values = np.linalg.eigvalsh(matrix)
    return np.where(values > 1e-12 * values.max(initial=0.0), values, 0.0)


def with_noise(model: Any, noise: Noise, rule: str | None) -> Any:
    """Plug a noise variance in that was estimated by a rule."""
    outputs = model.rows.outputs
    facts = replace(model.facts, df=noise.df, noise_rule=rule)
    return replace(model, rows=outputs.with_likelihood(Gaussian(noise.variance)), facts=facts)


def with_noise_again(model: Any) -> tuple[Any, float]:
    """Estimate the noise variance of a model at its theta; with its ratio to the one before.

    A model without an estimated variance is returned as it is, and one of a training that stopped
    early: its ridge was found with the variance that it has.
    """
    rule, noisy = model.facts.noise_rule, isinstance(model.rows.outputs, NoisyOutputs)
    if rule is None or model.penalty.early_stop or not noisy:
        return model, 1.0
    outputs, theta = _free_outputs(model)
    by = None if rule == "None" else rule
    found = outputs.estimated_noise(theta, model.weights, model.penalty, by)
    return with_noise(model, found, rule), found.variance / outputs.likelihood.noise


def _free_outputs(model: Any) -> tuple[Any, Array]:
    """Outputs as functions of what constraints leave, and their parameters.

    What constraints determine does not count for the noise variance.
    """
    rows = model.rows
    active = None if model.space.chart is not None else active_constraints(model)
    chart = None if active is None else active.chart(model.theta, objective_of(model).units)
    if chart is None:
        return rows.outputs, model.theta
    along = rows.along(chart) if isinstance(rows, ComposableRows) else Restricted(rows, chart)
    return along.outputs, chart.coordinates(model.theta)


def with_scale_again(model: Any) -> tuple[Any, float]:
    """Estimate the scale that a host library has estimated, at the theta of another fit.

    It is Pearson's: the weighted sum of squared whitened residuals, over the observations less the
    effective number of parameters. A penalty of the library is one of squared errors, so its
    strength is in units of the scale. Returned is also the ratio to the scale before.
    """
    rule, outputs = model.facts.host.scale_rule, model.rows.outputs
    if rule is None or model.penalty.early_stop or not isinstance(outputs, RescaledOutputs):
        return model, 1.0
    left = model.weights.count - (_taken(in_free_coordinates(model)) if rule == "unbiased" else 0.0)
    factor = model.weights.mean_one_sum(squared_residuals(model)) / left
    rows = outputs.rescaled(factor)
    ridges = tuple(replace(r, strength=r.strength / factor) for r in model.penalty.ridges)
    penalty = replace(model.penalty, ridges=ridges) if ridges else model.penalty
    found = replace(
        model,
        rows=rows,
        penalty=penalty,
        facts=replace(
            model.facts,
            df=left if np.isfinite(model.facts.df) else np.inf,
            notes={**model.facts.notes, "likelihood": repr(rows.outputs)},
        ),
    )
    return found, float(factor)


def _taken(model: Any) -> float:
    """Count the effective parameters of a model."""
    one = np.eye(model.d)
    ridge = model.penalty.curvature(model.theta, one)
    own = model.information(model.theta, one, "ggn") - ridge
    return effective_parameters(own, np.diag(ridge))

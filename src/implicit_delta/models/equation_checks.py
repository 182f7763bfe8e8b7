"""Check a root of estimating equations against the equations themselves."""

import numpy as np

from implicit_delta._core.thresholds import REJECTED
from implicit_delta._core.types import Array
from implicit_delta._core.warn import warn
from implicit_delta.errors import ConvergenceError, ImplicitDeltaWarning, NonlinearityWarning
from implicit_delta.models.equation_system import JUMPS
from implicit_delta.models.equations_model import EquationsModel
from implicit_delta.numerics.arrays import ratio

# A root is zero to rounding: 0.1 of a standard error is a training that stopped or another
# estimator. The sum of equations that jump is only as close to zero as a jump allows.
DRIFT_REFUSES, JUMPING_REFUSES = 0.1, 1.0
BENT_WARNS, BENT_REFUSES = 0.25, 0.5  # of a step, by which the equations miss their derivative
GIVEN_WARNS = 0.1  # of one that is given, where the equations are smooth enough to tell
BESIDE = 1e-7  # of a standard error
NOISES = 2.0  # standard deviations of a sum of jumps
HALF, WIDE = 0.5, 2.0  # standard errors: the step, and one over which single jumps average out
MOST_DIRECTIONS = 3
MOST_SLOPES = 10  # parameters along which the noise of the Jacobian is looked at
TINY = 1e-3  # of a standard error
ROUNDING = 1e-12  # of a square, by differences over that
# Of a robust F with 1, 2, ... instruments: below, a nominal 5 % test of two-stage least squares may
# reject in more than 10 % (Stock and Yogo 2005, table 5.2).
WEAK = (16.38, 19.93, 22.30, 24.58, 26.87, 29.18, 31.50, 33.84, 36.19, 38.54)


def check_root(model: EquationsModel) -> None:
    """Refuse or warn: not a root, a Jacobian that is wrong or bends, weak, or contradictory."""
    _check_drift(model)
    _check_bend(model)
    _warn_of_weakness(model)
    _warn_of_contradiction(model)


def _check_drift(model: EquationsModel) -> None:
    """Refuse parameters at which the equations do not sum to zero, in standard errors."""
    left = model.factor.solve(model.score(model.theta))
    away = abs(left) / model.units
    j, limit = (
        int(np.argmax(away)),
        DRIFT_REFUSES if model.system.given is None else JUMPING_REFUSES,
    )
    if away[j] > limit:
        name = f"theta[{j}]" if model.names is None else model.names[j]
        what = "sum to zero" if model.combination is None else "have the minimum of GMM"
        raise ConvergenceError(
            f"The equations do not {what} at theta: a Newton step moves {name} by {away[j]:.2g} "
            "standard errors. Usual causes: theta was estimated by something else (another "
            "weighting or penalty, other rows), or its fit stopped early. Give it as `start=` "
            "instead of `theta=`, to have the root found."
        )


def _check_bend(model: EquationsModel) -> None:
    """Compare the derivative with the equations themselves, around the root."""
    given = model.system.given is not None
    jumps = given and _jumps(model)
    length = WIDE if jumps else HALF
    worst = max(_miss(model, step, jumps) for step in _steps(model, length))
    if worst > BENT_REFUSES and given:
        raise ValueError(
            "jacobian(theta) is not the derivative of the summed equations: up to "
            f"{length:g} standard errors away these move by something else, off by {worst:.0%}. "
            "Usual causes: a sign, a mean instead of a sum, columns in another order, a bandwidth "
            "that is too wide. Leave `jacobian=` out to have it found, if the equations do not "
            "jump."
        )
    text = (
        f"{length:g} standard errors from the root the equations miss their derivative by "
        f"{worst:.0%}, so the standard error is doubtful. Usual causes: very few rows, a parameter "
        "that is hardly determined (separated classes, a weak instrument), kinks or jumps"
        + (", or an expected derivative instead of the observed one." if given else ".")
    )
    if worst > BENT_REFUSES:
        raise ConvergenceError(f"{text} {JUMPS}")
    if worst > (GIVEN_WARNS if given and not jumps else BENT_WARNS):
        warn(text, NonlinearityWarning)


def _jumps(model: EquationsModel) -> bool:
    """Whether the sum is exactly the same right beside the root."""
    step = BESIDE * model.units
    return bool(np.array_equal(model.score(model.theta + step), model.score(model.theta)))


def _steps(model: EquationsModel, length: float) -> list[Array]:
    """Steps of so many standard errors along the responses of a few parameters."""
    chosen = np.unique(np.linspace(0, model.d - 1, MOST_DIRECTIONS).astype(int))
    steps = ratio(length * model.covariance, model.errors)
    return [steps[:, j] for j in chosen]


def _miss(model: EquationsModel, step: Array, jumps: bool) -> float:
    """Relative miss of a step that the equations themselves imply; less the noise of jumps."""
    if not np.any(step):
        return 0.0
    with np.errstate(all="ignore"):
        ahead, behind = (model.equations(model.theta + t * step) for t in (1, -1))
    rows = model.weights.values[:, None] * (ahead - behind) / 2
    if not np.all(np.isfinite(rows)):
        return np.inf
    size = np.linalg.norm(step / model.units)
    miss = np.linalg.norm((model.factor.solve(rows.sum(axis=0)) - step) / model.units) / size
    if not jumps:
        return float(miss)
    noise = np.linalg.norm(model.factor.solve(rows.T) / model.units[:, None]) / size
    return max(float(miss - NOISES * noise), 0.0)


def _warn_of_weakness(model: EquationsModel) -> None:
    """Warn where the Jacobian along a response is not far from zero beside its own noise.

    Of one weak instrument that is about the robust F of the first stage.
    """
    if model.system.given is not None:
        return
    chosen = np.unique(np.linspace(0, model.d - 1, min(model.d, MOST_SLOPES)).astype(int))
    free = 1 if model.combination is None else model.combination.shape[1] - model.d + 1
    least = WEAK[min(free, len(WEAK)) - 1]
    strengths = {j: _strength(model, j) / free for j in map(int, chosen)}
    j = min(strengths, key=lambda k: strengths[k])
    if strengths[j] < least:
        name = f"theta[{j}]" if model.names is None else model.names[j]
        warn(
            f"{name} is only weakly determined: the Jacobian of the equations along it is known "
            f"too badly (F = {strengths[j]:.2g}, where {least:.0f} is the least that is trusted), "
            "so normal intervals may be far off. Usual cause: weak instruments. Keep the values b "
            "for which `M(b) @ inv(S(b)) @ M(b)`, of the summed "
            "equations and their scatter at b, is below the chi-square quantile "
            "(Anderson and Rubin).",
            NonlinearityWarning,
        )


def _strength(model: EquationsModel, j: int) -> float:
    """Squared t statistic of the Jacobian along the response of parameter j.

    The noise is that of rows whose sign is the other one, twice: where all have one sign, as in a
    regression on itself, the sum varies with the design and cannot come close to zero.
    """
    step = ratio(model.covariance[:, j], model.errors[j])
    dual = model.duals(np.eye(model.d)[:, [j]])[:, 0]
    ahead, behind = (model.equations(model.theta + t * step) for t in (TINY, -TINY))
    each = model.weights.per_observation((ahead - behind) / (2 * TINY)) @ dual
    total = float(model.weights.counts @ each)
    noise = 2 * float(model.weights.counts @ np.minimum(each * np.sign(total), 0.0) ** 2)
    return np.inf if noise <= ROUNDING * total**2 else total**2 / noise


def _warn_of_contradiction(model: EquationsModel) -> None:
    hansen = model.hansen
    if hansen is not None and hansen.p_value < REJECTED:
        warn(
            f"The equations contradict each other: Hansen's J is {hansen.statistic:.4g} with "
            f"{hansen.df} degrees of freedom (p {hansen.p_value:.1g}), so not all of them can hold "
            "at one theta, and what is estimated depends on the weighting. Usual causes: an "
            "instrument that is not valid, a wrong functional form, or rows that are not "
            "independent: give `clusters=`.",
            ImplicitDeltaWarning,
        )

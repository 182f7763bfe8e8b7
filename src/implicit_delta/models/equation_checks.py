"""Check a root of estimating equations against the equations themselves."""

from collections.abc import Sequence

import numpy as np

from implicit_delta.core.thresholds import REJECTED
from implicit_delta.core.types import Array
from implicit_delta.core.warn import warn
from implicit_delta.errors import ConvergenceError, ImplicitDeltaWarning, NonlinearityWarning
from implicit_delta.linalg.arrays import ratio
from implicit_delta.models.equation_roots import Hansen
from implicit_delta.models.equation_rows import Root
from implicit_delta.models.equation_system import JUMPS

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


def check_root(root: Root, names: Sequence[str] | None) -> None:
    """Refuse or warn: not a root, or a Jacobian that is wrong, bends or is weak."""
    labels = names or [f"theta[{j}]" for j in range(root.theta.size)]
    _check_drift(root, labels)
    _check_bend(root)
    _warn_of_weakness(root, labels)


def _check_drift(root: Root, names: Sequence[str]) -> None:
    """Refuse parameters at which the equations do not sum to zero, in standard errors."""
    left = root.factor.solve(root.total(root.theta))
    away = abs(left) / root.units
    j = int(np.argmax(away))
    limit = DRIFT_REFUSES if root.given is None else JUMPING_REFUSES
    if away[j] > limit:
        what = "sum to zero" if root.rows.combination is None else "have the minimum of GMM"
        raise ConvergenceError(
            f"The equations do not {what} at theta: a Newton step moves {names[j]} by "
            f"{away[j]:.2g} standard errors. Usual causes: theta was estimated by something else "
            "(another weighting or penalty, other rows), or its fit stopped early. Give it as "
            "`start=` instead of `theta=`, to have the root found."
        )


def _check_bend(root: Root) -> None:
    """Compare the derivative with the equations themselves, around the root."""
    given = root.given is not None
    jumps = given and _jumps(root)
    length = WIDE if jumps else HALF
    worst = max(_miss(root, step, jumps) for step in _steps(root, length))
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


def _jumps(root: Root) -> bool:
    """Whether the sum is exactly the same right beside the root."""
    ahead = root.theta + BESIDE * root.units
    return bool(np.array_equal(root.total(ahead), root.total(root.theta)))


def _steps(root: Root, length: float) -> list[Array]:
    """Steps of so many standard errors along the responses of a few parameters."""
    chosen = np.unique(np.linspace(0, root.theta.size - 1, MOST_DIRECTIONS).astype(int))
    steps = ratio(length * root.covariance, root.errors)
    return [steps[:, j] for j in chosen]


def _miss(root: Root, step: Array, jumps: bool) -> float:
    """Relative miss of a step that the equations themselves imply; less the noise of jumps."""
    if not np.any(step):
        return 0.0
    with np.errstate(all="ignore"):
        ahead, behind = (root.rows.combined(root.theta + t * step) for t in (1, -1))
    rows = root.weights.values[:, None] * (ahead - behind) / 2
    if not np.all(np.isfinite(rows)):
        return np.inf
    size = np.linalg.norm(step / root.units)
    miss = np.linalg.norm((root.factor.solve(rows.sum(axis=0)) - step) / root.units) / size
    if not jumps:
        return float(miss)
    noise = np.linalg.norm(root.factor.solve(rows.T) / root.units[:, None]) / size
    return max(float(miss - NOISES * noise), 0.0)


def _warn_of_weakness(root: Root, names: Sequence[str]) -> None:
    """Warn where the Jacobian along a response is not far from zero beside its own noise.

    Of one weak instrument that is about the robust F of the first stage.
    """
    if root.given is not None:
        return
    d, combination = root.theta.size, root.rows.combination
    chosen = np.unique(np.linspace(0, d - 1, min(d, MOST_SLOPES)).astype(int))
    free = 1 if combination is None else combination.shape[1] - d + 1
    least = WEAK[min(free, len(WEAK)) - 1]
    strengths = {j: _strength(root, j) / free for j in map(int, chosen)}
    j = min(strengths, key=lambda k: strengths[k])
    if strengths[j] < least:
        warn(
            f"{names[j]} is only weakly determined: the Jacobian of the equations along it is "
            f"known too badly (F = {strengths[j]:.2g}, where {least:.0f} is the least that is "
            "trusted), so normal intervals may be far off. Usual cause: weak instruments. Keep the "
            "values b for which `M(b) @ inv(S(b)) @ M(b)`, of the summed "
            "equations and their scatter at b, is below the chi-square quantile "
            "(Anderson and Rubin).",
            NonlinearityWarning,
        )


def _strength(root: Root, j: int) -> float:
    """Squared t statistic of the Jacobian along the response of parameter j.

    The noise is that of rows whose sign is the other one, twice: where all have one sign, as in a
    regression on itself, the sum varies with the design and cannot come close to zero.
    """
    step = ratio(root.covariance[:, j], root.errors[j])
    dual = root.duals(np.eye(root.theta.size)[:, [j]])[:, 0]
    ahead, behind = (root.rows.combined(root.theta + t * step) for t in (TINY, -TINY))
    each = root.weights.per_observation((ahead - behind) / (2 * TINY)) @ dual
    total = float(root.weights.counts @ each)
    noise = 2 * float(root.weights.counts @ np.minimum(each * np.sign(total), 0.0) ** 2)
    return np.inf if noise <= ROUNDING * total**2 else total**2 / noise


def warn_of_contradiction(hansen: Hansen | None) -> None:
    """Warn where a J test rejects."""
    if hansen is not None and hansen.p_value < REJECTED:
        warn(
            f"The equations contradict each other: Hansen's J is {hansen.statistic:.4g} with "
            f"{hansen.df} degrees of freedom (p {hansen.p_value:.1g}), so not all of them can hold "
            "at one theta, and what is estimated depends on the weighting. Usual causes: an "
            "instrument that is not valid, a wrong functional form, or rows that are not "
            "independent: give `clusters=`.",
            ImplicitDeltaWarning,
        )

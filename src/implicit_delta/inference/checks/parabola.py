"""Parabola: a log-likelihood that does not fall as its second derivative has it."""

from collections.abc import Mapping

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.errors import ConvergenceError, NonlinearityWarning
from implicit_delta.inference.checks.case import Case
from implicit_delta.inference.checks.valley import falls_in_valley
from implicit_delta.methods.base import PROBE
from implicit_delta.methods.probe import FEW, falls_along, spread_out

ONE_SIDED_REFUSES = 0.9
# Of 2740 fits in the tests, those of generalized linear models and distributions lay between 0.98
# and 1.04, single weights of networks up to 2.4; separated classes at 0.002 or at thousands.
LEAST, LOW, HIGH, MOST = 0.6, 0.85, 10.0, 1e3  # refused, warned about, warned about, refused
# Of a Gauss-Newton matrix: what it leaves out is a tenth of it in usual fits, and may be a half
# where a curve fits badly; a saddle has none left.
FAR_LESS = 0.2
ONE_SIDED = Finding(
    "refuse",
    "one_sided",
    "The log-likelihood is not close to a parabola: half a standard error to one side it falls far "
    "more than to the other.",
    causes=(
        "it has no finite maximum (perfectly separated classes; add `l2=`), or there are very few "
        "observations",
    ),
    remedies=("Use `profile(model, psi)` or a penalty.",),
    error=ConvergenceError,
    warning=NonlinearityWarning,
)


def parabola(case: Case) -> Finding | None:
    """Compare the fall of the objective half a standard error to either side with a parabola's.

    Of several evaluations, the first that is refused counts, or the first that is doubtful.
    """
    model, response = case.model, case.response
    if model is None or response.directions is None or model.penalty.early_stop:
        return None
    if (not model.rows.symmetric) or response.robust:  # whose variance is not a curvature
        return None
    by_ggn = model.facts.curvature == "ggn"
    found = [
        _in_valley(case, k, _of_falls(falls, response.exact, by_ggn))
        for k, falls in (response.falls or _falls(case)).items()
    ]
    order = sorted(filter(None, found), key=lambda finding: finding.level != "refuse")
    return order[0] if order else None


def _in_valley(case: Case, k: int, finding: Finding | None) -> Finding | None:
    """Look along a curved valley before a Gauss-Newton matrix is refused for a wall."""
    if finding is None or finding.level != "refuse" or case.response.exact:
        return finding
    falls = falls_in_valley(case, k)
    if falls is None or _of_falls(falls, False, True) is not None:
        return finding
    return Finding(
        "warn",
        "curved_valley",
        "The sum of squares has its minimum in a curved valley. Along it, half a standard error "
        f"of {case.evaluation.names[k]} away, it rises as the standard error says; half a standard "
        "error straight ahead it rises far more. The standard error holds, and so do intervals "
        "from it; draws from a normal distribution around the fit do not.",
        causes=("parameters that are nearly redundant, such as sums of exponentials",),
        remedies=("`profile(model, psi)` follows the valley.",),
        error=ConvergenceError,
        warning=NonlinearityWarning,
    )


def _of_falls(falls: tuple[float, float], exact: bool, by_ggn: bool) -> Finding | None:
    sides = sum(map(abs, falls))
    if not np.isfinite(sides) or abs(falls[0] - falls[1]) > ONE_SIDED_REFUSES * sides:
        return ONE_SIDED
    fall = float(np.mean(falls)) / (PROBE**2 / 2)
    if exact:
        return None if LOW <= fall <= HIGH else _by_hessian(fall)
    return None if not by_ggn or LEAST <= fall <= HIGH else _by_gauss_newton(fall)


def _falls(case: Case) -> Mapping[int, tuple[float, float]]:
    """Falls of the objective half a standard error along a few responses."""
    model, response = case.evaluation.model, case.response
    assert response.directions is not None
    errors, top = np.sqrt(response.covariance.diagonal()), model.objective(model.theta)
    steps = PROBE * response.directions / np.where(errors > 0, errors, 1.0)
    spread = spread_out(np.flatnonzero(errors > 0), FEW)
    chosen = dict.fromkeys([int(np.argmax(errors)), *spread])  # each once
    return {k: falls_along(model, steps[:, k], case.score, top) for k in chosen if errors[k] > 0}


def _by_gauss_newton(fall: float) -> Finding:
    """Object to a Gauss-Newton matrix of which the rest of the Hessian leaves little, or much."""
    return Finding(
        "warn" if FAR_LESS <= fall <= MOST else "refuse",
        "gauss_newton",
        f"Half a standard error from the fitted parameters the log-likelihood falls by {fall:.2g} "
        "times what the Gauss-Newton matrix implies, so the standard error cannot be trusted.",
        number=fall,
        causes=(
            "the residuals are large and the curve bends, so that what this matrix leaves out "
            "matters; a local maximum that does not fit the data, or none at all",
        ),
        remedies=(
            'Fit from another `start=`, use `Infinitesimal(curvature="hessian")`, or '
            "`profile(model, psi)`.",
        ),
        error=ConvergenceError,
        warning=NonlinearityWarning,
    )


def _by_hessian(fall: float) -> Finding:
    """Object to a curvature that the objective does not have: `fall` is 1 for a parabola."""
    return Finding(
        "warn" if LEAST <= fall <= MOST else "refuse",
        "parabola",
        f"Half a standard error from the fitted parameters the log-likelihood falls by {fall:.2g} "
        "times what its second derivative implies, so the standard error cannot be trusted.",
        number=fall,
        causes=(
            "it has no finite maximum (separated classes, an empty cell: add `l2=`), it has kinks "
            "(absolute errors), or a derivative is wrong (`score=`, single precision)",
        ),
        remedies=("`profile(model, psi)` and `Bootstrap()` use no second derivative.",),
        error=ConvergenceError,
        warning=NonlinearityWarning,
    )

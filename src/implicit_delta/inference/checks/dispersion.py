"""Dispersion: residuals that are larger than a model-based standard error assumes."""

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.errors import DispersionWarning, UnsupportedModelError
from implicit_delta.inference.checks.case import Case
from implicit_delta.inference.leverage import gauss_newton_root
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import dispersion_of, pseudo_options, squared_residuals
from implicit_delta.models.redraws import redraw, reweight

TOO_MUCH = 1.17  # at this dispersion a nominal 95 % interval covers 93 %
COPIES = 8  # of a row that are drawn one by one; the sum over more has their mean and variance
REDRAWN = 39  # data sets of the model itself: all have less in 1 of 40 cases if it is right
OTHERWISE = (
    'Use `robust=True` (`robust="HC3"` in small samples), or a model with a dispersion of its own, '
    "such as a negative binomial."
)
FACTOR = (
    "Leave out `variance=`, so that it is estimated (absolute_sigma=False of `curve_fit`), or use "
    '`robust=True` (`robust="HC3"` in small samples).'
)
TOGETHER = (
    'Use `robust=True` (`robust="HC3"` in small samples), or add models whose noise variance or '
    "dispersion is estimated: that of each data set is then its own."
)


def pseudo_likelihood(case: Case) -> Finding | None:
    """Find model-based standard errors from terms that are not log-densities."""
    if case.model is None or not case.part.by_model or not pseudo_options(case.model):
        return None
    return Finding(
        "warn",
        "pseudo_likelihood",
        f"With {pseudo_options(case.model)} the terms are no log-densities, and the standard "
        "errors here take them for such: class weights of 2 count every row twice.",
        remedies=("Use `robust=True`.",),
        warning=DispersionWarning,
    )


def dispersion(case: Case) -> Finding | None:
    """Find squared residuals that exceed their variance, and those of fits to drawn data.

    Only the model's own standard errors assume a variance: robust ones do not.
    """
    model = case.model
    if model is None or not case.part.by_model:
        return None
    found = dispersion_of(model)
    if not TOO_MUCH < found < np.inf:
        return None
    rng = np.random.default_rng(0)
    try:
        root = gauss_newton_root(model) if model.d <= DENSE_LIMIT else None
        usual = max(_drawn_dispersion(model, root, rng) for _ in range(REDRAWN))
    except UnsupportedModelError:
        return None
    if not found > usual:
        return None
    return Finding(
        "warn",
        "dispersion",
        f"The data vary more than the model has it: squared residuals are {found:.2g} times their "
        f"variance (at most {usual:.2g} in {REDRAWN} data sets drawn from the model and fitted). "
        f"Its standard errors are then too small, by a factor of about {found**0.5:.2g}.",
        number=found,
        remedies=(_remedy(model),),
        warning=DispersionWarning,
    )


def _remedy(model: FittedModel) -> str:
    if model.facts.source == "from_residuals":
        return FACTOR
    return TOGETHER if model.facts.sources else OTHERWISE


def _drawn_dispersion(model: FittedModel, root: Array | None, rng: np.random.Generator) -> float:
    """Dispersion of data drawn from the model, after one Newton step to their own fit.

    A fit takes as much away from the residuals of drawn data as from those of the data. Each copy
    of a row is drawn by itself: a drawn row that counts w times is the mean of w draws, which
    varies less than w rows do.
    """
    w, copies, source, shares = model.weights.values, 1, model, [model.weights.values]
    if model.weights.kind == "frequency" and not np.all((w == 0) | (w == 1)):
        drawn_copies = np.clip(w, 1, COPIES) // 1
        copies, source = int(drawn_copies.max()), reweight(model, (w > 0).astype(np.float64))
        shares = [np.sqrt(w / drawn_copies) * (k < drawn_copies) for k in range(copies)]
    drawn = [redraw(source, rng) for _ in range(copies)]
    freedom, taken = float(np.sum(model.weights.counts)) - model.d, 0.0
    if root is None:
        taken = 0.0 if model.penalty.given else float(model.d)  # by the fit, on average
    else:
        theta, penalty = model.theta, model.penalty.score(model.theta)
        parts = zip(drawn, shares, strict=True)
        score = sum(reweight(part, share).score(theta) + penalty for part, share in parts)
        drawn = [part.at(theta + root @ (root.T @ (score - penalty))) for part in drawn]
    total = float(w.sum()) - taken
    for part, share in zip(drawn, shares, strict=True):
        squares = squared_residuals(part)
        if squares is None:
            return np.nan
        total += float(share @ (squares - 1))
    return total / freedom

"""Dispersion: residuals that are larger than a model-based standard error assumes."""

import numpy as np

from implicit_delta._core.warn import warn
from implicit_delta.errors import DispersionWarning, UnsupportedModelError
from implicit_delta.models.base import FittedModel

TOO_MUCH = 1.17  # at this dispersion a nominal 95 % interval covers 93 %
COPIES = 8  # of a row that are drawn one by one; the sum over more has their mean and variance
REDRAWN = 39  # data sets of the model itself: all have less in 1 of 40 cases if it is right


def warn_of_dispersion(model: FittedModel) -> None:
    """Warn where squared residuals exceed their variance, and those of data drawn from the model.

    Only the model's own standard errors assume a variance: robust ones do not.
    """
    if model.pseudo:
        warn(
            f"With {model.pseudo} the terms are no log-densities, and the standard errors here "
            "take them for such: class weights of 2 count every row twice. Use `robust=True`.",
            DispersionWarning,
        )
    found = model.dispersion()
    if not TOO_MUCH < found < np.inf:
        return
    rng = np.random.default_rng(0)
    try:
        usual = max(_drawn_dispersion(model, rng) for _ in range(REDRAWN))
    except UnsupportedModelError:
        return
    if found > usual:
        warn(
            f"The data vary more than the model has it: squared residuals are {found:.2g} times "
            f"their variance (at most {usual:.2g} in {REDRAWN} data sets drawn from the model). "
            f"Its standard errors are then too small, by a factor of about {found**0.5:.2g}. Use "
            '`robust=True` (`robust="HC3"` in small samples), or a model with a dispersion of its '
            "own, such as a negative binomial.",
            DispersionWarning,
        )


def _drawn_dispersion(model: FittedModel, rng: np.random.Generator) -> float:
    """Dispersion of data drawn from the model, each copy of a row by itself.

    A drawn row that counts w times is the mean of w draws, which varies less than w rows do.
    """
    w = model.weights
    if model.weight_kind != "frequency" or np.all((w == 0) | (w == 1)):
        return model.redrawn(rng).dispersion()
    single, copies = model.reweighted((w > 0).astype(np.float64)), np.clip(w, 1, COPIES) // 1
    total = float(w.sum())
    for k in range(int(copies.max())):
        squares = single.redrawn(rng).squared_residuals()
        if squares is None:
            return np.nan
        total += float((np.sqrt(w / copies) * (k < copies)) @ (squares - 1))
    return total / (float(w.sum()) - model.d)

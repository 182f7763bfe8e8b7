"""Whether trainings of a black box finish: train again, to ends that are known if they do."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicit_delta._core.thresholds import DRIFT_WARNS, REACHED
from implicit_delta._core.types import Array
from implicit_delta._core.warn import warn
from implicit_delta.errors import DriftWarning, NonlinearityWarning
from implicit_delta.inference.trainings import Bonus, CurvedBonus, Trainings

LIFTED = 0.5  # of the curvature along the response, lifted by a curved bonus: it halves the pace
WIDE = 10.0  # standard errors within which the bonus is curved; a start may be farther away
WEAK, NARROW = 0.02, 1.0  # the same for a second look, by a bonus that is next to straight
STILL = 0.001  # of it is left at most: Newton's method leaves 0.02^2 after two steps
FAR = 1.0  # standard errors: beyond, a response out of proportion is put down to the push
PUSH_WARNS = 0.025  # relative error of a standard error, to an order that may see half of it
SIGNAL = 10.0  # times the noise floor: a difference that can be told from noise
LOUD = 0.2  # of the rise: noise in which an unfinished training cannot be seen
MOST_CHECKED = 8  # evaluations, spread evenly


@dataclass(frozen=True)
class Ends:
    """K pushes: lambdas, psi_k before and at both ends, and its noise: all (K,)."""

    k: NDArray[np.intp]
    lam: Array
    rest: Array
    ahead: Array
    behind: Array
    noise: Array

    @property
    def rise(self) -> Array:
        """From one end to the other."""
        return self.ahead - self.behind

    @property
    def error(self) -> Array:
        """Standard errors."""
        return np.asarray(np.sqrt(self.rise / (2 * self.lam)))

    @property
    def push(self) -> Array:
        """In standard errors."""
        return self.lam * self.error

    def __getitem__(self, chosen: NDArray[np.intp]) -> "Ends":
        return Ends(**{name: values[chosen] for name, values in vars(self).items()})


@dataclass(frozen=True)
class Finish:
    r"""Progress of trainings, from three more of them for each checked psi_k.

    A finished training with any bonus b ends where :math:`\nabla L + b'(\psi) \nabla\psi = 0`. So a
    curved bonus that has the slope :math:`\lambda` at the end of the push by :math:`\lambda` leads
    to that very end, whatever L and psi are. Its curvature takes half of that of the objective
    away, so that gradient steps close in at half the pace: where they leave a part q of the
    response to a straight bonus, they leave about :math:`\sqrt q` to a curved one. And half of
    :math:`\lambda` has half the response, unless an optimizer that normalizes its gradients (Adam)
    or stops below a tolerance is not finished.

    Attributes
    ----------
    share : float
        Of the variance that is reached, the smallest over psi_k, roughly: see `share_reached`. A
        part of the response that has hardly begun cannot be seen.
    drift : float
        Standard errors by which psi without bonus would still move, the largest.
    push_error : float
        Relative error of the standard error because lambda is finite, the largest.

    The first two are NaN where they are unknown: unasked for, or lost in the noise of trainings.
    """

    share: float = np.nan
    drift: float = np.nan
    push_error: float = 0.0

    @classmethod
    def of(cls, trainings: Trainings, ends: Ends) -> "Finish":
        """Train with curved and with half bonuses, and compare."""
        calm = np.flatnonzero(ends.noise <= LOUD * ends.rise)
        if not calm.size:
            return cls()
        spread = np.linspace(0, calm.size - 1, min(calm.size, MOST_CHECKED)).astype(int)
        ends = ends[calm[spread]]
        missing = _missing_at_half(trainings, ends)
        pace, moved = _curved(trainings, ends, LIFTED, WIDE)
        share = np.array([share_reached(p) for p in pace])
        # for a start w away, of which q is left: the move is about w sqrt(q), the drift w q
        drift = np.fmax(moved * np.sqrt(1 - share), moved**2 / WIDE)
        # A psi that bends may be led to another maximum, and Newton's method takes few steps.
        doubtful = np.flatnonzero(~((share >= REACHED) & (drift <= DRIFT_WARNS)))
        if doubtful.size:
            pace, moved = _curved(trainings, ends[doubtful], WEAK, NARROW)
            fine = doubtful[(abs(pace - 1) <= STILL) & (moved <= STILL)]
            share[fine], drift[fine] = 1.0, 0.0
        far = ends.push > FAR
        by_half = np.clip(1 - missing, 0, 1)
        share = np.where(drift > DRIFT_WARNS, np.fmin(share, 1 / (1 + drift)), share)
        # an unknown share is not known from proportion alone, unless that is missing
        proportion = ~far & (np.isfinite(share) | (by_half < REACHED))
        share = np.where(proportion, np.fmin(share, by_half), share)
        known = np.isfinite(share)
        return cls(
            share=float(np.min(share[known], initial=1.0)) if known.any() else np.nan,
            drift=float(np.max(drift[known], initial=0.0)) if known.any() else np.nan,
            # of a cubic term of psi, three eighths are missing at half the push
            push_error=float(np.max(2 / 3 * missing[far], initial=0.0)),
        )

    def warn(self) -> None:
        """Warn of what makes the standard error doubtful."""
        if self.push_error > PUSH_WARNS:
            warn(
                "`lam` pushes psi so far that its response is no longer in proportion: the "
                f"standard error is off by about {self.push_error:.0%}. Leave `lam` out: it is "
                "then chosen.",
                NonlinearityWarning,
            )
        elif self.share < REACHED:
            off = f", and psi is about {self.drift:.2g} standard errors short of its end"
            warn(
                f"The training runs do not finish: they reach about {self.share:.0%} of the "
                f"variance of psi{off if self.drift > DRIFT_WARNS else ''}, so the standard error "
                "is doubtful, and mostly too small. Train longer, with a larger learning rate, to "
                "a tighter tolerance, or from a good fit. If the model can be given to "
                "`from_torch` or another `from_*` function, `infer` needs no training.",
                DriftWarning,
            )


def _missing_at_half(trainings: Trainings, ends: Ends) -> Array:
    """Train with half of each lambda; return the part of the response that is out of proportion."""
    bonuses = [Bonus(trainings.psi, k, lam / 2) for k, lam in zip(ends.k, ends.lam, strict=True)]
    found = np.array([psi[k] for k, psi in zip(ends.k, trainings.at(bonuses), strict=True)])
    # on the parabola through the three points that are known
    expected = ends.rest + ends.rise / 4 + (ends.ahead + ends.behind - 2 * ends.rest) / 8
    return abs(_beyond(found - expected, ends.noise)) / (ends.rise / 4)


def _curved(trainings: Trainings, ends: Ends, lift: float, reach: float) -> tuple[Array, Array]:
    """Train to all ends with curved bonuses; NaN where that fails.

    Returns the rise between two ends relative to what it should be, and by how many standard errors
    both are off together.
    """
    bonuses = [
        CurvedBonus(trainings.psi, k, sign * lam, end, lift / error**2, reach * error)
        for k, lam, error, *both in zip(
            ends.k, ends.lam, ends.error, ends.ahead, ends.behind, strict=True
        )
        for sign, end in zip((1, -1), both, strict=True)
    ]
    try:
        found = trainings.at(bonuses)
    except Exception as error:  # of the user's own loop: a curved bonus may lead where it fails
        if lift == WEAK:
            _warn_unknown(error)
        return np.full(ends.k.size, np.nan), np.full(ends.k.size, np.nan)
    own = np.array([psi[bonus.k] for psi, bonus in zip(found, bonuses, strict=True)]).reshape(-1, 2)
    rise = own[:, 0] - own[:, 1] - ends.rise
    move = (own.sum(axis=1) - ends.ahead - ends.behind) / 2
    pace = 1 + _beyond(rise, ends.noise) / ends.rise
    return pace, abs(_beyond(move, ends.noise)) / ends.error


def _warn_unknown(error: Exception) -> None:
    warn(
        "Whether the training runs finish is unknown, since one with a curved bonus failed "
        f"({type(error).__name__}: {error!s:.60}). Compare with a training twice as long.",
        DriftWarning,
    )


def _beyond(difference: Array, noise: Array) -> Array:
    """Take off what may be noise."""
    return np.asarray(np.sign(difference) * np.maximum(abs(difference) - noise, 0.0))


def share_reached(pace: float) -> float:
    r"""Estimate the share s of V that trainings reach, from the response to a curved bonus.

    It is the fraction `pace` of that to a straight one. For gradient steps that reach :math:`s = 1
    - e^{-x}` along one curvature, and a lift of :math:`c / s` of it, the pace is :math:`(1 - c)
    (1 - e^{-y}) / (s - c)` with :math:`y = x (1 - c / s)`: from 0.65 for the first step to 1.
    Along many curvatures what is left falls more slowly than that, so that a pace close to one
    means less: not more than :math:`(1 + \text{pace}) / 2`, as if half the pace left three times
    as much. Momentum and Adam overshoot, with a pace above one that is held against them as such.

    Examples
    --------
    >>> [round(share_reached(pace), 3) for pace in (0.6, 0.719, 0.9, 1.0, 1.25)]
    [0.0, 0.659, 0.95, 1.0, 0.75]
    """
    if not pace <= 1:  # NaN remains
        return max(2 - pace, 0.0)
    x = np.geomspace(1e-3, 30.0, 1000)
    s = -np.expm1(-x)
    y = x * (1 - LIFTED / s)
    paces = (1 - LIFTED) * x / s * -np.expm1(-y) / y
    return min(float(np.interp(pace, paces, s, left=0.0, right=1.0)), (1 + pace) / 2)

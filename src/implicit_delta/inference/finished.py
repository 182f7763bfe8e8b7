"""Signs of trainings that do not finish: train again, to ends that are known if they do."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.findings import Finding
from implicit_delta.core.thresholds import ENDS_APART, REACHED
from implicit_delta.core.types import Array
from implicit_delta.errors import DriftWarning, NonlinearityWarning
from implicit_delta.inference.trainings import Bonus, CurvedBonus, Trainings
from implicit_delta.methods.probe import spread_out

LIFTED = 0.5  # of the curvature along the response, lifted by a curved bonus: it halves the pace
WIDE = 10.0  # standard errors within which the bonus is curved; a start may be farther away
WEAK, NARROW = 0.02, 1.0  # the same for a second look, by a bonus that is next to straight
STILL = 0.001  # difference at most: Newton's method leaves 0.02^2 after two steps
APART = 1 - REACHED  # of the response
FAR = 1.0  # standard errors: beyond, a response out of proportion is put down to the push
# Of a cubic term of psi, three eighths are missing at half the push: 1.25% of a standard error,
# to an order that may see half of it.
PROPORTION_WARNS = 0.0375
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
    r"""Signs of unfinished trainings, from three more of them for each checked psi_k.

    A finished training with any bonus b ends where :math:`\nabla L + b'(\psi) \nabla\psi = 0`. So a
    curved bonus that has the slope :math:`\lambda` at the end of the push by :math:`\lambda` leads
    to that very end, whatever L and psi are. Its curvature takes half of that of the objective
    away, so that gradient steps close in at half the pace: where they leave a part q of the
    response to a straight bonus, they leave about :math:`\sqrt q` to a curved one. And half of
    :math:`\lambda` has half the response, unless an optimizer that normalizes its gradients (Adam)
    or stops below a tolerance is not finished.

    Differences are signs of unfinished trainings. Their absence shows nothing: a part of the
    response that has hardly begun is missing from all of these trainings alike.

    Attributes
    ----------
    response_difference : float
        Between responses that finished trainings make equal, relative, the largest.
    end_difference : float
        Between ends that finished trainings make equal, in standard errors, the largest.
    out_of_proportion : float
        Of the response to half of a `lam` that pushes by more than a standard error, relative.
    failure : str
        The error of a training with a curved bonus, if it has failed twice.

    The first two are NaN where they are unknown: not checked, or lost in the noise of trainings.
    """

    response_difference: float = np.nan
    end_difference: float = np.nan
    out_of_proportion: float = 0.0
    failure: str = ""

    @classmethod
    def of(cls, trainings: Trainings, ends: Ends) -> "Finish":
        """Train with curved and with half bonuses, and compare."""
        calm = np.flatnonzero(ends.noise <= LOUD * ends.rise)
        if not calm.size:
            return cls()
        ends = ends[np.array(spread_out(calm, MOST_CHECKED))]
        at_half = _missing_at_half(trainings, ends)
        response, end, _ = _curved(trainings, ends, LIFTED, WIDE)
        # A psi that bends may be led to another maximum, and Newton's method takes few steps.
        doubtful = np.flatnonzero(~((response <= APART) & (end <= ENDS_APART)))
        failure = ""
        if doubtful.size:
            *again, failure = _curved(trainings, ends[doubtful], WEAK, NARROW)
            fine = doubtful[(again[0] <= STILL) & (again[1] <= STILL)]
            response[fine], end[fine] = 0.0, 0.0
        far = ends.push > FAR
        # an unknown difference is not known from proportion alone, unless that is missing
        proportion = ~far & (np.isfinite(response) | (at_half > APART))
        response = np.where(proportion, np.fmax(response, at_half), response)
        return cls(
            response_difference=_largest(response),
            end_difference=_largest(end),
            out_of_proportion=float(np.max(at_half[far], initial=0.0)),
            failure=failure,
        )

    def findings(self) -> Iterator[Finding]:
        """Find what makes the standard error doubtful."""
        if self.failure:
            yield Finding(
                "warn",
                "unknown_finish",
                "Whether the training runs finish is unknown, since one with a curved bonus failed "
                f"({self.failure}).",
                remedies=("Compare with a training twice as long.",),
                warning=DriftWarning,
            )
        if self.out_of_proportion > PROPORTION_WARNS:
            yield Finding(
                "warn",
                "large_push",
                "`lam` pushes psi so far that its response is no longer in proportion: that to "
                f"half of `lam` differs by {self.out_of_proportion:.0%} from a parabola through "
                "the others.",
                number=self.out_of_proportion,
                remedies=("Leave `lam` out: it is then chosen.",),
                warning=NonlinearityWarning,
            )
        elif self.response_difference > APART or self.end_difference > ENDS_APART:
            yield Finding(
                "warn",
                "unfinished_trainings",
                "The training runs do not finish: those that lead to the same end differ by "
                f"{self.response_difference:.1%} of the response of psi, and by "
                f"{self.end_difference:.2g} standard errors in psi itself. The standard error is "
                "doubtful, and mostly too small; how much is missing is unknown.",
                number=self.end_difference,
                remedies=(
                    "Train longer, with a larger learning rate, to a tighter tolerance, or from a "
                    "good fit, until the standard error stays the same.",
                    "If the model can be given to `from_torch` or another `from_*` function, "
                    "`infer` needs no training.",
                ),
                warning=DriftWarning,
            )


def _largest(differences: Array) -> float:
    """Return the largest that is known, or NaN."""
    known = differences[np.isfinite(differences)]
    return float(np.max(known)) if known.size else np.nan


def _missing_at_half(trainings: Trainings, ends: Ends) -> Array:
    """Train with half of each lambda; return the part of the response that is out of proportion."""
    bonuses = [Bonus(trainings.psi, k, lam / 2) for k, lam in zip(ends.k, ends.lam, strict=True)]
    found = np.array([psi[k] for k, psi in zip(ends.k, trainings.at(bonuses), strict=True)])
    # on the parabola through the three points that are known
    expected = ends.rest + ends.rise / 4 + (ends.ahead + ends.behind - 2 * ends.rest) / 8
    return abs(_beyond(found - expected, ends.noise)) / (ends.rise / 4)


def _curved(
    trainings: Trainings, ends: Ends, lift: float, reach: float
) -> tuple[Array, Array, str]:
    """Train to all ends with curved bonuses; NaN and the reason where that fails.

    Returns by how much the rise between two ends differs from that of straight bonuses, relative,
    and by how many standard errors both ends are off together.
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
        unknown = np.full(ends.k.size, np.nan)
        return unknown, unknown.copy(), f"{type(error).__name__}: {error!s:.60}"
    own = np.array([psi[bonus.k] for psi, bonus in zip(found, bonuses, strict=True)]).reshape(-1, 2)
    rise = own[:, 0] - own[:, 1] - ends.rise
    move = (own.sum(axis=1) - ends.ahead - ends.behind) / 2
    response, end = abs(_beyond(rise, ends.noise)) / ends.rise, abs(_beyond(move, ends.noise))
    return response, end / ends.error, ""


def _beyond(difference: Array, noise: Array) -> Array:
    """Take off what may be noise."""
    return np.asarray(np.sign(difference) * np.maximum(abs(difference) - noise, 0.0))

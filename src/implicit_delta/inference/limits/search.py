"""The value of psi at which a tail probability, or a ratio of two, is one less the level."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri, stdtr

from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, UnsupportedModelError
from implicit_delta.inference.limits.statistic import NOWHERE, Fit, Statistic
from implicit_delta.inference.limits.toys import CANNOT, Counts, Tail, Toys, effective_events
from implicit_delta.inference.profile.result import Profile
from implicit_delta.models.coordinates import slope_inside
from implicit_delta.models.model import FittedModel

Way: TypeAlias = Literal["likelihood", "cls", "toys", "cls-toys"]

MANY = 200.0  # effective events: asymptotic limits of counts then cover 94.5 %, see the study
EXACT = 1e-9  # of the distance from the estimate to the limit of the likelihood
EMPTY = 1e-5  # of it: at the estimate, where deviances are rounding
NEAR = 0.5  # Monte-Carlo errors: what is left is interpolated
LEAST = 1e-12  # probability that is told from zero
FARTHER, FARTHEST = 1.3, 1e3  # times as far, until a value is excluded; nothing ever is
AT_BOUND = 1e-6  # of that distance: the estimate is where there is no signal
STRAIGHT = 1e-4  # of the root of the deviance: the log-likelihood is a line


@dataclass(frozen=True, eq=False)
class Search:
    """The search for a limit from that of the likelihood.

    Attributes
    ----------
    model, psi, profile
    sign : {1, -1}
    start : float
        The limit of the likelihood.
    null : float or None
        Psi without a signal, if that was given.
    """

    model: FittedModel
    psi: Any
    profile: Profile
    sign: int
    start: float
    null: float | None

    @cached_property
    def length(self) -> float:
        """The distance from the estimate to that limit; infinite if there is nothing to find."""
        found = abs(self.start - self.profile.value)
        return found if 0 < found < math.inf else math.inf

    @cached_property
    def statistic(self) -> Statistic:
        """The statistic, on this side."""
        return Statistic.of(self.model, self.psi, self.sign, self.length)

    @cached_property
    def top(self) -> Fit:
        """The maximum."""
        return self.statistic.free(self.model, np.array(self.model.theta))

    @cached_property
    def background(self) -> Fit | None:
        """The fit without a signal: where psi is `null`, or at the bound on its other side."""
        if self.null is None:
            return self.statistic.farthest(-self.sign)
        found = self.statistic.at(self.null, self.model, self.top.theta)
        if found is NOWHERE:
            raise ValueError(f"null={self.null!r} is a value that psi does not take.")
        return found

    def usual(self) -> Way:
        """Choose a method by how the data are distributed; see `limit`."""
        if self._sampled:
            return "likelihood"
        try:
            near = Counts.of(self.model, self.top.theta).means
        except UnsupportedModelError:
            return "likelihood"
        if not near.size:
            return "likelihood"
        if self._many(near):
            return "likelihood" if self.background is None else "cls"
        return "toys" if self.background is None else "cls-toys"

    def limit(self, way: Way, alpha: float, number: int, seed: int) -> tuple[float, float]:
        """Find the limit and its Monte-Carlo error."""
        self._check(way)
        if not math.isfinite(self.length):
            return self.start, 0.0
        toys = Toys(self.statistic, number, seed)
        known = {0.0: (-ndtri(alpha), 0.0)}  # where half of all estimates are more extreme

        def gap(t: float) -> float:
            if t not in known:
                tail = self._tail(way, t, toys)
                error = tail.error / normal_density(ndtri(alpha))
                known[t] = float(ndtri(np.clip(tail.value, LEAST, 1 - LEAST)) - ndtri(alpha)), error
            return 0.0 if abs(known[t][0]) < NEAR * known[t][1] else known[t][0]

        end = self.statistic.farthest(self.sign)
        last = math.inf if end is None else abs(end.psi - self.top.psi) / self.length
        low, high = 0.0, min(1.0, last)
        while gap(high) > 0:
            if end is not None and high == last:
                return end.psi, 0.0
            low, high = high, min(FARTHER * high, last)
            if high > FARTHEST:
                return self.sign * math.inf, 0.0
        t = brentq(gap, low, high, xtol=EXACT) if gap(high) else high
        if t < EMPTY:  # psi is excluded wherever it is larger (smaller) than its estimate
            return self.top.psi, 0.0
        (left, error), slope = known[t], known[0.0][0] / t
        if error:
            t += left / slope
        return self.top.psi + self.sign * t * self.length, error / slope * self.length

    @property
    def _sampled(self) -> bool:
        """Whether psi has an error beside that of the model."""
        return len(self.profile.budget) > 2

    def _many(self, near: Array) -> bool:
        if not math.isfinite(self.length):
            return False
        there = self.statistic.at(self.start, self.model, self.top.theta)
        if there is NOWHERE:
            return False
        far = Counts.of(self.model, there.theta).means
        return far.shape == near.shape and effective_events(near, far) >= MANY

    def _check(self, way: Way) -> None:
        if way != "toys" and self.background is None:
            raise UnsupportedModelError(
                f"method={way!r} divides by a probability without a signal, and psi has no bound "
                "that says where that is. Give the model `bounds=`, such as (0, None) of a signal, "
                'or `null=`, the psi without one; or use `method="likelihood"` or "toys".'
            )
        if self._sampled:
            raise UnsupportedModelError(
                "psi has an error of its own, of the sample that it is an average of, and method="
                f'{way!r} knows that of the model alone. Use `method="likelihood"`.'
            )
        if way == "cls":
            return
        if self.model.facts.noise_rule is not None:
            raise UnsupportedModelError(
                f"method={way!r} would hold the noise variance, which was estimated, in all "
                'simulated data. Use `method="likelihood"` or "cls", with quantiles of '
                "Student's t, or give `variance=`."
            )
        try:
            Counts.of(self.model, self.top.theta)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(CANNOT.format(method=way)) from error

    def _tail(self, way: Way, t: float, toys: Toys) -> Tail:
        """The probability, or ratio of two, so many lengths from the estimate."""
        psi = self.top.psi + self.sign * t * self.length
        at = self.statistic.at(psi, self.model, self.top.theta)
        if at is NOWHERE:
            return Tail(0.0, 0.0)
        observed = self.statistic.deviance(psi, self.top, at)
        if way == "cls":
            return Tail(self._asymptotic(observed, at), 0.0)
        if way == "toys":
            return toys.tails(psi, observed, [at])[0]
        assert self.background is not None
        both, alone = toys.tails(psi, observed, [at, self.background])
        if alone.value == 0:
            raise ConvergenceError(
                f"None of {toys.number} data sets without a signal is as far below it as the data: "
                "these are not of this model, or `toys=` is too small for them. "
                '`method="cls"` needs no simulation.'
            )
        ratio = both.value / alone.value
        return Tail(ratio, math.hypot(both.error, ratio * alone.error) / alone.value)

    def _asymptotic(self, q: float, at: Fit) -> float:
        r"""CLs by the distributions of :math:`\tilde q` in large samples.

        :math:`\mathrm{CL}_s = \Phi(-\sqrt{q}) / \Phi(\sqrt{q_A} - \sqrt{q})`, where the deviance
        :math:`q_A` of data without a signal that are exactly as expected has for its root that of
        psi less that of no signal, :math:`r(0) - r(\psi)`. Where the estimate is at its bound
        (eq. 66) it is the quadratic part of q; the rest is the slope of the likelihood there.
        """
        assert self.background is not None
        root = math.sqrt(max(2 * (self.top.value - self.background.value), 0.0))
        if abs(self.top.psi - self.background.psi) > AT_BOUND * self.length:
            return math.exp(self._log_tail(math.sqrt(q)) - self._log_tail(-root))
        slope = slope_inside(self.model, self.top.theta)
        linear = min(max(-2 * float(slope @ (at.theta - self.top.theta)), 0.0), q)
        a = max(math.sqrt(q - linear), STRAIGHT * math.sqrt(q), 1e-300)
        return math.exp(self._log_tail((q / a + a) / 2) - self._log_tail((q / a - a) / 2))

    def _log_tail(self, root: float) -> float:
        df = self.model.facts.df
        return float(log_ndtr(-root) if math.isinf(df) else np.log(stdtr(df, -root)))


def normal_density(z: float) -> float:
    """Density of the standard normal distribution."""
    return math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)

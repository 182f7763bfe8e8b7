"""The value of psi at which a tail probability, or a ratio of two, is one less the level."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri, stdtr

from implicit_delta.errors import ConvergenceError, UnsupportedModelError
from implicit_delta.inference.limits.statistic import NOWHERE, REACHED, Fit, Statistic
from implicit_delta.inference.limits.toys import Tail, Toys, effective_events, poisson_means
from implicit_delta.inference.profile.result import Profile
from implicit_delta.models.coordinates import slope_inside
from implicit_delta.models.model import FittedModel

Way: TypeAlias = Literal["likelihood", "cls", "toys", "cls-toys"]

# Skewness alters a tail probability of 5 % by 0.103 / (6 sqrt(n)): 0.34 % of coverage.
MANY = 25.0  # effective events
CLOSE, EMPTY = 1e-4, 2e-4  # of `length`: to the limit, before a secant; at the estimate
NEAR = 0.5  # Monte-Carlo errors: what is left is interpolated
LEAST = 1e-12  # probability that is told from zero
FARTHER, FARTHEST = 1.3, 1e3  # times as far, until a value is excluded; nothing ever is
STRAIGHT = 1e-4  # of the root of the deviance: the log-likelihood is a line

NO_NULL = (
    "method={!r} divides by a probability without a signal, and psi has no bound that says where "
    "that is. Give the model `bounds=`, such as (0, None) of a signal, or `null=`, the psi without "
    'one; or use `method="likelihood"` or "toys".'
)
CANNOT = (
    "method={!r} draws data from the model, and this one cannot (or not with the noise variance "
    'that it has estimated). Use `method="likelihood"` or "cls"; or a model that can: '
    "`from_loglik(..., simulate=)`, `from_residuals(..., variance=1.0)`, a GLM of statsmodels or "
    "scikit-learn, or a likelihood such as `Poisson()` with `from_torch` and `from_jax`."
)
TOO_FEW = (
    "No data set without a signal is as far below it as the data, of {}: the data are not of this "
    'model, or `toys=` is too small for them. `method="cls"` needs no simulation.'
)


@dataclass(frozen=True, eq=False)
class Search:
    """The search for a limit from `start`, that of the likelihood; sign 1 for upper limits."""

    model: FittedModel
    psi: Any
    profile: Profile
    sign: int
    start: float
    null: float | None
    number: int
    seed: int

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
    def toys(self) -> Toys:
        """Its distribution."""
        return Toys(self.statistic, self.number, self.seed)

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
        try:
            near, _ = poisson_means(self.model, self.top.theta)
        except UnsupportedModelError:
            return "likelihood"
        if not near.size or len(self.profile.budget) > 2:
            return "likelihood"
        there = self.top
        if math.isfinite(self.length):
            there = self.statistic.at(self.start, self.model, self.top.theta)
        few = self.toys.values([there])[0] is not None
        if few or effective_events(near, poisson_means(self.model, there.theta)[0]) < MANY:
            return "toys" if self.background is None else "cls-toys"
        return "likelihood" if self.background is None else "cls"

    def limit(self, way: Way, alpha: float) -> tuple[float, float]:
        """Find the limit and its Monte-Carlo error."""
        self._check(way)
        if not math.isfinite(self.length):
            return self.start, 0.0
        z = float(ndtri(alpha))
        known = {0.0: (-z, 0.0)}  # where half of all estimates are more extreme

        def gap(t: float) -> float:
            if t not in known:
                tail = self._tail(way, self.top.psi + self.sign * t * self.length)
                error = tail.error * math.sqrt(2 * math.pi) * math.exp(z**2 / 2)
                known[t] = float(ndtri(np.clip(tail.value, LEAST, 1 - LEAST))) - z, error
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
        t = brentq(gap, low, high, xtol=CLOSE) if gap(high) else high
        if t < EMPTY:  # all beyond the estimate is excluded
            return self.top.psi, 0.0
        (left, error), slope = known[t], -z / t
        if error:
            t += left / slope
        else:  # a secant; a sum over values of several counts jumps, and its root is in between
            near = sorted(known, key=lambda x: abs(known[x][0]))[:2]
            (a, fa), (b, fb) = ((x, known[x][0]) for x in near)
            t = float(np.clip(a - fa * (b - a) / (fb - fa), t - CLOSE, t + CLOSE)) if fa else a
        return self.top.psi + self.sign * t * self.length, error / slope * self.length

    def _check(self, way: Way) -> None:
        if len(self.profile.budget) > 2:
            raise UnsupportedModelError(
                "psi has an error of its own, of the sample that it is an average of, which "
                f'method={way!r} does not know. Use `method="likelihood"`.'
            )
        if way != "toys" and self.background is None:
            raise UnsupportedModelError(NO_NULL.format(way))
        if way != "cls":
            try:
                poisson_means(self.model, self.top.theta)
            except UnsupportedModelError as error:
                raise UnsupportedModelError(CANNOT.format(way)) from error
            if self.model.facts.noise_rule is not None:
                raise UnsupportedModelError(CANNOT.format(way))

    def _tail(self, way: Way, psi: float) -> Tail:
        """The probability of the data if psi is true, or its ratio to that without a signal."""
        at = self.statistic.at(psi, self.model, self.top.theta)
        if at is NOWHERE:
            return Tail(0.0, 0.0)
        observed = self.statistic.deviance(psi, self.top, at)
        if way == "toys":
            return self.toys.tails(psi, observed, [at])[0]
        assert self.background is not None
        if way == "cls":
            return Tail(self._asymptotic(observed, at, self.background), 0.0)
        both, alone = self.toys.tails(psi, observed, [at, self.background])
        if alone.value == 0:
            raise ConvergenceError(TOO_FEW.format(self.number))
        ratio = both.value / alone.value
        return Tail(ratio, math.hypot(both.error, ratio * alone.error) / alone.value)

    def _asymptotic(self, q: float, at: Fit, background: Fit) -> float:
        r"""CLs by the distributions of :math:`\tilde q` in large samples.

        :math:`\Phi(-\sqrt{q}) / \Phi(\sqrt{q_A} - \sqrt{q})`, where the deviance :math:`q_A` of
        data that are as expected without a signal has for its root the distance of psi from there,
        :math:`r(0) - r(\psi)` in signed roots of the likelihood. Where the estimate is at its bound
        it is the quadratic part of q (eq. 66); the rest is the slope of the likelihood there.
        """
        df = self.model.facts.df

        def log_tail(x: float) -> float:
            return float(log_ndtr(-x) if math.isinf(df) else np.log(stdtr(df, -x)))

        if self.sign * (self.top.psi - background.psi) > REACHED * self.length:
            root = math.sqrt(max(2 * (self.top.value - background.value), 0.0))
            return math.exp(log_tail(math.sqrt(q)) - log_tail(-root))
        slope = slope_inside(self.model, self.top.theta)
        linear = min(max(-2 * float(slope @ (at.theta - self.top.theta)), 0.0), q)
        a = max(math.sqrt(q - linear), STRAIGHT * math.sqrt(q), LEAST)
        return math.exp(log_tail((q / a + a) / 2) - log_tail((q / a - a) / 2))

"""Smoothed gradients for evaluations that have none: opaque, kinked or jumping."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.arguments import as_seed
from implicit_delta.core.findings import Finding, present
from implicit_delta.core.thresholds import CHANGE_WARNS, UNCERTAIN
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError, NonlinearityWarning, NotDeterministicWarning
from implicit_delta.evaluation.normal_draws import NormalDraws, Pairs, check_draws, simulate, still
from implicit_delta.linalg.arrays import ratio
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.models.processes import processes_of

WIDTH = 1.0  # standard errors
SURE = 3.0  # Monte-Carlo errors that a change or a bend must exceed before it is one


@dataclass(frozen=True, eq=False)
class Smoothed:
    r"""The evaluation, smoothed over about one standard error.

    A psi that jumps has a derivative of zero almost everywhere, and yet moves when the parameters
    do. What counts for its standard error is its slope over the range of the estimate: the gradient
    :math:`\bar g` of the smoothed :math:`E\, \psi(\theta + s H z)` at :math:`\hat\theta`, with z
    standard normal, :math:`H H' = A^{-1}` and a width s of about one. By Stein's lemma

    .. math::

        A^{-1} \bar g = E\, \frac{\psi(\hat\theta + s H z) - \psi(\hat\theta - s H z)}{2 s} H z,

    which needs no derivative of psi. In place of psi the methods then see its smooth quadratic
    approximation over that range, so that `Infinitesimal`, `FiniteDifference` and robust errors
    work for any psi. For more pairs than parameters the slope of a linear psi is exact; for fewer
    its length is still that of the simulated variance, so d may be large.

    Everything is done a second time at half the width, with the same z. A standard error that
    changes by more than a quarter is reported (`NonlinearityWarning`): psi is then too coarse, a
    single step perhaps, to have a normal distribution.

    Parameters
    ----------
    psi : callable
        Any evaluation, also an `Average` or `Replicated`.
    width : float, optional
        s, in standard errors; 1 unless given.
    draws : int
        How many times psi is evaluated at each of the two widths; even.
    rng : int or numpy.random.Generator, optional
        Source of z; fresh unless given.
    curvature : {"hessian", "ggn"}, optional
        Which A; that of the model unless given.
    n_jobs : int
        How many evaluations run at once (joblib).

    Examples
    --------
    >>> import implicit_delta as idm
    >>> y, x = np.sin(np.arange(400)), np.linspace(-10, 10, 4001)
    >>> model = idm.from_loglik(lambda m: -((y - m[0]) ** 2) / 2, start=[0.0])
    >>> def share(m):  # of x above the mean: a step function of m
    ...     return np.mean(x > m[0])
    >>> est = idm.infer(model, idm.Smoothed(share, rng=0))
    >>> round(est.standard_error, 4)  # the mean has 0.05, and x a density of 0.05 near it
    0.0025
    """

    psi: Callable[..., Any]
    width: float | None = None
    draws: int = 1000
    rng: int | np.random.Generator | None = None
    curvature: Curvature | None = None
    n_jobs: int = 1

    def __post_init__(self) -> None:
        """Check what was configured."""
        if self.width is not None and not (np.isfinite(self.width) and self.width > 0):
            raise ValueError(f"width must be a positive number, not {self.width!r}.")
        check_draws(self.draws, self.curvature)

    def linearize(
        self, model: FittedModel, psi: Callable[[Array], Array], value: Array
    ) -> "tuple[Surrogate, Mapping[str, float | str], tuple[Finding, ...]]":
        """Find the surrogate of psi, (d,) to (K,), around the model's theta; notes and findings."""
        seed = processes_of(model).broadcast_seed(as_seed(self.rng))
        width = self.width or WIDTH
        draws = NormalDraws(model, self.draws // 2, seed, self.curvature or model.facts.curvature)
        where = f"Smoothed(draws={self.draws}, rng={seed})"
        wide, narrow = (
            _slope(simulate(psi, draws, s, self.n_jobs, where), draws) for s in (width, width / 2)
        )
        _check_moved(wide, width)
        error = float(np.max(wide.uncertainty))
        change = np.asarray(abs(np.sqrt(narrow.variance / wide.variance) - 1))
        doubt = SURE * np.hypot(narrow.uncertainty, wide.uncertainty)
        notes: dict[str, float | str] = {
            "smoothing_width": width,
            "smoothing_change": float(np.max(change)),
            "smoothing_error": error,
            "smoothing_seed": str(seed),
        }
        found = present(_uncertain(error), _unstable(change, doubt, width))
        return wide.surrogate(draws, value, width), notes, found


@dataclass(frozen=True, eq=False)
class Surrogate:
    r"""A smooth stand-in for psi near theta: :math:`\psi_k + \epsilon_k t_k + q_k t_k^2`.

    Here :math:`t_k = g_k'(\theta - \hat\theta) / \epsilon_k` is the distance in standard errors
    :math:`\epsilon_k`, and :math:`q_k` the bend of psi along its own direction of response.
    """

    center: Array
    offset: Array
    gradient: Array
    error: Array
    bend: Array

    def value(self, theta: Array) -> Array:
        """Evaluate at theta, (K,)."""
        t = self._distance(theta)
        return np.asarray(self.offset + self.error * t + self.bend * t**2)

    def jacobian(self, theta: Array) -> Array:
        """Differentiate at theta, (K, d)."""
        relative = ratio(self.bend, self.error)
        return np.asarray((1 + 2 * relative * self._distance(theta))[:, None] * self.gradient)

    def component(self, k: int) -> "Surrogate":
        """Take the k-th evaluation alone."""
        one = slice(k, k + 1)
        return replace(
            self,
            offset=self.offset[one],
            gradient=self.gradient[one],
            error=self.error[one],
            bend=self.bend[one],
        )

    def _distance(self, theta: Array) -> Array:
        rise = self.gradient @ (theta - self.center)
        return ratio(rise, self.error)


@dataclass(frozen=True, eq=False)
class _Slope:
    """Variances (K,) at one width, their relative uncertainty, and the pairs behind them."""

    pairs: Pairs
    variance: Array
    uncertainty: Array

    def surrogate(self, draws: NormalDraws, value: Array, width: float) -> Surrogate:
        """Scale the slopes so that g' A^-1 g is the variance, and add the bend along them."""
        gradient = draws.information(self.pairs.directions)
        raw = np.sum(self.pairs.directions * gradient, axis=0)
        scale = np.sqrt(ratio(self.variance, raw))
        error = np.sqrt(self.variance)
        along = self.pairs.odd if self.pairs.linear is None else self.pairs.linear
        t = width * ratio(along, error)
        return Surrogate(
            draws.model.theta, value, (gradient * scale).T, error, _regress(self.pairs.even, t**2)
        )


def _slope(pairs: Pairs, draws: NormalDraws) -> _Slope:
    """Estimate the variance of the linear part of psi, and how uncertain that is."""
    count = draws.pairs
    if pairs.linear is None:
        squares = pairs.odd**2
        variance = squares.mean(axis=0)
        spread = squares.std(axis=0) / np.sqrt(count)
    else:
        # Noise in each of the d estimated coordinates of the slope adds to its length: take it off.
        noise = np.sum((pairs.odd - pairs.linear) ** 2, axis=0) / (count - draws.model.d) / count
        length = np.mean(pairs.linear**2, axis=0)
        variance = np.maximum(length - draws.model.d * noise, 0.0)
        spread = np.sqrt(4 * length * noise + 2 * draws.model.d * noise**2)
    relative = ratio(spread, 2 * variance)
    return _Slope(pairs, variance, relative)


def _regress(y: Array, x: Array) -> Array:
    """Slope of each column of y on the same column of x; zero if it may be an accident."""
    deviations, heights = x - x.mean(axis=0), y - y.mean(axis=0)
    size = np.sum(deviations**2, axis=0)
    total = np.sum(deviations * heights, axis=0)
    slope = ratio(total, size)
    doubt = np.sum((heights - slope * deviations) ** 2, axis=0) / (len(x) - 2)
    return np.asarray(np.where(slope**2 * size > SURE**2 * doubt, slope, 0.0))


def _check_moved(slope: _Slope, width: float) -> None:
    """Refuse each output without a slope: constant, or moved by its jumps alone."""
    ends = np.concatenate([slope.pairs.even + side * width * slope.pairs.odd for side in (1, -1)])
    constant, lost = still(ends), slope.variance <= 0
    if np.any(constant):
        raise EvaluationError(
            f"{_named(constant)} did not change at any draw within {width:g} standard errors of "
            "the parameters. Either it does not depend on the model, or its steps are so wide that "
            "no standard error describes it. Leave it out of psi."
        )
    if np.any(lost):
        raise EvaluationError(
            f"{_named(lost)} moves, but no slope can be told from the noise of its jumps. Use more "
            "`draws=`, a larger `width=`, or more rows or replicates inside psi; or "
            "`Simulation()`, which counts the jumps as they are."
        )


def _named(outputs: NDArray[np.bool_]) -> str:
    if outputs.size == 1:
        return "psi"
    return ", ".join(f"psi[{k}]" for k in np.flatnonzero(outputs)[:5])


def _uncertain(error: float) -> Finding | None:
    """Find a slope that the noise of the draws leaves uncertain."""
    if not error > UNCERTAIN:
        return None
    return Finding(
        "warn",
        "smoothing_error",
        "The slope of the smoothed psi, and with it the standard error, is uncertain by about "
        f"{error:.0%}: another seed gives another one.",
        number=error,
        remedies=("Use more `draws=`, or a larger `width=` for a psi that jumps.",),
        warning=NotDeterministicWarning,
    )


def _unstable(change: Array, doubt: Array, width: float) -> Finding | None:
    """Find standard errors at two widths whose difference is not an accident."""
    if not np.any(change > np.maximum(CHANGE_WARNS, doubt)):
        return None
    return Finding(
        "warn",
        "smoothing_change",
        f"The standard error of the smoothed psi changes by {np.max(change):.0%} when the "
        f"width {width:g} is halved, so it depends on the width. psi is too coarse or too "
        "curved within one standard error for a normal interval.",
        number=float(np.max(change)),
        remedies=("Look at the percentiles of `Simulation()`.",),
        warning=NonlinearityWarning,
    )

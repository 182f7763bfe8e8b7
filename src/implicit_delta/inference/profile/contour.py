r"""Joint likelihood-ratio region of two quantities.

With x the parameters in standard errors and :math:`\eta(x)` the two quantities less their
estimates, in coordinates in which their Wald ellipse is a circle, the boundary is sought ray by
ray: the largest t for which some theta of deviance at most the quantile has :math:`\eta = t\, e`,
by sequential quadratic programming, checked for stationarity (Karush, Kuhn and Tucker).
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import lsq_linear, minimize
from scipy.special import fdtri, ndtr, stdtr

from implicit_delta.core.findings import report
from implicit_delta.core.hints import also
from implicit_delta.core.precision import cautious
from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array, Asked
from implicit_delta.core.warn import warn
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
    ImplicitDeltaError,
    ImplicitDeltaWarning,
    UnsupportedModelError,
)
from implicit_delta.estimate.quantiles import checked_level
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.checks.case import drift_of
from implicit_delta.inference.checks.drift import of_drift
from implicit_delta.inference.profile.door import check_likelihood, levels_of, profile_of
from implicit_delta.inference.profile.feasible import Feasible, without_inequalities
from implicit_delta.inference.profile.following import Follower
from implicit_delta.inference.profile.joint_region import Contour
from implicit_delta.inference.profile.region import Region
from implicit_delta.inference.profile.ticks import profiling
from implicit_delta.methods.ascent import Ascent
from implicit_delta.models.constraints import Constraints
from implicit_delta.models.isolation import isolated
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of
from implicit_delta.models.user_calls import progress_for

RAYS = 48
FEWEST_RAYS = 8
OPTIONS = {"maxiter": 200, "ftol": 1e-9}
REACHED = 1e-6  # relative: the deviance is at its quantile
ON_RAY = 1e-5  # standard errors off the ray
AUDITED = 12  # rays from one audit to the next
STATIONARY = 1e-2  # of the gradient that may be left; it enters squared
FINE = 1e-3  # the same where a search stops
LOOKS = 200  # points of the region whose two quantities must lie inside
INSIDE, SLACK = 0.97, 0.02  # of the radius; standard errors
SHORT, FAR_SHORT = 0.03, 0.1  # of its width, by which the region may miss a quantity's profile
HUGE = 1e100  # stands for what is not defined
STARTS = 3  # random ones, where the others fail


@also(name="names")
@cautious
@isolated
def contour(
    model: FittedModel,
    psi: Asked,
    confidence_level: float | Sequence[float] = 0.95,
    *,
    rays: int = RAYS,
    names: Sequence[str] | None = None,
    strict: bool = True,
) -> Contour:
    r"""Find the joint likelihood-ratio region of two quantities.

    It holds the pairs of values that psi takes where the deviance is at most the quantile of
    chi-squared with two degrees of freedom (5.99 at 95 %), or, where a noise variance was
    estimated, twice that of F. Unlike the ellipse of `infer` it bends with the likelihood, and
    stays within the constraints of the model. Its projections are wider than the intervals of
    `profile`, which hold for one quantity at a time.

    Parameters
    ----------
    model : FittedModel
        Made by one of the `from_*` functions, at its maximum.
    psi : callable, or two of them; or two names
        The evaluation: a function of the model that returns two numbers, or two parameters by name.
    confidence_level : float or sequence of float
        Joint, between 0 and 1.
    rays : int
        Points on the boundary, at equal angles around the estimate. Where constraints cut the
        region, its corners lie between two of them and are cut by a chord.
    names : two str, optional
        Of the quantities, for tables and axes.
    strict : bool
        Refuse a model that is far from its maximum (drift above 1), as in `infer`.

    Returns
    -------
    Contour
        With ``points``, ``area``, ``contains``, ``ellipse`` and ``plot``.

    Raises
    ------
    ConvergenceError
        The boundary was not found on some ray (the region may be unbounded there), or values of
        psi in the likelihood region lie outside: the region is not star-shaped around the estimate.
    EvaluationError
        Psi is not two quantities that vary on their own.

    Examples
    --------
    Mean and standard deviation of a normal distribution:

    >>> import implicit_delta as idm
    >>> y = np.array([1.2, 0.4, 2.2, 1.4, 0.8])
    >>> model = idm.from_loglik(
    ...     lambda th: -(((y - th[0]) / np.exp(th[1])) ** 2) / 2 - th[1], start=[0, 0]
    ... )
    >>> region = idm.contour(model, lambda th: np.stack([th[0], np.exp(th[1])]))
    >>> region.contains([1.2, 0.5]), region.contains([1.2, 0.1])
    (True, False)
    """
    levels, count = levels_of(confidence_level), _checked_rays(rays)
    constraints = model.space.constraints
    whole = model if constraints is None else without_inequalities(model)
    evaluation = Evaluation.of(whole, psi, names)
    _check_evaluation(evaluation)
    check_likelihood(evaluation.model)
    search = _Search.of(evaluation, constraints)
    if constraints is None or constraints.equal.all():
        score = evaluation.model.score(evaluation.model.theta)
        drift = drift_of(score, search.root @ search.tangent, np.ones(2))
        report([of_drift(model, drift)], strict)
    return _found(search, levels, count)


def _found(search: "_Search", levels: list[float], rays: int) -> Contour:
    angles = np.linspace(0, 2 * np.pi, rays, endpoint=False)
    df, radii = search.model.facts.df, dict[float, Array]()
    with (
        profiling(search.model, "deviance"),
        progress("contour", total=rays * len(levels), unit="ray") as bar,
        progress_for(search.model, "contour", rays * len(levels) * (4 * search.model.d + 6)),
    ):
        for level in levels:
            root, found = joint_root(level, df), list[float]()
            before, follower = np.zeros(search.model.d), search.follower(root)
            for k, angle in enumerate(angles):
                audited = k % AUDITED == 0
                before, t = search.boundary(angle, root, before, follower, audited)
                found.append(t)
                bar.update(1)
            radii[level] = np.array(found)
    region = Contour(
        value=search.evaluation.value,
        covariance=search.half @ search.half.T,
        angles=angles,
        radii=radii,
        names=search.evaluation.names,
        df=df,
        bounded=search.feasible is not None,
    )
    for level in levels:
        search.check_inside(region, level, joint_root(level, df))
    if search.feasible is None:
        _check_projections(search.evaluation, region, max(levels))
    return region


def _check_projections(evaluation: Evaluation, region: Contour, level: float) -> None:
    """Compare how far the region reaches with the profile of each quantity, at the same deviance.

    Rays end where they first leave the region, so that they miss the arms of one that is bent.
    """
    root = joint_root(level, region.df)
    alone = 2 * ndtr(root) - 1 if np.isinf(region.df) else 2 * stdtr(region.df, root) - 1
    along = region.outline(level)
    for k in range(2):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ImplicitDeltaWarning)
                low, high = profile_of(evaluation.component(k), float(alone)).interval
        except ImplicitDeltaError:  # nothing to compare with
            continue
        reached = along[:, k].min(), along[:, k].max()
        short = max(reached[0] - low, high - reached[1]) / (high - low)
        if short <= SHORT:
            continue
        text = (
            f"The joint region at confidence level {level:g} is bent: along rays from the estimate "
            f"{region.names[k]} reaches from {reached[0]:.6g} to {reached[1]:.6g}, and its own "
            f"profile at the same deviance from {low:.6g} to {high:.6g}. Choose other coordinates, "
            "in which the region is rounder (a logarithm, a product, a difference), or `profile` "
            "of each."
        )
        if short > FAR_SHORT:
            raise ConvergenceError(text)
        warn(text, ImplicitDeltaWarning)
        return


def _checked_rays(rays: Any) -> int:
    if not isinstance(rays, int | np.integer) or rays < FEWEST_RAYS:
        raise ValueError(f"rays is a whole number of at least {FEWEST_RAYS}, not {rays!r}.")
    return int(rays)


def joint_root(level: float, df: float) -> float:
    """Root of the deviance for two quantities at once: chi-squared, or F."""
    level = checked_level(level)
    if np.isinf(df):
        return float(np.sqrt(-2 * np.log1p(-level)))
    return float(np.sqrt(2 * fdtri(2, df, level)))


def _check_evaluation(evaluation: Evaluation) -> None:
    if evaluation.size != 2:
        raise EvaluationError(
            f"psi returns {evaluation.size} value(s), and a contour is that of two: give "
            "`lambda theta: theta[:2]`, or a list of two functions."
        )
    plain = evaluation.noise is None and evaluation.sampling is None and evaluation.itself is None
    if not plain or evaluation.sample is not None:
        raise EvaluationError(
            "A contour is that of the likelihood alone, and psi has an error of its own (an "
            "average over a sample, noise, a smoothed psi). Use `infer(model, psi)`."
        )


class _Reached(Exception):
    """Ends a search at its argument; SLSQP does not stop by StopIteration."""


@dataclass(frozen=True, eq=False)
class _Search:
    """Deviance and two quantities, in coordinates x of standard errors around the maximum.

    Attributes
    ----------
    evaluation : Evaluation
    region : Region
    root : (d, d) array
        Columns of one standard error each.
    half : (2, 2) array
        Lower root of the covariance of the two.
    feasible : Feasible or None
        The inequalities, if there are any.
    """

    evaluation: Evaluation
    region: Region
    root: Array
    half: Array
    feasible: Feasible | None

    @classmethod
    def of(cls, evaluation: Evaluation, constraints: Constraints | None) -> "_Search":
        """Factorize the curvature and the covariance of the two quantities."""
        model = evaluation.model
        ascent = Ascent.of(model)
        if ascent.scale is None:
            raise UnsupportedModelError(
                "A contour takes the factorized curvature, and this model has too many parameters."
            )
        if constraints is None:
            evaluation = evaluation.on(model.at(ascent.climb(model).x))
        root = np.asarray(ascent.scale.half(np.eye(model.d)))
        slopes = evaluation.jacobian(evaluation.model.theta) @ root
        sizes = np.linalg.norm(slopes, axis=1)
        if not np.all(sizes > 0):
            raise EvaluationError(
                f"{evaluation.names[int(np.argmin(sizes))]} does not change with the parameters, "
                "so that there is no region of two quantities. Use `profile` for the other."
            )
        if abs(slopes[0] @ slopes[1]) > (1 - 1e-9) * sizes[0] * sizes[1]:
            raise EvaluationError(
                "The two quantities are functions of each other (their estimates are perfectly "
                "correlated), so that their joint region is a line. Use `profile` of one."
            )
        inequalities = constraints is not None and not constraints.equal.all()
        feasible = Feasible(evaluation, constraints) if constraints and inequalities else None
        half = np.asarray(np.linalg.cholesky(slopes @ slopes.T), dtype=np.float64)
        return cls(evaluation, Region.of(evaluation, ascent), root, half, feasible)

    @property
    def model(self) -> FittedModel:
        """The model at its maximum."""
        return self.evaluation.model

    @cached_property
    def tangent(self) -> Array:
        """Derivative of x with respect to eta along the quadratic prediction, (d, 2)."""
        slopes = self._slope(np.zeros(self.model.d))
        return np.asarray(slopes.T)

    def eta(self, x: Array) -> Array:
        """The two quantities less their estimates, whitened: (2,), NaN where not defined."""
        try:
            gap = self.region.evaluation(self._theta(x)) - self.evaluation.value
        except EvaluationError:
            return np.full(2, np.nan)
        return np.asarray(solve_triangular(self.half, gap, lower=True, check_finite=False))

    def follower(self, root: float) -> Follower:
        """Prepare to go around the boundary of one deviance."""
        return Follower(self._deviance, self.eta, self._score, self._slope, self.tangent, root)

    def boundary(
        self,
        angle: float,
        root: float,
        before: Array,
        follower: Follower | None = None,
        audited: bool = True,
    ) -> tuple[Array, float]:
        """Find the largest t on a ray: x there, and t; audited with derivatives of known error."""
        e = np.array([np.cos(angle), np.sin(angle)])
        for x in self._candidates(angle, e, root, before, follower):
            if x is not None and self._holds(e, root, x, audited):
                if follower is not None:
                    follower.note(angle, x)
                return x, max(float(e @ self.eta(x)), 0.0)
        raise ConvergenceError(
            f"The boundary of the joint region was not found at the angle {np.degrees(angle):.0f} "
            f"degrees of its ellipse (deviance {root**2:.3g}). Usual causes: the data do not bound "
            "the two quantities there, psi has a pole or kinks, or the log-likelihood has an edge "
            "or a second maximum. Ask for a lower confidence_level, for the logarithm or another "
            "function of psi that stays bounded, or for `profile` of each quantity."
        )

    def check_inside(self, region: Contour, level: float, root: float) -> None:
        """Look at psi all over the likelihood region; it has to lie inside of the boundary."""
        ways = np.random.default_rng(0).standard_normal((LOOKS, self.model.d))
        ways *= INSIDE * root / np.linalg.norm(ways, axis=1, keepdims=True)
        for x in ways:
            eta = self.eta(x)
            angle, size = float(np.arctan2(eta[1], eta[0])), float(np.hypot(*eta))
            far = size - region.radius(angle, level) > SLACK
            if not far or not self._allowed(x) or self._deviance(x) > root**2:
                continue
            if size > self.boundary(angle, root, x)[1] + SLACK:  # and not only between two rays
                point = self.region.evaluation(self._theta(x))
                raise ConvergenceError(
                    f"The joint region at confidence level {level:g} is not star-shaped around the "
                    f"estimate: the data do not exclude ({point[0]:.5g}, {point[1]:.5g}), which "
                    "lies behind the boundary that was found. Ask for a lower confidence_level or "
                    "more `rays=`, or for functions of psi that are closer to linear."
                )

    def _candidates(
        self, angle: float, e: Array, root: float, before: Array, follower: Follower | None
    ) -> Iterator[Array | None]:
        if follower is not None:
            yield self._followed(follower, angle)
        yield from (self._solve(e, root, start) for start in self._starts(e, root, before))

    def _followed(self, follower: Follower, angle: float) -> Array | None:
        try:
            return follower.next(angle)
        except (EvaluationError, UnsupportedModelError, np.linalg.LinAlgError):
            return None

    def _starts(self, e: Array, root: float, before: Array) -> Iterator[Array]:
        ahead = root * self.tangent @ e
        near = np.linalg.norm(before)
        yield ahead * (near / np.linalg.norm(ahead)) if near > 0 else ahead
        yield ahead
        yield before
        yield ahead / 4
        ways = np.random.default_rng(0).standard_normal((STARTS, self.model.d))
        yield from (ahead / 2 + root / 4 * way / np.linalg.norm(way) for way in ways)

    def _solve(self, e: Array, root: float, start: Array) -> Array | None:
        across = np.array([-e[1], e[0]])

        def rest(x: Array) -> float:
            left = (root**2 - self._deviance(x)) / (2 * root)
            return left if np.isfinite(left) else -HUGE

        def along(way: Array, x: Array) -> float:
            value = float(way @ self.eta(x))
            return value if np.isfinite(value) else HUGE

        limits = [] if self.feasible is None else self.feasible.limits()
        on_ray = {
            "type": "eq",
            "fun": lambda x: along(across, x),
            "jac": lambda x: across @ self._slope(x),
        }
        inside = {"type": "ineq", "fun": rest, "jac": lambda x: self._score(x) / root}

        def stop(x: Array) -> None:
            # Differences leave errors in the slopes below which the line search does not end.
            if self._holds(e, root, x, False, FINE):
                raise _Reached(x)

        try:
            found = minimize(
                lambda x: -along(e, x),
                start,
                jac=lambda x: -e @ self._slope(x),
                method="SLSQP",
                constraints=[on_ray, inside, *limits],
                options=OPTIONS,
                callback=stop,
            )
        except _Reached as reached:
            return np.array(reached.args[0])
        except (EvaluationError, UnsupportedModelError):
            return None
        return np.asarray(found.x) if np.all(np.isfinite(found.x)) else None

    def _holds(
        self, e: Array, root: float, x: Array, audited: bool, most: float = STATIONARY
    ) -> bool:
        """Whether x is on the ray, in the region, and stationary."""
        across = np.array([-e[1], e[0]])
        deviance = self._deviance(x)
        if not (abs(across @ self.eta(x)) <= ON_RAY and deviance <= root**2 * (1 + REACHED)):
            return False
        if not self._allowed(x):
            return False
        try:
            slope, score = self._slope(x), self._score(x, audited)
        except (EvaluationError, UnsupportedModelError):
            return False
        columns, low = [across @ slope], [-np.inf]
        if deviance >= root**2 * (1 - 10 * REACHED):
            columns.append(-score)
            low.append(0.0)
        if self.feasible is not None:
            normals = [*self.feasible.normals(self._theta(x))]
            columns += normals
            low += [0.0] * len(normals)
        goal = e @ slope
        fit = lsq_linear(np.array(columns).T, goal, (low, np.inf))
        left = float(np.linalg.norm(fit.fun))
        return len(columns) > 1 and left <= most * float(np.linalg.norm(goal))

    def _theta(self, x: Array) -> Array:
        return np.asarray(self.model.theta + self.root @ x)

    def _allowed(self, x: Array) -> bool:
        return self.feasible is None or self.feasible.holds(self._theta(x))

    def _deviance(self, x: Array) -> float:
        return self.region.deviance(self._theta(x))

    def _score(self, x: Array, audited: bool = False) -> Array:
        theta = self._theta(x)
        score = self.model.score(theta) if audited else objective_of(self.model).rough_score(theta)
        return np.asarray(self.root.T @ score)

    def _slope(self, x: Array) -> Array:
        """Jacobian of eta with respect to x, (2, d)."""
        slopes = self.region.evaluation.jacobian(self._theta(x)) @ self.root
        return np.asarray(solve_triangular(self.half, slopes, lower=True))

r"""Joint likelihood-ratio region of two quantities.

With :math:`\eta` the two quantities less their estimates, in coordinates in which their Wald
ellipse is a circle, the boundary on the ray e is the largest :math:`e'\eta` of all theta of
deviance at most the quantile that have :math:`\eta` along e: an extreme under an equality, found
from the neighbors of the ray.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline
from scipy.linalg import solve_triangular
from scipy.special import ndtr, stdtr

from implicit_delta.core.findings import Finding, report
from implicit_delta.core.hints import also
from implicit_delta.core.precision import cautious
from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array, Asked
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
    ImplicitDeltaError,
    ImplicitDeltaWarning,
    UnsupportedModelError,
)
from implicit_delta.estimate.axes import new_axes
from implicit_delta.estimate.quantiles import joint_root
from implicit_delta.estimate.tables import aligned, as_html, data_frame, percent
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.evaluation import Function
from implicit_delta.inference.checks.case import drift_of
from implicit_delta.inference.checks.drift import of_drift
from implicit_delta.inference.profile.constrained import Feasible, without_inequalities
from implicit_delta.inference.profile.extreme import extreme, verified
from implicit_delta.inference.profile.problem import (
    Guarded,
    Limits,
    Point,
    Problem,
    Rows,
    count_passes,
)
from implicit_delta.inference.profile.profile import check_likelihood, levels_of, profile_of
from implicit_delta.methods.ascent import Ascent
from implicit_delta.models.constraints import Constraints
from implicit_delta.models.isolation import isolated
from implicit_delta.models.model import FittedModel
from implicit_delta.models.user_calls import progress_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

TURN = 2 * np.pi
RAYS, FEWEST_RAYS = 48, 8
TOGETHER = 3  # neighbors that the next point is extrapolated from
FINE, CLOSE = 3e-3, 1e-2  # share of the gradient that is left before a last step; relative root
AUDITED = 12  # rays from one audit to the next
LOOKS = 200  # points of the region whose two quantities must lie inside
INSIDE, SLACK = 0.97, 0.02  # of the radius; standard errors
SHORT, FAR_SHORT = 0.03, 0.1  # of its width, by which the region may miss a quantity's profile
STARTS = 3  # random ones, where the others fail
SMOOTH = 400  # points of a drawn boundary


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
    check_likelihood(whole)
    angles = np.linspace(0, TURN, count, endpoint=False)
    with (
        count_passes(whole, "deviance") as update,
        progress("contour", total=count * len(levels), unit="ray") as bar,
        progress_for(whole, "contour", count * len(levels) * (4 * whole.d + 6)),
    ):
        search = _Search.of(evaluation, constraints, update)
        top = search.problem.model
        if constraints is None or constraints.equal.all():
            drift = drift_of(top.score(top.theta), search.tangent, np.ones(2))
            report([of_drift(top, drift)], strict)
        radii = {
            level: search.radii(angles, joint_root(level, top.facts.df), lambda: bar.update(1))
            for level in levels
        }
    value, half = search.problem.evaluation.value, search.half
    bounded, df = search.feasible is not None, top.facts.df
    region = Contour(value, half @ half.T, angles, radii, evaluation.names, df, bounded)
    for level in levels:
        search.check_inside(region, level, joint_root(level, df))
    if not bounded:
        report([_bent(search.problem.evaluation, region, max(levels))], strict=True)
    return region


def _bent(evaluation: Evaluation, region: Contour, level: float) -> Finding | None:
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
        if short > SHORT:
            return Finding(
                "error" if short > FAR_SHORT else "warn",
                "bent_region",
                f"The joint region at confidence level {level:g} is bent: along rays from the "
                f"estimate {region.names[k]} reaches from {reached[0]:.6g} to {reached[1]:.6g}, "
                f"and its own profile at the same deviance from {low:.6g} to {high:.6g}.",
                float(short),
                remedies=(
                    "Choose other coordinates, in which the region is rounder (a logarithm, a "
                    "product, a difference), or `profile` of each.",
                ),
                error=ConvergenceError,
            )
    return None


def _checked_rays(rays: Any) -> int:
    if not isinstance(rays, int | np.integer) or rays < FEWEST_RAYS:
        raise ValueError(f"rays is a whole number of at least {FEWEST_RAYS}, not {rays!r}.")
    return int(rays)


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


def _root_of(slopes: Array, names: Sequence[str]) -> Array:
    """Lower root of the covariance of the two, from their slopes (2, d) in standard errors."""
    sizes = np.linalg.norm(slopes, axis=1)
    if not np.all(sizes > 0):
        raise EvaluationError(
            f"{names[int(np.argmin(sizes))]} does not change with the parameters, so that there is "
            "no region of two quantities. Use `profile` for the other."
        )
    if abs(slopes[0] @ slopes[1]) > (1 - 1e-9) * sizes[0] * sizes[1]:
        raise EvaluationError(
            "The two quantities are functions of each other (their estimates are perfectly "
            "correlated), so that their joint region is a line. Use `profile` of one."
        )
    return np.asarray(np.linalg.cholesky(slopes @ slopes.T), dtype=np.float64)


@dataclass(frozen=True, eq=False, repr=False)
class Contour:
    """Joint likelihood-ratio regions of two quantities, by confidence level.

    Attributes
    ----------
    value : (2,) array
        The two quantities at the maximum.
    covariance : (2, 2) array
        Of the Wald ellipse.
    angles : (m,) array
        Of the rays, in coordinates in which that ellipse is a circle.
    radii : mapping of float to (m,) array
        By confidence level: how far the region extends along each ray, in standard errors.
    names : tuple of str
    df : float
        Degrees of freedom of the noise variance: F instead of chi-squared if finite.
    bounded : bool
        Whether inequalities may cut the region, which then has corners.
    """

    value: Array
    covariance: Array
    angles: Array
    radii: Mapping[float, Array]
    names: tuple[str, ...]
    df: float = np.inf
    bounded: bool = False

    @property
    def levels(self) -> tuple[float, ...]:
        """The confidence levels."""
        return tuple(self.radii)

    def points(self, confidence_level: float | None = None) -> Array:
        """Return the boundary, (m, 2); by default that of the first level."""
        return self._places(self.angles, self.radii[self._level(confidence_level)])

    def outline(self, confidence_level: float | None = None) -> Array:
        """Return the boundary between the rays too, (m, 2)."""
        angles = np.linspace(0, TURN, SMOOTH)
        return self._places(angles, self.radius(angles, confidence_level))

    def radius(self, angle: ArrayLike, confidence_level: float | None = None) -> Array:
        """Interpolate how far the region extends at some angles, in standard errors."""
        radii = self.radii[self._level(confidence_level)]
        asked = np.mod(np.asarray(angle, dtype=np.float64), TURN)
        around, values = np.append(self.angles, TURN), np.append(radii, radii[0])
        if self.bounded:
            return _on_chords(asked, around, values)
        return np.asarray(CubicSpline(around, values, bc_type="periodic")(asked))

    def contains(self, point: ArrayLike, confidence_level: float | None = None) -> Any:
        """Tell whether a pair of values, (2,), or each of several, (m, 2), is in the region."""
        given = np.asarray(point, dtype=np.float64)
        if given.shape[-1:] != (2,) or given.ndim > 2:
            raise ValueError(f"Give one point, (2,), or several, (m, 2), not shape {given.shape}.")
        eta = np.linalg.solve(self._half, (given - self.value).T)
        inside = np.hypot(*eta) <= self.radius(np.arctan2(eta[1], eta[0]), confidence_level)
        return bool(inside) if given.ndim == 1 else np.asarray(inside)

    def area(self, confidence_level: float | None = None) -> float:
        """Return the area, by the trapezoidal rule in the angle."""
        radii = self.radii[self._level(confidence_level)]
        return float(np.pi * np.mean(radii**2) * np.linalg.det(self._half))

    def ellipse(self, confidence_level: float | None = None) -> Array:
        """Return the boundary of the symmetric (Wald) region of the same level, (m, 2)."""
        radius = joint_root(self._level(confidence_level), self.df)
        return self._places(self.angles, np.full(self.angles.size, radius))

    def ellipse_area(self, confidence_level: float | None = None) -> float:
        """Return the area of the ellipse."""
        radius = joint_root(self._level(confidence_level), self.df)
        return float(np.pi * radius**2 * np.linalg.det(self._half))

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the boundaries as columns: the level and the two quantities."""
        found = [(level, *point) for level in self.levels for point in self.points(level)]
        columns = ("conf_level", *self.names)
        return {name: [row[k] for row in found] for k, name in enumerate(columns)}

    def to_frame(self) -> DataFrame:
        """Return the boundaries as a pandas data frame."""
        return data_frame("pandas", self.to_dict())

    def __repr__(self) -> str:
        return aligned(self._cells())

    def _repr_html_(self) -> str:
        return as_html(self._cells(), "Joint likelihood-ratio region of two quantities")

    def plot(self, ax: Axes | None = None, **style: Any) -> Axes:
        """Draw the boundaries, the Wald ellipses (dashed) and the estimate.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure unless given.
        **style
            Passed to matplotlib's ``plot`` for the boundaries.
        """
        ax = new_axes() if ax is None else ax
        angles = np.linspace(0, TURN, SMOOTH)
        for level in self.levels:
            look: dict[str, Any] = {"label": f"{percent(level)} joint", "zorder": 3} | style
            (line,) = ax.plot(*self._places(angles, self.radius(angles, level)).T, **look)
            circle = np.full(SMOOTH, joint_root(level, self.df))
            ax.plot(*self._places(angles, circle).T, "--", color="0.5", linewidth=0.8)
            style = {"color": line.get_color()} | style
        ax.plot(*self.value, "+", color="0.2")
        ax.plot([], [], "--", color="0.5", linewidth=0.8, label="Wald")
        ax.set(xlabel=self.names[0], ylabel=self.names[1])
        ax.legend()
        return ax

    @property
    def _half(self) -> Array:
        return np.asarray(np.linalg.cholesky(self.covariance), dtype=np.float64)

    def _places(self, angles: Array, radii: Array) -> Array:
        circle = np.stack([np.cos(angles), np.sin(angles)])
        return np.asarray(self.value + (self._half @ (radii * circle)).T)

    def _level(self, level: float | None) -> float:
        if level is None:
            return self.levels[0]
        if level not in self.radii:
            raise ValueError(
                f"The contour has the confidence levels {list(self.levels)}, not {level!r}: give "
                "all levels to `contour(model, psi, confidence_level=[...])`."
            )
        return level

    def _cells(self) -> list[list[str]]:
        rows = [["", "conf_level", "estimate", "low", "high", "wald_low", "wald_high"]]
        for level in self.levels:
            points, wald = self.points(level), self.ellipse(level)
            for k, name in enumerate(self.names):
                ends = [f(side[:, k]) for side in (points, wald) for f in (np.min, np.max)]
                numbers = [f"{float(x):.4g}" for x in (self.value[k], *ends)]
                rows.append([name, percent(level), *numbers])
        return rows


def _on_chords(asked: Array, angles: Array, radii: Array) -> Array:
    """Distance of the polygon through all points at some angles: constraints are straight."""
    k = np.clip(np.searchsorted(angles, asked, side="right") - 1, 0, angles.size - 2)
    (a, b), (r, s) = (angles[k], angles[k + 1]), (radii[k], radii[k + 1])
    across = r * np.sin(asked - a) + s * np.sin(b - asked)
    return np.asarray(r * s * np.sin(b - a) / np.where(across > 0, across, 1.0))


@dataclass(frozen=True, eq=False)
class _Linear:
    """Linear functions of what two quantities differ from their estimates by."""

    function: Function
    center: Array
    coefficients: Array

    def value(self, theta: Array) -> Array:
        return np.asarray(self.coefficients @ (self.function.value(theta) - self.center))

    def jacobian(self, theta: Array) -> Array:
        return np.asarray(self.coefficients @ self.function.jacobian(theta))

    def component(self, k: int) -> _Linear:
        return replace(self, coefficients=self.coefficients[[k]])


@dataclass(frozen=True, eq=False)
class _Search:
    """Deviance and two quantities around the maximum.

    Attributes
    ----------
    problem : Problem
        Of both quantities.
    half : (2, 2) array
        Lower root of the covariance of the two.
    feasible : Feasible or None
        The inequalities, if there are any.
    """

    problem: Problem
    half: Array
    feasible: Feasible | None

    @classmethod
    def of(
        cls, evaluation: Evaluation, constraints: Constraints | None, update: Callable[[], None]
    ) -> _Search:
        """Factorize the curvature and the covariance of the two quantities."""
        model = evaluation.model
        ascent = Ascent.of(model)
        if ascent.scale is None:
            raise UnsupportedModelError(
                "A contour takes the factorized curvature, and this model has too many parameters."
            )
        if constraints is None:
            evaluation = evaluation.on(model.at(ascent.climb(model).x))
        model = evaluation.model
        slopes = evaluation.jacobian(model.theta) @ np.asarray(ascent.scale.half(np.eye(model.d)))
        half = _root_of(slopes, evaluation.names)
        problem = Problem.of(evaluation, ascent.scale, update_progress=update)
        inequalities = constraints is not None and not constraints.equal.all()
        feasible = Feasible(evaluation, constraints) if constraints and inequalities else None
        return cls(problem, half, feasible)

    @property
    def tangent(self) -> Array:
        """Derivative of theta with respect to eta along the quadratic prediction, (d, 2)."""
        assert self.problem.scale is not None
        slope = self.rotated(0.0).jacobian(self.problem.model.theta)
        return np.asarray(self.problem.scale.solve(slope.T))

    def rotated(self, angle: float) -> Evaluation:
        """The two quantities less their estimates, whitened, along a ray and across it."""
        evaluation = self.problem.evaluation
        assert evaluation.function is not None
        turned = np.stack([_ray(angle), _ray(angle + TURN / 4)], axis=1)
        T = solve_triangular(self.half, turned, lower=True, trans="T").T
        function = Guarded(_Linear(evaluation.function, evaluation.value, T))
        return replace(evaluation, value=np.zeros(2), function=function)

    def eta(self, theta: Array) -> Array:
        """The two quantities less their estimates, whitened: (2,)."""
        return self.rotated(0.0)(theta)

    def along(self, angle: float) -> Problem:
        """Pose the problem of one ray: the largest eta along it, and none across."""
        both = self.rotated(angle)
        own = self.feasible.limits if self.feasible is not None else None

        def gaps(theta: Array) -> Array:
            try:
                across = both(theta)[1:]
            except EvaluationError:
                across = np.full(1, np.nan)
            return across if own is None else np.append(across, own.gaps(theta))

        def rows(theta: Array) -> Rows:
            normals = both.jacobian(theta)[1:]
            if own is not None:
                normals = np.vstack([normals, own.rows(theta).normals])
            return Rows(gaps(theta), normals, np.arange(len(normals)) == 0)

        limits = Limits(rows, gaps, np.asarray if own is None else own.inside, own is not None)
        return replace(self.problem, evaluation=both, limits=limits)

    def radii(self, angles: Array, root: float, done: Callable[[], Any]) -> Array:
        """Find the extent of the region at each angle, in standard errors."""
        known: list[tuple[float, Point]] = []
        for k, angle in enumerate(angles):
            known.append((angle, self.boundary(angle, root, known, k % AUDITED == 0)))
            done()
        return np.array([max(point.psi, 0.0) for _, point in known])

    def boundary(
        self,
        angle: float,
        root: float,
        known: list[tuple[float, Point]],
        audited: bool = True,
        start: Array | None = None,
    ) -> Point:
        """Find the end of a ray, from those of its neighbors."""
        problem = self.along(angle)
        first = [] if start is None else [start]
        for theta in [*first, *self._starts(angle, root, known)]:
            try:
                point = problem.point(theta, 1)
                if known:
                    point = replace(point, metric=known[-1][1].metric)
                found = extreme(problem, 1, root, point, tolerance=FINE, near=CLOSE).point
                if found is not None and audited:
                    found = verified(problem, 1, root, found)
            except (EvaluationError, UnsupportedModelError, ArithmeticError, ValueError):
                continue
            if found is not None and (self.feasible or abs(found.root - root) <= CLOSE * root):
                return found
        raise ConvergenceError(
            f"The boundary of the joint region was not found at the angle {np.degrees(angle):.0f} "
            f"degrees of its ellipse (deviance {root**2:.3g}). Usual causes: the data do not bound "
            "the two quantities there, psi has a pole or kinks, or the log-likelihood has an edge "
            "or a second maximum. Ask for a lower confidence_level, for the logarithm or another "
            "function of psi that stays bounded, or for `profile` of each quantity."
        )

    def _starts(
        self, angle: float, root: float, known: list[tuple[float, Point]]
    ) -> Iterator[Array]:
        """Extrapolate how neighbors differ from the ellipse by the polynomial through them."""
        center, last = self.problem.model.theta, known[-TOGETHER:]
        ahead = root * self.tangent @ _ray(angle)
        bend = np.zeros_like(center)
        for own, point in last:
            weight = np.prod([(angle - a) / (own - a) for a, _ in last if a != own])
            bend += weight * (point.theta - center - root * self.tangent @ _ray(own))
        yield center + ahead + bend
        yield center + ahead
        yield from (point.theta for _, point in last[-1:])
        yield center + ahead / 4
        yield center

    def check_inside(self, region: Contour, level: float, root: float) -> None:
        """Look at psi all over the likelihood region; it has to lie inside of the boundary."""
        model, scale = self.problem.model, self.problem.scale
        assert scale is not None
        ways = np.random.default_rng(0).standard_normal((LOOKS, model.d))
        ways *= INSIDE * root / np.linalg.norm(ways, axis=1, keepdims=True)
        for theta in model.theta + np.asarray(scale.half(ways.T)).T:
            try:
                eta = self.eta(theta)
            except EvaluationError:
                continue
            angle, size = float(np.arctan2(eta[1], eta[0])), float(np.hypot(*eta))
            if not size - region.radius(angle, level) > SLACK or not self._holds(theta, root):
                continue
            if size > self.boundary(angle, root, [], start=theta).psi + SLACK:  # between two rays
                point = self.problem.evaluation(theta)
                raise ConvergenceError(
                    f"The joint region at confidence level {level:g} is not star-shaped around the "
                    f"estimate: the data do not exclude ({point[0]:.5g}, {point[1]:.5g}), which "
                    "lies behind the boundary that was found. Ask for a lower confidence_level or "
                    "more `rays=`, or for functions of psi that are closer to linear."
                )

    def _holds(self, theta: Array, root: float) -> bool:
        allowed = self.feasible is None or self.feasible.holds(theta)
        return allowed and self.problem.root(theta) <= root


def _ray(angle: float) -> Array:
    return np.array([np.cos(angle), np.sin(angle)])

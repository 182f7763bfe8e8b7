"""What comes out: a value with its covariance, and the intervals, tests and tables made of them."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc, expit, logit, ndtr, ndtri

from implicit_delta._typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Diagnostics", "Estimate", "Interval", "WaldTest"]

Transform: TypeAlias = str | tuple[Callable[[Any], Any], Callable[[Any], Any]]


class Interval(NamedTuple):
    """Lower and upper ends: floats for a scalar evaluation, (K,) arrays otherwise."""

    low: float | Array
    high: float | Array


class WaldTest(NamedTuple):
    """Test statistic and its p-value: floats, or (K,) arrays with one test per evaluation."""

    statistic: float | Array
    p_value: float | Array


@dataclass(frozen=True)
class Diagnostics:
    """How far the numbers behind an estimate can be trusted; NaN is what the method cannot know.

    Attributes
    ----------
    drift : float
        Largest ``|w' score| / SE`` over the evaluations: by how many standard errors psi would
        still move if training were finished.
    smallest_curvature : float
        Smallest curvature of minus the objective met by the solver.
    linearity : float
        ``|psi(+) + psi(-) - 2 psi(0)| / |psi(+) - psi(-)|`` at the two ends of a push of half a
        standard error: 0 is straight, 1 means that one end does not move.
    asymmetry : float
        Largest ``|V - V'|`` relative to ``SE_j SE_k``, before the covariance was symmetrized.
    residual : float
        Relative residual (or relative gap of the bounds) of the linear solve; for refits, the
        remaining gradient in standard errors.
    passes : int
        Passes over the data.
    seconds : float
        Wall-clock time.
    notes : mapping of str to float or str
        What only one method has to tell, such as ``lam`` or ``monte_carlo_error``.
    """

    drift: float = math.nan
    smallest_curvature: float = math.nan
    linearity: float = math.nan
    asymmetry: float = math.nan
    residual: float = math.nan
    passes: int = 0
    seconds: float = 0.0
    notes: Mapping[str, float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", dict(self.notes))


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """The value of K evaluations and their joint covariance, as of a normal distribution.

    Attributes
    ----------
    value : float or (K,) array
        Psi at the fitted parameters; a scalar psi stays a float. All arrays are read-only copies.
    covariance : (K, K) array
        Estimated covariance of ``value``.
    names : tuple of str
        One name per evaluation.
    method : str
        How the covariance was found.
    diagnostics : Diagnostics
        How far it can be trusted.
    influence : (n, K) array, optional
        First-order change of psi when one more copy of training row i is added.
    parts : mapping of str to (K, K) array
        Covariance of each source of error (``model``, ``evaluation``, ``noise``); empty when
        there is only one.
    draws : (B, K) array, optional
        Psi over replicates, from simulation or bootstrap.

    Examples
    --------
    >>> from implicit_delta.estimate import Estimate
    >>> est = Estimate([1.0, 3.0], [[0.04, 0.02], [0.02, 0.09]], names=("a", "b"), method="by hand")
    >>> est
       estimate  std_error  statistic  p_value  conf_low  conf_high
    a    1.0000     0.2000       5.00  5.7e-07    0.6080     1.3920
    b    3.0000     0.3000      10.00  1.5e-23    2.4120     3.5880
    >>> low, high = est.contrast([-1, 1]).confidence_interval(0.90)
    >>> print(f"{low:.3f} {high:.3f}")
    1.507 2.493
    """

    value: float | Array
    covariance: Array
    names: tuple[str, ...]
    method: str
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    influence: Array | None = None
    parts: Mapping[str, Array] = field(default_factory=dict)
    draws: Array | None = None

    def __post_init__(self) -> None:
        value = _read_only("value", self.value)
        if value.ndim > 1 or value.size == 0:
            raise ValueError(f"value has shape {value.shape}; give a number or a (K,) array, K > 0")
        names = _names(self.names, value.size)
        checked: dict[str, Any] = {
            "value": float(value) if value.ndim == 0 else value,
            "names": names,
            "covariance": _covariance("covariance", self.covariance, names),
            "parts": MappingProxyType(
                {part: _covariance(f"parts[{part!r}]", V, names) for part, V in self.parts.items()}
            ),
        }
        for many in ("influence", "draws"):
            rows = getattr(self, many)
            checked[many] = None if rows is None else _read_only(many, rows, width=value.size)
        for name, content in checked.items():
            object.__setattr__(self, name, content)

    def __reduce__(self) -> tuple[type[Estimate], tuple[Any, ...]]:
        """Rebuild through the constructor: a pickled array would come back writable."""
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        return type(self), tuple({**state, "parts": dict(self.parts)}.values())

    @property
    def standard_error(self) -> float | Array:
        """Square roots of the diagonal of the covariance, shaped like ``value``."""
        return self._like_value(_deviations(self.covariance))

    @property
    def budget(self) -> dict[str, float | Array]:
        """Standard error due to each source of error, and their ``total``."""
        parts = self.parts or {"model": self.covariance}
        errors = {part: self._like_value(_deviations(V)) for part, V in parts.items()}
        return {**errors, "total": self.standard_error}

    def confidence_interval(
        self,
        confidence_level: float = 0.95,
        *,
        transform: Transform | None = None,
        simultaneous: bool = False,
        kind: str = "normal",
        rng: int | np.random.Generator | None = None,
    ) -> Interval:
        """Return the interval ``value -/+ critical * standard_error``, or one of its refinements.

        Parameters
        ----------
        confidence_level : float
            Between 0 and 1.
        transform : {"log", "logit"} or (forward, inverse), optional
            Make the interval on the scale of ``forward``, where the first-order standard error is
            ``|forward'(value)| * standard_error``, and map it back, so that it stays inside the
            range of psi. A pair of functions is applied to one number at a time.
        simultaneous : bool
            Cover all K evaluations at once: the critical value is the quantile of
            ``max_k |Z_k|``, with Z normal and correlated like the estimates (sup-t band).
        kind : {"normal", "percentile"}
            ``"percentile"`` takes the quantiles of ``draws`` instead.
        rng : int or numpy.random.Generator, optional
            Source of the 100 000 draws behind ``simultaneous``; a fixed seed unless given.

        Returns
        -------
        Interval
            ``low`` and ``high``, shaped like ``value``.

        Examples
        --------
        >>> rate = Estimate(0.02, [[0.015**2]], names=("rate",), method="by hand")
        >>> low, high = rate.confidence_interval(transform="logit")
        >>> print(f"{low:.4f} {high:.4f}")
        0.0045 0.0838
        """
        level = _checked_level(confidence_level)
        if kind == "percentile":
            ends = self._percentiles(level, transform, simultaneous)
        elif kind == "normal":
            critical = _normal_quantile(level)
            if simultaneous:
                critical = _sup_t_quantile(self.covariance, level, rng)
            ends = self._normal_ends(critical, transform)
        else:
            raise ValueError(f"kind is 'normal' or 'percentile', not {kind!r}")
        return Interval(*map(self._like_value, ends))

    def test(self, null: ArrayLike = 0.0, joint: bool = False) -> WaldTest:
        """Test that psi equals ``null``, against the two-sided alternative.

        Parameters
        ----------
        null : float or (K,) array
            The hypothesis.
        joint : bool
            False: ``z = (value - null) / standard_error``, one test per evaluation. True: one
            test of all of them, ``(value - null)' V^+ (value - null)`` against chi-squared with
            rank(V) degrees of freedom; directions without any variance are left out.

        Examples
        --------
        >>> est = Estimate([1.0, 3.0], [[0.25, 0], [0, 1]], names=("a", "b"), method="by hand")
        >>> est.test().statistic
        array([2., 3.])
        >>> est.test(joint=True).statistic
        13.0
        """
        hypothesis = np.asarray(null, dtype=np.float64)
        if hypothesis.shape not in {(), (len(self.names),)}:
            raise ValueError(
                f"null has shape {hypothesis.shape}; give one number, or one for each of the "
                f"{len(self.names)} evaluations"
            )
        gap = np.atleast_1d(self.value) - hypothesis
        if joint:
            return _joint_test(gap, self.covariance)
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = gap / _deviations(self.covariance)
        p_value = 2 * ndtr(-np.abs(statistic))
        return WaldTest(self._like_value(statistic), self._like_value(p_value))

    def contrast(self, C: ArrayLike, names: Sequence[str] | str | None = None) -> Estimate:
        """Return the estimate of the linear combinations ``C @ psi``, with covariance ``C V C'``.

        Parameters
        ----------
        C : (K,) or (q, K) array
            One combination gives a scalar estimate, q rows give q evaluations.
        names : sequence of str, optional
            Names of the combinations; spelled out from the names in use unless given.

        Returns
        -------
        Estimate
            Influence, parts and draws are combined alike; the diagnostics are still those of
            the evaluations it was made from.

        Examples
        --------
        >>> est = Estimate([1.0, 3.0], np.diag([0.09, 0.16]), names=("a", "b"), method="by hand")
        >>> est.contrast([-1, 1])
               estimate  std_error  statistic  p_value  conf_low  conf_high
        b - a    2.0000     0.5000       4.00  6.3e-05    1.0200     2.9800
        """
        combined = np.array(C, dtype=np.float64)
        if combined.ndim not in (1, 2) or combined.shape[-1] != len(self.names):
            raise ValueError(
                f"C has shape {combined.shape}, but there are {len(self.names)} evaluations; "
                f"give ({len(self.names)},) for one combination or (q, {len(self.names)}) for q"
            )
        rows = np.atleast_2d(combined)
        value = rows @ np.atleast_1d(self.value)
        return Estimate(
            value=float(value[0]) if combined.ndim == 1 else value,
            covariance=_combine(rows, self.covariance),
            names=_combination_names(rows, self.names) if names is None else _names(names),
            method=self.method,
            diagnostics=self.diagnostics,
            influence=None if self.influence is None else self.influence @ rows.T,
            parts={part: _combine(rows, V) for part, V in self.parts.items()},
            draws=None if self.draws is None else self.draws @ rows.T,
        )

    def to_dict(self, confidence_level: float = 0.95) -> dict[str, list[Any]]:
        """Return the table as columns of plain numbers, named as in broom and marginaleffects."""
        columns = {"estimate": self.value, "std_error": self.standard_error}
        columns |= self.test()._asdict()
        low, high = self.confidence_interval(confidence_level)
        columns |= {"conf_low": low, "conf_high": high}
        numbers = {name: np.atleast_1d(column).tolist() for name, column in columns.items()}
        return {"term": list(self.names), **numbers}

    def to_frame(self, confidence_level: float = 0.95) -> DataFrame:
        """Return the table as a pandas data frame, one row per evaluation."""
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise ImportError(
                "to_frame() needs pandas, which is not installed: "
                "`pip install 'implicit-delta[pandas]'`. to_dict() gives the same columns without."
            ) from error
        return DataFrame(self.to_dict(confidence_level)).set_index("term")

    def summary(self, confidence_level: float = 0.95) -> str:
        """Return the table with the method, the sources of error and the diagnostics."""
        K = len(self.names)
        title = (
            f"{K} evaluation{'s' * (K > 1)} by {self.method}, "
            f"{_percent(confidence_level)} confidence intervals"
        )
        blocks = [title, _aligned(self._cells(confidence_level))]
        if self.parts:
            blocks.append("Standard error by source\n" + _aligned(self._budget_cells()))
        told = _diagnostic_cells(self.diagnostics)
        if told:
            blocks.append("Diagnostics\n" + _aligned(told, left=True))
        return "\n\n".join(blocks)

    def __repr__(self) -> str:
        return _aligned(self._cells(0.95))

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        caption = f"{self.method}, {_percent(0.95)} confidence intervals"
        return _as_html(self._cells(0.95), caption)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        x: ArrayLike | None = None,
        kind: str | None = None,
        confidence_level: float = 0.95,
        simultaneous: bool = False,
        **style: Any,
    ) -> Axes:
        """Draw the estimate and return the axes.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure unless given.
        x : (K,) array, optional
            Position of each evaluation, for a line with a band.
        kind : {"interval", "band", "covariance"}, optional
            A band when ``x`` is given, else intervals for up to 30 evaluations, else the
            covariance as an image.
        confidence_level, simultaneous
            As in :meth:`confidence_interval`.
        **style
            Passed to matplotlib's ``errorbar``, ``plot`` or ``pcolormesh``.
        """
        from implicit_delta.plot import estimate_plot

        return estimate_plot(
            self,
            ax,
            x=x,
            kind=kind,
            confidence_level=confidence_level,
            simultaneous=simultaneous,
            **style,
        )

    def _like_value(self, numbers: Array) -> float | Array:
        return float(numbers[0]) if isinstance(self.value, float) else numbers

    def _normal_ends(self, critical: float, transform: Transform | None) -> tuple[Array, Array]:
        value, error = np.atleast_1d(self.value), _deviations(self.covariance)
        if transform is None:
            return value - critical * error, value + critical * error
        return _ends_on_scale(transform, value, error, critical, self.names)

    def _percentiles(
        self, level: float, transform: Transform | None, simultaneous: bool
    ) -> tuple[Array, Array]:
        if self.draws is None:
            raise ValueError(
                f"kind='percentile' takes quantiles of replicates, and {self.method} makes none. "
                "Use the method Simulation or Bootstrap, or kind='normal'."
            )
        if transform is not None or simultaneous:
            raise ValueError(
                "kind='percentile' takes neither transform nor simultaneous: quantiles of one "
                "evaluation need no scale and know no other evaluation. Use kind='normal'."
            )
        low, high = np.quantile(self.draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return low, high

    def _cells(self, level: float) -> list[list[str]]:
        columns = self.to_dict(level)
        decimals = _decimals(columns["std_error"], columns["estimate"])
        rows = list(zip(decimals, *columns.values(), strict=True))
        return _elided(["", *list(columns)[1:]], rows, _estimate_cells)

    def _budget_cells(self) -> list[list[str]]:
        errors = {source: np.atleast_1d(error) for source, error in self.budget.items()}
        decimals = _decimals(errors["total"], errors["total"])
        rows = list(zip(decimals, self.names, *errors.values(), strict=True))
        return _elided(["", *errors], rows, _budget_cells)


# Construction: every array is copied, checked once and locked.


def _read_only(what: str, content: ArrayLike, *, width: int | None = None) -> Array:
    array = np.array(content, dtype=np.float64)
    if width is not None and (array.ndim != 2 or array.shape[1] != width):
        raise ValueError(
            f"{what} has shape {array.shape}; for {width} evaluations it is (rows, {width})"
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"{what} is not finite. Usual causes: overflow in psi, or a division by zero. Without "
            "finite numbers there is no interval to give."
        )
    array.setflags(write=False)
    return array


def _covariance(what: str, content: ArrayLike, names: tuple[str, ...]) -> Array:
    V = _read_only(what, content, width=len(names))
    if V.shape[0] != V.shape[1]:
        raise ValueError(f"{what} has shape {V.shape}; it must be square")
    worst = int(np.argmin(np.diag(V)))
    if V[worst, worst] < 0:
        raise ValueError(
            f"{what} gives {names[worst]!r} the negative variance {V[worst, worst]:.3g}. Usual "
            "causes: an inexact solve, an optimum that is none, or a combination of evaluations "
            "whose covariance is not positive semi-definite. Tighten the solver or polish the fit."
        )
    return V


def _names(names: Iterable[str] | str, count: int | None = None) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else tuple(map(str, names))
    if count is not None and len(found) != count:
        raise ValueError(f"there are {count} evaluations, but {len(found)} names: {found[:5]}")
    return found


def _deviations(V: Array) -> Array:
    return np.sqrt(np.diag(V))


# Linear combinations.


def _combine(rows: Array, V: Array) -> Array:
    """Return ``rows @ V @ rows.T``, with variances that are nothing but rounding set to zero."""
    combined = rows @ V @ rows.T
    scale = np.abs(rows) @ _deviations(V)
    rounding = 4 * len(V) * np.finfo(np.float64).eps * scale**2
    combined[np.abs(np.diag(combined)) <= rounding, :] = 0.0
    combined[:, np.diag(combined) == 0.0] = 0.0
    return (combined + combined.T) / 2


def _combination_names(rows: Array, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_spelled(row, names) or f"contrast[{i}]" for i, row in enumerate(rows))


def _spelled(row: Array, names: tuple[str, ...]) -> str:
    """Write up to three terms in words, those with a plus first; nothing for longer sums."""
    used = sorted(np.flatnonzero(row), key=lambda k: row[k] < 0)
    if not 1 <= len(used) <= 3:
        return ""
    text = "".join(f" {'-' if row[k] < 0 else '+'} {_factor(abs(row[k]))}{names[k]}" for k in used)
    return text[3:] if text.startswith(" + ") else "-" + text[3:]


def _factor(size: float) -> str:
    return "" if size == 1 else f"{size:.4g} "


# Critical values and tests.


def _checked_level(level: Any) -> float:
    if isinstance(level, Real) and 0 < float(level) < 1:
        return float(level)
    raise ValueError(f"confidence_level is a number between 0 and 1, such as 0.95, not {level!r}")


def _normal_quantile(level: float) -> float:
    return float(ndtri((1 + level) / 2))


def _sup_t_quantile(
    V: Array, level: float, rng: int | np.random.Generator | None, draws: int = 100_000
) -> float:
    """Return the quantile of ``max_k |Z_k|`` for Z normal with the correlation of V.

    The simulated quantile is kept between those of one normal and of K independent ones, which
    are the extremes for any correlation (Sidak's inequality).
    """
    moving = np.diag(V) > 0
    K = max(int(moving.sum()), 1)
    one, independent = _normal_quantile(level), _normal_quantile(level ** (1 / K))
    if K == 1:
        return one
    root = _correlation_root(V[np.ix_(moving, moving)])
    generator = np.random.default_rng(0 if rng is None else rng)
    # 2 million numbers at a time: memory does not grow with K
    chunk = max(1, 2_000_000 // K)
    sizes = [min(chunk, draws - start) for start in range(0, draws, chunk)]
    largest = [
        np.abs(generator.standard_normal((size, root.shape[1])) @ root.T).max(axis=1)
        for size in sizes
    ]
    return float(np.clip(np.quantile(np.concatenate(largest), level), one, independent))


def _correlation_root(V: Array) -> Array:
    """Return R, (K, r), with ``R R'`` the correlation of V up to 1e-8 in every entry."""
    size, vectors = _correlation_spectrum(V)
    kept = np.cumsum(size) > 1e-8
    root: Array = vectors[:, kept] * np.sqrt(size[kept])
    return root


def _correlation_spectrum(V: Array) -> tuple[Array, Array]:
    """Return the eigenvalues, ascending and not negative, and eigenvectors of the correlation."""
    error = _deviations(V)
    size, vectors = np.linalg.eigh(V / np.outer(error, error))
    return np.maximum(size, 0.0), vectors


def _joint_test(gap: Array, V: Array) -> WaldTest:
    moving = np.diag(V) > 0
    if not moving.any():
        raise ValueError("no evaluation has any variance, so there is nothing to test against")
    size, vectors = _correlation_spectrum(V[np.ix_(moving, moving)])
    # on the correlation scale, so that units do not decide what counts as no variance
    kept = size > 1e-10 * size[-1]
    along = vectors[:, kept].T @ (gap[moving] / _deviations(V)[moving])
    statistic = float(np.sum(along**2 / size[kept]))
    return WaldTest(statistic, float(chdtrc(kept.sum(), statistic)))


# Intervals on another scale.


class _Scale(NamedTuple):
    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    slope: Callable[[Array, Array], Array]
    domain: str


_SCALES = {
    "log": _Scale(np.log, np.exp, lambda value, _: 1 / value, "above 0"),
    "logit": _Scale(
        logit, expit, lambda value, _: 1 / (value * (1 - value)), "strictly between 0 and 1"
    ),
}


def _ends_on_scale(
    transform: Transform, value: Array, error: Array, critical: float, names: tuple[str, ...]
) -> tuple[Array, Array]:
    scale = _scale(transform)
    with np.errstate(all="ignore"):
        center, slope = scale.forward(value), scale.slope(value, error)
        usable = np.isfinite(center) & np.isfinite(slope) & (slope != 0)
        if not usable.all():
            k = int(np.argmin(usable))
            raise ValueError(
                f"The transform asks for values {scale.domain}, but {names[k]!r} is "
                f"{value[k]:.6g}. Choose another transform, or none."
            )
        half = critical * np.abs(slope) * error
        ends = scale.inverse(center - half), scale.inverse(center + half)
        if not isinstance(transform, str):
            _check_round_trip(scale, center, half, names)
    return np.minimum(*ends), np.maximum(*ends)


def _scale(transform: Any) -> _Scale:
    if isinstance(transform, str) and transform in _SCALES:
        return _SCALES[transform]
    if not (isinstance(transform, tuple | list) and [*map(callable, transform)] == [True, True]):
        raise ValueError(
            f"transform is one of {', '.join(map(repr, _SCALES))} or a pair of functions "
            f"(forward, inverse), not {transform!r}"
        )
    forward, inverse = map(_one_at_a_time, transform)
    return _Scale(
        forward,
        inverse,
        lambda value, error: _slopes(forward, value, error),
        "inside the domain of forward, where it is not flat",
    )


def _one_at_a_time(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """Apply a function of one number, from math or NumPy alike, with NaN where it is undefined."""

    def apply(x: float) -> float:
        try:
            return float(function(x))
        except (ValueError, ArithmeticError):
            return math.nan

    return lambda numbers: np.array([apply(x) for x in numbers])


def _check_round_trip(scale: _Scale, center: Array, half: Array, names: tuple[str, ...]) -> None:
    """Refuse functions that do not undo each other at the value and at both ends.

    A tenth of the half-width is granted at the ends, where forward is ill-conditioned near the
    edge of its domain (arctanh near 1) and infinite on it.
    """
    for point, share in ((center, 1e-6), (center - half, 0.1), (center + half, 0.1)):
        mapped = scale.inverse(point)
        back = scale.forward(mapped)
        near = np.abs(back - point) <= share * half + 1e-6 * np.abs(point) + 1e-12
        good = ~np.isnan(mapped) & (near | ~np.isfinite(back))
        if not good.all():
            k = int(np.argmin(good))
            raise ValueError(
                f"forward and inverse do not undo each other for {names[k]!r}: {point[k]:.6g} on "
                f"the transformed scale comes back as {back[k]:.6g}. Either they are no pair, or "
                "the interval leaves the range of forward; take a forward onto the whole line."
            )


def _slopes(forward: Callable[[Array], Array], value: Array, error: Array) -> Array:
    """Differentiate by Ridders' method: central differences, extrapolated, the most stable kept.

    The step starts wide and is halved, so that a value close to the edge of the domain is
    reached too; differences that rounding could have made are not looked at.
    """
    step = np.maximum(np.abs(value) / 4, error)
    step[step == 0] = 1.0
    best, doubt = np.full_like(value, np.nan), np.full_like(value, np.inf)
    previous: list[Array] = []
    for _ in range(40):
        up, down = forward(value + step), forward(value - step)
        trusted = np.abs(up - down) > 1e-8 * np.maximum(np.abs(up), np.abs(down))
        row = [np.where(trusted, (up - down) / ((value + step) - (value - step)), np.nan)]
        for order, old in enumerate(previous[:6], start=1):
            row.append(row[-1] + (row[-1] - old) / (4**order - 1))
            gap = np.maximum(np.abs(row[-1] - row[-2]), np.abs(row[-1] - old))
            best, doubt = np.where(gap < doubt, row[-1], best), np.fmin(gap, doubt)
        previous, step = row, step / 2
    return best


# Tables.


def _percent(level: float) -> str:
    return f"{100 * _checked_level(level):.10g}%"


def _elided(
    header: list[str], rows: list[tuple[Any, ...]], cells: Callable[..., list[str]]
) -> list[list[str]]:
    """Turn rows into cells; of more than 20 rows, the first and last five."""
    if len(rows) <= 20:
        return [header, *(cells(*row) for row in rows)]
    gap = ["..."] * len(header)
    return [header, *(cells(*r) for r in rows[:5]), gap, *(cells(*r) for r in rows[-5:])]


def _estimate_cells(
    decimals: int,
    name: str,
    value: float,
    error: float,
    z: float,
    p: float,
    low: float,
    high: float,
) -> list[str]:
    on_scale = [_number(x, decimals) for x in (value, error, low, high)]
    return [_short(name), *on_scale[:2], _statistic(z), _p_value(p), *on_scale[2:]]


def _budget_cells(decimals: int, name: str, *errors: float) -> list[str]:
    return [_short(name), *(_number(error, decimals) for error in errors)]


def _short(name: str, width: int = 28) -> str:
    return name if len(name) <= width else name[: width - 3] + "..."


def _decimals(errors: Iterable[float], values: Iterable[float]) -> list[int]:
    """Return the decimals that show four digits of each standard error, the same if close."""
    sizes = [error or abs(value) or 1.0 for error, value in zip(errors, values, strict=True)]
    digits = [3 - math.floor(math.log10(size)) for size in sizes]
    found = [
        max(count, 0) if size < 1e6 else count for count, size in zip(digits, sizes, strict=True)
    ]
    most = max(found)
    return [most] * len(found) if most - min(found) <= 2 else found


def _number(x: float, decimals: int) -> str:
    size = abs(x)
    if 0 <= decimals <= 8 or (8 < decimals <= 12 and size >= 1e-4):
        return f"{x:.{decimals}f}"
    if size == 0 or not math.isfinite(x):
        return f"{x:g}"
    return f"{x:.{min(max(math.floor(math.log10(size)) + decimals, 0), 12)}e}"


def _statistic(z: float) -> str:
    return f"{z:.2f}" if abs(z) < 1e4 else f"{z:.3g}"


def _p_value(p: float) -> str:
    if p < 1e-300:
        return "<1e-300"
    return f"{p:.1e}" if p < 1e-4 else f"{p:.4f}"


_MEANINGS = {
    "drift": "standard errors psi would move if training were finished",
    "smallest_curvature": "of minus the objective, among the directions met",
    "linearity": "bend of psi within half a standard error (0 is straight)",
    "asymmetry": "of the covariance before it was symmetrized",
    "residual": "of the solve, relative",
    "passes": "over the data",
    "seconds": "wall-clock time",
}


def _diagnostic_cells(diagnostics: Diagnostics) -> list[list[str]]:
    told = {name: getattr(diagnostics, name) for name in _MEANINGS}
    uncounted = {name for name in ("passes", "seconds") if told[name] == 0}
    known = [name for name in told if math.isfinite(told[name]) and name not in uncounted]
    cells = [[name, _brief(told[name]), _MEANINGS[name]] for name in known]
    return cells + [[name, _brief(note), ""] for name, note in diagnostics.notes.items()]


def _brief(content: Any) -> str:
    return f"{content:.4g}" if isinstance(content, float) else str(content)


def _aligned(cells: list[list[str]], *, left: bool = False) -> str:
    """Pad to columns; the first is flush left, the others right unless ``left``."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = ["<"] + ["<" if left else ">"] * (len(widths) - 1)
    lines = (
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def _as_html(cells: list[list[str]], caption: str) -> str:
    def line(tag: str, row: list[str]) -> str:
        first, *others = (html.escape(cell) for cell in row)
        numbers = "".join(f'<{tag} style="text-align: right">{cell}</{tag}>' for cell in others)
        return f'<tr><th style="text-align: left">{first}</th>{numbers}</tr>'

    head, *body = cells
    return "\n".join(
        [
            f"<table><caption>{html.escape(caption)}</caption>",
            f"<thead>{line('th', head)}</thead>",
            "<tbody>",
            *(line("td", row) for row in body),
            "</tbody></table>",
        ]
    )

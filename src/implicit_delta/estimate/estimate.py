"""Estimate: a value with its covariance, and the intervals, tests and tables made of them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike

from implicit_delta.core.dependence import dominating
from implicit_delta.core.factored import scaled
from implicit_delta.core.types import Array
from implicit_delta.estimate import algebra
from implicit_delta.estimate.checks import checked_content, checked_null
from implicit_delta.estimate.combination import SOURCE, added
from implicit_delta.estimate.diagnostics import Diagnostics
from implicit_delta.estimate.files import content_of, fields_of
from implicit_delta.estimate.held import MadeWhenAsked, content, covariance_of, parts_of
from implicit_delta.estimate.influential import Influential, strongest
from implicit_delta.estimate.intervals import ends_of, least_df, on_log_scale
from implicit_delta.estimate.lineage import Lineage
from implicit_delta.estimate.operators import over, plus, times, under
from implicit_delta.estimate.quantiles import checked_level, deviations, joint_test, two_sided
from implicit_delta.estimate.results import Interval, WaldTest
from implicit_delta.estimate.rows import Rows
from implicit_delta.estimate.statsmodels_names import interval_array, prediction_frame
from implicit_delta.estimate.storage import read, write
from implicit_delta.estimate.tables import Columns, data_frame, estimate_table, in_words
from implicit_delta.estimate.transforms import IDENTITY, Shown, Transform, gaps
from implicit_delta.estimate.written import Budget, estimate_html, estimate_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Diagnostics", "Estimate", "Influential", "Interval", "WaldTest"]


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """The value of K evaluations and their joint covariance, as of a normal distribution.

    Attributes
    ----------
    value : float or (K,) array
        Psi at the fitted parameters; a scalar psi stays a float. All arrays are read-only copies.
    covariance : (K, K) array
        Estimated covariance of ``value``; of more than 500 evaluations made when asked for.
    names : tuple of str
        One name per evaluation.
    method : str
        How the covariance was found.
    diagnostics : Diagnostics
        How far it can be trusted.
    influence : (n, K) array, optional
        First-order change of psi when one more copy of training row i is added.
    parts : mapping of str to (K, K) array
        Covariance of each source of error (``model``, ``evaluation``, ``noise``, or ``rows`` for
        the first two together; ``training`` or ``initialization`` where states of the training were
        given); empty when there is only the model.
    draws : (B, K) array, optional
        Psi over replicates, from simulation or bootstrap; stretched to the total error.
    errors_add : bool
        Whether the standard errors of model and evaluation add, since how these depend on each
        other is unknown. `covariance` is then a bound for each evaluation, but not for their
        combinations: `contrast` adds the errors of each, a simultaneous interval takes the
        quantile of independent evaluations, and a joint test a larger covariance.
    df : float or (K,) array
        Degrees of freedom of the quantiles and tests: Student's t and F where the scale of the
        error was itself estimated from few observations or clusters, normal if infinite. A
        combination takes the smallest of its evaluations.
    scale : {"", "log"}, or one for each evaluation
        "log" of ratios and odds ratios, which no effect leaves at 1: intervals are made on the log
        scale, and tests are of ``log(value / null)``. Selections and joins keep it; what is
        computed from an estimate has none.
    target : str
        One sentence on what the interval covers, where that is not the truth: with a penalty,
        psi at the maximum of the penalized likelihood.
    acceleration : (K,) array, optional
        Skewness of the influences over six, which ``kind="bca"`` intervals need.
    drift : (K,) array, optional
        Of a network whose training stopped early: the move of psi that going on with it would make,
        to first order. A possible bias, which is a line of the `budget` but no part of the total.
    rows : Rows, optional
        The training rows behind `influence`, for joins: how many observations each is, its
        label in a data frame as a number, its clusters. Plain rows unless given.
    deviations : (m, K) array, optional
        Share of each evaluation row in the sampling error of an average, kept with the influences.
    lineage : Lineage, optional
        The estimates that this one was made of; not saved to files.
    identity : str
        The same for an estimate and its copies in files, so that these cancel.
    strongest : callable, optional
        Finds rows for `top_influence` where they live, of standard errors (K,) and the number of
        rows, if influences have not been brought here; neither saved nor pickled.

    Examples
    --------
    >>> from implicit_delta.estimate import Estimate
    >>> est = Estimate([1.0, 3.0], [[0.04, 0.02], [0.02, 0.09]], names=("a", "b"), method="by hand")
    >>> est
       estimate  std_error  statistic  p_value  conf_low  conf_high
    a    1.0000     0.2000       5.00  5.7e-07    0.6080     1.3920
    b    3.0000     0.3000      10.00  1.5e-23    2.4120     3.5880
    Tests of value = 0; normal quantiles.
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
    errors_add: bool = False
    df: float | Array = math.inf
    target: str = ""
    acceleration: Array | None = None
    drift: Array | None = None
    rows: Rows | None = None
    deviations: Array | None = None
    scale: str | tuple[str, ...] = ""
    lineage: Lineage | None = None
    identity: str = field(default_factory=lambda: uuid4().hex)
    strongest: Callable[[Array, int], tuple[Any, Array, Any]] | None = None

    __array_ufunc__ = None  # so that arrays leave arithmetic to the estimate

    def __post_init__(self) -> None:
        for name, checked in checked_content(**content(self)).items():
            object.__setattr__(self, name, checked)

    def __reduce__(self) -> tuple[type[Estimate], tuple[Any, ...]]:
        """Rebuild through the constructor: a pickled array would come back writable."""
        here = {**content(self), "parts": dict(parts_of(self)), "strongest": None}
        return type(self), tuple(here.values())

    @property
    def standard_error(self) -> float | Array:
        """Square roots of the diagonal of the covariance, shaped like ``value``."""
        return self._like_value(deviations(covariance_of(self)))

    @property
    def budget(self) -> Budget:
        """Standard error due to each source of error, and their ``total``.

        A model of several data sets has a line for each in place of ``model``.
        Where a training stopped early also its ``drift``, a possible bias that is not in the total.
        """
        parts = parts_of(self) or {"model": covariance_of(self)}
        errors = {
            part.removeprefix(SOURCE): self._like_value(deviations(V)) for part, V in parts.items()
        }
        bias = {} if self.drift is None else {"drift": self._like_value(abs(self.drift))}
        return Budget({**errors, "total": self.standard_error, **bias}, self.names)

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
        transform : {"log", "logit", "identity"} or (forward, inverse), optional
            Make the interval on the scale of ``forward``, where the first-order standard error is
            ``|forward'(value)| * standard_error``, and map it back, so that it stays inside the
            range of psi. A pair of functions is applied to one number at a time. By default that
            of `scale`: ``"log"`` for ratios, ``"identity"`` (the symmetric one) for the rest.
        simultaneous : bool
            Cover all K evaluations at once: the critical value is the quantile of
            ``max_k |Z_k|``, with Z normal and correlated like the estimates (sup-t band).
        kind : {"normal", "percentile", "basic", "bca"}
            ``"normal"`` has normal or, with finite `df`, Student's t quantiles. The others read
            ``draws`` instead, of which there should be about 1000: ``"percentile"`` takes their
            quantiles, ``"basic"`` reflects these at the value, and ``"bca"``, for a `Bootstrap`,
            moves their levels for median bias and skewness, which makes it accurate to the
            second order.
        rng : int or numpy.random.Generator, optional
            Source of the random directions behind ``simultaneous``: enough for the precision of
            100 000 draws. A fixed seed unless given, whose critical value is kept.

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
        level = checked_level(confidence_level)
        ends = ends_of(self, level, transform, simultaneous, kind, rng)
        return Interval(*map(self._like_value, ends))

    def conf_int(self, alpha: float = 0.05) -> Array:
        """Return the interval of level ``1 - alpha`` as statsmodels does, (K, 2).

        Examples
        --------
        >>> est = Estimate([1.0, 3.0], np.diag([0.04, 0.09]), names=("a", "b"), method="by hand")
        >>> est.conf_int(alpha=0.1).round(3)
        array([[0.671, 1.329],
               [2.507, 3.493]])
        """
        return interval_array(self, alpha)

    def summary_frame(self, alpha: float = 0.05) -> Any:
        """Return a pandas data frame as statsmodels' ``get_prediction().summary_frame()`` does.

        Its columns are ``mean``, ``mean_se``, ``mean_ci_lower`` and ``mean_ci_upper``, its index
        the names. See :meth:`to_frame` for tests, other nulls and exponentials.
        """
        return prediction_frame(self, alpha)

    def test(
        self,
        null: ArrayLike | Literal["no effect"] = "no effect",
        joint: bool = False,
        *,
        transform: Literal["identity"] | None = None,
    ) -> WaldTest:
        """Test that psi equals ``null``, against the two-sided alternative.

        Parameters
        ----------
        null : float or (K,) array
            The hypothesis; no effect is 0, or 1 for ratios, whose logarithm is tested.
        joint : bool
            False: ``(value - null) / standard_error``, one test per evaluation, normal or with
            finite `df` Student's t. True: one test of all of them,
            ``(value - null)' V^+ (value - null)`` against chi-squared with rank(V) degrees of
            freedom, or with finite `df` that over rank(V) against F; directions without any
            variance are left out. Where degrees of freedom differ between evaluations, the smallest
            are taken with Hotelling's factor, ``(df - q + 1) / df``.
        transform : "identity", optional
            Test ratios themselves and not their logarithms.

        Examples
        --------
        >>> est = Estimate([1.0, 3.0], [[0.25, 0], [0, 1]], names=("a", "b"), method="by hand")
        >>> est.test().statistic
        array([2., 3.])
        >>> est.test(joint=True).statistic
        13.0
        """
        if transform not in (None, IDENTITY):
            raise ValueError(f"transform of a test is 'identity' or None, not {transform!r:.60}")
        logs = on_log_scale(self)
        usual = isinstance(null, str) and null == "no effect"
        nulls = checked_null(1.0 * logs if usual else null, len(self.names))
        tested = logs & (transform is None)
        gap, slopes = gaps(np.atleast_1d(self.value), nulls, tested, self.names)
        if joint:
            V = added(parts_of(self), dominating) if self.errors_add else covariance_of(self)
            V = scaled(V, slopes)
            return WaldTest(*joint_test(gap, V, least_df(self), several=np.ndim(self.df) > 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = gap / (slopes * deviations(covariance_of(self)))
        p_value = two_sided(statistic, self.df)
        return WaldTest(self._like_value(statistic), self._like_value(p_value))

    def __getitem__(self, key: Any) -> Estimate:
        """Take evaluations by name or number: one as a scalar, a slice or a list as an array.

        Examples
        --------
        >>> est = Estimate([1.0, 3.0], np.diag([0.09, 0.16]), names=("a", "b"), method="by hand")
        >>> est["b"].standard_error, est[:1].names, (est["b"] - est["a"]).standard_error
        (0.4, ('a',), 0.5)
        """
        return algebra.select(self, key)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __len__(self) -> int:
        """Count the evaluations; a scalar is one."""
        return len(self.names)

    def __iter__(self) -> Iterator[Estimate]:
        """Go through the evaluations, each as a scalar."""
        return (self[k] for k in range(len(self)))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Stay one object in arrays, which would otherwise take it apart like a list."""
        if dtype is not None and np.dtype(dtype) != object:
            raise TypeError("An estimate is no array of numbers: its values are `est.value`.")
        holder = np.empty((), dtype=object)
        holder[()] = self
        return holder

    def contrast(
        self, C: ArrayLike | str | Sequence[str], names: Sequence[str] | str | None = None
    ) -> Estimate:
        """Return the estimate of the linear combinations ``C @ psi``, with covariance ``C V C'``.

        Parameters
        ----------
        C : (K,) or (q, K) array, str or sequence of str
            One combination gives a scalar estimate, q rows give q evaluations. Or linear
            expressions of the names, ``"x - tr"``: a name with odd characters stands as it is or
            in backticks, ``"2 * `C(g)[T.b]` - x"``.
        names : sequence of str, optional
            Names of the combinations; spelled out from the names in use unless given.

        Returns
        -------
        Estimate
            Influence, parts and draws are combined alike; the diagnostics are still those of
            the evaluations it was made from. Where degrees of freedom differ between evaluations
            ("HC2", "HC3", "CR2"), those of a combination are unknown here, and the smallest ones
            are taken, with a warning: ask `infer` for the combination itself.

        Examples
        --------
        >>> est = Estimate([1.0, 3.0], np.diag([0.09, 0.16]), names=("a", "b"), method="by hand")
        >>> est.contrast([-1, 1])
               estimate  std_error  statistic  p_value  conf_low  conf_high
        b - a    2.0000     0.5000       4.00  6.3e-05    1.0200     2.9800
        Tests of value = 0; normal quantiles.
        >>> est.contrast("(a + b) / 2").value
        2.0
        """
        return algebra.contrast(self, C, names)

    def apply(
        self,
        f: Callable[[Any], Any],
        names: Sequence[str] | str | None = None,
        *,
        strict: bool = True,
    ) -> Estimate:
        """Return the estimate of any function of the values, by the delta method.

        Parameters
        ----------
        f : callable
            ``f(value)``, with the (K,) array (or the number) that `value` is, returns a number or
            an array. Its Jacobian is traced if it is written in NumPy, else differenced.
        names : sequence of str, optional
            Names of the results.
        strict : bool
            Refuse an f that bends so much within half a standard error that one end does not move;
            with False that is a warning, as it is for a bend of more than 0.08.

        Returns
        -------
        Estimate
            Influence and parts go through the Jacobian, draws through f itself.

        Examples
        --------
        >>> est = Estimate([1.0, 4.0], np.diag([0.01, 0.04]), names=("a", "b"), method="by hand")
        >>> est.apply(lambda v: v[0] / v[1], names="share")
               estimate  std_error  statistic  p_value  conf_low  conf_high
        share   0.25000    0.02795       8.94  3.7e-19   0.19522    0.30478
        Tests of value = 0; normal quantiles.
        """
        return algebra.apply(self, f, names, strict=strict)

    def __add__(self, other: Any) -> Estimate:
        return cast("Estimate", plus(self, other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Estimate:
        return cast("Estimate", plus(self, other, -1.0))

    def __rsub__(self, other: Any) -> Estimate:
        return cast("Estimate", plus(-self, other))

    def __mul__(self, other: Any) -> Estimate:
        return cast("Estimate", times(self, other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Estimate:
        return cast("Estimate", over(self, other))

    def __rtruediv__(self, other: Any) -> Estimate:
        return cast("Estimate", under(self, other))

    def __neg__(self) -> Estimate:
        return cast("Estimate", times(self, -1.0))

    def __pos__(self) -> Estimate:
        return self

    def top_influence(self, k: int = 10) -> Influential:
        """Return the k training rows that move the estimate most, the strongest first.

        Leaving such a row out changes psi by about minus its influence (times its weight, if it
        counts more than once). Among several evaluations, each row is ranked by its largest
        influence in standard errors; ``est["x"].top_influence()`` is the ranking for one of them.

        Parameters
        ----------
        k : int
            How many rows, at most.

        Returns
        -------
        Influential
            The pair ``(row, influence)``, which prints as a table, with the labels of the rows
            where the data had an index that is not 0, 1, 2, ...

        Examples
        --------
        >>> est = Estimate(
        ...     3.0, [[0.5]], ("mean",), "by hand", influence=[[0.1], [-0.7], [0.4], [0.2]]
        ... )
        >>> est.top_influence(2)
        row     mean
        1    -0.7000
        2     0.4000
        Influence: change of the estimate for one more copy of the row.
        >>> est.top_influence(2).row
        array([1, 2])
        """
        return strongest(self, k)

    def to_dict(
        self,
        confidence_level: float = 0.95,
        *,
        simultaneous: bool = False,
        null: ArrayLike | None = None,
        transform: Literal["exp", "expit", "identity"] | None = None,
    ) -> dict[str, list[Any]]:
        """Return the table as columns of plain numbers, named as in broom and marginaleffects.

        Without any error beyond rounding there is nothing to test: statistic and p-value are NaN.

        Parameters
        ----------
        confidence_level : float
            Between 0 and 1.
        simultaneous : bool
            Intervals that cover all evaluations at once, as in :meth:`confidence_interval`; the
            tests stay those of one at a time.
        null : float or (K,) array, optional
            Value to test against, on the scale of the table: 0, or 1 for ratios (see `scale`) and
            for ``transform="exp"``, and one half for ``"expit"``.
        transform : {"exp", "expit", "identity"}, optional
            Show exponentials (of log odds ratios, of log rates) or probabilities (of logits)
            instead. Interval and test are those of the estimate itself, carried over.
            ``"identity"`` has the symmetric interval and test of a ratio.
        """
        shown, own = Shown(transform), None if transform is None else IDENTITY
        usual = 1.0 * on_log_scale(self) if shown.scale is None else shown.null
        nulls = checked_null(usual if null is None else null, len(self.names))
        columns = {"estimate": self.value, "std_error": self.standard_error}
        still = self.standard_error <= 4 * np.finfo(np.float64).eps * np.abs(self.value)
        tests = self.test(shown.back(nulls), transform=own)._asdict()
        columns |= {name: np.where(still, np.nan, column) for name, column in tests.items()}
        low, high = self.confidence_interval(
            confidence_level, transform=own, simultaneous=simultaneous
        )
        columns |= {"conf_low": low, "conf_high": high}
        columns |= {"df": np.broadcast_to(self.df, len(self.names)), "null": nulls}
        numbers = {name: np.atleast_1d(column).tolist() for name, column in shown(columns).items()}
        scale = "" if own else self.scale
        return Columns({"term": list(self.names), **numbers}, scale)

    def to_frame(
        self,
        confidence_level: float = 0.95,
        library: Literal["pandas", "polars"] = "pandas",
        *,
        simultaneous: bool = False,
        null: ArrayLike | None = None,
        transform: Literal["exp", "expit", "identity"] | None = None,
    ) -> Any:
        """Return the table as a data frame, one row per evaluation.

        Parameters
        ----------
        confidence_level : float
            Between 0 and 1.
        library : {"pandas", "polars"}
            Whose data frame. The names are the index ``term`` in pandas and a column in polars.
        simultaneous, null, transform
            As in :meth:`to_dict`.
        """
        columns = self.to_dict(
            confidence_level, simultaneous=simultaneous, null=null, transform=transform
        )
        frame = data_frame(library, columns)
        return frame.set_index("term") if library == "pandas" else frame

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimate with everything in it to a file (NumPy's ``.npz``, no pickle).

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> est = Estimate([1.0, 3.0], [[0.04, 0], [0, 0.09]], names=("a", "b"), method="by hand")
        >>> with TemporaryDirectory() as folder:
        ...     est.save(f"{folder}/est.npz")
        ...     Estimate.load(f"{folder}/est.npz").standard_error
        array([0.2, 0.3])
        """
        write(path, *content_of(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Estimate:
        """Read an estimate that `save` wrote.

        Raises
        ------
        ValueError
            The file is damaged, something else, or of a later release. Nothing in it is run, and
            no more memory is taken than a file of its size can need.
        """
        return read(path, lambda texts, arrays: cls(**fields_of(texts, arrays)))

    def summary(
        self,
        confidence_level: float = 0.95,
        *,
        null: ArrayLike | None = None,
        transform: Literal["exp", "expit", "identity"] | None = None,
    ) -> str:
        """Return the table with the method, the sources of error and the diagnostics.

        Parameters
        ----------
        confidence_level : float
            Between 0 and 1.
        null, transform
            As in :meth:`to_dict`.
        """
        return estimate_text(self, confidence_level, null, transform)

    def report(
        self,
        path: str | os.PathLike[str],
        title: str | None = None,
        question: str | None = None,
        *,
        confidence_level: float = 0.95,
        null: float | None = None,
        transform: Transform | None = None,
    ) -> Path:
        """Write a page to show: one HTML file that loads nothing and runs nothing.

        On it are the question, the answer in a sentence and as a picture, the sources of error,
        second opinions where there are some, the rows with the largest influence if these were
        kept, each diagnostic with a mark and its meaning, and how to repeat it.

        Parameters
        ----------
        path : str or path
            A file that ends in ``.html`` or ``.htm``; one that is there is overwritten.
        title, question : str, optional
            The heading, and the question in your words; made of the names unless given.
        confidence_level : float
            Between 0 and 1.
        null : float, optional
            Value to test against, and to mark, on the scale of the page.
        transform : {"log", "logit", "exp", "expit"} or (forward, inverse), optional
            As in `plot`: interval and test on the scale of ``"log"`` or ``"logit"`` (null: 1 or one
            half), the interval on that of a pair; or exponentials and probabilities of the values.

        Returns
        -------
        pathlib.Path
            Of the file.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> est = Estimate(0.18, [[0.035**2]], names=("effect",), method="by hand")
        >>> with TemporaryDirectory() as folder:
        ...     est.report(f"{folder}/page.html", question="Does the treatment work?").name
        'page.html'
        """
        from implicit_delta.estimate.report import write_page

        return write_page(
            path,
            self,
            title=title,
            question=question,
            confidence_level=confidence_level,
            null=null,
            transform=transform,
        )

    def __repr__(self) -> str:
        return estimate_table(self.to_dict())

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """Write ``value [low, high]`` with the spec for each number, the interval of 95%.

        Without a spec it is the table. Several evaluations follow each other with their names.

        Examples
        --------
        >>> est = Estimate([1.0, 3.0], np.diag([0.04, 0.09]), names=("a", "b"), method="by hand")
        >>> f"{est:.2f}"
        'a: 1.00 [0.61, 1.39]; b: 3.00 [2.41, 3.59]'
        >>> f"{est['a']:.1f}"
        '1.0 [0.6, 1.4]'
        """
        return in_words(spec, self.to_dict()) if spec else str(self)

    def _repr_html_(self) -> str:
        """Return the table for notebooks; sources of error and diagnostics fold."""
        return estimate_html(self)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        x: ArrayLike | None = None,
        kind: str | None = None,
        confidence_level: float = 0.95,
        simultaneous: bool = False,
        transform: Transform | None = None,
        null: float | None = None,
        **style: Any,
    ) -> Axes:
        """Draw the estimate and return the axes.

        In a new figure, evaluations of very different size (dollars and shares, say) get an axis of
        their own, one below the other: the first is returned, and ``ax.figure.axes`` has all.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure unless given.
        x : (K,) array, optional
            Position of each evaluation, for a line with a band.
        kind : {"interval", "band", "forest", "groups", "covariance", "influence"}, optional
            A band when ``x`` is given or for more than 2000 evaluations, else intervals for up to
            30, else an image of the correlations. ``"forest"`` is the coefficient plot, with
            ``sort=True`` the largest on top and with ``numbers=False`` without the numbers;
            ``"groups"`` puts evaluations of one group (``by=``, or names ``"group: series"``) into
            one row, in a color for each series (``series=``). ``"covariance"`` is that image, of
            covariances if ``x`` or ``correlation=False`` is given; ``"influence"`` draws that of
            each training row, with the labels of the ten largest.
        confidence_level, simultaneous
            As in :meth:`confidence_interval`.
        transform : {"log", "logit", "identity", "exp", "expit"} or (forward, inverse), optional
            Two kinds of scales. ``"log"``, ``"logit"`` and pairs are where the *interval* is made,
            as in :meth:`confidence_interval`: the numbers stay what they are, and a band of
            probabilities stays within 0 and 1. ``"exp"`` and ``"expit"`` are what is *shown*, as in
            :meth:`to_dict`: a log odds ratio as an odds ratio (bars on a logarithmic axis), a logit
            as a probability. Ratios (see `scale`) are drawn on a logarithmic axis, unless this is
            ``"identity"``.
        null : float, optional
            Where to draw a thin line, on the scale that is drawn. Left out, bars have it at "no
            effect" if that is near: 0, or 1 for ratios and ``"exp"`` and one half for ``"expit"``.
        **style
            Passed to matplotlib's ``errorbar``, ``plot`` or ``pcolormesh``.
        """
        from implicit_delta.estimate.plot import estimate_plot

        return estimate_plot(
            self,
            ax,
            x=x,
            kind=kind,
            confidence_level=confidence_level,
            simultaneous=simultaneous,
            transform=transform,
            null=null,
            **style,
        )

    def _like_value(self, numbers: Array) -> float | Array:
        return float(numbers[0]) if isinstance(self.value, float) else numbers


Estimate.covariance = MadeWhenAsked()  # type: ignore[assignment]

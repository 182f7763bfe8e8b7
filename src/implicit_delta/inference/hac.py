"""Serially correlated rows: sums of lagged products of influences, tapered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from implicit_delta.core.types import Array
from implicit_delta.linalg.arrays import symmetric
from implicit_delta.models.model import FittedModel
from implicit_delta.models.processes import processes_of
from implicit_delta.models.sources import strata_of

KERNELS: dict[str, Callable[[Array], Array]] = {
    "bartlett": lambda x: 1 - x,
    "newey-west": lambda x: 1 - x,
    "parzen": lambda x: np.where(x <= 0.5, 1 - 6 * x**2 + 6 * x**3, 2 * (1 - x) ** 3),
}
Series = Sequence[slice]  # the rows of each
ONE: Series = (slice(None),)


@dataclass(frozen=True)
class HAC:
    r"""Variance for rows in time order that are correlated with their neighbors.

    Of data sets that are fitted together, ``m1 + m2``, each is a series by itself.

    The sum :math:`\sum_l k(l / (L + 1)) \sum_i (f_i f_{i+l}' + f_{i+l} f_i')` over lags l up to L
    of influences f, with a kernel k that falls from one to zero, so that it is never negative
    (heteroskedasticity and autocorrelation consistent; Newey and West, Andrews).

    Parameters
    ----------
    lags : int
        L: how many rows apart two rows may be and still be correlated. About
        ``4 * (n / 100) ** (2 / 9)`` is a common choice; more where correlation lasts.
    kernel : {"bartlett", "newey-west", "parzen"}
        The first two are one kernel under two names.
    adjust : bool
        Multiply by n / (n - d), as ``adjust = TRUE`` does in R's `sandwich` and
        ``use_correction=True`` in statsmodels.

    Notes
    -----
    ``HAC(L)`` is R's ``NeweyWest(fit, lag = L, prewhite = FALSE)`` and statsmodels'
    ``cov_type="HAC"`` with ``maxlags=L``; ``HAC(L, "parzen")`` is
    ``kernHAC(fit, kernel = "Parzen", bw = L + 1, prewhite = FALSE, adjust = FALSE)``.

    Examples
    --------
    >>> import implicit_delta as idm
    >>> y = np.cumsum(np.random.default_rng(0).normal(size=200)) * 0.1
    >>> model = idm.from_residuals(lambda m: y - m[0], start=[0.0])
    >>> plain = idm.infer(model, lambda m: m[0], robust=True).standard_error
    >>> round(idm.infer(model, lambda m: m[0], robust=HAC(8)).standard_error / plain, 1)
    2.9
    """

    lags: int
    kernel: Literal["bartlett", "newey-west", "parzen"] = "bartlett"
    adjust: bool = False

    def __post_init__(self) -> None:
        """Check what was configured."""
        if isinstance(self.lags, bool) or self.lags != int(self.lags) or self.lags < 0:
            raise ValueError(f"lags must be a whole number, 0 or more, not {self.lags!r}.")
        if self.kernel not in KERNELS:
            raise ValueError(f"kernel must be one of {tuple(KERNELS)}, not {self.kernel!r}.")

    def check(self, model: FittedModel) -> None:
        """Refuse rows that are no series."""
        processes_of(model).check_series("HAC")
        lengths = [own.stop - own.start for own in strata_of(model)]
        shortest = min((length for length in lengths if length > 1), default=1)
        if self.lags >= shortest:
            where = " in the shortest of the data sets" if len(lengths) > 1 else ""
            raise ValueError(
                f"HAC({self.lags}) needs rows {self.lags} apart, and there are {shortest} rows"
                f"{where}. Give fewer lags, a small part of the number of rows."
            )
        if model.weights.kind == "frequency" and np.any(model.weights.values != 1):
            raise ValueError(
                "HAC needs one row for each point in time, but these have weights, which count "
                "repetitions. Repeat the rows in the order of time, and leave `weights=` out."
            )
        if _unsorted(model.facts.host.labels):
            raise ValueError(
                "HAC needs the rows in the order of time, but the index of the data goes back in "
                "time. Fit the model to `data.sort_index()`."
            )

    def weights(self) -> Array:
        """Weights of the lags from 0 to L, (L + 1,)."""
        return np.asarray(KERNELS[self.kernel](np.arange(self.lags + 1) / (self.lags + 1)))

    def scatter(self, rows: Array, series: Series = ONE) -> Array:
        """Sum the tapered products of rows (n, k), of each series by itself: (k, k)."""
        return symmetric(rows.T @ self.around(rows, series=series))

    def around(self, rows: Array, power: int = 1, series: Series = ONE) -> Array:
        """Sum the rows (n, ...) around each, with the weights of their lags to a power: (n, ...).

        Rows of other series are far from all of these.
        """
        return np.concatenate([self._around(rows[own], power) for own in series])

    def _around(self, rows: Array, power: int) -> Array:
        """Sum by a convolution, whose cost does not grow with the lags."""
        taper, length = self.weights() ** power, next_fast_len(len(rows) + self.lags, real=True)
        both = np.zeros((length, *[1] * (rows.ndim - 1)))  # zeros keep the ends of the rows apart
        both.flat[: taper.size], both.flat[length - self.lags :] = taper, taper[:0:-1]
        sums = irfft(rfft(rows, length, axis=0) * rfft(both, axis=0), length, axis=0)
        return np.asarray(sums[: len(rows)])


def _unsorted(rows: Any) -> bool:
    """Whether an index of dates is not in their order."""
    dated = "date" in str(getattr(rows, "dtype", "")) or "period" in str(getattr(rows, "dtype", ""))
    return dated and not getattr(rows, "is_monotonic_increasing", True)

"""Averages over an evaluation sample, whose own sampling error counts too."""

import inspect
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.dependence import add_errors as add_errors
from implicit_delta.core.factored import Covariance, quadratic
from implicit_delta.core.findings import Finding
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation.summary import Groups, Summary
from implicit_delta.models.moments import Moments

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
Sample: TypeAlias = Literal["independent", "training", "unknown"]


@dataclass(frozen=True, eq=False)
class Average:
    r"""The population mean of a unit evaluation h, estimated on a sample of m rows.

    :math:`\psi(\theta) = \frac1m \sum_j h_j(\theta)`. A plain psi that averages is an estimate
    for these m rows; `Average` is one for the population they come from, and the variance of the
    mean, :math:`V_{\text{eval}} = \sum_j (h_j - \bar h)(h_j - \bar h)' / m(m - 1)`, is combined
    with that of the model (the paper's section on evaluation uncertainty):

    ================  =============================================================================
    ``independent``   rows that the training did not use: the variances add
    ``training``      the training rows, in order: the influence of row i on the average is
                      :math:`s_i' A^{-1} g + (h_i - \bar h) / n`, and the sum of its squares is the
                      variance, with the covariance of the two parts, and robust
    ``unknown``       some rows may be the same: the standard errors add, an upper bound
    ================  =============================================================================

    With ``"unknown"`` and K evaluations, every standard error is the sum of two, that of a
    `contrast` too, and the correlations are those of the sum of both covariances.
    `Estimate.budget` lists the parts.

    With ``"training"``, row i of h has to be training row i. Labels are compared where both sides
    have some (a pandas Series and a model with row labels); otherwise rows in another order
    cannot be detected: the mean stays right, and its error is wrong. A row counts as much as
    its frequency or sampling weight (`weights=`, statsmodels' `freq_weights`). Precisions
    (`weight_kind="precision"`, `var_weights`, the weights of WLS) are not counts: each row counts
    once. For another weighting w return ``h * w / w.mean()``.

    Parameters
    ----------
    h : callable
        ``h(model)`` returns the value of each evaluation row, (m,) or (m, K), in the model's own
        language: never their mean. It may accept ``rng`` like any evaluation.
    sample : {"independent", "training", "unknown"}
        How the rows are related to the training rows.
    clusters : (m,) array, list or pandas Series, optional
        Labels of groups of evaluation rows that were sampled together (questions about one
        document): the error is then that between sums of groups. With ``"training"`` give the
        labels to `infer`.
    by : (m,) array, list or pandas Series, optional
        Labels of the rows: one mean for each group, sorted and named by its label. The mean of a
        group is a ratio, :math:`\sum_j 1_g h_j / \sum_j 1_g`, whose variance is that of the mean
        of its own :math:`m_g` rows; two groups depend on each other through the model alone, and
        through clusters with rows in both.
    total : bool
        Estimate totals instead of means, :math:`\sum_j h_j`. Their sampling error is that of
        another sample of m rows, :math:`m^2 V_{\text{eval}}`; for the total of a group, how many
        of the m rows are in it is random too.

    Examples
    --------
    >>> import implicit_delta as idm
    >>> y, other = np.array([1.0, 2.0, 4.0, 5.0]), np.array([1.0, 2.0, 7.0, 8.0])
    >>> model = idm.from_loglik(lambda m: -((y - m[0]) ** 2) / 2, start=[0.0])
    >>> unmet = idm.Average(lambda m: np.maximum(other - m[0], 0.0))
    >>> est = idm.infer(model, unmet)
    >>> {part: round(error, 3) for part, error in est.budget.items()}
    {'model': 0.25, 'evaluation': 1.315, 'total': 1.339}

    Means of groups:

    >>> far = idm.Average(lambda m: (other - m[0]) ** 2, by=["west", "west", "east", "east"])
    >>> est = idm.infer(model, far)
    >>> est.names, est.value.round(6)
    (('east', 'west'), array([20.5,  2.5]))
    """

    h: Any
    sample: Sample = "independent"
    clusters: Any = None
    by: Any = None
    total: bool = False

    def __post_init__(self) -> None:
        """Check what was configured."""
        if not callable(self.h) or isinstance(self.h, Average):
            raise TypeError(
                f"h must be a function of the model, not {type(self.h).__name__}: for example "
                "`lambda theta: np.maximum(demand - X @ theta, 0)`. Smoothed and Replicated go "
                "around the Average, not inside."
            )
        check_alone(self.h)
        check_sample(self.sample, self.clusters)
        if not isinstance(self.total, bool):
            raise TypeError(f"total must be True or False, not {self.total!r:.40}.")
        if self.by is not None:
            Groups.of(self.by)

    @property
    def summary(self) -> Summary:
        """Mean or total, of all rows or of each group."""
        return Summary(None if self.by is None else Groups.of(self.by), self.total)

    def __call__(self, model: Any) -> Any:
        """Average over the rows, in the model's own language."""
        return self.summary(self.h(model))


def check_alone(h: Any) -> None:
    """Refuse a function of the model and of something else, which nobody would give it."""
    try:
        arguments = list(inspect.signature(h).parameters.values())[1:]
    except (TypeError, ValueError):
        return
    needed = [a for a in arguments if a.kind in POSITIONAL and a.default is a.empty]
    if needed and needed[0].name != "rng":
        raise TypeError(
            f"h takes a second argument, {needed[0].name!r}, and is called with the model alone. "
            "If it is a part of the data of `from_shards`, or the data of a rank, write "
            f"`on_shards(h)`; else bind it, `lambda model: h(model, {needed[0].name})`."
        )


def check_sample(sample: Any, clusters: Any) -> None:
    """Refuse an unknown kind of sample, and clusters of rows that the model has already."""
    if sample not in get_args(Sample):
        raise ValueError(
            f"sample must be one of {', '.join(map(repr, get_args(Sample)))}, not {sample!r}."
        )
    if sample == "training" and clusters is not None:
        raise ValueError(
            'With sample="training" the evaluation rows are the training rows, and so are their '
            "clusters: give the labels to `infer(model, psi, clusters=labels)`."
        )


def checked_units(values: Array, sample: Sample, n: int) -> Array:
    """Check the unit values at the fitted parameters and return them as (m, K)."""
    if values.ndim not in (1, 2) or values.dtype.kind not in "fiub" or values.size == 0:
        raise EvaluationError(
            f"h returned shape {values.shape} of {values.dtype}, but must return one number per "
            "evaluation row, (m,), or (m, K) for K evaluations: not averaged and not summed."
        )
    rows = values.astype(np.float64).reshape(values.shape[0], -1)
    m = rows.shape[0]
    if not np.all(np.isfinite(rows)):
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        raise EvaluationError(
            f"h is NaN or infinite for evaluation row {bad[0]} ({bad.size} of {m} rows). Check "
            "the evaluation data for missing values."
        )
    if sample == "training" and m != n:
        turned = values.ndim == 2 and values.shape[1] == n
        raise EvaluationError(
            f'h returned {m} rows, but there are {n} observations: sample="training" means that '
            "row i is training row i. "
            + (
                f"Its shape {values.shape} looks transposed: return `.T`."
                if turned
                else "Were rows with missing values dropped in the fit? For other rows use "
                'sample="independent" or, if some may be the same, sample="unknown".'
            )
        )
    _check_count(m)
    return rows


def _check_count(m: int) -> None:
    """Refuse one row."""
    if m < 2:
        raise EvaluationError(
            "h returned one row, from which the sampling error of an average cannot be estimated. "
            "For an estimate about this very row, or if h averages itself, pass a plain function, "
            "without `Average`."
        )


def same_rows(rows: Any) -> Finding | None:
    """Find evaluation rows that are all the same."""
    rows = np.asarray(rows)
    return None if np.any(rows != rows[:1]) else all_alike(len(rows))


def all_alike(m: int) -> Finding:
    """State that m evaluation rows are the same."""
    return Finding(
        "warn",
        "same_rows",
        f"h is the same for all {m} evaluation rows, so that the average has no sampling "
        "error of its own. That is right where no row differs, as the effect of a treatment in "
        "a linear model; it is wrong if h averages or sums by itself.",
        number=float(m),
        remedies=(
            "Return one value per row, not averaged; or pass a plain function, without `Average`.",
        ),
    )


@dataclass(frozen=True, eq=False)
class Sampling:
    """Error of an evaluation from the sampling of its rows.

    Attributes
    ----------
    covariance : (K, K) array or Factored
    df : float
        The number of clusters less one; infinite for rows that are independent.
    """

    covariance: Covariance
    df: float = np.inf

    def component(self, k: int) -> "Sampling":
        """Take the k-th evaluation alone."""
        return Sampling(self.covariance[k : k + 1, k : k + 1], self.df)


def sampling_of_mean(
    units: Array, clusters: Clusters | None = None, df: float | None = None
) -> Sampling:
    r"""Error of the mean: :math:`\sum (h - \bar h)(h - \bar h)' / m(m - 1)`, from (m, K).

    With G clusters, of whose sums :math:`s_g` of deviations it is
    :math:`\frac{G}{G - 1} \sum s_g s_g' / m^2`.
    """
    deviations = (units - units.mean(axis=0)) / len(units)
    sums = deviations if clusters is None else clusters.sums(deviations)
    if df is None:
        df = np.inf if clusters is None else len(sums) - 1.0
    return Sampling(quadratic(sums.T) * (len(sums) / (len(sums) - 1)), df)


def sampling_of_moments(moments: Moments, total: bool) -> Sampling:
    """Error of the mean or total of rows that were added up where they live."""
    m = moments.rows
    _check_count(m)
    return Sampling(moments.products / (m - 1) * (m if total else 1 / m))


def clusters_of(labels: Any, rows: Any) -> Clusters | None:
    """Number the labels of evaluation rows (m,), in the order of the labels of these if any."""
    if labels is None:
        return None
    return Clusters.of(labels, np.ones(len(rows)), getattr(rows, "index", None))

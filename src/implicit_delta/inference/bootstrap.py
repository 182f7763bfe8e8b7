"""Bootstrap of anything that can be fitted again."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.arguments import as_seed
from implicit_delta.core.findings import Finding
from implicit_delta.core.parallel import run_all
from implicit_delta.core.progress import progress
from implicit_delta.core.thresholds import FEW_REPLICATES
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError, NotDeterministicWarning
from implicit_delta.estimate import Estimate
from implicit_delta.evaluation import Average, Replicated, Smoothed, Statistic
from implicit_delta.evaluation.normal_draws import still
from implicit_delta.evaluation.values import SAME
from implicit_delta.inference.asked_again import asked_again
from implicit_delta.inference.assemble import Cost, Options, assemble
from implicit_delta.inference.drawn_data import DrawnData
from implicit_delta.inference.fit_again import (
    Fit,
    FitAndPsi,
    LeftOut,
    Replicate,
    labels_of,
    seeded,
    takes_data,
)
from implicit_delta.inference.jackknife import Acceleration, left_out_groups
from implicit_delta.linalg.arrays import ratio
from implicit_delta.methods.base import Response, first_of, uncertainty
from implicit_delta.methods.outcomes import (
    failed_replicates,
    largest_ratio,
    monte_carlo_error,
    run_replicates,
)
from implicit_delta.methods.replication import check_count

MOST_TIED = 0.3  # share of replicates that equal the estimate; a smooth psi has none


def bootstrap(
    fit: Fit,
    data: Any,
    psi: Callable[..., Any],
    *,
    replicates: int = 200,
    clusters: Any = None,
    kind: Literal["resample", "bayesian"] = "resample",
    rng: int | np.random.Generator | None = None,
    n_jobs: int = 1,
    names: Sequence[str] | str | None = None,
    jackknife: bool = True,
) -> Estimate:
    r"""Put an error bar on psi of anything that can be fitted again to other rows.

    The fit may be a forest, a median regression, a pipeline with a selection of features or a whole
    script: ``fit(data)`` returns any object, and psi makes numbers of it. Where there is a
    likelihood, `infer` needs no refits.

    Parameters
    ----------
    fit : callable
        ``fit(data)`` returns what was fitted, a new object each time. It must not change the data.
    data : data frame, array or list of rows, or a tuple, list or dict of these
        pandas, polars, NumPy, sparse, torch. All parts have the same rows; None is passed on.
    psi : callable
        ``psi(fitted)``, or ``psi(fitted, data)`` with the rows of the replicate, where these are a
        sample too (an average over the rows of the fit). Returns a number, an array (K,), or a
        dict or Series, whose names are kept. An `Average` of other rows, or `Replicated`, adds its
        own error. Or a question such as `average_comparison`, of anything with `predict_proba` or
        `predict`: about the rows of the data (the first part of a tuple), or those of each
        replicate with ``population=True``.
    replicates : int
        B; the standard error is known up to a relative error of about
        :math:`1 / \sqrt{2 (B - 1)}`, reported as ``monte_carlo_error``. For intervals other than
        the normal one take about 1000.
    clusters : str or (n,) labels, optional
        Draw whole groups of rows: a column of the data, or a label for each row. Where the data
        hold these labels, the copies of a group that was drawn twice get labels of their own, so
        that effects of groups (mixed models, fixed effects, GEE) see two groups: a number is moved
        by a part in 10^12, a text gets a suffix.
    kind : {"resample", "bayesian"}
        Draw with replacement; or give smooth Dirichlet weights with mean one to
        ``fit(data, sample_weight=...)``, which keep every row in.
    rng : int or numpy.random.Generator, optional
        Source of the draws. Replicate b has its own stream, so the result does not depend on
        `n_jobs`; NumPy's global state, which many fits draw from, is seeded by it too.
    n_jobs : int
        How many fits run at once (joblib; with ``joblib.parallel_config`` on Dask or Ray).
    names : sequence of str, optional
        Names of the evaluations, for tables.
    jackknife : bool
        Make the acceleration that ``confidence_interval(kind="bca")`` needs, by leaving out rows or
        clusters in turn, in 50 groups if there are more: at most 50 further fits.

    Returns
    -------
    Estimate
        With the replicates as ``draws``: ``confidence_interval(kind="percentile")``, ``"basic"``
        and ``"bca"`` read them. ``diagnostics.notes`` has the number of ``replicates``, of those
        that ``failed``, and the ``bias``, the mean of the replicates less the value over the
        standard error, the largest.

    Raises
    ------
    ConvergenceError
        More than 10 % of the replicates failed; the most common reason is told.
    TypeError
        `fit` changes its data, or returns nothing.

    Warns
    -----
    NotDeterministicWarning
        The same data gave two values. The replicates have this noise in them too, so the standard
        error is that of one such fit.

    Notes
    -----
    The rows (or clusters) have to be a sample of independent units: a time series is not. A choice
    that `fit` makes by cross-validation sees copies of a row on both sides of its split.

    Examples
    --------
    The median, with a standard error near :math:`\sqrt{\pi / 2n} = 0.13`:

    >>> y = np.random.default_rng(0).normal(size=100)
    >>> estimate = bootstrap(np.median, y, lambda fitted: fitted, rng=0)
    >>> print(f"{estimate.standard_error:.2f}")
    0.12
    """
    cost = Cost.start()
    _check(fit, psi, replicates, kind)
    rows, seed = DrawnData.of(data, clusters), as_seed(rng)
    psi = asked_again(psi, data)
    _check_rows(psi, kind)
    few = check_count(float(rows.count), *FEW_UNITS)
    own, *streams = np.random.SeedSequence(seed).spawn(int(replicates) + 1)
    question = FitAndPsi(fit, psi, kind)
    groups = left_out_groups(rows.count, own) if jackknife and kind == "resample" else []
    with progress("bootstrap", total=2 + len(streams) + len(groups), unit="fit") as bar:
        fitted, first = question.first(rows, own)
        bar.update()
        evaluation = first.evaluation(names, question.function)
        labels = labels_of(first.raw)
        refit = Replicate(question, rows, labels, evaluation.value.shape)
        _check_own_objects(question, fitted, rows, n_jobs, own)
        outcomes = run_replicates(refit, [(s,) for s in streams], n_jobs, bar, OTHERWISE)
        values = [outcome.psi for outcome in outcomes if outcome.psi is not None]
        failures = [outcome.failure for outcome in outcomes if outcome.psi is None]
        failed = failed_replicates(failures, len(outcomes), OTHERWISE)
        left_out = LeftOut(refit, own)
        jobs = [(group,) for group in groups]
        others = run_all(left_out, jobs, n_jobs, lambda _: bar.update())
        again = question.look(rows.copied(), own.spawn(1)[0]).value
    draws = np.array(values)
    _check_moved(evaluation.names, draws)
    covariance = np.atleast_2d(np.cov(draws, rowvar=False))
    errors, uncertain = np.sqrt(np.diag(covariance)), monte_carlo_error(draws)
    ties = _ties(evaluation.names, abs(draws - evaluation.value) <= SAME * errors)
    noise = np.atleast_1d(abs(again - first.value))
    random = bool(np.any(noise > SAME * np.max(abs(evaluation.value))))
    skewed = Acceleration.of(others, groups, rows.count, kind, random or not jackknife)
    bias = largest_ratio(abs(draws.mean(axis=0) - evaluation.value), errors)
    notes: dict[str, float | str] = {
        "replicates": float(len(outcomes)),
        "failed": float(len(failures)),
        "monte_carlo_error": uncertain,
        "bias": bias,
        "jackknife": float(len(groups)),
        **({"noise": largest_ratio(noise / np.sqrt(2), errors)} if random else {}),
        **({"no_bca": skewed.reason} if skewed.reason else {}),
    }
    of = "" if rows.clusters is None else f" of {rows.count} clusters"
    response = Response(
        covariance=covariance,
        draws=draws,
        acceleration=skewed.value,
        robust=True,
        refitted=True,
        method=f"bootstrap(replicates={len(outcomes)}, kind={kind!r}, rng={seed}){of}",
        findings=first_of(uncertainty(uncertain, "Use more replicates.", FEW_REPLICATES)),
        notes=notes,
    )
    findings = (few, failed, ties, _random_fit(noise, errors) if random else None)
    return assemble(evaluation, response, Options(strict=False, cost=cost, findings=findings))


OTHERWISE = (
    "Usual causes: few rows, categories that are rare and missing from a resample, or a `fit` that "
    "cannot take copies of a row (with pandas: `data.reset_index(drop=True)` within `fit`). Let "
    '`fit` take what can happen, or use `kind="bayesian"` with `fit(data, sample_weight)`.'
)
FEW_UNITS = (
    "A `fit` to one row, or to one cluster, cannot be repeated: give data with a row for each unit "
    "that was sampled.",
    "No other number of replicates helps; more rows or smaller clusters do.",
)


def _check(fit: Any, psi: Any, replicates: Any, kind: str) -> None:
    if not callable(fit):
        raise TypeError(
            f"fit is a {type(fit).__name__}, but must be a function of the data that returns what "
            "was fitted: for a scikit-learn estimator `lambda data: clone(estimator).fit(*data)` "
            "with data `(X, y)`."
        )
    _check_wrapper(psi)
    if replicates != int(replicates) or replicates < 2:
        raise ValueError(f"replicates must be an integer above 1, not {replicates!r}.")
    if kind == "one-step":
        raise ValueError(
            'kind="one-step" takes a Newton step on a log-likelihood, and `fit` shows none: '
            '`infer(model, psi, Bootstrap(kind="one-step"))` of a model of `from_loglik`, '
            "`from_statsmodels`, `from_sklearn` and the like."
        )
    if kind not in ("resample", "bayesian"):
        raise ValueError(
            f'kind must be "resample" or "bayesian", not {kind!r}: new targets can be drawn from '
            'a likelihood alone, `infer(model, psi, Bootstrap(kind="parametric"))`.'
        )
    if kind == "bayesian" and not _takes_weights(fit):
        raise TypeError(
            'kind="bayesian" gives weights to the fit, `fit(data, sample_weight)`, and this one '
            'has no argument `sample_weight`. Add it, or use kind="resample".'
        )


def _check_rows(psi: Any, kind: str) -> None:
    if kind == "bayesian" and takes_data(psi):
        raise TypeError(
            'With kind="bayesian" the rows stay and have weights, which psi(fitted, data) would '
            'not see. Use kind="resample".'
        )


def _check_wrapper(psi: Any) -> None:
    """Refuse wrappers that need a likelihood, and say what to give instead."""
    if isinstance(psi, Smoothed | Statistic):
        raise EvaluationError(
            f"{type(psi).__name__} finds the slope of a psi that moves in steps, and a bootstrap "
            "needs none: give `psi(fitted)` itself, or `psi(fitted, data)` for a metric of the "
            "rows of the fit."
        )
    average = psi.psi if isinstance(psi, Replicated) else psi
    if isinstance(average, Average) and average.sample == "training":
        raise EvaluationError(
            'Average(h, sample="training") is that of the rows of the fit, which are other rows in '
            "each replicate: give `lambda fitted, data: np.mean(h(fitted, data))`, with an h that "
            "takes its rows from data."
        )


def _takes_weights(fit: Any) -> bool:
    arguments = inspect.signature(fit).parameters.values()
    return any(a.name == "sample_weight" or a.kind is a.VAR_KEYWORD for a in arguments)


def _check_own_objects(
    question: FitAndPsi, fitted: Any, rows: DrawnData, n_jobs: int, stream: np.random.SeedSequence
) -> None:
    """Refuse threads for a fit that returns the same object each time."""
    import joblib

    shared = getattr(joblib.parallel.get_active_backend()[0], "supports_sharedmem", False)
    if n_jobs == 1 or not shared or isinstance(fitted, float | int | np.generic):
        return
    with seeded(stream):
        if question.fit(rows.copied()) is fitted:
            raise TypeError(
                f"fit(data) returns the same {type(fitted).__name__} each time, which threads "
                "would fit to several resamples at once. Return a new object (scikit-learn: "
                "`clone(estimator).fit(*data)`), or use processes or n_jobs=1."
            )


def _check_moved(names: Sequence[str], draws: Array) -> None:
    constant = [name for name, flat in zip(names, still(draws), strict=True) if flat]
    if constant:
        raise EvaluationError(
            f"{', '.join(constant[:5])} is the same at every replicate, up to rounding. Does "
            "`fit` use its argument, and not the data of the same name outside? Does psi use "
            "what was fitted? What is constant has no standard error: leave it out."
        )


def _ties(names: Sequence[str], tied: NDArray[np.bool_]) -> Finding | None:
    share = tied.mean(axis=0)
    k = int(np.argmax(share))
    if not share[k] > MOST_TIED:
        return None
    return Finding(
        "warn",
        "ties",
        f"{share[k]:.0%} of the replicates of {names[k]} equal the estimate. The bootstrap is "
        "not consistent for what rests on single rows (a maximum, a median of few values), and "
        "its standard error may be far off.",
        number=float(share[k]),
        remedies=("Use a smooth psi, such as a mean.",),
    )


def _random_fit(noise: Array, errors: Array) -> Finding:
    k = int(np.argmax(ratio(noise, errors)))
    return Finding(
        "warn",
        "random_fit",
        f"Two fits to the same data differ in psi by {noise[k]:.3g}, {noise[k] / errors[k]:.0%} of "
        "the standard error: `fit` draws random numbers, or goes on from where the last fit ended. "
        "The standard error has this noise of one fit in it, and the value too.",
        number=float(noise[k] / errors[k]),
        remedies=(
            "Fix a seed (`random_state=`) and start every fit anew, or average several fits.",
        ),
        warning=NotDeterministicWarning,
    )

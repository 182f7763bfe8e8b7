"""Small samples: robust variances that rest on too few rows or clusters."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtri, stdtr, stdtrit

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.findings import Finding
from implicit_delta.core.thresholds import FEW_CLUSTERS
from implicit_delta.core.types import Array
from implicit_delta.errors import SmallSampleWarning, UnsupportedModelError
from implicit_delta.inference.checks.case import Case
from implicit_delta.inference.hac import HAC
from implicit_delta.inference.influence import Sandwich
from implicit_delta.inference.leverage import Hat, gauss_newton_root, leverage_of, output_count
from implicit_delta.linalg.arrays import ratio
from implicit_delta.methods.base import Response
from implicit_delta.methods.probe import spread_out
from implicit_delta.models.model import FittedModel
from implicit_delta.models.sources import strata_of

NOMINAL, ACCEPTED = 0.95, 0.93  # what an interval promises, and the least that it should cover
VANISHING = 0.02  # of the model's standard error
ESTIMATED = 0.9  # the same where it is estimated from the influences, roughly
BINS = ", or terms that were not sampled: the bins of a histogram are not, their counts are"
MOST_PARAMETERS, MOST_NUMBERS, MOST_WORK = 1000, 2e7, 2e8  # that this check may cost
FEWEST_EFFECTIVE = 2.0  # clusters of equal size: with two there is no variance between them
MOST_CHECKED = 16  # evaluations
LARGEST_MATRIX = 500  # clusters
PREDICTED = ("HC0", "HC1", "CR0", "CR1", "CR1S")


class Forecast(NamedTuple):
    """Coverage of a nominal 95 % interval under the model, and whether leverages are known."""

    coverage: float = 1.0
    leverages: bool = False


class Vanishing(NamedTuple):
    """A robust standard error, and the model's own."""

    found: float
    own: float


def one_cluster(case: Case) -> Finding | None:
    """Find a cluster that holds most rows: the others fix its sum, and so the variance."""
    if case.sandwich is None or not case.sandwich.ways:
        return None
    weights = case.evaluation.model.weights.values
    sizes = {way.effective(weights): way.count for way in case.sandwich.ways}
    effective = min(sizes)
    if not effective < FEWEST_EFFECTIVE:
        return None
    return Finding(
        "warn",
        "one_cluster",
        f"One of the {sizes[effective]} clusters holds most of the observations: they vary as "
        f"little as {effective:.2f} clusters of equal size, and clustered standard errors are "
        "then far too small.",
        number=float(effective),
        remedies=("Give labels of smaller groups.",),
    )


def small_samples(case: Case) -> Finding | None:
    """Find a robust variance of too few rows or clusters."""
    part = case.part
    if part.judged is None:
        return None
    return of_small_samples(part.judged, case.evaluation.model, part.response, part.rows)


def of_small_samples(
    sandwich: Sandwich, model: FittedModel, response: Response, rows: Array | None = None
) -> Finding | None:
    """Find where a nominal 95% interval would cover less than 93% even if the model is right.

    Where leverages are unknown, the influences of the rows, (n, K), tell how many carry psi.
    """
    few = sandwich.fewest is not None and sandwich.fewest < FEW_CLUSTERS
    if sandwich.name == "CR2" or sandwich.stopped:
        return None
    vanishing = None if rows is None else _vanishing(model, response, rows)
    if vanishing is not None and vanishing.found > 0:
        return _of_vanishing(vanishing)
    forecast = _forecast(sandwich, model, response, rows)
    short = forecast.coverage < (ACCEPTED if forecast.leverages else ESTIMATED)
    covers = f"a nominal 95 % interval covers about {forecast.coverage:.1%}"
    if few:
        reason = f" Even if the model is right, {covers} here." if short else ""
        what = {"design": "the design-based variance"}.get(sandwich.name, sandwich.name)
        what = "the bootstrap" if response.robust else what
        return Finding(
            "warn",
            "few_clusters",
            f"There are only {sandwich.fewest} clusters, and {what} estimates the "
            "variance between them from these alone: it is too small on average, and uncertain."
            f"{reason}",
            number=sandwich.fewest,
            remedies=(_advice(sandwich, forecast),),
            warning=SmallSampleWarning,
        )
    if short:
        return Finding(
            "warn",
            "coverage",
            f"Even if the model is right, {covers} with {sandwich.name}: {_cause(sandwich)}"
            f"{'' if forecast.leverages else BINS}.",
            number=forecast.coverage,
            remedies=(_advice(sandwich, forecast),),
            warning=SmallSampleWarning,
        )
    if vanishing is not None:  # exactly nothing, and not of rows of leverage 1
        return _of_vanishing(vanishing)
    return None


def _vanishing(model: FittedModel, response: Response, rows: Array) -> Vanishing | None:
    """Find a robust error that is next to nothing beside the model's own; exact zeros come last."""
    if response.robust or (not model.rows.symmetric) or len(strata_of(model)) > 1:
        return None
    own = np.sqrt(response.covariance.diagonal())
    found = np.sqrt(model.weights.counts @ rows**2)
    shares = np.where(found < VANISHING * own, ratio(found, own), np.inf)
    k = int(np.argmin(np.where(shares > 0, shares, VANISHING)))
    return Vanishing(float(found[k]), float(own[k])) if shares[k] < np.inf else None


def _of_vanishing(errors: Vanishing) -> Finding:
    return Finding(
        "warn",
        "vanishing_error",
        f"The robust standard error, {errors.found:.2g}, is next to nothing beside the "
        f"{errors.own:.4g} of the model: the terms are not what was sampled.",
        number=errors.found / errors.own,
        causes=(
            "an extended likelihood, whose number of events is random too, dependent data in few "
            "terms, or a prior or penalty that is written into the terms (give it as `penalty=`)",
        ),
        remedies=('Leave out robust=, or use `Bootstrap(kind="parametric")`.',),
        warning=SmallSampleWarning,
    )


def _cause(sandwich: Sandwich) -> str:
    if sandwich.hac is not None:
        return "so many lags of so short a series are known badly"
    if sandwich.clusters is not None:
        return (
            "psi rests on few clusters (some are larger than others, or a regressor varies between "
            "them only), whose residuals are smaller than their noise"
        )
    return (
        "psi rests on few rows (there are few, or some have a high leverage), whose residuals are "
        "smaller than their noise"
    )


def _advice(sandwich: Sandwich, forecast: Forecast) -> str:
    """Name a line that works for the model at hand."""
    if sandwich.crossed:
        return 'Use robust="CR2" with the labels of the way that has fewer groups.'
    if sandwich.hac is not None:
        return "Use fewer lags, if the correlation dies out within them, or a longer series."
    if sandwich.clusters is None and not forecast.leverages:
        return (
            "Leave out robust=, if the likelihood is right; for values in bins give one term for "
            "each value and `weights=` counts."
        )
    if sandwich.clusters is None:
        return 'Use robust="HC3", whose t quantiles follow from how few rows it rests on.'
    if forecast.leverages:
        return 'Use `infer(model, psi, clusters=..., robust="CR2")`, which corrects for both.'
    return (
        'robust="CR2" corrects for both where the outputs of a row are known: make the model with '
        "`from_residuals`, `from_statsmodels` or a likelihood such as `Poisson()`."
    )


def _forecast(
    sandwich: Sandwich, model: FittedModel, response: Response, rows: Array | None = None
) -> Forecast:
    """Predict the coverage of the evaluation that fares worst, where it is known and cheap."""
    try:
        outputs = output_count(model)
    except UnsupportedModelError:
        return _by_influence(sandwich, model, response, rows)
    if response.directions is None:
        return Forecast(leverages=True)
    numbers = float(model.n * outputs * model.d)
    known = (sandwich.hac or sandwich.name in PREDICTED) and model.weights.kind != "sampling"
    most = int(min(MOST_CHECKED, MOST_NUMBERS / numbers, MOST_WORK / (numbers * model.d)))
    if not known or model.d > MOST_PARAMETERS or most == 0 or not np.any(response.directions):
        return Forecast(leverages=True)
    moving = np.flatnonzero(np.any(response.directions, axis=0))  # others have no error to cover
    directions = response.directions[:, spread_out(moving, most)]
    expected, df = _moments(sandwich, model, directions)
    used, level = sandwich.df(model, response), (1 + NOMINAL) / 2
    quantile = stdtrit(used, level) if np.isfinite(used) else ndtri(level)
    return Forecast(
        float(np.min(2 * stdtr(df, quantile * np.sqrt(np.maximum(expected, 0.0))) - 1)), True
    )


def _by_influence(
    sandwich: Sandwich, model: FittedModel, response: Response, rows: Array | None
) -> Forecast:
    """Predict from how evenly the influences are spread: a normal one has a kurtosis of three.

    Fitting d parameters takes that many of the rows that count. Only where the robust variance is
    below the model's: above it, something else is amiss, and the robust one sees it.
    """
    if rows is None or sandwich.name not in PREDICTED or sandwich.clusters is not None:
        return Forecast()
    if response.robust or model.weights.kind == "sampling" or (not model.rows.symmetric):
        return Forecast()
    below = model.weights.counts @ rows**2 < response.covariance.diagonal()
    moving = rows[:, np.any(rows, axis=0) & below]
    moving = moving / np.max(abs(moving), axis=0, initial=1e-300)
    df = 3 * (model.weights.counts @ moving**2) ** 2 / (model.weights.counts @ moving**4)
    kept = np.maximum(1 - model.d / df, 0.0)
    covered = 2 * stdtr(df, ndtri((1 + NOMINAL) / 2) * np.sqrt(sandwich.factor * kept)) - 1
    return Forecast(float(np.min(covered, initial=1.0)))


def _moments(sandwich: Sandwich, model: FittedModel, directions: Array) -> tuple[Array, Array]:
    """Mean of the variance estimate over the truth, and its degrees of freedom, (K,) each."""
    if sandwich.hac is not None:
        hat = Hat.of(model, gauss_newton_root(model), directions, clustered=False)
        expected, df = _of_series(hat, sandwich.hac, strata_of(model))
        return sandwich.factor * expected, df
    if sandwich.clusters is None:
        found = leverage_of(model, directions, 0.0)
        return sandwich.factor * found.expected, found.df
    hat = Hat.of(model, gauss_newton_root(model), directions, clustered=True)
    if not sandwich.crossed:
        expected, df = _of_clusters(hat, sandwich.clusters, correlated=True)
        return sandwich.factor * expected, df
    total, fewest = np.zeros(directions.shape[1]), np.full(directions.shape[1], np.inf)
    for way, factor in ((sandwich.clusters, sandwich.factor), *sandwich.crossed):
        expected, df = _of_clusters(hat, way, correlated=False)
        total += factor * expected
        fewest = np.minimum(fewest, df) if factor > 0 else fewest
    return np.maximum(total, 0.0), fewest


def _of_series(hat: Hat, hac: HAC, series: tuple[slice, ...]) -> tuple[Array, Array]:
    r"""Mean and degrees of freedom of :math:`f' K f` with K the kernel, for noise without memory.

    The form is that of K S, with S as in `leverage`: :math:`\mathrm{diag}(|a_i|^2) - B N B'`.
    """
    units = list(hat.rows(0.0))
    squares = np.concatenate([unit.squares for unit in units])
    columns = [[unit.pulled(k) for unit in units] for k in range(squares.shape[1])]
    pulled = np.stack([np.concatenate(column) for column in columns], axis=-1)
    smooth, spread = (hac.around(own, power, series) for own, power in ((pulled, 1), (squares, 2)))
    N = hat.taken
    gram = N @ np.einsum("nrk,nsk->krs", pulled, smooth)
    mean = np.sum(squares, axis=0) - np.trace(gram, axis1=1, axis2=2)
    square = np.sum(squares * spread, axis=0) + np.einsum("kij,kji->k", gram, gram)
    square -= 2 * np.einsum("nk,nrk,rs,nsk->k", squares, smooth, N, smooth, optimize=True)
    mean = np.maximum(mean, 0.0)
    return ratio(mean, hat.variance, otherwise=1.0), ratio(mean**2, square, otherwise=1.0)


def _of_clusters(hat: Hat, clusters: Clusters, correlated: bool) -> tuple[Array, Array]:
    r"""Mean and degrees of freedom of :math:`\sum_g (a_g' e_g)^2`, with a = U w.

    The noise of the rows of a cluster has the correlation that their residuals show, c. With T the
    sums within clusters and :math:`R = (I - P) (a_1, \dots, a_G)` the quadratic form is that of
    :math:`S = (1 - c) R' R + c (T R)' T R`, (G, G).
    """
    sums = _Sums.of(hat, clusters)
    c = sums.correlation if correlated else 0.0
    form = _matrix if clusters.count <= LARGEST_MATRIX else _diagonal
    forms = [form(sums, hat.taken, c, k) for k in range(sums.squares.shape[1])]
    mean = np.array([np.trace(S) if S.ndim == 2 else np.sum(S) for S in forms])
    square = np.array([np.sum(S**2) for S in forms])
    truth = (1 - c) * np.sum(sums.squares, axis=0) + c * np.sum(sums.along**2, axis=(0, 1))
    return ratio(mean, truth, otherwise=1.0), ratio(mean**2, square, otherwise=1.0)


def _matrix(sums: "_Sums", N: Array, c: float, k: int) -> Array:
    """S of evaluation k, (G, G)."""
    pulled, shift = sums.pulled[:, :, k], sums.along[:, :, k]
    S = (1 - c) * (np.diag(sums.squares[:, k]) - pulled @ N @ pulled.T)
    for j in range(shift.shape[1] if c > 0 else 0):
        shared = np.diag(shift[:, j]) - sums.rows[:, j] @ pulled.T
        S += c * shared.T @ shared
    return np.asarray(S)


def _diagonal(sums: "_Sums", N: Array, c: float, k: int) -> Array:
    """The diagonal of S, (G,): with many clusters the rest is small."""
    pulled, shift = sums.pulled[:, :, k], sums.along[:, :, k]
    own = np.einsum("gpr,gr->gp", sums.rows, pulled)
    flat = sums.rows.reshape(-1, pulled.shape[1])
    shared = np.sum(shift**2 - 2 * shift * own, axis=1)
    shared += np.sum((pulled @ (flat.T @ flat)) * pulled, axis=1)
    alone = sums.squares[:, k] - np.sum((pulled @ N) * pulled, axis=1)
    return np.asarray((1 - c) * alone + c * shared)


class _Sums(NamedTuple):
    """Sums within clusters: of |a|^2, (G, K); Z'a, (G, r, K); a, (G, p, K); and Z, (G, p, r)."""

    squares: Array
    pulled: Array
    along: Array
    rows: Array
    correlation: float

    @classmethod
    def of(cls, hat: Hat, clusters: Clusters) -> "_Sums":
        """Go through the rows once."""
        (rank, K), p, G = (
            (hat.root.shape[1], hat.directions.shape[1]),
            output_count(hat.model),
            clusters.count,
        )
        sums = [np.zeros((G + 1, *shape)) for shape in ((K,), (rank, K), (p, K), (p, rank), (p,))]
        squares, counts = 0.0, np.bincount(clusters.codes, minlength=G + 1)[:G]
        hat.seen[:] = 0.0
        for block in hat.blocks():
            hat.note(block)
            codes = clusters.codes[block.places]
            pulled = np.einsum("bpr,bpk->brk", block.Z, block.along, optimize=True)
            parts = (np.sum(block.along**2, axis=1), pulled, block.along, block.Z, block.residuals)
            member = csr_array(
                (np.ones(len(codes)), (codes, np.arange(len(codes)))), (G + 1, len(codes))
            )
            for total, part in zip(sums, parts, strict=True):
                total += (member @ part.reshape(len(codes), -1)).reshape(total.shape)
            squares += float(np.sum(block.residuals**2))
        size, pulled, along, rows, residuals = (total[:G] for total in sums)
        pairs = float(np.sum(counts**2 - counts)) * p
        product = ratio(np.sum(residuals**2) - squares, pairs) / max(squares, 1e-300)
        correlation = float(np.clip(product * np.sum(counts) * p, 0.0, 1.0))
        return cls(size, pulled, along, rows, correlation)

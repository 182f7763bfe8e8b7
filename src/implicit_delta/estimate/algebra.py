"""Estimates made of estimates: selections, contrasts, functions, joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from implicit_delta.core.findings import Finding, report
from implicit_delta.core.labels import distinct
from implicit_delta.core.types import Array
from implicit_delta.errors import SmallSampleWarning
from implicit_delta.estimate.checks import checked_names, real_numbers
from implicit_delta.estimate.combination import (
    added,
    combination_names,
    combine,
    combine_draws,
    stretch,
)
from implicit_delta.estimate.diagnostics import Diagnostics
from implicit_delta.estimate.expressions import read_expression
from implicit_delta.estimate.held import changed, covariance_of, parts_of
from implicit_delta.estimate.joint import base_of, check_positive, joint_diagnostics, with_findings
from implicit_delta.estimate.lineage import Lineage, mark_of
from implicit_delta.estimate.maps import chosen, selection, smallest
from implicit_delta.estimate.quantiles import welch_df
from implicit_delta.estimate.selection import selected
from implicit_delta.estimate.slopes import Slopes, slopes_of
from implicit_delta.linalg.arrays import ratio

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate

COMBINED_DF = Finding(
    "warn",
    "combined_df",
    "The degrees of freedom of a combination do not follow from those of its parts "
    "(Satterthwaite's; the smallest are taken), and may be fewer.",
    remedies=(
        "Of one model, ask for the combination itself: `infer(model, lambda m: C @ psi(m), ...)`.",
    ),
    warning=SmallSampleWarning,
)
NOTHING_LEFT = "none: the estimates cancel, whatever the data"


def join(
    *estimates: Estimate, independent: bool = False, names: Sequence[str] | str | None = None
) -> Estimate:
    r"""Put estimates of different models side by side, with their joint covariance.

    The models were fitted to the same rows, each in its own backend; their estimates carry
    influences, ``infer(..., influence=True)``. The covariance between two estimates is the sum over
    rows (over clusters, over lags) of products of their influences, as in Stata's `suest`; every
    estimate keeps the covariance that it has, model-based or robust, and its influences are scaled
    to that, so that the whole is positive semi-definite. ``a - b`` and ``a / b`` are sugar for it.

    Parameters
    ----------
    *estimates : Estimate
        Rows are matched by the index of the data where both fits had one, and by their order
        otherwise. Rows that only one of two fits has used are independent of the other, unless
        they are in the same cluster: clusters are matched by their labels.
    independent : bool
        The estimates are from separate samples, and no influences are needed. Rows, clusters or a
        model that they share are warned about. Shared rows of models without an index
        (`from_residuals`, `from_loglik`) are recognized by correlated influences or residuals.
    names : sequence of str, optional
        Names of all evaluations; those they have, numbered where repeated, unless given.

    Returns
    -------
    Estimate
        All evaluations in order. Averages over the same evaluation rows (`Average`, without
        clusters) depend on each other through these too. Draws are kept if all are of one model.

    Raises
    ------
    ValueError
        The rows, their weights or their clusters do not match, or influences are missing.

    Examples
    --------
    >>> import implicit_delta as idm
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=200)
    >>> y = x + rng.normal(size=200)
    >>> mean = idm.from_residuals(lambda th: y - th[0], start=[0.0])
    >>> line = idm.from_residuals(lambda th: y - th[0] - th[1] * x, start=[0.0, 0.0])
    >>> a = idm.infer(mean, lambda th: th[0], names="mean", robust=True)
    >>> b = idm.infer(line, lambda th: th[0], names="at zero", robust=True)
    >>> both = idm.join(a, b)
    >>> round(both.contrast("mean - at zero").standard_error, 3)
    0.063
    """
    if len(estimates) == 1 and isinstance(estimates[0], list | tuple):
        raise TypeError("join takes estimates one by one: `join(a, b)`, or `join(*estimates)`.")
    if not estimates or any(not hasattr(estimate, "lineage") for estimate in estimates):
        raise TypeError("join takes one estimate or more, as `infer` returns them.")
    if independent not in (True, False):
        raise ValueError(f"independent is True or False, not {independent!r}")
    lineage = Lineage.joined(estimates, independent)
    labels = distinct([name for estimate in estimates for name in estimate.names])
    report(lineage.findings)
    base = base_of(lineage)
    diagnostics = joint_diagnostics(estimates, lineage)
    found = _made(
        base,
        lineage.jacobian,
        np.concatenate([np.atleast_1d(estimate.value) for estimate in estimates]),
        labels if names is None else checked_names(names, len(labels)),
        lineage,
        diagnostics=with_findings(diagnostics, base.diagnostics.findings),
        draws=_paired(estimates, lineage),
    )
    if len(lineage.leaves) > 1:
        check_positive(covariance_of(found))
    return found


def select(estimate: Estimate, key: Any) -> Estimate:
    """Take some evaluations, or one as a scalar; see `Estimate.__getitem__`."""
    places = selected(key, estimate.names)
    rows = selection(np.atleast_1d(places), len(estimate.names))
    names = tuple(estimate.names[k] for k in np.atleast_1d(places))
    return mapped(estimate, rows, np.atleast_1d(estimate.value)[places], names)


def contrast(
    estimate: Estimate, C: ArrayLike | str | Sequence[str], names: Sequence[str] | str | None
) -> Estimate:
    """Combine evaluations linearly; see `Estimate.contrast`."""
    texts = _texts(C)
    if texts is None:
        combined, shift = _checked_rows(C, len(estimate.names)), np.zeros(1)
        spelled = combination_names(np.atleast_2d(combined), estimate.names)
    else:
        read = [read_expression(text, estimate.names) for text in texts]
        combined, shift = np.array([one.row for one in read]), np.array([c for _, c in read])
        combined = combined[0] if isinstance(C, str) else combined
        spelled = tuple(" ".join(text.split()) for text in texts)
    rows = np.atleast_2d(combined)
    value = rows @ np.atleast_1d(estimate.value) + shift
    labels = spelled if names is None else checked_names(names, len(rows))
    return mapped(estimate, rows, value[0] if combined.ndim == 1 else value, labels)


def apply(
    estimate: Estimate,
    f: Callable[[Any], Any],
    names: Sequence[str] | str | None = None,
    *,
    strict: bool = True,
) -> Estimate:
    """Carry an estimate through a function of its values; see `Estimate.apply`."""
    if not callable(f):
        raise TypeError(
            f"apply takes a function of the values, not {f!r:.60}: "
            "`est.apply(lambda v: v[0] / v[1])`. For a linear expression use `est.contrast(...)`."
        )
    function = _OfEntry(f) if isinstance(estimate.value, float) else f
    found = slopes_of(
        function, np.atleast_1d(estimate.value), covariance_of(estimate), strict=strict
    )
    count = found.jacobian.shape[0]
    labels = _applied(estimate, f, found) if names is None else checked_names(names, count)
    result = mapped(estimate, found.jacobian, found.value, labels, function=function)
    if not found.bend > np.nan_to_num(estimate.diagnostics.nonlinearity):
        return result
    return changed(result, diagnostics=replace(result.diagnostics, nonlinearity=float(found.bend)))


def mapped(
    estimate: Estimate,
    C: Any,
    value: ArrayLike,
    names: Sequence[str],
    *,
    function: Callable[[Any], Any] | None = None,
) -> Estimate:
    """Map an estimate by the matrix C, (q, K), or by a function whose Jacobian C is.

    What depends on some of the leaves alone is made of these alone: ``join(a, b)["x"]`` is a.
    """
    whole = Lineage.of(estimate)
    lineage = whole.times(C, straight=function is None).trimmed()
    if len(lineage.leaves) == len(whole.leaves):
        draws = _mapped_draws(estimate, C, function)
        diagnostics = estimate.diagnostics
        return _made(
            estimate,
            C,
            value,
            names,
            lineage,
            diagnostics=diagnostics,
            draws=draws,
            selecting=function is None,
        )
    base = base_of(lineage)
    return _made(
        base,
        lineage.jacobian,
        value,
        names,
        lineage,
        diagnostics=base.diagnostics if lineage.straight else estimate.diagnostics,
        draws=_mapped_draws(base, lineage.jacobian, None) if lineage.straight else None,
        selecting=function is None,
    )


def _made(
    base: Estimate,
    J: Any,
    value: ArrayLike,
    names: Sequence[str],
    lineage: Lineage,
    *,
    diagnostics: Diagnostics,
    draws: Array | None,
    selecting: bool = True,
) -> Estimate:
    """Make the estimate with the Jacobian J by those of the base; see whether it is a selection."""
    parts = {part: combine(J, V) for part, V in parts_of(base).items()}
    V = added(parts) if base.errors_add else combine(J, covariance_of(base))
    if np.any(covariance_of(base).diagonal()) and not np.any(V.diagonal()):
        notes = {**diagnostics.notes, "variance": NOTHING_LEFT}
        diagnostics = replace(diagnostics, notes=notes)
    places = chosen(J)
    same = (
        selecting
        and places is not None
        and np.array_equal(np.ravel(value), np.atleast_1d(base.value)[places])
    )
    if not same:
        notes = {name: note for name, note in diagnostics.notes.items() if name != "question"}
        diagnostics = replace(diagnostics, notes=notes)
    df, uncertain = _degrees(lineage)
    diagnostics = with_findings(diagnostics, report([uncertain]))
    drift = None if base.drift is None else J @ base.drift
    if drift is not None:  # moves with their signs: they cancel in differences
        largest = float(np.max(ratio(abs(drift), np.sqrt(V.diagonal()))))
        diagnostics = replace(diagnostics, drift=largest)
    return type(base)(
        value=np.asarray(value),
        covariance=V,  # type: ignore[arg-type]
        names=tuple(names),
        method=base.method,
        diagnostics=diagnostics,
        influence=None if base.influence is None else base.influence @ J.T,
        parts=parts,  # type: ignore[arg-type]
        draws=draws,
        errors_add=base.errors_add,
        df=df,
        target=base.target,
        acceleration=None
        if places is None or base.acceleration is None
        else base.acceleration[places],
        drift=drift,
        rows=base.rows,
        deviations=None if base.deviations is None else base.deviations @ J.T,
        scale=tuple(np.broadcast_to(base.scale, len(base.names))[places]) if same else "",
        lineage=replace(lineage, mark=mark_of(value, V)),
    )


def _degrees(lineage: Lineage) -> tuple[Array, Finding | None]:
    """Degrees of freedom: Welch's between separate samples, else the smallest that take part."""
    variances, dfs, several, each = [], [], 0, False
    for leaf, own in zip(lineage.leaves, lineage.columns(), strict=True):
        rows, V = lineage.jacobian[:, own], covariance_of(leaf)
        moving = V.diagonal() > 0
        taken = (rows != 0) @ (1.0 * moving)
        dfs.append(smallest(rows, np.where(moving, leaf.df, np.inf)))
        if lineage.independent:
            variances.append(combine(rows, V).diagonal())
        several = several + taken
        each |= bool(np.ndim(leaf.df)) and bool(np.any(taken))
    unknown = COMBINED_DF if each and np.any(several > 1) else None
    if len(dfs) > 1 and lineage.independent:
        return welch_df(variances, dfs), unknown
    return np.asarray(np.min(dfs, axis=0)), unknown


def _paired(estimates: Sequence[Estimate], lineage: Lineage) -> Array | None:
    """Put the draws of one model side by side: they are of the same replicates."""
    draws = [estimate.draws for estimate in estimates if estimate.draws is not None]
    alike = len(draws) == len(estimates) and len({len(one) for one in draws}) == 1
    return np.hstack(draws) if alike and len(lineage.leaves) == 1 else None


def _mapped_draws(base: Estimate, C: Any, function: Callable[[Any], Any] | None) -> Array | None:
    """Map draws of the model's part, and stretch them to the total anew."""
    if base.draws is None:
        return None
    parts = {part: combine(C, V) for part, V in parts_of(base).items()}
    V = added(parts) if base.errors_add else combine(C, covariance_of(base))
    before, after = stretch(parts_of(base), covariance_of(base)), stretch(parts, V)
    if function is None:
        return combine_draws(C, base.draws, before, after)
    center = base.draws.mean(axis=0)
    own = base.draws if np.all(before == 1) else center + (base.draws - center) / before
    try:
        with np.errstate(all="ignore"):
            found = np.array([np.atleast_1d(function(row.copy())) for row in own], dtype=float)
    except (ArithmeticError, ValueError, TypeError):
        return None  # some draw is outside of the domain: there are no quantiles
    if not np.all(np.isfinite(found)):
        return None
    middle = found.mean(axis=0)
    return found if np.all(after == 1) else np.asarray(middle + after * (found - middle))


def _texts(C: Any) -> list[str] | None:
    """Return expressions, if that is what was given."""
    if isinstance(C, str):
        return [C]
    listed = C.tolist() if isinstance(C, np.ndarray) and C.dtype.kind in "OU" else C
    if isinstance(listed, list | tuple) and listed and all(isinstance(c, str) for c in listed):
        return list(listed)
    return None


def _checked_rows(C: Any, K: int) -> Array:
    combined = real_numbers("C", C)
    if combined.ndim not in (1, 2) or combined.shape[-1] != K:
        raise ValueError(
            f"C has shape {combined.shape}, but there are {K} evaluations; "
            f"give ({K},) for one combination or (q, {K}) for q"
        )
    if not np.isfinite(combined).all():
        raise ValueError("C has entries that are NaN or infinite; leave one out with a 0")
    return combined


class _OfEntry:
    """A function of one number, as one of an array of one."""

    def __init__(self, f: Callable[[Any], Any]) -> None:
        self.f = f

    def __call__(self, values: Any) -> Any:
        return self.f(values[0])


def _applied(estimate: Estimate, f: Any, found: Slopes) -> tuple[str, ...]:
    """Name the outputs of f: as before where it changes nothing, else by its own name."""
    K = len(estimate.names)
    if np.array_equal(found.value, estimate.value) and np.array_equal(found.jacobian, np.eye(K)):
        return estimate.names
    stem = getattr(f, "__name__", "f")
    stem = "f" if stem == "<lambda>" else stem
    diagonal = found.jacobian.shape == (K, K) and found.value.ndim == np.ndim(estimate.value)
    if diagonal and np.count_nonzero(found.jacobian - np.diag(np.diag(found.jacobian))) == 0:
        return tuple(f"{stem}({name})" for name in estimate.names)
    if found.value.ndim == 0:
        return (stem,)
    return tuple(f"{stem}[{k}]" for k in range(found.value.size))

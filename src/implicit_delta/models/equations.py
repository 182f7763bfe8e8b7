"""Estimating equations: M-estimators, stacked and two-step estimators, and GMM."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from implicit_delta.core.calls import Limited, most_calls
from implicit_delta.core.clusters import Clusters
from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.core.rounding import is_symmetric
from implicit_delta.core.types import Array, WeightKind
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.equation_checks import check_root, warn_of_contradiction
from implicit_delta.models.equation_roots import (
    Hansen,
    Solved,
    gmm,
    hansen_of,
    inverse_scatter,
    root_of,
)
from implicit_delta.models.equation_rows import EquationRows
from implicit_delta.models.equation_system import Equations, as_rows, checked_rows
from implicit_delta.models.facts import OTHER_ROOT, Facts, Host
from implicit_delta.models.language import VectorLanguage
from implicit_delta.models.model import FittedModel
from implicit_delta.models.named_theta import (
    named_point,
    names_of,
    naming_best_point,
    speaking,
)
from implicit_delta.models.space import Space
from implicit_delta.models.weights import Weights, observation_weights


def from_equations(
    equations: Callable[[Array], Any],
    theta: Any = None,
    *,
    start: Any = None,
    weighting: Literal["two-step", "iterated"] | Array | None = None,
    first_weighting: Array | None = None,
    jacobian: Callable[[Array], Any] | None = None,
    weights: Sequence[float] | Array | None = None,
    weight_kind: WeightKind = "frequency",
    clusters: Any = None,
    names: Sequence[str] | None = None,
    max_calls: int | None = None,
) -> FittedModel:
    r"""Make a fitted model of estimating equations that sum to zero.

    With :math:`M(\theta) = \sum_i w_i m_i(\theta)` and B its Jacobian: the influence of row i on
    psi is :math:`-u' m_i` with :math:`B' u = g`, and the variance is always the sandwich that they
    make. Give `theta`, where the equations sum to zero, or `start`, from where a root is found.
    Stack what was estimated in steps (a propensity score and what it weighs), one equation for
    each parameter, and the error of the first step is in the second. With more equations than
    parameters (q > d) theta minimizes :math:`M' W M` (GMM).

    Parameters
    ----------
    equations : callable
        Equations of each observation, (d,) to (n, q): never their sum or mean.
    theta : (d,) array, dict, named tuple or pandas Series, optional
        The root, if it is known.
    start : (d,) array, dict, named tuple or pandas Series, optional
        Where to start looking for it; with names as in `from_loglik`.
    weighting : {"two-step", "iterated"} or (q, q) array, optional
        W, if q > d: a matrix, such as ``np.linalg.inv(Z.T @ Z)`` for two-stage least squares; or
        the inverse scatter of the equations at a first estimate ("two-step", the default with
        `start`), or at the estimate itself ("iterated", the default with `theta`). The last two
        come with Hansen's J, in ``model.facts.hansen`` and in the diagnostics of an estimate.
    first_weighting : (q, q) array, optional
        W of the first of two steps; the identity if left out.
    jacobian : callable, optional
        Derivative of the *summed*, weighted equations, (d,) to (q, d). Without it, it is traced
        through NumPy or, where that fails, taken by differences. Equations that jump need it.
    weights : (n,) array, optional
        How much each observation counts; see `from_loglik`.
    weight_kind : {"frequency", "precision", "sampling"}
    clusters : (n,) array, list or pandas Series, optional
        Labels of groups within which rows may be dependent. The weighting of GMM, Hansen's J and
        the default variance are then those of groups.
    names : sequence of str, optional
        Names of the parameters, if `theta` or `start` has none.
    max_calls : int, optional
        Calls of `equations` that the search may make: 3000, and more for ten parameters and more.
        Beyond, a `ConvergenceError` says how far it got, with the best point in `theta`.

    Returns
    -------
    FittedModel

    Examples
    --------
    A ratio of means, and its standard error:

    >>> import implicit_delta as idm
    >>> x, y = np.random.default_rng(0).normal(5, 1, size=(2, 100))
    >>> model = idm.from_equations(lambda th: y - th[0] * x, start=[1.0])
    >>> estimate = idm.infer(model, lambda th: th[0])
    >>> print(f"{estimate.value:.4f} +- {estimate.standard_error:.4f}")
    0.9741 +- 0.0256
    """
    point, layout = named_point(theta, start, 0.0, "the root of the equations", names)
    equations, jacobian = speaking(equations, layout), speaking(jacobian, layout)
    n, q = checked_rows(equations, point).shape
    checked = observation_weights(weights, n, weight_kind)
    _check_large(point.size, q)
    groups = None if clusters is None else Clusters.of(clusters, checked.values)
    rows = EquationRows(Equations(equations, jacobian), n, point.size, groups)
    space = Space(names_of(layout), layout, language=VectorLanguage(layout))
    W, first = _checked_weighting(weighting, q), _checked_weighting(first_weighting, q)
    calls = Limited(equations, most_calls(max_calls, point.size), _closeness, "the equations")
    solving = replace(rows, equations=Equations(calls, jacobian, rows.equations.counter))
    with naming_best_point(layout):
        found = _solved(solving, checked, point, space.names, q, theta is not None, W, first)
    if point.size <= DENSE_LIMIT:
        rows = rows.differentiated(found.theta, checked, found.weighting, space.names)
        check_root(rows.root(found.theta, checked), space.names)
        warn_of_contradiction(found.hansen)
    facts = Facts(
        source="from_equations",
        notes=_notes(equations, found.hansen),
        host=Host(clusters=groups, drift_causes=OTHER_ROOT),
        hansen=found.hansen,
    )
    return FittedModel(found.theta, rows, checked, space=space, facts=facts)


def _closeness(theta: Array, rows: Array) -> float:
    """Minus half the sum of squares of the summed equations, in units of their spread."""
    rows = as_rows(rows)
    spread = np.maximum(np.sum(rows**2, axis=0), np.finfo(float).tiny)
    return -float(np.sum(np.sum(rows, axis=0) ** 2 / spread)) / 2


def _notes(equations: Any, hansen: Hansen | None) -> dict[str, str]:
    name = getattr(equations, "__name__", "a function")
    if hansen is None:
        return {"equations": name}
    return {
        "equations": f"{name}, {hansen.df} more than parameters",
        "Hansen's J": f"{hansen.statistic:.4g} (p {hansen.p_value:.3g})",
    }


def _check_large(d: int, q: int) -> None:
    if d > DENSE_LIMIT and q > d:
        raise UnsupportedModelError(
            f"GMM is for up to {DENSE_LIMIT} parameters, and there are {d}. Combine the {q} "
            "equations to as many as parameters."
        )


def _solved(
    rows: EquationRows,
    weights: Weights,
    theta: Array,
    names: Sequence[str] | None,
    q: int,
    known: bool,
    W: Any,
    first: Array | None,
) -> Solved:
    """Fit from theta, or take it for the root with the weighting that it belongs to."""
    system = rows.system(weights)
    if q == theta.size:
        if W is not None or first is not None:
            raise ValueError(
                f"weighting= is for more equations than parameters, and there are {q} of each: "
                "their root does not depend on it. Leave it out."
            )
        return Solved(theta if known else root_of(system, theta, names))
    scatter = partial(rows.scatter, weights=weights)
    if not known:
        return gmm(system, scatter, theta, "two-step" if W is None else W, first)
    if isinstance(W, np.ndarray):
        return Solved(theta, W)
    if W == "two-step" or first is not None:
        raise ValueError(
            "theta= of a two-step GMM estimate does not tell the weighting that it belongs to. "
            "Give that matrix as `weighting=`, or `start=` to have the estimate made here."
        )
    W = inverse_scatter(scatter(theta))
    return Solved(theta, W, hansen_of(system.total(theta), W, theta.size))


def _checked_weighting(weighting: Any, q: int) -> Any:
    if weighting is None or (isinstance(weighting, str) and weighting in ("two-step", "iterated")):
        return weighting
    if isinstance(weighting, str):
        raise ValueError(
            f'weighting is "two-step", "iterated" or a ({q}, {q}) matrix, not {weighting!r}.'
        )
    W = np.array(weighting, dtype=np.float64)
    if W.shape != (q, q) or not np.isfinite(W).all() or not is_symmetric(W):
        raise ValueError(f"A weighting is a symmetric matrix ({q}, {q}), not of shape {W.shape}.")
    scale = np.sqrt(abs(np.diag(W)))  # equations may have any units
    if not scale.all() or np.linalg.eigvalsh(W / np.outer(scale, scale))[0] <= 0:
        raise ValueError(
            "weighting is not positive definite: give, for example, `np.linalg.inv(Z.T @ Z)` for "
            "two-stage least squares."
        )
    return W

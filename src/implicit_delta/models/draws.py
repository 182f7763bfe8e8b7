"""Draws from a posterior, with the log-likelihood of each row at each draw."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from implicit_delta._core.arguments import Counter, as_weights
from implicit_delta._core.types import Array, Psi, WeightKind
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.base import Curvature, FittedModel, Whitened
from implicit_delta.models.jacobian import jacobian_of
from implicit_delta.models.named_theta import (
    Layout,
    as_named,
    checked_layout,
    names_of,
    of_arrays,
    speaking,
)
from implicit_delta.models.weights import observation_weights
from implicit_delta.numerics.tracing import trace

FEWEST_DRAWS = 100  # of a covariance with each row
NO_OBJECTIVE = (
    "Draws from a posterior come with no log-likelihood as a function of the parameters, which "
    "this method or call is about. Use `infer(model, psi)` without `method=`; or `from_loglik`, "
    "with the prior as `penalty=`."
)
NO_LEVERAGE = (
    "HC2, HC3 and CR2 make up for the leverage of rows on their outputs, and draws from a "
    'posterior show none. Use robust="HC1" or, with clusters, robust="CR1" or "CR1S".'
)


def from_draws(
    draws: Any,
    terms: Any = None,
    *,
    weights: Sequence[float] | Array | None = None,
    weight_kind: WeightKind = "frequency",
    names: Sequence[str] | None = None,
) -> "DrawsModel":
    r"""Make a fitted model of draws from a posterior.

    The estimate of ``infer(model, psi)`` is the posterior mean of psi, and its variance that over
    repeated data sets, whether or not the model is right (the infinitesimal jackknife; Giordano and
    Broderick): :math:`V = \sum_i \mathrm{Cov}(\psi, \ell_i)^2`, with the covariance over draws of
    psi and of the log-likelihood of row i. The prior is held fixed.

    Parameters
    ----------
    draws : (S, d) array, data frame, dict of arrays, or ArviZ InferenceData
        Parameters of each draw, chain after chain; of a dict, ``{"mu": (S,), "beta": (S, 3)}``. Of
        an InferenceData (anything with `posterior` and `log_likelihood`) all variables of the
        posterior, flat, in their order. With names, psi and `terms` get these as in `from_loglik`.
    terms : (S, n) array, callable or str, optional
        Log-likelihood of each row at each draw: an array, or a function of the parameters, (d,) to
        (n,). Of an InferenceData, the name of the variable if there is more than one.
    weights, weight_kind
        How much each row counted in the posterior; see `from_loglik`.
    names : sequence of str, optional
        Names of the parameters, if the draws have none.

    Returns
    -------
    DrawsModel

    Examples
    --------
    A normal mean with a flat prior; the variance of the mean, misspecified or not, is s2 / n:

    >>> import implicit_delta as idm
    >>> rng = np.random.default_rng(0)
    >>> y = rng.normal(1.0, 3.0, size=100)
    >>> draws = y.mean() + rng.normal(size=(4000, 1)) / 10  # of a posterior with variance 1 / n
    >>> model = idm.from_draws(draws, lambda th: -((y - th[0]) ** 2) / 2)
    >>> estimate = idm.infer(model, lambda th: th[0])
    >>> print(f"{estimate.standard_error:.2f}, and {y.std() / 10:.2f}")
    0.29, and 0.29
    """
    layout = None
    if hasattr(draws, "posterior"):
        draws, terms, layout = _of_inference_data(draws, terms)
    elif isinstance(draws, Mapping):
        draws, layout = _of_mapping(draws)
    elif hasattr(draws, "columns") and all(isinstance(name, str) for name in draws.columns):
        layout = checked_layout(list(draws.columns), len(draws.columns))
    points = np.array(draws, dtype=np.float64)
    points = points[:, None] if points.ndim == 1 else points
    if points.ndim != 2 or points.size == 0 or not np.all(np.isfinite(points)):
        raise ValueError(
            f"draws must be finite, one row per draw and one column per parameter, (S, d), not "
            f"{points.shape}."
        )
    if len(points) < FEWEST_DRAWS:
        raise ValueError(
            f"There are {len(points)} draws (rows), and {FEWEST_DRAWS} are the least from which "
            "covariances with each row are found"
            + (": is it the transpose?" if points.shape[1] >= FEWEST_DRAWS else ".")
        )
    layout = layout if names is None else checked_layout(names, points.shape[1])
    log_terms = _log_terms(points, speaking(terms, layout) if callable(terms) else terms)
    return DrawsModel(
        draws=points,
        log_terms=log_terms,
        theta=points.mean(axis=0),
        weights=observation_weights(weights, log_terms.shape[1], weight_kind),
        weight_kind=weight_kind,
        names=names_of(layout),
        layout=layout,
    )


@dataclass(frozen=True, eq=False, repr=False)
class DrawsModel(FittedModel):
    """Draws from a posterior; made by `from_draws`.

    Theta is their mean; psi away from it is the mean over draws that are shifted as a whole.
    """

    draws: Array
    log_terms: Array
    theta: Array
    weights: Array
    weight_kind: WeightKind = "frequency"
    names: tuple[str, ...] | None = None
    counter: Counter = field(default_factory=Counter)
    layout: Layout | None = None
    sandwiched = True
    maker = "from_draws"

    def __post_init__(self) -> None:
        object.__setattr__(self, "theta", as_named(self.theta, self.layout))

    @property
    def passes(self) -> int:
        return self.counter.count

    def pinned(self) -> "DrawsModel":
        """Build the model of one draw: psi of a point is psi there."""
        return replace(self, draws=self.theta[None])

    def evaluate(self, psi: Psi, theta: Array) -> Array:
        shifted, psi = self.draws + (theta - self.theta), speaking(psi, self.layout)
        return np.asarray(np.mean([np.asarray(psi(point)) for point in shifted.copy()], axis=0))

    def jacobian(self, psi: Psi, theta: Array) -> Array:
        units = np.maximum(self.draws.std(axis=0), 1e-12)
        shifted, psi = self.draws + (theta - self.theta), speaking(psi, self.layout)
        parts = [jacobian_of(psi, point, units, trace(psi, point)) for point in shifted]
        return np.asarray(np.mean(parts, axis=0))

    def terms_along(self, theta: Array, v: Array) -> Array:
        self.counter.count += 1
        away = self.log_terms - self.log_terms.mean(axis=0)
        return np.asarray(away.T @ v)

    def reweighted(self, weights: Array) -> "DrawsModel":
        return replace(self, weights=as_weights(weights, self.n))

    def at(self, theta: Array) -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def terms(self, theta: Array) -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def objective(self, theta: Array) -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def score(self, theta: Array) -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        raise UnsupportedModelError(NO_LEVERAGE)

    def describe(self) -> dict[str, str]:
        return {"posterior": f"{len(self.draws)} draws"}


def _log_terms(points: Array, terms: Any) -> Array:
    """Make the log-likelihood of each row at each draw, (S, n)."""
    if terms is None or isinstance(terms, str):
        raise TypeError("Give terms=: the log-likelihood of each row at each draw, (S, n).")
    function: Callable[[Array], Any] | None = terms if callable(terms) else None
    values = np.array(
        terms if function is None else [np.asarray(function(point.copy())) for point in points],
        dtype=np.float64,
    )
    if values.ndim != 2 or len(values) != len(points) or values.shape[1] < 2:
        raise ValueError(
            f"terms has shape {values.shape}, but must have one row per draw and one column per "
            f"observation, ({len(points)}, n): not their sum over observations."
        )
    if not np.all(np.isfinite(values)):
        draw, row = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(f"The log-likelihood of row {row} at draw {draw} is {values[draw, row]}.")
    return values


def _of_mapping(draws: Mapping[str, Any]) -> tuple[Array, Layout]:
    """Flatten arrays (S, ...) by name."""
    arrays = {str(name): np.asarray(values, dtype=np.float64) for name, values in draws.items()}
    counts = {name: len(array) for name, array in arrays.items() if array.ndim}
    if not arrays or len(counts) < len(arrays) or len(set(counts.values())) > 1:
        raise ValueError(
            "draws is a dictionary of arrays (S,) or (S, ...) with one entry per draw, of one "
            f"length, and not of lengths {counts}."
        )
    columns = [array.reshape(len(array), -1) for array in arrays.values()]
    return np.concatenate(columns, axis=1), of_arrays(
        {name: array.shape[1:] or None for name, array in arrays.items()}
    )


def _of_inference_data(data: Any, terms: Any) -> tuple[Array, Any, Layout]:
    """Flatten the variables of an ArviZ InferenceData, (chain, draw, ...) each."""
    posterior = data.posterior
    columns = [_flat(posterior[name]) for name in posterior.data_vars]
    names = of_arrays(
        {str(name): np.shape(posterior[name])[2:] or None for name in posterior.data_vars}
    )
    if terms is None or isinstance(terms, str):
        terms = _flat(_of_rows(data, terms))
    return np.concatenate(columns, axis=1), terms, names


def _of_rows(data: Any, name: str | None) -> Any:
    group = getattr(data, "log_likelihood", None)
    if group is None:
        raise ValueError(
            "The InferenceData has no group `log_likelihood`. Make it (`pm.compute_log_likelihood("
            "idata)` in PyMC), or give terms=, the log-likelihood of each row at each draw."
        )
    variables = list(group.data_vars)
    if name is None and len(variables) == 1:
        name = variables[0]
    if name not in variables:
        raise ValueError(
            f"`log_likelihood` has the variables {variables}: name the one of the rows, "
            f"`from_draws(idata, {str(variables[0])!r})`."
        )
    return group[name]


def _flat(values: Any) -> Array:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(array.shape[0] * array.shape[1], -1)

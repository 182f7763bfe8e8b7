"""Estimates and their covariance as a model: rows of which nothing else is known."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from implicit_delta.calculus.tracing import trace
from implicit_delta.calculus.units import sizes
from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.claimed import Claimed
from implicit_delta.models.constraints import Chart
from implicit_delta.models.facts import BY_LIBRARY, Facts, Host
from implicit_delta.models.jacobian import jacobian_of
from implicit_delta.models.language import NO_TANGENT, RestrictedLanguage
from implicit_delta.models.model import FittedModel
from implicit_delta.models.named_theta import Layout
from implicit_delta.models.penalty import Penalty
from implicit_delta.models.space import Space
from implicit_delta.models.weights import Weights

KNOWN = 1e-2  # of the size of a parameter: a step of one that has no error
NO_ROWS = (
    "This needs the log-likelihood of each row, and the model has parameters and their covariance "
    "only ({}). `infer(model, psi)`, with or without `Simulation()`, questions if there are "
    "predictions, and contrasts, tests and intervals of the answers work. For robust or clustered "
    "errors give a covariance of that kind: `from_estimates(params, covariance)`. {}"
)


@dataclass(frozen=True, eq=False)
class Given:
    """Rows of which only estimates are known.

    Attributes
    ----------
    n : int
        Their number; 0 if it is not known.
    lengths : (d,) array
        Standard error of each parameter, or a part of its size where that is zero.
    reason : str
        Why there are no terms, and what works without them.
    """

    n: int
    lengths: Array
    reason: str

    symmetric = False
    outputs = None
    passes = 0

    @property
    def d(self) -> int:
        return self.lengths.size

    def terms(self, theta: Array) -> NoReturn:
        self._refuse()

    def score(self, theta: Array, weights: Array) -> Array:
        return np.full(self.d, np.nan)  # not known, and neither is drift

    def curvature(self, theta: Array, weights: Array, v: Array) -> NoReturn:
        self._refuse()

    def terms_along(self, theta: Array, v: Array) -> Iterator[tuple[slice, Array]]:
        self._refuse()

    def sum_blocks(
        self, theta: Array, v: Array, reduce: Callable[..., Any], *row_arrays: NDArray[Any]
    ) -> NoReturn:
        self._refuse()

    def units(self, theta: Array, weights: Weights, penalty: Penalty) -> Array:
        return self.lengths

    def at(self, theta: Array, weights: Weights) -> NoReturn:
        """Raise: the covariance is that of one theta and one set of rows."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnsupportedModelError(self.reason)


@dataclass(frozen=True, eq=False)
class ParamsLanguage:
    """Psi gets the estimates in the type in which they were given."""

    to_host: Callable[[Any], Any]

    def evaluate(self, psi: Psi, theta: Array) -> Array:
        return np.asarray(psi(self.to_host(np.array(theta))))

    def jacobian(self, psi: Psi, theta: Array, units: Callable[[], Array]) -> Array:
        traced = trace(lambda point: psi(self.to_host(point)), theta)
        return jacobian_of(partial(self.evaluate, psi), theta, units(), traced)

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> NoReturn:
        raise UnsupportedModelError(NO_TANGENT)

    def psi_warning(self, psi: Any) -> str:
        return ""

    def along(self, chart: Chart) -> RestrictedLanguage:
        return RestrictedLanguage(self, chart)


def lengths_of(theta: Array, covariance: Array) -> Array:
    """Take the standard error of each parameter, or a part of its size where that is zero."""
    errors = np.sqrt(np.diag(covariance))
    return np.where(errors > 0, errors, KNOWN * sizes(theta))


def given_model(
    source: str,
    theta: Array,
    covariance: Claimed,
    to_host: Callable[[Any], Any],
    *,
    n: int = 0,
    names: tuple[str, ...] | None = None,
    layout: Layout | None = None,
    again: str = "",
    host: Host | None = None,
) -> FittedModel:
    """Make a model of estimates and their covariance."""
    reason = NO_ROWS.format(covariance, again)
    facts = Facts(
        training=BY_LIBRARY,
        host=replace(host or Host(), covariance=covariance),
        df=covariance.df,
        no_rows=reason,
        no_terms=reason,
        source=source,
        notes={"variance": str(covariance)},
    )
    return FittedModel(
        theta,
        Given(n, lengths_of(theta, covariance.covariance), reason),
        Weights(np.ones(n)),
        space=Space(names, layout, language=ParamsLanguage(to_host)),
        facts=facts,
    )

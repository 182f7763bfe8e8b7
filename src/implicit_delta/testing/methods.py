"""Check a method against closed forms."""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import ImplicitDeltaError, ImplicitDeltaWarning
from implicit_delta.evaluation import Average
from implicit_delta.inference.infer import infer
from implicit_delta.methods.base import Method
from implicit_delta.models.loglik import from_loglik
from implicit_delta.models.model import FittedModel
from implicit_delta.testing.comparing import require


def check_method(method: Method, *, rtol: float = 0.01) -> None:
    """Check that a method finds the covariance of problems with a closed form.

    Of a method that declares `robust`, the robust covariance. Then everything that can be requested
    of it must be found or refused: weights, robust and clustered variances, influences, and the
    error of an average over the training rows.

    Parameters
    ----------
    method : Method
    rtol : float
        Of standard errors and, in units of them, of covariances.

    Raises
    ------
    AssertionError
        Naming the problem.

    Examples
    --------
    >>> from implicit_delta import Infinitesimal
    >>> check_method(Infinitesimal(), rtol=1e-6)
    """
    generator = np.random.default_rng(0)
    X = np.column_stack([np.ones(60), generator.normal(size=(60, 2))])
    labels = np.repeat(np.arange(12), 5)
    y = X @ [1.0, -1.0, 0.5] + generator.normal(size=60)
    problem = _Linear(X, y, np.ones(60))
    weighted = _Linear(X, y + generator.normal(size=12)[labels], np.tile([1.0, 2.0, 3.0], 20))
    psi = lambda b: X[:4] @ b  # noqa: E731
    rows = problem.influences(X[:4])
    plain = rows.T @ rows if method.robust else X[:4] @ problem.inverse @ X[:4].T
    _compare(method, problem.model, psi, plain, rtol)
    counts = generator.poisson(3.0, size=80)
    rate = from_loglik(lambda t: counts * t[0] - np.exp(t[0]), theta=[np.log(counts.mean())])
    known = counts.var() if method.robust else counts.mean()
    _compare(method, rate, lambda t: np.exp(t[0]), np.array([[known / 80]]), rtol)
    w, rows = weighted.weights, weighted.influences(X[:4])
    by_rows, sums = (w * rows.T) @ rows, weighted.sums(rows, labels)
    exact = by_rows if method.robust else X[:4] @ weighted.inverse @ X[:4].T
    compare = partial(_compare_requested, method, weighted.model, rtol=rtol)
    compare("weights=", psi, exact)
    compare("robust=True", psi, by_rows, robust=True)
    compare("clusters=", psi, sums.T @ sums, clusters=labels)
    compare("influence=True", psi, exact, rows=rows, influence=True)
    value = X @ weighted.beta
    rows = (
        weighted.influences((w @ X)[None, :] / w.sum())
        + ((value - w @ value / w.sum()) / w.sum())[:, None]
    )
    average = Average(lambda b: X @ b, sample="training")
    compare('Average(sample="training")', average, (w * rows.T) @ rows)


@dataclass(frozen=True)
class _Linear:
    """Least squares with a variance of one: everything has a closed form."""

    X: Array
    y: Array
    weights: Array

    @property
    def inverse(self) -> Array:
        return np.asarray(np.linalg.inv((self.weights * self.X.T) @ self.X), dtype=np.float64)

    @property
    def beta(self) -> Array:
        return np.asarray(self.inverse @ self.X.T @ (self.weights * self.y))

    @property
    def model(self) -> FittedModel:
        loglik = lambda b: -((self.y - self.X @ b) ** 2) / 2  # noqa: E731
        return from_loglik(loglik, theta=self.beta, weights=self.weights, weight_kind="frequency")

    def influences(self, G: Array) -> Array:
        """Influence of one observation of each row on ``G @ beta``, (n, K)."""
        return (self.y - self.X @ self.beta)[:, None] * (self.X @ self.inverse @ G.T)

    def sums(self, rows: Array, labels: Any) -> Array:
        """Sums of influences within clusters, (G, K)."""
        return np.array([self.weights[labels == k] @ rows[labels == k] for k in np.unique(labels)])


def _compare(method: Method, model: FittedModel, psi: Psi, exact: Array, rtol: float) -> None:
    _compare_covariance(str(method), infer(model, psi, method).covariance, exact, rtol)


def _compare_requested(
    method: Method,
    model: FittedModel,
    what: str,
    psi: Any,
    exact: Array,
    rtol: float,
    rows: Array | None = None,
    **requested: Any,
) -> None:
    """Compare what was requested with its closed form, unless it is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImplicitDeltaWarning)
        try:
            found = infer(model, psi, method, **requested)
        except (ImplicitDeltaError, ValueError):
            return
    _compare_covariance(f"{method} with {what}", np.atleast_2d(found.covariance), exact, rtol)
    if rows is not None:
        gap = float(np.max(abs(np.asarray(found.influence) - rows)) / np.max(abs(rows)))
        require(gap <= 2 * rtol, f"{method} with {what}: influences are off by {gap:.2g}")


def _compare_covariance(what: str, covariance: Any, exact: Array, rtol: float) -> None:
    errors = np.sqrt(np.diag(exact))
    gap = float(np.max(abs(covariance - exact) / np.outer(errors, errors)))
    require(gap <= 2 * rtol, f"{what} is off by {gap:.2g} (relative variance), above {2 * rtol}")

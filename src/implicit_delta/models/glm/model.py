"""A fitted model whose log-likelihood and derivatives are known in closed form.

This is what the statistics libraries have in common: `from_statsmodels` and `from_sklearn` say
which likelihood it is, where its maximum is and in which language psi is written.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from implicit_delta._core.arguments import as_parameters, as_weights
from implicit_delta._core.limits import CHEAP_LIMIT, DENSE_LIMIT
from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.base import Curvature, FittedModel, RowNumbers
from implicit_delta.models.jacobian import jacobian_of
from implicit_delta.numerics.tracing import traced_jacobian

FORM_FROM = 10  # if at least every tenth column is asked for, form all of it


class Likelihood(ABC):
    """Terms of n observations as a function of the D coefficients b that the host library has."""

    @abstractmethod
    def terms(self, b: Array) -> Array:
        """Log-likelihood of each observation, (n,), up to a constant."""

    @abstractmethod
    def score(self, b: Array, weights: Array) -> Array:
        """Gradient of the weighted sum of the terms, (D,)."""

    @abstractmethod
    def information(self, b: Array, weights: Array, v: Array, curvature: Curvature) -> Array:
        """Minus the Hessian of that sum, or its Gauss-Newton part, times (D, k)."""

    @abstractmethod
    def terms_along(self, b: Array, v: Array) -> Array:
        """Derivative of each term along each column of (D, k): (n, k)."""


@dataclass(frozen=True)
class Coordinates:
    """How theta sets the host's coefficients: ``b = origin + basis @ theta``, ``theta = b[kept]``.

    An overparametrized host, such as softmax with one column per class, has directions that no
    data can tell apart. They are left out here, and only here.
    """

    origin: Array
    basis: scipy.sparse.csr_array | None = None
    kept: NDArray[np.intp] | None = None

    @classmethod
    def fixing_sums(cls, b: Array, groups: NDArray[np.intp]) -> "Coordinates":
        """Hold the sum of each row of `groups`, (g, C) indices into b, where it is.

        Theta is b without the last of each group, which takes up the difference.
        """
        last, others = groups[:, -1], groups[:, :-1]
        identity = scipy.sparse.eye_array(b.size, format="lil")
        identity[np.repeat(last, others.shape[1]), others.ravel()] = -1.0
        origin = np.zeros(b.size)
        origin[last] = b[groups].sum(axis=1)
        kept = np.setdiff1d(np.arange(b.size), last)
        return cls(origin, identity.tocsc()[:, kept].tocsr(), kept)

    def push(self, v: Array) -> Array:
        """Map (d,) or (d, k) steps of theta to steps of b."""
        return v if self.basis is None else np.asarray(self.basis @ v)

    def pull(self, g: Array) -> Array:
        """Map (D,) or (D, k) gradients in b to gradients in theta."""
        return g if self.basis is None else np.asarray(self.basis.T @ g)

    def free(self, b: Any) -> Any:
        """Return theta, or its part of anything else that b has: all but the last of each group."""
        return b.copy() if self.kept is None else b[self.kept]

    def coefficients(self, theta: Array) -> Array:
        """Return b."""
        return theta.copy() if self.basis is None else self.origin + self.push(theta)


@dataclass(frozen=True, eq=False)
class HostModel(FittedModel):
    r"""A host library's model at its maximum; made by `from_statsmodels` and `from_sklearn`.

    The objective is :math:`\sum_i w_i \ell_i(b) - \tfrac{1}{2} \sum_j r_j b_j^2`.

    Attributes
    ----------
    likelihood : Likelihood
    ridge : (D,) array
        The penalty r of each of the host's coefficients.
    coordinates : Coordinates
    speak : callable
        Turns coefficients, plain or traced, into what psi expects.
    """

    likelihood: Likelihood
    theta: Array
    weights: Array
    ridge: Array
    coordinates: Coordinates
    speak: Callable[[Any], Any]
    names: tuple[str, ...] | None = None
    curvature: Curvature = "hessian"
    counter: list[int] = field(default_factory=lambda: [0], repr=False)
    _curvatures: dict[tuple[bytes, str], Array] = field(
        init=False, default_factory=dict, repr=False
    )

    @property
    def l2(self) -> float:  # type: ignore[override]
        """The smallest ridge: a lower bound of the curvature when nothing was left out."""
        return float(np.min(self.ridge)) if self.coordinates.basis is None else 0.0

    @property
    def passes(self) -> int:
        """How many times all n observations have been visited so far."""
        return self.counter[0]

    def terms(self, theta: Array) -> Array:
        """Log-likelihood of each observation, (n,)."""
        self.counter[0] += 1
        return self.likelihood.terms(self.coordinates.coefficients(theta))

    def objective(self, theta: Array) -> float:
        """L: the weighted sum of the terms less the penalty."""
        b = self.coordinates.coefficients(theta)
        return float(self.weights @ self.terms(theta) - self.ridge @ b**2 / 2)

    def score(self, theta: Array) -> Array:
        """Gradient of L, (d,)."""
        self.counter[0] += 1
        b = self.coordinates.coefficients(theta)
        return self.coordinates.pull(self.likelihood.score(b, self.weights) - self.ridge * b)

    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> Array:
        """Minus the Hessian of L (or its Gauss-Newton part) times v."""
        columns = v.size // self.d
        known = (theta.tobytes(), curvature) in self._curvatures
        if known or (self.d <= DENSE_LIMIT and FORM_FROM * columns >= self.d):
            return self._matrix(theta, curvature) @ v
        return self._product(theta, v, curvature)

    def terms_along(self, theta: Array, v: Array) -> Array:
        """Derivative of each term along each column of v, (n, k)."""
        self.counter[0] += 1
        b = self.coordinates.coefficients(theta)
        return self.likelihood.terms_along(b, self.coordinates.push(v))

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        """Psi in the host's language."""
        return psi(self.speak(self.coordinates.coefficients(theta)))

    def jacobian(self, psi: Psi, theta: Array) -> Array:
        """Jacobian of psi, (K, d): exact where psi can be traced, by differences elsewhere."""
        b = self.coordinates.coefficients(theta)
        traced = traced_jacobian(lambda coefficients: psi(self.speak(coefficients)), b)
        if traced is not None and self.coordinates.basis is not None:
            traced = np.asarray(traced @ self.coordinates.basis)
        return jacobian_of(lambda t: self.evaluate(psi, t), theta, self._units(), traced)

    def reweighted(self, weights: Array) -> "HostModel":
        """Build the same model with other weights."""
        return replace(self, weights=as_weights(weights, self.n))

    def at(self, theta: Array) -> "HostModel":
        """Build the same model at another theta."""
        return replace(self, theta=as_parameters(theta))

    def batch_score(self, theta: Array, rows: RowNumbers) -> Array:
        """Estimate the score from a batch of rows, (d,)."""
        counts = np.bincount(rows, minlength=self.n) * (self.n / len(rows))
        b = self.coordinates.coefficients(theta)
        slope = self.likelihood.score(b, self.weights * counts) - self.ridge * b
        return self.coordinates.pull(slope)

    def _matrix(self, theta: Array, curvature: Curvature) -> Array:
        """The curvature as a matrix; the last one of each kind is kept."""
        key = (theta.tobytes(), curvature)
        if key not in self._curvatures:
            for other in [k for k in self._curvatures if k[1] == curvature]:
                del self._curvatures[other]
            self._curvatures[key] = self._product(theta, np.eye(self.d), curvature)
        return self._curvatures[key]

    def _product(self, theta: Array, v: Array, curvature: Curvature) -> Array:
        self.counter[0] += 1
        step = self.coordinates.push(v.reshape(self.d, -1))
        b = self.coordinates.coefficients(theta)
        product = self.likelihood.information(b, self.weights, step, curvature)
        return self.coordinates.pull(product + self.ridge[:, None] * step).reshape(v.shape)

    def _units(self) -> Array:
        """The standard error of each parameter, the others held fixed; a guess if d is large."""
        known = (self.theta.tobytes(), "hessian") in self._curvatures
        if self.d > CHEAP_LIMIT and not known:
            return 1e-2 * np.maximum(abs(self.theta), 0.1)
        size = abs(np.diag(self._matrix(self.theta, "hessian")))
        return np.asarray(1 / np.sqrt(np.maximum(size, 1e-12 * size.max() + 1e-300)))


def check_terms(likelihood: Likelihood, b: Array, library: str) -> int:
    """Return n if the terms at the fitted coefficients are finite; explain otherwise."""
    if not np.all(np.isfinite(b)):
        raise UnsupportedModelError(
            f"The fitted coefficients are not finite: {b}. The fit in {library} failed; usual "
            "causes are missing values in the data and perfectly separated classes."
        )
    terms = likelihood.terms(b)
    if np.all(np.isfinite(terms)):
        return terms.size
    bad = np.flatnonzero(~np.isfinite(terms))
    raise ValueError(
        f"The log-likelihood of observation {bad[0]} is {terms[bad[0]]} at the fitted "
        f"coefficients ({bad.size} of {terms.size} are not finite). Are there missing values in "
        f"the data, or another y or X than those of the fit in {library}?"
    )

"""The fitted model of a torch module."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from implicit_delta._core.arguments import Counter, as_parameters, as_weights
from implicit_delta._core.cache import LastCache
from implicit_delta._core.limits import GAUSS_NEWTON_LIMIT
from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.base import Bonus, Curvature, FittedModel, RowNumbers
from implicit_delta.models.module_checks import NO_OUTPUTS
from implicit_delta.models.torch import checks as checks
from implicit_delta.models.torch.curvature import GaussNewton, dense_gauss_newton
from implicit_delta.models.torch.data import Batches, rows_of
from implicit_delta.models.torch.evaluation import differentiate_psi, evaluate_psi
from implicit_delta.models.torch.graph import Linearization, Quadratic
from implicit_delta.models.torch.module import Functional, separate
from implicit_delta.models.torch.noise import with_noise
from implicit_delta.models.torch.terms import Supervised, Written, terms_of
from implicit_delta.models.torch.training import train

DENSE_FROM = 32  # columns asked for at once from which on forming it is cheaper
GRAPH_BYTES = 2**28  # what the graph of one batch may take
KEPT_BYTES = 2**29  # what the graphs of all batches may take to be kept between products


def make(
    module: nn.Module,
    data: Any,
    likelihood: Any,
    *,
    l2: float,
    penalty: Callable[[nn.Module], Any] | None,
    batch_size: int | None,
    weights: Any,
    dtype: torch.dtype | None,
) -> "TorchModel":
    """Check and convert what a user gave; see `from_torch`."""
    checks.check_arguments(module, l2, batch_size)
    terms, rows = terms_of(likelihood), rows_of(data)
    functional, theta = separate(module, dtype)
    flat = functional.flat(theta)
    cost = checks.row_bytes(functional, flat, terms, rows)
    size = batch_size or max(1, GRAPH_BYTES // cost)
    batches = Batches(rows, size, functional.dtype, functional.device)
    sizes = checks.check_terms(functional, flat, terms, batches)
    n = sum(sizes)
    if penalty is not None:
        checks.check_penalty(functional, flat, penalty)
    model = TorchModel(
        functional=functional,
        batches=batches,
        sizes=sizes,
        row_terms=terms,
        theta=theta,
        weights=as_weights(weights, n),
        penalty=penalty,
        l2=float(l2),
        names=functional.names,
        keep_graphs=n * cost <= KEPT_BYTES,
    )
    return with_noise(model)


@dataclass(frozen=True, eq=False)
class TorchModel(FittedModel):
    """A torch module at its maximum; made by `from_torch`.

    Products with a curvature come from graphs of one batch each. They are kept, for the last
    theta, when all of them fit into memory; otherwise each pass builds them anew.
    """

    functional: Functional
    batches: Batches
    sizes: tuple[int, ...]
    row_terms: Supervised | Written
    theta: Array
    weights: Array
    penalty: Callable[[nn.Module], Any] | None = None
    l2: float = 0.0
    names: tuple[str, ...] | None = None
    keep_graphs: bool = True
    counter: Counter = field(default_factory=Counter, repr=False)
    _last: LastCache = field(init=False, default_factory=LastCache, repr=False)

    @property
    def passes(self) -> int:
        """How many times all rows were visited; a product with k vectors counts k times."""
        return self.counter.count

    @property
    def module(self) -> nn.Module:
        """A copy of the module with theta as its parameters, in eval mode."""
        return self.functional.filled(self.theta)

    def terms(self, theta: Array) -> Array:
        """Log-likelihood of each row, (n,)."""
        flat = self.functional.flat(theta)
        parts = [self.functional(self.row_terms, flat, b).double().cpu() for b in self._rows()]
        return np.asarray(torch.cat(parts).numpy())

    def objective(self, theta: Array) -> float:
        """L: the weighted sum of the terms less the penalty."""
        value = float(self.weights @ self.terms(theta)) - self.l2 / 2 * float(theta @ theta)
        if self.penalty is None:
            return value
        return value - float(self.functional(self.penalty, self.functional.flat(theta)))

    def score(self, theta: Array) -> Array:
        """Gradient of L, (d,)."""
        total = -self.l2 * theta
        for weights, batch in self._weighted():
            total += self._gradient(theta, self._sum, batch, weights)
        return total if self.penalty is None else total - self._gradient(theta, self.penalty)

    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> Array:
        """Minus the Hessian of L (or its Gauss-Newton part) times v, by batches."""
        if curvature == "ggn" and not isinstance(self.row_terms, Supervised):
            raise UnsupportedModelError(NO_OUTPUTS)
        block = v.reshape(self.d, -1)
        if curvature == "ggn" and block.shape[1] >= DENSE_FROM and self.d <= GAUSS_NEWTON_LIMIT:
            return _times(self.gauss_newton_matrix(theta), v)
        return self._products(theta, block, curvature).reshape(v.shape)

    def gauss_newton_matrix(self, theta: Array) -> Array:
        """The whole Gauss-Newton matrix (d, d), kept for the last theta."""
        matrix: Array = self._kept(theta, "matrix", lambda: self._form(theta))
        return matrix

    def terms_along(self, theta: Array, v: Array) -> Array:
        """Derivative of each term along each column of v, (n, k)."""
        flat, rows = self.functional.flat(theta), self.functional.flat(v.T)
        parts = []
        for batch in self._rows():
            terms = Linearization(self._of(self.row_terms, batch), flat)
            parts.append(terms.forward(rows).double().cpu().numpy())
        return np.concatenate(parts, axis=1).T

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        """Psi of the module with theta as its parameters."""
        return evaluate_psi(self.functional, psi, theta)

    def jacobian(self, psi: Psi, theta: Array) -> Array:
        """Jacobian of psi by automatic differentiation, (K, d)."""
        return differentiate_psi(self.functional, psi, theta)

    def reweighted(self, weights: Array) -> "TorchModel":
        """Build the same model with other weights."""
        return replace(self, weights=as_weights(weights, self.n))

    def at(self, theta: Array) -> "TorchModel":
        """Build the same model at another theta, with the same noise variance."""
        return replace(self, theta=as_parameters(theta).astype(self.theta.dtype, copy=False))

    def batch_score(self, theta: Array, rows: RowNumbers) -> Array:
        """Estimate the score from a batch of rows, (d,)."""
        batch = self.batches.take(rows)
        weights = torch.as_tensor(self.weights[rows], device=self.functional.device)
        slope = self._gradient(theta, self._sum, batch, weights) * (self.n / len(rows))
        total = slope - self.l2 * theta
        return total if self.penalty is None else total - self._gradient(theta, self.penalty)

    def ascend(
        self, bonus: Bonus | None, batches: Iterable[RowNumbers], optimizer: Any
    ) -> Iterator[Array]:
        """Yield theta after each step of a torch optimizer, given as a factory or a rate."""
        return train(self, bonus, batches, optimizer)

    def _rows(self) -> Iterator[Any]:
        """Go through the batches once, and count that."""
        self.counter.count += 1
        yield from self.batches

    def _weighted(self) -> Iterator[tuple[Tensor, Any]]:
        """Go through the batches with the weights of their rows."""
        start = 0
        for size, batch in zip(self.sizes, self._rows(), strict=True):
            weights = torch.as_tensor(self.weights[start : start + size])
            yield weights.to(self.functional.device), batch
            start += size

    def _of(self, function: Callable[..., Tensor], *arguments: Any) -> Callable[[Tensor], Tensor]:
        """Make ``function(module, *arguments)`` a function of the flat parameters."""
        return lambda point: self.functional(function, point, *arguments)

    def _sum(self, module: nn.Module, batch: Any, weights: Tensor) -> Tensor:
        return (weights * self.row_terms(module, batch).double()).sum()

    def _gradient(self, theta: Array, function: Callable[..., Tensor], *arguments: Any) -> Array:
        point = self.functional.flat(theta).detach().requires_grad_()
        value = self.functional(function, point, *arguments)
        (gradient,) = torch.autograd.grad(value, point, materialize_grads=True)
        return np.asarray(gradient.cpu().numpy())

    def _products(self, theta: Array, block: Array, curvature: Curvature) -> Array:
        """The curvature times the columns of (d, k), one batch after the other."""
        rows, total = self.functional.flat(block.T), None
        for piece in self._pieces(theta, curvature):
            product = piece.times(rows).cpu().numpy()
            if total is None:
                total = product.astype(block.dtype, copy=False)
            else:
                total += product
        assert total is not None
        total += self.l2 * block.T
        self.counter.count += block.shape[1]
        return np.asarray(total.T)

    def _pieces(self, theta: Array, curvature: Curvature) -> Iterable[GaussNewton | Quadratic]:
        """Curvature of minus each batch and of the penalty."""
        if not self.keep_graphs:
            return self._build(theta, curvature)
        pieces: list[GaussNewton | Quadratic] = self._kept(
            theta, curvature, lambda: list(self._build(theta, curvature))
        )
        return pieces

    def _kept(self, theta: Array, name: str, make: Callable[[], Any]) -> Any:
        """Make something once for the last theta; one that is not the model's own may change."""
        return self._last.get(theta if theta is self.theta else theta.copy(), name, make)

    def _build(self, theta: Array, curvature: Curvature) -> Iterator[GaussNewton | Quadratic]:
        flat = self.functional.flat(theta)
        for weights, batch in self._weighted():
            if curvature == "ggn" and isinstance(self.row_terms, Supervised):
                outputs = self._of(self.row_terms.outputs, batch)
                yield GaussNewton.of(outputs, flat, self.row_terms.likelihood, weights)
            else:
                loss = self._of(self._sum, batch, -weights)
                yield Quadratic(loss, flat, len(weights))
        if self.penalty is not None:
            yield Quadratic(self._of(self.penalty), flat)

    def _form(self, theta: Array) -> Array:
        """Form the matrix from Jacobians of rows, or, if some operation forbids, by columns."""
        assert isinstance(self.row_terms, Supervised)
        flat, matrix = self.functional.flat(theta), self.l2 * np.eye(self.d)
        try:
            for weights, batch in self._weighted():
                matrix += dense_gauss_newton(self.functional, self.row_terms, flat, batch, weights)
        except RuntimeError:
            return self._products(theta, np.eye(self.d), "ggn")
        if self.penalty is not None:
            every = self.functional.flat(np.eye(self.d))
            matrix += Quadratic(self._of(self.penalty), flat).times(every).cpu().numpy()
        return matrix


def _times(matrix: Array, v: Array) -> Array:
    """Multiply; who asks for columns of the matrix, one by one, need not wait for a product."""
    if np.count_nonzero(v) == v.shape[1]:
        rows, columns = np.nonzero(v)
        if np.array_equal(np.sort(columns), np.arange(v.shape[1])):
            picked = np.empty_like(v)
            picked[:, columns] = matrix[:, rows] * v[rows, columns]
            return picked
    return np.asarray(matrix @ v)

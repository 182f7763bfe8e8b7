r"""Leverage: the share of its own noise that a fit takes away from a row or a cluster.

In whitened coordinates (see `Whitened`) the model has residuals :math:`e = (I - P) \epsilon` with
:math:`P = U A^{-1} U'` and noise of variance one, A the Gauss-Newton matrix with the penalty. A
robust variance of psi is :math:`\sum_g (a_g' e_g)^2` over rows or clusters g, with
:math:`a_g = C_g' U_g w`, w the response of theta and

=============  =============================================
HC0, CR0       :math:`C = I`: too small by what P takes away
HC2, CR2       :math:`C = (I - P_{gg})^{-1/2}`: right on average if the model is
HC3            :math:`C = (I - P_{gg})^{-1}`: what leaving the row out does
=============  =============================================

The trace of :math:`P_{ii}` is the leverage of row i. With :math:`b_g = L^{-1} U_g' a_g`,
:math:`A = L L'`, the sum has the moments of a quadratic form in the matrix
:math:`S = \mathrm{diag}(|a_g|^2) - B N B'` (:math:`N = I` without a penalty): the mean tr S and, by
Satterthwaite, :math:`(\mathrm{tr} S)^2 / |S|_F^2` degrees of freedom (Bell and McCaffrey;
Pustejovsky and Tipton). No matrix of n x n is made.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.limits import DENSE_LIMIT
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.linalg.arrays import ratio
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import whitened_rows

NOTHING_LEFT = 1e-10  # of the noise of a row: rounding leaves as much where the fit takes all
FLAT = 1e-10  # smallest eigenvalue of the curvature, scaled to a unit diagonal
LARGEST_ROOT = 2000  # outputs in a cluster whose root is taken on the scale of the targets
WIDEST = 1e6  # ratio of variances in a cluster beyond which that root drowns in rounding
FEWEST_DEGREES = 0.5  # of freedom: what rounding makes of none
LARGEST_GRAM = 2**23  # numbers in the matrices of the evaluations that are treated at a time
LARGEST_CHUNK = 2**25  # numbers in the rows of the clusters that are held at a time


class Units(NamedTuple):
    """Rows or clusters: |a|^2, (u, K); b of evaluation k, (u, r); how often each is there, (u,)."""

    squares: Array
    pulled: Callable[[int], Array]
    counts: Array


@dataclass(frozen=True)
class Leverage:
    """Adjusted influences and the distribution of their sum of squares under the model.

    Attributes
    ----------
    correction : (n, K) array
        To be added to the influences of the rows.
    expected : (K,) array
        Mean of the sum of squares, over the variance that it estimates.
    df : (K,) array
        Satterthwaite's degrees of freedom.
    lost : (K,) array
        Share of the variance that is due to noise of which the residuals show nothing.
    """

    correction: Array
    expected: Array
    df: Array
    lost: Array

    @classmethod
    def joined(cls, parts: list["Leverage"]) -> "Leverage":
        """Put those of some evaluations after those of others."""
        names = [item.name for item in fields(cls)]
        return cls(*(np.concatenate([vars(p)[name] for p in parts], axis=-1) for name in names))


def leverage_of(
    model: FittedModel,
    directions: Array,
    power: float,
    clusters: Clusters | None = None,
    *,
    moments: bool = True,
) -> Leverage:
    """Adjust by ``(I - P) ** power`` in each row or cluster; directions are (d, K).

    Without moments, `expected` and `df` are NaN.
    """
    root, parts = gauss_newton_root(model), []
    width = max(1, LARGEST_GRAM // root.size) if moments else directions.shape[1]
    for start in range(0, directions.shape[1], width):
        columns = directions[:, start : start + width]
        hat = Hat.of(model, root, columns, clusters is not None)
        units = hat.rows(power) if clusters is None else hat.clusters(clusters, power)
        parts.append(hat.summary(units, moments))
    return parts[0] if len(parts) == 1 else Leverage.joined(parts)


def check_leverage(model: FittedModel) -> None:
    """Explain why a model has no leverages, if it has none."""
    output_count(model)
    if model.d > DENSE_LIMIT:
        raise UnsupportedModelError(
            f"Leverage takes the factorized curvature, of up to {DENSE_LIMIT} parameters, and "
            f'there are {model.d}. Use robust="HC1" or, with clusters, robust="CR1".'
        )


def output_count(model: FittedModel) -> int:
    """The number of outputs of a row; raises if the model does not know them."""
    return int(next(whitened_rows(model, model.theta, np.zeros((model.d, 1)))).rows.shape[1])


class _Block(NamedTuple):
    """Scaled rows: Z = U L^-T, (b, p, r), U w, (b, p, K), residuals and spread, (b, p)."""

    Z: Array
    along: Array
    residuals: Array
    spread: Array
    places: slice


@dataclass(frozen=True, eq=False)
class Hat:
    """Pass over the whitened rows, and the sums that are made on the way."""

    model: FittedModel
    root: Array  # (d, r) with A^-1 = root root'
    directions: Array
    scale: Array  # of each row, (n,): the root of its weight where it is one observation
    counts: Array  # (n,)
    correction: Array
    seen: Array  # (r, r): the share of each direction that the rows, not the penalty, determine
    variance: Array  # (K,), of psi, if the model is right
    lost: Array  # (K,), the part of it that shows in no residual

    @classmethod
    def of(cls, model: FittedModel, root: Array, directions: Array, clustered: bool) -> "Hat":
        """Begin with empty sums."""
        weights, K = model.weights.values, directions.shape[1]
        repeated = not clustered and model.weights.kind == "frequency"
        ones = np.ones_like(weights)
        return cls(
            model, root, directions,
            scale=ones if repeated else np.sqrt(weights),
            counts=weights if repeated else (weights > 0) * ones,
            correction=np.zeros((model.n, K)),
            seen=np.zeros((root.shape[1],) * 2),
            variance=np.zeros(K),
            lost=np.zeros(K),
        )  # fmt: skip

    def blocks(self) -> Iterator[_Block]:
        """Go through the rows."""
        start, rank = 0, self.root.shape[1]
        both = np.hstack([self.root, self.directions])
        for rows, residuals, spread in whitened_rows(self.model, self.model.theta, both):
            places = slice(start, start + len(rows))
            scale = self.scale[places, None]
            scaled = scale[..., None] * rows
            if self.model.weights.kind == "precision":
                spread = spread / np.where(scale > 0, scale, 1.0)
            yield _Block(scaled[..., :rank], scaled[..., rank:], scale * residuals, spread, places)
            start = places.stop

    def note(self, block: _Block) -> None:
        """Add to the sums over all rows."""
        counts = self.counts[block.places, None, None]
        flat = (np.sqrt(counts) * block.Z).reshape(-1, self.seen.shape[0])
        self.seen[:] += flat.T @ flat
        self.variance[:] += np.sum(counts * block.along**2, axis=(0, 1))

    def rows(self, power: float) -> Iterator[Units]:
        """Adjust row by row."""
        for block in self.blocks():
            self.note(block)
            counts = self.counts[block.places]
            adjusted = block.along
            if power:
                adjusted, lost = _adjusted_rows(block.Z, block.along, power)
                self.lost[:] += counts @ lost
                change = np.einsum("bpk,bp->bk", adjusted - block.along, block.residuals)
                size = np.where(counts > 0, self.scale[block.places] ** 2, np.inf)
                self.correction[block.places] = change / size[:, None]
            pulled = partial(_pulled, block.Z, adjusted)
            yield Units(np.sum(adjusted**2, axis=1), pulled, counts)

    def clusters(self, clusters: Clusters, power: float) -> Iterator[Units]:
        """Adjust cluster by cluster, as many at a time as fit into memory."""
        rank, K = self.seen.shape[0], self.directions.shape[1]
        sizes = np.bincount(clusters.codes, minlength=clusters.count + 1)[: clusters.count]
        numbers = np.cumsum(sizes) * output_count(self.model) * (rank + K)
        chunks = numbers // LARGEST_CHUNK
        for chunk in np.unique(chunks):
            members = np.flatnonzero(chunks == chunk)
            yield self._chunk(clusters, int(members[0]), int(members[-1]) + 1, power)

    def _chunk(self, clusters: Clusters, first: int, stop: int, power: float) -> Units:
        """Adjust the clusters numbered from first to stop."""
        held: list[tuple[Array, ...]] = []
        for block in self.blocks():
            if first == 0:
                self.note(block)
            codes = clusters.codes[block.places]
            inside = np.flatnonzero((codes >= first) & (codes < stop))
            numbers = block.places.start + inside
            held.append((numbers, *(part[inside] for part in block[:-1])))
        numbers, *parts = (np.concatenate(column) for column in zip(*held, strict=True))
        order = np.argsort(clusters.codes[numbers], kind="stable")
        edges = np.flatnonzero(np.diff(clusters.codes[numbers[order]])) + 1
        found = [
            self._cluster(numbers[group], *(part[group] for part in parts), power=power)
            for group in np.split(order, edges)
        ]
        squares, pulled = (np.array(column) for column in zip(*found, strict=True))
        return Units(squares, lambda k: pulled[:, :, k], np.ones(len(found)))

    def _cluster(
        self, numbers: Array, Z: Array, along: Array, residuals: Array, spread: Array, *,
        power: float,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Adjust one cluster, (m, p, ...): its |a|^2, (K,), and b, (r, K)."""
        rows, moved = Z.reshape(-1, Z.shape[2]), along.reshape(-1, along.shape[2])
        noise = residuals.ravel()
        adjusted, changed, lost = _adjusted_cluster(rows, moved, noise, spread.ravel(), power)
        self.lost[:] += lost
        change = np.einsum("mpk,mp->mk", along, (changed - noise).reshape(residuals.shape))
        self.correction[numbers] = change / self.scale[numbers, None] ** 2
        return np.sum(adjusted**2, axis=0), rows.T @ adjusted

    @property
    def taken(self) -> Array:
        """N, (r, r), of ``(I - P)^2 = I - Z N Z'``; after a pass over the rows."""
        return 2 * np.eye(len(self.seen)) - self.seen

    def summary(self, units: Iterator[Units], moments: bool = True) -> Leverage:
        """Make the moments of all units, evaluation by evaluation."""
        if not moments:
            deque(units, maxlen=0)
            unknown = np.full(self.lost.shape, np.nan)
            return Leverage(self.correction, unknown, unknown, ratio(self.lost, self.variance))
        rank, K = self.seen.shape[0], self.directions.shape[1]
        first, second = np.zeros(K), np.zeros(K)
        gram, crossed = np.zeros((2, K, rank, rank))
        for squares, pulled, counts in units:
            first += counts @ squares
            second += counts @ squares**2
            for k in range(K):
                b = pulled(k)
                weighted = counts[:, None] * b
                gram[k] += weighted.T @ b
                crossed[k] += (weighted * squares[:, k, None]).T @ b
        N = self.taken
        taken = N @ gram
        mean = np.maximum(first - np.trace(taken, axis1=1, axis2=2), 0.0)
        square = second - 2 * np.sum(N * crossed, axis=(1, 2))
        square += np.einsum("kij,kji->k", taken, taken)
        return Leverage(
            self.correction,
            expected=ratio(mean, self.variance, otherwise=1.0),
            df=np.maximum(ratio(mean**2, square, otherwise=1.0), FEWEST_DEGREES),
            lost=ratio(self.lost, self.variance),
        )


def _pulled(Z: Array, adjusted: Array, k: int) -> Array:
    return np.asarray(np.einsum("bpr,bp->br", Z, adjusted[:, :, k]))


def gauss_newton_root(model: FittedModel) -> Array:
    """Factor the inverse of the Gauss-Newton matrix, with the penalty."""
    return inverse_root(model.information(model.theta, np.eye(model.d), "ggn"))


def inverse_root(A: Array) -> Array:
    """Factor the inverse of a positive matrix, (d, d), to R R', (d, r) without flat directions."""
    size = np.sqrt(np.diag(A))
    unit = ratio(1.0, size)
    scaled = A * np.outer(unit, unit)
    try:
        lower = np.linalg.cholesky(scaled)
        if np.min(np.diag(lower)) ** 2 > FLAT:
            identity = np.eye(len(A))
            inverse = scipy.linalg.solve_triangular(lower, identity, lower=True, trans="T")
            return np.asarray(unit[:, None] * inverse)
    except np.linalg.LinAlgError:
        pass
    values, vectors = np.linalg.eigh(scaled)
    kept = values > FLAT * values[-1]
    return np.asarray(unit[:, None] * vectors[:, kept] / np.sqrt(values[kept]))


def _powers(taken: Array, power: float) -> tuple[Array, NDArray[np.bool_]]:
    """Return ``(1 - taken) ** power`` with 0 where nothing is left, and where something is."""
    left = 1 - taken
    kept = left > NOTHING_LEFT
    return np.where(kept, np.where(kept, left, 1.0) ** power, 0.0), kept


def _adjusted_rows(Z: Array, along: Array, power: float) -> tuple[Array, Array]:
    """Adjust U w in each row, (b, p, K); the second is what is lost, (b, K)."""
    if Z.shape[1] == 1:
        factors, kept = _powers(np.sum(Z**2, axis=2, keepdims=True), power)
        return factors * along, np.sum(np.where(kept, 0.0, along**2), axis=1)
    if Z.shape[1] > Z.shape[2]:  # a sequence has more outputs than there are directions
        left, sizes, _ = np.linalg.svd(Z, full_matrices=False)
        factors, kept = _powers(sizes[..., None] ** 2, power)
        seen = np.swapaxes(left, 1, 2) @ along
        lost = np.sum(np.where(kept, 0.0, seen**2), axis=1)
        return along + left @ ((factors - 1) * seen), lost
    values, vectors = np.linalg.eigh(Z @ np.swapaxes(Z, 1, 2))
    factors, kept = _powers(values[..., None], power)
    turned = np.swapaxes(vectors, 1, 2) @ along
    return vectors @ (factors * turned), np.sum(np.where(kept, 0.0, turned**2), axis=1)


def _adjusted_cluster(
    Z: Array, along: Array, residuals: Array, spread: Array, power: float
) -> tuple[Array, Array, Array]:
    """Adjust U w, (m, K), and the residuals, (m,), of a cluster; the third is what is lost.

    Where the targets vary by different amounts, the root that makes the variance right on average
    is not unique: clubSandwich takes ``(D (I - P) D) ** -0.5 D`` with D their variances, and so
    does this; of very large clusters, the symmetric one.
    """
    left, values, _ = np.linalg.svd(Z, full_matrices=False)
    factors, kept = _powers(values**2, power)
    turned = left.T @ along
    lost = np.sum(turned[~kept] ** 2, axis=0)
    D = spread**2 / np.mean(spread**2)
    even = np.ptp(D) <= 1e-12 or len(D) > LARGEST_ROOT or D.max() > WIDEST * D.min()
    if even:
        change = (factors - 1)[:, None]
        adjusted = along + left @ (change * turned)
        return adjusted, residuals + left @ (change[:, 0] * (left.T @ residuals)), lost
    matrix = D[:, None] * (np.eye(len(D)) - Z @ Z.T) * D
    values, vectors = np.linalg.eigh(matrix)
    none = int(np.sum(~kept))  # the smallest ones
    powers = np.where(np.arange(len(values)) < none, 0.0, np.maximum(values, 1e-300) ** power)
    root = (vectors * powers) @ vectors.T
    return D[:, None] * (root @ along), root @ (D * residuals), lost

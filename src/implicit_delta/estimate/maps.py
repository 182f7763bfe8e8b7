"""Linear maps of evaluations, (q, K): arrays, and sparse ones where evaluations are very many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.factored import MANY, Covariance, Factored
from implicit_delta.core.types import Array


def diagonal(numbers: Array) -> Any:
    """Map each evaluation to a multiple of it."""
    if len(numbers) <= MANY:
        return np.diag(numbers)
    from scipy.sparse import diags_array

    return diags_array(numbers, format="csr")


def selection(places: NDArray[Any], K: int) -> Any:
    """Map to some of K evaluations."""
    if K <= MANY:
        return np.eye(K)[places]
    from scipy.sparse import csr_array

    one = np.ones(len(places)), (np.arange(len(places)), places)
    return csr_array(one, shape=(len(places), K))


def identity(K: int) -> Any:
    """Map K evaluations to themselves."""
    return selection(np.arange(K), K)


def nothing(q: int, K: int) -> Any:
    """Map K evaluations to q zeros."""
    if K <= MANY:
        return np.zeros((q, K))
    from scipy.sparse import csr_array

    return csr_array((q, K))


def stacked(maps: Sequence[Any], axis: int) -> Any:
    """Put maps below each other (axis 0) or side by side (axis 1)."""
    if not any(is_sparse(one) for one in maps):
        return np.concatenate(maps, axis=axis)
    from scipy import sparse

    return (sparse.hstack if axis else sparse.vstack)(maps, format="csr")


def after(one: Any, other: Any) -> Any:
    """Apply a map after another one; it is sparse if that is."""
    if is_sparse(one) or not is_sparse(other):
        return one @ other
    from scipy.sparse import csr_array

    return csr_array(one) @ other


def is_sparse(one: Any) -> bool:
    """Whether a map is sparse."""
    return not isinstance(one, np.ndarray)


def row_entries(one: Any) -> list[tuple[NDArray[Any], Array]]:
    """Return for each output the evaluations that it takes, and by how much."""
    if not is_sparse(one):
        return [(used := np.flatnonzero(row), row[used]) for row in one]
    cuts = one.indptr[1:-1]
    return list(zip(np.split(one.indices, cuts), np.split(one.data, cuts), strict=True))


def chosen(one: Any) -> NDArray[np.intp] | None:
    """Return the places that a selection takes; None of another map."""
    if not is_sparse(one):
        places = np.argmax(one, axis=1)
        ones = np.count_nonzero(one) == len(one) and np.all(one[np.arange(len(one)), places] == 1)
        return places if ones else None
    plain = np.all(one.data == 1) and np.all(np.diff(one.indptr) == 1)
    return one.indices.astype(np.intp) if plain else None


def smallest(one: Any, numbers: Array) -> Array:
    """Return the smallest number of the evaluations that each output takes; infinity of none."""
    found = np.full(one.shape[0], np.inf)
    outputs, places = one.nonzero()
    np.minimum.at(found, outputs, numbers[places])
    return found


def product(one: Any, V: Covariance) -> Covariance:
    """Return ``one @ V @ one.T``, not yet symmetric."""
    if isinstance(V, Factored):
        return Factored(np.asarray(one @ V.left), V.middle)
    if one.shape[0] > max(MANY, one.shape[1]):
        return Factored(one.toarray() if is_sparse(one) else one, V)
    return np.asarray(one @ V @ one.T)

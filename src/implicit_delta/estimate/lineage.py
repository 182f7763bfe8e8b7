"""Lineage of an estimate: the estimates of single models that it was made of, and its slopes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from implicit_delta.core.factored import Covariance, Factored, equal
from implicit_delta.core.findings import Finding, present
from implicit_delta.estimate.held import covariance_of
from implicit_delta.estimate.maps import after, identity, nothing, stacked
from implicit_delta.estimate.separate import shared_data

if TYPE_CHECKING:
    from implicit_delta.estimate import Estimate


@dataclass(frozen=True, eq=False)
class Lineage:
    """Leaves, which no operation has touched yet, and the derivative of an estimate by them.

    What two estimates have in common is then known exactly: ``a - a`` has no error, ``a["x"] -
    a["y"]`` the covariance of the two in a, and a join does not depend on the order of joining.

    Attributes
    ----------
    leaves : tuple of Estimate
    jacobian : (K, sum of their K) array, sparse where these are very many
    apart : frozenset of pairs of identities
        Leaves from separate samples.
    straight : bool
        Whether the estimate is linear in its leaves.
    mark : bytes
        Digest of the estimate that it is the lineage of: of a changed copy it is not.
    findings : tuple of Finding
        About leaves that were called independent.
    """

    leaves: tuple[Estimate, ...]
    jacobian: Any
    apart: frozenset[frozenset[str]] = frozenset()
    straight: bool = True
    mark: bytes = b""
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, estimate: Estimate) -> Lineage:
        """Return the lineage of an estimate; that of a leaf, or of a changed copy, is itself."""
        known = estimate.lineage
        if known is not None and known.mark == mark_of(estimate.value, covariance_of(estimate)):
            return known
        return cls((estimate,), identity(len(estimate.names)))

    @classmethod
    def joined(cls, estimates: Sequence[Estimate], independent: bool) -> Lineage:
        """Stack lineages over all of their leaves, each of which is there once."""
        known = [one for one in estimates if one.lineage is not None]
        parents = [cls.of(next((k for k in known if alike(one, k)), one)) for one in estimates]
        leaves = _distinct([leaf for parent in parents for leaf in parent.leaves])
        jacobian = stacked([parent._over(leaves) for parent in parents], axis=0)
        apart = frozenset[frozenset[str]]().union(*(parent.apart for parent in parents))
        straight = all(parent.straight for parent in parents)
        if not independent:
            return cls(leaves, jacobian, apart, straight)
        pairs = list(_separate(parents))
        apart |= {frozenset((one.identity, two.identity)) for one, two in pairs}
        findings = present(*(shared_data(two, one) for one, two in pairs))
        return cls(leaves, jacobian, apart, straight, findings=findings)

    @property
    def independent(self) -> bool:
        """Whether all leaves are from separate samples."""
        one = self.leaves
        return all(self.separates(a, b) for i, a in enumerate(one) for b in one[:i])

    def separates(self, one: Estimate, other: Estimate) -> bool:
        """Whether two leaves are from separate samples."""
        return frozenset((one.identity, other.identity)) in self.apart

    def columns(self) -> list[slice]:
        """Return the columns of each leaf."""
        ends = np.cumsum([0, *(len(leaf.names) for leaf in self.leaves)])
        return [slice(*pair) for pair in pairwise(ends)]

    def times(self, C: Any, *, straight: bool = True) -> Lineage:
        """Apply a linear map, or the derivative of another one."""
        jacobian = after(C, self.jacobian)
        return replace(self, jacobian=jacobian, straight=self.straight and straight)

    def trimmed(self) -> Lineage:
        """Leave out the leaves that no evaluation depends on; one always stays."""
        columns = self.columns()
        used = [
            i for i, part in enumerate(columns) if self.jacobian[:, part].nonzero()[0].size
        ] or [0]
        jacobian = stacked([self.jacobian[:, columns[i]] for i in used], axis=1)
        return replace(self, leaves=tuple(self.leaves[i] for i in used), jacobian=jacobian)

    def _over(self, leaves: Sequence[Estimate]) -> Any:
        """Spread the columns over more leaves."""
        own = list(zip(self.leaves, self.columns(), strict=True))
        blocks = [nothing(self.jacobian.shape[0], len(leaf.names)) for leaf in leaves]
        for leaf, part in own:
            place = next(i for i, other in enumerate(leaves) if alike(leaf, other))
            blocks[place] = blocks[place] + self.jacobian[:, part]
        return stacked(blocks, axis=1)


def alike(one: Estimate, other: Estimate) -> bool:
    """Whether two leaves are one estimate: the same object, its copy, or the same answer again."""
    if one is other:
        return True
    known = one.influence is not None and other.influence is not None
    if one.identity != other.identity and not (
        known and np.array_equal(np.asarray(one.influence), np.asarray(other.influence))
    ):
        return False  # equal numbers without rows may be a coincidence
    return np.array_equal(one.value, other.value) and equal(
        covariance_of(one), covariance_of(other)
    )


def mark_of(value: ArrayLike, V: Covariance) -> bytes:
    """Digest of values and their covariance."""
    content = (value, V.left, V.inner) if isinstance(V, Factored) else (value, V)
    numbers = np.concatenate([np.ravel(np.asarray(part, float)) for part in content])
    return hashlib.blake2b(numbers.tobytes(), digest_size=16).digest()


def _distinct(leaves: Iterable[Estimate]) -> tuple[Estimate, ...]:
    found: list[Estimate] = []
    for leaf in leaves:
        if not any(alike(leaf, other) for other in found):
            found.append(leaf)
    return tuple(found)


def _separate(parents: Sequence[Lineage]) -> Iterator[tuple[Estimate, Estimate]]:
    """Pair the leaves of different parents, none of which may be in two of them."""
    for parent, other in ((a, b) for i, a in enumerate(parents) for b in parents[:i]):
        for one, two in product(parent.leaves, other.leaves):
            if alike(one, two):
                raise ValueError(
                    f"independent=True, but {two.names[0]!r} is on both sides: an estimate "
                    "is not independent of itself. Leave independent=True out."
                )
            yield one, two

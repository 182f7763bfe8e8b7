"""Columns that were made from the variable of a question by hand, and would stay as they are."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from implicit_delta.core.findings import Finding
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation.spread import numbers
from implicit_delta.models.prediction import Predictor

SAME = 1e-6  # of the size of a column: single precision leaves a tenth of that
SPARE = 8  # rows beyond the terms of a relation, so that it does not hold by chance
ENOUGH = 2000  # rows of a table: a product that is zero in all of these may be missed
TARGETS = 100  # rows that are predicted from their neighbors
MOST = 100  # columns whose combinations are looked at
LABELS = 20  # of a column whose labels may be intervals of the variable
TOGETHER = 10  # rows in which two independent 0/1 columns would both be 1; none by chance: e**-10
CHANCE = 1e-3  # that the values of a column are in intervals of an independent variable
# A row is on a curve if its neighbors predict it to this share of the local range. Of rows of pure
# noise 6% are: three of four rows of at least eight are so by chance in less than 1e-5 cases.
CLOSE, MOST_ROWS = 0.05, 0.75
ERROR = 1e-3  # of the spread, in the median row: a variance inflation factor of a million
RIDGE = 1e-13  # of the terms, for neighbors whose terms are collinear
INVOLVED = 1e-2  # share of a column in a linear relation of columns of length 1

Names: TypeAlias = tuple[Any, ...]  # the column, and others that it depends on besides


def check_derived(predictor: Predictor, variable: Any) -> Finding | None:
    """Refuse a variable of which another column is a function; find labels that exclude it."""
    table = predictor.table
    columns = Columns.of(_some_rows(table), variable, predictor.needed())
    for names in columns.functions():
        if all(map(predictor.reads, names)) and (
            len(table) <= ENOUGH or any(Columns.of(table, variable, names).functions())
        ):
            raise EvaluationError(_refusal(variable, *names))
    apart = [name for name in columns.exclusive() if predictor.reads(name)]
    if not apart:
        return None
    return Finding(
        "warn",
        "exclusive_columns",
        f"{variable!r} and {', '.join(map(repr, apart))} are never 1 in the same row, as the "
        f"0/1 columns of one factor are: rows that have another label keep it while "
        f"{variable!r} is set to 1.",
        number=float(len(apart)),
        remedies=(
            "Fit with the factor itself, `C(label)` in a formula or a OneHotEncoder in a "
            "pipeline, and compare two of its labels.",
        ),
    )


def _refusal(variable: Any, name: Any, *others: Any) -> str:
    found = f"{name!r} is a function of {variable!r} in the training rows"
    terms = f"`I({variable}**2)` or `np.log({variable})`"
    if others:
        found = (
            f"One of {', '.join(map(repr, (name, *others)))} is a function of {variable!r} and the "
            "rest of them in the training rows, such as a product, a ratio or a sum"
        )
        terms = f"`{variable} * other` or `I({variable} / other)`"
    return (
        f"{found}, and would stay as it is while {variable!r} changes. Let the model make it: in a "
        f"formula write terms such as {terms}, with scikit-learn use a pipeline "
        "(PolynomialFeatures, FunctionTransformer). Or make both tables with all their columns: "
        "`e = infer(model, average_prediction(pd.concat([low, high]), by=[0] * len(low) + [1] * "
        "len(high)))`, and `e[1] - e[0]` is the difference."
    )


@dataclass(frozen=True, eq=False)
class Columns:
    """A numeric variable x (n,) and the other columns of a table, (n, p); labels as 0/1."""

    variable: Any
    x: Array
    names: list[Any]
    others: Array

    @classmethod
    def of(cls, table: Any, variable: Any, names: Iterable[Any]) -> "Columns":
        """Take rows without missing numbers, and columns that vary.

        The rows are sorted, then shuffled with a fixed seed: their order in the table is ignored.
        """
        x = next(iter(_as_numbers(table, variable)), np.empty(0))
        found = [
            (name, column)
            for name in names
            if name != variable and x.size
            for column in _as_numbers(table, name)
            if np.ptp(column) != 0  # that of NaN is not
        ]
        others = np.column_stack([column for _, column in found]) if found else np.empty((0, 0))
        Z = np.column_stack([x, others]) if found else np.empty((0, 1))
        Z = Z[np.isfinite(Z).all(axis=1)]
        Z = np.random.default_rng(0).permutation(Z[np.lexsort(Z.T)])
        return cls(variable, Z[:, 0], [name for name, _ in found], Z[:, 1:])

    def functions(self) -> Iterator[Names]:
        """Yield columns that are functions of x, or of x and other columns."""
        commonest = np.unique(self.x, return_counts=True)[1].max(initial=0)
        if self.x.size - commonest <= SPARE:  # rows in which x is another
            return
        for found in self._found():
            yield tuple(dict.fromkeys(self.names[k] for k in found))

    def _found(self) -> Iterator[Sequence[int]]:
        blocks = np.array([_in_blocks(self.x, column) for column in self.others.T])
        yield from np.flatnonzero(blocks | self._along_x())[:, None].tolist()
        if len(self.names) <= MOST:
            yield from self._linear()
            yield from self._products()
            yield from self._pairs()

    def exclusive(self) -> list[Any]:
        """List 0/1 columns that are never 1 together with x, though they would be by chance."""
        if not self.x.size or set(np.unique(self.x)) != {0.0, 1.0}:
            return []
        binary = ((self.others == 0) | (self.others == 1)).all(axis=0)
        expected = self.x.sum() * self.others.mean(axis=0)
        alone = np.array([self.names.count(name) == 1 for name in self.names])  # not of labels
        apart = alone & binary & (self.x @ self.others == 0) & (expected >= TOGETHER)
        return [self.names[k] for k in np.flatnonzero(apart)]

    def _along_x(self) -> NDArray[np.bool_]:
        """Which columns are curves along x, or along its ranks: one value for each x."""
        levels, first = np.unique(self.x, return_index=True)
        ranks = np.arange(levels.size, dtype=np.float64)
        curves = [_on_curve(s, None, self.others[first]) for s in (levels, ranks)]
        return np.asarray(_is_single(self.x, self.others) & (curves[0] | curves[1]))

    def _linear(self) -> Iterator[Sequence[int]]:
        """Combinations of the others with powers of x, also times another: as many as x shows."""
        x = self.x - self.x.mean()
        powers = x[:, None] ** np.arange(1, max(min(3, np.unique(x).size - 2), 1) + 1)
        every = range(len(self.names))
        yield from self._related(powers, self.others, every)
        for j, z in enumerate(self.others.T):
            terms = np.column_stack([powers[:, :2], powers[:, :2] * (z - z.mean())[:, None]])
            for found in self._related(terms, self.others, every):
                if rest := [k for k in found if self.names[k] != self.names[j]]:
                    yield [*rest, j]

    def _products(self) -> Iterator[Sequence[int]]:
        """Products of powers: their logarithms are combinations, where they are not zero."""
        zero = self.others == 0
        for empty in {column.tobytes(): column for column in zero.T}.values():
            rows = ~empty & (self.x != 0)
            whole: list[int] = np.flatnonzero(~zero[rows].any(axis=0)).tolist()
            logs = np.log(abs(self.others[np.ix_(rows, whole)]))
            for found in self._related(np.log(abs(self.x[rows]))[:, None], logs, whole):
                flags = [k for k, log in zip(whole, logs.T, strict=True) if np.ptp(log) == 0]
                yield from islice(self._made(found, flags, rows), 1)
            if empty.any() and np.all(empty == (self.x == 0)):  # zero where a 0/1 variable is
                for i in np.flatnonzero(np.all(empty == zero[:, whole].T, axis=1)).tolist():
                    rest = np.delete(logs, i, axis=1)
                    for found in self._related(logs[:, [i]], rest, whole[:i] + whole[i + 1 :]):
                        yield [whole[i], *found]

    def _made(
        self, found: Sequence[int], flags: list[int], rows: NDArray[np.bool_]
    ) -> Iterator[Sequence[int]]:
        """Columns of a product that are zero where a factor is, with a sign that the factors give.

        Flags are columns of 0 and 1, or of -1 and 1, of which the logarithms show nothing.
        """
        for k, more in product(found, ([], flags)):
            factors = [j for j in found if j != k] + more
            Z = np.column_stack([self.x, self.others[:, factors]])
            is_zero = (Z == 0).any(axis=1) == (self.others[:, k] == 0)
            if is_zero.all() and _is_single(np.sign(Z[rows]), np.sign(self.others[rows][:, [k]])):
                yield [k, *factors]

    def _related(self, x: Array, columns: Array, places: Sequence[int]) -> Iterator[Sequence[int]]:
        """Linear relations between terms of x (n, q), a constant and columns (n, p)."""
        p, q = columns.shape[1], x.shape[1]
        if len(x) < p + q + 1 + SPARE:  # too few rows for all columns at once
            for pair in combinations(range(p), 2) if len(x) >= q + 3 + SPARE and p > 2 else ():
                yield from self._related(x, columns[:, pair], [places[k] for k in pair])
            return
        Z = np.column_stack([x, columns])
        centered = Z - Z.mean(axis=0)
        size = np.linalg.norm(centered, axis=0)
        vary = size > RIDGE * np.linalg.norm(Z, axis=0)
        if not np.all(vary[:q]):
            return
        scaled = centered[:, vary] / size[vary]
        null = _null_space(scaled[_some_of(columns, 4 * (p + q) + SPARE)])
        if not null.size:
            return
        null = null @ _null_space(scaled @ null)  # what holds in some rows need not hold in all
        _, sizes, turn = np.linalg.svd(null[:q])
        for relation in (null @ turn[: sizes.size].T)[q:, sizes > INVOLVED].T:
            order = np.argsort(-abs(relation), kind="stable")[: np.sum(abs(relation) > INVOLVED)]
            if order.size and _n_spare(scaled[:, :q], scaled[:, q:][:, order]) >= SPARE:
                yield [places[k] for k in np.flatnonzero(vary[q:])[order]]

    def _pairs(self) -> Iterator[Sequence[int]]:
        """Columns that are linear in z with coefficients that are curves along x, or vice versa."""
        along_x = _misfits(self.x, None, self.others)
        for j, z in enumerate(self.others.T):
            without = np.minimum(along_x, _misfits(z, None, self.others))
            for s, linear in ((self.x, z), (z, self.x)):
                found = _on_curve(s, linear, self.others, without)
                found[[name == self.names[j] for name in self.names]] = False
                if found.any():
                    found &= _is_single(np.column_stack([self.x, z]), self.others)
                yield from ([k, j] for k in np.flatnonzero(found).tolist())


def _some_rows(table: Any) -> Any:
    """Take rows all over a long table: what holds in all of them holds in these."""
    if len(table) <= ENOUGH:
        return table
    rows = np.linspace(0, len(table) - 1, ENOUGH).astype(np.intp)
    return table.iloc[rows] if hasattr(table, "columns") else table[rows]


def _as_numbers(table: Any, name: Any) -> list[Array]:
    """Turn a column into numbers, or one 0/1 column for each of a few labels."""
    column = table[name] if hasattr(table, "columns") else table[:, name]
    if column.ndim != 1:
        return []
    if getattr(column.dtype, "kind", "O") in "iufb":
        return [numbers(column)]
    if not hasattr(column, "value_counts"):
        return []
    labels = column.value_counts().index
    if len(labels) > LABELS:
        return []
    return [(column == label).to_numpy(dtype=np.float64, na_value=0.0) for label in labels]


def _some_of(columns: Array, count: int) -> NDArray[np.intp]:
    """Rows all over the table, with the ends of each column: what holds in all holds in these."""
    some = np.linspace(0, len(columns) - 1, min(count, len(columns))).astype(np.intp)
    return np.unique(np.r_[some, columns.argmin(axis=0), columns.argmax(axis=0)])


def _null_space(Z: Array) -> Array:
    """Orthonormal relations (p, r) between columns (n, p) of length 1."""
    _, sizes, relations = np.linalg.svd(np.linalg.qr(Z, mode="r"))
    return np.asarray(relations[sizes <= SAME].T)


def _n_spare(x: Array, columns: Array) -> float:
    """Rows beyond the terms, of those where a column is not predicted without x: the fewest.

    These are the residual degrees of freedom: 1 minus the leverage, summed over such rows.
    """
    spare = []
    for k, y in enumerate(columns.T):
        rest = np.column_stack([np.ones(len(x)), np.delete(columns, k, axis=1)])
        telling = abs(y - rest @ np.linalg.lstsq(rest, y)[0]) > SAME * y.std()
        U, sizes, _ = np.linalg.svd(np.column_stack([rest, x]), full_matrices=False)
        leverage = np.sum(U[:, sizes > SAME * sizes[0]] ** 2, axis=1)
        spare.append(np.sum(1.0 - leverage[telling]))
    return float(min(spare))


def _is_single(x: Array, columns: Array) -> NDArray[np.bool_]:
    """Which columns (n, p) have one value wherever x, (n,) or (n, q), has."""
    _, first, codes = np.unique(x, return_index=True, return_inverse=True, axis=0)
    gap = abs(columns - columns[first][codes.ravel()])
    return np.asarray(np.all(gap <= SAME * columns.std(axis=0), axis=0))


def _in_blocks(x: Array, column: Array) -> bool:
    """Whether each value of a column, or all but one, is in an interval of x, not by chance.

    A column that is only correlated with x has its values mixed where they change along x. If the
    nearest a rows before a change and b rows after it were in any order, they would be apart with
    probability 1 / C(a + b, a); each row counts at one change.
    """
    n_values = np.unique(column).size
    if np.unique(x).size <= n_values or not _is_single(x, column[:, None])[0]:
        return False
    along = column[np.argsort(x, kind="stable")]
    ends = np.flatnonzero(np.r_[np.diff(along) != 0, True])
    if ends.size > n_values + 1:
        return False
    runs = np.diff(ends, prepend=-1)
    before, after = runs // 2, runs // 2
    before[0], after[-1] = runs[0], runs[-1]
    m = np.minimum(before[:-1], after[1:])
    return bool(np.sum(gammaln(2 * m + 1) - 2 * gammaln(m + 1)) >= -np.log(CHANCE))


def _on_curve(
    s: Array, linear: Array | None, columns: Array, without: Array | None = None
) -> NDArray[np.bool_]:
    """Which columns (n, p) neighbors along s predict closely, in rows where that tells something.

    These are rows that differ from both neighbors, or that are not predicted without s.
    """
    error = _misfits(s, linear, columns)
    spread = columns.std(axis=0)
    if without is None:
        order, place = _placed(s)
        near = columns[order][np.clip(place[:, None] + np.arange(-2, 3), 0, s.size - 1)]
        scale = np.ptp(near, axis=1)
        telling = (near[:, 1] != near[:, 2]) & (near[:, 3] != near[:, 2])
    else:
        scale, telling = without, without > SAME * spread
    count = telling.sum(axis=0)
    close = (telling & (error <= CLOSE * scale)).sum(axis=0)
    small = (telling & (error <= ERROR * spread)).sum(axis=0)
    return np.asarray((count >= SPARE) & (close >= MOST_ROWS * count) & (2 * small >= count))


def _placed(s: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Order of rows along s, and the places in it of those that are predicted."""
    order = np.argsort(s, kind="stable")
    some = np.linspace(0, s.size - 1, min(s.size, TARGETS)).astype(np.intp)
    return order, np.argsort(order, kind="stable")[some]


def _misfits(s: Array, linear: Array | None, columns: Array) -> Array:
    """Errors of some rows, predicted from the nearest on the left, on the right, or on both sides.

    A cubic polynomial in s through four rows; or a quadratic one with coefficients that are linear
    in another column, through seven rows. The smallest of the errors: a kink or a step has one side
    on which it is not seen. Some more rows on both sides help if a few show too little of a factor.
    """
    degree, few, many = (3, 4, 4) if linear is None else (2, 7, 20)
    order, place = _placed(s)
    here = order[place]
    best = np.full((here.size, columns.shape[1]), np.inf)
    for m, first in ((few, place - few), (few, place), (few, place - few // 2), (many, place - 10)):
        m = min(m, s.size - 1)
        near = np.clip(first, 0, s.size - 1 - m)[:, None] + np.arange(m)
        rows = order[near + (near >= place[:, None])]
        basis = _scaled(s[rows] - s[here][:, None])[..., None] ** np.arange(degree + 1)
        at = np.eye(1, degree + 1).repeat(here.size, axis=0)
        if linear is not None:
            z = np.column_stack([linear[rows], linear[here]])
            z = _scaled(z - linear[rows].mean(axis=1, keepdims=True))
            at = np.concatenate([at, at * z[:, -1:]], axis=1)
            basis = np.concatenate([basis, basis * z[:, :-1, None]], axis=2)
        gram = np.swapaxes(basis, 1, 2) @ basis + RIDGE * np.eye(basis.shape[2])
        factors = (basis @ np.linalg.solve(gram, at[..., None]))[..., 0]
        found = abs(columns[here] - np.einsum("ij,ijk->ik", factors, columns[rows]))
        best = np.minimum(best, found)
    return best


def _scaled(d: Array) -> Array:
    size = abs(d).max(axis=1, keepdims=True)
    return np.asarray(d / np.where(size > 0, size, 1.0))

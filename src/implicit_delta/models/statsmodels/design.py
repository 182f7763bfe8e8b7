"""Design matrices of new tables: by the formula of a fit, or by the columns of its arrays."""

import ast
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta._core.optional import optional
from implicit_delta._core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.models.prediction import check_known, column_of, labels_of, names_of


class Design(ABC):
    """Turns tables into design matrices."""

    table: Any

    @abstractmethod
    def matrix(self, data: Any) -> Array:
        """Build the design (m, p) of a table."""

    @abstractmethod
    def places(self, variable: Any) -> NDArray[np.intp]:
        """Columns of the design that depend on a variable; refuse one that none depends on."""

    @abstractmethod
    def part(self, data: Any, variable: Any) -> Array:
        """Build these columns alone, (m, q)."""

    @abstractmethod
    def levels(self, variable: Any) -> tuple[Any, ...] | None:
        """List the labels of a factor; None for a number."""


@dataclass(frozen=True, eq=False)
class ByColumns(Design):
    """Arrays as they are: a column of the table is a column of the design."""

    table: Any

    def matrix(self, data: Any) -> Array:
        for name in names_of(self.table):
            _check_column(name, data)
        X = np.asarray(data[names_of(self.table)], dtype=np.float64)
        _check_complete(X, data)
        return X

    def places(self, variable: Any) -> NDArray[np.intp]:
        check_known(variable, names_of(self.table), "the model")
        return np.array([names_of(self.table).index(variable)])

    def part(self, data: Any, variable: Any) -> Array:
        return np.asarray(column_of(data, variable), dtype=np.float64)[:, None]

    def levels(self, variable: Any) -> tuple[Any, ...] | None:
        self.places(variable)
        return labels_of(column_of(self.table, variable))


def _check_column(name: Any, data: Any) -> None:
    if str(name) == "const" and name not in names_of(data):
        raise ValueError(
            "The model was fitted with a column 'const', which data lacks. Add it: "
            '`sm.add_constant(data, has_constant="add")`.'
        )
    check_known(name, names_of(data), "data")


def _check_complete(X: Array, data: Any) -> None:
    bad = ~np.isfinite(X).all(axis=1)
    if np.any(bad):
        raise EvaluationError(
            f"data has missing or infinite values in {bad.sum()} of {len(X)} rows, the first of "
            f"them {data.index[np.argmax(bad)]!r}: these have no prediction, and an average of the "
            "others is one of other rows. Drop them (`data.dropna()`) or fill them in."
        )


@dataclass(frozen=True, eq=False)
class ByFormula(Design):
    """The right-hand side of a formula, read by patsy with the transforms of the fit."""

    table: Any
    spec: Any

    def matrix(self, data: Any) -> Array:
        return self._built(self.spec, data)

    def places(self, variable: Any) -> NDArray[np.intp]:
        check_known(variable, names_of(self.table), "the data of the fit")
        terms = self._terms(variable)
        if not terms:
            used = sorted({name for factor in self.spec.factor_infos for name in _names(factor)})
            known = [name for name in used if name in names_of(self.table)]
            raise ValueError(
                f"{variable!r} is a column of the data, but not in the formula: the model does not "
                "depend on it, so that its effect is exactly zero by assumption and has no error "
                f"bar. In the formula are: {', '.join(map(repr, known))}."
            )
        slices = [self.spec.term_slices[term] for term in terms]
        return np.concatenate([np.arange(part.start, part.stop) for part in slices])

    def part(self, data: Any, variable: Any) -> Array:
        return self._built(self._subset(variable), data)

    def levels(self, variable: Any) -> tuple[Any, ...] | None:
        self.places(variable)
        factors = [f for f in self.spec.factor_infos if variable in _names(f)]
        for factor in factors:
            info = self.spec.factor_infos[factor]
            if info.type == "categorical":
                own = labels_of(column_of(self.table, variable))
                return tuple(info.categories) if own is None and _plain(factor) else own
        return labels_of(column_of(self.table, variable))

    def _terms(self, variable: Any) -> list[Any]:
        return [
            term
            for term in self.spec.terms
            if any(variable in _names(factor) for factor in term.factors)
        ]

    def _subset(self, variable: Any) -> Any:
        return self.spec.subset([term.name() for term in self._terms(variable)])

    def _built(self, spec: Any, data: Any) -> Array:
        patsy = optional("patsy", "The formula of a fit")

        try:
            built = patsy.dmatrix(spec, objects(data), NA_action=patsy.NAAction("raise"))
        except patsy.PatsyError as error:
            raise _explained(error, self, data) from error
        X = np.asarray(built, dtype=np.float64)
        X = np.broadcast_to(X, (len(data), X.shape[1])) if len(X) == 1 else X
        _check_complete(X, data)
        return X


def objects(data: Any) -> Any:
    """Turn columns of pandas' own strings into objects, as statsmodels does for patsy."""
    import pandas as pd

    own = [name for name in data.columns if isinstance(data[name].dtype, pd.StringDtype)]
    return data.astype(dict.fromkeys(own, object)) if own else data


def _names(factor: Any) -> set[str]:
    """Names and quoted names, as in Q("a b"), in the code of a factor."""
    nodes = list(ast.walk(ast.parse(factor.code, mode="eval")))
    quoted = {node.value for node in nodes if isinstance(node, ast.Constant)}
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        text for text in quoted if isinstance(text, str)
    }


def _plain(factor: Any) -> bool:
    """Whether the labels of a factor are those of its column: `g`, `C(g)`, and no transform."""
    tree = ast.parse(factor.code, mode="eval").body
    if isinstance(tree, ast.Call) and getattr(tree.func, "id", "") in ("C", "Q"):
        tree = tree.args[0] if tree.args else tree
    return isinstance(tree, ast.Name | ast.Constant)


def _explained(error: Exception, design: ByFormula, data: Any) -> Exception:
    """Say what is wrong with a table that the formula cannot read."""
    used = {name for factor in design.spec.factor_infos for name in _names(factor)}
    needed = [name for name in names_of(design.table) if name in used]
    lacking = [name for name in needed if name not in names_of(data)]
    if lacking:
        return ValueError(
            f"data lacks {', '.join(map(repr, lacking))}, which the formula needs. "
            "`datagrid(model, ...)` makes a complete table."
        )
    missing = [name for name in needed if data[name].isna().any()]
    if missing:
        return EvaluationError(
            f"data has missing values in {', '.join(map(repr, missing))}: these rows have no "
            "prediction, and statsmodels would drop them, so that an average would be one of other "
            f"rows. Drop them: `data.dropna(subset={missing!r})`."
        )
    return ValueError(
        f"The formula cannot read the data: {str(error).splitlines()[0]} Usual causes: a label "
        "that the fit has not seen, or a value outside of the range of a spline."
    )

"""Design matrices of new tables: by the formula of a fit, or by the columns of its arrays."""

import ast
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.optional import optional
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError
from implicit_delta.models.prediction import check_known, column_of, labels_of, names_of


class Design(ABC):
    """Turns tables into design matrices."""

    table: Any

    @property
    def needed(self) -> list[Any]:
        """Columns of the table that the design uses."""
        return names_of(self.table)

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
    """The right-hand side of a formula, with the transforms of the fit.

    Attributes
    ----------
    frame : DataFrame
        Data of the fit, of which `dropped` rows, by position, were left out.
    spec : DesignInfo of patsy or ModelSpec of formulaic
    """

    frame: Any
    spec: Any
    dropped: NDArray[np.intp]

    @cached_property
    def table(self) -> Any:
        kept = np.setdiff1d(np.arange(len(self.frame)), self.dropped)
        return self.frame if kept.size == len(self.frame) else self.frame.iloc[kept]

    def matrix(self, data: Any) -> Array:
        return self._checked(self.spec, data)

    def places(self, variable: Any) -> NDArray[np.intp]:
        check_known(variable, names_of(self.table), "the data of the fit")
        found = self._places(variable)
        if not found:
            raise ValueError(
                f"{variable!r} is a column of the data, but not in the formula: the model does not "
                "depend on it, so that its effect is zero by assumption and has no error bar. In "
                f"the formula are: {', '.join(map(repr, self.needed))}."
            )
        return np.array(found)

    def part(self, data: Any, variable: Any) -> Array:
        return self.matrix(data)[:, self.places(variable)]

    @cached_property
    def needed(self) -> list[Any]:
        return [name for name in names_of(self.table) if name in self._used()]

    def __reduce__(self) -> Any:
        return Lost, ()  # patsy's own part of it cannot be pickled

    def __deepcopy__(self, memo: Any) -> "ByFormula":
        return self

    @abstractmethod
    def _places(self, variable: Any) -> list[int]:
        """Columns of the design that depend on a variable."""

    @abstractmethod
    def _used(self) -> set[str]:
        """All names in the formula, functions too."""

    @abstractmethod
    def _built(self, spec: Any, data: Any) -> Any:
        """Build a design, with an error for rows that are missing or a label that is unknown."""

    def _checked(self, spec: Any, data: Any) -> Array:
        lacking = [name for name in self.needed if name not in names_of(data)]
        if lacking:
            raise ValueError(
                f"data lacks {', '.join(map(repr, lacking))}, which the formula needs. "
                "`datagrid(model, ...)` makes a complete table."
            )
        try:
            with np.errstate(invalid="ignore", divide="ignore"):
                X = np.asarray(self._built(spec, objects(data)), dtype=np.float64)
        except Exception as error:  # whatever a formula calls may raise anything
            raise self._explained(error, data) from error
        X = np.broadcast_to(X, (len(data), X.shape[1])) if len(X) == 1 else X
        if len(X) != len(data):
            raise self._explained(None, data)
        _check_complete(X, data)
        return X

    def _explained(self, error: Exception | None, data: Any) -> Exception:
        """Say what is wrong with a table that the formula cannot read."""
        missing = [name for name in self.needed if data[name].isna().any()]
        if missing or error is None:
            return EvaluationError(
                f"data has missing values in {', '.join(map(repr, missing))}: these rows have no "
                "prediction, and statsmodels would drop them, so that an average would be one of "
                f"other rows. Drop them: `data.dropna(subset={missing!r})`."
            )
        if self._leaves_spline(error):
            for name in self.needed:
                if text := self._outside(name, data):
                    return ValueError(text)
        return ValueError(
            f"The formula cannot read the data: {str(error).strip().splitlines()[0]} Usual causes: "
            "a label that the fit has not seen, or a value outside of the range of a spline."
        )

    def _leaves_spline(self, error: Exception) -> bool:
        return "knots" in str(error) or "bounds" in str(error)

    def _outside(self, name: str, data: Any) -> str:
        """Tell how numbers leave the range of those of the fit; empty if they do not."""
        known = self.table[name]
        if labels_of(known) is not None or labels_of(data[name]) is not None:
            return ""
        low, high = known.min(), known.max()
        beyond = (data[name] < low) | (data[name] > high)
        if not beyond.any():
            return ""
        first, third = known.quantile([0.25, 0.75])
        inside = f"({first:.4g}, {third:.4g})"
        return (
            f"{name!r} leaves the range of a spline of the formula, {low:.6g} to {high:.6g}, in "
            f"{int(beyond.sum())} of {len(data)} rows (it goes from {data[name].min():.6g} to "
            f"{data[name].max():.6g}): a spline of the fit has no values there. For a comparison "
            f'of it use values="iqr", or a pair inside such as values={inside}; or give data= with '
            "rows that stay inside."
        )


@dataclass(frozen=True, eq=False)
class ByPatsy(ByFormula):
    """A formula of patsy, whose terms can be built one by one."""

    def part(self, data: Any, variable: Any) -> Array:
        terms = [term.name() for term in self._terms(variable)]
        return self._checked(self.spec.subset(terms), data)

    def levels(self, variable: Any) -> tuple[Any, ...] | None:
        self.places(variable)
        own = labels_of(column_of(self.table, variable))
        for factor, info in self.spec.factor_infos.items():
            own_labels = info.type == "categorical" and own is None and is_plain(factor.code)
            if own_labels and variable in names_in(factor.code):
                return tuple(info.categories)
        return own

    def _terms(self, variable: Any) -> list[Any]:
        def uses(term: Any) -> bool:
            return any(variable in names_in(factor.code) for factor in term.factors)

        return [term for term in self.spec.terms if uses(term)]

    def _places(self, variable: Any) -> list[int]:
        slices = [self.spec.term_slices[term] for term in self._terms(variable)]
        return [place for part in slices for place in range(part.start, part.stop)]

    def _used(self) -> set[str]:
        return {name for factor in self.spec.factor_infos for name in names_in(factor.code)}

    def _built(self, spec: Any, data: Any) -> Any:
        patsy = optional("patsy", "The formula of a fit")
        return patsy.dmatrix(spec, data, NA_action=patsy.NAAction("raise"))


@dataclass(frozen=True, eq=False)
class ByFormulaic(ByFormula):
    """A formula of formulaic."""

    def levels(self, variable: Any) -> tuple[Any, ...] | None:
        self.places(variable)
        own = labels_of(column_of(self.table, variable))
        return self._categories().get(variable, own)

    def _categories(self) -> dict[str, tuple[Any, ...]]:
        """Labels of the factors that are columns as they are."""
        found = {}
        for code, (_, state) in self.spec.encoder_state.items():
            if "categories" in state and is_plain(code):
                for name in names_in(code) - {"C", "Q"}:
                    found[name] = tuple(state["categories"])
        return found

    def _places(self, variable: Any) -> list[int]:
        return list(self.spec.variable_indices.get(variable, []))

    def _used(self) -> set[str]:
        return set(map(str, self.spec.variable_indices))

    def _built(self, spec: Any, data: Any) -> Any:
        for name, labels in self._categories().items():  # formulaic would take it for the first
            unseen = set(data[name].dropna()) - set(labels)
            if unseen:
                raise ValueError(f"{sorted(unseen, key=str)[0]!r} is not a label of {name!r}.")
        return spec.get_model_matrix(data)


@dataclass(frozen=True)
class Lost(Design):
    """Stands for a formula that was pickled, which cannot read tables any more."""

    @property
    def table(self) -> Any:
        raise EvaluationError(
            "The model was pickled, and its formula cannot be: it reads no tables any more. Make "
            "it again with `from_statsmodels(results)`."
        )

    def matrix(self, data: Any) -> Array:
        return np.asarray(self.table)

    def places(self, variable: Any) -> NDArray[np.intp]:
        return np.asarray(self.table)

    def part(self, data: Any, variable: Any) -> Array:
        return np.asarray(self.table)

    def levels(self, variable: Any) -> tuple[Any, ...] | None:
        return tuple(self.table)


def objects(data: Any) -> Any:
    """Turn columns of pandas' own strings into objects, as statsmodels does for patsy."""
    import pandas as pd

    own = [name for name in data.columns if isinstance(data[name].dtype, pd.StringDtype)]
    return data.astype(dict.fromkeys(own, object)) if own else data


def names_in(code: str) -> set[str]:
    """Names and quoted names, as in Q("a b"), in the code of a factor."""
    nodes = list(ast.walk(ast.parse(code, mode="eval")))
    quoted = {node.value for node in nodes if isinstance(node, ast.Constant)}
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        text for text in quoted if isinstance(text, str)
    }


def is_plain(code: str) -> bool:
    """Whether the labels of a factor are those of its column: `g`, `C(g)`, and no transform."""
    tree = ast.parse(code, mode="eval").body
    if isinstance(tree, ast.Call) and getattr(tree.func, "id", "") in ("C", "Q") and tree.args:
        tree = tree.args[0]
    return isinstance(tree, ast.Name | ast.Constant)

"""Equal rows of a table counted once, by DuckDB: a fit with the counts is the fit to all rows."""

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from implicit_delta.core.optional import optional
from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning

MOST_COUNT = 2**53
MOST_GROUPS = 20_000_000  # as many rows of ten numbers are 1.6 GB
HARDLY = 0.5  # groups over rows above which nothing is gained
# Nothing is fetched from the network, whatever a path looks like.
OFFLINE = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
PARQUET = (".parquet", ".pq", ".parq")
CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
REMOTE = ("http://", "https://", "s3://", "gs://", "gcs://", "az://", "hf://", "r2://", "file:")


def compress(
    table: Any, columns: Iterable[str] | None = None, *, count: str = "count", weights: str = ""
) -> Any:
    """Count equal rows of a table once, to be used with `weights=` or `freq_weights=`.

    A fit to the distinct rows with these counts has the estimates and the standard errors of the
    fit to all rows; robust ones too, and clustered ones if the cluster is one of the columns. Rows
    are counted outside of memory, so that files may be larger than it.

    Parameters
    ----------
    table : data frame, Arrow table or dataset, path or list of paths
        Of pandas, polars, Arrow or DuckDB; Parquet or CSV files, a pattern such as
        ``"sales/*.parquet"``, or a folder of Parquet files.
    columns : list of str, optional
        What the model uses: outcome, covariates, clusters. All columns by default.
    count : str
        Name of the new column.
    weights : str
        Name of a column of counts that the table already has: they are added up.

    Returns
    -------
    data frame
        The distinct rows in sorted order, and their number: of polars if the table is, else of
        pandas. Rows with missing values are rows like others.

    Notes
    -----
    Continuous covariates make rows distinct, and nothing is gained then; a warning says so. To
    round them is your decision: it changes the model.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"y": [1, 0, 1, 1], "dose": [2, 2, 2, 3]})
    >>> compress(table)
       y  dose  count
    0  0     2      1
    1  1     2      2
    2  1     3      1
    """
    if not count:
        raise ValueError(f"count is the name of a column, not {count!r}.")
    if type(table).__module__.partition(".")[0] == "polars":
        return _of_polars(table, columns, count, weights)
    source = _source(table)
    names = _names(source.columns, columns, count, weights)
    counted = _counted(source, names, count, weights)
    _check_gain(
        counted[count].sum(), {name: counted[name].nunique() for name in names}, len(counted)
    )
    return source.back(counted)


def _names(there: list[str], columns: Iterable[str] | None, count: str, weights: str) -> list[str]:
    names = _chosen(there, columns, weights)
    if count in names:
        raise ValueError(
            f'The table has a column {count!r}: name the new one otherwise, `count="copies"`, or, '
            f"if it holds counts already, `weights={count!r}`."
        )
    return names


def _of_polars(table: Any, columns: Iterable[str] | None, count: str, weights: str) -> Any:
    """Count with polars itself, which keeps its types; lazy frames stay lazy until the end."""
    polars = optional("polars", "compress")
    lazy = table.lazy()
    names = _names(lazy.collect_schema().names(), columns, count, weights)
    given = polars.col(weights) if weights else polars.lit(1)
    wrong = (given.is_null() | given.is_nan() | given.is_infinite() | (given < 0)).sum()
    number = given.sum() if weights else polars.len()
    wide = lazy.group_by(names).agg(
        number.alias(count), (wrong if weights else polars.lit(0)).alias("?")
    )
    counted = wide.sort(names).collect()
    _check_counted(len(counted), int(counted["?"].sum()), counted[count].max(), weights)
    _check_gain(counted[count].sum(), {n: counted[n].n_unique() for n in names}, len(counted))
    return counted.drop("?").with_columns(polars.col(count).cast(polars.Int64))


@dataclass(frozen=True, eq=False)
class _Source:
    """A relation of DuckDB, the names of its columns, and the way back to a pandas frame.

    `labels` has the distinct values of columns that go as codes, and `types` those of the others.
    """

    relation: Any
    columns: list[str]
    labels: dict[str, Any] = field(default_factory=dict)
    types: dict[str, Any] = field(default_factory=dict)

    def back(self, counted: Any) -> Any:
        """Give a frame the values and the types of the table that it was made of."""
        for name in counted.columns:
            if name in self.labels:
                counted[name] = self.labels[name].take(counted[name])
            elif name in self.types:
                counted[name] = counted[name].astype(self.types[name])
        return counted


def _source(table: Any) -> _Source:
    duckdb = optional("duckdb", "compress")
    library = type(table).__module__.partition(".")[0]
    if library == "duckdb" or type(table).__name__ == "DuckDBPyRelation":
        return _Source(table, list(table.columns))
    database = duckdb.connect(":memory:", config=OFFLINE)
    if isinstance(table, str | os.PathLike) or _is_paths(table):
        return _of_files(database, table)
    if library == "pandas" and hasattr(table, "columns"):
        return _of_pandas(database, table)
    if library == "pyarrow":
        return _Source(database.from_arrow(table), list(table.schema.names))
    raise TypeError(
        f"compress needs a data frame, an Arrow table or paths of Parquet or CSV files, and got "
        f"{type(table).__name__}. Of an array: `np.unique(rows, axis=0, return_counts=True)`; of a "
        "dict: `pandas.DataFrame(table)`; of a Dask frame: its files, or "
        "`ddf.groupby(columns, dropna=False).size().compute()`."
    )


def _of_pandas(database: Any, table: Any) -> _Source:
    """Take a frame, with columns by number: DuckDB does not tell x from X."""
    if not len(table):
        raise ValueError("The table is empty.")
    names = [str(name) for name in table.columns]
    if names != list(table.columns):
        raise TypeError(
            "compress needs columns with names: `table.rename(columns=str)` makes them."
        )
    _refuse_twice(names)
    labels, types, columns = {}, {}, {}
    for i, name in enumerate(names):
        if _is_plain(table[name].dtype):
            columns[f"c{i}"], types[name] = table[name], table[name].dtype
        else:
            columns[f"c{i}"], labels[name] = _coded(table[name])
    frame = optional("pandas", "compress").DataFrame(columns)
    return _Source(database.from_df(frame), names, labels, types)


def _is_plain(kind: Any) -> bool:
    """Whether DuckDB has this type: numbers, texts, and times without a zone."""
    if getattr(kind, "tz", None) is not None:
        return False
    return getattr(kind, "kind", "O") in "biufM" or str(kind) in ("str", "string")


def _coded(column: Any) -> tuple[Any, Any]:
    """Codes of any other values, in sorted order where they have one, and the values."""
    pandas = optional("pandas", "compress")
    if isinstance(column.dtype, pandas.CategoricalDtype):
        codes, kind = column.cat.codes.to_numpy(), column.dtype
        return codes, _Labels(pandas.Categorical(kind.categories, dtype=kind))
    try:
        codes, values = pandas.factorize(column, sort=True)
    except TypeError:  # values that cannot be compared
        codes, values = pandas.factorize(column)
    return codes, _Labels(pandas.Series(values, dtype=column.dtype).array)


@dataclass(frozen=True, eq=False)
class _Labels:
    values: Any

    def take(self, codes: Any) -> Any:
        """Values by their codes; -1 stands for a missing one."""
        return self.values.take(codes.to_numpy(), allow_fill=True)


def _is_paths(table: Any) -> bool:
    return isinstance(table, list | tuple) and all(
        isinstance(path, str | os.PathLike) for path in table
    )


def _of_files(database: Any, table: Any) -> _Source:
    given = [table] if isinstance(table, str | os.PathLike) else list(table)
    paths = [path for entry in given for path in _files(os.fspath(entry))]
    if not paths:
        raise ValueError("compress got an empty list of paths.")
    _refuse_twice(paths)
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise ValueError("compress takes files of one kind at a time: Parquet or CSV.")
    read = database.read_parquet if kinds == {"parquet"} else database.read_csv
    schemas = [_schema(read, path) for path in paths]
    for path, schema in zip(paths[1:], schemas[1:], strict=True):
        _check_alike(paths[0], schemas[0], path, schema)
    relation = read([glob.escape(path) for path in paths], union_by_name=True)
    return _Source(relation, list(relation.columns))


def _schema(read: Any, path: str) -> dict[str, str]:
    """Names and types of the columns of a file."""
    try:
        found = read(glob.escape(path))
    except optional("duckdb", "compress").Error as error:
        raise ValueError(f"{path} cannot be read: {_line(error)}") from None
    return dict(zip(found.columns, map(str, found.types), strict=True))


def _check_alike(first: str, known: dict[str, str], path: str, schema: dict[str, str]) -> None:
    """Refuse files with other columns, or with texts where others have numbers."""
    if set(schema) != set(known):
        raise ValueError(
            f"{path} has the columns {', '.join(schema)}, and {first} has {', '.join(known)}: "
            "compress takes files with the same columns, in any order, and CSV files with a header."
        )
    for name, kind in schema.items():
        if kind != known[name] and not (_is_number(kind) and _is_number(known[name])):
            raise ValueError(
                f"{name!r} is {kind} in {path} and {known[name]} in {first}: write it as one type."
            )


def _is_number(kind: str) -> bool:
    return "INT" in kind or kind in ("DOUBLE", "FLOAT", "REAL") or kind.startswith("DECIMAL")


def _files(path: str) -> list[str]:
    """Expand a folder or a pattern, in sorted order."""
    if path.startswith(REMOTE):
        raise ValueError(
            f"compress reads local files, and {path!r} is elsewhere. Open it with DuckDB yourself "
            '(`duckdb.sql("from read_parquet(...)")`) and give the relation.'
        )
    if os.path.isdir(path):
        found = sorted(str(p) for end in PARQUET for p in Path(path).rglob(f"*{end}"))
        hint = f"a folder without Parquet files ({', '.join(PARQUET)})"
    elif os.path.exists(path):
        return [path]
    else:
        found, hint = sorted(glob.glob(path, recursive=True)), "no file and matches none"
    if not found:
        raise FileNotFoundError(f"{path!r} is {hint}.")
    return found


def _kind(path: str) -> str:
    lower = path.lower()
    if lower.endswith(PARQUET):
        return "parquet"
    if lower.endswith(CSV):
        return "csv"
    raise ValueError(
        f"{path!r} is neither Parquet ({', '.join(PARQUET)}) nor CSV ({', '.join(CSV)}) by name."
    )


def _chosen(there: list[str], columns: Iterable[str] | None, weights: str) -> list[str]:
    if isinstance(columns, str):
        columns = [columns]
    names = [name for name in there if name != weights] if columns is None else list(columns)
    unknown = [name for name in (*names, *([weights] if weights else [])) if name not in there]
    if unknown:
        raise ValueError(f"The table has no column {unknown[0]!r}; it has {', '.join(there)}.")
    if weights in names:
        raise ValueError(f"The column of weights {weights!r} cannot be one of `columns`.")
    if not names:
        raise ValueError("compress needs at least one column.")
    _refuse_twice(names)
    return names


def _refuse_twice(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"The column {twice[0]!r} is there twice.")


def _counted(source: _Source, names: list[str], count: str, weights: str) -> Any:
    inside = source.relation.columns
    _check_types(source, names, weights)
    some = [_quoted(inside[source.columns.index(name)]) for name in names]
    number, bad = "count(*)", "0"
    if weights:
        given = _quoted(inside[source.columns.index(weights)])
        number = f"sum({given})"
        finite = f"isfinite({given}::double)"
        bad = f"count_if({given} is null or not {finite} or {given} < 0)"
    query = (
        f"select {', '.join(some)}, {number}, {bad} from rows "
        f"group by {', '.join(some)} order by {', '.join(some)} limit {MOST_GROUPS + 1}"
    )
    try:
        counted = source.relation.query("rows", query).df()
    except optional("duckdb", "compress").Error as error:
        raise ValueError(f"The table cannot be counted: {_line(error)}") from None
    counted.columns = [*names, count, f"bad {count}"]
    most = counted[count].max() if len(counted) else 0
    _check_counted(len(counted), int(counted.iloc[:, -1].sum()), most, weights)
    counted = counted.iloc[:, :-1].copy()
    whole = counted[count] == counted[count].round()
    return counted.astype({count: "int64"}) if whole.all() else counted


def _check_types(source: _Source, names: list[str], weights: str) -> None:
    kinds = dict(zip(source.columns, map(str, source.relation.types), strict=True))
    spans = [name for name in names if kinds[name] == "INTERVAL"]
    if spans:
        raise TypeError(f"The column {spans[0]!r} holds time spans: give it in whole numbers.")
    if weights and (weights in source.labels or not _is_number(kinds[weights])):
        raise TypeError(f"The column of weights {weights!r} holds no numbers.")


def _check_counted(groups: int, bad: int, most: Any, weights: str) -> None:
    if not groups:
        raise ValueError("The table is empty.")
    if groups > MOST_GROUPS:
        raise ValueError(
            f"More than {MOST_GROUPS:,} distinct rows: nothing is gained by counting them. Name "
            "the `columns` that the model uses, or see `from_shards` for fits to all rows."
        )
    if bad:
        raise ValueError(f"{bad} of the counts {weights!r} are missing, infinite or negative.")
    if most > MOST_COUNT:
        raise ValueError(f"The counts {weights!r} add up to {most:.3g}, beyond whole numbers.")


def _check_gain(rows: Any, values: dict[str, int], groups: int) -> None:
    if rows < 100 or groups <= HARDLY * rows:
        return
    widest = max(values, key=lambda name: values[name])
    warn(
        f"{groups:,} of {float(rows):,.0f} rows are distinct, so that counting them gains little. "
        f"The column {widest!r} alone has {values[widest]:,} values: leave it out with "
        "`columns=` if the model does not use it.",
        ImplicitDeltaWarning,
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]

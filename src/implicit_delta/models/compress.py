"""Equal rows of a table counted once, by DuckDB: a fit with the counts is the fit to all rows."""

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from implicit_delta._core.optional import optional
from implicit_delta._core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning

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
    source = _source(table)
    names = _chosen(source.columns, columns, weights)
    if count in names:
        raise ValueError(
            f'The table has a column {count!r}: name the new one otherwise, `count="copies"`, or, '
            f"if it holds counts already, `weights={count!r}`."
        )
    counted = _counted(source, names, count, weights)
    _check_gain(counted, names, count)
    return source.back(counted)


@dataclass(frozen=True, eq=False)
class _Source:
    """A relation of DuckDB, the names of its columns, and the way back to a frame."""

    relation: Any
    columns: list[str]
    frame: Any = None
    kind: str = "pandas"

    def back(self, counted: Any) -> Any:
        """Give a pandas frame the types of the table that it was made of."""
        if self.kind == "polars":
            return optional("polars", "compress").from_pandas(counted)
        if self.frame is None:
            return counted
        pandas = optional("pandas", "compress")
        for name in counted.columns.intersection(self.frame.columns):
            kind = self.frame[name].dtype
            if isinstance(kind, pandas.CategoricalDtype):
                counted[name] = pandas.Categorical.from_codes(counted[name], dtype=kind)
            else:
                counted[name] = counted[name].astype(kind)
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
    if library == "polars":
        table = table.collect() if hasattr(table, "collect") else table
        return _Source(database.from_arrow(table.to_arrow()), list(table.columns), kind="polars")
    if library == "pyarrow":
        return _Source(database.from_arrow(table), list(table.schema.names))
    raise TypeError(
        f"compress needs a data frame, an Arrow table or paths of Parquet or CSV files, and got "
        f"{type(table).__name__}. Of an array: `np.unique(rows, axis=0, return_counts=True)`; of a "
        "dict: `pandas.DataFrame(table)`; of a Dask frame: its files, or "
        "`ddf.groupby(columns, dropna=False).size().compute()`."
    )


def _of_pandas(database: Any, table: Any) -> _Source:
    """Take a frame: columns by number, since DuckDB does not tell x from X, and labels by code."""
    if not len(table):
        raise ValueError("The table is empty.")
    names = [str(name) for name in table.columns]
    if names != list(table.columns):
        raise TypeError(
            "compress needs columns with names: `table.rename(columns=str)` makes them."
        )
    _refuse_twice(names)
    codes = {name: table[name].cat.codes for name in names if table[name].dtype.name == "category"}
    plain = table.assign(**codes).set_axis([f"c{i}" for i in range(len(names))], axis=1)
    relation = database.from_df(plain)
    return _Source(relation, names, table)


def _is_paths(table: Any) -> bool:
    return isinstance(table, list | tuple) and all(
        isinstance(path, str | os.PathLike) for path in table
    )


def _of_files(database: Any, table: Any) -> _Source:
    given = [table] if isinstance(table, str | os.PathLike) else list(table)
    paths = [path for entry in given for path in _files(os.fspath(entry))]
    if not paths:
        raise ValueError("compress got an empty list of paths.")
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise ValueError("compress takes files of one kind at a time: Parquet or CSV.")
    read = database.read_parquet if kinds == {"parquet"} else database.read_csv
    try:
        relation = read(paths)
    except optional("duckdb", "compress").Error as error:
        raise ValueError(f"{paths[0]} cannot be read: {_line(error)}") from None
    return _Source(relation, list(relation.columns))


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
    some = [_quoted(inside[source.columns.index(name)]) for name in names]
    number, bad = "count(*)", "0"
    if weights:
        given = _quoted(inside[source.columns.index(weights)])
        number = f"sum({given})"
        bad = f"count_if({given} is null or isnan({given}::double) or {given} < 0)"
    query = (
        f"select {', '.join(some)}, {number}, {bad} from rows "
        f"group by {', '.join(some)} order by {', '.join(some)} limit {MOST_GROUPS + 1}"
    )
    try:
        counted = source.relation.query("rows", query).df()
    except optional("duckdb", "compress").Error as error:
        raise ValueError(f"The table cannot be counted: {_line(error)}") from None
    counted.columns = [*names, count, f"bad {count}"]
    _check_counted(counted, weights)
    counted = counted.iloc[:, :-1].copy()
    whole = counted[count] == counted[count].round()
    return counted.astype({count: "int64"}) if whole.all() else counted


def _check_counted(counted: Any, weights: str) -> None:
    if not len(counted):
        raise ValueError("The table is empty.")
    if len(counted) > MOST_GROUPS:
        raise ValueError(
            f"More than {MOST_GROUPS:,} distinct rows: nothing is gained by counting them. Name "
            "the `columns` that the model uses, or see `from_shards` for fits to all rows."
        )
    bad = int(counted.iloc[:, -1].sum())
    if bad:
        raise ValueError(f"{bad} of the counts {weights!r} are missing or negative.")


def _check_gain(counted: Any, names: list[str], count: str) -> None:
    rows, groups = float(counted[count].sum()), len(counted)
    if rows < 100 or groups <= HARDLY * rows:
        return
    widest = max(names, key=lambda name: counted[name].nunique())
    warn(
        f"{groups:,} of {rows:,.0f} rows are distinct, so that counting them gains little. The "
        f"column {widest!r} alone has {counted[widest].nunique():,} values: leave it out with "
        "`columns=` if the model does not use it.",
        ImplicitDeltaWarning,
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]

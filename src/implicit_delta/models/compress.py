"""Equal rows of a table counted once: a fit with the counts is the fit to all rows."""

import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from implicit_delta.core.optional import optional
from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning

MOST_COUNT = 2.0**53  # beyond it not every whole number is one of float64
WRONG = "?"  # column of the number of counts that are none
HARDLY = 0.5  # groups over rows above which nothing is gained
# Nothing is fetched from the network, whatever a path looks like.
OFFLINE = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
KINDS = {"parquet": (".parquet", ".pq", ".parq"), "csv": (".csv", ".tsv", ".csv.gz", ".tsv.gz")}
REMOTE = ("http://", "https://", "s3://", "gs://", "gcs://", "az://", "hf://", "r2://", "file:")


def compress(
    table: Any, columns: Iterable[str] | None = None, *, count: str = "count", weights: str = ""
) -> Any:
    """Count equal rows of a table once, to be used with `weights=` or `freq_weights=`.

    A fit to the distinct rows with these counts has the estimates and the standard errors of the
    fit to all rows; robust ones too, and clustered ones if the cluster is one of the columns. Files
    and Arrow tables are counted by DuckDB, so that they may be larger than memory.

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
    library = type(table).__module__.partition(".")[0]
    if library == "polars":
        table, counted_by = table.lazy(), _by_polars
        there = table.collect_schema().names()
    else:
        is_pandas = library == "pandas" and hasattr(table, "columns")
        table, counted_by = (table, _by_pandas) if is_pandas else (_relation(table), _by_duckdb)
        there = list(table.columns)
    names = [name for name in there if name != weights] if columns is None else columns
    names = [names] if isinstance(names, str) else list(names)
    _check_names(there, names, count, weights)
    counted = counted_by(table, names, count, weights)
    rows, wrong = float(counted[count].sum()), int(counted[WRONG].sum())
    if not len(counted):
        raise ValueError("The table is empty.")
    if wrong:
        raise ValueError(f"{wrong} of the counts {weights!r} are missing, infinite or negative.")
    if rows > MOST_COUNT:
        raise ValueError(f"The counts {weights!r} add up to {rows:.3g}, beyond whole numbers.")
    if rows >= 100 and len(counted) > HARDLY * rows:
        values = {name: len(counted[name].unique()) for name in names}
        widest = max(names, key=values.__getitem__)
        warn(
            f"{len(counted):,} of {rows:,.0f} rows are distinct, so that counting them gains "
            f"little. The column {widest!r} alone has {values[widest]:,} values: leave it out with "
            "`columns=` if the model does not use it.",
            ImplicitDeltaWarning,
        )
    return counted[[*names, count]]


def _by_pandas(table: Any, names: list[str], count: str, weights: str) -> Any:
    _check_numbers(not weights or table[weights].dtype.kind in "biuf", weights)
    given = table[weights].to_numpy(dtype=np.float64) if weights else np.ones(len(table))
    numbers = {count: given, WRONG: ~np.isfinite(given) | (given < 0)}
    groups = table[names].assign(**numbers).groupby(names, dropna=False, observed=True)
    found = groups.sum().reset_index()
    return found.astype({**table[names].dtypes, count: _whole(found[count])})


def _by_polars(table: Any, names: list[str], count: str, weights: str) -> Any:
    """Count with polars itself; lazy frames stay lazy until the end."""
    polars = optional("polars", "compress")
    _check_numbers(not weights or table.collect_schema()[weights].is_numeric(), weights)
    given = polars.col(weights) if weights else polars.lit(1)
    right = (given.cast(polars.Float64).is_finite() & (given >= 0)).fill_null(value=False)
    rows = table.select(*names, given.alias(count), right.not_().alias(WRONG))
    found = rows.group_by(names).agg(polars.col(count, WRONG).sum()).sort(names).collect()
    whole = {"int64": polars.Int64, "float64": polars.Float64}[_whole(found[count].to_numpy())]
    return found.with_columns(polars.col(count).cast(whole))


def _by_duckdb(table: Any, names: list[str], count: str, weights: str) -> Any:
    """Count by DuckDB, which keeps what does not fit into memory on disk."""
    types = dict(zip(table.columns, map(str, table.types), strict=True))
    _check_numbers(not weights or _is_number(types[weights]), weights)
    some, given = ", ".join(map(_quoted, names)), _quoted(weights) if weights else "1"
    wrong = f"count_if(({given} >= 0 and isfinite({given}::double)) is not true)"
    query = f"select {some}, sum({given}), {wrong} from rows group by {some} order by {some}"
    found = table.query("rows", query).df().set_axis([*names, count, WRONG], axis=1)
    return found.astype({count: _whole(found[count])})


def _check_numbers(are: bool, weights: str) -> None:
    if not are:
        raise TypeError(f"The column of weights {weights!r} holds no numbers.")


def _whole(counts: Any) -> str:
    """Name the type of counts: whole numbers, unless there are fractions or none that are right."""
    whole = np.all(counts == np.round(counts)) and abs(counts).sum() <= MOST_COUNT
    return "int64" if whole else "float64"


def _check_names(there: list[str], names: list[str], count: str, weights: str) -> None:
    if not all(isinstance(name, str) for name in there):
        raise TypeError("compress needs columns with names: `table.rename(columns=str)`.")
    for name in [*names, weights] if weights else names:
        if name not in there:
            raise ValueError(f"The table has no column {name!r}; it has {', '.join(there)}.")
    if not names:
        raise ValueError("compress needs at least one column.")
    if weights in names:
        raise ValueError(f"The column of weights {weights!r} cannot be one of `columns`.")
    _refuse_twice("column", names)
    if not count or count in names:
        raise ValueError(
            f"count={count!r} names the new column, and the table has {', '.join(names)}: give "
            f'another name, `count="copies"`, or, if it holds counts already, `weights={count!r}`.'
        )


def _refuse_twice(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"The {what} {twice[0]!r} is there twice.")


def _relation(table: Any) -> Any:
    """Open an Arrow table or files in DuckDB."""
    duckdb = optional("duckdb", "compress")
    if type(table).__name__ == "DuckDBPyRelation":
        return table
    database = duckdb.connect(":memory:", config=OFFLINE)
    entries = list(table) if isinstance(table, list | tuple) else [table]
    if all(isinstance(path, str | os.PathLike) for path in entries):
        return _of_files(database, [path for entry in entries for path in _files(os.fspath(entry))])
    if type(table).__module__.partition(".")[0] == "pyarrow":
        return database.from_arrow(table)
    raise TypeError(
        f"compress needs a data frame, an Arrow table or paths of Parquet or CSV files, and got "
        f"{type(table).__name__}. Of an array: `np.unique(rows, axis=0, return_counts=True)`; of a "
        "dict: `pandas.DataFrame(table)`."
    )


def _files(path: str) -> list[str]:
    """Expand a folder or a pattern, in sorted order; a path that exists is no pattern."""
    if path.startswith(REMOTE):
        raise ValueError(
            f"compress reads local files, and {path!r} is elsewhere. Open it with DuckDB yourself "
            '(`duckdb.sql("from read_parquet(...)")`) and give the relation.'
        )
    if os.path.isdir(path):
        found = [str(p) for end in KINDS["parquet"] for p in Path(path).rglob(f"*{end}")]
    else:
        found = [path] if os.path.isfile(path) else glob.glob(path, recursive=True)
    if not found:
        raise FileNotFoundError(f"{path!r} is no file, matches none, and has no Parquet files.")
    return sorted(found)


def _of_files(database: Any, paths: list[str]) -> Any:
    """Stack files of one kind with the same columns, in any order; numbers may be of any type."""
    if not paths:
        raise ValueError("compress got an empty list of paths.")
    _refuse_twice("path", paths)
    ends = KINDS["parquet"] if paths[0].lower().endswith(KINDS["parquet"]) else KINDS["csv"]
    read = database.read_parquet if ends == KINDS["parquet"] else database.read_csv
    known: dict[str, str] = {}
    for path in paths:
        if not path.lower().endswith(ends):
            raise ValueError(f"{path!r} is neither Parquet nor CSV by name, or not of one kind.")
        found = read(glob.escape(path))
        types = dict(zip(found.columns, map(str, found.types), strict=True))
        known = known or types
        if set(types) != set(known):
            raise ValueError(
                f"{path} has the columns {', '.join(types)}, and {paths[0]} has "
                f"{', '.join(known)}: compress takes files with the same columns and a header."
            )
        for name, kind in types.items():
            if kind != known[name] and not (_is_number(kind) and _is_number(known[name])):
                raise ValueError(
                    f"{name!r} is {kind} in {path} and {known[name]} in {paths[0]}: write it as "
                    "one type."
                )
    return read([glob.escape(path) for path in paths], union_by_name=True)


def _is_number(kind: str) -> bool:
    whole = "INT" in kind and kind != "INTERVAL"
    return whole or kind.startswith(("DOUBLE", "FLOAT", "DECIMAL"))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

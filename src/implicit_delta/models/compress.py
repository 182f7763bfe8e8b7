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
    if not count:
        raise ValueError(f"count is the name of a column, not {count!r}.")
    library = type(table).__module__.partition(".")[0]
    if library == "polars":
        counted = _of_polars(table.lazy(), columns, count, weights)
    elif library == "pandas" and hasattr(table, "columns"):
        counted = _of_pandas(table, columns, count, weights)
    else:
        counted = _of_relation(_relation(table), columns, count, weights)
    names = [name for name in counted.columns if name != count]
    _check_gain(
        float(counted[count].sum()), {n: len(counted[n].unique()) for n in names}, len(counted)
    )
    return counted


def _of_pandas(table: Any, columns: Any, count: str, weights: str) -> Any:
    there = list(table.columns)
    if not all(isinstance(name, str) for name in there):
        raise TypeError("compress needs columns with names: `table.rename(columns=str)`.")
    names = _chosen(there, columns, count, weights)
    groups = table.groupby(names, dropna=False, observed=True, sort=True)
    if not weights:
        counted = groups.size().reset_index(name=count)
    else:
        given = table[weights]
        _check_numbers(given.dtype.kind in "biuf", weights)
        values = given.to_numpy(dtype=np.float64)
        wrong = ~np.isfinite(values) | (values < 0)
        _check_counts(int(wrong.sum()), values.sum(), weights)
        counted = groups[weights].sum().reset_index().rename(columns={weights: count})
    _check_rows(len(counted))
    return counted.astype({**{n: table[n].dtype for n in names}, count: _whole(counted[count])})


def _of_polars(table: Any, columns: Any, count: str, weights: str) -> Any:
    """Count with polars itself; lazy frames stay lazy until the end."""
    polars = optional("polars", "compress")
    names = _chosen(table.collect_schema().names(), columns, count, weights)
    given = polars.col(weights) if weights else polars.lit(1)
    wrong = (given.is_null() | given.is_nan() | given.is_infinite() | (given < 0)).sum()
    own = [given.sum() if weights else polars.len(), wrong if weights else polars.lit(0)]
    wide = table.group_by(names).agg(own[0].alias(count), own[1].alias("?"))
    counted = wide.sort(names).collect()
    _check_rows(len(counted))
    _check_counts(int(counted["?"].sum()), float(counted[count].sum()), weights)
    return counted.drop("?").with_columns(polars.col(count).cast(polars.Int64))


def _of_relation(relation: Any, columns: Any, count: str, weights: str) -> Any:
    """Count by DuckDB, which keeps what does not fit into memory on disk."""
    names = _chosen(list(relation.columns), columns, count, weights)
    some = ", ".join(map(_quoted, names))
    number, wrong = "count(*)", "0"
    if weights:
        kind = str(relation.types[relation.columns.index(weights)])
        _check_numbers(_is_number(kind), weights)
        given = _quoted(weights)
        number = f"sum({given})"
        wrong = f"count_if({given} is null or not isfinite({given}::double) or {given} < 0)"
    query = f"select {some}, {number}, {wrong} from rows group by {some} order by {some}"
    counted = relation.query("rows", query).df()
    counted.columns = [*names, count, "?"]
    _check_rows(len(counted))
    _check_counts(int(counted["?"].sum()), float(counted[count].sum()), weights)
    return counted.drop(columns="?").astype({count: _whole(counted[count])})


def _relation(table: Any) -> Any:
    duckdb = optional("duckdb", "compress")
    if type(table).__name__ == "DuckDBPyRelation":
        return table
    database = duckdb.connect(":memory:", config=OFFLINE)
    listed = isinstance(table, list | tuple)
    paths = list(table) if listed else [table]
    if all(isinstance(path, str | os.PathLike) for path in paths):
        return _of_files(database, [path for entry in paths for path in _files(os.fspath(entry))])
    if type(table).__module__.partition(".")[0] == "pyarrow":
        return database.from_arrow(table)
    raise TypeError(
        f"compress needs a data frame, an Arrow table or paths of Parquet or CSV files, and got "
        f"{type(table).__name__}. Of an array: `np.unique(rows, axis=0, return_counts=True)`; of a "
        "dict: `pandas.DataFrame(table)`; of a Dask frame: its files, or "
        "`ddf.groupby(columns, dropna=False).size().compute()`."
    )


def _of_files(database: Any, paths: list[str]) -> Any:
    if not paths:
        raise ValueError("compress got an empty list of paths.")
    _refuse_twice("path", paths)
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise ValueError("compress takes files of one kind at a time: Parquet or CSV.")
    read = database.read_parquet if kinds == {"parquet"} else database.read_csv
    schemas = [_schema(read(glob.escape(path))) for path in paths]
    for path, schema in zip(paths, schemas, strict=True):
        _check_alike(paths[0], schemas[0], path, schema)
    return read([glob.escape(path) for path in paths], union_by_name=True)


def _schema(relation: Any) -> dict[str, str]:
    return dict(zip(relation.columns, map(str, relation.types), strict=True))


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
    whole = "INT" in kind and kind != "INTERVAL"
    return whole or kind.startswith(("DOUBLE", "FLOAT", "DECIMAL"))


def _files(path: str) -> list[str]:
    """Expand a folder or a pattern, in sorted order; a path that exists is no pattern."""
    if path.startswith(REMOTE):
        raise ValueError(
            f"compress reads local files, and {path!r} is elsewhere. Open it with DuckDB yourself "
            '(`duckdb.sql("from read_parquet(...)")`) and give the relation.'
        )
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        found = sorted(str(p) for end in KINDS["parquet"] for p in Path(path).rglob(f"*{end}"))
    else:
        found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise FileNotFoundError(f"{path!r} is no file, matches none, and has no Parquet files.")
    return found


def _kind(path: str) -> str:
    for kind, ends in KINDS.items():
        if path.lower().endswith(ends):
            return kind
    raise ValueError(f"{path!r} is neither Parquet nor CSV by name: {KINDS}.")


def _chosen(there: list[str], columns: Any, count: str, weights: str) -> list[str]:
    """Names of the columns to count by, checked."""
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
    _refuse_twice("column", names)
    if count in names:
        raise ValueError(
            f'The table has a column {count!r}: name the new one otherwise, `count="copies"`, or, '
            f"if it holds counts already, `weights={count!r}`."
        )
    return names


def _refuse_twice(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"The {what} {twice[0]!r} is there twice.")


def _check_numbers(are: bool, weights: str) -> None:
    if not are:
        raise TypeError(f"The column of weights {weights!r} holds no numbers.")


def _check_rows(groups: int) -> None:
    if not groups:
        raise ValueError("The table is empty.")


def _check_counts(wrong: int, total: float, weights: str) -> None:
    if wrong:
        raise ValueError(f"{wrong} of the counts {weights!r} are missing, infinite or negative.")
    if total > MOST_COUNT:
        raise ValueError(f"The counts {weights!r} add up to {total:.3g}, beyond whole numbers.")


def _whole(counts: Any) -> str:
    return "int64" if np.all(counts == np.round(counts)) else "float64"


def _check_gain(rows: float, values: dict[str, int], groups: int) -> None:
    if rows < 100 or groups <= HARDLY * rows:
        return
    widest = max(values, key=lambda name: values[name])
    warn(
        f"{groups:,} of {rows:,.0f} rows are distinct, so that counting them gains little. "
        f"The column {widest!r} alone has {values[widest]:,} values: leave it out with "
        "`columns=` if the model does not use it.",
        ImplicitDeltaWarning,
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

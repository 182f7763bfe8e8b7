"""Records on disk: rows of a CSV file (gzipped if its name ends in .gz), and runs that resume."""

import csv
import gzip
import hashlib
import os
from itertools import chain
from pathlib import Path
from time import monotonic, perf_counter

from joblib import Parallel, delayed
from tqdm import tqdm

SAVE_EVERY = 20  # seconds


def save_records(path, rows):
    """Write dictionaries with any keys as one table; the file is replaced as a whole."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(chain.from_iterable(rows)))
    partial = path.with_name(f".{path.name}")
    with _open(partial, "wt", zipped=path.suffix == ".gz") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_write(row.get(column, "")) for column in columns] for row in rows)
    os.replace(partial, path)


def load_records(path):
    """Read them back, numbers as numbers; a file that does not exist has no rows."""
    path = Path(path)
    if not path.exists():
        return []
    with _open(path, "rt", zipped=path.suffix == ".gz") as file:
        rows = csv.reader(file)
        columns = next(rows)
        return [
            {column: _read(cell) for column, cell in zip(columns, row, strict=True) if cell}
            for row in rows
        ]


def save_picture(figure, path):
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def resume(compute, jobs, keys, *, path=None, settings="", n_jobs=1, label=""):
    """Rows of all jobs; those found at `path` with the same settings are not computed again.

    Parameters
    ----------
    compute : callable
        ``compute(*job)`` returns a list of rows.
    jobs : list of tuple
        Numbers and strings, one for each of the keys.
    keys : tuple of str
        Columns that name the job in every row.
    settings : object
        Everything else the rows depend on; they carry a fingerprint of its repr.

    The first row of a job has its seconds, `took`, so that the time of a study that was resumed is
    that of all of its parts.
    """
    fingerprint = "s" + hashlib.sha256(repr(settings).encode()).hexdigest()[:8]
    wanted = set(jobs)
    rows = [
        row
        for row in (load_records(path) if path else [])
        if row.get("settings") == fingerprint and _key(row, keys) in wanted
    ]
    done = {_key(row, keys) for row in rows}
    todo = [job for job in jobs if job not in done]
    calls = (delayed(_labelled)(compute, job, keys, fingerprint) for job in todo)
    finished = Parallel(n_jobs=n_jobs, return_as="generator")(calls)
    saved = monotonic()
    try:
        for new in tqdm(finished, desc=label, total=len(todo), disable=not todo):
            rows += new
            if path and monotonic() - saved > SAVE_EVERY:
                save_records(path, rows)
                saved = monotonic()
    finally:
        if path and todo:
            save_records(path, rows)
    # as they are stored, rounded: what is made of them now is what is made of them later
    return load_records(path) if path and todo else rows


def _labelled(compute, job, keys, fingerprint):
    started, names = perf_counter(), dict(zip(keys, job, strict=True))
    rows = [{**names, **row, "settings": fingerprint} for row in compute(*job)]
    if rows:
        rows[0]["took"] = perf_counter() - started
    return rows


def _key(row, keys):
    return tuple(row[key] for key in keys)


def _open(path, mode, zipped):
    if zipped:
        return gzip.open(path, mode, encoding="utf-8", newline="")
    return open(path, mode, encoding="utf-8", newline="")


def _write(value):
    return f"{value:.5g}" if isinstance(value, float) else value


def _read(cell):
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            pass
    return cell

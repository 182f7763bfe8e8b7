"""How often intervals cover the truth, over all studies: ``python -m experiments.coverage``.

A study lives in one of the modules below, in its tuple ``STUDIES``. The table is stored in
``experiments/results/coverage.csv``; what an interrupted run has computed is kept in ``build``.
"""

import argparse
import inspect
from collections import defaultdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from experiments.coverage_study import CHUNK
from experiments.records import resume, save_records

MODULES = ("experiments.coverage_small_samples", "experiments.coverage_evaluations")
RESULTS = Path(__file__).parent / "results"
PARTS = Path(__file__).parents[1] / "build" / "coverage"


def studies():
    """All studies, by task and n."""
    found = [study for name in MODULES if find_spec(name) for study in import_module(name).STUDIES]
    by_name = {(study.task, study.n): study for study in found}
    if len(by_name) < len(found):
        raise ValueError("Two studies have the same task and n.")
    return by_name


def run(*, quick=False, n_jobs=2, results=RESULTS):
    """Compute what is missing and return the table, one row per task, n and method."""
    by_name, rows = studies(), []
    for (task, n), study in by_name.items():
        chunks = 1 if quick else study.replications // CHUNK
        parts = resume(
            _chunk,
            [(task, n, number) for number in range(chunks)],
            ("task", "n", "chunk"),
            path=PARTS / f"{task}_{n}.csv".replace(" ", "_"),
            settings=(study, CHUNK, _source(study)),
            n_jobs=n_jobs,
            label=f"{task}, n = {n}",
        )
        rows += _table(study, parts, chunks * CHUNK)
    save_records(results / "coverage.csv", rows)
    return rows


def _chunk(task, n, number):
    return studies()[task, n].chunk(number)


def _source(study):
    """The code of the study: when it changes, the study is run again."""
    return inspect.getsource(inspect.getmodule(getattr(study.trial, "func", study.trial)))


def _table(study, parts, replications):
    covered, failed = defaultdict(int), defaultdict(int)
    for part in parts:
        covered[part["method"]] += part["covered"]
        failed[part["method"]] += part["failed"]
    for method, count in covered.items():
        share = count / replications
        yield {
            "task": study.task,
            "n": study.n,
            "method": method,
            "nominal": study.nominal,
            "covered": count,
            "replications": replications,
            "failed": failed[method],
            "coverage": share,
            "binomial_error": float(np.sqrt(share * (1 - share) / replications)),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one chunk of each study")
    parser.add_argument("--n-jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the table goes")
    options = parser.parse_args()
    for row in run(quick=options.quick, n_jobs=options.n_jobs, results=options.results):
        print(
            f"{row['task']:<44} n={row['n']:<6} {row['method']:<22} {row['nominal']:.0%} nominal "
            f"{row['coverage']:7.1%} +- {row['binomial_error']:.1%}"
        )


if __name__ == "__main__":
    main()

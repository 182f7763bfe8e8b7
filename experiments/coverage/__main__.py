"""Simulated coverage of intervals, over all studies: ``python -m experiments.coverage``.

A study is listed in one of the modules below, in its tuple ``STUDIES``. The table is stored in
``results/coverage/table.csv``; an interrupted run resumes from the counts in ``build/coverage``.
"""

import inspect
from collections import Counter, defaultdict

import numpy as np

from experiments.command import TOP, command_parser, results_folder
from experiments.coverage import (
    bounds,
    equations,
    evaluations,
    limits,
    metrics,
    small_samples,
    standard_errors,
)
from experiments.coverage.study import CHUNK
from experiments.records import resume, save_records

STUDIES = (
    *small_samples.STUDIES,
    *standard_errors.STUDIES,
    *evaluations.STUDIES,
    *metrics.STUDIES,
    *equations.STUDIES,
    *bounds.STUDIES,
    *limits.STUDIES,
)
KEYS = ("task", "n", "chunk")
COUNTS = TOP / "build" / "coverage"


def main(arguments=None):
    parser = command_parser("experiments.coverage", __doc__.splitlines()[0])
    options = parser.parse_args(arguments)
    results = results_folder(options)
    for row in run(STUDIES, results, counts=COUNTS, quick=options.quick, n_jobs=options.jobs):
        print(
            f"{row['task']:<44} n={row['n']:<6} {row['method']:<22} {row['nominal']:.0%} nominal "
            f"{row['coverage']:7.1%} +- {row['binomial_error']:.1%}, warned {row['warned']:.0%}, "
            f"silent {row['silent_coverage']:.1%}"
        )


def run(studies, results, *, counts, quick=False, n_jobs=1):
    """Compute what is missing and return the table, one row per task, n and method."""
    if len({(study.task, study.n) for study in studies}) < len(studies):
        raise ValueError("Two studies have the same task and n.")
    rows = []
    for study in studies:
        chunks = 1 if quick else study.replications // CHUNK
        parts = resume(
            lambda task, n, number, study=study: study.chunk(number),
            [(study.task, study.n, number) for number in range(chunks)],
            KEYS,
            path=counts / f"{study.task}_{study.n}.csv".replace(" ", "_"),
            settings=(study, CHUNK, _source(study)),
            n_jobs=n_jobs,
            label=f"{study.task}, n = {study.n}",
        )
        rows += _table(study, parts, chunks * CHUNK)
    save_records(results / "coverage" / "table.csv", rows)
    return rows


def _source(study):
    """The code of the study: when it changes, the study is run again."""
    return inspect.getsource(inspect.getmodule(getattr(study.trial, "func", study.trial)))


def _table(study, parts, replications):
    totals = defaultdict(Counter)
    for part in parts:
        numbers = {name: part[name] for name in part if name not in ("method", *KEYS)}
        totals[part["method"]].update(numbers)
    for method, total in totals.items():
        share = total["covered"] / replications
        silent = total["silent_covered"] / total["silent"] if total["silent"] else np.nan
        yield {
            "task": study.task,
            "n": study.n,
            "method": method,
            "nominal": study.nominal,
            "covered": total["covered"],
            "replications": replications,
            "failed": total["failed"],
            "coverage": share,
            "binomial_error": float(np.sqrt(share * (1 - share) / replications)),
            "warned": total["warned"] / replications,
            "silent_coverage": silent,
        }


if __name__ == "__main__":
    main()

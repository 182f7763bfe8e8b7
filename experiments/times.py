"""Duration of each experiment: the sum over its jobs, in whichever runs they were computed."""

from experiments.records import load_records

RECORDS = {  # of each experiment: files beside the results, and the columns that name a job
    "one_d.fits": ("one_d/fits.csv.gz", ("task", "block")),
    "one_d.convergence": ("one_d/convergence.csv.gz", ("n", "resample")),
    "one_d.coverage": ("one_d/coverage.csv.gz", ("task", "data_set")),
    "one_d.coverage, public names": ("one_d/coverage_public.csv.gz", ("task", "data_set")),
    "one_d.lengths": ("one_d/lengths.csv.gz", ("data_set",)),
    "classification.costs": ("classification/records/*.csv", ("dataset", "part")),
    "vae.reconstruction": ("vae/reconstruction.csv", ("fraction", "repeat")),
    "fidelity": ("fidelity/*/*.csv*", ("chunk", "data_set")),
    "coverage": ("coverage/counts/*.csv", ("task", "n", "chunk")),
}


def whole_times(results):
    """Rows of minutes of one process, of the experiments of which there are records.

    `jobs` were timed; `untimed` are those of records from before times were kept, whose minutes are
    in no sum.
    """
    for experiment, (pattern, keys) in RECORDS.items():
        seconds, jobs, timed = [], set(), set()
        for path in sorted(results.glob(pattern)):
            for row in load_records(path):
                job = path, *(row.get(key) for key in keys)
                jobs.add(job)
                if "took" in row:
                    timed.add(job)
                    seconds.append(row["took"])
        if jobs:
            yield {
                "experiment": experiment,
                "minutes": sum(seconds) / 60,
                "jobs": len(seconds),
                "untimed": len(jobs - timed),
            }

"""Duration of each experiment: the sum over its jobs, in whichever runs they were computed."""

from experiments.records import load_records

RECORDS = {  # of each experiment, beside the results
    "one_d.fits": "one_d/fits.csv.gz",
    "one_d.convergence": "one_d/convergence.csv.gz",
    "one_d.coverage": "one_d/coverage.csv.gz",
    "one_d.lengths": "one_d/lengths.csv.gz",
    "classification.costs": "classification/records/*.csv",
    "vae.reconstruction": "vae/reconstruction.csv",
}


def whole_times(results):
    """Rows of minutes of one process and jobs, of the experiments of which there are records."""
    for experiment, pattern in RECORDS.items():
        rows = [row for path in sorted(results.glob(pattern)) for row in load_records(path)]
        jobs = [row["took"] for row in rows if "took" in row]
        if jobs:
            yield {"experiment": experiment, "minutes": sum(jobs) / 60, "jobs": len(jobs)}

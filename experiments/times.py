"""Duration of each experiment, kept beside its results for the report."""

from experiments.records import load_records, save_records


def note_time(results, experiment, seconds, jobs):
    """Keep the longest run of each experiment: a resumed one only reads what is there."""
    path = results / "times.csv"
    times = {row["experiment"]: row for row in load_records(path)}
    row = {"experiment": experiment, "minutes": seconds / 60, "jobs": jobs}
    times[experiment] = max(row, times.get(experiment, row), key=lambda run: run["minutes"])
    save_records(path, list(times.values()))

"""How long each experiment took, kept beside its results for the report."""

from experiments.records import load_records, save_records


def note_time(results, experiment, seconds, jobs):
    """Keep the longest run of each experiment: a resumed one only reads what is there."""
    path = results / "times.csv"
    times = {row["experiment"]: row for row in load_records(path)}
    minutes = max(seconds / 60, times.get(experiment, {}).get("minutes", 0.0))
    times[experiment] = {"experiment": experiment, "minutes": float(minutes), "jobs": jobs}
    save_records(path, list(times.values()))

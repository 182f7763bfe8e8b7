"""Figures in the words of the report, read from the records or the settings that made them."""

from experiments.records import load_records


def of_one_d(results, quick):
    from experiments.one_d import coverage, fits

    table = load_records(results / "one_d/coverage_table.csv")
    config = _chosen(coverage, quick)
    return {
        "fit_steps": _chosen(fits, quick).training.steps,
        "refit_steps": _chosen(fits, quick).training.refit_steps,
        "simulations": _chosen(fits, quick).simulations,
        "steps": config.training.steps,
        "data_sets": max((row["data_sets"] for row in table), default=0),
        "public": max((r["data_sets"] for r in table if r["method"] == "public"), default=0),
    }


def of_convergence(results, quick):
    records = load_records(results / "one_d/convergence.csv.gz")
    return {"resamples": len({row["resample"] for row in records})}


def of_lengths(results, quick):
    records = load_records(results / "one_d/lengths.csv.gz")
    steps = {row["steps"] for row in records}
    return of_one_d(results, quick) | {"shortest": min(steps), "longest": max(steps)}


def of_classification(results, quick):
    """Steps of a training as in the paper, and replicates of the bootstraps that are finished."""
    from experiments.classification import costs

    setting = dict(_chosen(costs, quick).settings)["vehicle"]
    records = [
        row
        for path in sorted((results / "classification/records").glob("*.csv"))
        for row in load_records(path)
    ]
    replicates = {
        row["dataset"]: len(str(row["draws"]).split())
        for row in records
        if row.get("method") == "warm bootstrap"
    }
    return {
        "paper_steps": setting.paper_steps,
        "replicates": ", ".join(f"{name} {count}" for name, count in replicates.items()),
    }


def of_vae(results, quick):
    from experiments.vae import reconstruction

    config = _chosen(reconstruction, quick)
    records = load_records(results / "vae/reconstruction.csv")
    drifts = [abs(row["drift"]) for row in records if "drift" in row]
    return {
        "drift": f"{min(drifts):.2g} to {max(drifts):.2g}" if drifts else "an unknown number of",
        "evaluated": reconstruction.EVALUATED,
        "repeats": len({row["repeat"] for row in records}),
        "steps": config.steps,
        "further_steps": config.further_steps,
    }


def _chosen(module, quick):
    return module.QUICK if quick else module.FULL

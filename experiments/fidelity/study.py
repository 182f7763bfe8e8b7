"""Run the study: retrainings, then columns, then the table; resume from what is recorded."""

from pathlib import Path
from typing import NamedTuple

from experiments.fidelity import columns, data, networks, questions, retrainings, training
from experiments.fidelity.page import publish
from experiments.fidelity.sources import source
from experiments.fidelity.table import cells
from experiments.records import load_records, resume


class Place(NamedTuple):
    """Folders of the records and of the trained networks, and whether a glance will do."""

    results: Path
    cache: Path
    quick: bool = False

    def retrainings(self, setting, kind):
        return self.results / kind / f"{setting.name}.csv.gz"

    def column(self, setting, column):
        return self.results / column / f"{setting.name}.csv"

    def jobs(self, numbers):
        """All of the numbers, or the first."""
        return [(number,) for number in (numbers[:1] if self.quick else numbers)]


def retrain(setting, kind, place, n_jobs=1):
    """Answers of all retrainings of one kind."""
    return resume(
        lambda chunk: retrainings.answers(setting, kind, chunk),
        place.jobs(retrainings.chunks(setting, kind)),
        ("chunk",),
        path=place.retrainings(setting, kind),
        settings=(setting, retrainings.CHUNK, source(data, networks, training, questions)),
        n_jobs=n_jobs,
        label=f"{kind}: {setting.name}",
    )


def ask(setting, column, place, again=False, n_jobs=1):
    """Standard errors by one column for the networks of the first data sets."""
    path = place.column(setting, column)
    if again:
        path.unlink(missing_ok=True)
    return resume(
        lambda number: columns.standard_errors(setting, column, number, place.cache),
        place.jobs(range(columns.data_sets(setting, column))),
        ("data_set",),
        path=path,
        settings=(setting, columns.COLUMNS[column], source(data, networks, training, questions)),
        n_jobs=n_jobs,
        label=f"{column}: {setting.name}",
    )


def table(settings, names, place):
    """Write the table of all settings that have their retrainings, and return its summary."""
    rows = []
    for setting in settings:
        retrained = {k: load_records(place.retrainings(setting, k)) for k in retrainings.KINDS}
        if len(retrained["data"]) > 1:
            answered = {name: load_records(place.column(setting, name)) for name in names}
            rows += cells(setting, retrained, answered)
    return publish(rows, (*names, "bootstrap"), place.results)

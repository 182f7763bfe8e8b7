"""Standard errors of networks over the spread of retrainings: ``python -m experiments.fidelity``.

Records are kept in ``results/fidelity``: what is there is not computed again, unless the code that
made it has changed. That of the library is not looked at: ``--columns default --again`` repeats one
column, in minutes, with the trained networks that are cached (``--cache DIR``).
"""

from pathlib import Path

import torch

from experiments.command import TOP, command_parser, results_folder
from experiments.fidelity import columns, retrainings, study
from experiments.fidelity.settings import SETTINGS

QUICK = 2  # settings
PEERS = ("laplace",)  # a column that another environment writes: see `peers.py`


def main(arguments=None):
    options = parser().parse_args(arguments)
    torch.set_num_threads(1)
    settings = SETTINGS[:QUICK] if options.quick else SETTINGS
    chosen = [s for s in settings if options.settings is None or s.name in options.settings]
    place = study.Place(results_folder(options) / "fidelity", options.cache, options.quick)
    for kind in retrainings.KINDS if options.retrain is None else options.retrain:
        for setting in chosen:
            study.retrain(setting, kind, place, n_jobs=options.jobs)
    for column in columns.COLUMNS if options.columns is None else options.columns:
        for setting in chosen:
            study.ask(setting, column, place, again=options.again, n_jobs=options.jobs)
    for row in study.table(settings, (*columns.COLUMNS, *PEERS), place):
        if not row["answered"]:
            continue
        print(
            f"{row['column']:<10} {row['question']:<9} "
            f"geometric mean {row['geometric_mean']:5.2f}, fair {row['fair']:4.0%}, "
            f"from {row['lowest']:.2f} to {row['highest']:.2f}, "
            f"{row['answered']} of {row['cells']} cells, {row['silently_wrong']} silently wrong"
        )


def parser():
    found = command_parser("experiments.fidelity", __doc__.splitlines()[0])
    found.add_argument("--cache", type=Path, default=TOP / "build" / "fidelity", metavar="DIR")
    found.add_argument("--retrain", nargs="*", choices=retrainings.KINDS, help="these kinds only")
    found.add_argument("--columns", nargs="*", choices=columns.COLUMNS, help="these columns only")
    found.add_argument("--settings", nargs="*", metavar="NAME", help="these settings only")
    found.add_argument("--again", action="store_true", help="repeat the columns")
    return found


if __name__ == "__main__":
    main()

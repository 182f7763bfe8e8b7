"""Reproduce the paper: ``python -m experiments [names] [--quick] [--data DIR] [--jobs N]``."""

from importlib import import_module
from pathlib import Path
from time import perf_counter

from experiments.command import command_parser, results_folder
from experiments.times import note_time

# The last two only read what the others have left.
NAMES = (
    "fits_1d", "convergence", "coverage_1d", "lengths_1d", "classification", "vae", "claims_1d",
    "report",
)  # fmt: skip


def main(arguments=None):
    options = _parser().parse_args(arguments)
    results = results_folder(options)
    results.mkdir(parents=True, exist_ok=True)
    for name in options.names or NAMES:
        started = perf_counter()
        print(f"{name}:", flush=True)
        import_module(f"experiments.{name}").reproduce(
            results,
            quick=options.quick,
            seed=options.seed,
            n_jobs=options.jobs,
            data=options.data,
        )
        seconds = perf_counter() - started
        note_time(results, name, seconds, options.jobs)
        print(f"{name}: {seconds:.0f} s", flush=True)
    print(f"Pictures and records are in {results}/")


def _parser():
    parser = command_parser("experiments", __doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--data", type=Path, metavar="DIR", help="where the data sets are")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    main()

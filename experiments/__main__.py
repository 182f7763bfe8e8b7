"""Reproduce the paper: ``python -m experiments [names] [--quick] [--data DIR] [--jobs N]``."""

from importlib import import_module
from pathlib import Path
from time import perf_counter

from experiments.command import command_parser, results_folder

# Claims and the report only read what the others have left.
NAMES = (
    "one_d.fits",
    "one_d.convergence",
    "one_d.coverage",
    "one_d.lengths",
    "one_d.claims",
    "classification.costs",
    "classification.claims",
    "vae.reconstruction",
    "vae.claims",
    "report.page",
)


def main(arguments=None):
    parser = _parser()
    options = parser.parse_args(arguments)
    results = results_folder(options)
    results.mkdir(parents=True, exist_ok=True)
    for name in _chosen(parser, options.names):
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
        print(f"{name}: {seconds:.0f} s", flush=True)
    print(f"Pictures and records are in {results}/")


def _parser():
    parser = command_parser("experiments", __doc__)
    choices = f"of {', '.join(NAMES)}; a folder such as one_d stands for all of its parts"
    parser.add_argument("names", nargs="*", metavar="name", help=choices)
    parser.add_argument("--data", type=Path, metavar="DIR", help="where the data sets are")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def _chosen(parser, given):
    """Names of experiments, in their order, for those and the folders that were given."""
    unknown = [g for g in given if not any(_belongs(name, g) for name in NAMES)]
    if unknown:
        parser.error(f"no experiment called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return [name for name in NAMES if not given or any(_belongs(name, g) for g in given)]


def _belongs(name, given):
    return given in (name, name.partition(".")[0])


if __name__ == "__main__":
    main()

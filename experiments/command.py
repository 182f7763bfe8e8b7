"""Options that the commands of the experiments share, and the folder of their results."""

import argparse
from pathlib import Path

TOP = Path(__file__).parents[1]
RESULTS = TOP / "results"


def command_parser(module, description):
    """Parser with the options of all commands: ``--quick``, ``--results DIR``, ``--jobs N``."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--quick", action="store_true", help="a small version of everything")
    parser.add_argument("--results", type=Path, metavar="DIR", help="where the output goes")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default 2)")
    return parser


def results_folder(options):
    """The folder that was given, else ``results``, or ``results/quick`` for the small version."""
    return options.results or (RESULTS / "quick" if options.quick else RESULTS)

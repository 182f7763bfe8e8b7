"""Run the benchmarks: ``python -m benchmarks [name ...] [--data DIR]``."""

import argparse
import os
from importlib import import_module
from pathlib import Path

HELPERS = {"__init__", "__main__", "calls_minuit", "calls_problems", "laplace_satellite", "timing"}
NAMES = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in HELPERS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--data", help="directory of the data sets (or IMPLICIT_DELTA_DATA)")
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark called {', '.join(sorted(unknown))}; there are {NAMES}")
    if options.data:
        os.environ["IMPLICIT_DELTA_DATA"] = options.data
    for name in options.names or NAMES:
        print(f"\n=== {name} ===", flush=True)
        try:
            import_module(f"benchmarks.{name}").main()
        except (ImportError, FileNotFoundError, SystemExit) as missing:
            print(f"left out: {missing}")


if __name__ == "__main__":
    main()

"""Run the benchmarks: ``python -m benchmarks [name ...] [--store [--again]] [--data DIR]``.

Without names: the table of all cases, today's numbers beside the stored ones. A name runs the cases
of that module, and its own report if it prints one. With ``--store`` each number is stored when it
is there, and those that the present code and packages have stored are not measured again: a run
that was interrupted goes on, unless ``--again`` starts it over.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType

from benchmarks.fingerprint import fingerprint
from benchmarks.stored import HEADER, PATH, kept, line, load, store
from benchmarks.timing import measure

HELPERS = {
    "__init__", "__main__", "calls_minuit", "calls_problems", "fingerprint", "laplace_satellite",
    "shown", "stored", "timing",
}  # fmt: skip
NAMES = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in HELPERS)


def main() -> None:
    options = arguments()
    if options.data:
        os.environ["IMPLICIT_DELTA_DATA"] = options.data
    modules = dict(importable(options.names or NAMES))
    keep = Keep(options.store, options.again)
    table(modules, options.match, keep)
    for name in options.names:
        if name in modules and hasattr(modules[name], "main"):
            print(f"\n=== {name} ===", flush=True)
            guarded(name, modules[name].main)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--match", default="", help="cases whose name contains this text")
    parser.add_argument("--store", action="store_true", help="write the numbers to results.json")
    parser.add_argument("--again", action="store_true", help="also what is stored of this code")
    parser.add_argument("--data", help="directory of the data sets (or IMPLICIT_DELTA_DATA)")
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark called {', '.join(sorted(unknown))}; there are {NAMES}")
    return options


def importable(names: list[str]) -> Iterator[tuple[str, ModuleType]]:
    for name in names:
        try:
            yield name, import_module(f"benchmarks.{name}")
        except ImportError as missing:
            print(f"{name} is left out: {missing}")


@dataclass(frozen=True)
class Keep:
    """Where numbers are stored, if at all, and whether all are measured again."""

    store: bool = False
    again: bool = False
    path: Path = PATH


def table(modules: dict[str, ModuleType], match: str, keep: Keep) -> None:
    """Measure and print case by case, and store each when it is there: a table takes minutes."""
    modules = {name: module for name, module in modules.items() if has_cases(module)}
    if modules:
        print(HEADER, flush=True)
    for name, module in modules.items():
        guarded(name, lambda module=module: measure_all(module, match, keep))


def has_cases(module: ModuleType) -> bool:
    """Whether `cases` can be called without arguments."""
    arguments = signature(module.cases).parameters.values() if hasattr(module, "cases") else [None]
    return all(a is not None and a.default is not a.empty for a in arguments)


def measure_all(module: ModuleType, match: str, keep: Keep) -> None:
    """Measure the cases of a module, but for numbers that it has stored."""
    code = fingerprint(module)
    for case in module.cases():
        if match not in case.name:
            continue
        rows = load(keep.path)
        if keep.store and not keep.again and kept(case, code, rows) is not None:
            print(f"{line(case, kept(case, code, rows), rows)}  (kept)", flush=True)
            continue
        try:
            measured = measure(case)
        except Exception as error:  # the other rows shall be measured
            print(f"{case.name:52} {type(error).__name__}: {error}"[:200], flush=True)
            continue
        print(line(case, measured.value, rows), flush=True)
        if keep.store:
            store([measured], code, keep.path)


def guarded(name: str, function) -> None:
    try:
        function()
    except (ImportError, FileNotFoundError, SystemExit) as missing:
        print(f"{name} is left out: {missing}")


if __name__ == "__main__":
    main()

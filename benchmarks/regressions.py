"""The 27 nonlinear regressions of NIST from both starts, beside lmfit: digits and calls."""

from functools import cache
from statistics import median

from benchmarks.nist.fits import measure_all
from benchmarks.nist.table import ratios, read
from benchmarks.timing import Case

found = cache(measure_all)


def unsolved():
    """Fits of 54 whose parameters or standard errors have fewer than six digits."""
    return sum(min(fit["digits"]) < 6 for both in found().values() for fit in both)


def calls():
    """Median calls of the residuals, fit and infer, over those of lmfit."""
    return median(ratios(found(), read()["lmfit"]))


def cases():
    yield Case("NIST regressions: not to 6 digits, of 54", 2, unsolved, unit="fits", before=7)
    yield Case("NIST regressions: calls", 2.5, calls, unit="x lmfit", before=5.4)


def main():
    for name, both in found().items():
        print(f"{name:12}", *(f"{f['digits']} in {f['calls']:5} calls   " for f in both))

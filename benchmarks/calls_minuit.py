"""Count iminuit's calls of the six likelihoods, and store them in calls_minuit.json.

Run from the top of the project in an environment of its own (``pip install iminuit scipy``):
``python -m benchmarks.calls_minuit``. MIGRAD, then HESSE, then MINOS at 95 % of the quantity; where
that is no parameter, it takes the place of one. MNCONTOUR is of the first two parameters.
"""

import json
import sys
from pathlib import Path

import iminuit
import numpy as np

from benchmarks.calls_problems import PROBLEMS, Counted, many_coefficients

POINTS = 48  # as many as `contour` has rays
STORED = Path(__file__).with_suffix(".json")


def fall(problem, swapped=False):
    point = problem.swap if swapped else np.asarray
    return Counted(lambda th: -float(np.sum(problem.loglik(point(np.asarray(th))))))


def migrad(function, start):
    minuit = iminuit.Minuit(function, np.array(start))
    minuit.errordef = iminuit.Minuit.LIKELIHOOD
    minuit.migrad()
    return minuit


def measure(problem):
    function = fall(problem)
    minuit = migrad(function, problem.start)
    fit, before = function.calls, function.calls
    minuit.hesse()
    hesse = function.since(before)
    theta, errors = list(minuit.values), list(minuit.errors)
    before = function.calls
    minuit.mncontour(0, 1, cl=0.95, size=POINTS)
    around = function.since(before)
    minuit.strategy = 2  # a closer look, for the numbers that are compared
    minuit.tol = 1e-4
    minuit.migrad()
    minuit.hesse()
    found = {"theta": list(minuit.values), "errors": list(minuit.errors)}
    if problem.swap is not None:
        function = fall(problem, swapped=True)
        start = np.array(theta)
        start[problem.index] = problem.psi(start)
        minuit = migrad(function, start)
    else:
        minuit = migrad(function, theta)
        minuit.hesse()
    before = function.calls
    minuit.minos(problem.index, cl=0.95)
    error = next(iter(minuit.merrors.values()))
    value = minuit.values[problem.index]
    return {
        "migrad": fit,
        "hesse": hesse,
        "minos": function.since(before),
        "mncontour": around,
        **found,
        "first": {"theta": theta, "errors": errors},
        "value": value,
        "interval": [value + error.lower, value + error.upper],
        "valid": bool(error.is_valid),
    }


def main():
    np.seterr(all="ignore")
    found = {name: measure(make()) for name, make in PROBLEMS.items()}
    wide = many_coefficients()
    function = fall(wide)
    minuit = migrad(function, wide.start)
    fit = function.calls
    minuit.hesse()
    found["many_coefficients"] = {"migrad": fit, "hesse": function.since(fit)}
    versions = {"iminuit": iminuit.__version__, "python": sys.version.split()[0]}
    STORED.write_text(json.dumps({"versions": versions, **found}, indent=1) + "\n")
    print(STORED.read_text())


if __name__ == "__main__":
    main()

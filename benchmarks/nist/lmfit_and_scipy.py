"""Fit the regressions of NIST by lmfit and SciPy: calls and digits, stored beside this file.

Run from the top of the project in an environment of its own (``pip install lmfit scipy``):
``python -m benchmarks.nist.lmfit_and_scipy``. Both with their defaults, which are the
Levenberg-Marquardt of MINPACK.
"""

import json
import sys
import warnings
from pathlib import Path

import lmfit
import numpy as np
import scipy
from scipy.optimize import curve_fit

from benchmarks.nist import PROBLEMS, digits

STORED = Path(__file__).with_suffix(".json")


class Counted:
    """Residuals that count their calls."""

    def __init__(self, problem):
        self.problem, self.calls = problem, 0

    def __call__(self, theta):
        self.calls += 1
        return self.problem.residuals(theta)


def by_lmfit(residuals, start):
    """Least squares of lmfit: parameters and standard errors, NaN where it has none."""
    parameters = lmfit.Parameters()
    for j, value in enumerate(start):
        parameters.add(f"b{j}", value=value)
    found = lmfit.minimize(lambda p: residuals(np.array([p[name].value for name in p])), parameters)
    answers = [(p.value, np.nan if p.stderr is None else p.stderr) for p in found.params.values()]
    return np.array(answers).T


def by_scipy(residuals, start):
    """Least squares of SciPy's `curve_fit`."""
    problem = residuals.problem
    theta, covariance = curve_fit(
        lambda x, *b: problem.y - residuals(np.array(b)), problem.x, problem.y, p0=start
    )
    return theta, np.sqrt(np.diag(covariance))


def measure(problem, start, fit):
    """Count the calls of a fit; digits of parameters and standard errors, 0 where it failed."""
    residuals = Counted(problem)
    try:
        theta, errors = fit(residuals, start)
    except (RuntimeError, ValueError) as error:
        return {"calls": residuals.calls, "digits": [0.0, 0.0], "error": str(error)[:60]}
    exact = digits(theta, problem.theta), digits(errors, problem.errors)
    return {"calls": residuals.calls, "digits": [round(number, 1) for number in exact]}


def main():
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    ways = {"lmfit": by_lmfit, "scipy": by_scipy}
    found = {
        name: {
            way: [measure(problem, start, fit) for start in problem.starts]
            for way, fit in ways.items()
        }
        for name, problem in PROBLEMS.items()
    }
    versions = {"lmfit": lmfit.__version__, "scipy": scipy.__version__}
    versions |= {"numpy": np.__version__, "python": sys.version.split()[0]}
    STORED.write_text(json.dumps({"versions": versions, "problems": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Fit the regressions of NIST from both starts: digits of the answers, and calls of the residuals.

``python -m benchmarks.nist.fits`` stores them in fits.json, for the table of the site. The fits of
lmfit and SciPy beside them are those of `benchmarks.nist.lmfit_and_scipy`.
"""

import json
import warnings
from pathlib import Path

import implicit_delta as idm
from benchmarks.nist import PROBLEMS, digits
from benchmarks.stored import versions

STORED = Path(__file__).with_suffix(".json")


class Counted:
    """Residuals that count their calls."""

    def __init__(self, problem):
        self.problem, self.calls = problem, 0

    def __call__(self, theta):
        self.calls += 1
        return self.problem.residuals(theta)


def measure(problem, start):
    """Fit, then infer: digits of the parameters and of the standard errors, and the calls."""
    residuals = Counted(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = idm.from_residuals(residuals, start=start)
            fit = residuals.calls
            errors = idm.infer(model, idm.parameters).standard_error
        except (idm.ImplicitDeltaError, ValueError) as error:
            return {"calls": residuals.calls, "digits": [0.0, 0.0], "error": str(error)[:60]}
    exact = digits(model.theta, problem.theta), digits(errors, problem.errors)
    return {
        "fit": fit,
        "calls": residuals.calls,
        "digits": [round(number, 1) for number in exact],
    }


def measure_all():
    """Fit all of them, a dict by name with a list of two."""
    return {
        name: [measure(problem, start) for start in problem.starts]
        for name, problem in PROBLEMS.items()
    }


def main():
    stored = {"versions": versions(), "problems": measure_all()}
    STORED.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Calls of a log-likelihood without derivatives: fit, infer and profile beside iminuit's.

Run with ``python -m benchmarks.calls``. iminuit's counts were made by ``calls_minuit`` in an
environment of its own.
"""

import json
import warnings
from pathlib import Path

import implicit_delta as idm
from benchmarks.calls_problems import PROBLEMS, Counted

MINUIT = Path(__file__).with_name("calls_minuit.json")
AIMS = {"fit": ("migrad", 3), "infer": ("hesse", 4), "profile": ("minos", 4)}


def measure(problem):
    """Count calls: fit from the start, infer and profile of the fit, infer of a theta alone."""
    loglik = Counted(problem.loglik)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = idm.from_loglik(loglik, start=problem.start)
        fit = before = loglik.calls
        estimate = idm.infer(model, problem.psi)
        infer, before = loglik.since(before), loglik.calls
        profile = idm.profile(model, problem.psi)
        walk = loglik.since(before)
        given = idm.from_loglik(loglik, model.theta)
        before = loglik.calls
        idm.infer(given, problem.psi)
        afresh = loglik.since(before)
        parameters = idm.infer(model, idm.parameters)
    return {
        "fit": fit,
        "infer": infer,
        "profile": walk,
        "afresh": afresh,
        "theta": model.theta.tolist(),
        "errors": parameters.standard_error.tolist(),
        "value": estimate.value,
        "error": estimate.standard_error,
        "interval": list(profile.interval),
    }


def main():
    stored = json.loads(MINUIT.read_text())
    print("Calls of the log-likelihood, iminuit's beside")
    print("(! beyond 3 x MIGRAD, 4 x HESSE or 4 x MINOS)")
    print(f"{'':32}{'fit':>15}{'infer':>15}{'profile':>15}{'infer(theta)':>15}")
    for name, make in PROBLEMS.items():
        problem = make()
        found, peer = measure(problem), stored[name]
        cells = [
            f"{found[ours]} / {peer[theirs]}{'!' if found[ours] > most * peer[theirs] else ' '}"
            for ours, (theirs, most) in AIMS.items()
        ]
        print(f"{problem.name:32}" + "".join(f"{c:>15}" for c in cells) + f"{found['afresh']:>12}")


if __name__ == "__main__":
    main()

"""Calls of a log-likelihood without derivatives: fit, infer, profile and contour beside iminuit's.

Run with ``python -m benchmarks.calls``. iminuit's counts were made by ``calls_minuit`` in an
environment of its own. Least squares beside SciPy's `curve_fit`.
"""

import json
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import curve_fit

import implicit_delta as idm
from benchmarks.calls_problems import CURVES, PROBLEMS, Counted

MINUIT = Path(__file__).with_name("calls_minuit.json")
AIMS = {"fit": ("migrad", 3), "infer": ("hesse", 4), "profile": ("minos", 4)}
AROUND, SQUARES = 3, 5  # times MNCONTOUR, and times curve_fit


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


def around(problem, rays=48):
    """Count the calls of a contour of the first two parameters; with its points."""
    loglik = Counted(problem.loglik)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = idm.from_loglik(loglik, start=problem.start)
        before = loglik.calls
        region = idm.contour(model, lambda th: th[:2], rays=rays)
    return loglik.since(before), region.points()


def fit_curve(curve):
    """Count the calls of both fits; with parameters and standard errors of both."""
    y, ours, theirs = curve.y, Counted(curve.function), Counted(curve.function)
    model = idm.from_residuals(lambda th: y - ours(curve.x, *th), start=curve.start)
    fit = ours.calls
    theta, covariance = curve_fit(theirs, curve.x, y, p0=curve.start)
    errors = idm.infer(model, idm.parameters).standard_error
    return (fit, model.theta, errors), (theirs.calls, theta, np.sqrt(np.diag(covariance)))


def main():
    stored = json.loads(MINUIT.read_text())
    print("Calls of the log-likelihood, iminuit's beside")
    print("(! beyond 3 x MIGRAD, 4 x HESSE or 4 x MINOS)")
    print(f"{'':32}{'fit':>15}{'infer':>15}{'profile':>15}{'infer(theta)':>15}{'contour':>15}")
    for name, make in PROBLEMS.items():
        problem = make()
        found, peer = measure(problem), stored[name]
        cells = [
            f"{found[ours]} / {peer[theirs]}{'!' if found[ours] > most * peer[theirs] else ' '}"
            for ours, (theirs, most) in AIMS.items()
        ]
        calls, peers = around(problem)[0], peer["mncontour"]
        last = f"{calls} / {peers}{'!' if calls > AROUND * peers else ' '}"
        columns = "".join(f"{c:>15}" for c in cells)
        print(f"{problem.name:32}{columns}{found['afresh']:>12}{last:>18}")
    print("Calls of a curve, curve_fit's beside")
    for curve in CURVES.values():
        ours, theirs = fit_curve(curve)
        print(f"{curve.name:32}{ours[0]:>8} / {theirs[0]}")


if __name__ == "__main__":
    main()

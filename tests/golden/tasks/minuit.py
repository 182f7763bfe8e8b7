"""Three tasks of scientists by iminuit: MIGRAD, HESSE, MINOS, and functions of the parameters.

Run ``python minuit.py`` in an environment of its own (``pip install iminuit numpy scipy``); it
writes ``minuit.json`` beside itself, with the data and the versions. The negative log-likelihoods
are written here a second time, as iminuit wants them. MINOS gives limits of parameters only: for a
function of them it takes the place of one. HESSE's errors are off by 1e-3, with an ODE solver by up
to 2e-2 (`hesse`); those stored come from the Hessian by Richardson's extrapolation. With the ODE it
is held against that of the closed-form solution.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from iminuit import Minuit
from scipy.integrate import solve_ivp
from scipy.stats import norm

LEVEL = 0.95
MIGRAD = 1e-3  # tolerance: 1e-3 of an error, finished by Newton's method
MINOS = 0.01  # tolerance: it fails for tighter ones
HESSE = 2e-2  # how far HESSE may be from the exact errors
LOW, HIGH = 4.0, 7.0  # the window of the peak
# Minutes between eruptions of Old Faithful, R's `faithful`.
WAITING = np.fromstring(
    """
    79 54 74 62 85 55 88 85 51 85 54 84 78 47 83 52 62 84 52 79 51 47
    78 69 74 83 55 76 78 79 73 77 66 80 74 52 48 80 59 90 80 58 84 58
    73 83 64 53 82 59 75 90 54 80 54 83 71 64 77 81 59 84 48 82 60 92
    78 78 65 73 82 56 79 71 62 76 60 78 76 83 75 82 70 65 73 88 76 80
    48 86 60 90 50 78 63 72 84 75 51 82 62 88 49 83 81 47 84 52 86 81
    75 59 89 79 59 81 50 85 59 87 53 69 77 56 88 81 45 82 55 90 45 83
    56 89 46 82 51 86 53 79 81 60 82 77 76 59 80 49 96 53 77 77 65 81
    71 70 81 93 53 89 45 86 58 78 66 76 63 88 52 93 49 57 77 68 81 81
    73 50 85 74 55 77 83 83 51 78 84 46 83 55 81 57 76 84 77 81 87 77
    51 78 60 82 91 53 78 46 77 84 49 83 71 80 49 75 64 76 53 94 55 76
    50 82 54 75 78 79 78 78 70 79 70 54 86 50 90 54 54 77 79 64 75 47
    86 63 85 82 57 82 67 74 54 83 73 73 88 80 71 83 56 79 78 84 58 83
    43 60 75 81 46 90 46 74
    """,
    sep=" ",
)


def main():
    tasks = {"peak": peak(), "pharmacokinetics": pharmacokinetics(), "mixture": mixture()}
    versions = {name: version(name) for name in ("iminuit", "numpy", "scipy")}
    record = {"versions": versions, "cases": tasks}
    Path(__file__).with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    for name, task in tasks.items():
        print(name, task["value"], task["standard_error"], task["interval"], task["hesse"])


def peak():
    """Events with a mass: a normal peak on an exponential, both cut to a window, extended."""
    rng = np.random.default_rng(3)
    background = LOW + rng.exponential(1.5, size=3000)
    kept = background[background < HIGH][:1000]
    x = np.concatenate([rng.normal(5.3, 0.15, size=150), kept]).round(4)

    def nll(S, B, mu, sigma, tau):
        inside = norm.cdf(HIGH, mu, sigma) - norm.cdf(LOW, mu, sigma)
        signal = norm.pdf(x, mu, sigma) / inside
        fall = np.exp(-(x - LOW) / tau) / tau / (1 - np.exp(-(HIGH - LOW) / tau))
        return S + B - np.sum(np.log(S * signal + B * fall))

    start = {"S": 120.0, "B": 1000.0, "mu": 5.25, "sigma": 0.15, "tau": 1.3}
    derived = {"purity": lambda S, B, mu, sigma, tau: S / (S + B)}
    swapped = {"purity": (lambda p, B, mu, sigma, tau: (p * B / (1 - p), B, mu, sigma, tau), "S")}
    return task(nll, start, {"x": x}, derived, ["S", "sigma"], swapped)


def pharmacokinetics():
    """One oral dose, one compartment, by an ODE solver; log-normal errors."""
    hours = np.array([0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24])
    dose, rng = 100.0, np.random.default_rng(5)

    def amount(ka, ke):
        flow = np.array([[-ka, 0], [ka, -ke]])
        options = {"t_eval": hours, "rtol": 1e-10, "atol": 1e-12, "method": "DOP853"}
        return solve_ivp(lambda t, a: flow @ a, (0, 24), [dose, 0], **options).y[1]

    y = (amount(1.2, 0.15) / 20 * np.exp(0.15 * rng.normal(size=hours.size))).round(4)

    def nll(log_ka, log_ke, log_V, log_s):
        mean = np.log(amount(np.exp(log_ka), np.exp(log_ke))) - log_V
        return -np.sum(norm.logpdf(np.log(y), mean, np.exp(log_s)))

    def closed(log_ka, log_ke, log_V, log_s):
        ka, ke = np.exp([log_ka, log_ke])
        left = dose * ka / (ka - ke) * (np.exp(-ke * hours) - np.exp(-ka * hours))
        return -np.sum(norm.logpdf(np.log(y), np.log(left) - log_V, np.exp(log_s)))

    start = {"log_ka": 0.0, "log_ke": -1.5, "log_V": 2.7, "log_s": -1.5}
    derived = {
        "half_life": lambda log_ka, log_ke, log_V, log_s: np.log(2) / np.exp(log_ke),
        "clearance": lambda log_ka, log_ke, log_V, log_s: np.exp(log_ke + log_V),
    }
    swapped = {
        "half_life": (lambda ka, psi, V, s: (ka, np.log(np.log(2) / psi), V, s), "log_ke"),
        "clearance": (lambda ka, ke, psi, s: (ka, ke, np.log(psi) - ke, s), "log_V"),
    }
    data = {"hours": hours, "concentration": y}
    # bounds, for MIGRAD tries rates that no solver can follow
    window = {"log_ka": (-3, 3), "log_ke": (-6, 1), "log_V": (-1, 7), "log_s": (-5, 2)}
    solved = task(nll, start, data, derived, ["log_ka"], swapped, window)
    theta = np.array([solved["value"][name] for name in start])
    errors = np.array([solved["standard_error"][name] for name in start])
    exact = np.linalg.inv(hessian(lambda t: closed(*t), theta, errors))
    if not np.allclose(np.sqrt(np.diag(exact)), errors, rtol=1e-5):
        raise SystemExit("The Hessian of the ODE is not that of its solution.")
    return solved


def mixture():
    """Waiting times of two kinds."""

    def nll(logit, m1, m2, log_s1, log_s2):
        share = 1 / (1 + np.exp(-logit))
        first = share * norm.pdf(WAITING, m1, np.exp(log_s1))
        return -np.sum(np.log(first + (1 - share) * norm.pdf(WAITING, m2, np.exp(log_s2))))

    start = {"logit": -0.5, "m1": 55.0, "m2": 80.0, "log_s1": 1.7, "log_s2": 1.7}
    derived = {
        "share": lambda logit, m1, m2, log_s1, log_s2: 1 / (1 + np.exp(-logit)),
        "gap": lambda logit, m1, m2, log_s1, log_s2: m2 - m1,
    }
    swapped = {
        "share": (lambda p, m1, m2, s1, s2: (np.log(p / (1 - p)), m1, m2, s1, s2), "logit"),
        "gap": (lambda logit, m1, gap, s1, s2: (logit, m1, m1 + gap, s1, s2), "m2"),
    }
    return task(nll, start, {"waiting": WAITING}, derived, ["m1"], swapped)


def task(nll, start, data, derived, minos, swapped, bounds=None):
    """Estimates, errors and limits; `swapped` writes a function in the place of a parameter."""
    fit = fitted(nll, start, bounds)
    names, rough = list(start), np.array(fit.errors)
    theta = finished(lambda t: nll(*t), np.array(fit.values), rough)
    covariance = np.linalg.inv(hessian(lambda t: nll(*t), theta, rough))
    errors = np.sqrt(np.diag(covariance))
    gap = float(np.max(np.abs(np.array(fit.errors) / errors - 1)))
    if gap > HESSE:
        raise SystemExit(f"HESSE differs from the exact errors by {gap:.1e}: {names}")
    value = dict(zip(names, theta, strict=True))
    error = dict(zip(names, errors, strict=True))
    for name, function in derived.items():
        slope = gradient(lambda t, f=function: f(*t), theta, errors)
        value[name], error[name] = function(*theta), np.sqrt(slope @ covariance @ slope)
    interval = {name: limits(fit, name) for name in minos}
    for name, (theta_of, place) in swapped.items():
        begin = start | {n: value[n] for n in names} | {place: value[name]}
        around = bounds and bounds | {place: (value[name] / 4, value[name] * 4)}
        again = fitted(lambda *t, f=theta_of: nll(*f(*t)), begin, around)
        interval[name] = limits(again, place)
    return {
        "data": {name: values.tolist() for name, values in data.items()},
        "value": {name: float(v) for name, v in value.items()},
        "standard_error": {name: float(v) for name, v in error.items()},
        "interval": interval,
        "loglik": -float(fit.fval),
        "hesse": gap,
    }


def fitted(nll, start, bounds=None):
    fit = Minuit(nll, *start.values(), name=list(start))
    for name, pair in (bounds or {}).items():
        fit.limits[name] = pair
    fit.errordef, fit.strategy, fit.tol = Minuit.LIKELIHOOD, 2, MIGRAD
    fit.migrad()
    for name in bounds or {}:
        fit.limits[name] = None  # they bend HESSE
    fit.hesse()
    if not fit.accurate:
        raise SystemExit(f"MIGRAD has not converged: {fit.fmin}")
    return fit


def finished(function, theta, errors):
    for _ in range(3):
        step = np.linalg.solve(hessian(function, theta, errors), gradient(function, theta, errors))
        theta = theta - step
    return theta


def limits(fit, name):
    fit.tol = MINOS
    fit.minos(name, cl=LEVEL)
    error = fit.merrors[name]
    if not error.is_valid:
        raise SystemExit(f"MINOS failed for {name}: {error}")
    return [float(fit.values[name] + error.lower), float(fit.values[name] + error.upper)]


def hessian(function, theta, errors):
    """Second differences over 0.1 and 0.05 errors to either side, extrapolated."""

    def rough(h):
        steps = h * np.diag(errors)
        return np.array([[mixed(a, b) for a in steps] for b in steps])

    def mixed(a, b):
        pieces = [s * t * function(theta + s * a + t * b) for s in (1, -1) for t in (1, -1)]
        return sum(pieces) / 4

    coarse, fine = rough(0.1) / 0.1**2, rough(0.05) / 0.05**2
    return (4 * fine - coarse) / 3 / np.outer(errors, errors)


def gradient(function, theta, errors):
    """First differences over 0.02 and 0.01 errors, extrapolated."""

    def rough(h):
        steps = h * np.diag(errors)
        return np.array([(function(theta + s) - function(theta - s)) / 2 for s in steps]) / h

    return (4 * rough(0.01) - rough(0.02)) / 3 / errors


if __name__ == "__main__":
    main()

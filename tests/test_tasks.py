"""Ten tasks of scientists with their own likelihood: the numbers of iminuit and R."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import expit
from scipy.stats import norm

import implicit_delta as idm

GOLDEN = Path(__file__).parent / "golden" / "tasks"
STORED = {
    name: case
    for file in ("minuit.json", "r.json")
    for name, case in json.loads((GOLDEN / file).read_text())["cases"].items()
}
LOW, HIGH = 4.0, 7.0  # the window of the peak
HOT = 1000 / (130 + 273.2)  # 130 C, as motors see it
RARE = -np.log(0.99)
# MINOS solves to a tolerance of its own: its ends are good to a hundredth of a standard error.
MINOS = 0.01
EXACT = 1e-4


def peak(d):
    def loglik(th):
        inside = norm.cdf(HIGH, th.mu, th.sigma) - norm.cdf(LOW, th.mu, th.sigma)
        signal = th.S * norm.pdf(d.x, th.mu, th.sigma) / inside
        fall = np.exp(-(d.x - LOW) / th.tau) / (th.tau * -np.expm1(-(HIGH - LOW) / th.tau))
        return np.log(signal + th.B * fall) - (th.S + th.B) / d.x.size

    start = {"S": 120.0, "B": 1000.0, "mu": 5.25, "sigma": 0.15, "tau": 1.3}
    return idm.from_loglik(loglik, start=start)


def pharmacokinetics(d):
    def amount(ka, ke):
        flow = np.array([[-ka, 0], [ka, -ke]])
        options = {"t_eval": d.hours, "rtol": 1e-10, "atol": 1e-12, "method": "LSODA"}
        return solve_ivp(lambda t, a: flow @ a, (0, 24), [100.0, 0], **options).y[1]

    def loglik(th):
        mean = np.log(amount(np.exp(th.log_ka), np.exp(th.log_ke))) - th.log_V
        return norm.logpdf(np.log(d.concentration), mean, np.exp(th.log_s))

    start = {"log_ka": 0.0, "log_ke": -1.5, "log_V": 2.7, "log_s": -1.5}
    return idm.from_loglik(loglik, start=start)


def mixture(d):
    def loglik(th):
        first = norm.logpdf(d.waiting, th.m1, np.exp(th.log_s1)) - np.logaddexp(0, -th.logit)
        second = norm.logpdf(d.waiting, th.m2, np.exp(th.log_s2)) - np.logaddexp(0, th.logit)
        return np.logaddexp(first, second)

    start = {"logit": -0.5, "m1": 55.0, "m2": 80.0, "log_s1": 1.7, "log_s2": 1.7}
    return idm.from_loglik(loglik, start=start)


def dose_response(d):
    def residuals(th):
        return d.y - th.bottom - (th.top - th.bottom) / (1 + (th.EC50 / d.dose) ** th.hill)

    start = {"bottom": 0.0, "top": 100.0, "EC50": 3e-8, "hill": 1.0}
    return idm.from_residuals(residuals, start=start)


def michaelis_menten(d):
    def residuals(th):
        return d.y - th.Vm * d.conc / (th.K + d.conc)

    return idm.from_residuals(residuals, start={"Vm": 200.0, "K": 0.05})


def dippers(d):
    """Cells of the m-array, and those never seen again: each counts as often as it was seen."""
    lag = np.subtract.outer(-np.arange(6), -np.arange(6))
    seen = np.concatenate([d.again[lag >= 0], d.released - d.again.sum(axis=1)])

    def loglik(th):
        again = th.survival * th.recapture
        cell = np.where(
            lag >= 0, again * (th.survival * (1 - th.recapture)) ** np.maximum(lag, 0), 0
        )
        return np.log(np.concatenate([cell[lag >= 0], 1 - cell.sum(axis=1)]))

    start = {"survival": 0.5, "recapture": 0.8}
    return idm.from_loglik(
        loglik, start=start, weights=seen, bounds={"survival": (0, 1), "recapture": (0, 1)}
    )


def motors_b10(d):
    x = 1000 / (d.temp + 273.2)

    def loglik(th):
        z = (np.log(d.time) - th.a - th.b * x) / np.exp(th.log_scale)
        return d.failed * (z - th.log_scale - np.log(d.time)) - np.exp(z)

    return idm.from_loglik(loglik, start={"a": -10.0, "b": 8.0, "log_scale": 0.0})


def port_pirie(d):
    def loglik(th):
        z = 1 + th.shape_ * (d.y - th.loc) / th.scale
        with np.errstate(all="ignore"):
            terms = -np.log(th.scale) - (1 + 1 / th.shape_) * np.log(z) - z ** (-1 / th.shape_)
        return np.where((z > 0) & (th.scale > 0), terms, -np.inf)

    return idm.from_loglik(loglik, start={"loc": 3.9, "scale": 0.2, "shape_": 0.1})


def hormone(d):
    """One term: the observations depend on each other."""

    def loglik(th):
        r, v, n = d.y - th.mean_, np.exp(th.log_var), d.y.size
        squares = r[0] ** 2 * (1 - th.phi**2) + np.sum((r[1:] - th.phi * r[:-1]) ** 2)
        return [(np.log1p(-(th.phi**2)) - n * np.log(2 * np.pi * v) - squares / v) / 2]

    start = {"phi": 0.5, "mean_": 2.0, "log_var": -1.0}
    return idm.from_loglik(loglik, start=start, bounds={"phi": (-0.99, 0.99)})


def nile(d):
    """Kalman filter of a local level: one term for each prediction error."""

    def loglik(th):
        level, noise, a, P = np.exp(th.log_level), np.exp(th.log_noise), d.y[0], 1e6 * np.var(d.y)
        P, terms = P * d.y.size / (d.y.size - 1), np.empty(d.y.size)
        for t, value in enumerate(d.y):
            F, error = P + noise, value - a
            terms[t] = -(np.log(2 * np.pi * F) + error**2 / F) / 2
            a, P = a + P / F * error, P * noise / F + level
        return terms

    return idm.from_loglik(loglik, start={"log_level": np.log(1000.0), "log_noise": np.log(2e4)})


@dataclass(frozen=True)
class Task:
    """A model of stored data, functions of its parameters, and how exact its reference is."""

    make: object
    derived: dict = field(default_factory=dict)
    method: object = None
    ends: float = 1e-4  # of an interval, in standard errors
    renamed: dict = field(default_factory=dict)  # names that arrays have themselves


NLS = idm.Infinitesimal(curvature="ggn")  # as vcov(nls) has it
TASKS = {
    "peak": Task(peak, {"purity": lambda th: th.S / (th.S + th.B)}, ends=MINOS),
    "pharmacokinetics": Task(
        pharmacokinetics,
        {
            "half_life": lambda th: np.log(2) / np.exp(th.log_ke),
            "clearance": lambda th: np.exp(th.log_ke + th.log_V),
        },
        ends=MINOS,
    ),
    "mixture": Task(
        mixture,
        {"share": lambda th: expit(th.logit), "gap": lambda th: th.m2 - th.m1},
        ends=MINOS,
    ),
    "dose_response": Task(
        dose_response, {"EC90": lambda th: th.EC50 * 9 ** (1 / th.hill)}, method=NLS
    ),
    "michaelis_menten": Task(michaelis_menten, {"efficiency": lambda th: th.Vm / th.K}, method=NLS),
    "dippers": Task(dippers, {"expectancy": lambda th: -1 / np.log(th.survival)}),
    "motors_b10": Task(
        motors_b10,
        {
            "B10": lambda th: np.exp(
                th.a + th.b * HOT + np.exp(th.log_scale) * np.log(-np.log(0.9))
            ),
            "shape": lambda th: np.exp(-th.log_scale),
        },
    ),
    "port_pirie": Task(
        port_pirie,
        {"level": lambda th: th.loc + th.scale * (RARE**-th.shape_ - 1) / th.shape_},
        renamed={"shape": "shape_"},
    ),
    "hormone": Task(
        hormone,
        {
            "memory": lambda th: -1 / np.log(th.phi),
            "variance": lambda th: np.exp(th.log_var) / (1 - th.phi**2),
        },
        renamed={"mean": "mean_"},
    ),
    "nile": Task(
        nile,
        {
            "level": lambda th: np.exp(th.log_level),
            "noise": lambda th: np.exp(th.log_noise),
            "ratio": lambda th: np.exp(th.log_level - th.log_noise),
            "log_ratio": lambda th: th.log_level - th.log_noise,
        },
    ),
}


@pytest.fixture(scope="module")
def models():
    """Fit each task once."""
    made = {}

    def model(name):
        if name not in made:
            data = {key: np.asarray(values) for key, values in STORED[name]["data"].items()}
            made[name] = TASKS[name].make(SimpleNamespace(**data))
        return made[name]

    return model


def marks(name):
    """An ODE is solved in every call."""
    return [pytest.mark.slow] if name == "pharmacokinetics" else []


NAMES = [pytest.param(name, marks=marks(name)) for name in TASKS]


def psi_of(task, name):
    return task.derived.get(name, task.renamed.get(name, name))


@pytest.mark.parametrize("name", NAMES)
def test_parameters_and_their_errors(name, models):
    task, stored = TASKS[name], STORED[name]
    own = [key for key in stored["value"] if key not in task.derived]
    est = idm.infer(models(name), [psi_of(task, key) for key in own], task.method)
    errors = np.array([stored["standard_error"][key] for key in own])
    gap = est.value - np.array([stored["value"][key] for key in own])
    np.testing.assert_allclose(gap / errors, 0, atol=EXACT)
    np.testing.assert_allclose(est.standard_error, errors, rtol=EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_them_by_the_delta_method(name, models):
    task, stored = TASKS[name], STORED[name]
    psi = lambda th: {key: function(th) for key, function in task.derived.items()}
    est = idm.infer(models(name), psi, task.method, strict=False)
    assert est.names == tuple(task.derived)
    errors = np.array([stored["standard_error"][key] for key in task.derived])
    gap = est.value - np.array([stored["value"][key] for key in task.derived])
    np.testing.assert_allclose(gap / errors, 0, atol=EXACT)
    np.testing.assert_allclose(est.standard_error, errors, rtol=EXACT)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        pytest.param(name, key, id=f"{name}-{key}", marks=marks(name))
        for name in TASKS
        for key in STORED[name]["interval"]
    ],
)
def test_likelihood_ratio_limits(name, key, models):
    task, stored = TASKS[name], STORED[name]
    found = idm.profile(models(name), psi_of(task, key))
    gap = np.subtract(found.interval, stored["interval"][key]) / stored["standard_error"][key]
    np.testing.assert_allclose(gap, 0, atol=task.ends)

"""The 27 nonlinear regressions of NIST's Statistical Reference Datasets, with certified answers.

National Institute of Standards and Technology, Statistical Reference Datasets (StRD), Nonlinear
Regression, https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml; in the public domain. The
certified parameters and standard deviations have 11 digits.

>>> problem = PROBLEMS["Misra1a"]
>>> float(np.sum(problem.residuals(problem.theta) ** 2).round(8)), problem.sum_of_squares
(0.12455139, 0.12455138894)
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy import arctan, cos, exp, pi, sin

STORED = Path(__file__).with_name("problems.json")


@dataclass(frozen=True, eq=False)
class Problem:
    """Data, a curve, two starts, and the certified answer.

    Attributes
    ----------
    model : callable
        theta (d,) and x to predictions of y, (n,).
    x : (n,) array, or (2, n) of two predictors
    starts : (2, d) array
        The first is far from the solution, the second close to it.
    theta, errors : (d,) arrays
        Certified parameters and standard deviations.
    sum_of_squares : float
        Of the certified residuals.
    """

    name: str
    model: Callable
    x: np.ndarray
    y: np.ndarray
    starts: np.ndarray
    theta: np.ndarray
    errors: np.ndarray
    sum_of_squares: float

    def residuals(self, theta):
        """Observed less predicted, (n,)."""
        return self.y - self.model(theta, self.x)


def chwirut(b, x):
    return exp(-b[0] * x) / (b[1] + b[2] * x)


def enso(b, x):
    seasons = b[1] * cos(2 * pi * x / 12) + b[2] * sin(2 * pi * x / 12)
    first = b[4] * cos(2 * pi * x / b[3]) + b[5] * sin(2 * pi * x / b[3])
    return b[0] + seasons + first + b[7] * cos(2 * pi * x / b[6]) + b[8] * sin(2 * pi * x / b[6])


def gauss(b, x):
    peaks = b[2] * exp(-((x - b[3]) ** 2) / b[4] ** 2) + b[5] * exp(-((x - b[6]) ** 2) / b[7] ** 2)
    return b[0] * exp(-b[1] * x) + peaks


def cubics(b, x):
    top = b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3
    return top / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3)


def lanczos(b, x):
    return b[0] * exp(-b[1] * x) + b[2] * exp(-b[3] * x) + b[4] * exp(-b[5] * x)


MODELS = {
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": lambda b, x: b[0] * (1 - exp(-b[1] * x)),
    "Chwirut1": chwirut,
    "Chwirut2": chwirut,
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "ENSO": enso,
    "Eckerle4": lambda b, x: (b[0] / b[1]) * exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": gauss,
    "Gauss2": gauss,
    "Gauss3": gauss,
    "Hahn1": cubics,
    "Kirby2": lambda b, x: (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2),
    "Lanczos1": lanczos,
    "Lanczos2": lanczos,
    "Lanczos3": lanczos,
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * exp(-x * b[3]) + b[2] * exp(-x * b[4]),
    "Misra1a": lambda b, x: b[0] * (1 - exp(-b[1] * x)),
    "Misra1b": lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** -2),
    "Misra1c": lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** -0.5),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Nelson": lambda b, x: b[0] - b[1] * x[0] * exp(-b[2] * x[1]),  # of log(y)
    "Rat42": lambda b, x: b[0] / (1 + exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / (1 + exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda b, x: b[0] - b[1] * x - arctan(b[2] / (x - b[3])) / pi,
    "Thurber": cubics,
}


def read():
    """Read the problems, a dict by name."""
    found = {}
    for name, stored in json.loads(STORED.read_text()).items():
        arrays = {key: np.array(value) for key, value in stored.items()}
        y = np.log(arrays.pop("y")) if name == "Nelson" else arrays.pop("y")
        x = np.squeeze(arrays.pop("x"))
        total = float(arrays.pop("sum_of_squares"))
        found[name] = Problem(name, MODELS[name], x, y, sum_of_squares=total, **arrays)
    return found


PROBLEMS = read()


def digits(found, certified):
    """Significant digits that agree, of the worst entry: NIST's log relative error, at most 11."""
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.max(abs(np.asarray(found) / certified - 1))
    return 0.0 if not error < 1 else float(min(11.0, -np.log10(max(error, 1e-11))))

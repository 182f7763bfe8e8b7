"""Six likelihoods and three curves of scientists: what `calls` counts the calls of.

Only NumPy and SciPy are needed, so that iminuit's environment can import them too.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr
from scipy.stats import genextreme, norm

LOW, HIGH = 4.0, 7.0  # of the peak's window


@dataclass
class Problem:
    """A log-likelihood (d,) to (n,), where to start, and the quantity to profile."""

    name: str
    loglik: Callable[[np.ndarray], np.ndarray]
    start: list[float]
    psi: Callable[[np.ndarray], float]
    index: int | None = None  # of the parameter that psi is, for MINOS
    swap: Callable[[np.ndarray], np.ndarray] | None = None  # theta with psi in place of `index`


def _events():
    rng = np.random.default_rng(3)
    signal = rng.normal(5.3, 0.15, size=300)
    background = LOW + rng.exponential(1.5, size=6000)
    return np.concatenate([signal, background[background < HIGH][:2700]])


def _peak_share(x, mu, sigma):
    return (ndtr((x - mu) / sigma) - ndtr((LOW - mu) / sigma)) / (
        ndtr((HIGH - mu) / sigma) - ndtr((LOW - mu) / sigma)
    )


def unbinned_peak():
    """Extended likelihood of 3000 events, one term each: S, B, mu, sigma, tau."""
    x = _events()

    def loglik(th):
        S, B, mu, sigma, tau = th
        inside = ndtr((HIGH - mu) / sigma) - ndtr((LOW - mu) / sigma)
        peak = np.exp(-(((x - mu) / sigma) ** 2) / 2) / (sigma * np.sqrt(2 * np.pi)) / inside
        slope = np.exp(-(x - LOW) / tau) / (tau * -np.expm1(-(HIGH - LOW) / tau))
        return np.log(S * peak + B * slope) - (S + B) / x.size

    return Problem(
        "unbinned peak, d = 5", loglik, [250.0, 2800.0, 5.25, 0.15, 1.3], lambda th: th[0], 0
    )


def binned_peak():
    """The same events in 60 bins."""
    edges = np.linspace(LOW, HIGH, 61)
    counts = np.histogram(_events(), edges)[0].astype(float)

    def loglik(th):
        S, B, mu, sigma, tau = th
        slope = np.expm1(-(edges - LOW) / tau) / np.expm1(-(HIGH - LOW) / tau)
        mean = np.diff(S * _peak_share(edges, mu, sigma) + B * slope)
        return counts * np.log(mean) - mean

    return Problem(
        "binned peak, d = 5", loglik, [250.0, 2800.0, 5.25, 0.15, 1.3], lambda th: th[0], 0
    )


def pharmacokinetics():
    """One compartment with absorption, by an ODE solver: log ka, log ke, log V, log sigma."""
    times = np.array([0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24.0])
    dose, rng = 100.0, np.random.default_rng(5)

    def concentration(ka, ke, V):
        found = solve_ivp(
            lambda t, a: [-ka * a[0], ka * a[0] - ke * a[1]],
            (0, times[-1]),
            [dose, 0.0],
            t_eval=times,
            rtol=1e-10,
            atol=1e-10,
            method="DOP853",
        )
        return found.y[1] / V

    y = np.log(concentration(1.2, 0.15, 20.0)) + 0.15 * rng.normal(size=times.size)

    def loglik(th):
        ka, ke, V, sigma = np.exp(th)
        return norm.logpdf(y, np.log(concentration(ka, ke, V)), sigma)

    return Problem(
        "pharmacokinetic ODE, d = 4",
        loglik,
        [0.0, -1.5, 2.7, -1.5],
        lambda th: np.log(2) / np.exp(th[1]),
        1,
        lambda th: np.array([th[0], np.log(np.log(2) / th[1]), th[2], th[3]]),
    )


def gaussian_process():
    """80 points, one term: logs of amplitude, length and noise."""
    rng = np.random.default_rng(7)
    x = np.sort(rng.uniform(0, 10, size=80))
    y = np.sin(x) + 0.3 * rng.normal(size=80)
    squares = (x[:, None] - x[None, :]) ** 2

    def loglik(th):
        amplitude, length, noise = np.exp(th)
        K = amplitude**2 * np.exp(-squares / (2 * length**2)) + noise**2 * np.eye(80)
        factor = cho_factor(K, lower=True)
        half = np.sum(np.log(np.diag(factor[0])))
        return np.array([-y @ cho_solve(factor, y) / 2 - half - 40 * np.log(2 * np.pi)])

    return Problem("Gaussian process, d = 3", loglik, [0.0, 0.0, -1.0], lambda th: th[1], 1)


def mixture():
    """300 draws of two normals: logit of the share, two means, two log deviations."""
    rng = np.random.default_rng(11)
    y = np.concatenate([rng.normal(0, 1, size=200), rng.normal(3, 0.7, size=100)])

    def loglik(th):
        share = 1 / (1 + np.exp(-th[0]))
        first = np.log1p(-share) + norm.logpdf(y, th[1], np.exp(th[3]))
        second = np.log(share) + norm.logpdf(y, th[2], np.exp(th[4]))
        return np.logaddexp(first, second)

    return Problem(
        "mixture of two normals, d = 5", loglik, [0.0, -0.5, 2.5, 0.0, 0.0], lambda th: th[2], 2
    )


def extreme_values():
    """50 yearly maxima: location, log scale, shape; the level of 100 years."""
    y = genextreme.rvs(-0.1, loc=30, scale=6, size=50, random_state=np.random.default_rng(13))
    chance = -np.log(0.99)

    def loglik(th):
        mu, log_sigma, xi = th
        sigma = np.exp(log_sigma)
        with np.errstate(all="ignore"):
            z = 1 + xi * (y - mu) / sigma
            terms = -log_sigma - (1 + 1 / xi) * np.log(z) - z ** (-1 / xi)
        return np.where(z > 0, terms, -np.inf)

    def level(th):
        return th[0] + np.exp(th[1]) * (chance ** -th[2] - 1) / th[2]

    return Problem(
        "GEV 100-year level, d = 3",
        loglik,
        [28.0, 1.5, 0.1],
        level,
        0,
        lambda th: np.array([th[0] - np.exp(th[1]) * (chance ** -th[2] - 1) / th[2], th[1], th[2]]),
    )


def many_coefficients():
    """Poisson regression with 60 coefficients, as code that cannot be traced."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(1000), rng.normal(size=(1000, 59))])
    y = rng.poisson(np.exp(X @ (rng.normal(size=60) / 10))) * 1.0

    def loglik(th):
        eta = X @ np.array([float(b) for b in th])
        return y * eta - np.exp(eta)

    return Problem(
        "Poisson regression, d = 60", loglik, [0.0] * 60, lambda th: np.exp(th[0]) + th[1]
    )


PROBLEMS = {
    make.__name__: make
    for make in (
        unbinned_peak,
        binned_peak,
        pharmacokinetics,
        gaussian_process,
        mixture,
        extreme_values,
    )
}


@dataclass
class Curve:
    """A curve f(x, *theta), observations y (n,) and a start, for least squares."""

    name: str
    function: Callable[..., np.ndarray]
    x: np.ndarray
    truth: list[float]
    start: list[float]
    noise: float

    @property
    def y(self):
        rng = np.random.default_rng(3)
        return self.function(self.x, *self.truth) + self.noise * rng.normal(size=self.x.size)


def _dose_response(x, bottom, top, ec50, hill):
    return bottom + (top - bottom) / (1 + (ec50 / x) ** hill)


def _absorption(t, ka, ke, V):
    return 100 / V * ka / (ka - ke) * (np.exp(-ke * t) - np.exp(-ka * t))


DOSES = np.repeat([0.1, 0.3, 1, 3, 10, 30, 100], 3)
TIMES = np.array([0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24.0])
CURVES = {
    "dose_response": Curve(
        "dose-response, d = 4", _dose_response, DOSES, [5, 95, 4, 1.3], [0.0, 100, 5, 1], 4.0
    ),
    "absorption": Curve(
        "absorption, d = 3", _absorption, TIMES, [1.2, 0.15, 20], [1.0, 0.2, 15], 0.2
    ),
    "decay": Curve(
        "decay, d = 2", lambda t, a, k: a * np.exp(-k * t), TIMES, [5, 0.3], [1.0, 1.0], 0.2
    ),
}


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *arguments):
        self.calls += 1
        return self.function(*arguments)

    def since(self, before):
        return self.calls - before

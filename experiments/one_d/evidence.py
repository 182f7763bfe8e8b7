"""The strength of an l2 penalty from the data alone: the evidence (type-II maximum likelihood).

With the log-likelihood -|y - f|^2 / 2 s2, the penalty l2 / 2 |theta|^2 is a normal prior, and
Laplace's approximation with the Gauss-Newton curvature A = J'J / s2 + l2 gives the evidence of
l2 and s2 (accurate to a factor of a few). Its maximum obeys MacKay's equations (1992)

    l2 = gamma / |theta|^2,    s2 = |y - f|^2 / (n - gamma),    gamma = d - l2 tr(A^-1),

so that the noise variance is the unbiased one. A fit at the best l2 is biased by about as much as
it is uncertain: good for predictions, bad for intervals. `weakest` undersmooths instead: it takes
the smallest l2 that the evidence does not strongly refute (a Bayes factor of 20, Kass and
Raftery 1995).
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

STRONG = 20.0
MOST_ROUNDS = 60
NEAR = 0.01  # standard errors


@dataclass(frozen=True)
class Penalized:
    """A converged fit with the penalty and noise variance it was fitted with.

    Attributes
    ----------
    freedom : float
        n less gamma, the effective number of parameters.
    log_evidence : float
        Up to a constant.
    """

    theta: np.ndarray
    l2: float
    s2: float
    freedom: float
    log_evidence: float


def maximize_evidence(network, x, y, start):
    """Alternate between theta given (l2, s2) and MacKay's equations."""
    fit = _fitted(network, x, y, start, l2=1.0, s2=np.var(y) / 4)
    for _ in range(MOST_ROUNDS):
        gamma = x.size - fit.freedom
        l2, s2 = gamma / (fit.theta @ fit.theta), _noise(network, x, y, fit)
        if abs(np.log([l2 / fit.l2, s2 / fit.s2])).max() < 1e-3:
            break
        fit = _fitted(network, x, y, fit.theta, l2, s2)
    return fit


def weakest(network, x, y, fit, best=None):
    """Lower l2 in steps of 20 % while the evidence is at least a 20th of the best fit's."""
    floor = (best or fit).log_evidence - np.log(STRONG)
    while True:
        weaker = _settled(network, x, y, replace(fit, l2=0.8 * fit.l2))
        if weaker.log_evidence < floor:
            return fit
        fit = weaker


def plausible(network, x, y, fits):
    """Fits from several starts within a factor 20 of the best, each at its weakest l2."""
    best = max(fits, key=lambda fit: fit.log_evidence)
    kept = [f for f in fits if f.log_evidence >= best.log_evidence - np.log(STRONG)]
    return [weakest(network, x, y, fit, best) for fit in kept]


def _settled(network, x, y, fit):
    """Alternate between theta and s2 at a fixed l2."""
    for _ in range(MOST_ROUNDS):
        fit = _fitted(network, x, y, fit.theta, fit.l2, fit.s2)
        s2 = _noise(network, x, y, fit)
        if abs(np.log(s2 / fit.s2)) < 1e-4:
            break
        fit = replace(fit, s2=s2)
    return fit


def _noise(network, x, y, fit):
    residual = y - network.predict(fit.theta, x)
    return float(residual @ residual / fit.freedom)


def _fitted(network, x, y, start, l2, s2):
    theta, gram, squares = levenberg_marquardt(network, start, x, y, ridge=l2 * s2, noise=s2)
    spectrum = np.clip(np.linalg.eigvalsh(gram), 0, None) / s2
    evidence = (
        -squares / s2
        - l2 * theta @ theta
        + theta.size * np.log(l2)
        - np.sum(np.log(spectrum + l2))
        - x.size * np.log(s2)
    ) / 2
    gamma = np.sum(spectrum / (spectrum + l2))
    return Penalized(theta, float(l2), float(s2), float(x.size - gamma), float(evidence))


def levenberg_marquardt(network, theta, x, y, *, ridge, noise, most=2000):
    """Minimize (|y - f|^2 + ridge |theta|^2) / 2; also the Gram matrix J'J and |y - f|^2.

    It stops when a hardly damped step would move no evaluation by 1 % of its standard error.
    """
    eye, damping = np.eye(theta.size), 1.0
    residual = y - network.predict(theta, x)
    cost = residual @ residual + ridge * theta @ theta
    gram, slope = _normal_equations(network, theta, x, residual, ridge)
    for _ in range(most):
        step = cho_solve(cho_factor(gram + (ridge + damping) * eye), slope)
        if damping < 10 * ridge and slope @ step < NEAR**2 * noise:
            break
        trial = theta + step
        trial_residual = y - network.predict(trial, x)
        trial_cost = trial_residual @ trial_residual + ridge * trial @ trial
        if not trial_cost < cost:
            damping *= 4
            if damping > 1e12:  # rounding leaves nothing to gain
                break
            continue
        gain = (cost - trial_cost) / (step @ (slope + damping * step))
        damping = max(damping * (0.1 if gain > 0.75 else 0.5 if gain > 0.25 else 2.0), 1e-12)
        theta, residual, cost = trial, trial_residual, trial_cost
        gram, slope = _normal_equations(network, theta, x, residual, ridge)
    return theta, gram, float(residual @ residual)


def _normal_equations(network, theta, x, residual, ridge):
    rows = network.jacobian(theta, x)
    return rows.T @ rows, rows.T @ residual - ridge * theta

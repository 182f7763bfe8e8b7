"""Problems whose covariance is known in closed form: each method and backend is held to them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit


@dataclass(frozen=True)
class Case:
    """A log-likelihood at its maximum, an evaluation, and the covariance it must have."""

    name: str
    loglik: Callable
    score: Callable
    theta: np.ndarray
    psi: Callable
    covariance: np.ndarray

    @property
    def standard_error(self):
        return np.sqrt(np.diag(self.covariance))


def normal():
    y = np.random.default_rng(1).normal(3.0, 2.0, size=40)
    mean, var = y.mean(), y.var()

    def score(th):
        r = y - th[0]
        return np.column_stack([r / th[1], -0.5 / th[1] + 0.5 * r**2 / th[1] ** 2])

    return Case(
        name="mean and variance of a normal",
        loglik=lambda th: -0.5 * np.log(2 * np.pi * th[1]) - 0.5 * (y - th[0]) ** 2 / th[1],
        score=score,
        theta=np.array([mean, var]),
        psi=lambda th: th,
        covariance=np.diag([var / 40, 2 * var**2 / 40]),
    )


def linear():
    rng = np.random.default_rng(2)
    X, at = rng.normal(size=(60, 5)), rng.normal(size=(20, 5))
    y = X @ [1.0, -2.0, 0.5, 0.0, 3.0] + rng.normal(size=60)
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    return Case(
        name="predictions of a linear regression",
        loglik=lambda b: -0.5 * (y - X @ b) ** 2,
        score=lambda b: (y - X @ b)[:, None] * X,
        theta=beta,
        psi=lambda b: at @ b,
        covariance=at @ np.linalg.inv(X.T @ X) @ at.T,
    )


def glm(name, response, inverse_link, cumulant, psi, gradient):
    """Canonical link: terms y eta - b(eta), information X' b''(eta) X, by Newton's method."""
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(200), rng.normal(size=(200, 3))])
    y = response(rng, X @ [0.3, 0.8, -0.5, 0.2]).astype(float)
    beta = np.zeros(4)
    for _ in range(50):
        mean, slope = inverse_link(X @ beta)
        beta = beta + np.linalg.solve((X.T * slope) @ X, X.T @ (y - mean))
    inverse = np.linalg.inv((X.T * inverse_link(X @ beta)[1]) @ X)
    return Case(
        name=name,
        loglik=lambda b: y * (X @ b) - cumulant(X @ b),
        score=lambda b: (y - inverse_link(X @ b)[0])[:, None] * X,
        theta=beta,
        psi=psi,
        covariance=np.atleast_2d(gradient(beta) @ inverse @ gradient(beta).T),
    )


def logistic():
    x0 = np.array([1.0, 0.5, -1.0, 2.0])

    def gradient(b):
        p = expit(x0 @ b)
        return p * (1 - p) * x0[None, :]

    return glm(
        "a probability of a logistic regression",
        lambda rng, eta: rng.random(200) < expit(eta),
        lambda eta: (expit(eta), expit(eta) * expit(-eta)),
        lambda eta: np.logaddexp(0, eta),
        lambda b: expit(x0 @ b),
        gradient,
    )


def poisson():
    def gradient(b):
        return np.array([[0, np.exp(b[1]), 0, 0], [0, 1 / b[2], -b[1] / b[2] ** 2, 0]])

    return glm(
        "rate ratio and ratio of coefficients of a Poisson regression",
        lambda rng, eta: rng.poisson(np.exp(eta)),
        lambda eta: (np.exp(eta), np.exp(eta)),
        np.exp,
        lambda b: np.array([np.exp(b[1]), b[1] / b[2]]),
        gradient,
    )


def quadratic():
    """One dependent observation; curvatures of the parameters range over four decades."""
    rng = np.random.default_rng(4)
    scale = np.logspace(-2, 2, 50)
    Q = rng.normal(size=(50, 50))
    A = scale[:, None] * (Q @ Q.T / 50 + np.eye(50)) * scale
    center, g = rng.normal(size=50) / scale, rng.normal(size=50) * scale
    return Case(
        name="a linear evaluation of a quadratic in 50 dimensions",
        loglik=lambda th: np.array([-0.5 * (th - center) @ A @ (th - center)]),
        score=lambda th: -(A @ (th - center))[None, :],
        theta=center,
        psi=lambda th: g @ th,
        covariance=np.atleast_2d(g @ np.linalg.solve(A, g)),
    )


def weibull():
    """Right-censored lifetimes; theta = (log shape, log scale), psi = the median."""
    rng = np.random.default_rng(5)
    lifetime, limit = 2.0 * rng.weibull(1.5, size=80), rng.uniform(0.5, 4.0, size=80)
    t, event = np.minimum(lifetime, limit), (lifetime <= limit).astype(float)
    log_t, deaths = np.log(t), event.sum()

    def profile_score(k):
        return deaths / k + event @ log_t - deaths * (t**k @ log_t) / np.sum(t**k)

    shape = brentq(profile_score, 0.1, 10.0, xtol=1e-15)
    scale = (np.sum(t**shape) / deaths) ** (1 / shape)

    def parts(th):
        k = np.exp(th[0])
        z = k * (log_t - th[1])
        return k, z, np.exp(z)

    def loglik(th):
        _, z, hazard = parts(th)
        return event * (th[0] + z - log_t) - hazard

    def score(th):
        k, z, hazard = parts(th)
        return np.column_stack([event * (1 + z) - hazard * z, k * (hazard - event)])

    theta = np.array([np.log(shape), np.log(scale)])
    k, z, hazard = parts(theta)
    cross = -k * np.sum(hazard * (1 + z) - event)
    information = np.array(
        [[np.sum(hazard * z * (1 + z) - event * z), cross], [cross, k**2 * np.sum(hazard)]]
    )
    median = np.exp(theta[1]) * np.log(2) ** (1 / k)
    g = median * np.array([-np.log(np.log(2)) / k, 1.0])
    return Case(
        name="the median of censored Weibull lifetimes",
        loglik=loglik,
        score=score,
        theta=theta,
        psi=lambda th: np.exp(th[1]) * np.log(2) ** np.exp(-th[0]),
        covariance=np.atleast_2d(g @ np.linalg.solve(information, g)),
    )


CASES = [normal(), linear(), logistic(), poisson(), quadratic(), weibull()]

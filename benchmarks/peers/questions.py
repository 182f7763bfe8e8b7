"""The ten questions, in words, and how far an answer is from its reference."""

import numpy as np

QUESTIONS = {
    1: "Odds ratio of a treatment after a logit",
    2: "Dose that kills half, a ratio of two parameters, after a logit (HC0)",
    3: "Average effect of a treatment after a logit, clustered by village (CR0)",
    4: "Slope of a median regression",
    5: "Expected count at a new point, Poisson regression with exposure (HC0)",
    6: "Time to half of the maximum of a growth curve, least squares",
    7: "95 % point of censored Weibull lifetimes, likelihood-ratio interval",
    8: "Held-out loss of a tanh network with a ridge (Hessian)",
    9: "Logits of that network at five points, with joint covariance (GGN)",
    10: "Average effect by inverse probability weights that were estimated",
}
INTERVAL, COVARIANCE = 7, 9  # whose spread is two limits, or a matrix
LIBRARIES = {
    "implicit_delta": "implicit-delta",
    "statsmodels": "statsmodels",
    "marginaleffects": "marginaleffects",
    "delicatessen": "Delicatessen",
    "laplace": "laplace-torch",
    "curvlinops": "curvlinops",
    "iminuit": "iminuit, jacobi",
    "car": "R: car, sandwich",
}
OURS, *PEERS = LIBRARIES


def error(question, spread, reference):
    """Distance of a standard error, an interval or a covariance matrix from its reference."""
    spread, reference = np.asarray(spread, float), np.asarray(reference, float)
    if question == INTERVAL:
        return float(np.max(abs(spread - reference)) / np.ptp(reference))
    if question == COVARIANCE:
        errors = np.sqrt(np.diag(reference))
        return float(np.max(abs(spread - reference) / np.outer(errors, errors)))
    return float(abs(spread / reference - 1))


def value_error(question, value, truth):
    """Distance of the value itself from that of the reference, in its standard errors."""
    spread = np.asarray(truth["spread"], float)
    if question == INTERVAL:
        spread = np.ptp(spread) / 4
    elif question == COVARIANCE:
        spread = np.sqrt(np.diag(spread))
    return float(np.max(abs(np.subtract(value, truth["value"]) / spread)))

"""One short difference per parameter of a psi that cannot be traced: only where it suffices.

Truth is what the extrapolated differences alone give: the same number, or the same refusal.
"""

import numpy as np
import pytest
from scipy.special import expit

import implicit_delta as idm
from implicit_delta.calculus import differentiate as module
from implicit_delta.calculus.differentiate import short_differences

N, D = 60_000, 12
UNIT = N**-0.5  # the standard error of each mean
RNG = np.random.default_rng(3)
Y = RNG.normal(size=(N // 100, D))
THETA = Y.mean(axis=0)
WEIGHTS = RNG.uniform(0.5, 1.5, size=D)


class Opaque:
    """A psi that no array other than plain numbers passes, and that counts its calls."""

    def __init__(self, f):
        self.f, self.calls = f, 0

    def __call__(self, theta):
        self.calls += 1
        return float(self.f(np.array([float(x) for x in theta])))


def model():
    """Means of normal data, each row a hundred times."""
    return idm.from_loglik(
        lambda th: -((Y - th) ** 2).sum(axis=1) / 2,
        THETA,
        score=lambda th: Y - th,
        weights=np.full(len(Y), 100.0),
    )


def answer(f):
    psi = Opaque(f)
    try:
        return idm.infer(model(), psi, strict=False).standard_error, psi.calls
    except (idm.ImplicitDeltaError, ValueError) as error:
        return type(error), psi.calls


def shifted(j, units):
    """A point so many standard errors from the estimate of parameter j."""
    return THETA[j] + units * UNIT


PSIS = {
    "linear": lambda th: WEIGHTS @ th,
    "logistic": lambda th: expit(th @ WEIGHTS),
    "of one parameter": lambda th: np.exp(th[0]),
    "of two parameters that cancel": lambda th: np.exp(th[0]) - np.exp(th[1]),
    "float32": lambda th: float(np.float32(np.exp(np.float32(th @ WEIGHTS)))),
    "rounded": lambda th: round(float(th @ WEIGHTS), 6),
    "rounded finely": lambda th: round(float(th @ WEIGHTS), 11),
    "a count": lambda th: (th > 0).sum(),
    "a jump in one parameter": lambda th: th @ WEIGHTS + (th[3] > shifted(3, 0.1)),
    "a small jump": lambda th: th @ WEIGHTS + 1e-8 * (th[3] > shifted(3, 0.1)),
    "a kink here": lambda th: th @ WEIGHTS + abs(th[4] - THETA[4]),
    "a kink beside": lambda th: th @ WEIGHTS + abs(th[4] - shifted(4, 0.05)),
    "a kink of a difference": lambda th: th @ WEIGHTS + abs(th[4] - th[5] - THETA[4] + THETA[5]),
    "waves": lambda th: th @ WEIGHTS + 1e-4 * np.sin(th[5] / UNIT * 50),
    "waves in all": lambda th: np.sin(th / UNIT).sum() * 1e-3 + th @ WEIGHTS,
    "steep": lambda th: np.exp(30 * th @ WEIGHTS),
    "ends for mixtures": lambda th: th @ WEIGHTS + np.sqrt((th[0] - THETA[0]) * (th[1] - THETA[1])),
    "flat": lambda th: 3.0,
    "a cube at its center": lambda th: ((th - THETA) ** 3).sum() + 1e-3 * th[0],
    "raises far away": lambda th: 1 / 0 if abs(th - THETA).max() > UNIT else th @ WEIGHTS,
}  # fmt: skip


@pytest.mark.parametrize("name", PSIS)
@pytest.mark.filterwarnings("ignore")
def test_the_answer_is_that_of_extrapolated_differences(name, monkeypatch):
    found, _ = answer(PSIS[name])
    monkeypatch.setattr(module, "short_differences", lambda *_: None)
    truth, _ = answer(PSIS[name])
    assert (
        found is truth if isinstance(truth, type) else np.isclose(found, truth, rtol=1e-9, atol=0)
    )


@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_two_evaluations_a_parameter(name):
    _, calls = answer(PSIS[name])
    assert calls <= 2 * D + 26  # first looks, the mixture, probes, bias


def test_few_coordinates_and_bent_functions_get_none():
    ones = np.ones(10)
    assert short_differences(lambda x: np.atleast_1d(x.sum()), np.zeros(3), np.ones(3)) is None
    assert short_differences(lambda x: np.atleast_1d(np.exp(x.sum())), 0 * ones, ones) is None
    straight = short_differences(lambda x: np.array([x.sum(), x @ x]), 0 * ones, ones)
    assert np.allclose(straight, [ones, 0 * ones], rtol=1e-11, atol=1e-12)

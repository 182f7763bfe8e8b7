"""Every door asks the same question: entries x wrappers x backends.

A cell agrees with `infer` within the tolerance of its method, or refuses with advice. The problem
is a straight line with known noise, where every method is exact but for its own Monte-Carlo error.
"""

import pytest

pytest.importorskip("torch")

import re

import numpy as np
import torch
from scipy.optimize import minimize

import implicit_delta as idm

N = 60
RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(N), RNG.normal(size=N)])
Y = X @ [1.0, 0.5] + RNG.normal(size=N)
OTHER = 3.0 * RNG.normal(size=40)  # targets of an evaluation sample, far noisier than the model
BETA = np.linalg.lstsq(X, Y, rcond=None)[0]
Z = 1.959963984540054


class NumPy:
    """The model in NumPy: psi gets the two coefficients."""

    def model(self):
        return idm.from_loglik(
            lambda b: -((Y - X @ b) ** 2) / 2,
            BETA,
            score=lambda b: (Y - X @ b)[:, None] * X,
        )

    def predict(self, b, rows):
        return rows @ b

    def train(self, bonus):
        def loss(b):
            slope = [(bonus(b + e) - bonus(b - e)) / 2e-4 for e in 1e-4 * np.eye(2)]
            value = np.sum((Y - X @ b) ** 2) / 2 - bonus(b)
            return value, -X.T @ (Y - X @ b) - np.array(slope, dtype=np.float64)

        return minimize(loss, BETA, jac=True, options={"gtol": 1e-10}).x

    def mean(self, values):
        return np.mean(values)

    def noise(self, rng, size):
        return rng.normal(size=size)

    def above(self, values, grid):
        return np.mean(values[0] > grid)


class Torch:
    """The same as a module."""

    def module(self, beta):
        line = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
        with torch.no_grad():
            line.weight[:] = torch.as_tensor(beta)[None]
        return line

    def model(self):
        return idm.from_torch(
            self.module(BETA), (torch.as_tensor(X), torch.as_tensor(Y)), idm.Gaussian(1.0)
        )

    def predict(self, line, rows):
        return line(torch.as_tensor(rows))[:, 0]

    def train(self, bonus):
        line = self.module(BETA)
        optimizer = torch.optim.LBFGS(
            line.parameters(), max_iter=50, tolerance_grad=1e-12, tolerance_change=0.0
        )

        def closure():
            optimizer.zero_grad()
            residuals = torch.as_tensor(Y) - self.predict(line, X)
            loss = (residuals**2).sum() / 2 - bonus(line)
            loss.backward()
            return loss

        optimizer.step(closure)
        return line

    def mean(self, values):
        return values.mean()

    def noise(self, rng, size):
        return torch.as_tensor(rng.normal(size=size))

    def above(self, values, grid):
        return (values[0] > torch.as_tensor(grid)).double().mean()


BACKENDS = {"numpy": NumPy(), "torch": Torch()}
GRID = np.linspace(-1.0, 3.0, 4001)


def scalar(backend):
    return lambda m: backend.predict(m, X[:5]).sum()


def vector(backend):
    return lambda m: backend.predict(m, X[:3])


def units(backend, rows, targets):
    target = torch.as_tensor(targets) if isinstance(backend, Torch) else targets
    return lambda m: target - backend.predict(m, rows)


def simulated(backend):
    def psi(m, rng):
        return backend.predict(m, X[:5]).sum() + 0.5 * backend.noise(rng, ())

    return idm.Replicated(psi, repeats=20, rng=0)


def steps(backend):
    return idm.Smoothed(lambda m: backend.above(backend.predict(m, X[:1]), GRID), rng=0)


def statistic(backend, sample="independent"):
    rows, targets = (X, Y + X[:, 1] ** 2) if sample == "training" else (X[:40], OTHER)

    def spread(score, weight):  # a standard deviation: no mean
        away = targets - score
        return np.sqrt(np.average((away - np.average(away, weights=weight)) ** 2, weights=weight))

    return idm.Statistic(lambda m: backend.predict(m, rows), spread, sample)


WRAPPERS = {
    "plain": scalar,
    "vector": vector,
    "average_independent": lambda b: idm.Average(units(b, X[:40], OTHER)),
    "average_unknown": lambda b: idm.Average(units(b, X[:40], OTHER), sample="unknown"),
    "average_training": lambda b: idm.Average(units(b, X, Y + X[:, 1] ** 2), sample="training"),
    "replicated": simulated,
    "smoothed": steps,
    "statistic": statistic,
    "statistic_unknown": lambda b: statistic(b, "unknown"),
    "statistic_training": lambda b: statistic(b, "training"),
    "parameters": lambda b: idm.parameters,
}


def half_lengths(result):
    """Half the length of each 95 % interval over the normal quantile: a standard error, (K,)."""
    low, high = (np.atleast_1d(end) for end in result.confidence_interval())
    return (high - low) / 2 / Z


def by(method):
    return lambda backend, psi: half_lengths(idm.infer(backend.model(), psi, method))


def by_refit(backend, psi):
    return half_lengths(idm.refit(backend.train, psi))


def by_profile(backend, psi):
    return half_lengths(idm.profile(backend.model(), psi))


def by_compare(backend, psi):
    table = idm.compare(backend.model(), psi, [idm.Infinitesimal(), idm.profile])
    if table.failures:
        raise idm.EvaluationError(" ".join(table.failures.values()))
    errors = np.array([(row.high - row.low) / 2 / Z for row in table.rows]).reshape(2, -1)
    np.testing.assert_allclose(errors[1], errors[0], rtol=0.01)
    return errors[1]


SHORT_TRAININGS = idm.StochasticFiniteDifference(batch_size=30, steps=40, samples=20, runs=2, rng=0)
ENTRIES = {  # the entry, and its tolerance: of a bootstrap four Monte-Carlo errors, 1 / sqrt(2 B)
    "Infinitesimal": (by(idm.Infinitesimal()), 1e-6),
    "FiniteDifference": (by(idm.FiniteDifference()), 1e-4),
    "Simulation": (by(idm.Simulation(rng=0)), 0.05),
    "StochasticFiniteDifference": (by(SHORT_TRAININGS), 0.02),
    "refit": (by_refit, 1e-3),
    "profile": (by_profile, 0.01),
    "compare": (by_compare, 0.01),
}

REFUSED = {  # the cells that have no honest answer: the entry, the wrapper, and the advice
    ("Simulation", "smoothed"): None,
    ("profile", "average_training"): 'sample="unknown"',
    ("compare", "average_training"): 'sample="unknown"',
    ("refit", "average_training"): 'sample="unknown"',
    ("refit", "smoothed"): "`from_torch`",
    ("profile", "statistic_training"): 'sample="unknown"',
    ("compare", "statistic_training"): 'sample="unknown"',
    ("refit", "statistic"): "`from_torch`",
    ("refit", "statistic_unknown"): "`from_torch`",
    ("refit", "statistic_training"): "`from_torch`",
}


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.filterwarnings("ignore::implicit_delta.NonlinearityWarning")
@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
def test_every_door_answers_the_same_question(entry, wrapper, backend):
    ask, rtol = ENTRIES[entry]
    side = BACKENDS[backend]
    psi = WRAPPERS[wrapper](side)
    advice = REFUSED.get((entry, wrapper))
    if (entry, wrapper, backend) == ("refit", "parameters", "torch"):
        advice = "lambda module"
    if advice is not None:
        with pytest.raises(idm.ImplicitDeltaError, match=re.escape(advice)):
            ask(side, psi)
        return
    expected = half_lengths(idm.infer(side.model(), psi))
    np.testing.assert_allclose(ask(side, psi), expected, rtol=rtol)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrapper",
    ["plain", "vector", "replicated", "average_independent", "average_training", "statistic"],
)
def test_the_bootstrap_answers_it_too(wrapper):
    psi = WRAPPERS[wrapper](BACKENDS["numpy"])
    model = BACKENDS["numpy"].model()
    robust = half_lengths(idm.infer(model, psi, robust=True))
    found = half_lengths(idm.infer(model, psi, idm.Bootstrap(400, rng=0)))
    np.testing.assert_allclose(found, robust, rtol=4 / np.sqrt(2 * 400))


def count_calls(psi):
    calls = []

    def counted(b):
        calls.append(1)
        return psi(b)

    return counted, calls


def test_compare_builds_the_evaluation_once():
    model = BACKENDS["numpy"].model()
    counted, calls = count_calls(lambda b: np.mean(b[0] > GRID))
    idm.infer(model, idm.Smoothed(counted, rng=0))
    one = len(calls)
    calls.clear()
    table = idm.compare(model, idm.Smoothed(counted, rng=0), [idm.Infinitesimal(), idm.profile])
    assert not table.failures
    assert len(calls) <= one + 2


def test_a_profile_says_what_it_was_widened_by():
    model = BACKENDS["numpy"].model()
    psi = WRAPPERS["average_independent"](BACKENDS["numpy"])
    profile, estimate = idm.profile(model, psi), idm.infer(model, psi)
    assert profile.budget == pytest.approx(estimate.budget, rel=1e-6)
    assert profile.standard_error == pytest.approx(estimate.standard_error, rel=1e-6)
    assert "evaluation" in profile.summary()

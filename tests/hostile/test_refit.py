"""Training loops that stop early, scale wrongly, ignore the bonus or turn it around."""

import pytest

pytest.importorskip("torch")

import re
import warnings

import numpy as np
import torch
from scipy.optimize import minimize

import implicit_delta as idm

torch.set_num_threads(1)
rng = np.random.default_rng(0)
X = np.column_stack([np.ones(200), rng.normal(size=200), 0.3 * rng.normal(size=200)])
Y = (rng.random(200) < 1 / (1 + np.exp(-X @ [0.3, 1.0, -0.5]))).astype(float)
AT = np.array([1.0, 0.5, 0.5])


def information(b):
    p = 1 / (1 + np.exp(-X @ b))
    return (X.T * (p * (1 - p))) @ X


def score(b, rows=slice(None)):
    x, y = X[rows], Y[rows]
    return x.T @ (y - 1 / (1 + np.exp(-x @ b))) * len(X) / len(x)


BEST = np.zeros(3)
for _ in range(50):
    BEST = BEST + np.linalg.solve(information(BEST), score(BEST))
ZERO, FAR = np.zeros(3), np.array([2.0, -2.0, 2.0])


def slope(bonus, b):
    """The gradient of a bonus, exact, by complex steps."""
    return np.array([np.imag(bonus(b + 1e-20j * e)) / 1e-20 for e in np.eye(b.size)])


def descent(steps, start=BEST, rate=1.0, momentum=0.0, batch=200, cosine=False, tolerance=0.0):
    """Gradient steps on the mean loss, with all that loops have."""

    def train(bonus):
        b, velocity, shuffle = start.copy(), np.zeros(3), np.random.default_rng(1)
        for step in range(steps):
            now = rate * (1 + np.cos(np.pi * step / steps)) / 2 if cosine else rate
            for rows in np.array_split(shuffle.permutation(200), 200 // batch):
                gradient = (score(b, rows) + slope(bonus, b)) / 200
                if np.linalg.norm(gradient) < tolerance:
                    return b
                velocity = momentum * velocity + gradient
                b = b + now * velocity
        return b

    return train


def adam(steps, start=BEST, rate=0.01, batch=200, cosine=False):
    def train(bonus):
        b, m, v, t, shuffle = start.copy(), np.zeros(3), np.zeros(3), 0, np.random.default_rng(1)
        for step in range(steps):
            now = rate * (1 + np.cos(np.pi * step / steps)) / 2 if cosine else rate
            for rows in np.array_split(shuffle.permutation(200), 200 // batch):
                gradient, t = (score(b, rows) + slope(bonus, b)) / 200, t + 1
                m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
                b = b + now * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return b

    return train


def scipy_bfgs(bonus, tolerance=1e-9, **options):
    def loss(b):
        return np.sum(np.logaddexp(0, X @ b) - Y * (X @ b)) - bonus(b)

    def gradient(b):
        return -score(b) - slope(bonus, b)

    return minimize(loss, ZERO, jac=gradient, tol=tolerance, options=options).x


class Continued:
    """A loop that forgets to start anew: every training goes on where the last one ended."""

    def __init__(self, steps):
        self.steps, self.b = steps, BEST

    def __call__(self, bonus):
        self.b = descent(self.steps, self.b)(bonus)
        return self.b


def torch_loop(steps, dtype=torch.float32):
    def train(bonus):
        x, y = torch.tensor(X, dtype=dtype), torch.tensor(Y, dtype=dtype)
        b = torch.tensor(BEST, dtype=dtype, requires_grad=True)
        optimizer = torch.optim.SGD([b], lr=1.0)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(x @ b, y)
            (loss - bonus(b) / len(y)).backward()
            optimizer.step()
        return b

    return train


def least_squares(steps):
    """Newton's method for a straight line: one step is exact for any straight bonus."""
    A = X.T @ X

    def train(bonus):
        b = ZERO
        for _ in range(steps):
            b = b + np.linalg.solve(A, X.T @ (Y - X @ b) + slope(bonus, b))
        return b

    return train


def coefficient(b):
    return b[1]


def weak(b):
    return b[2]


def probability(b):
    return 1 / (1 + np.exp(-(b @ AT)))


def both(b):
    return b[1:]


def exact(psi):
    """Standard errors by dense algebra, (K,)."""
    at = np.atleast_1d(psi(BEST))
    steps = [BEST + 1e-20j * e for e in np.eye(3)]
    jacobian = np.imag(np.column_stack([np.atleast_1d(psi(b)) for b in steps])) / 1e-20
    variance = np.diag(jacobian @ np.linalg.solve(information(BEST), jacobian.T))
    assert at.size == variance.size
    return np.sqrt(variance)


UNFINISHED = {
    "3 gradient steps": (descent(3), coefficient),
    "10 gradient steps": (descent(10), coefficient),
    "10 gradient steps from zero": (descent(10, ZERO), coefficient),
    "30 gradient steps, a weak coefficient": (descent(30), weak),
    "100 gradient steps, a weak coefficient": (descent(100), weak),
    "30 gradient steps from zero, a probability": (descent(30, ZERO), probability),
    "100 gradient steps, a probability": (descent(100), probability),
    "10 steps from far away": (descent(10, FAR), probability),
    "momentum, 10 steps": (descent(10, rate=0.3, momentum=0.9), weak),
    "momentum, 30 steps": (descent(30, rate=0.3, momentum=0.9), coefficient),
    "momentum from zero": (descent(20, ZERO, rate=0.3, momentum=0.9), weak),
    "Adam, 10 steps": (adam(10), weak),
    "Adam from zero, 40 steps": (adam(40, ZERO), coefficient),
    "Adam from zero, 100 steps": (adam(100, ZERO), coefficient),
    "Adam, large steps": (adam(10, rate=0.1), coefficient),
    "minibatches, 10 epochs": (descent(10, rate=0.1, batch=20), weak),
    "minibatches, 40 epochs": (descent(40, rate=0.1, batch=20), probability),
    "Adam in minibatches, 5 epochs": (adam(5, batch=20), weak),
    "Adam in minibatches from zero": (adam(10, ZERO, batch=20), coefficient),
    "Adam with a schedule": (adam(20, batch=20, cosine=True), weak),
    "Adam with a schedule from zero": (adam(20, ZERO, batch=20, cosine=True), coefficient),
    "a loose tolerance": (descent(5000, tolerance=1e-3), weak),
    "three steps of BFGS": (lambda bonus: scipy_bfgs(bonus, maxiter=3), weak),
    "a loop that goes on": (Continued(10), weak),
    "torch, single precision": (torch_loop(10), coefficient),
    "one of two finished": (descent(40), both),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:psi bends:implicit_delta.NonlinearityWarning")
@pytest.mark.parametrize("attack", UNFINISHED)
def test_a_training_that_does_not_finish_is_noticed(attack):
    train, psi = UNFINISHED[attack]
    with pytest.warns(idm.DriftWarning, match=r"do not finish.*how much is missing is unknown"):
        estimate = idm.refit(train, psi)
    notes = estimate.diagnostics.notes
    assert notes["response_difference"] > 0.05 or notes["end_difference"] > 0.45
    assert np.max(abs(estimate.standard_error / exact(psi) - 1)) > 0.04  # it was wrong indeed


FINISHED = {
    "gradient steps": (descent(300), coefficient),
    "gradient steps from zero": (descent(1000, ZERO), weak),
    "gradient steps from far away": (descent(1000, FAR), probability),
    "momentum": (descent(300, rate=0.3, momentum=0.9), coefficient),
    "Adam": (adam(1000), weak),
    "Adam from zero": (adam(1000, ZERO), probability),
    "minibatches": (descent(100, rate=0.1, batch=20), coefficient),
    "Adam in minibatches": (adam(100, ZERO, batch=20), probability),
    "a tight tolerance": (descent(5000, ZERO, tolerance=1e-7), weak),
    "BFGS": (scipy_bfgs, probability),
    "a loop that goes on": (Continued(1000), coefficient),
    "torch, single precision": (torch_loop(300), coefficient),
    "two at once": (descent(1000), both),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", FINISHED)
def test_a_training_that_finishes_is_left_alone(case):
    train, psi = FINISHED[case]
    estimate = idm.refit(train, psi)  # without a warning
    np.testing.assert_allclose(estimate.standard_error, exact(psi), rtol=0.02)
    assert estimate.diagnostics.notes["response_difference"] <= 0.05


@pytest.mark.parametrize("steps", [2, 3, 10])
@pytest.mark.parametrize("lam", [None, 1.0, 1e3])
def test_newtons_method_needs_few_steps(steps, lam):
    estimate = idm.refit(least_squares(steps), coefficient, lam=lam)
    assert estimate.standard_error == pytest.approx(np.linalg.inv(X.T @ X)[1, 1] ** 0.5, rel=1e-6)


# The standard error of beta_1 + share * beta_2, by gradient steps from the exact maximum: along the
# first direction they finish, along the second, whose curvature is much smaller, they hardly begin.
HARDLY_BEGUN = {
    f"{kind}, {steps} steps, curvature {flat:g}, {missing:.0%} missing": (
        kind,
        steps,
        flat,
        missing,
    )
    for kind in ("gradient", "momentum")
    for steps, flat in ((100, 1e-4), (30, 1e-3), (300, 1e-6))
    for missing in (0.1, 0.25, 0.6)
}


def two_curvatures(kind, steps, flat, missing):
    """Maximize -50 (b_1^2 + flat b_2^2) / 2 + bonus; of V the part `missing` is along b_2."""
    curvature = np.array([1.0, flat])
    g = np.sqrt(np.array([1 - missing, missing]) * curvature)

    def train(bonus, times=1):
        b, velocity = np.zeros(2), np.zeros(2)
        for _ in range(times * steps):
            gradient = -curvature * b + slope(bonus, b) / 50
            velocity = (0.5 if kind == "momentum" else 0.0) * velocity + gradient
            b = b + 0.4 * velocity
        return b

    return train, lambda b: g @ b, 0.02  # g' A^-1 g


@pytest.mark.parametrize("case", HARDLY_BEGUN)
def test_no_share_of_the_variance_is_claimed(case):
    """What is missing cannot be known from trainings that all miss it."""
    train, psi, exact = two_curvatures(*HARDLY_BEGUN[case])
    estimate = idm.refit(train, psi)
    reached = estimate.standard_error**2 / exact
    assert reached < 1 - 0.8 * HARDLY_BEGUN[case][3]
    notes = estimate.diagnostics.notes
    assert not {"share_reached", "unfinished"} & set(notes)
    assert notes["variance_missing"] == "unknown: compare with runs four times as long"
    assert "unknown" in estimate.summary()


@pytest.mark.parametrize("times", [1, 4, 32])
def test_longer_runs_show_what_is_missing(times):
    """The share of T steps at rate r is 1 - (1 - r h)^T along a curvature h."""
    train, psi, exact = two_curvatures("gradient", 100, 1e-3, 0.25)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.DriftWarning)
        estimate = idm.refit(lambda bonus: train(bonus, times), psi)
    share = 0.75 + 0.25 * (1 - (1 - 0.4e-3) ** (100 * times))
    assert estimate.standard_error**2 / exact == pytest.approx(share, rel=1e-6)


def test_the_advice_to_train_longer_works():
    with pytest.warns(idm.DriftWarning, match="Train longer"):
        idm.refit(descent(10), coefficient)
    assert idm.refit(descent(300), coefficient).standard_error == pytest.approx(
        exact(coefficient)[0], rel=0.01
    )


@pytest.mark.slow
def test_a_training_compiled_by_jax_is_checked_too():
    """A compiled loop calls the bonus once, to trace it: the check must not count its calls."""
    jax = pytest.importorskip("jax")

    def train(bonus, steps):
        def objective(b):
            logits = X @ b
            return jax.numpy.sum(Y * logits - jax.numpy.logaddexp(0, logits)) + bonus(b)

        step = lambda _, b: b + jax.grad(objective)(b) / 200
        return jax.jit(lambda b: jax.lax.fori_loop(0, steps, step, b))(jax.numpy.array(BEST))

    estimate = idm.refit(lambda bonus: train(bonus, 300), coefficient)
    assert estimate.standard_error == pytest.approx(exact(coefficient)[0], rel=0.01)
    with pytest.warns(idm.DriftWarning, match="do not finish"):
        idm.refit(lambda bonus: train(bonus, 10), coefficient)


def test_unchecked_trainings_do_not_read_as_perfect():
    notes = idm.refit(descent(3), coefficient, check=False).diagnostics.notes
    assert notes["response_difference"] == "unknown"
    assert notes["check_trainings"] == 0


def test_a_training_that_fails_with_a_curved_bonus_leaves_that_unknown():
    def train(bonus):
        if hasattr(bonus, "curvature"):
            raise FloatingPointError("overflow")
        return descent(300)(bonus)

    with pytest.warns(idm.DriftWarning, match=r"unknown.*overflow"):
        estimate = idm.refit(train, coefficient)
    assert estimate.diagnostics.notes["response_difference"] == "unknown"
    assert estimate.standard_error == pytest.approx(exact(coefficient)[0], rel=0.01)


# The push

WRONG_LAM = {
    "two for one psi": (coefficient, [1.0, 2.0]),
    "three for two": (both, [1.0, 2.0, 3.0]),
    "a matrix": (both, [[1.0, 2.0]]),
    "zero": (coefficient, 0.0),
    "negative": (coefficient, -1.0),
    "one of two negative": (both, [1.0, -1.0]),
    "infinite": (coefficient, np.inf),
    "nan": (coefficient, np.nan),
}


@pytest.mark.parametrize("attack", WRONG_LAM)
def test_a_lambda_that_makes_no_sense_is_refused(attack):
    psi, lam = WRONG_LAM[attack]
    with pytest.raises(ValueError, match=r"lam (has shape .*one for each|must be positive)"):
        idm.refit(descent(5), psi, lam=lam)


@pytest.mark.parametrize("lam", [50.0, 200.0])
def test_a_lambda_that_pushes_too_far_is_noticed(lam):
    with pytest.warns(idm.NonlinearityWarning, match=r"`lam` pushes psi so far.*Leave `lam` out"):
        estimate = idm.refit(scipy_bfgs, probability, lam=lam)
    assert abs(estimate.standard_error / exact(probability)[0] - 1) > 0.05
    assert idm.refit(scipy_bfgs, probability).standard_error == pytest.approx(
        exact(probability)[0], rel=0.02
    )


# The bonus

IGNORED = lambda bonus: descent(50)(lambda b: 0 * b[0])
TURNED = lambda bonus: descent(300)(lambda b: -bonus(b))


@pytest.mark.parametrize("lam", [None, 1.0])
@pytest.mark.parametrize(
    ("train", "message"),
    [(IGNORED, "leaves the bonus out"), (TURNED, "although it was pushed to rise.*subtracted")],
    ids=["ignored", "turned around"],
)
def test_a_bonus_that_is_ignored_or_turned_around_is_refused(train, message, lam):
    with pytest.raises(idm.ConvergenceError, match=re.compile(message, re.DOTALL)):
        idm.refit(train, coefficient, lam=lam)

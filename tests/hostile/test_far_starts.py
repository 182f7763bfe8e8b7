"""Fits from far away, of unusual arrays, and from several starts: right, or refused."""

import numpy as np
import pytest

import implicit_delta as idm

RNG = np.random.default_rng(0)
PRESSURE, TEMPERATURE = 101325 + RNG.normal(size=50), 300.15 + 1e-3 * RNG.normal(size=50)
COUNTS = RNG.poisson(3e9, size=5).astype(float)
LARGE, X4 = np.round(1e11 * np.array([1.0, 2.0, 3.0, 5.0])), np.arange(1.0, 5.0)
FAR = {  # terms, start, bounds, the estimate and its standard error
    "pressure": (
        lambda t: -((PRESSURE - t[0]) ** 2) / 2, 0.0, None, PRESSURE.mean(), 50**-0.5
    ),
    "temperature": (
        lambda t: -(((TEMPERATURE - t[0]) / 1e-3) ** 2) / 2, 273.0, None, TEMPERATURE.mean(),
        1e-3 * 50**-0.5,
    ),
    "counts from below": (
        lambda t: COUNTS * np.log(t[0]) - t[0], 1e9, None, COUNTS.mean(), (COUNTS.mean() / 5) ** 0.5
    ),
    "counts from above": (
        lambda t: LARGE * np.log(t[0] * X4) - t[0] * X4, 3e11, (1e8, 1e13),
        LARGE.sum() / 10, LARGE.sum() ** 0.5 / 10,
    ),
    "a box": (
        lambda t: -((1e7 + PRESSURE - t[0]) ** 2) / 2, 1.0, (0, 2e7), 1e7 + PRESSURE.mean(),
        50**-0.5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAR)
def test_a_start_that_is_very_many_standard_errors_away(name):
    loglik, start, bounds, value, error = FAR[name]
    options = {} if bounds is None else {"bounds": [bounds]}
    model = idm.from_loglik(loglik, start=[start], **options)
    assert abs(model.theta[0] - value) < 0.01 * error
    found = idm.infer(model, lambda t: t[0])
    assert found.standard_error == pytest.approx(error, rel=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_many_parameters_in_a_wide_box(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(29, 9))
    y = X @ rng.normal(size=9) + rng.normal(size=29)
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    errors = np.sqrt(np.diag(np.linalg.inv(X.T @ X)))
    low, high = (best + s * 1e6 * errors * rng.uniform(0.2, 1, 9) for s in (-1, 1))
    start = low + (high - low) * rng.uniform(0.05, 0.95, 9)
    bounds = list(zip(low, high, strict=True))
    model = idm.from_loglik(lambda t: -((y - X @ t) ** 2) / 2, start=start, bounds=bounds)
    assert np.max(abs(np.array(model.theta) - best) / errors) < 0.01


def test_no_event_still_ends_at_its_bound():
    model = idm.from_loglik(lambda t: -t[0] * np.ones(3), start=[1.0], bounds=[(0, 10)])
    assert model.theta[0] == 0


MASK = np.argsort(np.argsort(PRESSURE)) >= 45
MASKED = np.ma.masked_array(np.where(MASK, 9999.0, PRESSURE), mask=MASK)
ENTRIES = {
    "loglik": lambda y: idm.from_loglik(lambda t: -((y - t[0]) ** 2) / 2, start=[0.0]),
    "residuals": lambda y: idm.from_residuals(lambda t: y - t[0], start=[0.0]),
    "equations": lambda y: idm.from_equations(lambda t: y - t[0], start=[0.0]),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_masked_values_are_refused(entry):
    with pytest.raises(ValueError, match=r"5 masked values.*compressed"):
        ENTRIES[entry](MASKED)
    assert ENTRIES[entry](MASKED.compressed()).n == 45
    whole = np.ma.masked_array(PRESSURE, mask=np.zeros(50, dtype=bool))
    assert ENTRIES[entry](whole).n == 50


RAGGED = {
    "loglik": lambda y: idm.from_loglik(lambda t: -((y[y > t[0]] - t[0]) ** 2), start=[-1.0]),
    "residuals": lambda y: idm.from_residuals(lambda t: y[y > t[0]] - t[0], start=[-1.0]),
    "equations": lambda y: idm.from_equations(lambda t: y[y > t[0]] - t[0] - 1, start=[-1.0]),
}


@pytest.mark.parametrize("entry", RAGGED)
def test_rows_that_come_and_go_are_refused(entry):
    with pytest.raises(idm.UnsupportedModelError, match=r"values, and \d+ at other parameters"):
        RAGGED[entry](np.linspace(-1.5, 2, 60))


def test_terms_of_a_wider_type():
    X = np.random.default_rng(4).normal(size=(120, 10))
    y = np.random.default_rng(5).normal(size=120)
    wide = idm.from_loglik(
        lambda t: -((y - np.longdouble(1) * (X @ t)) ** 2) / 2, start=np.zeros(10)
    )
    np.testing.assert_allclose(wide.theta, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-7)


def test_conjugate_gradients_of_a_matrix_that_rounding_makes_singular():
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.normal(size=(50, 50)))[0]
    A = (Q * np.geomspace(1e-13, 1, 50)) @ Q.T
    A, b = (A + A.T) / 2, rng.normal(size=(50, 1))
    try:
        found = idm.conjugate_gradient().solve(lambda v: A @ v, b)
    except idm.ImplicitDeltaError:
        return
    assert found.quadratic[0, 0] == pytest.approx((b.T @ np.linalg.solve(A, b)).item(), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_starts_find_the_frequency_of_a_sinusoid(seed):
    """Starts are drawn in the scale of the curve: ten find a frequency 40 peaks away."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 20, 80))
    y = 2 * np.sin(3.3 * x + 0.7) + 1 + rng.normal(0, 0.5, 80)
    residuals = lambda p: y - p.A * np.sin(p.w * x + p.phase) - p.c
    start = {"A": 1.0, "w": 1.0, "phase": 0.0, "c": 0.0}
    for starts in (10, 20):
        model = idm.from_residuals(residuals, start=start, starts=starts)
        assert abs(model.theta.w) == pytest.approx(3.3, abs=0.05)


@pytest.mark.parametrize("start", [{"V": 1.0, "K": 1.0}, {"V": 1.0, "K": 10.0}])
@pytest.mark.parametrize("entry", ["loglik", "residuals", "starts"])
def test_a_fit_stays_within_its_bounds(entry, start):
    """A solver may never return from beyond them."""
    rng = np.random.default_rng(2)
    x = np.linspace(0.1, 5, 25)
    y = 3 * x / (0.15 + x) + rng.normal(0, 0.3, 25)
    beyond = []

    def residuals(theta):
        beyond.extend(np.flatnonzero([theta[0] < 0, theta[1] < 0]))
        return y - theta[0] * x / (theta[1] + x)

    bounds = {"V": (0, None), "K": (0, None)}
    if entry == "loglik":
        model = idm.from_loglik(
            lambda th: -((residuals(th) / 0.3) ** 2) / 2, start=start, bounds=bounds
        )
    else:
        starts = {"starts": 5} if entry == "starts" else {}
        model = idm.from_residuals(residuals, start=start, bounds=bounds, **starts)
    found = model.theta.K
    assert found == pytest.approx(0.16842863, rel=1e-5)
    assert not beyond


@pytest.mark.filterwarnings("ignore::implicit_delta.errors.SmallSampleWarning")
@pytest.mark.parametrize("robust", [False, True])
def test_answers_of_a_sum_with_a_measurement_are_joined_by_its_stated_error(robust):
    rng = np.random.default_rng(0)
    y, z = rng.normal(3, 1, size=100), rng.normal(1, 10, size=20)
    model = (
        idm.from_loglik(lambda t: -0.5 * (y - t.a - t.b) ** 2, theta={"a": 1.0, "b": y.mean() - 1})
        + idm.from_loglik(lambda t: -0.5 * ((z - t.a) / 10) ** 2, start={"a": 1.0})
        + idm.measurement(a=(z.mean() + 0.05, 0.5))
    )
    a, b = (idm.infer(model, psi, influence=True, robust=robust) for psi in "ab")
    for sign, joined in ((1, a + b), (-1, a - b)):
        both = idm.infer(model, lambda t, s=sign: t.a + s * t.b, robust=robust)
        # The rows have the scatter of a sample, which the variance of a model does not have.
        rel = 1e-9 if robust else 3 / (2 * 100) ** 0.5
        assert joined.standard_error == pytest.approx(both.standard_error, rel=rel)


def test_a_log_likelihood_that_raises_beyond_its_bounds():
    y = np.random.default_rng(21).normal(5, 0.3, size=80)

    def loglik(b):
        if min(b) < 1e-6:
            raise ValueError("math domain error")
        return -np.log(b[1]) - 0.5 * ((y - b[0]) / b[1]) ** 2

    model = idm.from_loglik(loglik, start=[0.05, 20.0], bounds=[(1e-6, None)] * 2)
    np.testing.assert_allclose(model.theta, [y.mean(), y.std()], rtol=1e-5)

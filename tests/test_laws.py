"""Laws that hold whatever the numbers: of scale, parametrization, repetition and order."""

import pytest

pytest.importorskip("hypothesis")

import numpy as np
from cases import logistic
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import implicit_delta as idm

METHODS = [idm.Infinitesimal(), idm.FiniteDifference()]
METHOD = pytest.mark.parametrize("method", METHODS, ids=["infinitesimal", "finite"])


def data(seed, n=80):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    return X, (rng.random(n) < expit(X @ [0.2, 1.0, -0.5])).astype(float)


def fit(X, y, **options):
    return idm.from_loglik(lambda b: y * (X @ b) - np.logaddexp(0, X @ b), **options)


def probability(b):
    return expit(b[0] + 0.5 * b[1])


@METHOD
@settings(max_examples=10, deadline=None)
@given(a=st.floats(-1e6, 1e6).filter(lambda a: abs(a) > 1e-6), b=st.floats(-1e3, 1e3))
def test_a_psi_plus_b_scales_the_error_by_a(method, a, b):
    case = logistic()
    model = idm.from_loglik(case.loglik, case.theta, score=case.score)
    plain = idm.infer(model, case.psi, method).standard_error
    affine = idm.infer(model, lambda th: a * case.psi(th) + b, method).standard_error
    # b takes digits away from a * psi before its differences are formed
    lost = 1e-13 * abs(b) / (abs(a) * plain)
    assert affine == pytest.approx(abs(a) * plain, rel=1e-6 + 1e2 * lost)


@METHOD
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_reparametrizing_theta_changes_nothing(method, seed):
    X, y = data(0)
    rng = np.random.default_rng(seed)
    T = rng.normal(size=(3, 3)) + 3 * np.eye(3)
    model = fit(X, y, start=np.zeros(3))
    other = fit(X @ T, y, theta=np.linalg.solve(T, model.theta))
    plain = idm.infer(model, probability, method).standard_error
    moved = idm.infer(other, lambda c: probability(T @ c), method).standard_error
    assert moved == pytest.approx(plain, rel=1e-6)


@METHOD
def test_a_nonlinear_reparametrization_changes_nothing(method):
    y = np.random.default_rng(0).exponential(2.0, size=50)
    rate = idm.from_loglik(lambda th: np.log(th[0]) - th[0] * y, theta=[1 / y.mean()])
    log_mean = idm.from_loglik(lambda th: -th[0] - y * np.exp(-th[0]), theta=[np.log(y.mean())])
    one = idm.infer(rate, lambda th: 1 / th[0], method).standard_error
    two = idm.infer(log_mean, lambda th: np.exp(th[0]), method).standard_error
    assert one == pytest.approx(two, rel=1e-6)


@METHOD
@pytest.mark.parametrize("copies", [2, 5])
def test_duplicated_data_divides_the_variance(method, copies):
    X, y = data(1)
    model = fit(X, y, start=np.zeros(3))
    many = fit(np.tile(X, (copies, 1)), np.tile(y, copies), theta=model.theta)
    single = idm.infer(model, probability, method).covariance
    # a push of half a standard error is a shorter way in the larger sample
    rel = 1e-8 if isinstance(method, idm.Infinitesimal) else 1e-2
    np.testing.assert_allclose(
        idm.infer(many, probability, method).covariance * copies, single, rtol=rel
    )


@METHOD
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_row_order_does_not_matter(method, seed):
    X, y = data(2)
    order = np.random.default_rng(seed).permutation(len(y))
    model = fit(X, y, start=np.zeros(3))
    shuffled = fit(X[order], y[order], theta=model.theta)
    assert idm.infer(shuffled, probability, method).standard_error == pytest.approx(
        idm.infer(model, probability, method).standard_error, rel=1e-7
    )


@METHOD
@pytest.mark.parametrize("robust", [False, True])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_weights_are_repetitions(method, robust, seed):
    X, y = data(3)
    counts = np.random.default_rng(seed).integers(0, 4, size=len(y))
    weighted = fit(X, y, start=np.zeros(3), weights=counts, l2=0.1)
    repeated = fit(np.repeat(X, counts, axis=0), np.repeat(y, counts), theta=weighted.theta, l2=0.1)
    assert idm.infer(weighted, probability, method, robust=robust).standard_error == pytest.approx(
        idm.infer(repeated, probability, method, robust=robust).standard_error, rel=1e-6
    )


def test_both_methods_meet_as_lambda_goes_to_zero():
    case = logistic()
    model = idm.from_loglik(case.loglik, case.theta, score=case.score)
    finite = idm.infer(model, case.psi, idm.FiniteDifference(push=0.01)).standard_error
    assert finite == pytest.approx(idm.infer(model, case.psi).standard_error, rel=2e-5)

"""Log-likelihoods that are traced, or not, and printed as what they are."""

import numpy as np
import pandas as pd
import pytest
from scipy import special
from scipy.special import logsumexp

import implicit_delta as idm
from implicit_delta.calculus.tracing import trace

D = 9
rng = np.random.default_rng(0)
X = rng.normal(size=(80, D))
y = X @ np.linspace(-1, 1, D) + rng.normal(size=80)
LABELED = pd.Series(y, index=rng.permutation(80))
WEIGHT = pd.Series(np.linspace(1, 2, 80))
FRAME = pd.DataFrame(X)


def into_zeros(th):
    found = np.zeros(80)
    found[:] = -0.5 * (y - X @ th) ** 2
    return found


TRACED = {
    "array": lambda th: -0.5 * (y - X @ th) ** 2,
    "series on the left": lambda th: -0.5 * (LABELED - X @ th) ** 2,
    "series on the right": lambda th: -0.5 * (X @ th - LABELED) ** 2,
    "product with a series": lambda th: LABELED * (X @ th) - 0.5 * (X @ th) ** 2,
    "module's function": lambda th: -0.5 * (y - X @ th) ** 2 - 0.01 * special.logsumexp(th),
}
DIFFERENCED = {
    "dot": lambda th: -0.5 * (y - X.dot(th)) ** 2,
    "asarray": lambda th: -0.5 * (y - X @ np.asarray(th)) ** 2,
    "array of numbers": lambda th: -0.5 * (y - X @ np.array([*th[:8], th[8]])) ** 2,
    "frame @": lambda th: -0.5 * (y - FRAME @ th) ** 2,
    "linalg": lambda th: -0.5 * (y - X @ th) ** 2 - 0.01 * np.linalg.det(np.diag(th[:2] + 5.0)),
    "into zeros": into_zeros,
    "imported name": lambda th: -0.5 * (y - X @ th) ** 2 - 0.01 * logsumexp(th),
    "two indexes": lambda th: -0.5 * WEIGHT * (LABELED - X @ th) ** 2,
}


@pytest.mark.parametrize("name", TRACED)
def test_what_is_traced_is_exact(name):
    model = idm.from_loglik(TRACED[name], start=np.zeros(D))
    assert "derivatives: exact, by tracing" in str(model)
    if name != "module's function":
        np.testing.assert_allclose(model.theta, np.linalg.solve(X.T @ X, X.T @ y), rtol=1e-6)
        np.testing.assert_allclose(
            idm.infer(model, lambda th: th[0]).standard_error,
            np.sqrt(np.linalg.inv(X.T @ X)[0, 0]),
            rtol=1e-6,
        )


@pytest.mark.parametrize("name", DIFFERENCED)
def test_what_is_not_traced_is_printed_as_differences(name):
    model = idm.from_loglik(DIFFERENCED[name], start=np.zeros(D))
    assert "derivatives: by differences" in str(model)


def test_few_parameters_and_given_scores_need_no_line():
    few = idm.from_loglik(lambda th: -0.5 * (y - X[:, :2] @ th) ** 2, start=np.zeros(2))
    given = idm.from_loglik(
        DIFFERENCED["dot"], start=np.zeros(D), score=lambda th: X * (y - X @ th)[:, None]
    )
    assert "derivatives" not in str(few) + str(given)


@pytest.mark.parametrize(
    "psi",
    [
        lambda th: ((LABELED - X @ th) ** 2).sum(),
        lambda th: np.mean(abs(LABELED) * np.exp(0.1 * (X @ th))),
        lambda th: np.sum(LABELED / np.exp(X @ th)),
    ],
)
def test_psi_of_a_series_is_traced(psi):
    th = np.linspace(0, 1, D)
    found = trace(psi, th)[1]
    steps = 1e-6 * np.eye(D)
    np.testing.assert_allclose(
        found[0], [(psi(th + h) - psi(th - h)) / 2e-6 for h in steps], rtol=1e-5
    )


@pytest.mark.parametrize(
    "psi",
    [
        lambda th: ((LABELED - WEIGHT * th[0]) ** 2).sum(),  # pandas aligns the two
        lambda th: (LABELED * (WEIGHT - X @ th)).sum(),
        lambda th: ((LABELED - X @ th).iloc[:5] * WEIGHT[:5]).sum(),
    ],
)
def test_series_that_pandas_would_align_are_not_traced(psi):
    assert trace(psi, np.zeros(D)) is None
    assert trace(lambda th: (WEIGHT * th[0]).sum(), np.zeros(D)) is not None

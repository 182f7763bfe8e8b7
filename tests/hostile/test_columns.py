"""A rank-deficient design is refused with the names of its columns, whatever the door."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import implicit_delta as idm

RNG = np.random.default_rng(3)
N = 60
AGE, DOSE, OTHER = RNG.normal(size=(3, N))
Y = AGE + RNG.normal(size=N)
BINARY = (RNG.random(N) < 0.5) * 1.0
SITES = {f"site_{j}": (np.arange(N) % 4 == j) * 1.0 for j in range(4)}
# design: columns beside `other`, and those that are redundant
DESIGNS = {
    "a sum": ({"age": AGE, "dose": DOSE, "both": AGE + DOSE}, {"age", "dose", "both"}),
    "a difference in other units": (
        {"age": AGE, "dose": DOSE, "gap": 1000 * (AGE - DOSE)},
        {"age", "dose", "gap"},
    ),
    "twice": ({"age": AGE, "years": AGE}, {"age", "years"}),
    "a column for every category": (SITES, {"constant", *SITES}),
    "two at once": (
        {"age": AGE, "years": 2 * AGE, "dose": DOSE, "mg": DOSE / 1000},
        {"age", "years", "dose", "mg"},
    ),
    "a constant beside the intercept": ({"age": AGE, "one": np.ones(N)}, {"constant", "one"}),
}


def frame_of(columns):
    return pd.DataFrame({**columns, "other": OTHER})


def ols(frame):
    sm = pytest.importorskip("statsmodels.api")
    return idm.from_statsmodels(sm.OLS(Y, frame.assign(constant=1.0)).fit())


def robust_ols(frame):
    sm = pytest.importorskip("statsmodels.api")
    return idm.from_statsmodels(sm.OLS(Y, frame.assign(constant=1.0)).fit(cov_type="HC0"))


def glm(frame):
    sm = pytest.importorskip("statsmodels.api")
    X, b = frame.assign(constant=1.0), np.zeros(frame.shape[1] + 1)
    model = idm.from_statsmodels(sm.GLM(BINARY, X, family=sm.families.Binomial()).fit())
    # On some processors statsmodels inverts singular values of rounding size, and ends at 1e14.
    for _ in range(10):
        p = expit(X @ b)
        half = np.sqrt(p * (1 - p))
        b += np.linalg.lstsq(X.mul(half, axis=0), (BINARY - p) / half, rcond=1e-10)[0]
    return model.at(b)


def linear(frame):
    linear_model = pytest.importorskip("sklearn.linear_model")
    return idm.from_sklearn(linear_model.LinearRegression().fit(frame, Y), frame, Y)


def residuals(frame):
    X = frame.assign(constant=1.0)
    Z = X.to_numpy()
    b = np.linalg.lstsq(Z, Y, rcond=None)[0]
    return idm.from_residuals(
        lambda b: Y - Z @ b, b, jacobian=lambda b: -Z, names=list(X), variance="mle"
    )


DOORS = {"OLS": ols, "OLS, HC0": robust_ols, "GLM": glm, "LinearRegression": linear,
         "from_residuals": residuals}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", DESIGNS)
def test_redundant_columns_are_named(name, door):
    columns, redundant = DESIGNS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # statsmodels sees it too
        model = DOORS[door](frame_of(columns))
    with pytest.raises(idm.NotAMaximumError) as refusal:
        idm.infer(model, idm.parameters)
    listed = str(refusal.value).split("the parameters ")[1].split(" (curvature")[0]
    if door == "LinearRegression":
        redundant = {"intercept" if label == "constant" else label for label in redundant}
    assert set(listed.split(", ")) == redundant


@pytest.mark.parametrize("door", DOORS)
def test_what_the_data_determine_is_answered(door):
    columns, _ = DESIGNS["a sum"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DOORS[door](frame_of(columns))
    k = model.names.index("other")
    psi = {
        "OLS": lambda p: p["other"],
        "OLS, HC0": lambda p: p["other"],
        "GLM": lambda p: p["other"],
        "LinearRegression": lambda e: e.coef_[k],
        "from_residuals": lambda b: b[k],
    }[door]
    assert idm.infer(model, psi).standard_error > 0

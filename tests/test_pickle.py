"""Models can be pickled wherever the functions they are made of can, and print in a few lines."""

import pytest

pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("statsmodels")

import pickle

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_sklearn import CLASSES, FITTED, NEW, X, logistic
from test_statsmodels import BINARY, EXACT, ROUGH, quietly
from test_statsmodels import X as DESIGN

import implicit_delta as idm
from implicit_delta.models.penalty import Penalty, Ridge
from implicit_delta.models.weights import Weights

TIMES = np.linspace(0.1, 3.0, 40)
DECAY = 2.0 * np.exp(-0.7 * TIMES) + 0.1 * np.random.default_rng(3).normal(size=40)
COUNTS = np.array([3, 0, 2, 5, 1, 4, 2, 3])


def residuals(theta):
    return DECAY - theta[0] * np.exp(-theta[1] * TIMES)


def jacobian(theta):
    curve = np.exp(-theta[1] * TIMES)
    return np.column_stack([-curve, theta[0] * TIMES * curve])


def loglik(theta):
    return COUNTS * theta[0] - np.exp(theta[0])


def score(theta):
    return (COUNTS - np.exp(theta[0]))[:, None]


def penalty(theta):
    return theta[0] ** 2 / 8


def least_squares(**options):
    return idm.from_residuals(residuals, start=[1.0, 1.0], **options)


def formula(kind, text):
    frame = pd.DataFrame(DESIGN[:, 1:], columns=["a", "b", "c"]).assign(
        y=BINARY, k=(DESIGN[:, 1] > 0) + 1.0 * BINARY
    )
    return idm.from_statsmodels(kind(text, frame).fit(disp=0))


NUMPY = {
    "loglik": lambda: idm.from_loglik(loglik, start=[0.0], penalty=penalty, l2=0.1),
    "loglik, score": lambda: idm.from_loglik(loglik, start=[0.0], score=score),
    "residuals": lambda: least_squares(variance="unbiased", l2=1.0),
    "residuals, jacobian": lambda: least_squares(jacobian=jacobian, weights=1.0 + (TIMES > 1)),
}
STATSMODELS = {
    **{name: lambda fit=fit: idm.from_statsmodels(quietly(fit)) for name, fit in EXACT.items()},
    **{
        name: lambda fit=fit: idm.from_statsmodels(quietly(fit)) for name, (_, fit) in ROUGH.items()
    },
    "formula": lambda: formula(smf.logit, "y ~ a + b"),
    "formula of classes": lambda: formula(smf.mnlogit, "k ~ a + b"),
}
MODELS = {**NUMPY, **STATSMODELS}


@pytest.mark.parametrize("name", MODELS)
def test_a_pickled_model_gives_the_same_estimate(name):
    model = MODELS[name]()
    again = pickle.loads(pickle.dumps(model))
    for psi in (idm.parameters, first):
        expected, actual = idm.infer(model, psi), idm.infer(again, psi)
        np.testing.assert_array_equal(actual.value, expected.value)
        np.testing.assert_array_equal(actual.covariance, expected.covariance)


def first(params):
    return 2 * np.ravel(params)[0]


@pytest.mark.parametrize("name", [*FITTED, "nested pipeline"])
def test_a_pickled_estimator_predicts_the_same(name):
    model = nested() if name == "nested pipeline" else fitted(name)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        again.evaluate(predict, again.theta), model.evaluate(predict, model.theta)
    )
    np.testing.assert_array_equal(
        again.jacobian(predict, again.theta), model.jacobian(predict, model.theta)
    )
    everything = np.eye(model.d)
    np.testing.assert_array_equal(
        again.information(again.theta, everything), model.information(model.theta, everything)
    )
    if name != "MLPRegressor, identity":  # whose parameters are redundant
        expected, actual = (idm.infer(m, predict, strict=False) for m in (model, again))
        np.testing.assert_array_equal(actual.covariance, expected.covariance)


def fitted(name):
    estimator, y = FITTED[name]()
    return idm.from_sklearn(estimator, X, y)


def nested():
    inner = make_pipeline(StandardScaler(), logistic(C=1.0))
    pipe = make_pipeline(StandardScaler(), inner).fit(X, CLASSES)
    return idm.from_sklearn(pipe, X, CLASSES)


def predict(estimator):
    several = hasattr(estimator, "classes_")
    return (estimator.predict_proba(NEW) if several else estimator.predict(NEW)).ravel()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_prints_in_five_lines_without_arrays(name):
    check_print(MODELS[name]())


@pytest.mark.parametrize("name", FITTED)
def test_an_estimator_prints_in_five_lines_without_arrays(name):
    check_print(fitted(name))


def check_print(model):
    text = repr(model)
    assert len(text.splitlines()) <= 5
    assert f"{model.n} observations, {model.d} parameters" in text
    assert "array" not in text
    assert "0x" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_print_names_the_objective():
    model = least_squares(variance=0.5, l2=1.0, weights=1.0 + (TIMES > 1))
    assert repr(model) == (
        f"{type(model).__name__}: 40 observations, 2 parameters\n"
        "  log-likelihood: GaussianResiduals\n"
        "  l2: 1\n"
        "  weights: 1 to 2 (frequency)"
    )
    text = repr(idm.from_loglik(loglik, start=[0.0], penalty=penalty))
    assert "loglik" in text
    assert "penalty: penalty" in text


class RowsOfSomebody:
    """Rows of a backend of somebody else's, with nothing but the contract."""

    n, d, symmetric, outputs, passes = 3, 2, True, None, 0
    terms = score = curvature = terms_along = sum_blocks = None


def test_the_print_of_another_backend_is_that_of_all():
    parts = np.zeros(2), RowsOfSomebody(), Weights(np.ones(3)), Penalty((Ridge(0.5),))
    assert repr(idm.FittedModel(*parts)) == "FittedModel: 3 observations, 2 parameters\n  l2: 0.5"

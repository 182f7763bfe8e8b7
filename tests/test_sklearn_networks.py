"""scikit-learn's perceptrons by every route: tangent, draws, statistics, averages, robust."""

import pytest

pytest.importorskip("sklearn")

import pickle
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import implicit_delta as idm
from implicit_delta.models.early_stop import early_stopped
from implicit_delta.models.outputs import curvature_noise, is_network, tangent_model

RNG = np.random.default_rng(2)
N, P = 200, 3
X, NEW = RNG.normal(size=(N, P)), RNG.normal(size=(150, P))
SIGNAL = X[:, 0] - X[:, 1] * X[:, 2]
TWO = (SIGNAL + RNG.logistic(size=N) > 0).astype(int)
THREE = np.digitize(SIGNAL + RNG.logistic(size=N), [-1, 1])
REAL = SIGNAL + RNG.normal(size=N)
NEW_TWO = RNG.integers(0, 2, len(NEW))


def fit(kind, y, activation="tanh", hidden=(4,), scaled=False):
    common = {"alpha": 1.0, "solver": "lbfgs", "random_state": 0, "max_iter": 400}
    net = kind(hidden_layer_sizes=hidden, activation=activation, **common)
    net = make_pipeline(StandardScaler(), net) if scaled else net
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        net.fit(X, y)
    return idm.from_sklearn(net, X, y)


CASES = {
    "two classes": (MLPClassifier, TWO, {}),
    "three classes": (MLPClassifier, THREE, {}),
    "two layers, relu": (MLPClassifier, TWO, {"activation": "relu", "hidden": (4, 3)}),
    "logistic, in a pipeline": (MLPClassifier, THREE, {"activation": "logistic", "scaled": True}),
    "regression": (MLPRegressor, REAL, {}),
    "regression, identity": (MLPRegressor, REAL, {"activation": "identity"}),
}


# Biases are not penalized: those of dead or linear units are redundant, and there is no draw.
FLAT = {"two layers, relu", "regression, identity"}
GGN = idm.Infinitesimal(curvature="ggn")


@pytest.fixture(scope="module")
def models():
    return {name: fit(kind, y, **settings) for name, (kind, y, settings) in CASES.items()}


def logits(net):
    """Outputs before their activation, up to what softmax takes out."""
    if not hasattr(net, "predict_proba"):
        return net.predict(NEW[:5])
    log = np.log(net.predict_proba(NEW[:5]))
    return (log[:, 1:] - log[:, :1]).ravel()


@pytest.mark.parametrize("case", CASES)
def test_outputs_of_the_tangent_are_linear(case, models):
    model = models[case]
    assert is_network(model)
    step = 0.3 * np.random.default_rng(1).normal(size=model.d)
    # differences, for a logarithm is not traced
    slope = [(model.evaluate(logits, model.theta + h * step)) for h in (1e-5, -1e-5)]
    expected = model.evaluate(logits, model.theta) + (slope[0] - slope[1]) / 2e-5
    found = model.space.language.evaluate_tangent(logits, model.theta, step)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    tangent = tangent_model(model)
    np.testing.assert_allclose(tangent.evaluate(logits, model.theta + step), found, atol=1e-9)
    there = tangent.space.language.evaluate_tangent(logits, model.theta + step / 2, step / 2)
    np.testing.assert_allclose(there, found, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_the_tangent_is_a_concave_model(case, models):
    model = models[case]
    tangent, step = tangent_model(model), 0.1 * np.random.default_rng(1).normal(size=model.d)
    theta = model.theta + step
    slope = [
        (tangent.objective(theta + 1e-5 * v) - tangent.objective(theta - 1e-5 * v)) / 2e-5
        for v in np.eye(model.d)
    ]
    np.testing.assert_allclose(tangent.score(theta), slope, rtol=1e-4, atol=1e-4)
    A, B = (tangent.information(theta, np.eye(model.d), c) for c in ("hessian", "ggn"))
    np.testing.assert_allclose(A, B, rtol=1e-8, atol=1e-8)
    single = tangent.information(theta, np.eye(model.d)[:, 2])
    np.testing.assert_allclose(single, A[:, 2], rtol=1e-8, atol=1e-8)
    bent = [(tangent.score(theta - 1e-5 * v) - tangent.score(theta + 1e-5 * v)) / 2e-5
            for v in np.eye(model.d)]  # fmt: skip
    np.testing.assert_allclose(np.array(bent), A, rtol=1e-4, atol=1e-4)
    same = model.information(model.theta, np.eye(model.d), "ggn")
    np.testing.assert_allclose(tangent.information(model.theta, np.eye(model.d)), same, rtol=1e-8)


# A fit of ReLU units ends beside a kink of the objective. Rounding decides at which one: how far
# the objective falls to its two sides, and whether that is warned about, differs.
AT_A_KINK = pytest.mark.filterwarnings("ignore:The log-likelihood is not close to a parabola")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=AT_A_KINK if "relu" in case else ()) for case in CASES]
)
@pytest.mark.filterwarnings("ignore:The model is not at its maximum")
@pytest.mark.filterwarnings("ignore:The penalty has moved psi")
@pytest.mark.filterwarnings("ignore:The variance of the targets")
def test_draws_in_the_tangent_equal_the_dense_reference(case, models):
    model = models[case]
    g = model.jacobian(logits, model.theta)
    A = model.information(model.theta, np.eye(model.d), "ggn")
    expected = g @ np.linalg.pinv(A, rcond=1e-10) @ g.T
    solved = idm.infer(model, logits, GGN, strict=False)
    np.testing.assert_allclose(solved.covariance, expected, rtol=1e-4, atol=1e-6)
    if case in FLAT:
        with pytest.raises(idm.NotAMaximumError, match='curvature="ggn"'):
            idm.infer(model, logits, idm.Simulation(400, rng=0), strict=False)
        return
    drawn = idm.infer(model, logits, idm.Simulation(400, rng=0), strict=False)
    assert "tangent=True" in drawn.method
    np.testing.assert_allclose(drawn.covariance, expected, rtol=1e-4, atol=1e-7)


def accuracy(units, weight):
    return weight @ ((units > 0.5) == NEW_TWO) / weight.sum()


def score(net):
    return net.predict_proba(NEW)[:, 1]


def mean(net):
    return score(net).mean()


def share(net):
    return accuracy(score(net), np.ones(len(NEW)))


ROUTES = {
    "default": (mean, {}),
    "robust": (mean, {"robust": True}),
    "HC3": (mean, {"robust": "HC3"}),
    "ggn": (mean, {"method": GGN}),
    "tangent": (share, {"method": idm.Simulation(200, rng=0)}),
    "average": (idm.Average(score), {}),
    "average, ggn": (idm.Average(score), {"method": GGN}),
    "statistic": (idm.Statistic(score, accuracy), {}),
    "statistic, robust": (idm.Statistic(score, accuracy), {"robust": True}),
    "statistic, ggn": (idm.Statistic(score, accuracy), {"method": GGN}),
}


@pytest.fixture(scope="module")
def at_maximum(models):
    return idm.polish(models["two classes"])


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.filterwarnings("ignore:The penalty has moved psi")
def test_every_route_answers(route, at_maximum):
    psi, options = ROUTES[route]
    est = idm.infer(at_maximum, psi, **options)
    assert 0 < est.standard_error < 0.2
    if isinstance(psi, idm.Average | idm.Statistic):
        assert 0 < est.budget["model"] < est.standard_error


def test_relu_has_a_maximum_in_the_tangent(models):
    tangent = idm.polish(models["two layers, relu"], tangent=True)
    np.testing.assert_allclose(tangent.score(tangent.theta), 0, atol=1e-4)
    again = pickle.loads(pickle.dumps(tangent))
    np.testing.assert_allclose(
        again.evaluate(logits, tangent.theta), tangent.evaluate(logits, tangent.theta)
    )


def test_a_perceptron_that_computes_in_another_way_has_no_tangent(monkeypatch):
    net = MLPClassifier((2,), solver="lbfgs", random_state=0, tol=1.0).fit(X, TWO)
    monkeypatch.setattr("implicit_delta.models.sklearn.table.FORWARD", "of_another_version")
    model = idm.from_sklearn(net, X, TWO)
    assert not is_network(model)
    with pytest.raises(idm.UnsupportedModelError, match="tangent=False"):
        model.space.language.evaluate_tangent(mean, model.theta, model.theta)


def test_kinks_of_a_network_leave_its_derivative(models):
    """A logarithm is not traced, and differences of the weights would cross kinks."""
    model = models["two layers, relu"]
    whole = model.jacobian(lambda net: net.predict_proba(NEW)[:, 1], model.theta)
    logs = model.jacobian(
        lambda net: np.array(np.log(list(net.predict_proba(NEW)[:, 1]))), model.theta
    )
    p = model.evaluate(score, model.theta)
    np.testing.assert_allclose(logs, whole / p[:, None], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["two classes", "three classes", "regression"])
def test_noise_has_the_curvature_as_its_covariance(case, models):
    """Of 4000 draws the error of a variance is 2.2 %, the largest of a few hundred within 5."""
    model = models[case]
    A = model.information(model.theta, np.eye(model.d), "ggn")
    noise = curvature_noise(model, model.theta, np.random.default_rng(0), 4000)
    size = np.sqrt(np.diag(A))
    np.testing.assert_allclose(
        noise @ noise.T / 4000 / np.outer(size, size), A / np.outer(size, size), atol=0.11
    )


@pytest.mark.parametrize("kind", [MLPClassifier, MLPRegressor])
def test_a_training_that_stopped_early_is_answered(kind):
    """The usual way: Adam, minibatches, a tiny penalty, and a warning that it is not finished."""
    y = TWO if kind is MLPClassifier else REAL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        net = kind(hidden_layer_sizes=(10,), random_state=0, max_iter=30).fit(X, y)
    model = idm.from_sklearn(net, X, y)
    psi = mean if kind is MLPClassifier else (lambda net: net.predict(NEW).mean())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
        est = idm.infer(model, psi)
    assert 0.005 < est.standard_error < 0.3
    tied = early_stopped(model)
    theta, one = tied.theta, np.eye(tied.d)
    own = model.information(theta, one, "ggn") + tied.penalty.early_stop.strength * one
    np.testing.assert_allclose(tied.information(theta, one, "ggn"), own, rtol=1e-9, atol=1e-9)
    slope = [
        (tied.objective(theta + 1e-5 * v) - tied.objective(theta - 1e-5 * v)) / 2e-5 for v in one
    ]
    np.testing.assert_allclose(tied.score(theta), slope, rtol=1e-4, atol=1e-3)

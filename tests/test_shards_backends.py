"""Shards of every backend: the answer of all rows, to the last digits."""

import numpy as np
import pytest

import implicit_delta as idm

EXACT = 1e-10  # of a standard error: sums in another order
rng = np.random.default_rng(8)
N = 90
X = rng.normal(size=(N, 2))
LINEAR = X @ [1.0, -0.5] + 0.3 * np.sin(3 * X[:, 0])
COUNTS = rng.poisson(np.exp(0.4 * LINEAR)).astype(float)
VALUES = LINEAR + 0.5 * rng.normal(size=N)
CLASSES = (rng.random(N) < 1 / (1 + np.exp(-LINEAR))).astype(int)
VILLAGE = rng.integers(0, 25, N)
PARTS = [slice(0, 20), slice(20, 27), slice(27, N)]


def statsmodels(kind):
    sm = pytest.importorskip("statsmodels.api")
    A = sm.add_constant(X)
    make = {
        "logit": lambda rows: sm.Logit(CLASSES[rows], A[rows]).fit(disp=0),
        "poisson": lambda rows: sm.GLM(COUNTS[rows], A[rows], family=sm.families.Poisson()).fit(),
    }[kind]
    theta = np.asarray(make(slice(None)).params)
    parts = [slice(0, 40), slice(40, 58), slice(58, N)]  # each has a fit of its own
    return lambda rows: idm.from_statsmodels(make(rows)).at(theta), lambda b: np.exp(b[1]), parts


def sklearn(kind):
    linear = pytest.importorskip("sklearn.linear_model")
    fits = {
        "logistic": (linear.LogisticRegression(C=2.0, tol=1e-12, max_iter=5000), CLASSES),
        "poisson": (linear.PoissonRegressor(alpha=1e-2, tol=1e-12, max_iter=5000), COUNTS),
        "even poisson": (linear.PoissonRegressor(alpha=1e-2, tol=1e-12, max_iter=5000), COUNTS),
    }
    host, y = fits[kind]
    host.fit(X, y)
    even = [slice(0, 30), slice(30, 60), slice(60, N)]  # whose penalties are equal
    parts = even if kind.startswith("even") else PARTS
    ask = (lambda fit: fit.predict_proba(X[:2])[:, 1]) if y is CLASSES else (
        lambda fit: fit.predict(X[:2])
    )  # fmt: skip
    return lambda rows: idm.from_sklearn(host, X[rows], y[rows]), ask, parts


def torch(kind):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    inputs = torch.tensor(X)
    deep = torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)
    net = (torch.nn.Linear(2, 1) if kind == "gaussian" else torch.nn.Sequential(*deep)).double()
    targets = {"bernoulli": CLASSES, "gaussian": VALUES, "stopped": VALUES}[kind]
    y = torch.tensor(targets[:, None]).double()
    likelihood = idm.Bernoulli() if kind == "bernoulli" else idm.Gaussian()
    first = {name: value.clone() for name, value in net.state_dict().items()}

    def make(rows):
        if kind == "stopped":
            return idm.from_torch(net, (inputs[rows], y[rows]), likelihood, start=first)
        return idm.from_torch(net, (inputs[rows], y[rows]), likelihood, l2=1.0)

    if kind == "stopped":
        optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
        for _ in range(60):
            optimizer.zero_grad()
            torch.mean((net(inputs) - y) ** 2).backward()
            optimizer.step()
    else:
        for _ in range(4):  # the noise variance follows the weights
            net = idm.polish(make(slice(None))).module
    return make, lambda module: module(inputs[:2])[:, 0], PARTS


def jax(kind):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    params = {"w": np.zeros(2), "b": np.zeros(())}

    def apply(p, x):
        return x @ p["w"] + p["b"]

    def make(rows):
        data = X[rows], COUNTS[rows]
        return idm.from_jax(params, data, idm.Poisson(), apply=apply, dtype="float64")

    params = idm.polish(make(slice(None))).params
    return make, lambda p: jnp.exp(apply(p, X[:2])), PARTS


BACKENDS = {
    "statsmodels logit": (statsmodels, "logit"),
    "statsmodels poisson": (statsmodels, "poisson"),
    "sklearn logistic": (sklearn, "logistic"),
    "sklearn poisson": (sklearn, "poisson"),
    "sklearn even poisson": (sklearn, "even poisson"),
    "torch bernoulli": (torch, "bernoulli"),
    "torch gaussian": (torch, "gaussian"),
    "torch stopped": (torch, "stopped"),
    "jax poisson": (jax, "poisson"),
}
QUESTIONS = {
    "default": {},
    "ggn": {"method": idm.Infinitesimal(curvature="ggn")},
    "robust": {"robust": True},
    "clusters": {"clusters": VILLAGE},
    "HC3": {"robust": "HC3"},
    "influence": {"influence": True},
}


@pytest.fixture(scope="module", params=BACKENDS)
def case(request):
    make, kind = BACKENDS[request.param]
    build, psi, parts = make(kind)
    return build(slice(None)), idm.from_shards(build, parts), psi


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_infer_is_that_of_all_rows(case, question):
    one, many, psi = case
    options = QUESTIONS[question]
    if one.facts.training.start is not None and "method" in options:
        pytest.skip("by default a network is taken as it stopped")
    a, b = (idm.infer(model, psi, **options) for model in (one, many))
    errors = np.sqrt(np.diag(a.covariance))
    assert np.max(abs(a.covariance - b.covariance) / np.outer(errors, errors)) < EXACT
    assert np.max(abs(a.value - b.value) / errors) < EXACT
    assert np.allclose(a.confidence_interval(), b.confidence_interval(), atol=10 * EXACT)
    assert question != "influence" or b.influence.shape == a.influence.shape
    if b.influence is not None:
        assert np.max(abs(a.influence - b.influence) / errors) < EXACT
    stop = [est.diagnostics.notes.get("stopped") for est in (a, b)]
    assert stop[0] == stop[1]


def test_equal_parts_of_a_mean_loss_add_up_their_penalties():
    build, _, parts = sklearn("even poisson")
    one, many = build(slice(None)), idm.from_shards(build, parts)
    v = np.eye(3)
    found = many.penalty.curvature(many.theta, v)
    assert np.allclose(found, one.penalty.curvature(one.theta, v), rtol=1e-12)
    assert np.max(found) > 0

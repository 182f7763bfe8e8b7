"""JAX models against the same models in torch and NumPy.

Models choose their own precision, so no test touches the setting of the process.
"""

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("torch")

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from jax import tree_util
from torch import nn

import implicit_delta as idm
from implicit_delta.core.clusters import Clusters
from implicit_delta.models.batches import ascend
from implicit_delta.models.reducers import scatter_of
from implicit_delta.testing import check_model

torch.set_num_threads(1)
N, P = 80, 3
INPUTS, HIDDEN, CLASSES = 2, 4, 3


def design():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(N), rng.normal(size=(N, P - 1))])
    return X, X @ [0.5, 1.0, -0.5], rng


def linear_cases():
    """Name, targets, likelihood, the same log-likelihood and its score in NumPy."""
    _, eta, rng = design()
    y = eta + rng.normal(size=N)
    yield "linear", y, idm.Gaussian(0.8), lambda f: -((y - f) ** 2) / 1.6, lambda f: (y - f) / 0.8
    b = (rng.random(N) < 1 / (1 + np.exp(-eta))) * 1.0
    logistic = lambda f: b * f - np.logaddexp(0, f)
    yield "logistic", b, idm.Bernoulli(), logistic, lambda f: b - 1 / (1 + np.exp(-f))
    c = rng.poisson(np.exp(eta)) * 1.0
    yield "poisson", c, idm.Poisson(), lambda f: c * f - np.exp(f), lambda f: c - np.exp(f)


def linear(beta, X):
    return X @ beta


@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
@pytest.mark.slow
@pytest.mark.parametrize("case", list(linear_cases()), ids=lambda case: case[0])
def test_same_covariance_as_the_same_model_in_numpy(case):
    _, y, likelihood, loglik, residual = case
    X, *_ = design()
    core = idm.from_loglik(
        lambda b: loglik(X @ b), start=np.zeros(P), score=lambda b: residual(X @ b)[:, None] * X
    )
    model = idm.from_jax(core.theta, (X, y), likelihood, apply=linear, dtype="float64")
    at = X[:4] + 0.3
    theirs = idm.infer(core, lambda b: np.exp(at @ b), robust=True)
    for curvature in ("hessian", "ggn"):
        method = idm.Infinitesimal(curvature=curvature)
        mine = idm.infer(model, lambda b: jnp.exp(at @ b), method, robust=True)
        np.testing.assert_allclose(mine.value, theirs.value, rtol=1e-12)
        np.testing.assert_allclose(mine.covariance, theirs.covariance, rtol=1e-8)


def small_data(n=50):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, INPUTS))
    return X, rng.integers(0, CLASSES, size=n)


def small_params(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "inner": {"w": rng.normal(size=(INPUTS, HIDDEN)), "b": np.zeros(HIDDEN)},
        "outer": {"w": rng.normal(size=(HIDDEN, CLASSES)), "b": np.zeros(CLASSES)},
    }


def mlp(params, x):
    hidden = jnp.tanh(x @ params["inner"]["w"] + params["inner"]["b"])
    return hidden @ params["outer"]["w"] + params["outer"]["b"]


def small_model(likelihood=None, *, data=None, **options):
    likelihood = idm.Categorical() if likelihood is None else likelihood
    data = small_data() if data is None else data
    options = {"apply": mlp, "l2": 3.0, "dtype": "float64", **options}
    return idm.from_jax(small_params(), data, likelihood, **options)


@pytest.fixture(scope="module")
def reference():
    """A model that is compiled once."""
    return small_model()


@pytest.fixture(scope="module")
def polished(reference):
    return idm.polish(reference)


def in_torch(params):
    """The same network in torch."""
    net = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES)).double()
    with torch.no_grad():
        for layer, name in ((net[0], "inner"), (net[2], "outer")):
            layer.weight.copy_(torch.as_tensor(np.array(params[name]["w"]).T))
            layer.bias.copy_(torch.as_tensor(np.array(params[name]["b"])))
    return net


@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
@pytest.mark.slow
def test_torch_and_jax_give_the_same_numbers(polished):
    (X, y), jaxed = small_data(), polished
    torched = idm.from_torch(in_torch(jaxed.params), (X, y), idm.Categorical(), l2=3.0)
    at = X[:5] + 0.1
    for curvature in ("hessian", "ggn"):
        method = idm.Infinitesimal(curvature=curvature)
        mine = idm.infer(jaxed, lambda p: mlp(p, at).ravel(), method, robust=True)
        theirs = idm.infer(
            torched, lambda net: net(torch.as_tensor(at)).ravel(), method, robust=True
        )
        scale = np.outer(theirs.standard_error, theirs.standard_error)
        np.testing.assert_allclose(mine.value, theirs.value, rtol=1e-8)
        assert np.max(abs(mine.covariance - theirs.covariance) / scale) < 1e-8
        size = np.max(abs(theirs.influence))
        np.testing.assert_allclose(mine.influence, theirs.influence, atol=1e-8 * size)


@pytest.mark.slow
@pytest.mark.parametrize("variance", ["mle", "unbiased", 2.0])
def test_torch_and_jax_find_the_same_noise(variance):
    X, _ = small_data()
    Y = np.random.default_rng(1).normal(size=(len(X), CLASSES))
    jaxed = small_model(idm.Gaussian(variance), data=(X, Y))
    torched = idm.from_torch(in_torch(jaxed.params), (X, Y), idm.Gaussian(variance), l2=3.0)
    noise = jaxed.rows.outputs.likelihood.variance
    assert noise == pytest.approx(torched.rows.outputs.likelihood.variance, rel=1e-8)
    np.testing.assert_allclose(
        jaxed.rows.terms(jaxed.theta), torched.rows.terms(torched.theta), rtol=1e-8, atol=1e-12
    )


@pytest.mark.slow
def test_keeps_the_contract(reference):
    X, _ = small_data()
    psi = lambda p: jax.nn.softmax(mlp(p, X[:9]))[:, 0].mean()
    check_model(reference, psi)
    weights = np.random.default_rng(0).integers(0, 3, 50)
    squares = lambda p: sum(jnp.cosh(leaf).sum() for leaf in tree_util.tree_leaves(p))
    check_model(small_model(penalty=squares, weights=weights, batch_size=25, l2=0.0))


@pytest.mark.slow
def test_keeps_the_contract_in_single_precision():
    model = small_model(dtype="float32")
    check_model(model, rtol=1e-2)
    assert model.params["inner"]["w"].dtype == jnp.float32


def log_softmax(params, batch):
    logits = mlp(params, batch["input"])
    return jnp.take_along_axis(jax.nn.log_softmax(logits), batch["label"][:, None], 1)[:, 0]


@pytest.mark.slow
def test_sizes_of_batches_and_the_way_of_writing_do_not_change_the_result(reference):
    X, y = small_data()
    v = np.random.default_rng(0).normal(size=(reference.d, 3))
    for model in (
        small_model(batch_size=26),
        small_model(log_softmax, data={"input": X, "label": y}, apply=None),
    ):
        theta = model.theta
        np.testing.assert_allclose(model.rows.terms(theta), reference.rows.terms(theta))
        np.testing.assert_allclose(model.score(theta), reference.score(theta), rtol=1e-9)
        np.testing.assert_allclose(
            model.information(theta, v), reference.information(theta, v), rtol=1e-9
        )
        np.testing.assert_allclose(
            model.terms_along(theta, v), reference.terms_along(theta, v), atol=1e-12
        )


@pytest.mark.slow
def test_scatter_of_batches_is_that_of_all_rows():
    weights = np.random.default_rng(0).integers(0, 3, 50).astype(float)
    model = small_model(weights=weights, batch_size=20)
    v = np.random.default_rng(1).normal(size=(model.d, 3))
    rows = model.terms_along(model.theta, v)
    for clusters in (None, Clusters.of(np.arange(50) % 11, weights)):
        expected = scatter_of(rows, weights, clusters)
        np.testing.assert_allclose(model.scatter(model.theta, v, clusters), expected, rtol=1e-10)


@pytest.mark.slow
def test_gauss_newton_matrix_formed_equals_its_products(monkeypatch):
    penalty = lambda p: 0.5 * (p["inner"]["w"] ** 2).sum()
    model = small_model(penalty=penalty, weights=np.arange(50.0), batch_size=20)
    columns = model.information(model.theta, np.eye(model.d)[:, :20], "ggn")
    assert model.d >= 20
    bytes_of_7_rows = 8 * model.d * 3 * 7
    monkeypatch.setattr("implicit_delta.models.batched_outputs.JACOBIAN_BYTES", bytes_of_7_rows)
    formed = model.rows.outputs.gauss_newton_matrix(model.theta, model.weights.values)
    formed = formed + model.penalty.curvature(model.theta, np.eye(model.d))
    np.testing.assert_allclose(formed[:, :20], columns, atol=1e-10)
    wide = model.information(model.theta, np.hstack([np.eye(model.d)] * 2), "ggn")
    np.testing.assert_allclose(wide[:, : model.d], formed)


@pytest.mark.slow
def test_blocks_of_every_width_are_the_same_columns(reference, monkeypatch):
    model = reference
    v = np.random.default_rng(0).normal(size=(model.d, 7))
    whole = model.information(model.theta, v)
    monkeypatch.setattr("implicit_delta.models.program.BLOCK_BYTES", 1000)
    model = model.at(model.theta)  # without what is kept
    np.testing.assert_allclose(model.information(model.theta, v), whole, rtol=1e-10)
    np.testing.assert_allclose(model.information(model.theta, v[:, 3]), whole[:, 3], rtol=1e-10)


@pytest.mark.slow
def test_conjugate_gradients_agree_with_the_factorization(polished):
    psi = lambda p: mlp(p, jnp.ones((1, INPUTS))).ravel()
    dense, iterated = (
        idm.infer(polished, psi, idm.Infinitesimal(solver=solver)).standard_error
        for solver in (idm.cholesky, idm.conjugate_gradient(rtol=1e-6))
    )
    np.testing.assert_allclose(iterated, dense, rtol=2e-6)


@pytest.mark.slow
def test_noise_variance_is_that_of_least_squares():
    X, eta, rng = design()
    Y = np.column_stack([eta, -eta]) + rng.normal(size=(N, 2))
    beta, squares = np.linalg.lstsq(X, Y, rcond=None)[:2]
    for variance, divisor in (("mle", 2 * N), ("unbiased", 2 * N - 2 * P)):
        model = idm.from_jax(
            {"beta": beta}, (X, Y), idm.Gaussian(variance), dtype="float64",
            apply=lambda params, X: X @ params["beta"],
        )  # fmt: skip
        expected = squares.sum() / divisor * np.linalg.inv(X.T @ X)
        covariance = idm.infer(model, lambda p: p["beta"][:, 0]).covariance
        np.testing.assert_allclose(covariance, expected, rtol=1e-9)


def test_unbiased_noise_is_refused_under_another_penalty():
    with pytest.raises(idm.UnsupportedModelError, match="penalty= was given"):
        small_model(
            idm.Gaussian("unbiased"), data=(small_data()[0], np.ones((50, CLASSES))),
            penalty=lambda p: (p["inner"]["w"] ** 4).sum(),
        )  # fmt: skip


@jax.custom_vjp
def own_rule(x):
    return jnp.tanh(x)


own_rule.defvjp(
    lambda x: (jnp.tanh(x), jnp.tanh(x)), lambda tanh, cotangent: ((1 - tanh**2) * cotangent,)
)


@pytest.mark.slow
def test_operations_with_a_rule_for_reverse_mode_only(reference):
    def apply(params, x):
        hidden = own_rule(x @ params["inner"]["w"] + params["inner"]["b"])
        return hidden @ params["outer"]["w"] + params["outer"]["b"]

    model = small_model(apply=apply)
    v = np.random.default_rng(0).normal(size=(model.d, 2))
    for curvature in ("hessian", "ggn"):
        np.testing.assert_allclose(
            model.information(model.theta, v, curvature),
            reference.information(model.theta, v, curvature),
            rtol=1e-9,
        )
    np.testing.assert_allclose(
        model.terms_along(model.theta, v), reference.terms_along(model.theta, v), atol=1e-12
    )


@pytest.mark.slow
def test_precision_is_the_models_own():
    params = {"b": jnp.ones(2)}
    data = (np.arange(6.0).reshape(3, 2), np.arange(3.0))
    make = lambda **options: idm.from_jax(
        params, data, idm.Gaussian(1.0), apply=lambda p, x: x @ p["b"], **options
    )
    switch = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with switch(True):
        double, single = make(), make(dtype="float32")
    with switch(False):
        assert double.params["b"].dtype == jnp.float64
        assert make().params["b"].dtype == single.params["b"].dtype == jnp.float32
        seen = []
        value = double.evaluate(lambda p: seen.append(jnp.ones(1).dtype) or p["b"][0], double.theta)
        assert value.dtype == seen[0] == np.float64
        assert jnp.ones(1).dtype == jnp.float32
        steps = ascend(double, None, [np.arange(2)] * 2, 0.01)
        next(steps)
        assert jnp.ones(1).dtype == jnp.float32  # between two steps
    precise = np.array([1 + 1e-10, 1.0])
    assert double.rows.terms(precise)[2] != double.rows.terms(double.theta)[2]
    assert single.rows.terms(precise)[2] == single.rows.terms(single.theta)[2]


def test_models_go_to_other_processes_and_back():
    X, y = design()[0], np.arange(N) % 2
    model = idm.from_jax(np.zeros(P), (X, y), idm.Bernoulli(), apply=linear, dtype="float64")
    before = model.score(model.theta)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.score(model.theta), before)


def test_parameters_have_names_in_their_order(polished):
    model = small_model()
    assert model.names[:2] == ("inner.b[0]", "inner.b[1]")
    assert model.names[HIDDEN + 1] == "inner.w[0,1]"
    assert model.theta[HIDDEN + 1] == small_params()["inner"]["w"][0, 1]
    assert idm.infer(polished, idm.parameters).names == model.names


def test_a_model_prints_what_it_is_made_of(reference):
    lines = ["from_jax: 50 rows, 27 parameters", "log-likelihood: Categorical(), float64", "l2: 3"]
    assert str(reference).split("\n  ") == lines
    X, y = small_data()
    written = small_model(
        log_softmax, data={"input": X, "label": y}, apply=None,
        penalty=lambda p: (p["inner"]["b"] ** 2).sum(),
    )  # fmt: skip
    told = "log-likelihood: log_softmax, float64\n  penalty: <lambda>\n  l2: 3"
    assert told in repr(written)


def test_moved_models_share_nothing_with_the_first():
    params = small_params()
    data = small_data()
    model = idm.from_jax(params, data, idm.Categorical(), apply=mlp, l2=0.5, dtype="float64")
    before = model.rows.terms(model.theta)
    moved = model.at(model.theta + 1.0)
    np.testing.assert_allclose(moved.params["outer"]["w"], params["outer"]["w"] + 1.0)
    data[0][:] = 0.0
    params["outer"]["w"][:] = 0.0
    np.testing.assert_array_equal(model.rows.terms(model.theta), before)


@pytest.mark.slow
def test_polish_finishes_the_training(reference):
    X, y = small_data()
    psi = lambda p: -log_softmax(p, {"input": X, "label": y}).mean()
    done = idm.polish(reference, psi)
    assert done.gain > 0
    assert idm.infer(done.model, psi).diagnostics.drift < 1e-5


@pytest.mark.slow
def test_refits_and_simulation_agree_with_the_solve():
    X, eta, rng = design()
    y = rng.poisson(np.exp(eta))
    model = idm.from_jax(np.zeros(P), (X, y), idm.Poisson(), apply=linear, dtype="float64")
    model, psi = idm.polish(model), lambda beta: jnp.exp(X[:2] @ beta)
    solved = idm.infer(model, psi).standard_error
    refitted = idm.infer(model, psi, idm.FiniteDifference(push=0.02)).standard_error
    np.testing.assert_allclose(refitted, solved, rtol=1e-3)
    simulated = idm.infer(model, psi, idm.Simulation(400, rng=0))
    notes = simulated.diagnostics.notes
    allowed = 4 * notes["monte_carlo_error"] + notes["nonlinear_share"]
    np.testing.assert_allclose(simulated.standard_error, solved, rtol=allowed)


@pytest.mark.slow
def test_averages_and_random_evaluations_are_evaluations_too(polished):
    (X, _), model = small_data(), polished
    loss = lambda p: jax.nn.softmax(mlp(p, X))[:, 0]
    mean = idm.infer(model, lambda p: loss(p).mean())
    both = idm.infer(model, idm.Average(loss))
    assert both.budget["model"] == pytest.approx(mean.standard_error)
    assert both.standard_error > mean.standard_error
    noisy = idm.Replicated(lambda p, rng: loss(p).mean() + rng.normal(), repeats=20, rng=0)
    assert idm.infer(model, noisy).budget["model"] == pytest.approx(mean.standard_error)


@pytest.mark.slow
def test_a_step_with_all_rows_is_a_step_of_gradient_descent():
    penalty = lambda p: (p["inner"]["w"] ** 4).sum()
    model = small_model(penalty=penalty, weights=np.arange(50.0))
    bonus = lambda theta, rows: np.cos(theta)
    rows, rate = [np.arange(50)] * 3, 0.05
    theta = model.theta
    for step in ascend(model, bonus, rows, rate):
        theta = theta + rate * (model.score(theta) + bonus(theta, rows)) / model.n
        np.testing.assert_allclose(step, theta, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adam(0.05),
        optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9)),
        optax.multi_transform(
            {"slow": optax.sgd(0.2), "fast": optax.sgd(0.4)},
            {"inner": {"w": "slow", "b": "fast"}, "outer": {"w": "slow", "b": "fast"}},
        ),
    ],
    ids=["adam", "chain", "by name"],
)
def test_optax_optimizers_climb(reference, optimizer):
    model = reference
    rng = np.random.default_rng(0)
    batches = (rng.integers(0, 50, size=25) for _ in range(200))
    *_, last = ascend(model, None, batches, optimizer)
    assert model.objective(last) > model.objective(model.theta) + 5


@pytest.mark.slow
def test_stochastic_refits_agree_with_the_solve():
    X, eta, rng = design()
    y = rng.poisson(np.exp(eta))
    model = idm.from_jax(np.zeros(P), (X, y), idm.Poisson(), apply=linear, dtype="float64")
    model, psi = idm.polish(model), lambda beta: X[0] @ beta
    method = idm.StochasticFiniteDifference(
        optimizer=optax.adam(3e-3), batch_size=40, steps=300, samples=50, runs=2, rng=0
    )
    stochastic, solved = idm.infer(model, psi, method), idm.infer(model, psi)
    error = stochastic.diagnostics.notes["monte_carlo_error"]
    # Two runs: the t quantile of one degree of freedom at 99 % is 64; the push bends psi by 1 %.
    assert stochastic.standard_error == pytest.approx(solved.standard_error, rel=64 * error + 0.01)
    assert stochastic.diagnostics.notes["most_reached"] > 0.95


def test_training_that_diverges_or_has_no_optimizer_is_explained(reference):
    model = reference
    with pytest.raises(idm.ConvergenceError, match="smaller learning rate"):
        list(ascend(model, None, [np.arange(50)] * 60, 1e12))
    with pytest.raises(TypeError, match=r"optax\.adam"):
        list(ascend(model, None, [np.arange(5)], "adam"))

"""What `from_jax` refuses or warns about, and what it leaves alone."""

import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import numpy as np

import implicit_delta as idm

pytestmark = pytest.mark.slow

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2))
Y = (rng.random(30) < 0.5) * 1.0
EDGES = np.array([5.0, 4.0])  # products that an image of 5 has with a filter of 2
PARAMS = {"w": jnp.array([0.1, -0.2]), "b": jnp.zeros(())}


def logits(params, x):
    return x @ params["w"] + params["b"]


def terms(params, batch):
    x, y = batch
    return y * logits(params, x) - jax.nn.softplus(logits(params, x))


def fitted(params=PARAMS, data=(X, Y), likelihood=None, **options):
    if likelihood is None:
        likelihood = idm.Bernoulli()
    if isinstance(likelihood, idm.likelihoods.Likelihood):
        options = {"apply": logits, **options}
    return idm.from_jax(params, data, likelihood, **{"l2": 1.0, "dtype": "float64", **options})


@pytest.fixture(scope="module")
def model():
    return idm.polish(fitted())


@pytest.mark.parametrize(
    ("loglik", "match"),
    [
        (lambda p, b: terms(p, b).mean(), r"one number.*sqrt\(n\)"),
        (lambda p, b: terms(p, b)[:, None], r"shape \(30, 1\)"),
        (lambda p, b: terms(p, b)[:-1], "29 terms for a batch of 30"),
        (lambda p, b: (terms(p, b),), "tuple"),
        (lambda p, b: terms(p, b) / 0.0, "not finite"),
    ],
)
def test_a_log_likelihood_returns_one_finite_term_per_row(loglik, match):
    with pytest.raises(ValueError, match=match):
        fitted(likelihood=loglik)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"l2": -1.0}, ValueError, "l2"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"dtype": "float16"}, ValueError, "float64"),
        ({"data": (X, Y[:-1])}, ValueError, "different lengths"),
        ({"data": (X[:0], Y[:0])}, ValueError, "no rows"),
        ({"data": ()}, ValueError, "no arrays"),
        ({"data": (X, list(Y))}, TypeError, "convert lists"),
        ({"data": (X, np.array(["a"] * 30))}, TypeError, "categories"),
        ({"data": (X,)}, idm.UnsupportedModelError, r"\(x, y\)"),
        ({"data": {"x": X, "y": Y}}, idm.UnsupportedModelError, "loglik"),
        ({"data": (X, {"y": Y})}, ValueError, "targets are a dict"),
        ({"data": (X, 3 * Y)}, ValueError, "0 or 1"),
        ({"data": (np.where(X < 1, X, np.nan), Y)}, ValueError, "row.*missing values"),
        ({"likelihood": "bernoulli"}, TypeError, "Bernoulli"),
        ({"likelihood": terms, "apply": logits}, TypeError, "leave apply out"),
        ({"apply": None}, TypeError, "apply= is missing.*dict"),
        ({"apply": "net"}, TypeError, "apply is a str"),
        ({"apply": lambda p, x: (logits(p, x), {})}, idm.UnsupportedModelError, "tuple.*loglik"),
        ({"weights": np.ones(3)}, ValueError, "30 observations"),
        ({"penalty": lambda p: p["w"]}, ValueError, "one number"),
        ({"penalty": lambda p: jnp.log(-(p["b"] ** 2))}, ValueError, "penalty.*at the given"),
    ],
)
def test_bad_arguments_are_explained(change, error, match):
    with pytest.raises(error, match=match):
        fitted(**change)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"w": np.array([1, 2]), "b": 0}, idm.UnsupportedModelError, "no floating-point arrays"),
        ({"w": np.ones(2), "b": 0.5}, idm.UnsupportedModelError, "b in params is the Python"),
        ({"w": np.ones(2) + 1j, "b": np.ones(())}, idm.UnsupportedModelError, "w is complex"),
        ({"w": np.array([1.0, np.inf]), "b": np.ones(())}, ValueError, "w has entries"),
    ],
)
def test_params_that_cannot_be_used_are_explained(params, error, match):
    with pytest.raises(error, match=match):
        fitted(params)


def test_an_array_in_two_places_is_refused():
    shared = jnp.ones(2)
    with pytest.raises(idm.UnsupportedModelError, match="a and b in params are the same array"):
        fitted({"a": shared, "b": shared}, apply=lambda p, x: x @ (p["a"] * p["b"]))


def test_a_model_that_cannot_be_traced_is_explained():
    with pytest.raises(idm.UnsupportedModelError, match="from_loglik"):
        fitted(apply=lambda p, x: jnp.asarray(np.asarray(x) @ np.asarray(p["w"])))
    with pytest.raises(idm.UnsupportedModelError, match="from_loglik"):
        fitted(likelihood=lambda p, b: terms(p, b) if p["b"] > 0 else -terms(p, b))


def test_data_from_outside_the_batch_are_noticed():
    with pytest.raises(idm.UnsupportedModelError, match="not the data from outside"):
        fitted(likelihood=lambda p, batch: terms(p, (X, Y)) + 0 * batch[1])


def test_noise_in_the_loss_is_noticed():
    noise = np.random.default_rng(0)
    with pytest.raises(idm.UnsupportedModelError, match="random numbers in the loss"):
        fitted(likelihood=lambda p, b: terms(p, b) * (1 + noise.random()))
    with pytest.warns(idm.NotDeterministicWarning, match="random numbers in the loss"):
        fitted(likelihood=lambda p, b: terms(p, b) * (1 + 1e-5 * noise.random()))


OPAQUE = {
    "numpy": lambda p: np.exp(np.asarray(p["w"]).sum()),
    "float": lambda p: float(p["w"][0]) ** 2 + float(p["b"]),
    "integers": lambda p: (logits(p, X) > 0).sum(),
    "comparison": lambda p: (logits(p, X) > 0).mean(),
    "callback": lambda p: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), p["b"].dtype), p["b"]),
    "while": lambda p: jax.lax.while_loop(lambda b: b < 5, lambda b: b + 1.5, p["b"]),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_a_psi_without_a_gradient_is_told_where_to_go(model, name):
    with pytest.raises(idm.EvaluationError, match=r"Simulation\(\)"):
        idm.infer(model, OPAQUE[name])


@pytest.mark.parametrize("name", ["numpy", "float", "callback"])
def test_a_psi_without_a_gradient_can_be_simulated(model, name):
    traced = {
        "numpy": lambda p: jnp.exp(p["w"].sum()),
        "float": lambda p: p["w"][0] ** 2 + p["b"],
        "callback": lambda p: jnp.sin(p["b"]),
    }
    method = idm.Simulation(200, rng=0)
    opaque, smooth = (idm.infer(model, psi, method) for psi in (OPAQUE[name], traced[name]))
    assert opaque.standard_error == pytest.approx(smooth.standard_error, rel=1e-12)


def test_a_psi_in_another_type_is_explained():
    images = jnp.ones((1, 1, 5), dtype=jnp.float32)
    convolve = lambda p: jax.lax.conv(images, p["w"][None, None], (1,), "SAME").sum()
    double = {"w": np.array([0.1, -0.2]), "b": np.zeros(())}
    with pytest.raises(idm.EvaluationError, match=r"float64.*astype"):
        idm.infer(fitted(double), convolve)


def test_a_psi_in_the_type_of_the_parameters_is_answered(model):
    images = jnp.ones((1, 1, 5), dtype=jnp.float32)
    convolve = lambda p: jax.lax.conv(images, p["w"][None, None], (1,), "SAME").sum()
    convolved, same = (idm.infer(model, psi) for psi in (convolve, lambda p: p["w"] @ EDGES))
    assert convolved.standard_error == pytest.approx(same.standard_error, rel=1e-6)


@pytest.mark.slow
def test_psi_may_differentiate_the_model_itself_and_return_a_list(model):
    slope = jax.grad(lambda x, p: jax.nn.sigmoid(logits(p, x)))
    average = lambda p: jax.vmap(slope, (0, None))(X, p).mean(0)
    stacked = idm.infer(model, average)
    listed = idm.infer(model, lambda p: [average(p)[0], average(p)[1]])
    np.testing.assert_allclose(listed.covariance, stacked.covariance, rtol=1e-12)


def test_psi_may_decide_by_the_parameters(model):
    branched = idm.infer(model, lambda p: p["b"] if p["w"][0] > 9 else 2 * p["b"])
    assert branched.standard_error == 2 * idm.infer(model, lambda p: p["b"]).standard_error


def test_a_psi_that_is_random_is_refused(model):
    noise = np.random.default_rng(0)
    with pytest.raises(idm.EvaluationError, match="random"):
        idm.infer(model, lambda p: p["b"] + noise.normal())


def test_psi_cannot_change_the_model(model):
    before = model.rows.terms(model.theta)

    def meddling(params):
        params["w"] = params["w"] * 0
        return params["b"]

    model.evaluate(meddling, model.theta)
    np.testing.assert_array_equal(model.rows.terms(model.theta), before)


def test_many_evaluations_are_differentiated_in_parts(model):
    grid = np.linspace(-1, 1, 150)[:, None] * np.ones(2)
    jacobian = model.jacobian(lambda p: logits(p, grid), model.theta)
    np.testing.assert_allclose(jacobian, np.column_stack([np.ones(150), grid]))


def test_a_log_likelihood_of_ones_own_has_no_gauss_newton_curvature():
    own = fitted(likelihood=terms)
    with pytest.raises(idm.UnsupportedModelError, match="Bernoulli"):
        idm.infer(own, lambda p: p["b"], idm.Infinitesimal(curvature="ggn"))


def test_a_saddle_is_refused_with_its_curvature_and_advice():
    """At zero weights the product of two layers has no slope and curves both ways."""
    zeros = {"w": jnp.zeros(2), "b": jnp.zeros(())}
    flat = fitted(zeros, apply=lambda p, x: (x @ p["w"]) * p["b"], l2=0.0)
    with pytest.raises(idm.NotAMaximumError, match=r'l2.*curvature="ggn"') as caught:
        idm.infer(flat, lambda p: p["w"][0])
    assert caught.value.curvature <= 0


@pytest.mark.slow
def test_batches_are_chosen_by_memory(monkeypatch):
    monkeypatch.setattr("implicit_delta.models.jax.model.BATCH_BYTES", 600)
    small = fitted()
    assert 1 < len(small.rows.batches.bounds) <= 30
    sizes = [stop - start for start, stop in small.rows.batches.bounds]
    assert sum(sizes) == 30
    assert len(set(sizes)) <= 2
    monkeypatch.undo()
    whole = fitted()
    assert whole.rows.batches.bounds == [(0, 30)]
    np.testing.assert_allclose(small.score(small.theta), whole.score(whole.theta), rtol=1e-12)


def test_an_evaluation_called_often_is_compiled_and_gives_the_same(model):
    traces = []

    def psi(params):
        traces.append(type(params["b"]))
        return jnp.exp(logits(params, X[:2]))

    steps = 0.1 * np.random.default_rng(0).normal(size=(30, model.d))
    for step in steps:
        theta = model.theta + step
        expected = np.exp(theta[0] + X[:2] @ theta[1:])  # b comes before w
        np.testing.assert_allclose(model.evaluate(psi, theta), expected, rtol=1e-12)
        jacobian = expected[:, None] * np.column_stack([np.ones(2), X[:2]])
        np.testing.assert_allclose(model.jacobian(psi, theta), jacobian, rtol=1e-12)
    assert len(traces) < len(steps)


def test_an_evaluation_that_cannot_be_compiled_is_called_every_time(model):
    branched = lambda p: p["b"] if p["w"][0] > 0 else -p["b"]
    for sign in (1, -1) * 15:
        theta = np.array([0.7, sign, 0.0])
        assert model.evaluate(branched, theta) == pytest.approx(sign * 0.7)
        np.testing.assert_array_equal(model.jacobian(branched, theta), [[sign, 0, 0]])


def test_what_an_evaluation_reads_from_outside_may_change_between_inferences(model):
    factor = 1.0
    psi = lambda p: factor * p["b"]
    first = idm.infer(model, psi, idm.FiniteDifference(push=0.1)).standard_error
    simulated = idm.infer(model, psi, idm.Simulation(100, rng=0)).standard_error
    factor = 3.0
    second = idm.infer(model, psi, idm.FiniteDifference(push=0.1)).standard_error
    assert second == pytest.approx(3 * first, rel=1e-3)
    again = idm.infer(model, psi, idm.Simulation(100, rng=0)).standard_error
    assert again == pytest.approx(3 * simulated, rel=1e-9)


def test_evaluations_may_be_objects_without_a_hash(model):
    class Slope:
        __hash__ = None

        def __call__(self, params):
            return params["w"][0]

    plain = idm.infer(model, lambda p: p["w"][0], idm.Simulation(100, rng=0))
    assert idm.infer(model, Slope(), idm.Simulation(100, rng=0)).value == plain.value

"""Questions of torch and JAX models with named columns: those of the same model in statsmodels."""

import pytest

pytest.importorskip("pandas")
pytest.importorskip("statsmodels")

import warnings

import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf

import implicit_delta as idm

N = 200
RNG = np.random.default_rng(0)
X = pd.DataFrame({"x": RNG.normal(size=N), "treated": RNG.integers(0, 2, N).astype(float)})
ETA = 0.6 * X.x + 0.8 * X.treated - 0.3
DATA = X.assign(
    binary=(RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(float),
    count=RNG.poisson(np.exp(ETA)).astype(float),
    kind=RNG.integers(0, 3, N),
)
RESULTS = {
    "binary": smf.logit("binary ~ x + treated", DATA).fit(disp=0, method="newton", tol=1e-12),
    "count": smf.glm("count ~ x + treated", DATA, family=sm.families.Poisson()).fit(tol=1e-14),
}
LIKELIHOODS = {"binary": idm.Bernoulli(), "count": idm.Poisson()}
COLUMNS = list(X.columns)


def torch_model(target, **options):
    torch = pytest.importorskip("torch")
    params = RESULTS[target].params
    net = torch.nn.Linear(2, 1).double()
    with torch.no_grad():
        net.weight[:] = torch.tensor(params[COLUMNS].to_numpy()[None])
        net.bias[:] = params["Intercept"]
    data = (torch.tensor(X.to_numpy()), torch.tensor(DATA[target].to_numpy()))
    return idm.from_torch(net, data, LIKELIHOODS[target], columns=COLUMNS, **options)


def jax_model(target, **options):
    pytest.importorskip("jax")
    params = RESULTS[target].params
    start = {"w": params[COLUMNS].to_numpy(), "b": np.array(params["Intercept"])}
    data = (X.to_numpy(), DATA[target].to_numpy())
    return idm.from_jax(
        start,
        data,
        LIKELIHOODS[target],
        apply=lambda p, x: x @ p["w"] + p["b"],
        dtype="float64",
        columns=COLUMNS,
        **options,
    )


BACKENDS = {"torch": torch_model, "jax": jax_model}
QUESTIONS = {
    "treated": idm.average_comparison("treated"),
    "by": idm.average_comparison("x", "iqr", by="treated"),
    "ratio": idm.average_comparison("treated", how="ratio"),
    "slope": idm.average_slope("x"),
    "rows": idm.predictions(X.head(3)),
    "data": idm.average_prediction(X.head(50), by="treated"),
    "population": idm.average_comparison("treated", population=True),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("target", RESULTS)
@pytest.mark.parametrize("asked", QUESTIONS)
def test_as_in_statsmodels(backend, target, asked):
    one = idm.infer(BACKENDS[backend](target), QUESTIONS[asked])
    other = idm.infer(idm.from_statsmodels(RESULTS[target]), QUESTIONS[asked])
    assert one.names == other.names
    np.testing.assert_allclose(one.value, other.value, rtol=1e-6)
    np.testing.assert_allclose(one.standard_error, other.standard_error, rtol=1e-6)


def network():
    """A small network, far enough trained for the tangent to be asked."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)
    ).double()
    data = (torch.tensor(X.to_numpy()), torch.tensor(DATA.kind.to_numpy()))
    model = idm.from_torch(net, data, idm.Categorical(), l2=2.0, columns=COLUMNS)
    return idm.polish(model)


def test_classes_and_the_tangent_of_a_network():
    torch = pytest.importorskip("torch")
    model = network()
    high, low = (torch.tensor(X.assign(treated=v).to_numpy()) for v in (1.0, 0.0))

    def effect(net):
        return (torch.softmax(net(high), -1) - torch.softmax(net(low), -1)).mean(0)

    asked = idm.average_comparison("treated")
    for method in (idm.Infinitesimal(), idm.Simulation(draws=100, tangent=True, rng=0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
            one, other = (idm.infer(model, psi, method, strict=False) for psi in (asked, effect))
        np.testing.assert_allclose(one.value, other.value, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one.standard_error, other.standard_error, rtol=1e-6)
        assert one.names == ("0", "1", "2")
    named = idm.infer(model, idm.average_comparison("treated", outcome=2), strict=False)
    assert named.value == pytest.approx(effect(model.module)[2].item())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"columns": ["x"]}, "1 names"),
        ({"columns": ["x", "x"]}, "1 of them different"),
        ({"columns": "x"}, "1 names"),
    ],
)
def test_names_that_do_not_fit(backend, options, text):
    build = BACKENDS[backend]("binary")
    assert build.facts.host.predictor.columns == ("x", "treated")
    torch = pytest.importorskip("torch")
    data = (torch.tensor(X.to_numpy()), torch.tensor(DATA.binary.to_numpy()))
    with pytest.raises(ValueError, match=text):
        idm.from_torch(torch.nn.Linear(2, 1).double(), data, idm.Bernoulli(), **options)


def test_refusals():
    torch = pytest.importorskip("torch")
    data = (torch.tensor(X.to_numpy()), torch.tensor(DATA.binary.to_numpy()))
    net = torch.nn.Linear(2, 1).double()
    unnamed = idm.from_torch(net, data, idm.Bernoulli())
    with pytest.raises(idm.ImplicitDeltaError, match="columns="):
        idm.infer(unnamed, idm.average_comparison("treated"))
    model = torch_model("binary")
    with pytest.raises(ValueError, match="Is it 'treated'"):
        idm.infer(model, idm.average_comparison("treatd"))
    with pytest.raises(idm.ImplicitDeltaError, match="missing or infinite"):
        idm.infer(model, idm.predictions(X.head().assign(x=np.nan)))
    with pytest.raises(ValueError, match="not in data"):
        idm.infer(model, idm.predictions(X[["x"]]))

    def loglik(net, batch):
        return -((net(batch[0])[:, 0] - batch[1]) ** 2)

    with pytest.raises(ValueError, match="a likelihood such as"):
        idm.from_torch(net, data, loglik, columns=COLUMNS)


MADE = {
    "hinge": lambda x, z: np.maximum(x, 0),
    "power": lambda x, z: abs(x) ** 1.5,
    "ranks": lambda x, z: x.rank(),
    "ratio": lambda x, z: z / x,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", MADE)
def test_columns_made_by_hand(backend, case):
    library = pytest.importorskip(backend)
    other = X.x + np.cos(np.arange(N))
    inputs, y = X.assign(other=other, extra=MADE[case](X.x, other)), DATA["count"]
    data, columns = (inputs.to_numpy(), y.to_numpy()), list(inputs)
    beta = np.linalg.lstsq(np.column_stack([np.ones(N), inputs]), y, rcond=None)[0]
    if backend == "torch":
        net = library.nn.Linear(4, 1).double()
        state = {"weight": beta[None, 1:], "bias": beta[:1]}
        net.load_state_dict({name: library.tensor(value) for name, value in state.items()})
        data = tuple(map(library.tensor, data))
        model = idm.from_torch(net, data, idm.Gaussian("mle"), columns=columns)
    else:
        apply, likelihood = lambda b, x: b[0] + x @ b[1:], idm.Gaussian("mle")
        model = idm.from_jax(beta, data, likelihood, apply=apply, dtype="float64", columns=columns)
    with pytest.raises(idm.EvaluationError, match=r"'extra'.* is a function of 'x'"):
        idm.infer(model, idm.average_slope("x"))
    assert idm.infer(model, idm.average_comparison("treated")).standard_error > 0

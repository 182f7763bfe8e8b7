"""HC2, HC3 and CR2 with their degrees of freedom, two ways of clustering and HAC."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit, softmax
from test_golden import GOLDEN, function

import implicit_delta as idm
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.checks.small_samples import of_small_samples
from implicit_delta.inference.influence import Sandwich
from implicit_delta.models.redraws import reweight

# The variances themselves are tested here, and the warnings below.
pytestmark = pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")

CASES = json.loads((GOLDEN / "leverage.json").read_text())["cases"]
EVALUATIONS = [
    pytest.param(case, evaluation, id=f"{name}-{title}")
    for name, case in CASES.items()
    for title, evaluation in case["evaluations"].items()
]
FAMILIES = {"binomial": sm.families.Binomial(), "poisson": sm.families.Poisson()}


def options_of(kind, data):
    clusters, second = data.get("clusters"), data.get("second")
    return {
        "hc1": {"robust": "HC1"},
        "hc2": {"robust": "HC2"},
        "hc3": {"robust": "HC3"},
        "cr2": {"robust": "CR2", "clusters": clusters},
        "two_way": {"clusters": (clusters, second)},
        "two_way_cr1": {"robust": "CR1", "clusters": (clusters, second)},
        "two_way_cr1s": {"robust": "CR1S", "clusters": (clusters, second)},
        "hac_bartlett_4": {"robust": idm.HAC(4)},
        "hac_bartlett_3_adjusted": {"robust": idm.HAC(3, "newey-west", adjust=True)},
        "hac_parzen_4": {"robust": idm.HAC(4, "parzen")},
    }[kind]


def model_of(case):
    y, X = np.array(case["data"]["y"]), np.array(case["data"]["X"])
    if case["family"] == "gaussian":
        return idm.from_residuals(lambda b: y - X @ b, case["theta"], jacobian=lambda b: -X)
    return idm.from_statsmodels(sm.GLM(y, X, FAMILIES[case["family"]]).fit(tol=1e-14))


def degrees(model, psi, robust, clusters=None, method=None):
    response = (method or idm.Infinitesimal()).respond(model, Evaluation.of(model, psi, None))
    return Sandwich.of(model, robust, clusters).df(model, response)


@pytest.mark.filterwarnings("ignore::implicit_delta.NonlinearityWarning")  # of ratios
@pytest.mark.parametrize(("case", "evaluation"), EVALUATIONS)
def test_standard_errors_and_degrees_of_freedom_as_in_r(case, evaluation):
    model, psi = model_of(case), function(evaluation["formula"], case["data"])
    for kind, expected in evaluation["standard_error"].items():
        options = options_of(kind, case["data"])
        found = idm.infer(model, psi, strict=False, **options)
        assert found.standard_error == pytest.approx(expected, rel=1e-9), kind
        if kind in evaluation["df"]:
            df = degrees(model, psi, **options)
            assert df == pytest.approx([evaluation["df"][kind]], rel=1e-9), kind


# The same outputs in every backend


def problem(family, n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=n) ** 3, rng.normal(size=n)])
    eta = X @ [0.3, 0.2, -0.4]
    y = {
        "gaussian": lambda: eta + rng.normal(size=n),
        "binomial": lambda: (rng.random(n) < expit(eta)).astype(float),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
    }[family]()
    return X, y, rng.integers(0, 9, size=n)


def host_and_twins(family, weights=None):
    """The model of statsmodels, and those of torch and JAX at the same parameters."""
    import torch

    X, y, clusters = problem(family)
    families = {**FAMILIES, "gaussian": sm.families.Gaussian()}
    results = sm.GLM(y, X, families[family], freq_weights=weights).fit(tol=1e-14)
    beta = np.asarray(results.params)
    likelihood = {
        "gaussian": idm.Gaussian(float(results.scale)),
        "binomial": idm.Bernoulli(),
        "poisson": idm.Poisson(),
    }[family]
    net = torch.nn.Linear(3, 1, bias=False).double()
    net.weight.data[:] = torch.as_tensor(beta)
    tensors = (torch.as_tensor(X), torch.as_tensor(y)[:, None])
    torched = idm.from_torch(net, tensors, likelihood, weights=weights, batch_size=7)
    apply = lambda b, x: x @ b
    jaxed = idm.from_jax(beta, (X, y), likelihood, apply=apply, weights=weights, dtype="float64")
    host = idm.from_statsmodels(results)
    twins = {
        "torch": (torched, lambda net: net.weight.ravel()),
        "jax": (jaxed, lambda b: b),
    }
    return host, twins, clusters


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
@pytest.mark.parametrize("weighted", [False, True])
def test_torch_and_jax_agree_with_numpy(family, weighted):
    weights = np.random.default_rng(1).integers(0, 3, size=40) if weighted else None
    host, twins, clusters = host_and_twins(family, weights)
    for robust, labels in [("HC2", None), ("HC3", None), ("CR2", clusters)]:
        expected = idm.infer(host, idm.parameters, robust=robust, clusters=labels)
        df = degrees(host, idm.parameters, robust, labels)
        for name, (model, psi) in twins.items():
            found = idm.infer(model, psi, robust=robust, clusters=labels)
            np.testing.assert_allclose(
                found.covariance, expected.covariance, rtol=1e-8, err_msg=name
            )
            np.testing.assert_allclose(degrees(model, psi, robust, labels), df, rtol=1e-8)


@pytest.mark.parametrize("robust", ["HC2", "HC3", "CR2"])
@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_frequency_weights_equal_repetition(family, robust):
    X, y, clusters = problem(family)
    counts = np.random.default_rng(2).integers(0, 4, size=len(y))
    families = {**FAMILIES, "gaussian": sm.families.Gaussian()}
    labels = clusters if robust == "CR2" else None
    copies = None if labels is None else np.repeat(labels, counts)
    weighted = idm.from_statsmodels(
        sm.GLM(y, X, families[family], freq_weights=counts).fit(tol=1e-14)
    )
    again = np.repeat(X, counts, axis=0)
    repeated = idm.from_statsmodels(
        sm.GLM(np.repeat(y, counts), again, families[family]).fit(tol=1e-14)
    )
    one = idm.infer(weighted, idm.parameters, robust=robust, clusters=labels)
    many = idm.infer(repeated, idm.parameters, robust=robust, clusters=copies)
    np.testing.assert_allclose(one.covariance, many.covariance, rtol=1e-8)
    np.testing.assert_allclose(
        degrees(weighted, idm.parameters, robust, labels),
        degrees(repeated, idm.parameters, robust, copies),
        rtol=1e-8,
    )
    np.testing.assert_allclose(
        np.repeat(one.influence, counts, axis=0), many.influence, rtol=1e-6, atol=1e-9
    )


def dense(X, y, clusters, power):
    """The adjusted sandwich of least squares and its degrees of freedom, with n x n matrices."""
    bread = np.linalg.inv(X.T @ X)
    M = np.eye(len(y)) - X @ bread @ X.T
    e, c = M @ y, bread[1]
    scores, vectors = [], []
    for g in np.unique(clusters):
        rows = np.flatnonzero(clusters == g)
        values, axes = np.linalg.eigh(M[np.ix_(rows, rows)])
        kept = values > 1e-10
        root = (axes[:, kept] * values[kept] ** power) @ axes[:, kept].T
        a = np.zeros(len(y))
        a[rows] = root @ X[rows] @ c
        vectors.append(a)
        scores.append(a @ e)
    S = np.array(vectors) @ M @ np.array(vectors).T
    return np.sqrt(np.sum(np.square(scores))), np.trace(S) ** 2 / np.sum(S**2)


ADJUSTED = {
    "HC2": ("HC2", None, -0.5),
    "HC3": ("HC3", None, -1.0),
    "CR2": ("CR2", "clusters", -0.5),
    "CR2 of single rows": ("CR2", "rows", -0.5),
}


@pytest.mark.parametrize("kind", ADJUSTED)
@pytest.mark.parametrize("chunk", [2**25, 50, 5])
def test_against_dense_algebra(kind, chunk, monkeypatch):
    """Also where few clusters are held at a time."""
    monkeypatch.setattr("implicit_delta.inference.leverage.LARGEST_CHUNK", chunk)
    monkeypatch.setattr("implicit_delta.inference.leverage.LARGEST_GRAM", chunk)
    monkeypatch.setattr("implicit_delta.models.glm.likelihood.LARGEST_BLOCK", chunk)
    robust, by, power = ADJUSTED[kind]
    X, y, clusters = problem("gaussian", seed=3)
    rows = np.arange(len(y))
    labels = {"clusters": clusters, "rows": rows, None: None}[by]
    model = idm.from_statsmodels(sm.OLS(y, X).fit())
    error, df = dense(X, y, rows if labels is None else labels, power)
    found = idm.infer(model, lambda b: b[1], robust=robust, clusters=labels)
    assert found.standard_error == pytest.approx(error, rel=1e-10)
    several = idm.infer(model, lambda b: b[[0, 1, 1]], robust=robust, clusters=labels)
    np.testing.assert_allclose(several.standard_error[1:], error, rtol=1e-10)
    if robust != "HC3":
        assert degrees(model, lambda b: b[1], robust, labels) == pytest.approx([df], rel=1e-9)
        several = degrees(model, lambda b: b[[0, 1, 1]], robust, labels)
        np.testing.assert_allclose(several[1:], df, rtol=1e-9)


def test_a_probit_takes_the_expected_information():
    """As R's sandwich does, with the curvature of IRLS; a link that is not canonical."""
    X, y, _ = problem("binomial", seed=5)
    family = sm.families.Binomial(sm.families.links.Probit())
    results = sm.GLM(y, X, family).fit(tol=1e-14)
    mean, rise = results.fittedvalues, family.link.inverse_deriv(X @ results.params)
    weight = rise**2 / (mean * (1 - mean))
    bread = np.linalg.inv(X.T * weight @ X)
    leverage = np.sum(X @ bread * X, axis=1) * weight
    scores = X * (rise * (y - mean) / (mean * (1 - mean)) / (1 - leverage))[:, None]
    expected = bread @ scores.T @ scores @ bread
    method = idm.Infinitesimal(curvature="ggn")
    found = idm.infer(idm.from_statsmodels(results), idm.parameters, method, robust="HC3")
    np.testing.assert_allclose(found.covariance, expected, rtol=1e-8)


# Several outputs


def classes(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    logits = X @ np.array([[0.0, 0.5, 0.2], [0.0, 1.0, -0.7]])
    return X, np.array([rng.choice(3, p=p) for p in softmax(logits, axis=1)])


def test_hc3_of_three_classes_is_leaving_rows_out():
    """The adjusted influence is one Newton step to the fit without the row.

    The step is exact; the rest of the way is of second order in it, and a step moves the logits
    by some d / n = 0.07.
    """
    X, y = classes()
    model = idm.from_statsmodels(sm.MNLogit(y, X).fit(disp=0, tol=1e-12))
    psi = lambda params: params[1, 0] - params[0, 1]
    gradient = model.jacobian(psi, model.theta)[0]
    plain = idm.infer(model, psi, influence=True).influence[:, 0]
    adjusted = idm.infer(model, psi, robust="HC3").influence[:, 0]
    step, change = np.empty((2, len(y)))
    for row in range(len(y)):
        without = reweight(model, (np.arange(len(y)) != row) * 1.0)
        A = without.information(model.theta, np.eye(model.d))
        step[row] = -gradient @ np.linalg.solve(A, without.score(model.theta))
        change[row] = gradient @ (model.theta - idm.polish(without).theta)
    np.testing.assert_allclose(adjusted, step, rtol=1e-7, atol=1e-9)
    assert np.corrcoef(adjusted, change)[0, 1] > 0.999
    error = np.linalg.norm(adjusted - change)
    assert error < 0.07 * np.linalg.norm(change)
    assert error < np.linalg.norm(plain - change)


def test_softmax_is_the_same_in_every_backend():
    import torch

    X, y = classes()
    host = idm.from_statsmodels(sm.MNLogit(y, X).fit(disp=0, tol=1e-12))
    net = torch.nn.Linear(2, 3, bias=False).double()
    net.weight.data[0] = 0
    net.weight.data[1:] = torch.as_tensor(host.theta.reshape(2, 2))
    torched = idm.from_torch(net, (torch.as_tensor(X), torch.as_tensor(y)), idm.Categorical())
    clusters = np.arange(60) // 5
    for robust, labels in [("HC2", None), ("HC3", None), ("CR2", clusters)]:
        psi = lambda net: net.weight[2] - net.weight[0]  # the data determine contrasts alone
        mine = idm.infer(torched, psi, robust=robust, clusters=labels)
        theirs = idm.infer(host, lambda b: b[:, 1], robust=robust, clusters=labels)
        np.testing.assert_allclose(mine.covariance, theirs.covariance, rtol=1e-7)


def test_a_network_of_scikit_learn_agrees_with_torch():
    import torch
    from sklearn.neural_network import MLPRegressor

    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(50, 1))
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=50)
    mlp = MLPRegressor(
        hidden_layer_sizes=(4,),
        random_state=0,
        activation="tanh",
        solver="lbfgs",
        alpha=0.5,
        tol=1e-12,
        max_iter=20000,
    )
    host = idm.polish(idm.from_sklearn(mlp.fit(x, y), x, y))
    net = torch.nn.Sequential(
        torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    ).double()
    fitted = host.evaluate(lambda mlp: mlp, host.theta)
    fitted = fitted.item() if isinstance(fitted, np.ndarray) else fitted
    for layer, W, c in zip((net[0], net[2]), fitted.coefs_, fitted.intercepts_, strict=True):
        layer.weight.data[:], layer.bias.data[:] = torch.as_tensor(W.T), torch.as_tensor(c)
    ridge = float(np.max(host.penalty.ridges[0].strength))
    data = (torch.as_tensor(x), torch.as_tensor(y)[:, None])
    noise = host.rows.outputs.likelihood.variance
    penalty = lambda net: ridge / 2 * sum((layer.weight**2).sum() for layer in (net[0], net[2]))
    torched = idm.from_torch(net, data, idm.Gaussian(noise), penalty=penalty)
    at = torch.tensor([[0.5]], dtype=torch.float64)
    for robust, labels in [("HC3", None), ("CR2", np.arange(50) // 5)]:
        mine = idm.infer(torched, lambda net: net(at)[0, 0], robust=robust, clusters=labels)
        theirs = idm.infer(host, lambda m: m.predict([[0.5]])[0], robust=robust, clusters=labels)
        assert mine.standard_error == pytest.approx(theirs.standard_error, rel=1e-6)


# Two ways and HAC


def test_two_ways_are_both_less_what_they_share():
    X, y, first = problem("gaussian", seed=6)
    second = np.arange(len(y)) % 7
    model = idm.from_statsmodels(sm.OLS(y, X).fit())
    pairs = list(zip(first, second, strict=True))
    covariance = lambda labels: idm.infer(model, idm.parameters, clusters=labels).covariance
    expected = covariance(first) + covariance(second) - covariance(pairs)
    np.testing.assert_allclose(covariance((first, second)), expected, rtol=1e-9, atol=1e-12)
    found = idm.infer(model, lambda b: b[1], clusters=(first, second))
    assert "9 x 7 clusters" in found.diagnostics.notes["variance"]
    assert degrees(model, lambda b: b[1], True, (first, second)) == 6.0


def test_two_ways_of_a_sampling_design():
    """The factor G / (G - 1) of a design, in each way."""
    X, y, first = problem("gaussian", seed=6)
    second, weights = np.arange(len(y)) % 7, np.random.default_rng(0).uniform(1, 3, len(y))
    root = np.sqrt(weights)[:, None]
    beta = np.linalg.lstsq(root * X, root[:, 0] * y, rcond=None)[0]
    model = idm.from_residuals(
        lambda b: y - X @ b, beta, jacobian=lambda b: -X, weights=weights, weight_kind="sampling"
    )
    found = idm.infer(model, lambda b: b[1], clusters=(first, second))
    expected = idm.infer(model, lambda b: b[1], clusters=(first, second), robust="CR1")
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-12)
    assert found.diagnostics.notes["variance"] == "design-based (9 x 7 clusters)"
    one = idm.infer(model, lambda b: b[1], clusters=first).standard_error
    assert found.standard_error != pytest.approx(one, rel=1e-3)


@pytest.mark.parametrize("robust", ["HC1", "HC2", "HC3", "CR1", "CR2"])
def test_precisions_are_as_in_weighted_least_squares(robust):
    X, y, clusters = problem("gaussian", seed=6)
    weights = np.random.default_rng(0).uniform(0.2, 3, len(y))
    results = sm.WLS(y, X, weights=weights).fit()
    labels = clusters if robust.startswith("CR") else None
    model = idm.from_residuals(
        lambda b: y - X @ b,
        results.params,
        jacobian=lambda b: -X,
        weights=weights,
        weight_kind="precision",
    )
    found = idm.infer(model, idm.parameters, robust=robust, clusters=labels)
    if labels is None:
        theirs = getattr(results, f"{robust}_se")
    else:
        host = idm.from_statsmodels(results)
        theirs = idm.infer(host, idm.parameters, robust=robust, clusters=labels).standard_error
    np.testing.assert_allclose(found.standard_error, theirs, rtol=1e-9)


def test_each_of_two_ways_is_aligned():
    import pandas as pd

    X, y, first = problem("gaussian", seed=6)
    frame = pd.DataFrame(X, columns=["one", "x", "z"], index=[f"id {i}" for i in range(len(y))])
    frame = frame.assign(y=y, first=first, second=np.arange(len(y)) % 7)
    model = idm.from_statsmodels(sm.OLS(frame["y"], frame[["one", "x", "z"]]).fit())
    shuffled = frame.sample(frac=1.0, random_state=0)
    expected = idm.infer(model, lambda b: b["x"], clusters=(first, frame["second"].to_numpy()))
    found = idm.infer(model, lambda b: b["x"], clusters=(shuffled["first"], frame["second"]))
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-12)


def test_a_two_way_matrix_that_is_not_positive_is_projected_and_noted():
    rng = np.random.default_rng(0)
    X, y, first = problem("gaussian", seed=0)
    for _ in range(200):
        first, second = rng.integers(0, 6, size=(2, len(y)))
        model = idm.from_statsmodels(sm.OLS(y, X).fit())
        try:
            found = idm.infer(model, idm.parameters, clusters=(first, second))
        except idm.UnsupportedModelError:
            continue
        if "negative_eigenvalues_dropped" in found.diagnostics.notes:
            assert np.linalg.eigvalsh(found.covariance)[0] > -1e-12
            return
    pytest.fail("no such matrix among 200")


@pytest.mark.parametrize("lags", [0, 1, 4])
@pytest.mark.parametrize("adjust", [False, True])
def test_hac_as_in_statsmodels(lags, adjust):
    X, y, _ = problem("gaussian", seed=7)
    results = sm.OLS(y, X).fit()
    theirs = results.get_robustcov_results("HAC", maxlags=lags, use_correction=adjust)
    model = idm.from_statsmodels(results)
    found = idm.infer(model, idm.parameters, robust=idm.HAC(lags, adjust=adjust))
    np.testing.assert_allclose(found.standard_error, theirs.bse, rtol=1e-8)


def test_hac_without_lags_is_hc0():
    X, y, _ = problem("poisson", seed=7)
    model = idm.from_statsmodels(sm.GLM(y, X, FAMILIES["poisson"]).fit())
    for kernel in ("bartlett", "parzen"):
        found = idm.infer(model, idm.parameters, robust=idm.HAC(0, kernel))
        expected = idm.infer(model, idm.parameters, robust="HC0")
        np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-12)


# Refusals


def opaque(X, y):
    return idm.from_loglik(lambda b: -((y - X @ b) ** 2) / 2, start=np.zeros(X.shape[1]))


def own_dummy(X, y):
    """The last row has a parameter of its own."""
    wide = np.column_stack([X, np.arange(len(y)) == len(y) - 1])
    return idm.from_statsmodels(sm.OLS(y, wide).fit())


def dated(X, y):
    import pandas as pd

    index = pd.date_range("2020-01-01", periods=len(y))[::-1]
    return idm.from_statsmodels(sm.OLS(pd.Series(y, index), pd.DataFrame(X, index)).fit())


def counted(X, y):
    return idm.from_statsmodels(sm.GLM(y, X, freq_weights=np.arange(len(y)) % 3 + 1).fit())


def plain(X, y):
    return idm.from_statsmodels(sm.OLS(y, X).fit())


LABELS = np.arange(40) % 8
REFUSED = {
    "HC2 of a log-likelihood": (opaque, {"robust": "HC2"}, "from_residuals.*HC1.*Bootstrap"),
    "HC3 of a log-likelihood": (opaque, {"robust": "HC3"}, "from_residuals.*HC1.*Bootstrap"),
    "CR2 of a log-likelihood": (
        opaque,
        {"robust": "CR2", "clusters": LABELS},
        "from_residuals.*CR1",
    ),
    "CR2 without clusters": (plain, {"robust": "CR2"}, "clusters were not given"),
    "HC3 with clusters": (plain, {"robust": "HC3", "clusters": LABELS}, "CR2 for clusters"),
    "HC4": (plain, {"robust": "HC4"}, r"robust is True, False or one of.*HAC\(lags\)"),
    "HAC without lags": (plain, {"robust": idm.HAC}, r"or `HAC\(lags\)`"),
    "a parameter of one row": (own_dummy, {"robust": "HC3"}, "leverage 1.*HC3 is not defined"),
    "likewise": (own_dummy, {"robust": "HC2"}, "leverage 1.*HC2 is not defined"),
    "of one row in a cluster": (
        own_dummy,
        {"robust": "CR2", "clusters": LABELS},
        "leverage 1.*CR2 is not defined",
    ),
    "CR2 in two ways": (
        plain,
        {"robust": "CR2", "clusters": (LABELS, np.arange(40) // 8)},
        "one way of clustering",
    ),
    "as many lags as rows": (plain, {"robust": idm.HAC(40)}, "there are 40 rows"),
    "HAC with clusters": (plain, {"robust": idm.HAC(2), "clusters": LABELS}, "one of them"),
    "HAC with weights": (counted, {"robust": idm.HAC(2)}, "count repetitions"),
    "HAC back in time": (dated, {"robust": idm.HAC(2)}, "order of time.*sort_index"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    make, options, text = REFUSED[case]
    X, y, _ = problem("gaussian", seed=8)
    model = make(X, y)
    with pytest.raises((ValueError, idm.UnsupportedModelError), match=text):
        idm.infer(model, lambda b: np.asarray(b)[-1], **options)


def test_a_parameter_of_one_row_does_not_matter_to_others():
    """The row takes no part in the slope: leaving it and its parameter out changes nothing."""
    X, y, _ = problem("gaussian", seed=8)
    slope = lambda b: b[1]
    for robust in ("HC2", "HC3"):
        found = idm.infer(own_dummy(X, y), slope, robust=robust)
        without = idm.infer(plain(X[:-1], y[:-1]), slope, robust=robust)
        assert found.standard_error == pytest.approx(without.standard_error, rel=1e-9)


@pytest.mark.parametrize("lags", [-1, 1.5, True])
def test_lags_that_are_none(lags):
    with pytest.raises(ValueError, match="lags must be a whole number"):
        idm.HAC(lags)


def test_kernels_that_are_none():
    with pytest.raises(ValueError, match="kernel must be one of"):
        idm.HAC(2, "parsen")


def test_two_ways_without_variance():
    """Residuals that sum to zero in both ways, and not in their cells."""
    X = np.ones((36, 1))
    a, b = np.divmod(np.arange(36) // 4, 3)
    y = np.where((a == b), 2.0, -1.0)
    with pytest.raises(idm.UnsupportedModelError, match="not positive"):
        idm.infer(plain(X, y), lambda b: b[0], clusters=(a, b))


@pytest.mark.parametrize(
    "options",
    [
        {"robust": "HC1"},
        {"robust": "HC3"},
        {"robust": "CR1", "clusters": LABELS},
        {"robust": "CR2", "clusters": LABELS},
        {"robust": idm.HAC(2)},
        {"clusters": (LABELS, np.arange(40) // 8)},
    ],
    ids=str,
)
def test_a_bootstrap_makes_no_correction(options):
    X, y, _ = problem("gaussian", seed=8)
    model = plain(X, y)
    before = model.rows.passes
    with pytest.raises(idm.UnsupportedModelError, match="leave"):
        idm.infer(model, lambda b: b[1], idm.Bootstrap(50, rng=0), **options)
    assert model.rows.passes - before < 5  # no refit was begun


def test_too_many_parameters(monkeypatch):
    monkeypatch.setattr("implicit_delta.inference.leverage.DENSE_LIMIT", 2)
    X, y, _ = problem("gaussian", seed=8)
    with pytest.raises(idm.UnsupportedModelError, match=r"up to 2 parameters.*HC1"):
        idm.infer(plain(X, y), lambda b: b[1], robust="HC3")


def test_hc3_has_the_degrees_of_freedom_of_hc2():
    X, y, _ = problem("gaussian", seed=9)
    model = plain(X, y)
    found = [degrees(model, lambda b: b[1], robust, None) for robust in ("HC2", "HC3")]
    np.testing.assert_allclose(*found)


# Degrees of freedom of the others


@pytest.mark.parametrize(
    ("robust", "clusters", "expected"),
    [
        ("HC0", None, np.inf),
        ("HC1", None, np.inf),
        (idm.HAC(3), None, np.inf),
        (True, LABELS, 7.0),
        ("CR1", LABELS, 7.0),
        ("CR1S", (LABELS, np.arange(40) // 8), 4.0),
    ],
)
def test_degrees_of_freedom_without_satterthwaite(robust, clusters, expected):
    X, y, _ = problem("gaussian", seed=9)
    model = plain(X, y)
    object.__setattr__(model, "facts", replace(model.facts, df=np.inf))
    assert degrees(model, lambda b: b[1], robust, clusters) == expected
    object.__setattr__(model, "facts", replace(model.facts, df=37.0))
    assert degrees(model, lambda b: b[1], robust, clusters) == min(expected, 37.0)


def test_degrees_of_freedom_of_sampling_weights():
    X, y, _ = problem("gaussian", seed=9)
    model = plain(X, y)
    object.__setattr__(model, "weights", replace(model.weights, kind="sampling"))
    assert degrees(model, lambda b: b[1], True) == 40 - 3
    assert degrees(model, lambda b: b[1], True, LABELS) == 8 - 3
    assert degrees(model, lambda b: b[1], True, np.arange(40) % 3) == 1


# Warnings


def warned(model, psi, robust, clusters=None):
    """The text of the warning, or none."""
    response = idm.Infinitesimal().respond(model, Evaluation.of(model, psi, None))
    found = of_small_samples(Sandwich.of(model, robust, clusters), model, response)
    assert found is None or found.warning is idm.SmallSampleWarning
    return [] if found is None else [str(found)]


def leveraged(n, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), np.exp(1.5 * rng.normal(size=n))])
    return X, X @ [1.0, 0.5] + rng.normal(size=n)


def grouped(count, size, between, seed=0, make=None):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(count), size)
    x = rng.normal(size=count)[groups] if between else rng.normal(size=count * size)
    X = np.column_stack([np.ones(len(x)), x])
    y = X @ [1.0, 0.5] + rng.normal(size=count)[groups] + rng.normal(size=len(x))
    return (make or plain)(X, y), groups


def slope(b):
    return b[1]


@pytest.mark.parametrize("robust", [True, "HC0", "HC1"])
def test_leverage_warns_and_the_advice_is_silent(robust):
    model = plain(*leveraged(30))
    (text,) = warned(model, slope, robust)
    assert "covers about" in text
    assert 'robust="HC3"' in text
    assert not warned(model, slope, "HC3")
    assert not warned(model, slope, "HC2")


def test_many_even_rows_do_not_warn():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.normal(size=(200, 2))])
    assert not warned(plain(X, rng.normal(size=200)), slope, True)


def test_few_clusters_warn_and_the_advice_is_silent():
    model, groups = grouped(10, 20, between=True)
    (text,) = warned(model, slope, True, groups)
    assert "only 10 clusters" in text
    assert "covers about" in text
    assert 'robust="CR2"' in text
    assert not warned(model, slope, "CR2", groups)


def test_few_clusters_of_a_log_likelihood_get_other_advice():
    model, groups = grouped(10, 20, between=True, make=opaque)
    (text,) = warned(model, slope, "CR1", groups)
    assert "from_residuals" in text


def test_many_lags_of_a_short_series_warn():
    X = np.column_stack([np.ones(40), np.arange(40) / 40])
    model = plain(X, np.random.default_rng(0).normal(size=40))
    (text,) = warned(model, slope, idm.HAC(10))
    # of 600 simulated series 0.775 were covered with normal quantiles, two binomial errors 0.034
    assert 0.74 < float(re.search(r"covers about ([\d.]+)%", text)[1]) / 100 < 0.81
    assert "fewer lags" in text
    longer = np.column_stack([np.ones(400), np.arange(400) / 400])
    model = plain(longer, np.random.default_rng(0).normal(size=400))
    assert not warned(model, slope, idm.HAC(3))


def test_few_clusters_warn_beside_a_bootstrap():
    model, groups = grouped(10, 20, between=True)
    with pytest.warns(idm.SmallSampleWarning, match="only 10 clusters"):
        idm.infer(model, slope, idm.Bootstrap(20, rng=0), clusters=groups)


@pytest.mark.parametrize(("count", "between", "expected"), [(30, True, True), (100, False, False)])
def test_many_clusters_warn_if_psi_rests_on_few(count, between, expected):
    model, groups = grouped(count, 20, between)
    assert bool(warned(model, slope, True, groups)) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("robust", "between"), [("HC1", None), ("CR1", True), ("CR1", False)])
def test_the_coverage_that_is_announced_is_that_of_a_simulation(robust, between):
    """Within three binomial errors of 400 data sets, and the two points that Satterthwaite's
    approximation may be off."""
    from scipy.stats import t

    from implicit_delta.inference.checks.small_samples import _forecast

    rng, hits, announced = np.random.default_rng(0), 0, []
    groups = None if between is None else np.repeat(np.arange(25), 8)
    n = 30 if groups is None else 200
    x = np.exp(rng.normal(size=n)) if groups is None else rng.normal(size=n)
    x = rng.normal(size=25)[groups] if between else x
    X = np.column_stack([np.ones(n), x])
    for repeat in range(400):
        noise = rng.normal(size=n)
        y = noise if groups is None else noise + rng.normal(size=25)[groups]
        beta = np.linalg.lstsq(X, y, rcond=None)[0]
        model = idm.from_residuals(lambda b, y=y: y - X @ b, beta, jacobian=lambda b: -X)
        evaluation = Evaluation.of(model, slope, None)
        response = idm.Infinitesimal().respond(model, evaluation)
        sandwich = Sandwich.of(model, robust, groups)
        error = np.sqrt(sandwich.of_directions(model, response.directions)[0, 0])
        hits += abs(beta[1]) < t.ppf(0.975, sandwich.df(model, response)) * error
        if repeat < 20:
            announced.append(_forecast(sandwich, model, response).coverage)
    binomial = 3 * np.sqrt(0.9 * 0.1 / 400)
    assert np.mean(announced) == pytest.approx(hits / 400, abs=binomial + 0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "between"), [(5, False), (5, True), (10, False), (10, True)])
def test_cr2_with_satterthwaite_covers(count, between):
    """Between 93 and 97 %, give or take three binomial errors of 200 data sets."""
    from scipy.stats import t

    hits, repeats = 0, 200
    for seed in range(repeats):
        model, groups = grouped(count, 10, between, seed)
        response = idm.Infinitesimal().respond(model, Evaluation.of(model, slope, None))
        sandwich = Sandwich.of(model, "CR2", groups)
        rows = sandwich.influences(model, response.directions)
        error = np.sqrt(sandwich.of_rows(model, rows)[0, 0])
        hits += abs(model.theta[1] - 0.5) < t.ppf(0.975, sandwich.df(model, response)[0]) * error
    slack = 3 * np.sqrt(0.95 * 0.05 / repeats)
    assert 0.93 - slack < hits / repeats < 0.97 + slack

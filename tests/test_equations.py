"""Estimating equations: the same as R, as closed forms, and as likelihoods whose score they are."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, log_ndtr, ndtr
from scipy.stats import chi2, norm

import implicit_delta as idm
from implicit_delta.core.cache import LastCache
from implicit_delta.testing import check_model

CASES = json.loads((Path(__file__).parent / "golden" / "equations.json").read_text())["cases"]
RTOL = 1e-7  # of numbers from R


def arrays(case):
    return {name: np.array(values, dtype=float) for name, values in CASES[case]["data"].items()}


def errors(model, psi=idm.parameters, **options):
    return idm.infer(model, psi, **options).standard_error


def opaque(function):
    """The same function, written so that no derivative can be traced through it."""
    return lambda th: function(np.array([float(t) for t in th]))


def instrumented(y, X, Z):
    return lambda b: Z * (y - X @ b)[:, None]


# The same as R.


@pytest.mark.parametrize(("robust", "kind"), [(False, "hc0"), (True, "hc0"), ("HC1", "hc1")])
def test_two_stage_least_squares_as_ivreg(robust, kind):
    data = arrays("tsls")
    model = idm.from_equations(
        instrumented(**data), start=np.zeros(3), weighting=np.linalg.inv(data["Z"].T @ data["Z"])
    )
    np.testing.assert_allclose(model.theta, CASES["tsls"]["theta"], rtol=RTOL)
    np.testing.assert_allclose(errors(model, robust=robust), CASES["tsls"][kind], rtol=RTOL)


@pytest.mark.parametrize("weighting", ["two-step", "iterated"])
def test_gmm_and_its_j_test(weighting):
    expected = CASES["gmm"][weighting.replace("-", "_")]
    model = idm.from_equations(
        instrumented(**arrays("tsls")), start=np.zeros(3), weighting=weighting
    )
    estimate = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(estimate.value, expected["theta"], rtol=1e-6)
    np.testing.assert_allclose(estimate.standard_error, expected["hc0"], rtol=1e-6)
    notes = estimate.diagnostics.notes
    np.testing.assert_allclose(notes["hansen_j"], expected["j"], rtol=1e-6)
    np.testing.assert_allclose(notes["hansen_p_value"], expected["p_value"], rtol=1e-6)
    assert notes["hansen_df"] == 1


def test_gmm_in_two_steps_is_the_default_and_iterated_that_of_theta():
    equations = instrumented(**arrays("tsls"))
    default = idm.from_equations(equations, start=np.zeros(3))
    np.testing.assert_allclose(default.theta, CASES["gmm"]["two_step"]["theta"], rtol=1e-6)
    iterated = idm.from_equations(equations, start=np.zeros(3), weighting="iterated")
    known = idm.from_equations(equations, theta=iterated.theta)
    np.testing.assert_allclose(
        known.facts.hansen.statistic, CASES["gmm"]["iterated"]["j"], rtol=1e-6
    )
    np.testing.assert_allclose(errors(known), errors(iterated), rtol=1e-8)


def test_clusters_of_the_fit_weigh_and_test_by_groups():
    equations, groups = instrumented(**arrays("tsls")), np.arange(48) // 2
    model = idm.from_equations(equations, start=np.zeros(3), weighting="iterated", clusters=groups)
    sums = equations(model.theta).reshape(24, 2, 4).sum(axis=1)
    total = sums.sum(axis=0)
    J = total @ np.linalg.solve(sums.T @ sums, total)
    np.testing.assert_allclose(model.facts.hansen.statistic, J, rtol=1e-7)
    data = arrays("tsls")
    G = -data["Z"].T @ data["X"]
    V = np.linalg.inv(G.T @ np.linalg.solve(sums.T @ sums, G))
    np.testing.assert_allclose(errors(model), np.sqrt(np.diag(V)), rtol=1e-7)
    np.testing.assert_allclose(errors(model, clusters=groups), errors(model), rtol=1e-12)


def test_a_j_test_of_rows_is_not_shown_beside_clusters():
    model = idm.from_equations(instrumented(**arrays("tsls")), start=np.zeros(3))
    estimate = idm.infer(model, idm.parameters, clusters=np.arange(48) // 2)
    assert "from_equations" in estimate.diagnostics.notes["hansen_j"]
    assert "hansen_p_value" not in estimate.diagnostics.notes


def test_instrumental_poisson():
    data = arrays("poisson")
    y, X, Z = data["y"], data["X"], data["Z"]
    model = idm.from_equations(
        lambda b: Z * (y - np.exp(X @ b))[:, None], start=[np.log(y.mean()), 0, 0]
    )
    np.testing.assert_allclose(model.theta, CASES["poisson"]["theta"], rtol=1e-6)
    np.testing.assert_allclose(errors(model), CASES["poisson"]["hc0"], rtol=1e-6)


def weighted(a, y, X):
    def equations(th):
        p = expit(X @ th[1:])
        return np.column_stack([a * y / p - (1 - a) * y / (1 - p) - th[0], X * (a - p)[:, None]])

    return equations


def doubly_robust(a, y, X):
    def equations(th):
        m1, m0, p = X @ th[1:5], X @ th[5:9], expit(X @ th[9:])
        effect = a * (y - m1) / p + m1 - (1 - a) * (y - m0) / (1 - p) - m0 - th[0]
        outcomes = [X * (a * (y - m1))[:, None], X * ((1 - a) * (y - m0))[:, None]]
        return np.column_stack([effect, *outcomes, X * (a - p)[:, None]])

    return equations


@pytest.mark.parametrize(
    ("kind", "equations", "d"), [("ipw", weighted, 5), ("aipw", doubly_robust, 13)]
)
def test_treatment_effect_with_its_propensity(kind, equations, d):
    expected = CASES["effects"][kind]
    model = idm.from_equations(equations(**arrays("effects")), start=np.zeros(d))
    estimate = idm.infer(model, lambda th: th[0])
    np.testing.assert_allclose(estimate.value, expected["value"], rtol=RTOL)
    np.testing.assert_allclose(estimate.standard_error, expected["se"], rtol=RTOL)


def test_a_derived_parameter_is_an_equation_without_noise():
    data = arrays("effects")
    a, y, X = data["a"], data["y"], data["X"]

    def equations(th):
        p = expit(X @ th[3:])
        rows = [a * y / p - th[1], (1 - a) * y / (1 - p) - th[2]]
        derived = np.ones(len(y)) * (th[1] - th[2]) - th[0]
        return np.column_stack([derived, *rows, X * (a - p)[:, None]])

    model = idm.from_equations(equations, start=np.zeros(7))
    stacked = idm.infer(model, lambda th: th[0])
    np.testing.assert_allclose(stacked.standard_error, CASES["effects"]["ipw"]["se"], rtol=RTOL)
    np.testing.assert_allclose(errors(model, lambda th: th[1] - th[2]), stacked.standard_error)


def test_selection_in_two_steps():
    case, data = CASES["heckman"], arrays("heckman")
    works, wage, Z, X = data["works"], data["wage"], data["Z"], data["X"]
    sign = 2 * works - 1

    def equations(th):
        e = Z @ th[:5]
        mills = np.exp(-(e**2) / 2 - log_ndtr(e)) / np.sqrt(2 * np.pi)
        slope = sign * np.exp(-(e**2) / 2 - log_ndtr(sign * e)) / np.sqrt(2 * np.pi)
        D = np.column_stack([X, mills])
        second = D * (works * (wage - D @ th[5:]))[:, None]
        return np.column_stack([Z * slope[:, None], second])

    model = idm.from_equations(equations, start=np.zeros(9))
    np.testing.assert_allclose(model.theta, case["theta"], rtol=1e-6)
    np.testing.assert_allclose(errors(model)[5:], case["second_step"], rtol=1e-6)


def gee(y, X, labels, alpha, mean, variance):
    """Equations of each child, D' V^-1 (y - mu), with exchangeable V; and their expected slope."""
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    size = {len(group) for group in groups}.pop()
    X, y = X[np.concatenate(groups)].reshape(-1, size, X.shape[1]), y[np.concatenate(groups)]
    inverse = np.linalg.inv((1 - alpha) * np.eye(size) + alpha)

    def parts(b):
        mu = mean(X @ b)
        root = np.sqrt(variance(mu))
        return root, ((y.reshape(mu.shape) - mu) / root) @ inverse

    def equations(b):
        root, scaled = parts(b)
        return np.sum(X * (root * scaled)[:, :, None], axis=1)

    def jacobian(b):
        U = X * parts(b)[0][:, :, None]
        return -np.einsum("gij,ik,gkl->jl", U, inverse, U)

    return equations, jacobian


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_gee_as_geepack(family):
    case, data = CASES["gee"][family], arrays("gee")
    mean, variance = {
        "gaussian": (lambda e: e, lambda mu: mu * 0 + 1),
        "binomial": (expit, lambda mu: mu * (1 - mu)),
    }[family]
    equations, jacobian = gee(data["y"], data["X"], data["id"], case["alpha"], mean, variance)
    model = idm.from_equations(
        equations, theta=case["theta"], jacobian=jacobian if family == "binomial" else None
    )
    np.testing.assert_allclose(errors(model), case["se"], rtol=1e-5)


def test_gee_as_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    data = arrays("gee")
    y, X, labels = data["y"], data["X"], data["id"]
    fit = sm.GEE(y, X, labels, cov_struct=sm.cov_struct.Exchangeable()).fit(ctol=1e-12, maxiter=500)
    equations, _ = gee(y, X, labels, fit.cov_struct.dep_params, lambda e: e, lambda mu: mu * 0 + 1)
    model = idm.from_equations(equations, start=np.zeros(4))
    np.testing.assert_allclose(errors(model), fit.bse, rtol=1e-6)


# Closed forms.


def test_method_of_moments_of_a_gamma():
    y = np.random.default_rng(0).gamma(2.0, 3.0, size=400)

    def equations(th):  # shape and scale
        return np.column_stack([y - th[0] * th[1], (y - th[0] * th[1]) ** 2 - th[0] * th[1] ** 2])

    model = idm.from_equations(equations, start=[1.0, y.mean()])
    mean, variance = y.mean(), y.var()
    np.testing.assert_allclose(model.theta, [mean**2 / variance, variance / mean], rtol=1e-9)
    rows = np.stack([y - mean, (y - mean) ** 2 - variance])
    slope = np.array([2 * mean / variance, -((mean / variance) ** 2)])
    by_hand = np.sqrt(np.sum((slope @ rows) ** 2)) / 400
    np.testing.assert_allclose(errors(model, lambda th: th[0]), by_hand, rtol=1e-9)


def quantile_data(n=800):
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(n), rng.uniform(size=n)])
    return X, X @ [1.0, 2.0] + (0.5 + X[:, 1]) * rng.normal(size=n)


def test_quantile_regression_by_a_density_estimate():
    sm = pytest.importorskip("statsmodels.api")
    X, y = quantile_data()
    fit = sm.QuantReg(y, X).fit(0.5, p_tol=1e-12, max_iter=5000)
    h = 1.06 * np.std(y - X @ fit.params) * len(y) ** -0.2

    def equations(b):
        return X * (0.5 - (y < X @ b))[:, None]

    def jacobian(b):
        density = norm.pdf((y - X @ b) / h) / h
        return -(X * density[:, None]).T @ X

    model = idm.from_equations(equations, theta=fit.params, jacobian=jacobian)
    inverse = np.linalg.inv(jacobian(fit.params))
    rows = equations(fit.params)
    by_hand = np.sqrt(np.diag(inverse @ rows.T @ rows @ inverse))
    np.testing.assert_allclose(errors(model), by_hand, rtol=1e-10)


def test_quantile_regression_smoothed():
    X, y = quantile_data()
    h = 0.3
    model = idm.from_equations(lambda b: X * (0.5 - ndtr((X @ b - y) / h))[:, None], start=[1, 2])
    r = y - X @ model.theta
    inverse = np.linalg.inv((X * norm.pdf(r / h)[:, None] / h).T @ X)
    rows = X * (0.5 - ndtr(-r / h))[:, None]
    by_hand = np.sqrt(np.diag(inverse @ rows.T @ rows @ inverse))
    np.testing.assert_allclose(errors(model), by_hand, rtol=1e-9)


def test_hansens_j_by_hand():
    y = np.random.default_rng(5).poisson(3.0, size=300).astype(float)

    def equations(th):  # mean and variance of a Poisson distribution
        return np.column_stack([y - th[0], (y - th[0]) ** 2 - th[0]])

    model = idm.from_equations(equations, start=[1.0], weighting="iterated")
    rows = equations(model.theta)
    total = rows.sum(axis=0)
    J = total @ np.linalg.solve(rows.T @ rows, total)
    np.testing.assert_allclose(model.facts.hansen, (J, 1, chi2.sf(J, 1)), rtol=1e-9)
    G = np.array([-300.0, -2 * np.sum(y - model.theta[0]) - 300])
    efficient = 1 / np.sqrt(G @ np.linalg.solve(rows.T @ rows, G))
    np.testing.assert_allclose(errors(model), [efficient], rtol=1e-9)


# Laws.


@pytest.mark.parametrize("options", [{}, {"clusters": np.arange(48) // 2}, {"weights": "counts"}])
@pytest.mark.parametrize("wrap", [lambda f: f, opaque], ids=["traced", "opaque"])
@pytest.mark.parametrize("columns", [3, 4])
def test_equations_keep_the_contract(columns, wrap, options):
    data = arrays("tsls")
    data["Z"] = data["Z"][:, :columns]
    more = options | ({"weights": 1.0 + np.arange(48) % 3} if "weights" in options else {})
    check_model(idm.from_equations(wrap(instrumented(**data)), start=np.zeros(3), **more))


def test_the_contract_of_equations_notices_a_wrong_jacobian():
    equations = instrumented(**arrays("tsls"))
    model = idm.from_equations(equations, start=np.zeros(3))
    wrong = replace(model.rows, slope=1.01 * model.rows.slope, cache=LastCache())
    with pytest.raises(AssertionError, match="Jacobian"):
        check_model(replace(model, rows=wrong))


def logit(seed=1, n=400):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    y = (rng.random(n) < expit(X @ [0.2, 0.8, -0.5])) * 1.0

    def loglik(b):
        return y * (X @ b) - np.logaddexp(0, X @ b)

    def score(b):
        return X * (y - expit(X @ b))[:, None]

    return loglik, score


OPTIONS = {
    "default": ({}, {"robust": True}),
    "robust": ({"robust": True}, {"robust": True}),
    "HC1": ({"robust": "HC1"}, {"robust": "HC1"}),
    "HAC": ({"robust": idm.HAC(5)}, {"robust": idm.HAC(5)}),
    "clusters": ({"clusters": np.arange(400) % 40}, {"clusters": np.arange(400) % 40}),
    "CR1": ({"clusters": np.arange(400) % 40, "robust": "CR1"},) * 2,
    "CR1S": ({"clusters": np.arange(400) % 40, "robust": "CR1S"},) * 2,
    "two-way": ({"clusters": (np.arange(400) % 40, np.arange(400) // 10)},) * 2,
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("given", ["start", "theta", "weights", "sampling"])
def test_equations_of_a_score_are_the_robust_likelihood(options, given):
    loglik, score = logit()
    extra = {}
    if given in ("weights", "sampling"):
        extra["weights"] = 1.0 + np.arange(400) % 3
        extra["weight_kind"] = "frequency" if given == "weights" else "sampling"
        if isinstance(options[0].get("robust"), idm.HAC) and given == "weights":
            pytest.skip("HAC needs one row for each point in time")
    likelihood = idm.from_loglik(loglik, start=np.zeros(3), score=score, **extra)
    point = {"theta": likelihood.theta} if given == "theta" else {"start": np.zeros(3)}
    model = idm.from_equations(score, **point, **extra)
    if given == "sampling" and options is OPTIONS["default"]:
        options = ({}, {})  # the design-based variance of both
    psi = lambda b: np.array([b[1] / b[2], expit(b[0])])
    a, b = idm.infer(model, psi, **options[0]), idm.infer(likelihood, psi, **options[1])
    np.testing.assert_allclose(a.standard_error, b.standard_error, rtol=1e-10)
    np.testing.assert_allclose(a.covariance, b.covariance, rtol=1e-9)
    np.testing.assert_allclose(a.influence, b.influence, rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(a.df, b.df)
    assert a.diagnostics.notes["variance"] == b.diagnostics.notes["variance"]


def test_an_average_over_the_training_rows():
    loglik, score = logit()
    X = np.column_stack([np.ones(400), np.random.default_rng(1).normal(size=(400, 2))])
    h = idm.Average(lambda b: expit(X @ b), sample="training")
    likelihood = idm.from_loglik(loglik, start=np.zeros(3), score=score)
    model = idm.from_equations(score, start=np.zeros(3))
    np.testing.assert_allclose(errors(model, h), errors(likelihood, h), rtol=1e-9)


def test_scaling_and_mixing_the_equations_changes_nothing():
    equations = weighted(**arrays("effects"))
    mix = np.random.default_rng(0).normal(size=(5, 5)) * [1e-6, 1.0, 1e6, 10.0, 1e-3]
    model = idm.from_equations(equations, start=np.zeros(5))
    mixed = idm.from_equations(lambda th: equations(th) @ mix, start=np.zeros(5))
    np.testing.assert_allclose(mixed.theta, model.theta, rtol=1e-6)
    np.testing.assert_allclose(errors(mixed), errors(model), rtol=1e-6)


def test_repeated_rows_are_weights():
    data, counts = arrays("tsls"), 1 + np.arange(48) % 3
    repeated = {name: np.repeat(values, counts, axis=0) for name, values in data.items()}
    for weighting in ("two-step", "iterated"):
        a = idm.from_equations(
            instrumented(**data), start=np.zeros(3), weighting=weighting, weights=counts
        )
        b = idm.from_equations(instrumented(**repeated), start=np.zeros(3), weighting=weighting)
        np.testing.assert_allclose(a.theta, b.theta, rtol=1e-7)
        np.testing.assert_allclose(a.facts.hansen, b.facts.hansen, rtol=1e-6)
        np.testing.assert_allclose(errors(a), errors(b), rtol=1e-7)
        np.testing.assert_allclose(errors(a, robust="HC1"), errors(b, robust="HC1"), rtol=1e-7)


@pytest.mark.parametrize("start", [[0, 0], [-3, 1], [3, 3], [10, 2]])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_normal_distribution_from_bad_starts(start, sign):
    y = np.random.default_rng(1).normal(3, 2, size=200)

    def score(th):  # where the likelihood is not concave Newton's method goes astray
        z = (y - th[0]) * np.exp(-th[1])
        return sign * np.column_stack([z * np.exp(-th[1]), z**2 - 1])

    model = idm.from_equations(score, start=start)
    np.testing.assert_allclose(model.theta, [y.mean(), np.log(y.std())], rtol=1e-9)


def test_a_traced_a_given_and_a_numerical_jacobian_agree():
    data = arrays("poisson")
    y, X, Z = data["y"], data["X"], data["Z"]

    def equations(b):
        return Z * (y - np.exp(X @ b))[:, None]

    def untraced(b):
        return equations(np.array([float(entry) for entry in b]))

    def jacobian(b):
        return -(Z * np.exp(X @ b)[:, None]).T @ X

    theta = CASES["poisson"]["theta"]
    traced = errors(idm.from_equations(equations, theta=theta))
    np.testing.assert_allclose(errors(idm.from_equations(untraced, theta=theta)), traced, rtol=1e-9)
    given = idm.from_equations(equations, theta=theta, jacobian=jacobian)
    np.testing.assert_allclose(errors(given), traced, rtol=1e-10)


def test_redundant_over_identification_by_rescaled_instruments_changes_nothing():
    data = arrays("tsls")
    y, X, Z = data["y"], data["X"], data["Z"]
    A = np.diag([1.0, 100.0, 0.01, 5.0])
    plain = idm.from_equations(instrumented(y, X, Z), start=np.zeros(3), weighting="iterated")
    scaled = idm.from_equations(instrumented(y, X, Z @ A), start=np.zeros(3), weighting="iterated")
    np.testing.assert_allclose(scaled.theta, plain.theta, rtol=1e-5)
    np.testing.assert_allclose(
        scaled.facts.hansen.statistic, plain.facts.hansen.statistic, rtol=1e-5
    )


def test_many_parameters_are_solved_by_gmres(monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.normal(size=(60, 30))

    def equations(th):  # unsymmetric, and not linear
        return y - th - 0.3 * np.exp(th[::-1]) / 2

    dense = idm.from_equations(equations, start=np.zeros(30))
    monkeypatch.setitem(idm.from_equations.__globals__, "DENSE_LIMIT", 10)
    large = idm.from_equations(equations, theta=dense.theta)
    psi = lambda th: np.array([th[0] * th[1], th.sum()])
    a, b = idm.infer(large, psi), idm.infer(dense, psi)
    np.testing.assert_allclose(a.standard_error, b.standard_error, rtol=1e-8)
    assert "gmres" in a.method
    assert "lu" in b.method


def test_the_model_describes_itself():
    model = idm.from_equations(instrumented(**arrays("tsls")), start=np.zeros(3))
    assert "48 observations, 3 parameters" in repr(model)
    assert "Hansen's J: 0.2814 (p 0.596)" in repr(model)

"""Weights have kinds: repetitions of rows, precisions, and shares of a population."""

import json

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import t
from test_golden import GOLDEN, function

import implicit_delta as idm

# Coverage with few rows is not the subject here.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning"),
]

RNG = np.random.default_rng(12)
N = 80
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
ETA = X @ [0.3, 0.5, -0.4]
REAL = ETA + RNG.normal(size=N)
COUNTS = RNG.poisson(np.exp(ETA)).astype(float)
POSITIVE = RNG.gamma(3.0, np.exp(ETA) / 3)
BINARY = (RNG.random(N) < expit(ETA)).astype(float)
REPEATS = RNG.integers(0, 4, N).astype(float)
PRECISIONS = RNG.uniform(0.3, 3.0, N)
GROUPS = np.arange(N) % 20
AGAIN = np.repeat(np.arange(N), REPEATS.astype(int))
TIGHT = {"tol": 1e-12, "max_iter": 10_000}


def loglik(y, X):
    return lambda b: y * (X @ b) - np.exp(X @ b)


def numpy_model(rows=slice(None), **options):
    return idm.from_loglik(loglik(COUNTS[rows], X[rows]), start=[0.0, 0.0, 0.0], **options)


def residual_model(rows=slice(None), variance="unbiased", **options):
    y, Z = REAL[rows], X[rows]
    return idm.from_residuals(
        lambda b: y - Z @ b, start=np.zeros(3), variance=variance, jacobian=lambda b: -Z, **options
    )


def least_squares(rows, weights=None, **_):
    """Coefficients of the constant and the two columns."""
    root = np.sqrt(np.ones(len(X[rows])) if weights is None else weights)
    return np.linalg.lstsq(root[:, None] * X[rows], root * REAL[rows], rcond=None)[0]


def torch_model(rows=slice(None), likelihood=None, **options):
    torch = pytest.importorskip("torch")
    line, b = torch.nn.Linear(2, 1, dtype=torch.float64), least_squares(rows, **options)
    line.load_state_dict({"weight": torch.tensor(b[None, 1:]), "bias": torch.tensor(b[:1])})
    data = torch.as_tensor(X[rows, 1:]), torch.as_tensor(REAL[rows][:, None])
    return idm.from_torch(line, data, likelihood or idm.Gaussian("unbiased"), **options)


def jax_model(rows=slice(None), likelihood=None, **options):
    pytest.importorskip("jax")
    settings = {"apply": lambda b, x: x @ b["all"], "dtype": "float64", **options}
    params, data = {"all": least_squares(rows, **options)}, (X[rows], REAL[rows])
    return idm.from_jax(params, data, likelihood or idm.Gaussian("unbiased"), **settings)


def sklearn_model(rows=slice(None), weights=None, **options):
    linear = pytest.importorskip("sklearn.linear_model")
    fitted = linear.LinearRegression().fit(X[rows, 1:], REAL[rows], weights)
    return idm.from_sklearn(fitted, X[rows, 1:], REAL[rows], weights, **options)


def gamma_model(rows=slice(None), weights=None, **options):
    linear = pytest.importorskip("sklearn.linear_model")
    fitted = linear.GammaRegressor(alpha=0, **TIGHT).fit(X[rows, 1:], POSITIVE[rows], weights)
    return idm.polish(idm.from_sklearn(fitted, X[rows, 1:], POSITIVE[rows], weights, **options))


MODELS = {
    "from_loglik": numpy_model,
    "from_residuals": residual_model,
    "from_torch": torch_model,
    "from_jax": jax_model,
    "LinearRegression": sklearn_model,
    "GammaRegressor": gamma_model,
}
# Least squares of the same data: their parameters are those of X, but for the order.
SQUARES = {name: MODELS[name] for name in MODELS if name not in ("from_loglik", "GammaRegressor")}
ASKED = {
    "model": {},
    "robust": {"robust": True},
    "HC1": {"robust": "HC1"},
    "clusters": {"clusters": GROUPS},
    "CR1S": {"clusters": GROUPS, "robust": "CR1S"},
}


def sorted_errors(model, **asked):
    """Standard errors in an order that does not depend on where the intercept is."""
    found = idm.infer(model, idm.parameters, **asked)
    return found.standard_error[np.argsort(found.value)]


# Frequency


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", MODELS)
def test_frequency_weights_equal_repeated_rows(name, asked):
    repeated = {**ASKED[asked]}
    if "clusters" in repeated:
        repeated["clusters"] = GROUPS[AGAIN]
    weighted = MODELS[name](weights=REPEATS, weight_kind="frequency")
    expected = sorted_errors(MODELS[name](AGAIN), **repeated)
    np.testing.assert_allclose(sorted_errors(weighted, **ASKED[asked]), expected, rtol=1e-5)
    assert weighted.weights.counts.sum() == len(AGAIN)


@pytest.mark.parametrize("weights", [PRECISIONS, PRECISIONS * N / PRECISIONS.sum()])
@pytest.mark.parametrize("name", MODELS)
def test_frequencies_that_are_no_whole_numbers_warn_and_name_the_other_kinds(name, weights):
    with pytest.warns(idm.ImplicitDeltaWarning, match=r'="precision".*="sampling"'):
        MODELS[name](weights=weights)


@pytest.mark.parametrize("name", MODELS)
def test_the_other_kinds_do_not_warn_and_are_printed(name):
    for kind in ("precision", "sampling"):
        assert kind in repr(MODELS[name](weights=PRECISIONS, weight_kind=kind))
    assert "frequency" in repr(MODELS[name](weights=REPEATS))
    with pytest.raises(ValueError, match=r"weight_kind is one of 'frequency', .*'analytic'"):
        MODELS[name](weights=REPEATS, weight_kind="analytic")


# Precision


def weighted_least_squares(w):
    """Covariances of WLS by hand: the model's, HC0 and clustered."""
    bread = np.linalg.inv((X.T * w) @ X)
    b = bread @ X.T @ (w * REAL)
    r = REAL - X @ b
    s2 = np.sum(w * r**2) / (np.count_nonzero(w) - 3)
    scores = (w * r)[:, None] * X
    sums = np.array([scores[g == GROUPS].sum(axis=0) for g in range(20)])
    return b, {
        "model": s2 * bread,
        "robust": bread @ scores.T @ scores @ bread,
        "HC1": bread @ scores.T @ scores @ bread * N / (N - 3),
        "clusters": bread @ sums.T @ sums @ bread,
        "CR1S": bread @ sums.T @ sums @ bread * 20 / 19 * (N - 1) / (N - 3),
    }


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", SQUARES)
def test_precisions_are_weighted_least_squares(name, asked):
    b, covariance = weighted_least_squares(PRECISIONS)
    expected = np.sqrt(np.diag(covariance[asked]))[np.argsort(b)]
    model = SQUARES[name](weights=PRECISIONS, weight_kind="precision")
    np.testing.assert_allclose(sorted_errors(model, **ASKED[asked]), expected, rtol=1e-6)


@pytest.mark.parametrize("name", SQUARES)
def test_the_unit_of_precisions_and_sampling_weights_does_not_matter(name):
    for kind in ("precision", "sampling"):
        one = SQUARES[name](weights=PRECISIONS, weight_kind=kind)
        other = SQUARES[name](weights=1000 * PRECISIONS, weight_kind=kind)
        np.testing.assert_allclose(sorted_errors(one), sorted_errors(other), rtol=1e-6)


@pytest.mark.parametrize("variance", ["mle", "unbiased"])
@pytest.mark.parametrize("name", ["from_residuals", "from_torch", "from_jax"])
def test_one_row_stays_one_observation(name, variance):
    option = "variance" if name == "from_residuals" else "likelihood"
    value = variance if name == "from_residuals" else idm.Gaussian(variance)
    model = SQUARES[name](weights=PRECISIONS, weight_kind="precision", **{option: value})
    _, covariance = weighted_least_squares(PRECISIONS)
    share = (N - 3) / N if variance == "mle" else 1.0
    found = np.sort(idm.infer(model, idm.parameters).standard_error)
    np.testing.assert_allclose(
        found, np.sort(np.sqrt(share * np.diag(covariance["model"]))), rtol=1e-6
    )


def test_precisions_are_those_of_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    results = sm.WLS(REAL, X, weights=PRECISIONS).fit()
    ours = residual_model(weights=PRECISIONS, weight_kind="precision")
    np.testing.assert_allclose(
        idm.infer(ours, idm.parameters).standard_error, results.bse, rtol=1e-8
    )
    theirs = idm.from_statsmodels(results)
    assert "precisions: 0.3" in repr(theirs)
    for asked in ASKED.values():
        np.testing.assert_allclose(
            idm.infer(ours, idm.parameters, **asked).standard_error,
            idm.infer(theirs, idm.parameters, **asked).standard_error,
            rtol=1e-8,
        )
    gamma = sm.GLM(
        POSITIVE, X, family=sm.families.Gamma(sm.families.links.Log()), var_weights=PRECISIONS
    ).fit(method="newton", tol=1e-12)
    np.testing.assert_allclose(
        sorted_errors(gamma_model(weights=PRECISIONS, weight_kind="precision")),
        gamma.bse[np.argsort(gamma.params)],
        rtol=1e-6,
    )


def test_frequencies_of_statsmodels_warn_if_they_are_none():
    sm = pytest.importorskip("statsmodels.api")
    fit = lambda **w: sm.GLM(COUNTS, X, family=sm.families.Poisson(), **w).fit(tol=1e-12)
    with pytest.warns(idm.ImplicitDeltaWarning, match='="sampling"'):
        idm.from_statsmodels(fit(freq_weights=PRECISIONS))
    assert "(frequency)" in repr(idm.from_statsmodels(fit(freq_weights=REPEATS)))
    assert "part of the likelihood" in repr(idm.from_statsmodels(fit(var_weights=PRECISIONS)))
    survey = idm.from_statsmodels(fit(freq_weights=PRECISIONS), weight_kind="sampling")
    expected = numpy_model(weights=PRECISIONS, weight_kind="sampling")
    np.testing.assert_allclose(
        idm.infer(survey, idm.parameters).standard_error,
        idm.infer(expected, idm.parameters).standard_error,
        rtol=1e-6,
    )
    for kind, weights in (("precision", {"freq_weights": REPEATS}), ("sampling", {})):
        if weights or kind == "sampling":
            with pytest.raises(ValueError, match="var_weights"):
                idm.from_statsmodels(sm.OLS(REAL, X).fit(), weight_kind=kind)


# Sampling, against R's survey

SURVEY = json.loads((GOLDEN / "survey.json").read_text())["cases"]


def survey_model(case, kind="sampling"):
    data = {name: np.asarray(values) for name, values in case["data"].items()}
    kinds = {"weights": data["weights"], "weight_kind": kind}
    if "** 2" in case["loglik"]:
        y, Z = data["y"], data["X"]
        return idm.from_residuals(
            lambda b: y - Z @ b, case["theta"], jacobian=lambda b: -Z, **kinds
        )
    return idm.from_loglik(function(case["loglik"], data), case["theta"], **kinds)


def asked_of(case, design):
    return {"clusters": case["data"]["clusters"]} if design == "clusters" else {}


@pytest.mark.parametrize("design", ["rows", "clusters"])
@pytest.mark.parametrize("name", SURVEY)
def test_sampling_weights_give_the_errors_of_svyglm(name, design):
    case = SURVEY[name]
    found = idm.infer(survey_model(case), idm.parameters, **asked_of(case, design))
    np.testing.assert_allclose(found.standard_error, case["standard_error"][design], rtol=1e-6)
    np.testing.assert_allclose(found.covariance, case["covariance"][design], rtol=1e-5)
    assert found.diagnostics.notes["variance"].startswith("design-based")
    assert found.df == case["df"][design]


@pytest.mark.parametrize("design", ["rows", "clusters"])
@pytest.mark.parametrize("name", SURVEY)
def test_averages_over_a_survey_are_linearized(name, design):
    case = SURVEY[name]
    mean = idm.Average(function(case["mean"], case["data"]), sample="training")
    found = idm.infer(survey_model(case), mean, **asked_of(case, design))
    expected = case["average"][design]
    assert found.value == pytest.approx(expected["value"], rel=1e-8)
    for part in ("model", "evaluation", "total"):
        assert found.budget[part] == pytest.approx(expected[part], rel=1e-6)


@pytest.mark.parametrize("name", SURVEY)
def test_svyglm_from_other_doors(name):
    case = SURVEY[name]
    data = {key: np.asarray(values, dtype=float) for key, values in case["data"].items()}
    linear = pytest.importorskip("sklearn.linear_model")
    kinds = {
        "gaussian": linear.LinearRegression(),
        "logit": linear.LogisticRegression(C=np.inf, solver="newton-cholesky", **TIGHT),
        "poisson": linear.PoissonRegressor(alpha=0, **TIGHT),
    }
    w, Z = data["weights"], data["X"][:, 1:]
    fitted = kinds[name].fit(Z, data["y"], w)
    model = idm.polish(idm.from_sklearn(fitted, Z, data["y"], w, weight_kind="sampling"))
    for design in ("rows", "clusters"):
        found = idm.infer(model, idm.parameters, **asked_of(case, design)).standard_error
        expected = case["standard_error"][design]
        np.testing.assert_allclose(found, [*expected[1:], expected[0]], rtol=1e-6)


@pytest.mark.parametrize("name", ["from_torch", "from_jax"])
def test_batches_do_not_matter_to_sampling_weights(name):
    options = {"weights": PRECISIONS, "weight_kind": "sampling"}
    expected = sorted_errors(residual_model(**options))
    for size in (7, None):
        found = sorted_errors(SQUARES[name](batch_size=size, **options))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_is_asked_for_overrides_the_design():
    model = numpy_model(weights=PRECISIONS, weight_kind="sampling")
    plain = idm.infer(model, idm.parameters, robust=True)
    design = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(plain.covariance * N / (N - 1), design.covariance, rtol=1e-10)
    assert "robust" in plain.diagnostics.notes["variance"]


def test_other_doors_and_methods_have_the_variance_of_the_design():
    model, psi = numpy_model(weights=PRECISIONS, weight_kind="sampling"), lambda b: b[1]
    expected = idm.infer(model, psi).standard_error
    table = idm.compare(
        model, psi, {"default": idm.Infinitesimal(), "refits": idm.FiniteDifference()}
    )
    for row in table.rows:
        half = t.ppf(0.975, N - 3) * expected
        assert (row.high - row.low) / 2 == pytest.approx(half, rel=1e-2)
    for method in (idm.FiniteDifference(), idm.Simulation(300, rng=0)):
        assert idm.infer(model, psi, method).standard_error == pytest.approx(expected, rel=1e-2)


def test_a_pseudo_likelihood_has_no_profile():
    model = numpy_model(weights=PRECISIONS, weight_kind="sampling")
    with pytest.raises(idm.UnsupportedModelError, match="no log-likelihood"):
        idm.profile(model, lambda b: b[1])


# Averages, influences and the bootstrap


@pytest.mark.parametrize("kind", ["frequency", "precision", "sampling"])
def test_averages_over_training_rows_weigh_by_counts_and_shares(kind):
    weights = REPEATS if kind == "frequency" else PRECISIONS
    model = numpy_model(weights=weights, weight_kind=kind)
    mean = idm.Average(lambda b: np.exp(X @ b), sample="training")
    found = idm.infer(model, mean)
    h = np.exp(X @ model.theta)
    shares = np.ones(N) if kind == "precision" else weights
    assert found.value == pytest.approx(np.average(h, weights=shares))
    # by hand: influence of each observation
    A = (X.T * (weights * h)) @ X
    slope = (shares * h) @ X / shares.sum()
    rows = weights * ((COUNTS - h) * (X @ np.linalg.solve(A, slope)))
    rows = rows + shares * (h - found.value) / shares.sum()
    if kind == "frequency":
        variance = np.sum(rows[weights > 0] ** 2 / weights[weights > 0])
    else:
        variance = np.sum(rows**2) * (N / (N - 1) if kind == "sampling" else 1.0)
    assert found.standard_error == pytest.approx(np.sqrt(variance), rel=1e-5)


@pytest.mark.parametrize("kind", ["precision", "sampling"])
def test_squares_of_influences_sum_to_the_robust_variance(kind):
    model = numpy_model(weights=PRECISIONS, weight_kind=kind)
    found = idm.infer(model, idm.parameters, robust=True, influence=True)
    np.testing.assert_allclose(
        np.sum(found.influence**2, axis=0), found.standard_error**2, rtol=1e-8
    )


@pytest.mark.parametrize("kind", ["precision", "sampling"])
@pytest.mark.parametrize("draw", ["resample", "bayesian"])
def test_the_bootstrap_draws_rows_with_their_weights(kind, draw):
    big = np.random.default_rng(0)
    y, w = big.normal(size=400), big.uniform(0.2, 5.0, 400)
    model = idm.from_residuals(
        lambda b: y - b[0], start=[0.0], jacobian=lambda b: -np.ones((400, 1)),
        weights=w, weight_kind=kind,
    )  # fmt: skip
    expected = idm.infer(model, lambda b: b[0], robust=True).standard_error
    B = 600  # the relative error of a standard error from B draws is 1 / sqrt(2 B), about 3 %
    found = idm.infer(model, lambda b: b[0], idm.Bootstrap(B, draw, rng=1)).standard_error
    assert found == pytest.approx(expected, rel=4 / np.sqrt(2 * B))


def test_rows_without_weight_do_not_count():
    weights = np.where(np.arange(N) < 60, PRECISIONS, 0.0)
    for kind in ("precision", "sampling"):
        given = residual_model(weights=weights, weight_kind=kind)
        kept = residual_model(slice(60), weights=PRECISIONS[:60], weight_kind=kind)
        for asked in ({}, {"robust": "HC1"}):
            np.testing.assert_allclose(
                idm.infer(given, idm.parameters, **asked).covariance,
                idm.infer(kept, idm.parameters, **asked).covariance,
                rtol=1e-6,
            )


def test_one_row_has_no_design():
    weights = (np.arange(N) == 3) * 2.0
    model = idm.from_loglik(
        lambda m: -((REAL - m[0]) ** 2) / 2, start=[0.0], weights=weights, weight_kind="sampling"
    )
    with pytest.raises(idm.UnsupportedModelError, match="only one"):
        idm.infer(model, lambda m: m[0])


def test_whole_numbers_are_whole_up_to_rounding():
    numpy_model(weights=REPEATS * 0.1 * 10.0)


def test_a_survey_is_not_drawn_from_its_model():
    model = residual_model(weights=PRECISIONS, weight_kind="sampling")
    with pytest.raises(idm.UnsupportedModelError, match="draws of the survey"):
        idm.infer(model, lambda b: b[1], idm.Bootstrap(50, "parametric", rng=0))


@pytest.mark.parametrize("kind", ["HC2", "HC3"])
@pytest.mark.parametrize("name", SQUARES)
def test_leverage_of_precisions_is_that_of_weighted_least_squares(name, kind):
    sm = pytest.importorskip("statsmodels.api")
    results = sm.WLS(REAL, X, weights=PRECISIONS).fit()
    model = SQUARES[name](weights=PRECISIONS, weight_kind="precision")
    expected = getattr(results, f"{kind}_se")[np.argsort(results.params)]
    np.testing.assert_allclose(sorted_errors(model, robust=kind), expected, rtol=1e-6)


def bias_reduced(weights):
    """CR2 as in clubSandwich, with targets D D = 1 / weights: A = D (D M D) ** -0.5 D."""
    inverse, D = np.linalg.inv((weights * X.T) @ X), np.diag(weights**-0.5)
    left, scores = D**2 - X @ inverse @ X.T, []
    residuals = REAL - X @ (inverse @ ((weights * X.T) @ REAL))
    for group in range(20):
        rows = group == GROUPS
        target = D[np.ix_(rows, rows)]
        values, vectors = np.linalg.eigh(target @ left[np.ix_(rows, rows)] @ target)
        adjusted = target @ (vectors / np.sqrt(values)) @ vectors.T @ target @ residuals[rows]
        scores.append(inverse @ (weights[rows] * X[rows].T) @ adjusted)
    return np.sqrt(np.sum(np.square(scores), axis=0))


@pytest.mark.parametrize("name", [*SQUARES, "WLS", "GLM"])
def test_clusters_of_precisions_are_those_of_club_sandwich(name):
    expected = bias_reduced(PRECISIONS)
    if name in SQUARES:
        model = SQUARES[name](weights=PRECISIONS, weight_kind="precision")
    else:
        sm = pytest.importorskip("statsmodels.api")
        fits = {
            "WLS": lambda: sm.WLS(REAL, X, weights=PRECISIONS),
            "GLM": lambda: sm.GLM(REAL, X, var_weights=PRECISIONS),
        }
        model = idm.from_statsmodels(fits[name]().fit())
    found = np.sort(sorted_errors(model, robust="CR2", clusters=GROUPS))
    np.testing.assert_allclose(found, np.sort(expected), rtol=1e-6)


@pytest.mark.parametrize("kind", ["HC2", "HC3", "CR2"])
@pytest.mark.parametrize("name", SQUARES)
def test_leverage_of_frequencies_is_that_of_repeated_rows(name, kind):
    weighted, repeated = SQUARES[name](weights=REPEATS), SQUARES[name](AGAIN)
    groups = {"clusters": GROUPS} if kind == "CR2" else {}
    again = {"clusters": GROUPS[AGAIN]} if kind == "CR2" else {}
    np.testing.assert_allclose(
        sorted_errors(weighted, robust=kind, **groups),
        sorted_errors(repeated, robust=kind, **again),
        rtol=1e-6,
    )

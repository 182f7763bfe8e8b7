"""Sums of models of any library: closed forms, fits of the joint function, other data apart."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("statsmodels")

import statsmodels.api as sm
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

import implicit_delta as idm

RNG = np.random.default_rng(11)
N = 150
X = RNG.normal(size=(N, 2))
DESIGN = sm.add_constant(X)
COUNTS = RNG.poisson(np.exp(DESIGN @ [0.4, 0.3, -0.2]))
BINARY = (RNG.random(N) < expit(DESIGN @ [0.2, 0.8, -0.5])).astype(float)
LINE = DESIGN @ [1.0, 0.5, -0.3] + RNG.normal(size=N)
PRIOR = (0.1, 0.05)  # of x1


def poisson(rows=slice(None)):
    return sm.GLM(COUNTS[rows], DESIGN[rows], family=sm.families.Poisson())


def penalized(center, error):
    """Newton's method for the Poisson log-likelihood less the square of one coefficient."""
    b, ridge = np.zeros(3), np.diag([0, error**-2.0, 0])
    for _ in range(50):
        mean = np.exp(DESIGN @ b)
        score = DESIGN.T @ (COUNTS - mean) - ridge @ (b - np.array([0, center, 0]))
        A = DESIGN.T @ (mean[:, None] * DESIGN) + ridge
        b = b + np.linalg.solve(A, score)
    return b, np.linalg.inv(A)


def test_a_regression_with_a_measured_coefficient_is_the_penalized_fit():
    model = idm.from_statsmodels(poisson().fit()) + idm.measurement(x1=PRIOR)
    b, V = penalized(*PRIOR)
    est = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(est.value, b, rtol=1e-7)
    np.testing.assert_allclose(est.covariance, V, rtol=1e-7, atol=1e-15)
    assert list(est.budget) == ["statsmodels", "x1", "total"]
    squares = sum(np.square(own) for name, own in est.budget.items() if name != "total")
    np.testing.assert_allclose(squares, np.diag(V), rtol=1e-7)


@pytest.mark.parametrize("robust", [False, "HC0"])
def test_two_halves_of_a_fit_are_the_fit(robust):
    halves = [idm.from_statsmodels(poisson(rows).fit()) for rows in (slice(0, 70), slice(70, N))]
    ours = idm.infer(sum(halves), idm.parameters, robust=robust)
    whole = idm.infer(idm.from_statsmodels(poisson().fit()), idm.parameters, robust=robust)
    np.testing.assert_allclose(ours.value, whole.value, rtol=1e-6)
    np.testing.assert_allclose(ours.covariance, whole.covariance, rtol=1e-5, atol=1e-12)


def test_models_without_a_common_parameter_stay_apart():
    line = idm.from_statsmodels(sm.OLS(LINE, DESIGN).fit())
    logit = sm.Logit(BINARY, X)
    logit.exog_names[:] = ["z1", "z2"]
    logit = idm.from_statsmodels(logit.fit(disp=0))
    with pytest.warns(idm.ImplicitDeltaWarning, match="shares no parameter"):
        model = line + logit
    est = idm.infer(model, idm.parameters)
    for own in (line, logit):
        apart = idm.infer(own, idm.parameters)
        places = [est.names.index(name) for name in apart.names]
        np.testing.assert_allclose(est.value[places], apart.value, rtol=1e-7)
        np.testing.assert_allclose(est.standard_error[places], apart.standard_error, rtol=1e-6)
    across = np.ix_([0, 1, 2], [3, 4])
    np.testing.assert_allclose(est.covariance[across], 0.0, atol=1e-15)


def test_a_regression_and_shards():
    start = poisson().fit().params

    def build(rows):
        def loglik(th):
            eta = DESIGN[rows] @ np.array([th.const, th.x1, th.x2])
            return COUNTS[rows] * eta - np.exp(eta)

        return idm.from_loglik(loglik, theta=dict(zip(["const", "x1", "x2"], start, strict=True)))

    shards = idm.from_shards(build, [slice(0, 40), slice(40, 90)])
    rest = idm.from_statsmodels(poisson(slice(90, N)).fit())
    ours = idm.infer(shards + rest, idm.parameters, robust="HC0")
    whole = idm.infer(idm.from_statsmodels(poisson().fit()), idm.parameters, robust="HC0")
    np.testing.assert_allclose(ours.value, whole.value, rtol=1e-6)
    np.testing.assert_allclose(ours.covariance, whole.covariance, rtol=1e-5, atol=1e-12)
    plain = idm.infer(shards + rest, "x1").budget
    assert list(plain) == ["shards", "statsmodels", "total"]
    assert plain["total"] == pytest.approx(np.hypot(plain["shards"], plain["statsmodels"]))


@pytest.mark.filterwarnings("ignore:The interval is around psi at the penalized maximum")
def test_a_ridge_and_a_log_likelihood_share_a_slope():
    fitted = LogisticRegression(C=0.5, tol=1e-10).fit(X, BINARY)
    other = 0.4 + RNG.normal(0, 0.3, 25)

    def about_x0(th):
        return norm.logpdf(other, th.x0, 0.3)

    model = idm.from_sklearn(fitted, X, BINARY) + idm.from_loglik(about_x0, start={"x0": 0.0})

    def fall(b):  # the intercept comes last and has no penalty
        eta = X @ b[:2] + b[2]
        logit = BINARY @ eta - np.logaddexp(0, eta).sum()
        return b[:2] @ b[:2] - logit - norm.logpdf(other, b[0], 0.3).sum()

    found = minimize(fall, np.zeros(3), tol=1e-12, options={"gtol": 1e-8})
    np.testing.assert_allclose(model.theta, found.x, atol=1e-5)
    p = expit(X @ found.x[:2] + found.x[2])
    design = np.column_stack([X, np.ones(N)])
    A = design.T @ ((p * (1 - p))[:, None] * design) + np.diag([2.0, 2.0, 0.0])
    A[0, 0] += 25 / 0.3**2
    est = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(est.covariance, np.linalg.inv(A), rtol=1e-4, atol=1e-12)
    assert "penalty" in est.budget


def test_likelihood_ratios_of_sums_are_those_of_the_whole():
    halves = [idm.from_statsmodels(poisson(rows).fit()) for rows in (slice(0, 70), slice(70, N))]
    whole = idm.from_statsmodels(poisson().fit())
    ours, theirs = (idm.likelihood_ratio(m.fix(x1=0.1), m) for m in (halves[0] + halves[1], whole))
    assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-5)
    for name in ("Wald", "score"):
        assert ours[name].statistic == pytest.approx(theirs[name].statistic, rel=1e-4)


def test_likelihood_ratios_of_estimated_variances_of_a_library_are_refused():
    model = idm.from_statsmodels(sm.OLS(LINE, DESIGN).fit()) + idm.measurement(x1=PRIOR)
    with pytest.raises(TypeError, match="noise variance"):
        idm.likelihood_ratio(model.fix(x1=0.1), model)


def test_sums_of_sums_are_named_as_the_sum_of_all():
    thirds = [idm.from_statsmodels(poisson(slice(k, N, 3)).fit()) for k in range(3)]
    names = [source.name for source in sum(thirds).facts.sources]
    assert names == [source.name for source in idm.combine(*thirds).facts.sources]
    assert names == ["statsmodels 1", "statsmodels 2", "statsmodels 3"]


def test_networks_add_by_their_names():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 1).double()
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()
    data = (torch.tensor(X), torch.tensor(BINARY))
    net = idm.polish(idm.from_torch(module, data, idm.Bernoulli()))
    first = net.names[0]
    model = net + idm.measurement(**{first: (0.5, 0.1)})
    alone = idm.infer(net, idm.parameters).standard_error[0]
    ours = idm.infer(model, first).standard_error
    assert ours < 0.1
    assert ours == pytest.approx((alone**-2 + 100) ** -0.5, rel=0.05)  # at another theta


ESTIMATES = idm.from_estimates({"x1": 0.2}, [[0.01]])


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (lambda: idm.from_statsmodels(poisson().fit(cov_type="HC1")), "HC1"),
        (lambda: ESTIMATES, "measurement"),
        (lambda: idm.from_equations(lambda t: (LINE - t.x1)[:, None], start={"x1": 0.0}), "equat"),
    ],
)
def test_what_has_no_likelihood_is_refused(other, text):
    with pytest.raises((TypeError, idm.ImplicitDeltaError), match=text):
        idm.measurement(x1=PRIOR) + other()


def test_fixing_and_profiling_a_sum_of_hosts():
    model = idm.from_statsmodels(poisson().fit()) + idm.measurement(x1=PRIOR)
    fixed = model.fix(x1=0.2)
    alone = idm.from_statsmodels(poisson().fit()).fix(x1=0.2)
    np.testing.assert_allclose(fixed.theta, alone.theta, rtol=1e-6)
    ours, theirs = (idm.infer(m, "const").standard_error for m in (fixed, alone))
    assert ours == pytest.approx(theirs, rel=1e-6)
    low, high = idm.profile(model, "x1").interval
    est = idm.infer(model, "x1")
    assert low < est.value < high
    np.testing.assert_allclose(
        [low, high], est.value + norm.ppf([0.025, 0.975]) * est.standard_error, rtol=0.05
    )
    again = fixed.release()
    np.testing.assert_allclose(again.theta, model.theta, rtol=1e-6)


def of_counts(**options):
    return idm.from_statsmodels(poisson(**options).fit())


def by_function():
    def loglik(th):
        return COUNTS * (DESIGN @ th) - np.exp(DESIGN @ th)

    return idm.from_loglik(loglik, start={"const": 0.0, "x1": 0.0, "x2": 0.0})


def of_line():
    return idm.from_statsmodels(sm.OLS(LINE, DESIGN).fit())


def line_by_function():
    names = {"const": 0.0, "x1": 0.0, "x2": 0.0}
    return idm.from_residuals(lambda th: LINE - DESIGN @ th, start=names)


def of_classes():
    return idm.from_sklearn(LogisticRegression(C=0.5, tol=1e-10).fit(X, BINARY), X, BINARY)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (of_counts, of_counts),
        (of_counts, by_function),
        (by_function, of_counts),
        (of_line, line_by_function),
        (of_classes, of_classes),
    ],
)
def test_data_of_a_library_do_not_count_twice(one, other):
    with pytest.warns(idm.ImplicitDeltaWarning, match="count twice"):
        one() + other()


def test_other_outcomes_of_the_same_design_are_other_data():
    """Warnings are errors."""
    again = np.random.default_rng(3).permutation(COUNTS)
    other = sm.GLM(again, DESIGN, family=sm.families.Poisson())
    of_counts() + idm.from_statsmodels(other.fit())
    of_counts() + of_line()
    ones, few = np.ones(4), np.array([0.0, 0.0, 0.0, 1.0])
    tiny = [sm.GLM(few, ones, family=sm.families.Poisson()).fit() for _ in range(2)]
    idm.from_statsmodels(tiny[0]) + idm.from_statsmodels(tiny[1])


def test_residuals_that_a_covariance_mixes_are_whitened_by_hand():
    L = np.linalg.cholesky(0.5 + 0.5 * np.eye(N))

    def residuals(th):
        return LINE - DESIGN @ np.array([th.a, th.x1, th.x2])

    start = {"a": 0.0, "x1": 0.0, "x2": 0.0}
    mixed = idm.from_residuals(residuals, start=start, sigma=L @ L.T)
    with pytest.raises(idm.UnsupportedModelError, match=r"np.linalg.solve\(np.linalg.cholesky"):
        mixed + idm.measurement(x1=(0.5, 0.01))
    white = idm.from_residuals(lambda th: np.linalg.solve(L, residuals(th)), start=start)
    np.testing.assert_allclose(white.theta, mixed.theta, rtol=1e-6)
    model = white + idm.measurement(x1=(0.5, 0.01))
    assert idm.infer(model, "x1").standard_error < 0.01

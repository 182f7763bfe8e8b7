"""Log-likelihoods that are traced: exact where they can be, differences or a refusal elsewhere."""

import threading
import warnings

import numpy as np
import pytest
from scipy import special, stats
from scipy.special import expit

import implicit_delta as idm
from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.calculus.tracing import trace_terms
from implicit_delta.models.redraws import redraw
from implicit_delta.models.traced_loglik import TRACE_FROM, TracedScore, is_traced, looks_smooth

D, N = TRACE_FROM, 150
RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(N), RNG.normal(size=(N, D - 1)) / 2])
TRUE = RNG.normal(size=D) / 3
ETA = X @ TRUE
NOISE = RNG.normal(size=N)
LINE = ETA + NOISE
BINARY = (RNG.random(N) < expit(ETA)) * 1.0
COUNTS = RNG.poisson(np.exp(ETA)) * 1.0
TIMES = RNG.exponential(np.exp(ETA))
SHARES = np.clip(RNG.beta(2.0, 3.0, size=N), 1e-3, 1 - 1e-3)
TRIALS = RNG.binomial(5, expit(ETA)) * 1.0
REFUSALS = (idm.ImplicitDeltaError, ValueError, TypeError)
POINT = TRUE + 0.05 * RNG.normal(size=D)


def scale(th):
    return np.exp(0.1 * th[1])


def groups(th):
    shares = np.stack([np.zeros(N), X @ th, X[:, ::-1] @ th], axis=1)
    return shares


TERMS = {
    "normal by hand": lambda th: -((LINE - X @ th) ** 2) / 2,
    "norm.logpdf": lambda th: stats.norm.logpdf(LINE, X @ th, scale(th)),
    "norm.logpdf by keyword": lambda th: stats.norm.logpdf(LINE, loc=X @ th, scale=scale(th)),
    "norm.pdf": lambda th: np.log(stats.norm.pdf(LINE, X @ th, 2.0)),
    "norm, frozen": lambda th: stats.norm(X @ th, scale(th)).logpdf(LINE),
    "norm.logcdf": lambda th: stats.norm.logcdf(X @ th),
    "norm.logsf": lambda th: stats.norm.logsf(LINE, X @ th, scale(th)),
    "norm.cdf": lambda th: np.log(stats.norm.cdf(X @ th)),
    "norm.sf": lambda th: np.log(stats.norm.sf(X @ th)),
    "t.logpdf": lambda th: stats.t.logpdf(LINE, 4 + np.exp(th[2]), X @ th, scale(th)),
    "poisson.logpmf": lambda th: stats.poisson.logpmf(COUNTS, np.exp(X @ th)),
    "poisson.pmf": lambda th: np.log(stats.poisson.pmf(COUNTS, np.exp(X @ th))),
    "binom.logpmf": lambda th: stats.binom.logpmf(TRIALS, 5, expit(X @ th)),
    "bernoulli.logpmf": lambda th: stats.bernoulli.logpmf(BINARY, expit(X @ th)),
    "nbinom.logpmf": lambda th: stats.nbinom.logpmf(COUNTS, np.exp(th[1]), expit(X @ th)),
    "geom.logpmf": lambda th: stats.geom.logpmf(COUNTS + 1, expit(X @ th)),
    "gamma.logpdf": lambda th: stats.gamma.logpdf(TIMES, 1.5 + th[1] ** 2, scale=np.exp(X @ th)),
    "beta.logpdf": lambda th: stats.beta.logpdf(SHARES, np.exp(X @ th), 2 + th[0] ** 2),
    "expon.logpdf": lambda th: stats.expon.logpdf(TIMES, scale=np.exp(X @ th)),
    "expon.logsf": lambda th: stats.expon.logsf(TIMES, scale=np.exp(X @ th)),
    "expon.logcdf": lambda th: stats.expon.logcdf(TIMES, scale=np.exp(X @ th)),
    "lognorm.logpdf": lambda th: stats.lognorm.logpdf(TIMES, scale(th), scale=np.exp(X @ th)),
    "weibull_min.logpdf": lambda th: stats.weibull_min.logpdf(
        TIMES, 1 + th[1] ** 2, scale=np.exp(X @ th)
    ),
    "weibull_min.logsf": lambda th: stats.weibull_min.logsf(TIMES, 1.3, scale=np.exp(X @ th)),
    "genextreme.logpdf": lambda th: stats.genextreme.logpdf(LINE, -0.1, X @ th, 4 * scale(th)),
    "gumbel_r.logpdf": lambda th: stats.gumbel_r.logpdf(LINE, X @ th, scale(th)),
    "gumbel_l.logpdf": lambda th: stats.gumbel_l.logpdf(LINE, X @ th, scale(th)),
    "logistic.logpdf": lambda th: stats.logistic.logpdf(LINE, X @ th, scale(th)),
    "logistic.logcdf": lambda th: stats.logistic.logcdf(LINE, X @ th, scale(th)),
    "cauchy.logpdf": lambda th: stats.cauchy.logpdf(LINE, X @ th, scale(th)),
    "invgamma.logpdf": lambda th: stats.invgamma.logpdf(TIMES, 2.0, scale=np.exp(X @ th)),
    "chi2.logpdf": lambda th: stats.chi2.logpdf(TIMES, np.exp(X @ th)),
    "pareto.logpdf": lambda th: stats.pareto.logpdf(1 + TIMES, np.exp(X @ th)),
    "genpareto.logpdf": lambda th: stats.genpareto.logpdf(TIMES, 0.2, scale=np.exp(X @ th)),
    "halfnorm.logpdf": lambda th: stats.halfnorm.logpdf(TIMES, scale=np.exp(X @ th)),
    "rayleigh.logpdf": lambda th: stats.rayleigh.logpdf(TIMES, scale=np.exp(X @ th)),
    "invgauss.logpdf": lambda th: stats.invgauss.logpdf(TIMES, np.exp(X @ th)),
    "logit, logaddexp": lambda th: BINARY * (X @ th) - np.logaddexp(0, X @ th),
    "logit, log_expit": lambda th: special.log_expit((2 * BINARY - 1) * (X @ th)),
    "logit, log1p": lambda th: BINARY * (X @ th) - np.log1p(np.exp(X @ th)),
    "probit, ndtr": lambda th: special.log_ndtr((2 * BINARY - 1) * (X @ th)),
    "probit, erfc": lambda th: np.log(special.erfc((1 - 2 * BINARY) * (X @ th)) / 2),
    "cloglog": lambda th: np.where(BINARY > 0, np.log(-np.expm1(-np.exp(X @ th))), -np.exp(X @ th)),
    "negative binomial by hand": lambda th: (
        special.gammaln(COUNTS + np.exp(th[1]))
        - special.gammaln(np.exp(th[1]))
        + special.xlogy(COUNTS, expit(X @ th))
        + special.xlog1py(np.exp(th[1]), -expit(X @ th))
    ),
    "beta by hand": lambda th: (
        (np.exp(X @ th) - 1) * np.log(SHARES) - special.betaln(np.exp(X @ th), 2.0)
    ),
    "softmax, logsumexp": lambda th: (
        groups(th)[np.arange(N), 1] - special.logsumexp(groups(th), axis=1)
    ),
    "log_softmax": lambda th: special.log_softmax(groups(th), axis=1)[:, 2],
    "softmax": lambda th: np.log(special.softmax(groups(th), axis=-1)[:, 0]),
    "mixture": lambda th: np.logaddexp(
        np.log(0.3) + stats.norm.logpdf(LINE, X @ th), np.log(0.7) + stats.norm.logpdf(LINE, th[0])
    ),
    "mixture, logsumexp of a stack": lambda th: special.logsumexp(
        np.stack([stats.norm.logpdf(LINE, X @ th), stats.norm.logpdf(LINE, -th[1])]), axis=0
    ),
    "random effects by index": lambda th: stats.norm.logpdf(LINE, th[np.arange(N) % D], 2.0),
    "einsum": lambda th: -((LINE - np.einsum("ij,j->i", X, th)) ** 2),
    "dot": lambda th: -((LINE - np.dot(X, th)) ** 2),
    "two layers": lambda th: -((LINE - np.tanh(X[:, :2] @ th[:4].reshape(2, 2)) @ th[4:6]) ** 2),
    "a matrix of weights": lambda th: -((LINE - np.sum(X * th, axis=1)) ** 2),
    "random walk": lambda th: stats.norm.logpdf(LINE[:D], np.cumsum(th), 1.0),
    "product": lambda th: np.log(np.prod(np.exp(X * th), axis=1)),
    "polynomial": lambda th: -((LINE - np.polyval(th[:3], X[:, 1])) ** 2) - th @ th,
    "repeated": lambda th: -((LINE - np.repeat(th, 19)[:N]) ** 2),
    "clipped": lambda th: np.log(np.clip(expit(X @ th), 1e-12, 1 - 1e-12)),
    "a loop": lambda th: -((LINE - sum(th[j] * X[:, j] for j in range(D))) ** 2),
    "unpacked": lambda th: (lambda a, b, *rest: -((LINE - a - b * X[:, 1] - rest[0]) ** 2))(*th),
    "in place": lambda th: in_place(th),
    "one term": lambda th: np.sum(stats.norm.logpdf(LINE, X @ th), keepdims=True),
    "a list": lambda th: [th[0] ** 2, th[1] * th[2], np.exp(th[3])],
}


def in_place(th):
    residual = LINE - X @ th
    residual *= residual
    residual /= -2.0
    return residual


@pytest.mark.parametrize("name", TERMS)
def test_derivatives_are_those_of_differences(name):
    """To what differences leave: a few times 1e-10 of the largest; forward and backward alike."""
    function = TERMS[name]
    history = trace_terms(function, POINT)
    assert history is not None
    plain = np.asarray(function(POINT), float)
    np.testing.assert_allclose(history.value, plain, rtol=1e-12, atol=1e-12)
    numeric = differentiate(
        lambda th: np.asarray(function(th), float), POINT, np.full(D, 0.1)
    ).value
    rows = history.jacobian()
    np.testing.assert_allclose(rows, numeric, atol=1e-8 * abs(rows).max())
    score, weights = TracedScore(function), 1.0 + np.arange(rows.shape[0]) % 3
    V = np.random.default_rng(1).normal(size=(D, 3))
    size = abs(rows).sum()
    np.testing.assert_allclose(score(POINT), rows, atol=1e-13 * size)
    np.testing.assert_allclose(score.along(POINT, V), rows @ V, atol=1e-12 * size)
    np.testing.assert_allclose(score.along(POINT, V[:, 0]), rows @ V[:, 0], atol=1e-12 * size)
    np.testing.assert_allclose(score.weighted(POINT, weights), weights @ rows, atol=1e-12 * size)


# Terms, and minus their second derivative in the linear predictor.
FAMILIES = {
    "normal": (lambda e: -((LINE - e) ** 2) / 2, np.ones_like),
    "norm.logpdf": (lambda e: stats.norm.logpdf(LINE, e, 2.0), lambda e: np.full_like(e, 0.25)),
    "logit": (
        lambda e: BINARY * e - np.logaddexp(0, e),
        lambda e: expit(e) * expit(-e),
    ),
    "bernoulli.logpmf": (
        lambda e: stats.bernoulli.logpmf(BINARY, expit(e)),
        lambda e: expit(e) * expit(-e),
    ),
    "binom.logpmf": (
        lambda e: stats.binom.logpmf(TRIALS, 5, expit(e)),
        lambda e: 5 * expit(e) * expit(-e),
    ),
    "poisson": (lambda e: COUNTS * e - np.exp(e), np.exp),
    "poisson.logpmf": (lambda e: stats.poisson.logpmf(COUNTS, np.exp(e)), np.exp),
    "exponential": (lambda e: -TIMES * np.exp(-e) - e, lambda e: TIMES * np.exp(-e)),
    "gamma.logpdf": (
        lambda e: stats.gamma.logpdf(TIMES, 2.0, scale=np.exp(e)),
        lambda e: TIMES * np.exp(-e),
    ),
    "weibull": (
        lambda e: stats.weibull_min.logpdf(TIMES, 1.5, scale=np.exp(e)),
        lambda e: 2.25 * (TIMES * np.exp(-e)) ** 1.5,
    ),
    "logistic": (
        lambda e: stats.logistic.logpdf(LINE, e),
        lambda e: 2 * expit(LINE - e) * expit(e - LINE),
    ),
    "gumbel": (lambda e: stats.gumbel_r.logpdf(LINE, e), lambda e: np.exp(e - LINE)),
}
FIT = {"weights": [None, 1.0 + np.arange(N) % 3], "l2": [0.0, 2.0]}


@pytest.mark.parametrize("l2", FIT["l2"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_standard_errors_are_those_of_algebra(name, weighted, l2):
    terms, curvature = FAMILIES[name]
    weights = FIT["weights"][weighted]
    options = {"weights": weights, "l2": l2}
    model = idm.from_loglik(lambda th: terms(X @ th), start=np.zeros(D), **options)
    assert is_traced(model.rows.scores)
    bend = curvature(X @ model.theta) * (1.0 if weights is None else weights)
    truth = np.sqrt(np.diag(np.linalg.inv(X.T @ (bend[:, None] * X) + l2 * np.eye(D))))
    given = idm.from_loglik(lambda th: terms(X @ th), model.theta, **options)
    for fitted in (model, given):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
            found = idm.infer(fitted, idm.parameters, strict=False).standard_error
        np.testing.assert_allclose(found, truth, rtol=1e-8)


def test_robust_errors_are_those_of_the_scores():
    model = idm.from_loglik(lambda th: BINARY * (X @ th) - np.logaddexp(0, X @ th), start=0 * TRUE)
    p = expit(X @ model.theta)
    bread = np.linalg.inv(X.T @ ((p * (1 - p))[:, None] * X))
    rows = (BINARY - p)[:, None] * X
    truth = np.sqrt(np.diag(bread @ rows.T @ rows @ bread))
    found = idm.infer(model, idm.parameters, robust=True).standard_error
    np.testing.assert_allclose(found / truth, found[0] / truth[0], rtol=1e-8)


PENALTIES = {
    "none": (None, 0.0),
    "ridge": (lambda th: 3 * np.sum(th**2), 6.0),
    "float": (lambda th: float(3 * np.sum(np.asarray(th) ** 2)), 6.0),
    "loop": (lambda th: sum(3 * t**2 for t in th), 6.0),
}


@pytest.mark.parametrize("score", [False, True])
@pytest.mark.parametrize("l2", [0.0, 5.0])
@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_count_once(name, l2, score):
    """A score beside a penalty and l2 counted l2 twice."""
    penalty, ridge = PENALTIES[name]
    rows = (lambda th: (LINE - X @ th)[:, None] * X) if score else None
    model = idm.from_loglik(
        lambda th: -((LINE - X @ th) ** 2) / 2, start=0 * TRUE, penalty=penalty, l2=l2, score=rows
    )
    A = X.T @ X + (ridge + l2) * np.eye(D)
    np.testing.assert_allclose(model.theta, np.linalg.solve(A, X.T @ LINE), atol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
        found = idm.infer(model, idm.parameters, strict=False).standard_error
    np.testing.assert_allclose(found, np.sqrt(np.diag(np.linalg.inv(A))), rtol=1e-6)


def squares(th):
    return -((LINE - X @ th) ** 2) / 2


STATE = {"calls": 0}


def counts_calls(th):
    STATE["calls"] += 1
    return squares(th)


def by_type(th):
    """Another function for anything that is no array: never to be believed."""
    return squares(th) if isinstance(th, np.ndarray) else squares(th) * 3.0


def swallows(th):
    try:
        return squares(np.array(th, dtype=float))
    except TypeError:
        return -((LINE - th[0]) ** 2) * 7.0


def through_a_view(th):
    """NumPy changes theta with the slice; a trace does not."""
    part = th[:2]
    part *= 2.0
    return -((LINE - X @ th) ** 2) / 2


def into_zeros(th):
    out = np.zeros(N)
    out[:] = X @ th
    return -((LINE - out) ** 2) / 2


def long_loop(th):
    level, out = 0.0, []
    for j in range(3000):
        level = 0.5 * level + th[j % D]
        out.append(level)
    return squares(th) - 1e-6 * level**2


ODD = {
    "floats": lambda th: squares(np.array([float(t) for t in th])),
    "assigned": into_zeros,
    "an array of entries": lambda th: -((LINE - X @ np.array(list(th))) ** 2) / 2,
    "changes theta": lambda th: squares(np.multiply(th, 1.0, out=th)),
    "counts": counts_calls,
    "a class in between": by_type,
    "catches errors": swallows,
    "a long loop": long_loop,
    "least squares inside": lambda th: squares(np.linalg.solve(np.eye(D), th)),
}


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("name", ODD)
def test_odd_functions_have_the_same_answer(name, given):
    best = np.linalg.lstsq(X, LINE, rcond=None)[0]
    place = {"theta": best} if given else {"start": 0 * TRUE}
    if name == "a long loop" and given:
        pytest.skip("its maximum is elsewhere, by 1e-6")
    model = idm.from_loglik(ODD[name], **place)
    truth = np.sqrt(np.diag(np.linalg.inv(X.T @ X)))
    np.testing.assert_allclose(model.theta, best, atol=1e-4 if "loop" in name else 1e-7)
    found = idm.infer(model, idm.parameters).standard_error
    np.testing.assert_allclose(found, truth, rtol=1e-4 if "loop" in name else 1e-6)


def test_slices_that_change_theta_are_differenced():
    model = idm.from_loglik(through_a_view, start=0 * TRUE + 0.1)
    assert not is_traced(model.rows.scores)
    design = X * np.where(np.arange(D) < 2, 2.0, 1.0)
    truth = np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    np.testing.assert_allclose(idm.infer(model, idm.parameters).standard_error, truth, rtol=1e-6)


def kinked(th):
    return -abs(LINE - X @ th)


REFUSED = {
    "absolute errors": kinked,
    "absolute errors beside squares": lambda th: kinked(th) / 2 + squares(th) / 5,
    "laplace.logpdf": lambda th: stats.laplace.logpdf(LINE, X @ th),
    "quantile": lambda th: -np.maximum(0.3 * (LINE - X @ th), -0.7 * (LINE - X @ th)),
    "rounded": lambda th: squares(th) + 0.2 * np.floor(20 * (X @ th)),
    "in steps": lambda th: -((LINE - np.floor(X @ th)) ** 2),
    "random": lambda th: squares(th) + 1e-3 * np.random.default_rng().normal(size=N),
    "flat": lambda th: -((LINE - X[:, :-1] @ th[:-1]) ** 2) / 2,
    "redundant": lambda th: squares(np.concatenate([th[:-2], th[-2:-1] + th[-1:], [0.0]])),
    "a saddle": lambda th: squares(th) * np.where(np.arange(N) < 100, 1.0, -3.0),
    "the sign": lambda th: -squares(th),
    "no maximum": lambda th: -np.exp(-(X @ th)),
    "uniform.logpdf": lambda th: stats.uniform.logpdf(TIMES, 0, np.exp(th[0])) + 1e-3 * squares(th),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_error_is_refused(name):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error", idm.ImplicitDeltaWarning)
        with pytest.raises((*REFUSALS, idm.ImplicitDeltaWarning)):
            idm.infer(idm.from_loglik(REFUSED[name], start=0 * TRUE + 0.1), idm.parameters)


def test_kinks_within_a_unit_are_seen():
    """The Hessian beside a thousand kinks is that of the squares alone."""
    gradient = TracedScore(REFUSED["absolute errors beside squares"])
    hessian = -X.T @ X / 5
    units = 1 / np.sqrt(-np.diag(hessian))
    ones = np.ones(N)
    assert not looks_smooth(lambda th: gradient.weighted(th, ones), POINT, units, hessian)
    smooth = TracedScore(lambda th: squares(th) / 5)
    assert looks_smooth(lambda th: smooth.weighted(th, ones), POINT, units, hessian)


def test_gradients_are_few():
    """At 40 parameters: two gradients each for the Hessian, and few beside."""
    wide = np.random.default_rng(3).normal(size=(400, 40))
    y = (np.random.default_rng(4).random(400) < expit(wide[:, 0])) * 1.0
    terms = lambda th: y * (wide @ th) - np.logaddexp(0, wide @ th)
    model = idm.from_loglik(terms, start=np.zeros(40))
    given = idm.from_loglik(terms, np.array(model.theta))
    for some in (model, given):
        idm.infer(some, lambda th: th[0])
        assert some.rows.passes < 6 * 40


def test_few_parameters_are_not_traced():
    assert idm.from_loglik(lambda th: -((LINE - th[0]) ** 2), start=[0.0]).rows.scores is None


def test_names_weights_and_bounds():
    def named(th):
        return stats.norm.logpdf(LINE, th.a + X[:, 1:] @ th.b, 1.0)

    model = idm.from_loglik(
        named, start={"a": 0.0, "b": np.zeros(D - 1)}, bounds={"a": (-50.0, None)}
    )
    assert is_traced(model.rows.scores)
    assert "tracing" in str(model)
    truth = np.sqrt(np.diag(np.linalg.inv(X.T @ X)))
    np.testing.assert_allclose(idm.infer(model, idm.parameters).standard_error, truth, rtol=1e-8)
    fixed = model.fix(a=0.3)
    rest = np.linalg.lstsq(X[:, 1:], LINE - 0.3, rcond=None)[0]
    np.testing.assert_allclose(fixed.theta[1:], rest, atol=1e-8)
    found = idm.infer(fixed, lambda th: th.b).standard_error
    np.testing.assert_allclose(
        found, np.sqrt(np.diag(np.linalg.inv(X[:, 1:].T @ X[:, 1:]))), rtol=1e-8
    )


def test_residuals_are_traced():
    model = idm.from_residuals(lambda th: LINE - np.exp(X @ th / 4), start=0 * TRUE)
    slope = np.exp(X @ model.theta / 4)[:, None] * X / 4
    left = LINE - np.exp(X @ model.theta / 4)
    variance = left @ left / (N - D)
    for curvature, extra in (("ggn", 0.0), ("hessian", left * np.exp(X @ model.theta / 4) / 16)):
        H = slope.T @ slope - X.T @ (np.broadcast_to(extra, N)[:, None] * X)
        found = idm.infer(model, idm.parameters, idm.Infinitesimal(curvature=curvature))
        truth = np.sqrt(variance * np.diag(np.linalg.inv(H)))
        np.testing.assert_allclose(found.standard_error, truth, rtol=1e-8)
    assert is_traced(model.rows.scores)


def test_distributions_are_themselves_after_a_trace():
    before = stats.rv_continuous.logpdf, stats.rv_discrete.logpmf, special.logsumexp
    trace_terms(TERMS["mixture, logsumexp of a stack"], POINT)
    trace_terms(lambda th: 1 / 0, POINT)
    assert before == (stats.rv_continuous.logpdf, stats.rv_discrete.logpmf, special.logsumexp)


def test_plain_numbers_are_not_affected_while_others_trace():
    inside = {}

    def loglik(th):
        inside["density"] = stats.norm.logpdf(LINE, 0.5, 2.0)
        inside["sum"] = special.logsumexp(X, axis=1)
        inside["shares"] = special.softmax(X, axis=1)
        inside["logs"] = special.log_softmax(X, axis=1)
        return stats.norm.logpdf(LINE, X @ th)

    assert trace_terms(loglik, POINT) is not None
    np.testing.assert_array_equal(inside["density"], stats.norm.logpdf(LINE, 0.5, 2.0))
    np.testing.assert_array_equal(inside["sum"], special.logsumexp(X, axis=1))
    np.testing.assert_array_equal(inside["shares"], special.softmax(X, axis=1))
    np.testing.assert_array_equal(inside["logs"], special.log_softmax(X, axis=1))


def test_threads_trace_side_by_side():
    names = ["norm.logpdf", "poisson.logpmf", "softmax, logsumexp", "weibull_min.logpdf"] * 3
    truth = {name: TracedScore(TERMS[name])(POINT) for name in names}
    gaps, kept = [], stats.rv_continuous.logpdf

    def work(name):
        for _ in range(10):
            gaps.append(abs(TracedScore(TERMS[name])(POINT) - truth[name]).max())

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(gaps) == 10 * len(names)
    assert max(gaps) < 1e-7  # a warning that another thread raises leaves differences
    assert stats.rv_continuous.logpdf is kept


OUTSIDE = {
    "an array of it": lambda th: -((LINE - X @ np.asarray(th)) ** 2) / 2,
    "an array of entries": lambda th: -((LINE - X @ np.array(list(th))) ** 2) / 2,
    "exponential of a negative": lambda th: stats.expon.logpdf(-TIMES, scale=np.exp(X @ th)),
    "a negative scale": lambda th: stats.norm.logpdf(LINE, X @ th, -1.0 + 0 * th[0]),
    "shares beyond one": lambda th: stats.beta.logpdf(1 + SHARES, np.exp(X @ th), 2.0),
    "counts that are none": lambda th: stats.poisson.logpmf(COUNTS + 0.5, np.exp(X @ th)),
    "no formula": lambda th: stats.skewnorm.logpdf(LINE, X @ th),
    "no cdf": lambda th: stats.t.logcdf(LINE, 3.0, X @ th),
    "signs": lambda th: special.logsumexp(groups(th), axis=1, b=np.array([1.0, -0.1, 0.1])),
    "sampled": lambda th: stats.norm.rvs(X @ th),
    "quantiles": lambda th: stats.norm.ppf(expit(X @ th)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_has_no_rule_is_not_traced(name):
    assert trace_terms(OUTSIDE[name], POINT) is None


def test_data_that_change_after_the_fit_are_refused():
    y = LINE.copy()
    model = idm.from_loglik(lambda th: -((y - X @ th) ** 2) / 2, start=0 * TRUE)
    assert is_traced(model.rows.scores)
    y += X[:, 1]
    with pytest.raises(idm.UnsupportedModelError, match="has changed since the fit"):
        idm.infer(model, idm.parameters)


def test_redrawn_data_are_traced_too():
    def simulate(th, rng):
        y = X @ th + rng.normal(size=N)
        return lambda other: -((y - X @ other) ** 2) / 2

    model = idm.from_loglik(squares, start=0 * TRUE, simulate=simulate)
    drawn = redraw(model, np.random.default_rng(0))
    assert is_traced(drawn.rows.scores)
    y = X @ model.theta + np.random.default_rng(0).normal(size=N)
    truth = X.T @ (y - X @ POINT)
    np.testing.assert_allclose(drawn.score(POINT), truth, atol=1e-9)

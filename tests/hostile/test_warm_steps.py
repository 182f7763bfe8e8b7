"""Warm steps of the bootstrap: the same replicates as line searches, and as Newton by hand."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm, t

import implicit_delta as idm

RNG = np.random.default_rng(0)
N = 120
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
BINARY = (RNG.random(N) < expit(X @ [0.3, 0.8, -0.5])).astype(float)
HEAVY = X @ [1.0, 2.0, 0.0] + RNG.standard_t(3, size=N)
COUNTS = RNG.poisson(np.exp(X @ [0.5, 0.3, 0.2])).astype(float)
WEIGHTS = RNG.integers(0, 4, size=N).astype(float)


def logit(b):
    return BINARY * (X @ b) - np.logaddexp(0, X @ b)


def slopes(b):
    return (BINARY - expit(X @ b))[:, None] * X


def poisson(b):
    return COUNTS * (X @ b) - np.exp(X @ b)


def student(th):
    return t.logpdf(HEAVY, 3, X @ th[:3], np.exp(th[3]))


def location(th):
    return norm.logpdf(HEAVY, X @ th[:3], np.exp(th[3]))


def undefined_below(th):
    """A rate that has to be positive; the logarithm is not defined elsewhere."""
    return np.log(th[0]) - th[0] * (1 + COUNTS)


MODELS = {
    "logit, score": lambda: idm.from_loglik(logit, start=np.zeros(3), score=slopes),
    "logit": lambda: idm.from_loglik(logit, start=np.zeros(3)),
    "ridge": lambda: idm.from_loglik(logit, start=np.zeros(3), score=slopes, l2=5.0),
    "penalty": lambda: idm.from_loglik(
        logit, start=np.zeros(3), penalty=lambda b: np.sum(np.cosh(b))
    ),
    "weights": lambda: idm.from_loglik(logit, start=np.zeros(3), score=slopes, weights=WEIGHTS),
    "poisson": lambda: idm.from_loglik(poisson, start=np.zeros(3)),
    "student": lambda: idm.from_loglik(student, start=[1.0, 2.0, 0.0, 0.0]),
    "scale": lambda: idm.from_loglik(location, start=[1.0, 2.0, 0.0, 0.0]),
    "edge": lambda: idm.from_loglik(undefined_below, start=[0.5]),
    "units": lambda: idm.from_loglik(
        lambda b: poisson(b * [1e-6, 1.0, 1e6]), start=[5e5, 0.3, 2e-7]
    ),
}
SAME = 2e-6  # of a standard error: what `lbfgs` leaves of a slope by differences
METHODS = {
    "rows": {},
    "bayesian": {"kind": "bayesian"},
    "blocks": {"kind": "blocks"},
}


def asked(model, maximizer=None, replicates=12, **options):
    method = idm.Bootstrap(replicates, rng=4, maximizer=maximizer, **options)
    return idm.infer(model, lambda b: b, method, strict=False)


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("name", MODELS)
def test_replicates_are_those_of_a_line_search(name):
    model = MODELS[name]()
    warm, searched = asked(model), asked(model, idm.lbfgs)
    gap = abs(warm.draws - searched.draws) / searched.standard_error
    assert gap.max() < SAME
    assert warm.diagnostics.passes < searched.diagnostics.passes


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("way", METHODS)
@pytest.mark.parametrize("replicates", [5, 12], ids=["no bends", "bends"])
def test_any_draws(way, replicates):
    model = MODELS["logit, score"]()
    warm = asked(model, replicates=replicates, **METHODS[way])
    searched = asked(model, idm.lbfgs, replicates, **METHODS[way])
    assert (abs(warm.draws - searched.draws) / searched.standard_error).max() < SAME


def test_clusters_and_new_targets():
    sm = pytest.importorskip("statsmodels.api")

    ids = np.arange(N) // 4
    for model in (MODELS["logit, score"](), idm.from_statsmodels(sm.Logit(BINARY, X).fit(disp=0))):
        both = [
            idm.infer(model, lambda b: b, idm.Bootstrap(12, rng=4, maximizer=m), clusters=ids)
            for m in (None, idm.lbfgs)
        ]
        np.testing.assert_allclose(both[0].draws, both[1].draws, atol=1e-6)
    warm, searched = (asked(model, m, kind="parametric") for m in (None, idm.lbfgs))
    np.testing.assert_allclose(warm.draws, searched.draws, atol=1e-6)


def test_newton_by_hand_gives_the_same():
    estimate = asked(MODELS["logit, score"]())
    theta = MODELS["logit, score"]().theta
    for draw, stream in zip(estimate.draws, np.random.SeedSequence(4).spawn(12), strict=True):
        w = np.random.default_rng(stream).multinomial(N, np.full(N, 1 / N))
        b = np.array(theta)
        for _ in range(8):
            p = expit(X @ b)
            b += np.linalg.solve((X.T * (w * p * (1 - p))) @ X, X.T @ (w * (BINARY - p)))
        np.testing.assert_allclose(draw, b, atol=1e-9 * estimate.standard_error.max())


@pytest.mark.parametrize(("name", "most"), [("logit, score", 12), ("logit", 40), ("poisson", 40)])
def test_passes_of_a_replicate(name, most):
    """With a score a handful; by differences 2 d for each of a few slopes."""
    model = MODELS[name]()
    few, many = asked(model, replicates=20), asked(model, replicates=40)
    assert many.diagnostics.passes - few.diagnostics.passes < 20 * most


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("positive", [4, 5, 6])
def test_separated_replicates_have_no_fit_by_either(positive):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=40), np.zeros(40)
    y[rng.permutation(40)[:positive]] = 1.0
    Z = np.column_stack([np.ones(40), x])
    model = idm.from_loglik(
        lambda b: y * (Z @ b) - np.logaddexp(0, Z @ b),
        start=[0.0, 0.0],
        score=lambda b: (y - expit(Z @ b))[:, None] * Z,
    )
    warm, searched = (asked(model, m, replicates=60) for m in (None, idm.lbfgs(max_iterations=100)))
    assert warm.diagnostics.notes["failed"] == searched.diagnostics.notes["failed"]
    np.testing.assert_allclose(warm.draws, searched.draws, rtol=1e-5, atol=1e-5)

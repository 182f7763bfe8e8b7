"""The bootstrap of an average over the training rows: rows and parameters are drawn together."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import moment

import implicit_delta as idm

pytestmark = pytest.mark.slow

N = 300


def logit(rng, n=N, weights=None):
    """A logit that is wrong (the truth bends), with averages: an effect, and a moment with y."""
    x = rng.normal(size=n)
    y = (rng.random(n) < expit(0.5 * x + 0.4 * x**2 - 0.3)).astype(float)
    X = np.column_stack([np.ones(n), x])
    model = idm.from_loglik(
        lambda b: y * (X @ b) - np.logaddexp(0, X @ b),
        start=[0.0, 0.0],
        score=lambda b: (y - expit(X @ b))[:, None] * X,
        weights=weights,
    )

    def h(b):
        p = expit(X @ b)
        return np.column_stack([expit(X @ b + b[1]) - p, (p + y) * x])

    return model, h


def training(h):
    return idm.Average(h, sample="training")


@pytest.mark.parametrize("kind", ["resample", "bayesian"])
def test_it_agrees_with_the_influences(kind):
    model, h = logit(np.random.default_rng(0))
    exact = idm.infer(model, training(h), robust=True)
    boot = idm.infer(model, training(h), idm.Bootstrap(500, kind, rng=0))
    noise = boot.diagnostics.notes["monte_carlo_error"]
    np.testing.assert_allclose(boot.value, exact.value)
    np.testing.assert_allclose(boot.standard_error, exact.standard_error, rtol=4 * noise + 1 / N)
    model_alone = idm.infer(model, lambda b: h(b).mean(axis=0), robust=True).standard_error
    assert boot.standard_error[1] > 1.5 * model_alone[1]  # most of it is the rows'
    assert list(boot.budget) == ["rows", "total"]
    np.testing.assert_array_equal(boot.budget["rows"], boot.standard_error)
    np.testing.assert_allclose(boot.draws.std(axis=0, ddof=1), boot.standard_error)


def test_it_agrees_with_fresh_data():
    model, h = logit(np.random.default_rng(1))
    boot = idm.infer(model, training(h), idm.Bootstrap(400, rng=0)).standard_error
    values = []
    for seed in range(200):
        other, own = logit(np.random.default_rng(100 + seed))
        values.append(own(other.theta).mean(axis=0))
    truth = np.std(values, axis=0)
    # two Monte-Carlo errors of 1 / sqrt(2 B), and the error of a standard error from 300 rows
    np.testing.assert_allclose(boot, truth, rtol=4 * np.sqrt(1 / 400 + 1 / 800 + 1 / (2 * N)))


def test_a_replicate_is_the_weighted_mean_at_its_own_fit():
    rng = np.random.default_rng(2)
    y = rng.gamma(2.0, size=40)
    model = idm.from_loglik(lambda t: -((y - t[0]) ** 2) / 2, [y.mean()])
    boot = idm.infer(model, training(lambda t: (y - t[0]) ** 3), idm.Bootstrap(20, rng=3))
    streams = np.random.SeedSequence(3).spawn(20)
    picks = [np.random.default_rng(s).multinomial(40, np.full(40, 1 / 40)) for s in streams]
    moments = [moment(np.repeat(y, pick), 3) for pick in picks]
    np.testing.assert_allclose(boot.draws[:, 0], moments, rtol=1e-6)
    away = y - y.mean()
    f = away**3 - np.mean(away**3) - 3 * np.var(y) * away
    expected = np.sum(f**3) / np.sum(f**2) ** 1.5 / 6
    np.testing.assert_allclose(boot.acceleration, expected, rtol=1e-5)


def test_clusters_weights_and_contrasts():
    rng = np.random.default_rng(4)
    model, h = logit(rng, weights=rng.integers(1, 3, size=N))
    ids = rng.integers(0, 60, size=N)
    for options in ({}, {"clusters": ids}):
        exact = idm.infer(model, training(h), robust=True, **options)
        boot = idm.infer(model, training(h), idm.Bootstrap(300, rng=0), **options)
        tolerance = 4 * boot.diagnostics.notes["monte_carlo_error"] + 2 / 60
        np.testing.assert_allclose(boot.standard_error, exact.standard_error, rtol=tolerance)
        difference = boot.contrast([1, -1])
        np.testing.assert_allclose(difference.draws, boot.draws @ [[1.0], [-1.0]])
        np.testing.assert_allclose(difference.standard_error, np.std(difference.draws, ddof=1))


@pytest.mark.parametrize("kind", ["precision", "sampling"])
def test_weights_that_are_no_counts(kind):
    rng = np.random.default_rng(9)
    x, weights = rng.normal(size=N), rng.uniform(0.5, 2.0, size=N)
    y = 1 + x + rng.normal(size=N) / np.sqrt(weights) + 0.3 * x * weights
    X = np.column_stack([np.ones(N), x])
    model = idm.from_residuals(
        lambda b: y - X @ b, start=[0, 0], weights=weights, weight_kind=kind, jacobian=lambda b: -X
    )
    question = training(lambda b: np.column_stack([(X @ b) ** 2, (y + X @ b) * x]))
    exact = idm.infer(model, question, robust=True)
    boot = idm.infer(model, question, idm.Bootstrap(300, rng=0))
    tolerance = 4 * boot.diagnostics.notes["monte_carlo_error"] + 2 / N
    np.testing.assert_allclose(boot.value, exact.value)
    np.testing.assert_allclose(boot.draws.mean(axis=0), exact.value, atol=exact.standard_error[0])
    np.testing.assert_allclose(boot.standard_error, exact.standard_error, rtol=tolerance)
    f = exact.influence
    np.testing.assert_allclose(
        boot.acceleration, (f**3).sum(axis=0) / (f**2).sum(axis=0) ** 1.5 / 6, rtol=1e-5
    )


def test_a_fit_that_claims_other_errors_is_answered():
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(10)
    x = rng.normal(size=N)
    X = np.column_stack([np.ones(N), x])
    y = 1 + x + (1 + abs(x)) * rng.normal(size=N)
    plain = idm.from_statsmodels(sm.OLS(y, X).fit())
    question = training(lambda b: (X @ b) ** 2)
    for options in ({"cov_type": "HC3"}, {"cov_type": "HAC", "cov_kwds": {"maxlags": 2}}):
        model = idm.from_statsmodels(sm.OLS(y, X).fit(**options))
        for kind in ("resample", "parametric"):
            method = idm.Bootstrap(20, kind, rng=0)
            one, two = (idm.infer(m, idm.parameters, method) for m in (model, plain))
            np.testing.assert_array_equal(one.standard_error, two.standard_error)
        method = idm.Bootstrap(20, rng=0)
        one, two = (idm.infer(m, question, method) for m in (model, plain))
        assert one.standard_error == two.standard_error


def test_a_random_or_smoothed_average():
    model, h = logit(np.random.default_rng(5))
    plain = idm.infer(model, training(lambda b: h(b)[:, 1]), idm.Bootstrap(200, rng=0))

    def noisy(b, rng):
        return h(b)[:, 1] + rng.normal(size=N)

    random = idm.Replicated(training(noisy), repeats=20, rng=0)
    est = idm.infer(model, random, idm.Bootstrap(200, rng=0))
    assert list(est.budget) == ["rows", "noise", "total"]
    assert est.budget["total"] == pytest.approx(np.hypot(est.budget["rows"], est.budget["noise"]))
    smooth = idm.infer(
        model, idm.Smoothed(training(lambda b: h(b)[:, 1]), rng=0), idm.Bootstrap(200, rng=0)
    )
    assert smooth.standard_error == pytest.approx(plain.standard_error, rel=0.1)


def test_torch_and_jax_give_the_same_replicates():
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    from jax.nn import sigmoid

    rng = np.random.default_rng(6)
    x = rng.normal(size=80)
    y = (rng.random(80) < expit(x)).astype(float)
    X = np.column_stack([np.ones(80), x])
    b = idm.from_loglik(lambda b: y * (X @ b) - np.logaddexp(0, X @ b), start=[0.0, 0.0]).theta
    line = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    line.weight.data[:] = torch.tensor(b)
    tx, ty = torch.tensor(X), torch.tensor(y)
    of_torch = idm.infer(
        idm.from_torch(line, (tx, ty), idm.Bernoulli()),
        training(lambda net: (torch.sigmoid(net(tx)[:, 0]) - ty) ** 2),
        idm.Bootstrap(20, rng=0),
    )
    of_jax = idm.infer(
        idm.from_jax(
            jnp.asarray(b), (X, y), idm.Bernoulli(), apply=lambda b, x: x @ b, dtype="float64"
        ),
        training(lambda b: (sigmoid(jnp.asarray(X) @ b) - jnp.asarray(y)) ** 2),
        idm.Bootstrap(20, rng=0),
    )
    np.testing.assert_allclose(of_torch.draws, of_jax.draws, rtol=1e-5)


def counted(psi):
    calls = []

    def inner(b):
        calls.append(1)
        return psi(b)

    return inner, calls


def test_compare_answers():
    model, h = logit(np.random.default_rng(7), n=100)
    table = idm.compare(model, training(h), [idm.Infinitesimal(), idm.Bootstrap(50, rng=0)])
    assert not table.failures


EARLY = {
    "influence": ({"influence": True}, idm.UnsupportedModelError),
    "covariance": ({"covariance": np.eye(2)}, ValueError),
}


@pytest.mark.parametrize("case", EARLY)
def test_what_replicates_cannot_give_is_refused_before_them(case):
    options, error = EARLY[case]
    model, _ = logit(np.random.default_rng(8), n=60)
    psi, calls = counted(lambda b: b[1])
    with pytest.raises(error, match="Bootstrap"):
        idm.infer(model, psi, idm.Bootstrap(500, rng=0), **options)
    assert len(calls) < 10

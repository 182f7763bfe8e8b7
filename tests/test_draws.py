"""Posterior draws: the infinitesimal jackknife against conjugate closed forms."""

from types import SimpleNamespace

import numpy as np
import pytest

import implicit_delta as idm

N, DRAWS = 80, 4000


def conjugate(prior=4.0, noise=1.0, seed=0):
    """A normal mean under a normal prior: data with another variance than the model's."""
    rng = np.random.default_rng(seed)
    y = 1.0 + 2.0 * rng.standard_t(8, size=N)
    precision = N / noise + 1 / prior
    mean = y.sum() / noise / precision
    draws = mean + rng.normal(size=(DRAWS, 1)) / np.sqrt(precision)
    return y, draws, mean, precision


def exact_draws(mean, precision):
    """Draws whose first two moments are those of the posterior, and symmetric."""
    z = np.random.default_rng(1).permutation(np.linspace(-1, 1, 2001))
    z = (z - z.mean()) / z.std(ddof=1)
    return mean + z[:, None] / np.sqrt(precision)


def loglik(y, noise=1.0):
    return lambda th: -((y - th[0]) ** 2) / (2 * noise)


@pytest.mark.parametrize("prior", [4.0, 0.05])
def test_a_conjugate_normal_mean(prior):
    y, _, mean, precision = conjugate(prior)
    model = idm.from_draws(exact_draws(mean, precision), loglik(y))
    estimate = idm.infer(model, lambda th: th[0])
    # Cov(theta, l_i) = (y_i - mean) Var(theta)
    influence = (y - mean) / precision
    np.testing.assert_allclose(estimate.value, mean)
    np.testing.assert_allclose(estimate.influence[:, 0], influence, rtol=1e-9)
    np.testing.assert_allclose(estimate.standard_error, np.sqrt(np.sum(influence**2)), rtol=1e-9)


def test_draws_come_close():
    y, draws, mean, precision = conjugate()
    estimate = idm.infer(idm.from_draws(draws, loglik(y)), idm.parameters)
    expected = np.sqrt(np.sum((y - mean) ** 2)) / precision
    assert abs(estimate.standard_error[0] / expected - 1) < 4 / np.sqrt(2 * DRAWS) * 2
    ratio = estimate.diagnostics.notes["posterior_sd_ratio"]
    assert abs(ratio - expected * np.sqrt(precision)) < 0.05 * ratio


def test_functions_and_arrays_of_terms_agree():
    y, draws, _, _ = conjugate()
    terms = -((y - draws) ** 2) / 2
    psi = lambda th: np.array([th[0], np.exp(th[0])])
    a = idm.infer(idm.from_draws(draws, terms), psi)
    b = idm.infer(idm.from_draws(draws[:, 0], loglik(y)), psi)
    np.testing.assert_allclose(a.covariance, b.covariance)
    np.testing.assert_allclose(a.value, [draws.mean(), np.exp(draws).mean()])


def test_a_flat_prior_is_the_robust_likelihood_when_rows_are_many():
    y, _, mean, precision = conjugate(prior=1e12)
    clusters = np.arange(N) % 25
    model = idm.from_draws(exact_draws(mean, precision), loglik(y))
    likelihood = idm.from_loglik(loglik(y), theta=[y.mean()])
    for options in ({}, {"robust": "HC1"}, {"clusters": clusters}, {"robust": idm.HAC(3)}):
        other = options or {"robust": True}
        np.testing.assert_allclose(
            idm.infer(model, lambda th: th[0], **options).standard_error,
            idm.infer(likelihood, lambda th: th[0], **other).standard_error,
            rtol=1e-7,
        )


def test_repeated_rows_are_weights():
    y = conjugate()[0]
    counts = 1 + np.arange(N) % 3
    draws = exact_draws(np.average(y, weights=counts), float(counts.sum()))
    a = idm.infer(idm.from_draws(draws, loglik(y), weights=counts), lambda th: th[0])
    b = idm.infer(idm.from_draws(draws, loglik(np.repeat(y, counts))), lambda th: th[0])
    np.testing.assert_allclose(a.standard_error, b.standard_error)


class Variables(dict):
    """As much of an xarray Dataset as is needed."""

    @property
    def data_vars(self):
        return list(self)


def inference_data(draws, terms):
    chains = draws.reshape(4, -1)
    return SimpleNamespace(
        posterior=Variables(mu=chains, b=np.stack([chains, 2 * chains], axis=-1)),
        log_likelihood=Variables(y=terms.reshape(4, -1, terms.shape[1])),
    )


def test_inference_data_of_arviz():
    y, draws, _, _ = conjugate()
    terms = -((y - draws) ** 2) / 2
    model = idm.from_draws(inference_data(draws, terms))
    assert model.names == ("mu", "b[0]", "b[1]")
    plain = idm.infer(idm.from_draws(draws, terms), idm.parameters).standard_error[0]
    np.testing.assert_allclose(
        idm.infer(model, idm.parameters).standard_error, plain * np.array([1, 1, 2])
    )


Y, D, _, _ = conjugate()
T = -((Y - D) ** 2) / 2
REFUSED = {
    "no terms": (lambda: idm.from_draws(D), TypeError, "terms="),
    "summed terms": (lambda: idm.from_draws(D, T.sum(axis=1)), ValueError, "not their sum"),
    "a summed function": (lambda: idm.from_draws(D, lambda th: 0.0), ValueError, "one row per"),
    "transposed terms": (lambda: idm.from_draws(D, T.T), ValueError, "one row per draw"),
    "transposed draws": (lambda: idm.from_draws(D.T, T), ValueError, "transpose"),
    "few draws": (lambda: idm.from_draws(D[:20], T[:20]), ValueError, "20 draws"),
    "missing": (lambda: idm.from_draws(np.where(D > 1, np.nan, D), T), ValueError, "finite"),
    "infinite": (lambda: idm.from_draws(D, np.where(T < -20, -np.inf, T)), ValueError, "is -inf"),
    "which variable": (
        lambda: idm.from_draws(
            SimpleNamespace(
                posterior=Variables(mu=D.reshape(4, -1)), log_likelihood=Variables(a=T, b=T)
            )
        ),
        ValueError,
        "from_draws\\(idata, 'a'\\)",
    ),
    "no log-likelihood": (
        lambda: idm.from_draws(SimpleNamespace(posterior=Variables(mu=D.reshape(4, -1)))),
        ValueError,
        "compute_log_likelihood",
    ),
    "profile": (
        lambda: idm.profile(idm.from_draws(D, T), lambda th: th[0]),
        idm.UnsupportedModelError,
        "from_loglik",
    ),
    "HC3": (
        lambda: idm.infer(idm.from_draws(D, T), lambda th: th[0], robust="HC3"),
        idm.UnsupportedModelError,
        "HC1",
    ),
    "a method": (
        lambda: idm.infer(idm.from_draws(D, T), lambda th: th[0], idm.Simulation()),
        idm.UnsupportedModelError,
        "without",
    ),
    "constant": (
        lambda: idm.infer(idm.from_draws(D, T), lambda th: 1.0),
        idm.EvaluationError,
        "the same at every draw",
    ),
}


@pytest.mark.parametrize(("call", "error", "match"), REFUSED.values(), ids=REFUSED)
def test_bad_draws(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_few_draws_are_said():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(120, 90))
    y = rng.normal(size=(60, 90))
    terms = -((y[None] - draws[:, None] / 8) ** 2).sum(axis=2) / 2
    with pytest.warns(idm.NotDeterministicWarning, match="half of the draws"):
        idm.infer(idm.from_draws(draws, terms), lambda th: th[0])

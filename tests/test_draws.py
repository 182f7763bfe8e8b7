"""Posterior draws: the infinitesimal jackknife against conjugate closed forms."""

import re
import warnings
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


def chain(rho, size, seed):
    """A stationary AR(1) of variance one."""
    rng = np.random.default_rng(seed)
    z = np.empty(size)
    z[0] = rng.normal()
    for s in range(1, size):
        z[s] = rho * z[s - 1] + np.sqrt(1 - rho**2) * rng.normal()
    return z


def posterior(z, y):
    return (y.mean() + z / np.sqrt(y.size))[:, None]


def warned(draws, terms, **options):
    """Collect what is said of the posterior mean of the first parameter."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        idm.infer(idm.from_draws(draws, terms, **options), lambda th: th[0])
    return " ".join(str(w.message) for w in caught)


UNIT = np.random.default_rng(5).normal(size=100)
MODES = np.repeat([-1.0, 1.0, -1.0, 1.0], 500)


@pytest.mark.parametrize("seed", range(40))
def test_correlated_draws_are_said(seed):
    z = chain(0.995, 2000, seed)
    assert "worth" in warned(posterior(z, UNIT), loglik(UNIT))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("rho", [0.0, 0.5, -0.5])
def test_draws_that_mix_are_not_doubted(seed, rho):
    assert warned(posterior(chain(rho, 2000, seed), UNIT), loglik(UNIT)) == ""


UNMIXED = {
    "modes by turns": MODES * 10 + chain(0, 2000, 1),
    "modes close by": MODES * 0.5 + chain(0, 2000, 1),
    "three chains": np.repeat([0.0, 3.0, 0.0], 700) + chain(0, 2100, 1),
    "spread by turns": np.where(MODES > 0, 3.0, 0.3) * chain(0, 2000, 1),
    "a trend": np.linspace(-2, 2, 2000) + chain(0, 2000, 1),
    "forth and back": chain(-0.995, 2000, 1),
    "one that is stuck": np.where(np.arange(2000) < 500, 1.0, chain(0, 2000, 1)),
}


@pytest.mark.parametrize("z", UNMIXED.values(), ids=UNMIXED)
def test_chains_that_do_not_mix_are_said(z):
    assert re.search("R-hat|worth", warned(posterior(z, UNIT), loglik(UNIT)))


def of_terms(order=slice(None), factor=1.0, wide=1.0):
    draws = posterior(wide * chain(0, 2000, 2), UNIT)
    return draws, factor * np.array([loglik(UNIT)(th) for th in draws])[order]


APART = {
    "wider draws": of_terms(wide=20),
    "narrower draws": of_terms(wide=0.1),
    "scaled terms": of_terms(factor=100),
    "terms of the mean": of_terms(factor=1 / 100),
    "constant terms": of_terms(factor=0.0),
    "another order": of_terms(order=np.random.default_rng(3).permutation(2000)),
}


@pytest.mark.parametrize("pair", APART.values(), ids=APART)
def test_draws_of_another_posterior_are_said(pair):
    assert "do not belong together" in warned(*pair)


@pytest.mark.parametrize("seed", range(20))
def test_terms_in_another_order_are_never_certain(seed):
    """Few draws and rows of far larger variance hide it in the ratio."""
    y, rng = 3 * UNIT, np.random.default_rng(seed)
    draws = posterior(rng.normal(size=500), y)
    terms = np.array([loglik(y)(th) for th in draws])
    assert "uncertain" in warned(draws, terms[rng.permutation(500)])


def test_sampling_weights_are_no_other_posterior():
    draws = posterior(chain(0, 2000, 2) / np.sqrt(50), UNIT)
    weights = np.full(UNIT.size, 50.0)
    assert warned(draws, loglik(UNIT), weights=weights, weight_kind="sampling") == ""

"""Noisy log-likelihoods: fitted, with the standard errors of those without noise, or refused."""

import re

import numpy as np
import pytest

import implicit_delta as idm
from benchmarks.noise import collinear, kinetics, logit, normal, perturbed, single, weibull
from implicit_delta.calculus.differentiate import differentiate
from implicit_delta.calculus.noise import AUDIBLE, noise_of

CLOSE = 0.03  # of a standard error
MODELS = {"normal": normal, "logit": logit, "collinear": collinear, "weibull": weibull}


def exact(make, seed):
    loglik, start = make(seed)
    return idm.infer(idm.from_loglik(loglik, start=start), idm.parameters)


def named(estimate):
    return [finding for finding in estimate.diagnostics.findings if finding.code == "noise"]


def check(loglik, start, truth):
    found = idm.infer(idm.from_loglik(loglik, start=start), idm.parameters)
    np.testing.assert_allclose(found.standard_error, truth.standard_error, rtol=CLOSE)
    assert np.all(abs(found.value - truth.value) < CLOSE * truth.standard_error)
    return found


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("level", [1e-6, 1e-5, 1e-4])
@pytest.mark.parametrize("name", MODELS)
def test_noise_is_named_and_changes_no_standard_error_by_three_percent(name, level, seed):
    loglik, start = MODELS[name](seed)
    found = check(perturbed(loglik, level, seed), start, exact(MODELS[name], seed))
    # The differences of highest order are correlated, like some 5 independent numbers: the root of
    # their mean square is beyond a factor of 8 in 1e-5 of cases.
    assert level / 8 < named(found)[0].number < 8 * level


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_single_precision_is_noise():
    found = check(*single(0), exact(logit, 0))
    assert AUDIBLE < named(found)[0].number < 1e-4


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("rtol", [1e-4, 1e-3])
def test_a_loose_solver_is_close_or_refused(rtol):
    """It is smooth right beside theta, and jumps where it changes the number of its steps."""
    refused = 0
    for seed in (0, 3, 4):
        truth, (loglik, start) = exact(kinetics, seed), kinetics(seed, rtol, rtol)
        try:
            check(loglik, start, truth)
        except idm.errors.UnsupportedModelError:
            refused += 1
    assert refused <= (1 if rtol == 1e-3 else 0)


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("name", MODELS)
def test_too_much_noise_is_refused_with_what_would_do(name):
    loglik, start = MODELS[name](0)
    with pytest.raises(idm.errors.UnsupportedModelError) as caught:
        idm.infer(idm.from_loglik(perturbed(loglik, 2e-3, 0), start=start), idm.parameters)
    text = str(caught.value)
    noise, enough = re.search(r"deviation of (\S+) .* About (\S+) would do", text).groups()
    assert 2e-3 / 8 < float(noise) < 8 * 2e-3
    assert float(enough) < float(noise)
    check(perturbed(loglik, float(enough) / 2, 0), start, exact(MODELS[name], 0))


def test_a_log_likelihood_without_noise_has_no_finding():
    assert not named(exact(logit, 0))


@pytest.mark.parametrize("size", [1e-9, 1e-6, 1e-2])
def test_noise_is_measured_whatever_the_function_and_its_size(size):
    rng = np.random.default_rng(0)

    def f(x):
        return 1e3 * size * np.array([np.sin(x[0]), np.exp(x[1])]) + size * rng.normal(size=2)

    found = [noise_of(f, np.ones(2), np.full(2, 1e-2), looks=6) for _ in range(20)]
    assert np.all(np.median(found, axis=0) > size / 2)
    assert np.all(np.median(found, axis=0) < size * 2)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("noise", [1e-7, 1e-5, 1e-3])
def test_the_error_of_a_derivative_holds_noise_and_truncation(order, noise):
    """Few errors are beyond their estimate, which is not beyond 20 times them."""
    rng, shares = np.random.default_rng(1), []
    for _ in range(100):
        found = differentiate(
            lambda x: np.array([np.sum(np.cos(x))]) + noise * rng.normal(size=1),
            np.array([0.3, 0.9]), np.ones(2), order, rtol=1e-5, noise=noise,
        )  # fmt: skip
        x = np.array([0.3, 0.9])
        truth = -np.sin(x)[None] if order == 1 else -np.diag(np.cos(x))
        shares.append(abs(found.value - truth) / found.error)
    assert np.mean(np.array(shares) > 1) < 0.06  # two standard deviations, of dependent entries
    assert np.sqrt(np.mean(np.square(shares))) > 1 / 20


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_units_change_nothing(unit):
    loglik, start = weibull(0)
    noisy = perturbed(loglik, 1e-5, 0)
    scaled = idm.from_loglik(lambda th: noisy(th / unit), start=start * unit)
    truth = exact(weibull, 0)
    found = idm.infer(scaled, idm.parameters)
    np.testing.assert_allclose(found.standard_error / unit, truth.standard_error, rtol=CLOSE)

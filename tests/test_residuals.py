"""Least squares as `curve_fit` and `nls` have it: sigma, Gauss-Newton, t and F, weights."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.special
import scipy.stats
from scipy.optimize import curve_fit, least_squares

import implicit_delta as idm
from implicit_delta.models.printing import log_likelihood_of

CASES = json.loads((Path(__file__).parent / "golden" / "least_squares.json").read_text())["cases"]
NAMES = vars(scipy.special) | vars(np)
RNG = np.random.default_rng(3)
X = np.linspace(0.0, 8.0, 40)
SIGMA = RNG.uniform(0.03, 0.2, X.size)
Y = 3.0 * np.exp(-0.4 * X) + SIGMA * RNG.normal(size=X.size)
ANGLE = 0.4 ** abs(np.subtract.outer(np.arange(40), np.arange(40)))
COVARIANCE = SIGMA[:, None] * ANGLE * SIGMA


def decay(x, a, b):
    return a * np.exp(-b * x)


def residuals(th):
    return Y - decay(X, *th)


def jacobian(th):
    return -np.column_stack([np.exp(-th[1] * X), -th[0] * X * np.exp(-th[1] * X)])


def golden(case):
    arrays = {name: np.asarray(values) for name, values in case["data"].items()}

    def function(expression):
        return lambda theta: eval(expression, NAMES | arrays | {"theta": theta})

    return function, arrays


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
@pytest.mark.parametrize("slope", [None, jacobian], ids=["numerical", "jacobian"])
@pytest.mark.parametrize(
    "sigma", [SIGMA, 0.1, COVARIANCE, SIGMA.tolist()], ids=["rows", "one", "covariance", "list"]
)
def test_sigma_is_that_of_curve_fit(sigma, slope, absolute):
    theirs, covariance = curve_fit(
        decay,
        X,
        Y,
        [1, 1],
        sigma=np.full(40, sigma) if np.isscalar(sigma) else sigma,
        absolute_sigma=absolute,
        xtol=1e-14,
        ftol=1e-14,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.DispersionWarning)
        model = idm.from_residuals(
            residuals,
            start=[1, 1],
            jacobian=slope,
            sigma=sigma,
            variance=1.0 if absolute else None,
        )
        est = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(model.theta, theirs, rtol=1e-6)
    np.testing.assert_allclose(est.covariance, covariance, rtol=1e-4)
    assert est.df == (np.inf if absolute else 38)


def test_a_common_factor_of_sigma_does_not_matter():
    ours, tenfold = (
        idm.infer(
            idm.from_residuals(residuals, start=[1, 1], sigma=factor * SIGMA), idm.parameters
        ).covariance
        for factor in (1.0, 10.0)
    )
    np.testing.assert_allclose(ours, tenfold, rtol=1e-8)


def test_sigma_and_precisions_are_the_same_fit():
    by_sigma = idm.from_residuals(residuals, start=[1, 1], sigma=SIGMA)
    by_weight = idm.from_residuals(
        residuals, start=[1, 1], weights=1 / SIGMA**2, weight_kind="precision"
    )
    for options in ({}, {"robust": "HC3"}):
        ours, others = (idm.infer(m, idm.parameters, **options) for m in (by_sigma, by_weight))
        np.testing.assert_allclose(ours.covariance, others.covariance, rtol=1e-6)
    psi = lambda th: np.log(2) / th[1]
    np.testing.assert_allclose(
        idm.profile(by_sigma, psi).interval, idm.profile(by_weight, psi).interval, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("sigma", "words"),
    [
        (SIGMA[:-1], "39"),
        (np.where(np.arange(40) == 3, 0.0, SIGMA), "positive"),
        (np.where(np.arange(40) == 3, np.nan, SIGMA), "finite"),
        (np.where(np.arange(40) == 3, np.inf, SIGMA), "finite"),
        (-0.1, "positive"),
        ("large", "sigma"),
        (COVARIANCE[:, :-1], "shape"),
        (2 * np.diag(SIGMA**2) - 0.9 * np.outer(SIGMA, SIGMA), "positive definite"),
        (np.triu(COVARIANCE), "symmetric"),
        (np.ones((40, 40)), "positive definite"),
    ],
)
def test_bad_sigma_is_refused(sigma, words):
    with pytest.raises(ValueError, match=words):
        idm.from_residuals(residuals, start=[1, 1], sigma=sigma)


def test_a_covariance_of_rows_takes_no_weights():
    with pytest.raises(ValueError, match="weights"):
        idm.from_residuals(residuals, start=[1, 1], sigma=COVARIANCE, weights=np.arange(1, 41))


@pytest.mark.parametrize(
    "ask",
    [
        lambda m: idm.infer(m, idm.parameters, robust=True),
        lambda m: idm.infer(m, idm.parameters, clusters=np.arange(40) // 4),
        lambda m: idm.infer(m, idm.parameters, idm.Bootstrap(20, rng=0)),
        lambda m: idm.infer(m, idm.parameters, influence=True),
    ],
    ids=["robust", "clusters", "bootstrap", "influence"],
)
def test_rows_that_a_covariance_has_mixed_are_no_observations(ask):
    model = idm.from_residuals(residuals, start=[1, 1], sigma=COVARIANCE)
    with pytest.raises(idm.UnsupportedModelError, match="sigma"):
        ask(model)


@pytest.mark.parametrize("name", ["dose", "weighted", "joint"])
def test_least_squares_are_those_of_r_by_default(name):
    case = CASES[name]
    function, data = golden(case)
    model = idm.from_residuals(
        function(case["residuals"]), start=case["start"], sigma=data.get("sigma")
    )
    est = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(est.value, case["theta"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(est.standard_error, case["standard_error"], rtol=2e-6)
    assert est.df == case["df"]
    if "ec90" in case:
        ec90 = idm.infer(model, function(case["ec90"]["formula"]))
        np.testing.assert_allclose(ec90.standard_error, case["ec90"]["standard_error"], rtol=2e-6)
    if "statistic" in case:
        test = est.test()
        np.testing.assert_allclose(test.statistic, case["statistic"], rtol=1e-4)
        np.testing.assert_allclose(test.p_value, case["p_value"], rtol=1e-3)
    if "absolute" in case:
        known = idm.from_residuals(
            function(case["residuals"]), start=case["start"], sigma=data["sigma"], variance=1.0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", idm.DispersionWarning)
            found = idm.infer(known, idm.parameters).standard_error
        np.testing.assert_allclose(found, case["absolute"], rtol=2e-6)
    if "F" in case:
        joint = idm.infer(model, lambda th: th[np.array(case["tested"])]).test(joint=True)
        np.testing.assert_allclose(joint.statistic, case["F"], rtol=1e-6)
        np.testing.assert_allclose(joint.p_value, case["p_value"], rtol=1e-5)


def test_the_hessian_stays_available():
    case = CASES["dose"]
    function, _ = golden(case)
    model = idm.from_residuals(function(case["residuals"]), start=case["start"])
    psi = function(case["ec90"]["formula"])
    whole = idm.infer(model, psi, idm.Infinitesimal(curvature="hessian")).standard_error
    assert abs(whole / case["ec90"]["standard_error"] - 1) > 1e-3


def two_bumps(th):
    """Residuals that are even in th[0]: a saddle at zero."""
    return np.array([2.0, -1.0, 0.5, 1.5]) - np.array([1.0, 0.5, 0.2, 0.8]) * th[0] ** 2 - th[1]


def product(th):
    return np.array([1.0, 2.1, 2.9, 4.2]) - th[0] * th[1] * np.arange(1.0, 5.0)


@pytest.mark.parametrize(
    ("function", "theta"),
    [(two_bumps, [0.0, 0.75]), (product, [0.0, 0.0])],
    ids=["even", "product"],
)
@pytest.mark.parametrize("given", ["theta", "start"])
def test_a_saddle_is_still_refused(function, theta, given):
    """The Gauss-Newton matrix is positive everywhere: it alone would see no saddle."""
    if given == "start" and function is two_bumps:  # a fit leaves the saddle
        model = idm.from_residuals(function, start=theta, variance=1.0)
        assert np.sum(function(model.theta) ** 2) < 0.9 * np.sum(function(np.array(theta)) ** 2)
        return

    def ask():
        return idm.infer(
            idm.from_residuals(function, **{given: theta}, variance=1.0), lambda th: th[1]
        )

    with pytest.raises((idm.NotAMaximumError, idm.ConvergenceError)):
        ask()


WHOLE = {
    "one sigma": np.full(40, 0.1),
    "two instruments": np.where(np.arange(40) % 5, 0.1, 0.05),
    "rounded": 1 / np.sqrt(np.round(1 / SIGMA**2)),
    "tiny": np.full(40, 1e-6),
    "tiny, by row": SIGMA * 1e-6,
    "three instruments": np.array([0.5, 0.2, 0.1])[np.arange(40) % 3],
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("seed", range(4))
def test_precisions_that_look_like_counts_are_named(name, seed):
    """`weights=1/sigma**2` as repetitions: standard errors up to 10**6 times too small."""
    sigma = WHOLE[name]
    noise = np.random.default_rng(seed).normal(size=40)
    y = 3.0 * np.exp(-0.4 * X) + sigma * noise
    with pytest.warns(idm.ImplicitDeltaWarning, match='weight_kind="precision"'):
        idm.from_residuals(lambda th: y - decay(X, *th), start=[3, 0.4], weights=1 / sigma**2)


@pytest.mark.parametrize("said", ["frequency", "precision", "sampling"])
def test_a_kind_that_is_given_is_believed(said):
    sigma = WHOLE["two instruments"]
    y = 3.0 * np.exp(-0.4 * X) + sigma * np.random.default_rng(0).normal(size=40)
    idm.from_residuals(
        lambda th: y - decay(X, *th),
        start=[3, 0.4],
        weights=np.round(1 / sigma**2),
        weight_kind=said,
    )


@pytest.mark.parametrize("scale", [1e-3, 0.1, 0.3, 1.0, 3.0, 1e3])
@pytest.mark.parametrize("seed", range(5))
def test_repetitions_do_not_warn(scale, seed):
    """Tables of equal rows, of any unit: no warning (which would be an error here)."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, 400)
    y = np.round(2.0 + group + rng.normal(size=400), 0)
    rows, counts = np.unique(np.column_stack([group, y]), axis=0, return_counts=True)
    model = idm.from_residuals(
        lambda b: scale * (rows[:, 1] - b[0] - b[1] * rows[:, 0]), start=[0.0, 0.0], weights=counts
    )
    assert model.facts.df == 398


def test_a_fit_that_gauss_newton_misjudges_warns():
    """A local maximum far from the truth: the rest of the Hessian is most of it."""
    angles = np.linspace(0, 20, 100)
    waves = np.sin(1.3 * angles) + 0.3 * np.random.default_rng(0).normal(size=100)
    residuals = lambda b: waves - np.sin(b[0] * angles)
    local = least_squares(residuals, [1.8], xtol=1e-15, ftol=1e-15, gtol=1e-15).x
    assert abs(idm.from_residuals(residuals, start=[1.8]).theta[0] - 1.3) < 0.05 < local[0] - 1.3
    wave = idm.from_residuals(residuals, theta=local)
    with pytest.warns(idm.NonlinearityWarning, match="Gauss-Newton"):
        idm.infer(wave, lambda b: b[0])


@pytest.mark.parametrize("matrix", [False, True])
def test_log_likelihood_is_that_of_the_observations(matrix):
    rng = np.random.default_rng(0)
    y, sd = rng.normal(1.0, 0.2, 12), np.linspace(0.1, 0.3, 12)
    V = np.diag(sd**2) + 0.01 if matrix else np.diag(sd**2)
    model = idm.from_residuals(
        lambda th: y - th[0], start=[0.0], sigma=V if matrix else sd, variance=1.0
    )
    density = scipy.stats.multivariate_normal(np.full(12, model.theta[0]), V)
    assert log_likelihood_of(model) == pytest.approx(density.logpdf(y), rel=1e-9)

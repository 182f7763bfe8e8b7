"""The backend that CONTRIBUTING.md shows answers like the same likelihood in `from_loglik`."""

import pickle
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.models.redraws import reweight
from implicit_delta.testing import check_model

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
NAME = "weibull_of_contributing"


def backend():
    """Run the code of the page as a module, so that its class can be pickled."""
    (code,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    sys.modules[NAME] = module = ModuleType(NAME)
    exec(compile(code, "CONTRIBUTING.md", "exec"), module.__dict__)
    return module


RNG = np.random.default_rng(0)
N = 200
LIFE, END = 3 * RNG.weibull(1.5, size=N), RNG.exponential(6.0, size=N)
EVENT, T = (LIFE <= END) * 1.0, np.minimum(LIFE, END)
WEIGHTS, GROUPS = 1.0 + np.arange(N) % 3, np.arange(N) // 5
OTHERS = 3 * RNG.weibull(1.5, size=50)
BACKEND = backend()


def loglik(th):
    u = np.exp(th.log_shape) * (np.log(T) - th.log_scale)
    return EVENT * (th.log_shape + u - np.log(T)) - np.exp(u)


def score(th):
    u = np.exp(th.log_shape) * (np.log(T) - th.log_scale)
    left = EVENT - np.exp(u)
    return np.column_stack([EVENT + left * u, -np.exp(th.log_shape) * left])


def pair(**options):
    start = {"log_shape": 0.0, "log_scale": 1.0}
    return BACKEND.from_weibull(T, EVENT, **options), idm.from_loglik(
        loglik, start=start, score=score, **options
    )


MODEL, EXPECTED = pair()
WEIGHTED = pair(weights=WEIGHTS)


def median(th):
    return np.exp(th.log_scale) * np.log(2) ** np.exp(-th.log_shape)


def survival(t):
    return lambda th: np.exp(-((t * np.exp(-th.log_scale)) ** np.exp(th.log_shape)))


def test_the_backend_keeps_the_contract():
    check_model(MODEL, median)
    check_model(MODEL.fix(log_shape=0.2), median)
    check_model(WEIGHTED[0], median)
    check_model(BACKEND.from_weibull(T, EVENT, WEIGHTS, "sampling"), median)


MISTAKES = {  # a member that is 1% off, and what is said of it
    "terms": "score is not the gradient of objective",
    "slopes": None,  # of which all derivatives are made
    "score": "score is not the gradient of objective",
    "curvature": "information is not minus the Hessian",
    "terms_along": "terms_along",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_contract_notices_a_mistake(name):
    class Wrong(BACKEND.WeibullRows):
        pass

    def wrong(self, *arguments):
        found = getattr(BACKEND.WeibullRows, name)(self, *arguments)
        return [(span, 1.01 * block) for span, block in found] if "along" in name else 1.01 * found

    setattr(Wrong, name, wrong)
    broken = BACKEND.FittedModel(MODEL.theta, Wrong(T, EVENT), MODEL.weights)
    with pytest.raises(AssertionError, match=MISTAKES[name]):
        check_model(broken)


def number(estimate):
    return np.append(np.ravel(estimate.value), np.ravel(estimate.covariance))


def interval(found):
    return np.array([found.low, found.high])


def average(model, sample, t):
    return number(idm.infer(model, idm.Average(survival(t), sample=sample)))


METHODS = {
    "Infinitesimal": idm.Infinitesimal(),
    "FiniteDifference": idm.FiniteDifference(),
    "StochasticFiniteDifference": idm.StochasticFiniteDifference(rng=0),
    "Simulation": idm.Simulation(500, rng=0),
    "Bootstrap": idm.Bootstrap(60, rng=0),
    "Bootstrap, Bayesian": idm.Bootstrap(40, kind="bayesian", rng=0),
    "Bootstrap, one step": idm.Bootstrap(60, kind="one-step", rng=0),
    "Bootstrap, blocks": idm.Bootstrap(40, kind="blocks", rng=0),
}
ANSWERS = {
    "theta": lambda m: m.theta,
    "infer": lambda m: number(idm.infer(m, median)),
    "several": lambda m: number(idm.infer(m, {"median": median, "scale": "log_scale"})),
    **{name: lambda m, x=x: number(idm.infer(m, median, x)) for name, x in METHODS.items()},
    "robust": lambda m: number(idm.infer(m, median, robust=True)),
    "HC1": lambda m: number(idm.infer(m, median, robust="HC1")),
    "clusters": lambda m: number(idm.infer(m, median, clusters=GROUPS)),
    "HAC": lambda m: number(idm.infer(m, median, robust=idm.HAC(3))),
    "influence": lambda m: idm.infer(m, median, influence=True).influence,
    "covariance": lambda m: m.covariance,
    "AIC": lambda m: m.aic,
    "interval": lambda m: interval(idm.infer(m, median).confidence_interval()),
    "profile": lambda m: interval(idm.profile(m, median).confidence_interval()),
    "profile of a parameter": lambda m: interval(idm.profile(m, "log_shape").confidence_interval()),
    "limit": lambda m: float(idm.limit(m, median)),
    "contour": lambda m: idm.contour(m, ["log_shape", "log_scale"]).area(),
    "fix": lambda m: number(idm.infer(m.fix(log_shape=0.0), median)),
    "release": lambda m: m.fix(log_shape=0.0).release().theta,
    "likelihood ratio": lambda m: numbers_of_test(m, {"log_shape": 0.0}),
    "likelihood ratio of a point": lambda m: numbers_of_test(
        m, {"log_shape": 0.3, "log_scale": 1.2}
    ),
    "likelihood ratio of fits": lambda m: numbers_of_test(m, m.fix(log_shape=0.0)),
    "summary": lambda m: m.summary().statistics.bic,
    "polish": lambda m: number(idm.infer(idm.polish(m.at(m.theta + 1e-3)), median)),
    "join": lambda m: number(idm.join(*joined(m))),
    "difference": lambda m: number(joined(m)[0] - joined(m)[1]),
    "pickle": lambda m: number(idm.infer(pickle.loads(pickle.dumps(m)), median)),
    "training rows": lambda m: average(m, "training", T),
    "independent rows": lambda m: average(m, "independent", OTHERS),
    "unknown rows": lambda m: average(m, "unknown", OTHERS),
    "Smoothed": lambda m: number(idm.infer(m, idm.Smoothed(median, rng=0))),
    "Statistic": lambda m: number(idm.infer(m, statistic())),
    "reweighted": lambda m: number(idm.infer(idm.polish(reweight(m, WEIGHTS)), median)),
    "compare": lambda m: [row.std_error for row in compared(m).rows],
}


def numbers_of_test(model, null):
    return [found[1:] for found in idm.likelihood_ratio(null, model).tests]


def compared(model):
    return idm.compare(model, median, [idm.Infinitesimal(), idm.FiniteDifference()])


def joined(model):
    return [idm.infer(model, psi, influence=True) for psi in (median, "log_scale")]


def statistic():
    return idm.Statistic(survival(OTHERS), lambda p, weight: weight @ p**2 / weight.sum())


@pytest.mark.parametrize("name", ANSWERS)
def test_it_answers_like_the_likelihood(name):
    found, expected = (ANSWERS[name](model) for model in (MODEL, EXPECTED))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["infer", "clusters", "profile", "training rows", "Bootstrap"])
def test_it_has_weights(name):
    found, expected = (ANSWERS[name](model) for model in WEIGHTED)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def likelihood(t, event):
    def rows(th):
        u = np.exp(th[0]) * (np.log(t) - th[1])
        return event * (th[0] + u - np.log(t)) - np.exp(u)

    return idm.from_loglik(rows, start=[0.0, np.log(np.mean(t))], names=MODEL.names)


def test_it_is_fitted_again_in_a_bootstrap():
    found, expected = (
        idm.bootstrap(
            lambda data, fit=fit: fit(*data),
            (T, EVENT),
            lambda model: median(model.theta),
            replicates=20,
            rng=0,
        )
        for fit in (BACKEND.from_weibull, likelihood)
    )
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-6)


REFUSED = {
    "HC3": (lambda m: idm.infer(m, median, robust="HC3"), 'robust="HC1"'),
    "CR2": (lambda m: idm.infer(m, median, robust="CR2", clusters=GROUPS), 'robust="CR1"'),
    "ggn": (lambda m: idm.infer(m, median, idm.Infinitesimal(curvature="ggn")), "outputs"),
    "parametric": (
        lambda m: idm.infer(m, median, idm.Bootstrap(20, kind="parametric")),
        'kind="resample"',
    ),
    "goodness of fit": (idm.goodness_of_fit, "draw new data"),
    "question": (lambda m: idm.infer(m, idm.average_comparison("x")), "from_weibull has no"),
    "tangent": (lambda m: idm.polish(m, tangent=True), "parameters that psi gets themselves"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_cannot_do_is_refused(name):
    call, match = REFUSED[name]
    with pytest.raises(idm.UnsupportedModelError, match=match):
        call(MODEL)


def test_it_prints_like_other_models():
    lines = str(MODEL.fix(log_shape=0.0)).split("\n")
    assert lines[0].startswith("from_weibull: 200 rows, 2 parameters (1 fixed), log-likelihood")
    assert "log_shape" in str(MODEL.summary())


def test_it_is_summed_over_shards():
    theta, halves = np.array(EXPECTED.theta), [slice(0, 100), slice(100, N)]
    many = idm.from_shards(lambda s: BACKEND.from_weibull(T[s], EVENT[s]).at(theta), halves)
    for name in ("infer", "robust", "clusters", "training rows", "AIC", "likelihood ratio"):
        np.testing.assert_allclose(ANSWERS[name](many), ANSWERS[name](EXPECTED), rtol=1e-6)


@pytest.mark.parametrize("name", ["theta", "infer", "robust", "Bootstrap", "profile", "AIC", "fix"])
def test_it_adds_to_other_models(name):
    seen = idm.measurement(log_scale=(1.0, 0.05))
    found, expected = (ANSWERS[name](model + seen) for model in (MODEL, EXPECTED))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_halves_add_up_and_the_same_data_count_once():
    first, second = (BACKEND.from_weibull(T[s], EVENT[s]) for s in (slice(100), slice(100, N)))
    both = idm.combine(first=first, second=second)
    np.testing.assert_allclose(ANSWERS["infer"](both), ANSWERS["infer"](EXPECTED), rtol=1e-5)
    budget = idm.infer(both, median).budget
    assert np.hypot(budget["first"], budget["second"]) == pytest.approx(budget["total"])
    with pytest.raises(ValueError, match="the same data"):
        MODEL + MODEL

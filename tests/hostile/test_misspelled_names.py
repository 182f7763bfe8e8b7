"""A misspelled parameter is no parameter: said with the nearest name, wherever names go."""

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, NonlinearConstraint

import implicit_delta as idm

Y = np.random.default_rng(0).normal(5, 2, 50)


def normal(th):
    return -np.log(th.sigma) - ((Y - th.mu) / th.sigma) ** 2 / 2


def fitted(**options):
    return idm.from_loglik(normal, start={"mu": 7.0, "sigma": 1.0}, **options)


MODELS = {
    "free": lambda: fitted(),
    "at a bound": lambda: fitted(bounds={"mu": (6, None)}),
    "at a constraint": lambda: fitted(constraints=LinearConstraint([[1, 0]], 6, 9)),
    "fixed": lambda: fitted().fix(mu=5.0),
    "named": lambda: idm.from_loglik(
        lambda th: -np.log(th[1]) - ((Y - th[0]) / th[1]) ** 2 / 2,
        start=[7.0, 1.0],
        names=["mu", "sigma"],
        bounds={"mu": (6, None)},
    ),
}
USES = {
    "infer": lambda m: idm.infer(m, "sigm"),
    "list": lambda m: idm.infer(m, ["mu", "sigm"]),
    "dict": lambda m: idm.infer(m, {"a": "sigm"}),
    "attribute": lambda m: idm.infer(m, lambda th: th.sigm),
    "key": lambda m: idm.infer(m, lambda th: th["sigm"]),
    "finite differences": lambda m: idm.infer(m, lambda th: th.sigm, idm.FiniteDifference()),
    "bootstrap": lambda m: idm.infer(m, "sigm", idm.Bootstrap(5)),
    "profile": lambda m: idm.profile(m, "sigm"),
    "profile of a function": lambda m: idm.profile(m, lambda th: th.sigm),
    "limit": lambda m: idm.limit(m, "sigm"),
    "contour": lambda m: idm.contour(m, ["mu", "sigm"]),
    "compare": lambda m: idm.compare(m, "sigm"),
    "fix": lambda m: m.fix(sigm=2.0),
    "likelihood ratio": lambda m: idm.likelihood_ratio({"sigm": 2.0}, m),
}
FITS = {
    "bounds": lambda: fitted(bounds={"sigm": (0, None)}),
    "bounds of two": lambda: fitted(bounds={"mu": (6, None), "sigm": (0, None)}),
    "starts": lambda: fitted(starts=[{"mu": 4.0, "sigm": 1.0}]),
    "inequality": lambda: fitted(constraints={"type": "ineq", "fun": lambda th: th.sigm}),
    "equality": lambda: fitted(constraints={"type": "eq", "fun": lambda th: th["sigm"] - 1}),
    "constraint": lambda: fitted(constraints=NonlinearConstraint(lambda th: th.sigm, 0, 1)),
    "residuals": lambda: idm.from_residuals(
        lambda th: Y - th.sigma, start={"sigma": 1.0}, bounds={"sigm": (0, 1)}
    ),
    "release": lambda: fitted().fix(sigma=2.0).release("sigm"),
    "start": lambda: idm.from_loglik(lambda th: -((Y - th.sigm) ** 2), start={"sigma": 1.0}),
}
REASON = "'sigm'.*is no parameter.*Did you mean 'sigma'"


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_of_a_model(make, use):
    with pytest.raises((ValueError, AttributeError, KeyError, idm.EvaluationError), match=REASON):
        use(make())


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_of_a_fit(fit):
    with pytest.raises((ValueError, AttributeError, KeyError), match=REASON):
        fit()


def test_of_an_estimate():
    est = idm.infer(fitted(bounds={"mu": (6, None)}), idm.parameters)
    for use in (lambda: est["sigm"], lambda: est.contrast("sigm - mu")):
        with pytest.raises(ValueError, match=r"no evaluation 'sigm'\. There are 'sigma'"):
            use()

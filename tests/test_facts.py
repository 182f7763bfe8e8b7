"""Facts of a fit stay true when its model is polished, moved, reweighted or put under a chart."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import implicit_delta as idm

rng = np.random.default_rng(0)
X = rng.normal(size=80)
DATA = pd.DataFrame({"x": X, "z": rng.normal(size=80), "y": rng.poisson(np.exp(0.2 + 0.3 * X))})
Y = DATA["y"].to_numpy(dtype=float)
TIGHT = [(None, None), (None, -0.5)]  # far from the slope of the data: no doubt that it binds


def poisson(rows=slice(None)):
    return lambda th: Y[rows] * (th[0] + th[1] * X[rows]) - np.exp(th[0] + th[1] * X[rows])


def line(th):
    return Y - th[0] - th[1] * X


def host(**constraint):
    fit = smf.glm("y ~ x + z", DATA, family=sm.families.Poisson())
    return idm.from_statsmodels(fit.fit_constrained("z = 0.05") if constraint else fit.fit())


def shards(**options):
    theta = np.asarray(idm.from_loglik(poisson(), start=[0.0, 0.0], **options).theta)
    build = lambda rows: idm.from_loglik(poisson(rows), theta=theta, **options)
    return idm.from_shards(build, [slice(0, 40), slice(40, 80)])


MODELS = {
    "loglik": lambda: idm.from_loglik(poisson(), start=[0.0, 0.0]),
    "loglik, bounded": lambda: idm.from_loglik(poisson(), start=[0.0, 0.0], bounds=TIGHT),
    "loglik, fixed": lambda: idm.from_loglik(poisson(), start=[0.0, 0.0]).fix({1: 0.1}),
    "residuals": lambda: idm.from_residuals(line, start=[0.0, 0.0]),
    "residuals, bounded": lambda: idm.from_residuals(line, start=[0.0, 0.0], bounds=TIGHT),
    "residuals, fixed": lambda: idm.from_residuals(line, start=[0.0, 0.0]).fix({1: 0.1}),
    "statsmodels": host,
    "statsmodels, constrained": lambda: host(z=0.05),
    "shards": shards,
}


def first(theta):
    return np.asarray(theta)[0]


@pytest.mark.parametrize("name", MODELS)
def test_a_polished_fit_answers_like_the_fit(name):
    model = MODELS[name]()
    polished = idm.polish(model)
    one, two = idm.infer(model, first), idm.infer(polished, first)
    assert two.standard_error == pytest.approx(one.standard_error, rel=1e-4)
    assert two.value == pytest.approx(one.value, abs=1e-3 * one.standard_error)


@pytest.mark.parametrize("name", ["loglik", "residuals", "statsmodels"])
def test_where_a_polished_training_had_ended_is_known_until_theta_moves(name):
    polished = idm.polish(MODELS[name]())
    moved = polished.at(np.asarray(polished.theta) + 1e-6)
    assert "polished" in idm.infer(polished, first).diagnostics.notes
    assert "polished" in idm.infer(polished.at(polished.theta), first).diagnostics.notes
    assert "polished" not in idm.infer(moved, first).diagnostics.notes


@pytest.mark.parametrize("name", ["loglik", "residuals"])
def test_a_polished_model_is_no_longer_so_when_it_is_fitted_again(name):
    fixed = idm.polish(MODELS[name]()).fix({1: 0.1})
    for model in (fixed, fixed.release()):
        assert "polished" not in idm.infer(model, first).diagnostics.notes

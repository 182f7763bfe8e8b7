"""Likelihood-ratio tests of fixed parameters, of models of other libraries and of networks."""

import numpy as np
import pytest

import implicit_delta as idm

sm = pytest.importorskip("statsmodels.api")

N = 200
RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
BINARY = (RNG.random(N) < 1 / (1 + np.exp(-X @ [0.2, 1.0, 0.2]))).astype(float)
COUNTS = RNG.poisson(np.exp(X @ [0.2, 0.3, 0.1]))
WEIGHTS = RNG.integers(1, 4, size=N).astype(float)
R, ZERO = np.array([[0.0, 0.0, 1.0]]), np.zeros(1)

FITS = {
    "binomial": lambda: sm.GLM(BINARY, X, family=sm.families.Binomial()),
    "poisson": lambda: sm.GLM(COUNTS, X, family=sm.families.Poisson()),
    "weighted": lambda: sm.GLM(COUNTS, X, family=sm.families.Poisson(), freq_weights=WEIGHTS),
    "probit": lambda: sm.GLM(BINARY, X, family=sm.families.Binomial(sm.families.links.Probit())),
}


@pytest.mark.parametrize("name", FITS)
def test_the_statistic_is_that_of_the_results(name):
    large = FITS[name]().fit(tol=1e-12)
    small = FITS[name]().fit_constrained((R, ZERO), tol=1e-12)
    model = idm.from_statsmodels(large)
    found, *others = idm.likelihood_ratio(model.fix({2: 0.0}), model).tests
    assert found.statistic == pytest.approx(2 * (large.llf - small.llf), rel=1e-7)
    assert found.df == 1
    wald = others[0]
    assert wald.statistic == pytest.approx(large.tvalues[2] ** 2, rel=1e-6)
    point = idm.likelihood_ratio({2: 0.0}, model).tests[0]
    assert point.statistic == pytest.approx(found.statistic, rel=1e-9)


def test_so_is_that_of_a_torch_module():
    torch = pytest.importorskip("torch")
    large = FITS["binomial"]().fit(tol=1e-12)
    small = FITS["binomial"]().fit_constrained((R, ZERO), tol=1e-12)
    net = torch.nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        net.weight[:] = torch.tensor(large.params)
    model = idm.from_torch(net, (torch.tensor(X), torch.tensor(BINARY)[:, None]), idm.Bernoulli())
    found = idm.likelihood_ratio(model.fix({2: 0.0}), model).tests[0]
    assert found.statistic == pytest.approx(2 * (large.llf - small.llf), rel=1e-7)


def test_an_estimated_noise_variance_has_no_such_test():
    """The variance of the smaller fit is another one, and so are the constants."""
    model = idm.from_statsmodels(sm.OLS(X @ [1.0, 0.2, 0.1] + RNG.normal(size=N), X).fit())
    for small in (model.fix({2: 0.0}), {2: 0.0}):
        with pytest.raises(TypeError, match="if no noise variance is estimated"):
            idm.likelihood_ratio(small, model)


def test_models_of_other_rows_are_not_compared():
    one, two = (idm.from_statsmodels(FITS[name]().fit()) for name in ("binomial", "poisson"))
    with pytest.raises(TypeError, match=r"its own `model\.fix"):
        idm.likelihood_ratio(one.fix({2: 0.0}), two)


def torch_logit(**options):
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        net.weight[:] = torch.tensor(FITS["binomial"]().fit(tol=1e-12).params)
    data = torch.tensor(X), torch.tensor(BINARY)[:, None]
    return idm.polish(idm.from_torch(net, data, idm.Bernoulli(), **options))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"l2": 1.0}, idm.UnsupportedModelError, "penalized"),
        ({"weights": WEIGHTS, "weight_kind": "precision"}, idm.UnsupportedModelError, "Precisions"),
        ({"weights": WEIGHTS, "weight_kind": "sampling"}, idm.UnsupportedModelError, "sampling"),
    ],
)
def test_objectives_that_are_no_likelihood_are_refused(options, error, words):
    model = torch_logit(**options)
    with pytest.raises(error, match=words):
        idm.likelihood_ratio(model.fix({2: 0.0}), model)


def test_a_training_that_stopped_early_and_class_weights_have_no_such_test():
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(3, 2, bias=False).double()
    data = torch.tensor(X), torch.tensor(BINARY.astype(int))
    stopped = idm.from_torch(net, data, idm.Categorical(), l2="evidence")
    with pytest.raises(idm.UnsupportedModelError, match="penalized"):
        idm.likelihood_ratio(stopped, stopped)
    weighted = idm.from_torch(net, data, idm.Categorical(class_weights=[1.0, 2.0]))
    with pytest.raises(idm.UnsupportedModelError, match="no log-densities"):
        idm.likelihood_ratio(weighted, weighted)


def test_a_robust_fit_is_told_that_these_are_tests_of_the_likelihood():
    plain, robust = (FITS["poisson"]().fit(cov_type=kind) for kind in ("nonrobust", "HC0"))
    for results, told in ((plain, False), (robust, True)):
        model = idm.from_statsmodels(results)
        text = str(idm.likelihood_ratio(model.fix({2: 0.0}), model))
        assert ("standard errors of the fit are not" in " ".join(text.split())) == told

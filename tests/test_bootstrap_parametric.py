"""New data drawn from the fitted model: against the inverse information, and who refuses."""

import warnings

import numpy as np
import pytest
from scipy.special import expit, ndtr, softmax

import implicit_delta as idm
from implicit_delta.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Poisson
from implicit_delta.models.glm.draws import draw_tweedie
from implicit_delta.models.redraws import redraw

pytestmark = pytest.mark.slow

sm = pytest.importorskip("statsmodels.api")

RNG = np.random.default_rng(0)
N = 400
x = RNG.normal(size=N)
X = np.column_stack([np.ones(N), x])
ETA = X @ [0.3, 0.5]
COUNTS = RNG.integers(1, 4, size=N)
STATE = RNG.bit_generator.state
PARAMETRIC = idm.Bootstrap(300, "parametric", rng=0)


@pytest.fixture(autouse=True)
def same_data_in_any_order():
    RNG.bit_generator.state = STATE


def agrees(model, psi=idm.parameters, extra=5 / N, replicates=150):
    """Compare with the inverse information, from which small samples differ by shares of 1 / n."""
    boot = idm.infer(model, psi, idm.Bootstrap(replicates, "parametric", rng=0))
    exact = idm.infer(model, psi)
    noise = boot.diagnostics.notes["monte_carlo_error"]
    np.testing.assert_allclose(boot.standard_error, exact.standard_error, rtol=4 * noise + extra)
    return boot


def glm(family, y, **options):
    return idm.from_statsmodels(sm.GLM(y, X, family, **options).fit())


def discrete(kind, y):
    return idm.from_statsmodels(kind(y, X).fit(disp=0))


def ordered():
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    y = np.digitize(0.7 * x + RNG.logistic(size=N), [-1.0, 0.0, 1.5])
    return idm.from_statsmodels(OrderedModel(y, x[:, None], distr="logit").fit(disp=0))


def binomial_trials():
    trials = RNG.integers(1, 8, size=N)
    successes = RNG.binomial(trials, expit(ETA))
    return glm(sm.families.Binomial(), np.column_stack([successes, trials - successes]))


def classes():
    return np.argmax(RNG.gumbel(size=(N, 3)) + np.outer(x, [0.0, 0.5, -0.5]), axis=1)


F = sm.families
LOG = F.links.Log()
HOSTS = {
    "OLS": lambda: idm.from_statsmodels(sm.OLS(ETA + RNG.normal(size=N), X).fit()),
    "WLS": lambda: idm.from_statsmodels(
        sm.WLS(ETA + RNG.normal(size=N) / np.sqrt(COUNTS), X, weights=COUNTS).fit()
    ),
    "Logit": lambda: discrete(sm.Logit, RNG.random(N) < expit(ETA)),
    "Probit": lambda: discrete(sm.Probit, RNG.random(N) < ndtr(ETA)),
    "Poisson": lambda: discrete(sm.Poisson, RNG.poisson(np.exp(ETA))),
    "MNLogit": lambda: discrete(sm.MNLogit, classes()),
    "NegativeBinomial": lambda: discrete(
        sm.NegativeBinomial, RNG.negative_binomial(2, 2 / (2 + np.exp(ETA + 1)))
    ),
    "OrderedModel": ordered,
    "GLM binomial trials": binomial_trials,
    "GLM Poisson, counted": lambda: glm(F.Poisson(), RNG.poisson(np.exp(ETA)), freq_weights=COUNTS),
    "GLM logit, counted": lambda: glm(
        F.Binomial(), (RNG.random(N) < expit(ETA)) * 1.0, freq_weights=COUNTS
    ),
    "GLM gamma": lambda: glm(F.Gamma(LOG), RNG.gamma(2.0, np.exp(ETA) / 2)),
    "GLM gamma, precise": lambda: glm(
        F.Gamma(LOG), RNG.gamma(2.0 * COUNTS, np.exp(ETA) / 2 / COUNTS), var_weights=COUNTS
    ),
    "GLM inverse Gaussian": lambda: glm(F.InverseGaussian(LOG), RNG.wald(np.exp(ETA), 4.0)),
    "GLM negative binomial": lambda: glm(
        F.NegativeBinomial(alpha=0.5), RNG.negative_binomial(2, 2 / (2 + np.exp(ETA)))
    ),
    "GLM Tweedie": lambda: glm(
        F.Tweedie(LOG, var_power=1.5), draw_tweedie(np.exp(ETA), 1.5, np.full(N, 0.8), RNG)
    ),
}


@pytest.mark.parametrize("host", HOSTS)
def test_statsmodels_agrees_with_the_information(host):
    agrees(HOSTS[host](), extra=0.06 if host == "NegativeBinomial" else 5 / N)


def fitted(estimator, y, **options):
    return idm.from_sklearn(estimator.fit(x[:, None], y, **options), x[:, None], y, **options)


def test_scikit_learn_agrees_with_the_information():
    linear = pytest.importorskip("sklearn.linear_model")
    agrees(fitted(linear.LinearRegression(), ETA + RNG.normal(size=N), sample_weight=COUNTS))
    y = RNG.random(N) < expit(ETA)
    agrees(fitted(linear.LogisticRegression(C=np.inf, tol=1e-8), y, sample_weight=COUNTS))
    agrees(fitted(linear.LogisticRegression(C=np.inf, tol=1e-8), classes()))
    strict = {"alpha": 0, "tol": 1e-9, "max_iter": 1000}
    agrees(fitted(linear.PoissonRegressor(**strict), RNG.poisson(np.exp(ETA))))
    agrees(fitted(linear.GammaRegressor(**strict), RNG.gamma(2.0, np.exp(ETA) / 2)))
    y = draw_tweedie(np.exp(ETA), 1.3, np.full(N, 0.5), RNG)
    agrees(fitted(linear.TweedieRegressor(power=1.3, **strict), y))


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_least_squares_has_its_closed_form(weighted):
    y = ETA[:60] + RNG.normal(size=60)
    counts = COUNTS[:60] if weighted else np.ones(60)
    A = X[:60]
    for options in ({}, {"jacobian": lambda b: -A}):
        model = idm.from_residuals(lambda b: y - A @ b, start=[0, 0], weights=counts, **options)
        s2 = counts @ (y - A @ model.theta) ** 2 / (counts.sum() - 2)
        exact = np.sqrt(np.diag(s2 * np.linalg.inv((A.T * counts) @ A)))
        boot = idm.infer(model, idm.parameters, PARAMETRIC)
        noise = boot.diagnostics.notes["monte_carlo_error"]
        np.testing.assert_allclose(boot.standard_error, exact, rtol=4 * noise)
        assert boot.df == counts.sum() - 2


def test_precisions_are_those_of_the_draws():
    A, weights = X[:100], COUNTS[:100] / 2.0
    y = ETA[:100] + RNG.normal(size=100) / np.sqrt(weights)
    options = {"weights": weights, "weight_kind": "precision"}
    agrees(idm.from_residuals(lambda b: y - A @ b, start=[0, 0], **options))
    linear = pytest.importorskip("sklearn.linear_model")
    fit = linear.LinearRegression().fit(A[:, 1:], y, sample_weight=weights)
    agrees(idm.from_sklearn(fit, A[:, 1:], y, weights, weight_kind="precision"))


def test_a_perceptron_on_new_targets_keeps_the_contract():
    networks = pytest.importorskip("sklearn.neural_network")
    from implicit_delta.testing import check_model

    for y in (classes(), classes() > 0):
        net = networks.MLPClassifier((3,), "tanh", max_iter=20, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = fitted(net, y)
        check_model(redraw(model, np.random.default_rng(0)))


def test_a_nonlinear_curve():
    t = np.linspace(0, 3, 80)
    y = 2 * np.exp(-0.8 * t) + 0.1 * RNG.normal(size=80)
    model = idm.from_residuals(lambda b: y - b[0] * np.exp(-b[1] * t), start=[1.0, 1.0])
    agrees(model, lambda b: np.log(2) / b[1], extra=0.02)


def test_with_a_penalty_it_is_the_spread_of_the_penalized_maximum():
    y = ETA[:50] + RNG.normal(size=50)
    A, l2 = X[:50], 20.0
    model = idm.from_residuals(lambda b: y - A @ b, start=[0, 0], variance=1.0, l2=l2)
    inverse = np.linalg.inv(A.T @ A + l2 * np.eye(2))
    spread = np.sqrt(np.diag(inverse @ A.T @ A @ inverse))
    boot = idm.infer(model, idm.parameters, PARAMETRIC)
    noise = boot.diagnostics.notes["monte_carlo_error"]
    np.testing.assert_allclose(boot.standard_error, spread, rtol=4 * noise)
    assert np.all(np.sqrt(np.diag(inverse)) > spread * (1 + 4 * noise))  # the Bayesian one


def test_a_wrong_model_is_believed():
    y = RNG.negative_binomial(1, 1 / (1 + np.exp(ETA + 1)))  # far from Poisson
    model = discrete(sm.Poisson, y)
    boot = agrees(model, replicates=300)
    robust = idm.infer(model, idm.parameters, robust=True).standard_error
    assert np.all(robust > 1.5 * boot.standard_error)
    resampled = idm.infer(model, idm.parameters, idm.Bootstrap(300, rng=0))
    noise = resampled.diagnostics.notes["monte_carlo_error"]
    np.testing.assert_allclose(resampled.standard_error, robust, rtol=4 * noise + 0.05)


def networks():
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    y = (RNG.random(N) < expit(ETA)).astype(float)
    b = sm.Logit(y, X).fit(disp=0).params
    line = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    line.weight.data[:] = torch.tensor(b)
    data = torch.tensor(X), torch.tensor(y)
    yield idm.from_torch(line, data, Bernoulli(), batch_size=150)
    yield idm.from_torch(line, torch.utils.data.TensorDataset(*data), Bernoulli(), weights=COUNTS)
    yield idm.from_jax(
        jnp.asarray(b), (X, y.astype(int)), Bernoulli(), apply=lambda b, x: x @ b, dtype="float64"
    )


def test_torch_and_jax_agree_with_the_information():
    for model in networks():
        agrees(idm.polish(model), replicates=40)


def test_a_replicate_on_new_targets_keeps_the_contract():
    from implicit_delta.testing import check_model

    for model in networks():
        check_model(redraw(model, np.random.default_rng(1)))


def test_bca_takes_the_skewness_of_the_model():
    """The mean of an exponential distribution: a third cumulant of 2, so a = 1 / 3 sqrt(n)."""
    y = RNG.exponential(size=25)
    model = idm.from_statsmodels(sm.GLM(y, np.ones(25), F.Gamma(LOG)).fit(scale=1.0))
    est = idm.infer(model, lambda b: np.exp(b[0]), idm.Bootstrap(1000, "parametric", rng=0))
    assert est.acceleration[0] == pytest.approx(1 / (3 * np.sqrt(25)), rel=0.25)
    low, high = est.confidence_interval(kind="bca")
    from scipy.stats import gamma

    exact = y.mean() * 25 / gamma(25).ppf([0.975, 0.025])  # mean / truth is gamma(n) / n
    width = exact[1] - exact[0]
    # the ends of 1000 replicates are uncertain by 3.7 / sqrt(1000) standard errors, see bca.json
    np.testing.assert_allclose([low, high], exact, atol=4 * 3.7 / np.sqrt(1000) * width / 4)


def opaque():
    y = RNG.poisson(2.0, size=50)
    return idm.from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])


def quasi():
    y = RNG.negative_binomial(1, 0.3, size=N)
    return idm.from_statsmodels(sm.GLM(y, X, F.Poisson()).fit(scale="X2"))


def hazards():
    return idm.from_statsmodels(sm.PHReg(RNG.exponential(size=80), x[:80, None]).fit())


def of_a_function():
    torch = pytest.importorskip("torch")
    line = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    data = torch.tensor(X), torch.tensor(ETA)
    return idm.from_torch(line, data, lambda net, batch: -((batch[1] - net(batch[0])[:, 0]) ** 2))


def halves():
    linear = pytest.importorskip("sklearn.linear_model")
    y, half = RNG.random(N) < expit(ETA), COUNTS + 0.5
    fit = linear.LogisticRegression(C=np.inf).fit(x[:, None], y, sample_weight=half)
    return idm.from_sklearn(fit, x[:, None], y, half, weight_kind="precision")


def survey():
    linear = pytest.importorskip("sklearn.linear_model")
    fit = linear.LinearRegression().fit(x[:, None], ETA + x**2, sample_weight=COUNTS)
    return idm.from_sklearn(fit, x[:, None], ETA + x**2, COUNTS, weight_kind="sampling")


REFUSED = {
    "sampling weights": (survey, "design-based"),
    "an opaque log-likelihood": (opaque, 'kind="resample"'),
    "a quasi-likelihood": (quasi, "quasi-likelihood"),
    "hazards": (hazards, 'kind="resample"'),
    "a function of a module": (of_a_function, "such as `Poisson"),
    "half a draw": (halves, "no whole numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_drawn_is_refused_at_once(case):
    build, advice = REFUSED[case]
    with pytest.raises(idm.UnsupportedModelError, match=advice):
        idm.infer(build(), idm.parameters, idm.Bootstrap(10**6, "parametric", rng=0))


ASKED = {
    "robust": ({"robust": True}, ValueError, "neither robust"),
    "clusters": ({"clusters": np.arange(N) % 40}, ValueError, "neither robust"),
    "influence": ({"influence": True}, idm.UnsupportedModelError, "Infinitesimal"),
    "covariance": ({"covariance": np.eye(2)}, ValueError, "leave out covariance="),
}


@pytest.mark.parametrize("case", ASKED)
def test_what_goes_with_a_believed_model(case):
    options, error, message = ASKED[case]
    with pytest.raises(error, match=message):
        idm.infer(HOSTS["Poisson"](), lambda b: b[1], idm.Bootstrap(10**6, "parametric"), **options)


def test_an_average_over_the_training_rows_needs_rows():
    psi = idm.Average(lambda b: X @ b, sample="training")
    with pytest.raises(idm.UnsupportedModelError, match='kind="resample"'):
        idm.infer(HOSTS["Poisson"](), psi, idm.Bootstrap(10**6, "parametric"))


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5, 2.0, 3.0])
def test_draws_have_the_mean_and_variance_of_their_family(power):
    mean, dispersion, n = 1.7, 0.6, 40_000
    y = draw_tweedie(np.full(n, mean), power, np.full(n, dispersion), np.random.default_rng(0))
    variance = dispersion * mean**power
    assert y.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / n))
    assert y.var() == pytest.approx(
        variance, rel=4 * np.std((y - y.mean()) ** 2) / variance / np.sqrt(n)
    )


OUTPUTS = np.random.default_rng(1).normal(size=(5, 3))
MEANS = {
    Gaussian(0.5): (OUTPUTS, np.full((5, 3), 0.5)),
    Bernoulli(): (expit(OUTPUTS), expit(OUTPUTS) * expit(-OUTPUTS)),
    Poisson(): (np.exp(OUTPUTS), np.exp(OUTPUTS)),
}


@pytest.mark.parametrize("counts", [1.0, 3.0])
@pytest.mark.parametrize("likelihood", MEANS, ids=repr)
def test_likelihoods_draw_means_of_counts(likelihood, counts):
    mean, variance = MEANS[likelihood]
    rng = np.random.default_rng(2)
    draws = np.array([likelihood.draw(OUTPUTS, rng, np.full(5, counts)) for _ in range(4000)])
    error = np.sqrt(variance / counts / 4000)
    assert np.all(abs(draws.mean(axis=0) - mean) < 5 * error)
    np.testing.assert_allclose(draws.var(axis=0), variance / counts, rtol=0.2)


def test_categories_are_drawn_as_numbers_or_shares():
    rng = np.random.default_rng(3)
    p = softmax(OUTPUTS, axis=-1)
    classes = np.array([Categorical().draw(OUTPUTS, rng) for _ in range(4000)])
    shares = np.array([Categorical().draw(OUTPUTS, rng, np.full(5, 4.0)) for _ in range(1000)])
    assert classes.dtype.kind == "i"
    assert classes.shape == (4000, 5)
    assert shares.shape == (1000, 5, 3)
    error = 5 * np.sqrt(p * (1 - p) / 4000)
    assert np.all(abs(np.mean(classes[..., None] == np.arange(3), axis=0) - p) < error)
    assert np.all(abs(shares.mean(axis=0) - p) < error)


def test_a_likelihood_of_your_own_may_have_no_draws():
    with pytest.raises(idm.UnsupportedModelError, match="Define it"):
        Likelihood.draw(Poisson(), OUTPUTS, np.random.default_rng(0))

"""What a user can get wrong, and that the message says what to do."""

import warnings

import numpy as np
import pytest
from cases import logistic, weibull

import implicit_delta as idm

Y = np.random.default_rng(0).normal(2.0, 1.0, size=30)


def loglik(th):
    return -((Y - th[0]) ** 2) / 2


def model(**options):
    return idm.from_loglik(loglik, theta=[Y.mean()], **options)


def case_model(case):
    return idm.from_loglik(case.loglik, case.theta, score=case.score)


# The log-likelihood


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (lambda th: loglik(th).mean(), "wrong by sqrt"),
        (lambda th: loglik(th).sum(), "one value per observation"),
        (lambda th: loglik(th)[:, None], r"\.ravel"),
        (lambda th: np.outer(loglik(th), [1, 2]), "Sum over everything"),
        (lambda th: np.where(np.arange(30) == 7, np.nan, loglik(th)), "observation 7"),
        (lambda th: np.where(np.arange(30) == 3, -np.inf, loglik(th)), "-inf for observation 3"),
        (lambda th: loglik(th) + 0j, "complex"),
        (lambda th: loglik(th)[:0], "shape"),
    ],
)
def test_terms_must_be_one_finite_number_per_observation(bad, text):
    with pytest.raises(ValueError, match=text):
        idm.from_loglik(bad, theta=[2.0])


def test_a_whole_log_likelihood_of_shape_one_is_one_dependent_observation():
    whole = idm.from_loglik(lambda th: loglik(th).sum(keepdims=True), theta=[Y.mean()])
    assert whole.n == 1
    assert idm.infer(whole, lambda th: th[0]).standard_error == pytest.approx(30**-0.5)
    with pytest.raises(idm.UnsupportedModelError, match="only one"):
        idm.infer(whole, lambda th: th[0], robust=True)


@pytest.mark.parametrize("options", [{}, {"theta": [1.0], "start": [1.0]}])
def test_either_theta_or_start(options):
    with pytest.raises(ValueError, match="either theta"):
        idm.from_loglik(loglik, **options)
    with pytest.raises(ValueError, match="either theta"):
        idm.from_residuals(lambda th: Y - th[0], **options)


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        (np.ones(29), r"shape \(29,\), but there are 30"),
        (np.where(np.arange(30) == 1, -1.0, 1.0), "negative"),
        (np.full(30, np.nan), "finite"),
        (np.zeros(30), "at least one positive"),
        ("w", r"weights is 'w', .* give the column, `df\['w'\]`"),
    ],
)
def test_weights(weights, text):
    with pytest.raises(ValueError, match=text):
        model(weights=weights)


@pytest.mark.parametrize("l2", [-1.0, np.inf, np.nan])
def test_l2(l2):
    with pytest.raises(ValueError, match="l2"):
        model(l2=l2)


def test_score_must_have_one_row_per_observation():
    with pytest.raises(ValueError, match=r"must return one row per observation.*\(30, 1\)"):
        model(score=lambda th: np.array([np.sum(Y - th[0])]))


@pytest.mark.parametrize(
    ("theta", "text"),
    [([], "flat vector"), ([[1.0]], "flat vector"), ([np.nan], "finite"), (["a"], "convert")],
)
def test_parameters_must_be_a_finite_vector(theta, text):
    with pytest.raises(ValueError, match=text):
        idm.from_loglik(loglik, theta=theta)


def test_integers_work():
    y = np.array([1, 2, 3, 6])
    found = idm.from_loglik(lambda th: -((y - th[0]) ** 2), theta=[3])
    assert idm.infer(found, lambda th: 2 * th[0]).standard_error == pytest.approx(8**-0.5 * 2)
    assert idm.from_residuals(lambda th: y - th[0], start=[0]).theta == pytest.approx(3)


@pytest.mark.parametrize("variance", ["ols", -1.0, 0.0, np.nan])
def test_variance(variance):
    with pytest.raises(ValueError, match="variance must be"):
        idm.from_residuals(lambda th: Y - th[0], theta=[2.0], variance=variance)


def test_interpolated_data_have_no_noise_variance():
    with pytest.raises(ValueError, match="residuals are zero"):
        idm.from_residuals(lambda th: Y[:1] - th[0], theta=[Y[0]])
    with pytest.raises(ValueError, match="no degree of freedom"):
        idm.from_residuals(lambda th: Y[:1] - th[0], theta=[0.0], variance="unbiased")


def test_nothing_of_the_users_is_changed():
    theta, weights = np.array([Y.mean()]), np.ones(30)

    def greedy(th):
        value = loglik(th)
        th[:] = np.nan
        return value

    def psi(th):
        value = th[0]
        th[:] = np.nan
        return value

    found = idm.from_loglik(greedy, theta=theta, weights=weights)
    assert idm.infer(found, psi).standard_error == pytest.approx(30**-0.5)
    assert theta == pytest.approx(Y.mean())
    theta[:], weights[:] = 0, 0
    assert found.theta == pytest.approx(Y.mean())
    assert found.weights.values.sum() == 30


# The maximum


def shifted(steps):
    return idm.from_loglik(loglik, theta=[Y.mean() + steps / np.sqrt(30)])


def test_drift_above_one_is_refused_and_names_polish():
    with pytest.raises(idm.ConvergenceError, match=r"move psi by 1.5 standard errors.*polish"):
        idm.infer(shifted(1.5), lambda th: th[0])
    with pytest.warns(idm.DriftWarning, match="polish"):
        found = idm.infer(shifted(1.5), lambda th: th[0], strict=False)
    assert found.diagnostics.drift == pytest.approx(1.5)


def test_drift_above_a_tenth_warns_and_below_does_not():
    with pytest.warns(idm.DriftWarning):
        idm.infer(shifted(0.5), lambda th: th[0])
    idm.infer(shifted(0.05), lambda th: th[0])


def test_polish_mends_drift_and_says_how_far_psi_moved():
    found = idm.polish(shifted(1.5), lambda th: 7 * th[0])
    assert found.moved == pytest.approx(-1.5, rel=1e-6)
    assert found.gain == pytest.approx(1.5**2 / 2, rel=1e-6)
    assert idm.infer(found.model, lambda th: th[0]).diagnostics.drift < 1e-9


def test_a_penalty_left_out_shows_as_drift():
    ridge = idm.from_loglik(loglik, start=[0.0], l2=10.0)
    assert idm.infer(ridge, lambda th: th[0]).diagnostics.drift < 1e-9
    with pytest.raises(idm.ConvergenceError, match="penalty"):
        idm.infer(idm.from_loglik(loglik, theta=ridge.theta), lambda th: th[0])


def test_a_saddle_is_refused_with_its_curvature():
    saddle = idm.from_loglik(lambda th: np.array([-(th[0] ** 2) + 0.5 * th[1] ** 2]), theta=[0, 0])
    with pytest.raises(idm.NotAMaximumError, match=r"curvature.*polish") as caught:
        idm.infer(saddle, lambda th: th[0] + th[1])
    assert caught.value.curvature == pytest.approx(-1.0, rel=1e-6)


COLLINEAR = np.column_stack([np.ones(30), np.arange(30.0), 2 * np.arange(30.0)])


@pytest.mark.parametrize("analytic", [True, False])
@pytest.mark.parametrize(
    "psi", [lambda th: th[1], lambda th: th[0] + 3 * th[1] + 6 * th[2]], ids=["not", "identified"]
)
@pytest.mark.parametrize("method", [None, idm.FiniteDifference()], ids=repr)
def test_collinear_parameters_are_refused_unless_damped(analytic, psi, method):
    beta = np.linalg.lstsq(COLLINEAR, Y, rcond=None)[0]

    def build(**options):
        return idm.from_loglik(
            lambda b: -((Y - COLLINEAR @ b) ** 2) / 2,
            score=(lambda b: (Y - COLLINEAR @ b)[:, None] * COLLINEAR) if analytic else None,
            **options,
        )

    if psi(np.array([0.0, 2.0, -1.0])) == 0 and method is None:  # not moved by the flat direction
        weak = idm.infer(build(theta=beta), psi, idm.Infinitesimal(damping=1e-6))
        found = idm.infer(build(theta=beta), psi).standard_error
        assert found == pytest.approx(weak.standard_error, rel=1e-5)
    else:
        with pytest.raises(idm.NotAMaximumError, match="redundant"):
            idm.infer(build(theta=beta), psi, method)
    assert idm.infer(build(start=beta, l2=0.1), psi, method).standard_error > 0
    assert idm.infer(build(theta=beta), psi, idm.Infinitesimal(damping=0.1)).standard_error > 0


def test_conjugate_gradients_refuse_a_saddle_too():
    saddle = idm.from_loglik(lambda th: np.array([-(th[0] ** 2) + 0.5 * th[1] ** 2]), theta=[0, 0])
    method = idm.Infinitesimal(solver=idm.conjugate_gradient)
    with pytest.raises(idm.NotAMaximumError):
        idm.infer(saddle, lambda th: th[0] + 2 * th[1], method)


def test_separated_classes_have_no_maximum():
    x, y = np.array([-2.0, -1.0, 1.0, 2.0]), np.array([0.0, 0.0, 1.0, 1.0])
    with pytest.raises(idm.ConvergenceError, match="separated classes"):
        idm.infer(
            idm.from_loglik(lambda b: y * (x * b[0]) - np.logaddexp(0, x * b[0]), start=[0.0]),
            lambda b: b[0],
        )


def test_a_maximum_at_the_edge_of_the_domain_is_refused():
    y = np.array([0.0, 0.0, 0.0])

    def terms(th):
        with np.errstate(all="ignore"):
            return np.where(th[0] >= 0, y * np.log(np.maximum(th[0], 1e-300)) - th[0], -np.inf)

    with pytest.raises(idm.ImplicitDeltaError):
        idm.infer(idm.from_loglik(terms, theta=[0.0]), lambda th: th[0])


# The evaluation


@pytest.mark.parametrize(
    ("psi", "text"),
    [
        (lambda th: 3.0, "derivative is exactly zero"),
        (lambda th: np.ones(3), "derivative is exactly zero"),
        (lambda th: th[0] * np.nan, "NaN or infinite"),
        (lambda th: th[0] / 0.0, "NaN or infinite"),
        (lambda th: th[0] + 1j, "complex"),
        (lambda th: th[:0], "empty"),
        (lambda th: np.outer(th, th), "ravel"),
        (lambda th: None, "return"),
        (lambda th: "high", "real number"),
        (lambda th: np.ones(2 if th[0] > Y.mean() else 1) * th[0], "same shape"),
        (lambda th: float(th[0] > 0), "Simulation"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_evaluations_without_a_standard_error(psi, text):
    with pytest.raises(idm.EvaluationError, match=text):
        idm.infer(model(), psi)


def test_psi_must_be_a_function():
    with pytest.raises(TypeError, match="function"):
        idm.infer(model(), 3.0)


def test_infer_needs_a_fitted_model():
    with pytest.raises(TypeError, match="from_loglik"):
        idm.infer(loglik, lambda th: th[0])


def test_psi_at_a_turning_point_is_refused():
    center = Y.mean() + 0.01
    with pytest.raises(idm.ConvergenceError, match=r"bends.*profile"):
        idm.infer(model(), lambda th: (th[0] - center) ** 2)
    with pytest.warns(idm.NonlinearityWarning):
        idm.infer(model(), lambda th: (th[0] - center) ** 2, strict=False)


def test_names_must_match():
    with pytest.raises(ValueError, match="2 names were given for 1"):
        idm.infer(model(), lambda th: th[0], names=["a", "b"])


# The method


@pytest.mark.parametrize("lam", [0.0, -1.0, np.nan, [], [1.0, 1.0]])
def test_lam(lam):
    with pytest.raises(ValueError, match="lam"):
        idm.FiniteDifference(lam=lam)


@pytest.mark.parametrize("options", [{"push": 0}, {"combine": "median"}])
def test_options_of_finite_difference(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        idm.FiniteDifference(**options)


@pytest.mark.parametrize("options", [{"curvature": "fisher"}, {"damping": -1}])
def test_options_of_infinitesimal(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        idm.Infinitesimal(**options)


def test_a_lambda_that_makes_the_objective_unbounded():
    """L + lambda * variance of a normal has no maximum beyond lambda = n / 2 over the variance."""
    normal = idm.from_loglik(
        lambda th: -th[1] - (Y - th[0]) ** 2 * np.exp(-2 * th[1]) / 2, start=[0.0, 0.0]
    )
    with pytest.raises(idm.ConvergenceError, match=r"lambda"):
        idm.infer(normal, lambda th: np.exp(2 * th[1]), idm.FiniteDifference(lam=1e3))


def test_a_lambda_below_rounding_is_refused():
    case = weibull()
    with pytest.raises(idm.ConvergenceError, match="larger lam"):
        idm.infer(case_model(case), case.psi, idm.FiniteDifference(lam=1e-13))


def test_gauss_newton_needs_residuals():
    with pytest.raises(idm.UnsupportedModelError, match="from_residuals"):
        idm.infer(model(), lambda th: th[0], idm.Infinitesimal(curvature="ggn"))


# The clusters and the level


@pytest.mark.parametrize(
    ("clusters", "text"), [(np.zeros(29), "29"), (np.zeros(30), "only one cluster")]
)
def test_clusters(clusters, text):
    with pytest.raises(ValueError, match=text):
        idm.infer(model(), lambda th: th[0], clusters=clusters)


NAMED = [
    ("village", "`clusters=df['village']`"),
    (np.str_("village"), "`clusters=df['village']`"),
    (np.array("village"), "`clusters=df['village']`"),
    (["village"], "`clusters=df['village']`"),
    (("village",), "`clusters=df['village']`"),
    (("firm", "year"), "`df['firm']` for 'firm', `df['year']` for 'year'"),
    (["firm", "year"], "`df['firm']` for 'firm', `df['year']` for 'year'"),
    (np.array(["firm", "year"]), "`df['firm']` for 'firm', `df['year']` for 'year'"),
    (("firm", np.arange(30)), "`df['firm']` for 'firm'."),
    ((list(range(30)), "year"), "`df['year']` for 'year'."),
    (("a", "b", "c"), "`df['a']` for 'a', `df['b']` for 'b', `df['c']` for 'c'"),
]
ENTRIES = {
    "infer": lambda labels: idm.infer(model(), lambda th: th[0], clusters=labels),
    "Bootstrap": lambda labels: idm.infer(
        model(), lambda th: th[0], idm.Bootstrap(20), clusters=labels
    ),
    "Average": lambda labels: idm.infer(
        model(), idm.Average(lambda th: th[0] * Y, clusters=labels)
    ),
    "from_equations": lambda labels: idm.from_equations(
        lambda th: Y - th[0], start=[0.0], clusters=labels
    ),
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
@pytest.mark.parametrize(("labels", "columns"), NAMED)
def test_clusters_by_name_are_not_looked_up(entry, labels, columns):
    with pytest.raises(ValueError, match="Names of columns are not looked up") as caught:
        entry(labels)
    assert columns in str(caught.value)


def test_labels_of_another_length_are_not_called_names():
    with pytest.raises(ValueError, match=r"clusters has shape \(29,\)"):
        idm.infer(model(), lambda th: th[0], clusters=["west", "east"] * 14 + ["west"])


@pytest.mark.parametrize("level", [0.0, 1.0, 95, -0.5, np.nan, "0.95"])
def test_confidence_level(level):
    with pytest.raises((ValueError, TypeError), match="confidence_level"):
        idm.infer(model(), lambda th: th[0]).confidence_interval(level)


def test_no_warning_when_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        idm.infer(case_model(logistic()), logistic().psi)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0.1, "lbfgs"), "central is 'lbfgs'.*by name"),
        ((0.1, idm.lbfgs), "central is lbfgs.*by name"),
        ((None, "forward"), "central is 'forward'"),
        ((0.1, None), "central is None"),
        (("lbfgs",), "lam must be a number"),
        ((0.1, True, "lbfgs"), "maximizer is 'lbfgs'"),
    ],
)
def test_settings_of_a_finite_difference_in_the_wrong_place(arguments, text):
    with pytest.raises(TypeError, match=text):
        idm.FiniteDifference(*arguments)


# Questions and wrappers without a call

UNCALLED = {
    "average_comparison": 'average_comparison("x")',
    "average_slope": 'average_slope("x")',
    "average_prediction": "average_prediction()",
    "predictions": "predictions(data)",
    "Average": "Average(h)",
    "Statistic": "Statistic(units, function)",
    "Replicated": "Replicated(psi)",
    "Smoothed": "Smoothed(psi)",
}
AROUND = {
    "alone": lambda psi: psi,
    "list": lambda psi: [psi],
    "two": lambda psi: [lambda th: th[0], psi],
    "dict": lambda psi: {"effect": psi},
    "Smoothed": idm.Smoothed,
}
ASKED = {
    "infer": lambda psi: idm.infer(model(), psi),
    "infer, Simulation": lambda psi: idm.infer(model(), psi, idm.Simulation(50)),
    "profile": lambda psi: idm.profile(model(), psi),
    "compare": lambda psi: idm.compare(model(), psi),
    "polish": lambda psi: idm.polish(model(), psi),
}
FITTED_AGAIN = {
    "bootstrap": lambda psi: idm.bootstrap(np.mean, Y, psi, replicates=5),
    "refit": lambda psi: idm.refit(lambda bonus: np.array([Y.mean()]), psi),
}


@pytest.mark.parametrize("name", UNCALLED)
@pytest.mark.parametrize(
    ("entry", "around"),
    [
        (entry, around)
        for entry in [*ASKED, *FITTED_AGAIN]
        for around in AROUND
        if entry in ASKED or around != "Smoothed"  # the others take no Smoothed at all
    ],
)
def test_a_question_or_wrapper_that_is_not_called(entry, around, name):
    with pytest.raises(TypeError, match=f"psi is `{name}` itself") as caught:
        (ASKED | FITTED_AGAIN)[entry](AROUND[around](getattr(idm, name)))
    assert f"write `{UNCALLED[name]}`" in str(caught.value)


@pytest.mark.parametrize(
    "psi",
    [
        lambda th: idm.average_slope("x"),
        lambda th: idm.average_comparison("x", values=(0, 1)),
        lambda th: idm.Smoothed(lambda th: th[0]),
        lambda th: idm.Average(lambda th: th[0] * Y),
    ],
)
@pytest.mark.parametrize("entry", [*ASKED, "bootstrap"])
def test_a_function_that_returns_a_question(entry, psi):
    with pytest.raises(idm.EvaluationError, match="psi is a function that returns a "):
        (ASKED | FITTED_AGAIN)[entry](psi)

"""Questions in one line equal the same psi written out, closed forms and statsmodels' own."""

import copy
import pickle

import numpy as np
import pytest

import implicit_delta as idm

pd = pytest.importorskip("pandas")
sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")
ordinal = pytest.importorskip("statsmodels.miscmodels.ordinal_model")

RNG = np.random.default_rng(17)
N = 240
DATA = pd.DataFrame(
    {
        "x": RNG.normal(size=N),
        "z": RNG.gamma(2.0, size=N) + 0.2,
        "treated": (RNG.random(N) < 0.4) * 1,
        "group": RNG.choice(list("abc"), N),
        "code": RNG.integers(1, 4, N),
        "flag": RNG.random(N) < 0.5,
        "years": RNG.random(N) + 0.5,
        "village": RNG.integers(0, 24, N),
    }
)
INDEX = 0.5 * DATA.x + 0.4 * DATA.treated + 0.3 * (DATA.group == "b") - 0.2 * DATA.flag
DATA["y"] = INDEX + RNG.normal(size=N)
DATA["won"] = (RNG.random(N) < 1 / (1 + np.exp(-INDEX))) * 1
DATA["count"] = RNG.poisson(DATA.years * np.exp(0.3 * INDEX))
DATA["amount"] = RNG.gamma(2.0, np.exp(0.3 * INDEX))
DATA["kind"] = np.digitize(INDEX + RNG.logistic(size=N), [-0.7, 0.8])
DATA["level"] = pd.Categorical.from_codes(DATA.kind, ["low", "mid", "high"], ordered=True)

RIGHT = "bs(x, df=4) * group + np.log(z) + C(code) + treated * z + flag + I(z ** 2)"
SHORT = "x + C(group) + treated + flag"


def glm(family, response, right=SHORT, **options):
    return smf.glm(f"{response} ~ {right}", DATA, family=family, **options).fit()


def offset():
    return np.log(DATA.years)


links = sm.families.links
MODELS = {
    "OLS": lambda: smf.ols(f"y ~ {RIGHT}", DATA).fit(),
    "WLS": lambda: smf.wls(f"y ~ {SHORT}", DATA, weights=DATA.years).fit(),
    "GLS": lambda: smf.gls(f"y ~ {SHORT}", DATA, sigma=DATA.years).fit(),
    "Logit": lambda: smf.logit(f"won ~ {RIGHT}", DATA).fit(disp=0),
    "Probit": lambda: smf.probit(f"won ~ {SHORT}", DATA).fit(disp=0),
    "Poisson": lambda: smf.poisson(f"count ~ {RIGHT}", DATA).fit(disp=0),
    "Poisson, exposure": lambda: smf.poisson(f"count ~ {SHORT}", DATA, exposure=DATA.years).fit(
        disp=0
    ),
    "GLM, offset": lambda: glm(sm.families.Poisson(), "count", offset=offset()),
    "GLM, gamma": lambda: glm(sm.families.Gamma(links.Log()), "amount"),
    "GLM, cloglog": lambda: glm(sm.families.Binomial(links.CLogLog()), "won"),
    "GLM, repeated": lambda: glm(sm.families.Poisson(), "count", freq_weights=DATA.code),
    "NB1": lambda: smf.negativebinomial(f"amount_ ~ {SHORT}", COUNTS, loglike_method="nb1").fit(
        disp=0, maxiter=300
    ),
    "NB2": lambda: smf.negativebinomial(f"amount_ ~ {SHORT}", COUNTS).fit(disp=0, maxiter=300),
    "GP": lambda: sm.GeneralizedPoisson.from_formula(f"amount_ ~ {SHORT}", COUNTS).fit(
        disp=0, maxiter=300
    ),
}
COUNTS = DATA.assign(amount_=np.floor(2 * DATA.amount).astype(int))
OFFSETS = {"Poisson, exposure": np.log(DATA.years), "GLM, offset": np.log(DATA.years)}
FITTED = {}


def fitted(name):
    if name not in FITTED:
        results = MODELS[name]()
        FITTED[name] = results, idm.from_statsmodels(results)
    return FITTED[name]


def predicted(results, frame, name=""):
    """Predictions written out: the design through the formula, statsmodels' own `predict`."""
    import patsy

    spec = results.model.data.model_spec
    X = np.asarray(patsy.dmatrix(spec, frame))
    options = {"offset": OFFSETS[name]} if name in OFFSETS else {}
    return lambda params: results.model.predict(params, X, **options)


def same(one, other, rtol=1e-9):
    np.testing.assert_allclose(one.value, other.value, rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(one.standard_error, other.standard_error, rtol=rtol)


HOWS = {
    "difference": lambda a, b: a - b,
    "ratio": lambda a, b: a / b,
    "lnratio": lambda a, b: np.log(a / b),
    "oddsratio": lambda a, b: a / (1 - a) / (b / (1 - b)),
}
PAIRS = {
    "numbers": ("x", (0, 1), 0.0, 1.0),
    "0/1": ("treated", (0, 1), 0, 1),
    "labels": ("group", ("a", "c"), "a", "c"),
    "truth": ("flag", (0, 1), False, True),
    "step": ("x", 0.1, DATA.x, DATA.x + 0.1),
    "sd": ("x", "sd", DATA.x.mean() - DATA.x.std() / 2, DATA.x.mean() + DATA.x.std() / 2),
    "2sd": ("x", "2sd", DATA.x.mean() - DATA.x.std(), DATA.x.mean() + DATA.x.std()),
    "iqr": ("x", "iqr", DATA.x.quantile(0.25), DATA.x.quantile(0.75)),
    "minmax": ("x", "minmax", DATA.x.min(), DATA.x.max()),
}


def weights_of(name):
    return DATA.code.to_numpy() if name == "GLM, repeated" else np.ones(N)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("pair", ["numbers", "labels"])
def test_every_model_gives_the_number_of_psi_written_out(name, pair):
    results, model = fitted(name)
    variable, values, low, high = PAIRS[pair]
    ends = [predicted(results, DATA.assign(**{variable: end}), name) for end in (high, low)]
    w = weights_of(name)

    def psi(params):
        return (w * (ends[0](params) - ends[1](params))).sum() / w.sum()

    same(idm.infer(model, idm.average_comparison(variable, values)), idm.infer(model, psi))


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("how", HOWS)
def test_values_and_contrasts_are_of_the_averages(pair, how):
    results, model = fitted("Probit")
    variable, values, low, high = PAIRS[pair]
    if pair == "step":
        values, high = 0.5, DATA.x + 0.5
    ends = [predicted(results, DATA.assign(**{variable: end})) for end in (high, low)]

    def psi(params):
        return HOWS[how](ends[0](params).mean(), ends[1](params).mean())

    same(idm.infer(model, idm.average_comparison(variable, values, how)), idm.infer(model, psi))


@pytest.mark.parametrize(
    "errors", [{"robust": "HC1"}, {"clusters": DATA.village}, {"robust": True}]
)
def test_robust_errors_are_those_of_psi_written_out(errors):
    results, model = fitted("Logit")
    ends = [predicted(results, DATA.assign(treated=end)) for end in (1, 0)]
    asked = idm.infer(model, idm.average_comparison("treated"), **errors)
    same(asked, idm.infer(model, lambda p: (ends[0](p) - ends[1](p)).mean(), **errors))


@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
@pytest.mark.parametrize("name", ["Logit", "OLS", "GLM, repeated", "Poisson"])
@pytest.mark.parametrize("errors", [{}, {"clusters": DATA.village}])
def test_population_equals_the_average_over_training_rows(name, errors):
    results, model = fitted(name)
    ends = [predicted(results, DATA.assign(x=end), name) for end in (1.0, 0.0)]
    average = idm.Average(lambda p: ends[0](p) - ends[1](p), sample="training")
    asked = idm.infer(model, idm.average_comparison("x", population=True), **errors)
    same(asked, idm.infer(model, average, **errors))
    assert asked.budget.keys() == idm.infer(model, average, **errors).budget.keys()


def test_population_of_groups_is_the_ratio_estimator():
    """The mean of an indicator model: the closed form of a mean over a group of random size."""
    frame = pd.DataFrame({"y": DATA.y, "x": DATA.x, "group": DATA.group})
    results = smf.ols("y ~ x", frame).fit()
    model = idm.from_statsmodels(results)
    est = idm.infer(model, idm.average_prediction(by="group", population=True), robust="HC0")
    X, n = results.model.exog, N
    fit, bread = results.fittedvalues.to_numpy(), np.linalg.inv(X.T @ X)
    for k, label in enumerate("abc"):
        rows = (frame.group == label).to_numpy()
        mean = fit[rows].mean()
        own = rows / rows.mean() * (fit - mean) / n
        through = X @ bread @ X[rows].mean(axis=0) * results.resid.to_numpy()
        assert np.isclose(est.value[k], mean, rtol=1e-12)
        assert np.isclose(est.standard_error[k], np.sqrt(np.sum((own + through) ** 2)), rtol=1e-9)


@pytest.mark.parametrize("how", ["ratio", "lnratio", "oddsratio"])
def test_population_of_a_ratio_is_the_delta_method_of_averages(how):
    results, model = fitted("Probit")
    ends = [predicted(results, DATA.assign(treated=end)) for end in (1, 0)]

    def pairs(params):
        return np.column_stack([end(params) for end in ends])

    both = idm.infer(model, idm.Average(pairs, sample="training"))
    asked = idm.infer(model, idm.average_comparison("treated", how=how, population=True))
    same(asked, both.apply(lambda v: HOWS[how](v[0], v[1])), 1e-6)


@pytest.mark.parametrize(
    ("by", "names", "label"),
    [
        ("group", ["group=a", "group=b", "group=c"], lambda d: d.group),
        ("code", ["code=1", "code=2", "code=3"], lambda d: d.code),
        (["flag"], ["flag=False", "flag=True"], lambda d: d.flag),
        (DATA.code.to_numpy() + 7, ["8", "9", "10"], lambda d: d.code + 7),
        (
            DATA.group.sample(frac=1, random_state=0),
            ["group=a", "group=b", "group=c"],
            lambda d: d.group,
        ),
        (DATA.group.rename(None), list("abc"), lambda d: d.group),
    ],
)
def test_groups_are_averages_over_their_rows_in_sorted_order(by, names, label):
    _, model = fitted("Logit")
    est = idm.infer(model, idm.average_comparison("treated", by=by))
    assert list(est.names) == names
    labels = label(DATA)
    for k, one in enumerate(sorted(labels.unique())):
        rows = DATA[labels == one]
        alone = idm.infer(model, idm.average_comparison("treated", data=rows))
        assert np.isclose(est.value[k], alone.value, rtol=1e-12)
        assert np.isclose(est.standard_error[k], alone.standard_error, rtol=1e-9)


def test_two_columns_group_by_their_combinations():
    _, model = fitted("Logit")
    est = idm.infer(model, idm.average_prediction(by=["flag", "group"]))
    assert est.names[:2] == ("flag=False, group=a", "flag=False, group=b")
    assert len(est.names) == 6


@pytest.mark.parametrize("name", ["Logit", "Probit", "Poisson"])
def test_slopes_are_those_of_get_margeff(name):
    results = {
        "Logit": smf.logit("won ~ x + z + treated", DATA),
        "Probit": smf.probit("won ~ x + z + treated", DATA),
        "Poisson": smf.poisson("count ~ x + z + treated", DATA),
    }[name].fit(disp=0)
    model = idm.from_statsmodels(results)
    ready = results.get_margeff(at="overall")
    for k, variable in enumerate(["x", "z", "treated"]):
        est = idm.infer(model, idm.average_slope(variable))
        assert np.isclose(est.value, ready.margeff[k], rtol=1e-9)
        assert np.isclose(est.standard_error, ready.margeff_se[k], rtol=1e-9)
    dummies = results.get_margeff(at="overall", dummy=True)
    est = idm.infer(model, idm.average_comparison("treated"))
    assert np.isclose(est.value, dummies.margeff[2], rtol=1e-9)
    assert np.isclose(est.standard_error, dummies.margeff_se[2], rtol=1e-9)


def test_slopes_of_training_rows_keep_their_exposure():
    """The closed form exp(X b) t b_x; `get_margeff` leaves out the exposure t."""
    results = smf.poisson("count ~ x + z", DATA, exposure=DATA.years).fit(disp=0)
    X, b, mean = results.model.exog, results.params.to_numpy(), np.asarray(results.predict())
    g = b[1] * mean @ X / N + mean.mean() * np.eye(3)[1]
    est = idm.infer(idm.from_statsmodels(results), idm.average_slope("x"))
    assert np.isclose(est.value, mean.mean() * b[1], rtol=1e-9)
    assert np.isclose(est.standard_error, np.sqrt(g @ results.cov_params() @ g), rtol=1e-9)


SLOPES = {
    "square": ("y ~ z + I(z ** 2)", lambda z: np.column_stack([0 * z, 0 * z + 1, 2 * z])),
    "log": ("y ~ np.log(z)", lambda z: np.column_stack([0 * z, 1 / z])),
    "root": ("y ~ np.sqrt(z)", lambda z: np.column_stack([0 * z, 0.5 / np.sqrt(z)])),
    "exp": ("y ~ np.exp(-z)", lambda z: np.column_stack([0 * z, -np.exp(-z)])),
    "cube": ("y ~ I(z ** 3)", lambda z: np.column_stack([0 * z, 3 * z**2])),
}


@pytest.mark.parametrize("case", SLOPES)
def test_slopes_through_the_formula_are_exact(case):
    formula, derivative = SLOPES[case]
    frame = DATA.assign(z=np.append(DATA.z[:-2], [1e-3, 40.0]))  # near zero, and far away
    results = smf.ols(formula, frame).fit()
    g = derivative(frame.z.to_numpy()).mean(axis=0)
    est = idm.infer(idm.from_statsmodels(results), idm.average_slope("z"))
    assert np.isclose(est.value, g @ results.params, rtol=1e-7)
    assert np.isclose(est.standard_error, np.sqrt(g @ results.cov_params() @ g), rtol=1e-7)


def test_slopes_of_a_spline_stay_inside_of_its_range():
    """The derivative of a cubic spline by scipy, at the ends too, where patsy takes nothing."""
    from scipy.interpolate import BSpline

    results = smf.ols("y ~ bs(x, df=5)", DATA).fit()
    model = idm.from_statsmodels(results)
    inner = np.quantile(DATA.x, [1 / 3, 2 / 3])
    knots = np.r_[[DATA.x.min()] * 4, inner, [DATA.x.max()] * 4]
    basis = [BSpline(knots, np.eye(6)[j], 3).derivative()(DATA.x) for j in range(1, 6)]
    g = np.r_[0.0, np.mean(basis, axis=1)]
    est = idm.infer(model, idm.average_slope("x"))
    assert np.isclose(est.value, g @ results.params, rtol=1e-6)
    assert np.isclose(est.standard_error, np.sqrt(g @ results.cov_params() @ g), rtol=1e-6)
    ends = DATA[DATA.x.isin([DATA.x.min(), DATA.x.max()])]
    g = np.r_[0.0, np.mean([BSpline(knots, e, 3).derivative()(ends.x) for e in np.eye(6)[1:]], 1)]
    assert np.isclose(idm.infer(model, idm.average_slope("x", ends)).value, g @ results.params)


@pytest.mark.parametrize("kind", ["frame", "array", "names"])
def test_arrays_go_by_name_and_by_position(kind):
    X = sm.add_constant(DATA[["x", "treated"]])
    results = sm.Logit(DATA.won, X if kind == "frame" else X.to_numpy()).fit(disp=0)
    formula = smf.logit("won ~ x + treated", DATA).fit(disp=0)
    variable = {"frame": "treated", "array": 2, "names": "x2"}[kind]
    for ask in (idm.average_comparison, idm.average_slope):
        one = idm.infer(idm.from_statsmodels(results), ask(variable))
        same(one, idm.infer(idm.from_statsmodels(formula), ask("treated")), 1e-7)
    rows = idm.infer(idm.from_statsmodels(results), idm.predictions(X.to_numpy()[:3]))
    np.testing.assert_allclose(rows.value, results.predict(X)[:3], rtol=1e-12)


def test_predictions_are_those_of_get_prediction():
    results, model = fitted("OLS")
    new = idm.datagrid(model, x=[-0.5, 0.5], group=["a", "b"], code=2)
    est = idm.infer(model, idm.predictions(new))
    ready = results.get_prediction(new).summary_frame()
    np.testing.assert_allclose(est.value, ready["mean"], rtol=1e-10)
    np.testing.assert_allclose(est.standard_error, ready["mean_se"], rtol=1e-9)
    assert est.names[:2] == ("x=-0.5, group=a, code=2", "x=-0.5, group=b, code=2")


@pytest.mark.parametrize("kind", ["MNLogit", "OrderedModel, logit", "OrderedModel, probit"])
@pytest.mark.parametrize("how", ["difference", "ratio"])
def test_models_with_several_outcomes(kind, how):
    if kind == "MNLogit":
        results = smf.mnlogit("kind ~ x + C(group)", DATA).fit(disp=0)
        labels = ["0", "1", "2"]
    else:
        distribution = kind.partition(", ")[2]
        results = ordinal.OrderedModel.from_formula(
            "level ~ x + C(group)", DATA, distr=distribution
        ).fit(disp=0, method="bfgs", gtol=1e-9)
        labels = ["low", "mid", "high"]
    model = idm.from_statsmodels(results)
    import patsy

    spec = results.model.data.model_spec
    ends = [np.asarray(patsy.dmatrix(spec, DATA.assign(x=end))) for end in (1.0, 0.0)]

    def psi(params):
        means = [results.model.predict(np.asarray(params), X).mean(axis=0) for X in ends]
        return HOWS[how](*means)

    est = idm.infer(model, idm.average_comparison("x", how=how))
    assert list(est.names) == labels
    same(est, idm.infer(model, psi), 1e-6)  # the other one is differentiated numerically
    one = idm.infer(model, idm.average_comparison("x", how=how, outcome=labels[1], by="group"))
    assert len(one.names) == 3
    rows = DATA[DATA.group == "b"]
    alone = idm.infer(model, idm.average_comparison("x", how=how, outcome=labels[1], data=rows))
    assert np.isclose(one.value[1], alone.value, rtol=1e-12)
    assert np.isclose(one.standard_error[1], alone.standard_error, rtol=1e-9)


@pytest.mark.parametrize("kind", ["ZeroInflatedPoisson", "HurdleCountModel"])
def test_models_without_a_linear_predictor_take_numerical_derivatives(kind):
    counts = COUNTS.amount_ * (RNG.random(N) < 0.7)
    X = sm.add_constant(DATA[["x", "z"]])
    if kind == "HurdleCountModel":
        from statsmodels.discrete.truncated_model import HurdleCountModel as Model
    else:
        Model = sm.ZeroInflatedPoisson
    results = Model(counts, X).fit(disp=0, maxiter=500)
    model = idm.from_statsmodels(results)

    def psi(params):
        ends = [results.model.predict(params, X.assign(x=end)) for end in (1.0, 0.0)]
        return (np.asarray(ends[0]) - np.asarray(ends[1])).mean()

    same(idm.infer(model, idm.average_comparison("x")), idm.infer(model, psi), 1e-6)


def test_rows_that_the_fit_dropped_stay_dropped():
    frame = DATA.assign(z=DATA.z.where(DATA.index % 7 != 3), group=DATA.group)
    results = smf.logit("won ~ x + np.log(z)", frame).fit(disp=0)
    complete = smf.logit("won ~ x + np.log(z)", frame.dropna()).fit(disp=0)
    one, other = map(idm.from_statsmodels, (results, complete))
    assert one.n < N
    for ask in (
        idm.average_comparison("x", by="group"),
        idm.average_slope("z", by=frame.group),
        idm.average_prediction(population=True),
    ):
        rows = frame.group.dropna() if ask.by is frame.group else None
        twin = ask if rows is None else idm.average_slope("z", by=rows[one.rows])
        same(idm.infer(one, ask), idm.infer(other, twin), 1e-7)


def test_formulas_of_formulaic():
    formula = pytest.importorskip("statsmodels.formula")
    pytest.importorskip("formulaic")
    if not hasattr(formula, "options"):
        pytest.skip("statsmodels knows patsy alone")
    before = formula.options.formula_engine
    text = "won ~ bs(x, df=4) + C(group) + z * treated + flag"
    asked = [
        idm.average_comparison("treated", by="group"),
        idm.average_comparison("group", ("a", "c")),
        idm.average_comparison("flag"),
        idm.average_slope("z"),
        idm.average_slope("x"),
    ]
    found = {}
    try:
        for engine in ("patsy", "formulaic"):
            formula.options.formula_engine = engine
            model = idm.from_statsmodels(smf.logit(text, DATA).fit(disp=0))
            found[engine] = [idm.infer(model, one) for one in asked]
            with pytest.raises(ValueError, match="label"):
                idm.infer(model, idm.predictions(DATA.head(2).assign(group="q")))
    finally:
        formula.options.formula_engine = before
    for one, other in zip(found["patsy"], found["formulaic"], strict=True):
        same(one, other, 1e-5)


def test_constraints_of_the_fit_hold():
    results = smf.glm(
        "count ~ x + z + treated", DATA, family=sm.families.Poisson()
    ).fit_constrained("x = 0.2")
    model = idm.from_statsmodels(results)
    ends = [predicted(results, DATA.assign(treated=end)) for end in (1, 0)]
    asked = idm.infer(model, idm.average_comparison("treated"))
    same(asked, idm.infer(model, lambda p: (ends[0](p) - ends[1](p)).mean()))


@pytest.mark.parametrize(
    "method",
    [idm.Bootstrap(40, rng=1), idm.Simulation(400, rng=1), idm.FiniteDifference()],
    ids=lambda method: type(method).__name__,
)
def test_methods_answer_questions_like_psi_written_out(method):
    results, model = fitted("Probit")
    ends = [predicted(results, DATA.assign(treated=end)) for end in (1, 0)]
    asked = idm.infer(model, idm.average_comparison("treated"), method)
    same(asked, idm.infer(model, lambda p: (ends[0](p) - ends[1](p)).mean(), method), 1e-6)


def test_bootstrap_of_a_population_weighs_the_rows():
    results, model = fitted("Probit")
    ends = [predicted(results, DATA.assign(treated=end)) for end in (1, 0)]
    average = idm.Average(lambda p: ends[0](p) - ends[1](p), sample="training")
    asked = idm.average_comparison("treated", population=True)
    method = idm.Bootstrap(30, rng=2)
    same(idm.infer(model, asked, method), idm.infer(model, average, method), 1e-6)


def test_profile_answers_a_question():
    results, model = fitted("Probit")
    ends = [predicted(results, DATA.assign(treated=end)) for end in (1, 0)]
    one = idm.profile(model, idm.average_comparison("treated")).interval
    other = idm.profile(model, lambda p: (ends[0](p) - ends[1](p)).mean()).interval
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_question_is_a_function_of_results():
    results, model = fitted("Poisson, exposure")
    for ask in (idm.average_comparison("x"), idm.average_slope("x", by="group")):
        np.testing.assert_allclose(ask(results), idm.infer(model, ask).value, rtol=1e-12)


def test_few_predictions_and_designs(monkeypatch):
    """A pass per scenario and evaluation, and designs of the changed columns: never 2 d."""
    from implicit_delta.models.glm.prediction import LinearPrediction
    from implicit_delta.models.statsmodels.design import ByPatsy

    calls = {"value": 0, "slope": 0, "_built": 0}
    rows = []

    def counted(kind, name):
        plain = getattr(kind, name)

        def call(self, *args):
            calls[name] += 1
            if name == "_built":
                rows.append(len(args[1]))
            return plain(self, *args)

        monkeypatch.setattr(kind, name, call)

    results, _ = fitted("Logit")
    model = idm.from_statsmodels(results)
    counted(LinearPrediction, "value")
    counted(LinearPrediction, "slope")
    counted(ByPatsy, "_built")
    idm.infer(model, idm.average_comparison("x"))
    assert model.d > 20
    assert calls["value"] <= 10
    assert calls["slope"] <= 4
    assert rows.count(N) <= 3  # as it was, and the two scenarios
    assert sum(rows) <= 3 * N + 10  # and a few rows, to see that they are made one by one


def test_the_second_order_bias_is_that_of_psi_written_out():
    results, model = fitted("Poisson")
    ends = [predicted(results, DATA.assign(treated=end)) for end in (1, 0)]
    for how in ("difference", "ratio"):
        asked = idm.infer(model, idm.average_comparison("treated", how=how))
        psi = idm.infer(model, lambda p, f=HOWS[how]: f(ends[0](p).mean(), ends[1](p).mean()))
        assert np.isclose(asked.diagnostics.bias, psi.diagnostics.bias, rtol=0.02)


def test_datagrid_has_a_row_per_combination():
    _, model = fitted("Logit")
    grid = idm.datagrid(model, x=[0, 1], group=["a", "b", "c"])
    assert len(grid) == 6
    assert list(grid.columns) == ["x", "z", "treated", "group", "code", "flag"]
    assert np.allclose(grid.z, DATA.z.mean())
    assert set(grid.flag) == {DATA.flag.mode()[0]}
    assert list(grid.group) == list("abcabc")


FORMULAS = {
    "formula": lambda: smf.logit("won ~ bs(x, df=4) * group", DATA).fit(disp=0),
    "frame": lambda: sm.Logit(DATA.won, sm.add_constant(DATA[["x", "z"]])).fit(disp=0),
    "array": lambda: sm.Logit(
        DATA.won.to_numpy(), sm.add_constant(DATA[["x", "z"]].to_numpy())
    ).fit(disp=0),
}


@pytest.mark.parametrize("kind", FORMULAS)
def test_parameters_predict_inside_psi(kind):
    results = FORMULAS[kind]()
    model = idm.from_statsmodels(results)
    new = DATA if kind == "formula" else sm.add_constant(DATA[["x", "z"]])
    high, low = new.assign(x=1.0), new.assign(x=0.0)
    if kind == "array":
        high, low = high.to_numpy(), low.to_numpy()
    seen = []

    def psi(params):
        seen.append(type(params).__name__)
        return (params.predict(high) - params.predict(low)).mean()

    variable = 1 if kind == "array" else "x"
    same(idm.infer(model, psi), idm.infer(model, idm.average_comparison(variable)))
    assert any(name.startswith("Traced") for name in seen)
    np.testing.assert_allclose(
        model.evaluate(lambda params: params.predict(), model.theta), results.predict(), rtol=1e-12
    )


def test_a_table_of_parameters_predicts():
    results = smf.mnlogit("kind ~ x", DATA).fit(disp=0)
    model = idm.from_statsmodels(results)
    new = DATA.assign(x=1.0)
    psi = idm.infer(model, lambda params: params.predict(new)[:, 1].mean())
    same(psi, idm.infer(model, idm.average_prediction(new, outcome=1)))


@pytest.mark.parametrize("kind", FORMULAS)
def test_parameters_are_ordinary_otherwise(kind):
    results = FORMULAS[kind]()
    model = idm.from_statsmodels(results)
    params = model.evaluate(lambda params: params, model.theta)
    plain = type(results.params)
    for other in (params + 1, params * params, params[:2], np.exp(params), -params):
        assert type(other) is plain
    np.testing.assert_array_equal(np.asarray(params.copy()), np.asarray(results.params))
    for twin in (pickle.loads(pickle.dumps(params)), copy.deepcopy(params), copy.copy(params)):
        np.testing.assert_array_equal(np.asarray(twin), np.asarray(results.params))
    again = pickle.loads(pickle.dumps(model))
    same(idm.infer(again, idm.parameters), idm.infer(model, idm.parameters), 1e-12)


@pytest.fixture(scope="module")
def exposed():
    results = smf.poisson("count ~ treated + x", DATA, exposure=DATA.years).fit(disp=0)
    return results, idm.from_statsmodels(results)


EXPOSURES = {
    "exposure": lambda p, d: p.predict(d, exposure=d.years),
    "an array": lambda p, d: p.predict(d, exposure=d.years.to_numpy()),
    "in another order": lambda p, d: p.predict(d, exposure=d.years[::-1]),
    "offset": lambda p, d: p.predict(d, offset=np.log(d.years)),
    "both": lambda p, d: p.predict(d, offset=np.log(d.years / 2), exposure=2),
    "offset in another order": lambda p, d: p.predict(d, offset=np.log(d.years)[::-1]),
}


@pytest.mark.parametrize("name", EXPOSURES)
def test_parameters_predict_with_an_exposure(exposed, name):
    _, model = exposed
    found = idm.infer(model, lambda p: EXPOSURES[name](p, DATA).mean())
    same(found, idm.infer(model, idm.average_prediction()), 1e-8)


@pytest.mark.parametrize(
    ("name", "exposure", "text"),
    [
        ("Poisson", -1.0, "above 0"),
        ("Poisson", DATA.years.mask(DATA.index == 3), "above 0"),
        ("Poisson", DATA.years[:7], r"shape \(7,\) for 240 rows"),
        ("Logit", DATA.years, "logarithmic link"),
        ("GLM, cloglog", DATA.years, "logarithmic link"),
        ("OLS", 2.0, "logarithmic link"),
    ],
)
def test_exposures_that_do_not_fit_are_refused(name, exposure, text):
    _, model = fitted(name)
    with pytest.raises(ValueError, match=text):
        idm.infer(model, lambda p: p.predict(DATA, exposure=exposure).mean())


@pytest.mark.parametrize("method", [None, idm.Simulation(50, rng=0), idm.FiniteDifference()])
def test_rows_without_exposure_are_told_once(exposed, method):
    _, model = exposed
    for _ in range(2):  # once for each answer
        with pytest.warns(
            idm.ImplicitDeltaWarning, match=r"params.predict\(data, exposure"
        ) as told:
            found = idm.infer(model, lambda p: p.predict(DATA).mean(), method)
        assert sum("exposure of 1" in str(w.message) for w in told) == 1
        assert any("exposure of 1" in text for text in found.diagnostics.warnings)


GRIDS = {
    "two values": ({"x": [0, 1], "group": ["a", "b"]}, lambda g: g),
    "some rows": ({"x": [0, 1, 2]}, lambda g: g[g.x > 0]),
    "other values": ({"x": [0, 1]}, lambda g: g.assign(x=g.x + 0.5)),
    "in another order": ({"x": [0, 1], "flag": [True, False]}, lambda g: g[::-1]),
}


@pytest.mark.parametrize("name", GRIDS)
def test_rows_of_a_grid_are_named_by_their_values(name):
    results, model = fitted("Probit")
    values, change = GRIDS[name]
    grid = change(idm.datagrid(model, **values))
    found = idm.infer(model, idm.predictions(grid))
    rows = (", ".join(f"{key}={row[key]}" for key in values) for _, row in grid.iterrows())
    assert [n.replace(".0", "") for n in found.names] == [row.replace(".0", "") for row in rows]
    np.testing.assert_allclose(found.value, results.predict(grid), rtol=1e-10)


def test_a_grid_with_an_index_of_its_own_has_its_names():
    _, model = fitted("Probit")
    grid = idm.datagrid(model, x=[0, 1]).set_axis(["low", "high"], axis=0)
    assert idm.infer(model, idm.predictions(grid)).names == ("low", "high")


def test_a_grid_has_the_columns_of_the_formula_and_no_half_treated_row():
    _, model = fitted("Probit")
    grid = idm.datagrid(model, x=[0, 1], village=3)
    assert list(grid.columns) == ["x", "treated", "group", "flag", "village"]
    assert set(grid.treated) == {DATA.treated.mode()[0]}
    frame = idm.datagrid(DATA[["treated", "x"]], x=1)
    assert frame.treated[0] == DATA.treated.mode()[0]


LEAVING = {
    "a step": idm.average_comparison("x", values=10),
    "a pair": idm.average_comparison("x", values=(0, 50)),
    "rows": idm.predictions(DATA.assign(x=99.0)),
    "an average": idm.average_prediction(DATA.assign(x=-99.0)),
}


@pytest.mark.parametrize("name", LEAVING)
def test_what_leaves_a_spline_is_told_its_range(name):
    _, model = fitted("Logit")
    with pytest.raises(ValueError, match=r"'x' leaves the range of a spline.*values=") as told:
        idm.infer(model, LEAVING[name])
    text = str(told.value)
    assert "Patches" not in text
    assert f"{DATA.x.min():.6g} to {DATA.x.max():.6g}" in text
    pair = tuple(map(float, text.split("values=(")[1].split(")")[0].split(",")))
    for values in (pair, "iqr"):  # the advice works
        assert np.isfinite(idm.infer(model, idm.average_comparison("x", values=values)).value)


def test_a_kink_is_told_without_a_formula_and_with_a_line_that_works():
    step = smf.logit("won ~ np.maximum(x, 0.1) + treated", DATA).fit(disp=0)
    model = idm.from_statsmodels(step)
    jump = smf.ols("y ~ I((x > 0.1) * 1.0) + treated", DATA.assign(x=DATA.x.round(1))).fit()
    with pytest.raises(
        idm.EvaluationError, match=r"ReLU.*average_comparison\('x', values="
    ) as told:
        idm.infer(idm.from_statsmodels(jump), idm.average_slope("x"))
    assert "formula" not in str(told.value)
    for one in (model, idm.from_statsmodels(jump)):
        assert idm.infer(one, idm.average_comparison("x", values="iqr")).standard_error > 0

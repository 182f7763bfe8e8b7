"""Questions that have no answer are refused with a line that helps; doubtful ones warn."""

import pickle

import numpy as np
import pytest

import implicit_delta as idm

pd = pytest.importorskip("pandas")
sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")

RNG = np.random.default_rng(5)
N = 150
DATA = pd.DataFrame(
    {
        "income": RNG.normal(size=N),
        "dose": RNG.gamma(2.0, size=N) + 0.1,
        "treated": (RNG.random(N) < 0.5) * 1,
        "group": RNG.choice(list("abc"), N),
        "code": RNG.integers(1, 4, N),
        "flag": RNG.random(N) < 0.5,
        "unused": RNG.normal(size=N),
        "one": np.ones(N),
        "whole": RNG.integers(0, 9, N),
    }
)
DATA["kind"] = pd.Categorical(DATA.group)
INDEX = 0.5 * DATA.income + 0.4 * DATA.treated
DATA["y"] = INDEX + RNG.normal(size=N)
DATA["won"] = (RNG.random(N) < 1 / (1 + np.exp(-INDEX))) * 1
DATA["count"] = RNG.poisson(np.exp(0.3 * INDEX + 0.2))
RIGHT = "income + bs(dose, df=4) + treated + C(code) + flag + kind"
REFUSALS = (idm.ImplicitDeltaError, ValueError, TypeError)
BROKEN = DATA.assign(income=DATA.income.where(DATA.index != 3))
FITS = {}


def fit(name):
    if name not in FITS:
        FITS[name] = BUILT[name]()
    return FITS[name]


def array():
    X = sm.add_constant(DATA[["income", "treated"]].to_numpy())
    return sm.Logit(DATA.won.to_numpy(), X).fit(disp=0)


BUILT = {
    "logit": lambda: smf.logit(f"won ~ {RIGHT}", DATA).fit(disp=0),
    "ols": lambda: smf.ols("y ~ income + treated", DATA).fit(),
    "poisson": lambda: smf.poisson("count ~ income", DATA).fit(disp=0),
    "exposure": lambda: smf.poisson("count ~ income", DATA, exposure=DATA.flag + 1.0).fit(disp=0),
    "offset": lambda: smf.glm(
        "count ~ income", DATA, family=sm.families.Poisson(), offset=DATA.income
    ).fit(),
    "array": array,
    "frame": lambda: sm.Logit(DATA.won, sm.add_constant(DATA[["income", "treated"]])).fit(disp=0),
    "jump": lambda: smf.ols("y ~ I((whole >= 5) * 1.0) + income", DATA).fit(),
    "constant": lambda: smf.ols("y ~ 0 + one + income", DATA).fit(),
    "centered": lambda: smf.logit("won ~ I(income - income.mean()) + dose", DATA).fit(disp=0),
    "ranked": lambda: smf.ols("y ~ income.rank() + dose", DATA).fit(),
    "mixed": lambda: smf.mixedlm("y ~ income", DATA, groups=DATA.whole).fit(reml=False),
}

comparison, prediction, slope = (
    idm.average_comparison,
    idm.average_prediction,
    idm.average_slope,
)
# name: model, question (made late: it may refuse by itself), part of the message
ATTACKS = {
    "a name with a typo": ("logit", lambda: comparison("incom"), "'income'"),
    "a slope of a typo": ("logit", lambda: slope("Income"), "'income'"),
    "a number that is no position": ("logit", lambda: comparison(77), "77"),
    "not in the formula": ("logit", lambda: comparison("unused"), "not in the formula"),
    "a slope of what is not there": ("logit", lambda: slope("unused"), "not in the formula"),
    "the response": ("logit", lambda: comparison("won"), "not in the formula"),
    "a function of the formula": ("logit", lambda: comparison("bs"), "'bs'"),
    "a column of a dummy": ("logit", lambda: comparison("flag[T.True]"), "'flag'"),
    "an array's wrong name": ("array", lambda: comparison("income"), "'x1'"),
    "an array's wrong position": ("array", lambda: comparison(9), "9"),
    "how": ("logit", lambda: comparison("income", how="differences"), "'difference'"),
    "no how": ("logit", lambda: comparison("income", how=None), "None"),
    "values: a word": ("logit", lambda: comparison("income", "std"), "'sd'"),
    "values: three": ("logit", lambda: comparison("income", (0, 1, 2)), "pair"),
    "values: one": ("logit", lambda: comparison("income", (1,)), "pair"),
    "values: none": ("logit", lambda: comparison("income", None), "missing|values"),
    "values: NaN": ("logit", lambda: comparison("income", (0, np.nan)), "missing"),
    "values: infinite": ("logit", lambda: comparison("income", (0, np.inf)), "finite"),
    "values: an infinite step": ("logit", lambda: comparison("income", np.inf), "finite"),
    "values: twice": ("logit", lambda: comparison("income", (1, 1)), "itself"),
    "values: no step": ("logit", lambda: comparison("income", 0), "itself"),
    "values: true": ("logit", lambda: comparison("income", True), "True"),
    "values: a set": ("logit", lambda: comparison("income", {0, 1}), "pair"),
    "values: labels of a number": ("logit", lambda: comparison("income", ("a", "b")), "number"),
    "values: numbers of labels": ("logit", lambda: comparison("kind"), "values=\\('a', 'c'\\)"),
    "values: a spread of labels": ("logit", lambda: comparison("kind", "sd"), "'a', 'b', 'c'"),
    "values: a step of labels": ("logit", lambda: comparison("code", 1), "1, 2, 3"),
    "values: an unseen label": ("logit", lambda: comparison("kind", ("a", "z")), "'z'"),
    "values: an unseen code": ("logit", lambda: comparison("code", (0, 1)), "label"),
    "values: outside of a spline": ("logit", lambda: comparison("dose", (0, 1000)), "spline"),
    "a slope of labels": ("logit", lambda: slope("kind"), "average_comparison\\('kind'"),
    "a slope of truth values": ("logit", lambda: slope("flag"), "average_comparison\\('flag'"),
    "a slope of codes": ("logit", lambda: slope("code"), "average_comparison\\('code'"),
    "a slope across a jump": ("jump", lambda: slope("whole"), "jumps"),
    "a slope of a constant": ("constant", lambda: slope("one"), "same in all"),
    "a ratio of negative averages": (
        "ols",
        lambda: comparison("income", (-9, 9), how="ratio"),
        'how="difference"',
    ),
    "a log ratio of them": ("ols", lambda: comparison("income", (-9, 9), how="lnratio"), "zero"),
    "odds of a mean": ("ols", lambda: comparison("income", (1, 9), how="oddsratio"), "probability"),
    "odds of a count": ("poisson", lambda: comparison("income", (1, 3), how="oddsratio"), "odds"),
    "by: a typo": ("logit", lambda: prediction(by="grp"), "'group'"),
    "by: a typo among two": ("logit", lambda: prediction(by=["group", "flagg"]), "'flag'"),
    "by: another length": ("logit", lambda: prediction(by=np.arange(5)), "5 labels"),
    "by: missing labels": (
        "logit",
        lambda: prediction(by=DATA.group.where(DATA.index > 2)),
        "missing label",
    ),
    "by: NA": ("logit", lambda: prediction(by=[pd.NA] * N), "missing label"),
    "by: None": ("logit", lambda: prediction(by=np.array([None, "a"] * (N // 2))), "missing label"),
    "by: rows of elsewhere": (
        "logit",
        lambda: prediction(by=pd.Series("a", index=np.arange(N) + 50)),
        "lacks or repeats",
    ),
    "by: labels of all rows for some": (
        "logit",
        lambda: prediction(DATA.head(9), by=np.arange(N)),
        "150 labels",
    ),
    "a group of one row as a sample": (
        "logit",
        lambda: prediction(by=np.arange(N) == 4, population=True),
        "one row",
    ),
    "a population of given rows": (
        "logit",
        lambda: comparison("income", data=DATA, population=True),
        "Leave out one",
    ),
    "a population of groups": (
        "mixed",
        lambda: comparison("income", population=True),
        "groups of rows",
    ),
    "a population of predictions": (
        "logit",
        lambda: idm.predictions(DATA, population=True),
        "averages",
    ),
    "an outcome of one number": ("logit", lambda: prediction(outcome=1), "Leave it out"),
    "missing values": ("logit", lambda: prediction(BROKEN), "missing values in 'income'"),
    "missing values elsewhere": ("logit", lambda: comparison("flag", data=BROKEN), "dropna"),
    "missing labels": (
        "logit",
        lambda: idm.predictions(DATA.assign(kind=DATA.kind.where(DATA.index != 2))),
        "'kind'",
    ),
    "missing values of an array": (
        "array",
        lambda: idm.predictions([[1, np.nan, 0.0]]),
        "missing",
    ),
    "infinite values": ("logit", lambda: prediction(DATA.assign(income=np.inf)), "infinite"),
    "a column less": ("logit", lambda: idm.predictions(DATA[["income"]]), "lacks 'dose'"),
    "an unseen label": ("logit", lambda: idm.predictions(DATA.assign(kind="q")), "label"),
    "an unseen code": ("logit", lambda: prediction(DATA.assign(code=9)), "label"),
    "no rows": ("logit", lambda: prediction(DATA.head(0)), "no rows"),
    "one row as a Series": ("logit", lambda: idm.predictions(DATA.iloc[0]), "iloc"),
    "no table": ("logit", lambda: idm.predictions(3.0), "table"),
    "no constant": ("frame", lambda: idm.predictions(DATA[["income", "treated"]]), "add_constant"),
    "another number of columns": ("array", lambda: idm.predictions(np.ones((2, 2))), "2 columns"),
    "an average around it": ("logit", lambda: idm.Average(comparison("income")), "population=True"),
    "smoothed": ("logit", lambda: idm.Smoothed(comparison("income")), "smooth"),
    "replicated": ("logit", lambda: idm.Replicated(comparison("income")), "Replicated"),
    "a formula with a mean in it": ("centered", lambda: comparison("income"), "center\\(x\\)"),
    "its slope": ("centered", lambda: slope("income"), "center\\(x\\)"),
    "its predictions": ("centered", lambda: idm.predictions(DATA.head(3)), "center\\(x\\)"),
    "ranks in a formula": ("ranked", lambda: comparison("income"), "center\\(x\\)"),
    "a variable left out": ("logit", lambda: comparison(None), "None"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_answer_without_a_reason(attack):
    name, question, message = ATTACKS[attack]
    model = idm.from_statsmodels(fit(name))
    with pytest.raises(REFUSALS, match=message):
        idm.infer(model, question())


def sort(frame):
    order = np.argsort(frame.income.to_numpy())
    for name in frame.columns:
        frame[name] = frame[name].array[order]


def frames():
    return {
        "another column": lambda frame: frame.__setitem__("dose", 2 * frame.dose),
        "an interaction's column": lambda frame: frame.__setitem__("treated", 1 - frame.treated),
        "another order": sort,
        "a row more": lambda frame: frame.loc.__setitem__(N, frame.loc[0]),
    }


@pytest.mark.parametrize("change", frames())
@pytest.mark.parametrize("ask", ["comparison", "groups", "slope"])
def test_a_frame_that_was_changed_since_the_fit(change, ask):
    frame = DATA.copy()
    model = idm.from_statsmodels(smf.logit("won ~ dose * treated", frame).fit(disp=0))
    questions = {
        "comparison": comparison("dose"),
        "groups": prediction(by="group"),
        "slope": slope("dose"),
    }
    before = idm.infer(model, questions[ask])
    frames()[change](frame)
    with pytest.raises(idm.EvaluationError, match="changed since"):
        idm.infer(model, questions[ask])
    assert np.all(np.isfinite(before.value))


def test_a_frame_with_a_new_column_is_the_same():
    frame = DATA.copy()
    model = idm.from_statsmodels(smf.logit("won ~ dose * treated", frame).fit(disp=0))
    before = idm.infer(model, comparison("dose"))
    frame["new"] = np.arange(N) % 2
    frame["unused"] = 0.0
    assert idm.infer(model, comparison("dose")).value == before.value
    assert len(idm.infer(model, comparison("dose", by="new")).names) == 2


@pytest.mark.parametrize("name", ["exposure", "offset"])
def test_new_rows_have_no_offset_and_say_so(name):
    results = fit(name)
    model = idm.from_statsmodels(results)
    for rows in (DATA, DATA.copy()):  # the same object is no other answer
        with pytest.warns(idm.ImplicitDeltaWarning, match="exposure of 1"):
            est = idm.infer(model, prediction(rows))
    assert np.isclose(est.value, np.mean(results.predict(DATA)), rtol=1e-12)
    own = idm.infer(model, prediction())  # the training rows have theirs, without a warning
    assert np.isclose(own.value, np.mean(results.predict()), rtol=1e-12)


def test_parameters_predict_with_an_offset_of_new_rows():
    results = fit("exposure")
    model = idm.from_statsmodels(results)
    exposure = np.log(DATA.flag + 1.0)
    est = idm.infer(model, lambda p: p.predict(DATA, offset=exposure).mean())
    own = idm.infer(model, prediction())
    assert np.isclose(est.value, own.value, rtol=1e-12)
    assert np.isclose(est.standard_error, own.standard_error, rtol=1e-9)
    with pytest.warns(idm.ImplicitDeltaWarning, match="exposure of 1"):
        plain = idm.infer(model, lambda p: p.predict(DATA).mean())
    assert np.isclose(plain.value, np.mean(results.predict(DATA)), rtol=1e-12)


NO_PREDICTOR = {
    "from_loglik": lambda: idm.from_loglik(lambda m: -((DATA.y - m[0]) ** 2) / 2, start=[0.0]),
    "PHReg": lambda: idm.from_statsmodels(
        sm.PHReg(DATA.dose, DATA[["income"]], status=DATA.treated).fit()
    ),
    "ARIMA": lambda: idm.from_statsmodels(sm.tsa.ARIMA(DATA.y.to_numpy(), order=(1, 0, 0)).fit()),
}


@pytest.mark.parametrize("name", NO_PREDICTOR)
def test_models_without_predictions(name):
    model = NO_PREDICTOR[name]()
    for question in (comparison("income"), prediction(), slope("income")):
        with pytest.raises(idm.UnsupportedModelError, match="lambda"):
            idm.infer(model, question)
    with pytest.raises(idm.UnsupportedModelError, match="Give a frame"):
        idm.datagrid(model)


def test_inflation_with_regressors_of_its_own():
    X = sm.add_constant(DATA[["income", "dose"]])
    counts = DATA["count"] * (RNG.random(N) < 0.6)
    results = sm.ZeroInflatedPoisson(counts, X, exog_infl=X[["const", "dose"]]).fit(
        disp=0, maxiter=500
    )
    with pytest.raises(idm.UnsupportedModelError, match="exog_infl"):
        idm.infer(idm.from_statsmodels(results), comparison("dose"))


NEW = DATA.assign(income=1.0)
CONSTANTS = {
    "results": lambda r: lambda p: r.predict(NEW).mean(),
    "results beside the parameters": lambda r: lambda p: r.predict(NEW).mean() - p.iloc[0],
    "a difference of both": lambda r: lambda p: r.predict(NEW).mean() - p.predict().mean(),
    "the training rows": lambda r: lambda p: r.predict().mean() * p["income"],
    "get_prediction": lambda r: (
        lambda p: np.mean(r.get_prediction(NEW).predicted) + p["income"] ** 2
    ),
    "model.predict": lambda r: (
        lambda p: r.model.predict(r.params, r.model.exog).mean() + p["income"]
    ),
    "a method kept": lambda r: (lambda f: lambda p: f(NEW).mean() * p["income"])(r.predict),
}


@pytest.mark.parametrize("psi", CONSTANTS)
@pytest.mark.parametrize("name", ["logit", "ols", "offset"])
def test_predictions_of_the_fit_inside_psi(psi, name):
    results = fit(name)
    model = idm.from_statsmodels(results)
    with pytest.raises(idm.EvaluationError, match=r"params\.predict\(new\)"):
        idm.infer(model, CONSTANTS[psi](results))
    assert "predict" not in vars(results.model)  # whatever was watched is as before
    right = idm.infer(model, lambda p: results.model.predict(p, results.model.exog).mean())
    assert right.standard_error > 0


def test_an_error_of_psi_leaves_nothing_behind():
    results = fit("ols")

    def psi(params):
        if params["income"] != results.params["income"]:
            raise KeyError("mine")
        return params["income"]

    with pytest.raises(KeyError, match="mine"):
        idm.infer(idm.from_statsmodels(results), psi)
    assert "predict" not in vars(results.model)


def test_a_pickled_formula_reads_no_tables_and_says_so():
    model = pickle.loads(pickle.dumps(idm.from_statsmodels(fit("logit"))))
    with pytest.raises(idm.EvaluationError, match="from_statsmodels"):
        idm.infer(model, comparison("income"))


@pytest.mark.parametrize("name", ["typo", "frame"])
def test_grids_refuse_what_they_do_not_know(name):
    model = idm.from_statsmodels(fit("logit"))
    with pytest.raises(REFUSALS, match=r"'income'|frame"):
        idm.datagrid(model, incme=1) if name == "typo" else idm.datagrid(np.ones((2, 2)))


def test_a_grid_takes_codes_at_their_mode():
    model = idm.from_statsmodels(fit("logit"))
    grid = idm.datagrid(model, income=[0, 1])
    assert set(grid.code) == {DATA.code.mode()[0]}
    assert len(idm.infer(model, idm.predictions(grid)).names) == 2


# what is unusual, and right
ALLOWED = {
    "a text of numbers": lambda f: f.assign(code=f.code.astype(str)),
    "a label for each row": lambda f: f.set_index(pd.Index([f"row {i}" for i in f.index])),
    "the same label for all rows": lambda f: f.set_index(pd.Index(np.zeros(len(f), dtype=int))),
    "other columns missing": lambda f: f.assign(unused=np.nan),
    "nullable numbers": lambda f: f.assign(treated=f.treated.astype("Int64")),
    "small numbers": lambda f: f.assign(treated=f.treated.astype("int8")),
    "single precision": lambda f: f.assign(treated=f.treated.astype("float32")),
}


@pytest.mark.parametrize("change", ALLOWED)
def test_unusual_frames_have_the_same_answer(change):
    text = "won ~ income * treated + C(code)"
    usual = idm.infer(
        idm.from_statsmodels(smf.logit(text, DATA).fit(disp=0)), comparison("treated", by="group")
    )
    frame = ALLOWED[change](DATA.copy())
    model = idm.from_statsmodels(smf.logit(text, frame).fit(disp=0))
    for question in (
        comparison("treated", by="group"),
        comparison("treated", by="group", data=frame),
    ):
        est = idm.infer(model, question)
        np.testing.assert_allclose(est.value, usual.value, rtol=1e-6)
        np.testing.assert_allclose(est.standard_error, usual.standard_error, rtol=1e-5)


def test_transforms_that_remember_the_fit():
    plain = idm.from_statsmodels(smf.logit("won ~ income + dose", DATA).fit(disp=0))
    for text in ("center(income) + dose", "standardize(income) + dose"):
        model = idm.from_statsmodels(smf.logit(f"won ~ {text}", DATA).fit(disp=0))
        for question in (comparison("income"), slope("income"), prediction(DATA.head(3))):
            one, other = idm.infer(model, question), idm.infer(plain, question)
            assert np.isclose(one.value, other.value, rtol=1e-6)
            assert np.isclose(one.standard_error, other.standard_error, rtol=1e-6)


def test_a_number_that_the_formula_cuts_into_labels():
    results = smf.logit("won ~ C(dose > 2) + income", DATA).fit(disp=0)
    model = idm.from_statsmodels(results)
    est = idm.infer(model, comparison("dose", (1.0, 3.0)))
    ends = [np.mean(results.predict(DATA.assign(dose=end))) for end in (3.0, 1.0)]
    assert np.isclose(est.value, ends[0] - ends[1], rtol=1e-12)
    with pytest.raises(REFUSALS):
        idm.infer(model, slope("dose"))


def test_quoted_names_and_names_that_are_numbers():
    frame = DATA.rename(columns={"income": "log income"})
    results = smf.logit('won ~ Q("log income") + treated', frame).fit(disp=0)
    plain = smf.logit("won ~ income + treated", DATA).fit(disp=0)
    one = idm.infer(idm.from_statsmodels(results), slope("log income"))
    other = idm.infer(idm.from_statsmodels(plain), slope("income"))
    assert np.isclose(one.standard_error, other.standard_error, rtol=1e-8)
    X = pd.DataFrame({0: np.ones(N), 1: DATA.income, 2: DATA.treated})
    numbers = sm.Logit(DATA.won, X).fit(disp=0)
    third = idm.infer(idm.from_statsmodels(numbers), slope(1))
    assert np.isclose(third.standard_error, other.standard_error, rtol=1e-8)

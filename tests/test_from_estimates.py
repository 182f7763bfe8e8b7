"""A model from estimates and their covariance: the delta method, questions, and refusals."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import t

import implicit_delta as idm

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(5)
N = 300
FRAME = pd.DataFrame(
    {
        "treated": RNG.integers(0, 2, N),
        "age": RNG.normal(50.0, 10.0, N),
        "group": RNG.choice(["a", "b", "c"], N),
    }
)
NAMES = ["const", "treated", "age"]
PARAMS = pd.Series([-2.0, 0.7, 0.03], index=NAMES)
ROOT = np.array([[0.5, 0.0, 0.0], [-0.05, 0.2, 0.0], [-0.008, 0.001, 0.003]])
V = pd.DataFrame(ROOT @ ROOT.T, index=NAMES, columns=NAMES)


def design(frame):
    return np.column_stack([np.ones(len(frame)), frame["treated"], frame["age"]])


def predict(params, frame):
    return expit(design(frame) @ np.asarray(params))


def predict_by_name(params, frame):
    eta = params["const"] + params["treated"] * frame["treated"] + params["age"] * frame["age"]
    return 1 / (1 + np.exp(-eta))


def model(**options):
    return idm.from_estimates(PARAMS, V, **{"predict": predict, "data": FRAME} | options)


# Psi of the parameters: g' V g, in every form of the estimates

FORMS = {
    "series": (PARAMS, V, lambda p: -p["const"] / p["treated"]),
    "series by position": (PARAMS, V, lambda p: -p.iloc[0] / p.iloc[1]),
    "series and array": (PARAMS, V.to_numpy(), lambda p: -p["const"] / p["treated"]),
    "dict": (dict(PARAMS), V, lambda p: -p.const / p["treated"]),
    "dict and array": (dict(PARAMS), V.to_numpy(), lambda p: -p.const / p.treated),
    "array": (PARAMS.to_numpy(), V.to_numpy(), lambda p: -p[0] / p[1]),
    "list": (list(PARAMS), V.to_numpy().tolist(), lambda p: -p[0] / p[1]),
    "array and frame": (PARAMS.to_numpy(), V, lambda p: -p[0] / p[1]),
    "shuffled labels": (PARAMS, V.loc[NAMES[::-1], NAMES[::-1]], lambda p: -p["const"] / p.treated),
    "a frame without labels": (PARAMS, pd.DataFrame(V.to_numpy()), lambda p: -p.const / p.treated),
    "not traced": (PARAMS, V, lambda p: float(-p["const"]) / float(p["treated"])),
    "pairs as labels": (
        pd.Series(PARAMS.to_numpy(), index=pd.MultiIndex.from_product([["mu"], NAMES])),
        V.to_numpy(),
        lambda p: -p["mu", "const"] / p["mu", "treated"],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_estimates_has_the_delta_method(form):
    params, covariance, psi = FORMS[form]
    gradient = np.array([-1 / 0.7, -2.0 / 0.7**2, 0.0])
    answer = idm.infer(idm.from_estimates(params, covariance), psi)
    assert answer.value == pytest.approx(2.0 / 0.7, rel=1e-12)
    error = np.sqrt(gradient @ V.to_numpy() @ gradient)
    assert answer.standard_error == pytest.approx(error, rel=1e-7)
    assert np.isnan(answer.diagnostics.drift)


@pytest.mark.parametrize("form", [f for f in FORMS if f not in ("array", "list")])
def test_names_are_kept(form):
    params, covariance, _ = FORMS[form]
    fitted = idm.from_estimates(params, covariance)
    names = [f"mu:{name}" for name in NAMES] if form == "pairs as labels" else NAMES
    answer = idm.infer(fitted, idm.parameters)
    assert list(answer.names) == names
    np.testing.assert_allclose(answer.covariance, V, rtol=1e-10, atol=1e-15)
    assert idm.infer(fitted, names[1]).value == 0.7


def test_the_estimates_of_a_user_stay_as_they_are():
    params, covariance = PARAMS.copy(), V.copy()
    fitted = idm.from_estimates(params, covariance)
    params["age"], covariance.loc["age", "age"] = 100.0, 100.0
    answer = idm.infer(fitted, "age")
    assert (answer.value, answer.standard_error) == (
        0.03,
        pytest.approx(V.loc["age", "age"] ** 0.5),
    )


def test_degrees_of_freedom_and_number_of_rows():
    plain, small = idm.from_estimates(PARAMS, V), idm.from_estimates(PARAMS, V, df=7, n=10)
    low, high = idm.infer(small, "age").confidence_interval()
    error = V.loc["age", "age"] ** 0.5
    assert high - low == pytest.approx(2 * t.ppf(0.975, 7) * error)
    assert idm.infer(plain, "age").df == np.inf
    assert idm.infer(small, "age", df=np.inf).df == np.inf
    assert "10 rows" in str(small)
    assert "rows" not in str(plain)
    assert model().n == N


def test_a_covariance_brought_to_infer_takes_its_place():
    answer = idm.infer(model(), "age", covariance=4 * V)
    assert answer.standard_error == pytest.approx(2 * V.loc["age", "age"] ** 0.5)


def test_units_of_the_parameters_do_not_matter():
    scale = np.array([1e-8, 1.0, 1e9])
    scaled = idm.from_estimates(PARAMS * scale, V * np.outer(scale, scale))
    psi = lambda p: np.exp(p["const"] / scale[0] + p["age"] / scale[2])
    plain = idm.infer(idm.from_estimates(PARAMS, V), lambda p: np.exp(p["const"] + p["age"]))
    assert idm.infer(scaled, psi).standard_error == pytest.approx(plain.standard_error, rel=1e-9)


# Covariances without an inverse

KNOWN = np.diag([0.04, 0.0, 0.01])  # the second parameter is known
TIED = np.outer([0.3, -0.1, 0.2], [0.3, -0.1, 0.2])  # of rank one


@pytest.mark.parametrize("covariance", [KNOWN, TIED], ids=["known", "tied"])
@pytest.mark.parametrize("method", [None, idm.Simulation(2000, rng=0)], ids=["delta", "draws"])
def test_semidefinite_covariances(covariance, method):
    fitted = idm.from_estimates(PARAMS, covariance)
    rows = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]])
    answer = idm.infer(fitted, lambda p: rows @ p.to_numpy(), method)
    np.testing.assert_allclose(answer.covariance, rows @ covariance @ rows.T, rtol=1e-9, atol=1e-12)


def test_what_depends_on_a_known_parameter_alone_has_no_error():
    fitted = idm.from_estimates(PARAMS, KNOWN)
    answer = idm.infer(fitted, lambda p: np.stack([p["treated"] ** 2, p["age"]]))
    assert answer.standard_error[0] == 0
    assert answer.standard_error[1] == pytest.approx(0.1)


# Draws


def test_draws_have_the_covariance_and_follow_bends():
    linear = idm.infer(model(), idm.parameters, idm.Simulation(rng=0))
    np.testing.assert_allclose(linear.covariance, V, rtol=1e-9, atol=1e-12)
    bent = idm.infer(model(), lambda p: np.exp(p["const"]), idm.Simulation(20_000, rng=0))
    low, high = bent.confidence_interval(kind="percentile")
    sd = V.loc["const", "const"] ** 0.5
    np.testing.assert_allclose(np.log([low, high]), -2.0 + 1.96 * sd * np.array([-1, 1]), atol=0.05)
    assert bent.diagnostics.notes["variance"] == "covariance as given"


def test_statistics_and_smoothed_steps_are_drawn():
    fitted = idm.from_estimates(PARAMS, V)
    smoothed = idm.infer(fitted, idm.Smoothed(lambda p: np.round(100 * p["treated"]), rng=0))
    assert smoothed.standard_error == pytest.approx(
        100 * V.loc["treated", "treated"] ** 0.5, rel=0.1
    )


# Questions, against sums over rows written by hand


def gradient_of(psi):
    """Differentiate a function of the parameters by central differences."""
    steps = 1e-5 * np.diag(np.sqrt(np.diag(V)))
    b = PARAMS.to_numpy()
    return np.array([(psi(b + s) - psi(b - s)) / (2 * np.abs(s).sum()) for s in steps])


def mean_at(b, rows=None, **columns):
    return expit(design(FRAME.assign(**columns)) @ b)[slice(None) if rows is None else rows].mean()


def log_odds(p):
    return np.log(p / (1 - p))


def slope(b):
    p = expit(design(FRAME) @ b)
    return (p * (1 - p) * b[2]).mean()


IN_A = (FRAME["group"] == "a").to_numpy()
QUESTIONS = {
    "prediction": (idm.average_prediction(), mean_at),
    "comparison": (
        idm.average_comparison("treated"),
        lambda b: mean_at(b, treated=1) - mean_at(b, treated=0),
    ),
    "ratio": (
        idm.average_comparison("treated", how="ratio"),
        lambda b: mean_at(b, treated=1) / mean_at(b, treated=0),
    ),
    "log odds ratio": (
        idm.average_comparison("treated", how="lnoddsratio"),
        lambda b: log_odds(mean_at(b, treated=1)) - log_odds(mean_at(b, treated=0)),
    ),
    "a step": (
        idm.average_comparison("age", 5),
        lambda b: mean_at(b, age=FRAME["age"] + 5) - mean_at(b),
    ),
    "two values": (
        idm.average_comparison("age", (40, 60)),
        lambda b: mean_at(b, age=60) - mean_at(b, age=40),
    ),
    "slope": (idm.average_slope("age"), slope),
    "a group": (
        idm.average_comparison("treated", data=FRAME[IN_A]),
        lambda b: mean_at(b, IN_A, treated=1) - mean_at(b, IN_A, treated=0),
    ),
    "one row": (
        idm.predictions(FRAME.iloc[[4]]),
        lambda b: expit(design(FRAME.iloc[[4]]) @ b)[0],
    ),
    "a grid": (
        idm.predictions(idm.datagrid(FRAME, treated=1, age=30.0)),
        lambda b: expit(b @ [1.0, 1.0, 30.0]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("predict", [predict, predict_by_name], ids=["traced", "differences"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_questions(question, predict):
    asked, by_hand = QUESTIONS[question]
    answer = idm.infer(model(predict=predict), asked)
    g = gradient_of(by_hand)
    assert np.ravel(answer.value)[0] == pytest.approx(by_hand(PARAMS.to_numpy()), rel=1e-7)
    error = np.sqrt(g @ V.to_numpy() @ g)
    assert np.ravel(answer.standard_error)[0] == pytest.approx(error, rel=1e-5)


def test_groups_are_those_of_the_rows():
    answer = idm.infer(model(), idm.average_comparison("treated", by="group"))
    alone = idm.infer(model(), QUESTIONS["a group"][0])
    assert answer.value[0] == pytest.approx(alone.value, rel=1e-12)
    labels = FRAME["group"].sample(frac=1.0, random_state=1)  # another order, the same index
    aligned = idm.infer(model(), idm.average_comparison("treated", by=labels))
    np.testing.assert_allclose(aligned.value, answer.value, rtol=1e-12)


def test_questions_without_data_of_the_model():
    asked = idm.average_slope("age", data=FRAME)
    bare = model(data=None)
    assert idm.infer(bare, asked).value == pytest.approx(idm.infer(model(), asked).value)
    with pytest.raises(idm.UnsupportedModelError, match=r"no rows to average over.*data=frame"):
        idm.infer(bare, idm.average_slope("age"))
    with pytest.raises(idm.UnsupportedModelError, match=r"from_estimates.*predict="):
        idm.infer(idm.from_estimates(PARAMS, V), asked)


def test_predictions_of_several_outcomes():
    def shares(params, frame):
        p = predict(params, frame)
        return pd.DataFrame({"no": 1 - p, "yes": p})

    one = idm.infer(model(), idm.average_comparison("treated"))
    two = idm.infer(model(predict=shares), idm.average_comparison("treated", outcome="no"))
    assert two.value == pytest.approx(-one.value)
    assert two.standard_error == pytest.approx(one.standard_error, rel=1e-6)
    yes = idm.infer(model(predict=shares), idm.predictions(FRAME[:3], outcome="yes"))
    np.testing.assert_allclose(yes.value, predict(PARAMS, FRAME[:3]))


def test_a_column_made_from_the_variable_is_refused_if_predictions_read_it():
    data = FRAME.assign(age2=FRAME["age"] ** 2)
    idm.infer(model(data=data), idm.average_slope("age"))
    reading = lambda p, frame: predict(p, frame) + 1e-4 * p["age"] * frame["age2"]
    with pytest.raises(idm.EvaluationError, match="'age2' is a function of 'age'"):
        idm.infer(model(data=data, predict=reading), idm.average_slope("age"))


def test_answers_of_one_model_are_contrasted():
    answer = idm.infer(model(), idm.predictions(idm.datagrid(FRAME, treated=[0, 1], age=50.0)))
    gap = answer[1] - answer[0]
    p = expit(np.array([-0.5, 0.2]))
    g = p[1] * (1 - p[1]) * np.array([1, 1, 50.0]) - p[0] * (1 - p[0]) * np.array([1, 0, 50.0])
    assert gap.standard_error == pytest.approx(np.sqrt(g @ V.to_numpy() @ g), rel=1e-6)


def test_differences_of_separate_answers_are_refused_with_the_reason():
    one, other = (idm.infer(FITTED, name) for name in ("age", "treated"))
    with pytest.raises(ValueError, match=r"from_estimates.*in one call"):
        one - other


# What needs rows

FITTED = model()
REFUSED = {
    "robust": lambda: idm.infer(FITTED, "age", robust=True),
    "HC3": lambda: idm.infer(FITTED, "age", robust="HC3"),
    "HAC": lambda: idm.infer(FITTED, "age", robust=idm.HAC(2)),
    "clusters": lambda: idm.infer(FITTED, "age", clusters=np.arange(N) % 30),
    "influence": lambda: idm.infer(FITTED, "age", influence=True),
    "population": lambda: idm.infer(FITTED, idm.average_slope("age", population=True)),
    "training rows": lambda: idm.infer(
        FITTED, idm.Average(lambda p: predict(p, FRAME), sample="training")
    ),
    "Infinitesimal": lambda: idm.infer(FITTED, "age", idm.Infinitesimal()),
    "FiniteDifference": lambda: idm.infer(FITTED, "age", idm.FiniteDifference()),
    "Bootstrap": lambda: idm.infer(FITTED, "age", idm.Bootstrap(20)),
    "parametric": lambda: idm.infer(FITTED, "age", idm.Bootstrap(20, kind="parametric")),
    "profile": lambda: idm.profile(FITTED, "age"),
    "limit": lambda: idm.limit(FITTED, "age"),
    "contour": lambda: idm.contour(FITTED, ["age", "treated"]),
    "likelihood_ratio": lambda: idm.likelihood_ratio({"age": 0.0}, FITTED),
    "polish": lambda: idm.polish(FITTED),
    "goodness_of_fit": lambda: idm.goodness_of_fit(FITTED),
    "fix": lambda: FITTED.fix(age=0.0),
    "release": lambda: FITTED.release("age"),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_what_needs_rows_is_refused_with_what_works(refused):
    with pytest.raises(idm.UnsupportedModelError) as caught:
        REFUSED[refused]()
    assert "log-likelihood of each row" in str(caught.value)
    assert "`infer(model, psi)`" in str(caught.value)
    assert "from_estimates" in str(caught.value)


# Arguments

WRONG = V.to_numpy().copy()
WRONG[0, 1] += 0.1
ARGUMENTS = {
    "not symmetric": ((PARAMS, WRONG), "not symmetric"),
    "not semidefinite": ((PARAMS, V - 0.04 * np.eye(3)), "positive semi-definite.*eigenvalue"),
    "a negative variance": ((PARAMS, np.diag([1.0, -1.0, 1.0])), "positive semi-definite"),
    "NaN": ((PARAMS, V.where(V > 0)), "NaN or infinite"),
    "shape": ((PARAMS, V.to_numpy()[:2, :2]), r"shape \(2, 2\).*\(3, 3\)"),
    "standard errors": ((PARAMS, np.sqrt(np.diag(V))), r"shape \(3,\)"),
    "other labels": ((PARAMS, V.rename(index={"age": "Age"}, columns={"age": "Age"})), "Age"),
    "labels of rows alone": ((PARAMS, V.loc[NAMES[::-1]]), "in its columns"),
    "missing labels": ((PARAMS, V.iloc[:2, :2]), "labels const, treated"),
    "two alike": ((PARAMS.set_axis(["a", "a", "b"]), V.to_numpy()), "same name"),
    "no numbers": ((pd.Series([1.0, np.nan, 2.0]), V.to_numpy()), "params must be finite"),
    "a table": ((np.ones((3, 3)), V.to_numpy()), r"params.*\(d,\)"),
    "nothing": (([], np.empty((0, 0))), "params"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_wrong_arguments(case):
    arguments, match = ARGUMENTS[case]
    with pytest.raises(ValueError, match=match):
        idm.from_estimates(*arguments)


OPTIONS = {
    "data alone": ({"data": FRAME, "predict": None}, TypeError, "predict="),
    "df": ({"df": 0}, ValueError, "above 0"),
    "n": ({"n": 2.5}, ValueError, "number of observations"),
    "a mean": ({"predict": lambda p, f: predict(p, f).mean()}, ValueError, "one number per row"),
    "other rows": ({"predict": lambda p, f: predict(p, f)[:5]}, ValueError, r"shape \(5,\)"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_wrong_options(case):
    options, error, match = OPTIONS[case]
    with pytest.raises(error, match=match):
        model(**options)


def test_a_covariance_rounded_in_single_precision_is_taken():
    b = np.vander(np.linspace(0, 1, 40), 5)
    exact = np.linalg.inv(b.T @ b)
    for given in (exact, exact.astype(np.float32)):
        answer = idm.infer(idm.from_estimates(np.ones(5), given), idm.parameters)
        np.testing.assert_allclose(answer.standard_error, np.sqrt(np.diag(exact)), rtol=1e-4)


def test_a_psi_that_does_not_move_is_refused():
    with pytest.raises(idm.EvaluationError, match=r"derivative is exactly zero.*Simulation\(\)"):
        idm.infer(model(), lambda p: np.floor(p["treated"]))

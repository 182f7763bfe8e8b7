"""A list or dict of evaluations is these evaluations: names, scales, nulls, rows, errors."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from sklearn.linear_model import LogisticRegression

import implicit_delta as idm
from implicit_delta.core.labels import distinct

RNG = np.random.default_rng(29)
N = 240
DATA = pd.DataFrame(
    {
        "x": RNG.normal(2.0, 1.5, N),
        "t": RNG.integers(0, 2, N),
        "g": RNG.choice(["a", "b", "c"], N),
        "w": RNG.integers(1, 4, N),
    }
)
DATA["y"] = (RNG.random(N) < 1 / (1 + np.exp(0.9 - 0.5 * DATA.x - 0.6 * DATA.t))).astype(int)
DATA["k"] = RNG.poisson(np.exp(0.2 + 0.2 * DATA.x + 0.3 * DATA.t))
FEW = DATA[DATA.x > 2].head(30)  # other quartiles than those of all rows
NEW = DATA.sample(90, random_state=1, replace=True).reset_index(drop=True)


def logit():
    return idm.from_statsmodels(smf.logit("y ~ x * t", DATA).fit(disp=0))


def poisson():
    family = sm.families.Poisson()
    fit = smf.glm("k ~ x + t + C(g)", DATA, family=family, freq_weights=np.asarray(DATA.w)).fit()
    return idm.from_statsmodels(fit)


def sklearn():
    fitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(DATA[["x", "t"]], DATA.y)
    return idm.from_sklearn(fitted, DATA[["x", "t"]], DATA.y)


MODELS = {"logit": logit, "poisson": poisson, "sklearn": sklearn}
QUESTIONS = {
    "quartiles of all rows": idm.average_comparison("x", values="iqr", data=FEW),
    "sd": idm.average_comparison("x", values="sd"),
    "ratio": idm.average_comparison("t", how="ratio"),
    "ratio of few": idm.average_comparison("t", how="ratio", data=FEW),
    "lnratio": idm.average_comparison("t", how="lnratio"),
    "step": idm.average_comparison("x", values=1),
    "slope": idm.average_slope("x"),
    "slopes by t": idm.average_slope("x", by="t"),
    "ratios by t": idm.average_comparison("x", values="2sd", how="ratio", by="t"),
    "average": idm.average_prediction(),
    "rows": idm.predictions(FEW.head(3)),
    "population": idm.average_comparison("t", population=True),
    "population by t": idm.average_prediction(by="t", population=True),
}
PLAIN = {name: q for name, q in QUESTIONS.items() if not name.startswith("population")}


def same(found, right, rtol=1e-12):
    """Two estimates tell the same, one as an array."""
    for name in ("value", "standard_error"):
        pair = (np.ravel(getattr(est, name)) for est in (found, right))
        np.testing.assert_allclose(*pair, rtol=rtol, err_msg=name)
    for ends in zip(found.confidence_interval(0.9), right.confidence_interval(0.9), strict=True):
        np.testing.assert_allclose(*map(np.ravel, ends), rtol=rtol)
    tables = (est.to_frame().reset_index(drop=True) for est in (found, right))
    # A p-value changes by about z^2 times as much as the standard error, and z is below 10.
    pd.testing.assert_frame_equal(*tables, rtol=100 * rtol)


@pytest.mark.parametrize("host", MODELS)
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_list_of_one_question_is_the_question(host, name):
    model, question = MODELS[host](), QUESTIONS[name]
    if host == "sklearn" and question.data is not None:
        question = replace(question, data=question.data[["x", "t"]])
    alone, listed = idm.infer(model, question), idm.infer(model, [question])
    same(listed, alone)
    assert listed.names == alone.names
    assert set(np.ravel(listed.scale)) == set(np.ravel(alone.scale))
    assert listed.diagnostics.notes["question"] == alone.diagnostics.notes["question"]
    keyed = idm.infer(model, {"q": question})
    same(keyed, alone)
    several = len(alone.names) > 1
    assert all(n.startswith("q[") if several else n == "q" for n in keyed.names)


OPTIONS = {
    "plain": {},
    "robust": {"robust": True},
    "HC3": {"robust": "HC3"},
    "clusters": {"clusters": DATA.g.to_numpy() + (np.arange(N) % 20).astype(str)},
    "simulation": {"method": idm.Simulation(draws=400, rng=3)},
    "differences": {"method": idm.FiniteDifference()},
    "bootstrap": {"method": idm.Bootstrap(60, rng=4)},
    "df": {"df": 17},
}


@pytest.mark.parametrize("how", OPTIONS)
def test_a_dict_of_questions_is_each_of_them(how):
    model = logit()
    both = idm.infer(model, PLAIN, **OPTIONS[how])
    start = 0
    for name, question in PLAIN.items():
        alone = idm.infer(model, question, **OPTIONS[how])
        own = both[list(both.names[start : start + len(alone.names)])]
        # The covariance of finite differences is made symmetric and positive as a whole.
        same(own, alone, rtol=max(1e-9, np.nan_to_num(both.diagnostics.asymmetry)))
        assert own.names[0].startswith(name)
        start += len(alone.names)
    assert start == len(both.names)


def intercept(params):
    return params["Intercept"]


def test_questions_functions_names_and_parameters_together():
    model = logit()
    entries = [
        intercept,
        "x",
        idm.average_comparison("t", how="ratio"),
        lambda b: b["x"] * b["t"],
        idm.average_slope("x", by="t"),
        idm.parameters,
    ]
    both = idm.infer(model, entries)
    each = [idm.infer(model, entry) for entry in entries]
    same(both, idm.join(*(idm.infer(model, e, influence=True) for e in entries)), rtol=1e-9)
    names = [name for est in each for name in est.names]
    names[3] = "psi[3]"
    assert both.names == tuple(distinct(names))
    assert both.scale == ("", "", "log", *[""] * (len(names) - 3))
    # The joint covariance is that of one function of the parameters.
    slope = idm.infer(model, lambda b: np.stack([b["x"], b["x"] * b["t"]]))
    np.testing.assert_allclose(
        both[["x", "psi[3]"]].covariance, slope.covariance, rtol=1e-6, atol=0
    )


X, NEWX = DATA[["x", "t"]].to_numpy(float), NEW[["x", "t"]].to_numpy(float)
Y, NEWY = DATA.y.to_numpy(), NEW.y.to_numpy()


def own_logit():
    def terms(th):
        return -np.logaddexp(0, np.where(Y, -1, 1) * (X @ np.stack([th.a, th.b])))

    return idm.from_loglik(terms, start={"a": 0.0, "b": 0.0})


def odds(th):
    return np.exp(th.b)


def brier(th):
    return (NEWY - 1 / (1 + np.exp(-NEWX @ np.stack([th.a, th.b])))) ** 2


def accuracy(score, weight):
    return weight @ ((score > 0) == NEWY) / weight.sum()


def simulated(th, rng):
    return th.a + rng.normal() / 50


WRAPPERS = {
    "average": idm.Average(brier),
    "unknown": idm.Average(brier, sample="unknown"),
    "groups": idm.Average(brier, by=NEW.g.to_numpy()),
    "clusters": idm.Average(brier, clusters=np.arange(90) % 15),
    "statistic": idm.Statistic(lambda th: NEWX @ np.stack([th.a, th.b]), accuracy),
    "random": idm.Replicated(simulated, repeats=20, rng=1),
    "smoothed": idm.Smoothed(odds, rng=2),
}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("kind", WRAPPERS)
def test_one_wrapper_among_functions_and_names(kind, place):
    model = own_logit()
    entries = [odds, "a"]
    entries.insert(place, WRAPPERS[kind])
    both, start = idm.infer(model, entries, influence=True), 0
    for entry in entries:
        alone = idm.infer(model, entry)
        own = both[list(both.names[start : start + len(alone.names)])]
        same(own, alone, rtol=1e-9)
        start += len(alone.names)
    if kind == "average":  # the cross terms are those of the model alone
        h = idm.infer(model, lambda th: np.stack([odds(th), brier(th).mean()]))
        found = both.covariance[place, both.names.index("odds")]
        np.testing.assert_allclose(found, h.covariance[0, 1], rtol=1e-6)


REFUSED = {
    "two samples": ([WRAPPERS["average"], WRAPPERS["statistic"]], "which rows they share"),
    "two random": ([WRAPPERS["random"], simulated], "both random"),
    "training": ([idm.Average(lambda th: X @ np.stack([th.a, th.b]), "training"), "a"], "robust"),
}


@pytest.mark.parametrize("psi", [[], (), {}, [[]], {"a": []}, {odds}, iter([odds])])
def test_what_is_no_list_or_dict_of_evaluations_is_refused(psi):
    with pytest.raises(TypeError, match=r"psi is an empty|Several are a list or a dict"):
        idm.infer(own_logit(), psi)


@pytest.mark.parametrize("case", REFUSED)
def test_entries_without_a_joint_covariance_are_refused_with_the_reason(case):
    psi, reason = REFUSED[case]
    with pytest.raises(TypeError, match=reason):
        idm.infer(own_logit(), psi)


def test_the_advice_for_training_rows_works():
    model, (average, name) = own_logit(), REFUSED["training"][0]
    each = [idm.infer(model, p, robust=True, influence=True) for p in (average, name)]
    both = idm.join(*each)
    np.testing.assert_allclose(both.standard_error, [e.standard_error for e in each])
    # Row by row: the influences of both, squared.
    rows = np.column_stack([np.ravel(e.influence) for e in each])
    np.testing.assert_allclose(both.covariance, rows.T @ rows, rtol=1e-8)


def test_profiles_and_comparisons_of_lists_are_those_of_the_entries():
    model = logit()
    entries = [idm.average_comparison("t", how="ratio"), "x", idm.average_slope("x", data=FEW)]
    many = idm.profile(model, entries)
    for found, entry in zip(many, entries, strict=True):
        right = idm.profile(model, entry)
        np.testing.assert_allclose(found.interval, right.interval, rtol=1e-6)
        assert found.name == right.name
    methods = [idm.Infinitesimal(), idm.profile]
    table = idm.compare(model, {"ratio": entries[0], "slope": entries[2]}, methods)
    for name, entry in (("ratio", entries[0]), ("slope", entries[2])):
        rows = [(r.estimate, r.low, r.high) for r in table.rows if r.term == name]
        alone = idm.compare(model, entry, methods).rows
        np.testing.assert_allclose(rows, [(r.estimate, r.low, r.high) for r in alone], rtol=1e-6)


def fit(data):
    return smf.logit("y ~ x * t", data).fit(disp=0)


@pytest.mark.parametrize("population", [False, True])
def test_a_bootstrap_of_a_list_is_that_of_its_entries(population):
    options = {"replicates": 40, "rng": 5, "jackknife": False}
    entries = {
        "ratio": idm.average_comparison("t", how="ratio", population=population),
        "by t": idm.average_slope("x", by="t"),
        "x": lambda results: results.params["x"],
    }
    keyed = idm.bootstrap(fit, DATA, entries, **options)
    listed = idm.bootstrap(fit, DATA, list(entries.values()), **options)
    each = [idm.bootstrap(fit, DATA, entry, **options) for entry in entries.values()]
    assert keyed.names == ("ratio", "by t[t=0]", "by t[t=1]", "x")
    assert listed.names == (*each[0].names, *each[1].names, "psi[2]")
    for both in (keyed, listed):
        same(both[[0]], each[0])
        same(both[[1, 2]], each[1])
        same(both[[3]], each[2])
    assert keyed.scale == ("log", "", "", "")


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_refit_of_a_dict_is_that_of_its_entries(n_jobs):
    def train(bonus):
        m, h = 1.0, 1e-4
        for _ in range(200):
            m += 0.1 * (np.sum(SAMPLE - m) + (bonus(m + h) - bonus(m - h)) / (2 * h))
        return m

    entries = {"mean": lambda m: m, "square": lambda m: m**2}
    both = idm.refit(train, entries, check=False, n_jobs=n_jobs)
    assert both.names == ("mean", "square")
    for k, psi in enumerate(entries.values()):
        alone = idm.refit(train, psi, check=False)
        np.testing.assert_allclose(both.standard_error[k], alone.standard_error, rtol=1e-6)


SAMPLE = np.array([1.2, 0.4, 2.2, 1.4, 0.8])


@pytest.mark.parametrize("psi", [["x"], ["x", len], [WRAPPERS["average"], len], [simulated], [3]])
def test_entries_that_a_black_box_cannot_honor_are_refused(psi):
    with pytest.raises(TypeError, match=r"entry|alone|function"):
        idm.bootstrap(fit, DATA, psi, replicates=20)
    with pytest.raises(TypeError, match=r"entry|alone|function"):
        idm.refit(lambda bonus: np.zeros(2), psi)

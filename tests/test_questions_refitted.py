"""Questions about whatever can be fitted again: forests, boosting, pipelines, statsmodels."""

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("statsmodels")
pytest.importorskip("pandas")

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import implicit_delta as idm

N = 200
RNG = np.random.default_rng(0)
DATA = pd.DataFrame(
    {"x": RNG.normal(size=N), "treated": RNG.integers(0, 2, N), "site": RNG.choice(["a", "b"], N)}
)
ETA = DATA.x + DATA.treated - 0.5
DATA["y"] = (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(int)
DATA["z"] = ETA + RNG.normal(size=N)
X = DATA[["x", "treated"]]
INFER = idm.from_statsmodels(smf.logit("y ~ x + treated", DATA).fit(disp=0))


def logit(data):
    return smf.logit("y ~ x + treated", data).fit(disp=0)


def logistic(data):
    pipe = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf))
    return pipe.fit(data[["x", "treated"]], data["y"])


def of_pair(data):
    return LogisticRegression(C=np.inf).fit(*data)


def forest(data):
    return RandomForestRegressor(20, min_samples_leaf=10, random_state=0).fit(*data)


def boosting(data):
    X, y = data
    return HistGradientBoostingClassifier(max_iter=15, random_state=0).fit(X, y)


SEVERAL = {"replicates": 300, "rng": 0, "jackknife": False}
FEW = {"replicates": 20, "rng": 0, "jackknife": False}


@pytest.mark.slow
@pytest.mark.parametrize("population", [False, True])
@pytest.mark.parametrize(
    ("fit", "data"),
    [(logit, DATA), (logistic, DATA), (of_pair, (X, DATA.y))],
    ids=["statsmodels", "pipeline", "pair"],
)
def test_as_the_delta_method(fit, data, population):
    """300 replicates know a standard error to 4 %: four of these."""
    psi = idm.average_comparison("treated", population=population)
    drawn, exact = idm.bootstrap(fit, data, psi, **SEVERAL), idm.infer(INFER, psi, robust=True)
    assert drawn.value == pytest.approx(exact.value, rel=1e-3)
    assert drawn.standard_error == pytest.approx(exact.standard_error, rel=0.17)
    assert drawn.names == ("treated: 1 - 0",)


def test_the_rows_stay_unless_they_are_a_sample():
    """At fixed rows a mean prediction is sure of x; of a population it is not."""

    def ols(data):
        return smf.ols("z ~ x", data).fit()

    fixed = idm.bootstrap(ols, DATA, idm.average_prediction(), **SEVERAL)
    sampled = idm.bootstrap(ols, DATA, idm.average_prediction(population=True), **SEVERAL)
    residual = smf.ols("z ~ x", DATA).fit().resid.std() / np.sqrt(N)
    whole = DATA.z.std() / np.sqrt(N)
    assert fixed.standard_error == pytest.approx(residual, rel=0.17)
    assert sampled.standard_error == pytest.approx(whole, rel=0.17)
    assert whole > 1.3 * residual


@pytest.mark.parametrize("population", [False, True])
def test_a_forest_by_groups(population):
    psi = idm.average_comparison("x", "iqr", by="treated", population=population)
    est = idm.bootstrap(forest, (X, DATA.z), psi, **FEW)
    assert est.names == ("treated=0", "treated=1")
    assert np.all(est.value > 0)
    assert np.all(est.standard_error > 0)
    low, high = np.percentile(X.x, [25, 75])
    fitted = forest((X, DATA.z))
    gap = fitted.predict(X.assign(x=high)) - fitted.predict(X.assign(x=low))
    np.testing.assert_allclose(est.value, [gap[X.treated == t].mean() for t in (0, 1)])


def test_boosting_by_class():
    one = idm.bootstrap(boosting, (X, DATA.y), idm.average_comparison("treated"), **FEW)
    zero = idm.bootstrap(boosting, (X, DATA.y), idm.average_comparison("treated", outcome=0), **FEW)
    assert one.value == pytest.approx(-zero.value)
    assert one.standard_error == pytest.approx(zero.standard_error)


def test_arrays_by_position():
    pair = (X.to_numpy(), DATA.y.to_numpy())
    one = idm.bootstrap(of_pair, pair, idm.average_comparison(1), **FEW)
    other = idm.bootstrap(of_pair, (X, DATA.y), idm.average_comparison("treated"), **FEW)
    assert one.value == pytest.approx(other.value)
    assert one.standard_error == pytest.approx(other.standard_error)


def test_data_of_its_own():
    grid = idm.datagrid(X, x=[-1.0, 1.0])
    est = idm.bootstrap(of_pair, (X, DATA.y), idm.predictions(grid), **FEW)
    np.testing.assert_allclose(est.value, of_pair((X, DATA.y)).predict_proba(grid)[:, 1])


def test_a_slope_of_a_smooth_model():
    drawn = idm.bootstrap(of_pair, (X, DATA.y), idm.average_slope("x"), **FEW)
    assert drawn.value == pytest.approx(idm.infer(INFER, idm.average_slope("x")).value, rel=1e-3)


@pytest.mark.parametrize(
    ("fit", "data", "psi", "text"),
    [
        (forest, (X, DATA.z), idm.average_slope("x"), "move in steps"),
        (boosting, (X, DATA.y), idm.average_slope("x"), "move in steps"),
        (forest, (X, DATA.z), idm.average_comparison("w"), "not in"),
        (forest, (X, DATA.z), idm.average_comparison("treated", outcome=1), "one number"),
        (boosting, (X, DATA.y), idm.average_comparison("treated", outcome=7), "outcomes"),
        (lambda data: 3.0, (X, DATA.z), idm.average_prediction(), "neither `predict`"),
        (
            forest,
            (X, DATA.z),
            idm.average_prediction(by=np.arange(N) % 2, population=True),
            "others in each replicate",
        ),
    ],
)
def test_refusals(fit, data, psi, text):
    with pytest.raises((ValueError, TypeError, idm.ImplicitDeltaError), match=text):
        idm.bootstrap(fit, data, psi, **FEW)


def test_refit_asks_rows_that_are_given():
    def train(bonus):
        from scipy.optimize import minimize

        design = np.column_stack([np.ones(N), X])
        start = np.asarray(logit(DATA).params)

        def loss(b):
            eta = design @ b
            return -(DATA.y @ eta - np.logaddexp(0, eta).sum()) - bonus(Fitted(b))

        return Fitted(minimize(loss, start, method="BFGS", options={"gtol": 1e-9}).x)

    est = idm.refit(train, idm.average_comparison("treated", data=X))
    exact = idm.infer(INFER, idm.average_comparison("treated", data=X))
    assert est.standard_error == pytest.approx(exact.standard_error, rel=0.01)
    assert est.names == exact.names
    with pytest.raises(TypeError, match="give rows"):
        idm.refit(train, idm.average_comparison("treated"))


class Fitted:
    """A model of one's own that predicts from a frame."""

    def __init__(self, b):
        self.b = b

    def predict(self, frame):
        return 1 / (1 + np.exp(-(np.column_stack([np.ones(len(frame)), frame]) @ self.b)))

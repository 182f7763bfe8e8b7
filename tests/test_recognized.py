"""Estimates of linearmodels, pyfixest and lifelines: stored answers, and stand-ins for results."""

import json
from pathlib import Path

import numpy as np
import pytest

import implicit_delta as idm

pd = pytest.importorskip("pandas")

STORED = json.loads((Path(__file__).parent / "golden" / "estimates.json").read_text())
FRAME = pd.DataFrame(STORED["data"])
CASES = {f"{case['library']}: {case['model']}": case for case in STORED["cases"]}
QUESTIONS = [(name, k) for name, case in CASES.items() for k in range(len(case["questions"]))]
ASK = {n: getattr(idm, n) for n in ("average_slope", "average_comparison", "average_prediction")}


def design(names, rows):
    columns = {"Intercept": 1.0 + 0 * rows["x"], "x:treated": rows["x"] * rows["treated"]}
    return np.column_stack([columns.get(name, rows.get(name)) for name in names])


def predictions(case):
    """Write the predictions of a fit in NumPy."""
    names = [
        name.split(":", 1)[-1] if case["library"] == "lifelines" else name for name in case["names"]
    ]
    main = slice(0, len(names) - 1 if case["response"] in ("weibull", "lognormal") else None)

    def predict(b, rows):
        eta = design(names[main], rows) @ b.to_numpy()[main]
        if case["response"] == "weibull":
            return np.exp(eta) * np.log(2) ** np.exp(-b.to_numpy()[-1])
        return eta if case["response"] == "identity" else np.exp(eta)

    return None if case["response"] is None else predict


def test_there_are_ten_questions_to_each_library():
    counts = {}
    for case in STORED["cases"]:
        counts[case["library"]] = counts.get(case["library"], 0) + len(case["questions"])
    assert counts == {"linearmodels": 10, "pyfixest": 10, "lifelines": 10}


@pytest.mark.parametrize(("name", "k"), QUESTIONS, ids=[f"{name}, {k}" for name, k in QUESTIONS])
def test_answers_of_the_libraries_and_of_marginaleffects(name, k):
    case = CASES[name]
    asked = case["questions"][k]
    predict = predictions(case)
    model = idm.from_estimates(
        pd.Series(case["params"], index=case["names"]), case["covariance"], predict=predict,
        data=None if predict is None else FRAME, df=case["df"],
    )  # fmt: skip
    answer = idm.infer(model, eval(asked["ask"], ASK | {"np": np}))
    assert answer.value == pytest.approx(asked["value"], rel=STORED["tolerance"])
    assert answer.standard_error == pytest.approx(asked["standard_error"], rel=STORED["tolerance"])


# Stand-ins with the members that results have

B = pd.Series([0.5, 1.2, -0.4], index=["Intercept", "x", "treated"])
V = pd.DataFrame(np.diag([0.04, 0.01, 0.09]) + 0.002, index=B.index, columns=B.index)


def stand_in(module, name="Results", **members):
    return type(name, (), {"__module__": module, **members})()


def linear(module, **members):
    model = {"formula": "y ~ 1 + x + treated", **members.pop("model", {})}
    predict = lambda self, params, *, data: pd.DataFrame(
        design(B.index, data) @ params, columns=["predictions"]
    )
    own = stand_in(
        f"linearmodels.{module}.model", members.pop("kind", "IV2SLS"), predict=predict, **model
    )
    return stand_in(
        f"linearmodels.{module}.results",
        model=own,
        params=B,
        cov=V,
        nobs=160,
        df_resid=157,
        **members,
    )


class Fixest:
    _N, _df_t, _vcov, _data, _is_iv = 160, 19.0, V.to_numpy(), FRAME, False

    def __init__(self, method="feols", effects=False, detail="CRV1"):
        self._method, self._has_fixef, self._vcov_type_detail = method, effects, detail
        self._beta_hat = B.to_numpy()

    def coef(self):
        return pd.Series(self._beta_hat, index=B.index)

    def predict(self, newdata, type):
        assert type == "link"
        assert not self._has_fixef
        return design(B.index, newdata) @ self._beta_hat


Fixest.__module__ = "pyfixest.estimation.models.feols_"


class Aft:
    robust, penalizer = False, 0.0
    params_ = pd.Series(B.to_numpy(), index=pd.MultiIndex.from_product([["mu_"], B.index]))
    variance_matrix_ = V.set_axis(params_.index).set_axis(params_.index, axis=1)
    durations = np.ones(160)

    def predict_median(self, rows):
        return pd.Series(np.exp(design(B.index, rows) @ self.params_.to_numpy()), index=rows.index)


Aft.__module__ = "lifelines.fitters.log_normal_aft_fitter"
RESULTS = {
    "IV": (
        lambda: linear("iv", cov_type="clustered", debiased=False),
        "linearmodels, clustered", np.inf,
    ),
    "IV, debiased": (
        lambda: linear("iv", cov_type="robust", debiased=True),
        "linearmodels, robust", 157,
    ),
    "panel": (
        lambda: linear("panel", _cov_type="Clustered", _debiased=True, kind="PanelOLS",
                       model={"entity_effects": True}),
        "linearmodels, clustered", 157,
    ),
    "feols": (Fixest, "pyfixest, clustered (CRV1)", 19),
    "feols with effects": (lambda: Fixest(effects=True, detail="hetero"), "pyfixest, hetero", 19),
    "fepois": (lambda: Fixest("fepois"), "pyfixest, clustered (CRV1)", np.inf),
    "AFT": (Aft, "lifelines, inverse Hessian", np.inf),
}  # fmt: skip
ABSORBED = ["panel", "feols with effects"]
ENTRIES = {"from_estimates": idm.from_estimates, "from_statsmodels": idm.from_statsmodels}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_recognized(name, entry):
    make, described, df = RESULTS[name]
    model = ENTRIES[entry](make())
    answer = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(answer.value, B)
    np.testing.assert_allclose(answer.covariance, V, rtol=1e-9)
    assert answer.df == df
    assert answer.diagnostics.notes["variance"] == f"covariance as estimated by {described}"
    assert answer.names[1].endswith("x")
    assert model.n == 160
    with pytest.raises(idm.UnsupportedModelError, match="as estimated by"):
        idm.infer(model, idm.parameters, robust=True)


@pytest.mark.parametrize("name", RESULTS)
def test_recognized_results_predict(name):
    results = RESULTS[name][0]()
    model = idm.from_estimates(results, data=FRAME)
    answer = idm.infer(model, idm.average_comparison("treated"))
    ones, zeros = (design(B.index, FRAME.assign(treated=t)) for t in (1, 0))
    if name in ("fepois", "AFT"):
        means = [np.exp(X @ B) for X in (ones, zeros)]
        g = (means[0][:, None] * ones - means[1][:, None] * zeros).mean(axis=0)
        value = (means[0] - means[1]).mean()
    else:
        g, value = np.array([0.0, 0.0, 1.0]), B["treated"]
    assert answer.value == pytest.approx(value, rel=1e-9)
    assert answer.standard_error == pytest.approx(np.sqrt(g @ V @ g), rel=1e-7)
    level = lambda: idm.infer(model, idm.average_prediction())
    if name not in ABSORBED:
        assert level().standard_error > 0
        return
    for call in (level, lambda: idm.infer(model, idm.average_comparison("treated", how="ratio"))):
        with pytest.raises(idm.UnsupportedModelError, match=r"fixed effects.*average_slope"):
            call()


def test_results_of_a_user_stay_as_they_are():
    fit = Fixest(effects=True)
    idm.infer(idm.from_estimates(fit), idm.average_slope("x"))
    np.testing.assert_array_equal(fit._beta_hat, B)
    assert fit._has_fixef
    aft = Aft()
    idm.infer(idm.from_estimates(aft, data=FRAME), idm.average_slope("x"))
    assert "params_" not in vars(aft)


def test_predictions_and_options_of_a_user_come_first():
    predict = lambda b, rows: np.exp(b["x"] * rows["x"])
    cox = stand_in("lifelines.fitters.coxph_fitter", params_=B, variance_matrix_=V)
    model = idm.from_estimates(cox, predict=predict, data=FRAME, df=10, n=50)
    answer = idm.infer(model, idm.average_prediction())
    assert answer.value == pytest.approx(np.exp(1.2 * FRAME["x"]).mean())
    assert (answer.df, model.n) == (10, 50)
    with pytest.raises(idm.UnsupportedModelError, match="predict="):
        idm.infer(idm.from_estimates(cox), idm.average_prediction(FRAME))
    with pytest.raises(TypeError, match="predict="):
        idm.from_estimates(cox, data=FRAME)


@pytest.mark.parametrize("kind", ["coxph_fitter", "weibull_aft_fitter"])
def test_robust_fits_of_lifelines_keep_no_covariance(kind):
    """lifelines has the sandwich in `standard_errors_`, and not in `variance_matrix_`."""
    errors = np.sqrt(np.diag(V))
    members = {"params_": B, "variance_matrix_": V}
    same = stand_in(f"lifelines.fitters.{kind}", standard_errors_=errors, **members)
    np.testing.assert_allclose(
        idm.infer(idm.from_estimates(same), idm.parameters).standard_error, errors
    )
    other = stand_in(f"lifelines.fitters.{kind}", standard_errors_=1.05 * errors, **members)
    for entry in ENTRIES.values():
        with pytest.raises(idm.UnsupportedModelError, match=r"robust or clustered.*bootstrap"):
            entry(other)


def test_what_is_not_recognized_is_refused():
    with pytest.raises(TypeError, match=r"from_estimates\(params, covariance\)"):
        idm.from_estimates(B)
    table = stand_in("linearmodels.asset_pricing.results", params=V, cov=V)
    with pytest.raises(idm.UnsupportedModelError, match="bootstrap"):
        idm.from_estimates(table)
    sm = pytest.importorskip("statsmodels.api")
    with pytest.raises(idm.UnsupportedModelError, match=r"from_statsmodels\(results\)"):
        idm.from_estimates(sm.OLS(FRAME["x"], design(B.index, FRAME)).fit())

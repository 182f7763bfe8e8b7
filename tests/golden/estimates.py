"""Make estimates.json: ten questions each to fits of linearmodels, pyfixest and lifelines.

The answers are those of marginaleffects (its numerical delta method, with the covariance and the
predictions of each library), or of the library itself. Each is compared here with the answer of
`from_estimates(results)`, by recognition; tests/test_recognized.py asks the stored estimates.

    pip install linearmodels pyfixest lifelines marginaleffects "polars<2"
    PYTHONPATH=src python tests/golden/estimates.py
"""

import json
import platform
import warnings
from importlib.metadata import version
from pathlib import Path

import lifelines
import marginaleffects as me
import numpy as np
import pandas as pd
import polars as pl
import pyfixest
from linearmodels.iv import IV2SLS
from linearmodels.panel import PanelOLS, PooledOLS
from marginaleffects.classes import ModelAbstract, ModelVault
from marginaleffects.utils import ingest
from scipy.stats import norm

import implicit_delta as idm

warnings.simplefilter("ignore")
RNG = np.random.default_rng(20)
N, FIRMS = 160, 20
# Step of slopes in marginaleffects, in ranges of the variable. Its derivatives by the parameters
# are differences as well, with steps of about 1e-8, whose rounding is divided by this step: the
# largest gap was 1e-5 with a step of 1e-3, 2e-4 with its default of 1e-4, and 2e-3 with 1e-5.
# Without slopes it was 8e-7.
EPS, TOLERANCE = 1e-3, 2e-5


def frame():
    """Simulate an outcome, a count and a lifetime."""
    d = pd.DataFrame({"firm": np.arange(N) // (N // FIRMS), "year": np.tile(np.arange(8), FIRMS)})
    d["x"], d["z"] = RNG.normal(size=N).round(3), RNG.normal(size=N).round(3)
    d["treated"] = RNG.integers(0, 2, N)
    d["p"] = (d.z + 0.5 * RNG.normal(size=N)).round(3)
    effect = RNG.normal(size=FIRMS)[d.firm]
    d["y"] = (1 + d.x + 0.5 * d.p + d.treated * (1 + 0.3 * d.x) + effect).round(3)
    d["y"] = (d.y + RNG.normal(size=N)).round(3)
    d["count"] = RNG.poisson(np.exp(0.3 + 0.2 * d.x + 0.4 * d.treated))
    d["T"] = RNG.exponential(np.exp(0.5 + 0.3 * d.x - 0.4 * d.treated)).round(4) + 0.001
    d["E"] = (RNG.uniform(size=N) < 0.8).astype(int)
    return d


D = frame()
PANEL = D.set_index(["firm", "year"])
SURVIVAL = D[["T", "E", "x", "treated"]]


class Adapter(ModelAbstract):
    """Coefficients, covariance and predictions of any fit, for marginaleffects."""

    def __init__(self, coef, cov, predict, data):
        self.given = np.asarray(coef), np.asarray(cov), predict
        vault = ModelVault()
        vault.modeldata, vault.formula = ingest(data.reset_index(drop=True)), "y ~ x + treated + p"
        super().__init__(None, vault)

    def get_coef(self):
        return self.given[0]

    def get_coefnames(self):
        return np.array([f"b{i}" for i in range(len(self.given[0]))])

    def get_vcov(self, vcov=True):
        return self.given[1]

    def find_predictors(self):
        return [c for c in ("x", "treated", "p") if c in self.get_modeldata().columns]

    def find_response(self):
        return "y"

    def get_exog(self, newdata):
        return newdata

    def get_predict(self, params, newdata):
        rows = newdata.to_pandas()
        found = np.asarray(self.given[2](np.asarray(params), rows), dtype=float).ravel()
        table = pl.DataFrame({"rowid": np.arange(len(rows)), "estimate": found})
        return table.with_columns(pl.col("rowid").cast(pl.Int32))


def iv():
    results = IV2SLS.from_formula("y ~ 1 + x*treated + [p ~ z]", D).fit(
        cov_type="clustered", clusters=D.firm
    )
    predict = lambda b, rows: results.model.predict(b[:, None], data=rows)
    return results, results.params, results.cov, predict, D


def panel(kind, formula, **options):
    results = kind.from_formula(formula, PANEL).fit(**options)
    predict = lambda b, rows: results.model.predict(
        b[:, None], data=rows.set_index(["firm", "year"])
    )
    return results, results.params, results.cov, predict, PANEL


def fixest(fit, formula, vcov, link="link"):
    results, own = (fit(formula, D, vcov=vcov) for _ in range(2))

    def predict(b, rows):
        own._beta_hat = b
        return own.predict(newdata=rows, type=link)

    return results, results.coef(), results._vcov.copy(), predict, None


def aft(kind, **options):
    results, own = (kind(**options).fit(SURVIVAL, "T", "E") for _ in range(2))

    def predict(b, rows):
        own.params_ = pd.Series(b, index=results.params_.index)
        return own.predict_median(rows)

    return results, results.params_, results.variance_matrix_, predict, SURVIVAL


def cox():
    results = lifelines.CoxPHFitter().fit(SURVIVAL, "T", "E")
    return results, results.params_, results.variance_matrix_, None, None


def weibull():
    results = lifelines.WeibullFitter().fit(D["T"], D["E"], timeline=[0.5, 1.0, 2.0])
    return results, results.params_, results.variance_matrix_, None, None


def slope(variable):
    return f"average_slope({variable!r})", lambda m: me.avg_slopes(m, variables=variable, eps=EPS)


def comparison(variable, values=(0, 1), how="difference"):
    theirs = {"difference": "differenceavg", "ratio": "ratioavg"}[how]
    return (
        f"average_comparison({variable!r}, {values!r}, how={how!r})",
        lambda m: me.avg_comparisons(m, variables={variable: list(values)}, comparison=theirs),
    )


def prediction():
    return "average_prediction()", me.avg_predictions


def hypothesis(psi, theirs):
    return f"lambda b: {psi}", lambda m: me.hypotheses(m, f"{theirs} = 0")


def own_delta(time):
    """Read the standard error of a cumulative hazard from lifelines' own interval."""

    def found(results):
        value = float(results.cumulative_hazard_.loc[time].iloc[0])
        low, high = results.confidence_interval_cumulative_hazard_.loc[time]
        return value, float(high - low) / 2 / norm.ppf(0.975)

    return f"lambda b: ({time} / b['lambda_']) ** b['rho_']", found


ASK = {n: getattr(idm, n) for n in ("average_slope", "average_comparison", "average_prediction")}
CASES = [
    ("linearmodels", "IV2SLS, clustered", iv, "identity",
     [slope("p"), comparison("treated"), prediction(), comparison("x", (-1, 1))]),
    ("linearmodels", "PooledOLS, robust",
     lambda: panel(PooledOLS, "y ~ 1 + x*treated", cov_type="robust"), "identity",
     [slope("x"), comparison("treated"), prediction()]),
    ("linearmodels", "PanelOLS with effects, clustered",
     lambda: panel(PanelOLS, "y ~ x*treated + p + EntityEffects", cov_type="clustered",
                   cluster_entity=True), "identity",
     [slope("x"), comparison("treated"), comparison("p", (-1, 2))]),
    ("pyfixest", "feols, hetero", lambda: fixest(pyfixest.feols, "y ~ x*treated + p", "hetero"),
     "identity", [slope("x"), comparison("treated"), prediction()]),
    ("pyfixest", "feols with effects, CRV1",
     lambda: fixest(pyfixest.feols, "y ~ x*treated | firm", {"CRV1": "firm"}), "identity",
     [slope("x"), comparison("treated")]),
    ("pyfixest", "fepois, CRV1",
     lambda: fixest(pyfixest.fepois, "count ~ x*treated", {"CRV1": "firm"}, "response"), "exp",
     [slope("x"), comparison("treated"), comparison("treated", how="ratio"), prediction(),
      comparison("x", (-1, 1))]),
    ("lifelines", "WeibullAFTFitter", lambda: aft(lifelines.WeibullAFTFitter), "weibull",
     [slope("x"), comparison("treated"), comparison("treated", how="ratio"), prediction()]),
    ("lifelines", "LogNormalAFTFitter, penalized",
     lambda: aft(lifelines.LogNormalAFTFitter, penalizer=0.01), "lognormal",
     [slope("x"), comparison("treated")]),
    ("lifelines", "CoxPHFitter", cox, None,
     [hypothesis("np.exp(b['treated'])", f"{np.e!r} ** b1"),
      hypothesis("b['x'] / b['treated']", "b0/b1")]),
    ("lifelines", "WeibullFitter", weibull, None, [own_delta(0.5), own_delta(2.0)]),
]  # fmt: skip


def answer(theirs, adapter, results):
    if theirs.__name__ == "found":
        return theirs(results)
    table = theirs(adapter)
    table = getattr(table, "data", table)
    return float(table["estimate"][0]), float(table["std_error"][0])


def stated_errors(results):
    """Take the standard errors that a library prints."""
    if hasattr(results, "std_errors"):
        return results.std_errors
    return results.se() if hasattr(results, "se") else results.summary["se(coef)"]


def main():
    cases = []
    for library, name, fit, response, questions in CASES:
        results, params, cov, predict, data = fit()
        model = idm.from_estimates(results, data=data)
        printed = idm.infer(model, idm.parameters).standard_error
        np.testing.assert_allclose(printed, stated_errors(results), rtol=1e-9)
        rows = D if data is None else data
        rows = rows.reset_index() if rows is PANEL else rows
        adapter = Adapter(params, cov, predict or (lambda b, rows: rows["x"]), rows)
        asked = []
        for text, theirs in questions:
            value, error = answer(theirs, adapter, results)
            ours = idm.infer(model, eval(text, ASK | {"np": np}))
            gaps = abs(ours.value / value - 1), abs(ours.standard_error / error - 1)
            print(f"{library:13} {name:34} {text:58} {value:10.5f} {error:9.5f} {max(gaps):.1e}")
            assert max(gaps) < TOLERANCE, (name, text, ours.value, ours.standard_error)
            asked.append({"ask": text, "value": value, "standard_error": error})
        names = [":".join(i) if isinstance(i, tuple) else str(i) for i in params.index]
        cases.append(
            {
                "library": library, "model": name, "response": response, "names": names,
                "params": np.asarray(params).tolist(), "covariance": np.asarray(cov).tolist(),
                "variance": str(model.facts.host.covariance),
                "df": None if np.isinf(model.facts.df) else model.facts.df, "questions": asked,
            }
        )  # fmt: skip
    packages = ("linearmodels", "pyfixest", "lifelines", "marginaleffects", "numpy", "pandas")
    stored = {
        "made_by": "tests/golden/estimates.py",
        "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
        "tolerance": TOLERANCE,
        "data": {c: D[c].tolist() for c in ("x", "treated", "p")},
        "cases": cases,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()

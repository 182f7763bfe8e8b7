"""Ask Python's marginaleffects the same questions: a check of `questions.json`, no dependency.

    python -m venv /tmp/env && /tmp/env/bin/pip install marginaleffects statsmodels "polars<2"
    /tmp/env/bin/python marginaleffects_check.py      # writes marginaleffects.json

Questions that it cannot be asked (the sampling of rows, offsets, ordered models, an outcome that is
text) are left out, and "sd", which is around each row's value there and around the mean in R.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import statsmodels.api as sm
import statsmodels.formula.api as smf
from marginaleffects import avg_comparisons, avg_predictions, avg_slopes

HERE = Path(__file__).parent
HOW = {"ratio": "ratioavg", "lnratio": "lnratioavg", "oddsratio": "lnoravg"}


def average_comparison(fit, vcov, variable, values=(0, 1), how="difference", by=None, data=None):
    pair = values if isinstance(values, str) else list(values)
    table = avg_comparisons(
        fit,
        variables={variable: pair},
        comparison=HOW.get(how, how),
        by=by or True,
        vcov=vcov,
        newdata=None if data is None else pl.from_pandas(data),
    )
    return answer(table, by, exp=how == "oddsratio")


def average_slope(fit, vcov, variable, by=None, data=None):
    grid = None if data is None else pl.from_pandas(data)
    return answer(avg_slopes(fit, variables=variable, by=by or True, vcov=vcov, newdata=grid), by)


def average_prediction(fit, vcov, by=None):
    return answer(avg_predictions(fit, by=by or True, vcov=vcov), by)


def answer(table, by, exp=False):
    frame = table if isinstance(table, pl.DataFrame) else table.data
    frame = frame.sort(by) if by else frame
    value, error = frame["estimate"].to_numpy(), frame["std_error"].to_numpy()
    return (np.exp(value), np.exp(value) * error) if exp else (value, error)


def covariance(fit, options, data):
    """Build the covariance of the parameters that the options of `infer` stand for."""
    if not options:
        return True
    kind = {"robust=True": {"cov_type": "HC0"}, "robust='HC3'": {"cov_type": "HC3"}}.get(
        options,
        {"cov_type": "cluster", "cov_kwds": {"groups": data.get("ID"), "use_correction": False}},
    )
    return np.asarray(fit.model.fit(disp=0, **kind).cov_params())


def typed(data):
    """Give columns the types that marginaleffects asks for: categories and floats."""
    return data.apply(lambda x: x.astype("category" if x.dtype.kind in "OUT" else float))


def main():
    found = {}
    for name, case in json.loads((HERE / "questions.json").read_text())["cases"].items():
        if any(word in case["python"] for word in ("offset=", "MNLogit", "OrderedModel")):
            continue
        data = typed(pd.DataFrame(case["data"]))
        model = eval(case["python"], {"smf": smf, "sm": sm, "np": np, "data": data})
        fit = model.fit(**({"disp": 0} if "glm" not in case["python"] else {"tol": 1e-12}))
        for key, question in case["questions"].items():
            verb, _, rest = question["ask"].partition("(")
            if verb == "predictions" or "population" in rest or "outcome" in rest or "'sd'" in rest:
                continue
            vcov = covariance(fit, question["options"], data)
            ask = {"average_comparison": average_comparison, "average_slope": average_slope}
            function = ask.get(verb, average_prediction)
            call = f"function(fit, vcov, {rest}"
            try:
                value, error = eval(call, {**locals(), "np": np})
            except Exception as problem:
                print(f"{name} {key}: not answered ({problem!r:.100})")
                continue
            gaps = [
                float(np.max(abs(mine / np.array(question[field]) - 1)))
                for mine, field in ((value, "value"), (error, "standard_error"))
            ]
            found[f"{name} {key}"] = {"value": value.tolist(), "standard_error": error.tolist()}
            print(f"{name} {key}: gaps {gaps[0]:.1e} {gaps[1]:.1e}")
    text = {"versions": {"marginaleffects": version("marginaleffects")}, "answers": found}
    (HERE / "marginaleffects.json").write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()

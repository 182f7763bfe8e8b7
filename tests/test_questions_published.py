"""The same averages, comparisons and slopes as R, Stata and marginaleffects, on published data."""

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import implicit_delta as idm

pd = pytest.importorskip("pandas")
sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")
from statsmodels.miscmodels.ordinal_model import OrderedModel

GOLDEN = Path(__file__).parent / "golden" / "questions"
CASES = json.loads((GOLDEN / "questions.json").read_text())["cases"]
STATA = json.loads((GOLDEN / "stata.json").read_text())["cases"]
MARGINALEFFECTS = json.loads((GOLDEN / "marginaleffects.json").read_text())["answers"]
ROWS = [(name, key) for name, case in CASES.items() for key in case["questions"]]
PRINTED = [(model, ask) for model, asked in STATA.items() for ask in asked]
NAMES = {"np": np, "sm": sm, "smf": smf, "OrderedModel": OrderedModel} | {
    name: getattr(idm, name)
    for name in (
        "average_comparison",
        "average_prediction",
        "average_slope",
        "datagrid",
        "predictions",
    )
}
# Tighter than the defaults of statsmodels, whose fits stop at 1e-5 of a standard error.
TIGHT = {
    "glm": {"tol": 1e-14, "maxiter": 100},
    "ols": {},
    "OrderedModel": {"method": "newton", "disp": 0, "tol": 1e-12, "maxiter": 100},
}


def fitted(python, data):
    """Fit the model of a case, given in Python."""
    model = eval(python, NAMES | {"data": data})
    kind = next((word for word in TIGHT if word in python), None)
    options = TIGHT.get(kind, {"method": "newton", "disp": 0, "tol": 1e-12, "maxiter": 100})
    return idm.from_statsmodels(model.fit(**options))


def asked(case, question):
    data = pd.DataFrame(case["data"])
    psi = eval(question["ask"], NAMES | {"data": data})
    options = eval(f"dict({question['options']})", NAMES | {"data": data})
    return idm.infer(fitted(case["python"], data), psi, **options)


@pytest.mark.filterwarnings("ignore::implicit_delta.errors.SmallSampleWarning")  # HC0, as in R
@pytest.mark.parametrize(("name", "key"), ROWS)
def test_as_in_r(name, key):
    case = CASES[name]
    question = case["questions"][key]
    estimate = asked(case, question)
    np.testing.assert_allclose(np.atleast_1d(estimate.value), question["value"], rtol=1e-6)
    np.testing.assert_allclose(
        np.atleast_1d(estimate.standard_error), question["standard_error"], rtol=1e-6
    )


@pytest.mark.parametrize(("python", "ask"), PRINTED)
def test_as_printed_by_stata(python, ask):
    """To a unit of the last digit in print, or 2e-6: Stata differentiates numerically."""
    data = pd.DataFrame(CASES["spline_mtcars"]["data"])
    psi = eval(ask, NAMES | {"data": data})
    estimate = idm.infer(fitted(python, data), psi, strict=False)
    for mine, printed in zip(
        (estimate.value, estimate.standard_error), STATA[python][ask], strict=True
    ):
        unit = 10.0 ** Decimal(printed).as_tuple().exponent
        assert mine == pytest.approx(float(printed), abs=unit, rel=2e-6)


@pytest.mark.parametrize("key", MARGINALEFFECTS)
def test_r_and_marginaleffects_agree(key):
    """Standard errors of its slopes are differences of differences, good to a few percent."""
    name, _, question = key.partition(" ")
    expected, found = CASES[name]["questions"][question], MARGINALEFFECTS[key]
    loose = 0.05 if "slope" in question else 1e-6
    np.testing.assert_allclose(found["value"], expected["value"], rtol=1e-6)
    np.testing.assert_allclose(found["standard_error"], expected["standard_error"], rtol=loose)

"""The same standard errors as R, on published models of nine families."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.special

import implicit_delta as idm

GOLDEN = Path(__file__).parent / "golden"
CASES = json.loads((GOLDEN / "delta_method.json").read_text())["cases"]
NAMES = vars(scipy.special) | vars(np)


def function(expression, data):
    """Turn one of R's formulas, written in the names of NumPy, into a function of theta."""
    arrays = {name: np.asarray(values) for name, values in data.items()}
    code = compile(expression, "<golden>", "eval")
    return lambda theta: eval(code, NAMES | arrays | {"theta": theta})


def model_of(case, **options):
    weights = case["data"].get("weights")
    if "residuals" in case:
        residuals = function(case["residuals"], case["data"])
        return idm.from_residuals(residuals, case["theta"], weights=weights, **options)
    return idm.from_loglik(function(case["loglik"], case["data"]), case["theta"], weights=weights)


def variants(case):
    """Which of R's conventions the library has, as (kind, options, method)."""
    if "residuals" not in case:
        return [("observed", {}, idm.Infinitesimal())]
    kinds = next(iter(case["evaluations"].values()))["standard_error"]
    table = {
        "unbiased": ({"variance": "unbiased"}, "hessian"),
        "mle": ({"variance": "mle"}, "hessian"),
        "observed_unbiased": ({"variance": "unbiased"}, "hessian"),
        "observed_mle": ({"variance": "mle"}, "hessian"),
        "expected_unbiased": ({"variance": "unbiased"}, "ggn"),
        "expected_mle": ({"variance": "mle"}, "ggn"),
    }
    return [(kind, table[kind][0], idm.Infinitesimal(curvature=table[kind][1])) for kind in kinds]


ROWS = [
    pytest.param(case, *variant, id=f"{name}-{variant[0]}")
    for name, case in CASES.items()
    for variant in variants(case)
]


@pytest.mark.parametrize(("case", "kind", "options", "method"), ROWS)
def test_standard_errors_as_in_r(case, kind, options, method):
    model = model_of(case, **options)
    for evaluation in case["evaluations"].values():
        psi = function(evaluation["formula"], case["data"])
        # R's deltaMethod has normal quantiles
        estimate = idm.infer(model, psi, method, strict=False, df=np.inf)
        assert estimate.value == pytest.approx(evaluation["value"], rel=1e-12)
        assert estimate.standard_error == pytest.approx(
            evaluation["standard_error"][kind], rel=1e-6
        )
        np.testing.assert_allclose(
            estimate.confidence_interval(0.95), evaluation["wald_95"][kind], rtol=1e-6
        )


@pytest.mark.parametrize(("case", "kind", "options", "method"), ROWS)
def test_covariance_of_the_parameters_as_in_r(case, kind, options, method):
    expected = np.array(case["covariance"][kind])
    size = np.sqrt(np.diag(expected))
    covariance = idm.infer(model_of(case, **options), idm.parameters, method).covariance
    np.testing.assert_allclose(
        covariance / np.outer(size, size), expected / np.outer(size, size), atol=2e-6
    )

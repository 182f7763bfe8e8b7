"""The nonlinear regressions of NIST: certified data, and fits to six digits from both starts."""

import json
from pathlib import Path

import numpy as np
import pytest

import benchmarks.nist
import implicit_delta as idm
from benchmarks.nist import PROBLEMS, digits
from benchmarks.nist.fits import measure
from benchmarks.nist.table import nist, nist_problems, ratios

FAST = ["Bennett5", "BoxBOD", "Chwirut2", "DanWood", "Eckerle4", "Gauss3", "Kirby2"]
FAST += ["Lanczos3", "MGH17", "Misra1d", "Nelson", "Rat43", "Roszman1"]
STORED = Path(benchmarks.nist.__file__).parent


def fits(name):
    marks = [] if name in FAST else [pytest.mark.slow]
    return [pytest.param(name, start, marks=marks) for start in (0, 1)]


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "Lanczos1"])
def test_the_certified_parameters_leave_the_certified_squares(name):
    """Rounding of theta to 11 digits moves the sum of squares by a second-order amount."""
    problem = PROBLEMS[name]
    squares = float(np.sum(problem.residuals(problem.theta) ** 2))
    assert squares == pytest.approx(problem.sum_of_squares, rel=1e-7)
    assert problem.theta.size == problem.errors.size == problem.starts.shape[1]


@pytest.mark.parametrize(
    ("name", "start"), [fit for name in PROBLEMS if name != "Lanczos1" for fit in fits(name)]
)
def test_parameters_and_standard_errors_have_six_digits(name, start):
    found = measure(PROBLEMS[name], PROBLEMS[name].starts[start])
    assert min(found["digits"]) >= 6, found
    assert found["fit"] <= 3000


def test_an_exact_fit_is_refused():
    problem = PROBLEMS["Lanczos1"]
    with pytest.raises(ValueError, match="fits these data exactly"):
        idm.from_residuals(problem.residuals, start=problem.starts[1])


@pytest.mark.parametrize("name", ["Bennett5", "Lanczos3"])
def test_a_curved_valley_is_named(name):
    """A straight step leaves the valley, along which the standard error is right."""
    problem = PROBLEMS[name]
    model = idm.from_residuals(problem.residuals, theta=problem.theta)
    with pytest.warns(idm.NonlinearityWarning, match="curved valley"):
        est = idm.infer(model, idm.parameters)
    assert [finding.code for finding in est.diagnostics.findings] == ["curved_valley"]


def test_a_jacobian_may_be_given_or_not_traceable():
    problem = PROBLEMS["Rat42"]
    opaque = lambda th: problem.residuals(np.array([float(value) for value in th]))
    model = idm.from_residuals(opaque, start=problem.starts[0])
    assert digits(model.theta, problem.theta) >= 6


def test_the_stored_table_is_that_of_the_site():
    stored = json.loads((STORED / "fits.json").read_text())
    assert set(stored["problems"]) == set(PROBLEMS)
    others = json.loads((STORED / "lmfit_and_scipy.json").read_text())
    lmfit = {name: ways["lmfit"] for name, ways in others["problems"].items()}
    assert np.median(ratios(stored["problems"], lmfit)) <= 2.5
    header, rows = nist()
    assert [row[0] for row in rows] == ["implicit-delta", "lmfit", "SciPy `curve_fit`"]
    assert int(rows[0][2]) >= 52
    assert len(nist_problems()[1]) == len(PROBLEMS)
    assert {"lmfit", "scipy"} <= set(others["versions"])
    assert all(len(row) == len(header) + 1 for row in rows)

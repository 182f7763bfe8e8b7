"""Findings: what checks have found is data, is warned of once, raised if strict, and kept."""

import ast
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import implicit_delta as idm
from implicit_delta.core.findings import Finding, report

rng = np.random.default_rng(0)
n = 60
x = rng.normal(size=n)
y = (rng.random(n) < 1 / (1 + np.exp(-0.5 - x))) * 1.0
z = 1 + 0.5 * x + rng.normal(size=n)
skewed = np.exp(1.5 * rng.normal(size=n))
counts = rng.poisson(np.exp(0.5 + 0.3 * x) * rng.gamma(0.5, 2.0, size=n))


def logit(b):
    eta = b[0] + b[1] * x
    return y * eta - np.logaddexp(0, eta)


def separated(b):
    eta = b[0] + b[1] * x
    return (x > 0) * eta - np.logaddexp(0, eta)


def slope(b):
    return b[1]


def line(x=x, y=z, **options):
    return idm.from_residuals(lambda b: y - b[0] - b[1] * x, start=[0.0, 0.0], **options)


RESULTS = sm.Poisson(counts, sm.add_constant(x)).fit(disp=0)


def poisson():
    return idm.from_statsmodels(RESULTS)


def stepped(*, away):
    """A fit that is so many standard errors of the slope from its maximum, along its response."""
    model = idm.from_loglik(logit, start=[0.0, 0.0])
    V = np.linalg.inv(model.information(model.theta, np.eye(2)))
    return idm.from_loglik(logit, theta=model.theta + away * V[1] / np.sqrt(V[1, 1]))


def ridge(l2, terms=logit):
    return idm.from_loglik(terms, start=[0.0, 0.0], l2=l2)


CASES = {  # code: model, psi, options, level
    "drift": (lambda: stepped(away=0.4), slope, {}, "warn"),
    "drift, refused": (lambda: stepped(away=-1.5), slope, {}, "refuse"),
    "bend": (lambda: stepped(away=0.0), lambda b: np.exp(2 * b[1]), {}, "warn"),
    "bend, refused": (lambda: stepped(away=0.0), lambda b: np.sum((b - [0.5, 1]) ** 2), {}, None),
    "debias, refused": (lambda: ridge(1.0, separated), slope, {"debias": True}, "refuse"),
    "shrinkage": (lambda: ridge(3.0), slope, {}, "warn"),
    "coverage": (lambda: line(skewed), slope, {"robust": True}, "warn"),
    "few_clusters": (line, slope, {"clusters": np.arange(n) // 10}, "warn"),
    "vanishing_error": (
        lambda: idm.from_loglik(lambda b: np.r_[0 * b[0], np.sum(logit(b))], start=[0.0, 0.0]),
        slope,
        {"robust": True},
        "warn",
    ),
    "dispersion": (poisson, slope, {}, "warn"),
    "dispersion of residuals": (lambda: line(variance=0.25), slope, {}, "warn"),
    "limit": (
        lambda: idm.from_loglik(logit, start=[0.0, 0.0], bounds=[(None, None), (0.5, None)]),
        slope,
        {},
        "warn",
    ),
    "one_cluster": (line, slope, {"clusters": np.r_[np.zeros(n - 3), 1, 2, 3]}, "warn"),
    "training_loss": (
        lambda: ridge(5.0),
        idm.Average(lambda b: -logit(b), sample="training"),
        {},
        "warn",
    ),
    "blur": (
        lambda: idm.from_loglik(logit, start=[0.0, 0.0]),
        lambda b: np.float32(b[1] + 1e5),
        {"method": idm.Simulation(200, rng=0)},
        "warn",
    ),
    "blur, refused": (
        lambda: idm.from_loglik(logit, start=[0.0, 0.0]),
        lambda b: np.float32(b[1] + 1e6),
        {"method": idm.Simulation(200, rng=0)},
        "refuse",
    ),
    "host_results": (poisson, lambda b: b[1] * RESULTS.llf, {}, "warn"),
    "same_rows": (
        lambda: stepped(away=0.0),
        idm.Average(lambda b: np.full(9, b[1]), sample="independent"),
        {},
        "warn",
    ),
    "smoothing_change": (
        lambda: stepped(away=0.0),
        idm.Smoothed(lambda b: float(b[1] > 0.77), draws=200, rng=0),
        {},
        "warn",
    ),
    "few_units": (
        lambda: stepped(away=0.0),
        slope,
        {"method": idm.Bootstrap(20, rng=0), "clusters": np.arange(n) // 15},
        "warn",
    ),
    "bent_draws": (
        lambda: stepped(away=0.0),
        lambda b: np.exp(3 * b[1]),
        {"method": idm.Simulation(2000, rng=0), "robust": True},
        "warn",
    ),
}


def asked(name, strict):
    make, psi, options, _ = CASES[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = make()
        caught.clear()
        try:
            return idm.infer(model, psi, strict=strict, **options), caught
        except idm.ImplicitDeltaError as error:
            return error, caught


@pytest.mark.parametrize("name", CASES)
def test_a_finding_has_its_code_and_is_warned_of_once(name, tmp_path):
    code = name.partition(",")[0].partition(" ")[0]
    est, caught = asked(name, strict=False)
    found = est.diagnostics.findings
    (one,) = (finding for finding in found if finding.code == code)
    assert one.level == (CASES[name][3] or one.level)
    assert isinstance(one.number, float | int) or code in {"limit", "host_results"}
    assert one.remedies or code == "host_results"
    assert [(str(w.message), w.category) for w in caught] == [(str(f), f.warning) for f in found]
    assert est.diagnostics.warnings == tuple(map(str, found))
    est.save(tmp_path / "est.npz")
    for other in (idm.Estimate.load(tmp_path / "est.npz"), pickle.loads(pickle.dumps(est))):
        assert other.diagnostics.findings == found


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_is_raised_if_strict_and_nothing_else_is(name):
    lenient, _ = asked(name, strict=False)
    strict, _ = asked(name, strict=True)
    refused = [finding for finding in lenient.diagnostics.findings if finding.level == "refuse"]
    if refused:
        assert type(strict) is refused[0].error
        assert str(strict) == f"{refused[0]} Pass `strict=False` to get the number anyway."
    else:
        assert strict.diagnostics.findings == lenient.diagnostics.findings


@pytest.mark.parametrize("options", [{}, {"robust": "HC3"}, {"influence": True}])
@pytest.mark.parametrize("make", [line, lambda: idm.from_loglik(logit, start=[0.0, 0.0])])
def test_ordinary_fits_have_no_findings(make, options):
    if options.get("robust") and make is not line:
        options = {"method": idm.FiniteDifference()}
    assert idm.infer(make(), slope, **options).diagnostics.findings == ()


def test_the_same_question_has_the_same_findings_again():
    model = line(variance=0.25)
    for _ in range(2):
        with pytest.warns(idm.DispersionWarning):
            assert [f.code for f in idm.infer(model, slope).diagnostics.findings] == ["dispersion"]


def test_joined_estimates_keep_the_findings_of_both():
    first, _ = asked("dispersion of residuals", strict=False)
    other, _ = asked("shrinkage", strict=False)
    found = idm.join(first, other, independent=True).diagnostics.findings
    assert {finding.code for finding in found} == {"dispersion", "shrinkage"}


def test_what_estimates_share_is_a_finding_of_their_join():
    model = line()
    first, other = (idm.infer(model, psi) for psi in (slope, lambda b: b[0]))
    with pytest.warns(idm.ImplicitDeltaWarning, match="same fitted model") as caught:
        joined = idm.join(first, other, independent=True)
    (one,) = joined.diagnostics.findings
    assert one.code == "shared_data"
    assert joined.diagnostics.warnings == (str(one),) == tuple(str(w.message) for w in caught)
    assert joined.contrast([1, -1]).diagnostics.findings == (one,)


def test_polish_keeps_what_it_has_found():
    model = stepped(away=-1.5)
    psi = idm.Average(lambda b: np.full(9, b[1]), sample="independent")
    with pytest.warns(idm.ImplicitDeltaWarning) as caught:
        found = idm.polish(model, psi).findings
    assert [one.code for one in found] == ["same_rows"]
    assert len(caught) == len(found)


def test_black_boxes_have_the_findings_of_their_question():
    psi = idm.Average(lambda mean: np.full(9, mean), sample="independent")
    with pytest.warns(idm.ImplicitDeltaWarning, match="h is the same for all 9"):
        est = idm.bootstrap(np.mean, z, psi, replicates=50, rng=0)
    assert [one.code for one in est.diagnostics.findings] == ["same_rows"]


def test_a_note_is_in_the_list_only():
    data = pd.DataFrame({"x": x, "y": y})
    model = idm.from_statsmodels(smf.logit("y ~ x", data).fit(disp=0))
    found = idm.infer(model, idm.average_comparison("x")).diagnostics.findings
    assert [(one.level, one.code) for one in found] == [("note", "default_values")]
    assert f"from {x.min():.4g} to {x.max():.4g}" in found[0].text


def test_levels():
    found = [Finding(level, level, level.title()) for level in ("note", "warn", "refuse", "error")]
    with (
        pytest.warns(idm.ImplicitDeltaWarning) as caught,
        pytest.raises(idm.ImplicitDeltaError) as e,
    ):
        report(found, strict=True)
    assert [str(w.message) for w in caught] == ["Warn"]
    assert str(e.value) == "Refuse Pass `strict=False` to get the number anyway."
    with (
        pytest.warns(idm.ImplicitDeltaWarning) as caught,
        pytest.raises(idm.ImplicitDeltaError) as e,
    ):
        report(found, strict=False)
    assert [str(w.message) for w in caught] == ["Warn", "Refuse"]
    assert str(e.value) == "Error"


def test_every_code_has_a_section_and_every_section_a_code():
    trees = [ast.parse(path.read_text()) for path in Path(idm.__file__).parent.rglob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    codes = {c.args[1].value for c in calls if ast.unparse(c.func) == "Finding" and len(c.args) > 1}
    page = (Path(__file__).parents[1] / "docs" / "trust" / "refusals.md").read_text()
    sections = re.findall(r"^### `(\w+)`$", page.split("## Findings")[1], re.MULTILINE)
    assert sorted(sections) == sorted(codes)


def test_only_report_warns_of_results():
    """Data and hosts are checked where they enter, in `models` for the most part."""
    root = Path(idm.__file__).parent
    for room in ("evaluation", "methods", "inference", "estimate"):
        for path in (root / room).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text()))
            warned = "warn" in {
                ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)
            }
            assert not warned or path.name == "statsmodels_names.py" or "profile" in path.parts, (
                path
            )


def test_checks_neither_raise_nor_warn():
    """`report` does, and nothing else."""
    for path in (Path(idm.__file__).parent / "inference" / "checks").glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        assert not any(isinstance(node, ast.Raise) for node in nodes)
        called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        assert not {name for name in called if "warn" in name.rpartition(".")[2]}

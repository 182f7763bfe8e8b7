"""Files around the package agree with each other."""

import csv
import json
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import implicit_delta as idm

ROOT = Path(__file__).parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "results"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_changelog_says_nothing_twice():
    text = (ROOT / "CHANGELOG.md").read_text()
    entries = [
        " ".join(entry.split())
        for entry in re.findall(r"^- ((?:.+\n?)+?)(?=^\S|\n|\Z)", text, re.M)
    ]
    assert entries
    assert not [entry for entry, count in Counter(entries).items() if count > 1]


def test_the_version_is_the_same_everywhere():
    (cited,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited == idm.__version__
    noted = re.search(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert noted[1] == idm.__version__.split(".dev")[0]
    if ".dev" not in idm.__version__:
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", noted[2])


def test_the_links_of_the_changelog_lead_somewhere():
    links = re.findall(r"\]\((?!http)([^)#]+)", (ROOT / "CHANGELOG.md").read_text())
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_extra_all_is_all_of_them():
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(everything.split("[")[1].rstrip("]").split(",")) == set(extras) - {"all", "docs"}


def test_every_requirement_of_users_has_a_lower_bound():
    extras = [v for k, v in PROJECT["optional-dependencies"].items() if k != "all"]
    named = [*PROJECT["dependencies"], *(entry for extra in extras for entry in extra)]
    assert not [n for n in named if ">=" not in n and not n.startswith("implicit-delta[")]


def test_workflows_call_targets_of_the_makefile():
    workflows = list((ROOT / ".github" / "workflows").glob("*.yml"))
    if not workflows:
        pytest.skip("the workflows are not here")
    called = {
        name for path in workflows for name in re.findall(r"run: make (\S+)", path.read_text())
    }
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"test", "test-portable", "test-lowest", "docs", "dist"} <= called <= targets


def coverage(task, column="coverage"):
    """Entries of the record of coverage by method, in percent."""
    with (RESULTS / "coverage" / "table.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["task"] == task]
    assert rows, f"no task {task!r} in the record"
    return {row["method"]: 100 * float(row[column]) for row in rows}


def fidelity(column):
    """Summary of a column of the study of networks, over all questions."""
    with (RESULTS / "fidelity" / "summary.csv").open() as file:
        rows = {(row["column"], row["question"]): row for row in csv.DictReader(file)}
    return {name: float(x) for name, x in list(rows[column, "all"].items())[2:]}


def times_by_hand(name):
    row = json.loads((ROOT / "benchmarks" / "results.json").read_text())[name]
    return row["value"], row["before"]


def test_the_page_on_networks_has_the_figures_of_the_record():
    if not RESULTS.exists():
        pytest.skip("the records are not in this copy")
    found = fidelity("default")
    text = " ".join((DOCS / "guide" / "networks.md").read_text().split())
    assert "of the {cells:.0f} cells".format(**found) in text
    assert "{:.0f} % lie within a factor of 1.5".format(100 * found["fair"]) in text
    assert "between {lowest:.2f} and {highest:.2f} times".format(**found) in text
    assert "a geometric mean of {geometric_mean:.2f}".format(**found) in text


def test_the_words_of_pages_are_those_of_the_record_of_coverage():
    """guide/constraints and equations, theory/open, trust/index: words where it has numbers."""
    if not RESULTS.exists():
        pytest.skip("the records are not in this copy")
    for k in (0, 1, 3):
        assert coverage(f"signal {k} standard errors from its bound")["profile"] > 95 - 2
    assert all(abs(x - 95) < 2 for x in coverage("treatment effect by weights").values())
    slopes = {
        "strong instruments (F about 50)": ((92, 95), (0, 1)),
        "middling instruments (F about 9)": ((88, 92), (40, 60)),
        "weak instruments (F about 1.5)": ((60, 70), (99, 100)),
    }
    for kind, (covered, warned) in slopes.items():
        found = coverage(f"slope by {kind}"), coverage(f"slope by {kind}", "warned")
        for values, (low, high) in zip(found, (covered, warned), strict=True):
            assert all(low <= x <= high for x in values.values()), kind
    assert coverage("ridge logit, l2 = 20")["default"] < 100 / 3
    small = coverage("variance of a normal")
    wald = next(x for method, x in small.items() if "profile" not in method)
    assert abs(small["profile"] - 95) < abs(wald - 95)


def test_the_words_of_pages_are_those_of_other_records():
    """Twice and ten times too large; half of the time; tens of times faster; iminuit's calls."""
    if not RESULTS.exists():
        pytest.skip("the records are not in this copy")
    weights = fidelity("weights")
    assert weights["lowest"] > 2
    assert 8 < weights["geometric_mean"] < 12
    logit = "Bootstrap, logit n = 2000, d = 10, B = 200: "
    one, full = (times_by_hand(logit + kind)[0] for kind in ("one-step", "statsmodels"))
    assert one / full < 0.6
    now, before = times_by_hand("from_loglik without score, n = 2000, d = 100")
    assert before / now > 20
    (row,) = re.findall(
        r"^\| unbinned peak.*$", (DOCS / "coming_from/iminuit.md").read_text(), re.M
    )
    theirs = json.loads((ROOT / "benchmarks/calls_minuit.json").read_text())["unbinned_peak"]
    assert [int(n) for n in re.findall(r"/ (\d+)", row)] == [
        theirs[name] for name in ("migrad", "hesse", "minos", "mncontour")
    ]

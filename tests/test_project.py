"""Files around the package agree with each other."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import implicit_delta as idm

ROOT = Path(__file__).parents[1]
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
    assert {"test", "test-lowest", "docs", "dist"} <= called <= targets

"""The code on the pages of the site runs and prints what they show; nothing public is left out."""

import inspect
import re
from pathlib import Path

import pages
import pytest

import implicit_delta as idm

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
if not (DOCS / "conf.py").exists():
    pytest.skip("the pages of the site are not here", allow_module_level=True)

GENERATED = {DOCS / "auto_examples", DOCS / "api" / "generated"}
PAGES = [
    path
    for path in sorted([*DOCS.rglob("*.md"), DOCS / "llms.txt"])
    if not GENERATED & set(path.parents) and pages.blocks(path.read_text())
]
# More than a few seconds: many fits, or torch and JAX.
SLOW = {"guide/models.md", "guide/which_call.md", "trust/index.md", "trust/refusals.md"}


def named(path):
    name = path.relative_to(DOCS).as_posix()
    return pytest.param(path, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


@pytest.mark.parametrize("path", [named(path) for path in PAGES])
def test_every_block_prints_what_is_shown(path, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    text = path.read_text()
    if lacking := pages.missing(text):
        pytest.skip(f"not installed: {', '.join(lacking)}")
    monkeypatch.chdir(tmp_path)
    pages.check(text, str(path.relative_to(ROOT)))


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^   (\w+)$", (DOCS / "api" / "index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(idm.__all__)


def test_every_error_and_warning_has_an_entry():
    headings = re.findall(r"^### (.*)$", (DOCS / "trust" / "refusals.md").read_text(), re.MULTILINE)
    kinds = [
        name
        for name in idm.__all__
        if inspect.isclass(getattr(idm, name)) and issubclass(getattr(idm, name), Exception)
    ]
    assert {f"`{name}`" for name in kinds} <= set(headings)


def test_the_glossary_has_its_ten_words():
    glossary = (DOCS / "guide" / "glossary.md").read_text().split("```")[1]
    words = re.findall(r"^(\w+)\n  \S", glossary, re.MULTILINE)
    assert set(words) == {
        "psi", "terms", "push", "drift", "response",
        "budget", "target", "tangent", "shard", "sandwich",
    }  # fmt: skip


def test_every_example_has_a_place_in_the_gallery_once():
    examples = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
    index = (ROOT / "examples" / "index.rst").read_text()
    assert sorted(re.findall(r"examples/(\w+)\.py", index)) == examples
    assert sorted(re.findall(r"^   (\w+)$", index.split("toctree")[1], re.MULTILINE)) == examples


def test_the_picture_of_the_start_is_made_by_the_code_of_the_start():
    assert 'savefig("start.png"' in (DOCS / "index.md").read_text()
    assert (DOCS / "images" / "start.png").exists()


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("1.23", "1.24", True),
        ("1.23", "1.25", False),
        ("5.7e-24", "5.8e-24", True),
        ("5.7e-24", "5.7e-23", False),
        ("12 rows", "13 rows", False),
        ("HC1  0.5", "HC1 0.5", True),
        ("HC1 0.5", "HC2 0.5", False),
        ("seconds ... passes 4", "seconds 0.123 passes 4", True),
        ("seconds ... passes 4", "seconds 0.123 passes 5", False),
        ("a long\nmessage", "a long message", True),
        ("", "something", False),
    ],
)
def test_outputs_are_compared_with_care(shown, printed, same):
    assert pages.agree(shown, printed) is same


def test_a_page_that_shows_another_number_fails():
    pytest.importorskip("matplotlib")
    wrong = "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n"
    with pytest.raises(AssertionError, match="line 2: the code prints"):
        pages.check(wrong, "page.md")
    assert pages.rewritten(wrong, "page.md") == wrong.replace("3", "2")

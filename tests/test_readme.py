"""The README runs as printed, and reads well on a package index."""

import re
from pathlib import Path

import pages
import pytest

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text()
SITE = "https://github.com/implicit-delta/implicit-delta"


def test_every_block_prints_what_is_shown(tmp_path, monkeypatch):
    if lacking := pages.missing(TEXT):
        pytest.skip(f"not installed: {', '.join(lacking)}")
    monkeypatch.chdir(tmp_path)
    pages.check(TEXT, "README.md")


def test_links_are_absolute():
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert links
    assert not [link for link in links if not link.startswith("https://")]

"""The README runs as printed, and reads well on a package index."""

import re
from pathlib import Path

import pages
import pytest

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text()


def test_every_block_prints_what_is_shown(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    pages.check(TEXT, "README.md")


def test_links_are_absolute():
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert links
    assert not [link for link in links if not link.startswith("https://")]

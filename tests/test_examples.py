"""The examples run as scripts, those that check themselves by brute force in small."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def missing(path):
    """Packages that an example imports and that are not installed."""
    modules = [
        name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    ]
    return sorted(
        {m.split(".")[0] for m in modules if not importlib.util.find_spec(m.split(".")[0])}
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(path, tmp_path):
    if lacking := missing(path):
        pytest.skip(f"not installed: {', '.join(lacking)}")
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": source, "MPLBACKEND": "Agg", "REPEATS": "10", "EPOCHS": "40"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout

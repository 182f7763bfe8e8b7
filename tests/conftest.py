"""Settings that must precede the import of NumPy, torch, JAX and matplotlib; skipped examples."""

import ast
import importlib.util
import os

import pytest

# One thread each: the tests themselves run in parallel, and sums in a fixed order are reproducible.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_threads] = "1"
os.environ["MPLBACKEND"] = "Agg"
os.environ["JAX_PLATFORMS"] = "cpu"

# The same examples in every run, and none refused for being slow: a test fails for its own reasons.
if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("reproducible", derandomize=True, deadline=None)
    settings.load_profile("reproducible")


def imported(code):
    """Top-level packages that a piece of code imports, several on a line too."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Collect tests once: an import error that doctests ignore would hide all tests of a file."""
    collectors = yield
    return [found for found in collectors if type(found).__name__ != "DoctestModule"]


def pytest_collection_modifyitems(items):
    """Skip examples in docstrings that import what is not installed."""
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            code = "".join(example.source for example in item.dtest.examples)
            lacking = [name for name in imported(code) if not importlib.util.find_spec(name)]
            if lacking:
                item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(lacking)}"))

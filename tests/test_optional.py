"""Without the libraries it can work with, the package imports, and says what to install."""

import subprocess
import sys
import textwrap

import pytest

OPTIONAL = [
    "torch", "jax", "statsmodels", "sklearn", "pandas", "polars", "matplotlib", "bayes_opt", "dask",
]  # fmt: skip

HIDE = """
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hide())
"""


def run(code, hidden):
    """Run code in a fresh interpreter in which some modules cannot be found."""
    script = HIDE.format(hidden=set(hidden)) + textwrap.dedent(code)
    path = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, env=path
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_core_works_alone():
    printed = run(
        """
        import numpy as np
        import implicit_delta as idm

        y = np.array([3, 0, 2, 5, 1, 4, 2, 3])
        model = idm.from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])
        print(f"{idm.infer(model, lambda th: np.exp(th[0])).standard_error:.4f}")
        """,
        OPTIONAL,
    )
    assert printed.strip() == "0.5590"  # sqrt(mean / n)


def test_importing_loads_no_optional_library():
    printed = run(
        f"""
        import implicit_delta
        print(sorted(set({OPTIONAL!r}) & set(sys.modules)))
        """,
        [],
    )
    assert printed.strip() == "[]"


CALLS = {
    "torch": ("idm.from_torch(None, (None, None), idm.Gaussian())", "implicit-delta[torch]"),
    "jax": ("idm.from_jax(None, (None, None), idm.Gaussian())", "implicit-delta[jax]"),
    "statsmodels": ("idm.from_statsmodels(None)", "implicit-delta[statsmodels]"),
    "sklearn": ("idm.from_sklearn(None, None, None)", "implicit-delta[sklearn]"),
    "pandas": ("est.to_frame()", "implicit-delta[pandas]"),
    "polars": ("est.to_frame(library='polars')", "implicit-delta[polars]"),
}


@pytest.mark.parametrize("library", CALLS)
def test_what_is_missing_is_named(library):
    call, remedy = CALLS[library]
    printed = run(
        f"""
        import implicit_delta as idm

        est = idm.Estimate(1.0, [[1.0]], names=("a",), method="by hand")
        try:
            {call}
        except ImportError as error:
            print(error)
        """,
        [library],
    )
    assert "pip install" in printed
    assert remedy in printed

"""Without the libraries it can work with, the package imports, and says what to install."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import implicit_delta

OPTIONAL = [
    "torch", "jax", "statsmodels", "sklearn", "pandas", "polars", "matplotlib", "dask",
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


SETUP = """
import numpy as np
import implicit_delta as idm

y = np.array([3, 0, 2, 5, 1, 4, 2, 3])
model = idm.from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])
mean = lambda th: np.exp(th[0])
estimate = idm.infer(model, mean)
one = [idm.Infinitesimal()]
"""

TRY = """
try:
    {}
except ImportError as error:
    print(error)
"""

# What is hidden, the call, its name in the message, the name of the library, and the extra.
CALLS = [
    ("torch", "idm.from_torch(None, (None, None), idm.Gaussian())", "from_torch", "torch", "torch"),
    ("jax", "idm.from_jax(None, (None, None), idm.Gaussian())", "from_jax", "jax", "jax"),
    ("statsmodels", "idm.from_statsmodels(None)", "from_statsmodels", "statsmodels", "statsmodels"),
    ("sklearn", "idm.from_sklearn(None, None, None)", "from_sklearn", "scikit-learn", "sklearn"),
    ("pandas", "estimate.to_frame()", "to_frame()", "pandas", "pandas"),
    ("pandas", "idm.compare(model, mean, one).to_frame()", "to_frame()", "pandas", "pandas"),
    ("pandas", "idm.profile(model, mean).to_frame()", "to_frame()", "pandas", "pandas"),
    ("polars", "estimate.to_frame(library='polars')", "to_frame()", "polars", "polars"),
    ("matplotlib", "estimate.plot()", "plot()", "matplotlib", "plot"),
    ("matplotlib", "idm.compare(model, mean, one).plot()", "plot()", "matplotlib", "plot"),
    ("matplotlib", "idm.profile(model, mean).plot()", "plot()", "matplotlib", "plot"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[1])
def test_what_is_missing_is_named_in_one_sentence(call):
    hidden, code, user, name, extra = call
    printed = run(SETUP + TRY.format(code), [hidden])
    remedy = f'`pip install "implicit-delta[{extra}]"`.'
    assert printed.strip() == f"{user} needs {name}, which is not installed: {remedy}"


@pytest.mark.slow
def test_a_library_without_its_own_requirement_is_no_library():
    pytest.importorskip("statsmodels")
    get = "from implicit_delta.core.optional import optional\n"
    printed = run(get + TRY.format("optional('statsmodels.api', 'This')"), ["pandas"])
    remedy = '`pip install "implicit-delta[statsmodels]"`.'
    assert printed.strip() == f"This needs pandas, which is not installed: {remedy}"


def test_every_optional_library_goes_through_the_helper():
    """Beside it, only code that has an object of the library already: models, outputs, axes."""
    source = Path(implicit_delta.__file__).parent
    lazy = re.compile(rf"^ +(?:import|from) ({'|'.join([*OPTIONAL, 'optax'])})\b", re.M)
    typed = re.compile(r"^if TYPE_CHECKING:\n(?:(?: .*)?\n)+", re.M)
    found = {
        str(path.relative_to(source).as_posix())
        for path in source.rglob("*.py")
        if lazy.search(typed.sub("", path.read_text()))
    }
    known = {f"models/{name}" for name in ("torch", "jax", "sklearn", "statsmodels")}
    assert {path for path in found if path.rpartition("/")[0] not in known} <= {
        "likelihoods.py",
        "estimate/scales.py",
    }

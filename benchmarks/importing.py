"""Time of ``import implicit_delta`` beside that of ``import numpy``, each in a new interpreter."""

import subprocess
import sys

from benchmarks.timing import Case

NUMPY_SECONDS = 0.1  # the aim of 0.4 s was set where NumPy takes this


def cases():
    yield Case(
        "import implicit_delta",
        aim=0.4 / NUMPY_SECONDS,
        ours=lambda: fresh("import implicit_delta"),
        hand=lambda: fresh("import numpy"),
        unit="x import numpy",
        before=9.4,
        rounds=9,
    )


def fresh(statement: str) -> None:
    subprocess.run([sys.executable, "-c", statement], check=True)

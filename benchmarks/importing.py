"""Time of ``import implicit_delta`` beside that of ``import numpy``, each in a new interpreter."""

import os
import subprocess
import sys
from tempfile import TemporaryDirectory

from benchmarks.timing import Case

AIM = 4.0  # 0.4 s, where NumPy takes 0.1


FIRST = """
import numpy as np
import implicit_delta as idm
y = np.random.default_rng(0).normal(size=50)
idm.infer(idm.from_loglik(lambda th: -((y - th[0]) ** 2) / 2, [y.mean()]), lambda th: th[0])
"""


def cases():
    """With compiled files, as after an installation: the first round writes them."""
    with TemporaryDirectory() as compiled:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = compiled

        def fresh(program):
            subprocess.run([sys.executable, "-c", program], check=True, env=env)

        numpy, unit = lambda: fresh("import numpy"), "x import numpy"
        ours = lambda: fresh("import implicit_delta")
        yield Case("import implicit_delta", AIM, ours, numpy, unit, before=11.5, rounds=9)
        first = lambda: fresh(FIRST)
        yield Case("import and the first infer", 2 * AIM, first, numpy, unit, rounds=9)

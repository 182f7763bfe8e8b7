"""Settings that must precede the import of NumPy, torch, JAX and matplotlib."""

import os

from hypothesis import settings

# One thread each: the tests themselves run in parallel, and sums in a fixed order are reproducible.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_threads] = "1"
os.environ["MPLBACKEND"] = "Agg"
os.environ["JAX_PLATFORMS"] = "cpu"

# The same examples in every run, and none refused for being slow: a test fails for its own reasons.
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.load_profile("reproducible")

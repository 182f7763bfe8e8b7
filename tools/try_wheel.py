"""Use the installed package with nothing but its core dependencies."""

from importlib.util import find_spec

import numpy as np

import implicit_delta as idm

if __name__ == "__main__":
    assert "site-packages" in idm.__file__, idm.__file__
    assert not find_spec("pandas"), "This environment holds more than the core dependencies."
    y = np.array([3, 0, 2, 5, 1, 4, 2, 3])
    model = idm.from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])
    mean = idm.infer(model, lambda th: np.exp(th[0]), names="mean")
    assert abs(mean.standard_error - np.sqrt(y.mean() / y.size)) < 1e-6
    print(mean)

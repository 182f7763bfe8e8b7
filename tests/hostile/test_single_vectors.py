"""Attacks on vectors in single precision: large float32 modules, made small here.

The truth is a factorization of the same module in double precision.
"""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import implicit_delta as idm
from implicit_delta.core.thresholds import UNCERTAIN

SIZES = {"d = 75": (5, 8, 3, 200), "d = 604": (10, 40, 4, 500), "d = 1565": (20, 60, 5, 1000)}
ROUNDING = 1e-5  # of the gradient of psi, in single precision
SEEDS = {"d = 75": 8, "d = 604": 3, "d = 1565": 1}
SCALES = {"plain": 0.0, "columns from 0.01 to 100": 2.0}


@pytest.fixture(autouse=True)
def single(monkeypatch):
    monkeypatch.setattr("implicit_delta.models.torch.module.MOST_DOUBLE", 10)


def problem(size, scale, seed):
    p, hidden, classes, n = SIZES[size]
    generator = torch.Generator().manual_seed(seed + 1)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(p, hidden), nn.Tanh(), nn.Linear(hidden, classes))
    X = torch.randn(n, p, generator=generator)
    X = X * torch.logspace(-SCALES[scale], SCALES[scale], p)
    return net, X, torch.randint(classes, (n,), generator=generator)


def answers(size, scale, l2, rtol, seed):
    net, X, y = problem(size, scale, seed)
    psi = lambda net: net(X[:2].to(next(net.parameters()).dtype))[:, 0]
    found = []
    for dtype, solver in (
        (torch.float64, idm.cholesky),
        (torch.float32, idm.conjugate_gradient(rtol=rtol)),
    ):
        model = idm.from_torch(net, (X, y), idm.Categorical(), l2=l2, dtype=dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", idm.DriftWarning)
            warnings.simplefilter("ignore", idm.NonlinearityWarning)
            method = idm.Infinitesimal(solver, "ggn")
            found.append(idm.infer(model, psi, method, strict=False))
    assert model.theta.dtype == np.float32
    return found


@pytest.mark.parametrize(("l2", "rtol"), [(0.1, 1e-2), (0.1, 1e-3), (10.0, 1e-3)])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("size", SIZES)
def test_the_error_is_within_its_bound(size, scale, l2, rtol):
    for seed in range(SEEDS[size]):
        exact, found = answers(size, scale, l2, rtol, seed)
        off = abs(found.standard_error / exact.standard_error - 1)
        assert np.max(off) <= found.diagnostics.residual + ROUNDING
        if l2 == 10.0:
            assert found.diagnostics.residual <= rtol


@pytest.mark.parametrize("rtol", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("size", SIZES)
def test_rounding_near_the_penalty_enters_the_bound(size, scale, rtol):
    """The standard error was off by up to 50 times its bound; or there is none, with a warning."""
    for seed in range(SEEDS[size]):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            exact, found = answers(size, scale, 1e-3, rtol, seed)
        residual = found.diagnostics.residual
        text = " ".join(str(one.message) for one in caught)
        assert np.isnan(residual) == ("no bound" in text)
        assert (residual > UNCERTAIN) == ("is known to" in text)
        off = abs(found.standard_error / exact.standard_error - 1)
        if not np.isnan(residual):
            assert np.max(off) <= residual + ROUNDING


def test_the_ridge_is_summed_in_double_precision():
    """Of two million float32 numbers; the fall of the objective is a small difference of it."""
    torch.manual_seed(0)
    net, X = nn.Linear(1000, 2000), torch.randn(4, 1000)
    model = idm.from_torch(net, (X, torch.arange(4)), idm.Categorical(), l2=1e4)
    ridge = float(model.weights.values @ model.rows.terms(model.theta)) - model.objective(
        model.theta
    )
    theta = model.theta.astype(np.float64)
    assert ridge == pytest.approx(5e3 * (theta @ theta), rel=1e-9)

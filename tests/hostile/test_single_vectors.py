"""Attacks on vectors in single precision: large float32 modules, made small here.

The truth is a factorization of the same module in double precision.
"""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import implicit_delta as idm

SIZES = {"d = 75": (5, 8, 3, 200), "d = 604": (10, 40, 4, 500), "d = 1565": (20, 60, 5, 1000)}
ROUNDING = 1e-4  # derivatives in single precision have four digits, whatever their vectors have
SCALES = {"plain": 0.0, "columns from 0.01 to 100": 2.0}


@pytest.fixture(autouse=True)
def single(monkeypatch):
    monkeypatch.setattr("implicit_delta.models.torch.module.MOST_DOUBLE", 10)


def problem(size, scale):
    p, hidden, classes, n = SIZES[size]
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(p, hidden), nn.Tanh(), nn.Linear(hidden, classes))
    X = torch.randn(n, p, generator=generator)
    X = X * torch.logspace(-SCALES[scale], SCALES[scale], p)
    return net, X, torch.randint(classes, (n,), generator=generator)


def answers(size, scale, l2, rtol, count=1):
    net, X, y = problem(size, scale)
    psi = lambda net: net(X[:count].to(next(net.parameters()).dtype))[:, 0]
    found = []
    for dtype, solver in (
        (torch.float64, idm.cholesky),
        (None, idm.conjugate_gradient(rtol=rtol)),
    ):
        model = idm.from_torch(net, (X, y), idm.Categorical(), l2=l2, dtype=dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", idm.DriftWarning)
            warnings.simplefilter("ignore", idm.NonlinearityWarning)
            method = idm.Infinitesimal(solver, "ggn")
            found.append(idm.infer(model, psi, method, strict=False))
    assert model.theta.dtype == np.float32
    return found


@pytest.mark.parametrize(("l2", "rtol"), [(1e-3, 1e-2), (1e-3, 1e-3), (0.1, 1e-3), (10.0, 1e-3)])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("size", SIZES)
def test_the_error_is_within_its_bound(size, scale, l2, rtol):
    exact, found = answers(size, scale, l2, rtol, count=2)
    off = abs(found.standard_error / exact.standard_error - 1)
    assert found.diagnostics.residual <= rtol
    assert np.max(off) <= found.diagnostics.residual + ROUNDING


@pytest.mark.parametrize("size", ["d = 75", "d = 1565"])
def test_rounding_below_the_penalty_is_told(size):
    """A curvature below the ridge is rounding; the errors are off by 16 and 250 times rtol."""
    with pytest.warns(idm.ImplicitDeltaWarning, match="no bound.*rtol=1e-2"):
        _, found = answers(size, "columns from 0.01 to 100", 1e-3, 1e-4, count=2)
    assert np.isnan(found.diagnostics.residual)


def test_the_ridge_is_summed_in_double_precision():
    """Of two million float32 numbers; the fall of the objective is a small difference of it."""
    torch.manual_seed(0)
    net, X = nn.Linear(1000, 2000), torch.randn(4, 1000)
    model = idm.from_torch(net, (X, torch.arange(4)), idm.Categorical(), l2=1e4)
    ridge = float(model.weights @ model.terms(model.theta)) - model.objective(model.theta)
    theta = model.theta.astype(np.float64)
    assert ridge == pytest.approx(5e3 * (theta @ theta), rel=1e-9)

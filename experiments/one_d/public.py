"""Bands of the 1D tasks by public names of the library alone, from the paper's trained network.

Two routes, fixed before they were run on the data sets of the study:

- "default": one call. `infer` takes a training that stopped early as it is: a ridge around the
  start of the training by the evidence, the Gauss-Newton curvature, and the sandwich HC2.
- "public": the finished fit. In turn, twice, the l2 of the evidence (`from_torch(l2="evidence")`)
  and the least-squares fit with that penalty (`from_residuals`), which starts where the training
  ended or, as its error message advises, where the training began. Then `infer` as it comes: the
  Gauss-Newton curvature, the unbiased noise variance, and Student's t.

Both ask in strict mode. A point that it refuses, or a fit that does not converge, has no interval:
`answered` is False there, and coverage counts it as missed. The numbers behind a refusal
(``strict=False``) are kept to be shown. Not used for lack of time: `replicates=`, other trainings
as a line of the budget, which is what the library has in place of the mixture over starts.
"""

import warnings

import numpy as np

import implicit_delta as idm
from experiments.network import as_module
from experiments.one_d.bands import Band, least_squares

ROUNDS = 2  # of the evidence and the fit in turn
NOISE = idm.Gaussian("unbiased")


def default_band(network, x, y, theta, start, grid):
    """`infer` of the network as trained, without a method."""
    model = idm.from_torch(
        as_module(network, theta), _tensors(x, y), NOISE, start=as_module(network, start)
    )
    points, _ = _tensors(grid, grid)
    return _band(model, lambda module, at: module(points[at]), grid.size)


def public_band(network, x, y, theta, start, grid):
    """The finished fit with the ridge of the evidence; a band of NaN if it does not converge."""
    try:
        model = _finished(network, x, y, theta, start)
    except idm.ConvergenceError:
        nothing = np.full(grid.size, np.nan)
        return Band(nothing, np.diag(nothing), answered=np.zeros(grid.size, dtype=bool))
    return _band(model, lambda theta, at: network.predict(theta, grid[at]), grid.size)


def _finished(network, x, y, theta, start):
    for _ in range(ROUNDS):
        module = as_module(network, theta)
        l2 = idm.from_torch(module, _tensors(x, y), NOISE, l2="evidence").penalty.floor
        model = _fitted(network, x, y, (theta, start), l2)
        theta = model.theta
    return model


def _fitted(network, x, y, starts, l2):
    """Least squares from the first start, or from the second if that does not converge."""
    first, second = starts
    try:
        return least_squares(network, x, y, start=first, variance="unbiased", l2=l2)
    except idm.ConvergenceError:
        return least_squares(network, x, y, start=second, variance="unbiased", l2=l2)


def _band(model, psi, size):
    """Numbers for the whole grid, and which of them strict mode gives if asked one by one."""
    whole = lambda m: psi(m, slice(None))
    with warnings.catch_warnings():
        # drift and bending where there are no data are findings here
        warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
        found = idm.infer(model, whole, strict=False)
        answered = _accepts(model, whole) or np.array(
            [_accepts(model, lambda m, k=k: psi(m, slice(k, k + 1))) for k in range(size)]
        )
    return Band(found.value, found.covariance, found.df, answered)


def _accepts(model, psi):
    try:
        idm.infer(model, psi)
    except idm.ImplicitDeltaError:
        return False
    return True


def _tensors(x, y):
    import torch

    return torch.tensor(x)[:, None], torch.tensor(y)

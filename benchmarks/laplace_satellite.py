"""Standard error of a classifier's held-out loss by laplace-torch, on the satellite data.

Run ``python benchmarks/laplace_satellite.py --data DIR``, where DIR (or the environment variable
IMPLICIT_DELTA_DATA) holds ``satellite.csv.gz``. A 36-50-6 tanh network (d = 2156) is trained on
5148 rows with l2 = 1; psi is its mean cross-entropy on the other 1287 rows. Every posterior of
laplace-torch then gives sqrt(g' P^-1 g), g the gradient of psi and P its precision: the
generalized Gauss-Newton matrix plus l2 I, whole, by Kronecker factors, or its diagonal.
"""

import argparse
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, TensorDataset

Structure = Literal["full", "kron", "diag"]
Backend = Literal["backpack", "curvlinops"]

# Good sizes among a few tried. Behind curvlinops, laplace-torch differentiates every output of a
# batch through the whole batch ("diag"), and a batch of all rows needs 13 GB ("full"); only "kron"
# would gain from larger batches there, half a second.
BATCH_SIZE: dict[Backend, int] = {"backpack": 1000, "curvlinops": 50}
BACKEND_CLASS: dict[Backend, str] = {"backpack": "BackPackGGN", "curvlinops": "CurvlinopsGGN"}


def laplace_standard_error(
    module: nn.Module,
    X: Tensor,
    y: Tensor,
    psi_gradient: Tensor | np.ndarray,
    l2: float,
    structure: Structure,
    backend: Backend = "backpack",
) -> tuple[float, float]:
    """Return the standard error of psi and the seconds laplace-torch takes to find it.

    Parameters
    ----------
    module : nn.Module
        Trained classifier; left as it is.
    X, y : Tensor
        Training rows (n, ...) and class numbers (n,).
    psi_gradient : array
        Gradient of psi, (d,), in the order of ``module.parameters()``.
    l2 : float
        Penalty l2 / 2 |theta|^2 on the summed loss: the precision of the prior.
    structure : {"full", "kron", "diag"}
        What laplace-torch keeps of the generalized Gauss-Newton matrix.
    backend : {"backpack", "curvlinops"}
        What computes it. "backpack" is for sequential modules and the faster of the two there;
        "curvlinops" is laplace-torch's own default. Both give the same number.
    """
    laplace = import_laplace()
    module = deepcopy(module)
    gradient = torch.as_tensor(psi_gradient)[None, None, :]
    loader = DataLoader(TensorDataset(X, y), batch_size=BATCH_SIZE[backend])
    start = perf_counter()
    with default_dtype(X.dtype), warnings.catch_warnings():
        # BackPACK's hooks, on every first layer: its inputs need no gradient.
        warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
        posterior = laplace.Laplace(
            module,
            likelihood="classification",
            subset_of_weights="all",
            hessian_structure=structure,
            prior_precision=l2,
            backend=getattr(laplace.curvature, BACKEND_CLASS[backend]),
        )
        posterior.fit(loader)
        variance = posterior.functional_variance(gradient).item()
    return variance**0.5, perf_counter() - start


def import_laplace() -> ModuleType:
    """Import laplace-torch; where it is missing, the error has the command that installs it."""
    try:
        import laplace.curvature
    except ImportError as error:
        raise ImportError(
            f"laplace-torch cannot be imported ({error}). It is a peer to measure against, not a "
            "dependency. Install it without torchvision, which it does not need and whose wheel "
            "may not match the installed torch: `make bench-env`."
        ) from error
    return laplace


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Make `dtype` torch's default: laplace-torch multiplies the curvature by torch.eye(d)."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Satellite(NamedTuple):
    """Standardized inputs and class numbers of the training and the held-out rows."""

    X: Tensor
    y: Tensor
    X_val: Tensor
    y_val: Tensor


def load_satellite(directory: Path, seed: int = 0) -> Satellite:
    """Split the rows at random, 80 to 20, and standardize by the training rows."""
    table = np.loadtxt(directory / "satellite.csv.gz", delimiter=",", skiprows=1, dtype=str)
    X, y = table[:, :36].astype(float), np.unique(table[:, -1], return_inverse=True)[1]
    order = np.random.default_rng(seed).permutation(len(y))
    train, held_out = np.split(order, [round(0.8 * len(y))])
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    parts = X[train], y[train], X[held_out], y[held_out]
    return Satellite(*map(torch.as_tensor, parts))


def network(seed: int = 0) -> nn.Sequential:
    """Return the untrained 36-50-6 tanh network in float64."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(36, 50), nn.Tanh(), nn.Linear(50, 6)).double()


def train(module: nn.Module, X: Tensor, y: Tensor, l2: float) -> float:
    """Minimize the summed cross-entropy plus l2 / 2 |theta|^2; return the gradient's norm."""
    optimizer = torch.optim.LBFGS(
        module.parameters(),
        max_iter=20_000,
        max_eval=40_000,
        history_size=100,
        tolerance_grad=1e-4,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        penalty = l2 / 2 * sum(p.square().sum() for p in module.parameters())
        loss = cross_entropy(module(X), y, reduction="sum") + penalty
        loss.backward()
        return loss

    optimizer.step(closure)
    closure()
    return float(parameters_to_vector(p.grad for p in module.parameters()).norm())


def held_out_loss(module: nn.Module, data: Satellite) -> tuple[float, Tensor]:
    """Return psi, the mean cross-entropy of the held-out rows, and its gradient (d,)."""
    psi = cross_entropy(module(data.X_val), data.y_val)
    return psi.item(), parameters_to_vector(torch.autograd.grad(psi, list(module.parameters())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("IMPLICIT_DELTA_DATA") or None, type=Path)
    parser.add_argument("--backend", default="backpack", choices=list(BATCH_SIZE))
    parser.add_argument("--l2", default=1.0, type=float)
    options = parser.parse_args()
    if options.data is None:
        parser.error("no data: give --data DIR or set IMPLICIT_DELTA_DATA")
    torch.set_num_threads(1)
    import_laplace()  # before the minute of training
    measure(load_satellite(options.data), options.l2, options.backend)


def measure(data: Satellite, l2: float, backend: Backend) -> None:
    """Train once, fit every posterior, and print seconds and standard errors."""
    module = network()
    start = perf_counter()
    norm = train(module, data.X, data.y, l2)
    print(f"train  {perf_counter() - start:8.2f} s   |gradient| {norm:.1e}")
    psi, gradient = held_out_loss(module, data)
    print(f"psi    {psi:.6f}   n {len(data.y)}, d {len(gradient)}, backend {backend}")
    for structure in get_args(Structure):
        se, seconds = laplace_standard_error(
            module, data.X, data.y, gradient, l2, structure, backend
        )
        print(f"{structure:5}  {seconds:8.2f} s   standard error {se:.6f}")


if __name__ == "__main__":
    main()

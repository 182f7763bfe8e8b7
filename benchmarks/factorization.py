"""Standard error by factorization of a Gauss-Newton matrix: ours, by hand, and Kronecker factors.

Run ``python -m benchmarks factorization --data DIR``; the network is that of `satellite`. By hand:
all Jacobians by torch.func, their Gram matrix, one Cholesky factorization. Ours includes the making
of the model, all checks and all diagnostics. CPU seconds on one thread, interleaved, medians.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from torch.func import functional_call, jacrev, vmap

import implicit_delta as idm
from benchmarks.laplace_satellite import (
    Satellite,
    held_out_loss,
    import_laplace,
    laplace_standard_error,
    load_satellite,
)
from benchmarks.satellite import L2, fitted, held_out, trained

ROUNDS, ROWS = 5, 500
METHOD = idm.Infinitesimal(idm.cholesky, "ggn")


@dataclass(frozen=True)
class Problem:
    """A trained network and its data."""

    module: torch.nn.Module
    data: Satellite

    def ours(self) -> float:
        """Standard error of the held-out loss."""
        return float(
            idm.infer(fitted(self.module, self.data), held_out(self.data), METHOD).standard_error
        )

    def several(self, count: int) -> np.ndarray:
        """Standard errors of a logit of some held-out rows."""
        psi = lambda net: net(self.data.X_val[:count])[:, 0]
        return idm.infer(fitted(self.module, self.data), psi, METHOD).standard_error

    def hand(self) -> float:
        """Standard error of the held-out loss from the whole matrix, without any check."""
        params = {name: p.detach() for name, p in self.module.named_parameters()}
        outputs = lambda p, x: functional_call(self.module, p, (x,))
        matrix = L2 * np.eye(sum(p.numel() for p in params.values()))
        for X in self.data.X.split(ROWS):
            parts = vmap(jacrev(outputs), (None, 0))(params, X).values()
            J = torch.cat([part.flatten(2) for part in parts], 2)
            p = torch.softmax(outputs(params, X), 1)[..., None]
            U = (p.sqrt() * (J - (p * J).sum(1, keepdim=True))).flatten(0, 1).numpy()
            matrix += U.T @ U
        g = held_out_loss(self.module, self.data)[1].numpy()
        return float(np.sqrt(g @ cho_solve(cho_factor(matrix), g)))

    def kron(self) -> float:
        """Standard error by laplace-torch with Kronecker factors: an approximation."""
        g = held_out_loss(self.module, self.data)[1]
        return laplace_standard_error(self.module, self.data.X, self.data.y, g, L2, "kron")[0]


def problem() -> Problem:
    directory = os.environ.get("IMPLICIT_DELTA_DATA")
    if not directory:
        raise SystemExit("no data: give --data DIR or set IMPLICIT_DELTA_DATA")
    torch.set_num_threads(1)
    # The last of the training would take much longer than the rest and does not matter here.
    warnings.simplefilter("ignore", idm.DriftWarning)
    data = load_satellite(Path(directory))
    return Problem(trained(data, np.ones(len(data.y)))[0], data)


def cases() -> Iterator[object]:
    """Rows of the common table."""
    if not os.environ.get("IMPLICIT_DELTA_DATA"):
        return
    from benchmarks.timing import Case

    solved = problem()
    yield Case("GGN by factorization, d = 2156", 0.25, solved.ours, solved.hand, before=0.87)
    yield Case(
        "the same, 15 evaluations", 0.6, partial(solved.several, 15), solved.hand, before=0.92
    )


def main() -> None:
    solved = problem()
    functions: dict[str, Callable[[], object]] = {
        "by hand, all of the matrix": solved.hand,
        "ours": solved.ours,
        "ours, 5 evaluations": partial(solved.several, 5),
        "ours, 15 evaluations": partial(solved.several, 15),
        "ours, 50 evaluations": partial(solved.several, 50),
    }
    try:
        import_laplace()
        functions["laplace-torch kron"] = solved.kron
    except ImportError as error:
        print(f"laplace-torch is left out: {error}\n")
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    found = {name: np.ravel(function())[0] for name, function in functions.items()}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            started = process_time()
            function()
            seconds[name].append(process_time() - started)
    whole = median(seconds["by hand, all of the matrix"])
    print(f"{'':30}{'std. error':>18}{'seconds':>9}{'x by hand':>11}")
    for name, times in seconds.items():
        print(f"{name:30}{found[name]:18.12f}{median(times):9.2f}{median(times) / whole:11.2f}")


if __name__ == "__main__":
    main()

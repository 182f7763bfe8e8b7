"""Part of the standard error that SG-FDIDM's refits leave out because they end.

Run ``python -m experiments.classification.settling [names]``.

Without the noise of minibatches, and as far as the objective is quadratic, a refit is a recursion
in every eigenvector of the Hessian A. The weights of the eigenvalues in g' A^-1 g, for psi's
gradient g, are those of Lanczos's tridiagonal matrix, so that one run of a few hundred products
gives what any rate, momentum and number of steps would reach.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.classification.costs import FULL, penalty
from experiments.classification.study import Study, choose, largest_curvature
from experiments.command import RESULTS
from experiments.data import load_split

PRODUCTS = 400


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues whose eigenvectors are not orthogonal to g, and their weights in |g|^2."""

    eigenvalues: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, product, g, products=PRODUCTS):
        """Lanczos's method for v -> A v from g; orthogonal to all earlier vectors, twice."""
        basis, diagonal, beside = [g / np.linalg.norm(g)], [], []
        for _ in range(min(products, g.size)):
            image = product(basis[-1])
            diagonal.append(image @ basis[-1])
            earlier = np.array(basis)
            for _ in range(2):
                image = image - earlier.T @ (earlier @ image)
            beside.append(np.linalg.norm(image))
            if beside[-1] <= 1e-10 * abs(diagonal[0]):
                break
            basis.append(image / beside[-1])
        inner = beside[: len(diagonal) - 1]
        values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(inner, 1) + np.diag(inner, -1))
        return cls(values, vectors[0] ** 2 * (g @ g))

    @property
    def variance(self):
        return float(np.sum(self.weights / self.eigenvalues))

    def reached(self, refits, rate):
        """The standard error after such refits, over that after endless ones."""
        place, speed, total = (np.zeros_like(self.eigenvalues) for _ in range(3))
        for step in range(refits.total):
            speed = refits.momentum * speed + 1 - self.eigenvalues * place
            place = place + rate * refits.falling(step) * speed
            if step >= refits.steps:
                total = total + place
        return float(np.sqrt(np.sum(self.weights * total) / refits.samples / self.variance))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of the data sets; by default all")
    parser.add_argument("--data", type=Path, metavar="DIR", help="where the data sets are")
    parser.add_argument("--results", type=Path, metavar="DIR", default=RESULTS, help="of the costs")
    options = parser.parse_args(arguments)
    seed = 0
    for name, setting in FULL.settings:
        if options.names and name not in options.names:
            continue
        folder = options.results / "classification/records"
        scores = penalty(name, setting, FULL.l2, seed=seed, path=folder, data=options.data)
        study = Study(setting, load_split(name, seed, options.data), seed)
        trained, _ = study.trained(choose(scores, name), setting.steps)
        print_reached(name, study, study.maximum(trained))


def print_reached(name, study, model):
    g = model.jacobian(study.psi, model.theta)[0]
    spectrum = Spectrum.of(lambda v: model.information(model.theta, v), g)
    refits = study.setting.refits
    reached = spectrum.reached(refits, refits.rate / largest_curvature(model))
    print(
        f"{name}: standard error {spectrum.variance**0.5:.5g}; refits as configured end "
        f"{reached - 1:+.2%} from it, without noise"
    )


if __name__ == "__main__":
    main()

"""Covariance: a method found a matrix that is not positive semi-definite."""

import numpy as np

from implicit_delta.core.factored import Factored
from implicit_delta.core.findings import Finding
from implicit_delta.inference.checks.case import Case
from implicit_delta.inference.model_part import eigen
from implicit_delta.linalg.arrays import symmetric

# Of each entry over the two standard errors: what `testing.check_method` allows, 1% of a standard
# error. Such errors move eigenvalues of K correlations by at most K times that.
ACCURACY = 0.02


def negative_eigenvalues(case: Case) -> Finding | None:
    """Find eigenvalues that errors of size `ACCURACY` in each entry cannot make negative."""
    V = case.response.covariance
    if isinstance(V, Factored) or "negative_eigenvalues_dropped" not in case.part.notes:
        return None
    errors = np.sqrt(np.clip(np.diag(V), 0, None))
    units, K = np.where(errors > 0, errors, 1.0), len(V)
    correlations = symmetric(V) / np.outer(units, units)
    largest = float(np.max(abs(correlations)))
    smallest = float(eigen(correlations, K if case.model is None else case.model.d)[0][0])
    if largest <= 1 + 2 * ACCURACY and smallest >= -ACCURACY * K:
        return None
    return Finding(
        "warn",
        "negative_eigenvalues",
        f"The covariance that {case.response.method} found is not positive semi-definite: a "
        f"correlation is {largest:.3g}, an eigenvalue of the correlations {smallest:.2g}. Negative "
        "eigenvalues are set to zero, and standard errors of differences of these values are "
        "doubtful.",
        number=smallest,
        causes=("refits that are not converged, or a push that is too large",),
        remedies=("Use `Infinitesimal()`, or evaluate the difference itself.",),
    )

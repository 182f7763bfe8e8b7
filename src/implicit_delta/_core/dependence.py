"""Bounds of the covariance of a sum whose two terms depend on each other in an unknown way."""

import numpy as np

from implicit_delta._core.types import Array


def add_errors(first: Array, second: Array) -> Array:
    """Bound the covariance of a sum: standard errors add, correlations are those of first + second.

    Cauchy and Schwarz allow no larger standard error, whatever the dependence. That is a bound for
    each entry alone: of a combination, the errors of its own two parts add.
    """
    together = first + second
    errors = np.sqrt(np.diag(together))
    bound = np.sqrt(np.diag(first)) + np.sqrt(np.diag(second))
    stretch = np.divide(bound, errors, out=np.ones_like(bound), where=errors > 0)
    return np.asarray(together * np.outer(stretch, stretch))


def dominating(first: Array, second: Array) -> Array:
    """Bound the covariance of a sum in every direction: no combination varies more.

    ``(1 + a) first + (1 + 1 / a) second`` is such a bound for each a > 0, and for one entry the
    smallest of them adds the standard errors; for several, a is the ratio of their mean squares.
    """
    own, other = np.diag(first), np.diag(second)
    share = np.divide(own, own + other, out=np.zeros_like(own), where=own + other > 0)
    shares = float(share.sum()), float(np.sum((own + other > 0) - share))
    if min(shares) == 0.0:
        return first + second
    a = np.sqrt(shares[1] / shares[0])
    return np.asarray((1 + a) * first + (1 + 1 / a) * second)

"""Bounds of the covariance of a sum whose two terms depend on each other in an unknown way."""

import numpy as np

from implicit_delta.core.factored import Covariance, scaled


def add_errors(first: Covariance, second: Covariance) -> Covariance:
    """Bound the covariance of a sum: standard errors add, correlations are those of first + second.

    Cauchy and Schwarz allow no larger standard error, whatever the dependence. That is a bound for
    each entry alone: of a combination, the errors of its own two parts add.
    """
    together = first + second
    errors = np.sqrt(together.diagonal())
    bound = np.sqrt(first.diagonal()) + np.sqrt(second.diagonal())
    stretch = np.divide(bound, errors, out=np.ones_like(bound), where=errors > 0)
    return scaled(together, stretch)


def dominating(first: Covariance, second: Covariance) -> Covariance:
    """Bound the covariance of a sum in every direction: no combination varies more.

    ``(1 + a) first + (1 + 1 / a) second`` is such a bound for each a > 0, and for one entry the
    smallest of them adds the standard errors; for several, a is the ratio of their mean squares.
    """
    own, other = first.diagonal(), second.diagonal()
    share = np.divide(own, own + other, out=np.zeros_like(own), where=own + other > 0)
    shares = float(share.sum()), float(np.sum((own + other > 0) - share))
    if min(shares) == 0.0:
        return first + second
    a = np.sqrt(shares[1] / shares[0])
    found: Covariance = (1 + a) * first + (1 + 1 / a) * second
    return found

"""Log-likelihoods of groups of rows, and of two-part models, that statsmodels only sums."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError

EDGE = 1e-6  # of the residual variance: a variance of random effects that is zero but for rounding


@dataclass(frozen=True, eq=False)
class ConditionalGroups:
    """Groups of a ConditionalLogit or a ConditionalPoisson: one term each, given their sum."""

    model: Any

    def loglikeobs(self, b: Array) -> Array:
        """Return the log-likelihood of each group that varies, in order of appearance."""
        groups = range(len(self.model._endog_grp))
        if hasattr(self.model, "loglike_grp"):
            return np.array([self.model.loglike_grp(g, b) for g in groups])
        return np.array([self._poisson(g, b) for g in groups])

    def _poisson(self, g: int, b: Array) -> float:
        y, eta = np.asarray(self.model._endog_grp[g]), self.model._exog_grp[g] @ b
        if hasattr(self.model, "offset"):
            eta = eta + self.model._offset_grp[g]
        return float(y @ eta - y.sum() * logsumexp(eta))


@dataclass(frozen=True, eq=False)
class HurdleRows:
    """A HurdleCountModel: zero or not, and the count if not."""

    model: Any

    def loglikeobs(self, b: Array) -> Array:
        """Return the log-likelihood of each row."""
        first = self.model.k_exog + self.model.k_extra1
        terms = np.array(self.model.model1.loglikeobs(b[:first]), dtype=np.float64)
        counted = self.model.model2.loglikeobs(b[first:])
        positive = np.asarray(self.model.endog) > 0
        terms[positive] += counted if len(counted) < len(terms) else counted[positive]
        return terms


@dataclass(frozen=True, eq=False)
class MixedGroups:
    r"""Groups of a MixedLM that was fitted by maximum likelihood, with one term each.

    .. math:: -\tfrac12 (n_g \log 2\pi s^2 + \log |V_g| + r_g' V_g^{-1} r_g / s^2), \quad
        V_g = I + Z_g \Psi Z_g' + \sum_k v_k A_{gk} A_{gk}'

    The residual variance :math:`s^2` is that of the other parameters, at its maximum, and these are
    in units of it, as in ``results.params``.
    """

    model: Any

    def loglikeobs(self, b: Array) -> Array:
        """Return the log-likelihood of each group, in order of appearance."""
        model = self.model
        fixed, covariance, components = self._split(b)
        residuals = np.asarray(model.endog) - model.exog @ fixed
        logs, squares, sizes = [], [], []
        labels = enumerate(model.group_labels)  # sorted
        for g, label in sorted(labels, key=lambda group: model.row_indices[group[1]][0]):
            r = residuals[model.row_indices[label]]
            V = np.eye(r.size)
            if model.k_re:
                Z = model.exog_re_li[g]
                V += Z @ covariance @ Z.T
            for component, mats in zip(components, model.exog_vc.mats, strict=True):
                V += component * mats[g] @ mats[g].T
            sign, log = np.linalg.slogdet(V)
            logs.append(log if sign > 0 else np.nan)
            squares.append(r @ np.linalg.solve(V, r))
            sizes.append(r.size)
        n, s2 = np.array(sizes), np.sum(squares) / residuals.size
        return np.asarray(-(n * np.log(2 * np.pi * s2) + logs + np.array(squares) / s2) / 2)

    def _split(self, b: Array) -> tuple[Array, Array, Array]:
        """Fixed effects, the covariance of random effects and variance components."""
        k, q = self.model.k_fe, self.model.k_re
        covariance = np.zeros((q, q))
        end = k + q * (q + 1) // 2
        covariance[np.tril_indices(q)] = b[k:end]
        return b[:k], covariance + np.tril(covariance, -1).T, b[end:]

    def check(self, b: Array) -> None:
        """Refuse variances at zero, the edge of what is possible."""
        _, covariance, components = self._split(b)
        values = np.linalg.eigvalsh(covariance) if covariance.size else np.ones(1)
        least = min(float(values[0]), float(np.min(components, initial=1.0)))
        if least < EDGE:
            raise UnsupportedModelError(
                "from_statsmodels does not support this MixedLM: a variance of its random effects "
                "is zero, the edge of what is possible, where there is no normal approximation. "
                "Its rows are then as good as independent: fit OLS, and ask for "
                "`infer(model, psi, clusters=groups)`."
            )

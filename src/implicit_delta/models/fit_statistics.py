"""Log-likelihood, AIC, BIC and chi-square of a fit."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import chdtrc

from implicit_delta.core.types import Array
from implicit_delta.models.loglik_rows import LoglikRows
from implicit_delta.models.noise_of_sums import has_rule, with_rule
from implicit_delta.models.objective import objective_of
from implicit_delta.models.outputs import squared_residuals
from implicit_delta.models.printing import log_likelihood_of
from implicit_delta.models.refit_fixed import fitted_again
from implicit_delta.models.residual_outputs import ResidualOutputs

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel


@dataclass(frozen=True)
class FitStatistics:
    """Numbers that compare fits to the same data.

    Attributes
    ----------
    log_likelihood : float
        With its constants; NaN where these are not known, and with it all others.
    observations : float
    parameters : int
        That are free, also at a bound; an estimated noise variance is one of them.
    squares : float
        Sum of squared residuals of least squares over the noise variance; NaN for other models.
    df : float
        Observations less parameters, without the noise variance.
    noise : float
        That variance; NaN for other models.
    estimated : bool
        Whether it was estimated.
    """

    log_likelihood: float
    observations: float
    parameters: int
    squares: float
    df: float
    noise: float
    estimated: bool

    @classmethod
    def of(cls, model: "FittedModel") -> "FitStatistics":
        """Collect the statistics of a model at its maximum."""
        count, free = model.weights.count, free_parameters(model)
        outputs = _least_squares(model)
        several = sum(source.is_scaled for source in model.facts.sources)
        likelihood = None if outputs is None else outputs.likelihood
        estimated = int(likelihood is not None and model.facts.noise_rule is not None)
        residuals = None if outputs is None or several else squared_residuals(model)
        squares = np.nan if residuals is None else model.weights.values @ residuals
        noise = np.nan if likelihood is None else likelihood.noise
        return cls(
            log_likelihood=np.nan if model.penalty.given else _largest_log_likelihood(model),
            observations=count,
            parameters=free + estimated + several,
            squares=float(squares),
            df=count - free,
            noise=float(noise),
            estimated=bool(estimated),
        )

    @property
    def aic(self) -> float:
        """Akaike's criterion."""
        return 2 * self.parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """The Bayesian criterion of Schwarz."""
        return float(self.parameters * np.log(self.observations) - 2 * self.log_likelihood)

    @property
    def p_value(self) -> float:
        """Probability of a larger chi-square; NaN unless the noise variance was given."""
        if self.estimated or self.df <= 0:
            return np.nan
        return float(chdtrc(self.df, self.squares))


def _largest_log_likelihood(model: "FittedModel") -> float:
    """Log-likelihood at the maximum of all parameters and of the noise variances.

    Variances of several data sets weigh these against each other, so that theta itself is another
    one with the maximum-likelihood estimates of the variances than with unbiased ones.
    """
    found = log_likelihood_of(model)
    scaled = any(source.is_scaled for source in model.facts.sources)
    if not scaled or not np.isfinite(found) or has_rule(model, "mle"):
        return found
    return log_likelihood_of(fitted_again(with_rule(model, "mle")))


def noise_free_terms(model: "FittedModel", theta: Array) -> Array:
    """Terms, or the residuals of least squares: they do not depend on an estimated variance."""
    outputs = _least_squares(model)
    if outputs is None or outputs.likelihood is None:
        return model.rows.terms(theta)
    noise = outputs.likelihood.noise
    if isinstance(outputs, ResidualOutputs):
        return np.asarray(np.sqrt(noise) * outputs.residuals(theta))
    return np.asarray(noise * model.rows.terms(theta))


def _least_squares(model: "FittedModel") -> Any:
    """Outputs of residuals, of one data set, of several, or of shards with one variance."""
    rows = model.rows
    shared = getattr(getattr(rows, "output_facts", None), "is_estimated", False)
    one = isinstance(rows, LoglikRows) or model.facts.source == "from_residuals"
    return rows.outputs if one or shared else None


def free_parameters(model: "FittedModel") -> int:
    """Count the parameters that no equality determines."""
    under = model.space.constraints
    if under is None or not under.equal.any():
        return model.d
    gradients = under.slope(np.array(model.theta))[under.equal] * objective_of(model).units
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    return model.d - int(np.linalg.matrix_rank(gradients / np.where(lengths > 0, lengths, 1.0)))

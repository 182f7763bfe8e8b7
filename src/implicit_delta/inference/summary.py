"""A model in one table: parameters, fit, correlations and distances from bounds."""

import html
import warnings
from dataclasses import dataclass

import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import ImplicitDeltaError, UnsupportedModelError
from implicit_delta.estimate import Estimate
from implicit_delta.estimate.tables import aligned, as_html, estimate_rows, estimate_table, percent
from implicit_delta.evaluation import parameters
from implicit_delta.inference.infer import infer
from implicit_delta.models.boundaries import Near, limit_distances
from implicit_delta.models.coordinates import in_free_coordinates
from implicit_delta.models.fit_statistics import FitStatistics
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import is_network
from implicit_delta.models.printing import headline
from implicit_delta.models.processes import processes_of

MOST_SHOWN = 50  # parameters: a longer table is shown on demand
MOST_CORRELATED = 12  # parameters: a larger table of correlations is left to `correlations`


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """The result of `model.summary()`; print it.

    Attributes
    ----------
    headline : str
    estimate : Estimate
        Of all parameters; those that are fixed have a standard error of zero.
    statistics : FitStatistics
        Log-likelihood, AIC, BIC, chi-square.
    correlations : (d, d) array
        Of the parameters; NaN for those that are fixed.
    limits : tuple of Near
        Distance of each bound, in standard errors.
    fixed : tuple of str
        Names of the parameters that `fix` holds.
    confidence_level : float
    """

    headline: str
    estimate: Estimate
    statistics: FitStatistics
    correlations: Array
    limits: tuple[Near, ...] = ()
    fixed: tuple[str, ...] = ()
    confidence_level: float = 0.95

    def __repr__(self) -> str:
        columns = self.estimate.to_dict(self.confidence_level)
        level = f"{percent(self.confidence_level)} confidence intervals"
        parts = [f"{self.headline}\n{level}", estimate_table(columns), *self._fit()]
        if 1 < len(self.estimate.names) <= MOST_CORRELATED:
            parts.append(f"Correlations\n{self._correlations()}")
        if self.limits:
            parts.append("Bounds\n" + "\n".join(f"  {near}" for near in self.limits))
        if self.fixed:
            parts.append(f"Fixed, so without an error: {', '.join(self.fixed)}")
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        """Return the tables for notebooks."""
        columns = self.estimate.to_dict(self.confidence_level)
        table = as_html(estimate_rows(columns), self.headline)
        limits = [str(near) for near in self.limits]
        fixed = [f"Fixed, so without an error: {', '.join(self.fixed)}"] if self.fixed else []
        notes = "<br>".join(html.escape(line) for line in (*self._fit(), *limits, *fixed))
        return f"{table}\n<p>{notes}</p>"

    def _fit(self) -> list[str]:
        found, lines = self.statistics, []
        if np.isfinite(found.log_likelihood):
            lines.append(
                f"log-likelihood {found.log_likelihood:.6g}, AIC {found.aic:.6g}, BIC "
                f"{found.bic:.6g} ({found.parameters} parameters, {found.observations:.12g} "
                "observations)"
            )
        if np.isfinite(found.squares) and found.estimated:
            lines.append(
                f"residual standard deviation {np.sqrt(found.noise):.5g}, df {found.df:.12g}"
            )
        elif np.isfinite(found.squares):
            lines.append(
                f"chi-square {found.squares:.5g}, df {found.df:.12g}, p-value {found.p_value:.4g}"
            )
        elif np.isfinite(found.log_likelihood):
            lines.append(f"deviance (-2 log-likelihood) {-2 * found.log_likelihood:.6g}")
        return ["\n".join(lines)] if lines else []

    def _correlations(self) -> str:
        names = self.estimate.names
        rows = [
            [name, *("-" if np.isnan(r) else f"{round(r, 3) + 0.0:.3f}" for r in row[: k + 1])]
            + [""] * (len(names) - k - 1)
            for k, (name, row) in enumerate(zip(names, self.correlations, strict=True))
        ]
        return aligned([["", *names], *rows])


def covariance_of(model: FittedModel) -> Array:
    """Covariance of the parameters, (d, d); see `FittedModel.covariance`."""
    return np.asarray(np.atleast_2d(infer(model, parameters).covariance))


def criterion_of(model: FittedModel, name: str) -> float:
    """AIC or BIC, if the log-likelihood is known; see `FittedModel.aic`."""
    model.facts.require_terms()
    if not model.rows.symmetric:
        model.objective(model.theta)  # which says why there is none
    found = float(getattr(FitStatistics.of(model), name))
    if not np.isfinite(found):
        raise UnsupportedModelError(
            f"{name.upper()} needs the log-likelihood with all its constants at an unpenalized "
            "maximum, which is known for models of `from_loglik` and `from_residuals` without "
            "`l2=`, `penalty=` or sampling weights. Other libraries have their own: "
            f"`results.{name}` in statsmodels."
        )
    return found


def html_of(model: FittedModel) -> str | None:
    """Write the summary of a model of few parameters for notebooks; None if it has none."""
    if model.d > MOST_SHOWN or is_network(model) or processes_of(model).is_collective:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `summary` and `infer` warn
            return summary_of(model)._repr_html_()
    except (ImplicitDeltaError, ArithmeticError, ValueError):
        return None


def summary_of(model: FittedModel, confidence_level: float = 0.95) -> Summary:
    """Summarize a model; see `FittedModel.summary`."""
    estimate = infer(model, parameters)
    errors = np.atleast_1d(estimate.standard_error)
    with np.errstate(all="ignore"):
        correlations = np.atleast_2d(estimate.covariance) / np.outer(errors, errors)
    return Summary(
        headline=headline(model),
        estimate=estimate,
        statistics=FitStatistics.of(model),
        correlations=correlations,
        limits=()
        if model.space.constraints is None
        else tuple(limit_distances(in_free_coordinates(model))),
        fixed=tuple(estimate.names[j] for j in model.space.fixed),
        confidence_level=confidence_level,
    )

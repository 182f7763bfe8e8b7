"""Simulation: psi at draws from the normal distribution of the parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from implicit_delta.core.arguments import as_seed
from implicit_delta.core.budget import Budget, check_budget
from implicit_delta.core.findings import Finding
from implicit_delta.core.thresholds import NONLINEAR_WARNS
from implicit_delta.core.types import Array
from implicit_delta.errors import NonlinearityWarning, NotAMaximumError, UnsupportedModelError
from implicit_delta.evaluation import Evaluation
from implicit_delta.evaluation.normal_draws import (
    NormalDraws,
    Pairs,
    both_signs,
    check_draws,
    simulate,
)
from implicit_delta.methods.base import Method, Response, check_moved, first_of, uncertainty
from implicit_delta.models.boundaries import near_limits
from implicit_delta.models.coordinates import in_free_coordinates
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import is_network
from implicit_delta.models.processes import processes_of


@dataclass(frozen=True, repr=False)
class Simulation(Method):
    r"""Psi at draws from :math:`N(\hat\theta, A^{-1})`: for any psi, without derivatives.

    A network with all its weights drawn is no longer the one that was trained: its outputs bend
    within a standard error. So there the draws are made in its tangent: psi sees the outputs
    :math:`f(x; \hat\theta) + J(x)\, \delta`, with :math:`\delta` from :math:`N(0, A^{-1})` and A
    the Gauss-Newton matrix, and may be any function of them.

    The draws come in antithetic pairs :math:`\hat\theta \pm H z`. With odd and even part
    :math:`o = (\psi_+ - \psi_-) / 2` and :math:`e = (\psi_+ + \psi_-) / 2` of each of the P pairs,
    the covariance is :math:`\sum o o' / P + \sum (e - \bar e)(e - \bar e)' / (P - 1)`. For more
    pairs than parameters the z have exactly the moments of a standard normal, so that the linear
    part of psi is free of Monte-Carlo error. What is left is in ``diagnostics.notes``, relative
    to the standard error: ``monte_carlo_error``. Percentile intervals follow a psi that bends:
    ``estimate.confidence_interval(kind="percentile")``.

    Parameters
    ----------
    draws : int
        How many times psi is evaluated; even.
    tangent : bool, optional
        Whether to draw in the tangent of the model instead of its weights. By default for networks:
        `from_torch` with a likelihood such as `Categorical`, whatever psi does with the module,
        and `from_jax` likewise if psi calls ``model.apply(params, x)``. ``estimate.method`` says
        which it was.
    rng : int or numpy.random.Generator, optional
        Source of z; fresh unless given. ``estimate.method`` names the seed.
    curvature : {"hessian", "ggn"}, optional
        Which A: minus the Hessian, or its generalized Gauss-Newton part; unless given, the latter
        in the tangent and that of the model elsewhere.
    n_jobs : int
        How many evaluations run at once (joblib).
    budget : float, optional
        Passes over the data that steps of the parameters may cost; beyond, a ConvergenceError.

    Notes
    -----
    :math:`H` is a factor of the inverse of A for up to 2500 parameters. Beyond, steps are found by
    products with A only: of a Gauss-Newton matrix each by one solve with noise that has A as its
    covariance (conjugate gradients), otherwise by the Lanczos process for its inverse root. The
    response of theta, for robust and clustered errors, is found for more pairs than parameters.

    Examples
    --------
    >>> from implicit_delta import from_loglik, infer
    >>> y = np.array([3, 0, 2, 5, 1, 4, 2, 3])
    >>> model = from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])
    >>> rate = infer(model, lambda th: np.exp(th[0]), Simulation(10_000, rng=0))
    >>> low, high = rate.confidence_interval(kind="percentile")
    >>> print(f"{low:.1f} {high:.1f}")  # near 2.5 exp(-/+ 1.96 / sqrt(20))
    1.6 3.9
    """

    draws: int = 1000
    tangent: bool | None = field(default=None, kw_only=True)
    rng: int | np.random.Generator | None = None
    curvature: Curvature | None = None
    n_jobs: int = 1
    budget: float | None = None

    def __post_init__(self) -> None:
        """Check what was configured."""
        check_budget(self.budget)
        check_draws(self.draws, self.curvature)
        if self.tangent not in (None, True, False):
            raise ValueError(f"tangent must be True, False or None, not {self.tangent!r}.")
        if isinstance(self.rng, bool):
            raise TypeError(f"rng is a seed. Write `Simulation(tangent={self.rng})`.")

    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        """Evaluate psi at all draws and take moments."""
        named = replace(self, rng=processes_of(model).broadcast_seed(as_seed(self.rng)))
        if self.tangent is None and is_network(model):
            try:
                return replace(named, tangent=True).respond(model, evaluation)
            except (UnsupportedModelError, NotAMaximumError):  # psi has no tangent, or A no inverse
                named = replace(named, tangent=False)
        _check_limits(model)
        asked = evaluation
        if named.tangent:
            asked = evaluation.in_tangent()
            asked(model.theta)  # a model without a tangent says so before anything is factorized
        draws = named._normal_draws(model)
        pairs = simulate(asked, draws, 1.0, self.n_jobs, repr(named))
        check_moved(evaluation, pairs.values, "draw")
        covariance = _covariance(pairs)
        notes = _notes(pairs, np.diag(covariance))
        return Response(
            covariance=covariance,
            directions=pairs.directions if draws.matched else None,
            draws=pairs.values,
            method=repr(named),
            findings=_findings(notes),
            notes=notes,
        )

    def sample(self, model: FittedModel) -> Array:
        """Return the draws of the parameters, (draws, d); the same ones whenever rng is a seed.

        In the tangent these are theta plus delta, at which only its outputs make sense.
        """
        model = in_free_coordinates(model)
        blocks = [both_signs(steps) for steps in self._normal_draws(model).steps()]
        draws = np.asarray(model.theta + np.concatenate(blocks))
        return (
            draws if model.space.chart is None else np.array([*map(model.space.chart.point, draws)])
        )

    def _normal_draws(self, model: FittedModel) -> NormalDraws:
        if (not model.rows.symmetric) and model.facts.host.covariance is None:
            model.objective(model.theta)  # which says why there is none
        tangent = is_network(model) if self.tangent is None else self.tangent
        curvature = self.curvature or ("ggn" if tangent else model.facts.curvature)
        return NormalDraws(
            model,
            self.draws // 2,
            processes_of(model).broadcast_seed(as_seed(self.rng)),
            curvature,
            Budget(self.budget),
        )


def _check_limits(model: FittedModel) -> None:
    """Refuse limits close by, which many draws would violate."""
    crossed = [near for near in near_limits(model) if not near.held]
    if crossed:
        raise UnsupportedModelError(
            f"Draws from a normal distribution would violate the constraints ({crossed[0]}). Use "
            "`profile(model, psi)`, whose intervals respect them."
        )


def _covariance(pairs: Pairs) -> Array:
    even = pairs.even - pairs.even.mean(axis=0)
    count = pairs.odd.shape[0]
    return np.asarray(pairs.odd.T @ pairs.odd / count + even.T @ even / (count - 1))


def _notes(pairs: Pairs, variance: Array) -> dict[str, float]:
    """The Monte-Carlo error of the standard error, and how much of the variance is not linear."""
    even = pairs.even - pairs.even.mean(axis=0)
    linear = np.zeros_like(pairs.odd) if pairs.linear is None else pairs.linear
    rest = (pairs.odd - linear) ** 2 + even**2
    count, fitted = len(rest), 0 if pairs.linear is None else pairs.directions.shape[0]
    # Few squares may agree by accident: they are not known better than those of a normal.
    spread = np.maximum(np.var(rest, axis=0), 2 * np.mean(rest, axis=0) ** 2) / (count - 1)
    # Matched draws give mean(linear^2) exactly, but for the noise of the slope it is made of.
    noise = np.sum((pairs.odd - linear) ** 2, axis=0) / (count - fitted) / count
    slope = 4 * np.mean(linear**2, axis=0) * noise
    error = float(np.max(np.sqrt(spread + slope) / (2 * variance)))
    notes = {"monte_carlo_error": error}
    if pairs.linear is not None:
        share = float(np.max(np.mean(rest, axis=0) / variance))
        notes["nonlinear_share"] = share
    return notes


def _findings(notes: Mapping[str, float]) -> tuple[Finding, ...]:
    share, advice = notes.get("nonlinear_share", 0.0), "Use more `draws=`."
    random = uncertainty(notes["monte_carlo_error"], advice)
    if not share > NONLINEAR_WARNS:
        return first_of(random)
    nonlinear = Finding(
        "warn",
        "nonlinear_draws",
        f"Only {1 - share:.0%} of the variance of psi over the draws is linear in the "
        "parameters. Either psi has a maximum, a minimum or one wide step here, or the draws "
        "reach parameters at which the model makes no sense, as with weights of networks "
        "(`tangent=True` draws their outputs).",
        number=share,
        remedies=(
            "Look at the percentiles, or take the slope near the fit: `Smoothed(psi, width=0.2)`.",
        ),
        warning=NonlinearityWarning,
    )
    return (nonlinear, *first_of(random))

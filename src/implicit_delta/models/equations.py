"""Estimating equations: M-estimators, stacked and two-step estimators, and GMM."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NoReturn

import numpy as np
from scipy.sparse.linalg import LinearOperator, gmres

from implicit_delta._core.arguments import (
    as_parameters,
    as_weights,
    check_names,
    given_point,
)
from implicit_delta._core.clusters import Clusters
from implicit_delta._core.limits import DENSE_LIMIT
from implicit_delta._core.types import Array, Psi, WeightKind
from implicit_delta._core.warn import warn
from implicit_delta.errors import (
    ConvergenceError,
    ImplicitDeltaWarning,
    NonlinearityWarning,
    UnsupportedModelError,
)
from implicit_delta.models.base import Curvature, FittedModel, Whitened, scatter_of
from implicit_delta.models.equation_roots import (
    Hansen,
    Solved,
    gmm,
    hansen_of,
    inverse_scatter,
    root_of,
)
from implicit_delta.models.equation_system import (
    JUMPS,
    BalancedLU,
    System,
    check_regular,
    checked_rows,
    rough_units,
)
from implicit_delta.models.jacobian import jacobian_of
from implicit_delta.models.weights import observation_weights
from implicit_delta.numerics.arrays import ratio, symmetric
from implicit_delta.numerics.derivatives import Derivative
from implicit_delta.numerics.tracing import trace

# A root is zero to rounding: 0.1 of a standard error is a training that stopped or another
# estimator. The sum of equations that jump is only as close to zero as a jump allows.
DRIFT_REFUSES, JUMPING_REFUSES = 0.1, 1.0
BENT_WARNS, BENT_REFUSES = 0.25, 0.5  # of a step, by which the equations miss their derivative
NOISELESS = 1e-12  # of the size of a parameter: a standard error that is rounding
GIVEN_WARNS = 0.1  # of one that is given, where the equations are smooth enough to tell
BESIDE = 1e-7  # of a standard error
NOISES = 2.0  # standard deviations of a sum of jumps
HALF, WIDE = 0.5, 2.0  # standard errors: the step, and one over which single jumps average out
MOST_DIRECTIONS = 3
MOST_SLOPES = 10  # parameters along which the noise of the Jacobian is looked at
TINY = 1e-3  # of a standard error
ROUNDING = 1e-12  # of a square, by differences over that
REJECTED = 1e-3  # p-value of Hansen's J below which the estimate itself is in doubt
# Of a robust F with 1, 2, ... instruments: below, a nominal 5 % test of two-stage least squares may
# reject in more than 10 % (Stock and Yogo 2005, table 5.2). With 10, the old rule of thumb, the
# intervals that came without a warning covered 70 % of the time in the study of coverage.
WEAK = (16.38, 19.93, 22.30, 24.58, 26.87, 29.18, 31.50, 33.84, 36.19, 38.54)
GMRES_RTOL, GMRES_ROUNDS = 1e-10, 200

NO_OBJECTIVE = (
    "Estimating equations have no log-likelihood, which this method or call is about: they are "
    "known by a root and by the rows that sum to zero there. Use `infer(model, psi)` without "
    "`method=`, whose variance is the sandwich."
)
NO_LEVERAGE = (
    "HC2, HC3 and CR2 make up for the leverage of rows on their outputs (means, logits), and "
    'estimating equations show none. Use robust="HC1" or, with clusters, robust="CR1" or "CR1S".'
)


def from_equations(
    equations: Callable[[Array], Any],
    theta: Sequence[float] | Array | None = None,
    *,
    start: Sequence[float] | Array | None = None,
    weighting: Literal["two-step", "iterated"] | Array | None = None,
    first_weighting: Array | None = None,
    jacobian: Callable[[Array], Any] | None = None,
    weights: Sequence[float] | Array | None = None,
    weight_kind: WeightKind = "frequency",
    clusters: Any = None,
    names: Sequence[str] | None = None,
) -> "EquationsModel":
    r"""Make a fitted model of estimating equations that sum to zero.

    With :math:`M(\theta) = \sum_i w_i m_i(\theta)` and B its Jacobian: the influence of row i on
    psi is :math:`-u' m_i` with :math:`B' u = g`, and the variance is always the sandwich that they
    make. Give `theta`, where the equations sum to zero, or `start`, from where a root is found.
    Stack what was estimated in steps (a propensity score and what it weighs), one equation for
    each parameter, and the error of the first step is in the second. With more equations than
    parameters (q > d) theta minimizes :math:`M' W M` (GMM).

    Parameters
    ----------
    equations : callable
        Equations of each observation, (d,) to (n, q): never their sum or mean.
    theta : (d,) array, optional
        The root, if it is known.
    start : (d,) array, optional
        Where to start looking for it.
    weighting : {"two-step", "iterated"} or (q, q) array, optional
        W, if q > d: a matrix, such as ``np.linalg.inv(Z.T @ Z)`` for two-stage least squares; or
        the inverse scatter of the equations at a first estimate ("two-step", the default with
        `start`), or at the estimate itself ("iterated", the default with `theta`). The last two
        come with Hansen's J, in ``model.hansen`` and in the diagnostics of an estimate.
    first_weighting : (q, q) array, optional
        W of the first of two steps; the identity if left out.
    jacobian : callable, optional
        Derivative of the *summed*, weighted equations, (d,) to (q, d). Without it, it is traced
        through NumPy or, where that fails, taken by differences. Equations that jump need it.
    weights : (n,) array, optional
        How much each observation counts; see `from_loglik`.
    weight_kind : {"frequency", "precision", "sampling"}
    clusters : (n,) array, list or pandas Series, optional
        Labels of groups within which rows may be dependent. The weighting of GMM, Hansen's J and
        the default variance are then those of groups.
    names : sequence of str, optional
        Names of the parameters, for tables.

    Returns
    -------
    EquationsModel

    Examples
    --------
    A ratio of means, and its standard error:

    >>> import implicit_delta as idm
    >>> x, y = np.random.default_rng(0).normal(5, 1, size=(2, 100))
    >>> model = idm.from_equations(lambda th: y - th[0] * x, start=[1.0])
    >>> estimate = idm.infer(model, lambda th: th[0])
    >>> print(f"{estimate.value:.4f} +- {estimate.standard_error:.4f}")
    0.9741 +- 0.0256
    """
    point = given_point(theta, start, 0.0, "the root of the equations")
    n, q = checked_rows(equations, point).shape
    names = check_names(names, point.size)
    checked = observation_weights(weights, n, weight_kind)
    _check_large(point.size, q)
    model = EquationsModel(
        system=System(equations, checked, jacobian),
        theta=point,
        weights=checked,
        weight_kind=weight_kind,
        clusters=None if clusters is None else Clusters.of(clusters, checked),
        names=names,
    )
    found = _solved(model, q, weighting, first_weighting, theta is not None)
    model = replace(model, theta=found.theta, hansen=found.hansen)
    if model.d > DENSE_LIMIT:
        return model
    slope = model.linearized(found.weighting)
    model = replace(model, slope=slope, combination=_combination(slope, found.weighting))
    _check_root(model)
    _check_bend(model)
    _warn_of_weakness(model)
    _warn_of_contradiction(found.hansen)
    return model


@dataclass(frozen=True, eq=False, repr=False)
class EquationsModel(FittedModel):
    """Estimating equations at their root; made by `from_equations`.

    More equations than parameters are combined to as many, ``combination @ m_i``: the condition of
    first order of GMM, whose root theta is. There are no terms and no objective; `score` is the
    sum of the (combined) equations, and directions of responses are weights of these, so that
    `terms_along` makes the influences.
    """

    system: System
    theta: Array
    weights: Array
    weight_kind: WeightKind = "frequency"
    clusters: Clusters | None = None
    names: tuple[str, ...] | None = None
    slope: Array | None = None  # of the summed equations, (q, d); not kept for many parameters
    combination: Array | None = None
    hansen: Hansen | None = None
    l2: float = 0.0
    sandwiched = True

    @property
    def passes(self) -> int:
        return self.system.counter.count

    def equations(self, theta: Array) -> Array:
        """Equations of each row, (n, d), combined to as many as parameters."""
        rows = self.system.rows(theta)
        return rows if self.combination is None else np.asarray(rows @ self.combination.T)

    def scatter_at(self, theta: Array) -> Array:
        """Sum of outer products of the rows of all equations, (q, q)."""
        rows = self.per_observation(self.system.rows(theta))
        return scatter_of(rows, self.counts, self.clusters)

    def score(self, theta: Array) -> Array:
        return np.asarray(self.weights @ self.equations(theta))

    def terms_along(self, theta: Array, v: Array) -> Array:
        return np.asarray(self.equations(theta) @ v)

    def duals(self, gradients: Array) -> Array:
        r"""Solve :math:`-B' v = g` for each column: (d, K) to weights of the equations, (d, K)."""
        if self.slope is not None:
            return -self.factor.solve_transposed(gradients)
        return np.stack([-self._gmres(g) for g in gradients.T], axis=1)

    def moves(self, v: Array) -> Array | None:
        """Move theta, (d, K), by one standard deviation of the equations along v."""
        if self.slope is None:
            return None
        return -self.factor.solve(self._scatter @ v)

    def evaluate(self, psi: Psi, theta: Array) -> Array:
        return np.asarray(psi(theta.copy()))

    def jacobian(self, psi: Psi, theta: Array) -> Array:
        return jacobian_of(psi, theta, self.units, trace(psi, theta))

    def reweighted(self, weights: Array) -> "EquationsModel":
        checked = as_weights(weights, self.n)
        changed = replace(self, system=replace(self.system, weights=checked), weights=checked)
        return changed._relinearized()

    def at(self, theta: Array) -> "EquationsModel":
        return replace(self, theta=as_parameters(theta))._relinearized()

    def terms(self, theta: Array) -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def objective(self, theta: Array) -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> NoReturn:
        raise UnsupportedModelError(NO_OBJECTIVE)

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        raise UnsupportedModelError(NO_LEVERAGE)

    def drift_causes(self) -> str:
        return "Give the parameters as `start=` instead of `theta=`, to have the root found."

    def describe(self) -> dict[str, str]:
        more = "" if self.hansen is None else f", {self.hansen.df} more than parameters"
        label = {"equations": f"{getattr(self.system.function, '__name__', 'a function')}{more}"}
        if self.hansen is None:
            return label
        return {**label, "Hansen's J": f"{self.hansen.statistic:.4g} (p {self.hansen.p_value:.3g})"}

    @cached_property
    def units(self) -> Array:
        """The standard error of each parameter: the unit of all steps."""
        rough = rough_units(self.theta)
        if self.slope is None:
            return rough
        return np.where(self.errors > 0, self.errors, rough)

    @property
    def errors(self) -> Array:
        """Standard errors, (d,); zero where they are rounding."""
        errors = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return np.where(errors > NOISELESS * abs(self.theta), errors, 0.0)

    @cached_property
    def covariance(self) -> Array:
        """The sandwich, (d, d), without a correction for small samples."""
        return symmetric(self.factor.solve(self.factor.solve(self._scatter).T))

    def linearized(self, weighting: Array | None) -> Array:
        """Differentiate the sum, (q, d), in steps of standard errors; refuse what is singular."""
        rough = self.system.slope(self.theta, rough_units(self.theta))
        check_regular(self.system, self.theta, _certain(rough), self.names)
        if not np.any(rough.error):
            return rough.value
        combination = _combination(rough.value, weighting)
        units = replace(self, slope=rough.value, combination=combination).units
        slope = self.system.slope(self.theta, units)
        check_regular(self.system, self.theta, slope, self.names)
        return slope.value

    def _relinearized(self) -> "EquationsModel":
        """Differentiate anew; the combination of equations stays."""
        if self.slope is None:
            return self
        return replace(self, slope=self.system.slope(self.theta, self.units).value)

    @property
    def _square(self) -> Array:
        assert self.slope is not None
        return self.slope if self.combination is None else np.asarray(self.combination @ self.slope)

    @cached_property
    def factor(self) -> BalancedLU:
        """The Jacobian B of the summed, combined equations."""
        return BalancedLU.of(self._square)

    @cached_property
    def _scatter(self) -> Array:
        rows = self.per_observation(self.equations(self.theta))
        return scatter_of(rows, self.counts, self.clusters)

    def _gmres(self, g: Array) -> Array:
        """Solve with products of B' alone, each a traced pass."""
        B = LinearOperator((self.d, self.d), lambda u: self.system.pulled(self.theta, u.ravel()))
        u, left = gmres(B, g, rtol=GMRES_RTOL, restart=min(self.d, 100), maxiter=GMRES_ROUNDS)
        if left:
            raise ConvergenceError(
                f"GMRES did not solve with the Jacobian of {self.d} equations to "
                f"{GMRES_RTOL:g}. Usual causes: equations of very different scales, or nearly "
                "redundant parameters. Scale each equation and parameter to about one."
            )
        return np.asarray(u)


def _certain(slope: Derivative) -> Derivative:
    """Leave the error of rough steps out: these are not yet in the unit of the parameters."""
    return Derivative(slope.value, np.zeros_like(slope.error))


def _check_large(d: int, q: int) -> None:
    if d > DENSE_LIMIT and q > d:
        raise UnsupportedModelError(
            f"GMM is for up to {DENSE_LIMIT} parameters, and there are {d}. Combine the {q} "
            "equations to as many as parameters."
        )


def _solved(
    model: EquationsModel, q: int, weighting: Any, first: Array | None, known: bool
) -> Solved:
    """Fit, or take theta for the root with the weighting that it belongs to."""
    W, first = _checked_weighting(weighting, q), _checked_weighting(first, q)
    if q == model.d:
        if W is not None or first is not None:
            raise ValueError(
                f"weighting= is for more equations than parameters, and there are {q} of each: "
                "their root does not depend on it. Leave it out."
            )
        return Solved(model.theta if known else root_of(model.system, model.theta))
    if not known:
        start = model.theta
        return gmm(model.system, model.scatter_at, start, "two-step" if W is None else W, first)
    if isinstance(W, np.ndarray):
        return Solved(model.theta, W)
    if W == "two-step" or first is not None:
        raise ValueError(
            "theta= of a two-step GMM estimate does not tell the weighting that it belongs to. "
            "Give that matrix as `weighting=`, or `start=` to have the estimate made here."
        )
    W = inverse_scatter(model.scatter_at(model.theta))
    return Solved(model.theta, W, hansen_of(model.system.total(model.theta), W, model.d))


def _checked_weighting(weighting: Any, q: int) -> Any:
    if weighting is None or (isinstance(weighting, str) and weighting in ("two-step", "iterated")):
        return weighting
    if isinstance(weighting, str):
        raise ValueError(
            f'weighting is "two-step", "iterated" or a ({q}, {q}) matrix, not {weighting!r}.'
        )
    W = np.array(weighting, dtype=np.float64)
    if W.shape != (q, q) or not np.allclose(W, W.T) or not np.all(np.isfinite(W)):
        raise ValueError(f"A weighting is a symmetric matrix ({q}, {q}), not of shape {W.shape}.")
    if np.linalg.eigvalsh(W)[0] <= 0:
        raise ValueError(
            "weighting is not positive definite: give, for example, `np.linalg.inv(Z.T @ Z)` for "
            "two-stage least squares."
        )
    return W


def _combination(slope: Array, W: Array | None) -> Array | None:
    return None if W is None else np.asarray(slope.T @ W)


def _check_root(model: EquationsModel) -> None:
    """Refuse parameters at which the equations do not sum to zero, in standard errors."""
    left = model.factor.solve(model.score(model.theta))
    away = abs(left) / model.units
    j, limit = (
        int(np.argmax(away)),
        DRIFT_REFUSES if model.system.given is None else JUMPING_REFUSES,
    )
    if away[j] > limit:
        name = f"theta[{j}]" if model.names is None else model.names[j]
        what = "sum to zero" if model.combination is None else "have the minimum of GMM"
        raise ConvergenceError(
            f"The equations do not {what} at theta: a Newton step moves {name} by {away[j]:.2g} "
            "standard errors. Usual causes: theta was estimated by something else (another "
            "weighting or penalty, other rows), or its fit stopped early. Give it as `start=` "
            "instead of `theta=`, to have the root found."
        )


def _check_bend(model: EquationsModel) -> None:
    """Compare the derivative with the equations themselves, around the root."""
    given = model.system.given is not None
    jumps = given and _jumps(model)
    length = WIDE if jumps else HALF
    worst = max(_miss(model, step, jumps) for step in _steps(model, length))
    if worst > BENT_REFUSES and given:
        raise ValueError(
            "jacobian(theta) is not the derivative of the summed equations: up to "
            f"{length:g} standard errors away these move by something else, off by {worst:.0%}. "
            "Usual causes: a sign, a mean instead of a sum, columns in another order, a bandwidth "
            "that is too wide. Leave `jacobian=` out to have it found, if the equations do not "
            "jump."
        )
    text = (
        f"{length:g} standard errors from the root the equations miss their derivative by "
        f"{worst:.0%}, so the standard error is doubtful. Usual causes: very few rows, a parameter "
        "that is hardly determined (separated classes, a weak instrument), kinks or jumps"
        + (", or an expected derivative instead of the observed one." if given else ".")
    )
    if worst > BENT_REFUSES:
        raise ConvergenceError(f"{text} {JUMPS}")
    if worst > (GIVEN_WARNS if given and not jumps else BENT_WARNS):
        warn(text, NonlinearityWarning)


def _jumps(model: EquationsModel) -> bool:
    """Whether the sum is exactly the same right beside the root."""
    step = BESIDE * model.units
    return bool(np.array_equal(model.score(model.theta + step), model.score(model.theta)))


def _steps(model: EquationsModel, length: float) -> list[Array]:
    """Steps of so many standard errors along the responses of a few parameters."""
    chosen = np.unique(np.linspace(0, model.d - 1, MOST_DIRECTIONS).astype(int))
    steps = ratio(length * model.covariance, model.errors)
    return [steps[:, j] for j in chosen]


def _miss(model: EquationsModel, step: Array, jumps: bool) -> float:
    """Relative miss of a step that the equations themselves imply; less the noise of jumps."""
    if not np.any(step):
        return 0.0
    with np.errstate(all="ignore"):
        ahead, behind = (model.equations(model.theta + t * step) for t in (1, -1))
    rows = model.weights[:, None] * (ahead - behind) / 2
    if not np.all(np.isfinite(rows)):
        return np.inf
    size = np.linalg.norm(step / model.units)
    miss = np.linalg.norm((model.factor.solve(rows.sum(axis=0)) - step) / model.units) / size
    if not jumps:
        return float(miss)
    noise = np.linalg.norm(model.factor.solve(rows.T) / model.units[:, None]) / size
    return max(float(miss - NOISES * noise), 0.0)


def _warn_of_weakness(model: EquationsModel) -> None:
    """Warn where the Jacobian along a response is not far from zero beside its own noise.

    Of one weak instrument that is about the robust F of the first stage.
    """
    if model.system.given is not None:
        return
    chosen = np.unique(np.linspace(0, model.d - 1, min(model.d, MOST_SLOPES)).astype(int))
    free = 1 if model.combination is None else model.combination.shape[1] - model.d + 1
    least = WEAK[min(free, len(WEAK)) - 1]
    strengths = {j: _strength(model, j) / free for j in map(int, chosen)}
    j = min(strengths, key=lambda k: strengths[k])
    if strengths[j] < least:
        name = f"theta[{j}]" if model.names is None else model.names[j]
        warn(
            f"{name} is only weakly determined: the Jacobian of the equations along it is known "
            f"too badly (F = {strengths[j]:.2g}, where {least:.0f} is the least that is trusted), "
            "so normal intervals may be far off. Usual cause: weak instruments. Keep the values b "
            "for which `M(b) @ inv(S(b)) @ M(b)`, of the summed "
            "equations and their scatter at b, is below the chi-square quantile "
            "(Anderson and Rubin).",
            NonlinearityWarning,
        )


def _strength(model: EquationsModel, j: int) -> float:
    """Squared t statistic of the Jacobian along the response of parameter j.

    The noise is that of rows whose sign is the other one, twice: where all have one sign, as in a
    regression on itself, the sum varies with the design and cannot come close to zero.
    """
    step = ratio(model.covariance[:, j], model.errors[j])
    dual = model.duals(np.eye(model.d)[:, [j]])[:, 0]
    ahead, behind = (model.equations(model.theta + t * step) for t in (TINY, -TINY))
    each = model.per_observation((ahead - behind) / (2 * TINY)) @ dual
    total = float(model.counts @ each)
    noise = 2 * float(model.counts @ np.minimum(each * np.sign(total), 0.0) ** 2)
    return np.inf if noise <= ROUNDING * total**2 else total**2 / noise


def _warn_of_contradiction(hansen: Hansen | None) -> None:
    if hansen is not None and hansen.p_value < REJECTED:
        warn(
            f"The equations contradict each other: Hansen's J is {hansen.statistic:.4g} with "
            f"{hansen.df} degrees of freedom (p {hansen.p_value:.1g}), so not all of them can hold "
            "at one theta, and what is estimated depends on the weighting. Usual causes: an "
            "instrument that is not valid, a wrong functional form, or rows that are not "
            "independent: give `clusters=`.",
            ImplicitDeltaWarning,
        )

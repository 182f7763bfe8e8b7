"""Least squares: a Gaussian log-likelihood whose noise variance is plugged in."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from implicit_delta.core.arguments import check_rows
from implicit_delta.core.calls import most_calls
from implicit_delta.core.hints import hinting
from implicit_delta.core.types import Array, WeightKind
from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.checks import check_derivative, check_repeatable, wrong_beside
from implicit_delta.models.constrained_fit import checked_under_constraints
from implicit_delta.models.constraints import constraints_of
from implicit_delta.models.fit_checks import cause_beside
from implicit_delta.models.language import VectorLanguage
from implicit_delta.models.loglik import HINTS
from implicit_delta.models.model import FittedModel
from implicit_delta.models.named_theta import (
    named_point,
    names_of,
    naming_best_point,
    speaking,
)
from implicit_delta.models.runaway import check_runaways
from implicit_delta.models.sigma import NO_WEIGHTS, scale_of
from implicit_delta.models.space import Space
from implicit_delta.models.squares import LeastSquares, with_traced_jacobian
from implicit_delta.models.squares_fit import fitted
from implicit_delta.models.starts import Optimum, first_start, points_of
from implicit_delta.models.weights import look_repeated, observation_weights, warn_of_precisions

AT_THE_FIT = (
    " Standard errors of `infer(model, psi)`, by Gauss-Newton, need it at the fit alone and hold; "
    'those of `Infinitesimal(curvature="hessian")`, refits and profiles do not.'
)


@hinting(
    absolute_sigma="give `variance=1.0` beside `sigma=` for absolute_sigma=True, and leave "
    "`variance=` out for False.",
    yerr="give `sigma=`; with `variance=1.0` it is taken as it is.",
    **HINTS,
    jac="give `jacobian=`, of the residuals (observed less predicted).",
)
def from_residuals(
    residuals: Callable[[Array], Any],
    theta: Any = None,
    *,
    start: Any = None,
    jacobian: Callable[[Array], Any] | None = None,
    sigma: float | Sequence[float] | Array | None = None,
    variance: Literal["mle", "unbiased"] | float | None = None,
    l2: float = 0.0,
    weights: Sequence[float] | Array | None = None,
    weight_kind: WeightKind | None = None,
    names: Sequence[str] | None = None,
    bounds: Any = None,
    constraints: Any = (),
    starts: int | Sequence[Any] | None = None,
    max_calls: int | None = None,
) -> FittedModel:
    r"""Make a fitted model of a least-squares problem.

    The terms are :math:`-r_i(\theta)^2 / 2 s^2`, the Gaussian log-likelihood up to a constant (the
    paper's remark on squared error). The noise variance :math:`s^2` is estimated at the optimum
    and plugged in, which changes nothing to first order because it is orthogonal to theta.

    Parameters
    ----------
    residuals : callable
        (d,) to (n,): observed less predicted (the sign does not matter).
    theta : (d,) array, dict, named tuple or pandas Series, optional
        The least-squares solution, if it is known.
    start : (d,) array, dict, named tuple or pandas Series, optional
        Where to start looking for it; with names as in `from_loglik`.
    jacobian : callable, optional
        Derivative of the residuals, (d,) to (n, d). Without it, it is taken numerically.
    sigma : float, (n,) array or (n, n) array, optional
        Standard deviations of the observations, or their covariance matrix, as in
        `scipy.optimize.curve_fit`: up to a common factor, which is estimated, or with
        ``variance=1.0`` as they are (its ``absolute_sigma=True``).
    variance : {"unbiased", "mle"} or float, optional
        The noise variance, in units of ``sigma ** 2``: the sum of squared residuals over n less
        the effective number of parameters (as R's `lm` and `nls` have it); their mean (the paper's
        remark); or a known number. By default "unbiased" without a penalty and "mle" with one.
        Where it is estimated, intervals and tests take Student's t.
    l2 : float
        The penalty ``l2 / 2 * sum(theta ** 2)`` on the log-likelihood. What was added to *half
        the sum of squares* has to be divided by the noise variance to be on that scale.
    weights : (n,) array, optional
        How much each squared residual counts.
    weight_kind : {"frequency", "precision", "sampling"}, optional
        Repetitions of a row (the default; it warns if the residuals tell otherwise); one over its
        variance, up to a common factor (or the number of times that its term counts, of one
        observation); or the number of units of a population that it stands for, as in surveys,
        with the design-based variance by default.
    names : sequence of str, optional
        Names of the parameters, if `theta` or `start` has none.
    bounds : sequence of pairs, dict of pairs, or scipy.optimize.Bounds, optional
        Limits (low, high) of each parameter, None for no limit, as in `scipy.optimize.minimize`; or
        of some of them by name, ``{"S": (0, None)}``.
    constraints : constraint or sequence of them
        `scipy.optimize.LinearConstraint`, `NonlinearConstraint`, or dicts with ``"type"`` and
        ``"fun"``. Standard errors are along those that are active, and parameters that these
        determine do not count for the noise variance.
    starts : int or sequence of starts, optional
        Fit from each of them and keep the best. A number: `start`, and the best of ten times as
        many points, after a few steps from each, that are drawn around it and around zero in the
        scale of the residuals (within `bounds`, always the same ones). Or a list.
        ``model.facts.optima`` has the minima that were found.
    max_calls : int, optional
        Calls of `residuals` that the fit may make, of each start: 3000, and more for ten parameters
        and more. Beyond, a `ConvergenceError` says how far it got, with the best point in `theta`.

    Returns
    -------
    FittedModel
        With both curvatures: `"ggn"` (Gauss-Newton), which `infer` takes by default, as
        `curve_fit` and R's `nls` do, and `"hessian"`.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(5.0)
    >>> y = np.array([0.1, 0.9, 2.2, 2.9, 4.1])
    >>> model = from_residuals(lambda b: y - b[0] - b[1] * x, start=[0, 0])
    >>> model.theta.round(6)
    array([0.04, 1.  ])
    """
    start, given = first_start(theta, start, starts)
    point, layout = named_point(theta, start, l2, "the least-squares solution", names)
    residuals, jacobian = speaking(residuals, layout), speaking(jacobian, layout)
    n = check_repeatable(residuals, point, "residuals").size
    scale = None if sigma is None else scale_of(sigma, n)
    if jacobian is not None:
        check_rows(jacobian(point.copy()), (n, point.size), "jacobian")
        check_derivative(residuals, jacobian, point, "jacobian")
    if scale is not None and scale.mixes and weights is not None:
        raise ValueError(NO_WEIGHTS)
    counted = observation_weights(weights, n, weight_kind or "frequency")
    rule = Gaussian(variance).variance
    if rule is None:
        rule = "mle" if l2 else "unbiased"
    under = constraints_of(bounds, constraints, point, layout, start is not None)
    problem = LeastSquares(residuals, jacobian, counted, float(l2), rule, under, scale)
    space = Space(names_of(layout), layout, under, language=VectorLanguage(layout))
    optima: tuple[Optimum, ...] = ()
    if start is None:
        problem = with_traced_jacobian(problem, point)
        noise = problem.noise(point)
    else:
        drawn = given - 1 if isinstance(given, int) else 0
        several = not (starts is None or drawn)
        points = points_of(given, problem.start_model(point, space)) if several else [point]
        most = most_calls(max_calls, point.size)
        with naming_best_point(layout):
            problem, optima, noise = fitted(problem, points, space.names, most, drawn)
        point = optima[0].theta
        if jacobian is not None:  # at a start of zeros or ones a wrong one may be right
            check_derivative(residuals, jacobian, point, "jacobian")
    if weight_kind is None and not isinstance(rule, float) and look_repeated(counted.values):
        warn_of_precisions(counted.values, problem.residuals(point), problem.jacobian(point))
    model = replace(problem.model(point, noise), space=space)
    if starts is not None:
        model = replace(model, facts=replace(model.facts, optima=optima))
    cause = "" if jacobian is None else cause_beside(model)
    if cause:
        warn(wrong_beside("jacobian", cause) + AT_THE_FIT, ImplicitDeltaWarning)
    check_runaways(model, start is not None)
    return model if start is not None else checked_under_constraints(model)

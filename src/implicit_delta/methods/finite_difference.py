"""The finite-difference implicit delta method (FDIDM): refit with a little of psi added."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, NoReturn

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.parallel import run_all
from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, NonlinearityWarning, UnsupportedModelError
from implicit_delta.evaluation import Evaluation
from implicit_delta.methods.ascent import Ascent
from implicit_delta.methods.base import (
    PROBE,
    Method,
    Response,
    described_range,
    first_of,
    relative_bend,
)
from implicit_delta.methods.better import UNFINISHED, better_optimum, risen
from implicit_delta.methods.infinitesimal import Infinitesimal
from implicit_delta.methods.pushed_fit import End, PushedFit, Rise
from implicit_delta.methods.simulation import Simulation
from implicit_delta.methods.slopes import derivative_mismatch
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.optimize import Maximizer, Minimize, as_maximizer

SMOOTH_PUSH = 0.25  # of a standard error: errors of one percent at n = 40, of rounding none
OPAQUE_PUSH = 0.5  # without gradients psi may jump, and a longer way averages over more jumps
LONG, ONE_SIDED = 0.5, 0.1  # standard errors beyond which the length of a push is looked at
PUSH_WARNS = 0.05  # of the standard error; an error because the push is finite
PILOT_DRAWS = 200  # 5 % error or so; the push need not be exact


@dataclass(frozen=True, repr=False)
class FiniteDifference(Method):
    r"""The response to a finite push, by refits (the paper's FDIDM, Algorithms 1 and 3).

    Column k of the covariance is :math:`(\psi(\hat\theta(\lambda)) - \psi(\hat\theta(-\lambda))) /
    2\lambda` where :math:`\hat\theta(\lambda)` maximizes :math:`L + \lambda \psi_k`; with
    ``central=False`` it is :math:`(\psi(\hat\theta(\lambda)) - \psi(\hat\theta(0))) / \lambda`.
    Both ends are refits by the same maximizer at the same tolerance, warm-started at theta: the
    given theta itself is never one of the ends, since what its training left unfinished would
    be taken for a response. A push over which the response changes is reported: L falls by the
    integral of lambda times the response, and psi rises by the integral of the response alone.

    Parameters
    ----------
    lam : float or sequence of float, optional
        The push, in units of 1 / psi. By default `push` standard errors of each psi_k, with the
        standard error from a pilot solve. Several are combined.
    central : bool
        Both sides, with an error of order lambda^2, or one side, of order lambda, as in the paper.
    maximizer : maximizer or callable, optional
        `lbfgs`, `newton_krylov`, the gradient-free `nelder_mead`, or a function ``minimize(fun,
        x0)`` that returns a `scipy.optimize.OptimizeResult`, such as ``lambda fun, x0:
        scipy.optimize.minimize(fun, x0, method="COBYQA")``. It gets no gradient, and starts at
        zero, in coordinates whose unit is a standard error. By default `lbfgs` where the curvature
        can be factorized to give the refits a good scale, and `newton_krylov` beyond 2500
        parameters.
    push : float, optional
        The default lambda times the standard error: a quarter, or a half for maximizers that
        need no gradient, since these are for evaluations that may jump.
    combine : {"richardson", "mean"}
        What to do with several lambdas: extrapolate to lambda = 0, or average.
    curvature : {"hessian", "ggn"}
        What the pilot solve and the scale of the refits use.
    n_jobs : int
        How many refits run at once (joblib).
    """

    lam: float | Sequence[float] | None = None
    central: bool = True
    maximizer: Maximizer | Minimize | None = None
    push: float | None = None
    combine: Literal["richardson", "mean"] = "richardson"
    curvature: Curvature = "hessian"
    n_jobs: int = 1

    def __post_init__(self) -> None:
        """Check what was configured."""
        as_maximizer(self.maximizer)
        if self.central not in (True, False):
            raise TypeError(
                f"central is {self.central!r:.40}, but must be True or False. Give settings by "
                "name: `FiniteDifference(lam=0.1, maximizer=idm.lbfgs)`."
            )
        if isinstance(self.lam, str):
            raise TypeError(f"lam must be a number, not {self.lam!r}: it is the push in 1 / psi.")
        if self.lam is not None:
            pushes = np.atleast_1d(np.asarray(self.lam, dtype=np.float64))
            if pushes.ndim > 1 or not np.all(np.isfinite(pushes)) or np.any(pushes <= 0):
                raise ValueError(f"lam must be positive and finite, not {self.lam!r}.")
            if pushes.size != np.unique(pushes).size or pushes.size == 0:
                raise ValueError(f"The lambdas must be one or more different numbers: {self.lam}.")
            object.__setattr__(self, "lam", tuple(sorted(map(float, pushes))))
        if self.push is not None and not (np.isfinite(self.push) and self.push > 0):
            raise ValueError(f"push must be a positive number of standard errors, not {self.push}.")
        if self.combine not in ("richardson", "mean"):
            raise ValueError(f'combine must be "richardson" or "mean", not {self.combine!r}.')

    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        """Refit at both ends of every push and take differences."""
        _check_dimension(as_maximizer(self.maximizer), model.d)
        ascent = Ascent.of(model, self.maximizer, self.curvature)
        pushes, findings = self._pushes(model, evaluation, ascent.maximizer)
        refit = PushedFit(model, ascent)
        ahead = self._ends(refit, evaluation, pushes)
        rest = None
        if self.central:
            behind = self._ends(refit, evaluation, -pushes)
        else:
            rest = refit(evaluation.component(0), 0.0)
            behind = [[rest] * pushes.shape[1]] * evaluation.size
        ends = [end.theta for end in chain(*ahead, *behind)]
        top = model.objective(model.theta)
        higher = [(risen(model, x, top), x) for x in ends]
        better = better_optimum(model, higher, "by a refit", UNFINISHED)
        rises = [
            [Rise.between(evaluation, k, *ends) for ends in zip(*sides, strict=True)]
            for k, sides in enumerate(zip(ahead, behind, strict=True))
        ]
        response = self._response(model, evaluation, ascent.maximizer, pushes, rises)
        if self.lam is not None and ascent.maximizer.needs_gradient:
            errors = np.sqrt(response.covariance.diagonal())
            findings = first_of(derivative_mismatch(evaluation, errors, self.curvature))
        response = replace(response, findings=(*first_of(better), *findings))
        moves = np.array([[rise.push(k) for rise in column] for k, column in enumerate(rises)])
        least = LONG if self.central else ONE_SIDED
        long = moves > (least if ascent.maximizer.needs_gradient else 2 * OPAQUE_PUSH)
        if not np.any(long):
            return response
        highest = ascent.climb(model).value if rest is None else rest.value
        biases = np.array([[r.bias(k, highest) for r in column] for k, column in enumerate(rises)])
        return self._doubted(response, moves, np.where(long, abs(biases), 0.0))

    def _pushes(
        self, model: FittedModel, evaluation: Evaluation, maximizer: Maximizer
    ) -> tuple[Array, tuple[Finding, ...]]:
        """Lambdas, (K, number of lambdas), and findings of the pilot solve."""
        if self.lam is not None:
            return np.tile(np.asarray(self.lam, dtype=np.float64), (evaluation.size, 1)), ()
        pilot = self._pilot(maximizer).respond(model, evaluation)
        errors = np.sqrt(pilot.covariance.diagonal())
        errors[errors == 0] = 1.0
        push = self.push or (SMOOTH_PUSH if maximizer.needs_gradient else OPAQUE_PUSH)
        # Few draws of a pilot are enough for a push.
        findings = tuple(f for f in pilot.findings if f.code != "monte_carlo_error")
        return np.asarray(push / errors)[:, None], findings

    def _pilot(self, maximizer: Maximizer) -> Method:
        """Choose the pilot: beside a gradient-free maximizer psi may have no derivative."""
        if maximizer.needs_gradient:
            return Infinitesimal(curvature=self.curvature)
        return Simulation(PILOT_DRAWS, tangent=False, rng=0, curvature=self.curvature)

    def _ends(self, refit: PushedFit, evaluation: Evaluation, pushes: Array) -> list[list[End]]:
        """Refit for every push, (K, number of lambdas)."""
        jobs = [(evaluation.component(k), lam) for (k, _), lam in np.ndenumerate(pushes)]
        with progress("refits", total=len(jobs), unit="fit") as bar:
            ends = run_all(refit, jobs, self.n_jobs, lambda _: bar.update())
        width = pushes.shape[1]
        return [ends[k * width : (k + 1) * width] for k in range(evaluation.size)]

    def _response(
        self,
        model: FittedModel,
        evaluation: Evaluation,
        maximizer: Maximizer,
        pushes: Array,
        rises: list[list[Rise]],
    ) -> Response:
        covariance, directions, spreads = [], [], []
        for k, column in enumerate(rises):
            slopes = np.array([(rise.top - rise.bottom) / rise.width for rise in column])
            covariance.append(self._combine(slopes, pushes[k]))
            moves = np.array([rise.theta / rise.width for rise in column])
            directions.append(self._combine(moves, pushes[k]))
            if not covariance[-1][k] > 0:
                _refuse_extrapolation(evaluation.names[k], slopes[:, k], pushes[k])
            spreads.append(float(np.ptp(slopes[:, k]) / covariance[-1][k]))
        notes: dict[str, float | str] = {"lam": described_range(pushes)}
        if pushes.shape[1] > 1:
            notes["spread_over_lam"] = max(spreads)
        every = [rise for column in rises for rise in column]
        score = model.score(model.theta)
        return Response(
            covariance=np.column_stack(covariance),
            directions=np.column_stack(directions),
            method=repr(replace(self, maximizer=maximizer)),
            nonlinearity=self._nonlinearity(evaluation, rises, score) if self.central else np.nan,
            residual=max(rise.gradient for rise in every),
            score=score,
            exact=self.lam is None,
            passes=sum(rise.passes for rise in every) if self.n_jobs != 1 else 0,
            notes=notes,
        )

    def _doubted(self, response: Response, moves: Array, biases: Array) -> Response:
        """Warn of pushes that V is not constant over; know the bend where there is one end."""
        # extrapolation to lambda = 0 starts from the smallest one
        used = biases[:, :1] if self.combine == "richardson" else biases
        far = _too_far(float(np.max(used)) / 2, float(np.max(moves)), self.central)
        response = replace(response, findings=(*response.findings, *first_of(far)))
        if self.central:
            return response
        return replace(response, nonlinearity=float(np.max(biases * PROBE / moves)))

    def _nonlinearity(self, evaluation: Evaluation, rises: list[list[Rise]], score: Array) -> float:
        """Compare the two ends of each push, on the scale of half a standard error."""
        bends = []
        for k, column in enumerate(rises):
            for rise in column:
                # psi where the ends meet: the maximum, from which theta may be some way off
                center = evaluation.value[k] + rise.theta @ score / rise.width
                points = evaluation.on_scale(np.array([rise.top[k], center, rise.bottom[k]]), k)
                bend = relative_bend(*points)
                error = np.sqrt((rise.top[k] - rise.bottom[k]) / rise.width)
                bends.append(bend * PROBE / (rise.width / 2 * error))
        return float(max(bends))

    def _combine(self, slopes: Array, pushes: Array) -> Array:
        """Average over lambdas, or extrapolate to zero: in lambda^2 if central, else in lambda."""
        if self.combine == "mean" or pushes.size == 1:
            return np.asarray(np.mean(slopes, axis=0))
        order = 2 if self.central else 1
        vandermonde = np.vander((pushes / pushes[0]) ** order, increasing=True)
        return np.asarray(np.linalg.solve(vandermonde.T, np.eye(pushes.size)[0]) @ slopes)


def _refuse_extrapolation(name: str, slopes: Array, pushes: Array) -> NoReturn:
    raise ConvergenceError(
        f"The variance of {name} changes so much over the lambdas ({slopes.min():.3g} to "
        f"{slopes.max():.3g} for {described_range(pushes)}) that it is negative at zero. They push "
        "psi too far: leave lam out, or use smaller ones."
    )


def _too_far(error: float, push: float, central: bool) -> Finding | None:
    if not error > PUSH_WARNS:
        return None
    advice = "Leave `lam` and `push` out" if central else "Push to both sides, `central=True`"
    return Finding(
        "warn",
        "long_push",
        f"The push by up to {push:.2g} standard errors is too long: the response of psi "
        f"changes on the way, so that the standard error is off by about {error:.0%}.",
        number=error,
        remedies=(f"{advice}, or take a smaller one.",),
        warning=NonlinearityWarning,
    )


def _check_dimension(maximizer: Maximizer | None, d: int) -> None:
    most = None if maximizer is None else maximizer.max_dimension
    if most is not None and d > most:
        raise UnsupportedModelError(
            f"{maximizer} finds maxima without gradients in up to {most} "
            f"dimensions, and the model has {d} parameters. What works for an opaque psi in any "
            "number of dimensions: `Simulation()`, or `Smoothed(psi)` with `Infinitesimal()` or "
            "`FiniteDifference()`."
        )

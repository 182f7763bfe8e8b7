"""The infinitesimal implicit delta method (IIDM): one linear solve per evaluation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from implicit_delta.calculus.units import sizes
from implicit_delta.core.factored import Factored
from implicit_delta.core.findings import Finding
from implicit_delta.core.limits import CHEAP_LIMIT, DENSE_LIMIT
from implicit_delta.core.rounding import is_same, sum_rounding
from implicit_delta.core.thresholds import UNCERTAIN
from implicit_delta.core.types import Array
from implicit_delta.errors import (
    ConvergenceError,
    EvaluationError,
    NotAMaximumError,
    UnsupportedModelError,
)
from implicit_delta.evaluation import Evaluation
from implicit_delta.linalg.arrays import ratio, symmetric
from implicit_delta.linalg.solvers import (
    Cholesky,
    FlatFactor,
    Solution,
    Solver,
    cholesky,
    conjugate_gradient,
)
from implicit_delta.methods.base import Method, Response, first_of, refuse_flat
from implicit_delta.methods.probe import Draw, Probe, probe
from implicit_delta.methods.slopes import Line, bends_of, lines_of, scaled_draw, slope_mismatch
from implicit_delta.models.coordinates import explain
from implicit_delta.models.facts import Curvature
from implicit_delta.models.model import FittedModel
from implicit_delta.models.objective import objective_of
from implicit_delta.models.outer_products import OuterProducts
from implicit_delta.models.outputs import (
    curvature_noise,
    gauss_newton_gram,
    gauss_newton_part,
)
from implicit_delta.models.rows import ScaledRows

# Networks of 300 to 2000 parameters took conjugate gradients some 100 to 1000 products for each
# psi, a factorization never more than d: it wins below 1000 parameters, and for many psi.
CURVATURES: tuple[Curvature, Curvature] = ("hessian", "ggn")
SMALL, LARGEST, PRODUCTS = 1000, 5000, 500
MANY = 8  # solves with conjugate gradients cost what the columns of so many parameters do
ANOTHER = 1e-8  # of the solution: what is left of the variance is its square
BIAS_LIMIT = 30  # parameters: the bias takes two evaluations of psi for each
BIAS_STEP = 0.1  # of a standard error
# Beyond a few parameters a bias is first looked for along random mixtures of all directions. One of
# half a standard error, which matters, of a psi that bends along a single direction is below the
# limit in all three with probability 1.4e-3.
BIAS_MIXTURES, BIAS_LIMIT_MIXED = 3, 0.01
MOST_BYTES, COPIES = 8e9, 5  # of the covariance of all evaluations, on its way to the user
MOST_MEMORY = 64.0  # GB: to advise a factorization that needs more helps nobody
FLAT_RISE = 0.01  # of the objective, over one standard error along a flat direction
UNIT_DRAWS = 16
LEAST_SHARE = 1.25e-3  # |N(0, 1)| is larger with probability 0.999


@dataclass(frozen=True, repr=False)
class Infinitesimal(Method):
    r"""The response to an infinitesimal push (the paper's IIDM, Theorem 1).

    With A minus the Hessian of the objective and g the gradient of psi, the optimum of
    :math:`L + \lambda \psi` moves along :math:`w = A^{-1} g` and psi at the rate
    :math:`V = g' A^{-1} g`, its variance. K evaluations share one factorization (Theorem 3).

    Parameters
    ----------
    solver : cholesky or conjugate_gradient(...), optional
        How :math:`A^{-1} g` is found. With `score=` and more than 30 parameters, by default
        conjugate gradients in the metric of the score rows, as long as these tell the curvature
        and there are at least 8 parameters for each psi. Else a factorization for up to 1000, or
        up to 5000 if there are not more than 500 for each psi; otherwise conjugate gradients,
        which stop on the standard error (and up to 2500 parameters, a factorization after all
        where these leave doubt).
    curvature : {"hessian", "ggn"}
        Which A: minus the Hessian, or its generalized Gauss-Newton part, which is never
        indefinite and is what the Laplace approximation uses.
    damping : float
        Added to the diagonal of A. It shrinks the standard error, to that under a ridge penalty of
        this size. A training of T gradient steps at rate eta reaches about what
        ``damping = 1 / (eta * T)`` gives (on the scale of the summed log-likelihood).

    Notes
    -----
    Directions along which the log-likelihood is flat are no error if psi does not change along
    them (redundant parameters and a psi that the data determine): then :math:`A^{-1}` is the
    pseudo-inverse, and ``diagnostics.notes["flat_directions"]`` has their number. Of conjugate
    gradients ``notes["accuracy"]`` says whether the residual is a bound; of a large Gauss-Newton
    matrix that was factorized without outputs that hardly curve, by how much that can change the
    standard error.

    Examples
    --------
    >>> from implicit_delta import from_residuals, infer
    >>> y = np.array([1.0, 2.0, 4.0])
    >>> model = from_residuals(lambda m: y - m[0], start=[0.0], variance=1.0)
    >>> round(infer(model, lambda m: m[0], Infinitesimal()).standard_error ** 2, 9)
    0.333333333
    """

    solver: Solver | None = None
    curvature: Curvature = "hessian"
    damping: float = 0.0

    def __post_init__(self) -> None:
        """Check what was configured."""
        if self.solver is not None and not isinstance(self.solver, Solver):
            raise TypeError(
                f"solver is {self.solver!r:.40}: give the object itself, `solver=idm.cholesky` or "
                "`solver=idm.conjugate_gradient(rtol=1e-4)`."
            )
        if self.curvature not in ("hessian", "ggn"):
            raise ValueError(f'curvature must be "hessian" or "ggn", not {self.curvature!r}.')
        if not np.isfinite(self.damping) or self.damping < 0:
            raise ValueError(f"damping must be a finite number >= 0, not {self.damping!r}.")

    def respond(self, model: FittedModel, evaluation: Evaluation) -> Response:
        """Solve for the directions and multiply out the covariance."""
        _check_size(evaluation.size, model.d, self.solver)
        jacobian = evaluation.jacobian(model.theta)
        _check_moves(jacobian, model)
        try:
            solver, solution = self._solve(model, jacobian.T)
            accuracy = self._accuracy(model, solution)
        except NotAMaximumError as error:
            raise explain(model, error) from None
        exact = self.curvature == "hessian" and self.damping == 0
        own = exact or (self.curvature == model.facts.curvature and self.damping == 0)
        score = _checked_score(model, solution.flat)
        draw = self._draw(model, solution)
        lines = _lines(evaluation, jacobian, solution, draw)
        bias = _second_order_bias(evaluation, solution, lines)
        against = own and not np.all(evaluation.straight)
        errors = np.sqrt(solution.quadratic.diagonal())
        mismatch = slope_mismatch(lines, errors) if lines else None
        seen = _probed(evaluation, jacobian, solution, score, against, draw)
        return Response(
            covariance=solution.quadratic,
            directions=solution.x,
            basis=_basis(solution),
            method=repr(replace(self, solver=solver)),
            smallest_curvature=solution.smallest_curvature,
            nonlinearity=seen.nonlinearity,
            bent=seen.most,
            falls=seen.falls,
            bias=bias,
            residual=solution.residual if solution.probability > 0 else np.nan,
            score=score,
            notes=_notes(solution, model.facts.precision.is_single),
            exact=exact,
            findings=(*accuracy, *seen.findings, *first_of(mismatch)),
        )

    def _solve(self, model: FittedModel, b: Array) -> tuple[Solver, Solution]:
        """Solve with the given solver, or with the one that suits the sizes."""
        if self.solver is not None:
            return self.solver, self._solved(self.solver, model, b)
        quick = self._by_scores(model, b)
        if quick is not None:
            return conjugate_gradient, quick
        few = model.d <= max(SMALL, min(LARGEST, PRODUCTS * b.shape[1]))
        if few or model.d > DENSE_LIMIT:
            return replace(self, solver=cholesky if few else conjugate_gradient)._solve(model, b)
        try:
            solution = self._solved(conjugate_gradient(budget=model.d), model, b)
        except ConvergenceError:
            return cholesky, self._solved(cholesky, model, b)
        if solution.doubtful:
            return cholesky, self._solved(cholesky, model, b)
        return conjugate_gradient, solution

    def _accuracy(self, model: FittedModel, solution: Solution) -> tuple[Finding, ...]:
        """Findings about the solve, by the solver of the user or of very many parameters."""
        if self.solver is None and model.d <= DENSE_LIMIT:
            return ()
        known = self.damping + model.penalty.floor if self.curvature == "ggn" else 0.0
        return tuple(_accuracy(solution, model, known))

    def _by_scores(self, model: FittedModel, b: Array) -> Solution | None:
        """Solve in the metric of the score rows; None if that is no gain, or in any doubt."""
        if self.curvature != "hessian" or self.damping or b.shape[1] * MANY > model.d:
            return None
        known = objective_of(model).outer_products
        if known is None:
            return None
        try:
            found = known.solved(b, model.d // b.shape[1])
        except (ConvergenceError, NotAMaximumError):
            return None
        return _refined(found, b, known, model.information(model.theta, found.x))

    def _solved(self, solver: Solver, model: FittedModel, b: Array) -> Solution:
        operator = lambda v: self._curve(model, v)  # noqa: E731
        if isinstance(solver, Cholesky):
            part = self._part(model, b.shape[1])
            return solver.solve(operator, b, part=part, gram=lambda T: self._gram(model, T))
        floor = self._floor(model) if solver.uses_floor else 0.0
        units = (
            _units(model) if floor == 0 and not getattr(solver, "preconditioner", None) else None
        )
        if units is None:
            return solver.solve(operator, b, floor=floor, single=model.facts.precision.is_single)
        scale = np.asarray(units)[:, None]

        def scaled(v: Array) -> Array:
            by = scale if v.ndim == 2 else scale[:, 0]
            return np.asarray(by * self._curve(model, by * v))

        found = solver.solve(scaled, scale * b, single=model.facts.precision.is_single)
        x = scale * found.x
        curvature = ratio(found.quadratic.diagonal(), np.sum(x**2, axis=0))
        return replace(found, x=x, smallest_curvature=float(np.min(curvature)))

    def _part(self, model: FittedModel, columns: int) -> Array | None:
        """Return most of the curvature, if that is cheaper to form than all of it."""
        if self.curvature != "ggn":
            return None
        part = gauss_newton_part(model, model.theta, columns)
        if part is not None and self.damping:
            part[np.diag_indices(model.d)] += self.damping
        return part

    def _gram(self, model: FittedModel, basis: Array) -> Array | None:
        """Multiply ``T' A T`` for T (d, k) from rows; None if A is not the sum of their squares."""
        if model.rows.outputs is None or model.facts.precision.is_single:
            return None
        found = gauss_newton_gram(model, model.theta, basis)
        if found is None or not (self.curvature == "ggn" or self._is_gauss_newton(model)):
            return None
        return found + self.damping * basis.T @ basis

    def _is_gauss_newton(self, model: FittedModel) -> bool:
        """Whether the Hessian and the Gauss-Newton matrix are one, to rounding, in any units."""
        identity = np.eye(model.d)
        hessian, other = (model.information(model.theta, identity, kind) for kind in CURVATURES)
        units = np.sqrt(np.outer(np.diag(other), np.diag(other)))
        return is_same(hessian / units, other / units, sum_rounding(model.n))

    def _floor(self, model: FittedModel) -> float:
        """Return a lower bound of the curvature.

        The Gauss-Newton matrix is at least the ridge. So is a Hessian that equals it, as in a
        generalized linear model: along a random vector they differ by at least a share of the
        largest eigenvalue of their difference.
        """
        floor = self.damping + model.penalty.floor
        if self.curvature == "ggn" or floor == 0:
            return floor
        z = np.random.default_rng(1).standard_normal(model.d).astype(model.theta.dtype)
        try:
            other = model.information(model.theta, z, "ggn")
        except UnsupportedModelError:
            return 0.0
        apart = np.linalg.norm(model.information(model.theta, z) - other)
        return max(0.0, floor - float(apart) / LEAST_SHARE)

    def _draw(self, model: FittedModel, solution: Solution) -> Draw:
        """Draw from N(0, A^-1); without a root of A, along one random direction of that length."""
        root = solution.factor or solution.flat
        if root is not None:
            return lambda z: root.half(z[:, None])[:, 0]

        return scaled_draw(model, self._curve)

    def _curve(self, model: FittedModel, v: Array) -> Array:
        product = model.information(model.theta, v, self.curvature)
        return product + self.damping * v if self.damping else product


def _units(model: FittedModel) -> Array | None:
    """Estimate 1 / sqrt of the diagonal of the curvature, (d,), or take the units of the rows.

    Conjugate gradients in these units do not depend on those of the columns, which cost thousands
    of iterations. Of a mean of 16 squares the root is off by about a sixth.
    """
    noise = curvature_noise(model, model.theta, np.random.default_rng(2), UNIT_DRAWS)
    if noise is None:
        known = isinstance(model.rows, ScaledRows) and model.d <= CHEAP_LIMIT
        return objective_of(model).units if known else None
    size = np.sqrt(np.mean(noise**2, axis=1))
    return np.asarray(1 / np.where(size > 0, size, 1.0), dtype=model.theta.dtype)


def _refined(found: Solution, b: Array, known: OuterProducts, images: Array) -> Solution | None:
    """Correct a solution by products that know their error; None if they tell another story."""
    remainder = b - images
    left = np.linalg.norm(known.half_transpose(remainder), axis=0) ** 2 / known.floor
    share = float(np.max(ratio(left, found.quadratic.diagonal())))
    if share > ANOTHER**2:
        return None
    quadratic = symmetric(b.T @ found.x + found.x.T @ remainder)
    return replace(found, quadratic=quadratic, residual=found.residual + share)


def _probed(
    evaluation: Evaluation,
    jacobian: Array,
    solution: Solution,
    score: Array,
    exact: bool,
    draw: Draw,
) -> Probe:
    """Probe psi; of a network that stopped early in its tangent, if psi has one."""
    x, V = solution.x, solution.quadratic
    if not evaluation.model.penalty.early_stop:
        return probe(evaluation, jacobian, x, V, score, exact, draw)
    try:
        return probe(evaluation.in_tangent(), jacobian, x, V, score, exact, draw)
    except UnsupportedModelError:
        return Probe(np.nan)


def _lines(evaluation: Evaluation, jacobian: Array, solution: Solution, draw: Draw) -> list[Line]:
    """Evaluate psi far away; of a network that stopped early in its tangent, if psi has one.

    Questions are made of predictions, and parameters are themselves: their derivatives are known.
    """
    if not evaluation.is_function:
        return []
    errors = np.sqrt(solution.quadratic.diagonal())
    whitened = solution.factor is not None or solution.flat is not None
    try:
        where = evaluation.in_tangent() if evaluation.model.penalty.early_stop else evaluation
        return lines_of(where, jacobian, errors, draw, whitened=whitened)
    except UnsupportedModelError:
        return lines_of(evaluation, jacobian, errors, draw, whitened=whitened)


def _notes(solution: Solution, single: bool) -> Mapping[str, float | str]:
    notes: dict[str, float | str] = {}
    if solution.flat_directions:
        exact = solution.flat is not None
        count = float(solution.flat_directions)
        notes["flat_directions"] = count if exact else f"about {count:.0f}"
    if solution.probability < 1:
        sure = f"bounded with probability {solution.probability:g}"
        estimated = f"not bounded, about {solution.residual:.1g} (an order of magnitude)"
        notes["accuracy"] = sure if solution.probability > 0 else estimated
    elif single and np.isnan(solution.asymmetry):  # A was never formed
        notes["accuracy"] = f"bounded, at most {solution.residual:.1g} (single precision)"
    if solution.by_part:
        off = float(np.max(ratio(solution.upper - solution.lower, 2 * solution.lower)))
        most = max(off, float(np.finfo(float).eps))
        notes["accuracy"] = f"bounded, at most {most:.1g} (rows that hardly curve made up for)"
    return notes


def _checked_score(model: FittedModel, flat: FlatFactor | None) -> Array:
    """Return the score, if L does not rise along flat directions."""
    score = model.score(model.theta)
    if flat is None:
        return score
    rise = flat.rise(score, sizes(model.theta))
    if rise > FLAT_RISE:
        raise NotAMaximumError.rising(rise)
    return score


def about_solve(response: Response) -> list[Finding]:
    """Findings that concern callers who use only the solution, and do not need psi to be smooth."""
    return [found for found in response.findings if found.code not in ("derivative", "jumps")]


def _accuracy(solution: Solution, model: FittedModel, floor: float) -> Iterator[Finding]:
    """Find a solve of conjugate gradients that is not as accurate as was requested."""
    if solution.probability and solution.residual > UNCERTAIN:
        yield Finding(
            "warn",
            "solver_accuracy",
            f"The standard error is known to {solution.residual:.0%} only: so much may be missing "
            "by the rounding of products with the curvature. Usual cause: single precision, with "
            "columns of different scales and a small penalty.",
            number=solution.residual,
            remedies=(
                "Make the model with `dtype=torch.float64`, bring the columns to one scale, or "
                "use a larger `l2=`.",
            ),
        )
    if not solution.doubtful:
        return
    smallest, gigabytes = solution.smallest_curvature, 8e-9 * 3 * model.d**2
    direct = f"Use `Infinitesimal(solver=cholesky)` if {gigabytes:.2g} GB fit in memory, or fit"
    text = (
        "The standard error may be too small: conjugate gradients may have missed directions of "
        f"little curvature (the smallest found is {smallest:.1e}), and there is "
        "no bound on what is missing. Usual causes: nearly redundant parameters, single precision. "
        f"{direct if gigabytes <= MOST_MEMORY else 'Fit'} with "
        f"{'a larger `l2=`' if model.penalty.floor else 'a penalty (`l2=`)'}."
    )
    if smallest < floor:
        text = (
            f"The standard error has no bound: a curvature of {smallest:.1e} was found where the "
            f"penalty leaves none below {floor:.1e}, so rounding in the products has reached the "
            "digits that were asked for. Usual cause: single precision. Ask for fewer, "
            "`conjugate_gradient(rtol=1e-2)`, or make the model with `dtype=torch.float64`."
        )
    yield Finding("warn", "no_bound", text, number=smallest)


def _basis(solution: Solution) -> Array | None:
    """Return the root of A^-1 that a factored covariance is made of, (d, d)."""
    root = solution.factor or solution.flat
    factored = isinstance(solution.quadratic, Factored) and root is not None
    return root.half(np.eye(len(solution.x))) if factored and root is not None else None


def _check_size(size: int, d: int, solver: Solver | None) -> None:
    """Refuse more evaluations than fit in memory, at the rank of their covariance."""
    direct = d <= LARGEST if solver is None else isinstance(solver, type(cholesky))
    needed = 8.0 * COPIES * size * (min(size, d) if direct else size)
    if needed > MOST_BYTES:
        raise EvaluationError(
            f"psi returns {size} values, and their joint covariance would take {needed / 1e9:.0f} "
            "GB of memory. Ask for fewer at a time (`infer` in blocks, such as `lambda m: "
            "psi(m)[:1000]`, each with its own covariance), or for a summary: their mean, or the "
            "mean over a population, `Average`."
        )


def _check_moves(jacobian: Array, model: FittedModel) -> None:
    if not np.any(jacobian):
        what = "psi does not change with the parameters: its derivative is exactly zero."
        refuse_flat(what, model)


def _second_order_bias(evaluation: Evaluation, solution: Solution, lines: list[Line]) -> float:
    """Half the trace of the Hessian of psi times A^-1, in standard errors: the largest."""
    errors, factor = np.sqrt(solution.quadratic.diagonal()), solution.factor
    if factor is None or factor.scale.size > BIAS_LIMIT:
        return np.nan

    def biases(mixture: Array) -> Array:
        bends = evaluation.bends(BIAS_STEP * factor.half(mixture).T)
        return np.asarray(ratio(bends / (2 * BIAS_STEP**2), errors))

    d = factor.scale.size
    try:
        if d > 2 * BIAS_MIXTURES:
            # Each has the whole bias as its expectation (Hutchinson).
            # Normal numbers, not signs: those cancel exactly in a difference of two parameters.
            far = bends_of(lines) if lines else None
            if far is None:
                mixed = biases(np.random.default_rng(0).normal(size=(d, BIAS_MIXTURES)))
            else:
                mixed = np.asarray(ratio(far / 2, errors))
            if np.max(abs(mixed)) < BIAS_LIMIT_MIXED:
                return float(np.max(abs(mixed.mean(axis=0))))
        return float(np.max(abs(biases(np.eye(d)).sum(axis=0))))
    except EvaluationError:
        return np.nan

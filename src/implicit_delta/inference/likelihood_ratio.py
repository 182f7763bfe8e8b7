"""Tests between nested fits: likelihood ratio, Wald and score."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular
from scipy.optimize import nnls
from scipy.special import chdtrc, fdtrc

from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError, UnsupportedModelError
from implicit_delta.estimate.tables import aligned
from implicit_delta.inference.profile.constrained import without_inequalities
from implicit_delta.inference.vanishing import Vanished, vanished
from implicit_delta.linalg.arrays import symmetric
from implicit_delta.models.boundaries import fixed_by_constraints
from implicit_delta.models.constraints import box
from implicit_delta.models.coordinates import (
    active_constraints,
    in_free_coordinates,
    satisfies_constraints,
)
from implicit_delta.models.fit_statistics import FitStatistics, noise_free_terms
from implicit_delta.models.isolation import with_own_caches
from implicit_delta.models.loglik_objective import AT_THE_EDGE
from implicit_delta.models.model import FittedModel
from implicit_delta.models.outputs import pseudo_options
from implicit_delta.models.printing import log_likelihood_of, name_of_model
from implicit_delta.models.refit_fixed import check_unchanged, fit_null
from implicit_delta.models.rows import DifferencedRows
from implicit_delta.models.same_rows import source_of

SAME = 1e-9  # relative: log-likelihoods that are equal but for rounding
ZERO = 1e-6  # a statistic of less is rounding: a thousandth of a standard error
UNFINISHED = 0.01  # rise of twice the log-likelihood that a Newton step still promises


class NullTest(NamedTuple):
    """One test: its statistic, degrees of freedom and p-value."""

    name: str
    statistic: float
    df: float
    p_value: float


@dataclass(frozen=True, repr=False)
class LikelihoodRatio:
    """The result of `likelihood_ratio`; print it.

    Attributes
    ----------
    statistic, df, p_value : float
        Of the likelihood-ratio test.
    tests : tuple of NullTest
        That one and, where the smaller model is found within the larger, Wald's and the score
        test; for least squares with an estimated variance the F test.
    notes : tuple of str
        Where the smaller model lies at a bound of the larger, and what was left out.
    """

    tests: tuple[NullTest, ...]
    notes: tuple[str, ...] = ()

    @property
    def statistic(self) -> float:
        return self.tests[0].statistic

    @property
    def df(self) -> float:
        return self.tests[0].df

    @property
    def p_value(self) -> float:
        return self.tests[0].p_value

    def __getitem__(self, name: str) -> NullTest:
        """Take a test by name: "likelihood ratio", "F", "Wald" or "score"."""
        for test in self.tests:
            if test.name == name:
                return test
        raise KeyError(f"There is no test {name!r}: {', '.join(t.name for t in self.tests)}.")

    def __repr__(self) -> str:
        cells = [
            [name, f"{value:.4f}", f"{df:g}", f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"]
            for name, value, df, p in self.tests
        ]
        table = aligned([["", "statistic", "df", "p_value"], *cells])
        return "\n".join([table, *self.notes])


def likelihood_ratio(m0: FittedModel | Mapping[Any, float], m1: FittedModel) -> LikelihoodRatio:
    r"""Test the smaller of two nested fits to the same data against the larger.

    The statistic :math:`2 (\ell_1 - \ell_0)` has a chi-squared distribution under the smaller
    model, with as many degrees of freedom as it has parameters less. Where one of the parameters
    is fixed at its bound, it is half of that and half of one with a degree less (Self and Liang,
    1987), and the score test is one-sided; where several are, the p-value is that of all of them,
    an upper bound. Where a parameter of the larger model means nothing under the smaller one (the
    place of a peak of height zero), there is no chi-squared distribution, and the test is refused.

    Parameters
    ----------
    m0, m1 : FittedModel
        The smaller and the larger fit, of `from_loglik` or `from_residuals` (or of a backend that
        knows its log-likelihood with all constants): usually ``m0 = m1.fix(mu=5.0)``, or the values
        to fix alone, ``{"mu": 5.0}``, which may be those of all parameters. Fits with functions of
        their own are compared too; Wald's test and the score test are made where m0 is m1 with some
        parameters fixed, or has some of its names, and the others are zero there.

    Returns
    -------
    LikelihoodRatio

    Examples
    --------
    >>> import implicit_delta as idm
    >>> y = np.array([3, 0, 2, 5, 1, 4, 2, 3])
    >>> x = np.array([1, 0, 0, 1, 0, 1, 1, 0])
    >>> def loglik(th):
    ...     return y * (th.a + th.b * x) - np.exp(th.a + th.b * x)
    >>> model = idm.from_loglik(loglik, start={"a": 0.0, "b": 0.0})
    >>> idm.likelihood_ratio(model.fix(b=0.0), model)
                      statistic  df  p_value
    likelihood ratio     3.2913   1   0.0696
    Wald                 3.0152   1   0.0825
    score                3.2000   1   0.0736
    """
    m0, m1 = with_own_caches((m0, m1))  # together: what they share stays one
    if isinstance(m0, Mapping):
        _check_model(m1, True)
        m0 = fit_null(m1, m0)
    same_rows = _have_same_rows(m0, m1)
    for model in (m0, m1):
        _check_model(model, same_rows)
        check_unchanged(model)
    _check_same_data(m0, m1)
    s0, s1 = (_statistics(model, same_rows) for model in (m0, m1))
    df = s1.parameters - s0.parameters
    within = _embedded(m0, m1)
    _check_nested(m0, m1, df, within)
    _check_meaning(m0, m1, within)
    for model in (m0, m1):
        _check_finished(model)
    statistic = _risen(s0, s1)
    normals = np.zeros((0, m1.d)) if within is None else _at_bounds(m0, m1, within)
    edges = len(normals)
    p_value = mixture(statistic, df, edges)
    tests, notes = [NullTest("likelihood ratio", statistic, df, p_value)], _notes(m1, edges, within)
    if s1.estimated:
        tests.append(_f_test(s0, s1, df))
    if within is not None:
        found, missing = _local_tests(m0, m1, within, df, normals, (s0, s1))
        tests, notes = tests + found, notes + missing
    return LikelihoodRatio(tuple(tests), tuple(notes))


def mixture(statistic: float, df: float, edges: int = 0) -> float:
    """P-value of chi-squared or, with one parameter at its bound, of the mixture there."""
    statistic = max(statistic, 0.0)
    upper = float(chdtrc(df, statistic))
    if edges != 1:
        return upper
    lower = float(chdtrc(df - 1, statistic)) if df > 1 else float(statistic <= ZERO)
    return (upper + lower) / 2


def _have_same_rows(m0: Any, m1: Any) -> bool:
    """Whether the terms of two models differ by no constant, as those of a model and its `fix`."""
    if not (isinstance(m0, FittedModel) and isinstance(m1, FittedModel)):
        return False
    return m0.rows is m1.rows or _are_sums_of_the_same(m0, m1)


def _are_sums_of_the_same(m0: FittedModel, m1: FittedModel) -> bool:
    """Whether two sums have the same data sets, none of which has estimated a noise variance."""
    parts = [getattr(m.rows, "parts", ()) for m in (m0, m1)]
    same = len(parts[0]) == len(parts[1]) > 0
    same = same and all(a is b for a, b in zip(*parts, strict=True))
    return same and not any(source.is_scaled for source in m1.facts.sources)


def _statistics(model: FittedModel, same_rows: bool) -> FitStatistics:
    """Fit statistics; of the same rows constants are left out if they are not known."""
    found = FitStatistics.of(model)
    if np.isfinite(found.log_likelihood) or not same_rows:
        return found
    return replace(found, log_likelihood=model.objective(model.theta))


def _check_model(model: Any, same_rows: bool) -> None:
    if isinstance(model, FittedModel) and (not model.rows.symmetric):
        model.objective(model.theta)  # which says why there is none
    if not isinstance(model, FittedModel) or not (same_rows or _has_likelihood(model)):
        raise TypeError(
            "likelihood_ratio compares a model with its own `model.fix(...)` if no noise variance "
            "is estimated, or models whose log-likelihood is known with all its constants: those "
            "of `from_loglik`, `from_residuals`, sums of these and rows with `log_likelihood`, and "
            f"not of {name_of_model(model)}. Of two results of statsmodels the statistic is "
            "`2 * (large.llf - small.llf)`."
        )
    if model.penalty:  # that of an early stop as well
        raise UnsupportedModelError(
            "A fit is penalized, and a penalized likelihood has no chi-squared distribution. Fit "
            "both models without `l2=` and `penalty=`."
        )
    if model.weights.kind == "sampling":
        raise UnsupportedModelError(
            "With sampling weights the objective is no log-likelihood: its differences grow with "
            "the unit of the weights. Test the parameters themselves, `infer(model, names)`, "
            "whose variance is design-based."
        )
    if options := pseudo_options(model):
        raise UnsupportedModelError(
            f"With {options} the terms are no log-densities, and their sum has no chi-squared "
            "distribution. Test the parameters themselves, `infer(model, psi, robust=True)`."
        )
    if model.weights.kind == "precision" and not np.isfinite(log_likelihood_of(model)):
        raise UnsupportedModelError(
            "Precisions are known up to a common factor, and the log-likelihood with it. Put the "
            "variances into the log-likelihood itself, or use `from_residuals`."
        )


def _has_likelihood(model: FittedModel) -> bool:
    """Whether the log-likelihood is a user's function, or known with all its constants."""
    return isinstance(model.rows, DifferencedRows) or bool(np.isfinite(log_likelihood_of(model)))


def _check_same_data(m0: FittedModel, m1: FittedModel) -> None:
    if m0.facts.source != m1.facts.source:
        raise ValueError(
            f"One fit is made by `{m0.facts.source}` and the other by `{m1.facts.source}`: their "
            "log-likelihoods may differ by constants. Write both in the same way."
        )
    if m0.n != m1.n or not m0.weights.equal(m1.weights):
        told = f"{m0.n} and {m1.n} rows" if m0.n != m1.n else "other weights"
        raise ValueError(
            f"The fits are not to the same data ({told}), so their likelihoods do not compare. "
            "Usual cause: rows with missing values that only one of them leaves out."
        )


def _check_nested(m0: FittedModel, m1: FittedModel, df: int, within: Array | None) -> None:
    if df < 0:
        raise ValueError(
            f"The first model has {-df} parameters more than the second: give the smaller one "
            "first, `likelihood_ratio(small, large)`."
        )
    if df == 0:
        raise ValueError(
            "Both models have the same number of free parameters, so neither is within the other "
            "and there is nothing to test. Compare `model.summary().statistics.aic`."
        )
    noises = [_given_noise(model) for model in (m0, m1)]
    if noises[0] != noises[1]:
        raise ValueError(
            f"The noise variances are {noises[0]} and {noises[1]}: give the same `variance=` to "
            "both fits."
        )
    if within is not None and not satisfies_constraints(m1, within):
        raise ValueError(
            "The models are not nested: the parameters of the first violate the constraints of "
            f"the second ({m1.space.constraints})."
        )


def _check_meaning(m0: FittedModel, m1: FittedModel, within: Array | None) -> None:
    """Refuse a null hypothesis under which some parameters mean nothing."""
    if within is None:
        found, names = _dropped(m0, m1), m1.space.names
    else:
        free, held = _along_equalities(m1), _held(m0, m1, within)
        basis = np.eye(m1.d) if free.space.chart is None else free.space.chart.slope(within)
        found = vanished(m1, within, held, basis, lambda theta: noise_free_terms(m1, theta))
        names = m1.space.names or tuple(f"theta[{j}]" for j in range(m1.d))
    if found is None:
        return
    assert names is not None
    point = np.array(m1.theta) if within is None else np.array(within)
    point[found.causes] = 0.0 if within is None else point[found.causes]
    null = ", ".join(f"{names[j]} = {point[j]:g}" for j in found.causes)
    lost = " and ".join(names[j] for j in found.places)
    pronoun = "it" if len(found.places) == 1 else "them"
    raise UnsupportedModelError(
        f"Under {null} nothing depends on {lost}, so the likelihood ratio has no chi-squared "
        "distribution: it is the largest over all their values (Davies, 1977; the look-elsewhere "
        "effect), and a p-value from chi-squared is far too small. For a local p-value take "
        f"{lost} from elsewhere than these data and fix {pronoun} in both fits: "
        "`large = model.fix(...)`, and `likelihood_ratio(values, large)` with a dictionary of the "
        "null hypothesis. For a global one draw data from the smaller fit and see how often their "
        "likelihood ratio is as large."
    )


def _dropped(m0: FittedModel, m1: FittedModel) -> Vanished | None:
    """Find a parameter whose zero alone makes m0 of m1, whatever its others are."""
    if (
        m0.space.names is None
        or m1.space.names is None
        or not set(m0.space.names) < set(m1.space.names)
    ):
        return None
    point, here = np.array(m1.theta), noise_free_terms(m0, np.array(m0.theta))
    point[[m1.space.names.index(name) for name in m0.space.names]] = m0.theta
    missing = [
        j
        for j, name in enumerate(m1.space.names)
        if name not in m0.space.names and j not in m1.space.fixed
    ]
    for j in missing if len(missing) > 1 else []:
        there = np.where(np.arange(m1.d) == j, 0.0, point)
        with np.errstate(all="ignore"):
            if _same(noise_free_terms(m1, there), here):
                return Vanished([k for k in missing if k != j], [j])
    return None


def _given_noise(model: FittedModel) -> Any:
    """Noise variance of a Gaussian likelihood, or that it was estimated; None for others."""
    likelihood = None if model.rows.outputs is None else model.rows.outputs.likelihood
    if model.facts.noise_rule is not None:
        return "estimated"
    return getattr(likelihood, "noise", None)


def _check_finished(model: FittedModel) -> None:
    """Refuse a fit that is not at its maximum: the statistic would be off by what is left."""
    if fixed_by_constraints(model):
        return
    free = in_free_coordinates(model)
    try:
        left = _quadratic(free.score(free.theta), _information(free))
    except UnsupportedModelError:  # at an edge of what the log-likelihood allows
        return
    if left is not None and left > UNFINISHED:
        raise ConvergenceError(
            f"A fit is not at its maximum: twice its log-likelihood would still rise by about "
            f"{left:.2g}, and the statistic with it. Use `polish(model)`, or give `start=` "
            "instead of `theta=`."
        )


def _risen(s0: FitStatistics, s1: FitStatistics) -> float:
    statistic = 2 * (s1.log_likelihood - s0.log_likelihood)
    rounding = SAME * max(1.0, abs(s1.log_likelihood))
    if statistic < -rounding:
        raise ValueError(
            f"The log-likelihood of the smaller model is higher, by {-statistic / 2:.4g}: the "
            "models are not nested, their data differ, or the larger one has stopped at a local "
            "maximum. Start it where the smaller one ended, `from_loglik(..., start=...)`, or "
            "from several places, `starts=20`."
        )
    return _rounded(statistic, SAME * abs(s1.log_likelihood))


def _rounded(statistic: float, noise: float = 0.0) -> float:
    """Take what is rounding for zero, so that the mixture has one p-value there."""
    return statistic if statistic > max(ZERO, noise) else 0.0


def _embedded(m0: FittedModel, m1: FittedModel) -> Array | None:
    """Find the parameters of m0 among those of m1, (d,); None if m0 is written in its own way."""
    if source_of(m0) is source_of(m1):
        return np.array(m0.theta)
    if (
        m0.space.names is None
        or m1.space.names is None
        or not set(m0.space.names) <= set(m1.space.names)
    ):
        return None
    point = np.zeros(m1.d)
    point[[m1.space.names.index(name) for name in m0.space.names]] = m0.theta
    with np.errstate(all="ignore"):
        there, here = noise_free_terms(m1, point), noise_free_terms(m0, np.array(m0.theta))
    return point if _same(there, here) else None


def _same(there: Array, here: Array) -> bool:
    return np.allclose(there, here, rtol=1e-8, atol=1e-8 * float(np.max(abs(here))))


def _tested(m0: FittedModel, m1: FittedModel) -> tuple[Array, Array, Array]:
    """Rows that m0 holds: their gradients (r, d), limits (r,) and values at m1 (r,)."""
    if source_of(m0) is not source_of(m1) and m0.space.names != m1.space.names:
        assert m0.space.names is not None
        assert m1.space.names is not None
        held = {m0.space.names[j]: value for j, value in m0.space.fixed.items()}
        held |= {name: 0.0 for name in m1.space.names if name not in m0.space.names}
        places = [m1.space.names.index(name) for name in held]
        return np.eye(m1.d)[places], np.array([*held.values()]), np.array(m1.theta)[places]
    under = m0.space.constraints
    if under is None:
        return np.zeros((0, m1.d)), np.zeros(0), np.zeros(0)
    equal, theta = under.equal, np.array(m1.theta)
    return under.slope(theta)[equal], under.low[equal], under.value(theta)[equal]


def _at_bounds(m0: FittedModel, m1: FittedModel, within: Array) -> Array:
    """Inner normals of the bounds of m1 that m0 holds parameters at, (edges, d)."""
    if m1.space.constraints is None:
        return np.zeros((0, m1.d))
    low, high = box(m1.space.constraints, within)
    near = SAME * abs(within)
    inward = (within - low <= near).astype(float) - (high - within <= near)
    return np.asarray(np.diag(inward)[_held(m0, m1, within) & (inward != 0)])


def _held(m0: FittedModel, m1: FittedModel, within: Array) -> Array:
    """Mark the parameters that m0 holds, and m1 does not, (d,)."""
    gradients, _, _ = _tested(m0, m1)
    own = False
    if m1.space.constraints is not None and m1.space.constraints.equal.any():
        low, high = box(m1.space.constraints, within)
        own = low == high  # fixed in both
    return np.asarray((gradients != 0).any(axis=0) & ~np.asarray(own, dtype=bool))


def _notes(m1: FittedModel, edges: int, within: Array | None) -> list[str]:
    notes = []
    if edges == 1:
        notes.append(
            "One parameter is fixed at its bound: the p-values of likelihood ratio, Wald and score "
            "are those of a 50:50 mixture of chi-squared."
        )
    elif edges > 1:
        notes.append(
            f"{edges} parameters are fixed at their bounds: the p-values are upper bounds, of "
            "chi-squared with all degrees of freedom."
        )
    if m1.facts.host.covariance is not None:
        notes.append(
            "The tests are those of the likelihood, and the standard errors of the fit are not: "
            f"{m1.facts.host.covariance}."
        )
    active = active_constraints(m1)
    if active is not None and not active.constraints.equal[active.rows].all() and not edges:
        notes.append(
            f"The larger fit is held by a bound ({active}): the p-values, which take it for an "
            "equality, are approximate."
        )
    if within is None:
        notes.append(
            "No Wald and score tests: the smaller model is not seen to be the larger one with "
            "parameters fixed (`model.fix(...)`) or left out at zero; sums that estimate the noise "
            "of their parts, and models written in other ways, do not show it. So it was not "
            "seen, either, whether all parameters of the larger one mean something under the "
            "smaller: if not, there is no chi-squared distribution."
        )
    return notes


def _f_test(s0: FitStatistics, s1: FitStatistics, df: int) -> NullTest:
    """Compare sums of squares, as R's `anova` does."""
    rise = s0.squares * s0.noise - s1.squares * s1.noise
    statistic = max(rise, 0.0) / df / (s1.squares * s1.noise / s1.df)
    return NullTest("F", statistic, df, float(fdtrc(df, s1.df, statistic)))


def _local_tests(
    m0: FittedModel,
    m1: FittedModel,
    within: Array,
    df: int,
    normals: Array,
    fits: tuple[FitStatistics, FitStatistics],
) -> tuple[list[NullTest], list[str]]:
    """Make the tests that need one of the two fits each."""
    tests, edges = list[NullTest](), len(normals)
    wald, no_wald = _tried(partial(_wald, m0, m1, df), "Wald", "larger")
    score, no_score = _tried(partial(_score, m1, within, normals, fits), "score", "smaller")
    if wald is not None:
        wald = _rounded(wald)
        p_value = mixture(wald, df, edges)
        if fits[1].estimated and not edges:
            p_value = float(fdtrc(df, fits[1].df, max(wald, 0.0) / df))
        tests.append(NullTest("Wald", wald, df, p_value))
    if score is not None:
        score = _rounded(score)
        tests.append(NullTest("score", score, df, mixture(score, df, edges)))
    return tests, [*no_wald, *no_score]


def _tried(test: Callable[[], float | None], name: str, fit: str) -> tuple[float | None, list[str]]:
    """Make a test, or tell why there is none."""
    try:
        found = test()
        told = f"the log-likelihood does not curve downward at the {fit} fit."
    except UnsupportedModelError as error:
        found = None
        told = f"no derivatives at the {fit} fit. {str(error).split('. ')[0]}."
        if str(error) == AT_THE_EDGE:
            told = (
                f"the log-likelihood ends right beside the {fit} fit. At such an edge the p-value "
                "of the likelihood ratio is an upper bound; give `bounds=`."
            )
    return found, [] if found is not None else [f"No {name} test: {told}"]


def _wald(m0: FittedModel, m1: FittedModel, df: int) -> float | None:
    """Measure how far the larger fit is from what the smaller one holds, in its own errors."""
    free = _along_equalities(m1)
    gradients, limits, values = _tested(m0, m1)
    along = (
        gradients
        if free.space.chart is None
        else gradients @ free.space.chart.slope(np.array(m1.theta))
    )
    moving = np.any(along != 0, axis=1)
    if not moving.any():
        return None
    along, gap = along[moving], (values - limits)[moving]
    try:
        covariance = along @ cho_solve(cho_factor(_information(free)), along.T)
    except LinAlgError:
        return None
    errors = np.sqrt(np.diag(covariance))
    correlation, gap = covariance / np.outer(errors, errors), gap / errors
    if np.linalg.matrix_rank(correlation, hermitian=True) != df:
        return None
    return float(gap @ np.linalg.pinv(correlation, hermitian=True) @ gap)


def _score(
    m1: FittedModel, within: Array, normals: Array, fits: tuple[FitStatistics, FitStatistics]
) -> float | None:
    """Measure the slope of the larger likelihood at the smaller fit, into its bounds."""
    there = m1.at(within)
    basis = np.eye(m1.d)
    free = _along_equalities(m1)
    if free.space.chart is not None:
        basis = free.space.chart.slope(within)
    matrix = symmetric(basis.T @ there.information(there.theta, basis, m1.facts.curvature))
    found = _one_sided(basis.T @ there.score(there.theta), matrix, normals @ basis)
    if found is None or not fits[1].estimated:
        return found
    s0, s1 = fits  # the slope is that of the variance of the smaller fit
    return found * s1.noise * s0.observations / (s0.squares * s0.noise)


def _along_equalities(model: FittedModel) -> Any:
    """Leave bounds open: a test asks what is beyond them, too."""
    return model if model.space.constraints is None else without_inequalities(model)


def _information(free: Any) -> Array:
    return symmetric(free.information(free.theta, np.eye(free.d), free.facts.curvature))


def _quadratic(slope: Array, matrix: Array) -> float | None:
    try:
        return float(slope @ cho_solve(cho_factor(matrix), slope))
    except LinAlgError:
        return None


def _one_sided(slope: Array, matrix: Array, normals: Array) -> float | None:
    """Square of the slope's projection onto the directions x with normals @ x >= 0 (Moreau)."""
    try:
        root = cholesky(matrix, lower=True)
    except LinAlgError:
        return None
    z = solve_triangular(root, slope, lower=True)
    rows = solve_triangular(root, normals.T, lower=True).T
    outward = rows.T @ nnls(-rows.T, z)[0] if len(rows) else 0.0
    return float(np.sum((z + outward) ** 2))

"""Refit a black box with a little of psi added."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from implicit_delta._core.parallel import run_all
from implicit_delta._core.progress import progress
from implicit_delta._core.types import Array, Psi
from implicit_delta._core.warn import warn
from implicit_delta.errors import ConvergenceError, EvaluationError, NotDeterministicWarning
from implicit_delta.estimate import Estimate
from implicit_delta.evaluation import Evaluation, Smoothed, parameters
from implicit_delta.evaluation.average import checked_units
from implicit_delta.evaluation.composed import Composed, composed
from implicit_delta.evaluation.values import checked_value, evaluation_names, noise_of_mean
from implicit_delta.inference.assemble import Cost, assemble
from implicit_delta.methods.base import PROBE, Response, described_range, relative_bend

Train: TypeAlias = Callable[[Callable[[Any], Any]], Any]

PUSH = 0.25  # of a standard error: the error of the result goes with the square of it
NEAR, FAR = 0.1, 1.0  # pushes that will do; noise asks for more than a quarter
FIRST = 0.1  # the first lambda, over the size of psi
MOST_TRIES = 8  # lambdas that are tried before giving up
SIGNAL = 10.0  # times the noise floor: a move of psi that can be told from noise
NOISE = 0.01  # of the standard error: noise of the training that is worth a warning


def refit(
    train: Train,
    psi: Psi,
    *,
    lam: float | Sequence[float] | None = None,
    n_jobs: int = 1,
    names: Sequence[str] | str | None = None,
) -> Estimate:
    r"""Put an error bar on psi with nothing but a training loop.

    ``train(bonus)`` maximizes *the sum of the log-likelihoods plus* ``bonus(model)`` and returns
    the model. It is called with a bonus of :math:`\pm \lambda \psi_k`, and column k of the
    covariance is

    .. math:: (\psi(\text{model}_{+\lambda}) - \psi(\text{model}_{-\lambda})) / 2 \lambda

    (the paper's Algorithms 1 and 3, central). Both ends come from `train`, never from a model
    fitted elsewhere, so that what a training leaves unfinished cancels.

    Parameters
    ----------
    train : callable
        Your training loop. The loss that it minimizes must be minus the *sum* of the
        log-likelihoods minus ``bonus(model)``; divide both by n for a mean. Start every training
        at the same place, such as a good fit, and fix its seed.
    psi : callable
        The evaluation of what `train` returns: a number or a one-dimensional array, of any library.
        Within the loop it has to be differentiable if the loop takes gradients. An `Average` (of
        an independent or unknown sample) or `Replicated` adds its own error, as in `infer`.
    lam : float or (K,) sequence, optional
        The push, in units of 1 / psi. By default about a quarter of a standard error of each psi_k,
        found by trial: a small push tells how large the standard error is.
    n_jobs : int
        How many trainings run at once (joblib).
    names : sequence of str, optional
        Names of the evaluations, for tables.

    Returns
    -------
    Estimate
        Its value is that of a training without bonus. ``diagnostics.notes`` has ``lam``, the number
        of ``trainings``, and the ``noise_floor``: by how much psi differs between two trainings
        without bonus.

    Examples
    --------
    The mean of five numbers, with unit variance, by a loop of gradient steps:

    >>> y = np.array([1.2, 0.4, 2.2, 1.4, 0.8])
    >>> def train(bonus):
    ...     m, h = 0.0, 1e-4
    ...     for _ in range(200):
    ...         slope = np.sum(y - m) + (bonus(m + h) - bonus(m - h)) / (2 * h)
    ...         m += 0.1 * slope
    ...     return m
    >>> estimate = refit(train, lambda m: m)
    >>> round(estimate.value, 4), round(estimate.standard_error**2, 4)
    (1.2, 0.2)
    """
    cost = Cost.start()
    function = _function(psi)
    with progress("trainings", unit="fit") as bar:
        trainings = _Trainings(train, function, n_jobs, bar)
        first, again = trainings.looked_at([_Bonus(function, 0, 0.0)] * 2)
        evaluation = first.evaluation(names, function)
        rest, floor = evaluation.value, np.atleast_1d(abs(first.value - again.value))
        pushes, ahead = _pushes(trainings, rest, floor, lam)
        behind = trainings.at([_Bonus(function, k, -push) for k, push in enumerate(pushes)])
    columns = np.array(
        [_slope(k, *ends) for k, ends in enumerate(zip(pushes, ahead, behind, strict=True))]
    ).T
    errors = np.sqrt(np.diag(columns))
    _warn_noise(floor, pushes, errors)
    response = Response(
        covariance=columns,
        method=f"refit(lam={described_range(pushes)})",
        nonlinearity=_bend(pushes * errors, rest, ahead, behind),
        notes={
            "lam": described_range(pushes),
            "trainings": float(trainings.count[0]),
            "noise_floor": float(np.max(floor)),
        },
    )
    return assemble(evaluation, response, strict=False, cost=cost)


def _function(psi: Any) -> Psi:
    """Take the wrappers of psi apart, and refuse those that need more than trainings."""
    if isinstance(psi, Smoothed):
        raise EvaluationError(
            "Smoothed(psi) evaluates psi at draws of the parameters, and `refit` knows no "
            "parameters. Make a fitted model with `from_torch` or another `from_*` function, or "
            "give a psi that is smooth itself."
        )
    function = _own_parameters if psi is parameters else composed(psi)
    if isinstance(function, Composed) and function.sample == "training":
        raise EvaluationError(
            'Average(h, sample="training") needs the influence of each training row, and `refit` '
            'knows no rows. Use `Average(h, sample="unknown")` for an upper bound, or make a '
            "fitted model with `from_torch` or another `from_*` function."
        )
    return function


def _own_parameters(model: Any) -> Any:
    """Return a model that is an array of parameters; refuse another."""
    if hasattr(model, "__array__"):
        return model
    raise EvaluationError(
        f"`parameters` evaluates to the model itself, and `train` works on a "
        f"{type(model).__name__}, not on an array. Pick the numbers: for a torch module "
        "`lambda module: torch.cat([p.flatten() for p in module.parameters()])`."
    )


@dataclass(frozen=True)
class _Bonus:
    """The bonus lam * psi_k that a training adds to the log-likelihood."""

    psi: Psi
    k: int
    lam: float

    def __call__(self, model: Any) -> Any:
        value = self.psi(model)
        scalar = getattr(value, "ndim", np.ndim(value)) == 0
        return self.lam * (value if scalar else value[self.k])


@dataclass(frozen=True)
class _Look:
    """Psi of one trained model: as returned, () or (K,), its units and its replicates, if any."""

    raw: Any
    value: Array
    units: Array | None = None
    replicates: Array | None = None

    def evaluation(self, names: Sequence[str] | str | None, psi: Psi) -> Evaluation:
        """State the question to a black box, with the errors of the evaluation itself."""
        return Evaluation(
            value=np.atleast_1d(self.value),
            scalar=self.value.ndim == 0,
            names=evaluation_names(names, psi, self.raw, self.value),
            noise=None if self.replicates is None else noise_of_mean(self.replicates),
            units=self.units,
            sample=psi.sample if isinstance(psi, Composed) else None,
        )


@dataclass(frozen=True)
class _Trainings:
    """Runs trainings and evaluates what comes out."""

    train: Train
    psi: Psi
    n_jobs: int
    bar: Any
    count: list[int] = field(default_factory=lambda: [0])

    def at(self, bonuses: Sequence[_Bonus]) -> list[Array]:
        """Train with each bonus; return psi of each model, () or (K,)."""
        return [look.value for look in self.looked_at(bonuses)]

    def looked_at(self, bonuses: Sequence[_Bonus]) -> list[_Look]:
        """Train with each bonus; look at each model, in detail if it had none."""
        jobs = [(self.train, self.psi, bonus) for bonus in bonuses]
        self.count[0] += len(jobs)
        looks: list[_Look] = run_all(_look_after, jobs, self.n_jobs, lambda _: self.bar.update())
        return looks


def _look_after(train: Train, psi: Psi, bonus: _Bonus) -> _Look:
    model = train(bonus)
    if model is None:
        raise TypeError("train(bonus) returned None; it must return the trained model.")
    where = f"after a training with lambda = {bonus.lam:.3g}"
    raw = _plain(psi(model))
    value = checked_value(raw, where)
    if bonus.lam or not isinstance(psi, Composed):
        return _Look(raw, value)
    looks = [checked_value(_plain(look(model)), where) for look in psi.replicates()]
    units = None
    if psi.sample is not None:
        units = checked_units(np.asarray(_plain(psi.units(model))), psi.sample, 0)
    return _Look(raw, value, units, np.array(looks) if looks else None)


def _plain(value: Any) -> Any:
    """Take a tensor out of its graph."""
    return value.detach().cpu() if hasattr(value, "detach") else value


def _pushes(
    trainings: _Trainings, rest: Array, floor: Array, lam: float | Sequence[float] | None
) -> tuple[Array, list[Array]]:
    """Lambdas (K,), and psi at their ends, K times (K,)."""
    if lam is None:
        return _pilot(trainings, rest, floor)
    pushes = np.broadcast_to(np.asarray(lam, dtype=np.float64), rest.shape)
    if not np.all(np.isfinite(pushes)) or np.any(pushes <= 0):
        raise ValueError(f"lam must be positive and finite, not {lam!r}.")
    bonuses = [_Bonus(trainings.psi, k, push) for k, push in enumerate(pushes)]
    return pushes, trainings.at(bonuses)


def _pilot(trainings: _Trainings, rest: Array, floor: Array) -> tuple[Array, list[Array]]:
    """Try lambdas until each pushes its psi_k by a good part of a standard error."""
    tries = FIRST / np.where(rest != 0, abs(rest), 1.0)
    ends: dict[int, Array] = {}
    for _ in range(MOST_TRIES):
        missing = [k for k in range(rest.size) if k not in ends]
        found = trainings.at([_Bonus(trainings.psi, k, tries[k]) for k in missing])
        for k, end in zip(missing, found, strict=True):
            rise = float(np.atleast_1d(end)[k] - rest[k])
            if rise <= max(SIGNAL * floor[k], 1e-12 * abs(rest[k])):
                tries[k] *= 10
                continue
            error = np.sqrt(rise / tries[k])
            if NEAR <= tries[k] * error <= FAR:
                ends[k] = end
            else:
                tries[k] = PUSH / error
        if len(ends) == rest.size:
            return tries, [ends[k] for k in range(rest.size)]
    raise ConvergenceError(
        f"After {MOST_TRIES} tries no lambda was found that moves psi by a good part of a "
        f"standard error: two trainings without bonus differ by {np.max(floor):.3g}, and a bonus "
        "does not move psi clearly and in proportion. Usual causes: `train` leaves the bonus out "
        "of its loss, has no fixed seed, or stops too early; or psi has no gradient within the "
        "loop. Start every training at the same good fit, or give `lam=`."
    )


def _slope(k: int, lam: float, ahead: Array, behind: Array) -> Array:
    """Column k of the covariance."""
    column = np.atleast_1d(ahead - behind) / (2 * lam)
    if column[k] <= 0:
        raise ConvergenceError(
            f"psi[{k}] fell by {-2 * lam * column[k]:.3g} although it was pushed to rise "
            f"(lambda = {lam:.3g}): the trainings are not finished, not reproducible, or end at "
            "different optima. Start every training at the same good fit, fix the seed, train "
            "longer, or use a larger `lam`."
        )
    return np.asarray(column)


def _bend(pushes: Array, rest: Array, ahead: list[Array], behind: list[Array]) -> float:
    """Compare the two ends, on the scale of half a standard error, for pushes in that unit."""
    bends = [
        relative_bend(np.atleast_1d(top)[k], rest[k], np.atleast_1d(bottom)[k]) * PROBE / pushes[k]
        for k, (top, bottom) in enumerate(zip(ahead, behind, strict=True))
    ]
    return float(max(bends))


def _warn_noise(floor: Array, pushes: Array, errors: Array) -> None:
    noise = floor / (2 * pushes) / errors**2 / 2
    k = int(np.argmax(noise))
    if noise[k] > NOISE:
        warn(
            f"Two trainings without bonus differ in psi by {floor[k]:.3g}, so the standard error "
            f"is uncertain by about {noise[k]:.0%}. Fix the seed of `train`, start every training "
            "at the same weights, train longer, or use a larger `lam`.",
            NotDeterministicWarning,
        )

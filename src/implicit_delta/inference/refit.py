"""Refit a black box with a little of psi added."""

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.progress import progress
from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import ConvergenceError, NotDeterministicWarning
from implicit_delta.estimate import Estimate
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.asked_again import asked_again
from implicit_delta.inference.assemble import Cost, Options, assemble
from implicit_delta.inference.finished import SIGNAL, Ends, Finish
from implicit_delta.inference.trainings import Bonus, Train, Trainings, black_box
from implicit_delta.methods.base import PROBE, Response, described_range, relative_bend

PUSH = 0.25  # of a standard error: the error of the result goes with the square of it
NEAR, FAR = 0.1, 1.0  # pushes that will do; noise asks for more than a quarter
FIRST = 0.1  # the first lambda, over the size of psi
ROUNDING = 1e-12  # a psi below has tiny units, or it is zero but for rounding, which is tried first
MOST_TRIES = 8  # lambdas that are tried before giving up
NOISE = 0.01  # of the standard error: noise of the training that is worth a warning


def refit(
    train: Train,
    psi: Psi,
    *,
    lam: float | Sequence[float] | None = None,
    n_jobs: int = 1,
    names: Sequence[str] | str | None = None,
    check: bool = True,
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
        log-likelihoods minus ``bonus(model)``; divide *both* by n for a mean: with a mean of the
        one and the other as it is, the standard error is sqrt(n) times too large, and no training
        shows it. Start every training at the same place, such as a good fit, and fix its seed.
    psi : callable
        The evaluation of what `train` returns: a number or a one-dimensional array, of any library.
        Within the loop it has to be differentiable if the loop takes gradients. An `Average` (of
        an independent or unknown sample) or `Replicated` adds its own error, as in `infer`.
    lam : float or (K,) sequence, optional
        The push, in units of 1 / psi. By default about a quarter of a standard error of each psi_k,
        found by trial: a small push tells how large the standard error is.
    n_jobs : int
        Number of training runs at once (joblib).
    names : sequence of str, optional
        Names of the evaluations, for tables.
    check : bool
        Whether to look for signs that the runs do not finish, by three more of them for each psi_k
        (for at most eight of them). Runs that stop early underestimate, however well they can be
        repeated.

    Returns
    -------
    Estimate
        Its value is that of a training without bonus. ``diagnostics.notes`` has ``lam``, the number
        of ``trainings`` and ``check_trainings``, and the ``noise_floor``: by how much psi differs
        between two training runs without bonus. ``response_difference`` (relative) and
        ``end_difference`` (in standard errors) are zero if the runs finish; see
        `implicit_delta.inference.finished.Finish`. Small values do not show that they do: a part
        of the response that has hardly begun is missing from all runs alike. Only longer runs show
        what is missing.

    Warns
    -----
    DriftWarning
        Training runs that lead to the same end differ by more than 5% of the response of psi, or
        by more than 0.45 standard errors in psi itself: they do not finish.
    NonlinearityWarning
        Psi bends within half a standard error, or `lam` pushes it too far.
    NotDeterministicWarning
        Training runs differ by more than they should.

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
    if not callable(train):
        raise TypeError(
            f"train is a {type(train).__name__}, but must be a function `train(bonus)` that fits "
            "and returns a model. For a fitted model use `infer(model, psi)`."
        )
    cost = Cost.start()
    function = black_box(asked_again(psi))
    with progress("trainings", unit="fit") as bar:
        trainings = Trainings(train, function, n_jobs, bar)
        first, again = trainings.looked_at([Bonus(function, 0, 0.0)] * 2)
        evaluation = first.evaluation(names, function)
        rest, floor = evaluation.value, np.atleast_1d(abs(first.value - again.value))
        pushes, ahead = _pushes(trainings, rest, floor, lam)
        behind = trainings.at([Bonus(function, k, -push) for k, push in enumerate(pushes)])
        rises = np.array(ahead) - np.array(behind)
        _check_rose(pushes, np.diag(rises))
        ends = Ends(
            np.arange(rest.size), pushes, rest, np.diag(ahead), np.diag(behind), SIGNAL * floor
        )
        made = trainings.count[0]
        finish = Finish.of(trainings, ends) if check else Finish()
    response = Response(
        covariance=(rises / (2 * pushes[:, None])).T,
        method=f"refit(lam={described_range(pushes)})",
        nonlinearity=_bend(ends, evaluation),
        notes={
            "lam": described_range(pushes),
            "trainings": float(made),
            "check_trainings": float(trainings.count[0] - made),
            "response_difference": _known(finish.response_difference),
            "end_difference": _known(finish.end_difference),
            "variance_missing": "unknown: compare with runs four times as long",
            "noise_floor": float(np.max(floor)),
        },
    )
    findings = (_noise(floor, ends.rise), *finish.findings())
    return assemble(evaluation, response, Options(strict=False, cost=cost, findings=findings))


def _known(difference: float) -> float | str:
    return difference if difference >= 0 else "unknown"


def _pushes(
    trainings: Trainings, rest: Array, floor: Array, lam: float | Sequence[float] | None
) -> tuple[Array, list[Array]]:
    """Lambdas (K,), and psi at their ends, K times (K,)."""
    if lam is None:
        return _pilot(trainings, rest, floor)
    pushes = np.asarray(lam, dtype=np.float64)
    if pushes.shape not in ((), (1,), rest.shape):
        raise ValueError(
            f"lam has shape {pushes.shape}, and psi {rest.size} value(s): give one number for all "
            "of them or one for each. Left out, each is chosen."
        )
    if not np.all(np.isfinite(pushes)) or np.any(pushes <= 0):
        raise ValueError(f"lam must be positive and finite, not {lam!r}.")
    pushes = np.broadcast_to(pushes, rest.shape)
    bonuses = [Bonus(trainings.psi, k, push) for k, push in enumerate(pushes)]
    return pushes, trainings.at(bonuses)


def _pilot(trainings: Trainings, rest: Array, floor: Array) -> tuple[Array, list[Array]]:
    """Try lambdas until each pushes its psi_k by a good part of a standard error."""
    natural = FIRST / np.where(rest != 0, abs(rest), 1.0)
    tries = np.where(abs(rest) > ROUNDING, natural, FIRST)
    ends: dict[int, Array] = {}
    falls = np.zeros(rest.size)
    for _ in range(MOST_TRIES):
        missing = [k for k in range(rest.size) if k not in ends]
        found = trainings.at([Bonus(trainings.psi, k, tries[k]) for k in missing])
        for k, end in zip(missing, found, strict=True):
            rise, clear = float(end[k] - rest[k]), max(SIGNAL * floor[k], 1e-12 * abs(rest[k]))
            if rise <= clear:
                falls[k] = falls[k] + 1 if rise < -clear else 0
                if falls[k] > 1:  # twice in a row, at pushes ten times apart: not by chance
                    _refuse_fall(k, tries[k], rise)
                tries[k] = max(10 * tries[k], natural[k])
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
        f"standard error: two training runs without bonus differ by {np.max(floor):.3g}, and a "
        "bonus does not move psi clearly and in proportion. Usual causes: `train` leaves the bonus "
        "out of its loss, has no fixed seed, or stops too early; or psi has no gradient within the "
        "loop. Start every run at the same good fit, or give `lam=`."
    )


def _check_rose(pushes: Array, rises: Array) -> None:
    """Refuse a psi_k that did not rise although it was pushed to."""
    k = int(np.argmin(rises))
    if rises[k] == 0:
        raise ConvergenceError(
            f"psi[{k}] is the same after training with a bonus of lambda psi[{k}] and of minus "
            f"that (lambda = {pushes[k]:.3g}). Usual causes: `train` leaves the bonus out of its "
            "loss, psi has no gradient within the loop, or does not depend on the model. The loss "
            "to minimize is minus the sum of the log-likelihoods minus `bonus(model)`."
        )
    if rises[k] < 0:
        _refuse_fall(k, pushes[k], rises[k])


def _refuse_fall(k: int, lam: float, rise: float) -> NoReturn:
    raise ConvergenceError(
        f"psi[{k}] fell by {-rise:.3g} although it was pushed to rise (lambda = {lam:.3g}). Usual "
        "causes: `train` adds the bonus to its loss, from which it must be subtracted (the loss to "
        "minimize is minus the sum of the log-likelihoods minus `bonus(model)`); or the "
        "training runs are not finished, not reproducible, or end at different optima. Start every "
        "run at the same good fit, fix the seed, train longer, or use a larger `lam`."
    )


def _bend(ends: Ends, evaluation: Evaluation) -> float:
    """Compare the two ends of each push, on the scale of half a standard error."""
    points = np.array([ends.ahead, ends.rest, ends.behind]).T
    bends = [
        relative_bend(*evaluation.on_scale(points[k], k)) * PROBE / push
        for k, push in enumerate(ends.push)
    ]
    return float(max(bends))


def _noise(floor: Array, rises: Array) -> Finding | None:
    noise = floor / rises / 2
    k = int(np.argmax(noise))
    if not noise[k] > NOISE:
        return None
    return Finding(
        "warn",
        "random_training",
        f"Two training runs without bonus differ in psi by {floor[k]:.3g}, so the standard "
        f"error is uncertain by about {noise[k]:.0%}.",
        number=float(noise[k]),
        remedies=(
            "Fix the seed of `train`, start every run at the same weights, train longer, or use a "
            "larger `lam`.",
        ),
        warning=NotDeterministicWarning,
    )

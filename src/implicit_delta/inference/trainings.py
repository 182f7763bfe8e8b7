"""Trainings of a black box with a bonus, and psi of the models that they return."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from implicit_delta.core.findings import Finding, present, report
from implicit_delta.core.parallel import run_all
from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import EvaluationError
from implicit_delta.evaluation import Evaluation, Smoothed, Statistic, parameters
from implicit_delta.evaluation.average import Sampling, same_rows
from implicit_delta.evaluation.composed import Composed, Owned, composed
from implicit_delta.evaluation.questions import Worded
from implicit_delta.evaluation.values import checked_value, evaluation_names, noise_of_mean

Train: TypeAlias = Callable[[Callable[[Any], Any]], Any]


@dataclass(frozen=True)
class Bonus:
    """The bonus lam * psi_k that a training adds to the log-likelihood."""

    psi: Psi
    k: int
    lam: float

    def __call__(self, model: Any) -> Any:
        """Evaluate, in the model's own language."""
        return self.lam * self.entry(model)

    def entry(self, model: Any) -> Any:
        """Evaluate psi_k."""
        value = self.psi(model)
        scalar = getattr(value, "ndim", np.ndim(value)) == 0
        if scalar:
            return value
        by_position: Any = getattr(value, "iloc", value)
        return by_position[self.k]


@dataclass(frozen=True)
class CurvedBonus(Bonus):
    r"""A bonus of slope lam where psi_k is `end`, and of upward curvature there.

    With :math:`u = (\psi_k - \text{end}) / \text{reach}` it is :math:`\lambda\, \text{reach}\, u +
    c\, \text{reach}^2 (\sqrt{1 + u^2} - 1)`, which far from the end is no stronger than c reach.
    """

    end: float
    curvature: float
    reach: float

    def __call__(self, model: Any) -> Any:
        """Evaluate, in the model's own language."""
        away = self.entry(model) - self.end
        u = away / self.reach
        return self.lam * away + self.curvature * self.reach**2 * ((1 + u * u) ** 0.5 - 1)


@dataclass(frozen=True)
class Look:
    """Psi of one trained model: as returned, () or (K,), its units and its replicates, if any."""

    raw: Any
    value: Array
    units: Array | None = None
    sampling: Sampling | None = None
    replicates: Array | None = None
    labels: tuple[str, ...] | None = None
    scale: str | tuple[str, ...] = ""
    question: str = ""
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, raw: Any, value: Array, psi: Any) -> "Look":
        """Look at psi of a model, which knows its names and scale from this call."""
        labels = psi.names if isinstance(psi, Owned) else None
        asked = psi.function if isinstance(psi, Owned) else None
        if not isinstance(asked, Worded):
            return cls(raw, value, labels=labels)
        question = {"question": asked.sentence(), "findings": asked.findings}
        return cls(raw, value, labels=labels, scale=asked.scale, **question)

    def evaluation(self, names: Sequence[str] | str | None, psi: Psi) -> Evaluation:
        """State the question to a black box, with the errors of the evaluation itself."""
        return Evaluation(
            value=np.atleast_1d(self.value),
            scalar=self.value.ndim == 0,
            names=evaluation_names(
                names, self.labels or psi, self.raw, None if self.labels else self.value
            ),
            noise=None if self.replicates is None else noise_of_mean(self.replicates),
            units=self.units,
            sampling=self.sampling,
            sample=psi.sample if isinstance(psi, Composed) else None,
            scale=self.scale,
            notes={"question": self.question} if self.question else {},
            findings=report(self.findings),
        )


@dataclass(frozen=True)
class Trainings:
    """Runs trainings and evaluates what comes out."""

    train: Train
    psi: Psi
    n_jobs: int
    bar: Any
    count: list[int] = field(default_factory=lambda: [0])

    def at(self, bonuses: Sequence[Bonus]) -> list[Array]:
        """Train with each bonus; return psi of each model, (K,)."""
        return [np.atleast_1d(look.value) for look in self.looked_at(bonuses)]

    def looked_at(self, bonuses: Sequence[Bonus]) -> list[Look]:
        """Train with each bonus; look at each model, in detail if it had none."""
        jobs = [(self.train, self.psi, bonus) for bonus in bonuses]
        self.count[0] += len(jobs)
        looks: list[Look] = run_all(_look_after, jobs, self.n_jobs, lambda _: self.bar.update())
        return looks


def _look_after(train: Train, psi: Psi, bonus: Bonus) -> Look:
    model = train(bonus)
    if model is None:
        raise TypeError("train(bonus) returned None; it must return the trained model.")
    where = f"after a training with lambda = {bonus.lam:.3g}"
    return look_at(model, psi, where, detailed=not bonus.lam)


def look_at(model: Any, psi: Psi, where: str, *, detailed: bool) -> Look:
    """Evaluate psi of a model; in detail with its units and its replicates."""
    raw = plain(psi(model))
    value = checked_value(raw, where)
    if not detailed or not isinstance(psi, Composed):
        return Look.of(raw, value, psi)
    looks = [checked_value(plain(look(model)), where) for look in psi.replicates()]
    units = sampling = labels = same = None
    if psi.sample is not None:
        rows = plain(psi.units(model))
        units, sampling = psi.sampled(rows, np.empty(0))
        labels = psi.summary.names(rows, psi.function.names)
        same = same_rows(rows)
    replicates = np.array(looks) if looks else None
    return Look(raw, value, units, sampling, replicates, labels, findings=present(same))


def black_box(psi: Any) -> Psi:
    """Take the wrappers of psi apart, and refuse those that need more than training runs."""
    if isinstance(psi, Smoothed | Statistic):
        kind = "Smoothed(psi)" if isinstance(psi, Smoothed) else "Statistic(units, function)"
        raise EvaluationError(
            f"{kind} is evaluated at draws of the parameters, and `refit` sees no "
            "parameters. Make a fitted model with `from_torch` or another `from_*` function, or "
            "give a psi that is smooth itself."
        )
    function = _own_parameters if psi is parameters else composed(psi)
    if isinstance(function, Composed) and function.sample == "training":
        raise EvaluationError(
            'Average(h, sample="training") needs the influence of each training row, and `refit` '
            'sees no rows. Use `Average(h, sample="unknown")` for an upper bound, or make a '
            "fitted model with `from_torch` or another `from_*` function."
        )
    return function


def _own_parameters(model: Any) -> Any:
    """Return a model that is an array of parameters; refuse another."""
    if hasattr(model, "__array__"):
        return model
    raise EvaluationError(
        f"`parameters` evaluates to the model itself, which is a {type(model).__name__} here and "
        "not an array. Pick the numbers: for a torch module "
        "`lambda module: torch.cat([p.flatten() for p in module.parameters()])`."
    )


def plain(value: Any) -> Any:
    """Take a tensor out of its graph."""
    return value.detach().cpu() if hasattr(value, "detach") else value

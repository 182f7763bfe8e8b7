"""Compare methods on the same question."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from implicit_delta._core.types import Asked
from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.estimate import Estimate
from implicit_delta.estimate.quantiles import checked_level
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.comparison import Comparison, Row
from implicit_delta.inference.infer import answer, infer
from implicit_delta.inference.influence import Sandwich
from implicit_delta.inference.profile.door import profile, profile_of
from implicit_delta.inference.profile.result import Profile
from implicit_delta.methods.base import Method
from implicit_delta.methods.bootstrap import Bootstrap
from implicit_delta.methods.finite_difference import FiniteDifference
from implicit_delta.methods.infinitesimal import Infinitesimal
from implicit_delta.models.base import FittedModel

Procedure: TypeAlias = (
    Method | Callable[[FittedModel, Asked], Estimate | Profile | tuple[Profile, ...]]
)


def compare(
    model: FittedModel,
    psi: Asked,
    methods: Mapping[str, Procedure] | Sequence[Procedure] | None = None,
    *,
    confidence_level: float = 0.95,
) -> Comparison:
    """Put the same question to several methods and lay the answers side by side.

    Parameters
    ----------
    model : FittedModel
        Made by one of the `from_*` functions.
    psi : callable
        The evaluation, a number or K of them.
    methods : mapping of str to method, or sequence of methods, optional
        A method is a `Method`, or any function of (model, psi) that returns an `Estimate` or a
        `Profile`, such as `profile` itself. By default `Infinitesimal`, `FiniteDifference`, the
        robust (sandwich) variance, `Bootstrap` with 200 replicates and a fixed seed, and
        `profile`. Psi is evaluated, and smoothed or replicated, once for all methods
        together; a function of your own evaluates it again.
    confidence_level : float
        Of the intervals; `profile` uses this level.

    Returns
    -------
    Comparison
        A method that refuses has a row without numbers and its reason in ``failures``.

    Examples
    --------
    >>> import implicit_delta as idm
    >>> y = np.array([3.0, 0.0, 2.0, 5.0, 1.0, 4.0, 2.0, 3.0])
    >>> model = idm.from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])
    >>> table = idm.compare(model, lambda th: np.exp(th[0]))
    >>> [row.method for row in table.rows]
    ['Infinitesimal', 'FiniteDifference', 'robust', 'Bootstrap', 'profile']
    >>> [round(row.low, 2) for row in table.rows if row.method in ("Infinitesimal", "profile")]
    [1.4, 1.56]
    """
    level = checked_level(confidence_level)
    procedures = _named(methods)
    evaluation = Evaluation.of(model, psi)
    answers = {
        name: _ask(evaluation, psi, procedure, level) for name, procedure in procedures.items()
    }
    names = evaluation.names
    rows = [row for name, answer in answers.items() for row in answer.rows(name, names, level)]
    fastest = min((row.seconds for row in rows), default=math.nan)
    return Comparison(
        rows=tuple(row.against(fastest) for row in rows),
        results={name: a.result for name, a in answers.items() if a.result is not None},
        failures={name: a.failure for name, a in answers.items() if a.result is None},
        confidence_level=level,
    )


@dataclass(frozen=True)
class _Answer:
    result: Estimate | tuple[Profile, ...] | None
    failure: str
    seconds: float

    def rows(self, method: str, names: tuple[str, ...], level: float) -> list[Row]:
        """Lay out K rows."""
        cost = {"seconds": self.seconds, "passes": self._passes()}
        return [
            Row(method, name, *numbers, **cost)  # type: ignore[arg-type]
            for name, numbers in zip(names, self._numbers(len(names), level), strict=True)
        ]

    def _numbers(self, count: int, level: float) -> list[tuple[float, ...]]:
        if self.result is None:
            return [(math.nan,) * 4] * count
        if isinstance(self.result, tuple):
            return [
                (p.value, math.nan, *map(float, p.confidence_interval(level))) for p in self.result
            ]
        est = self.result
        columns = (est.value, est.standard_error, *est.confidence_interval(level))
        return [tuple(map(float, row)) for row in zip(*map(np.atleast_1d, columns), strict=True)]

    def _passes(self) -> int:
        if self.result is None:
            return 0
        if isinstance(self.result, tuple):
            return sum(p.passes for p in self.result)
        return self.result.diagnostics.passes


def _named(methods: Any) -> dict[str, Procedure]:
    if methods is None:
        return {
            "Infinitesimal": Infinitesimal(),
            "FiniteDifference": FiniteDifference(),
            "robust": _robust,
            "Bootstrap": Bootstrap(rng=0),
            "profile": profile,
        }
    if isinstance(methods, Method):
        methods = [methods]
    if isinstance(methods, Mapping):
        named = dict(methods)
    else:
        named = {}
        for method in methods:
            named[_free_name(method, named)] = method
    if not named:
        raise ValueError("Give at least one method to compare.")
    for name, method in named.items():
        if isinstance(method, type) or not (isinstance(method, Method) or callable(method)):
            raise TypeError(
                f"{name!r} is a {type(method).__name__}: give methods such as `Infinitesimal()`, "
                "or functions of (model, psi) that return an Estimate or a Profile."
            )
    return named


def _robust(model: FittedModel, psi: Asked) -> Estimate:
    return infer(model, psi, robust=True)


def _free_name(method: Any, taken: Mapping[str, Any]) -> str:
    """Name a method after its class or itself, spelled out or numbered if that is taken."""
    own = type(method).__name__
    stem = own if isinstance(method, Method) else str(getattr(method, "__name__", own))
    if stem not in taken:
        return stem
    spelled = repr(method) if isinstance(method, Method) else stem
    numbered = (f"{spelled} ({i})" for i in range(2, len(taken) + 3))
    return spelled if spelled not in taken else next(n for n in numbered if n not in taken)


def _ask(evaluation: Evaluation, psi: Asked, procedure: Procedure, level: float) -> _Answer:
    """Answer by one method, on a copy of the model that has nothing cached from another one."""
    fresh = evaluation.on(evaluation.model.at(evaluation.model.theta))
    started = perf_counter()
    try:
        result = _run(fresh, psi, procedure, level)
    except ImplicitDeltaError as error:
        return _Answer(None, str(error), perf_counter() - started)
    return _Answer(result, "", perf_counter() - started)


def _run(
    evaluation: Evaluation, psi: Asked, procedure: Procedure, level: float
) -> Estimate | tuple[Profile, ...]:
    if isinstance(procedure, Method):
        return answer(evaluation, procedure)
    if procedure is _robust:
        return answer(evaluation, sandwich=Sandwich())
    if procedure is profile:
        parts = [evaluation.component(k) for k in range(evaluation.size)]
        return tuple(profile_of(part, level) for part in parts)
    result = procedure(evaluation.model, psi)
    if isinstance(result, Profile):
        return (result,)
    if not isinstance(result, Estimate | tuple):
        raise TypeError(f"A method returned a {type(result).__name__}, not an Estimate or Profile.")
    return result

"""Compare methods on the same question."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from implicit_delta.core.types import Asked
from implicit_delta.errors import ImplicitDeltaError, UnsupportedModelError
from implicit_delta.estimate import Estimate
from implicit_delta.estimate.quantiles import checked_level
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.assemble import Options
from implicit_delta.inference.comparison import Comparison, Row
from implicit_delta.inference.hac import HAC
from implicit_delta.inference.infer import answer, infer
from implicit_delta.inference.influence import Correction, Sandwich
from implicit_delta.inference.profile.profile import profile, profile_of
from implicit_delta.inference.profile.result import Profile
from implicit_delta.methods.base import Method
from implicit_delta.methods.bootstrap import Bootstrap
from implicit_delta.methods.finite_difference import FiniteDifference
from implicit_delta.methods.infinitesimal import Infinitesimal
from implicit_delta.models.model import FittedModel

Procedure: TypeAlias = Method | Callable[..., Estimate | Profile | tuple[Profile, ...]]
LIKELIHOOD = "A profile rests on the likelihood alone, and takes no {0}; the other rows do."
FUNCTION = (
    "This function does not take {0}: let it have these arguments, and pass them on to `infer` or "
    "not, as in `lambda model, psi, **design: infer(model, psi, **design)`."
)


def compare(
    model: FittedModel,
    psi: Asked,
    methods: Mapping[str, Procedure] | Sequence[Procedure] | None = None,
    *,
    robust: bool | Correction | HAC = False,
    clusters: Any = None,
    df: float | None = None,
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
    robust, clusters, df
        As in `infer`, for every method. `Bootstrap` draws whole clusters, and is robust without
        corrections such as "CR2". The default methods are then these without ``robust``, which all
        of them are. `profile` rests on the likelihood alone and says in ``failures`` that it takes
        none of them; so does a function of your own, unless it has arguments of these names.
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
    evaluation = Evaluation.of(model, psi)
    design = _Design.of(evaluation.model, robust, clusters, df)
    procedures = _named(_by_default(design) if methods is None else methods)
    answers = {
        name: _ask(evaluation, psi, procedure, design, level)
        for name, procedure in procedures.items()
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


@dataclass(frozen=True)
class _Design:
    """Variance that all methods are asked for: its arguments, and the sandwiches these make.

    A method that is robust by itself draws the clusters and makes no correction.
    """

    asked: Mapping[str, Any]
    sandwich: Sandwich | None
    drawn: Sandwich | None
    df: float | None

    @classmethod
    def of(cls, model: FittedModel, robust: Any, clusters: Any, df: float | None) -> "_Design":
        given = {"robust": robust, "clusters": clusters, "df": df}
        sandwich = Sandwich.of(model, robust, clusters)
        plain = sandwich if isinstance(robust, HAC) else Sandwich.of(model, False, clusters)
        asked = {name: x for name, x in given.items() if x is not None and x is not False}
        return cls(asked, sandwich, plain, df)

    def answer(self, evaluation: Evaluation, method: Method | None = None) -> Estimate:
        """Answer with copies of the sandwiches, which cache what another method has made."""
        by_itself = method is not None and method.robust
        chosen = self.drawn if by_itself else self.sandwich
        if by_itself and self.sandwich is not None and self.sandwich.asked:
            self._check(method)
        own = None if chosen is None else replace(chosen)
        return answer(evaluation, method, Options(own, df=self.df))

    @staticmethod
    def _check(method: Any) -> None:
        """Turn the refusal of one method into the reason in its row."""
        try:
            method.check(robust=True, covariance=False, influence=False)
        except ValueError as error:
            raise UnsupportedModelError(str(error)) from error

    def refuse(self, reason: str) -> None:
        if self.asked:
            raise UnsupportedModelError(reason.format(", ".join(f"{name}=" for name in self.asked)))

    def taken_by(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Arguments of the design for a function, which has to take all of them."""
        try:
            inspect.signature(function).bind(None, None, **self.asked)
        except (TypeError, ValueError):  # the latter of functions in C, without a signature
            self.refuse(FUNCTION)
        return dict(self.asked)


def _by_default(design: _Design) -> dict[str, Procedure]:
    methods: dict[str, Procedure] = {
        "Infinitesimal": Infinitesimal(),
        "FiniteDifference": FiniteDifference(),
        "robust": _robust,
        "Bootstrap": Bootstrap(rng=0),
        "profile": profile,
    }
    alone = design.asked.keys().isdisjoint(("robust", "clusters"))
    return {name: method for name, method in methods.items() if alone or method is not _robust}


def _named(methods: Any) -> dict[str, Procedure]:
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


def _ask(
    evaluation: Evaluation, psi: Asked, procedure: Procedure, design: _Design, level: float
) -> _Answer:
    """Answer by one method, on a copy of the model that has nothing cached from another one."""
    fresh = evaluation.on(evaluation.model.at(evaluation.model.theta))
    started = perf_counter()
    try:
        result = _run(fresh, psi, procedure, design, level)
    except ImplicitDeltaError as error:
        return _Answer(None, str(error), perf_counter() - started)
    return _Answer(result, "", perf_counter() - started)


def _run(
    evaluation: Evaluation, psi: Asked, procedure: Procedure, design: _Design, level: float
) -> Estimate | tuple[Profile, ...]:
    if isinstance(procedure, Method):
        return design.answer(evaluation, procedure)
    if procedure is _robust:
        return answer(evaluation, options=Options(Sandwich(), df=design.df))
    if procedure is profile:
        design.refuse(LIKELIHOOD)
        parts = [evaluation.component(k) for k in range(evaluation.size)]
        return tuple(profile_of(part, level) for part in parts)
    result = procedure(evaluation.model, psi, **design.taken_by(procedure))
    if isinstance(result, Profile):
        return (result,)
    if not isinstance(result, Estimate | tuple):
        raise TypeError(f"A method returned a {type(result).__name__}, not an Estimate or Profile.")
    return result

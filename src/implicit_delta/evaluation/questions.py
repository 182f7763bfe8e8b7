"""Questions in one line: predictions, comparisons and slopes, averaged over rows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.findings import Finding, present
from implicit_delta.core.optional import optional
from implicit_delta.core.types import Array
from implicit_delta.errors import EvaluationError, UnsupportedModelError
from implicit_delta.evaluation.asked import Asked
from implicit_delta.evaluation.contrasts import CONTRASTS
from implicit_delta.evaluation.datagrid import row_names
from implicit_delta.evaluation.groups import SMALLEST, Grouping, grouping_of, told_groups
from implicit_delta.evaluation.scenarios import (
    KINKED,
    Compared,
    Observed,
    Scenarios,
    Sloped,
    check_values,
)
from implicit_delta.evaluation.spread import RowWeights
from implicit_delta.models.model import FittedModel
from implicit_delta.models.plain_prediction import counts_of, plain_predictor
from implicit_delta.models.prediction import Predictor, as_table, check_known

How: TypeAlias = Literal["difference", "ratio", "lnratio", "oddsratio", "lnoddsratio"]
UNNAMED = "the outcome"
ROUNDING = 64 * np.finfo(np.float64).eps  # of a prediction: some operations, each up to eps / 2
UNLESS_GIVEN = (0, 1)  # values of a comparison: this very tuple, not an equal one


class Worded(ABC):
    """A psi with a scale for its intervals and a sentence: a question, or several."""

    @property
    @abstractmethod
    def scale(self) -> str | tuple[str, ...]:
        """Scale of the intervals and tests; see `Estimate.scale`."""

    @abstractmethod
    def sentence(self) -> str:
        """Tell the question in words."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings about the data of the question."""
        return ()


@dataclass(frozen=True, eq=False)
class Question(Worded):
    """Psi made of predictions; see `predictions`, `average_comparison` and their like.

    Attributes
    ----------
    scenarios : Scenarios
        The tables that are predicted.
    how : str
        Contrast of two averages.
    data : table or None
        Rows to predict; None for the training rows.
    by : name, names, labels or None
        Groups of rows.
    population : bool
        Whether the training rows are a sample, whose own error counts.
    outcome : label or None
        One of several outcomes.
    averaged : bool
    """

    scenarios: Scenarios
    how: str = "difference"
    data: Any = None
    by: Any = None
    population: bool = False
    outcome: Any = None
    averaged: bool = True

    def __post_init__(self) -> None:
        """Check what was configured."""
        if self.population and self.data is not None:
            raise ValueError(
                "population=True is about the training rows, which are a sample; data= are rows of "
                "their own, taken as they are. Leave out one of them."
            )

    @property
    def __name__(self) -> str:
        """Name of the result, as of a function."""
        return self.scenarios.name

    @property
    def scale(self) -> str:
        """Scale of the intervals and tests; see `Estimate.scale`."""
        return CONTRASTS[self.how].scale

    def sentence(self, outcome: str = UNNAMED, rows: int | None = None) -> str:
        """Tell the question in words, of a named outcome and so many given rows."""
        words = self.scenarios.words(outcome)
        given = "" if self.data is None or rows is None else f", over {rows} given rows"
        if not self.averaged:
            given = " for each row" if rows is None else f" for each of {rows} rows"
        population = ", in the population of the rows" if self.population else ""
        return f"{words[0].upper()}{words[1:]}{given}{population}{told_groups(self.by)}"

    def __call__(self, fitted: Any, data: Any = None) -> Any:
        """Answer for something fitted that predicts, as `bootstrap` and `refit` ask.

        Parameters
        ----------
        fitted : object
            Results of statsmodels, or whatever has `predict_proba` or `predict`.
        data : table, optional
            The rows of the fit, over which a question without data of its own averages.
        """
        if self.population:
            raise EvaluationError(
                "population=True needs a fitted model with rows, `infer(model, question)`. A "
                "bootstrap that averages over the rows of each replicate has their sampling in it."
            )
        own = data if self.data is None else self.data
        predictor, theta = plain_predictor(fitted, own)
        table = predictor.table if own is None else as_table(own, predictor.table)
        fits = RowWeights(counts_of(fitted, len(predictor.table)))
        weights = np.ones(len(table)) if own is not None else fits.values
        if data is not None and self.data is None and np.ptp(fits.values) > 0:
            raise EvaluationError(
                "The fit has freq_weights, and which of the rows here have which is not known. "
                "Repeat the rows instead, `data.loc[data.index.repeat(weights)]`, or write the "
                "average: `lambda results: np.average(results.predict(), weights=...)`."
            )
        bound = self._read(predictor, table, weights, getattr(table, "index", None), fits)
        value = bound.asked.value(theta)
        return float(value[0]) if bound.scalar else _labeled(value, bound.names)

    def bound(self, model: FittedModel) -> "Bound":
        """Read the tables of the question for a model."""
        predictor = model.facts.host.predictor
        if predictor is None:
            raise UnsupportedModelError(
                f"{_name_of(model)} has no predictions from tables, which questions such as "
                "`average_comparison` need. Those of `from_statsmodels` (regressions, GLM, "
                "discrete and ordered models) and `from_sklearn` have, those of `from_estimates` "
                "with `predict=`, a function of the parameters and a frame, and those of "
                "`from_torch` and `from_jax` with `columns=[...]`, the names of the columns of "
                "their inputs. Or write the question as a function of the model: "
                "`infer(model, lambda theta: ...)`."
            )
        if self.population:
            model.facts.require_rows()
        predictor = predictor.reading(self.data)
        levels = isinstance(self.scenarios, Observed) or self.how != "difference"
        if predictor.relative and levels:
            raise UnsupportedModelError(predictor.relative)
        training = self.data is None
        table = predictor.table if training else as_table(self.data, predictor.table)
        counted = training and len(table) == model.n and not model.facts.host.grouped
        weights = model.weights.shares if counted else np.ones(len(table))
        if self.population and not counted:
            raise EvaluationError(
                "population=True needs one training row per observation, and the observations of "
                "this model are groups of rows. Leave it out."
            )
        rows = model.facts.host.labels if training else getattr(table, "index", None)
        fits = RowWeights.of(model, len(predictor.table))
        outcome = model.facts.host.response.name
        bound = self._read(predictor, table, weights, rows, fits, outcome)
        found = *self.scenarios.check(predictor), self._kink(bound, predictor, table, model.theta)
        return replace(bound, findings=present(*found))

    def _read(
        self,
        predictor: Predictor,
        table: Any,
        weights: Array,
        rows: Any,
        fits: RowWeights,
        outcome: str = "",
    ) -> "Bound":
        """Read a table whose rows have weights; `fits` are those of the training rows."""
        sides = self.scenarios.sides(predictor, table, fits)
        grouping = None
        if self.averaged:
            grouping = grouping_of(self.by, table, rows)
            if grouping.names and table is predictor.table:
                self._check_unchanged(predictor)
            self._check_groups(grouping, weights)
        outcomes, labels = self._outcomes(predictor.classes)
        asked = Asked(sides, grouping, weights, outcomes, CONTRASTS[self.how])
        index = getattr(sides[0][0][0], "index", None)
        names = self._names(grouping, labels, index, table)
        single = grouping is not None and not grouping.names and len(labels) == 1
        sentence = self.sentence(_outcome(outcome or UNNAMED, predictor, labels), len(table))
        return Bound(asked, names, single, sentence)

    def _kink(
        self, bound: "Bound", predictor: Predictor, table: Any, theta: Array
    ) -> Finding | None:
        """Compare slopes to the left and to the right: at a kink there are two, at a step none."""
        if not isinstance(self.scenarios, Sloped):
            return None
        sides = [self.scenarios.one_sided(predictor, table, sign) for sign in (-1.0, 1.0)]
        sides += [[(p, abs(factor)) for p, factor in sides[0]]]  # whose rounding is in the slopes
        asked = [replace(bound.asked, sides=[side]) for side in sides]
        value, left, right = bound.asked.value(theta), asked[0].value(theta), asked[1].value(theta)
        sizes = [each.size(theta) for each in asked]
        error = KINKED * np.maximum(sizes[0], sizes[1]) + ROUNDING * sizes[2]
        variable, instead = self.scenarios.variable, "Ask for a change from one value to another: "
        instead += f"`average_comparison({variable!r}, values=...)`."
        if np.any(_flat(asked, theta)):
            raise EvaluationError(
                f"The {self.scenarios.name} is exactly zero whatever the parameters are: "
                f"predictions do not change with {variable!r} near its values in the data, as "
                f"where it enters by steps or labels only (`C(x > 5)`, `np.floor(x)`). {instead}"
            )
        if np.any(abs(value - (left + right) / 2) > error):
            raise EvaluationError(
                f"The {self.scenarios.name} cannot be found: the prediction jumps, is vertical or "
                "has kinks at values that occur in the data, as steps (`x > 5`), roots at zero and "
                f"ReLU units do. {instead}"
            )
        k = int(np.argmax(abs(right - left) - error))
        if abs(right - left)[k] <= error[k]:
            return None
        return Finding(
            "warn",
            "kink",
            f"The prediction has kinks at values of {variable!r} that occur in the data, as "
            "`np.maximum`, splines of degree 1 and ReLU units have: the average slope is "
            f"{left[k]:.4g} to the left and {right[k]:.4g} to the right, and the answer their "
            f"mean, {value[k]:.4g}.",
            number=float(abs(right - left)[k]),
            remedies=(instead,),
        )

    def _check_unchanged(self, predictor: Predictor) -> None:
        if changed := predictor.changed():
            raise EvaluationError(changed)

    def _check_groups(self, grouping: Grouping, weights: Array) -> None:
        empty = grouping.sums(weights) <= 0
        if np.any(empty):
            raise ValueError(
                f"Group {grouping.names[int(np.argmax(empty))] if grouping.names else 'of all'!r} "
                "has rows without weight only, and no average."
            )
        sizes = grouping.sums(np.ones(len(weights)))
        if self.population and np.min(sizes) < SMALLEST:
            name = grouping.names[int(np.argmin(sizes))] if grouping.names else "of all"
            raise ValueError(
                f"Group {name!r} has one row, from which the sampling of rows cannot be estimated. "
                "Leave out population=True, or join small groups."
            )

    def _outcomes(
        self, classes: tuple[Any, ...] | None
    ) -> tuple[NDArray[np.intp] | None, tuple[Any, ...]]:
        """Find the outcomes that are asked for, with their labels."""
        if classes is None:
            if self.outcome is not None:
                raise ValueError(
                    f"outcome={self.outcome!r} is for models with several outcomes, and this one "
                    "predicts one number. Leave it out."
                )
            return None, (None,)
        if self.outcome is None and len(classes) == 2:
            return np.array([1]), classes[1:]
        if self.outcome is None:
            return np.arange(len(classes)), classes
        known = [c for c in classes if c == self.outcome or str(c) == str(self.outcome)]
        if not known:
            check_known(self.outcome, classes, "the outcomes of the model")
        return np.array([classes.index(known[0])]), (known[0],)

    def _names(
        self, grouping: Grouping | None, labels: tuple[Any, ...], index: Any, table: Any
    ) -> tuple[str, ...]:
        m = len(table)
        if grouping is None:
            own = [f"prediction[{i}]" for i in range(m)] if index is None else list(map(str, index))
            own = row_names(table) or own
        else:
            own = list(grouping.names) or [self.scenarios.name]
        if len(labels) == 1:
            return tuple(own)
        alone = grouping is not None and not grouping.names
        return tuple(str(c) if alone else f"{c}, {name}" for name in own for c in labels)


@dataclass(frozen=True, eq=False)
class Bound:
    """A question that has read its tables: psi, names, whether it is a number, and its words."""

    asked: Asked
    names: tuple[str, ...]
    scalar: bool
    sentence: str
    findings: tuple[Finding, ...] = ()


def _outcome(name: str, predictor: Predictor, labels: tuple[Any, ...]) -> str:
    """Name the predicted number: of classes a probability."""
    if predictor.classes is None:
        return name
    which = f"{name} = {labels[0]}" if len(labels) == 1 else f"each value of {name}"
    return f"the probability of {which}"


def _name_of(model: FittedModel) -> str:
    """Name a model as its host does, or after the function that made it."""
    if model.facts.training.by_library and "likelihood" in model.facts.notes:
        return model.facts.notes["likelihood"].partition(",")[0]
    return f"The model of {model.facts.source}" if model.facts.source else type(model).__name__


def _flat(sides: Sequence[Asked], theta: Array) -> NDArray[np.bool_]:
    """Whether slopes to both sides, and their derivatives in theta, are rounding, (K,).

    The third side adds up the absolute values, whose rounding that is.
    """
    left, right, total = (each.size(theta) for each in sides)
    flat = np.maximum(left, right) <= ROUNDING * total
    if np.any(flat):
        rows, other, added = (abs(each.jacobian(theta)) for each in sides)
        flat &= np.all(np.maximum(rows, other) <= ROUNDING * added, axis=1)
    return np.asarray(flat)


def _labeled(value: Array, names: tuple[str, ...]) -> Any:
    """Make a Series, where there is pandas."""
    try:
        pandas = optional("pandas", "A question")
    except ImportError:
        return value
    return pandas.Series(value, index=list(names))


def predictions(data: Any, *, population: bool = False, outcome: Any = None) -> Question:
    """Predict each row of a table, on the scale of the response.

    Parameters
    ----------
    data : DataFrame, dict or (m, p) array
        Rows to predict; `datagrid` makes some. Rows with missing values are refused.
    population : bool
        For averages only.
    outcome : label, optional
        One outcome of a model with several; all of them otherwise.

    Returns
    -------
    Question
        A psi for `infer`, named by the labels of the rows.

    Examples
    --------
    >>> import numpy as np, statsmodels.api as sm, implicit_delta as idm
    >>> x = np.arange(12.0)
    >>> y = np.array([0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 1])
    >>> model = idm.from_statsmodels(sm.Logit(y, sm.add_constant(x)).fit(disp=0))
    >>> print(idm.infer(model, idm.predictions([[1, 0], [1, 11]])).value.round(3))
    [0.14 0.86]
    """
    if population:
        raise ValueError("population=True is for averages; predictions are those of their rows.")
    return Question(Observed(), data=data, outcome=outcome, averaged=False)


def average_prediction(
    data: Any = None, by: Any = None, *, population: bool = False, outcome: Any = None
) -> Question:
    """Average the predictions of rows, all together or by groups; see `average_comparison`."""
    return Question(Observed("average prediction"), "difference", data, by, population, outcome)


def average_comparison(
    variable: Any,
    values: Any = UNLESS_GIVEN,
    how: How = "difference",
    data: Any = None,
    by: Any = None,
    *,
    population: bool = False,
    outcome: Any = None,
) -> Question:
    r"""Compare the average prediction with a variable set to one value and to another.

    With :math:`\bar\mu_v` the mean over the rows of the predictions with the variable set to v for
    everybody (g-computation), the difference is :math:`\bar\mu_1 - \bar\mu_0`, and the others are
    the ratio, the odds ratio and their logarithms, of these two *averages*, as `ratioavg`,
    `lnratioavg` and `lnoravg` of marginaleffects. Ratios have their intervals on the log scale, and
    their tests are of 1; ``transform="identity"`` asks for the symmetric ones.

    Parameters
    ----------
    variable : str or int
        Name of a column of the data, or its position.
    values : pair, number or {"sd", "2sd", "iqr", "minmax"}, optional
        From the first value to the second; two labels of a factor. Left out, from 0 to 1, with a
        warning if most of that is outside of the training rows. A number is a step: from the
        value of each row to that plus the number. The names are pairs from the training rows, as
        in R's marginaleffects: the mean less and plus half a standard deviation, or a whole one,
        the quartiles, the smallest and the largest value.
    how : {"difference", "ratio", "lnratio", "oddsratio", "lnoddsratio"}
    data : DataFrame, dict or (m, p) array, optional
        Rows to average over, taken as they are; by default the training rows, with their frequency
        or sampling weights.
    by : name, list of names or (m,) array, optional
        Groups, each with an average of its own, in sorted order.
    population : bool
        The training rows are a sample of the population that is asked about: the robust variance is
        used, with their sampling in it, as in ``Average(h, sample="training")``.
    outcome : label, optional
        One outcome of a model with several; all of them otherwise.

    Returns
    -------
    Question
        A psi for `infer`.

    Examples
    --------
    >>> import numpy as np, pandas as pd, statsmodels.formula.api as smf, implicit_delta as idm
    >>> data = pd.DataFrame({"treated": [0, 1] * 6, "age": np.arange(12.0)})
    >>> data["y"] = [0, 0, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1]
    >>> model = idm.from_statsmodels(smf.logit("y ~ treated + age", data).fit(disp=0))
    >>> effect = idm.infer(model, idm.average_comparison("treated"))
    >>> print(f"{effect.value:.3f} +- {effect.standard_error:.3f}")
    0.449 +- 0.235
    """
    check_values(variable, values, how)
    compared = Compared(variable, values, how, chosen=values is not UNLESS_GIVEN)
    return Question(compared, how, data, by, population, outcome)


def average_slope(
    variable: Any,
    data: Any = None,
    by: Any = None,
    *,
    population: bool = False,
    outcome: Any = None,
) -> Question:
    """Average the derivatives of the predictions in a variable; see `average_comparison`.

    The derivative in the variable goes through the formula (splines, interactions, logarithms); it
    is exact up to rounding for polynomials. Factors have none: compare two labels.
    """
    return Question(Sloped(variable), "difference", data, by, population, outcome)

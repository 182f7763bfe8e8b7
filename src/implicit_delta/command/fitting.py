"""A model of statsmodels fitted to a table, with its rows, outcome and weights checked first."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy import exp, expm1, log, log1p, log2, log10, sqrt  # noqa: F401 (formulas call them)

from implicit_delta import from_statsmodels
from implicit_delta.command.failure import Failure, listed, meant, one_line
from implicit_delta.command.families import FAMILIES, GLM, LINKS, Family, family_of, link_of
from implicit_delta.command.formulas import Formula, read_formula
from implicit_delta.command.outcomes import check_outcome, coded, is_number
from implicit_delta.command.reading import Table
from implicit_delta.command.sizes import check_size
from implicit_delta.core.optional import optional
from implicit_delta.core.types import WeightKind

KINDS = {
    "frequency": "freq_weights",  # each row stands for so many equal ones
    "precision": "var_weights",  # one over the variance of each row, or trials of a share
    "sampling": "freq_weights",  # shares of a population: always with the sandwich
}

UNDEFINED = "a logarithm of zero, a root of a negative number, or a power that is too large?"


@dataclass(frozen=True)
class Specification:
    """A model to fit: names of columns, and settings as the user gave them."""

    formula: str
    family: str = "ols"
    link: str | None = None
    weights: str | None = None
    weight_kind: str | None = None
    offset: str | None = None
    exposure: str | None = None
    clusters: tuple[str, ...] = ()
    success: str | None = None
    levels: tuple[str, ...] = ()
    by: tuple[str, ...] = ()

    def columns(self) -> list[str]:
        """Columns beside those of the formula."""
        given = (self.weights, self.offset, self.exposure, *self.clusters, *self.by)
        return [name for name in given if name is not None]


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model, the rows it was fitted to, and notes on how these were chosen."""

    model: Any
    results: Any
    frame: Any
    clusters: Any
    notes: tuple[str, ...]
    rows_read: int
    left_out: str = ""


def fit(table: Table, asked: Specification) -> Fit:
    """Fit the model that is asked for to the complete rows of a table."""
    optional("statsmodels.api", "implicit-delta fit")
    family = _family(asked)
    formula = _formula(table, asked.formula)
    if formula.pair:
        _check_pair(table.frame, formula.pair, family)
    _check_columns(table.frame, asked)
    _refuse_mixed(table.frame, formula)
    frame, dropped = _complete(table.frame, formula, asked)
    frame = _without_overflow(frame, formula)
    frame, coding = coded(frame, formula.outcome, family.outcome, asked.success, asked.levels)
    if family.outcome == "ordered" and formula.text.split("~")[0].strip() != formula.outcome:
        raise Failure("An ordered outcome must be a column with a plain name: rename it.")
    if formula.outcome is not None and family.outcome not in ("classes", "ordered"):
        check_outcome(frame[formula.outcome], family.outcome, formula.outcome)
    _check_sizes(frame, formula, family)
    results = _fitted(frame, formula, family, asked)
    kind: WeightKind = "sampling" if asked.weight_kind == "sampling" else "frequency"
    model = from_statsmodels(results, weight_kind=kind)
    return Fit(
        model=model,
        results=results,
        frame=frame,
        clusters=_clusters(frame, asked.clusters),
        notes=(*dropped, *coding, *_thresholds(family)),
        rows_read=len(table.frame),
        left_out="".join(dropped).removeprefix("dropped "),
    )


def _check_sizes(frame: Any, formula: Formula, family: Family) -> None:
    """Count coefficients before anything is made: of each class but the first, and thresholds."""
    left, right = formula.sides
    if formula.outcome is None:
        check_size(left, frame, side="outcome")
        check_size(right, frame)
        return
    classes = max(2, int(frame[formula.outcome].nunique()))
    times = classes - 1 if family.outcome == "classes" else 1
    check_size(right, frame, times, classes - 2 if family.outcome == "ordered" else 0)


def _family(asked: Specification) -> Family:
    """Choose the class: weights and links are those of a GLM."""
    name = family_of(asked.family)
    family = FAMILIES[name]
    if (asked.weights is None) != (asked.weight_kind is None):
        raise Failure(
            "--weights and --weight-kind go together: frequency (each row stands for so many "
            "equal ones), precision (one over the variance of a row), sampling (survey weights)."
        )
    if name == "ols" and asked.weight_kind == "precision" and asked.link is None:
        return replace(family, model="regression.linear_model.WLS")
    if asked.weights is not None or asked.link is not None:
        if family.glm is None:
            raise Failure(f"The family {name} takes neither --weights nor --link here.")
        family = family.as_glm(use_t=name == "ols")
        chosen = None if asked.link is None else LINKS[link_of(asked.link)]
        family = replace(family, glm=(family.glm[0], chosen or family.glm[1]))  # type: ignore[index]
    for shift in ("offset", "exposure"):
        if getattr(asked, shift) is not None and shift not in family.shifts:
            other = " Use --family gaussian." if name == "ols" and shift == "offset" else ""
            raise Failure(f"The family {name} takes no --{shift}.{other}")
    return family


def _formula(table: Table, text: str) -> Formula:
    """Read the formula; a table that was read in a wrong way has other columns than it should."""
    names = list(table.frame.columns)
    try:
        return read_formula(text, names)
    except Failure as error:
        if len(names) == 1:
            raise Failure(f"{error} {table.name} has one column: is --delimiter right?") from None
        if "no column" in str(error) and all(map(is_number, names)):
            raise Failure(f"{error}. Of {table.name}, is its first line a header?") from None
        raise


def _check_pair(frame: Any, names: tuple[str | None, ...], family: Family) -> None:
    """Two outcomes are the successes and failures of a binomial family."""
    counted = [name is not None and frame[name].dtype.kind in "iuf" for name in names]
    if family.outcome != "share" or not all(counted):
        raise Failure(
            "Write one outcome before the '~'. Two are for --family binomial: columns with the "
            "numbers of successes and failures, 'dead + alive ~ dose'."
        )
    counts = frame[list(names)].dropna()
    if (counts < 0).any(axis=None):
        raise Failure(f"Successes and failures must be counts, not negative: {listed(names)}.")
    idle = int((counts.sum(axis=1) == 0).sum())
    if idle:
        raise Failure(f"There are no trials in {idle} rows: leave these out of the file.")


def _check_columns(frame: Any, asked: Specification) -> None:
    for name in asked.columns():
        if name not in frame.columns:
            raise Failure(f"There is no column {name!r}: {meant(name, list(frame.columns))}")
    if len(asked.clusters) > 2:
        raise Failure(f"--clusters takes one column or two, not {len(asked.clusters)}.")
    for name in filter(None, (asked.weights, asked.offset, asked.exposure)):
        values = frame[name]
        if values.dtype.kind not in "iuf":
            raise Failure(f"The column {name!r} is not numeric: it holds {_shown(values)}.")
        least = 0 if name == asked.weights else np.nextafter(0, 1)
        if name != asked.offset and not bool((values.dropna() >= least).all()):
            sign = "negative" if name == asked.weights else "negative or zero"
            raise Failure(f"The column {name!r} has values that are {sign}.")


def _refuse_mixed(frame: Any, formula: Formula) -> None:
    """Refuse text among numbers: the formula would take each number for a category."""
    pandas = optional("pandas", "implicit-delta fit")
    for name in formula.bare:
        values = frame[name].dropna()
        if values.dtype != object:
            continue
        texts = values.astype(str).str.strip().str.replace(",", ".", regex=False)
        odd = pandas.to_numeric(texts, errors="coerce").isna()
        if not odd.all():
            commas = not odd.any()
            first = values.index[0] if commas else odd.index[odd.to_numpy()][0]
            advice = "correct the file"
            if commas:
                advice = "give --decimal ',' if that is a decimal comma, else correct the file"
            raise Failure(
                f"The column {name!r} has text among its numbers, {values[first]!r:.40} in row "
                f"{first}: {advice}, or write C({name}) if its values are categories."
            )


def _complete(frame: Any, formula: Formula, asked: Specification) -> tuple[Any, list[str]]:
    """Drop the rows with missing values in a column that is used; count them."""
    used = list(dict.fromkeys([*formula.columns, *asked.columns()]))
    for name in used:
        if frame[name].dtype.kind == "f" and np.isinf(frame[name]).any():
            raise Failure(f"The column {name!r} has values that are infinite.")
    missing = frame[used].isna()
    gone = int(missing.any(axis=1).sum())
    if gone == len(frame):
        empty = [name for name in used if missing[name].all()]
        raise Failure(f"No row is complete: values are missing in {listed(empty or used)}.")
    if not gone:
        return frame, []
    counts = [f"{name}: {number}" for name, number in missing.sum().items() if number]
    note = f"dropped {gone} of {len(frame)} rows with missing values ({listed(counts)})"
    return frame[~missing.any(axis=1)], [note]


def _without_overflow(frame: Any, formula: Formula) -> Any:
    """Turn whole numbers in arithmetic into floats: their powers and products would wrap around."""
    whole = [name for name in formula.computed if name in formula.columns]
    whole = [name for name in whole if frame[name].dtype.kind in "iu"]
    return frame.astype(dict.fromkeys(whole, np.float64))


def _fitted(frame: Any, formula: Formula, family: Family, asked: Specification) -> Any:
    try:
        model = _built(frame, formula, family, asked)
    except Exception as error:  # of the engine of formulas, and of the checks of each class
        raise Failure(f"The model cannot be made: {_reason(error)}") from error
    left = formula.text.split("~")[0].strip()
    several = np.ndim(model.data.orig_endog) == 2 and np.shape(model.data.orig_endog)[1] > 1
    if several and not formula.pair and family.outcome not in ("classes", "ordered"):
        # A GLM would take the columns of False and True for successes and failures.
        raise Failure(f"The outcome {left} is not a number: name a column, with --success.")
    check_outcome(np.asarray(model.endog), family.outcome, left)
    wrong = int(np.sum(~np.all(np.isfinite(model.exog), axis=1)))
    if wrong:
        raise Failure(
            f"The formula is infinite in {wrong} of {len(frame)} rows: a logarithm of zero, or a "
            "division by it? Leave these rows out of the file, or change the term."
        )
    rows, columns = model.exog.shape
    exceptions = optional("statsmodels.tools.sm_exceptions", "implicit-delta fit")
    separation = exceptions.PerfectSeparationWarning
    if columns >= rows:
        raise Failure(
            f"The formula makes {columns} coefficients of {rows} rows: more rows are needed, "
            "or a column of text or dates was taken for categories, one coefficient each."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", separation)
            return model.fit(**family.fit)
    except (separation, exceptions.PerfectSeparationError) as error:
        raise Failure(
            "A column separates the outcomes: its values foretell which rows are 1, so that its "
            "coefficient has no finite estimate. Leave it out, or merge its categories."
        ) from error
    except np.linalg.LinAlgError as error:
        raise Failure(
            f"The fit failed: {one_line(error)}. Usual causes: columns that are sums of others, or "
            "a column that separates the outcomes."
        ) from error
    except Exception as error:
        raise Failure(f"The fit failed: {_reason(error)}") from error


def _built(frame: Any, formula: Formula, family: Family, asked: Specification) -> Any:
    """Make the model here: names in its formula are looked up in this file."""
    module, _, name = family.model.rpartition(".")
    model = getattr(optional(f"statsmodels.{module}", "implicit-delta fit"), name)
    settings: dict[str, Any] = dict(family.settings)
    if family.model == GLM and family.glm is not None:
        settings["family"] = _glm_family(*family.glm)
    if asked.weights is not None and asked.weight_kind is not None:
        kind = "weights" if name == "WLS" else KINDS[asked.weight_kind]
        settings[kind] = np.asarray(frame[asked.weights], dtype=np.float64)
    for shift in ("offset", "exposure"):
        if (column := getattr(asked, shift)) is not None:
            settings[shift] = np.asarray(frame[column], dtype=np.float64)
    if family.outcome == "classes":
        return _with_classes(model, formula, frame, settings)
    return model.from_formula(formula.text, frame, missing="raise", **settings)


def _with_classes(model: Any, formula: Formula, frame: Any, settings: dict[str, Any]) -> Any:
    """Number the classes of the outcome in their order, and keep their names."""
    if formula.outcome is None:
        return model.from_formula(formula.text, frame, missing="raise", **settings)
    labels = optional("pandas", "implicit-delta fit").Categorical(frame[formula.outcome])
    numbered = frame.assign(**{formula.outcome: labels.codes.astype(int)})
    made = model.from_formula(formula.text, numbered, missing="raise", **settings)
    made._ynames_map = dict(enumerate(map(str, labels.categories)))
    return made


def _glm_family(family: str, link: str | None) -> Any:
    families = optional("statsmodels.genmod.families", "implicit-delta fit")
    make = getattr(families, family)
    return make() if link is None else make(link=getattr(families.links, link)())


def _thresholds(family: Family) -> list[str]:
    if family.outcome != "ordered":
        return []
    return ["of the thresholds a/b, those after the first are logarithms of the steps between them"]


def _clusters(frame: Any, names: tuple[str, ...]) -> Any:
    if not names:
        return None
    labels = tuple(frame[name] for name in names)
    return labels if len(labels) == 2 else labels[0]


def _reason(error: Exception) -> str:
    """First line of an error: engines of formulas draw arrows below it."""
    if isinstance(error, RecursionError):
        return "the formula has too many operators in a row for its engine; write fewer terms."
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = one_line(lines[0] if lines else type(error).__name__)[:300]
    undefined = "missing values" in text or ("inf" in text and "nan" in text)
    return f"{text} ({UNDEFINED})" if undefined else text


def _shown(values: Any) -> str:
    return listed(repr(value) for value in values.dropna().unique()[:3])

"""A model of statsmodels fitted to a table, with its rows and columns checked first."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import exp, expm1, log, log1p, log2, log10, sqrt  # noqa: F401 (formulas call them)

from implicit_delta import from_statsmodels
from implicit_delta.command.failure import Failure, listed, no_column, one_line
from implicit_delta.command.families import GLM, WEIGHTS, Family, family_for
from implicit_delta.command.formulas import Formula, check_size, read_formula
from implicit_delta.command.outcomes import check_outcome, coded, is_number
from implicit_delta.command.reading import Table
from implicit_delta.core.optional import optional

UNDEFINED = "a logarithm of zero, a root of a negative number, or a power that is too large?"
THRESHOLDS = "of the thresholds a/b, those after the first are logarithms of the steps between them"


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model, the rows it was fitted to, and notes on how these were chosen."""

    model: Any
    results: Any
    frame: Any
    clusters: Any
    notes: tuple[str, ...]
    dropped: str = ""


def fit(table: Table, options: Any) -> Fit:
    """Fit the model of the options to the complete rows of a table.

    Parameters
    ----------
    table : Table
    options : namespace
        Of the model: ``formula, family, link, weights, weight_kind, offset, exposure, clusters,
        success, levels, by``.
    """
    optional("statsmodels.api", "implicit-delta fit")
    family, names = family_for(options), list(table.frame.columns)
    try:
        formula = read_formula(options.formula, names)
    except Failure as error:
        raise Failure(f"{error}{_misread(table.name, names, str(error))}") from None
    _check_columns(table.frame, options)
    _check_pair(table.frame, formula, family)
    _check_mixed(table.frame, formula)
    frame, dropped = _complete(table.frame, [*formula.columns, *_others(options)])
    # Powers and products of whole numbers would wrap around.
    whole = [name for name in formula.computed if frame[name].dtype.kind in "iu"]
    frame = frame.astype(dict.fromkeys(whole, np.float64))
    (outcome,) = formula.outcomes if len(formula.outcomes) == 1 else (None,)
    frame, coding = coded(frame, outcome, family.outcome, options)
    _check_sizes(frame, formula, family, outcome)
    results = _fitted(frame, formula, family, options, outcome)
    labels = [frame[name] for name in options.clusters]
    kind = "sampling" if options.weight_kind == "sampling" else "frequency"
    notes = [note for note in (dropped, coding) if note]
    try:
        model = from_statsmodels(results, weight_kind=kind)  # type: ignore[arg-type]
    except ValueError as error:
        raise Failure(one_line(error)) from error
    return Fit(
        model=model,
        results=results,
        frame=frame,
        clusters=tuple(labels) if len(labels) == 2 else labels[0] if labels else None,
        notes=(*notes, *[THRESHOLDS] * (family.outcome == "ordered")),
        dropped=dropped,
    )


def _misread(name: str, columns: list[str], error: str) -> str:
    """Say what may have gone wrong with the file, where the formula names other columns."""
    if len(columns) == 1:
        return f" {name} has one column: is --delimiter right?"
    return f" Of {name}, is its first line a header?" * all(map(is_number, columns))


def _others(options: Any) -> list[str]:
    """Columns beside those of the formula."""
    given = (options.weights, options.offset, options.exposure, *options.clusters, *options.by)
    return [name for name in given if name is not None]


def _check_columns(frame: Any, options: Any) -> None:
    for name in _others(options):
        if name not in frame.columns:
            raise no_column(name, list(frame.columns))
    if len(options.clusters) > 2:
        raise Failure(f"--clusters takes one column or two, not {len(options.clusters)}.")
    for name in filter(None, (options.weights, options.offset, options.exposure)):
        values = frame[name]
        if values.dtype.kind not in "iuf":
            shown = listed(map(repr, values.dropna().unique()[:3]))
            raise Failure(f"The column {name!r} is not numeric: it holds {shown}.")
        least = 0 if name == options.weights else np.nextafter(0, 1)
        if name != options.offset and bool((values < least).any()):
            sign = "negative" if name == options.weights else "negative or zero"
            raise Failure(f"The column {name!r} has values that are {sign}.")


def _check_pair(frame: Any, formula: Formula, family: Family) -> None:
    """Two outcomes are the successes and failures of a binomial family."""
    names = list(formula.outcomes)
    if len(names) == 1:
        return
    numeric = [name is not None and frame[name].dtype.kind in "iuf" for name in names]
    if len(names) != 2 or family.outcome != "share" or not all(numeric):
        raise Failure(
            "Write one outcome before the '~'. Two are for --family binomial: columns with the "
            "numbers of successes and failures, 'dead + alive ~ dose'."
        )
    counts = frame[names].dropna()
    if (counts < 0).any(axis=None):
        raise Failure(f"Successes and failures must be counts, not negative: {listed(names)}.")
    idle = int((counts.sum(axis=1) == 0).sum())
    if idle:
        raise Failure(f"There are no trials in {idle} rows: leave these out of the file.")


def _check_mixed(frame: Any, formula: Formula) -> None:
    """Refuse text among numbers: the formula would take each number for a category."""
    pandas = optional("pandas", "implicit-delta fit")
    for name in sorted(formula.bare - set(formula.outcomes)):
        values = frame[name].dropna()
        if values.dtype != object:
            continue
        texts = values.astype(str).str.strip().str.replace(",", ".", regex=False)
        odd = pandas.to_numeric(texts, errors="coerce").isna()
        if not odd.all():
            commas = not odd.any()
            first = values.index[0] if commas else odd.index[odd.to_numpy()][0]
            comma = "give --decimal ',' if that is a decimal comma, else " * commas
            raise Failure(
                f"The column {name!r} has text among its numbers, {values[first]!r:.40} in row "
                f"{first}: {comma}correct the file, or write C({name}) if its values are "
                "categories."
            )


def _complete(frame: Any, columns: list[str]) -> tuple[Any, str]:
    """Drop the rows with missing values in a column that is used; count them."""
    used = list(dict.fromkeys(columns))
    for name in used:
        if frame[name].dtype.kind == "f" and np.isinf(frame[name]).any():
            raise Failure(f"The column {name!r} has values that are infinite.")
    missing = frame[used].isna()
    gone = missing.any(axis=1)
    if gone.all():
        empty = [name for name in used if missing[name].all()]
        raise Failure(f"No row is complete: values are missing in {listed(empty or used)}.")
    if not gone.any():
        return frame, ""
    counts = [f"{name}: {number}" for name, number in missing.sum().items() if number]
    note = f"dropped {gone.sum()} of {len(frame)} rows with missing values ({listed(counts)})"
    return frame[~gone], note


def _check_sizes(frame: Any, formula: Formula, family: Family, outcome: str | None) -> None:
    """Count coefficients before anything is made: of each class but the first, and thresholds."""
    if outcome is None:
        check_size(formula.left, formula, frame)
        check_size(formula.right, formula, frame)
        return
    classes = max(2, int(frame[outcome].nunique()))
    times = classes - 1 if family.outcome == "classes" else 1
    more = classes - 2 if family.outcome == "ordered" else 0
    check_size(formula.right, formula, frame, times, more)


def _fitted(frame: Any, formula: Formula, family: Family, options: Any, outcome: str | None) -> Any:
    try:
        model = _made(frame, formula, family, options, outcome)
    except Exception as error:  # of patsy, and of the checks of each class
        raise Failure(f"The model cannot be made: {_reason(error)}") from error
    left = formula.text.partition("~")[0].strip()
    several = len(formula.outcomes) == 2 or family.outcome in ("classes", "ordered")
    if not several and np.shape(model.data.orig_endog)[1:] not in ((), (1,)):
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
    if columns >= rows:
        raise Failure(f"The formula makes {columns} coefficients of {rows} rows.")
    errors = optional("statsmodels.tools.sm_exceptions", "implicit-delta fit")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", errors.PerfectSeparationWarning)
            return model.fit(**family.fit)
    except (errors.PerfectSeparationWarning, errors.PerfectSeparationError) as error:
        raise Failure(
            "A column separates the outcomes: its values determine which rows are 1, so that its "
            "coefficient has no finite estimate. Leave it out, or merge its categories."
        ) from error
    except np.linalg.LinAlgError as error:
        raise Failure(
            f"The fit failed: {one_line(error)}. Usual causes: columns that are sums of others, or "
            "a column that separates the outcomes."
        ) from error
    except Exception as error:
        raise Failure(f"The fit failed: {_reason(error)}") from error


def _made(frame: Any, formula: Formula, family: Family, options: Any, outcome: str | None) -> Any:
    """Make the model here: statsmodels looks up names of a formula in this file."""
    module, _, name = family.model.rpartition(".")
    model = getattr(optional(f"statsmodels.{module}", "implicit-delta fit"), name)
    settings: dict[str, Any] = dict(family.settings)
    if family.model == GLM and family.glm is not None:
        families, (kind, link) = optional("statsmodels.genmod.families", ""), family.glm
        chosen = {} if link is None else {"link": getattr(families.links, link)()}
        settings["family"] = getattr(families, kind)(**chosen)
    given = {option: getattr(options, option) for option in ("offset", "exposure")}
    if options.weights is not None:
        given["weights" if name == "WLS" else WEIGHTS[options.weight_kind]] = options.weights
    columns = {option: column for option, column in given.items() if column is not None}
    settings |= {key: np.asarray(frame[column], np.float64) for key, column in columns.items()}
    if family.outcome != "classes" or outcome is None:
        return model.from_formula(formula.text, frame, missing="raise", **settings)
    # Number the classes in their order, and keep their names.
    labels = optional("pandas", "implicit-delta fit").Categorical(frame[outcome])
    numbered = frame.assign(**{outcome: labels.codes.astype(int)})
    made = model.from_formula(formula.text, numbered, missing="raise", **settings)
    made._ynames_map = dict(enumerate(map(str, labels.categories)))
    return made


def _reason(error: Exception) -> str:
    """First line of an error: patsy draws arrows below it."""
    if isinstance(error, RecursionError):
        return "the formula has too many operators in a row: write fewer terms."
    text = one_line(str(error).strip().partition("\n")[0] or type(error).__name__)[:300]
    undefined = "missing values" in text or ("inf" in text and "nan" in text)
    return f"{text} ({UNDEFINED})" if undefined else text

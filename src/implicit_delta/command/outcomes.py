"""Outcomes: text and labels coded as numbers on request, and values that a family can have."""

from typing import Any

import numpy as np

from implicit_delta.command.failure import Failure, listed
from implicit_delta.command.families import Outcome
from implicit_delta.core.optional import optional

RANGES = {
    "binary": "0 and 1",
    "share": "from 0 to 1",
    "count": "counts, not negative",
    "positive": "positive",
}


def coded(frame: Any, name: str | None, kind: Outcome, options: Any) -> tuple[Any, str]:
    """Code the outcome's column as the family needs it, and describe what was done."""
    success, levels = options.success, options.levels
    if name is None:
        if success is not None or levels or kind == "ordered":
            raise Failure("The outcome must be a plain column here: write 'y ~ ...'.")
        return frame, ""
    if success is not None and kind not in ("binary", "share"):
        raise Failure("--success is for outcomes of two kinds: --family logit or probit.")
    if levels and kind not in ("classes", "ordered"):
        raise Failure("--levels is for --family ordered, orderedprobit or mnlogit.")
    values, note = frame[name], ""
    if success is not None:
        values, note = _succeeded(values, name, success)
    elif levels:
        values, note = _ordered(values, name, levels)
    elif values.dtype == bool:
        values, note = values.astype(int), f"{name} is 1 where it is True"
    elif kind == "classes":
        first = optional("pandas", "implicit-delta fit").Categorical(values).categories[0]
        note = f"coefficients are those of each class of {name} against {first}"
    elif values.dtype.kind not in "iuf":
        raise Failure(_not_numeric(name, values, kind))
    if kind not in ("classes", "ordered"):
        check_outcome(values, kind, name)
    return frame.assign(**{name: values}), note


def check_outcome(endog: Any, kind: Outcome, name: str) -> None:
    """Refuse values that a family cannot have, and outcomes that do not vary."""
    y = np.asarray(endog, dtype=np.float64)
    if not np.all(np.isfinite(y)):
        raise Failure(f"The outcome {name} is infinite in {int(np.sum(~np.isfinite(y)))} rows.")
    if np.all(y == y[0]):
        raise Failure(f"The outcome {name} is the same in every row: there is nothing to explain.")
    good = {
        "binary": (y == 0) | (y == 1),
        "share": (y >= 0) & (y <= 1),
        "count": y >= 0,
        "positive": y > 0,
    }.get(kind)
    if good is not None and not np.all(good):
        hint = " Say which value counts as 1 with --success." if kind == "binary" else ""
        wrong = listed(f"{value:g}" for value in np.unique(y[~good])[:3])
        raise Failure(f"The outcome {name} must be {RANGES[kind]}, but holds {wrong}.{hint}")


def is_number(text: object) -> bool:
    """Return whether a text is a number."""
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def _succeeded(values: Any, name: str, success: str) -> tuple[Any, str]:
    hit = values.astype(str) == success
    if values.dtype.kind in "iuf" and is_number(success):
        hit = values == float(success)
    if not hit.any():
        raise Failure(f"{name} is never {success!r}: it holds {_shown(values)}.")
    others = sorted(map(str, values[~hit].dropna().unique()))
    alike = [other for other in others if other.strip().lower() == success.strip().lower()]
    if alike:
        raise Failure(
            f"{name} holds {success!r} and {alike[0]!r}, which would count as the opposite: make "
            "them one in the file."
        )
    return hit.astype(int), f"{name} is 1 where it is {success!r}, else 0 ({listed(others)})"


def _ordered(values: Any, name: str, levels: tuple[str, ...]) -> tuple[Any, str]:
    texts = values.astype(str)
    unknown, unseen = sorted(set(texts) - set(levels)), [x for x in levels if x not in set(texts)]
    if unknown or unseen:
        raise Failure(
            f"--levels must name the values of {name}, which holds {_shown(values)}: "
            f"{listed(unknown or unseen)} {'is not in --levels' if unknown else 'never occurs'}."
        )
    pandas = optional("pandas", "implicit-delta fit")
    labels = pandas.Categorical(texts, categories=list(levels), ordered=True)
    return labels, f"{name} is ordered {' < '.join(levels):.500}"


def _not_numeric(name: str, values: Any, kind: Outcome) -> str:
    shown = f"The outcome {name!r} is not numeric: it holds {_shown(values)}."
    found = [str(value) for value in values.unique()]
    if kind in ("binary", "share") and len(found) == 2:
        first, second = (f"--success {value!r}" for value in found)
        return f"{shown} Say which of the two counts as 1: {first} or {second}."
    if kind == "ordered":
        return f"{shown} Give their order, the lowest first: --levels {','.join(found)}."
    if any(is_number(text.replace(",", ".")) for text in found[:100]):
        odd = next(text for text in found if not is_number(text))
        decimal = " or give --decimal ','" if "," in odd and "." not in odd else ""
        return f"{shown} {odd!r:.40} is not a number: correct the file{decimal}."
    return f"{shown} Categories are for --family mnlogit, or logit with --success."


def _shown(values: Any) -> str:
    return listed(repr(getattr(value, "item", lambda v=value: v)()) for value in values.unique())

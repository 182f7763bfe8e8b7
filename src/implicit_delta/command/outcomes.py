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


def coded(
    frame: Any, name: str | None, kind: Outcome, success: str | None, levels: tuple[str, ...]
) -> tuple[Any, list[str]]:
    """Code the outcome's column as the family needs it, and tell what was done."""
    if name is None:
        if success is not None or levels or kind == "ordered":
            raise Failure("The outcome must be a plain column here: write 'y ~ ...'.")
        return frame, []
    values = frame[name]
    if success is not None:
        return _succeeded(frame, name, kind, success)
    if levels:
        return _ordered(frame, name, kind, levels)
    if values.dtype == bool:
        return frame.assign(**{name: values.astype(int)}), [f"{name} is 1 where it is True"]
    if kind == "classes":
        first = optional("pandas", "implicit-delta fit").Categorical(values).categories[0]
        return frame, [f"coefficients are those of each class of {name} against {first}"]
    if values.dtype.kind not in "iuf":
        raise Failure(_text(name, values, kind))
    return frame, []


def _succeeded(frame: Any, name: str, kind: Outcome, success: str) -> tuple[Any, list[str]]:
    if kind not in ("binary", "share"):
        raise Failure("--success is for outcomes of two kinds: --family logit or probit.")
    values = frame[name]
    hit = values.astype(str) == success
    if values.dtype.kind in "iuf" and is_number(success):
        hit = values == float(success)
    if not hit.any():
        raise Failure(f"{name} is never {success!r}: it holds {_shown(values)}.")
    rest = values[~hit].dropna()
    others = sorted(map(str, rest.unique()))
    alike = [other for other in others if other.strip().lower() == success.strip().lower()]
    if alike:
        raise Failure(
            f"{name} holds {success!r} and {alike[0]!r}, which would count as the opposite: make "
            "them one in the file."
        )
    note = f"{name} is 1 where it is {success!r}, else 0 ({listed(others)})"
    return frame.assign(**{name: hit.astype(int)}), [note]


def _ordered(
    frame: Any, name: str, kind: Outcome, levels: tuple[str, ...]
) -> tuple[Any, list[str]]:
    if kind not in ("classes", "ordered"):
        raise Failure("--levels is for --family ordered, orderedprobit or mnlogit.")
    texts = frame[name].astype(str)
    found = set(texts)
    strange = sorted(found - set(levels))
    unseen = [level for level in levels if level not in found]
    if strange or unseen:
        raise Failure(
            f"--levels must name the values of {name}, which holds {_shown(frame[name])}: "
            f"{listed(strange or unseen)} {'is not in --levels' if strange else 'never occurs'}."
        )
    pandas = optional("pandas", "implicit-delta fit")
    labels = pandas.Categorical(texts, categories=list(levels), ordered=True)
    return frame.assign(**{name: labels}), [f"{name} is ordered {' < '.join(levels):.500}"]


def _text(name: str, values: Any, kind: Outcome) -> str:
    shown = f"The outcome {name!r} is not numeric: it holds {_shown(values)}."
    found = list(values.unique())
    if kind in ("binary", "share") and len(found) == 2:
        first, second = (f"--success {str(value)!r}" for value in found)
        return f"{shown} Say which of the two counts as 1: {first} or {second}."
    if kind == "ordered":
        return f"{shown} Give their order, the lowest first: --levels {','.join(map(str, found))}."
    if _mostly_numbers(values):
        odd = next(text for text in map(str, values) if not is_number(text))
        decimal = " or give --decimal ','" if "," in odd and "." not in odd else ""
        return f"{shown} {odd!r:.40} is no number: correct the file{decimal}."
    return f"{shown} Categories are for --family mnlogit, or logit with --success."


def check_outcome(endog: Any, kind: Outcome, name: str) -> None:
    """Refuse values that a family cannot have, and outcomes that do not vary."""
    y = np.asarray(endog, dtype=np.float64)
    if y.ndim == 2 and kind not in ("classes", "ordered"):
        raise Failure(f"The outcome {name} is not a number: compare outside, or use --success.")
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
        wrong = np.unique(y[~good])
        hint = " Say which value counts as 1 with --success." if kind == "binary" else ""
        raise Failure(
            f"The outcome {name} must be {RANGES[kind]}, but holds "
            f"{listed(f'{value:g}' for value in wrong[:3])}.{hint}"
        )


def _shown(values: Any) -> str:
    return listed(repr(getattr(value, "item", lambda v=value: v)()) for value in values.unique())


def is_number(text: str) -> bool:
    """Tell whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _mostly_numbers(values: Any) -> bool:
    return any(is_number(str(value).replace(",", ".")) for value in values.unique()[:100])

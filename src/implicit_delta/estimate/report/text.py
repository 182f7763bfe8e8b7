"""Text of a page: escaped, in elements, in numbers that can be read."""

import html
import math
from collections.abc import Sequence

import numpy as np

from implicit_delta.estimate.tables import decimals, number

JOINERS = "\u200c\u200d"  # inside words of some scripts, and inside emoji
MOST_LISTED = 3  # names in a sentence


def escaped(text: object) -> str:
    """Make text harmless inside HTML, also inside attributes, and free of control characters."""
    return html.escape(one_line(text), quote=True)


def tag(name: str, *content: str, **attributes: object) -> str:
    """Write an element around content that is HTML already; attributes are escaped.

    Examples
    --------
    >>> tag("p", "a &lt; b", class_="small", aria_label='"')
    '<p class="small" aria-label="&quot;">a &lt; b</p>'
    """
    pairs = ((key.rstrip("_").replace("_", "-"), entry) for key, entry in attributes.items())
    inside = "".join(f' {key}="{escaped(entry)}"' for key, entry in pairs if entry != "")
    return f"<{name}{inside}>{''.join(content)}</{name}>"


def one_line(text: object) -> str:
    """Turn white space into single blanks, and leave out what cannot be printed."""
    joined = " ".join(str(text).split())
    return "".join(
        letter if letter.isprintable() or letter in JOINERS else "�" for letter in joined
    )


def places(errors: Sequence[float], values: Sequence[float]) -> list[int]:
    """Return the decimals that show two digits of each standard error; four of a known value."""
    counts = decimals(errors, values)
    return [count - 2 * (error > 0) for count, error in zip(counts, errors, strict=True)]


def shown(x: float, count: int) -> str:
    """Format a number with so many decimals; negative ones round whole numbers."""
    if math.isinf(x):
        return "infinity" if x > 0 else "-infinity"
    if 0 <= count <= 6 and abs(x) < 1e12:
        return f"{x:,.{count}f}"
    if count < 0 and abs(x) < 1e12:
        return f"{round(x, count):,.0f}"
    return number(x, count)


def brief(content: object) -> str:
    """Format a diagnostic: three digits of a number, or text as it is."""
    if isinstance(content, float | np.floating):
        return (
            f"{content:.3g}"
            if math.isfinite(content)
            else "unknown"
            if math.isnan(content)
            else "infinite"
        )
    return one_line(content)


def share(x: float) -> str:
    """Write a part of a whole as a percentage; one that is many times the whole, in words."""
    return f"{100 * x:.2g}%" if x < 0.995 else f"{100 * x:.0f}%" if x < 10 else "more than 1000%"


def interval_of(spans: Sequence[tuple[float, float]], count: int) -> str:
    """Write an interval, or its pieces, in brackets."""
    return " or ".join(f"[{shown(low, count)}, {shown(high, count)}]" for low, high in spans)


def listed(words: Sequence[str], most: int = MOST_LISTED) -> str:
    """Join words by commas and "and"; of many, the first few and the number of the others.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d", "e"])
    ('a, b and c', 'a, b, c and 2 more')
    """
    rest = [f"{len(words) - most} more"] if len(words) > most else []
    parts = [*words[:most], *rest]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)

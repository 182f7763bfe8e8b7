"""Text of a page: escaped, in elements, in numbers that can be read."""

import html
import math
from collections.abc import Sequence

from implicit_delta.estimate.tables import decimals, number

JOINERS = "\u200c\u200d"  # inside words of some scripts, and inside emoji
MOST_LISTED = 3  # names in a sentence
MOST_FINER = 3  # decimals beyond those that the standard error requires


def one_line(text: object) -> str:
    """Replace white space by single blanks, and characters that cannot be printed."""
    joined = " ".join(str(text).split())
    return "".join(
        letter if letter.isprintable() or letter in JOINERS else "�" for letter in joined
    )


def escaped(text: object) -> str:
    """Escape text for elements and attributes, without control characters."""
    return html.escape(one_line(text))


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


def paragraph(text: str, kind: str = "") -> str:
    """Write a sentence that is plain text; what stands in backticks is set as code."""
    pieces = text.split("`")
    even = len(pieces) % 2  # an odd number of backticks is no code
    return tag(
        "p",
        *(tag("code", escaped(piece)) if k % 2 and even else _joined(piece, k)
          for k, piece in enumerate(pieces)),
        class_=kind,
    )  # fmt: skip


def _joined(piece: str, k: int) -> str:
    """Escape a piece of a sentence and keep the blanks at its ends."""
    left, right = " " * piece[:1].isspace(), " " * piece[-1:].isspace()
    return f"{left * (k > 0)}{escaped(piece)}{right}"


def places(errors: Sequence[float], values: Sequence[float]) -> list[int]:
    """Return the decimals that show two digits of each standard error; four of a known value."""
    counts = decimals(errors, values)
    return [count - 2 * (error > 0) for count, error in zip(counts, errors, strict=True)]


def finer(count: int, numbers: Sequence[float]) -> int:
    """Add decimals where an end of an interval is much smaller than the standard error."""
    sizes = [abs(x) for x in numbers if math.isfinite(x) and x != 0]
    return min(max([count, *places(sizes, sizes)]), count + MOST_FINER) if sizes else count


def shown(x: float, count: int) -> str:
    """Format a number with so many decimals; negative ones round whole numbers."""
    if math.isinf(x):
        return "infinity" if x > 0 else "-infinity"
    if count <= 6 and abs(x) < 1e12:
        return f"{round(x, min(count, 0)) if count < 0 else x:,.{max(count, 0)}f}"
    return number(x, count)


def interval_of(spans: Sequence[tuple[float, float]], count: int) -> str:
    """Write an interval, or its pieces, in brackets."""
    return " or ".join(f"[{shown(low, count)}, {shown(high, count)}]" for low, high in spans)


def brief(content: object) -> str:
    """Format a diagnostic: three digits of a number, or text as it is."""
    if not isinstance(content, float):
        return one_line(content)
    if math.isfinite(content):
        return f"{content:.3g}"
    return "unknown" if math.isnan(content) else "infinite"


def share(x: float) -> str:
    """Write a part of a whole as a percentage."""
    return f"{100 * x:.2g}%" if x < 0.995 else f"{100 * x:.0f}%" if x < 10 else "more than 1000%"


def in_errors(x: float) -> str:
    """Write a number of standard errors."""
    return "less than 0.01" if x < 0.01 else f"about {x:.2g}" if x < 1000 else "more than 1000"


def listed(words: Sequence[str], most: int = MOST_LISTED) -> str:
    """Join words by commas and "and"; of many, the first few and the number of the others.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d", "e"])
    ('a, b and c', 'a, b, c and 2 more')
    """
    rest = [f"{len(words) - most} more"] if len(words) > most else []
    *first, last = [*words[:most], *rest]
    return f"{', '.join(first)} and {last}" if first else last

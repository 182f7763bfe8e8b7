"""Picture of groups: one row for each, and in it one bar for each series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.estimate.axes import legend_above, row_axes
from implicit_delta.estimate.drawn import drawn
from implicit_delta.estimate.interval_plot import (
    check_rows,
    draw_bars,
    finish_rows,
    interval_label,
    reach_of,
)
from implicit_delta.estimate.scales import in_lines, label_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from implicit_delta.estimate import Estimate

SEPARATORS = (": ", " | ", ", ", " / ", ":", "|", "/")  # between group and series in a name
ROOM = 0.8  # of a row, which its bars share
BAR = 0.22  # inches of height for each bar


def group_plot(
    estimate: Estimate,
    ax: Axes | None = None,
    *,
    by: Sequence[Any] | None = None,
    series: Sequence[Any] | None = None,
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    transform: Any = None,
    null: float | None = None,
    **style: Any,
) -> Axes:
    """Compare groups: evaluations of one group share a row, those of one series a color.

    Parameters
    ----------
    estimate : Estimate
        Of K evaluations; `join` puts several estimates into one.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure unless given.
    by : sequence of K labels, optional
        The group of each evaluation. Left out, names such as ``"north: old"`` are taken apart.
    series : sequence of K labels, optional
        The series of each evaluation; what its name has beside the group unless given.
    confidence_level, simultaneous, transform, null
        As in `Estimate.plot`; everything is drawn on one axis.
    **style
        Passed to matplotlib's ``errorbar``.
    """
    rows, colors = _pairs(estimate.names, by, series)
    groups, kinds = list(dict.fromkeys(rows)), list(dict.fromkeys(colors))
    given = {"by": by, "series": series}.items()
    labels = "".join(f", {name}={name}[:50]" for name, column in given if column is not None)
    check_rows(len(groups), ax, "groups", labels)
    found = drawn(estimate, confidence_level, simultaneous, transform, null)
    if ax is None:
        (ax,) = row_axes([groups], height=max(0.3, BAR * len(kinds)))
    for s, kind in enumerate(kinds):
        own = [k for k, color in enumerate(colors) if color == kind]
        y = np.array([groups.index(rows[k]) for k in own]) + _shift(s, len(kinds))
        mine = {"color": f"C{s}", "label": in_lines(kind)} | style
        draw_bars(ax, found.take(own), y, mine)
    finish_rows(ax, found, reach_of(null, transform))
    for g in range(1, len(groups)):
        ax.axhline(g - 0.5, color="0.9", linewidth=0.6, zorder=0)
    ax.set_ylim(len(groups) - 0.5, -0.5)
    label_rows(ax, np.arange(len(groups)), groups)
    ax.set_xlabel(interval_label(estimate, confidence_level, simultaneous, transform))
    if len(kinds) > 1:
        legend_above(ax, kinds)
    return ax


def _shift(s: int, count: int) -> float:
    return ROOM * ((s + 0.5) / count - 0.5) if count > 1 else 0.0


def _pairs(names: tuple[str, ...], by: Any, series: Any) -> tuple[list[str], list[str]]:
    """Find the group and the series of each evaluation."""
    if by is None and series is None:
        pairs = _split(names)
    else:
        groups, kinds = _column("by", by, names), _column("series", series, names)
        pairs = [
            (
                group if group is not None else _rest(name, str(kind)),
                kind if kind is not None else _rest(name, str(group)),
            )
            for name, group, kind in zip(names, groups, kinds, strict=True)
        ]
        if by is not None and series is None and len({group for group, _ in pairs}) == len(names):
            pairs = [(group, "") for group, _ in pairs]  # one bar each: no series to tell apart
    twice = next((pair for pair in pairs if pairs.count(pair) > 1), None)
    if twice is not None:
        raise ValueError(
            f"kind='groups' draws one bar for each group and series, and {twice} is there twice: "
            "give both, `plot(kind='groups', by=[...], series=[...])`, with one label for each "
            "evaluation."
        )
    return [group for group, _ in pairs], [kind for _, kind in pairs]


def _split(names: tuple[str, ...]) -> list[tuple[str, str]]:
    for separator in SEPARATORS:
        parts = [name.split(separator) for name in names]
        if all(len(part) == 2 for part in parts):
            return [(group.strip(), kind.strip()) for group, kind in parts]
    raise ValueError(
        "kind='groups' needs to know the group of each evaluation: give "
        "`plot(kind='groups', by=[...], series=[...])`, with one label for each, or names such as "
        f"'north: old', not {names[0]!r:.40}."
    )


def _column(what: str, labels: Any, names: tuple[str, ...]) -> list[Any]:
    if labels is None:
        return [None] * len(names)
    found = [labels] if isinstance(labels, str) else [str(label) for label in labels]
    if len(found) != len(names):
        raise ValueError(
            f"{what} has {len(found)} labels for {len(names)} evaluations; give one for each"
        )
    return found


def _rest(name: str, label: str) -> str:
    """Take the label and a separator off one end of a name, if they are there."""
    for separator in (*SEPARATORS, " ", "_", "."):
        if name.startswith(label + separator):
            return name[len(label + separator) :].strip()
        if name.endswith(separator + label):
            return name[: -len(separator + label)].strip()
    return name

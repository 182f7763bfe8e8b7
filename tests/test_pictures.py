"""Pictures with transforms, forests, groups, labels of rows, and both intervals of a profile."""

from itertools import pairwise

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt
from scipy.special import expit

import implicit_delta as idm
from implicit_delta.estimate import Estimate, Rows
from implicit_delta.plot import forest_plot, group_plot, interval_plot

pytestmark = pytest.mark.slow
KINDS = ["interval", "forest", "groups"]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def make(value, error, names=None):
    value = np.asarray(value, dtype=float)
    names = [f"p{k}" for k in range(value.size)] if names is None else names
    return Estimate(value, np.diag(np.square(error)), names, "by hand")


def bars(ax):
    return np.concatenate([[s[:, 0] for s in c.lines[2][0].get_segments()] for c in ax.containers])


def points(ax):
    return np.concatenate([c.lines[0].get_xdata() for c in ax.containers])


def nulls(ax):
    """Positions of the vertical lines."""
    lines = [np.asarray(line.get_xdata()) for line in ax.lines if line not in _points(ax)]
    return [float(x[0]) for x in lines if len(x) == 2 and x[0] == x[1]]


def _points(ax):
    return [line for c in ax.containers for line in (c.lines[0], *c.lines[1])]


def drawn(est, kind, **options):
    by = {"by": [f"g{k}" for k in range(len(est))]} if kind == "groups" else {}
    ax = est.plot(kind=kind, **by, **options)
    ax.figure.canvas.draw()
    return ax


# Transforms

PROBABILITY = make([0.02, 0.5, 0.97], [0.03, 0.2, 0.02])
LOGS = make([-0.7, 0.0, 1.2], [0.3, 0.2, 0.4])
TRANSFORMS = {
    "logit": (PROBABILITY, "logit", 0, 1),
    "log": (PROBABILITY, "log", 0, np.inf),
    "pair": (PROBABILITY, (np.log, np.exp), 0, np.inf),
}


@pytest.mark.parametrize("simultaneous", [False, True])
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("kind", [*KINDS, "band"])
def test_a_transform_is_that_of_the_interval(kind, name, simultaneous):
    est, transform, least, most = TRANSFORMS[name]
    low, high = est.confidence_interval(simultaneous=simultaneous, transform=transform)
    assert np.all(low >= least)
    assert np.all(high <= most)
    if kind == "band":
        ax = est.plot(x=[0, 1, 2], simultaneous=simultaneous, transform=transform)
        y = ax.collections[0].get_paths()[0].vertices[:, 1]
        assert {*low, *high} <= {*y}
        assert y.min() == low.min()
        assert y.max() == high.max()
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), est.value)
        return
    ax = drawn(est, kind, simultaneous=simultaneous, transform=transform)
    np.testing.assert_allclose(bars(ax), np.column_stack([low, high]))
    np.testing.assert_allclose(points(ax), est.value)
    assert ax.get_xscale() == "linear"


def test_without_a_transform_the_band_leaves_the_unit_interval():
    """The reason for the transform: the same band without it does not stay."""
    y = PROBABILITY.plot(x=[0, 1, 2]).collections[0].get_paths()[0].vertices[:, 1]
    assert y.min() < 0
    assert y.max() > 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("transform", "shown"), [("exp", np.exp), ("expit", expit)])
def test_what_is_shown_is_what_the_table_shows(kind, transform, shown):
    table = LOGS.to_dict(transform=transform)
    ax = drawn(LOGS, kind, transform=transform)
    np.testing.assert_allclose(points(ax), table["estimate"])
    np.testing.assert_allclose(bars(ax), np.column_stack([table["conf_low"], table["conf_high"]]))
    assert nulls(ax) == [shown(0.0)]
    assert ax.get_xscale() == ("log" if transform == "exp" else "linear")
    assert ax.get_xlabel().startswith(f"{transform}(estimate)")
    labels = [text.get_text() for text in ax.get_xticklabels()]
    assert not any("mathdefault" in label for label in labels)


def test_a_band_of_exponentials():
    ax = LOGS.plot(x=[0, 1, 2], transform="exp", null=1.0)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.exp(LOGS.value))
    assert list(ax.lines[1].get_ydata()) == [1.0, 1.0]


@pytest.mark.parametrize("ends", [(0.9, 1.3), (0.4, 3.0), (0.2, 30.0), (1e-4, 1e5), (0.999, 1.001)])
def test_a_log_axis_has_some_plain_ticks(ends):
    low, high = np.log(ends)
    ax = make([(low + high) / 2], [(high - low) / 4]).plot(kind="forest", transform="exp")
    ax.figure.canvas.draw()
    left, right = ax.get_xlim()
    inside = [t for t in ax.get_xticks() if left <= t <= right]
    assert 2 <= len(inside) <= 9
    texts = [text.get_text() for text in ax.get_xticklabels()]
    assert len(set(texts)) == len(texts)


REFUSED = [
    ({"transform": "square"}, ValueError, "transform is one of"),
    ({"transform": "logit"}, ValueError, "strictly between 0 and 1"),
    ({"kind": "covariance", "transform": "exp"}, ValueError, "takes neither transform nor null"),
    ({"kind": "influence", "null": 0.0}, ValueError, "takes neither transform nor null"),
    ({"null": np.nan}, ValueError, "null is one number"),
    ({"null": [0.0, 1.0, 2.0]}, ValueError, "null is one number"),
    ({"null": "zero"}, ValueError, "null"),
    ({"transform": "exp", "null": 0.0}, ValueError, "above 0"),
    ({"transform": "exp", "null": -1.0}, ValueError, "above 0"),
    ({"kind": "groups"}, ValueError, "needs to know the group"),
    ({"kind": "groups", "by": ["a", "b"]}, ValueError, "by has 2 labels for 3"),
    ({"kind": "groups", "by": list("aab"), "series": list("xxx")}, ValueError, "there twice"),
]


@pytest.mark.parametrize(("options", "error", "text"), REFUSED)
def test_what_cannot_be_drawn_is_refused(options, error, text):
    with pytest.raises(error, match=text):
        LOGS.plot(**options)


@pytest.mark.parametrize("value", [800.0, -800.0])
def test_exponentials_beyond_all_numbers_are_refused(value):
    with pytest.raises(ValueError, match="'p1' is too large or too small"):
        make([0.0, value], [1.0, 1.0]).plot(transform="exp")


# Forests


def right(ax):
    (beside,) = ax.child_axes
    return [text.get_text() for text in beside.get_yticklabels()]


def left(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def test_a_forest_keeps_the_order_or_sorts():
    assert left(LOGS.plot(kind="forest")) == ["p0", "p1", "p2"]
    ax = LOGS.plot(kind="forest", sort=True)
    assert left(ax) == ["p2", "p1", "p0"]
    np.testing.assert_allclose(points(ax), LOGS.value[::-1])
    assert ax.yaxis_inverted()
    assert right(ax)[0].startswith("1.20 [")


def test_an_intercept_is_left_out_by_selection():
    est = make([9.0, 1.0, 2.0], [0.1, 0.1, 0.1], ["Intercept", "x", "z"])
    assert left(est[["x", "z"]].plot(kind="forest")) == ["x", "z"]


TEXTS = [
    (make([1.234], [0.1]), None, ["1.23 [1.04, 1.43]"]),
    (make([3e9], [1e8]), None, ["3.00e+09 [2.80e+09, 3.20e+09]"]),
    (make([2e-7], [1e-8]), None, ["2.00e-07 [1.80e-07, 2.20e-07]"]),
    (make([12345.0], [300.0]), None, ["12345 [11757, 12933]"]),
    (make([2.0], [0.0]), None, ["2.0 [2.0, 2.0]"]),
    (make([0.0], [0.3]), "exp", ["1.00 [0.56, 1.80]"]),
    (make([-5.0], [1.4]), "exp", ["0.0067 [0.0004, 0.1048]"]),
    (make([0.99], [0.06]), "logit", ["0.99 [0.00, 1.00]"]),
]


@pytest.mark.parametrize(("est", "transform", "texts"), TEXTS)
def test_numbers_at_the_right(est, transform, texts):
    assert right(est.plot(kind="forest", transform=transform)) == texts
    assert not est.plot(kind="forest", transform=transform, numbers=False).child_axes


@pytest.mark.parametrize(
    ("value", "error", "null", "seen"),
    [
        ([5.0], [0.2], None, [0.0]),  # beside the interval, but near
        ([1e6], [1.0], None, []),  # far: the interval would be a dot
        ([1e6], [1.0], 1e6 + 30, [1e6 + 30]),
        ([1e6], [1.0], 0.0, [0.0]),  # asked for
        ([-3.0, 4.0], [1.0, 1.0], None, [0.0]),
        ([-3.0, 4.0], [1.0, 1.0], 1.0, [1.0]),
    ],
)
def test_the_null_of_a_forest(value, error, null, seen):
    assert nulls(make(value, error).plot(kind="forest", null=null)) == seen


@pytest.mark.parametrize("kind", ["forest", "groups"])
def test_a_scale_without_zero_has_no_line_there(kind):
    assert nulls(drawn(make([2.0, 3.0], [0.5, 0.5]), kind)) == [0.0]
    assert nulls(drawn(make([2.0, 3.0], [0.5, 0.5]), kind, transform="log")) == []


@pytest.mark.parametrize("K", [1, 30])
@pytest.mark.parametrize(
    "name", ["x", "a name that is much longer than what fits into one line " * 2]
)
def test_labels_stay_in_the_figure(K, name):
    est = make(np.linspace(-1, 1, K), np.full(K, 0.3), [f"{name} {k}" for k in range(K)])
    ax = est.plot(kind="forest", transform="exp")
    figure = ax.figure
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.get_yticklabels()]
    beside = [text.get_window_extent() for text in ax.child_axes[0].get_yticklabels()]
    assert min(box.x0 for box in boxes) >= -1
    assert max(box.x1 for box in beside) <= figure.bbox.width + 1
    assert ax.get_window_extent().width > 0.25 * figure.bbox.width
    for column in (boxes, beside):
        ordered = sorted(column, key=lambda box: -box.y0)
        assert all(a.y0 >= b.y1 - 2 for a, b in pairwise(ordered))


def test_mixed_units_get_axes_each_with_numbers():
    ax = make([3e9, 2e-7, 0.2], [1e8, 1e-8, 0.1]).plot(kind="forest")
    assert [len(right(panel)) for panel in ax.figure.axes] == [1, 1, 1]


def test_logs_share_an_axis_where_they_do_as_logs():
    """Odds ratios of 0.01 and 100 are equally far from 1."""
    ax = make([-4.6, 4.6], [0.5, 0.5]).plot(kind="forest", transform="exp")
    assert len(ax.figure.axes) == 1


def test_axes_and_styles_are_the_users():
    _, ax = plt.subplots()
    assert forest_plot(LOGS, ax, color="crimson") is ax
    assert ax.containers[0].lines[0].get_color() == "crimson"
    assert interval_plot(LOGS, ax, transform="exp", color="navy") is ax
    assert group_plot(LOGS, ax, by=list("abc"), marker="s") is ax
    assert forest_plot(LOGS, ax, fmt="s", color="k") is ax


# Groups

PAIRS = ["north: old", "north: new", "south: old", "south: new"]


def rows_of(ax):
    """Group of each bar, by its series."""
    found = {}
    for container in ax.containers:
        heights = [segment[0, 1] for segment in container.lines[2][0].get_segments()]
        found[container.get_label()] = [left(ax)[round(y)] for y in heights]
    return found


NAMINGS = {
    "names": (PAIRS, {}),
    "other names": ([name.replace(": ", " | ") for name in PAIRS], {}),
    "by": (PAIRS, {"by": ["north", "north", "south", "south"]}),
    "by at the end": (
        ["old north", "new north", "old south", "new south"],
        {"by": ["north", "north", "south", "south"]},
    ),
    "series": (PAIRS, {"series": ["old", "new", "old", "new"]}),
    "both": (
        list("abcd"),
        {"by": ["north", "north", "south", "south"], "series": ["old", "new"] * 2},
    ),
    "shuffled": (
        list("abcd"),
        {"by": ["north", "south", "south", "north"], "series": ["old", "new", "old", "new"]},
    ),
}


@pytest.mark.parametrize("name", NAMINGS)
def test_groups_share_rows_and_series_colors(name):
    names, options = NAMINGS[name]
    ax = make([1.0, 2.0, 3.0, 4.0], [0.5] * 4, names).plot(kind="groups", **options)
    found = rows_of(ax)
    assert left(ax) == ["north", "south"]
    assert {kind: sorted(groups) for kind, groups in found.items()} == {
        "old": ["north", "south"],
        "new": ["north", "south"],
    }
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["old", "new"]
    colors = [container.lines[0].get_color() for container in ax.containers]
    assert len(set(colors)) == 2
    heights = [s[0, 1] for c in ax.containers for s in c.lines[2][0].get_segments()]
    assert len(set(np.round(heights, 6))) == 4


def test_bars_of_groups_are_their_own():
    value, names = [1.0, 2.0, 3.0, 4.0], ["b: y", "a: x", "b: x", "a: y"]
    ax = make(value, [0.5] * 4, names).plot(kind="groups")
    drawn = {}
    for container in ax.containers:
        line = container.lines[0]
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True):
            drawn[f"{left(ax)[round(float(y))]}: {container.get_label()}"] = float(x)
    assert drawn == dict(zip(names, value, strict=True))


def test_groups_of_one_have_no_legend():
    ax = make([1.0, 2.0], [0.5, 0.5]).plot(kind="groups", by=["a", "b"])
    assert ax.get_legend() is None
    assert left(ax) == ["a", "b"]


def test_some_groups_may_lack_a_series():
    ax = make([1.0, 2.0, 3.0], [0.5] * 3, PAIRS[:3]).plot(kind="groups")
    assert rows_of(ax) == {"old": ["north", "south"], "new": ["north"]}


# Rows


def test_influential_rows_are_labeled():
    influence = 0.01 * np.random.default_rng(0).normal(size=(50, 1))
    influence[[3, 30], 0] = 1.0, -1.0
    texts = tuple(f"patient {i}" for i in range(50))
    est = Estimate(1.0, [[1.0]], ("x",), "", influence=influence, rows=Rows(50, texts=texts))
    shown = {text.get_text(): text.xy for text in est.plot(kind="influence").texts}
    assert shown["patient 3"] == (3, 1.0)
    assert shown["patient 30"] == (30, -1.0)
    plain = Estimate(1.0, [[1.0]], ("x",), "", influence=influence)
    assert {"3", "30"} <= {text.get_text() for text in plain.plot(kind="influence").texts}
    assert est.plot(kind="influence").get_xlabel() == "training row (position); labels: index"
    assert plain.plot(kind="influence").get_xlabel() == "training row (position)"


# Profiles

X = np.array([-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0])
Y = np.array([0.4, 0.2, 1.1, 0.7, 1.9, 2.4, 3.1, 6.6])


def growth(variance):
    return idm.from_residuals(
        lambda th: Y - th[0] * np.exp(th[1] * X), start=[1.0, 0.5], variance=variance
    )


@pytest.mark.parametrize("levels", [0.95, [0.8, 0.95]])
@pytest.mark.parametrize("variance", ["unbiased", 0.2])
def test_curves_of_a_profile_cross_the_cutoff_at_the_ends(variance, levels):
    profile = idm.profile(growth(variance), lambda th: th[1], levels, name="growth")
    ax = profile.plot()
    curve, parabola = ax.lines[0], ax.lines[1]
    cutoffs = [line.get_ydata()[0] for line in ax.lines if list(line.get_xdata()) == [0, 1]]
    assert len(cutoffs) == len(profile.intervals)
    for (level, interval), cutoff in zip(profile.intervals.items(), cutoffs, strict=True):
        for line, ends in ((curve, interval), (parabola, profile.wald(level))):
            at = np.interp(ends, line.get_xdata(), line.get_ydata())
            np.testing.assert_allclose(at, cutoff, rtol=2e-3)
    marked = [s[0, 0] for c in ax.collections for s in c.get_segments()]
    expected = [e for lv, i in profile.intervals.items() for e in (*i, *profile.wald(lv))]
    np.testing.assert_allclose(sorted(marked), sorted(expected))

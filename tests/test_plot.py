import builtins

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.text import Text

import implicit_delta as idm
from implicit_delta.estimate import Estimate
from implicit_delta.estimate.scales import in_lines, in_one_line, scales
from implicit_delta.plot import band_plot, covariance_plot, interval_plot

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def make(K):
    rng = np.random.default_rng(K)
    root = rng.normal(size=(K, K + 1))
    value = rng.normal(size=K)
    return Estimate(value, root @ root.T, tuple(f"psi[{k}]" for k in range(K)), "by hand")


def bars(ax):
    return np.array([segment[:, 0] for segment in ax.containers[0].lines[2][0].get_segments()])


@pytest.mark.parametrize(
    ("K", "x", "kind"),
    [(1, None, "interval"), (5, None, "interval"), (80, None, "covariance"), (80, True, "band")],
)
def test_the_kind_fits_the_estimate(K, x, kind):
    ax = make(K).plot(x=None if x is None else np.arange(K))
    drawn = {
        "interval": bool(ax.containers),
        "band": len(ax.lines) == 1 and len(ax.collections) == 1,
        "covariance": any(hasattr(c, "get_coordinates") for c in ax.collections),
    }
    assert [name for name, seen in drawn.items() if seen] == [kind]
    ax.figure.canvas.draw()


@pytest.mark.parametrize("simultaneous", [False, True])
def test_interval_plot_draws_the_intervals_in_order(simultaneous):
    est = make(4)
    ax = interval_plot(est, confidence_level=0.8, simultaneous=simultaneous)
    exact = np.transpose(est.confidence_interval(0.8, simultaneous=simultaneous))
    np.testing.assert_allclose(bars(ax), exact)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(est.names)
    assert ax.yaxis_inverted()
    assert ("simultaneous" in ax.get_xlabel()) == simultaneous


def test_interval_plot_of_a_scalar():
    est = Estimate(2.0, [[0.25]], ("cost",), "by hand")
    np.testing.assert_allclose(bars(est.plot()), [est.confidence_interval()])


def test_zero_is_marked_only_when_it_is_in_sight():
    near = Estimate([0.1], [[1.0]], ("a",), "by hand").plot()
    far = Estimate([9.0], [[1.0]], ("a",), "by hand").plot()
    zeros = [[list(line.get_xdata()) == [0.0, 0.0] for line in ax.lines] for ax in (near, far)]
    assert any(zeros[0])
    assert not any(zeros[1])


def test_band_plot_sorts_x():
    est = make(6)
    x = np.array([3.0, 1.0, 2.0, 6.0, 5.0, 4.0])
    ax = band_plot(est, x)
    order = np.argsort(x)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), x[order])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), est.value[order])
    corners = ax.collections[0].get_paths()[0].vertices
    low, high = est.confidence_interval()
    at_two = corners[corners[:, 0] == 2.0][:, 1]
    assert set(at_two) == {low[2], high[2]}


def test_covariance_plot_is_symmetric_around_zero_and_sorted_by_x():
    est = make(6)
    x = np.array([3.0, 1.0, 2.0, 6.0, 5.0, 4.0])
    image = covariance_plot(est, x=x).collections[0]
    order = np.argsort(x)
    np.testing.assert_array_equal(image.get_array(), est.covariance[np.ix_(order, order)])
    assert image.norm.vmax == -image.norm.vmin == np.abs(est.covariance).max()


def test_the_axes_and_the_style_are_the_users():
    _, ax = plt.subplots()
    assert make(3).plot(ax, color="crimson") is ax
    assert ax.containers[0].lines[0].get_color() == "crimson"
    assert make(3).plot(ax, x=[0, 1, 2], color="navy", linestyle="--") is ax
    assert make(3).plot(ax, kind="covariance", cmap="viridis") is ax
    assert plt.get_fignums() == [ax.figure.number]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kind": "violin"}, "'covariance' or 'influence'"),
        ({"kind": "band"}, "needs x"),
        ({"x": np.ones((3, 2))}, "x has shape"),
        ({"x": np.ones(4)}, "x has shape"),
        ({"confidence_level": 95}, "confidence_level"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, text):
    with pytest.raises(ValueError, match=text):
        make(3).plot(**options)


@pytest.mark.parametrize(
    ("value", "error", "groups"),
    [
        ([3.0], [1.0], [[0]]),
        ([0.001, 1e5], [0.0005, 2e4], [[0], [1]]),  # shares and dollars
        ([1e5, 0.3, 2e5, 0.4], [2e4, 0.05, 3e4, 0.04], [[0, 2], [1, 3]]),
        ([40.0, 0.3], [5.0, 0.05], [[0], [1]]),  # years and a probability
        ([1e-8, 0.3, 4e6], [1e-9, 0.05, 1e6], [[0], [1], [2]]),
        (np.arange(0, 101, 10), np.ones(11), [list(range(11))]),  # one unit, sharp
        (np.zeros(30), np.geomspace(1, 100, 30), [list(range(30))]),  # one unit, some sharper
        ([2.0, 1e5], [1.0, 1.0], [[0], [1]]),  # equally sharp, out of each other's sight
        ([0.0, 1e5], [0.0, 2e4], [[0, 1]]),  # known without error: fits anywhere
        ([0.0, 0.0], [0.0, 0.0], [[0, 1]]),
        ([np.nan, 1e5], [np.nan, 2e4], [[0, 1]]),
    ],
)
def test_evaluations_share_an_axis_where_both_can_be_seen(value, error, groups):
    value, error = np.asarray(value, dtype=float), np.asarray(error, dtype=float)
    assert scales(value - 2 * error, value + 2 * error) == groups
    # The unit of everything does not matter.
    assert scales(1e-6 * (value - 2 * error), 1e-6 * (value + 2 * error)) == groups


def mixed(**options):
    error = np.array([2e4, 3e-4, 1e4, 2e-4])
    names = ("revenue", "rate", "a cost with a name that is much too long for one line", "risk")
    return Estimate(
        [1e5, 1e-3, 9e4, 2e-3], np.diag(error) @ (0.5 + 0.5 * np.eye(4)) @ np.diag(error),
        names, "by hand", **options,
    )  # fmt: skip


def test_mixed_units_get_an_axis_each_on_which_every_bar_is_seen():
    est = mixed()
    ax = est.plot()
    ax.figure.canvas.draw()
    axes = ax.figure.axes
    assert ax is axes[0]
    assert len(axes) == 2
    for panel, group in zip(axes, ([0, 2], [1, 3]), strict=True):
        np.testing.assert_allclose(bars(panel), np.transpose(est.confidence_interval())[group])
        assert (np.ptp(bars(panel), axis=1) > np.ptp(panel.get_xlim()) / 20).all()
        labels = [label.get_text() for label in panel.get_yticklabels()]
        assert labels == [in_lines(est.names[k]) for k in group]
    assert [bool(panel.get_xlabel()) for panel in axes] == [False, True]


def test_axes_that_are_given_stay_one():
    figure, ax = plt.subplots()
    for kind in ("interval", "influence"):
        mixed(influence=np.ones((5, 4))).plot(ax, kind=kind)
    assert figure.axes == [ax]


def test_names_are_broken_or_shortened():
    long = "the share of patients who come back within thirty days of a visit in the last year"
    assert max(map(len, in_lines(long).split("\n"))) <= 32
    assert in_lines(long).count("\n") == 2
    assert in_lines("short name") == in_one_line("short name") == "short name"
    assert len(in_one_line(long)) <= 32


def test_a_comparison_of_mixed_units_gets_an_axis_each():
    y = np.random.default_rng(0).poisson(200, size=60).astype(float)
    x = np.linspace(-1, 1, 60)
    model = idm.from_loglik(
        lambda b: y * (b[0] + b[1] * x) - np.exp(b[0] + b[1] * x), start=[5.0, 0.0]
    )
    table = idm.compare(
        model, lambda b: np.array([1e4 * np.exp(b[0]), b[1]]), [idm.Infinitesimal(), idm.profile]
    )
    axes = table.plot().figure.axes
    assert [len(ax.get_yticks()) for ax in axes] == [2, 2]
    assert len(table.plot(plt.subplots()[1]).get_yticks()) == 4


@pytest.mark.parametrize("K", [1, 2, 8, 30])
def test_the_covariance_is_drawn_as_correlations(K):
    est = make(K)
    error = np.sqrt(np.diag(est.covariance))
    ax = est.plot(kind="covariance")
    (image,) = ax.collections
    np.testing.assert_allclose(image.get_array(), est.covariance / np.outer(error, error))
    assert (image.norm.vmin, image.norm.vmax) == (-1, 1)
    assert ax.figure.axes[1].get_ylabel() == "correlation"
    assert np.ptp(image.get_coordinates()[..., 0]) == K  # a cell each, a single one too
    plain = est.plot(kind="covariance", correlation=False).collections[0]
    np.testing.assert_array_equal(plain.get_array(), est.covariance)


def test_what_has_no_error_has_no_correlation():
    est = Estimate([1.0, 2.0], [[1.0, 0.0], [0.0, 0.0]], ("a", "b"), "by hand")
    shown = est.plot(kind="covariance").collections[0].get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(shown), [[False, True], [True, True]])


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("K", [1, 2, 8, 30])
@pytest.mark.parametrize("start", [0, 190, 15_000])
def test_numbers_of_influential_rows_do_not_overlap(K, width, start):
    """The ten are neighbors, of equal influence: at the first rows, the last, and crowded."""
    rng = np.random.default_rng(0)
    influence = 0.01 * rng.normal(size=(max(200, start + 10), K))
    influence[start : start + 10] += 0.3
    est = Estimate(np.zeros(K), np.eye(K), [f"p{k}" for k in range(K)], "", influence=influence)
    figure, ax = plt.subplots(figsize=(width, 0.75 * width), layout="constrained")
    est.plot(ax, kind="influence")
    figure.canvas.draw()
    boxes = [Text.get_window_extent(text) for text in ax.texts]  # without their lines
    assert len(boxes) == 10
    assert not [1 for i, box in enumerate(boxes) for b in boxes[:i] if box.overlaps(b)]


def test_influences_of_mixed_units_get_axes_each():
    influence = np.random.default_rng(0).normal(size=(50, 4)) * [1e3, 1e-5, 1e3, 1e-5]
    ax = mixed(influence=influence).plot(kind="influence")
    assert [len(panel.texts) for panel in ax.figure.axes] == [10, 10]


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    def no_matplotlib(name, *args, real=builtins.__import__, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(ImportError, match=r"implicit-delta\[plot\]"):
        make(3).plot()

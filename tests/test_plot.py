import builtins

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt

from implicit_delta.estimate import Estimate
from implicit_delta.plot import band_plot, covariance_plot, interval_plot


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


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    def no_matplotlib(name, *args, real=builtins.__import__, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(ImportError, match=r"implicit-delta\[plot\]"):
        make(3).plot()

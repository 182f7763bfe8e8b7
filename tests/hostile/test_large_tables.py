"""Figures of very many rows, labels of diagnostics, and names that the package shows."""

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.estimate.diagnostics import Diagnostics

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    from matplotlib import pyplot

    yield
    pyplot.close("all")


def many(K, names=None, **options):
    return idm.Estimate(
        np.arange(1.0, K + 1), np.eye(K), names or tuple(map(str, range(K))), "by hand", **options
    )


def advised(message):
    """Lines in backticks that the message advises."""
    return [part for part in message.split("`")[1::2] if part.startswith("est")]


@pytest.mark.parametrize("options", [{}, {"transform": "exp"}, {"simultaneous": True}])
@pytest.mark.parametrize("kind", ["interval", "forest"])
@pytest.mark.parametrize("K", [201, 1500])
def test_figures_of_very_many_rows_are_refused_with_lines_that_work(K, kind, options):
    est = many(K)
    with pytest.raises(ValueError, match=f"kind='{kind}'.*{K}.*inches") as refused:
        est.plot(kind=kind, **options)
    lines = advised(str(refused.value))
    assert len(lines) == 2
    for line in lines:
        ax = eval(line, {"est": est})
        assert ax.figure.get_size_inches()[1] < 20


@pytest.mark.parametrize("given", [(), ("by",), ("by", "series")])
def test_many_groups_are_refused_too(given):
    K = 600
    est = many(K, tuple(f"g{k // 2}: s{k % 2}" for k in range(K)))
    columns = {"by": [f"g{k // 2}" for k in range(K)], "series": [f"s{k % 2}" for k in range(K)]}
    with pytest.raises(ValueError, match="one row for each of 300") as refused:
        est.plot(kind="groups", **{name: columns[name] for name in given})
    for line in advised(str(refused.value)):
        eval(line, {"est": est, **columns})


def test_figures_of_200_rows_and_axes_that_are_given_are_drawn():
    est = many(200)
    assert len(est.plot(kind="forest").get_yticks()) == 200
    _, ax = matplotlib.pyplot.subplots(figsize=(4, 4))
    assert many(300).plot(ax, kind="interval") is ax
    assert ax.figure.get_size_inches()[1] == 4


@pytest.mark.parametrize("note", ["replicates", "failed", "monte_carlo_error", "one_step_error"])
def test_notes_of_bootstraps_have_a_meaning_where_they_are_printed(note):
    est = many(2, diagnostics=Diagnostics(notes={note: 0.25}))
    line = next(line for line in est.summary().splitlines() if line.startswith(note))
    assert len(line.split()) > 4
    assert note in Diagnostics.__doc__
    assert line.split(maxsplit=2)[2] in est._repr_html_()


def test_the_package_shows_its_public_names_alone():
    idm.infer  # noqa: B018
    assert dir(idm) == sorted([*idm.__all__, "__version__"])

"""Old names work, with a warning that gives the new one and the release in which they go."""

import dataclasses
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta import plot

PAGE = Path(__file__).parents[1] / "docs" / "project" / "migration.md"
Y = np.array([3.0, 0.0, 2.0, 5.0, 1.0, 4.0, 2.0, 3.0])


def model():
    return idm.from_loglik(lambda th: Y * th[0] - np.exp(th[0]), start=[0.0])


def rate(th):
    return np.exp(th[0])


def compared():
    return idm.compare(model(), rate, [idm.Infinitesimal()])


def of_method(method):
    return float(idm.infer(model(), rate, method).standard_error)


def drawn(draw):
    """Lines that are drawn, as text; without matplotlib there are none to compare."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    try:
        return [str(np.round(line.get_xydata(), 6)) for line in draw().lines]
    finally:
        pyplot.close("all")


# As the page writes them: the old call, the new one.
OLD = {
    "FiniteDifference(maximize=)": (
        lambda: of_method(idm.FiniteDifference(maximize=idm.nelder_mead)),
        lambda: of_method(idm.FiniteDifference(maximizer=idm.nelder_mead)),
    ),
    "FiniteDifference().maximize": (
        lambda: idm.FiniteDifference(maximizer=idm.cobyqa).maximize,
        lambda: idm.FiniteDifference(maximizer=idm.cobyqa).maximizer,
    ),
    "Bootstrap(maximize=)": (
        lambda: of_method(idm.Bootstrap(10, rng=0, maximize=idm.lbfgs)),
        lambda: of_method(idm.Bootstrap(10, rng=0, maximizer=idm.lbfgs)),
    ),
    "Bootstrap().maximize": (
        lambda: idm.Bootstrap(maximizer=idm.lbfgs).maximize,
        lambda: idm.Bootstrap(maximizer=idm.lbfgs).maximizer,
    ),
    "polish(maximize=)": (
        lambda: idm.polish(model(), maximize=idm.newton_krylov).theta.tolist(),
        lambda: idm.polish(model(), maximizer=idm.newton_krylov).theta.tolist(),
    ),
    "profile(maximize=)": (
        lambda: idm.profile(model(), rate, maximize=idm.lbfgs).interval,
        lambda: idm.profile(model(), rate, maximizer=idm.lbfgs).interval,
    ),
    "diagnostics.linearity": (
        lambda: idm.infer(model(), rate).diagnostics.linearity,
        lambda: idm.infer(model(), rate).diagnostics.nonlinearity,
    ),
    "Diagnostics(linearity=)": (
        lambda: idm.Diagnostics(linearity=0.5),
        lambda: idm.Diagnostics(nonlinearity=0.5),
    ),
    "plot.comparison_plot(result)": (
        lambda: drawn(lambda: plot.comparison_plot(compared())),
        lambda: drawn(lambda: compared().plot()),
    ),
    "plot.profile_plot(result)": (
        lambda: drawn(lambda: plot.profile_plot(idm.profile(model(), rate))),
        lambda: drawn(lambda: idm.profile(model(), rate).plot()),
    ),
    "Response(linearity=)": (
        lambda: idm.Response(np.eye(1), "mine", linearity=0.5).nonlinearity,
        lambda: idm.Response(np.eye(1), "mine", nonlinearity=0.5).nonlinearity,
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_an_old_name_gives_the_same_and_warns_at_the_line_of_the_user(name):
    old, new = OLD[name]
    word = re.findall(r"\w+", name.removesuffix("(result)"))[-1]
    said = rf"{word}(=|\(result\))? is now called [\w.()]+=?; .* in 0\.3"
    with pytest.warns(DeprecationWarning, match=said):
        found = old()
    assert found == new()


@pytest.mark.parametrize("name", OLD)
def test_the_warning_points_at_the_user(name, recwarn):
    OLD[name][0]()
    told = [entry for entry in recwarn if entry.category is DeprecationWarning]
    assert [entry.filename for entry in told] == [__file__]


@pytest.mark.parametrize("name", OLD)
def test_the_page_has_it(name):
    assert f"`{name}`" in PAGE.read_text()


@pytest.mark.parametrize(
    "call",
    [
        lambda: idm.FiniteDifference(maximizer=idm.lbfgs, maximize=idm.lbfgs),
        lambda: idm.Bootstrap(maximizer=idm.lbfgs, maximize=idm.lbfgs),
        lambda: idm.polish(model(), maximizer=idm.lbfgs, maximize=idm.lbfgs),
        lambda: idm.profile(model(), rate, maximizer=idm.lbfgs, maximize=idm.lbfgs),
        lambda: idm.Diagnostics(linearity=0.1, nonlinearity=0.1),
    ],
)
def test_an_old_name_beside_the_new_one_is_refused(call):
    with pytest.raises(TypeError, match="is the old name of"):
        call()


def test_copies_know_the_new_names_alone():
    """Warnings are errors here: `replace` reads no old name."""
    method = idm.FiniteDifference(maximizer=idm.cobyqa)
    assert dataclasses.replace(method, lam=0.1).maximizer is idm.cobyqa
    assert "maximize" not in inspect.signature(idm.FiniteDifference).parameters


# Arguments by place, as 0.1.0 had them: the second of Simulation was the seed.
PLACES = {
    "Simulation": (idm.Simulation, ["draws", "rng", "curvature", "n_jobs"]),
    "Bootstrap": (
        idm.Bootstrap,
        ["replicates", "kind", "rng", "n_jobs", "maximizer", "curvature", "clusters"],
    ),
    "FiniteDifference": (
        idm.FiniteDifference,
        ["lam", "central", "maximizer", "push", "combine", "curvature", "n_jobs"],
    ),
    "Infinitesimal": (idm.Infinitesimal, ["solver", "curvature", "damping"]),
    "Average": (idm.Average, ["h", "sample"]),
    "Estimate": (idm.Estimate, ["value", "covariance"]),
}


@pytest.mark.parametrize("name", PLACES)
def test_arguments_keep_their_places(name):
    kind, places = PLACES[name]
    parameters = inspect.signature(kind).parameters.values()
    free = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert free[: len(places)] == places


def test_a_seed_by_place_is_a_seed():
    assert idm.Simulation(200, 0) == idm.Simulation(200, rng=0)
    with pytest.raises(TypeError, match="tangent=True"):
        idm.Simulation(200, True)

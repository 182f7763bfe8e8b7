"""Parameters with names: in functions of a user, as psi, in bounds and constraints."""

import copy
import pickle
from collections import namedtuple

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import LinearConstraint, NonlinearConstraint
from scipy.stats import norm

import implicit_delta as idm
from implicit_delta.calculus.tracing import trace
from implicit_delta.models.named_theta import as_named, of_arrays

RNG = np.random.default_rng(0)
X = RNG.normal(size=80)
Y = 2.0 + 0.5 * X + RNG.normal(0.0, 1.5, size=80)
START = {"mu": 0.0, "b": 0.0, "ls": 0.0}
Point = namedtuple("Point", "mu b ls")


def by_place(th):
    return norm.logpdf(Y, th[0] + th[1] * X, np.exp(th[2]))


def by_name(th):
    return norm.logpdf(Y, th.mu + th["b"] * X, np.exp(th.ls))


PLAIN = idm.from_loglik(by_place, start=[0.0, 0.0, 0.0])
NAMED = idm.from_loglik(by_name, start=START)


@pytest.mark.parametrize(
    "given",
    [
        {"start": START},
        {"start": Point(0.0, 0.0, 0.0)},
        {"start": pd.Series(START)},
        {"start": [0.0, 0.0, 0.0], "names": ["mu", "b", "ls"]},
        {"theta": dict(zip(START, PLAIN.theta, strict=True))},
        {"theta": NAMED.theta},
        {"start": START, "names": ["mu", "b", "ls"]},
    ],
    ids=["dict", "named tuple", "series", "names", "theta", "named theta", "both"],
)
def test_every_way_to_give_names_has_the_same_fit(given):
    model = idm.from_loglik(by_name, **given)
    assert model.names == ("mu", "b", "ls")
    np.testing.assert_allclose(model.theta, PLAIN.theta, rtol=1e-9)
    assert model.theta.b == model.theta["b"] == model.theta[1]


PSI = {
    "attributes": (lambda th: th.mu + np.exp(th.ls), lambda th: th[0] + np.exp(th[2])),
    "items": (lambda th: th["mu"] / th["b"], lambda th: th[0] / th[1]),
    "a list": (lambda th: th[["b", "mu"]] ** 2, lambda th: th[[1, 0]] ** 2),
    "a slice": (lambda th: th[1:].sum(), lambda th: th[1:].sum()),
    "all": (lambda th: th * 2, lambda th: th * 2),
    "unpacked": (lambda th: (lambda a, b, c: a * b * c)(*th), lambda th: th.prod()),
    "a copy": (lambda th: th.copy().mu, lambda th: th[0]),
    "numpy": (lambda th: np.dot(th, th), lambda th: th @ th),
}


@pytest.mark.parametrize("case", PSI)
def test_psi_by_name_is_psi_by_place(case):
    named, plain = PSI[case]
    ours, theirs = idm.infer(NAMED, named), idm.infer(PLAIN, plain)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-9)
    np.testing.assert_allclose(ours.standard_error, theirs.standard_error, rtol=1e-6)


@pytest.mark.parametrize("case", [c for c in PSI if c != "unpacked"])
def test_names_are_traced(case):
    psi = PSI[case][0]
    layout = NAMED.space.layout
    traced = trace(lambda th: psi(layout.named(th)), np.array(NAMED.theta))
    assert traced is not None


def test_parameters_by_name_are_those_of_parameters():
    every = idm.infer(NAMED, idm.parameters)
    one, two = idm.infer(NAMED, "b"), idm.infer(NAMED, ["ls", "b"])
    assert np.isscalar(one.value)
    assert one.names == ("b",)
    assert two.names == ("ls", "b")
    assert one.standard_error == pytest.approx(every.standard_error[1], rel=1e-12)
    np.testing.assert_allclose(two.covariance, every.covariance[np.ix_([2, 1], [2, 1])])


@pytest.mark.parametrize(
    "method",
    [None, idm.FiniteDifference(), idm.Simulation(200, rng=0), idm.Bootstrap(30, rng=0)],
    ids=["default", "differences", "simulation", "bootstrap"],
)
def test_every_method_takes_a_name(method):
    ours = idm.infer(NAMED, "b", method)
    theirs = idm.infer(PLAIN, lambda th: th[1], method)
    assert ours.standard_error == pytest.approx(theirs.standard_error, rel=1e-5)


def test_a_profile_takes_a_name():
    ours, theirs = idm.profile(NAMED, "b"), idm.profile(PLAIN, lambda th: th[1])
    np.testing.assert_allclose(ours.interval, theirs.interval, rtol=1e-6)
    assert ours.name == "b"


def test_hosts_take_names_too():
    sm = pytest.importorskip("statsmodels.api")
    frame = pd.DataFrame({"const": 1.0, "x": X})
    results = sm.OLS(Y, frame).fit()
    model = idm.from_statsmodels(results)
    assert idm.infer(model, "x").standard_error == pytest.approx(results.bse["x"])
    with pytest.raises(idm.EvaluationError, match="Did you mean 'const'"):
        idm.infer(model, "Const")


def test_arrays_in_a_dictionary():
    Z = np.column_stack([np.ones(80), X])
    model = idm.from_loglik(
        lambda th: norm.logpdf(Y, Z @ th.beta, np.exp(th.ls)),
        start={"beta": np.zeros(2), "ls": 0.0},
        bounds={"beta": (-10, 10)},
    )
    assert model.names == ("beta[0]", "beta[1]", "ls")
    np.testing.assert_allclose(model.theta, PLAIN.theta, rtol=1e-8)
    np.testing.assert_allclose(model.theta.beta, model.theta[:2])
    assert idm.infer(model, "beta").names == ("beta[0]", "beta[1]")
    assert idm.infer(model, "beta[1]").value == pytest.approx(PLAIN.theta[1])
    slope = idm.infer(model, lambda th: th.beta @ np.array([1.0, 2.0]))
    assert slope.value == pytest.approx(PLAIN.theta[0] + 2 * PLAIN.theta[1])


def test_a_matrix_keeps_its_shape():
    layout = of_arrays({"a": None, "M": (2, 3)})
    theta = layout.named(np.arange(7.0))
    np.testing.assert_array_equal(theta.M, np.arange(1.0, 7.0).reshape(2, 3))
    assert layout.names[3] == "M[0,2]"
    value, slope = trace(lambda th: np.sum(layout.named(th).M @ np.ones(3)), np.arange(7.0))
    assert value == 21
    np.testing.assert_array_equal(slope, [[0, 1, 1, 1, 1, 1, 1]])


def test_scores_penalties_and_constraints_see_names():
    model = idm.from_loglik(
        lambda th: -((Y - th.a - th.b * X) ** 2) / 2,
        start={"a": 0.0, "b": 0.0},
        score=lambda th: (Y - th.a - th.b * X)[:, None] * np.column_stack([np.ones(80), X]),
        penalty=lambda th: th.b**2,
        constraints=[NonlinearConstraint(lambda th: th.a - 2 * th.b, 0.5, 0.5)],
    )
    other = idm.from_loglik(
        lambda th: -((Y - th[0] - th[1] * X) ** 2) / 2,
        start=[0.0, 0.0],
        penalty=lambda th: th[1] ** 2,
        constraints=[LinearConstraint([[1, -2]], 0.5, 0.5)],
    )
    np.testing.assert_allclose(model.theta, other.theta, rtol=1e-6)
    assert model.theta.a - 2 * model.theta.b == pytest.approx(0.5)


def test_residuals_and_equations_see_names():
    line = idm.from_residuals(
        lambda th: Y - th.a - th.b * X,
        start={"a": 0.0, "b": 0.0},
        jacobian=lambda th: -np.column_stack([np.ones(80), X]) * (1 + 0 * th.a),
    )
    roots = idm.from_equations(
        lambda th: (Y - th.a - th.b * X)[:, None] * np.column_stack([np.ones(80), X]),
        start={"a": 0.0, "b": 0.0},
    )
    slope = np.polyfit(X, Y, 1)[0]
    assert idm.infer(line, "b").value == pytest.approx(slope)
    assert idm.infer(roots, lambda th: th.b).value == pytest.approx(slope)


def test_bounds_by_name():
    model = idm.from_loglik(by_name, start=START, bounds={"b": (None, 0.2)})
    other = idm.from_loglik(
        by_place, start=[0, 0, 0], bounds=[(None, None), (None, 0.2), (None,) * 2]
    )
    np.testing.assert_allclose(model.theta, other.theta)
    assert "b <= 0.2" in str(model)


def test_what_is_computed_from_named_parameters_is_plain():
    theta = NAMED.space.layout.named(np.array([1.0, 2.0, 3.0]))
    for made in (theta * 2, theta[1:], theta[["mu", "b"]], np.exp(theta), np.asarray(theta)):
        assert type(made) is np.ndarray
    assert type(theta.sum()) is np.float64
    assert theta[::-1].tolist() == [3.0, 2.0, 1.0]


def test_named_parameters_survive_pickle_and_copy():
    theta = as_named(np.array([1.0, 2.0, 3.0]), NAMED.space.layout)
    assert pickle.loads(pickle.dumps(theta)).b == 2.0
    for again in (theta.copy(), copy.copy(theta), copy.deepcopy(NAMED.at(theta)).theta):
        assert again.ls == 3.0
    assert repr(theta) == "NamedTheta(mu=1.0, b=2.0, ls=3.0)"
    again = pickle.loads(pickle.dumps(theta.copy()))
    again[0] = 7.0
    assert theta.mu == 1.0


def test_a_name_that_arrays_have_is_an_item():
    model = idm.from_loglik(
        lambda th: (
            norm.logpdf(Y, th["mean"] + 0 * th["size"], np.exp(th["T"])) - th["size"] ** 2 / 160
        ),
        start={"mean": 1.0, "T": 0.0, "size": 0.1},
    )
    assert idm.infer(model, "mean").value == pytest.approx(Y.mean())
    total = idm.infer(model, lambda th: np.sum(th) + np.mean(th))
    assert total.value == pytest.approx(4 / 3 * np.asarray(model.theta).sum())


def test_assignment_to_a_name_is_refused():
    with pytest.raises(AttributeError):
        NAMED.theta.mu = 3.0

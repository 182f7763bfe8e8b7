"""Dicts and Series that try to get a number under another name, or none at all."""

from collections import OrderedDict
from types import MappingProxyType

import numpy as np
import pytest

import implicit_delta as idm

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(60), RNG.normal(size=60)])
Y = X @ [1.0, 0.5] + RNG.normal(size=60)
BETA = np.linalg.lstsq(X, Y, rcond=None)[0]
ERRORS = np.sqrt(np.diag(np.linalg.inv(X.T @ X)))
METHODS = {
    "infinitesimal": idm.Infinitesimal(),
    "differences": idm.FiniteDifference(),
    "simulation": idm.Simulation(200, rng=0),
    "bootstrap": idm.Bootstrap(40, rng=0),
    "parallel": idm.Bootstrap(40, rng=0, n_jobs=2),
}


def model():
    return idm.from_loglik(
        lambda b: -((Y - X @ b) ** 2) / 2, BETA, score=lambda b: (Y - X @ b)[:, None] * X
    )


def in_turn(entries, b):
    """Keep the order at the fit, and turn it round on one side of it."""
    return entries if b[0] >= BETA[0] else dict(reversed(entries.items()))


def keyed(b):
    return in_turn({"a": b[0], "b": 50 + 2 * b[1]}, b)


def series(b):
    return pd.Series(in_turn({"a": float(b[0]), "b": 50 + 2 * float(b[1])}, b))


def nested(b):
    return {"all": in_turn({"a": b[0], "b": 50 + 2 * b[1]}, b)}


def nested_series(b):
    return {"all": series(b)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("psi", [keyed, series, nested, nested_series])
def test_numbers_stay_with_their_names(psi, method):
    est = idm.infer(model(), psi, METHODS[method])
    other = idm.infer(model(), lambda b: [b[0], 50 + 2 * b[1]], METHODS[method])
    if psi is not series:
        assert [name.removeprefix("all[").rstrip("]") for name in est.names] == ["a", "b"]
    np.testing.assert_allclose(est.covariance, other.covariance, rtol=1e-5, atol=1e-9)


ACCEPTED = {
    "a proxy": (lambda b: MappingProxyType({"a": b[0]}), ("a",)),
    "an ordered dict": (lambda b: OrderedDict(b=b[0], a=b[1]), ("b", "a")),
    "pairs as keys": (lambda b: {("a", 1): b[0], None: b[1]}, ("('a', 1)", "None")),
    "nested lists": (lambda b: {"a": [[b[0]], (b[1],)]}, ("a[0][0]", "a[1][0]")),
    "an empty key": (lambda b: {"": b[0]}, ("[0]",)),
    "a Series": (lambda b: {"a": pd.Series({"u": float(b[0])})}, ("a[u]",)),
    "brackets": (lambda b: {"a[b": b}, ("a[b[0]", "a[b[1]")),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_dicts_of_other_kinds(name):
    psi, names = ACCEPTED[name]
    est = idm.infer(model(), psi)
    assert est.names == names
    np.testing.assert_allclose(est.standard_error, ERRORS[: len(names)], rtol=1e-6)


REFUSED = {
    "a generator": (lambda b: {"a": (x for x in b)}, "real number"),
    "a set": (lambda b: {"a": {1.0, 2.0}}, "real number"),
    "a function": (lambda b: {"a": len}, "real number"),
    "a frame": (lambda b: {"a": pd.DataFrame({"x": [1.0]})}, "'a' has shape"),
    "dates": (lambda b: {"a": np.array(["2020-01-01"], dtype="M8[D]")}, "real number"),
    "an entry that grows": (
        lambda b: {"a": np.ones(2 if b[0] == BETA[0] else 3) * float(b[0])},
        "other names|same shape",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_dicts_without_an_error_bar(name):
    psi, text = REFUSED[name]
    with pytest.raises(idm.ImplicitDeltaError, match=text):
        idm.infer(model(), psi)


@pytest.mark.parametrize("cut", ["item", "detach"])
def test_an_entry_that_has_lost_its_gradient_is_noticed(cut):
    torch = pytest.importorskip("torch")
    line = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        line.weight[:] = torch.as_tensor(BETA)[None]
    net = idm.from_torch(line, (torch.as_tensor(X), torch.as_tensor(Y)), idm.Gaussian(1.0))
    with pytest.raises(idm.EvaluationError, match="detached"):
        idm.infer(net, lambda m: {"a": m.weight[0, 0], "b": getattr(m.weight[0, 1], cut)()})


def test_a_profile_of_a_dict_is_one_of_each():
    found = idm.profile(model(), keyed)
    assert [each.name for each in found] == list(keyed(model().theta))
    one = idm.profile(model(), lambda theta: keyed(theta)["a"])
    np.testing.assert_allclose(np.ptp(one.interval), 3.92 * ERRORS[0], rtol=1e-3)
    np.testing.assert_allclose(found[0].interval, one.interval, rtol=1e-6)

"""A method of the user's own: what it declares never makes the answer ignore what was requested."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.models.redraws import reweight
from implicit_delta.testing import check_method

N = 60
LABELS = np.repeat(np.arange(12), 5)
OTHER = np.tile(np.arange(5), 12)


def data():
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(N), rng.normal(size=N)])
    effect = np.repeat(rng.normal(size=12), 5)
    return X, X @ [1.0, -1.0] + effect + rng.normal(size=N) * (0.5 + abs(X[:, 1]))


def fitted(**options):
    X, y = data()
    return idm.from_residuals(lambda b: y - X @ b, start=[0.0, 0.0], variance=1.0, **options)


def psi(b):
    return np.array([b[0] + b[1], b[1] - 0.5 * b[0]])


@dataclass(frozen=True, repr=False)
class Own(idm.Method):
    """Any combination of declarations, around the exact response."""

    sandwich: bool = False  # its covariance is the sandwich, of rows or of the clusters it is given
    says_robust: bool = False
    has_directions: bool = True
    whole: bool = False
    clusters: object = None

    def respond(self, model, evaluation):
        response = idm.Infinitesimal().respond(model, evaluation)
        covariance = response.covariance
        if self.sandwich:
            covariance = np.asarray(model.scatter(model.theta, response.directions, self.clusters))
        return replace(
            response,
            covariance=covariance,
            method="own",
            directions=response.directions if self.has_directions else None,
            robust=self.says_robust,
            whole=self.whole,
            exact=False,
            falls={},
        )


class Robust(Own):
    robust = True


class Clustered(Robust):
    def by_clusters(self, clusters):
        return replace(self, clusters=clusters)


DECLARED = {
    f"{kind.__name__}, {sandwich=}, {says_robust=}, {has_directions=}": kind(
        sandwich, says_robust, has_directions
    )
    for kind in (Own, Robust, Clustered)
    for sandwich in (False, True)
    for says_robust in (False, True)
    for has_directions in (False, True)
    # declared robust by both flags, and is not: only `check_method` can find that
    if not (issubclass(kind, Robust) and says_robust and not sandwich)
}
REQUESTED = {
    "robust": {"robust": True},
    "HC1": {"robust": "HC1"},
    "HC3": {"robust": "HC3"},
    "HAC": {"robust": idm.HAC(2)},
    "clusters": {"clusters": LABELS},
    "CR1": {"clusters": LABELS, "robust": "CR1"},
    "CR2": {"clusters": LABELS, "robust": "CR2"},
    "two ways": {"clusters": (LABELS, OTHER)},
    "covariance": {"covariance": np.array([[2.0, 0.3], [0.3, 1.0]])},
}
CONSISTENT = [m for m in DECLARED.values() if m.says_robust or not m.sandwich]
REFUSED = (idm.ImplicitDeltaError, ValueError)


def errors(model, method=None, **requested):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(idm.infer(model, psi, method, **requested).standard_error)


@pytest.mark.parametrize("requested", REQUESTED.values(), ids=REQUESTED)
@pytest.mark.parametrize("method", DECLARED.values(), ids=DECLARED)
def test_what_is_requested_is_honored_or_refused(method, requested):
    expected = errors(fitted(), **requested)
    try:
        found = errors(fitted(), method, **requested)
    except REFUSED:
        return
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_clusters_are_honored_where_the_directions_are_known():
    for method in (Own(), Robust(True, True), Clustered(True, True), Clustered(True, True, False)):
        expected = errors(fitted(), clusters=LABELS)
        np.testing.assert_allclose(errors(fitted(), method, clusters=LABELS), expected, rtol=1e-6)
    with pytest.raises(idm.UnsupportedModelError, match="does not find the direction"):
        errors(fitted(), Robust(True, True, False), clusters=LABELS)
    with pytest.raises(idm.UnsupportedModelError, match="does not find the direction"):
        errors(fitted(), Own(True, True, False), clusters=LABELS)


def test_clusters_of_the_model_and_sampling_weights():
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=N)
    model = fitted(weights=weights, weight_kind="sampling")
    expected = errors(model)
    for method in (Own(), Own(True, True), Own(True, True, False)):
        try:
            np.testing.assert_allclose(errors(model, method), expected, rtol=1e-6)
        except REFUSED:
            assert not method.has_directions


def test_degrees_of_freedom_and_influences():
    for method in CONSISTENT:
        assert idm.infer(fitted(), psi, method, df=7.0).df == 7.0
        if method.has_directions:
            kept = idm.infer(fitted(), psi, method, influence=True).influence
            exact = idm.infer(fitted(), psi, influence=True).influence
            np.testing.assert_allclose(kept, exact, atol=1e-6)
        else:
            with pytest.raises(idm.UnsupportedModelError, match="does not find the direction"):
                idm.infer(fitted(), psi, method, influence=True)


def test_an_average_over_the_training_rows():
    X, _ = data()
    average = idm.Average(lambda b: np.exp(X @ b / 4), sample="training")
    expected = idm.infer(fitted(), average).standard_error
    for method in CONSISTENT:
        if method.has_directions:
            found = idm.infer(fitted(), average, method).standard_error
            assert found == pytest.approx(expected, rel=1e-6)
        else:
            with pytest.raises(idm.UnsupportedModelError, match="does not find the direction"):
                idm.infer(fitted(), average, method)


@dataclass(frozen=True, repr=False)
class Broken(idm.Method):
    """Changes one field of the exact response."""

    change: object

    def respond(self, model, evaluation):
        response = idm.Infinitesimal().respond(model, evaluation)
        return replace(response, method="own", **self.change(response))


WRONG = {
    "directions by rows": lambda r: {"directions": r.directions.T[:, :1]},
    "one direction for two values": lambda r: {"directions": r.directions[:, 0]},
    "directions that are not finite": lambda r: {"directions": r.directions * np.nan},
    "directions of integers in a list": lambda r: {"directions": [[1, 2], [3, 4]]},
    "draws by columns": lambda r: {"draws": np.zeros((2, 50))[:, :3]},
    "draws that are not finite": lambda r: {"draws": np.full((50, 2), np.inf)},
    "one number of acceleration": lambda r: {"acceleration": np.array(0.1)},
    "acceleration of three values": lambda r: {"acceleration": np.zeros(3)},
    "score of another length": lambda r: {"score": np.zeros(3)},
    "negative drift": lambda r: {"drift": -5.0, "directions": None},
    "negative nonlinearity": lambda r: {"nonlinearity": -0.5},
    "negative residual": lambda r: {"residual": -0.1},
    "negative passes": lambda r: {"passes": -3},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_fields_of_wrong_shape_or_sign_are_refused(change):
    for strict in (True, False):
        with pytest.raises(ValueError, match="own returned"):
            idm.infer(fitted(), psi, Broken(change), strict=strict)


@pytest.mark.parametrize("units", [(1.0, 1.0), (1e-9, 1e9), (1e6, 1e6)])
@pytest.mark.parametrize("correlation", [1.5, -1.1, 1.06])
def test_a_covariance_that_is_not_positive_is_warned_about(units, correlation):
    def change(response):
        V = np.array([[1.0, correlation], [correlation, 1.0]])
        return {"covariance": V * np.outer(units, units), "directions": None, "falls": {}}

    with pytest.warns(idm.ImplicitDeltaWarning, match="not positive semi-definite"):
        found = idm.infer(fitted(), psi, Broken(change))
    V = found.covariance / np.outer(units, units)
    assert np.linalg.eigvalsh(V)[0] > -1e-12
    assert V[0, 0] == pytest.approx((1 + abs(correlation)) / 2)  # the same in all units


@pytest.mark.parametrize("correlation", [1.0, 1 + 1e-13, 0.99, -1.0])
def test_rounding_below_zero_is_not(correlation):
    def change(response):
        V = np.array([[1.0, correlation], [correlation, 1.0]])
        return {"covariance": V, "directions": None, "falls": {}}

    idm.infer(fitted(), psi, Broken(change))


# `check_method` finds what no assembly can: a method that is not what it declares


class Believing(Robust):
    """Declares the model's own covariance robust."""


class OfRows(Robust):
    """Declares to account for clusters, and does not."""

    def by_clusters(self, clusters):
        return self


@dataclass(frozen=True, repr=False)
class Unweighted(idm.Method):
    def respond(self, model, evaluation):
        return idm.Infinitesimal().respond(reweight(model, np.ones(model.n)), evaluation)


LIES = {
    "robust": (Believing(False, True), "robust"),
    "robust without directions": (Believing(False, True, False), "robust"),
    "clusters": (OfRows(True, True), "clusters"),
    "clusters without directions": (OfRows(True, True, False), "clusters"),
    "the sample": (Own(whole=True), "sample"),
    "weights": (Unweighted(), "Unweighted"),
    "directions, by a factor": (Broken(lambda r: {"directions": 2 * r.directions}), "robust"),
    "directions, by their sign": (Broken(lambda r: {"directions": -r.directions}), "influence"),
}


@pytest.mark.parametrize(("method", "text"), LIES.values(), ids=LIES)
def test_a_method_that_is_not_what_it_declares_is_found(method, text):
    with pytest.raises(AssertionError, match=text):
        check_method(method)


@pytest.mark.parametrize(
    "method",
    [Own(), Own(has_directions=False), Clustered(True, True), Clustered(True, True, False)],
    ids=["plain", "no directions", "robust", "robust, no directions"],
)
def test_methods_that_are_what_they_declare_pass(method):
    check_method(method)

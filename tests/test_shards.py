"""A model over shards is the model of all rows: every question has the same answer."""

import pickle

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.core.clusters import Clusters
from implicit_delta.models.batches import batch_score
from implicit_delta.models.printing import log_likelihood_of
from implicit_delta.models.redraws import reweight
from implicit_delta.models.sharded.engine import bytes_of
from implicit_delta.models.sharded.serial import Serial
from implicit_delta.models.shards import model_over
from implicit_delta.testing import check_model

EXACT = 1e-10  # of a standard error: sums in another order
SETTLED = 1e-6  # where a search ends within its tolerance, or derivatives are by differences

rng = np.random.default_rng(20)
N = 160
X = np.column_stack([np.ones(N), rng.normal(size=(N, 2))])
COUNTS = rng.poisson(np.exp(X @ [0.4, 0.3, -0.2])).astype(float)
VALUES = X @ [1.0, 2.0, -1.0] + rng.normal(size=N)
CLASSES = (VALUES > 1).astype(int)
WEIGHTS = rng.integers(1, 4, N).astype(float)
VILLAGE = rng.integers(0, 30, N)  # labels that are in several shards
GROUP = rng.integers(0, 3, N)
CUTS = {1: [], 2: [37], 5: [9, 40, 41, 120]}  # uneven; one part has a single row


def rows_of(k):
    return [slice(a, b) for a, b in zip([0, *CUTS[k]], [*CUTS[k], N], strict=True)]


def poisson(rows, theta, **options):
    A, y = X[rows], COUNTS[rows]
    return idm.from_loglik(
        lambda t: y * (A @ t) - np.exp(A @ t),
        theta,
        score=lambda t: (y - np.exp(A @ t))[:, None] * A,
        weights=WEIGHTS[rows],
        **options,
    )


def penalized(rows, theta):
    return poisson(rows, theta, l2=0.7, penalty=lambda t: 3 * (t[1] - 0.2) ** 2)


def scoreless(rows, theta):
    A, y = X[rows], COUNTS[rows]
    return idm.from_loglik(lambda t: y * (A @ t) - np.exp(A @ t), theta)


def residuals(variance="mle", l2=0.0, kind="frequency"):
    def make(rows, theta):
        A, y = X[rows], VALUES[rows]
        return idm.from_residuals(
            lambda b: y - A @ b,
            theta,
            jacobian=lambda b: -A,
            variance=variance,
            l2=l2,
            weights=WEIGHTS[rows],
            weight_kind=kind,
        )

    return make


MAKERS = {
    "score": poisson,
    "penalty": penalized,
    "mle": residuals(),
    "number": residuals(0.8),
    "ridge": residuals(l2=2.0),
    "precision": residuals(0.8, kind="precision"),
    "sampling": residuals(kind="sampling"),
}


def fitted(make):
    """The model of all rows at its maximum, and its parameters."""
    theta = np.asarray(idm.polish(make(slice(None), np.full(3, 0.1))).theta)
    theta = np.asarray(idm.polish(make(slice(None), theta)).theta)  # with its noise variance
    return make(slice(None), theta), theta


@pytest.fixture(scope="module", params=MAKERS)
def pair(request):
    make = MAKERS[request.param]
    one, theta = fitted(make)
    return one, {k: idm.from_shards(lambda rows: make(rows, theta), rows_of(k)) for k in CUTS}


def ratio_of(theta):
    return np.exp(theta[0] + theta[1] / 4)


def same(one, many, tolerance=EXACT):
    assert one.value == pytest.approx(many.value, rel=tolerance, abs=tolerance)
    assert np.all(one.standard_error > 0)
    errors = np.sqrt(np.diag(one.covariance))
    gap = abs(one.covariance - many.covariance) / np.outer(errors, errors)
    assert np.max(gap) < tolerance
    low, high = one.confidence_interval(), many.confidence_interval()
    assert np.max(abs(np.subtract(low, high)) / errors) < 10 * tolerance
    if many.influence is not None:  # which leave the shards only where they are asked for
        assert np.max(abs(one.influence - many.influence) / errors) < tolerance


QUESTIONS = {
    "default": {},
    "hessian": {"method": idm.Infinitesimal()},
    "conjugate": {"method": idm.Infinitesimal(solver=idm.conjugate_gradient(rtol=1e-13))},
    "robust": {"robust": True},
    "HC1": {"robust": "HC1"},
    "clusters": {"clusters": VILLAGE},
    "two ways": {"clusters": (VILLAGE, np.arange(N) % 25)},
    "influence": {"influence": True},
    "finite": {"method": idm.FiniteDifference()},
    "draws": {"method": idm.Simulation(50, rng=0)},
}


@pytest.mark.parametrize("k", CUTS)
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_infer_is_that_of_all_rows(pair, question, k):
    one, many = pair
    tolerance = 1e-8 if question in ("finite", "conjugate") else EXACT
    options = QUESTIONS[question]
    found = idm.infer(many[k], ratio_of, **options)
    same(idm.infer(one, ratio_of, **options), found, tolerance)
    assert question != "influence" or found.influence.shape == (N, 1)


@pytest.mark.parametrize("k", CUTS)
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_profile_and_polish_are_those_of_all_rows(pair, k):
    one, many = pair
    if one.weights.kind == "sampling":
        pytest.skip("weights of a population have no likelihood ratio")
    a, b = (idm.profile(model, ratio_of).interval for model in (one, many[k]))
    assert np.max(abs(np.subtract(a, b))) < EXACT
    away = one.theta + 0.1
    a, b = (idm.polish(model.at(away)).theta for model in (one, many[k]))
    assert np.max(abs(a - b)) < 1e-9


@pytest.mark.parametrize("k", CUTS)
@pytest.mark.parametrize(
    "method",
    [
        idm.Bootstrap(12, rng=3),
        idm.Bootstrap(12, kind="bayesian", rng=3),
        idm.StochasticFiniteDifference(1.0, 0.05, batch_size=20, steps=40, samples=2, rng=0),
    ],
    ids=lambda method: repr(method)[:22],
)
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_random_methods_do_not_depend_on_the_shards(method, k):
    one, theta = fitted(penalized)
    many = idm.from_shards(lambda rows: penalized(rows, theta), rows_of(k))
    same(idm.infer(one, ratio_of, method), idm.infer(many, ratio_of, method), SETTLED)


@pytest.mark.parametrize("robust", ["HC2", "HC3", "CR2"])
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_leverages_are_those_of_all_rows(robust):
    one, theta = fitted(MAKERS["mle"])
    many = idm.from_shards(lambda rows: MAKERS["mle"](rows, theta), rows_of(5))
    clusters = VILLAGE if robust == "CR2" else None
    ask = {"robust": robust, "clusters": clusters}
    same(idm.infer(one, ratio_of, **ask), idm.infer(many, ratio_of, **ask))


def test_an_unbiased_variance_counts_the_parameters_once():
    make, rows = residuals("unbiased"), [slice(0, 50), slice(50, 61), slice(61, N)]
    theta = np.linalg.lstsq(np.sqrt(WEIGHTS)[:, None] * X, np.sqrt(WEIGHTS) * VALUES, rcond=None)[0]
    one, many = make(slice(None), theta), idm.from_shards(lambda part: make(part, theta), rows)
    assert many.facts.df == pytest.approx(one.facts.df, rel=1e-12)
    assert one.facts.df == WEIGHTS.sum() - 3
    same(idm.infer(one, ratio_of), idm.infer(many, ratio_of))


@pytest.mark.parametrize("k", CUTS)
def test_numerical_derivatives_are_good_to_their_own_error(k):
    one, theta = fitted(scoreless)
    rows = rows_of(k)
    many = idm.from_shards(lambda part: scoreless(part, theta), rows)
    same(idm.infer(one, ratio_of), idm.infer(many, ratio_of), SETTLED)


def average(theta, rows=slice(None)):
    return np.exp(X[rows] @ theta)


def two(theta, rows=slice(None)):
    return np.column_stack([np.exp(X[rows] @ theta), X[rows] @ theta])


def spread(units, weight):
    return float(np.sqrt(np.average(units**2, weights=weight)))


WRAPPERS = {
    "average": lambda h, sample: idm.Average(h(average), sample),
    "two": lambda h, sample: idm.Average(h(two), sample),
    "by": lambda h, sample: idm.Average(h(average), sample, by=GROUP),
    "total": lambda h, sample: idm.Average(h(average), sample, total=True),
    "statistic": lambda h, sample: idm.Statistic(h(average), spread, sample),
    "smoothed": lambda h, sample: idm.Smoothed(idm.Average(h(average), sample), rng=0),
}


@pytest.mark.parametrize("k", CUTS)
@pytest.mark.parametrize("sample", ["independent", "training", "unknown"])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_units_may_live_on_shards(wrapper, sample, k):
    one, theta = fitted(poisson)
    many = idm.from_shards(lambda rows: poisson(rows, theta), rows_of(k))
    wrap = WRAPPERS[wrapper]
    whole = idm.infer(one, wrap(lambda h: lambda theta: h(theta), sample))
    same(whole, idm.infer(many, wrap(idm.on_shards, sample)))
    same(whole, idm.infer(many, wrap(lambda h: lambda theta: h(theta), sample)))


def test_units_on_shards_need_shards():
    one, _ = fitted(poisson)
    with pytest.raises(TypeError, match="has none"):
        idm.infer(one, idm.Average(idm.on_shards(average)))


def test_a_bootstrap_weighs_units_on_shards():
    one, theta = fitted(poisson)
    many = idm.from_shards(lambda rows: poisson(rows, theta), rows_of(5))
    method = idm.Bootstrap(8, rng=1)
    whole = idm.infer(one, idm.Average(average, "training"), method)
    same(whole, idm.infer(many, idm.Average(idm.on_shards(average), "training"), method), SETTLED)


@pytest.mark.parametrize("make", [poisson, penalized, MAKERS["mle"]])
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_the_contract_holds(make):
    _, theta = fitted(make)
    many = idm.from_shards(lambda rows: make(rows, theta), [slice(0, 50), slice(50, N)])
    check_model(many, ratio_of)


@pytest.mark.parametrize("keep", [0, 3000, np.inf])
def test_memory_changes_nothing_but_the_number_of_builds(keep):
    one, theta = fitted(poisson)
    built = []

    def build(rows):
        built.append(rows)
        A, y, w = X[rows].copy(), COUNTS[rows].copy(), WEIGHTS[rows].copy()
        return idm.from_loglik(
            lambda t: y * (A @ t) - np.exp(A @ t),
            theta,
            score=lambda t: (y - np.exp(A @ t))[:, None] * A,
            weights=w,
        )

    many = idm.from_shards(build, rows_of(5), keep=keep)
    same(idm.infer(one, ratio_of), idm.infer(many, ratio_of))
    first = built.count(rows_of(5)[0])
    last = built.count(rows_of(5)[-1])
    assert {0: first == 1 < last, 3000: first == 1 < last, np.inf: first == last == 1}[keep]


def test_equal_clusters_are_added_up_by_label():
    """With clusters that are the shards the sums differ, with those across them they do not."""
    one, theta = fitted(poisson)
    many = idm.from_shards(lambda rows: poisson(rows, theta), rows_of(2))
    labels = np.array([f"village {v}" for v in VILLAGE])
    v = np.eye(3)[:, :2]
    found = Clusters.of(labels, one.weights.values)
    assert np.allclose(many.scatter(theta, v, found), one.scatter(theta, v, found), rtol=1e-12)
    apart = sum(
        part.scatter(theta, v, Clusters.of(labels[rows], part.weights.values))
        for rows in rows_of(2)
        for part in [poisson(rows, theta)]
    )
    assert not np.allclose(apart, one.scatter(theta, v, found), rtol=1e-3)


def test_names_and_bounds_travel():
    y = COUNTS

    def build(rows):
        return idm.from_loglik(
            lambda th: y[rows] * np.log(th.rate + th.offset) - th.rate - th.offset,
            theta={"rate": y.mean() - 0.5, "offset": 0.5},
            bounds={"rate": (0, None), "offset": (0.5, 0.5)},
        )

    one = build(slice(None))
    many = idm.from_shards(build, rows_of(2))
    assert many.names == ("rate", "offset")
    same(idm.infer(one, "rate"), idm.infer(many, "rate"), SETTLED)


def test_compare_and_summary_and_print():
    one, theta = fitted(poisson)
    many = idm.from_shards(lambda rows: poisson(rows, theta), rows_of(5))
    methods = [idm.Infinitesimal(), idm.FiniteDifference()]
    a, b = (idm.compare(model, ratio_of, methods) for model in (one, many))
    for own, other in zip(a.rows, b.rows, strict=True):
        assert other.std_error == pytest.approx(own.std_error, rel=1e-8)
    assert "5 of from_loglik, 1 to 79 rows each" in str(many)
    assert log_likelihood_of(many) == pytest.approx(log_likelihood_of(one), rel=1e-12)


def test_numbers_that_travel_are_reported():
    _, theta = fitted(poisson)
    many = idm.from_shards(lambda rows: poisson(rows, theta), rows_of(5))
    found = idm.infer(many, ratio_of).diagnostics
    assert (found.notes["shards"], found.notes["sent"], found.notes["received"]) == (5, 0, 0)
    assert found.passes > 0


class Posted(Serial):
    """An engine whose questions and answers are pickled on their way, as between processes."""

    def each(self, ask, *arguments, shares=None, name=True):
        ask, arguments = self._sent((ask, arguments))
        shares = None if shares is None else self._sent(list(shares))
        for answer in super().each(ask, *arguments, shares=shares, name=name):
            posted = pickle.dumps(answer)
            self.traffic.received += len(posted)
            yield pickle.loads(posted)

    def _sent(self, letter):
        posted = pickle.dumps(letter)
        self.traffic.sent += len(posted)
        return pickle.loads(posted)


@pytest.mark.parametrize(
    "question", [{}, {"robust": True}, {"method": idm.FiniteDifference()}], ids=str
)
def test_questions_travel_by_name_and_their_size_is_that_of_the_parameters(question):
    received = []
    for repeated in (1, 20):  # the same rows again: only n grows, and weights of one
        rows = [np.tile(np.arange(N)[part], repeated) for part in rows_of(5)]
        build = Build(np.asarray(fitted(scoreless)[1]))
        model = model_over(Posted(build, tuple(rows)))
        found = idm.infer(model, ratio_of, **question).diagnostics
        received.append(found.notes["received"] / found.passes)  # a climb takes more or fewer
        assert found.notes["sent"] > 0
    assert received[0] > 0
    assert received[1] < 1.5 * received[0]


class Build:
    """A function of a part that can be pickled."""

    def __init__(self, theta):
        self.theta = theta

    def __call__(self, rows):
        A, y = X[rows], COUNTS[rows]
        return idm.from_loglik(_Terms(A, y), self.theta)


class _Terms:
    def __init__(self, A, y):
        self.A, self.y = A, y

    def __call__(self, t):
        return self.y * (self.A @ t) - np.exp(self.A @ t)


def test_a_pickled_model_builds_again():
    _, theta = fitted(scoreless)
    many = idm.from_shards(Build(theta), rows_of(2))
    again = pickle.loads(pickle.dumps(many))
    same(idm.infer(many, ratio_of), idm.infer(again, ratio_of), 1e-14)


def test_rows_that_are_all_left_out_leave_the_penalty():
    """A replicate may have no row of a shard, also not of the one that has the penalty."""
    one, theta = fitted(penalized)
    many = idm.from_shards(lambda rows: penalized(rows, theta), rows_of(5))
    for empty in (slice(0, 9), slice(40, 41)):
        weights = one.weights.values.copy()
        weights[empty] = 0.0
        a, b = reweight(one, weights), reweight(many, weights)
        near = theta + 0.1
        assert b.objective(near) == pytest.approx(a.objective(near), rel=1e-12)
        assert np.allclose(b.score(near), a.score(near), rtol=1e-10)
        v = np.eye(3)
        assert np.allclose(b.information(near, v), a.information(near, v), rtol=1e-8)
        assert np.allclose(b.scatter(near, v), a.scatter(near, v), rtol=1e-12)
        back = reweight(b, one.weights.values)
        assert back.objective(near) == pytest.approx(one.objective(near), rel=1e-12)


YES = (VALUES > 1).astype(float)


def logit(rows, theta=(0.2, 0.3, -0.1), scored=True, **options):
    A, y = X[rows], YES[rows]
    score = (lambda t: (y - 1 / (1 + np.exp(-A @ t)))[:, None] * A) if scored else None
    return idm.from_loglik(
        lambda t: y * (A @ t) - np.logaddexp(0, A @ t), theta, score=score, **options
    )


THIRDS = [slice(0, 50), slice(50, 61), slice(61, N)]
HELD = {
    "fixed": (lambda model: model.fix({1: 0.5}), {}),
    "two, one released": (lambda model: model.fix({1: 0.5, 2: 0.1}).release(2), {}),
    "all released": (lambda model: model.fix({1: 0.5}).release(), {}),
    "with a ridge": (lambda model: model.fix({1: 0.5}), {"l2": 1.5}),
    "with a penalty": (lambda model: model.fix({1: 0.5}), {"penalty": lambda t: (t[2] - 1) ** 2}),
    "at a bound": (lambda model: model, {"bounds": [(None, None), (None, 0.5), (None, None)]}),
    "by differences": (lambda model: model.fix({1: 0.5}), {"scored": False}),
    "weighted": (lambda model: reweight(model.fix({1: 0.5}), WEIGHTS), {}),
}


@pytest.mark.parametrize("name", HELD)
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_parameters_are_fixed_over_shards_as_in_one_process(name):
    change, options = HELD[name]
    found = []
    for model in (
        logit(slice(None), **options),
        idm.from_shards(lambda rows: logit(rows, **options), THIRDS),
    ):
        held = idm.polish(change(idm.polish(model)))
        found.append((held.theta, held.space.fixed, idm.infer(held, idm.parameters).covariance))
    one, many = found
    assert one[1] == many[1]
    np.testing.assert_allclose(many[0], one[0], atol=SETTLED)
    np.testing.assert_allclose(many[2], one[2], atol=SETTLED * np.max(one[2]))


def test_shards_may_have_some_of_the_parameters_each():
    """Two data sets with one parameter in common, and the function of both."""
    names, rows = [("a", "b"), ("c", "b")], [slice(0, 70), slice(70, N)]
    weights = WEIGHTS.astype(float)

    def build(part, own):
        A, y = X[part][:, :2], COUNTS[part]
        return idm.from_loglik(
            lambda t: y * (A @ t[:2]) - np.exp(A @ t[:2]),
            start=dict.fromkeys(own, 0.0),
            score=lambda t: (y - np.exp(A @ t[:2]))[:, None] * A,
            weights=weights[part],
        )

    def whole(t):
        eta = np.concatenate([X[rows[0]][:, :2] @ t[[0, 1]], X[rows[1]][:, :2] @ t[[2, 1]]])
        return COUNTS * eta - np.exp(eta)

    many = idm.combine(*map(build, rows, names))
    assert many.names == ("a", "b", "c")
    theta = np.array(many.theta)
    one = idm.from_loglik(whole, theta, weights=weights)
    v, near = np.eye(3), theta + 0.05
    clusters = Clusters.of(VILLAGE, weights)
    rng = np.random.default_rng(1)
    for a, b in ((one, many), (reweight(one, weights[::-1]), reweight(many, weights[::-1]))):
        assert b.objective(near) == pytest.approx(a.objective(near), rel=1e-12)
        np.testing.assert_allclose(b.score(near), a.score(near), rtol=1e-7)
        curved = b.information(near, v), a.information(near, v)
        np.testing.assert_allclose(*curved, rtol=1e-5, atol=1e-9)  # zeros to rounding
        for groups in (None, clusters):
            np.testing.assert_allclose(
                b.scatter(near, v, groups), a.scatter(near, v, groups), rtol=1e-7
            )
        batch = rng.integers(N, size=30)
        np.testing.assert_allclose(
            batch_score(b, near, batch), batch_score(a, near, batch), rtol=1e-6
        )
    a, b = (idm.infer(idm.polish(m).fix({1: 0.1}), lambda t: t[[0, 2]]) for m in (one, many))
    same(a, b, 1e-5)


def test_clusters_send_the_sums_of_those_that_a_shard_has():
    """However many clusters there are: two shards with three rows each have three at most."""
    _, theta = fitted(poisson)
    received = []

    class Spied(Serial):
        def each(self, ask, *arguments, **options):
            for answer in super().each(ask, *arguments, **options):
                received.append(bytes_of(answer))
                yield answer

    few = [slice(0, 3), slice(3, 6)]
    model = model_over(Spied(lambda rows: poisson(rows, theta), tuple(few)))
    clusters = Clusters(np.arange(6) * 10**7, 10**8)
    received.clear()
    found = model.scatter(theta, np.eye(3), clusters)
    one = model.scatter(theta, np.eye(3), Clusters(np.arange(6), 6))
    np.testing.assert_allclose(found, one, rtol=1e-12)
    assert received[:2] == [3 * 8 * (1 + 3)] * 2


def test_weights_travel_once():
    """Weights that the shards have are sent neither with a score nor with a scatter."""
    sent = []

    class Spied(Serial):
        def each(self, ask, *arguments, shares=None, name=True):
            sent.append(bytes_of(list(arguments)) + bytes_of(shares or []))
            yield from super().each(ask, *arguments, shares=shares, name=name)

        def changed(self, change, shares):
            sent.append(bytes_of(list(shares)))
            return super().changed(change, shares)

    _, theta = fitted(poisson)
    model = model_over(Spied(lambda rows: poisson(rows, theta), tuple(rows_of(2))))
    sent.clear()
    other = reweight(model, np.arange(1.0, N + 1))
    assert sent == [8 * N]
    sent.clear()
    for asked in (model, other):
        asked.score(theta)
        asked.scatter(theta, np.eye(3))
        asked.information(theta, np.eye(3))
    assert max(sent) <= 8 * (3 + 9) + 2 * 8  # theta and directions, and a factor for each shard


@pytest.mark.parametrize("l2", [0.0, 2.0])
@pytest.mark.parametrize("variance", ["mle", "unbiased", 0.8])
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_a_fixed_parameter_does_not_count_for_the_variance_of_the_noise(variance, l2):
    make, start = residuals(variance, l2), np.full(3, 0.5)
    one = make(slice(None), start)
    many = idm.from_shards(lambda rows: make(rows, start), THIRDS)
    found = []
    for model in (one, many):
        held = idm.polish(idm.polish(model).fix({1: 1.5}))
        estimate = idm.infer(held, idm.parameters)
        found.append((held.theta, held.facts.df, np.sqrt(np.diag(estimate.covariance))))
    for own, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, own, rtol=SETTLED, atol=SETTLED)


@pytest.mark.filterwarnings("ignore:The estimate is close to a limit")
@pytest.mark.parametrize("bound", [0.0, 0.1, -1.0])
def test_a_bound_that_holds_the_whole_need_not_hold_a_part(bound):
    rng = np.random.default_rng(5)
    x = np.column_stack([np.ones(90), rng.normal(size=(90, 2))])
    y = rng.poisson(np.exp(x @ [0.2, 0.3, -0.1]))

    def loglik(rows):
        return lambda th: y[rows] * (x[rows] @ th) - np.exp(x[rows] @ th)

    bounds = [(None, None), (None, None), (bound, None)]
    whole = idm.from_loglik(loglik(slice(None)), start=[0, 0, 0.2], bounds=bounds)
    build = lambda part: idm.from_loglik(loglik(part), theta=whole.theta, bounds=bounds)
    parts = idm.from_shards(build, [slice(0, 40), slice(40, 90)])
    found, expected = (idm.infer(m, idm.parameters, strict=False) for m in (parts, whole))
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-5)
    away = np.array(whole.theta) + np.array([0.5, 0.5, 0.0])
    elsewhere = lambda part: idm.from_loglik(loglik(part), theta=away, bounds=bounds)
    if bound >= 0:  # what is no maximum of the whole is refused as of one process
        with pytest.raises(idm.ConvergenceError, match="not a maximum under its constraints"):
            idm.from_shards(elsewhere, [slice(0, 40), slice(40, 90)])


@pytest.mark.parametrize("variance", ["unbiased", "mle", 0.5])
def test_likelihood_ratios_of_residuals_are_those_of_the_whole(variance):
    """One variance is estimated from all parts, and counts as a parameter of the whole."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=60)
    y = 1.0 + 0.3 * x + rng.normal(0, 0.7, 60)

    def fitted(rows, **options):
        return idm.from_residuals(
            lambda th: y[rows] - th.a - th.b * x[rows], variance=variance, **options
        )

    whole = fitted(slice(None), start={"a": 0.0, "b": 0.0})
    at = dict(zip(whole.names, np.asarray(whole.theta), strict=True))
    parts = [slice(0, 13), slice(13, 60)]
    shards = idm.from_shards(lambda rows: fitted(rows, theta=at), parts)
    assert shards.aic == pytest.approx(whole.aic, rel=1e-8)
    ours, theirs = (idm.likelihood_ratio(m.fix(b=0.0), m) for m in (shards, whole))
    assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-6)
    assert ours.p_value == pytest.approx(theirs.p_value, rel=1e-5)
    assert [test.name for test in ours.tests] == [test.name for test in theirs.tests]

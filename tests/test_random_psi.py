"""Evaluations that are random themselves."""

import functools
import heapq

import numpy as np
import pytest
from opaque import steps
from scipy import optimize

import implicit_delta as idm
from implicit_delta.evaluation.replicated import accepts_rng

METHODS = [
    idm.Infinitesimal(),
    idm.FiniteDifference(),
    idm.FiniteDifference(maximizer=idm.nelder_mead),
    idm.Simulation(draws=200, rng=0),
]


@pytest.fixture
def model():
    return steps()[0]


def noisy(b, rng):
    return 3 * b[0] + b[1] + 0.5 * rng.normal()


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_common_seeds_cancel_in_differences(model, method):
    """The noise is a thousand times the response, and the response is exact all the same."""
    loud = lambda b, rng: 3 * b[0] + b[1] + 100 * rng.normal()
    est = idm.infer(model, loud, method)
    exact = idm.infer(model, lambda b: 3 * b[0] + b[1])
    assert est.budget["model"] == pytest.approx(exact.standard_error, rel=0.01)
    assert est.budget["noise"] > 30 * est.budget["model"]  # of ten draws it is known to a quarter


@pytest.mark.slow
def test_noise_is_the_error_of_the_mean(model):
    """Of R repeats the noise is 0.5 / sqrt(R), known to 1 / sqrt(2 R)."""
    repeats = 400
    est = idm.infer(model, idm.Replicated(noisy, repeats=repeats, rng=0))
    assert est.budget["noise"] == pytest.approx(0.5 / 20, rel=3 / np.sqrt(2 * repeats))
    assert est.standard_error == pytest.approx(np.hypot(est.budget["model"], est.budget["noise"]))
    assert "noise" in est.summary()
    assert abs(est.value) < 4 * est.budget["noise"]  # the expectation is 0


def test_noise_adds_to_the_sampling_error_of_an_average(model):
    rows = np.random.default_rng(0).normal(size=(300, 3))
    h = lambda b, rng: np.maximum(rows @ b, -0.5) + 0.1 * rng.normal(size=300)
    est = idm.infer(model, idm.Replicated(idm.Average(h), repeats=20, rng=0))
    assert list(est.budget) == ["model", "evaluation", "noise", "total"]
    squares = [est.budget[part] ** 2 for part in ("model", "evaluation", "noise")]
    assert est.standard_error == pytest.approx(np.sqrt(sum(squares)))
    assert est.budget["noise"] == pytest.approx(0.1 / np.sqrt(300 * 20), rel=0.5)


def test_joint_noise(model):
    common = lambda b, rng: np.array([b[0], b[1]]) + rng.normal()
    est = idm.infer(model, idm.Replicated(common, repeats=50, rng=1))
    noise = est.parts["noise"]
    np.testing.assert_allclose(noise, noise[0, 0], rtol=1e-9)  # perfectly correlated


@pytest.mark.slow
def test_coverage_with_noise():
    """95 % intervals of 400 trials: the binomial error is 1.1 %, three of them are allowed."""
    rng = np.random.default_rng(5)
    psi = lambda m, rng: m[0] + 0.5 * rng.normal()
    covered = []
    for trial in range(400):
        y = rng.normal(size=50)
        model = idm.from_loglik(
            lambda m, y=y: -((y - m[0]) ** 2) / 2,
            [y.mean()],
            score=lambda m, y=y: (y - m[0])[:, None],
        )
        low, high = idm.infer(
            model, idm.Replicated(psi, repeats=30, rng=trial)
        ).confidence_interval()
        covered.append(low < 0.0 < high)
    assert abs(np.mean(covered) - 0.95) < 0.033


@pytest.mark.slow
def test_smoothing_a_random_step_function(model):
    def arrivals(b, rng):
        return np.mean(rng.uniform(-1, 1, size=2000) < b[0])

    _, _, exact = steps()
    est = idm.infer(model, idm.Smoothed(idm.Replicated(arrivals, repeats=5, rng=0), rng=0))
    assert est.budget["model"] == pytest.approx(exact, rel=0.05)
    assert est.budget["noise"] == pytest.approx(0.5 / np.sqrt(10_000), rel=0.8)


def test_percentiles_contain_the_noise(model):
    est = idm.infer(model, idm.Replicated(noisy, rng=0), idm.Simulation(rng=0))
    normal, percentile = est.confidence_interval(), est.confidence_interval(kind="percentile")
    np.testing.assert_allclose(percentile, normal, atol=0.2 * est.standard_error)


def test_seeds(model):
    one, two = (idm.infer(model, idm.Replicated(noisy, rng=3)) for _ in range(2))
    assert one.value == two.value
    fresh, again = (idm.infer(model, noisy) for _ in range(2))
    assert fresh.value != again.value  # by their noise, which the budget states


def test_which_functions_accept_rng():
    class Simulator:
        def __call__(self, model, rng):
            return 0.0

    assert accepts_rng(noisy)
    assert accepts_rng(Simulator())
    assert accepts_rng(lambda b, *, rng=None: b)
    assert accepts_rng(functools.partial(noisy, rng=np.random.default_rng(0)))
    assert not accepts_rng(lambda rng: rng)  # the model under an odd name
    assert not accepts_rng(lambda b, **options: b)
    assert not accepts_rng(np.sum)
    assert not accepts_rng(max)


def test_random_without_rng_is_refused(model):
    generator = np.random.default_rng(0)
    for psi in (
        lambda b: b[0] + generator.normal(),
        lambda b, rng: b[0] + generator.normal(),  # accepts rng and does not use it
    ):
        with pytest.raises(idm.EvaluationError, match=r"def psi\(model, rng\)"):
            idm.infer(model, psi)


@pytest.mark.parametrize("how", ["nan", "raise"])
def test_a_failing_seed_is_named(model, how):
    psi = idm.Replicated(noisy, rng=11)
    bad = psi.seeds()[4]
    first = np.random.default_rng(bad).normal()

    def fragile(b, rng):
        if rng.normal() != first:
            return b[0]
        if how == "raise":
            raise ZeroDivisionError("no server is open")
        return np.nan

    text = rf"default_rng\({bad}\)"
    with pytest.raises(idm.EvaluationError, match=text) as caught:
        idm.infer(model, idm.Replicated(fragile, rng=11))
    assert ("no server is open" in str(caught.value)) == (how == "raise")
    late = lambda b, rng: fragile(b, rng) if b[0] > 0.1 else b[0]
    with pytest.raises(idm.EvaluationError, match=rf"draw \d+ of Simulation.*{text}"):
        idm.infer(model, idm.Replicated(late, rng=11), idm.Simulation(rng=0))


def test_bad_configuration(model):
    for repeats in (1, 0, 2.5):
        with pytest.raises(ValueError, match="repeats"):
            idm.Replicated(noisy, repeats=repeats)
    with pytest.raises(TypeError, match="argument called `rng`"):
        idm.infer(model, idm.Replicated(lambda b: b[0]))


def average_wait(theta, rng):
    """Twenty days with two servers; the shortest expected call first, all luck from rng."""
    total = 0.0
    for _ in range(20):
        arrival = np.cumsum(rng.exponential(1.0, size=60)).tolist()
        x, luck = rng.normal(size=60), rng.exponential(size=60)
        mean = np.exp(theta[0] + theta[1] * x)
        service, free, queue, i = (mean * luck).tolist(), [0.0, 0.0], [], 0
        for _ in range(60):
            now = free[0] if queue else max(free[0], arrival[i])
            while i < 60 and arrival[i] <= now:
                heapq.heappush(queue, (mean[i], i))
                i += 1
            call = heapq.heappop(queue)[1]
            total += now - arrival[call]
            heapq.heapreplace(free, now + service[call])
    return total / 1200


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::implicit_delta.NonlinearityWarning")  # waits grow with load
def test_three_ways_agree_on_a_queue():
    rng = np.random.default_rng(8)
    x = rng.normal(size=1500)
    minutes = rng.exponential(np.exp(0.3 + 0.4 * x))

    def score(th):
        rest = minutes * np.exp(-th[0] - th[1] * x) - 1
        return np.column_stack([rest, rest * x])

    model = idm.from_loglik(
        lambda th: -th[0] - th[1] * x - minutes * np.exp(-th[0] - th[1] * x),
        start=[0, 0],
        score=score,
    )
    psi = idm.Replicated(average_wait, repeats=4, rng=0)
    radii = {"initial_tr_radius": 0.5, "final_tr_radius": 1e-2}
    cobyqa = functools.partial(optimize.minimize, method="COBYQA", options=radii)
    answers = [
        idm.infer(model, psi, idm.Simulation(draws=100, rng=0)),
        idm.infer(model, idm.Smoothed(psi, draws=60, rng=0), strict=False),
        idm.infer(model, psi, idm.FiniteDifference(maximizer=cobyqa), strict=False),
    ]
    errors = [est.budget["model"] for est in answers]
    np.testing.assert_allclose(errors, np.mean(errors), rtol=0.1)
    assert len({est.value for est in answers}) == 1  # the same seeds

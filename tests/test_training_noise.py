"""Noise of the training as a line of the budget: checkpoints, replicates, averaged weights."""

import copy
import itertools
import warnings

import numpy as np
import pytest
from scipy.stats import t as student

import implicit_delta as idm
from implicit_delta.inference.training_noise import Wobble
from implicit_delta.likelihoods import Gaussian
from implicit_delta.models.redraws import reweight

torch = pytest.importorskip("torch")
nn = torch.nn

N, RATE, BATCH = 120, 0.08, 8


def series(c, rho, count, rng):
    """Stationary series with unit variance, (c, count)."""
    states = [rng.normal(size=count)]
    for _ in range(c - 1):
        states.append(rho * states[-1] + np.sqrt(1 - rho**2) * rng.normal(size=count))
    return np.array(states)


def regression():
    """A linear regression with noise of variance one, at its maximum."""
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(N), rng.normal(size=N)])
    y = X @ [1.0, -0.5] + rng.normal(size=N)
    return X, y, np.linalg.lstsq(X, y, rcond=None)[0]


X, Y, BETA = regression()


def linear(theta):
    net = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor(np.asarray(theta))[None])
    return net


def fitted(theta=BETA, **options):
    data = torch.tensor(X), torch.tensor(Y)[:, None]
    return idm.from_torch(linear(theta), data, Gaussian(1.0), **options)


def state(theta):
    return {"weight": torch.tensor(np.asarray(theta)[None].copy())}


def states(array):
    return [state(row) for row in array]


def sgd(count, every, rng, theta=BETA):
    """States of SGD on the mean of squares / 2, minibatches with replacement: (count, 2)."""
    found = []
    for i in range(1, count * every + 1):
        rows = rng.integers(N, size=BATCH)
        theta = theta + RATE * X[rows].T @ (Y[rows] - X[rows] @ theta) / BATCH
        if i % every == 0:
            found.append(theta)
    return np.array(found)


def stationary():
    """Covariance of that SGD: the fixed point of its second moments, with multiplicative noise."""
    eye = np.eye(2)
    H = X.T @ X / N
    rows = [np.kron(np.outer(x, x), np.outer(x, x)) for x in X]
    step = np.kron(eye, eye) - RATE * (np.kron(H, eye) + np.kron(eye, H))
    step = step + RATE**2 * ((1 - 1 / BATCH) * np.kron(H, H) + np.mean(rows, axis=0) / BATCH)
    scores = X * (Y - X @ BETA)[:, None]
    C = RATE**2 * scores.T @ scores / N / BATCH
    return np.linalg.solve(np.eye(4) - step, C.ravel()).reshape(2, 2)


def weights(net):
    return net.weight[0]


def first(net):
    return net.weight[0, 0]


def wobbling(c=24, scale=0.02, seed=0):
    """Checkpoints of independent states around the maximum, the last of which is theta."""
    return BETA + scale * np.random.default_rng(seed).normal(size=(c, 2))


@pytest.mark.parametrize(("c", "rho"), [(5, 0.0), (16, 0.0), (32, 0.3), (64, 0.6), (200, 0.8)])
def test_the_variance_of_a_state_is_right_on_average_and_covers(c, rho):
    rng = np.random.default_rng(c)
    wobble = Wobble.of(series(c, rho, 4000, rng))
    # 4000 variances with df degrees of freedom, and a correlation that is estimated and not < 0
    error = 4 * np.sqrt(2 / np.mean(wobble.df) / 4000) + 0.07
    assert np.mean(wobble.variance) == pytest.approx(1.0, abs=error)
    fresh = abs(rng.normal(size=4000)) < student.ppf(0.975, wobble.df) * np.sqrt(wobble.variance)
    assert np.mean(fresh) == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 4000) + 0.01)


@pytest.mark.parametrize(("c", "rho", "least"), [(16, 0.0, 0.93), (64, 0.3, 0.93), (64, 0.6, 0.93)])
def test_the_mean_of_states_is_covered(c, rho, least):
    values = series(c, rho, 2000, np.random.default_rng(1))
    batches = values.reshape(16, -1, 2000).mean(axis=1)
    wobble = Wobble.of(batches)
    error = np.sqrt(np.diag(wobble.covariance(of_mean=True)))
    covered = np.mean(abs(batches.mean(axis=0)) < student.ppf(0.975, wobble.df) * error)
    assert least - 2 * np.sqrt(0.05 / 2000) < covered < 0.98


def test_without_correlation_it_is_the_residual_variance_of_a_line():
    values = np.array([1.0, -2.0, 1.5, -1.0, 2.0, -1.2, 0.9])[:, None]  # neighbors are unlike
    line = np.polyval(np.polyfit(np.arange(7), values[:, 0], 1), np.arange(7))
    wobble = Wobble.of(values)
    assert wobble.covariance(of_mean=False)[0, 0] == pytest.approx(
        np.sum((values[:, 0] - line) ** 2) / 5
    )
    assert wobble.covariance(of_mean=True)[0, 0] == pytest.approx(wobble.variance[0] / 7)
    assert wobble.df[0] == pytest.approx(5)


def test_a_slow_drift_is_no_noise():
    values = series(40, 0.3, 6, np.random.default_rng(3))
    line = np.outer(np.arange(40), [0.0, 1.0, -5.0, 100.0, 1e-3, 7.0]) + 3.0
    plain, drifting = (Wobble.of(v).covariance(of_mean=False) for v in (values, values + line))
    np.testing.assert_allclose(drifting, plain, rtol=1e-8)


def test_evaluations_with_other_correlations_have_one_covariance():
    """It is positive semi-definite, with the variance that each has alone."""
    rng = np.random.default_rng(4)
    values = np.hstack([series(40, rho, 1, rng) for rho in (0.0, 0.5, 0.8)])
    values = np.column_stack([values, values @ [1.0, 1.0, 1.0]])
    V = Wobble.of(values).covariance(of_mean=False)
    alone = [Wobble.of(values[:, [k]]).variance[0] for k in range(4)]
    np.testing.assert_allclose(np.diag(V), alone)
    assert np.linalg.eigvalsh(V).min() > -1e-12


@pytest.mark.filterwarnings("ignore::implicit_delta.DriftWarning")  # of the state it happens to be
def test_sgd_with_a_constant_rate_has_its_stationary_covariance():
    """400 nearly independent states: variances are known to 7 %, correlations alike."""
    found = sgd(400, 30, np.random.default_rng(0))
    model = fitted(found[-1], checkpoints=states(found))
    est = idm.infer(model, weights, strict=False)
    truth = stationary()
    scale = np.sqrt(np.outer(np.diag(truth), np.diag(truth)))
    np.testing.assert_allclose(
        est.parts["training"] / scale, truth / scale, atol=3.5 * np.sqrt(2 / 400)
    )
    total = est.parts["model"] + est.parts["training"]
    np.testing.assert_allclose(est.covariance, total, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_steps_that_are_alike_have_it_too():
    """Neighbors correlate by 0.92: 600 steps are worth 25 states, so 3 of 4 runs lie within."""
    truth, found = np.diag(stationary()), []
    for seed in range(12):
        trained = sgd(600, 1, np.random.default_rng(seed), BETA)
        model = fitted(trained[-1], checkpoints=states(trained))
        found.append(np.diag(idm.infer(model, weights, strict=False).parts["training"]))
    assert np.mean(found, axis=0) == pytest.approx(truth, rel=4 * np.sqrt(2 / 25 / 12))


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_the_mean_of_sgd_states_has_the_small_error_of_a_mean():
    means, lines = [], []
    for seed in range(40):
        trained = sgd(64, 5, np.random.default_rng(seed), BETA)
        model = idm.averaged(fitted(trained[-1], checkpoints=states(trained)))
        np.testing.assert_allclose(model.theta, trained.mean(axis=0))
        est = idm.infer(model, first, strict=False)
        means.append(est.value)
        lines.append(est.parts["training"][0, 0])
    ratio = np.sqrt(np.mean(lines)) / np.sqrt(np.mean((np.array(means) - BETA[0]) ** 2))
    assert 0.67 < ratio < 1.5
    assert np.mean(lines) < stationary()[0, 0] / 4


def test_an_average_in_single_precision_is_recognized():
    array = wobbling(20).astype(np.float32)
    mean = array.mean(axis=0, dtype=np.float32)
    est = idm.infer(fitted(mean, checkpoints=states(array.astype(float))), first, strict=False)
    assert "theta is their mean" in est.diagnostics.notes["training_noise"]


def test_replicates_are_a_covariance_with_few_degrees_of_freedom():
    array = wobbling(4, 0.1)
    model = fitted(replicates=[linear(row) for row in array])
    est = idm.infer(model, weights)
    np.testing.assert_allclose(est.parts["initialization"], np.cov(array.T))
    own, other = np.diag(est.parts["model"]), np.diag(est.parts["initialization"])
    np.testing.assert_allclose(est.df, (own + other) ** 2 / (other**2 / 3))
    assert est.target == idm.infer(fitted(), weights).target


def test_replicates_take_the_place_of_checkpoints():
    model = fitted(checkpoints=states(wobbling()), replicates=states(wobbling(3, seed=1)))
    assert set(idm.infer(model, first).budget) == {"model", "initialization", "total"}


def test_degrees_of_freedom_are_those_of_welch():
    array = wobbling(3, 0.1)
    model = fitted(checkpoints=states(array))
    est = idm.infer(model, first)
    own, noise = (est.parts[name][0, 0] for name in ("model", "training"))
    assert est.df == pytest.approx((own + noise) ** 2 / noise**2)
    clustered = idm.infer(model, first, clusters=np.arange(N) % 30)
    own = clustered.parts["model"][0, 0]
    assert clustered.df == pytest.approx((own + noise) ** 2 / (noise**2 + own**2 / 29))


CHECKPOINTS = wobbling()
EVALUATION = torch.tensor(np.random.default_rng(9).normal(size=(80, 2)))


def share(net):
    """A psi that jumps."""
    return (net(EVALUATION) > 0).double().mean()


def outcomes(net):
    return net(EVALUATION)[:, 0]


def noisy(net, rng):
    return net.weight[0, 0] + 0.1 * rng.normal()


def median(units, weight):
    order = np.argsort(units)
    return units[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)]


QUESTIONS = {
    "plain": (first, lambda b: b[0]),
    "parameters": (idm.parameters, lambda b: b),
    "independent": (idm.Average(outcomes), lambda b: np.mean(EVALUATION.numpy() @ b)),
    "unknown": (idm.Average(outcomes, "unknown"), lambda b: np.mean(EVALUATION.numpy() @ b)),
    "training": (
        idm.Average(lambda net: net(torch.tensor(X))[:, 0], "training"),
        lambda b: np.mean(X @ b),
    ),
    "replicated": (idm.Replicated(noisy, rng=0), lambda b: b[0]),
    "smoothed": (idm.Smoothed(share, rng=0), lambda b: np.mean(EVALUATION.numpy() @ b > 0)),
    "statistic": (
        idm.Statistic(outcomes, median),
        lambda b: median(EVALUATION.numpy() @ b, np.ones(80)),
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_every_question_has_the_line_of_psi_itself(question):
    psi, by_hand = QUESTIONS[question]
    with_line = idm.infer(fitted(checkpoints=states(CHECKPOINTS)), psi)
    without = idm.infer(fitted(), psi)
    values = np.array([np.atleast_1d(by_hand(row)) for row in CHECKPOINTS])
    expected = Wobble.of(values).covariance(of_mean=False)
    np.testing.assert_allclose(with_line.parts["training"], expected, rtol=1e-6, atol=1e-15)
    added = with_line.covariance - without.covariance
    np.testing.assert_allclose(added, expected, rtol=1e-5, atol=1e-10)
    assert with_line.errors_add == without.errors_add


METHODS = [
    idm.Infinitesimal(),
    idm.Infinitesimal(curvature="ggn"),
    idm.FiniteDifference(),
    idm.Simulation(200, rng=0),
    idm.Bootstrap(20, rng=0),
    idm.StochasticFiniteDifference(rng=0, steps=50, samples=10, runs=2),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_every_method_has_the_line(method):
    with_line = idm.infer(fitted(checkpoints=states(CHECKPOINTS)), first, method)
    without = idm.infer(fitted(), first, method)
    line = Wobble.of(CHECKPOINTS[:, :1]).variance[0]
    assert with_line.covariance[0, 0] - without.covariance[0, 0] == pytest.approx(line, rel=1e-6)
    if with_line.draws is not None:
        assert np.var(with_line.draws) == pytest.approx(
            np.var(without.draws) * with_line.covariance[0, 0] / without.covariance[0, 0]
        )


def test_compare_has_the_line_for_all():
    model = fitted(checkpoints=states(CHECKPOINTS))
    table = idm.compare(model, first, [idm.Infinitesimal(), idm.FiniteDifference()])
    errors = [estimate.budget["training"] for estimate in table.results.values()]
    assert errors[0] == pytest.approx(errors[1])


def test_states_belong_to_one_theta():
    model = fitted(checkpoints=states(CHECKPOINTS), replicates=states(wobbling(3)))
    assert model.facts.training.checkpoints.shape == (24, 2)
    assert model.facts.training.replicates.shape == (3, 2)
    kept = reweight(model, np.full(N, 2.0))
    assert kept.facts.training.checkpoints is model.facts.training.checkpoints
    assert kept.facts.training.replicates is model.facts.training.replicates
    assert model.at(model.theta).facts.training.checkpoints is model.facts.training.checkpoints
    moved = model.at(model.theta + 1e-3)
    assert moved.facts.training.checkpoints is None
    assert moved.facts.training.replicates is None


def test_polish_says_that_replicates_are_left_behind():
    off = fitted(BETA + 0.05, replicates=states(wobbling(3)))
    with pytest.warns(idm.ImplicitDeltaWarning, match="Polish each replicate"):
        assert idm.polish(off).facts.training.replicates is None
    others = [idm.polish(fitted(row)).module for row in wobbling(3, 0.1)]
    with pytest.raises(ValueError, match="the same"):  # a convex problem has one maximum
        fitted(replicates=[copy.deepcopy(others[0])] * 3)


def test_the_estimate_keeps_the_line(tmp_path):
    est = idm.infer(fitted(checkpoints=states(CHECKPOINTS)), weights, names=["a", "b"])
    est.save(tmp_path / "est.npz")
    again = idm.Estimate.load(tmp_path / "est.npz")
    np.testing.assert_array_equal(again.parts["training"], est.parts["training"])
    np.testing.assert_array_equal(again.df, est.df)
    assert again.diagnostics.notes == est.diagnostics.notes
    assert "training" in est.summary()
    assert "24 checkpoints, theta is one state" in est.summary()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.SmallSampleWarning)
        gap = est.contrast([1, -1])
    V = est.parts["training"]
    assert gap.budget["training"] == pytest.approx(np.sqrt(V[0, 0] + V[1, 1] - 2 * V[0, 1]))


def test_most_of_the_variance_gets_advice_that_works():
    model = fitted(checkpoints=states(wobbling(24, 0.5)))
    est = idm.infer(model, first)
    assert "`averaged(model)` has much less" in est.diagnostics.notes["training_noise"]
    better = idm.infer(idm.averaged(model), first, strict=False)
    assert better.budget["training"] < est.budget["training"] / 3


def test_drift_that_the_noise_explains_is_no_drift():
    """Theta is a state of the training, 3 standard errors of the model from its maximum."""
    wide = wobbling(24, 0.3)
    wide[-1] = BETA + np.array([0.28, 0.0])
    finished = idm.Infinitesimal()  # the default method takes such a training as it is
    with pytest.raises(idm.ConvergenceError):
        idm.infer(fitted(wide[-1]), first, finished)
    est = idm.infer(fitted(wide[-1], checkpoints=states(wide)), first, finished)
    assert est.diagnostics.drift == 0
    calm = states(wide[-1] + 0.01 * (wide - BETA))
    with pytest.raises(idm.ConvergenceError):  # but not one that the noise does not explain
        idm.infer(fitted(wide[-1], checkpoints=calm), first, finished)


def test_a_training_that_stopped_early_has_the_line_by_default():
    """Twice: with the ridge found by `infer`, and at once by the evidence."""
    wide = wobbling(24, 0.3)
    wide[-1] = BETA + np.array([0.28, 0.0])
    line = Wobble.of(wide[:, :1]).variance[0]
    for options in ({}, {"l2": "evidence"}):
        model = fitted(wide[-1], checkpoints=states(wide), start=state([0.0, 0.0]), **options)
        est = idm.infer(model, first)
        assert est.parts["training"][0, 0] == pytest.approx(line)
        assert "stopped" in est.diagnostics.notes
    trained_on = idm.continue_training(model, RATE, batch_size=BATCH, steps=8, rng=0)
    plain = idm.continue_training(fitted(wide[-1]), RATE, batch_size=BATCH, steps=8, rng=0)
    np.testing.assert_allclose(
        trained_on.facts.training.checkpoints, plain.facts.training.checkpoints
    )  # without that ridge
    assert idm.averaged(model).penalty.early_stop.strength > 0


@pytest.mark.parametrize("form", ["state_dicts", "modules", "parameters", "wrapped"])
def test_the_start_in_any_form(form):
    np.testing.assert_array_equal(
        fitted(start=FORMS[form](linear([3.0, 4.0]))).facts.training.start, [3.0, 4.0]
    )


def test_a_start_that_was_not_copied_is_refused():
    net = linear(BETA)
    with pytest.raises(ValueError, match=r"(?s)start is the model itself.*copy\.deepcopy"):
        idm.from_torch(
            net,
            (torch.tensor(X), torch.tensor(Y)[:, None]),
            Gaussian(1.0),
            start=net.state_dict(),
        )


@pytest.mark.parametrize("kind", ["checkpoints", "replicates"])
def test_states_of_another_training_are_noticed(kind):
    away = states(wobbling(8, 0.01) + 0.3)
    with pytest.warns(idm.ImplicitDeltaWarning, match="come from another training"):
        idm.infer(fitted(**{kind: away}), first)


def test_steps_that_are_too_much_alike_are_noticed():
    walk = BETA + 1e-3 * np.cumsum(np.random.default_rng(0).normal(size=(64, 2)), axis=0)
    with pytest.warns(idm.ImplicitDeltaWarning, match="Space them out"):
        idm.infer(fitted(checkpoints=states(walk)), first, strict=False)


FORMS = {
    "state_dicts": lambda net: copy.deepcopy(net.state_dict()),
    "clones": lambda net: {k: v.clone() for k, v in net.state_dict().items()},
    "modules": copy.deepcopy,
    "parameters": lambda net: [p.detach().clone() for p in net.parameters()],
    "wrapped": lambda net: {f"module.{k}": v.clone() for k, v in net.state_dict().items()},
    "compiled": lambda net: {
        f"module._orig_mod.{k}": v.clone() for k, v in net.state_dict().items()
    },
    "lightning": lambda net: {f"net.{k}": v.clone() for k, v in net.state_dict().items()},
    "averaged": torch.optim.swa_utils.AveragedModel,
    "parallel": lambda net: nn.DataParallel(copy.deepcopy(net)),
}


@pytest.mark.parametrize("form", FORMS)
def test_states_in_any_form(form):
    model = fitted(checkpoints=(FORMS[form](linear(row)) for row in CHECKPOINTS))
    np.testing.assert_array_equal(model.facts.training.checkpoints, CHECKPOINTS)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(torch.tanh(self.a(x))).sum(dim=1, keepdim=True)


@pytest.mark.parametrize("left_out", [None, "a.weight", "b.weight"])
def test_shared_parameters_count_once_under_either_name(left_out):
    torch.manual_seed(0)
    nets = [Tied().double() for _ in range(4)]
    given = [copy.deepcopy(net.state_dict()) for net in nets]
    for each in given:
        each.pop(left_out, None)
    data = torch.tensor(X), torch.tensor(Y)[:, None]
    model = idm.from_torch(nets[0], data, Gaussian(1.0), checkpoints=given)
    assert model.facts.training.checkpoints.shape == (4, 8)
    np.testing.assert_array_equal(model.facts.training.checkpoints[0], model.theta)


def two_layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()


def test_only_selected_parameters_move():
    net, data = two_layers(), (torch.tensor(X), torch.tensor(Y)[:, None])
    given = [copy.deepcopy(net.state_dict()) for _ in range(3)]
    for i, each in enumerate(given):
        each["2.bias"] += i
    model = idm.from_torch(net, data, Gaussian(1.0), parameters="2", checkpoints=given)
    assert model.facts.training.checkpoints.shape == (3, 4)
    np.testing.assert_allclose(model.facts.training.checkpoints[:, -1] - model.theta[-1], [0, 1, 2])
    given[0]["0.bias"] += 1
    with pytest.warns(idm.ImplicitDeltaWarning, match="noise of the selected parameters alone"):
        idm.from_torch(net, data, Gaussian(1.0), parameters="2", checkpoints=given)
    with pytest.raises(ValueError, match=r"The replicates differ from the module in '0\.bias'"):
        idm.from_torch(net, data, Gaussian(1.0), parameters="2", replicates=given[:2])


def test_running_averages():
    data = torch.tensor(X), torch.tensor(Y)[:, None]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
    given, optimizer = [], torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(6):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(data[0]), data[1]).backward()
        optimizer.step()
        given.append(copy.deepcopy(net.state_dict()))
    with pytest.warns(idm.ImplicitDeltaWarning, match=r"1\.running_mean"):
        model = idm.from_torch(net, data, Gaussian(1.0), checkpoints=given)
    with pytest.warns(idm.ImplicitDeltaWarning, match="update_bn"):
        idm.averaged(model)
    with pytest.raises(ValueError, match="running averages of BatchNorm"):
        idm.from_torch(net, data, Gaussian(1.0), replicates=given[:2])


def test_continued_training_wobbles_like_the_training_itself():
    """Epochs without replacement: against 400 epochs by hand, at the same ends of epochs."""
    rng, theta, ends = np.random.default_rng(0), BETA, []
    for _ in range(400):
        for rows in rng.permutation(N).reshape(-1, BATCH):
            theta = theta + RATE * X[rows].T @ (Y[rows] - X[rows] @ theta) / BATCH
        ends.append(theta)
    model = idm.continue_training(fitted(), RATE, batch_size=BATCH, every=N // BATCH, rng=0)
    assert model.facts.training.checkpoints.shape == (64, 2)
    np.testing.assert_array_equal(model.theta, fitted().theta)
    found = np.diag(idm.infer(model, weights).parts["training"])
    error = np.sqrt(2 / 62 + 2 / 300)
    np.testing.assert_allclose(np.log(found / np.var(ends, axis=0)), 0.0, atol=3 * error)


def test_continued_training_follows_its_seed_and_its_optimizer():
    adam = lambda parameters: torch.optim.Adam(parameters, lr=0.01)
    made = [
        idm.continue_training(
            fitted(), adam, batch_size=BATCH, steps=8, rng=rng
        ).facts.training.checkpoints
        for rng in (0, 0, 1)
    ]
    np.testing.assert_array_equal(made[0], made[1])
    assert np.all(made[0] != made[2])
    slower = idm.continue_training(
        fitted(), 1e-4, batch_size=BATCH, steps=8, rng=0
    ).facts.training.checkpoints
    assert np.ptp(slower, axis=0).max() < np.ptp(made[0], axis=0).min()


def test_an_optimizer_that_was_made_already_is_refused():
    model = fitted()
    made = torch.optim.Adam(model.module.parameters())
    with pytest.raises(TypeError, match="Adam, which was made for other parameters"):
        idm.continue_training(model, made, batch_size=BATCH, steps=8)


def test_more_rows_in_a_batch_leave_less_noise():
    lines = [
        idm.infer(
            idm.continue_training(fitted(), RATE, batch_size=size, every=5, rng=0), first
        ).budget["training"]
        for size in (4, 40)
    ]
    assert lines[1] < lines[0] / 2


# A network: the line against retrainings with other orders of the same rows.

ROWS, EPOCHS, KEPT, DECAY = 120, 60, 12, 5e-3
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(ROWS, 2, generator=GENERATOR)
LABELS = (torch.rand(ROWS, generator=GENERATOR) < torch.sigmoid(2 * INPUTS.prod(1))).float()
OTHERS = torch.randn(300, 2, generator=GENERATOR)


def trained(seed):
    torch.manual_seed(1)  # one start for all: other orders of the rows alone
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    order, kept = torch.Generator().manual_seed(seed), []
    for epoch in range(EPOCHS):
        for rows in torch.randperm(ROWS, generator=order).split(20):
            optimizer.zero_grad()
            output = net(INPUTS[rows])[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(output, LABELS[rows])
            (loss + DECAY / 2 * sum((p**2).sum() for p in net.parameters())).backward()
            optimizer.step()
        if epoch >= EPOCHS - KEPT:
            kept.append(copy.deepcopy(net.state_dict()))
    return net, kept


def metrics(net):
    p = torch.sigmoid(net(OTHERS)[:, 0])
    return torch.stack([p.mean(), (2 * p - 1).abs().mean(), net(OTHERS[:1])[0, 0]])


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_the_line_of_a_network_is_the_spread_over_orders_of_its_rows():
    spread = np.std([metrics(trained(s)[0]).detach().numpy() for s in range(30)], axis=0, ddof=1)
    ratios = []
    for seed in itertools.islice(itertools.count(100), 4):
        net, kept = trained(seed)
        model = idm.from_torch(
            net, (INPUTS, LABELS), idm.Bernoulli(), l2=DECAY * ROWS, checkpoints=kept
        )
        est = idm.infer(model, metrics, idm.Infinitesimal(curvature="ggn"), strict=False)
        ratios.append(est.budget["training"] / spread)
    # 30 trainings know a spread to 13 %, 4 times 12 checkpoints to 11 %
    each = np.exp(np.mean(np.log(ratios), axis=0))
    assert 0.67 < np.exp(np.mean(np.log(each))) < 1.5
    assert np.all((each > 0.5) & (each < 2.0))

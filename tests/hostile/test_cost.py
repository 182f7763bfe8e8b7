"""Costs: foretold, bounded by a budget, and no larger than the question asks for."""

import logging

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import nn

import implicit_delta as idm
from implicit_delta.core import progress
from implicit_delta.linalg.solvers import conjugate_gradient
from implicit_delta.methods import training_pair

torch.set_num_threads(1)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::implicit_delta.errors.ShrinkageWarning"),
    pytest.mark.filterwarnings("ignore::implicit_delta.errors.NonlinearityWarning"),
    pytest.mark.filterwarnings("ignore::implicit_delta.errors.SmallSampleWarning"),
]
ACTIVATIONS = {"tanh": nn.Tanh, "gelu": nn.GELU, "softplus": nn.Softplus}


def network(kind="tanh", n=400, hidden=8, p=2, classes=0, l2=1.0, seed=0):
    """A small network, its data as `from_torch` takes them, and a mean over new rows as psi."""
    torch.manual_seed(seed)
    X, new = torch.randn(n, p).double(), torch.randn(50, p).double()
    net = nn.Sequential(
        nn.Linear(p, hidden), ACTIVATIONS[kind](), nn.Linear(hidden, max(classes, 1), bias=False)
    ).double()
    if classes:
        logits = torch.stack([k * X[:, 0] + torch.sin(X[:, 1] + k) for k in range(classes)], 1)
        y, likelihood = torch.distributions.Categorical(logits=logits).sample(), idm.Categorical()
        psi = lambda m: m(new).softmax(1)[:, 0].mean()
    else:
        y = (torch.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 4 + 0.3 * torch.randn(n).double())[:, None]
        likelihood, psi = idm.Gaussian(0.3), lambda m: m(new).mean()
    return idm.from_torch(net, (X, y), likelihood, l2=l2), psi


NETWORKS = {
    "32 parameters": {},
    "few rows": {"n": 200},
    "many rows": {"n": 2000, "seed": 1},
    "a weak penalty": {"l2": 0.1, "seed": 2},
    "three classes": {"classes": 3},
    "gelu": {"kind": "gelu"},
    "softplus": {"kind": "softplus", "classes": 2, "n": 1000, "seed": 3},
}


@pytest.mark.parametrize("case", NETWORKS)
def test_stochastic_training_with_its_defaults_ends_and_is_right(case, caplog):
    """Plain gradient steps took minutes: condition numbers of 1e4 and more."""
    model, psi = network(**NETWORKS[case])
    model = idm.polish(model)
    exact = idm.infer(model, psi, strict=False).standard_error
    with caplog.at_level(logging.INFO, "implicit_delta"):
        found = idm.infer(model, psi, idm.StochasticFiniteDifference(rng=0), strict=False)
    notes = found.diagnostics.notes
    assert abs(found.standard_error / exact - 1) < 0.01 + 3 * notes["monte_carlo_error"]
    assert notes["monte_carlo_error"] < 0.03
    assert "passes over the data" in notes["foretold"]
    assert notes["foretold"] in caplog.text


def test_a_preconditioner_changes_the_way_and_not_the_end():
    """Whatever the rows of a minibatch, which decide how long a step may be."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)) * [1.0, 0.3, 0.1, 0.03]
    y = X.sum(axis=1) + rng.normal(size=600)
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    score = lambda b: (y - X @ b)[:, None] * X
    model = idm.from_loglik(lambda b: -((y - X @ b) ** 2) / 2, beta, score=score)
    exact = np.sqrt(np.sum(np.linalg.inv(X.T @ X)))
    for batch_size in (60, 600, None):
        method = idm.StochasticFiniteDifference(
            optimizer="preconditioned", batch_size=batch_size, rng=0
        )
        found = idm.infer(model, lambda b: b.sum(), method)
        noise = found.diagnostics.notes["monte_carlo_error"]
        assert found.standard_error == pytest.approx(exact, rel=0.01 + 4 * noise)
        assert found.diagnostics.notes["steps"] < 300
        assert (noise == 0) == (batch_size == 600)


def test_steps_that_would_never_end_are_refused_before_the_first(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * [1.0, 1.0, 1e-4]
    y = X.sum(axis=1) + rng.normal(size=200)
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    score = lambda b: (y - X @ b)[:, None] * X
    model = idm.from_loglik(lambda b: -((y - X @ b) ** 2) / 2, beta, score=score)
    monkeypatch.setattr(training_pair, "ascend", lambda *args: pytest.fail("trained"))
    method = idm.StochasticFiniteDifference(anchored=False)
    with pytest.raises(idm.ConvergenceError, match="plain gradient steps would be needed"):
        idm.infer(model, lambda b: b[2], method)


def wide(d=800, n=300, seed=0):
    """A ridge regression beyond 500 parameters, away from its maximum."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) / np.geomspace(1, 30, d)
    y = X[:, 0] + rng.normal(size=n)
    module = nn.Linear(d, 1, bias=False).double()
    nn.init.zeros_(module.weight)
    data = (torch.as_tensor(X), torch.as_tensor(y)[:, None])
    return idm.from_torch(module, data, idm.Gaussian(1.0), l2=0.01)


def early(d=30, hidden=15, n=300, steps=60, seed=0):
    """A classifier with 545 parameters, stopped early."""
    torch.manual_seed(seed)
    X, new = torch.randn(n, d).double(), torch.randn(60, d).double()
    y = (X[:, :5] + torch.randn(n, 5)).argmax(1)
    labels = (new[:, :5] + torch.randn(60, 5)).argmax(1)
    net = nn.Sequential(nn.Linear(d, hidden), nn.Tanh(), nn.Linear(hidden, 5)).double()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(X), y).backward()
        optimizer.step()
    loss = lambda m: nn.functional.cross_entropy(m(new), labels)
    losses = lambda m: nn.functional.cross_entropy(m(new), labels, reduction="none")
    accuracy = idm.Statistic(
        lambda m: m(new).softmax(1)[torch.arange(60), labels],
        lambda units, weight: np.average(units > 0.4, weights=weight),
    )
    model = idm.from_torch(net, (X, y), idm.Categorical(), l2=3.0)
    return model, {"a loss": loss, "an average": idm.Average(losses), "a statistic": accuracy}


BUDGETS = {
    "conjugate gradients": (
        lambda: idm.infer(
            wide(), lambda m: m.weight[0, -1],
            idm.Infinitesimal(conjugate_gradient(rtol=1e-9, budget=12)), strict=False,
        ),
        r"budget of 12 passes.*standard error of evaluation 0 lies between",
    ),
    "polish": (lambda: idm.polish(wide(), budget=9), r"budget of 9 passes.*risen by"),
    "polish for psi": (
        lambda: idm.polish(wide(), lambda m: m.weight[0, 0], drift=1e-7, budget=60),
        r"budget of 60 passes.*standard errors from where it will end",
    ),
    "a small polish": (
        lambda: idm.polish(network()[0], budget=50), r"budget of 50 passes.*risen by"
    ),
    "stochastic": (
        lambda: idm.infer(
            wide(), lambda m: m.weight[0, 0], idm.StochasticFiniteDifference(budget=40, rng=0)
        ),
        "budget of 40 passes.*pilot solve has the standard error at about",
    ),
}  # fmt: skip


@pytest.mark.parametrize("door", BUDGETS)
def test_a_budget_ends_with_what_is_known(door):
    ask, message = BUDGETS[door]
    with pytest.raises(idm.ConvergenceError, match=message) as caught:
        ask()
    assert "budget=" in str(caught.value)


@pytest.mark.parametrize("budget", [0, -3, np.nan, "much", True])
def test_a_budget_that_is_none_is_refused(budget):
    for door in (
        lambda: conjugate_gradient(budget=budget),
        lambda: idm.polish(wide(), budget=budget),
        lambda: idm.StochasticFiniteDifference(budget=budget),
    ):
        with pytest.raises(ValueError, match="positive number of passes"):
            door()


def test_a_budget_that_reaches_changes_nothing():
    psi, model = lambda m: m.weight[0, 0], idm.polish(wide())
    free, bound = (
        idm.infer(model, psi, idm.Infinitesimal(conjugate_gradient(budget=b)), strict=False)
        for b in (None, 5000)
    )
    assert free.standard_error == bound.standard_error
    assert idm.polish(wide(), budget=50_000).theta == pytest.approx(model.theta)


@pytest.mark.parametrize(("kind", "seeds"), [("a loss", range(6)), ("an average", range(6, 10))])
def test_polish_for_a_psi_ends_where_psi_does(kind, seeds):
    """In fewer passes than to the end, and psi is there where the end has it.

    The drift that is left is 0.01, and what is not of first order may be as much again. In a third
    of such data sets a Newton step moves psi by less than 0.01 long before the end: near shoulders
    of the likelihood, where psi has up to 0.4 standard errors to go, or where the gain is still so
    large that `infer` takes the training for stopped.
    """
    to_the_end = passes = 0
    for seed in seeds:
        model, questions = early(seed=seed)
        first = model.rows.passes
        end = idm.polish(model)
        second = model.rows.passes
        found = idm.polish(model, questions[kind])
        to_the_end, passes = to_the_end + second - first, passes + model.rows.passes - second
        assert found.drift <= 0.01
        assert found.curvature == "hessian"
        assert idm.infer(found.model, questions[kind], strict=False).diagnostics.drift <= 0.01
        after, near = (idm.infer(m, questions["a loss"], strict=False) for m in (end, found.model))
        assert "stopped" not in near.diagnostics.notes
        assert abs(near.value - after.value) < 0.02 * after.standard_error
        assert near.standard_error == pytest.approx(after.standard_error, rel=0.05)
    assert passes < to_the_end


def test_polish_for_a_statistic():
    model, questions = early()
    found = idm.polish(model, questions["a statistic"])
    assert found.drift <= 0.01
    assert found.curvature == "hessian"


def test_a_psi_at_rest_on_a_saddle_is_warned_about():
    """By the Gauss-Newton matrix alone, a drift says nothing about the way down from there."""
    model, questions = early()
    with pytest.warns(idm.DriftWarning, match="this is no maximum"):
        found = idm.polish(model, questions["a loss"], drift=50.0)
    assert found.curvature == "ggn"
    assert found.iterations == 3


def test_a_psi_that_has_arrived_is_not_polished():
    model, questions = early()
    done = idm.polish(idm.polish(model), questions["a loss"])
    assert done.iterations == 0
    assert abs(done.moved) < 1e-6


def test_the_drift_that_is_asked_for_is_reached():
    model, questions = early()
    loose, tight = (idm.polish(model, questions["a loss"], drift=x) for x in (0.01, 1e-5))
    assert tight.drift <= 1e-5 < loose.drift <= 0.01
    assert tight.iterations > loose.iterations
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="drift is a positive number"):
            idm.polish(model, questions["a loss"], drift=bad)


def test_a_small_model_is_polished_to_its_end_and_says_its_drift():
    model, psi = network()
    assert idm.polish(model, psi).drift < 1e-5


@pytest.mark.parametrize("check", [True, False])
def test_refit_reports_what_its_check_has_found(check):
    y = np.array([1.2, 0.4, 2.2, 1.4, 0.8])

    def train(bonus):
        m, h = 0.0, 1e-4
        for _ in range(200):
            m += 0.1 * (np.sum(y - m) + (bonus(m + h) - bonus(m - h)) / (2 * h))
        return m

    estimate = idm.refit(train, lambda m: m, check=check)
    found = estimate.diagnostics.notes["response_difference"]
    assert found == (pytest.approx(0.0, abs=0.01) if check else "unknown")
    assert "response_difference" in estimate.summary().replace(" ", "_")


DOORS = {
    "conjugate gradients": lambda: idm.infer(
        wide(), lambda m: m.weight[0, 0], idm.Infinitesimal(conjugate_gradient), strict=False
    ),
    "polish": lambda: idm.polish(wide()),
    "stochastic": lambda: idm.infer(
        wide(),
        lambda m: m.weight[0, 0],
        idm.StochasticFiniteDifference(lam=1.0, optimizer=1e-3, steps=3, samples=2, rng=0),
        strict=False,
    ),
    "simulation": lambda: idm.infer(
        wide(), lambda m: m.weight[0, 0], idm.Simulation(20, rng=0), strict=False
    ),
}


@pytest.mark.filterwarnings("ignore::implicit_delta.errors.ImplicitDeltaWarning")
@pytest.mark.parametrize("door", DOORS)
def test_a_log_gets_no_bars_unless_it_asks_for_them(door, monkeypatch, capfd):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    for setting, shown in (("", False), ("off", False), ("on", True)):
        monkeypatch.setenv(progress.VARIABLE, setting)
        DOORS[door]()
        written = capfd.readouterr()
        assert bool(written.err) == shown, setting
        assert not written.out

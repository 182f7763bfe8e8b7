"""Statistics of every model, their differences, and metrics that are no function of the units."""

from functools import partial

import numpy as np
import pytest
from scipy.special import expit

import implicit_delta as idm

metrics = pytest.importorskip("sklearn.metrics")

RNG = np.random.default_rng(17)
N, M = 300, 200
ALL = np.column_stack([np.ones(N + M), RNG.normal(size=(N + M, 2))])
LABELS = (RNG.random(N + M) < expit(ALL @ [0.2, 1.0, -0.7])).astype(float)
X, Y, ROWS, TRUE = ALL[:N], LABELS[:N], ALL[N:], LABELS[N:]
CLUSTERS = np.arange(N) % 30


def likelihood(columns=3):
    signs, x = np.where(Y > 0, -1, 1), X[:, -columns:]
    return idm.from_loglik(lambda b: -np.logaddexp(0, signs * (x @ b)), start=np.zeros(columns))


def equations(columns=3):
    x = X[:, -columns:]
    return idm.from_equations(lambda b: x * (Y - expit(x @ b))[:, None], start=np.zeros(columns))


def scores(b):
    return ROWS[:, -len(b) :] @ b


def auc_of(labels):
    """Area under the curve of scores with weights, many times as fast as scikit-learn's."""

    def area(score, weight):
        order = np.argsort(score)
        good, bad = (weight[order] * (labels[order] == k) for k in (1, 0))
        return good @ (np.cumsum(bad) - bad / 2) / (good.sum() * bad.sum())

    return area


auc, trained = auc_of(TRUE), auc_of(Y)


def accuracy(score, weight):
    return weight @ ((score > 0) == TRUE) / weight.sum()


def both(score, weight):
    return np.array([auc(score, weight), accuracy(score, weight)])


STATISTICS = {
    "auc": idm.Statistic(scores, auc),
    "accuracy": idm.Statistic(scores, accuracy),
    "both": idm.Statistic(scores, both),
    "unknown": idm.Statistic(scores, auc, "unknown"),
    "clusters": idm.Statistic(scores, auc, clusters=np.arange(M) // 5),
    "training": idm.Statistic(lambda b: X[:, -len(b) :] @ b, trained, "training"),
    "a list": [idm.Statistic(scores, auc), lambda b: b[1]],
    "a dict": {"auc": idm.Statistic(scores, auc), "slope": lambda b: b[1]},
}


@pytest.mark.parametrize("clusters", [None, CLUSTERS])
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_estimating_equations_are_those_of_the_likelihood(name, clusters):
    """The score equations of a logit have the sandwich of its likelihood."""
    psi = STATISTICS[name]
    found = idm.infer(equations(), psi, clusters=clusters)
    right = idm.infer(likelihood(), psi, robust=True, clusters=clusters)
    np.testing.assert_allclose(found.value, right.value, rtol=1e-6)
    # The draws that smooth are of the sandwich here and of the curvature there, and the model's
    # part, which alone differs by that, is uncertain to about 1 / sqrt(400) = 5% of itself.
    np.testing.assert_allclose(found.standard_error, right.standard_error, rtol=0.05)
    assert found.names == right.names


def test_statistics_of_equations_do_not_depend_on_units():
    units = np.array([1e-6, 1.0, 1e7])
    scaled = idm.from_equations(
        lambda b: X * (Y - expit(X @ (b * units)))[:, None], start=np.zeros(3)
    )
    found = idm.infer(scaled, idm.Statistic(lambda b: scores(b * units), auc))
    right = idm.infer(equations(), STATISTICS["auc"])
    assert found.standard_error == pytest.approx(right.standard_error, rel=1e-3)


# Differences of statistics.


def delong(first, second):
    """Covariance (2, 2) of two AUCs of the same rows: DeLong, DeLong and Clarke-Pearson (1988)."""
    good, bad = TRUE > 0, TRUE == 0
    wins = [s[good][:, None] > s[bad] for s in (first, second)]
    over = [np.cov([w.mean(axis=1 - axis) for w in wins]) for axis in (0, 1)]
    return over[0] / good.sum() + over[1] / bad.sum()


@pytest.mark.parametrize("make", [likelihood, equations])
def test_the_evaluation_part_of_a_difference_is_that_of_delong(make):
    models = make(3), make(2)
    a, b = (idm.infer(m, STATISTICS["auc"], influence=True, robust=True) for m in models)
    V = delong(*(scores(m.theta) for m in models))
    expected = np.sqrt(V[0, 0] + V[1, 1] - 2 * V[0, 1])
    # The jackknife divides by m where DeLong divides by the numbers of each class less one.
    assert (a - b).budget["evaluation"] == pytest.approx(expected, rel=0.02)
    assert (a - b).standard_error < np.hypot(a.standard_error, b.standard_error) / 1.5
    joined = idm.join(a, b)
    assert joined.contrast([1, -1]).standard_error == pytest.approx((a - b).standard_error)
    assert (a / b).standard_error > 0


def test_a_difference_of_two_answers_is_that_of_one():
    model = likelihood()
    a, b = (
        idm.infer(model, idm.Statistic(scores, f), influence=True, robust=True)
        for f in (auc, accuracy)
    )
    whole = idm.infer(model, STATISTICS["both"], robust=True).contrast([1, -1])
    assert (a - b).budget["evaluation"] == pytest.approx(whole.budget["evaluation"], rel=1e-9)
    # Of the model's part both find the slopes by draws, to about 5% of each.
    larger = max(a.budget["model"], b.budget["model"])
    assert (a - b).budget["model"] == pytest.approx(whole.budget["model"], abs=0.1 * larger)


def test_a_statistic_less_an_average_over_the_same_rows():
    model = likelihood()
    average = idm.Average(lambda b: (expit(scores(b)) - TRUE) ** 2)
    a = idm.infer(model, idm.Statistic(scores, accuracy), influence=True)
    b = idm.infer(model, average, influence=True)
    right = ((scores(model.theta) > 0) == TRUE) - (expit(scores(model.theta)) - TRUE) ** 2
    expected = right.std(ddof=1) / np.sqrt(M)
    assert (a - b).budget["evaluation"] == pytest.approx(expected, rel=1e-5)  # (1/4 / 200)^2


def test_statistics_without_rows_are_refused_with_the_reason():
    model = likelihood()
    psi = idm.Statistic(scores, auc, clusters=np.arange(M) // 5)
    a, b = (idm.infer(m, psi, influence=True) for m in (model, likelihood(2)))
    with pytest.raises(ValueError, match="no rows were kept"):
        a - b


# Statistics that do not depend on the parameters.


def single(make=likelihood):
    """A logit of one feature and an intercept."""
    x, signs = X[:, :2], np.where(Y > 0, -1, 1)
    if make is equations:
        return idm.from_equations(lambda b: x * (Y - expit(x @ b))[:, None], start=[0.0, 0.0])
    return idm.from_loglik(lambda b: -np.logaddexp(0, signs * (x @ b)), start=[0.0, 0.0])


def line(b):
    return ROWS[:, :2] @ b


def correlation(score, weight):
    x, y = (z - np.average(z, weights=weight) for z in (score, TRUE))
    return (weight * x) @ y / np.sqrt((weight @ x**2) * (weight @ y**2))


def lift(score, weight):
    order = np.argsort(-score)
    share = np.clip(1 - (np.cumsum(weight[order]) - 0.2 * weight.sum()), 0, 1) * weight[order]
    return share @ TRUE[order] / share.sum()


INVARIANT = {
    "auc": idm.Statistic(line, auc),
    "auc of probabilities": idm.Statistic(lambda b: expit(line(b)), auc),
    "correlation": idm.Statistic(line, correlation),
    "lift": idm.Statistic(line, lift),
    "unknown": idm.Statistic(line, auc, "unknown"),
    "clusters": idm.Statistic(line, auc, clusters=np.arange(M) // 4),
    "training": idm.Statistic(lambda b: X[:, :2] @ b, trained, "training"),
}
WAYS = {
    "plain": {},
    "robust": {"robust": True},
    "clusters": {"clusters": CLUSTERS},
    "influence": {"influence": True},
    "simulation": {"method": idm.Simulation(draws=100, rng=0)},
    "differences": {"method": idm.FiniteDifference()},
}


@pytest.mark.parametrize("name", INVARIANT)
@pytest.mark.parametrize("way", WAYS)
def test_the_order_of_one_feature_has_no_model_error(name, way):
    if name == "training" and way in ("simulation", "differences"):
        pytest.skip("the variance of training rows is robust")
    est = idm.infer(single(), INVARIANT[name], **WAYS[way])
    assert est.budget["model"] == 0
    assert est.standard_error == pytest.approx(est.budget["evaluation"], rel=1e-12)
    assert est.standard_error > 0
    assert "does not depend" in est.diagnostics.notes["model_part"]


def test_what_does_not_depend_on_the_parameters_beside_what_does():
    model, psi = single(), INVARIANT["auc"]
    mixed = idm.Statistic(line, both)
    found = idm.infer(model, mixed)
    assert found.budget["model"][0] == 0
    assert found.budget["model"][1] > 0
    for listed in ([psi, lambda b: b[1]], {"auc": psi, "slope": lambda b: b[1]}):
        est = idm.infer(model, listed)
        np.testing.assert_allclose(
            est.standard_error,
            [idm.infer(model, one).standard_error for one in (psi, lambda b: b[1])],
        )
        with pytest.raises(idm.EvaluationError, match="does not depend on the parameters"):
            idm.infer(model, listed, idm.FiniteDifference())
    est = idm.infer(single(equations), psi)
    assert est.budget["model"] == 0
    gap = idm.infer(model, psi, influence=True) - idm.infer(
        likelihood(), STATISTICS["auc"], influence=True
    )
    assert gap.budget["model"] > 0


def test_two_features_and_few_moves_are_not_called_constant():
    assert idm.infer(likelihood(), STATISTICS["auc"]).budget["model"] > 0
    # So little uncertainty that no row passes another, or a threshold, proves nothing.
    for function in (accuracy, both):
        still = idm.Statistic(lambda b: 100 * ROWS[:, 1] + scores(b) / 1e6, function)
        with pytest.raises(idm.EvaluationError, match="same at every draw"):
            idm.infer(likelihood(), still)
    unused = idm.Statistic(scores, lambda s, w: w @ TRUE / w.sum())
    with pytest.raises(idm.EvaluationError, match="does not use its units"):
        idm.infer(likelihood(), unused)


# Functions of something else than units and weight.

WRONG = {
    "roc_auc_score": metrics.roc_auc_score,
    "average_precision_score": metrics.average_precision_score,
    "accuracy_score": metrics.accuracy_score,
    "f1_score": metrics.f1_score,
    "log_loss": metrics.log_loss,
    "brier_score_loss": metrics.brier_score_loss,
    "mean_squared_error": metrics.mean_squared_error,
    "r2_score": metrics.r2_score,
    "metric": partial(metrics.roc_auc_score, TRUE),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_metric_of_labels_and_scores_is_refused_with_a_line_that_works(name):
    with pytest.raises(TypeError, match=r"function\(units, weight\)") as refusal:
        idm.Statistic(scores, WRONG[name])
    line = str(refusal.value).split("Labels are its own: `")[1].split("`")[0]
    assert name in line
    metric = partial(metrics.roc_auc_score) if name == "metric" else WRONG[name]
    decided = name in ("accuracy_score", "f1_score")
    wanted = line.replace(", score,", ", score > 0.5,") if decided else line
    function = eval(wanted, {name: metric, "y_test": TRUE})
    idm.Statistic(scores, function)
    assert np.isfinite(function(expit(scores(np.ones(3))), np.ones(M)))


@pytest.mark.parametrize(
    "function",
    [lambda s: s.mean(), lambda: 0.5, lambda s, w, y: y, metrics.max_error, lambda s, *, weight: 1],
)
def test_other_numbers_of_arguments_are_refused(function):
    with pytest.raises(TypeError, match=r"function\(units, weight\)"):
        idm.Statistic(scores, function)


@pytest.mark.parametrize("function", [auc, lambda u, w=None: 0.5, lambda *args: 0.5, np.average])
def test_functions_that_take_two_arguments_are_taken(function):
    idm.Statistic(scores, function)


# Networks with states of their training.


@pytest.mark.slow
def test_the_difference_of_two_networks_with_checkpoints():
    torch = pytest.importorskip("torch")
    x, y = torch.tensor(X[:, 1:]), torch.tensor(Y)[:, None]
    new = torch.tensor(ROWS[:, 1:])
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(
            torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
        ).double()
        start = {k: v.clone() for k, v in net.state_dict().items()}
        optimizer, states = torch.optim.Adam(net.parameters(), lr=0.02), []
        for step in range(400):
            rows = torch.randperm(N)[:60]
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(net(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            if step >= 200 and step % 10 == 0:
                states.append({k: v.clone() for k, v in net.state_dict().items()})
        models.append(idm.from_torch(net, (x, y), idm.Bernoulli(), start=start, checkpoints=states))

    def mean(net):
        return torch.sigmoid(net(new)).mean()

    a, b = (idm.infer(m, mean, influence=True) for m in models)
    gap = a - b
    expected = np.hypot(a.budget["training"], b.budget["training"])
    assert gap.budget["training"] == pytest.approx(expected)
    assert gap.budget["model"] < a.budget["model"]
    assert "its own seed" in gap.diagnostics.notes["training"]
    psi = idm.Statistic(lambda net: net(new)[:, 0], auc)
    a, b = (idm.infer(m, psi, influence=True) for m in models)
    assert set((a - b).budget) >= {"model", "evaluation", "training", "total"}
    with pytest.raises(ValueError, match="of one training ask for both in one call"):
        idm.infer(models[0], mean, influence=True) - a

"""Statistics that are no means: both parts of their error against closed forms."""

import numpy as np
import pytest

import implicit_delta as idm

RNG = np.random.default_rng(0)
N, M = 120, 200
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
Y = (RNG.random(N) < 1 / (1 + np.exp(-X @ [0.2, 1.0, -0.5]))).astype(float)
ROWS = np.column_stack([np.ones(M), RNG.normal(size=(M, 2))])
LABELS = (RNG.random(M) < 1 / (1 + np.exp(-ROWS @ [0.2, 1.0, -0.5]))).astype(float)


def logit(X, Y, **options):
    return idm.from_loglik(
        lambda b: Y * (X @ b) - np.logaddexp(0, X @ b), start=np.zeros(3), **options
    )


MODEL = logit(X, Y)


def scores(b):
    return ROWS @ b


def mean(score, weight):
    return weight @ score / weight.sum()


def auc_of(labels):
    def auc(score, weight):
        order = np.argsort(score)
        positive, negative = (weight * labels)[order], (weight * (1 - labels))[order]
        return positive @ np.cumsum(negative) / (positive.sum() * negative.sum())

    return auc


auc = auc_of(LABELS)


def accuracy(score, weight):
    return weight @ ((score > 0) == LABELS) / weight.sum()


def quantile(score, weight, level):
    order = np.argsort(score)
    share = np.cumsum(weight[order]) / weight.sum()
    return score[order][np.searchsorted(share, level)]


def median(score, weight):
    return quantile(score, weight, 0.5)


def lower(score, weight):
    return quantile(score, weight, 0.37)


@pytest.mark.parametrize("sample", ["independent", "unknown", "training"])
def test_a_mean_is_an_average(sample):
    rows = X if sample == "training" else ROWS
    average = idm.infer(MODEL, idm.Average(lambda b: rows @ b, sample))
    statistic = idm.infer(MODEL, idm.Statistic(lambda b: rows @ b, mean, sample))
    assert statistic.value == pytest.approx(average.value, rel=1e-12)
    assert statistic.budget["evaluation"] == pytest.approx(average.budget["evaluation"], rel=0.005)
    # The error of a slope that is itself a mean over rows is taken off, as that of jumps is.
    assert statistic.budget["model"] == pytest.approx(average.budget["model"], rel=0.02)
    assert statistic.standard_error == pytest.approx(average.standard_error, rel=0.02)


def test_several_values_have_a_joint_covariance():
    both = idm.infer(MODEL, idm.Statistic(scores, lambda s, w: [mean(s, w), mean(2 * s, w)]))
    assert both.names == ("psi[0]", "psi[1]")
    assert both.standard_error[1] == pytest.approx(2 * both.standard_error[0], rel=1e-6)
    correlation = both.covariance[0, 1] / np.prod(both.standard_error)
    assert correlation == pytest.approx(1, abs=1e-6)


def test_a_function_names_its_estimate():
    assert idm.infer(MODEL, idm.Statistic(scores, auc)).names == ("auc",)


def test_the_evaluation_part_of_an_auc_is_that_of_delong():
    score = scores(MODEL.theta)
    above = score[LABELS == 1][:, None] > score[LABELS == 0]
    first, second = above.mean(axis=1), above.mean(axis=0)
    delong = np.sqrt(np.var(first, ddof=1) / first.size + np.var(second, ddof=1) / second.size)
    found = idm.infer(MODEL, idm.Statistic(scores, auc))
    assert found.budget["evaluation"] == pytest.approx(delong, rel=0.01)
    assert found.diagnostics.notes["evaluation_part"] == "infinitesimal jackknife"


def test_the_evaluation_part_of_an_accuracy_is_binomial():
    found = idm.infer(MODEL, idm.Statistic(scores, accuracy))
    binomial = np.sqrt(found.value * (1 - found.value) / (M - 1))
    assert found.budget["evaluation"] == pytest.approx(binomial, rel=1e-3)


def test_a_quantile_is_bootstrapped():
    score = RNG.normal(size=1500)
    found = idm.infer(MODEL, idm.Statistic(lambda b: score + b[0], median))
    assert "bootstrap" in found.diagnostics.notes["evaluation_part"]
    assert found.budget["evaluation"] == pytest.approx(np.sqrt(np.pi / 2 / 1500), rel=0.25)
    alone = idm.infer(MODEL, lambda b: b[0])
    assert found.budget["model"] == pytest.approx(alone.standard_error, rel=0.02)


def test_many_rows_are_bootstrapped():
    score = RNG.normal(size=3000)
    found = idm.infer(MODEL, idm.Statistic(lambda b: score + b[0], mean))
    assert "bootstrap" in found.diagnostics.notes["evaluation_part"]
    exact = score.std(ddof=1) / np.sqrt(3000)
    assert found.budget["evaluation"] == pytest.approx(exact, rel=4 / np.sqrt(2 * 400))


def test_copies_of_a_row_in_a_cluster_tell_no_more_than_one():
    clusters = np.repeat(np.arange(M), 3)
    labels = np.repeat(LABELS, 3)

    def tied(score, weight):  # half a pair for a tie, of which copies make many
        below = score[:, None] > score
        pairs = np.outer(weight * labels, weight * (1 - labels))
        return np.sum(pairs * below) / pairs.sum()

    once = idm.infer(MODEL, idm.Statistic(scores, auc))
    copies = idm.Statistic(lambda b: np.repeat(scores(b), 3), tied, clusters=clusters)
    thrice = idm.infer(MODEL, copies)
    assert thrice.budget["evaluation"] == pytest.approx(once.budget["evaluation"], rel=1e-6)
    assert thrice.budget["model"] == pytest.approx(once.budget["model"], rel=1e-6)
    assert np.isfinite(thrice.df)


def test_training_rows_that_count_twice_are_two_rows():
    counts = np.random.default_rng(0).integers(0, 3, size=N).astype(float)
    often = np.repeat(np.arange(N), counts.astype(int))
    counted = idm.infer(
        logit(X, Y, weights=counts), idm.Statistic(lambda b: X @ b, auc_of(Y), "training")
    )

    def tied(score, weight):
        pairs = np.outer(weight * Y[often], weight * (1 - Y[often]))
        return np.sum(pairs * (score[:, None] > score)) / pairs.sum()

    repeated = idm.infer(
        logit(X[often], Y[often]), idm.Statistic(lambda b: X[often] @ b, tied, "training")
    )
    assert counted.value == pytest.approx(repeated.value, rel=1e-9)
    assert counted.budget["evaluation"] == pytest.approx(repeated.budget["evaluation"], rel=0.01)
    # The model's part is small here, and known from halves that keep the copies together or not.
    assert counted.standard_error == pytest.approx(repeated.standard_error, rel=0.1)


@pytest.mark.slow
def test_training_rows_agree_with_a_bootstrap_of_everything():
    """Rows are drawn, the model is fitted again and the metric weighted: no approximation."""
    found = idm.infer(MODEL, idm.Statistic(lambda b: X @ b, auc_of(Y), "training"))
    values = []
    for _ in range(600):
        drawn = RNG.integers(N, size=N)
        theta = logit(X[drawn], Y[drawn]).theta
        values.append(auc_of(Y[drawn])(X[drawn] @ theta, np.ones(N)))
    assert found.standard_error == pytest.approx(np.std(values), rel=0.15)


def test_units_may_have_several_columns():
    def top_share(score, weight):
        return weight @ (score.argmax(axis=1) == 1) / weight.sum()

    found = idm.infer(
        MODEL, idm.Statistic(lambda b: np.stack([0 * scores(b), scores(b)], 1), top_share)
    )
    alone = idm.infer(MODEL, idm.Statistic(scores, lambda s, w: w @ (s > 0) / w.sum()))
    assert found.budget == pytest.approx(alone.budget, rel=1e-6)


def test_the_same_question_has_the_same_answer():
    first, second = (idm.infer(MODEL, idm.Statistic(scores, auc)).budget for _ in range(2))
    assert first == second


@pytest.mark.parametrize("options", [{"robust": True}, {"clusters": np.arange(N) // 4}])
def test_robust_errors_are_those_of_the_model_part(options):
    found = idm.infer(MODEL, idm.Statistic(scores, mean), **options)
    average = idm.infer(MODEL, idm.Average(scores), **options)
    assert found.budget["model"] == pytest.approx(average.budget["model"], rel=0.02)


def raises(score, weight):
    raise RuntimeError("no such class")


REFUSALS = {  # units, function, the words of the refusal
    "decisions": (lambda b: scores(b) > 0, accuracy, "Return the scores"),
    "classes": (lambda b: (scores(b) > 0).astype(int), accuracy, "Return the scores"),
    "decisions as floats": (lambda b: 1.0 * (scores(b) > 0), mean, "decide in"),
    "ranks": (lambda b: 1.0 * scores(b).argsort().argsort(), mean, "decide in"),
    "unused model": (lambda b: ROWS[:, 1], mean, "do not change"),
    "missing": (lambda b: np.where(ROWS[:, 1] > 0, np.nan, scores(b)), mean, "NaN"),
    "one row": (lambda b: scores(b)[:1], mean, "one row"),
    "a number": (lambda b: b[0], mean, "one score for each"),
    "ignored weight": (scores, lambda s, w: s.mean(), "ignores its second argument"),
    "a sum": (scores, lambda s, w: w @ s, "weight.sum"),
    "random": (scores, lambda s, w: mean(s, w) + RNG.normal(), "random"),
    "nan": (scores, lambda s, w: np.nan, "NaN or infinite"),
    "nothing": (scores, lambda s, w: None, "must return"),
    "a matrix": (scores, lambda s, w: np.eye(2), "must return"),
    "an error": (scores, raises, "RuntimeError"),
    "steady": (lambda b: 100 * ROWS[:, 1] + scores(b) / 1e6, accuracy, "same at every draw"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_has_no_error_is_refused(case):
    units, function, words = REFUSALS[case]
    with pytest.raises(idm.EvaluationError, match=words):
        idm.infer(MODEL, idm.Statistic(units, function))


def test_a_quantile_of_training_rows_is_refused_with_advice():
    with pytest.raises(idm.EvaluationError, match='sample="unknown"'):
        idm.infer(MODEL, idm.Statistic(lambda b: X @ b, lower, "training"))


def test_other_rows_are_not_the_training_rows():
    with pytest.raises(idm.EvaluationError, match="training row i"):
        idm.infer(MODEL, idm.Statistic(scores, auc, "training"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: idm.Statistic(3, mean),
        lambda: idm.Statistic(scores, 3),
        lambda: idm.Statistic(idm.Average(scores), mean),
        lambda: idm.Statistic(lambda b, rng: scores(b), mean),
        lambda: idm.infer(MODEL, idm.Smoothed(idm.Statistic(scores, mean))),
        lambda: idm.infer(MODEL, idm.Replicated(idm.Statistic(scores, mean))),
        lambda: idm.infer(MODEL, idm.Average(idm.Statistic(scores, mean))),
    ],
)
def test_wrong_wrappers_are_refused(make):
    with pytest.raises(TypeError):
        make()


def test_samples_and_clusters_are_checked():
    with pytest.raises(ValueError, match="sample must be"):
        idm.Statistic(scores, mean, "test")
    with pytest.raises(ValueError, match="clusters=labels"):
        idm.Statistic(scores, mean, "training", clusters=np.arange(M))


def test_the_function_may_change_its_arrays():
    def rude(score, weight):
        value = mean(score, weight)
        score[:], weight[:] = 0.0, 0.0
        return value

    polite = idm.infer(MODEL, idm.Statistic(scores, mean))
    assert idm.infer(MODEL, idm.Statistic(scores, rude)).budget == polite.budget


@pytest.fixture(scope="module")
def trained():
    """A float32 network, stopped early: units along their tangent, whatever the curvature."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    x, y = (torch.as_tensor(a, dtype=torch.float32) for a in (X[:, 1:], Y))
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(net(x)[:, 0], y)
        loss.backward()
        optimizer.step()
    model = idm.from_torch(net, (x, y), idm.Bernoulli(), l2=1.0)
    rows = torch.as_tensor(ROWS[:, 1:], dtype=torch.float32)
    return model, lambda m: m(rows)[:, 0]


def ask(trained, psi):
    method = idm.Infinitesimal(curvature="ggn")
    return idm.infer(trained[0], psi, method, strict=False)


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_a_mean_of_a_network_is_an_average(trained):
    statistic = ask(trained, idm.Statistic(trained[1], mean))
    average = ask(trained, idm.Average(trained[1]))
    assert statistic.budget["evaluation"] == pytest.approx(average.budget["evaluation"], rel=0.01)
    assert statistic.budget["model"] == pytest.approx(average.budget["model"], rel=0.05)


@pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning")
def test_an_auc_of_a_network_has_both_parts(trained):
    budget = ask(trained, idm.Statistic(trained[1], auc)).budget
    assert 0 < budget["model"] < budget["evaluation"] < budget["total"]
    assert budget["total"] == pytest.approx(np.hypot(budget["model"], budget["evaluation"]))


def test_a_statistic_at_its_best_is_warned_about():
    def height(score, weight):
        return 1 - (weight @ score / weight.sum() - 1) ** 2

    steady = 1 + 0.01 * RNG.normal(size=M)
    with pytest.warns(idm.NonlinearityWarning, match="near its best"):
        idm.infer(MODEL, idm.Statistic(lambda b: steady + b[0] - MODEL.theta[0], height))

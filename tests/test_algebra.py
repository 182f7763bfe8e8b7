"""Estimates compose: selections, expressions, functions, joins and arithmetic obey their laws."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import ttest_ind

import implicit_delta as idm
from implicit_delta.estimate import Estimate, Rows

n = 240
RNG = np.random.default_rng(3)
X = np.column_stack([np.ones(n), RNG.normal(size=(n, 2))])
Z = np.column_stack([np.ones(n), X[:, 1] + 0.5 * RNG.normal(size=n)])
T = X @ [0.3, 1.0, -0.5] + (1 + np.abs(X[:, 1])) * RNG.normal(size=n)
Y = (RNG.random(n) < expit(X @ [0.2, 0.8, -0.4])).astype(float)
GROUPS = np.repeat(np.arange(40), 6)
NAMES = {"line": ["one", "x", "tr"], "logit": ["c", "u", "v"], "short": ["d", "w"]}


def line(weights=None, **options):
    return idm.from_residuals(lambda b: T - X @ b, start=np.zeros(3), weights=weights, **options)


def logit(weights=None, rows=slice(None)):
    y, x = Y[rows], X[rows]
    return idm.from_loglik(
        lambda b: y * (x @ b) - np.logaddexp(0, x @ b), start=np.zeros(3), weights=weights
    )


def short(weights=None):
    return idm.from_loglik(
        lambda b: Y * (Z @ b) - np.logaddexp(0, Z @ b), start=np.zeros(2), weights=weights
    )


MODELS = {"line": line, "logit": logit, "short": short}


def ask(name, weights=None, **options):
    """All parameters of one of the models, with their influences."""
    model = MODELS[name](weights)
    return idm.infer(model, idm.parameters, names=NAMES[name], influence=True, **options)


def same(one, other, rtol=1e-12):
    """Everything that two estimates are made of, but for their names."""
    for field in ("value", "covariance", "df", "influence", "draws", "acceleration", "deviations"):
        ours, theirs = getattr(one, field), getattr(other, field)
        assert (ours is None) == (theirs is None), field
        if ours is not None:
            scale = np.max(np.abs(theirs), initial=1e-300) if np.all(np.isfinite(theirs)) else 1.0
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * scale)
    assert list(one.parts) == list(other.parts)
    for part, V in other.parts.items():
        np.testing.assert_allclose(one.parts[part], V, rtol=rtol)
    assert isinstance(one.value, float) == isinstance(other.value, float)


def influences(name):
    """Influences by hand, (n, d), and the inverse information."""
    if name == "line":
        A = np.linalg.inv(X.T @ X)
        return (T - X @ (A @ X.T @ T))[:, None] * X @ A
    design = X if name == "logit" else Z
    b = MODELS[name]().theta
    p = expit(design @ b)
    return (Y - p)[:, None] * design @ np.linalg.inv((p * (1 - p) * design.T) @ design)


# Selections.

SELECTIONS = {
    "name": ("tr", [2]),
    "number": (2, [2]),
    "from the end": (-1, [2]),
    "NumPy's number": (np.int64(1), [1]),
    "slice": (slice(1, None), [1, 2]),
    "steps": (slice(None, None, -1), [2, 1, 0]),
    "names": (["tr", "one"], [2, 0]),
    "numbers": ([2, 0], [2, 0]),
    "an array": (np.array([0, 2]), [0, 2]),
    "a mask": ([True, False, True], [0, 2]),
    "one in a list": (["x"], [1]),
}


@pytest.mark.parametrize("case", SELECTIONS)
@pytest.mark.parametrize("options", [{}, {"robust": "HC3"}], ids=["plain", "HC3"])
def test_a_selection_is_its_contrast(case, options):
    key, places = SELECTIONS[case]
    est = ask("line", **options)
    C = np.eye(3)[places if isinstance(key, slice | list | np.ndarray) else places[0]]
    same(est[key], est.contrast(C))
    assert est[key].names == tuple(est.names[k] for k in places)


def test_iteration_and_membership():
    est = ask("line")
    assert [one.names[0] for one in est] == ["one", "x", "tr"]
    assert "tr" in est
    assert "treated" not in est


def test_a_selection_keeps_draws_and_acceleration():
    boot = idm.infer(logit(), lambda b: np.exp(b), idm.Bootstrap(60, rng=0), names=["a", "b", "c"])
    alone = idm.infer(logit(), lambda b: np.exp(b[1]), idm.Bootstrap(60, rng=0))
    same(boot["b"], alone, rtol=1e-9)


# Expressions.

EXPRESSIONS = {
    "x - tr": [0, 1, -1],
    "tr": [0, 0, 1],
    "-tr": [0, 0, -1],
    "+x": [0, 1, 0],
    "(one + x) / 2 - tr": [0.5, 0.5, -1],
    "2*x - 3 * (tr - one)": [3, 2, -3],
    "x * 2e-1": [0, 0.2, 0],
    "`x` - 'tr'": [0, 1, -1],
    "x - x": [0, 0, 0],
    "  x\n - tr ": [0, 1, -1],
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_is_its_matrix(text):
    est = ask("line", robust=True)
    same(est.contrast(text), est.contrast(EXPRESSIONS[text]))


def test_several_expressions():
    est = ask("line")
    both = est.contrast(["x - tr", "x + tr"])
    same(both, est.contrast([[0, 1, -1], [0, 1, 1]]))
    assert both.names == ("x - tr", "x + tr")
    assert est.contrast("x - tr", names="gap").names == ("gap",)
    assert est.contrast("x - 1").value == pytest.approx(est.value[1] - 1, rel=1e-15)


ODD = ("C(g)[T.b]", "x:z", "log(x)", "größe", "a b", "x", "x2", "it's", "theta[0]", "np.log(x + 1)")


@pytest.mark.parametrize("k", range(len(ODD)))
@pytest.mark.parametrize("form", ["{}", "`{}`", "2 * {} - x2", "x2 - `{}`"])
def test_odd_names(k, form):
    est = Estimate(np.arange(10.0), np.diag(np.arange(1.0, 11)), ODD, "by hand")
    row, two = np.eye(10)[k], np.eye(10)[6]
    expected = {"{}": row, "`{}`": row, "2 * {} - x2": 2 * row - two, "x2 - `{}`": two - row}
    same(est.contrast(form.format(ODD[k])), est.contrast(expected[form]))


REFUSED = {
    "x * tr": "not linear.*apply",
    "x / tr": "not linear",
    "x ** 2": "not linear",
    "exp(x)": "no evaluation 'exp'",
    "__import__('os').getcwd()": "no evaluation",
    "x - treated": "no evaluation 'treated'",
    "x = tr": "difference",
    "x == tr": "difference",
    "x -": "not an expression",
    "": "not an expression",
    "x tr": "not an expression",
    "x - `tr": "not an expression",
    "x - 'nobody'": "no evaluation 'nobody'",
    "x / 0": "divides by zero",
    "x * 1e400": "not finite",
    "x[0]": "not linear",
    "(lambda: x)()": "not linear",
    "x if tr else one": "not linear",
    "x\x00": "not an expression",
    "(" * 5000 + "x" + ")" * 5000: "not an expression",
    "x" + " + x" * 60_000: "give a matrix",
    "x - True": "no evaluation|not linear",
    "v_1": "no evaluation",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:20])
def test_expressions_that_are_refused(text):
    with pytest.raises((ValueError, TypeError), match=REFUSED[text]):
        ask("line").contrast(text)


def test_two_readings_are_refused():
    est = Estimate([1.0, 3.0, 7.0], np.eye(3), ("a", "b", "a - b"), "by hand")
    with pytest.raises(ValueError, match="two readings"):
        est.contrast("a - b")
    assert est.contrast("`a - b`").value == 7.0
    assert est.contrast("`a` - b").value == -2.0
    numbers = Estimate([1.0, 3.0], np.eye(2), ("1", "2"), "by hand")
    with pytest.raises(ValueError, match="two readings"):
        numbers.contrast("2 - 1")
    assert numbers.contrast("`2` - `1`").value == 2.0


# Functions.


def test_the_identity_changes_nothing():
    for est in (ask("line", robust="HC2"), ask("logit")["u"], full()):
        other = est.apply(lambda v: v)
        same(other, est)
        assert other.names == est.names
        assert other.diagnostics == est.diagnostics
        np.testing.assert_array_equal(other.covariance, est.covariance)


def full():
    """An estimate with everything in it."""
    y = RNG.normal(size=(30, 2))
    h = idm.Average(lambda b: y * b[1])
    est = idm.infer(logit(), h, influence=True, names=["p", "q"])
    draws = RNG.multivariate_normal(est.value, est.covariance, size=50)
    state = {name: getattr(est, name) for name in est.__dataclass_fields__}
    return Estimate(**{**state, "parts": dict(est.parts), "draws": draws})


FUNCTIONS = {
    "ratio": (lambda v: v[1] / v[0], lambda b: b[1] / b[0]),
    "several": (lambda v: np.array([np.exp(v[1]), v[0] * v[2]]), None),
    "not traceable": (lambda v: float(v[1]) * 2 + float(v[2]), None),
    "a list": (lambda v: [v[0] + v[1], np.log1p(v[1] ** 2)], None),
    "a sum": (np.sum, None),
}


@pytest.mark.filterwarnings("ignore::implicit_delta.NonlinearityWarning")
@pytest.mark.parametrize("case", FUNCTIONS)
@pytest.mark.parametrize("options", [{}, {"robust": True}, {"clusters": GROUPS}], ids=str)
def test_a_function_of_estimates_is_one_of_the_model(case, options):
    f = FUNCTIONS[case][0]
    est = ask("logit", **options)
    one = est.apply(f, strict=False)
    model = idm.infer(logit(), f, influence=True, strict=False, **options)
    np.testing.assert_allclose(one.value, model.value, rtol=1e-12)
    np.testing.assert_allclose(one.standard_error, model.standard_error, rtol=1e-6)
    np.testing.assert_allclose(one.influence, model.influence, rtol=1e-5, atol=1e-9)
    assert isinstance(one.value, float) == isinstance(model.value, float)


def test_functions_of_functions():
    est = ask("line")
    twice = est.apply(lambda v: v[1:] / 4).apply(lambda v: np.array([v[0] + v[1], v[0] - v[1]]))
    same(twice, est.contrast([[0, 0.25, 0.25], [0, 0.25, -0.25]]), rtol=1e-12)


def test_names_of_functions():
    est = ask("line")
    assert est[1:].apply(np.exp, strict=False).names == ("exp(x)", "exp(tr)")
    assert est["x"].apply(np.arctan).names == ("arctan(x)",)
    assert est.apply(lambda v: v[0] - v[1]).names == ("f",)
    assert est.apply(lambda v: v[:2] - v[2], names=["a", "b"]).names == ("a", "b")


def test_draws_go_through_the_function():
    boot = idm.infer(logit(), idm.parameters, idm.Bootstrap(80, rng=1))
    ratio = boot.apply(lambda v: np.exp(v[1] - v[0]), strict=False)
    np.testing.assert_allclose(
        ratio.draws[:, 0], np.exp(boot.draws[:, 1] - boot.draws[:, 0]), rtol=1e-14
    )
    alone = idm.infer(logit(), lambda b: np.exp(b[1] - b[0]), idm.Bootstrap(80, rng=1))
    np.testing.assert_allclose(
        ratio.confidence_interval(kind="percentile"),
        alone.confidence_interval(kind="percentile"),
        rtol=1e-6,
    )


def test_stretched_draws_are_stretched_anew():
    est = full()
    gap = est.apply(lambda v: v[0] - v[1])
    same_gap = est.contrast([1, -1])
    np.testing.assert_allclose(gap.draws, same_gap.draws, rtol=1e-10)


def test_draws_outside_of_the_domain_are_no_draws():
    est = Estimate(0.5, [[0.01]], ("a",), "by hand", draws=[[0.5], [0.6], [-0.1]])
    found = est.apply(np.log, strict=False)
    assert found.draws is None


def test_parts_go_through_the_function():
    est = full()
    gap = est.apply(lambda v: 2 * v[0] - v[1])
    C = np.array([2.0, -1.0])
    for part, V in est.parts.items():
        assert gap.parts[part][0, 0] == pytest.approx(C @ V @ C, rel=1e-12)
    assert set(gap.budget) == {"model", "evaluation", "total"}


BENDS = {
    "a square near its turning point": (lambda v: v**2, 0.2, 1.0, "refused"),
    "a ratio with a vague denominator": (lambda v: 1 / v, 1.0, 0.5, "warns"),
    "a ratio through its pole": (lambda v: 1 / v, 0.4, 1.0, "refused"),
    "a logarithm beyond its domain": (np.log, 0.4, 1.0, "refused"),
    "a square at zero": (lambda v: v**2, 0.0, 1.0, "refused"),
    "an absolute value at zero": (abs, 0.0, 1.0, "refused"),
    "a rounding": (np.round, 3.2, 1.0, "refused"),
    "a rounding further away": (np.round, 3.0, 0.5, "refused"),
    "an exponential": (np.exp, 1.0, 0.05, "passes"),
    "a square far away": (lambda v: v**2, 10.0, 0.5, "passes"),
}


@pytest.mark.parametrize("case", BENDS)
def test_functions_that_bend(case):
    f, value, error, outcome = BENDS[case]
    est = Estimate(value, [[error**2]], ("a",), "by hand")
    if outcome == "refused":
        with pytest.raises(idm.ImplicitDeltaError):
            est.apply(f)
    elif outcome == "warns":
        with pytest.warns(idm.NonlinearityWarning, match="bends"):
            assert est.apply(f).diagnostics.nonlinearity > 0.08
    else:
        assert est.apply(f).diagnostics.nonlinearity < 0.08


FLAT = {
    "a step": (lambda q, c: 1.0 * (q[0] > c), True),
    "a step of another": (lambda q, c: 1.0 * (q[9] > c), True),
    "a maximum": (lambda q, c: np.maximum(q[0], c), True),
    "a bump": (lambda q, c: 1.0 * (c < q[0] < c + 1.0), True),
    "a step of a mean": (lambda q, c: 1.0 * (np.mean(q) > c / 10**0.5), True),
    "a vote": (lambda q, c: np.sum(q > c), True),
    "one of two": (lambda q, c: [q[1], 1.0 * (q[0] < -c)], True),
    "a constant": (lambda q, c: 3.0, False),
    "a constant beside another": (lambda q, c: [q[0], 1.0], False),
    "a rounding of what is sure": (lambda q, c: np.round(0.1 * q[0]), False),
    "a step far away": (lambda q, c: 1.0 * (q[0] > c + 4), False),
}


@pytest.mark.parametrize("away", [0.6, 1.0, 1.5])
@pytest.mark.parametrize("case", FLAT)
def test_functions_that_are_flat_at_the_values(case, away):
    f, moves = FLAT[case]
    est = Estimate(np.zeros(10), np.eye(10), list("abcdefghij"), "by hand")
    if moves:
        with pytest.raises(idm.EvaluationError, match="derivative is exactly zero"):
            est.apply(lambda q: f(q, away))
    else:
        assert np.atleast_1d(est.apply(lambda q: f(q, away)).standard_error)[-1] == 0.0


def test_a_bend_beside_the_response_is_seen():
    """The derivative by b is zero, so that the response is along a alone."""
    est = Estimate([5.0, 0.0], np.diag([1.0, 1.0]), ("a", "b"), "by hand")
    with pytest.warns(idm.NonlinearityWarning):
        est.apply(lambda v: v[0] + 0.5 * v[1] ** 2)
    flat = Estimate([0.0, 0.0], np.diag([1.0, 1.0]), ("a", "b"), "by hand")
    with pytest.raises(idm.EvaluationError, match="derivative is exactly zero"):
        flat.apply(lambda v: v[0] * v[1])


AT = ask("line").value[1]
MISUSES = {
    "no function": ("x - tr", TypeError, "contrast"),
    "random": (lambda v: v[0] + np.random.default_rng().normal(), None, "random"),
    "a dictionary": (lambda v: {"a": v[0]}, None, "must return a number"),
    "a matrix": (lambda v: np.outer(v, v), None, "must return a number"),
    "complex": (lambda v: v[0] * 1j, None, "must return a number"),
    "nothing": (lambda v: v[:0], None, "must return a number"),
    "infinite": (lambda v: np.log(0 * v[0]), None, "NaN or infinite"),
    "another shape": (lambda v: v[v >= AT], None, "the same shape"),
    "a text": (lambda v: "x", None, "must return a number"),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", MISUSES)
def test_functions_that_are_refused(case):
    f, kind, text = MISUSES[case]
    with pytest.raises(kind or idm.EvaluationError, match=text):
        ask("line").apply(f)


# Joins.


@pytest.mark.parametrize(
    "options", [{"robust": True}, {"clusters": GROUPS}], ids=["rows", "groups"]
)
def test_a_join_is_the_sandwich_of_stacked_equations(options):
    both = idm.join(*(ask(name, **options) for name in MODELS))
    stacked = np.hstack([influences(name) for name in MODELS])
    if "clusters" in options:
        stacked = np.array([stacked[g == GROUPS].sum(axis=0) for g in range(40)])
    np.testing.assert_allclose(both.covariance, stacked.T @ stacked, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        both.influence, np.hstack([influences(name) for name in MODELS]), rtol=1e-5, atol=1e-8
    )
    assert both.names == ("one", "x", "tr", "c", "u", "v", "d", "w")


FEW = (GROUPS, np.random.default_rng(0).integers(20, size=n))
OPTIONS = {
    "plain": {},
    "HC1": {"robust": "HC1"},
    "HC3": {"robust": "HC3"},
    "CR1": {"robust": "CR1", "clusters": GROUPS},
    "two ways": {"clusters": (GROUPS, np.random.default_rng(1).integers(60, size=n))},
    "HAC": {"robust": idm.HAC(3)},
    "sampling": {},
}


@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
@pytest.mark.parametrize("case", [c for c in OPTIONS if c not in ("HC3", "sampling")])
def test_laws_of_a_join(case):
    a, b, c = (ask(name, **OPTIONS[case]) for name in MODELS)
    both = idm.join(a, b)
    same(both[:3], a)
    same(both["x"], a["x"])
    same(both[["c", "u", "v"]], b)
    same(idm.join(b, a)[[3, 4, 5, 0, 1, 2]], both)
    same(idm.join(idm.join(a, b), c), idm.join(a, idm.join(b, c)))
    same(idm.join(a["x"], b["u"]), both[["x", "u"]])
    same((a["x"] - b["u"]) + (b["u"] - c["w"]), a["x"] - c["w"])
    same(a["x"] - b["u"], both.contrast("x - u"))
    V = both.covariance
    size = np.sqrt(np.diag(V))
    assert np.linalg.eigvalsh(V / np.outer(size, size))[0] > -1e-10
    twice = idm.join(a, a)
    np.testing.assert_array_equal(twice.covariance, np.tile(a.covariance, (2, 2)))


TOGETHER = {
    **{case: OPTIONS[case] for case in ("HC1", "HC3", "CR1", "two ways", "HAC")},
    "HC2": {"robust": "HC2"},
    "CR2": {"robust": "CR2", "clusters": GROUPS},
    "parzen": {"robust": idm.HAC(5, "parzen", adjust=True)},
    "two ways, CR1": {**OPTIONS["two ways"], "robust": "CR1"},
}


@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
@pytest.mark.parametrize("case", TOGETHER)
def test_a_join_of_two_answers_is_the_answer_to_both(case):
    """Robust errors of one model, asked one by one and joined, or asked at once."""
    model, options = line(), TOGETHER[case]
    parts = [idm.infer(model, lambda b, k=k: b[k], influence=True, **options) for k in range(3)]
    at_once = idm.infer(model, idm.parameters, influence=True, **options)
    joined = idm.join(*parts)
    np.testing.assert_allclose(joined.covariance, at_once.covariance, rtol=1e-6)
    gap = (parts[1] - parts[2]).standard_error
    assert gap == pytest.approx(at_once.contrast([0, 1, -1]).standard_error, rel=1e-6)


def test_leverage_and_factors_are_kept():
    a, b = ask("line", robust="HC3"), ask("line", robust="HC1")
    both = idm.join(a, b)
    np.testing.assert_array_equal(both.covariance[:3, :3], a.covariance)
    np.testing.assert_array_equal(both.covariance[3:, 3:], b.covariance)
    correlation = both.covariance[1, 4] / np.sqrt(both.covariance[1, 1] * both.covariance[4, 4])
    by_hand = np.corrcoef(a.influence[:, 1], b.influence[:, 1])[0, 1]
    assert 0.99 < correlation < 1
    assert correlation == pytest.approx(by_hand, abs=1e-3)


def test_what_is_the_same_cancels():
    a = ask("logit")
    for nothing in (a - a, a["u"] - a["u"], a - ask("logit"), a + -a, a - 2 * a / 2):
        np.testing.assert_array_equal(np.atleast_1d(nothing.value), 0.0)
        np.testing.assert_array_equal(nothing.covariance, 0.0)
        assert "cancel" in nothing.diagnostics.notes["variance"]
        assert "cancel" in nothing.summary()
    ratio = a["u"] / a["u"]
    assert (ratio.value, ratio.standard_error) == (1.0, 0.0)


def test_model_based_errors_stay_in_one_model():
    """Parts of one answer have its covariance, whatever the influences are."""
    est = ask("logit")
    same(est["u"] - est["v"], est.contrast("u - v"))
    same(idm.join(est["v"], est["c"]), est[["v", "c"]])
    bare = idm.infer(logit(), idm.parameters, names=["c", "u", "v"])
    assert bare.influence is None
    same(bare["u"] - bare["v"], bare.contrast("u - v"))
    with pytest.warns(idm.NonlinearityWarning):
        same(bare["u"] / bare["v"], bare.apply(lambda v: v[1] / v[2]), rtol=1e-9)


def test_a_changed_copy_is_another_estimate():
    """Its identity and lineage are those of the original, and its numbers are not."""
    a, b = ask("logit", robust=True), ask("line", robust=True)
    for est in (a["u"], a["u"] - b["x"]):
        wider = replace(est, covariance=4 * est.covariance)
        assert (wider - est).standard_error == pytest.approx(est.standard_error, rel=1e-6)
        assert (wider + b["tr"]).standard_error > 1.5 * est.standard_error
    bare = idm.infer(logit(), lambda b: b[1])
    with pytest.raises(ValueError, match="influence=True"):
        bare - replace(bare, covariance=4 * bare.covariance)


def test_an_evaluation_without_error_joins():
    """Influences of rounding size are none where there is no variance."""
    f = np.column_stack([RNG.normal(size=30), 1e-25 * RNG.normal(size=30), RNG.normal(size=30)])
    V = np.diag([2.0, 0.0, 1.0])
    est = Estimate(np.ones(3), V, ["a", "still", "b"], "by hand", influence=f)
    both = idm.join(est, by_hand(30))
    np.testing.assert_array_equal(both.covariance[1], 0.0)
    assert both.covariance[0, 3] != 0


def test_drifts_and_noise_of_trainings():
    """A drift is a bias, which adds with its sign; noise of two trainings is not joined."""
    noisy = [
        by_hand(20, drift=[0.3], parts={"model": [[1.0]], "training": [[0.5]]}, covariance=[[1.5]]),
        by_hand(20, k=1, drift=[0.1]),
        by_hand(20, k=2, parts={"model": [[1.0]], "training": [[0.5]]}, covariance=[[1.5]]),
    ]
    gap = noisy[0] - noisy[1]
    assert gap.drift == pytest.approx([0.2])
    assert gap.diagnostics.drift == pytest.approx(0.2 / gap.standard_error)
    assert gap.budget["training"] == pytest.approx(0.5**0.5)
    assert (2 * noisy[0]).drift == pytest.approx([0.6])
    assert (idm.join(*noisy[:2]) + 1)[0].budget == noisy[0].budget
    with pytest.raises(ValueError, match=r"random errors \(training\)"):
        noisy[0] - noisy[2]


def test_frequencies_are_repeated_rows():
    counts = RNG.integers(0, 4, size=n).astype(float)
    a, b = ask("line", counts, robust=True), ask("short", counts, robust=True)
    rows = np.repeat(np.arange(n), counts.astype(int))
    X2, Z2, T2, Y2 = X[rows], Z[rows], T[rows], Y[rows]
    c = idm.infer(
        idm.from_residuals(lambda b: T2 - X2 @ b, start=np.zeros(3)), idm.parameters, robust=True
    )
    d = idm.infer(
        idm.from_loglik(lambda b: Y2 * (Z2 @ b) - np.logaddexp(0, Z2 @ b), start=np.zeros(2)),
        idm.parameters,
        robust=True,
    )
    np.testing.assert_allclose(
        idm.join(a, b).covariance, idm.join(c, d).covariance, rtol=1e-5, atol=1e-9
    )


def test_rows_without_weight_are_not_there():
    """Fits to overlapping halves, as weights of zero and one, depend through shared rows."""
    early, late = (np.arange(n) < 160).astype(float), (np.arange(n) >= 80).astype(float)
    a, b = ask("logit", early, robust=True), ask("short", late, robust=True)
    cross = idm.join(a, b).covariance[:3, 3:]
    shared = (early * late)[:, None]
    np.testing.assert_allclose(cross, (shared * a.influence).T @ b.influence, rtol=1e-10)


def test_separate_samples():
    first, second = T[:150], T[150:] + 0.3
    a, b = (
        idm.infer(idm.from_residuals(lambda m, y=y: y - m[0], start=[0.0]), lambda m: m[0], names=s)
        for y, s in ((first, "a"), (second, "b"))
    )
    gap = idm.join(a, b, independent=True).contrast("a - b")
    truth = ttest_ind(first, second, equal_var=False)
    assert gap.test().statistic == pytest.approx(truth.statistic, rel=1e-9)
    assert gap.df == pytest.approx(truth.df, rel=1e-9)
    assert gap.test().p_value == pytest.approx(truth.pvalue, rel=1e-7)
    both = idm.join(a, b, independent=True)
    same(both["a"] - both["b"], gap)  # it is remembered
    with pytest.raises(ValueError, match="independent of itself"):
        idm.join(both, a, independent=True)


def test_averages_over_training_rows():
    """The join of two averages is the one of both in one psi."""
    model = logit()
    h = [lambda b: expit(X @ b), lambda b: expit(X[:, :2] @ b[:2])]
    a, b = (idm.infer(model, idm.Average(one, sample="training"), influence=True) for one in h)
    both = idm.infer(
        model,
        idm.Average(lambda b: np.column_stack([one(b) for one in h]), sample="training"),
        influence=True,
    )
    joined = idm.join(a, b)
    np.testing.assert_allclose(joined.covariance, both.covariance, rtol=1e-7)
    assert list(joined.parts) == ["rows"]
    plain = ask("line", robust=True)
    cross = idm.join(a, plain).covariance[0, 1:]
    np.testing.assert_allclose(cross, a.influence[:, 0] @ plain.influence, rtol=1e-9)


@pytest.mark.parametrize("sample", ["independent", "unknown"])
def test_averages_over_the_same_evaluation_rows(sample):
    model, new = logit(), np.random.default_rng(8).normal(size=(90, 3))
    h = [lambda b: expit(new @ b), lambda b: expit(new[:, :2] @ b[:2])]
    a, b = (
        idm.infer(model, idm.Average(one, sample=sample), influence=True, robust=True) for one in h
    )
    whole = idm.Average(lambda b: np.column_stack([one(b) for one in h]), sample=sample)
    both = idm.infer(model, whole, influence=True, robust=True)
    joined = idm.join(a, b)
    np.testing.assert_allclose(joined.covariance, both.covariance, rtol=1e-7)
    for part, V in both.parts.items():
        np.testing.assert_allclose(joined.parts[part], V, rtol=1e-7)
    assert joined.errors_add == both.errors_add
    assert (a - b).standard_error == pytest.approx(both.contrast([1, -1]).standard_error, rel=1e-7)
    plain = ask("line", robust=True)
    same(idm.join(a, plain)[0], a)
    same(idm.join(a, plain)[1:], plain)


@pytest.mark.parametrize("case", ["HC0", "CR1", "HAC", "average"])
def test_there_and_back(case, tmp_path):
    options = {"HC0": {"robust": True}, "CR1": OPTIONS["CR1"], "HAC": OPTIONS["HAC"]}.get(case, {})
    counts = None if case == "HAC" else 1.0 + (np.arange(n) % 3)
    a, b = ask("logit", counts, **options), ask("short", counts, **options)
    if case == "average":
        new = np.random.default_rng(8).normal(size=(90, 3))
        a, b = (
            idm.infer(logit(), idm.Average(lambda b, k=k: expit(k * new @ b)), influence=True)
            for k in (1, 2)
        )
    for est, name in ((a, "a"), (b, "b"), (a - b if case == "average" else a["u"] - b["w"], "gap")):
        est.save(tmp_path / name)
        same(Estimate.load(tmp_path / name), est)
    first, second = (Estimate.load(tmp_path / name) for name in "ab")
    same(idm.join(first, second), idm.join(a, b))
    nothing = first - a
    np.testing.assert_array_equal(nothing.covariance, 0.0)
    gap = Estimate.load(tmp_path / "gap")
    again = a - b if case == "average" else a["u"] - b["w"]
    assert gap.standard_error == again.standard_error


# Arithmetic.


def test_arithmetic_with_numbers():
    a = ask("line")
    table = {
        "2 * a": (2 * a, 2 * a.value, 2 * a.standard_error),
        "a / 4": (a / 4, a.value / 4, a.standard_error / 4),
        "-a": (-a, -a.value, a.standard_error),
        "a - 1": (a - 1.0, a.value - 1, a.standard_error),
        "1 - a": (1 - a, 1 - a.value, a.standard_error),
        "a + array": (a + np.arange(3), a.value + np.arange(3), a.standard_error),
        "array - a": (np.arange(3) - a, np.arange(3) - a.value, a.standard_error),
        "array * a": (np.array([1, 0, 2]) * a, a.value * [1, 0, 2], a.standard_error * [1, 0, 2]),
        "NumPy's number": (np.float64(3) * a, 3 * a.value, 3 * a.standard_error),
        "sum": (sum([a, a]), 2 * a.value, 2 * a.standard_error),
        "one and several": (a["x"] + [1, 2], a.value[1] + [1, 2], a.standard_error[[1, 1]]),
    }
    for found, value, error in table.values():
        np.testing.assert_allclose(found.value, value, rtol=1e-15)
        np.testing.assert_allclose(found.standard_error, error, rtol=1e-12)
    assert (2 * a).names == ("2 one", "2 x", "2 tr")
    assert (a["x"] - 1).names == ("x - 1",)
    assert ((a["x"] - a["tr"]) / 2).names == ("0.5 (x - tr)",)
    assert (a["one"] - (a["x"] - a["tr"])).names == ("one - (x - tr)",)
    inverse = 1 / (a["x"] + 5)
    assert inverse.value == pytest.approx(1 / (a.value[1] + 5))
    assert inverse.standard_error == pytest.approx(a.standard_error[1] / (a.value[1] + 5) ** 2)


def test_arithmetic_of_estimates():
    a, b = ask("line", robust=True), ask("logit", robust=True)
    both, V = idm.join(a, b), idm.join(a, b).covariance
    total = a + b
    for k in range(3):
        pair = V[np.ix_([k, k + 3], [k, k + 3])]
        assert total.covariance[k, k] == pytest.approx(pair.sum(), rel=1e-12)
    assert total.names == ("one + c", "x + u", "tr + v")
    shifted = a["x"] * (b["u"] + 3)
    g = np.array([b.value[1] + 3, a.value[1]])
    pair = V[np.ix_([1, 4], [1, 4])]
    assert shifted.standard_error == pytest.approx(np.sqrt(g @ pair @ g), rel=1e-9)
    assert shifted.names == ("x * (u + 3)",)
    ratio = a["x"] / (b["u"] + 3)
    g = np.array([1, -ratio.value]) / (b.value[1] + 3)
    assert ratio.standard_error == pytest.approx(np.sqrt(g @ pair @ g), rel=1e-9)
    same(a - b["u"], both.contrast([[1, 0, 0, 0, -1, 0], [0, 1, 0, 0, -1, 0], [0, 0, 1, 0, -1, 0]]))


def test_the_result_is_an_estimate_like_any_other(tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    a, b = ask("line", robust=True), ask("logit", robust=True)
    gap = idm.join(a, b)[["x", "u"]].apply(
        lambda v: [v[0] - v[1], v[0] + v[1]], names=["gap", "sum"]
    )
    assert "gap" in repr(gap)
    assert "Diagnostics" in gap.summary()
    assert gap.to_frame().shape[0] == 2
    assert gap.plot() is not None
    assert gap.test(joint=True).p_value < 1
    assert np.all(gap.confidence_interval(simultaneous=True).low < gap.value)
    assert gap["sum"].confidence_interval(transform="log").low > 0
    assert gap.top_influence(3).row.shape == (3,)
    assert gap.budget["total"].shape == (2,)


# Refusals.


def by_hand(n=20, k=0, **fields):
    f = np.random.default_rng((n, k)).normal(size=(n, 1))
    content = {"covariance": f.T @ f, **fields}
    return Estimate(1.0, names=(f"n{n}",), method="by hand", influence=f, **content)


WRONG = {
    "no influence": (
        lambda: idm.join(ask("line"), idm.infer(logit(), idm.parameters)),
        "influence=True",
    ),
    "other numbers of rows": (lambda: by_hand(20) - by_hand(30), "20 and 30 rows.*independent"),
    "other weights": (
        lambda: ask("line", np.full(n, 2.0)) - ask("logit", np.full(n, 3.0)),
        "weigh the same rows differently: row 0 counts",
    ),
    "weights and none": (
        lambda: ask("line", 1.0 + (np.arange(n) > 3)) - ask("logit"),
        "row 4 counts 2 and 1",
    ),
    "clusters and none": (
        lambda: ask("line", clusters=GROUPS) - ask("logit", robust=True),
        "clusters=labels",
    ),
    "other clusters": (
        lambda: ask("line", clusters=GROUPS) - ask("logit", clusters=GROUPS[::-1] // 2),
        "clusters=labels",
    ),
    "two ways of few groups": (
        lambda: idm.join(*(ask(name, clusters=FEW) for name in MODELS)),
        "not positive semi-definite",
    ),
    "other lags": (
        lambda: ask("line", robust=idm.HAC(2)) - ask("logit", robust=idm.HAC(3)),
        "HAC",
    ),
    "numbers that do not pair": (lambda: ask("line") - ask("short"), "3 and 2 evaluations"),
    "names in another order": (
        lambda: ask("line") - ask("line", robust=True)[::-1],
        "same names in another order",
    ),
    "numbers for each": (lambda: ask("line") + np.ones(2), "2 numbers for 3"),
    "a list of estimates": (lambda: idm.join([by_hand()]), "one by one"),
    "no estimates": (lambda: idm.join(), "one estimate or more"),
    "a number": (lambda: idm.join(by_hand(), 3.0), "one estimate or more"),
    "names for too few": (lambda: idm.join(by_hand(), names=["a", "b"]), "1 evaluations, but 2"),
    "not a number": (lambda: by_hand() - np.nan, "finite numbers"),
    "by zero": (lambda: by_hand() / 0, "divided by zero"),
    "by an estimate of zero": (lambda: by_hand() / (by_hand() - 1.0), "the value 0"),
    "a text": (lambda: by_hand() + "x", "unsupported operand"),
    "no such name": (lambda: by_hand()["x"], "no evaluation 'x'"),
    "no such number": (lambda: by_hand()[1], "no evaluation 1"),
    "two keys": (lambda: by_hand()["n20", 0], "give a list"),
    "a float": (lambda: by_hand()[0.0], "a name, a number"),
    "nothing": (lambda: by_hand()[1:], "selects no evaluation"),
    "a short mask": (lambda: ask("line")[[True, False]], "one for each"),
    "a truth": (lambda: by_hand()[True], "a name, a number"),
    "rows that are not there": (lambda: by_hand(20, rows=Rows(19)), "19"),
    "independent of itself": (
        lambda: idm.join(by_hand(), by_hand(), independent=True),
        "independent of itself",
    ),
    "other evaluation rows": (
        lambda: average(40) - average(50),
        "40 and 50 evaluation rows",
    ),
    "unknown and independent samples": (
        lambda: average(40) - average(40, sample="unknown"),
        "same `sample=`",
    ),
    "clusters of evaluation rows": (
        lambda: average(40, clusters=np.arange(40) // 4) - average(40, k=2),
        "without clusters",
    ),
    "more evaluations than rows": (
        lambda: idm.join(Estimate(np.ones(3), np.eye(3), "abc", "by hand", influence=np.eye(2, 3)),
                         Estimate(1.0, [[1.0]], "d", "by hand", influence=[[1.0], [0.5]])),
        "No row has any influence on 'c'",
    ),
    "fewer rows than evaluations": (
        lambda: idm.join(
            Estimate(np.ones(3), np.eye(3), list("abc"), "m", influence=[[1, 2, 1], [0, 1, 3]]),
            Estimate(1.0, [[1.0]], "d", "by hand", influence=[[1.0], [0.5]]),
        ),
        "do not span",
    ),
}  # fmt: skip


def average(m, k=1, **options):
    new = np.random.default_rng(8).normal(size=(m, 3))
    psi = idm.Average(lambda b: expit(k * new @ b), **options)
    return idm.infer(logit(), psi, influence=True)


@pytest.mark.filterwarnings("ignore::implicit_delta.SmallSampleWarning")
@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(case):
    attack, text = WRONG[case]
    if case == "more evaluations than rows":
        text = "3 evaluations, but 1 names|" + text
    with pytest.raises((ValueError, TypeError), match=text):
        attack()

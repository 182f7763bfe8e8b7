import pytest

pytest.importorskip("hypothesis")

import builtins
import copy
import pickle
import tracemalloc
from math import atanh, log, tanh

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, multivariate_normal, norm

from implicit_delta.estimate import Diagnostics, Estimate, Interval, WaldTest

laws = settings(max_examples=30, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


def make(K=3, seed=0, rank=None, scale=1.0, **fields):
    rng = np.random.default_rng(seed)
    root = scale * rng.normal(size=(K, rank or K + 2))
    value = 5 + rng.normal(size=K)
    names = tuple(f"psi[{k}]" for k in range(K))
    return Estimate(value, root @ root.T, names, "by hand", **fields)


def full(K=3, seed=0):
    rng = np.random.default_rng(seed)
    model, evaluation = (make(K, seed + i).covariance for i in (1, 2))
    return Estimate(
        value=rng.normal(size=K),
        covariance=model + evaluation,
        names=tuple("abcdefgh"[:K]),
        method="by hand",
        diagnostics=Diagnostics(drift=0.01, passes=7, notes={"lam": 0.5}),
        influence=rng.normal(size=(11, K)),
        parts={"model": model, "evaluation": evaluation},
        draws=rng.normal(size=(50, K)),
    )


def scalar(value=2.0, variance=0.25, **fields):
    return Estimate(value, np.array([[variance]]), ("psi",), "by hand", **fields)


# What an estimate is.


def test_a_scalar_stays_a_scalar_and_an_array_stays_an_array():
    for number in (2, 2.0, np.float64(2), np.array(2.0)):
        one = Estimate(number, [[0.25]], ("psi",), "by hand")
        results = (one.value, one.standard_error, *one.confidence_interval(), *one.test())
        assert all(type(result) is float for result in results)
    many = Estimate([2.0], [[0.25]], ("psi",), "by hand")
    results = (many.value, many.standard_error, *many.confidence_interval(), *many.test())
    assert all(result.shape == (1,) for result in results)


def test_arrays_are_copies_that_cannot_be_changed():
    value, covariance = np.ones(2), np.eye(2)
    est = Estimate(value, covariance, ("a", "b"), "by hand", parts={"model": covariance})
    value[0] = covariance[0, 0] = 9.0
    assert est.value[0] == est.covariance[0, 0] == est.parts["model"][0, 0] == 1.0
    assert value.flags.writeable
    for again in (est, pickle.loads(pickle.dumps(est)), copy.deepcopy(est)):
        for array in (again.value, again.covariance, again.parts["model"]):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1.0
        with pytest.raises(TypeError):
            again.parts["model"] = np.zeros((2, 2))


def test_pickling_keeps_everything():
    est = full()
    again = pickle.loads(pickle.dumps(est))
    assert again.names == est.names
    assert again.method == est.method
    assert again.diagnostics.notes == est.diagnostics.notes
    for name in ("value", "covariance", "influence", "draws"):
        np.testing.assert_array_equal(getattr(again, name), getattr(est, name))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"value": np.ones((2, 2))}, "value has shape"),
        ({"value": np.ones(0)}, "value has shape"),
        ({"value": [1.0, np.nan]}, "value is not finite"),
        ({"covariance": np.eye(3)}, "covariance has shape"),
        ({"covariance": np.ones(2)}, "covariance has shape"),
        ({"covariance": np.ones((3, 2))}, "square"),
        ({"covariance": np.diag([1.0, -1e-3])}, "'b' the negative variance -0.001"),
        ({"covariance": np.diag([1.0, np.inf])}, "covariance is not finite"),
        ({"names": ("a",)}, "2 evaluations, but 1 names"),
        ({"names": "ab"}, "2 evaluations, but 1 names"),
        ({"influence": np.ones((5, 3))}, "influence has shape"),
        ({"draws": np.ones(5)}, "draws has shape"),
        ({"parts": {"model": np.eye(3)}}, r"parts\['model'\] has shape"),
    ],
)
def test_shapes_and_signs_are_checked(wrong, text):
    right = {"value": [1.0, 2.0], "covariance": np.eye(2), "names": ("a", "b"), "method": "by hand"}
    Estimate(**right)
    with pytest.raises(ValueError, match=text):
        Estimate(**(right | wrong))


def test_budget_names_every_source_and_the_total():
    assert scalar().budget == {"model": 0.5, "total": 0.5}
    est = full()
    assert list(est.budget) == ["model", "evaluation", "total"]
    squares = est.budget["model"] ** 2 + est.budget["evaluation"] ** 2
    np.testing.assert_allclose(squares, est.budget["total"] ** 2)


# Intervals.


@laws
@given(seeds, st.floats(0.01, 0.999))
def test_normal_interval_by_hand(seed, level):
    est = make(seed=seed)
    interval = est.confidence_interval(level)
    critical = norm.ppf((1 + level) / 2)
    assert isinstance(interval, Interval)
    np.testing.assert_allclose(interval.low, est.value - critical * est.standard_error)
    np.testing.assert_allclose(interval.high, est.value + critical * est.standard_error)


@laws
@given(seeds)
def test_log_interval_is_exp_of_the_interval_on_the_log_scale(seed):
    value, error = np.exp(np.random.default_rng(seed).normal(size=2))
    on_log = scalar(np.log(value), (error / value) ** 2).confidence_interval()
    np.testing.assert_allclose(
        scalar(value, error**2).confidence_interval(transform="log"), np.exp(on_log), rtol=1e-10
    )


@pytest.mark.parametrize(
    ("named", "pair"),
    [
        ("log", (np.log, np.exp)),
        ("log", (lambda x: -log(x), lambda u: np.exp(-u))),
        ("log", (lambda x: 3 * np.log10(x) + 2, lambda u: 10 ** ((u - 2) / 3))),
        ("logit", (lambda p: log(p / (1 - p)), lambda u: 1 / (1 + np.exp(-u)))),
        ("logit", (lambda p: 2 * atanh(2 * p - 1), lambda u: (1 + tanh(u / 2)) / 2)),
    ],
)
@pytest.mark.parametrize("value", [1e-5, 0.02, 0.5, 0.7, 1 - 1e-5])
@pytest.mark.parametrize("share", [1e-6, 0.1, 3.0])
def test_a_pair_of_functions_agrees_with_the_closed_form(named, pair, value, share):
    # the slope is good to about 1e-8, and the ends move by that times their half-width
    error = share * min(value, 1 - value)
    est = Estimate([value, value], error**2 * np.eye(2), ("a", "b"), "by hand")
    ours, exact = est.confidence_interval(transform=pair), est.confidence_interval(transform=named)
    np.testing.assert_allclose(ours.low, exact.low, rtol=1e-6)
    np.testing.assert_allclose(ours.high, exact.high, rtol=1e-6)


@laws
@given(seeds, st.sampled_from(["log", "logit"]), st.booleans())
def test_transformed_intervals_stay_in_range_around_the_value(seed, transform, simultaneous):
    rng = np.random.default_rng(seed)
    value = rng.uniform(0.001, 0.999, size=3)
    est = Estimate(value, np.diag(rng.exponential(size=3)), tuple("abc"), "by hand")
    low, high = est.confidence_interval(transform=transform, simultaneous=simultaneous)
    assert np.all(low >= 0)
    assert np.all(low <= value)
    assert np.all(value <= high)
    assert transform == "log" or np.all(high <= 1)


@pytest.mark.parametrize(
    ("transform", "value", "text"),
    [
        ("log", -0.5, "above 0, but 'psi' is -0.5"),
        ("log", 0.0, "above 0"),
        ("logit", 1.0, "strictly between 0 and 1"),
        ("probit", 0.5, "'log', 'logit' or a pair"),
        ((np.log,), 0.5, "'log', 'logit' or a pair"),
        (np.log, 0.5, "'log', 'logit' or a pair"),
        ((np.log, np.exp), -1.0, "inside the domain of forward"),
        ((log, np.exp), -1.0, "inside the domain of forward"),
        ((np.square, np.sqrt), 0.0, "not flat"),
        ((np.log, lambda u: 10**u), 2.0, "do not undo each other"),
        ((np.sqrt, np.square), 0.1, "leaves the range of forward"),
    ],
)
def test_transforms_that_do_not_fit_are_refused(transform, value, text):
    with pytest.raises(ValueError, match=text):
        scalar(value, 0.25).confidence_interval(transform=transform)


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, 95, "0.95", None, np.array([0.9]), np.nan])
def test_levels_outside_zero_and_one_are_refused(level):
    for ask in (scalar().confidence_interval, scalar().to_dict, scalar().summary):
        with pytest.raises(ValueError, match="confidence_level is a number between 0 and 1"):
            ask(level)


def test_numpy_numbers_are_levels():
    assert scalar().confidence_interval(np.float32(0.5)) == scalar().confidence_interval(0.5)


def test_percentile_interval_takes_quantiles_of_the_draws():
    est = full()
    low, high = est.confidence_interval(0.8, kind="percentile")
    np.testing.assert_allclose(low, np.quantile(est.draws, 0.1, axis=0))
    np.testing.assert_allclose(high, np.quantile(est.draws, 0.9, axis=0))


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        ({"kind": "percentile"}, "Simulation or Bootstrap"),
        ({"kind": "bca"}, "Simulation or Bootstrap"),
        ({"kind": "studentized"}, "'normal', 'percentile', 'basic' or 'bca'"),
    ],
)
def test_kinds_that_cannot_be_had_are_refused(ask, text):
    with pytest.raises(ValueError, match=text):
        scalar().confidence_interval(**ask)
    with pytest.raises(ValueError, match="neither transform nor simultaneous"):
        full().confidence_interval(kind="percentile", simultaneous=True)


# Simultaneous intervals.


def critical_value(est, level=0.95, **options):
    high = est.confidence_interval(level, simultaneous=True, **options).high
    ratio = (high - est.value) / np.where(est.standard_error > 0, est.standard_error, np.nan)
    assert np.nanmax(ratio) - np.nanmin(ratio) < 1e-6
    return float(np.nanmax(ratio))


def simulation_error(coverage, critical, level, draws=100_000):
    """Standard error of a quantile: that of the coverage, over its slope."""
    slope = (coverage(critical + 1e-3) - coverage(critical - 1e-3)) / 2e-3
    return np.sqrt(level * (1 - level) / draws) / slope


@pytest.mark.slow
@pytest.mark.parametrize("K", [2, 10, 200])
@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize("rng", [None, 1, 2])
def test_sup_t_of_independent_evaluations_is_known(K, level, rng):
    est = make(K)
    est = Estimate(est.value, np.diag(np.diag(est.covariance)), est.names, est.method)
    exact = norm.ppf((1 + level ** (1 / K)) / 2)
    error = simulation_error(lambda c: (2 * norm.cdf(c) - 1) ** K, exact, level)
    assert abs(critical_value(est, level, rng=rng) - exact) < 4 * error


@pytest.mark.parametrize("rho", [-0.9, 0.5, 0.99])
def test_sup_t_of_two_correlated_evaluations_covers_as_promised(rho):
    V = np.array([[1.0, rho], [rho, 1.0]])
    c = critical_value(Estimate([0.0, 0.0], V, ("a", "b"), "by hand"), 0.9)
    normal = multivariate_normal(cov=V)

    def coverage(c):
        return normal.cdf([c, c]) - 2 * normal.cdf([c, -c]) + normal.cdf([-c, -c])

    # the rectangle comes from quasi-Monte Carlo with an error below 1e-5
    assert abs(coverage(c) - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 100_000) + 1e-5


@laws
@given(st.integers(2, 8), seeds, st.integers(1, 8), st.floats(0.5, 0.99))
def test_sup_t_lies_between_one_normal_and_bonferroni(K, seed, rank, level):
    c = critical_value(make(K, seed, rank=rank), level)
    assert norm.ppf((1 + level) / 2) - 1e-6 <= c <= norm.ppf(1 - (1 - level) / (2 * K)) + 1e-6


def test_sup_t_of_one_evaluation_is_the_normal_quantile():
    assert scalar().confidence_interval(simultaneous=True) == scalar().confidence_interval()


def test_sup_t_of_copies_is_the_normal_quantile_up_to_simulation():
    copies = Estimate(np.ones(5), np.ones((5, 5)), tuple("abcde"), "by hand")
    error = simulation_error(lambda c: 2 * norm.cdf(c) - 1, norm.ppf(0.975), 0.95)
    assert abs(critical_value(copies) - norm.ppf(0.975)) < 4 * error


def test_sup_t_ignores_evaluations_that_cannot_move():
    moving = make(4)
    V = np.zeros((6, 6))
    V[1:5, 1:5] = moving.covariance
    padded = Estimate(np.ones(6), V, tuple("abcdef"), "by hand")
    assert critical_value(padded) == pytest.approx(critical_value(moving))
    still = Estimate(np.ones(2), np.zeros((2, 2)), ("a", "b"), "by hand")
    np.testing.assert_array_equal(still.confidence_interval(simultaneous=True), np.ones((2, 2)))


def test_sup_t_repeats_itself_unless_told_otherwise():
    est = make(5)
    assert critical_value(est) == critical_value(est) == critical_value(est, rng=0)
    assert critical_value(est, rng=1) != critical_value(est)
    assert critical_value(est, rng=np.random.default_rng(1)) == critical_value(est, rng=1)


@pytest.mark.slow
def test_sup_t_memory_does_not_grow_with_the_number_of_evaluations():
    est = make(1500, rank=3)
    tracemalloc.start()
    est.confidence_interval(simultaneous=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # all draws at once would take 1.2 GB, a matrix of this K takes 18 MB
    assert peak < 300e6


def test_simultaneous_combines_with_a_transform():
    est = make(4, scale=0.3)
    on_log = Estimate(
        np.log(est.value),
        est.covariance / np.outer(est.value, est.value),
        est.names,
        "by hand",
    )
    np.testing.assert_allclose(
        est.confidence_interval(simultaneous=True, transform="log"),
        np.exp(on_log.confidence_interval(simultaneous=True)),
        rtol=1e-8,
    )


# Tests.


@laws
@given(seeds, st.floats(-3, 3))
def test_z_test_agrees_with_the_interval(seed, null):
    est = make(1, seed)
    statistic, p_value = est.test(null)
    np.testing.assert_allclose(statistic, (est.value - null) / est.standard_error)
    edge = est.confidence_interval(1 - p_value[0]) if 1e-6 < p_value[0] < 1 else None
    if edge:
        assert min(abs(edge.low - null), abs(edge.high - null)) < 1e-6 * est.standard_error


@laws
@given(seeds)
def test_joint_test_is_chi_squared_by_hand(seed):
    est = make(3, seed)
    null = np.array([4.0, 5.0, 6.0])
    by_hand = (est.value - null) @ np.linalg.solve(est.covariance, est.value - null)
    statistic, p_value = est.test(null, joint=True)
    assert type(statistic) is type(p_value) is float
    assert statistic == pytest.approx(by_hand, rel=1e-6)
    assert p_value == pytest.approx(chi2.sf(by_hand, 3), rel=1e-5)


def test_joint_test_counts_the_rank():
    base = make(2, 1)
    C = np.array([[1, 0], [0, 1], [1e6, 1e6], [1e-6, -1e-6]])
    redundant, own = base.contrast(C).test(joint=True), base.test(joint=True)
    assert redundant == pytest.approx(own, rel=1e-6)
    assert base.contrast([1, 0]).test(joint=True).statistic == pytest.approx(
        base.test().statistic[0] ** 2
    )


def test_tests_without_variance():
    still = Estimate([1.0, 0.0], np.zeros((2, 2)), ("a", "b"), "by hand")
    statistic, p_value = still.test()
    np.testing.assert_array_equal(statistic, [np.inf, np.nan])
    np.testing.assert_array_equal(p_value, [0.0, np.nan])
    with pytest.raises(ValueError, match="no evaluation has any variance"):
        still.test(joint=True)
    with pytest.raises(ValueError, match="null has shape"):
        still.test([1.0, 2.0, 3.0])


def test_wald_test_unpacks():
    assert WaldTest._fields == ("statistic", "p_value")


# Contrasts.


def same(left, right):
    for name in ("value", "covariance", "influence", "draws"):
        np.testing.assert_allclose(getattr(left, name), getattr(right, name), rtol=1e-12)
    for part in right.parts:
        np.testing.assert_allclose(left.parts[part], right.parts[part], rtol=1e-12)
    assert left.names == right.names
    assert left.method == right.method
    assert left.diagnostics is right.diagnostics


def test_the_identity_contrast_changes_nothing():
    est = full()
    same(est.contrast(np.eye(3)), est)


@laws
@given(seeds)
def test_contrasts_compose(seed):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(4, 3)), rng.normal(size=(2, 4))
    est = full()
    twice, once = est.contrast(A).contrast(B), est.contrast(B @ A)
    # covariances of combinations cancel: compare on the scale of the standard errors
    np.testing.assert_allclose(twice.value, once.value, atol=1e-12)
    np.testing.assert_allclose(twice.covariance, once.covariance, atol=1e-10)
    np.testing.assert_allclose(twice.influence, once.influence, atol=1e-12)


@laws
@given(st.permutations(range(4)))
def test_the_order_of_evaluations_does_not_matter(order):
    est = full(4)
    shuffled = est.contrast(np.eye(4)[list(order)])
    assert shuffled.names == tuple(est.names[k] for k in order)
    np.testing.assert_allclose(shuffled.value, est.value[list(order)])
    np.testing.assert_allclose(
        shuffled.confidence_interval(), np.array(est.confidence_interval())[:, list(order)]
    )
    assert shuffled.test(joint=True) == pytest.approx(est.test(joint=True), rel=1e-6)


@laws
@given(seeds, st.floats(-100, 100).filter(lambda a: abs(a) > 1e-3))
def test_scaling_psi_scales_the_error(seed, a):
    est = make(2, seed)
    scaled = est.contrast(a * np.eye(2))
    np.testing.assert_allclose(scaled.standard_error, abs(a) * est.standard_error)


def test_one_row_is_a_scalar_and_its_width_is_checked():
    est = full()
    assert type(est.contrast([1, -1, 0]).value) is float
    assert est.contrast([[1, -1, 0]]).value.shape == (1,)
    for wrong in ([1, -1], np.ones((2, 4)), 1.0, np.ones((1, 1, 3))):
        with pytest.raises(ValueError, match="C has shape"):
            est.contrast(wrong)


def test_contrasts_are_spelled_out():
    est = full(5)
    C = [[0, 1, 0, 0, 0], [-1, 1, 0, 0, 0], [0.5, 0.5, 0, 0, -1], [-1, 0, 0, 0, 0], [1] * 5]
    assert est.contrast(C).names == ("b", "b - a", "0.5 a + 0.5 b - e", "-a", "contrast[4]")
    assert est.contrast(C[1], names="difference").names == ("difference",)
    assert est.contrast(C[:2], names=["x", "y"]).names == ("x", "y")
    with pytest.raises(ValueError, match="2 evaluations, but 1 names"):
        est.contrast(C[:2], names=["x"])


@laws
@given(seeds)
def test_a_combination_without_variance_has_none(seed):
    # three evaluations of rank two: one combination is constant, up to rounding of either sign
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(2, 2))
    root = np.vstack([root, root.sum(axis=0)])
    est = Estimate(np.ones(3), root @ root.T, tuple("abc"), "by hand")
    assert est.contrast([1, 1, -1]).standard_error == 0.0


def test_a_combination_with_negative_variance_is_refused():
    indefinite = Estimate([1.0, 1.0], [[1.0, 1.1], [1.1, 1.0]], ("a", "b"), "by hand")
    with pytest.raises(ValueError, match="'a - b' the negative variance"):
        indefinite.contrast([1, -1])


# Tables.


def test_to_dict_and_to_frame_have_the_columns_of_broom():
    est = full()
    columns = est.to_dict(0.9)
    assert list(columns) == [
        "term",
        "estimate",
        "std_error",
        "statistic",
        "p_value",
        "conf_low",
        "conf_high",
        "df",
        "null",
    ]
    assert columns["term"] == ["a", "b", "c"]
    assert all(type(x) is float for name in list(columns)[1:] for x in columns[name])
    np.testing.assert_allclose(columns["conf_low"], est.confidence_interval(0.9).low)
    pandas = pytest.importorskip("pandas")
    frame = est.to_frame(0.9)
    pandas.testing.assert_frame_equal(frame.reset_index(), pandas.DataFrame(columns))
    assert frame.index.name == "term"


def test_to_frame_without_pandas_says_what_to_install(monkeypatch):
    def no_pandas(name, *args, real=builtins.__import__, **options):
        if name.startswith("pandas"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", no_pandas)
    with pytest.raises(ImportError, match=r"implicit-delta\[pandas\]"):
        scalar().to_frame()


def test_repr_of_one_evaluation():
    assert repr(scalar(12.345678, 0.01234**2)) == str(scalar(12.345678, 0.01234**2))
    assert repr(scalar(12.345678, 0.01234**2)).splitlines() == [
        "     estimate  std_error  statistic  p_value  conf_low  conf_high",
        "psi  12.34568    0.01234    1000.46  <1e-300  12.32149   12.36986",
        "Tests of value = 0; normal quantiles.",
    ]


def test_repr_of_many_evaluations_is_elided():
    lines = repr(make(80)).splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [
        *(f"psi[{k}]" for k in range(5)),
        "...",
        *(f"psi[{k}]" for k in range(75, 80)),
    ]
    assert len({len(line) for line in lines[:-1]}) == 1
    assert len(repr(make(20)).splitlines()) == 22


def test_repr_of_mixed_scales_shows_four_digits_of_every_error():
    errors = np.array([1.234e-7, 1.234e-4, 1.234, 1234.0, 1.234e8, 0.0])
    values = np.array([0.5, -0.25, 1e4, 3.0, 5.4321e9, 7.0])
    lines = repr(Estimate(values, np.diag(errors**2), tuple("abcdef"), "by hand")).splitlines()
    shown = [line.split()[1:3] for line in lines[1:-1]]
    for (value, error), exact_value, exact_error in zip(shown, values, errors, strict=True):
        assert float(error) == pytest.approx(exact_error, rel=1e-12)
        assert abs(float(value) - exact_value) <= 5e-4 * exact_error
    assert max(map(len, lines)) < 90


def test_summary_tells_what_is_known_and_nothing_else():
    text = full().summary(0.9)
    assert text.startswith("3 evaluations by by hand, 90% confidence intervals")
    assert [line.split()[0] for line in text.split("Diagnostics\n")[1].splitlines()] == [
        "drift",
        "passes",
        "lam",
    ]
    assert "Standard error by source" in text
    plain = scalar().summary()
    assert "nan" not in plain
    assert "Diagnostics" not in plain
    assert "source" not in plain


def test_html_is_escaped_and_complete():
    est = Estimate([1.0, 2.0], np.eye(2), ("<b>", "x & y"), "by <hand>")
    page = est._repr_html_()
    assert "&lt;b&gt;" in page
    assert "x &amp; y" in page
    assert "by &lt;hand&gt;" in page
    assert page.count("<tr>") == page.count("</tr>") == 3


def test_diagnostics_keep_their_own_notes():
    notes = {"lam": 0.5}
    diagnostics = Diagnostics(notes=notes)
    notes["lam"] = 9.0
    assert diagnostics.notes == {"lam": 0.5}


@pytest.mark.parametrize(
    ("df", "text"),
    [(9.0, "9"), (12.3456, "12.35"), (12345.6, "12350"), (8.9971e6, "8997000"), (3e15, "3e+15")],
)
def test_degrees_of_freedom_are_printed_as_numbers(df, text):
    estimate = Estimate(np.ones(1), np.eye(1), ("psi",), "by hand", df=df)
    assert f"df = {text}." in str(estimate)

"""Estimates and evaluations misused: each ends in the right number, a refusal or a warning."""

import pytest

pytest.importorskip("pandas")
pytest.importorskip("torch")
pytest.importorskip("sklearn")

import array
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import torch
from scipy.special import ndtri
from scipy.stats import chi2

import implicit_delta as idm
from implicit_delta.estimate import Estimate

V = np.array([[0.04, 0.01], [0.01, 0.09]])


def make(value=(1.0, 3.0), covariance=V, names=("a", "b"), **fields):
    return Estimate(value, covariance, names, "by hand", **fields)


PAIR = make(influence=np.arange(12.0).reshape(6, 2), draws=np.arange(12.0).reshape(6, 2))


# What an estimate is made of.

CONTENT = {
    "asymmetric": ({"covariance": [[0.04, 0.01], [0.02, 0.09]]}, "not symmetric: 0.01 between"),
    "one triangle": ({"covariance": np.triu(V)}, "not symmetric"),
    "asymmetric part": ({"parts": {"model": [[0.04, 0.01], [0.0, 0.09]]}}, "'model'.*symmetric"),
    "asymmetric by little": ({"covariance": V + 1e-9 * np.eye(2, k=1)}, "not symmetric"),
    "complex": ({"value": [1 + 2j, 3.0]}, "real numbers, not complex"),
    "complex covariance": ({"covariance": V * (1 + 0j)}, "real numbers, not complex"),
    "text": ({"value": ["1", "3"]}, "real numbers"),
    "masked": ({"value": np.ma.masked_array([1.0, 3.0], mask=[0, 1])}, "masked"),
    "missing": ({"value": [1.0, None]}, "not finite"),
    "set of names": ({"names": {"a", "b"}}, "names is a set"),
    "bytes for names": ({"names": b"ab"}, "names is a bytes"),
    "a number for names": ({"names": 2}, "names is a int"),
    "no names": ({"names": ()}, "2 evaluations, but 0 names"),
    "many names": ({"names": "abc"}, "2 evaluations, but 1 names"),
    "errors of what": ({"errors_add": True}, "give both"),
}


@pytest.mark.parametrize("case", CONTENT)
def test_content_that_makes_no_estimate(case):
    fields, text = CONTENT[case]
    with pytest.raises((ValueError, TypeError), match=text):
        make(**fields)


def test_rounding_is_no_asymmetry():
    noisy = V + 1e-12 * np.eye(2, k=1)
    assert make(covariance=noisy).contrast([1, 1]).standard_error == pytest.approx(0.15**0.5)
    scales = np.diag([1e-8, 1e8])
    with pytest.raises(ValueError, match="not symmetric"):
        make(covariance=scales @ [[0.04, 0.01], [0.02, 0.09]] @ scales)
    make(covariance=scales @ noisy @ scales)


NAMES = {
    "twice": (("a", "a"), ("a", "a (2)")),
    "thrice taken": (("a", "a (2)"), ("a", "a (2)")),
    "empty": (("", "b"), ("[0]", "b")),
    "numbers": ((1, 2), ("1", "2")),
    "an array": (np.array(["a", "b"]), ("a", "b")),
    "a generator": ((name for name in "ab"), ("a", "b")),
    "a mapping": ({"a": 1, "b": 2}, ("a", "b")),
    "pairs": ((("a", 1), ("a", 2)), ("('a', 1)", "('a', 2)")),
}


@pytest.mark.parametrize("case", NAMES)
def test_names_are_strings_that_differ(case):
    given, expected = NAMES[case]
    assert make(names=given).names == expected


@pytest.mark.parametrize("name", ["two\nlines", "tab\tstop", "\x1b[31mred", "\r\n", "\ud800", " "])
def test_names_do_not_break_tables(name):
    est = make(names=(name, "b"), parts={"model": V, "noise": 0 * V})
    for text in (repr(est), est.summary().split("\n\n")[1]):
        assert len(text.splitlines()) == 4
        assert text.isascii()
    assert est.names[0] == name
    assert len(est._repr_html_().splitlines()) == len(PAIR._repr_html_().splitlines())


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["x", "x"], "there twice"),
        (["x", ""], "empty"),
        ({"x", "y"}, "names is a set"),
        (5, "names is a int"),
        (["x"], "1 names were given for 2"),
        ("xy", "1 names were given for 2"),
    ],
)
def test_names_given_to_infer(names, text):
    with pytest.raises((ValueError, TypeError), match=text):
        idm.infer(model(), lambda b: b[:2], names=names)


def test_equal_labels_of_a_result_are_numbered():
    """The labels of a result are nobody's mistake: they are told apart, and not refused."""
    host = idm.from_sklearn(regression(), X, Y)
    twice = idm.infer(host, lambda r: pd.Series(r.predict(X[:2]), index=["a", "a"]))
    assert twice.names == ("a", "a (2)")
    many = pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])
    found = idm.infer(host, lambda r: pd.Series(r.predict(X[:2]), index=many))
    assert found.names == ("('a', 1)", "('a', 2)")
    assert PAIR.contrast([[1, 0], [1, 0]]).names == ("a", "a (2)")


# Contrasts, tests, levels, transforms and influences.


@pytest.mark.parametrize(
    ("C", "text"),
    [
        ([1, np.nan], "NaN or infinite"),
        ([[1, 0], [0, np.inf]], "NaN or infinite"),
        ([1, None], "NaN or infinite"),
        ([1, -1, 0], r"C has shape \(3,\)"),
        ([[1], [-1]], r"C has shape \(2, 1\)"),
        (np.ones((1, 1, 2)), "C has shape"),
        (np.ones((0, 2)), "value has shape"),
        (1.0, r"C has shape \(\)"),
        ("b - c", "no evaluation 'c'"),
        ([1, 1j], "real numbers, not complex"),
        (np.ma.masked_array([1.0, -1.0], mask=[0, 1]), "masked"),
    ],
)
def test_contrasts_of_nothing(C, text):
    with pytest.raises(ValueError, match=text):
        PAIR.contrast(C)


@pytest.mark.parametrize(
    ("null", "text"),
    [
        (np.nan, "null is not finite"),
        ([0.0, np.inf], "null is not finite"),
        (None, "null is not finite"),
        ("zero", "real numbers"),
        (1j, "real numbers"),
        ([1.0, 2.0, 3.0], "null has shape"),
        ([[1.0, 2.0]], "null has shape"),
    ],
)
@pytest.mark.parametrize("joint", [False, True])
def test_hypotheses_that_are_none(null, text, joint):
    with pytest.raises(ValueError, match=text):
        PAIR.test(null, joint)


@pytest.mark.parametrize(
    ("level", "advice"), [(95, "give 0.95"), (99.9, "give 0.999"), (np.int64(90), "give 0.9")]
)
def test_levels_in_percent_get_advice(level, advice):
    for ask in (PAIR.confidence_interval, PAIR.to_dict, PAIR.summary, PAIR.to_frame):
        with pytest.raises(ValueError, match=f"between 0 and 1.*{advice}$"):
            ask(level)


@pytest.mark.parametrize(
    "level", [0, 1, 1.0, -0.95, 100, 1e9, np.nan, np.inf, None, "95%", [0.95], True, 0.5j]
)
def test_levels_that_are_none(level):
    with pytest.raises(ValueError, match=r"between 0 and 1, such as 0\.95, not") as caught:
        PAIR.confidence_interval(level)
    assert "give" not in str(caught.value)


@pytest.mark.parametrize("level", [1 - 1e-16, 1 - 1e-15, 1e-6, Fraction(19, 20), np.float32(0.95)])
def test_levels_at_the_edge(level):
    low, high = PAIR.confidence_interval(level)
    tail = float(1 - level) / 2 if isinstance(level, Fraction) else (1 - float(level)) / 2
    np.testing.assert_allclose((high - low) / 2, -ndtri(tail) * np.sqrt(np.diag(V)), rtol=1e-6)


def test_decimal_levels_are_refused_in_words():
    with pytest.raises(ValueError, match="confidence_level is a number"):
        PAIR.confidence_interval(Decimal("0.95"))


def one(value=1.0, error=0.5):
    return Estimate(value, [[error**2]], ("psi",), "by hand")


TRANSFORMS = {
    "a pole within": ((lambda x: 1 / x, lambda u: 1 / u), "not monotone"),
    "two branches": ((np.cos, np.arccos), "do not undo each other"),
    "two poles": ((lambda x: 1 / (x - 0.9), lambda u: 0.9 + 1 / u), "not monotone"),
    "names of functions": (("log", "exp"), "a pair of functions"),
    "another case": ("Log", "a pair of functions"),
    "three functions": ((np.log, np.exp, np.exp), "a pair of functions"),
    "the wrong way around": ((np.exp, np.log), "do not undo each other"),
    "two arguments": ((np.arctan2, np.tan), "functions of one number"),
    "nothing": ((lambda x: None, lambda u: u), "functions of one number"),
    "constant": ((lambda x: 1.0, lambda u: u), "not flat"),
}


@pytest.mark.parametrize("case", TRANSFORMS)
def test_transforms_misused(case):
    transform, text = TRANSFORMS[case]
    with pytest.raises(ValueError, match=text):
        one(1.0, 0.8).confidence_interval(transform=transform)


def test_a_reciprocal_away_from_its_pole_is_fine():
    low, high = one(1.0, 0.1).confidence_interval(transform=(lambda x: 1 / x, lambda u: 1 / u))
    z = -ndtri(0.025)
    assert low == pytest.approx(1 / (1 + z * 0.1), rel=1e-6)
    assert high == pytest.approx(1 / (1 - z * 0.1), rel=1e-6)


def test_an_inverse_that_overflows_on_the_way_is_no_turn():
    wide = one(1.0, 1e3)
    assert wide.confidence_interval(transform=(np.log, np.exp)) == (0.0, np.inf)
    assert wide.confidence_interval(transform="log") == (0.0, np.inf)


@pytest.mark.parametrize("k", [-1, -(10**9)])
def test_a_negative_number_of_rows(k):
    with pytest.raises(ValueError, match="number of rows"):
        PAIR.top_influence(k)


@pytest.mark.parametrize("k", [2.5, "3", None])
def test_a_number_of_rows_that_is_none(k):
    with pytest.raises(TypeError):
        PAIR.top_influence(k)


def test_any_number_of_rows_up_to_all():
    assert PAIR.top_influence(0).row.size == 0
    assert PAIR.top_influence(np.int64(3)).row.size == 3
    assert PAIR.top_influence(100).row.size == 6


@pytest.mark.parametrize("draws", [np.ones((0, 2)), np.ones((1, 2))])
def test_percentiles_need_replicates(draws):
    with pytest.raises(ValueError, match="Simulation or Bootstrap"):
        make(draws=draws).confidence_interval(kind="percentile")


# Evaluations without variance, and covariances without an inverse.

STILL = make([1.0, 3.0, 0.0], np.diag([0.04, 0.0, 0.0]), ("a", "b", "c"))


def test_no_evidence_is_printed_for_what_does_not_vary():
    for text in (repr(STILL), STILL.summary(), STILL._repr_html_()):
        assert "1e-300" not in text
        assert "inf" not in text
        assert "nan" not in text
    moving, *still = repr(STILL).splitlines()[1:]
    assert re.split(r"\s+", still[0])[3:] == ["-"] * 4
    assert re.split(r"\s+", still[1])[3:] == ["-"] * 4
    assert "-" not in moving.replace("e-", "")
    columns = STILL.to_dict()
    for name in ("statistic", "p_value"):
        np.testing.assert_array_equal(np.isnan(columns[name]), [False, True, True])
    for error in (0.0, 1e-17):  # the second is less than the rounding of the value
        assert "1e-300" not in repr(one(2.0, error))
    lone = one(2.0, 0.0)
    assert np.isnan(lone.to_dict()["p_value"][0])
    assert "1e-300" not in repr(lone)


def test_what_does_not_vary_leaves_the_others_alone():
    low, high = STILL.confidence_interval(simultaneous=True)
    np.testing.assert_allclose([low[0], high[0]], [1 - 1.96 * 0.2, 1 + 1.96 * 0.2], rtol=1e-3)
    np.testing.assert_array_equal(low[1:], STILL.value[1:])
    assert STILL.test(joint=True).statistic == pytest.approx(25.0)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 7, 999, 1001])
def test_a_thousand_at_once(rank):
    """Singular or not: the critical value lies between those of one and of independent ones."""
    K = 1000 if rank < 10 else 200
    root = np.random.default_rng(0).normal(size=(K, rank))
    root[::10] = 0.0
    est = make(np.ones(K), root @ root.T, [f"psi[{k}]" for k in range(K)])
    low, high = est.confidence_interval(simultaneous=True)
    moving = est.standard_error > 0
    critical = ((high - low) / 2)[moving] / est.standard_error[moving]
    assert np.ptp(critical) < 1e-6
    assert -ndtri(0.025) - 1e-6 <= critical[0] <= -ndtri(0.025 / K)
    statistic, p_value = est.test(joint=True)
    assert p_value == pytest.approx(chi2.sf(statistic, min(rank, moving.sum())), rel=1e-6)


def test_a_covariance_that_nothing_has_is_refused_where_it_matters():
    indefinite = make(covariance=[[1.0, 1.1], [1.1, 1.0]])
    for ask in (
        lambda: indefinite.test(joint=True),
        lambda: indefinite.confidence_interval(simultaneous=True),
    ):
        with pytest.raises(ValueError, match="not positive semi-definite"):
            ask()


# Psi that returns something else than numbers of its own.

N = 80
RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
Y = X @ [1.0, 0.5, -0.3] + RNG.normal(size=N)
BETA = np.linalg.lstsq(X, Y, rcond=None)[0]
AT = np.array([[1.0, 0.5, 0.2], [1.0, -1.0, 0.3]])
ERRORS = np.sqrt(np.diag(AT @ np.linalg.inv(X.T @ X) @ AT.T))
METHODS = [idm.Infinitesimal(), idm.FiniteDifference(), idm.Simulation(200, rng=0)]


def model():
    return idm.from_loglik(
        lambda b: -((Y - X @ b) ** 2) / 2, BETA, score=lambda b: (Y - X @ b)[:, None] * X
    )


def regression():
    from sklearn.linear_model import LinearRegression

    return LinearRegression(fit_intercept=False).fit(X, Y)


def plain(b):
    return AT @ np.asarray(b, dtype=float)


def work_array():
    out = np.zeros(2)

    def psi(b):
        out[:] = plain(b)
        return out

    return psi


def work_view():
    out = np.zeros((3, 2))

    def psi(b):
        out[1] = plain(b)
        return out[1]

    return psi


def work_list():
    out = [0.0, 0.0]

    def psi(b):
        out[:] = plain(b).tolist()
        return out

    return psi


def work_series():
    out = pd.Series([0.0, 0.0], index=["a", "b"])

    def psi(b):
        out.iloc[:] = plain(b)
        return out

    return psi


def work_tensor():
    out = torch.zeros(2, dtype=torch.float64)

    def psi(b):
        out[:] = torch.as_tensor(plain(b))
        return out

    return psi


def work_buffer():
    out = array.array("d", [0.0, 0.0])

    def psi(b):
        out[0], out[1] = plain(b)
        return out

    return psi


def in_place():
    def psi(b):
        b *= 2
        b += 1
        return AT @ (b - 1) / 2

    return psi


def small_counter():
    calls = []

    def psi(b):
        calls.append(1)
        return plain(b) + 1e-13 * len(calls)

    return psi


RIGHT = {
    "plain": lambda: plain,
    "its own array": work_array,
    "a view of its own array": work_view,
    "its own list": work_list,
    "its own series": work_series,
    "its own tensor": work_tensor,
    "its own buffer": work_buffer,
    "in place": in_place,
    "single": lambda: lambda b: plain(b).astype(np.float32),
    "long": lambda: lambda b: plain(b).astype(np.longdouble),
    "unmasked": lambda: lambda b: np.ma.masked_array(plain(b)),
    "mixed scalars": lambda: lambda b: [np.array(plain(b)[0]), float(plain(b)[1])],
    "tuple": lambda: lambda b: tuple(AT @ b),
    "series of pairs": lambda: (
        lambda b: pd.Series(plain(b), index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]))
    ),
    "a counter below rounding": small_counter,
}


@pytest.mark.parametrize("case", RIGHT)
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_results_that_are_numbers_after_all(case, method):
    found = idm.infer(model(), RIGHT[case](), method)
    np.testing.assert_allclose(found.value, AT @ BETA, rtol=1e-6)
    np.testing.assert_allclose(found.standard_error, ERRORS, rtol=1e-4)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("index", [[1, 0], ["b", "a"], [7, 9]], ids=str)
def test_entries_of_a_series_are_taken_by_position(index, method):
    host = idm.from_sklearn(regression(), X, Y)
    found = idm.infer(host, lambda r: pd.Series(r.predict(AT), index=index), method)
    expected = idm.infer(host, lambda r: r.predict(AT), method)
    assert found.names == tuple(map(str, index))
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-6)


def test_a_work_array_is_copied_in_replicates_too():
    out = np.zeros(2)

    def psi(b, rng):
        out[:] = plain(b) * (1 + rng.normal())
        return out

    def fresh(b, rng):
        return plain(b) * (1 + rng.normal())

    found, expected = (idm.infer(model(), idm.Replicated(f, 5, rng=0)) for f in (psi, fresh))
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-6)


def test_a_work_array_of_an_average():
    out = np.zeros(N)

    def h(b):
        out[:] = X @ np.asarray(b, dtype=float)
        return out

    found = idm.infer(model(), idm.Average(h))
    expected = idm.infer(model(), idm.Average(lambda b: X @ b))
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-6)


def test_a_work_array_of_another_library():
    found = idm.infer(idm.from_sklearn(regression(), X, Y), lambda r: r.predict(AT), METHODS[0])
    out = np.zeros(2)

    def psi(r):
        out[:] = r.predict(AT)
        return out

    own = idm.infer(idm.from_sklearn(regression(), X, Y), psi, METHODS[0])
    np.testing.assert_allclose(own.standard_error, found.standard_error, rtol=1e-6)


def counted(step, base=0.0):
    calls = []

    def psi(b):
        calls.append(1)
        return base + plain(b) + step * len(calls)

    return psi


def noisy(size):
    rng = np.random.default_rng(0)
    return lambda b: np.array([1e6, plain(b)[1] + size * rng.normal()])


UNSTEADY = "uncertain by|bends|converge|rise|same at every"
REFUSED = {
    "a counter": (counted(1e-3), "random or keeps a state"),
    "a counter beside a large number": (
        counted(0.05, 1e6),
        "uncertain by|bends|converge|rise|same at every",
    ),
    "noise beside a large number": (noisy(0.1), UNSTEADY),
    "half precision of a large number": (
        lambda b: (1e4 + plain(b)).astype(np.float16),
        "float64|steps are wider",
    ),
    "single of a large number": (lambda b: (1e6 + plain(b)).astype(np.float32), "float64"),
    "masked": (lambda b: np.ma.masked_array(plain(b), mask=[0, 1]), "1 masked entries"),
    "all masked": (lambda b: np.ma.masked_all(2), "2 masked entries"),
    "ragged": (lambda b: [plain(b)[0], plain(b)], "different shapes"),
    "numbers and None": (lambda b: [plain(b)[0], None], "real number"),
    "numbers and text": (lambda b: [plain(b)[0], "high"], "real number"),
    "a mapping of text": (lambda b: {"a": plain(b)[0], "b": "high"}, "must be a number"),
    "a frame": (lambda b: pd.DataFrame({"a": plain(b)}), "ravel"),
    "series of objects": (lambda b: pd.Series([plain(b)[0], "high"]), "real number"),
    "dates": (lambda b: np.array(["2020-01-01"], dtype="M8[D]"), "real number"),
    "integers": (lambda b: np.rint(100 * plain(b)).astype(int), "Simulation"),
    "truth": (lambda b: plain(b) > 0, "Simulation"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.filterwarnings("ignore::implicit_delta.NonlinearityWarning")
def test_results_that_have_no_error_bar(case):
    psi, text = REFUSED[case]
    for method in METHODS[:2] if text == "Simulation" else METHODS:
        with pytest.raises(idm.ImplicitDeltaError, match=text):
            idm.infer(model(), psi, method)


def test_single_precision_that_shows_is_pointed_out():
    """The rounding of 5e4 in float32, 0.006, is a few hundredths of the standard error."""
    psi = lambda b: (5e4 + plain(b)).astype(np.float32)
    with pytest.warns(idm.ImplicitDeltaWarning, match=r"uncertain by 0\.006"):
        idm.infer(model(), psi, idm.Simulation(200, rng=0))
    wide = lambda b: (1e6 + plain(b)).astype(np.float32)
    with pytest.warns(idm.ImplicitDeltaWarning, match=r"uncertain by 0\.1"):
        idm.infer(model(), wide, idm.Simulation(200, rng=0), strict=False)


# Psi that changes the model it is given.


def module(dtype):
    line = torch.nn.Linear(3, 1, bias=False, dtype=dtype)
    with torch.no_grad():
        line.weight[:] = torch.as_tensor(BETA)[None]
    return line


def changing(how):
    def psi(line):
        first = line.weight[0, 0] * 1.0
        how(line)
        return first + 0.0 * line.weight[0, 0]

    return psi


def scale(line):
    line.weight.data.mul_(2.0)


def zero(line):
    with torch.no_grad():
        line.weight.zero_()


@pytest.mark.parametrize("how", [scale, zero])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_a_module_changed_in_place_is_refused_and_the_model_stays(how, method):
    found = idm.from_torch(
        module(torch.float64), (torch.as_tensor(X), torch.as_tensor(Y)), idm.Gaussian(1.0)
    )
    with pytest.raises(idm.EvaluationError, match=r"in place.*2 \* p"):
        idm.infer(found, changing(how), method)
    np.testing.assert_array_equal(found.theta, BETA)
    first = idm.infer(found, lambda line: line.weight[0, 0], method)
    expected = np.sqrt(np.linalg.inv(X.T @ X)[0, 0])
    assert first.standard_error == pytest.approx(expected, rel=1e-6)


@pytest.mark.filterwarnings("ignore::implicit_delta.NotDeterministicWarning")
def test_single_precision_of_a_network_is_no_reason_to_refuse():
    data = tuple(torch.as_tensor(a, dtype=torch.float32) for a in (X, Y))
    found = idm.from_torch(module(torch.float32), data, idm.Gaussian(1.0))
    psi = lambda line: 100 + line(torch.as_tensor(AT, dtype=torch.float32))[:, 0]
    np.testing.assert_allclose(idm.infer(found, psi).standard_error, ERRORS, rtol=1e-4)

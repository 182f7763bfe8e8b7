"""Very many evaluations: their covariance in rank d, against that of some of them by themselves."""

import pickle
import tracemalloc

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta import Estimate
from implicit_delta.core.factored import MANY, Factored
from implicit_delta.errors import ImplicitDeltaError, SmallSampleWarning

K, D, N = 800, 6, 90
rng = np.random.default_rng(5)
X = np.column_stack([np.ones(N), rng.normal(size=(N, D - 1))])
Y = X @ rng.normal(size=D) + rng.normal(size=N) * (1 + 0.5 * abs(X[:, 1]))
Z = rng.normal(size=(K, D))
PART = [0, 3, 77, 500, K - 1]
GROUPS, OTHERS = np.arange(N) % 30, np.arange(N) // 3


def model(**options):
    return idm.from_residuals(
        lambda th: Y - X @ th, start=np.zeros(D), jacobian=lambda th: -X, **options
    )


def surface(th):
    return np.tanh(0.05 * (Z @ th)) + 1.5


def of(psi, places):
    """The same question for some of the evaluations; an average has a matrix of units."""
    if isinstance(psi, idm.Average):
        return idm.Average(lambda th: psi.h(th)[:, places], sample=psi.sample)
    return lambda th: psi(th)[places]


def rows_of_average(th):
    return np.tanh(0.05 * (Z @ th)) * (1 + 0.1 * np.arange(40)[:, None]) + 2.0


def rows_of_training(th):
    return np.tanh(0.05 * (Z @ th)) * (1 + 0.01 * np.arange(N)[:, None]) + 2.0


BROUGHT = np.diag(np.arange(1.0, D + 1)) * 1e-2
CASES = {
    "plain": (surface, {}, {}),
    "ridge": (surface, {"l2": 3.0}, {}),
    "robust": (surface, {}, {"robust": True}),
    "HC1": (surface, {}, {"robust": "HC1"}),
    "HC2": (surface, {}, {"robust": "HC2"}),
    "HC3": (surface, {}, {"robust": "HC3"}),
    "clusters": (surface, {}, {"clusters": GROUPS}),
    "CR1": (surface, {}, {"clusters": GROUPS, "robust": "CR1"}),
    "CR2": (surface, {}, {"clusters": GROUPS, "robust": "CR2"}),
    "two ways": (surface, {}, {"clusters": (GROUPS, OTHERS)}),
    "HAC": (surface, {}, {"robust": idm.HAC(3)}),
    "brought": (surface, {}, {"covariance": BROUGHT}),
    "debiased": (surface, {"l2": 0.01}, {"debias": True}),
    "df": (surface, {}, {"df": 7.0}),
    "influence": (surface, {}, {"influence": True}),
    "robust influence": (surface, {}, {"robust": True, "influence": True}),
    "ggn": (surface, {}, {"method": idm.Infinitesimal(curvature="ggn")}),
    "independent": (idm.Average(rows_of_average, sample="independent"), {}, {}),
    "unknown": (idm.Average(rows_of_average, sample="unknown"), {}, {}),
    "training": (idm.Average(rows_of_training, sample="training"), {}, {}),
}


def both(name, **more):
    psi, built, asked = CASES[name]
    fitted = model(**built)
    return (
        idm.infer(fitted, psi, **asked, **more),
        idm.infer(fitted, of(psi, PART), **asked, **more),
    )


@pytest.mark.filterwarnings("ignore::implicit_delta.errors.ImplicitDeltaWarning")
@pytest.mark.parametrize("name", CASES)
def test_agree_with_the_part_by_itself(name):
    many, few = both(name)
    assert isinstance(vars(many)["covariance"], Factored)
    assert isinstance(vars(few)["covariance"], np.ndarray)
    chosen = many[PART]
    np.testing.assert_allclose(chosen.value, few.value, rtol=1e-12)
    np.testing.assert_allclose(chosen.standard_error, few.standard_error, rtol=1e-9)
    scale = np.outer(few.standard_error, few.standard_error)
    np.testing.assert_allclose(chosen.covariance / scale, few.covariance / scale, atol=1e-9)
    np.testing.assert_allclose(
        many.covariance[np.ix_(PART, PART)] / scale, few.covariance / scale, atol=1e-9
    )
    np.testing.assert_allclose(
        np.broadcast_to(many.df, K)[PART], np.broadcast_to(few.df, len(PART)), rtol=1e-8
    )
    assert many.budget.keys() == few.budget.keys()
    for part, errors in few.budget.items():
        np.testing.assert_allclose(np.asarray(many.budget[part])[PART], errors, rtol=1e-8)
    assert many.errors_add == few.errors_add
    if few.influence is not None:
        np.testing.assert_allclose(many.influence[:, PART], few.influence, atol=1e-12)
    low, high = many.confidence_interval()
    np.testing.assert_allclose(low[PART], few.confidence_interval().low, rtol=1e-9)
    np.testing.assert_allclose(high[PART], few.confidence_interval().high, rtol=1e-9)


def test_agree_with_dense_algebra():
    est = idm.infer(model(), surface)
    th = model().theta
    J = 0.05 * (1 - np.tanh(0.05 * (Z @ th)) ** 2)[:, None] * Z
    s2 = np.sum((Y - X @ th) ** 2) / (N - D)
    V = J @ np.linalg.solve(X.T @ X / s2, J.T)
    np.testing.assert_allclose(est.covariance, V, atol=1e-11 * np.max(V), rtol=0)
    assert np.linalg.eigvalsh(est.covariance)[0] > -1e-12 * np.max(V)


def test_flat_directions_that_psi_does_not_see():
    doubled = idm.from_residuals(
        lambda th: Y - X @ th[:D] - X[:, 0] * th[D], start=np.zeros(D + 1), variance=1.0
    )

    def psi(th):
        return np.tanh(0.05 * (Z[:, 1:] @ th[1:D] + 0.3 * (th[0] + th[D])))

    est = idm.infer(doubled, psi)
    few = idm.infer(doubled, lambda th: psi(th)[PART])
    assert est.diagnostics.notes["flat_directions"] == 1
    np.testing.assert_allclose(est[PART].covariance, few.covariance, rtol=1e-6, atol=1e-12)
    with pytest.warns(SmallSampleWarning):
        robust = [idm.infer(doubled, f, robust=True) for f in (psi, lambda th: psi(th)[PART])]
    np.testing.assert_allclose(robust[0][PART].covariance, robust[1].covariance, rtol=1e-6)
    with pytest.raises(ImplicitDeltaError, match="flat"):
        idm.infer(doubled, lambda th: np.tanh(0.05 * (Z @ th[:D])))


def test_sources_of_a_combined_model():
    halves = [
        idm.from_residuals(
            lambda th, s=s: Y[s] - X[s] @ np.asarray([th[f"b{j}"] for j in range(D)]),
            start={f"b{j}": 0.0 for j in range(D)},
            variance=1.0,
        )
        for s in (slice(0, 40), slice(40, N))
    ]
    whole = halves[0] + halves[1]

    def psi(th):
        return np.tanh(0.05 * sum(Z[:, j] * th[f"b{j}"] for j in range(D)))

    many, few = idm.infer(whole, psi), idm.infer(whole, lambda th: psi(th)[PART])
    assert list(many.parts) == list(few.parts)
    assert len(few.parts) == 2
    for part, V in few.parts.items():
        np.testing.assert_allclose(many.parts[part][np.ix_(PART, PART)], V, atol=1e-9 * V.max())


@pytest.fixture(scope="module")
def estimate():
    return idm.infer(model(), surface, robust="HC1")


@pytest.fixture(scope="module")
def dense(estimate):
    """The same numbers with their matrix."""
    return Estimate(
        estimate.value, np.array(estimate.covariance), estimate.names, "dense", df=estimate.df
    )


C = np.random.default_rng(1).normal(size=(3, K))
WORK = {
    "contrast": lambda e: e.contrast(C),
    "one contrast": lambda e: e.contrast(C[0]),
    "expression": lambda e: e.contrast(f"{e.names[3]} - 2 * {e.names[700]}"),
    "difference": lambda e: e[: K // 2] - e[K // 2 :],
    "with a number": lambda e: 2 * e - 1,
    "with numbers": lambda e: e * np.arange(1.0, K + 1),
    "divided": lambda e: e / 3,
    "minus itself": lambda e: e - e,
    "selected twice": lambda e: e[::2][5:300],
    "mask": lambda e: e[np.arange(K) % 7 == 0],
    "ratio": lambda e: e[:200] / e[200:400],
    "function": lambda e: e.apply(lambda v: v[:3] / v[3]),
    "mean": lambda e: e.apply(np.mean),
    "independent": lambda e: idm.join(e, e[:3].contrast(np.eye(3)) * 0 + 1.0)[:K],
}


@pytest.mark.parametrize("name", WORK)
def test_work_with_factors_is_that_with_matrices(estimate, dense, name):
    found, expected = WORK[name](estimate), WORK[name](dense)
    np.testing.assert_allclose(found.value, expected.value)
    scale = np.max(expected.covariance) or 1.0
    np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-10 * scale, rtol=0)
    assert found.names == expected.names
    np.testing.assert_allclose(found.df, expected.df)


def test_separate_samples_side_by_side(estimate):
    other = Estimate([1.0, 2.0], [[1.0, 0.5], [0.5, 2.0]], ("a", "b"), "by hand")
    joined = idm.join(estimate, other, independent=True)
    expected = np.zeros((K + 2, K + 2))
    expected[:K, :K], expected[K:, K:] = estimate.covariance, other.covariance
    np.testing.assert_allclose(joined.covariance, expected, atol=1e-12)
    assert isinstance(vars(joined)["covariance"], Factored)


def test_estimates_of_two_models_of_the_same_rows():
    one = idm.infer(model(), surface, influence=True)
    other = idm.infer(model(), lambda th: th[0] - th[1], influence=True)
    twin = Estimate(
        one.value,
        np.array(one.covariance),
        one.names,
        "dense",
        influence=one.influence,
        rows=one.rows,
        df=one.df,
    )
    for k in PART:
        found, expected = one[k] - other, twin[k] - other
        np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-8)


def test_tests_and_bands(estimate, dense):
    found, expected = estimate.test(1.4, joint=True), dense.test(1.4, joint=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(estimate.test(1.4).p_value, dense.test(1.4).p_value)
    bands = [e.confidence_interval(simultaneous=True) for e in (estimate, dense)]
    wide = [(b.high - b.low) / estimate.standard_error for b in bands]
    np.testing.assert_allclose(wide[0], wide[1], rtol=0.01)  # Monte Carlo
    assert np.ptp(wide[0]) < 1e-9
    again = estimate.confidence_interval(simultaneous=True)
    assert np.array_equal(again.low, bands[0].low)


def test_unknown_dependence_takes_factors_too():
    est = idm.infer(model(), idm.Average(rows_of_average, sample="unknown"))
    few = idm.infer(model(), idm.Average(lambda th: rows_of_average(th)[:, PART], sample="unknown"))
    rows = np.zeros((2, K))
    rows[0, PART[0]], rows[1, PART[1]] = 1.0, -2.0
    small = np.array([[1.0, 0, 0, 0, 0], [0, -2.0, 0, 0, 0]])
    np.testing.assert_allclose(
        est.contrast(rows).standard_error, few.contrast(small).standard_error, rtol=1e-9
    )
    assert est.test(2.0, joint=True).p_value <= 1
    low, high = est.confidence_interval(simultaneous=True)
    assert np.all(low < high)


def test_files_and_pickles(estimate, tmp_path):
    estimate.save(tmp_path / "many.npz")
    assert (tmp_path / "many.npz").stat().st_size < 8 * K * K / 4
    for copy in (Estimate.load(tmp_path / "many.npz"), pickle.loads(pickle.dumps(estimate))):
        assert np.array_equal(copy.covariance, estimate.covariance)
        assert copy.names == estimate.names
        assert np.all((copy - estimate).standard_error == 0)
        assert not copy.covariance.flags.writeable


def test_parts_in_files(tmp_path):
    est = idm.infer(model(), idm.Average(rows_of_average, sample="independent"))
    est.save(tmp_path / "parts.npz")
    back = Estimate.load(tmp_path / "parts.npz")
    assert list(back.parts) == list(est.parts) == ["model", "evaluation"]
    for part in est.parts:
        assert np.array_equal(back.parts[part], est.parts[part])
    with pytest.raises(TypeError):
        est.parts["model"] = 0.0


def test_attributes_stay_read_only(estimate):
    assert estimate.covariance.shape == (K, K)
    assert estimate.covariance is estimate.covariance
    with pytest.raises(ValueError, match="read-only"):
        estimate.covariance[0, 0] = 1.0
    with pytest.raises(AttributeError):
        estimate.covariance = np.eye(K)
    assert np.array_equal(np.diag(estimate.covariance) ** 0.5 > 0, estimate.standard_error > 0)


def test_tables(estimate):
    assert len(repr(estimate).splitlines()) < 100
    assert len(estimate.to_dict()["term"]) == K
    assert "..." in estimate.summary()
    assert estimate._repr_html_()


SURFACE = 40_000


@pytest.fixture(scope="module")
def enormous():
    left = np.random.default_rng(2).normal(size=(SURFACE, 4)) * 1e-2
    values = np.linspace(1.0, 2.0, SURFACE)
    return Estimate(values, Factored(left), [f"p{k}" for k in range(SURFACE)], "by hand")


LAZY = {
    "standard errors": lambda e: e.standard_error,
    "intervals": lambda e: e.confidence_interval(),
    "test": lambda e: e.test(1.0),
    "joint test": lambda e: e.test(1.0, joint=True),
    "budget": lambda e: e.budget,
    "table": lambda e: (repr(e), e.summary(), e._repr_html_()),
    "columns": lambda e: e.to_dict(transform="exp"),
    "log scale": lambda e: e.confidence_interval(transform="log"),
    "selection": lambda e: e[5:900].covariance,
    "every second": lambda e: e[::2],
    "by name": lambda e: e["p77"],
    "contrast": lambda e: e.contrast(np.ones(SURFACE) / SURFACE),
    "arithmetic": lambda e: 2 * e - e + 1.0,
    "halves": lambda e: e[: SURFACE // 2] - e[SURFACE // 2 :],
    "mean": lambda e: e.apply(np.mean),
    "pickle": lambda e: pickle.loads(pickle.dumps(e)),
    "one beside many numbers": lambda e: e["p77"] + np.arange(float(SURFACE)),
    "separate": lambda e: idm.join(e, Estimate(1.0, [[1.0]], ("a",), "m"), independent=True),
}


@pytest.mark.parametrize("name", LAZY)
def test_no_matrix_of_very_many(enormous, name):
    tracemalloc.start()
    try:
        LAZY[name](enormous)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3e8  # the matrix has 1.3e10 bytes


REFUSED = {
    "covariance": lambda e: e.covariance,
    "as an array": lambda e: np.asarray(e.covariance),
    "image": lambda e: e.plot(kind="covariance"),
    "function of all": lambda e: e.apply(np.exp),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuse_the_matrix_of_very_many(enormous, name):
    if name == "image":
        pytest.importorskip("matplotlib")
    with pytest.raises(ImplicitDeltaError, match=r"12\.8 GB.*est\[:1000\]"):
        REFUSED[name](enormous)
    assert enormous[:1000].covariance.shape == (1000, 1000)  # the advice


def test_variances_of_combinations_that_cancel(estimate):
    row = np.zeros(K)
    row[:2] = 1.0, -1.0
    twice = estimate[[5, 5]]
    assert (twice[0] - twice[1]).standard_error == 0.0
    assert estimate.contrast(0 * row).standard_error == 0.0


def test_few_evaluations_keep_their_matrix():
    est = idm.infer(model(), lambda th: surface(th)[:MANY])
    assert isinstance(vars(est)["covariance"], np.ndarray)


@pytest.mark.parametrize(
    ("left", "middle", "text"),
    [
        (np.full((K, 2), np.nan), None, "not finite"),
        (np.ones((K, 2)), np.diag([1.0, -2.0]), "negative variance"),
        (np.ones((K - 1, 2)), None, "shape"),
    ],
)
def test_refuse_factors_of_no_covariance(left, middle, text):
    with pytest.raises(ValueError, match=text):
        Estimate(np.zeros(K), Factored(left, middle), [f"p{k}" for k in range(K)], "by hand")


@pytest.mark.parametrize("name", ["_left", "_middle", "covariance"])
def test_refuse_damaged_files(estimate, tmp_path, name):
    estimate.save(tmp_path / "whole.npz")
    with np.load(tmp_path / "whole.npz") as file:
        arrays = dict(file)
    if name == "covariance":
        arrays["covariance"] = np.eye(K)
    else:
        arrays["covariance" + name] = arrays["covariance" + name][:-1]
    np.savez(tmp_path / "damaged.npz", **arrays)
    with pytest.raises(ValueError, match="damaged"):
        Estimate.load(tmp_path / "damaged.npz")

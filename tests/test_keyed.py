"""Dicts as the value of psi: the numbers and names of the same psi as an array, at every door."""

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.errors import EvaluationError

N = 60
RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(N), RNG.normal(size=N)])
Y = X @ [1.0, 0.5] + RNG.normal(size=N)
BETA = np.linalg.lstsq(X, Y, rcond=None)[0]
NAMES = ("level", "line[0]", "line[1]", "more[slope]")


def numpy_model():
    return idm.from_loglik(
        lambda b: -((Y - X @ b) ** 2) / 2, BETA, score=lambda b: (Y - X @ b)[:, None] * X
    )


def keyed(b):
    return {"level": b[0], "line": X[:2] @ b, "more": {"slope": 2 * b[1]}}


def listed(b):
    return [b[0], *(X[:2] @ b), 2 * b[1]]


def opaque(b):
    return {name: float(value) for name, value in zip(NAMES, listed(b), strict=True)}


def noisy(make):
    def psi(b, rng):
        return make(b + 0.01 * rng.normal(size=2))

    return idm.Replicated(psi, repeats=5, rng=0)


def train(bonus):
    slope = np.array([(bonus(BETA + e) - bonus(BETA - e)) / 2e-4 for e in 1e-4 * np.eye(2)])
    return BETA + np.linalg.solve(X.T @ X, slope)


DOORS = {
    "traced": (lambda psi: idm.infer(numpy_model(), psi), keyed, listed, 1e-9),
    "differences": (lambda psi: idm.infer(numpy_model(), psi), opaque, listed, 1e-6),
    "finite": (
        lambda psi: idm.infer(numpy_model(), psi, idm.FiniteDifference()), keyed, listed, 1e-9,
    ),
    "simulation": (
        lambda psi: idm.infer(numpy_model(), psi, idm.Simulation(50, rng=0)), keyed, listed, 1e-9,
    ),
    "smoothed": (
        lambda psi: idm.infer(numpy_model(), idm.Smoothed(psi, rng=0)), opaque, listed, 1e-9,
    ),
    "replicated": (
        lambda psi: idm.infer(numpy_model(), psi), noisy(keyed), noisy(listed), 1e-9,
    ),
    "refit": (lambda psi: idm.refit(train, psi, check=False), keyed, listed, 1e-9),
    "bootstrap": (
        lambda psi: idm.bootstrap(
            lambda d: np.linalg.lstsq(d[0], d[1], rcond=None)[0], (X, Y), psi,
            replicates=60, rng=0, jackknife=False,
        ), keyed, listed, 1e-12,
    ),
    "bootstrap with data": (
        lambda psi: idm.bootstrap(
            lambda d: np.linalg.lstsq(d[0], d[1], rcond=None)[0], (X, Y), lambda b, d: psi(b),
            replicates=60, rng=0, jackknife=False,
        ), keyed, listed, 1e-12,
    ),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_a_dict_is_an_array_with_names(door):
    ask, asked, plain, rtol = DOORS[door]
    est, other = ask(asked), ask(plain)
    assert est.names == NAMES
    np.testing.assert_allclose(est.value, other.value, rtol=1e-12)
    np.testing.assert_allclose(est.covariance, other.covariance, rtol=rtol, atol=1e-12)


def test_names_that_are_given_win():
    assert idm.infer(numpy_model(), keyed, names=list("abcd")).names == tuple("abcd")


def test_one_key_is_an_array_of_one_and_can_be_profiled():
    est = idm.infer(numpy_model(), lambda b: {"slope": b[1]})
    assert est.names == ("slope",)
    assert est.value.shape == (1,)
    profile = idm.profile(numpy_model(), lambda b: {"slope": b[1]})
    assert profile.name == "slope"
    np.testing.assert_allclose(profile.interval, np.ravel(est.confidence_interval()), rtol=1e-6)


@pytest.mark.parametrize("kind", ["statsmodels", "formula"])
def test_statsmodels(kind):
    sm, pd = pytest.importorskip("statsmodels.api"), pytest.importorskip("pandas")
    frame = pd.DataFrame({"y": Y, "x": X[:, 1]})
    fit = (
        sm.OLS(Y, X).fit()
        if kind == "statsmodels"
        else pytest.importorskip("statsmodels.formula.api").ols("y ~ x", frame).fit()
    )

    def psi(p):
        return {"first": p.iloc[0] if hasattr(p, "iloc") else p[0], "all": 2 * p}

    est = idm.infer(idm.from_statsmodels(fit), psi)
    inner = ("0", "1") if kind == "statsmodels" else ("Intercept", "x")
    assert est.names == ("first", *(f"all[{k}]" for k in inner))
    np.testing.assert_allclose(est.standard_error, fit.bse @ [[1, 2, 0], [0, 0, 2]], rtol=1e-6)


def test_sklearn():
    linear = pytest.importorskip("sklearn.linear_model")
    model = idm.from_sklearn(linear.LinearRegression().fit(X[:, 1:], Y), X[:, 1:], Y)
    est = idm.infer(model, lambda m: {"slope": m.coef_, "at": m.predict(X[:2, 1:])})
    assert est.names == ("slope[0]", "at[0]", "at[1]")
    other = idm.infer(model, lambda m: np.concatenate([m.coef_, m.predict(X[:2, 1:])]))
    np.testing.assert_allclose(est.covariance, other.covariance, rtol=1e-6)


def torch_model():
    torch = pytest.importorskip("torch")
    line = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        line.weight[:] = torch.as_tensor(BETA)[None]
    data = torch.as_tensor(X), torch.as_tensor(Y)
    return idm.from_torch(line, data, idm.Gaussian(1.0)), lambda m: m.weight[0]


def jax_model():
    pytest.importorskip("jax")
    model = idm.from_jax({"b": BETA}, (X, Y), idm.Gaussian(1.0), apply=lambda p, x: x @ p["b"])
    return model, lambda p: p["b"]


@pytest.mark.parametrize("make", [torch_model, jax_model])
def test_modules(make):
    model, beta = make()

    def psi(m):
        b = beta(m)
        return {"level": b[0], "line": [b[0] + X[0, 1] * b[1], b @ b], "rate": {"old": b}}

    est = idm.infer(model, psi)
    assert est.names == ("level", "line[0]", "line[1]", "rate[old][0]", "rate[old][1]")
    J = np.array([[1, 0], [1, X[0, 1]], 2 * BETA, [1, 0], [0, 1]])
    np.testing.assert_allclose(est.covariance, J @ np.linalg.inv(X.T @ X) @ J.T, rtol=1e-5)
    average = idm.infer(model, idm.Average(lambda m: {"a": 2 * _at(m, beta), "b": _at(m, beta)}))
    assert average.names == ("a", "b")
    np.testing.assert_allclose(average.value, [2 * Y.mean(), Y.mean()], rtol=1e-6)


def _at(m, beta):
    b = beta(m)
    rows = b.new_tensor(X) if hasattr(b, "new_tensor") else X
    return rows @ b


@pytest.mark.parametrize("sample", ["independent", "unknown", "training"])
@pytest.mark.parametrize("shape", ["arrays", "series", "matrix"])
def test_an_average_of_a_dict_of_columns(sample, shape):
    pd = pytest.importorskip("pandas")
    wrap = pd.Series if shape == "series" else np.asarray

    def columns(b):
        line = X @ b
        if shape == "matrix":
            return {"m": np.column_stack([line, line**2])}
        return {"line": wrap(line), "square": wrap(line**2)}

    def matrix(b):
        return np.column_stack([X @ b, (X @ b) ** 2])

    est, other = (idm.infer(numpy_model(), idm.Average(h, sample)) for h in (columns, matrix))
    assert est.names == (("m[0]", "m[1]") if shape == "matrix" else ("line", "square"))
    np.testing.assert_allclose(est.covariance, other.covariance, rtol=1e-6)


def test_a_statistic_of_a_dict():
    def function(score, weight):
        mean = np.average(score, weights=weight)
        return {"mean": mean, "spread": np.sqrt(np.average((score - mean) ** 2, weights=weight))}

    def units(b):
        return X @ b

    est = idm.infer(numpy_model(), idm.Statistic(units, function))
    plain = idm.Statistic(units, lambda s, w: list(function(s, w).values()))
    assert est.names == ("mean", "spread")
    np.testing.assert_allclose(est.covariance, idm.infer(numpy_model(), plain).covariance)
    two = idm.Statistic(
        lambda b: {"a": X @ b, "b": -X @ b}, lambda s, w: np.average(s[:, 0] - s[:, 1], weights=w)
    )
    np.testing.assert_allclose(idm.infer(numpy_model(), two).value, 2 * Y.mean())


def test_the_order_of_keys_may_change():
    def psi(b):
        entries = {"a": b[0], "b": 100 + b[1]}
        return entries if b[0] >= BETA[0] else dict(reversed(entries.items()))

    est = idm.infer(numpy_model(), psi)
    other = idm.infer(numpy_model(), lambda b: [b[0], 100 + b[1]])
    np.testing.assert_allclose(est.covariance, other.covariance, rtol=1e-6)


def test_the_order_of_columns_may_change():
    def columns(b):
        entries = {"a": X @ b, "b": 100 + 2 * (X @ b)}
        return entries if b[0] >= BETA[0] else dict(reversed(entries.items()))

    est = idm.infer(numpy_model(), idm.Average(columns))
    other = idm.infer(numpy_model(), idm.Average(lambda b: np.outer(X @ b, [1, 2])))
    np.testing.assert_allclose(est.covariance, other.covariance, rtol=1e-6)


REFUSED = {
    "empty": (lambda b: {}, "empty dict"),
    "empty array": (lambda b: {"a": b[0], "b": b[:0]}, "'b' has shape"),
    "matrix": (lambda b: {"a": b[0], "table": np.outer(b, b)}, "'table' has shape"),
    "none": (lambda b: {"a": b[0], "b": None}, "'b' is None"),
    "text": (lambda b: {"a": b[0], "b": "1.0"}, "'b' is '1.0'"),
    "nested none": (lambda b: {"a": {"b": [b[0], None]}}, r"'a\[b\]\[1\]' is None"),
    "complex": (lambda b: {"a": b[0] + 1j}, "complex"),
    "nan": (lambda b: {"a": b[0], "b": np.nan}, "NaN"),
    "masked": (lambda b: {"a": np.ma.array([1.0, 2.0], mask=[True, False])}, "masked"),
    "twice": (lambda b: {1: b[0], "1": b[1]}, "'1' names two"),
    "array and key": (lambda b: {"a": b, "a[0]": b[0]}, r"'a\[0\]' names two"),
    "other keys": (
        lambda b: {"a": float(b[0]), ("b" if b[0] == BETA[0] else "c"): float(b[1])},
        "other names",
    ),
    "averaged": (idm.Average(lambda b: {"a": X @ b, "b": (X @ b).mean()}), r"'b' of shape \(\)"),
    "lengths": (idm.Average(lambda b: {"a": X @ b, "b": X[1:] @ b}), "'b' of shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_dicts_that_are_refused(name):
    psi, text = REFUSED[name]
    with pytest.raises(EvaluationError, match=text):
        idm.infer(numpy_model(), psi)


def test_columns_with_other_row_labels_are_refused():
    pd = pytest.importorskip("pandas")

    def h(b):
        line = pd.Series(X @ np.asarray(b))
        return {"a": line, "b": line[::-1]}

    with pytest.raises(EvaluationError, match="different row labels"):
        idm.infer(numpy_model(), idm.Average(h))


def test_columns_keep_their_row_labels():
    sm, pd = pytest.importorskip("statsmodels.api"), pytest.importorskip("pandas")
    labels = [f"r{i}" for i in range(N)]
    frame, y = pd.DataFrame(X, index=labels, columns=["c", "x"]), pd.Series(Y, index=labels)
    model = idm.from_statsmodels(sm.OLS(y, frame).fit())
    turned = frame[::-1]

    def h(p):
        line = pd.Series(turned.to_numpy() @ np.asarray(p), index=turned.index)
        return {"a": line, "b": 2 * line}

    with pytest.raises(EvaluationError, match="in that order"):
        idm.infer(model, idm.Average(h, sample="training"))

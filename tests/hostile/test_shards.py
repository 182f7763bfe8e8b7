"""Parts of data that are no parts of one model: each is refused by name, or is right."""

import re
import warnings
from itertools import pairwise

import numpy as np
import pytest

import implicit_delta as idm

rng = np.random.default_rng(5)
N = 60
X = np.column_stack([np.ones(N), rng.normal(size=N)])
Y = rng.poisson(np.exp(X @ [0.5, 0.3])).astype(float)
PARTS = [slice(0, 10), slice(10, 35), slice(35, N)]


def poisson(A, y, theta, **options):
    return idm.from_loglik(
        lambda t: y * (A @ t) - np.exp(A @ t),
        theta,
        score=lambda t: (y - np.exp(A @ t))[:, None] * A,
        **options,
    )


WHOLE = poisson(X, Y, None, start=[0.0, 0.0])
THETA = np.asarray(WHOLE.theta)
REFUSALS = (idm.ImplicitDeltaError, ValueError, TypeError)


def psi(theta):
    return np.exp(theta[0])


def build(rows):
    return poisson(X[rows], Y[rows], THETA)


def spoiled(change):
    """A builder that is another for the second part."""

    def make(rows):
        return change(rows) if rows.start == 10 else build(rows)

    return make


def with_nan(rows):
    A = X[rows].copy()
    A[3, 1] = np.nan
    return poisson(A, Y[rows], THETA)


def failing(rows):
    raise KeyError("age")


def missing(rows):
    raise FileNotFoundError(2, "No such file or directory", "part-1.parquet")


def fitted(rows):
    return poisson(X[rows], Y[rows], None, start=[0.1, 0.1])


def with_bounds(rows):
    return poisson(X[rows], Y[rows], THETA, bounds=[(-5, 5), (None, None)])


def precise(rows):
    return poisson(X[rows], Y[rows], THETA, weights=np.ones(25), weight_kind="precision")


def named(rows):
    return poisson(X[rows], Y[rows], THETA, names=["a", "b"])


def wider(rows):
    A = np.column_stack([X[rows], X[rows, 1] ** 2])
    return poisson(A, Y[rows], [*THETA, 0.0])


def empty(rows):
    return poisson(X[:0], Y[:0], THETA)


def equations(rows):
    return idm.from_equations(
        lambda t: (Y[rows] - np.exp(X[rows] @ t))[:, None] * X[rows], start=THETA
    )


def together(rows):
    own = poisson(X[rows], Y[rows], THETA, names=["a", "b"])
    return own + idm.measurement(a=(0.5, 1.0))


SPOILED = {
    "NaN": (with_nan, "part 1 .*not finite"),
    "raises": (failing, "part 1 .*KeyError: 'age'"),
    "missing": (missing, "part 1 .*part-1.parquet"),
    "fitted by itself": (fitted, r"part 1 .*fitted each part by itself.*polish\(model\)"),
    "other weights": (precise, "weight_kind of part 1"),
    "other names": (named, "names of part 1"),
    "other columns": (wider, "number of parameters of part 1 .* is 3.*2"),
    "empty": (empty, "part 1 "),
    "no model": (lambda rows: None, "build returned NoneType for part 1"),
    "a penalty": (lambda r: poisson(X[r], Y[r], THETA, l2=1.0), r"penalty of part 1 .*counts once"),
    "bounds": (with_bounds, "constraints of part 1"),
    "other kind": (
        lambda r: idm.from_residuals(lambda t: Y[r] - np.exp(X[r] @ t), THETA, variance=1.0),
        "kind of part 1",
    ),
}


@pytest.mark.parametrize("fault", SPOILED)
def test_a_part_that_does_not_fit_is_named(fault):
    change, text = SPOILED[fault]
    with pytest.raises(REFUSALS, match=text):
        idm.from_shards(spoiled(change), PARTS)


@pytest.mark.parametrize(
    ("parts", "error", "text"),
    [
        ([], ValueError, "empty"),
        (iter(PARTS), TypeError, "walked once"),
        ((p for p in PARTS), TypeError, "walked once"),
        ("data.parquet", TypeError, "a sequence of parts"),
        (7, TypeError, "a sequence of parts"),
        (["a.parquet", "b.parquet", "a.parquet"], ValueError, "a.parquet is there twice"),
    ],
)
def test_parts_are_a_sequence(parts, error, text):
    with pytest.raises(error, match=text):
        idm.from_shards(build, parts)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (equations, "influences alone"),
        (together, "made of several models"),
    ],
)
def test_models_that_are_no_sums_are_refused(model, text):
    with pytest.raises(REFUSALS, match=text):
        idm.from_shards(model, PARTS)


def test_a_builder_that_is_no_function():
    with pytest.raises(TypeError, match="function of one part"):
        idm.from_shards(WHOLE, PARTS)


@pytest.mark.parametrize("keep", [-1, float("nan")])
def test_keep_is_a_number_of_bytes(keep):
    with pytest.raises(ValueError, match="keep"):
        idm.from_shards(build, PARTS, keep=keep)


def test_the_line_that_a_refusal_gives_works():
    """Builders that fit are told to give theta= and to polish."""
    start = np.array([0.1, 0.1])
    model = idm.polish(idm.from_shards(lambda rows: poisson(X[rows], Y[rows], start), PARTS))
    assert np.allclose(model.theta, THETA, rtol=1e-9)
    gap = idm.infer(model, psi).standard_error / idm.infer(WHOLE, psi).standard_error
    assert gap == pytest.approx(1, rel=1e-9)


def test_l2_counts_once_whatever_the_number_of_parts():
    one = poisson(X, Y, None, start=[0.0, 0.0], l2=30.0)
    theta = np.asarray(one.theta)
    many = idm.from_shards(lambda r: poisson(X[r], Y[r], theta, l2=30.0), PARTS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.ShrinkageWarning)
        a, b = idm.infer(one, psi), idm.infer(many, psi)
    assert b.standard_error == pytest.approx(a.standard_error, rel=1e-10)
    assert b.diagnostics.drift < 1e-6


def test_a_divided_l2_drifts():
    """Parts with l2 / 3 each are another model, whose maximum is elsewhere."""
    one = poisson(X, Y, None, start=[0.0, 0.0], l2=30.0)
    many = idm.from_shards(lambda r: poisson(X[r], Y[r], np.asarray(one.theta), l2=10.0), PARTS)
    with pytest.warns(idm.DriftWarning, match="drift"):
        idm.infer(many, psi)


def test_a_penalty_and_l2_and_a_score_count_once():
    """The ridge was subtracted twice from a given score beside a penalty."""
    options = {"l2": 4.0, "penalty": lambda t: 2 * (t[1] - 0.1) ** 2}
    given = poisson(X, Y, None, start=[0.0, 0.0], **options)
    plain = idm.from_loglik(lambda t: Y * (X @ t) - np.exp(X @ t), start=[0.0, 0.0], **options)
    assert np.allclose(given.theta, plain.theta, atol=1e-7)
    rate = np.exp(X @ given.theta)
    exact = np.linalg.inv((X.T * rate) @ X + np.diag([4.0, 8.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.ShrinkageWarning)
        found = idm.infer(given, idm.parameters).covariance
    assert np.allclose(found, exact, rtol=1e-6)


def test_data_that_change_are_refused():
    A, y = X.copy(), Y.copy()
    model = idm.from_shards(lambda r: poisson(A[r], y[r], THETA), PARTS)
    y[20] += 3
    with pytest.raises(REFUSALS, match=r"part 1 .*changed"):
        idm.infer(model, psi)


def test_parts_that_grow_are_refused():
    sizes = iter([10, 25, 25, 24, 25])  # the first part stays in memory

    def growing(rows):
        cut = slice(rows.start, rows.start + next(sizes))
        return build(cut)

    model = idm.from_shards(growing, PARTS, keep=0)
    with pytest.raises(REFUSALS, match=r"24 rows in part 1 .*25"):
        idm.infer(model, psi)


def test_a_builder_that_is_random_is_refused():
    def noisy(rows):
        y = Y[rows] + np.random.default_rng().poisson(1.0, size=len(Y[rows]))
        return poisson(X[rows], y, THETA)

    model = idm.from_shards(noisy, PARTS, keep=0)
    with pytest.raises(REFUSALS, match=r"part 1 .*random"):
        idm.infer(model, psi)


def test_an_error_of_one_part_in_the_middle_of_a_walk_names_it():
    calls = []

    def fragile(rows):
        calls.append(rows)
        if len(calls) > 7 and rows.start == 35:
            raise OSError("disk is gone")
        return build(rows)

    model = idm.from_shards(fragile, PARTS, keep=0)
    with pytest.raises(ValueError, match=r"part 2 .*OSError: disk is gone"):
        idm.infer(model, psi)


def test_a_noise_variance_of_each_part_is_joined_or_refused():
    """The mean squared residuals of parts with different noise are not those of the whole."""
    scale = np.where(np.arange(N) < 10, 5.0, 1.0)
    y = X @ [1.0, 2.0] + scale * rng.normal(size=N)
    beta = np.linalg.lstsq(X, y, rcond=None)[0]

    def least(rows):
        return idm.from_residuals(lambda b: y[rows] - X[rows] @ b, beta, variance="mle")

    many = idm.from_shards(least, PARTS)
    s2 = np.mean((y - X @ beta) ** 2)
    exact = s2 * np.linalg.inv(X.T @ X)
    assert np.allclose(idm.infer(many, idm.parameters).covariance, exact, rtol=1e-9)
    assert many.facts.df == N - 2


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_a_noise_variance_that_cannot_be_joined_is_refused(network):
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LinearRegression
    from sklearn.neural_network import MLPRegressor

    made = (
        MLPRegressor(hidden_layer_sizes=2, alpha=0.0, random_state=0)
        if network
        else LinearRegression()
    )
    reg = made.fit(X[:, 1:], Y)
    with pytest.raises(REFUSALS, match=r"part 0 .*noise variance.*from_residuals"):
        idm.from_shards(lambda r: idm.from_sklearn(reg, X[r, 1:], Y[r]), PARTS)


def test_labels_of_rows_outside_are_counted():
    model = idm.from_shards(build, PARTS)
    with pytest.raises(ValueError, match=re.escape("shape (59,)")):
        idm.infer(model, psi, clusters=np.arange(N - 1))


def test_units_of_parts_need_rows():
    model = idm.from_shards(build, PARTS)
    with pytest.raises(REFUSALS, match="one value per row"):
        idm.infer(model, idm.Average(idm.on_shards(lambda t, r: np.exp(X[r] @ t).mean())))
    with pytest.raises(REFUSALS, match="h\\(model, part\\)"):
        idm.on_shards(3)


def test_h_that_fails_on_a_part_names_it():
    def h(theta, rows):
        if rows.start == 35:
            raise ZeroDivisionError("by zero")
        return np.exp(X[rows] @ theta)

    with pytest.raises(REFUSALS, match=r"part 2 .*ZeroDivisionError"):
        idm.infer(idm.from_shards(build, PARTS), idm.Average(idm.on_shards(h)))


def test_parameters_of_fits_of_a_library_are_fixed_over_parts():
    sm = pytest.importorskip("statsmodels.api")
    theta = sm.Poisson(Y, X).fit(disp=0).params

    def host(rows):
        return idm.from_statsmodels(sm.Poisson(Y[rows], X[rows]).fit(disp=0)).at(theta)

    one, many = (model.fix({1: 0.1}) for model in (WHOLE, idm.from_shards(host, PARTS)))
    assert many.theta[0] == pytest.approx(one.theta[0], abs=1e-8)


def test_a_parameter_that_one_part_does_not_hold_is_none_of_its_business():
    """A part without events is level toward minus infinity; with the others it is not."""
    events = np.concatenate([np.zeros(10), Y[10:]])
    rate = np.log(events.mean())

    def counts(rows):
        return idm.from_loglik(lambda t: events[rows] * t[0] - np.exp(t[0]), theta=[rate])

    many = idm.from_shards(counts, PARTS)
    found = idm.infer(many, lambda t: np.exp(t[0])).standard_error
    assert found == pytest.approx(np.sqrt(events.mean() / N), rel=1e-6)


def test_a_parameter_that_no_part_holds_warns_once():
    def flat(rows):
        return idm.from_loglik(
            lambda t: -((Y[rows] - t[0]) ** 2) / 2 - np.exp(t[1]), theta=[Y.mean(), -40.0]
        )

    with pytest.warns(idm.ImplicitDeltaWarning, match="no finite maximum") as seen:
        idm.from_shards(flat, PARTS)
    assert len(seen) == 1


def test_a_saddle_of_all_parts_is_refused():
    """A Gauss-Newton matrix, the default of least squares, is positive at a saddle, too."""
    x = np.linspace(0.5, 2.0, N)
    y = 3.0 * x + 0.1 * rng.normal(size=N)

    def product(rows):
        return idm.from_residuals(
            lambda b: y[rows] - (b[0] * b[1] + 0.1 * (b[0] - b[1])) * x[rows],
            [0.1, -0.1],
            jacobian=lambda b: np.outer(x[rows], [-b[1] - 0.1, 0.1 - b[0]]),
            variance=1.0,
            l2=1e-3,
        )

    for model in (product(slice(None)), idm.from_shards(product, PARTS)):
        with pytest.raises(idm.NotAMaximumError, match=r"saddle|curv"):
            idm.infer(model, lambda b: b[0])


def test_names_of_psi_come_back_from_the_shards():
    model = idm.from_shards(build, PARTS)
    found = idm.infer(model, lambda t: {"rate": np.exp(t[0]), "slope": t[1]})
    assert found.names == ("rate", "slope")


def test_labels_of_psi_come_back_from_the_shards():
    pandas = pytest.importorskip("pandas")
    linear = pytest.importorskip("sklearn.linear_model")
    reg = linear.PoissonRegressor(alpha=0, tol=1e-10, max_iter=2000).fit(X[:, 1:], Y)
    model = idm.from_shards(lambda r: idm.from_sklearn(reg, X[r, 1:], Y[r]), PARTS)
    found = idm.infer(model, lambda reg: pandas.Series(reg.predict(X[:2, 1:]), ["a", "b"]))
    assert found.names == ("a", "b")


LINE = X @ [1.0, 2.0] + rng.normal(size=N)
FEW = rng.integers(0, 2, size=(N, 2)).astype(float)


def cut(k):
    edges = np.linspace(0, N, k + 1).astype(int)
    return [slice(int(a), int(b)) for a, b in pairwise(edges)]


def ridge(strength):
    return lambda b: strength * b @ b


def hinge(b):
    return float(50 * np.maximum(b[0] - 0.1, 0) ** 2)


PENALTIES = {
    "shares by size": lambda r: ridge(1.5 * (r.stop - r.start) / N),
    "missing in the first": lambda r: ridge(0.5) if r.start else None,
    "missing in the last": lambda r: None if r.start == 35 else ridge(0.5),
    "zero in the first": lambda r: ridge(0.5 if r.start else 0.0),
    "another center": lambda r: lambda b: (b[1] - (0.1 if r.start else 0.0)) ** 2,
    "of another parameter": lambda r: lambda b: b[1 if r.start else 0] ** 2,
    "of fourth order": lambda r: lambda b: (1 + r.start) * np.sum(b**4),
}


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_are_compared_away_from_zero(name):
    make = PENALTIES[name]
    with pytest.raises(ValueError, match=r"penalty of part .*counts once"):
        idm.from_shards(lambda r: poisson(X[r], Y[r], [0.0, 0.0], penalty=make(r)), PARTS)


def test_penalties_are_compared_after_polish():
    def sometimes(r):
        return hinge if r.start == 10 else lambda b: 0.0

    model = idm.from_shards(lambda r: poisson(X[r], Y[r], [0, 0], penalty=sometimes(r)), PARTS)
    with pytest.raises(ValueError, match=r"penalty of part 1 .*derivative"):
        idm.infer(idm.polish(model), psi)


@pytest.mark.parametrize("penalty", [ridge(1.5), hinge, lambda b: -np.sum(np.log(b + 0.001))])
def test_the_same_penalty_is_taken(penalty):
    start = [0.05, 0.05]
    one, many = (
        idm.polish(model)
        for model in (
            poisson(X, Y, start, penalty=penalty),
            idm.from_shards(lambda r: poisson(X[r], Y[r], start, penalty=penalty), PARTS),
        )
    )
    np.testing.assert_allclose(many.theta, one.theta, atol=1e-6)


@pytest.mark.parametrize("theta", [THETA, np.zeros(2)], ids=["fitted", "zero"])
def test_rows_in_another_order_are_told(theta):
    draws = np.random.default_rng(3)

    def shuffled(rows):
        order = draws.permutation(np.arange(N)[rows])
        return poisson(X[order], Y[order], theta)

    model = idm.from_shards(shuffled, PARTS, keep=0)
    with pytest.warns(idm.NotDeterministicWarning, match=r"part 1 .*another order.*ORDER BY"):
        idm.polish(model)


def test_rows_in_the_same_order_are_not_told():
    model = idm.polish(idm.from_shards(lambda r: poisson(X[r], Y[r], [0, 0]), PARTS, keep=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        idm.infer(model, psi, clusters=np.arange(N) // 3)


ROWS = np.arange(N)
TWICE = {
    "a slice": [*cut(3), cut(3)[1]],
    "numbers": [*(ROWS[r] for r in cut(3)), ROWS[20:40]],
    "in another order": [*(ROWS[r] for r in cut(3)), ROWS[39:19:-1]],
    "a single row": [*cut(60), slice(7, 8)],
    "one table": [table := ROWS[:30], ROWS[30:], table],
    "range": [range(30), range(30, 60), range(30)],
}


@pytest.mark.parametrize("theta", [THETA, np.zeros(2)], ids=["fitted", "zero"])
@pytest.mark.parametrize("name", TWICE)
def test_parts_that_are_there_twice_are_refused(name, theta):
    def rows(r):
        r = r if isinstance(r, slice) else np.asarray(r)
        return poisson(X[r], Y[r], theta)

    with pytest.raises(ValueError, match="count twice"):
        idm.from_shards(rows, TWICE[name])


def test_few_rows_that_are_there_twice_are_told():
    parts = [*(ROWS[r] for r in cut(12)), ROWS[9:4:-1]]
    with pytest.warns(idm.ImplicitDeltaWarning, match=r"Parts 1 .* and 12 .*same 5 rows"):
        idm.from_shards(build, parts)


def test_a_builder_that_does_not_look_at_its_part_is_refused():
    with pytest.raises(ValueError, match=r"Parts 0 .* and 1 .*same 60 rows"):
        idm.from_shards(lambda r: poisson(X, Y, THETA), PARTS)


@pytest.mark.parametrize("k", [3, 12, 20, 60])
@pytest.mark.parametrize(
    ("A", "y"),
    [(FEW, Y), (FEW, FEW[:, 1]), (np.ones((N, 2)), np.zeros(N)), (X, Y)],
    ids=["few kinds", "fewer", "one", "many"],
)
def test_parts_that_look_alike_by_chance_are_taken(A, y, k):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*no finite maximum")
        model = idm.from_shards(lambda r: poisson(A[r], y[r], [0.1, 0.1]), cut(k))
    assert model.n == N


def test_frames_are_no_parts():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"y": Y, "x": X[:, 1]})
    with pytest.raises(TypeError, match=r"data frame.*columns"):
        idm.from_shards(build, frame)
    lazy = pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)
    with pytest.raises(TypeError, match="client="):
        idm.from_shards(build, lazy)
    arrow = pytest.importorskip("pyarrow").table({"y": Y})
    with pytest.raises(TypeError, match=r"data frame.*columns"):
        idm.from_shards(build, arrow)


def silent(rows):
    return poisson(X[rows], Y[rows], THETA, weights=np.zeros(rows.stop - rows.start))


def no_residuals(rows):
    return idm.from_residuals(lambda b: LINE[:0] - X[:0] @ b, THETA, variance=1.0)


@pytest.mark.parametrize("change", [empty, silent, no_residuals])
def test_parts_without_rows_are_named(change):
    with pytest.raises(ValueError, match=r"no rows.* in part 1 .*leave it out of `parts`"):
        idm.from_shards(spoiled(change), PARTS)

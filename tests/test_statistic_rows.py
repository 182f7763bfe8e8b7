"""Sampling error of statistics of rows: derivatives where T is smooth, draws where it has steps."""

import numpy as np
import pytest

import implicit_delta as idm

DATA = np.random.default_rng(1).normal(size=40)
MODEL = idm.from_residuals(lambda th: DATA - th[0], start=[0.0])


def rows_of(n, seed):
    """Scores, labels and outcomes: (n, 3)."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    label = rng.random(n) < 1 / (1 + np.exp(-score))
    return np.column_stack([score, label, 0.6 * score + 0.8 * rng.normal(size=n)])


def mean(u, w):
    return w @ u / w.sum()


def variance(u, w):
    return mean((u[:, 0] - mean(u[:, 0], w)) ** 2, w)


def auc(u, w):
    order = np.argsort(u[:, 0])
    positive, negative = (w * u[:, 1])[order], (w * (1 - u[:, 1]))[order]
    return positive @ np.cumsum(negative) / (positive.sum() * negative.sum())


def gini(u, w):
    order = np.argsort(u[:, 0])
    income, w = np.exp(u[order, 0]), w[order]
    return 2 * mean(income * (np.cumsum(w) - w / 2), w) / (w.sum() * mean(income, w)) - 1


def log_loss(u, w):
    return mean(np.logaddexp(0, u[:, 0]) - u[:, 1] * u[:, 0], w)


def correlation(u, w):
    V = np.cov(u[:, 0], u[:, 2], aweights=w)
    return V[0, 1] / np.sqrt(V[0, 0] * V[1, 1])


def r2(u, w):
    return 1 - mean((u[:, 2] - 0.6 * u[:, 0]) ** 2, w) / variance(u[:, 2:], w)


SMOOTH = {
    "mean": lambda u, w: mean(u[:, 0], w),
    "variance": variance,
    "AUC": auc,
    "Gini": gini,
    "log loss": log_loss,
    "Brier score": lambda u, w: mean((u[:, 1] - 1 / (1 + np.exp(-u[:, 0]))) ** 2, w),
    "accuracy": lambda u, w: mean((u[:, 0] > 0) == u[:, 1], w),
    "F1": lambda u, w: 2 * w @ ((u[:, 0] > 0) * u[:, 1]) / (w @ (u[:, 0] > 0) + w @ u[:, 1]),
    "correlation": correlation,
    "ratio": lambda u, w: mean(np.exp(u[:, 0]), w) / mean(np.exp(u[:, 2]), w),
    "R2": r2,
    "RMSE": lambda u, w: np.sqrt(mean((u[:, 2] - 0.6 * u[:, 0]) ** 2, w)),
    "mean absolute deviation": lambda u, w: mean(abs(u[:, 0] - mean(u[:, 0], w)), w),
}

# Places of the sorted rows on the scale of levels, as in the definitions of weighted quantiles.
PLACES = {
    "midpoints": lambda w: (np.cumsum(w) - w / 2) / w.sum(),
    "ends at 0 and 1": lambda w: (np.cumsum(w) - w) / (w.sum() - w[-1]),
    "distribution function": lambda w: np.cumsum(w) / w.sum(),
    "step": None,
}


def quantile(level, kind):
    def found(u, w):
        order = np.argsort(u[:, 0])
        x, w = u[order, 0], w[order]
        if PLACES[kind] is None:
            return x[np.searchsorted(np.cumsum(w), level * w.sum())]
        return np.interp(level, PLACES[kind](w), x)

    return found


def iqr(kind):
    high, low = quantile(0.75, kind), quantile(0.25, kind)
    return lambda u, w: high(u, w) - low(u, w)


QUANTILES = {
    "median": lambda kind: quantile(0.5, kind),
    "90%": lambda kind: quantile(0.9, kind),
    "10%": lambda kind: quantile(0.1, kind),
    "IQR": iqr,
}


def sampling(T, u):
    """Return the standard error from the sampling of rows, and how it was found."""
    # The last column is the same for all rows: T plus a parameter has an error of the model, too.
    units = lambda th: np.column_stack([u, np.full(len(u), th[0])])
    shifted = idm.Statistic(units, lambda v, w: T(v[:, :3], w) + v[0, 3])
    est = idm.infer(MODEL, shifted)
    return est.budget["evaluation"], est.diagnostics.notes["evaluation_part"]


@pytest.mark.parametrize("n", [50, 300])
@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_statistic_keeps_its_derivative(name, n):
    for seed in range(4):
        assert sampling(SMOOTH[name], rows_of(n, seed))[1] == "infinitesimal jackknife"


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("name", QUANTILES)
@pytest.mark.parametrize("n", [50, 300])
def test_quantiles_are_drawn_interpolated_or_not(name, kind, n):
    """Of 50 or 100 rows, 90% and 10% still have the derivative in some samples: a known gap."""
    if n < 300 and name in ("90%", "10%"):
        pytest.skip("not so for every sample yet: the limit is that of the few rows in the tail")
    for seed in range(4):
        assert "bootstrap" in sampling(QUANTILES[name](kind), rows_of(n, seed))[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMOOTH, *QUANTILES])
def test_as_many_rows_as_have_derivatives(name):
    T = SMOOTH[name] if name in SMOOTH else QUANTILES[name]("midpoints")
    way = "infinitesimal jackknife" if name in SMOOTH else "bootstrap"
    assert way in sampling(T, rows_of(2000, 0))[1]


@pytest.mark.parametrize("kind", [kind for kind in PLACES if kind != "step"])
@pytest.mark.parametrize("name", QUANTILES)
def test_interpolation_leaves_the_error_of_a_quantile(name, kind):
    """Two definitions differ by a gap between rows: a share of order n^(-1/2) of the error."""
    n, T = 400, QUANTILES[name]
    for seed in range(4):
        u = rows_of(n, seed)
        here, stepped = sampling(T(kind), u)[0], sampling(T("step"), u)[0]
        assert here == pytest.approx(stepped, rel=4 / np.sqrt(n))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMOOTH, *QUANTILES])
def test_errors_are_those_of_repeated_samples(name):
    """The mean over samples; a bootstrap of a quantile is off by a share of order n^(-1/4)."""
    n, samples, truths = 300, 12, 600
    T = SMOOTH[name] if name in SMOOTH else QUANTILES[name]("midpoints")
    errors = np.array([sampling(T, rows_of(n, seed))[0] for seed in range(samples)])
    truth = np.std([T(rows_of(n, 100 + seed), np.ones(n)) for seed in range(truths)])
    noise = np.hypot(errors.std(ddof=1) / truth / np.sqrt(samples), 1 / np.sqrt(2 * truths))
    bias = n**-0.5 if name in SMOOTH else n**-0.25
    assert errors.mean() / truth == pytest.approx(1, abs=4 * noise + bias)

"""Hostile cases by kind, each with a reference of its own; `fuzz.py` runs and counts them.

A *case* asks the library for standard errors (or ends of intervals) and holds what NumPy finds for
them without it: a closed form, a sandwich by hand, the host's own value. Where there is no right
number the case names the reason that a refusal or a warning has to give.
"""

import re
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, special, stats

import implicit_delta as idm

# Differences where nothing is traced are good to 1e-6, fits to 1e-7 standard errors.
RTOL = 1e-5


@dataclass(frozen=True)
class Case:
    """What is asked, the right answer or None, and the reasons that may be given for no answer."""

    ask: Callable[[], Any]
    truth: Any = None
    reason: str | None = None  # of a refusal or a warning; None: there is no reason for one
    rtol: float = RTOL


def verdict(case):
    """Class of the outcome: right, warned, refused, and six ways to be wrong, with a text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = np.atleast_1d(np.asarray(case.ask(), dtype=float))
        except Exception as error:
            return _of_error(case, error, _told(caught))
    told = _told(caught)
    truth = None if case.truth is None else np.atleast_1d(np.asarray(case.truth, dtype=float))
    right = (
        truth is not None
        and found.shape == truth.shape
        and np.all(abs(found - truth) <= case.rtol * abs(truth))
    )
    if right:
        return ("warned" if told else "right"), told
    if told:
        fits = case.reason is not None and re.search(case.reason, told, re.IGNORECASE)
        return ("warned" if fits else "false reason"), f"{found} for {truth}: {told}"
    return "silent", f"{found} for {truth}"


def _told(caught):
    ours = [w for w in caught if issubclass(w.category, idm.ImplicitDeltaWarning)]
    return " | ".join(str(w.message) for w in ours)


def _of_error(case, error, told):
    """Class of an error; a warning before it may have given the reason."""
    text = f"{type(error).__name__}: {error} {told}"
    frames = traceback.extract_tb(error.__traceback__)
    own = isinstance(error, idm.ImplicitDeltaError) or (
        isinstance(error, ValueError | TypeError) and "implicit_delta" in frames[-1].filename
    )
    if not own:
        return "crash", text
    if case.reason is None:
        return "false refusal", text
    return ("refused" if re.search(case.reason, text, re.IGNORECASE) else "false reason"), text


# Generalized linear models: terms, scores and weights in eta, and the inverse link.


@dataclass(frozen=True)
class Family:
    draw: Any
    terms: Any
    score: Any
    weight: Any
    mean: Any


FAMILIES = {
    "normal": Family(
        lambda rng, m: rng.normal(m, 1.0),
        lambda y, e: -((y - e) ** 2) / 2,
        lambda y, e: y - e,
        lambda y, e: np.ones_like(e),
        lambda e: e,
    ),
    "logit": Family(
        lambda rng, m: rng.binomial(1, m) * 1.0,
        lambda y, e: y * e - np.logaddexp(0, e),
        lambda y, e: y - special.expit(e),
        lambda y, e: special.expit(e) * special.expit(-e),
        special.expit,
    ),
    "poisson": Family(
        lambda rng, m: rng.poisson(m) * 1.0,
        lambda y, e: y * e - np.exp(e),
        lambda y, e: y - np.exp(e),
        lambda y, e: np.exp(e),
        np.exp,
    ),
    "exponential": Family(
        lambda rng, m: rng.exponential(m),
        lambda y, e: -e - y * np.exp(-e),
        lambda y, e: y * np.exp(-e) - 1,
        lambda y, e: y * np.exp(-e),
        np.exp,
    ),
}


@dataclass
class Fit:
    """A regression fitted by Newton's method, with what variances are made of."""

    family: Family
    X: np.ndarray
    y: np.ndarray
    w: np.ndarray
    l2: float = 0.0

    def __post_init__(self):
        b = np.zeros(self.X.shape[1])
        for _ in range(100):
            e = self.X @ b
            slope = self.X.T @ (self.w * self.family.score(self.y, e)) - self.l2 * b
            step = np.linalg.solve(self.information(b), slope)
            b = b + step / max(1.0, np.max(abs(self.X @ step)))
        self.theta = b
        self.inverse = np.linalg.inv(self.information(b))
        self.scores = self.family.score(self.y, self.X @ b)[:, None] * self.X

    def information(self, b):
        weight = self.w * self.family.weight(self.y, self.X @ b)
        return self.X.T @ (weight[:, None] * self.X) + self.l2 * np.eye(self.X.shape[1])

    def error(self, g, meat=None):
        """Standard errors for gradients g (K, d); with a meat (d, d) those of the sandwich."""
        V = self.inverse if meat is None else self.inverse @ meat @ self.inverse
        return np.sqrt(np.einsum("kd,de,ke->k", np.atleast_2d(g), V, np.atleast_2d(g)))

    def meat(self, weights, clusters=None):
        rows = weights[:, None] * self.scores
        if clusters is not None:
            rows = np.array([rows[clusters == c].sum(axis=0) for c in np.unique(clusters)])
        return rows.T @ rows

    def loglik(self):
        return lambda b: self.family.terms(self.y, self.X @ b)


def regression(rng, names=("logit", "poisson", "exponential", "normal"), n=None, d=None, w=None):
    n, d = n or int(rng.integers(40, 150)), d or int(rng.integers(2, 5))
    family = FAMILIES[rng.choice(names)]
    X = np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])
    beta = rng.normal(size=d) * 0.4
    y = family.draw(rng, family.mean(X @ beta))
    if family is FAMILIES["logit"]:
        y[: 2 * d] = np.arange(2 * d) % 2  # not separated
        X[: 2 * d : 2, 1:] = X[1 : 2 * d : 2, 1:]
    return Fit(family, X, y, np.ones(n) if w is None else w(rng, n))


def question(rng, fit):
    """A psi and its gradient (d,) at the fit."""
    kind, d = int(rng.integers(5)), fit.X.shape[1]
    c = rng.normal(size=d)
    x = fit.X[int(rng.integers(len(fit.X)))]
    slope = lambda e: (fit.family.mean(e + 1e-5) - fit.family.mean(e - 1e-5)) / 2e-5
    mean, theta = fit.family.mean, fit.theta
    if kind == 0:
        return (lambda b: c @ b), c
    if kind == 1:
        return (lambda b: mean(x @ b)), slope(x @ theta) * x
    if kind == 2:
        return (lambda b: mean(fit.X @ b).mean()), slope(fit.X @ theta) @ fit.X / len(fit.X)
    if kind == 3:
        return (lambda b: np.exp(c @ b / 4)), np.exp(c @ theta / 4) * c / 4
    return (lambda b: float(np.sum(np.asarray(b) ** 2) + 3 * b[0])), 2 * theta + 3 * np.eye(d)[0]


def loglik_model(rng, fit, **options):
    """By a log-likelihood, traced, opaque or with its score; fitted or given."""
    kind, terms = int(rng.integers(3)), fit.loglik()
    if kind == 1:
        own = terms
        terms = lambda b: own(np.array([float(v) for v in b]))
    if kind == 2:
        options["score"] = lambda b: fit.family.score(fit.y, fit.X @ b)[:, None] * fit.X
    if rng.random() < 0.3:
        return idm.from_loglik(terms, fit.theta, **options)
    return idm.from_loglik(terms, start=np.zeros(fit.X.shape[1]), **options)


def se(model, psi, **options):
    return lambda: idm.infer(model, psi, **options).standard_error


# Kinds. Each takes a generator and returns a case.


def units(rng):
    """Parameters, response and psi in units from 1e-9 to 1e9."""
    fit = regression(rng)
    u = 10.0 ** rng.uniform(-9, 9, size=fit.X.shape[1])
    D, scale = fit.X / u, 10.0 ** rng.uniform(-9, 9)
    psi, g = question(rng, fit)
    return Case(
        lambda: (
            idm.infer(
                idm.from_loglik(lambda b: fit.family.terms(fit.y, D @ b), start=np.zeros(len(u))),
                lambda b: scale * psi(b / u),
            ).standard_error
        ),
        scale * fit.error(g),
    )


def least_squares(rng):
    """Curves by their residuals, in random units, with the variance of the noise by hand."""
    n, r = int(rng.integers(15, 80)), 10.0 ** rng.uniform(-9, 9)
    u = np.array([r, 1.0, r]) * 10.0 ** rng.uniform(-6, 6, size=3)
    t = np.sort(rng.uniform(0, 4, size=n))
    y = r * (3 * np.exp(-0.9 * t) + 0.5 + 0.1 * rng.normal(size=n))
    k = 10.0 ** rng.uniform(-6, 6)

    def curve(b):
        return b[0] * np.exp(-b[1] * t) + b[2]

    at = optimize.least_squares(
        lambda b: curve(b) - y / r, [2.0, 1.0, 0.2], xtol=1e-15, ftol=1e-15, gtol=1e-15
    ).x
    e = np.exp(-at[1] * t)
    J = np.column_stack([e, -at[0] * t * e, np.ones(n)])
    s2 = np.sum((y / r - curve(at)) ** 2)
    variance = rng.choice(["mle", "unbiased"])
    V = np.linalg.inv(J.T @ J) * s2 / (n if variance == "mle" else n - 3)
    g = np.array([np.exp(-at[1]), -at[0] * np.exp(-at[1]), 1.0])
    residuals = lambda th: y - r * curve(th / u)

    def ask():
        model = idm.from_residuals(
            residuals, start=np.array([2.0, 1.0, 0.2]) * u, variance=str(variance)
        )
        return idm.infer(
            model, lambda th: k * (th[0] / u[0] * np.exp(-th[1] / u[1]) + th[2] / u[2])
        ).standard_error

    return Case(ask, k * np.sqrt(g @ V @ g))


def weights(rng):
    """Frequency, precision and sampling weights: zeros, repetitions, huge, and none at all."""
    kind = str(rng.choice(["frequency", "precision", "sampling"]))
    draw = {
        "frequency": lambda r, n: r.integers(0, 4, size=n) * 1.0,
        "precision": lambda r, n: r.uniform(0.2, 3.0, size=n),
        "sampling": lambda r, n: 10.0 ** r.uniform(0, 3, size=n),
    }[kind]
    fit = regression(rng, w=draw)
    bad = int(rng.integers(12))
    w, n = fit.w.copy(), len(fit.w)
    if bad < 5:
        if bad == 0:
            w[3] = np.nan
        if bad == 1:
            w[3] = -1.0
        if bad == 2:
            w = w[:-1]
        if bad == 3:
            w = 0 * w
        if bad == 4:
            w[3] = np.inf
        return Case(
            lambda: (
                idm.infer(
                    idm.from_loglik(fit.loglik(), start=0 * fit.theta, weights=w, weight_kind=kind),
                    lambda b: b[0],
                ).standard_error
            ),
            None,
            "weight",
        )
    psi, g = question(rng, fit)
    robust = "HC0" if rng.random() < 0.4 else False
    meat = None
    if kind == "sampling":
        meat = fit.meat(w) * n / (n - 1)
    elif robust:
        meat = fit.meat(np.sqrt(w) if kind == "frequency" else w)
    return Case(
        lambda: se(
            loglik_model(rng, fit, weights=w, weight_kind=kind),
            psi,
            **({} if kind == "sampling" else {"robust": robust}),
        )(),
        fit.error(g, meat),
    )


def repeated(rng):
    """Counts are the rows written out, with clusters and robust errors too."""
    fit = regression(rng, w=lambda r, n: r.integers(1, 5, size=n) * 1.0)
    often = fit.w.astype(int)
    psi, g = question(rng, fit)
    firms = np.arange(len(fit.y)) % int(rng.integers(8, 20))
    meat = fit.meat(fit.w, firms)
    return Case(
        lambda: se(loglik_model(rng, fit, weights=often), psi, clusters=firms)(),
        fit.error(g, meat),
    )


def robust(rng):
    """Sandwiches of rows by hand, with their factors and leverages."""
    fit = regression(rng, ("normal", "poisson", "logit"))
    psi, g = question(rng, fit)
    n, d = fit.X.shape
    name = str(rng.choice(["HC0", "HC1"]))
    factor = {"HC0": 1.0, "HC1": n / (n - d)}[name]
    return Case(
        lambda: se(loglik_model(rng, fit), psi, robust=name)(),
        fit.error(g, factor * fit.meat(fit.w)),
    )


def clusters(rng):
    """Clusters: singletons, strings, nested, few, one, NaN, of wrong length."""
    fit = regression(rng)
    n, d = fit.X.shape
    psi, g = question(rng, fit)
    kind = int(rng.integers(9))
    labels = rng.integers(0, int(rng.integers(6, 25)), size=n)
    reason = None
    asked: Any = labels
    if kind == 0:
        labels = asked = rng.permutation(n)
    if kind == 1:
        asked = np.array([f"firm {c}" for c in labels], dtype=object)
    if kind == 2:
        asked = labels * 1e-9 - 3
    if kind == 3:
        asked, reason = np.zeros(n), "cluster|group"
    if kind == 4:
        asked, reason = np.where(labels == labels[0], np.nan, labels * 1.0), "cluster|missing|nan"
    if kind == 5:
        asked, reason = labels[:-1], "cluster|rows|length"
    if kind == 6:
        asked, reason = np.arange(n) % 2, "cluster|group"
    if kind == 7:
        asked = np.array([None if c == labels[0] else c for c in labels], dtype=object)
        reason = "cluster|missing|none"
    name = str(rng.choice(["CR0", "CR1", "CR1S"]))
    G = len(np.unique(labels))
    factor = {"CR0": 1.0, "CR1": G / (G - 1), "CR1S": G / (G - 1) * (n - 1) / (n - d)}[name]
    truth = None if reason else fit.error(g, factor * fit.meat(fit.w, labels))
    return Case(
        lambda: se(loglik_model(rng, fit), psi, clusters=asked, robust=name)(), truth, reason
    )


def two_way(rng):
    """Clusters by two labels: the sum of both less that of their pairs."""
    fit = regression(rng, n=int(rng.integers(100, 200)))
    psi, g = question(rng, fit)
    n = len(fit.y)
    a, b = rng.integers(0, 12, size=n), rng.integers(0, 9, size=n)
    V = fit.error(g, fit.meat(fit.w, a)) ** 2 + fit.error(g, fit.meat(fit.w, b)) ** 2
    V = V - fit.error(g, fit.meat(fit.w, 100 * a + b)) ** 2
    if V.min() <= 0:
        return None
    return Case(lambda: se(loglik_model(rng, fit), psi, clusters=(a, b))(), np.sqrt(V))


def time_order(rng):
    """Newey and West's variance by hand, and rows that are too few for the lags."""
    fit = regression(rng, ("normal", "poisson"))
    psi, g = question(rng, fit)
    lags = int(rng.integers(0, 6))
    rows, meat = fit.scores, fit.scores.T @ fit.scores
    for lag in range(1, lags + 1):
        cross = rows[lag:].T @ rows[:-lag]
        meat = meat + (1 - lag / (lags + 1)) * (cross + cross.T)
    return Case(lambda: se(loglik_model(rng, fit), psi, robust=idm.HAC(lags))(), fit.error(g, meat))


def penalties(rng):
    """A ridge adds to the information."""
    fit = regression(rng)
    fit = Fit(fit.family, fit.X, fit.y, fit.w, float(10.0 ** rng.uniform(-3, 1)))
    psi, g = question(rng, fit)
    return Case(lambda: se(loglik_model(rng, fit, l2=fit.l2), psi)(), fit.error(g), "penal|shrink")


def bounds(rng):
    """Bounds that hold nothing, and bounds that hold a parameter: then it is a constant."""
    fit = regression(rng, d=3)
    j = int(rng.integers(1, 3))
    active = rng.random() < 0.6
    psi, g = question(rng, fit)
    if not active:
        far = [(None, None)] * 3
        far[j] = (fit.theta[j] - 50, fit.theta[j] + 50)
        return Case(
            lambda: (
                idm.infer(
                    idm.from_loglik(fit.loglik(), start=0 * fit.theta, bounds=far), psi
                ).standard_error
            ),
            fit.error(g),
        )
    held = fit.theta[j] - 5 * np.sqrt(fit.inverse[j, j])
    limits: list[Any] = [(None, None)] * 3
    limits[j] = (None, held)
    keep = [k for k in range(3) if k != j]
    rest = FixedColumn(fit, j, held)
    k = keep[int(rng.integers(2))]
    truth = np.sqrt(np.linalg.inv(rest.information)[keep.index(k), keep.index(k)])
    start = 0 * fit.theta
    start[j] = held - 1
    return Case(
        lambda: (
            idm.infer(
                idm.from_loglik(fit.loglik(), start=start, bounds=limits), lambda b: b[k]
            ).standard_error
        ),
        truth,
        "bound|constraint|active",
    )


class FixedColumn:
    """The fit with one coefficient held."""

    def __init__(self, fit, j, held):
        keep = [k for k in range(fit.X.shape[1]) if k != j]
        Z, b = fit.X[:, keep], np.zeros(len(keep))
        for _ in range(200):
            e = Z @ b + held * fit.X[:, j]
            self.information = Z.T @ (fit.family.weight(fit.y, e)[:, None] * Z)
            step = np.linalg.solve(self.information, Z.T @ fit.family.score(fit.y, e))
            b = b + step / max(1.0, np.max(abs(Z @ step)))
        self.theta = b


def equality(rng):
    """Linear equalities: the variance in the null space of their matrix."""
    fit = regression(rng, ("normal",), d=4)
    C = rng.normal(size=(int(rng.integers(1, 3)), 4)).round(2)
    right = rng.normal(size=len(C))
    N = np.linalg.svd(C)[2][len(C) :].T
    A = fit.information(fit.theta)
    V = N @ np.linalg.inv(N.T @ A @ N) @ N.T
    c = rng.normal(size=4)
    under = optimize.LinearConstraint(C, right, right)
    start = np.linalg.lstsq(C, right, rcond=None)[0]
    return Case(
        lambda: (
            idm.infer(
                idm.from_loglik(fit.loglik(), start=start, constraints=[under]), lambda b: c @ b
            ).standard_error
        ),
        np.sqrt(c @ V @ c),
    )


def collinear(rng):
    """A column that is a combination of others: what it leaves determined, and what not."""
    fit = regression(rng, d=3)
    a = rng.normal(size=3).round(1)
    D = np.column_stack([fit.X, fit.X @ a])
    point = fit.X[int(rng.integers(len(fit.X)))]
    wide = np.append(point, point @ a)
    terms = lambda b: fit.family.terms(fit.y, D @ b)
    model = lambda: idm.from_loglik(terms, start=np.zeros(4))
    if rng.random() < 0.5 and a.any():
        j = int(rng.choice(np.flatnonzero(np.append(a, 1.0))))
        return Case(
            lambda: idm.infer(model(), lambda b: b[j]).standard_error,
            None,
            "determine|flat|redundant|collinear|identified",
        )
    mean = fit.family.mean
    slope = (mean(point @ fit.theta + 1e-5) - mean(point @ fit.theta - 1e-5)) / 2e-5
    return Case(
        lambda: idm.infer(model(), lambda b: mean(wide @ b)).standard_error,
        fit.error(slope * point),
    )


def nearly_collinear(rng):
    """Columns that differ by 1e-3 to 1e-6 of their size: right, or said to be doubtful."""
    fit = regression(rng, ("normal", "poisson"), d=2)
    eps = 10.0 ** rng.uniform(-6, -3)
    D = np.column_stack([fit.X, fit.X[:, 1] + eps * rng.normal(size=len(fit.X))])
    wide = Fit(fit.family, D, fit.y, fit.w)
    c = np.array([0.0, 1.0, float(rng.choice([0.0, 1.0]))])
    return Case(
        lambda: (
            idm.infer(
                idm.from_loglik(wide.loglik(), start=np.zeros(3)), lambda b: c @ b
            ).standard_error
        ),
        wide.error(c),
        "flat|collinear|redundant|determine|drift|finish",
        1e-3,
    )


def separated(rng):
    """A group without events: its coefficient has no maximum."""
    n = int(rng.integers(30, 80))
    group = (np.arange(n) % int(rng.integers(2, 5)) == 0) * 1.0
    kind = str(rng.choice(["poisson", "logit"]))
    family = FAMILIES[kind]
    x = rng.normal(size=n)
    y = np.where(group == 1, 0.0, family.draw(rng, family.mean(0.3 + 0.2 * x)))
    X = np.column_stack([np.ones(n), x, group])
    psi = [lambda b: b[2], lambda b: family.mean(b[0] + b[2]), idm.parameters][int(rng.integers(3))]
    return Case(
        lambda: (
            idm.infer(
                idm.from_loglik(lambda b: family.terms(y, X @ b), start=np.zeros(3)), psi
            ).standard_error
        ),
        None,
        "separat|infinite|finite|level|maximum|bound|flat|large|boundary",
    )


def product(rng):
    """Parameters that enter by their product: only that is determined."""
    n = int(rng.integers(20, 80))
    y = rng.normal(3.0, 1.0, size=n)
    start = rng.uniform(0.5, 3.0, size=2)
    which = int(rng.integers(4))
    psi = [
        lambda b: b[0] * b[1],
        lambda b: np.log(b[0] * b[1]),
        lambda b: b[0],
        lambda b: b[0] + b[1],
    ]
    truth = [1 / np.sqrt(n), 1 / np.sqrt(n) / abs(y.mean()), None, None][which]
    return Case(
        lambda: (
            idm.infer(
                idm.from_loglik(lambda b: -((y - b[0] * b[1]) ** 2) / 2, start=start), psi[which]
            ).standard_error
        ),
        truth,
        "determine|flat|redundant|identified",
    )


def exact(rng):
    """Residuals of zero have no noise to be estimated from."""
    n = int(rng.integers(5, 40))
    t = rng.normal(size=n) * 10.0 ** rng.uniform(-3, 3)
    a = rng.normal(size=2) * 10.0 ** rng.uniform(-3, 3, size=2)
    y = a[0] + a[1] * t
    variance = rng.choice(["mle", "unbiased"])
    return Case(
        lambda: (
            idm.infer(
                idm.from_residuals(
                    lambda b: y - b[0] - b[1] * t, start=[0.0, 0.0], variance=str(variance)
                ),
                lambda b: b[1],
            ).standard_error
        ),
        None,
        "exact|noise|residual|zero",
    )


def rough_psi(rng):
    """Kinks and jumps elsewhere do no harm; at the estimate there is no derivative."""
    n = int(rng.integers(30, 100))
    y = rng.normal(1.0, 1.0, size=n)
    m, s = y.mean(), 1 / np.sqrt(n)
    far = float(rng.choice([-30.0, -12.0, 12.0, 30.0])) * s
    kind = int(rng.integers(10))
    psi: Any = [
        lambda b: abs(b[0] - m - far),
        lambda b: np.maximum(b[0], m + far),
        lambda b: np.where(b[0] > m + far, 2 * b[0], b[0]),
        lambda b: np.clip(b[0], m - 20 * s, m + 20 * s),
        lambda b: abs(b[0] - m),
        lambda b: np.maximum(b[0], m),
        lambda b: np.floor(b[0] * 1000) / 1000,
        lambda b: np.round(b[0], 1),
        lambda b: float(b[0] > m - 0.5 * s),
        lambda b: np.sign(b[0] - m),
    ][kind]
    truth: Any = (
        [s, s if far < 0 else 0.0, (2 if far < 0 else 1) * s, s][kind] if kind < 4 else None
    )
    reason = None
    if kind == 1 and far > 0:
        reason = "change|constant|gradient|zero|vary|depend|moves|response"
    if kind >= 4:
        reason = "kink|jump|smooth|change|constant|gradient|step|derivative|zero|vary|moves|differ"
    return Case(
        lambda: (
            idm.infer(
                idm.from_loglik(lambda b: -((y - b[0]) ** 2) / 2, start=[0.0]), psi
            ).standard_error
        ),
        truth,
        reason,
    )


def blocked_psi(rng):
    """Part of psi has no derivative that a trace could see: right by differences, or refused."""
    fit = regression(rng, ("normal", "poisson"), d=3)
    a, b = rng.normal(size=2) + 2
    kind = int(rng.integers(6))
    th = fit.theta

    def held(v):
        return float(v)

    psi: Any = [
        lambda t: a * t[0] + b * held(t[1]),
        lambda t: a * t[0] + b * np.array(float(t[1])),
        lambda t: a * t[0] + b * float(np.asarray([float(t[2])])[0]) ** 2,
        lambda t: a * t[0] + b * float(f"{float(t[1]):.17g}"),
        lambda t: a * t[0] + b * sum(float(v) for v in t[1:]),
        lambda t: a * np.exp(t[0] / 4) + b * max(float(t[1]), -99.0),
    ][kind]
    g = np.array([a, 0.0, 0.0])
    if kind in (0, 1, 3):
        g = np.array([a, b, 0.0])
    if kind == 2:
        g = np.array([a, 0.0, 2 * b * th[2]])
    if kind == 4:
        g = np.array([a, b, b])
    if kind == 5:
        g = np.array([a / 4 * np.exp(th[0] / 4), b, 0.0])
    return Case(
        lambda: se(idm.from_loglik(fit.loglik(), start=0 * th), psi)(),
        fit.error(g),
        "change|gradient|derivative|trace|float",
    )


BAD_VALUES: list[tuple[Any, str]] = [
    (lambda b: np.nan * b[0], "nan|finite"),
    (lambda b: np.inf, "inf|finite"),
    (lambda b: 1j * b[0], "complex|real|number"),
    (lambda b: None, "none|number|return"),
    (lambda b: "0.3", "str|number|return|text"),
    (lambda b: np.ones((2, 2)) * b[0], "shape|dimension|one|flat|scalar|vector|ndim|array"),
    (lambda b: [], "empty|no value|number|return"),
    (lambda b: np.array([b[0], "x"], dtype=object), "object|number|str|text"),
    (lambda b: [b[0], np.nan], "nan|finite"),
    (lambda b: 3.0, "constant|change|zero|depend|vary|gradient"),
    (lambda b: 3, "constant|change|zero|depend|vary|gradient"),
    (lambda b: int(b[0] * 100), "change|constant|integer|whole|gradient|jump|step|zero|vary"),
    (lambda b: bool(b[0] > 0), "bool|change|constant|gradient|zero|step|vary"),
    (lambda b: np.float32(b[0]), "single|float32|precision|round"),
    (lambda b: [b[0], np.round(b[1], 1)], "constant|change|zero|depend|vary|gradient"),
    ([lambda b: b[0], lambda b: np.round(20 * b[1])], "constant|change|zero|depend|vary|gradient"),
    (lambda: 3.0, "argument|psi|call"),
    (lambda b, c: b[0], "argument|psi|call"),
    (3.0, "callable|function|psi|name"),
    (None, "callable|function|psi|name"),
    ("nope", "nope"),
    (["nope", lambda b: b[0]], "nope"),
    ([], "empty|no |at least|evaluation|list"),
    ({}, "empty|no |at least|evaluation|dict"),
    ({"a": 3}, "callable|function|psi|name|a"),
    (lambda b: np.random.default_rng().normal() + b[0], "determin|differ|random|twice|same"),
    (lambda b: b[0] + 1e-3 * np.random.default_rng().normal(), "determin|differ|random|twice|same"),
]


def bad_psi(rng):
    """Values that are none, of the wrong shape or type, constant, or drawn."""
    psi, reason = BAD_VALUES[int(rng.integers(len(BAD_VALUES)))]
    fit = regression(rng, d=2)
    truth = None
    if reason.startswith("single"):
        truth = fit.error(np.array([1.0, 0.0]))
    return Case(
        lambda: se(loglik_model(rng, fit), psi)(),
        truth,
        reason,
        1e-2 if truth is not None else RTOL,
    )


def sizes_of_psi(rng):
    """Psi of any size, and values that are large beside their error."""
    fit = regression(rng)
    psi, g = question(rng, fit)
    scale = 10.0 ** rng.uniform(-150, 150)
    if rng.random() < 0.4:  # a constant that is 1e3 to 1e7 errors away
        shift = float(10.0 ** rng.uniform(3, 7))
        return Case(
            lambda: se(loglik_model(rng, fit), lambda b: psi(b) + shift)(),
            fit.error(g),
            "round|digits|noise|precision|differ",
            1e-3,
        )
    return Case(
        lambda: se(loglik_model(rng, fit), lambda b: scale * psi(b))(), scale * fit.error(g)
    )


def several(rng):
    """Lists and dicts of psi, of very different sizes: each is its own, and so are pairs."""
    fit = regression(rng)
    asked = [question(rng, fit) for _ in range(int(rng.integers(2, 5)))]
    sizes = 10.0 ** rng.integers(-6, 7, size=len(asked))
    entries = [(lambda b, p=p, s=s: s * p(b)) for (p, _), s in zip(asked, sizes, strict=True)]
    G = np.array([s * g for (_, g), s in zip(asked, sizes, strict=True)])
    as_dict = rng.random() < 0.5
    psi: Any = {f"q{i}": f for i, f in enumerate(entries)} if as_dict else entries
    truth = fit.error(G)
    i, j = 0, len(asked) - 1
    cross = G[i] @ fit.inverse @ G[j] / truth[i] / truth[j]

    def ask():
        est = idm.infer(loglik_model(rng, fit), psi)
        V = np.asarray(est.covariance)
        names = [f"q{i}" for i in range(len(asked))]
        if as_dict and list(est.names) != names:
            return [np.nan]
        # The correlation plus 2, so that it is never near zero.
        return [*est.standard_error, 2 + V[i, j] / np.sqrt(V[i, i] * V[j, j])]

    return Case(ask, [*truth, 2 + cross])


def missing(rng):
    """A missing value in the data of a likelihood, a start, a design or a psi."""
    fit = regression(rng, d=3)
    where = int(rng.integers(4))
    X, y, start = fit.X.copy(), fit.y.copy(), np.zeros(3)
    if where == 0:
        X[2, 1] = np.nan
    if where == 1:
        y[2] = np.nan
    if where == 2:
        start[1] = np.nan
    if where == 3:
        y[2] = np.inf
    return Case(
        lambda: (
            idm.infer(
                idm.from_loglik(lambda b: fit.family.terms(y, X @ b), start=start), lambda b: b[1]
            ).standard_error
        ),
        None,
        "nan|finite|inf|missing",
    )


def algebra(rng):
    """Differences, ratios and joins of answers, of one model, of two samples and of one."""
    one, two = regression(rng, d=2), regression(rng, d=2)
    kind = int(rng.integers(5))
    (p, g), (q, h) = question(rng, one), question(rng, two if kind >= 3 else one)

    def value(psi, fit):
        return float(psi(fit.theta))

    ask_one = lambda: idm.infer(loglik_model(rng, one), p, influence=False)
    if kind == 0:
        if np.linalg.norm(g - h) < 0.1 * np.linalg.norm(g):
            return None
        return Case(
            lambda: np.sqrt(
                np.array([1, -1])
                @ np.asarray(idm.infer(loglik_model(rng, one), [p, q]).covariance)
                @ np.array([1, -1])
            ),
            one.error(g - h),
        )
    if kind == 1:
        ratio = value(p, one) / value(q, one)
        slope = (g - ratio * h) / value(q, one)
        if abs(value(q, one)) < 5 * one.error(h)[0] or np.allclose(slope, 0):
            return None
        return Case(
            lambda: idm.infer(loglik_model(rng, one), lambda b: p(b) / q(b)).standard_error,
            one.error(slope),
        )
    if kind == 2:
        robust_one = lambda psi: idm.infer(
            loglik_model(rng, one), psi, robust="HC0", influence=True
        )
        if np.linalg.norm(g - h) < 0.1 * np.linalg.norm(g):
            return None
        return Case(
            lambda: (robust_one(p) - robust_one(q)).standard_error,
            one.error(g - h, one.meat(one.w)),
            "independent|influence|robust",
            1e-4,
        )
    truth = np.sqrt(one.error(g) ** 2 + two.error(h) ** 2)
    both = lambda: (ask_one(), idm.infer(loglik_model(rng, two), q))
    if kind == 3:
        return Case(lambda: _difference_of(*both(), independent=True), truth)
    return Case(
        lambda: _difference_of(*both(), independent=False),
        None,
        "independent|influence|same|rows|model|join",
    )


def _difference_of(a, b, independent):
    joined = idm.join(a, b, independent=True) if independent else None
    if joined is None:
        return (a - b).standard_error
    V = np.asarray(joined.covariance)
    return np.sqrt(V[0, 0] + V[1, 1] - 2 * V[0, 1])


def held_out(rng):
    """Averages over other rows: the error of the fit and that of the rows."""
    fit = regression(rng, ("logit", "poisson", "normal"))
    m = int(rng.integers(20, 90))
    Z = np.column_stack([np.ones(m), rng.normal(size=(m, fit.X.shape[1] - 1))])
    mean, theta = fit.family.mean, fit.theta
    values = mean(Z @ theta)
    slope = (mean(Z @ theta + 1e-5) - mean(Z @ theta - 1e-5)) / 2e-5
    g = slope @ Z / m
    truth = np.sqrt(fit.error(g) ** 2 + values.var(ddof=1) / m)
    return Case(lambda: se(loglik_model(rng, fit), idm.Average(lambda b: mean(Z @ b)))(), truth)


def few_rows(rng):
    """Resampling of few rows: the plug-in error of a mean, and a sample of one."""
    n = int(rng.integers(1, 9))
    y = rng.normal(size=n) * 10.0 ** rng.uniform(-6, 6)
    reason = None if n > 1 else "row|observation|one|few|replicate|vary|same|noise"
    truth = y.std() / np.sqrt(n) if n > 1 else None
    # The relative error of a standard deviation of 2000 draws, five times: 5 (kurtosis - 1)^1/2 /
    # (2 * 2000^1/2) with a kurtosis of the mean below 3.
    return Case(
        lambda: (
            idm.bootstrap(
                np.mean,
                y,
                lambda m: m,
                replicates=2000,
                rng=int(rng.integers(1e6)),
                jackknife=False,
            ).standard_error
        ),
        truth,
        reason,
        0.08 if reason is None else RTOL,
    )


def counts(rng):
    """Limits and likelihood intervals of rates and shares against their closed forms."""
    kind = int(rng.integers(3))
    k = int(rng.integers(0, 12))
    t = float(10.0 ** rng.uniform(-6, 6))
    if kind == 0:  # a Poisson rate with exposure t: upper limit by the deviance
        terms = lambda b: np.array([special.xlogy(k, b[0] * t) - b[0] * t])
        hat = k / t
        deviance = lambda r: 2 * (special.xlogy(k, k) - k - special.xlogy(k, r * t) + r * t)
        quantile = stats.chi2.ppf(0.9, 1)
        if k == 0:  # at the bound: where no event has a probability of 5%
            quantile = -2 * np.log(0.05)
        top = optimize.brentq(lambda r: deviance(r) - quantile, hat, (k + 30) / t, xtol=1e-14 / t)
        return Case(
            lambda: (
                idm.limit(
                    idm.from_loglik(terms, start=[(k + 1) / t], bounds=[(0, None)]), lambda b: b[0]
                ).value
            ),
            top,
            rtol=1e-4,
        )
    n = k + int(rng.integers(1, 20))
    if k == 0:
        return None
    terms = lambda b: np.array([special.xlogy(k, b[0]) + special.xlog1py(n - k, -b[0])])
    hat = k / n
    deviance = lambda p: 2 * (terms([hat])[0] - terms([p])[0])
    quantile = stats.chi2.ppf(0.95, 1)
    low = optimize.brentq(lambda p: deviance(p) - quantile, 1e-12, hat)
    high = optimize.brentq(lambda p: deviance(p) - quantile, hat, 1 - 1e-12)
    if kind == 1:
        return Case(
            lambda: (
                idm.profile(
                    idm.from_loglik(terms, start=[0.5], bounds=[(0, 1)]), lambda b: b[0]
                ).interval
            ),
            [low, high],
            rtol=1e-4,
        )
    logit = lambda p: np.log(p / (1 - p))
    on_logit = lambda b: np.array([k * b[0] - n * np.logaddexp(0, b[0])])
    return Case(
        lambda: (
            100
            + np.asarray(
                idm.profile(idm.from_loglik(on_logit, start=[0.0]), lambda b: b[0]).interval
            )
        ),
        100 + np.array([logit(low), logit(high)]),
        rtol=1e-6,
    )


def equations(rng):
    """Estimating equations in random units: means, ratios, instruments and their sandwich."""
    n = int(rng.integers(40, 150))
    u = 10.0 ** rng.uniform(-9, 9)
    kind = int(rng.integers(4))
    z = rng.normal(size=n)
    x = 0.8 * z + rng.normal(size=n)
    y = 2 + 0.5 * x + rng.normal(size=n)
    k = 10.0 ** rng.uniform(-9, 9)
    if kind == 0:  # mean and variance
        truth = np.sqrt(np.mean(((y - y.mean()) ** 2 - y.var()) ** 2) / n) * u**2
        yu = y * u
        rows = lambda b: np.column_stack([yu - b[0], (yu - b[0]) ** 2 - b[1]])
        start, psi = np.array([u, u**2]), lambda b: b[1]
    elif kind == 1:  # ratio of means
        r = y.mean() / x.mean() if abs(x.mean()) > 0.2 else None
        if r is None:
            return None
        truth = np.sqrt(np.mean((y - r * x) ** 2) / n) / abs(x.mean()) * u / k
        rows = lambda b: y * u - b[0] * x * k
        start, psi = np.array([0.0]), lambda b: b[0]
    elif kind == 2:  # instrument
        Z, X = np.column_stack([np.ones(n), z]), np.column_stack([np.ones(n), x])
        at = np.linalg.solve(Z.T @ X, Z.T @ y)
        B = np.linalg.inv(Z.T @ X)
        rows_at = (y - X @ at)[:, None] * Z
        truth = np.sqrt((B @ rows_at.T @ rows_at @ B.T)[1, 1]) * u / k
        D = X * np.array([1.0, k])
        W = Z * np.array([1.0, 1 / k])
        rows = lambda b: (y * u - D @ b)[:, None] * W
        start, psi = np.zeros(2), lambda b: b[1]
    else:  # exponential mean
        m = np.log(np.mean(np.exp(y / 2)))
        e = np.exp(y / 2)
        truth = np.sqrt(np.mean((e - np.exp(m)) ** 2) / n) / np.exp(m) * u
        rows = lambda b: e - np.exp(b[0] / u)
        start, psi = np.array([0.0]), lambda b: b[0]
    return Case(lambda: idm.infer(idm.from_equations(rows, start=start), psi).standard_error, truth)


def misspelled(rng):
    """Options and names with an error: the message names them."""
    fit = regression(rng, d=2)
    model = lambda **o: idm.from_loglik(
        fit.loglik(), start=np.zeros(2), **{"names": ["a", "b"], **o}
    )
    psi = lambda b: b[0]
    word = "".join(rng.choice(list("bcdfgjkqvwxz"), size=5))
    pool: list[tuple[Any, str]] = [
        (lambda: idm.infer(model(), word), word),
        (lambda: idm.infer(model(), ["a", word]), word),
        (lambda: idm.infer(model(), psi, robust=word), word),
        (lambda: idm.infer(model(), psi, method=word), word + "|method"),
        (lambda: idm.infer(model(), psi, covariance=np.eye(3)), "covariance"),
        (lambda: idm.infer(model(), psi, df=-1), "df"),
        (lambda: idm.infer(model(), psi, names=["x", "y"]), "name"),
        (lambda: idm.profile(model(), word), word),
        (lambda: idm.profile(model(), psi, 95), "confidence_level|level|between"),
        (lambda: idm.profile(model(), psi, side=word), word),
        (lambda: idm.limit(model(), psi, side=word), word),
        (lambda: idm.likelihood_ratio({word: 0.0}, model()), word),
        (lambda: idm.likelihood_ratio({"a": np.nan}, model()), "nan|finite"),
        (lambda: model(bounds={word: (0, 1)}), word),
        (lambda: model(bounds=[(0, 1)]), "bound"),
        (lambda: model(bounds=[(1, 0), (None, None)]), "bound|lower|above"),
        (lambda: model(weights=np.ones(len(fit.y)), weight_kind=word), word),
        (lambda: model(names=["a"]), "name"),
        (lambda: model(names=["a", "a"]), "name"),
        (lambda: model(l2=-1.0), "l2"),
        (lambda: model(penalty=lambda b: np.ones(3)), "penalty"),
        (lambda: model(score=lambda b: np.ones((len(fit.y), 2))), "score"),
        (lambda: model(score=lambda b: np.ones(2)), "score"),
        (
            lambda: idm.from_loglik(lambda b: fit.loglik()(b).sum(), start=np.zeros(2)),
            "observation|row|sum|one value|shape|scalar",
        ),
        (lambda: idm.from_loglik(fit.loglik(), np.zeros(2), start=np.zeros(2)), "start|theta"),
        (lambda: idm.from_loglik(fit.loglik()), "start|theta"),
        (lambda: idm.Bootstrap(0), "replicates"),
        (lambda: idm.Bootstrap(10, kind=word), word),
        (lambda: idm.Simulation(-5), "draws"),
        (lambda: idm.FiniteDifference(lam=0.0), "lam"),
        (lambda: idm.HAC(-1), "lag"),
        (lambda: idm.HAC(2, kernel=word), word),
        (lambda: idm.average_comparison("x", how=word), word),
        (lambda: idm.infer(model(), psi).confidence_interval(95), "level|between"),
        (lambda: idm.infer(model(), psi, clusters=np.zeros((len(fit.y), 3))), "cluster"),
        (lambda: idm.join(3, 4), "estimate|join"),
        (lambda: idm.infer(3, psi), "from_|model"),
        (lambda: idm.infer(fit.loglik(), psi), "from_|model"),
        (lambda: idm.infer(model().at(np.zeros(2) + 9), psi), "maximum|drift|finish"),
        (
            lambda: idm.from_residuals(
                lambda b: fit.y - fit.X @ b, start=np.zeros(2), variance=word
            ),
            word + "|variance",
        ),
        (
            lambda: idm.from_residuals(lambda b: fit.y - fit.X @ b, start=np.zeros(2), sigma=-1.0),
            "sigma",
        ),
        (lambda: idm.from_equations(lambda b: fit.scores[:, :1], start=np.zeros(2)), "equation"),
    ]
    ask, reason = pool[int(rng.integers(len(pool)))]
    return Case(lambda: [np.nan] * (ask() is not None), None, reason)


def measurements(rng):
    """Correlated measurements with known errors against generalized least squares."""
    d = int(rng.integers(2, 5))
    names = [f"m{i}" for i in range(d)]
    root = rng.normal(size=(d, d)) + np.eye(d)
    u = 10.0 ** rng.uniform(-9, 9, size=d)
    V = root @ root.T * 0.01 * np.outer(u, u)
    at = (rng.normal(size=d) + 4) * u
    c = rng.normal(size=d) / u
    independent = rng.random() < 0.5
    if independent:
        V = np.diag(np.diag(V))
        make = lambda: idm.measurement(
            **{n: (v, s) for n, v, s in zip(names, at, np.sqrt(np.diag(V)), strict=True)}
        )
    else:
        make = lambda: idm.measurement(V, **dict(zip(names, at, strict=True)))
    g = c.copy()
    psi = lambda th: sum(k * getattr(th, n) for k, n in zip(c, names, strict=True))
    return Case(lambda: idm.infer(make(), psi).standard_error, np.sqrt(g @ V @ g))


# Hosts.


def _frame(rng, family="poisson"):
    import pandas

    n = int(rng.integers(60, 140))
    x, z = rng.normal(size=n), rng.normal(size=n)
    group = rng.choice(list("abc"), size=n)
    t = rng.uniform(0.5, 3.0, size=n)
    eta = 0.3 + 0.4 * x - 0.3 * z + 0.3 * (group == "b")
    y = {
        "poisson": lambda: rng.poisson(t * np.exp(eta)),
        "logit": lambda: rng.binomial(1, special.expit(eta)),
        "normal": lambda: eta + rng.normal(size=n),
    }[family]()
    return pandas.DataFrame({"x": x, "z": z, "g": group, "t": t, "y": y * 1.0})


def _design(table, levels="bc"):
    return np.column_stack(
        [np.ones(len(table)), *[(table.g == c) * 1.0 for c in levels], table.x, table.z]
    )


def _delta(psi, theta, V):
    h = 1e-5 * np.maximum(np.sqrt(np.diag(V)), 1e-12) * 10
    J = np.array(
        [
            (8 * (psi(theta + e) - psi(theta - e)) - psi(theta + 2 * e) + psi(theta - 2 * e))
            / (12 * s)
            for e, s in zip(np.diag(h), h, strict=True)
        ]
    ).T
    J = np.atleast_2d(J)
    return np.sqrt(np.einsum("kd,de,ke->k", J, V, J))


def statsmodels_questions(rng):
    """Questions of formula fits with categories and exposure, by the delta method of bse."""
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    family = str(rng.choice(["poisson", "logit", "normal"]))
    table = _frame(rng, family)
    exposure = family == "poisson"
    kinds = {
        "poisson": lambda: smf.glm(
            "y ~ g + x + z", table, family=sm.families.Poisson(), exposure=table.t
        ).fit(),
        "logit": lambda: smf.logit("y ~ g + x + z", table).fit(disp=0),
        "normal": lambda: smf.ols("y ~ g + x + z", table).fit(),
    }
    results = kinds[family]()
    theta, V = np.asarray(results.params), np.asarray(results.cov_params())
    mean = FAMILIES[family].mean
    t = table.t.to_numpy() if exposure else np.ones(len(table))
    D = _design(table)

    def moved(column, value):
        other = table.copy()
        other[column] = value
        return _design(other)

    which = int(rng.integers(8))
    low, high = float(table.x.quantile(0.25)), float(table.x.quantile(0.75))
    masks = [(table.g == c).to_numpy() for c in "abc"]
    average = lambda X, b, rows=slice(None): (t * mean(X @ b))[rows].mean()
    pool: list[tuple[Any, Any]] = [
        (idm.average_prediction(), lambda b: average(D, b)),
        (idm.average_prediction(by="g"), lambda b: np.array([average(D, b, m) for m in masks])),
        (
            idm.average_comparison("x", values=(0, 1)),
            lambda b: average(moved("x", 1.0), b) - average(moved("x", 0.0), b),
        ),
        (
            idm.average_comparison("x", values="iqr"),
            lambda b: average(moved("x", high), b) - average(moved("x", low), b),
        ),
        (
            idm.average_comparison("g", values=("a", "b")),
            lambda b: average(moved("g", "b"), b) - average(moved("g", "a"), b),
        ),
        (
            idm.average_comparison("g", values=("a", "c"), how="lnratio"),
            lambda b: np.log(average(moved("g", "c"), b) / average(moved("g", "a"), b)),
        ),
        (
            idm.average_slope("z"),
            lambda b: (
                (average(D + 1e-5 * np.eye(5)[4], b) - average(D - 1e-5 * np.eye(5)[4], b)) / 2e-5
            ),
        ),
        (idm.average_comparison("g", values=("a", "nope")), None),
    ]
    asked, psi = pool[which]
    if which == 5 and family == "normal":
        return None
    cov = {}
    if rng.random() < 0.4:
        firms = rng.integers(0, 12, size=len(table))
        robust_fit = None
        if family == "normal":
            robust_fit = results.get_robustcov_results(
                "cluster", groups=firms, use_correction=False, df_correction=False
            )
            V = np.asarray(robust_fit.cov_params())
        else:
            mu = t * mean(D @ theta)
            rows = (table.y.to_numpy() - mu)[:, None] * D
            sums = np.array([rows[firms == f].sum(axis=0) for f in np.unique(firms)])
            w = mu * (1 - mu) if family == "logit" else mu
            A = np.linalg.inv(D.T @ (w[:, None] * D))
            V = A @ sums.T @ sums @ A
        cov = {"clusters": firms}
    return Case(
        lambda: idm.infer(idm.from_statsmodels(results), asked, **cov).standard_error,
        None if psi is None else _delta(psi, theta, V),
        "nope" if psi is None else None,
        3e-5,
    )


def groups(rng):
    """Groups of one row, empty categories, missing labels, of other lengths."""
    import pandas
    import statsmodels.formula.api as smf

    table = _frame(rng, "logit")
    results = smf.logit("y ~ g + x + z", table).fit(disp=0)
    theta, V = np.asarray(results.params), np.asarray(results.cov_params())
    D, n, kind = _design(table), len(table), int(rng.integers(7))
    labels: Any = rng.choice(["u", "v"], size=n).astype(object)
    reason = None
    if kind == 0:
        labels[0] = "alone"
    if kind == 1:
        labels = pandas.Categorical(labels, categories=["v", "empty", "u"])
    if kind == 2:
        labels = np.arange(n) % 5
    if kind == 3:
        labels[1], reason = None, "missing|none|nan|by"
    if kind == 4:
        labels, reason = labels[:-1], "by|rows|length"
    if kind == 5:
        labels = np.where(labels == "u", np.nan, 1.0)
        reason = "missing|nan|by"
    if kind == 6:
        labels = np.array(["same"] * n)
    order = ["v", "u"] if kind == 1 else sorted(set(np.asarray(labels).tolist()), key=str)
    masks = [np.asarray(labels) == c for c in order]

    def psi(b):
        return np.array([special.expit(D @ b)[m].mean() for m in masks])

    def ask():
        est = idm.infer(idm.from_statsmodels(results), idm.average_prediction(by=labels))
        return np.sort(est.standard_error)

    truth = None if reason else np.sort(_delta(psi, theta, V))
    return Case(ask, truth, reason)


def sklearn_fits(rng):
    """scikit-learn, in float32, as tables, with weights, and with columns that are not in order."""
    import pandas
    from sklearn import linear_model

    family = str(rng.choice(["poisson", "logit", "normal"]))
    fit = regression(rng, (family,), w=lambda r, n: np.ones(n))
    n, d = fit.X.shape
    kind = int(rng.integers(6))
    weights = rng.integers(1, 4, size=n) * 1.0 if rng.random() < 0.5 else np.ones(n)
    made = {
        "poisson": lambda: linear_model.PoissonRegressor(
            alpha=0, tol=1e-12, max_iter=10_000, solver="newton-cholesky"
        ),
        "logit": lambda: linear_model.LogisticRegression(
            C=np.inf, tol=1e-12, max_iter=10_000, solver="newton-cholesky"
        ),
        "normal": lambda: linear_model.LinearRegression(),
    }[family]()
    Z: Any = fit.X[:, 1:]
    if kind == 0:
        Z = Z.astype(np.float32)
    if kind == 1:
        Z = pandas.DataFrame(Z, columns=[f"c{i}" for i in range(d - 1)])
    if kind == 2:
        Z = np.asfortranarray(Z)
    wide = Fit(
        fit.family, np.column_stack([np.ones(n), np.asarray(Z, dtype=float)]), fit.y, weights
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.fit(Z, fit.y, sample_weight=weights)
    at, point = Z[:1], wide.X[0]
    psi = (lambda m: m.predict_proba(at)[:, 1]) if family == "logit" else (lambda m: m.predict(at))
    slope = (
        fit.family.mean(point @ wide.theta + 1e-5) - fit.family.mean(point @ wide.theta - 1e-5)
    ) / 2e-5
    truth = wide.error(slope * point)
    if family == "normal":
        s2 = np.sum(weights * (fit.y - wide.X @ wide.theta) ** 2) / (weights.sum() - d)
        truth = truth * np.sqrt(s2)
    if kind == 3:
        return Case(
            lambda: idm.infer(idm.from_sklearn(made, Z[:-1], fit.y), psi).standard_error,
            None,
            "rows|length|inconsistent|shape",
        )
    if kind == 4:
        other = fit.y[::-1].copy()
        away = Fit(fit.family, wide.X, other, weights).theta - wide.theta
        if np.sqrt(away @ wide.information(wide.theta) @ away) < 2:  # by chance the same fit
            return None
        return Case(
            lambda: (
                idm.infer(
                    idm.from_sklearn(made, Z, other, sample_weight=weights), psi
                ).standard_error
            ),
            None,
            "maximum|drift|finish|differ|fit",
        )
    return Case(
        lambda: (
            idm.infer(idm.from_sklearn(made, Z, fit.y, sample_weight=weights), psi).standard_error
        ),
        truth,
        None,
        1e-4 if kind == 0 else 2e-5,
    )


def torch_modules(rng):
    """Torch: linear heads in both dtypes, dropout and batch averages in training mode, batches."""
    import torch

    family = str(rng.choice(["poisson", "logit"]))
    fit = regression(rng, (family,))
    d = fit.X.shape[1]
    kind = int(rng.integers(8))
    single = kind == 0
    dtype = torch.float32 if single else torch.float64
    likelihood = {"poisson": idm.Poisson(), "logit": idm.Bernoulli()}[family]
    net: Any = torch.nn.Linear(d, 1, bias=False).to(dtype)
    net.weight.data[:] = torch.as_tensor(fit.theta, dtype=dtype)
    x = torch.as_tensor(fit.X[:1], dtype=dtype)
    mean = {"poisson": torch.exp, "logit": torch.sigmoid}[family]
    psi: Any = lambda m: mean(m(x)).squeeze()
    options: dict[str, Any] = {}
    point, reason = fit.X[0], None
    slope = (
        fit.family.mean(point @ fit.theta + 1e-5) - fit.family.mean(point @ fit.theta - 1e-5)
    ) / 2e-5
    truth = fit.error(slope * point)
    if kind == 1:
        net = torch.nn.Sequential(torch.nn.Dropout(0.3), net).train()
    if kind == 2:
        options["batch_size"] = int(rng.integers(1, 30))
    if kind == 3:  # in training mode; its averages, of 0 and 1, are those of no training
        norm = torch.nn.BatchNorm1d(d, affine=False, eps=0.0).double()
        net = torch.nn.Sequential(norm, net).train()
    if kind == 4:  # part of psi without a derivative
        psi = lambda m: mean(m(x)).squeeze() + mean(m(x)).detach().squeeze()
        truth, reason = None, "change|gradient|derivative|detach"
    if kind == 5:  # psi of another module
        other = torch.nn.Linear(d, 1, bias=False).double()
        psi = lambda m: mean(m(x)).squeeze() + mean(other(x)).squeeze()
    if kind == 6:
        psi = lambda m: torch.stack([mean(m(x)).squeeze(), m(x).squeeze() * 1e6])
        truth = np.array([truth[0], 1e6 * fit.error(point)[0]])
    if kind == 7:
        psi = lambda m: mean(m(x)).item()
        truth, reason = truth, "grad|item|float|tensor|trace|derivative"
    data = (torch.as_tensor(fit.X, dtype=dtype), torch.as_tensor(fit.y, dtype=dtype))
    return Case(
        lambda: idm.infer(idm.from_torch(net, data, likelihood, **options), psi).standard_error,
        truth,
        reason,
        1e-3 if single else RTOL,
    )


def jax_functions(rng):
    """JAX: pytrees, in both dtypes, with parts of psi that have no derivative."""
    import jax
    import jax.numpy as jnp

    family = str(rng.choice(["poisson", "logit"]))
    fit = regression(rng, (family,), n=60, d=3)
    kind = int(rng.integers(5))
    likelihood = {"poisson": idm.Poisson(), "logit": idm.Bernoulli()}[family]
    mean = {"poisson": jnp.exp, "logit": jax.nn.sigmoid}[family]
    point = fit.X[0]
    slope = (
        fit.family.mean(point @ fit.theta + 1e-5) - fit.family.mean(point @ fit.theta - 1e-5)
    ) / 2e-5
    truth, reason = fit.error(slope * point), None
    psi: Any = lambda p: mean(point @ p["w"])
    dtype = "float64"
    if kind == 1:
        psi = lambda p: mean(point @ p["w"]) + jax.lax.stop_gradient(point @ p["w"])
        truth, reason = None, "change|gradient|derivative|stop"
    if kind == 2:
        psi = lambda p: jnp.stack([mean(point @ p["w"]), 1e6 * (point @ p["w"])])
        truth = np.array([truth[0], 1e6 * fit.error(point)[0]])
    if kind == 3:
        psi = lambda p: jnp.round(point @ p["w"], 1)
        truth, reason = None, "change|gradient|derivative|zero|constant|vary"
    if kind == 4:
        psi = lambda p: mean(point @ p["w"]) + jnp.where(point @ p["w"] > -99, p["w"][0], 0.0)
        truth = fit.error(slope * point + np.eye(3)[0])
    return Case(
        lambda: (
            idm.infer(
                idm.from_jax(
                    {"w": fit.theta},
                    (fit.X, fit.y),
                    likelihood,
                    apply=lambda p, x: x @ p["w"],
                    dtype=dtype,
                ),
                psi,
            ).standard_error
        ),
        truth,
        reason,
    )


KINDS = {
    f.__name__: f
    for f in (
        units,
        least_squares,
        weights,
        repeated,
        robust,
        clusters,
        two_way,
        time_order,
        penalties,
        bounds,
        equality,
        collinear,
        nearly_collinear,
        separated,
        product,
        exact,
        rough_psi,
        blocked_psi,
        bad_psi,
        sizes_of_psi,
        several,
        missing,
        algebra,
        held_out,
        few_rows,
        counts,
        equations,
        misspelled,
        measurements,
        statsmodels_questions,
        groups,
        sklearn_fits,
        torch_modules,
        jax_functions,
    )
}

"""Changes that must not matter: units, order of rows, names, dtype, one question or a list of one.

A *case* is a fitted model in the units, the order and the dtype of a `Change`. An *ask* returns its
numbers in the units of the unchanged problem, each with the size that its difference is measured
by (a standard error). The same numbers, to a tolerance that is stated with the ask and the
derivative, or the same class of refusal.
"""

import functools
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy import special
from scipy.optimize import LinearConstraint, NonlinearConstraint

import implicit_delta as idm

N = 60
_rng = np.random.default_rng(29)
# Multiples of 1/64: the same numbers in float32.
X = np.column_stack([np.ones(N), np.round(_rng.normal(size=(N, 2)) * 64) / 64])
BETA = np.array([0.5, 0.75, -0.5])
ETA = X @ BETA
Y = {
    "linear": np.round((2 + ETA + 0.8 * _rng.normal(size=N)) * 64) / 64,
    "logit": (_rng.random(N) < special.expit(ETA)) * 1.0,
    "poisson": _rng.poisson(np.exp(ETA)) * 1.0,
}
FIRMS = np.repeat(np.arange(12), 5)
COUNTS = _rng.integers(1, 4, size=N).astype(float)
TIME = np.arange(1, N + 1) / 16
DECAY = np.round((3 * np.exp(-0.8 * TIME) + 0.5 + 0.1 * _rng.normal(size=N)) * 64) / 64
POINT = np.array([1.0, 0.5, -0.25])  # where predictions are asked for


@dataclass(frozen=True)
class Change:
    """What must not matter: units of parameters and response, order, names, form of the data."""

    name: str
    units: tuple[float, float, float] = (1.0, 1.0, 1.0)
    response: float = 1.0
    order: int | None = None
    names: tuple[str, str, str] = ("const", "x", "z")
    form: str = "float64"

    @property
    def rows(self):
        keep = np.arange(N)
        return keep if self.order is None else np.random.default_rng(self.order).permutation(N)

    def data(self, values, unit=1.0):
        """Values (n,) or (n, p) in units, in the order and the dtype of the change."""
        kept = np.asarray(values)[self.rows] * unit
        other = kept.astype({"float32": np.float32, "int": np.int64}.get(self.form, np.float64))
        return other if np.array_equal(other, kept) else kept  # not what is no integer


SAME = Change("same")
ORDERS = [Change(f"order {k}", order=k) for k in (1, 2)]
NAMES = [
    Change("other names", names=("b0", "Größe in m²", "lambda")),
    Change("names of others", names=("z", "const", "x")),
]
UNITS = [
    Change("units 1e-9", (1e-9,) * 3),
    Change("units 1e9", (1e9,) * 3),
    Change("first 1e-9", (1e-9, 1.0, 1.0)),
    Change("second 1e9", (1.0, 1e9, 1.0)),
    Change("1e-6, 1e3, 1e9", (1e-6, 1e3, 1e9)),
    Change("1e9, 1e-9, 1e-9", (1e9, 1e-9, 1e-9)),
]
RESPONSES = [Change(f"response {r:g}", response=r) for r in (1e-9, 1e-4, 1e9)]
TOGETHER = [Change("all", (1e-3, 1e6, 1e-9), 1e5, 7, ("b0", "width", "z"))]
FORMS = [Change(form, form=form) for form in ("float32", "int")]
CHANGES = [*ORDERS, *NAMES, *UNITS, *RESPONSES, *TOGETHER, *FORMS]


@dataclass(frozen=True)
class Case:
    """A fitted model in the units of a change, and what is asked of it."""

    make: Any  # of keyword arguments: a fitted model
    units: np.ndarray  # theta in units over theta of the unchanged problem
    psi: Any  # traced, in the language of the model
    psi_unit: float = 1.0
    opaque: Any = None  # the same psi without a derivative
    pair: Any = None  # two psi for a joint region, in `psi_unit`
    change: Change = SAME
    names: tuple[str, ...] = ()
    options: dict = field(default_factory=dict)

    @functools.cached_property
    def model(self):
        return self.make(**self.options)

    def moved(self, values):
        return np.asarray(values)[self.change.rows]


def by_float(function):
    """A function of theta that cannot be traced."""
    return lambda theta: function(np.array([float(v) for v in theta]))


# Log-likelihoods, residuals and equations in NumPy.

TERMS = {
    "linear": (lambda y, e: -((y - e) ** 2) / 2, lambda y, e: y - e, lambda e: e),
    "logit": (
        lambda y, e: y * e - np.logaddexp(0, e),
        lambda y, e: y - special.expit(e),
        special.expit,
    ),
    "poisson": (lambda y, e: y * e - np.exp(e), lambda y, e: y - np.exp(e), np.exp),
}


def design(change):
    """Columns of X over the units of their coefficients."""
    return change.data(X) if set(change.units) == {1.0} else change.data(X) / change.units


def regression(family, derivative, known=False, **options):
    """A regression by its log-likelihood, with the variance of the noise in the response's unit."""

    def case(change):
        r = change.response if family == "linear" else 1.0
        D, y = design(change), change.data(Y[family], r)
        units = np.array(change.units) * r
        terms, score, mean = TERMS[family]
        loglik = lambda b: terms(y / r, D @ b / r)
        point = POINT / change.units
        psi = lambda b: mean(point @ b) if family != "linear" else point @ b
        own = dict(options)
        if "bounds" in own:
            own["bounds"] = [(-40 * u, 40 * u) for u in units]
        if "weights" in own:
            own["weights"] = COUNTS[change.rows]
        given = {"start": np.zeros(3)}
        if known:
            given = {"theta": exact(family, "weights" in own) * units}
        if derivative == "score":
            own["score"] = lambda b: score(y / r, D @ b / r)[:, None] * D / r
        shown = by_float(loglik) if derivative == "opaque" else loglik
        return Case(
            lambda **more: idm.from_loglik(shown, **{**given, **own, **more}),
            units,
            psi,
            r,
            by_float(psi),
            lambda b: [point @ b, b[1] * point[1]],
            change,
            change.names,
            {"names": change.names},
        )

    return case


@functools.cache
def exact(family, weighted=False):
    """The maximum to working precision, by Newton's method."""
    w, b = (COUNTS if weighted else np.ones(N)), np.zeros(3)
    _, score, mean = TERMS[family]
    for _ in range(50):
        e = X @ b
        slope = (mean(e + 1e-6) - mean(e - 1e-6)) / 2e-6
        b = b + np.linalg.solve(X.T @ ((w * slope)[:, None] * X), X.T @ (w * score(Y[family], e)))
    return b


def normal(derivative, **options):
    """Mean and standard deviation of a normal distribution, both in units of the response."""

    def case(change):
        u = np.array(change.units[:2]) * change.response
        y = change.data(Y["linear"], change.response)
        names = change.names[:2]

        def loglik(th):
            mu, sigma = th[0] / change.units[0], th[1] / change.units[1]
            return -np.log(sigma) - ((y - mu) / sigma) ** 2 / 2

        def score(th):
            mu, sigma = th[0] / change.units[0], th[1] / change.units[1]
            z = (y - mu) / sigma
            return np.column_stack([z / sigma, (z**2 - 1) / sigma]) / change.units[:2]

        own = {"score": score} if derivative == "score" else {}
        shown = by_float(loglik) if derivative == "opaque" else loglik
        psi = lambda th: th[0] / change.units[0] + 1.645 * th[1] / change.units[1]
        own = {**own, **options}
        if "bounds" in own:
            own["bounds"] = [(None, None), (0, None)]
        return Case(
            lambda **more: idm.from_loglik(shown, start=np.array([1.0, 1.5]) * u, **own, **more),
            u,
            psi,
            change.response,
            by_float(psi),
            lambda th: [th[0] / change.units[0], th[1] / change.units[1]],
            change,
            names,
            {"names": names},
        )

    return case


def decay(derivative, **options):
    """An exponential decay with an offset, by its residuals: two parameters have y's unit."""

    def case(change):
        r = np.array([change.response, 1.0, change.response])
        u = np.array(change.units) * r
        t, y = change.data(TIME), change.data(DECAY, change.response)
        A, k, c = change.units

        def residuals(th):
            return y - (th[0] / A) * np.exp(-(th[1] / k) * t) - th[2] / c

        def jacobian(th):
            e = np.exp(-(th[1] / k) * t)
            return -np.column_stack([e / A, -(th[0] / A) * t * e / k, np.ones(N) / c])

        own = {"jacobian": jacobian} if derivative == "score" else {}
        shown = by_float(residuals) if derivative == "opaque" else residuals
        psi = lambda th: (th[0] / A) * np.exp(-(th[1] / k) * 1.5) + th[2] / c
        own = {**own, **options}
        if "bounds" in own:
            own["bounds"] = [(0.0, 30 * u[0]), (0.0, None), (None, 20 * u[2])]
        if "sigma" in own:
            own["sigma"] = 0.1 * change.response
        if "weights" in own:
            own["weights"] = COUNTS[change.rows]
        start = np.array([2.0, 1.0, 0.25]) * u
        return Case(
            lambda **more: idm.from_residuals(shown, start=start, **own, **more),
            u,
            psi,
            change.response,
            by_float(psi),
            lambda th: [th[0] / A, th[2] / c],
            change,
            change.names,
            {"names": change.names},
        )

    return case


def equations(family, derivative, gmm=False, **options):
    """The normal equations of a regression; with `gmm` two more than there are parameters."""

    def case(change):
        r = change.response if family == "linear" else 1.0
        D, y = design(change), change.data(Y[family], r)
        Z = np.column_stack([D, (X[:, 1] ** 2)[change.rows], (X[:, 1] * X[:, 2])[change.rows]])
        instruments = Z if gmm else D
        _, score, mean = TERMS[family]
        rows = lambda b: score(y, D @ b)[:, None] * instruments
        point = POINT / change.units
        psi = lambda b: mean(point @ b) if family != "linear" else point @ b
        own = dict(options)
        if derivative == "score":
            slope = {"linear": np.ones_like, "poisson": np.exp}.get(
                family, lambda e: special.expit(e) * special.expit(-e)
            )
            own["jacobian"] = lambda b: -instruments.T @ (slope(D @ b)[:, None] * D)
        if "weights" in own:
            own["weights"] = COUNTS[change.rows]
        if gmm:  # the identity is not the same weighting in other units
            own["first_weighting"] = np.linalg.inv(Z.T @ Z)
        if "clusters" in own:
            own["clusters"] = FIRMS[change.rows]
        units = np.array(change.units) * r
        shown = by_float(rows) if derivative == "opaque" else rows
        return Case(
            lambda **more: idm.from_equations(shown, start=np.zeros(3), **own, **more),
            units,
            psi,
            r,
            by_float(psi),
            None,
            change,
            change.names,
            {"names": change.names},
        )

    return case


# Constraints that hold the maximum, or cut a likelihood region, in units of the parameters.

LIMITS = {
    "high": lambda u: {"bounds": [(None, 2 * u[0]), (0, None), (None, None)]},
    "at zero": lambda u: {"bounds": [(None, None), (0, None), (None, 0.0)]},
    "near": lambda u: {"bounds": [(None, 2.62 * u[0]), (0, None), (None, None)]},
    "sum": lambda u: {"constraints": [LinearConstraint([[1 / u[0], 0, 1 / u[2]]], -np.inf, 3)]},
    "sum in units": lambda u: {
        "constraints": [LinearConstraint([[1, 0, u[0] / u[2]]], -np.inf, 3 * u[0])]
    },
    "equal": lambda u: {"constraints": [LinearConstraint([[1, 0, -u[0] / u[2]]], 0, 0)]},
    "product": lambda u: {
        "constraints": [NonlinearConstraint(lambda th: th[0] * th[2], -np.inf, 1.5 * u[0] * u[2])]
    },
    "product, jac": lambda u: {
        "constraints": [
            NonlinearConstraint(
                lambda th: th[0] * th[2],
                -np.inf,
                1.5 * u[0] * u[2],
                jac=lambda th: np.array([[th[2], 0, th[0]]]),
            )
        ]
    },
}


def line(limit, derivative):
    """A line and its noise, under a constraint."""

    def case(change):
        r, (a, s, b) = change.response, change.units
        u = np.array(change.units) * r
        x, y = change.data(X[:, 1]), change.data(Y["linear"], r)

        def loglik(th):
            sigma = th[1] / s
            return -np.log(sigma) - ((y - th[0] / a - th[2] / b * x) / sigma) ** 2 / 2

        shown = by_float(loglik) if derivative == "opaque" else loglik
        start = np.array([1.0, 1.5, -0.1 if limit == "at zero" else 0.1]) * u
        psi = lambda th: th[0] / a + th[1] / s
        return Case(
            lambda **more: idm.from_loglik(shown, start=start, **LIMITS[limit](u), **more),
            u,
            psi,
            r,
            by_float(psi),
            lambda th: [th[0] / a, th[1] / s],
            change,
            change.names,
            {"names": change.names},
        )

    return case


DERIVATIVES = ("score", "traced", "opaque")
NUMPY = {
    **{f"loglik {family} {d}": regression(family, d) for family in TERMS for d in DERIVATIVES},
    **{f"loglik logit known {d}": regression("logit", d, known=True) for d in DERIVATIVES},
    **{f"loglik logit bounds {d}": regression("logit", d, bounds=True) for d in DERIVATIVES},
    **{f"loglik poisson weights {d}": regression("poisson", d, weights=True) for d in DERIVATIVES},
    "loglik poisson sampling": regression(
        "poisson", "traced", weights=True, weight_kind="sampling"
    ),
    **{f"loglik normal {d}": normal(d) for d in DERIVATIVES},
    **{f"loglik normal bounds {d}": normal(d, bounds=True) for d in DERIVATIVES},
    **{f"residuals {d}": decay(d) for d in DERIVATIVES},
    **{f"residuals bounds {d}": decay(d, bounds=True) for d in DERIVATIVES},
    "residuals sigma": decay("traced", sigma=True),
    "residuals sigma opaque": decay("opaque", sigma=True),
    "residuals weights": decay("traced", weights=True),
    "residuals mle": decay("traced", variance="mle"),
    **{f"equations {f} {d}": equations(f, d) for f in TERMS for d in DERIVATIVES},
    "equations weights": equations("poisson", "traced", weights=True),
    "equations clusters": equations("poisson", "traced", clusters=True),
    **{f"held {limit} {d}": line(limit, d) for limit in LIMITS for d in ("traced", "opaque")},
    **{f"gmm {f} {d}": equations(f, d, gmm=True) for f in TERMS for d in DERIVATIVES},
}


# Host libraries. Each fit is the fit of the unchanged problem, in other units: what their own
# optimizers make of units is not asked here.


def frame(change):
    """The columns x and z and all responses, by name."""
    pandas = pytest.importorskip("pandas")
    _, x, z = change.names
    table = pandas.DataFrame({x: change.data(X[:, 1]), z: change.data(X[:, 2])})
    if set(change.units) != {1.0}:
        table = table / np.array(change.units[1:])
    table["intercept"] = np.ones(N) / change.units[0]
    return table


def in_statsmodels(family, **options):
    def case(change):
        sm = pytest.importorskip("statsmodels.api")
        r = change.response if family == "linear" else 1.0
        table = frame(change)[["intercept", *change.names[1:]]]
        y = change.data(Y[family], r)
        kind = {"linear": sm.OLS, "logit": sm.Logit, "poisson": sm.Poisson, "glm": sm.GLM}
        own = dict(options)
        start = exact(family) * change.units
        fitting = {} if family == "linear" else {"disp": 0, "start_params": start}
        if own.pop("glm", False):
            own["family"] = {"poisson": sm.families.Poisson, "logit": sm.families.Binomial}[
                family
            ]()
            kind, fitting = {family: sm.GLM}, {"start_params": start}
            if own.pop("weights", False):
                own["freq_weights"] = COUNTS[change.rows]
                fitting["start_params"] = exact(family, True) * change.units
        point = POINT / change.units
        mean = TERMS[family][2]
        psi = lambda b: mean(point @ b)

        def fit(**more):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of units that its pseudo-inverse cannot hold
                return idm.from_statsmodels(kind[family](y, table, **own).fit(**fitting))

        return Case(
            fit,
            np.array(change.units) * r,
            psi,
            r,
            by_float(psi),
            None,
            change,
        )

    return case


def in_sklearn(family):
    def case(change):
        linear_model = pytest.importorskip("sklearn.linear_model")
        r = change.response if family == "linear" else 1.0
        table = frame(change)[[*change.names[1:]]]
        y = change.data(Y[family], r)
        make = {
            "linear": linear_model.LinearRegression,
            "logit": lambda: linear_model.LogisticRegression(C=np.inf),
            "poisson": lambda: linear_model.PoissonRegressor(alpha=0.0),
        }[family]

        def fit(**more):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of its own optimizer, whose end is replaced
                fitted = make().fit(table, y)
            theta = exact(family) * np.array([1.0, *change.units[1:]]) * r
            fitted.intercept_ = theta[0] if family != "logit" else theta[:1]
            fitted.coef_ = theta[1:] if family != "logit" else theta[None, 1:]
            return idm.from_sklearn(fitted, table, y)

        at = table.iloc[[list(change.rows).index(3)]]

        def psi(fitted):
            if family == "logit":
                return fitted.predict_proba(at)[:, 1]
            return fitted.predict(at)

        return Case(fit, np.array([*change.units[1:], 1.0]) * r, psi, r, None, None, change)

    return case


def in_torch(family, **options):
    def case(change):
        torch = pytest.importorskip("torch")
        r = change.response if family == "linear" else 1.0
        D, y = design(change), change.data(Y[family], r)
        likelihood = {
            "linear": idm.Gaussian(0.64 * r**2),
            "logit": idm.Bernoulli(),
            "poisson": idm.Poisson(),
        }[family]
        point = torch.as_tensor(POINT / change.units)
        mean = {"linear": lambda e: e, "logit": torch.sigmoid, "poisson": torch.exp}[family]
        units = np.array(change.units) * r
        own = dict(options)
        if "weights" in own:
            own["weights"] = COUNTS[change.rows]

        def fit(**more):
            net = torch.nn.Linear(3, 1, bias=False).double()
            theta = exact(family, "weights" in own) * units
            net.weight.data[:] = torch.as_tensor(theta)
            return idm.from_torch(net, (D, y), likelihood, columns=list(change.names), **own)

        psi = lambda net: mean(net(point)).squeeze()
        return Case(fit, units, psi, r, None, None, change)

    return case


def in_jax(family, **options):
    def case(change):
        jax = pytest.importorskip("jax")
        r = change.response if family == "linear" else 1.0
        D, y = design(change), change.data(Y[family], r)
        likelihood = {
            "linear": idm.Gaussian(0.64 * r**2),
            "logit": idm.Bernoulli(),
            "poisson": idm.Poisson(),
        }[family]
        point = POINT / change.units
        mean = {
            "linear": lambda e: e,
            "logit": jax.nn.sigmoid,
            "poisson": jax.numpy.exp,
        }[family]
        units = np.array(change.units) * r
        own = dict(options)
        if "weights" in own:
            own["weights"] = COUNTS[change.rows]

        def fit(**more):
            theta = exact(family, "weights" in own) * units
            return idm.from_jax(
                theta,
                (D, y),
                likelihood,
                apply=lambda b, x: x @ b,
                dtype="float64",
                columns=list(change.names),
                **own,
            )

        psi = lambda b: mean(point @ b)
        return Case(fit, units, psi, r, None, None, change)

    return case


LIBRARIES = {
    **{f"statsmodels {f}": in_statsmodels(f) for f in TERMS},
    "statsmodels glm poisson": in_statsmodels("poisson", glm=True),
    "statsmodels glm logit": in_statsmodels("logit", glm=True),
    "statsmodels glm weights": in_statsmodels("poisson", glm=True, weights=True),
    **{f"sklearn {f}": in_sklearn(f) for f in TERMS},
    **{f"torch {f}": in_torch(f) for f in TERMS},
    "torch weights": in_torch("poisson", weights=True),
    "torch batches": in_torch("poisson", batch_size=7),
    **{f"jax {f}": in_jax(f) for f in TERMS},
    "jax weights": in_jax("poisson", weights=True),
}
HOSTS = {**NUMPY, **LIBRARIES}


# Asks: numbers in the units of the unchanged problem, and the sizes of their differences.


def of_estimate(est, unit):
    se = np.atleast_1d(est.standard_error) / unit
    interval = est.confidence_interval()
    ends = [np.atleast_1d(v) / unit for v in (est.value, interval.low, interval.high)]
    return np.concatenate([se, *ends]), np.tile(se, 4)


def parameters(case):
    return of_estimate(idm.infer(case.model, idm.parameters), case.units)


def infer_with(**options):
    def ask(case):
        moved = {k: case.moved(v) if k == "clusters" else v for k, v in options.items()}
        return of_estimate(idm.infer(case.model, case.psi, **moved), case.psi_unit)

    return ask


def infer_opaque(case):
    return of_estimate(idm.infer(case.model, case.opaque), case.psi_unit)


def by_method(method):
    return lambda case: of_estimate(idm.infer(case.model, case.psi, method), case.psi_unit)


def profile(case):
    found = idm.profile(case.model, case.psi)
    se = found.standard_error / case.psi_unit
    return np.array([*found.interval]) / case.psi_unit, np.array([se, se])


def limit(case):
    found = idm.limit(case.model, case.psi)
    se = found.profile.standard_error / case.psi_unit
    return np.array([found.value / case.psi_unit]), np.array([se])


def contour(case):
    found = idm.contour(case.model, case.pair, rays=8)
    points = found.points() / case.psi_unit
    se = np.sqrt(np.diag(found.covariance)) / case.psi_unit
    ends = np.concatenate([points.min(axis=0), points.max(axis=0)])
    return ends, np.tile(se, 2)


def polished(case):
    model = case.model
    se = np.atleast_1d(idm.infer(model, idm.parameters).standard_error)
    better = idm.polish(model.at(np.array(model.theta) + 0.3 * se))
    return np.array(better.theta) / case.units, se / case.units


def likelihood_ratio(case):
    name = case.names[1] if case.names else 1
    found = idm.likelihood_ratio({name: 0.9 * case.units[1]}, case.model)
    return np.array([t.statistic for t in found.tests]), np.array(
        [2 * np.sqrt(max(t.statistic, 0.1)) for t in found.tests]
    )


def compared(case):
    methods = [idm.Infinitesimal(), idm.FiniteDifference(), idm.profile]
    table = idm.compare(case.model, case.psi, methods)
    ends = np.array([v for row in table.rows for v in (row.low, row.high)]) / case.psi_unit
    return ends, np.full(len(ends), table.rows[0].std_error / case.psi_unit)


ASKS = {
    "parameters": parameters,
    "psi": infer_with(),
    "psi opaque": infer_opaque,
    "HC0": infer_with(robust="HC0"),
    "HC1": infer_with(robust="HC1"),
    "HC3": infer_with(robust="HC3"),
    "clusters": infer_with(clusters=FIRMS),
    "CR2": infer_with(clusters=FIRMS, robust="CR2"),
    "FiniteDifference": by_method(idm.FiniteDifference()),
    "Simulation": by_method(idm.Simulation(200, rng=0)),
    "one-step": by_method(idm.Bootstrap(30, kind="one-step", rng=0)),
    "Bootstrap": by_method(idm.Bootstrap(20, rng=0)),
    "profile": profile,
    "limit": limit,
    "contour": contour,
    "polish": polished,
    "likelihood_ratio": likelihood_ratio,
    "compare": compared,
}


def refit(case):
    """A training of the user's own, in the units of the change."""
    k, r = case.units[0], Y["poisson"][case.change.rows]

    def train(bonus):
        theta, h = k * np.log(r.mean()), 1e-4 * k
        for _ in range(30):
            slope = np.sum(r - np.exp(theta / k)) / k
            slope += (bonus(theta + h) - bonus(theta - h)) / (2 * h)
            theta += slope * k**2 / r.sum()
        return theta

    found = idm.refit(train, lambda theta: case.change.response * np.exp(theta / k))
    return of_estimate(found, case.change.response)


def bootstrap(case):
    """A fit of the user's own, drawn again; units do not change which rows are drawn."""
    y = case.change.data(Y["linear"], case.change.response)
    fit = lambda rows: {"mean": rows.mean() * case.units[0], "spread": rows.std()}
    psi = lambda found: found["mean"] / case.units[0] + found["spread"]
    found = idm.bootstrap(fit, y, psi, replicates=50, rng=0)
    return of_estimate(found, case.change.response)


ASKS |= {"refit": refit, "bootstrap": bootstrap}
DRAWS_ROWS = {"one-step", "Bootstrap", "bootstrap"}  # other rows are drawn in another order

# In standard errors. A fit ends when what is left would move it by 1e-7 of one, and an end of a
# profile, of which there is an absolute tolerance of 1e-6 in the deviance, is known to 1e-6. What
# is differenced has the truncation of differences, of which their measured error is 1e-6 as well.
EXACT, DIFFERENCED = 3e-7, 2e-6
SEARCHED = {"profile", "limit", "contour", "compare", "refit"}


def tolerance(host, ask):
    rough = ask in SEARCHED or ask == "psi opaque" or "opaque" in host
    return DIFFERENCED if rough else EXACT


def tell(ask, case):
    """Numbers with their sizes and the warnings, or the class of the refusal and its text.

    Names of parameters are those of the unchanged problem.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            numbers, sizes = ask(case)
        except (idm.ImplicitDeltaError, ValueError, TypeError) as error:
            own = dict(zip(case.change.names, SAME.names, strict=True)) if case else {}
            words = re.split(r"(\w+)", str(error))
            return type(error).__name__, "".join(own.get(word, word) for word in words)
    ours = [w.category for w in caught if issubclass(w.category, idm.ImplicitDeltaWarning)]
    return numbers, sizes, sorted({category.__name__ for category in ours})


def finding(text):
    """The first sentence of a refusal, without its numbers."""
    return re.sub(r"[-+]?\d[\d.e+-]*%?", "#", text.split(". ")[0])


def gap(before, after, tolerance):
    """What differs between two answers, in words; None if nothing does."""
    if len(before) != len(after):
        return f"{before[:2] if len(before) == 2 else 'answered'} became {after}"
    if len(before) == 2:
        same = before[0] == after[0] and finding(before[1]) == finding(after[1])
        return None if same else f"{before} became {after}"
    if before[2] != after[2]:
        return f"warnings {before[2]} became {after[2]}"
    if before[0].shape != after[0].shape:
        return f"shape {before[0].shape} became {after[0].shape}"
    known = before[1] > 0  # a parameter at its bound has no error
    if not np.array_equal(np.isnan(before[0]), np.isnan(after[0])):
        return "NaN elsewhere"
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.where(known, abs(after[0] - before[0]) / before[1], abs(after[0] - before[0]))
    worst = np.nanmax(off, initial=0.0)
    return None if worst <= tolerance else f"{worst:.1e} standard errors"


@functools.cache
def built(host, change):
    return HOSTS[host](change)


@functools.cache
def left_by_host(host, change):
    """How far the host's own fit is from the maximum in these units, in standard errors."""
    if not host.startswith("statsmodels"):
        return 0.0
    case, same = built(host, change), built(host, SAME)
    error = idm.infer(same.model, idm.parameters).standard_error
    theta = np.array(case.model.theta) / case.units
    return float(np.max(abs(theta - np.array(same.model.theta)) / error))


def check(host, ask, changes):
    """Assert that no change matters; an answer of the host itself may, as far as that is off."""
    before, found = tell(ASKS[ask], built(host, SAME)), {}
    for change in changes:
        if ask in DRAWS_ROWS and change.order is not None:
            continue
        left = left_by_host(host, change)
        told = gap(before, tell(ASKS[ask], built(host, change)), tolerance(host, ask) + left)
        if told is not None and left < 0.01:
            found[change.name] = told
    assert not found


CHEAP = {"parameters", "psi"}
OWN = ("refit", "bootstrap")
COMPILED = ("torch", "jax")


def changes_of(host, ask):
    """All changes, or a fifth of them where an answer takes long, by a fixed design.

    The design is a Latin square: hosts and asks in their order, and every fifth change from their
    sum on, so that each change is met with every such ask and with every such host. A host that
    is compiled, or whose fit takes long, keeps its fifth for all asks.
    """
    first = list(HOSTS).index(host)
    if host.startswith(COMPILED) or (host.startswith("held") and ask != "parameters"):
        return CHANGES[first % 5 :: 5]
    return CHANGES if ask in CHEAP else CHANGES[(first + list(ASKS).index(ask)) % 5 :: 5]


def asks_of(host):
    """What is asked of a host: those of libraries have one psi, and few have contours."""
    own = {"contour"} if "equations" in host or "gmm" in host else set()
    own = {"contour", "psi opaque", "likelihood_ratio"} if host in LIBRARIES else own
    if host not in CHOSEN and not host.startswith("held"):
        own = own | {"contour"}  # a dozen profiles each
    return [a for a in ASKS if a not in own and a not in OWN]


CHOSEN = {
    "loglik logit traced",
    "loglik normal bounds opaque",
    "residuals weights",
    "held high traced",
    "gmm poisson traced",
    "sklearn linear",
    "torch logit",
    "jax logit",
    "statsmodels poisson",
}


def cell(host, ask):
    quick = host in CHOSEN and ask in CHEAP
    marks = [] if quick else [pytest.mark.slow]
    return pytest.param(host, ask, id=f"{host}, {ask}", marks=marks)


@pytest.mark.parametrize(("host", "ask"), [cell(h, a) for h in HOSTS for a in asks_of(h)])
def test_every_cell(host, ask):
    check(host, ask, changes_of(host, ask))


@pytest.mark.parametrize("ask", OWN)
def test_functions_of_a_user(ask):
    check("loglik normal traced", ask, CHANGES)


# Questions: of columns in other units, rows in another order, tables of another library.

GROUPS = np.where(np.arange(N) % 3 == 0, "b", "a")


def question_cases(change):
    """Name to question, unit of its answer and what it asks, all in the units of the change."""
    _, x, z = change.names
    u = change.units[1]
    rows = {x: np.array([0.0, 0.5]) / u, z: np.array([1.0, -1.0]) / change.units[2]}
    by = GROUPS[change.rows]
    return {
        "predictions": (idm.predictions(rows), 1.0),
        "average_prediction": (idm.average_prediction(), 1.0),
        "by groups": (idm.average_prediction(by=by), 1.0),
        "sd": (idm.average_comparison(x, values="sd"), 1.0),
        "iqr": (idm.average_comparison(x, values="iqr"), 1.0),
        "iqr of few": (idm.average_comparison(x, values="iqr", data=rows), 1.0),
        "minmax, ratio": (idm.average_comparison(x, values="minmax", how="ratio"), None),
        "pair, lnratio": (idm.average_comparison(x, values=(0, 1 / u), how="lnratio"), None),
        "step": (idm.average_comparison(x, values=0.5 / u), 1.0),
        "slope": (idm.average_slope(x), u),
        "slope by groups": (idm.average_slope(x, by=by), u),
        "slope at rows": (idm.average_slope(x, data=rows), u),
    }


QUESTIONS = list(question_cases(SAME))


def with_formula(family):
    def model(change):
        smf = pytest.importorskip("statsmodels.formula.api")
        r = change.response if family == "linear" else 1.0
        table = frame(change).drop(columns="intercept")
        table["y"] = change.data(Y[family], r)
        fit = {"linear": smf.ols, "logit": smf.logit, "poisson": smf.poisson}[family]
        _, x, z = change.names
        own = {} if family == "linear" else {"disp": 0}
        if own:
            own["start_params"] = exact(family) * (1.0, *change.units[1:])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of units that its optimizer cannot hold
            return idm.from_statsmodels(fit(f"y ~ Q('{x}') + Q('{z}')", table).fit(**own)), r

    return model


def with_table(family, host):
    """Hosts of columns x and z and an intercept."""

    def model(change):
        r = change.response if family == "linear" else 1.0
        if host == "sklearn":
            return HOSTS[f"sklearn {family}"](change).model, r
        D = np.column_stack([frame(change)[name] for name in change.names[1:]])
        theta = exact(family) * np.array([1.0, *change.units[1:]]) * r
        y, columns = change.data(Y[family], r), list(change.names[1:])
        likelihood = {"linear": idm.Gaussian(0.64 * r**2), "logit": idm.Bernoulli()}.get(
            family, idm.Poisson()
        )
        if host == "torch":
            torch = pytest.importorskip("torch")
            net = torch.nn.Linear(2, 1).double()
            net.weight.data[:] = torch.as_tensor(theta[1:])
            net.bias.data[:] = float(theta[0])
            return idm.from_torch(net, (D, y), likelihood, columns=columns), r
        pytest.importorskip("jax")
        return idm.from_jax(
            {"w": theta[1:], "b": theta[0]},
            (D, y),
            likelihood,
            apply=lambda p, x: x @ p["w"] + p["b"],
            dtype="float64",
            columns=columns,
        ), r

    return model


TABLES = {
    **{f"formula {f}": with_formula(f) for f in TERMS},
    **{f"{h} {f}": with_table(f, h) for h in ("sklearn", "torch", "jax") for f in TERMS},
}
# Columns alone: an intercept and its unit are not a matter of these tables.
COLUMNS = [
    *ORDERS,
    *NAMES,
    *RESPONSES,
    Change("x 1e-9", (1.0, 1e-9, 1.0)),
    Change("x 1e9, z 1e-6", (1.0, 1e9, 1e-6)),
    Change("both", (1.0, 1e-3, 1e6), 1e4, 3, ("b0", "weight", "x")),
    *FORMS,
]


@functools.cache
def table_of(host, change):
    return TABLES[host](change)


def answer(host, change, name, wrap=lambda question: question, **options):
    def ask(_):
        model, r = table_of(host, change)
        question, unit = question_cases(change)[name]
        found = idm.infer(model, wrap(question), **options)
        return of_estimate(found, 1.0 if unit is None else unit * r)

    return tell(ask, None)


def table_tolerance(host, name, change):
    """That of the host's own fit, of exact derivatives, and of differences for slopes."""
    if not host.startswith("formula"):
        return EXACT
    case, same = table_of(host, change)[0], table_of(host, SAME)[0]
    unit = np.array([1.0, *change.units[1:]]) * table_of(host, change)[1]
    error = idm.infer(same, idm.parameters).standard_error
    return EXACT + float(np.max(abs(np.array(case.theta) / unit - same.theta) / error))


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("host", TABLES)
def test_questions(host, name):
    before, found, first = answer(host, SAME, name), {}, 0
    if host.startswith(COMPILED):  # the design of `changes_of`
        first = list(TABLES).index(host)
    for change in COLUMNS[first % 5 :: 5] if host.startswith(COMPILED) else COLUMNS:
        told = gap(before, answer(host, change, name), table_tolerance(host, name, change))
        if told is not None:
            found[change.name] = told
    assert not found


WRAPS = {
    "list": lambda psi: [psi],
    "tuple": lambda psi: (psi,),
    "dict": lambda psi: {"mine": psi},
}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize(
    "host", ["formula poisson", "sklearn logit", "torch poisson", "jax linear"]
)
def test_a_list_of_one_question_is_the_question(host, name, wrap):
    for options in ({}, {"robust": True}, {"clusters": FIRMS}):
        alone = answer(host, SAME, name, **options)
        assert gap(alone, answer(host, SAME, name, WRAPS[wrap], **options), 1e-12) is None, options


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("host", sorted(CHOSEN))
def test_a_list_of_one_psi_is_the_psi(host, wrap):
    case = built(host, SAME)
    shape = WRAPS[wrap]
    for options in ({}, {"robust": True}, {"clusters": FIRMS}, {"method": idm.FiniteDifference()}):
        ask = lambda psi, o=options: lambda c: of_estimate(idm.infer(c.model, psi, **o), c.psi_unit)
        alone = tell(ask(case.psi), case)
        assert gap(alone, tell(ask(shape(case.psi)), case), 1e-12) is None, options
    ends = lambda psi: lambda c: (np.array([*idm.profile(c.model, psi).interval]), np.ones(2))
    assert gap(tell(ends(case.psi), case), tell(ends(shape(case.psi)), case), 0.0) is None


def forms_of(values):
    """The same numbers in other containers, (n,) or (n, p)."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    table = values.ndim == 2
    names = ["x", "z"]
    return {
        "list": values.tolist(),
        "float32": values.astype(np.float32),
        "Fortran": np.asfortranarray(values),
        "strided": np.repeat(values, 2, axis=0)[::2],
        "read-only": np.frombuffer(values.tobytes()).reshape(values.shape),
        "object": values.astype(object),
        "big-endian": values.astype(">f8"),
        "pandas": pandas.DataFrame(values, columns=names) if table else pandas.Series(values),
        "polars": polars.DataFrame(values, schema=names) if table else polars.Series(values),
        "index": pandas.DataFrame(values, columns=names, index=range(N, 0, -1))
        if table
        else pandas.Series(values, index=range(N, 0, -1)),
        "Float64": (
            pandas.DataFrame(values, columns=names) if table else pandas.Series(values)
        ).astype("Float64"),
    }


FORMS_OF_DATA = {
    "statsmodels": "list float32 Fortran strided read-only big-endian pandas polars index Float64",
    "sklearn": "list float32 Fortran strided object big-endian pandas polars index Float64",
    "torch": "float32 Fortran strided read-only big-endian pandas polars index",
    "jax": "float32 Fortran read-only big-endian pandas polars",
}
# What is no table of numbers for a library; scikit-learn converts everything.
REFUSED_FORMS = {
    "statsmodels": ["object"],
    "torch": ["list", "object", "Float64"],
    "jax": ["list", "object", "Float64"],
}


def model_of(host, D, y):
    """A Poisson regression of data in any container."""
    theta = exact("poisson")
    if host == "sklearn":
        linear_model = pytest.importorskip("sklearn.linear_model")
        fitted = linear_model.PoissonRegressor(alpha=0.0).fit(X[:, 1:], Y["poisson"])
        fitted.intercept_, fitted.coef_ = theta[0], theta[1:]
        return idm.from_sklearn(fitted, D, y)
    if host == "torch":
        torch = pytest.importorskip("torch")
        net = torch.nn.Linear(2, 1).double()
        net.weight.data[:] = torch.as_tensor(theta[1:])
        net.bias.data[:] = float(theta[0])
        return idm.from_torch(net, (D, y), idm.Poisson())
    if host == "jax":
        pytest.importorskip("jax")
        apply = lambda p, x: x @ p[1:] + p[0]
        return idm.from_jax(theta, (D, y), idm.Poisson(), apply=apply, dtype="float64")
    sm = pytest.importorskip("statsmodels.api")
    return idm.from_statsmodels(sm.Poisson(y, sm.add_constant(D)).fit(disp=0))


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize(
    ("host", "form"), [(h, f) for h, forms in FORMS_OF_DATA.items() for f in forms.split()]
)
def test_the_container_of_the_data(host, form):
    plain = model_of(host, X[:, 1:].copy(), Y["poisson"].copy())
    error = idm.infer(plain, idm.parameters).standard_error
    model = model_of(host, forms_of(X[:, 1:].copy())[form], forms_of(Y["poisson"].copy())[form])
    np.testing.assert_allclose(
        np.sort(idm.infer(model, idm.parameters).standard_error), np.sort(error), rtol=1e-7
    )


@pytest.mark.parametrize(
    ("host", "form"), [(h, f) for h, forms in REFUSED_FORMS.items() for f in forms]
)
def test_a_container_that_holds_no_numbers(host, form):
    """The hosts' own words for statsmodels, which reads the data itself."""
    D, y = forms_of(X[:, 1:].copy())[form], forms_of(Y["poisson"].copy())[form]
    with pytest.raises(TypeError, match="isfinite" if host == "statsmodels" else "data contains"):
        model_of(host, D, y)


LABELS = {
    "int": FIRMS,
    "list": FIRMS.tolist(),
    "float": FIRMS * 1.0,
    "str": [f"firm {f}" for f in FIRMS],
    "object": np.array([f"firm {f}" for f in FIRMS], dtype=object),
    "reversed": -FIRMS,
}


@pytest.mark.parametrize("kind", [*LABELS, "category", "polars"])
@pytest.mark.parametrize("host", sorted(CHOSEN))
def test_labels_of_clusters(host, kind):
    case = built(host, SAME)
    labels = LABELS.get(kind)
    if kind == "category":
        labels = pytest.importorskip("pandas").Series(LABELS["str"], dtype="category")
    if kind == "polars":
        labels = pytest.importorskip("polars").Series(LABELS["str"])
    before = tell(infer_with(clusters=FIRMS), case)
    told = tell(lambda c: of_estimate(idm.infer(c.model, c.psi, clusters=labels), c.psi_unit), case)
    assert gap(before, told, 1e-12) is None


@pytest.mark.parametrize("form", ["list", "float32", "int", "pandas", "polars"])
@pytest.mark.parametrize("entry", ["from_loglik", "from_residuals", "from_equations"])
def test_what_functions_return_and_weights_are(entry, form):
    """Terms, starts and weights as lists, tables, whole numbers or in single precision."""
    y = Y["poisson"]

    def as_form(values):
        if form in ("pandas", "polars"):
            return pytest.importorskip(form).Series(np.asarray(values))
        if form == "list":
            return np.asarray(values).tolist()
        kinds = {"float32": np.float32, "int": np.int64}
        return np.asarray(values).astype(kinds[form])

    returned = as_form if form not in ("float32", "int") else np.asarray
    make = getattr(idm, entry)
    terms = {
        "from_loglik": lambda th: y * th[0] - np.exp(th[0]),
        "from_residuals": lambda th: y - np.exp(th[0]),
        "from_equations": lambda th: y - np.exp(th[0]),
    }[entry]
    psi = lambda th: np.exp(th[0])
    plain = idm.infer(make(terms, start=[0.0], weights=COUNTS), psi)
    changed = make(
        lambda th: returned(terms(th)), start=as_form(np.array([0.0])), weights=as_form(COUNTS)
    )
    np.testing.assert_allclose(idm.infer(changed, psi).standard_error, plain.standard_error, 1e-6)


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1.0, 1e9])
def test_functions_that_do_not_undo_each_other_are_refused_in_any_unit(unit):
    est = idm.Estimate(2.0 * unit, [[(0.1 * unit) ** 2]], names=("a",), method="by hand")
    pair = (lambda x: x / unit, lambda z: z * unit)
    low, high = est.confidence_interval(transform=pair)
    np.testing.assert_allclose([low, high], [1.804 * unit, 2.196 * unit], rtol=1e-4)
    for wrong in ((lambda x: x, lambda z: 1.0001 * z), (lambda x: 1.0001 * x / unit, pair[1])):
        with pytest.raises(ValueError, match="do not undo each other"):
            est.confidence_interval(transform=wrong)

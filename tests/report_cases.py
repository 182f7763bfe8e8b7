"""Estimates whose pages differ: few and many evaluations, odd names, sources, diagnostics."""

import math
import warnings

import numpy as np

import implicit_delta as idm
from implicit_delta.estimate import Diagnostics, Estimate
from implicit_delta.estimate.rows import Rows

WEIRD = (
    "<script>alert(1)</script>",
    "\"quoted' & <b>bold</b>",
    "line\nbreak\ttab\x00nul",
    "naïve β̂ ∑ 漢字 😀 \u202eright to left",
    "]]></style></svg><img src=x onerror=alert(1)>",
    "a_name_without_any_space_that_is_far_too_long_for_a_narrow_screen_" * 3,
    "{curly} %s %(x)s \\n $HOME `tick`",
    "\ud800 lone surrogate",
)


def estimate(K, **content):
    rng = np.random.default_rng(K)
    root = rng.normal(size=(K, K + 2))
    value = rng.normal(size=K) if K > 1 else 0.18
    defaults = {"names": [f"effect {k}" for k in range(K)], "method": "Infinitesimal()"}
    return Estimate(value, 0.05 * root @ root.T / K, **(defaults | content))


def with_influence(K=1, n=200):
    rng = np.random.default_rng(1)
    influence = rng.standard_t(3, size=(n, K)) * 0.02
    labels = 1000.0 + np.arange(n)
    return estimate(K, influence=influence, rows=Rows(n, labels=labels))


def with_parts(K=3, errors_add=False):
    parts = {"model": np.eye(K), "evaluation": 3 * np.eye(K), "training": np.zeros((K, K))}
    if errors_add:
        parts = {"model": np.eye(K), "evaluation": 4 * np.eye(K)}
    total = 9 * np.eye(K) if errors_add else 4 * np.eye(K)
    names = [f"share {k}" for k in range(K)]
    return Estimate(np.arange(K) + 1.0, total, names, "by hand", parts=parts, errors_add=errors_add)


def troubled():
    diagnostics = Diagnostics(
        drift=1.7,
        smallest_curvature=-0.3,
        nonlinearity=math.inf,
        bias=0.7,
        asymmetry=0.3,
        residual=math.nan,
        shrinkage=0.4,
        passes=12,
        seconds=1.5,
        notes={
            "monte_carlo_error": 0.5,
            "failed": 3.0,
            "replicates": 200.0,
            "response_difference": "unknown",
            "end_difference": math.nan,
            "near": "S at its <lower> bound",
            "hansen_p_value": 1e-5,
            "lam": "0.1 to 0.3",
            "a <note>": "of & nobody",
        },
        warnings=('The model is not at its maximum: <drift> & "more".',),
    )
    return estimate(
        2, diagnostics=diagnostics, df=[3.0, 8.0], drift=[0.1, -0.2], target="psi & <b>so</b> on"
    )


NUMBERS = (
    *("monte_carlo_error", "nonlinear_share", "failed", "replicates", "most_reached", "lam"),
    *(
        "response_difference",
        "end_difference",
        "statistic_shift",
        "smoothing_change",
        "smoothing_error",
        "hansen_p_value",
    ),
)


def everywhere(x):
    """All diagnostics and notes have this value."""
    fields = ("drift", "smallest_curvature", "nonlinearity", "bias", "asymmetry", "residual")
    notes = dict.fromkeys([*NUMBERS, "flat_directions", "accuracy"], x)
    found = Diagnostics(**dict.fromkeys([*fields, "shrinkage"], x), notes=notes)
    return estimate(1, diagnostics=found)


def drawn():
    rng = np.random.default_rng(0)
    draws = 2.0 + rng.gumbel(size=(500, 1))
    return Estimate(2.0, [[draws.var()]], ("skewed",), "Simulation(draws=500, rng=7)", draws=draws)


def model():
    y = np.random.default_rng(0).poisson(3.0, size=60)
    return idm.from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])


def ratio():
    rng = np.random.default_rng(1)
    x, y = rng.normal(1, 1, 40), rng.normal(0.15, 1, 40)
    terms = lambda th: -((x - th[0]) ** 2) / 2 - (y - th[1]) ** 2 / 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the pole
        return idm.profile(idm.from_loglik(terms, start=[0.0, 0.1]), lambda th: th[0] / th[1])


def compared():
    rate = lambda th: np.exp(th[0])
    methods = {
        "Infinitesimal": idm.Infinitesimal(),
        "half of it": lambda m, psi: _scaled(idm.infer(m, psi), 0.25),
        "three times": lambda m, psi: _scaled(idm.infer(m, psi), 9.0),
        "refuses <this>": _refuse,
        "profile": idm.profile,
    }
    return idm.compare(model(), rate, methods)


def _scaled(est, factor):
    return Estimate(est.value, factor * np.atleast_2d(est.covariance), est.names, "scaled")


def _refuse(model, psi):
    raise idm.ConvergenceError("it did not & would not <converge>")


CASES = {
    "one": lambda: estimate(1),
    "twelve": lambda: estimate(12),
    "thirty": lambda: estimate(30, names=[f"C(region)[T.Number {k}]:age" for k in range(30)]),
    "three hundred": lambda: estimate(300),
    "weird names": lambda: estimate(len(WEIRD), names=WEIRD),
    "one weird name": lambda: estimate(1, names=(WEIRD[0] + WEIRD[5],)),
    "influence": lambda: with_influence(1),
    "influence of several": lambda: with_influence(3),
    "parts": with_parts,
    "parts of many": lambda: with_parts(40),
    "parts that add": lambda: with_parts(errors_add=True),
    "trouble": troubled,
    "all unknown": lambda: everywhere(math.nan),
    "all infinite": lambda: everywhere(math.inf),
    "all zero": lambda: everywhere(0.0),
    "all one": lambda: everywhere(1),
    "draws": drawn,
    "no error": lambda: Estimate(3.0, [[0.0]], ("constant",), "by hand"),
    "huge": lambda: Estimate([1e308, -1e308], np.diag([1e300, 1e290]), ("a", "b"), "by hand"),
    "tiny": lambda: Estimate([1e-300, 2e-12], np.diag([0.0, 1e-26]), ("a", "b"), "by hand"),
    "scales": lambda: Estimate(
        [123456.0, 0.00012, -5e9], np.diag([1e6, 1e-10, 1e16]), ("dollars", "share", "debt"), "x"
    ),
    "comparison": compared,
    "pieces": ratio,
    "profile": lambda: idm.profile(model(), lambda th: np.exp(th[0])),
    "bootstrap": lambda: idm.bootstrap(
        np.mean, np.random.default_rng(0).normal(size=30), lambda mean: mean, rng=0, replicates=50
    ),
}

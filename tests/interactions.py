"""Cells of the table of interactions: model x weights x evaluation x method x sandwich.

`tests/golden/interactions.json` stores the answer to each sampled cell, or the class of the error;
`python tests/interactions.py` writes it again. See `test_interactions.py`.
"""

import functools
import json
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

import implicit_delta as idm

STORED = Path(__file__).parent / "golden" / "interactions.json"
N, M = 60, 25  # training rows, evaluation rows
NAMES = ("b0", "b1", "b2")


class Cell(NamedTuple):
    model: str
    weights: str
    evaluation: str
    method: str
    sandwich: str

    def __str__(self):
        return "|".join(self)


# Data: rows that vary in both regressors, counts and a binary response, clusters and years.
_rng = np.random.default_rng(20)
X = np.column_stack([np.ones(N), _rng.normal(size=N), _rng.uniform(-1, 1, size=N)])
COUNT = _rng.poisson(np.exp(X @ [0.4, 0.5, -0.3])).astype(float)
BINARY = (_rng.random(N) < 1 / (1 + np.exp(-X @ [0.2, 0.9, -0.6]))).astype(float)
LINE = X @ [1.0, 0.7, -0.4] + _rng.normal(scale=0.6, size=N)
FIRM, YEAR = np.repeat(np.arange(10), 6), np.tile(np.arange(6), 10)
NEW = np.column_stack([np.ones(M), _rng.normal(size=M), _rng.uniform(-1, 1, size=M)])
LABEL = (_rng.random(M) < 0.5).astype(float)
FREQUENCY = _rng.integers(1, 4, size=N).astype(float)
PRECISION = _rng.uniform(0.5, 2.0, size=N)
WEIGHTS = {
    "none": {},
    "frequency": {"weights": FREQUENCY, "weight_kind": "frequency"},
    "precision": {"weights": PRECISION, "weight_kind": "precision"},
    "sampling": {"weights": PRECISION, "weight_kind": "sampling"},
}


def poisson_terms(X, y):
    return lambda b: y * (X @ b) - np.exp(X @ b)


def from_terms(rows=slice(None), **extra):
    if "weights" in extra:
        extra["weights"] = extra["weights"][rows]
    if "theta" not in extra:
        extra["start"] = np.zeros(3)
    return idm.from_loglik(poisson_terms(X[rows], COUNT[rows]), names=NAMES, **extra)


def loglik(weights):
    return from_terms(**weights)


def bounded(weights):
    return from_terms(bounds={"b2": (0, None)}, **weights)  # the maximum is below zero


def fixed(weights):
    return from_terms(**weights).fix(b2=-0.2)


def summed(weights):
    return from_terms(slice(0, 40), **weights) + from_terms(slice(40, N), **weights)


def shards(weights):
    theta = loglik(weights).theta

    def build(rows):
        return from_terms(rows, theta=theta, **weights)

    return idm.from_shards(build, [slice(0, 30), slice(30, N)])


def residuals(weights):
    return idm.from_residuals(lambda b: LINE - X @ b, start=np.zeros(3), names=NAMES, **weights)


def equations(weights):
    return idm.from_equations(
        lambda b: (LINE - X @ b)[:, None] * X, start=np.zeros(3), names=NAMES, **weights
    )


def frame():
    import pandas as pd

    columns = {"x1": X[:, 1], "x2": X[:, 2], "count": COUNT, "binary": BINARY, "line": LINE}
    return pd.DataFrame({**columns, "firm": FIRM})


def statsmodels(weights, **fit):
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    kind, values = weights.get("weight_kind", "frequency"), weights.get("weights")
    given = {} if values is None else {"freq_weights": values}
    if kind == "precision":
        given = {"var_weights": values}
    fitted = smf.glm("count ~ x1 + x2", frame(), family=sm.families.Poisson(), **given).fit(**fit)
    return idm.from_statsmodels(fitted, **({} if kind == "precision" else {"weight_kind": kind}))


def statsmodels_hc1(weights):
    return statsmodels(weights, cov_type="HC1")


def statsmodels_clustered(weights):
    return statsmodels(weights, cov_type="cluster", cov_kwds={"groups": FIRM})


def sklearn(weights):
    from sklearn.linear_model import LogisticRegression

    values = weights.get("weights")
    fitted = LogisticRegression(C=1.0, tol=1e-10).fit(frame()[["x1", "x2"]], BINARY, values)
    kind = weights.get("weight_kind", "frequency")
    return idm.from_sklearn(fitted, frame()[["x1", "x2"]], BINARY, values, weight_kind=kind)


def torch_finished(weights):
    import torch

    module = torch.nn.Linear(2, 1).double()
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()
    data = (torch.tensor(X[:, 1:]), torch.tensor(BINARY))
    start = idm.from_torch(module, data, idm.Bernoulli(), l2=0.5, columns=["x1", "x2"], **weights)
    return idm.polish(start)


# Weights of a network of 2, 4 and 1 units before and after 40 steps of Adam, to three digits.
START = {
    "0.weight": [[-0.005, 0.379], [-0.582, -0.52], [-0.272, 0.19], [-0.014, 0.561]],
    "0.bias": [-0.063, 0.187, -0.214, -0.139],
    "2.weight": [[-0.478, -0.331, -0.206, 0.019]],
    "2.bias": [0.198],
}
STOPPED = {
    "0.weight": [[-0.14, 2.387], [-0.81, -2.42], [-0.797, -1.688], [0.458, 1.41]],
    "0.bias": [-1.154, -1.106, -0.685, -0.716],
    "2.weight": [[-1.784, -1.267, -0.46, -0.079]],
    "2.bias": [-1.218],
}


def stopped_module():
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    states = [{k: torch.tensor(v).double() for k, v in s.items()} for s in (STOPPED, START)]
    module.double().load_state_dict(states[0])
    return module, states[1]


def torch_stopped(weights):
    import torch

    module, start = stopped_module()
    data = (torch.tensor(X[:, 1:]), torch.tensor(BINARY))
    return idm.from_torch(
        module, data, idm.Bernoulli(), start=start, columns=["x1", "x2"], **weights
    )


def jax(weights):
    import jax.numpy as jnp

    from_jax = functools.partial(
        idm.from_jax, apply=lambda p, x: x @ p["w"] + p["b"], columns=["x1", "x2"]
    )
    start = {"w": jnp.zeros(2), "b": jnp.zeros(())}
    model = from_jax(start, (X[:, 1:], BINARY), idm.Bernoulli(), l2=0.5, **weights)
    return idm.polish(model)


OWN = (loglik, residuals, equations, bounded, fixed, summed, shards)
HOSTS = (statsmodels, statsmodels_hc1, statsmodels_clustered, sklearn)
MODELS = {f.__name__: f for f in (*OWN, *HOSTS, torch_finished, torch_stopped, jax)}


def logits(kind, fitted, rows):
    """Linear predictor (or logit) of rows (m, 3), in the arithmetic of the model."""
    if kind.startswith("torch"):
        import torch

        return fitted(torch.tensor(rows[:, 1:]))[:, 0]
    if kind == "jax":
        return rows[:, 1:] @ fitted["w"] + fitted["b"]
    if kind == "sklearn":
        return rows[:, 1:] @ fitted.coef_[0] + fitted.intercept_[0]
    return rows @ fitted


def squashed(kind, fitted, rows):
    """A smooth function of the linear predictor, so that no evaluation is linear."""
    eta = logits(kind, fitted, rows)
    return eta + 0.1 * eta**2


def correlation(units, weight):
    w = weight / weight.sum()
    u, y = units - w @ units, LABEL - w @ LABEL
    return (w @ (u * y)) / np.sqrt((w @ u**2) * (w @ y**2))


def random_psi(kind):
    def psi(fitted, rng):
        return squashed(kind, fitted, NEW).mean() + 0.02 * rng.normal()

    return psi


def share_above(kind):
    return lambda fitted: (1.0 * (squashed(kind, fitted, NEW) > 0.3)).mean()


EVALUATIONS = {
    "plain": lambda kind: lambda fitted: squashed(kind, fitted, NEW[:2]),
    "parameters": lambda kind: idm.parameters,
    "Average independent": lambda kind: idm.Average(lambda f: squashed(kind, f, NEW)),
    "Average training": lambda kind: idm.Average(lambda f: squashed(kind, f, X), sample="training"),
    "Average unknown": lambda kind: idm.Average(lambda f: squashed(kind, f, NEW), sample="unknown"),
    "Statistic": lambda kind: idm.Statistic(lambda f: squashed(kind, f, NEW), correlation),
    "Replicated": lambda kind: idm.Replicated(random_psi(kind), repeats=5, rng=0),
    "Smoothed": lambda kind: idm.Smoothed(share_above(kind), width=0.5, draws=100, rng=0),
    "question": lambda kind: idm.average_comparison("x1"),
}


METHODS = {
    "default": lambda: None,
    "ggn": lambda: idm.Infinitesimal(curvature="ggn"),
    "conjugate gradients": lambda: idm.Infinitesimal(solver=idm.conjugate_gradient(rtol=1e-9)),
    "FiniteDifference": lambda: idm.FiniteDifference(),
    "Simulation": lambda: idm.Simulation(100, rng=0),
    "Bootstrap": lambda: idm.Bootstrap(8, rng=0),
    "parametric": lambda: idm.Bootstrap(8, kind="parametric", rng=0),
    "one-step": lambda: idm.Bootstrap(30, kind="one-step", rng=0),
}
SANDWICHES = {
    "none": {},
    **{name: {"robust": name} for name in ("HC0", "HC1", "HC2", "HC3")},
    **{name: {"robust": name, "clusters": FIRM} for name in ("CR0", "CR1", "CR2")},
    "HAC": {"robust": idm.HAC(2)},
    "two-way": {"clusters": (FIRM, YEAR)},
}


@functools.cache
def build(model, weights):
    """Build a model once for all of its cells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return MODELS[model](WEIGHTS[weights])
        except Exception as error:
            return error


def digits(numbers, count=9):
    """Numbers for the table: as many digits as agree between processors, and more."""
    return [float(f"{x:.{count}g}") for x in np.atleast_1d(numbers)]


def answer(cell):
    """Value, standard error and degrees of freedom of a cell, or the class of its error."""
    model = build(cell.model, cell.weights)
    if isinstance(model, Exception):
        return {"error": f"build {type(model).__name__}", "text": str(model)[:120]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            psi, method = EVALUATIONS[cell.evaluation](cell.model), METHODS[cell.method]()
            found = idm.infer(model, psi, method, **SANDWICHES[cell.sandwich])
        except Exception as error:
            return {"error": type(error).__name__, "text": str(error)[:120]}
    return {
        "value": digits(found.value),
        "standard_error": digits(found.standard_error),
        "df": digits(np.unique(found.df)),
        "warnings": sorted({w.category.__name__ for w in caught}),
    }


def sampled(plain=1500, others=1500, seed=0):
    """All cells of the default method without weights; a sample of the rest."""
    rng = np.random.default_rng(seed)
    cells = [
        Cell(m, w, e, how, s)
        for m in MODELS
        for w in WEIGHTS
        for e in EVALUATIONS
        for how in METHODS
        for s in SANDWICHES
    ]
    always = [c for c in cells if c.weights == "none" and c.method == "default"]
    weighted = [c for c in cells if c.weights != "none" and c.method == "default"]
    rest = [c for c in cells if c.method != "default"]
    chosen = [weighted[i] for i in sorted(rng.permutation(len(weighted))[:plain])]
    chosen += [rest[i] for i in sorted(rng.permutation(len(rest))[:others])]
    return always + chosen


def write():
    found = {str(cell): answer(cell) for cell in sampled()}
    lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items())
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write()

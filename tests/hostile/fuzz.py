"""Seeded attacks without end: right, refused or silent. `make fuzz` runs thousands of them.

Each attack is one seed of one kind. Its answer is *right* if the standard error agrees with an
independent one, *refused* or *warned* if an error or a warning says that it is none, and *silent*
otherwise. The kinds of `attacks.py` also tell a *crash* (an error of another library), a *false
refusal* (of what has a right answer) and a *false reason* (of what has none).
"""

import argparse
import contextlib
import io
import sys
import tempfile
import time
import warnings
from collections import Counter
from itertools import count, islice
from pathlib import Path

import numpy as np
import scipy.integrate
import scipy.stats
from scipy import special
from scipy.optimize import linprog

import implicit_delta as idm

if __name__ == "__main__":  # as a script: the folder of the tests, as pytest has it
    sys.path.insert(0, str(Path(__file__).parents[1]))
from hostile import attacks

SHOWN = 10  # attacks of each kind that are printed with their seed
GOOD = ("right", "refused", "warned")
BAD = ("silent", "crash", "false refusal", "false reason")
REFUSALS = (idm.ImplicitDeltaError, ValueError, TypeError)


def outcome(ask, truth, rtol):
    """Compare standard errors (K,) with the truth, which is None where there is none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = np.atleast_1d(ask())
        except REFUSALS:
            return "refused"
    if any(issubclass(w.category, idm.ImplicitDeltaWarning) for w in caught):
        return "refused"
    if truth is None or found.shape != np.shape(truth):
        return "silent"
    return "right" if np.all(abs(found - truth) <= rtol * abs(truth) + 1e-12) else "silent"


# Generalized linear models against the dense observed information X' diag(w) X.

FAMILIES = {
    # mean to y, log-likelihood of y and eta, minus its second derivative in eta, inverse link
    "normal": (
        lambda rng, m: rng.normal(m, 0.7),
        lambda y, e: -((y - e) ** 2) / (2 * 0.49),
        lambda y, e: np.full(e.shape, 1 / 0.49),
        lambda e: e,
    ),
    "logit": (
        lambda rng, m: rng.binomial(1, m) * 1.0,
        lambda y, e: y * e - np.logaddexp(0, e),
        lambda y, e: special.expit(e) * special.expit(-e),
        special.expit,
    ),
    "probit": (
        lambda rng, m: rng.binomial(1, m) * 1.0,
        lambda y, e: special.log_ndtr((2 * y - 1) * e),
        lambda y, e: _probit_weight((2 * y - 1) * e),
        special.ndtr,
    ),
    "poisson": (
        lambda rng, m: rng.poisson(m) * 1.0,
        lambda y, e: y * e - np.exp(e),
        lambda y, e: np.exp(e),
        np.exp,
    ),
    "gamma": (
        lambda rng, m: rng.gamma(3.0, m / 3.0),
        lambda y, e: 3.0 * (-y * np.exp(-e) - e),
        lambda y, e: 3.0 * y * np.exp(-e),
        np.exp,
    ),
    "exponential": (
        lambda rng, m: rng.exponential(m),
        lambda y, e: -e - y * np.exp(-e),
        lambda y, e: y * np.exp(-e),
        np.exp,
    ),
    "negative binomial": (
        lambda rng, m: rng.negative_binomial(2.0, 2.0 / (2.0 + m)) * 1.0,
        lambda y, e: y * e - (y + 2.0) * np.log1p(np.exp(e) / 2.0),
        lambda y, e: np.exp(e) * (1 + y / 2) / (1 + np.exp(e) / 2) ** 2,
        np.exp,
    ),
}


def _probit_weight(z):
    mills = np.exp(-(z**2) / 2 - special.log_ndtr(z)) / np.sqrt(2 * np.pi)
    return mills * (mills + z)


def glm(rng):
    """A generalized linear model of a random family, by its log-likelihood."""
    name = rng.choice(list(FAMILIES))
    draw, loglik, weight, mean = FAMILIES[name]
    n, d = int(rng.integers(30, 250)), int(rng.integers(1, 6))
    units = 10.0 ** rng.integers(-3, 4, size=d)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))]) / units
    beta = rng.normal(size=d) * 0.5 / np.sqrt(d) * units
    y = draw(rng, mean(X @ beta))
    model = idm.from_loglik(lambda b: loglik(y, X @ b), start=np.zeros(d))
    A = X.T @ (weight(y, X @ model.theta)[:, None] * X)
    psi, gradient = _glm_psi(rng, X, mean, model.theta)
    truth = np.sqrt(np.sum(gradient * np.linalg.solve(A, gradient.T).T, axis=1))
    return outcome(lambda: idm.infer(model, psi).standard_error, truth, 1e-5)


def _glm_psi(rng, X, mean, theta):
    """An evaluation, traceable or not, with its exact gradient (K, d)."""
    kind, c = rng.integers(5), rng.normal(size=theta.size) / np.maximum(abs(theta), 1e-3)
    slope = (mean(X @ theta + 1e-5) - mean(X @ theta - 1e-5)) / 2e-5
    average = (slope @ X / len(X))[None]
    if kind == 0:
        return (lambda b: c @ b), c[None]
    if kind == 1:
        return (lambda b: mean(X @ b).mean()), average
    if kind == 2:
        return (lambda b: float(mean(X @ b).mean())), average
    if kind == 3:
        return (lambda b: [c @ b, mean(X @ b).mean()]), np.vstack([c, average])
    return (lambda b: np.array([float(c @ b), 3.0 * float(c @ b)])), np.vstack([c, 3 * c])


# Logits against a linear program that knows whether there is a maximum.


def separated(X, y):
    """Whether some direction separates the classes, completely or not."""
    signed = (2 * y - 1)[:, None] * X
    found = linprog(-signed.sum(axis=0), A_ub=-signed, b_ub=np.zeros(len(y)), bounds=(-1, 1))
    return -found.fun > 1e-9


def logit(rng):
    """A small logit, often separated or nearly so: no maximum, no answer."""
    n, d = int(rng.integers(6, 40)), int(rng.integers(1, 4))
    X = rng.normal(size=(n, d)).round(int(rng.integers(0, 4)))
    X = np.column_stack([np.ones(n), X])
    y = (X @ rng.normal(size=d + 1) * rng.choice([1.0, 3.0, 30.0]) + rng.logistic(size=n) > 0) * 1.0
    if y.min() == y.max() or np.linalg.matrix_rank(X) <= d:
        return None
    none = separated(X, y)

    def ask():
        model = idm.from_loglik(lambda b: special.log_expit((2 * y - 1) * (X @ b)), start=0 * X[0])
        fits.append(model.theta)
        return idm.infer(model, idm.parameters).standard_error

    fits = []
    if none:
        return outcome(ask, None, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(*REFUSALS):
            ask()
    if not fits:
        return "refused"
    p = special.expit(X @ fits[-1])
    truth = np.sqrt(np.diag(np.linalg.inv(X.T @ ((p * (1 - p))[:, None] * X))))
    return outcome(ask, truth, 1e-4)


# Evaluations of wide NumPy and SciPy use against an independent difference quotient.

PIECES = [
    lambda x: np.sin(x).sum(),
    lambda x: np.exp(-(x @ x) / 9),
    lambda x: np.linalg.norm(x),
    lambda x: np.log1p(np.square(x)).mean(),
    lambda x: np.cumsum(x)[-2] * x[0],
    lambda x: np.sort(x)[0] + 2 * np.sort(x)[-1],
    lambda x: np.percentile(x, 40),
    lambda x: np.interp(0.3, [0.0, 1.0], [x[0], x[1]]),
    lambda x: np.where(x > 0, x, 0.1 * x).sum(),
    lambda x: np.clip(x, -5, 5) @ np.arange(x.size),
    lambda x: np.outer(x, x).trace(),
    lambda x: np.linalg.solve(np.eye(x.size) * 3 + np.outer(x, x) / 9, x)[0],
    lambda x: np.linalg.det(np.eye(2) + np.outer(x[:2], x[:2])),
    lambda x: np.einsum("i,i->", x, x[::-1]),
    lambda x: special.gammaln(2 + x**2).sum(),
    lambda x: scipy.stats.norm.cdf(x).mean(),
    lambda x: scipy.stats.norm(loc=x[0], scale=1 + x[1] ** 2).ppf(0.9),
    lambda x: special.logsumexp(x),
    lambda x: special.softmax(x)[0],
    lambda x: float(np.tanh(x[0])) + float(x[-1]) ** 3,
    lambda x: sum(float(v) ** 2 for v in x),
    lambda x: np.ptp(x),
    lambda x: np.polyval(x, 0.5),
    lambda x: scipy.integrate.trapezoid(x**2),
    lambda x: np.convolve(x, [1.0, -2.0, 1.0]).max(),
    lambda x: np.var(x) / (1 + np.mean(x) ** 2),
    lambda x: np.diff(x).sum() - x[-1] * x[0],
    lambda x: max(x[0], x[1]) - min(x[0], x[1]),
    lambda x: np.prod(np.cos(x)),
    lambda x: np.median(x),
    lambda x: np.nan_to_num(x).sum() + np.flip(x)[0],
    lambda x: np.hypot(x[0], x[1]),
    lambda x: np.arctan2(x[0], 2 + x[1] ** 2),
]


def numpy_psi(rng):
    """A psi of a few random pieces, of outputs of very different size, for a normal theta."""
    d = int(rng.integers(3, 7))
    root = rng.normal(size=(d, d)) + 2 * np.eye(d)
    A = root @ root.T * 400
    theta = rng.normal(size=d)
    model = idm.from_loglik(
        lambda b: np.array([-(b - theta) @ A @ (b - theta) / 2]),
        theta,
        score=lambda b: [A @ (theta - b)],
    )
    chosen = [PIECES[i] for i in rng.integers(len(PIECES), size=int(rng.integers(1, 4)))]
    sizes = 10.0 ** rng.integers(-4, 5, size=len(chosen))

    def psi(x):
        return np.array([s * f(x) for s, f in zip(sizes, chosen, strict=True)])

    gradient = _difference(psi, theta)
    if gradient is None:
        return None
    truth = np.sqrt(np.sum(gradient * np.linalg.solve(A, gradient.T).T, axis=1))
    if np.any(truth < 1e-9 * sizes):
        return None  # a stationary point, which is another matter
    single = len(chosen) == 1 and rng.random() < 0.5
    ask = (lambda x: psi(x)[0]) if single else psi
    return outcome(lambda: idm.infer(model, ask).standard_error, truth, 1e-4)


def _difference(psi, theta):
    """Five-point differences at two steps; None where they disagree: there is no derivative."""
    rows = []
    for h in (1e-3, 5e-4):
        columns = [
            (8 * (psi(theta + e) - psi(theta - e)) - psi(theta + 2 * e) + psi(theta - 2 * e))
            / (12 * h)
            for e in h * np.eye(theta.size)
        ]
        rows.append(np.column_stack(columns))
    size = np.max(abs(rows[1]), axis=1, keepdims=True)
    return rows[1] if np.all(abs(rows[0] - rows[1]) <= 1e-7 * size) else None


# Damaged files.


def damaged_file(rng):
    """A saved estimate with a few wrong bytes: a clear error, or the same estimate."""
    est = idm.Estimate(
        rng.normal(size=3), np.diag(rng.random(3) + 0.1), names=("a", "b", "c"), method="fuzz"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "est.npz"
        est.save(path)
        content = bytearray(path.read_bytes())
        for _ in range(int(rng.integers(1, 6))):
            content[int(rng.integers(len(content)))] = int(rng.integers(256))
        if rng.random() < 0.2:
            content = content[: int(rng.integers(len(content)))]
        path.write_bytes(bytes(content))
        try:
            loaded = idm.Estimate.load(path)
        except ValueError:
            return "refused"
    same = np.array_equal(loaded.value, est.value) and np.array_equal(
        loaded.covariance, est.covariance
    )
    return "right" if same else "silent"


OWN = {"glm": glm, "logit": logit, "numpy_psi": numpy_psi, "damaged_file": damaged_file}
KINDS = {**OWN, **attacks.KINDS}


def attack(kind, seed):
    """Class and text of one attack, None where the seed makes none."""
    number = list(KINDS).index(kind)
    rng = np.random.default_rng((number, seed))
    with np.errstate(all="ignore"), contextlib.redirect_stderr(io.StringIO()):
        if kind not in OWN:
            case = KINDS[kind](rng)
            return None if case is None else attacks.verdict(case)
        try:
            found = OWN[kind](rng)
        except Exception as error:
            return "crash", f"{type(error).__name__}: {error}"
        return None if found is None else (found, "")


def attacks_of(kind, first=0):
    """Go through the attacks of a kind: seed, class, text."""
    for seed in count(first):
        found = attack(kind, seed)
        if found is not None:
            yield seed, *found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="time for all kinds together")
    parser.add_argument("--cases", type=int, help="of each kind, instead of a time")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", choices=KINDS, nargs="+", help="some kinds of attacks")
    options = parser.parse_args()
    kinds, total = options.only or list(KINDS), Counter()
    print(f"{'kind':22}" + "".join(f"{name:>14}" for name in (*GOOD, *BAD)))
    for kind in kinds:
        ends, counts = time.monotonic() + options.seconds / len(kinds), Counter()
        for seed, found, text in islice(attacks_of(kind, options.first), options.cases):
            counts[found] += 1
            if found in BAD and sum(counts[name] for name in BAD) <= SHOWN:
                print(f"  {kind} seed {seed}: {found} {text[:300]}")
            if options.cases is None and time.monotonic() > ends:
                break
        total += counts
        print(f"{kind:22}" + "".join(f"{counts[name]:14}" for name in (*GOOD, *BAD)), flush=True)
    print(f"{'all':22}" + "".join(f"{total[name]:14}" for name in (*GOOD, *BAD)))
    raise SystemExit(total["silent"] + total["crash"] > 0)


if __name__ == "__main__":
    main()

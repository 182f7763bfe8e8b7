"""Functions of SciPy that NumPy does not dispatch: distributions and sums of exponentials.

`scipy.stats` and `scipy.special.logsumexp` turn their arguments into arrays of numbers. While
something is traced, and only then, their entry points are replaced by ones that look for a traced
argument first; for all other arguments, of all threads, these do what they did before.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, TypeAlias

import numpy as np
from scipy import special

from implicit_delta.calculus.tracing.traced import Traced, unwrap, value_of

LOG_ROOT = np.log(2 * np.pi) / 2
SAME = 1e-8  # relative, of a density by formula and by SciPy
EVERYWHERE = {"norm", "t", "logistic", "cauchy", "laplace", "gumbel_r", "gumbel_l"}  # no support

_lock = threading.Lock()
_users = [0]  # threads that trace right now


@contextmanager
def dispatched() -> Iterator[None]:
    """Replace the entry points, and put them back when the last thread has left."""
    with _lock:
        _users[0] += 1
        if _users[0] == 1:
            _install()
    try:
        yield
    finally:
        with _lock:
            _users[0] -= 1
            if _users[0] == 0:
                _restore()


def _install() -> None:
    for kind, name, _, own in _methods("scipy.stats" in sys.modules):
        setattr(kind, name, own)
    for name, own in SUMS.items():
        setattr(special, name, own)


def _restore() -> None:
    for kind, name, kept, _ in _methods("scipy.stats" in sys.modules):
        setattr(kind, name, kept)
    for name, kept in KEPT.items():
        setattr(special, name, kept)


@cache
def _methods(known: bool) -> list[tuple[Any, str, Any, Any]]:
    """Classes, names and functions, before and while tracing; none if nobody uses them."""
    if not known:
        return []
    from scipy import stats

    tables = ((stats.rv_continuous, CONTINUOUS), (stats.rv_discrete, DISCRETE))
    entries = []
    for kind, table in tables:
        for name, rules in table.items():
            found = {type(getattr(stats, d)): (d, rule) for d, rule in rules.items()}
            kept = kind.__dict__[name]
            entries.append((kind, name, kept, _method(kept, found)))
    return entries


def _method(kept: Any, rules: dict[type, tuple[str, Callable[..., Any]]]) -> Any:
    """Make the method of a distribution that follows traced arguments."""

    @wraps(kept)
    def method(self: Any, x: Any, *args: Any, **kwds: Any) -> Any:
        x, args = unwrap(x), tuple(map(unwrap, args))
        kwds = {key: unwrap(value) for key, value in kwds.items()}
        if not any(isinstance(a, Traced) for a in (x, *args, *kwds.values())):
            return kept(self, x, *args, **kwds)
        if type(self) not in rules:
            raise TypeError(f"{self.name}.{kept.__name__} is not traced")
        name, rule = rules[type(self)]
        shapes, loc, scale = self._parse_args(*args, **kwds)
        if np.any(np.less_equal(value_of(scale), 0)):
            raise ValueError("a scale must be positive")
        found = rule(x, loc, scale, *shapes)
        if name not in EVERYWHERE:
            plain = {key: value_of(value) for key, value in kwds.items()}
            _compare(found, kept(self, value_of(x), *map(value_of, args), **plain))
        return found

    return method


def _compare(found: Any, plain: Any) -> None:
    """Refuse a density that is not SciPy's: outside of the support that is minus infinity."""
    same = np.isfinite(plain) & (np.abs(value_of(found) - plain) <= SAME * (1 + np.abs(plain)))
    if not np.all(same):
        raise ValueError("a density is not defined here")


Rule: TypeAlias = Callable[..., Any]


def _density(rule: Rule) -> Rule:
    return lambda x, loc, scale, *shapes: rule((x - loc) / scale, *shapes) - np.log(scale)


def _chance(rule: Rule) -> Rule:
    return lambda x, loc, scale, *shapes: rule((x - loc) / scale, *shapes)


def _count(rule: Rule) -> Rule:
    return lambda k, loc, scale, *shapes: rule(k - loc, *shapes)


def _exp(rule: Rule) -> Rule:
    return lambda *arguments: np.exp(rule(*arguments))


def _genextreme(z: Any, c: Any) -> Any:
    inner = np.log1p(-c * z)
    return inner / c - inner - np.exp(inner / c)


def _t(z: Any, df: Any) -> Any:
    constant = special.gammaln((df + 1) / 2) - special.gammaln(df / 2) - np.log(df * np.pi) / 2
    return constant - (df + 1) / 2 * np.log1p(z * z / df)


def _nbinom(k: Any, n: Any, p: Any) -> Any:
    ways = special.gammaln(n + k) - special.gammaln(k + 1) - special.gammaln(n)
    return ways + n * np.log(p) + special.xlog1py(k, -p)


def _binom(k: Any, n: Any, p: Any) -> Any:
    ways = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    return ways + special.xlogy(k, p) + special.xlog1py(n - k, -p)


LOGPDF: dict[str, Rule] = {
    "norm": lambda z: -z * z / 2 - LOG_ROOT,
    "t": _t,
    "gamma": lambda z, a: special.xlogy(a - 1, z) - z - special.gammaln(a),
    "beta": lambda z, a, b: (
        special.xlogy(a - 1, z) + special.xlog1py(b - 1, -z) - special.betaln(a, b)
    ),
    "expon": lambda z: -z,
    "lognorm": lambda z, s: -((np.log(z) / s) ** 2) / 2 - np.log(s * z) - LOG_ROOT,
    "weibull_min": lambda z, c: np.log(c) + special.xlogy(c - 1, z) - z**c,
    "genextreme": _genextreme,
    "gumbel_r": lambda z: -z - np.exp(-z),
    "gumbel_l": lambda z: z - np.exp(z),
    "logistic": lambda z: special.log_expit(z) + special.log_expit(-z),
    "cauchy": lambda z: -np.log(np.pi) - np.log1p(z * z),
    "laplace": lambda z: -np.abs(z) - np.log(2),
    "uniform": lambda z: 0.0 * z,
    "invgamma": lambda z, a: -(a + 1) * np.log(z) - special.gammaln(a) - 1 / z,
    "chi2": lambda z, df: (
        special.xlogy(df / 2 - 1, z) - z / 2 - special.gammaln(df / 2) - df / 2 * np.log(2)
    ),
    "pareto": lambda z, b: np.log(b) - (b + 1) * np.log(z),
    "genpareto": lambda z, c: -(c + 1) / c * np.log1p(c * z),
    "halfnorm": lambda z: -z * z / 2 + np.log(2 / np.pi) / 2,
    "rayleigh": lambda z: np.log(z) - z * z / 2,
    "invgauss": lambda z, mu: (
        -((z / mu - 1) ** 2) / (2 * z) - 1.5 * np.log(z) - LOG_ROOT
    ),
}  # fmt: skip
LOGPMF: dict[str, Rule] = {
    "poisson": lambda k, mu: special.xlogy(k, mu) - special.gammaln(k + 1) - mu,
    "binom": _binom,
    "bernoulli": lambda k, p: special.xlogy(k, p) + special.xlog1py(1 - k, -p),
    "nbinom": _nbinom,
    "geom": lambda k, p: special.xlog1py(k - 1, -p) + np.log(p),
}
LOGSF: dict[str, Rule] = {
    "norm": lambda z: special.log_ndtr(-z),
    "logistic": lambda z: special.log_expit(-z),
    "expon": lambda z: -z,
    "weibull_min": lambda z, c: -(z**c),
    "gumbel_l": lambda z: -np.exp(z),
}
LOGCDF: dict[str, Rule] = {
    "norm": special.log_ndtr,
    "logistic": special.log_expit,
    "expon": lambda z: np.log(-np.expm1(-z)),
    "weibull_min": lambda z, c: np.log(-np.expm1(-(z**c))),
    "gumbel_r": lambda z: -np.exp(-z),
}
CONTINUOUS: dict[str, dict[str, Rule]] = {
    "logpdf": {name: _density(rule) for name, rule in LOGPDF.items()},
    "pdf": {name: _exp(_density(rule)) for name, rule in LOGPDF.items()},
    "logsf": {name: _chance(rule) for name, rule in LOGSF.items()},
    "sf": {name: _exp(_chance(rule)) for name, rule in LOGSF.items()},
    "logcdf": {name: _chance(rule) for name, rule in LOGCDF.items()},
    "cdf": {name: _exp(_chance(rule)) for name, rule in LOGCDF.items()},
}
DISCRETE: dict[str, dict[str, Rule]] = {
    "logpmf": {name: _count(rule) for name, rule in LOGPMF.items()},
    "pmf": {name: _exp(_count(rule)) for name, rule in LOGPMF.items()},
}


def _logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """Add exponentials, shifted by their largest."""
    a, b = unwrap(a), unwrap(b)
    if not isinstance(a, Traced) and not isinstance(b, Traced):
        return KEPT["logsumexp"](a, axis=axis, b=b, keepdims=keepdims, return_sign=return_sign)
    if b is not None or return_sign:
        raise TypeError("signs and factors of logsumexp are not traced")
    top = value_of(a).max(axis=axis, keepdims=True)
    total = np.log(np.sum(np.exp(a - top), axis, keepdims=keepdims))
    return total + (top if keepdims else np.squeeze(top, axis))


def _softmax(x: Any, axis: Any = None) -> Any:
    """Exponentials over their sum."""
    x = unwrap(x)
    if not isinstance(x, Traced):
        return KEPT["softmax"](x, axis=axis)
    return np.exp(x - _logsumexp(x, axis, keepdims=True))


def _log_softmax(x: Any, axis: Any = None) -> Any:
    """Logarithm of the softmax."""
    x = unwrap(x)
    if not isinstance(x, Traced):
        return KEPT["log_softmax"](x, axis=axis)
    return x - _logsumexp(x, axis, keepdims=True)


# Found by those who write `special.logsumexp`; a name that was imported by itself keeps SciPy's
# function, which does not take what is traced, and is differenced.
SUMS = {"logsumexp": _logsumexp, "softmax": _softmax, "log_softmax": _log_softmax}
KEPT = {name: getattr(special, name) for name in SUMS}

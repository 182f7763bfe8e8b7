"""Partial derivatives of NumPy's and SciPy's elementwise functions."""

from typing import Any

import numpy as np
from scipy import special

from implicit_delta.calculus.tracing.traced import PARTIALS, PLAIN, Traced, depending_on, scaled

ROOT = np.sqrt(2 * np.pi)


def _polygamma(order: int, x: Any) -> Any:
    """Derivatives of digamma, which are no ufuncs."""
    if not isinstance(x, Traced):
        return special.polygamma(order, x)
    value, slope = (special.polygamma(k, x.node.value) for k in (order, order + 1))
    return depending_on(value, (x,), (scaled(slope, x, value.shape),))


# For y = ufunc(x, ...): the partial derivative in each argument, as a function of (y, x, ...).
PARTIALS.update(
    {
        np.positive: (lambda y, x: 1,),
        np.negative: (lambda y, x: -1,),
        np.add: (lambda y, a, b: 1, lambda y, a, b: 1),
        np.subtract: (lambda y, a, b: 1, lambda y, a, b: -1),
        np.multiply: (lambda y, a, b: b, lambda y, a, b: a),
        np.divide: (lambda y, a, b: 1.0 / b, lambda y, a, b: -y / b),
        np.float_power: (
            lambda y, a, b: b * np.power(a, b - 1.0),
            lambda y, a, b: y * np.log(a),
        ),
        np.power: (lambda y, a, b: b * np.power(a, b - 1.0), lambda y, a, b: y * np.log(a)),
        np.maximum: (lambda y, a, b: (a >= b) * 1.0, lambda y, a, b: (a < b) * 1.0),
        np.minimum: (lambda y, a, b: (a <= b) * 1.0, lambda y, a, b: (a > b) * 1.0),
        np.logaddexp: (lambda y, a, b: np.exp(a - y), lambda y, a, b: np.exp(b - y)),
        np.square: (lambda y, x: 2.0 * x,),
        np.sqrt: (lambda y, x: 0.5 / y,),
        np.reciprocal: (lambda y, x: -y * y,),
        np.absolute: (lambda y, x: np.sign(x),),
        np.exp: (lambda y, x: y,),
        np.exp2: (lambda y, x: y * np.log(2.0),),
        np.expm1: (lambda y, x: y + 1.0,),
        np.log: (lambda y, x: 1.0 / x,),
        np.log2: (lambda y, x: 1.0 / (x * np.log(2.0)),),
        np.log10: (lambda y, x: 1.0 / (x * np.log(10.0)),),
        np.log1p: (lambda y, x: 1.0 / (1.0 + x),),
        np.sin: (lambda y, x: np.cos(x),),
        np.cos: (lambda y, x: -np.sin(x),),
        np.tan: (lambda y, x: 1.0 + y * y,),
        np.arcsin: (lambda y, x: 1.0 / np.sqrt(1.0 - x * x),),
        np.arccos: (lambda y, x: -1.0 / np.sqrt(1.0 - x * x),),
        np.arctan: (lambda y, x: 1.0 / (1.0 + x * x),),
        np.sinh: (lambda y, x: np.cosh(x),),
        np.cosh: (lambda y, x: np.sinh(x),),
        np.tanh: (lambda y, x: 1.0 - y * y,),
        np.arcsinh: (lambda y, x: 1.0 / np.sqrt(1.0 + x * x),),
        np.arctanh: (lambda y, x: 1.0 / (1.0 - x * x),),
        np.arctan2: (lambda y, a, b: b / (a * a + b * b), lambda y, a, b: -a / (a * a + b * b)),
        np.hypot: (lambda y, a, b: a / y, lambda y, a, b: b / y),
        np.cbrt: (lambda y, x: 1.0 / (3.0 * y * y),),
        special.expit: (lambda y, x: y * (1.0 - y),),
        special.log_expit: (lambda y, x: special.expit(-x),),
        special.logit: (lambda y, x: 1.0 / (x * (1.0 - x)),),
        special.ndtr: (lambda y, x: np.exp(-0.5 * x * x) / ROOT,),
        special.log_ndtr: (lambda y, x: np.exp(-0.5 * x * x - y) / ROOT,),
        special.ndtri: (lambda y, x: ROOT * np.exp(0.5 * y * y),),
        special.erf: (lambda y, x: 2.0 / np.sqrt(np.pi) * np.exp(-x * x),),
        special.erfc: (lambda y, x: -2.0 / np.sqrt(np.pi) * np.exp(-x * x),),
        special.gammaln: (lambda y, x: special.digamma(x),),
        special.loggamma: (lambda y, x: special.digamma(x),),
        special.digamma: (lambda y, x: _polygamma(1, x),),
        special.betaln: (
            lambda y, a, b: special.digamma(a) - special.digamma(a + b),
            lambda y, a, b: special.digamma(b) - special.digamma(a + b),
        ),
        special.xlog1py: (lambda y, a, b: np.log1p(b), lambda y, a, b: a / (1.0 + b)),
        special.entr: (lambda y, x: -np.log(x) - 1.0,),
        special.exprel: (lambda y, x: (np.exp(x) - y) / x,),
        special.i1e: (lambda y, x: special.i0e(x) - y / x - np.sign(x) * y,),
        special.i0e: (lambda y, x: special.i1e(x) - np.sign(x) * y,),
        special.xlogy: (lambda y, a, b: np.log(b), lambda y, a, b: a / b),
    }
)

# Piecewise constant: applied to plain numbers, with plain results.
PLAIN.update(
    {
        np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal,
        np.isfinite, np.isnan, np.isinf, np.sign, np.floor, np.ceil, np.rint, np.trunc,
    }
)  # fmt: skip

"""From a model's outputs to log-likelihood terms: Gaussian, Bernoulli, Categorical, Poisson.

One implementation serves NumPy, torch and JAX: operations dispatch on the array library of the
outputs, so they can be differentiated there. Outputs are (n, ...), one row per observation.

>>> import numpy as np
>>> Bernoulli().terms(np.array([0.0, 2.0]), np.array([1, 1])).round(4)
array([-0.6931, -0.1269])
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from implicit_delta.errors import UnsupportedModelError

Product: TypeAlias = Callable[[Any], Any]

TINY = 1e-150  # standard deviation of a target that is certain to rounding

__all__ = ["Bernoulli", "Categorical", "Gaussian", "Likelihood", "Poisson"]


class Likelihood(ABC):
    r"""A density of the targets given the outputs f of a model, with a canonical link.

    Then minus the second derivative at the outputs, :math:`H_i = -\partial^2 \ell_i / \partial
    f_i^2`, does not depend on the target and is never negative: with J the derivative of the
    outputs, :math:`\sum_i J_i' H_i J_i` is the generalized Gauss-Newton matrix.
    """

    @abstractmethod
    def terms(self, outputs: Any, targets: Any) -> Any:
        """Log-likelihood of each observation, (n,), summed over all that belongs to it."""

    @abstractmethod
    def slope(self, outputs: Any, targets: Any) -> Any:
        """Derivative of the terms in the outputs, in the shape of the outputs."""

    @abstractmethod
    def curvature(self, outputs: Any) -> Product:
        """The function u to H u; u has the shape of the outputs, or leading axes before it."""

    @abstractmethod
    def root(self, outputs: Any) -> Product:
        """The function u to S' u, likewise, for a root S of the curvature: S S' = H."""

    @abstractmethod
    def residual(self, outputs: Any, targets: Any) -> Any:
        """The whitened residual e with S e the slope, in the shape of the outputs."""

    def mean(self, outputs: Any) -> Any:
        """Mean of the targets given the outputs; probabilities of classes."""
        raise TypeError(f"{type(self).__name__} does not tell the mean of its targets.")

    def mass(self, outputs: Any, targets: Any) -> Any:
        """Factor of the curvature, by which a target counts; of `root` it is the square root.

        It broadcasts to the outputs; of an ordinary density it is one.
        """
        return 1.0

    @property
    def pseudo(self) -> str:
        """Options with which the terms are no log-densities, for a warning; none usually."""
        return ""

    @abstractmethod
    def spread(self, outputs: Any) -> Any:
        """Standard deviations of the targets given the outputs, up to a factor; 1 if joint."""

    @abstractmethod
    def check(self, outputs: Any, targets: Any) -> None:
        """Explain with a ValueError why these outputs and targets do not fit together."""

    def draw(self, outputs: Any, rng: np.random.Generator, counts: Any = 1.0) -> Any:
        """Draw targets given outputs, in NumPy.

        A row that counts several times, in (n,) counts, gets the mean of that many draws, whose
        term times the count has the derivatives of the sum of theirs. A likelihood need not have
        it; `Bootstrap(kind="parametric")` does.
        """
        raise UnsupportedModelError(
            f"{type(self).__name__} has no `draw(outputs, rng, counts)`, so new targets cannot be "
            'drawn from it. Define it, or use `Bootstrap(kind="resample")`.'
        )

    def redraw(self, outputs: Any, targets: Any, rng: np.random.Generator, counts: Any) -> Any:
        """Draw new targets in the shape of those that are there, if they have as many numbers."""
        drawn = self.draw(outputs, rng, counts)
        return drawn.reshape(np.shape(targets)) if drawn.size == np.size(targets) else drawn


class _Elementwise(Likelihood):
    """One target for each output; the terms of a row are summed over its outputs."""

    def terms(self, outputs: Any, targets: Any) -> Any:
        return _by_row(self._terms(*_aligned(outputs, targets)))

    def slope(self, outputs: Any, targets: Any) -> Any:
        return self._slope(*_aligned(outputs, targets)).reshape(outputs.shape)

    def curvature(self, outputs: Any) -> Product:
        bend = self._bend(outputs)
        return lambda u: bend * u

    def root(self, outputs: Any) -> Product:
        root = self._bend(outputs) ** 0.5
        return lambda u: root * u

    def residual(self, outputs: Any, targets: Any) -> Any:
        return self.slope(outputs, targets) / (self.spread(outputs) + TINY)

    def spread(self, outputs: Any) -> Any:
        return self.root(outputs)(outputs * 0 + 1)  # of a canonical link the curvature is it

    def check(self, outputs: Any, targets: Any) -> None:
        if np.size(outputs) != np.size(targets) or np.shape(outputs)[:1] != np.shape(targets)[:1]:
            raise ValueError(
                f"{type(self).__name__}() needs as many outputs as targets, but the outputs have "
                f"shape {np.shape(outputs)} and the targets {np.shape(targets)}. A second output, "
                "such as a variance, needs a loglik function of your own."
            )
        self._check_targets(targets)

    def draw(self, outputs: Any, rng: np.random.Generator, counts: Any = 1.0) -> Any:
        f, often = np.asarray(outputs, dtype=np.float64), as_counts(counts)
        return self._draw(f, rng, often.reshape(-1, *[1] * (f.ndim - 1)))

    @abstractmethod
    def _draw(self, f: Any, rng: np.random.Generator, counts: Any) -> Any:
        """Mean of as many draws for each output."""

    @abstractmethod
    def _terms(self, f: Any, y: Any) -> Any:
        """Log-density of each target."""

    @abstractmethod
    def _slope(self, f: Any, y: Any) -> Any:
        """Its derivative in f."""

    @abstractmethod
    def _bend(self, f: Any) -> Any:
        """Minus its second derivative."""

    @abstractmethod
    def _check_targets(self, targets: Any) -> None:
        """Refuse targets that the density does not cover."""


@dataclass(frozen=True)
class Gaussian(_Elementwise):
    r"""Outputs are means: :math:`\ell = -(y - f)^2 / 2 s^2`, summed over several outputs.

    Parameters
    ----------
    variance : {"unbiased", "mle"} or float, optional
        The noise variance :math:`s^2`: the sum of squared residuals at the optimum over their
        number less the effective number of parameters; their mean; or a known number. By default
        "unbiased" without a penalty and "mle" (the paper's remark) with one. It is plugged in,
        which changes nothing to first order, since it is orthogonal to the parameters; intervals
        take Student's t for its degrees of freedom. While it is open, terms and derivatives take
        it to be 1.

    Examples
    --------
    >>> Gaussian(variance=4.0).terms(np.array([1.0, 2.0]), np.array([3.0, 2.0]))
    array([-0.5, -0. ])
    """

    variance: Literal["mle", "unbiased"] | float | None = None

    def __post_init__(self) -> None:
        if self.variance is None:
            return
        if not isinstance(self.variance, str):
            object.__setattr__(self, "variance", float(self.variance))
            if np.isfinite(self.variance) and self.variance > 0:
                return
        elif self.variance in ("mle", "unbiased"):
            return
        raise ValueError(
            f'variance must be "mle", "unbiased" or a positive number, not {self.variance!r}.'
        )

    @property
    def noise(self) -> float:
        """The variance, or 1 while it is open."""
        return self.variance if isinstance(self.variance, float) else 1.0

    def _terms(self, f: Any, y: Any) -> Any:
        return -((f - y) ** 2) / (2 * self.noise)

    def _slope(self, f: Any, y: Any) -> Any:
        return (y - f) / self.noise

    def _bend(self, f: Any) -> Any:
        return 1 / self.noise

    def mean(self, outputs: Any) -> Any:
        return outputs

    def _draw(self, f: Any, rng: np.random.Generator, counts: Any) -> Any:
        return f + np.sqrt(self.noise / counts) * rng.normal(size=f.shape)

    def _check_targets(self, targets: Any) -> None:
        if not np.all(np.isfinite(targets)):
            raise ValueError("Some targets are NaN or infinite: leave out rows without a target.")


@dataclass(frozen=True)
class Bernoulli(_Elementwise):
    r"""Outputs are logits, targets 0 or 1: :math:`\ell = y f - \log(1 + e^f)`.

    Targets between 0 and 1 are taken as soft labels. Several outputs of one row are summed. No
    logit overflows.
    """

    def _terms(self, f: Any, y: Any) -> Any:
        return y * f - _functions(f).softplus(f)

    def _slope(self, f: Any, y: Any) -> Any:
        return y - _functions(f).sigmoid(f)

    def _bend(self, f: Any) -> Any:
        p = _functions(f).sigmoid(f)
        return p * (1 - p)

    def mean(self, outputs: Any) -> Any:
        return _functions(outputs).sigmoid(outputs)

    def _draw(self, f: Any, rng: np.random.Generator, counts: Any) -> Any:
        often = np.broadcast_to(whole(counts), f.shape)
        return rng.binomial(often, _functions(f).sigmoid(f)) / often

    def _check_targets(self, targets: Any) -> None:
        _check_range(targets, 0, 1, "Bernoulli() needs targets 0 or 1")


@dataclass(frozen=True)
class Poisson(_Elementwise):
    r"""Outputs are logarithms of rates, targets counts: :math:`\ell = y f - e^f - \log y!`."""

    def _terms(self, f: Any, y: Any) -> Any:
        xp = _functions(f)
        return y * f - xp.exp(f) - xp.gammaln(y + 1.0)

    def _slope(self, f: Any, y: Any) -> Any:
        return y - _functions(f).exp(f)

    def _bend(self, f: Any) -> Any:
        return _functions(f).exp(f)

    def mean(self, outputs: Any) -> Any:
        return _functions(outputs).exp(outputs)

    def _draw(self, f: Any, rng: np.random.Generator, counts: Any) -> Any:
        return rng.poisson(counts * np.exp(f)) / counts

    def _check_targets(self, targets: Any) -> None:
        _check_range(targets, 0, np.inf, "Poisson() needs counts")


@dataclass(frozen=True, repr=False)
class Categorical(Likelihood):
    r"""Outputs are logits, (n, C); targets are class numbers, (n,): log-softmax at the target.

    With logits (n, T, C) and targets (n, T) the T terms of a row are summed. Targets that have
    the shape of the logits are taken as probabilities (soft labels). The options are those of
    `torch.nn.functional.cross_entropy`: with q the labels that they make of a target, its term is
    :math:`\sum_c q_c \log p_c`.

    Parameters
    ----------
    ignore_index : int, optional
        Targets with this number do not count, such as -100 for padded tokens.
    label_smoothing : float
        The share of a label that is spread evenly over all classes, at least 0 and below 1.
    class_weights : (C,) sequence of float, optional
        How much the classes count. With these or smoothed labels the terms are no log-densities:
        `robust=True` gives standard errors that allow for it, and others come with a warning.

    Examples
    --------
    >>> Categorical().terms(np.log([[1.0, 2.0, 1.0]]), np.array([1])).round(4)
    array([-0.6931])
    >>> Categorical(ignore_index=-100).terms(np.zeros((1, 2, 4)), np.array([[3, -100]])).round(4)
    array([-1.3863])
    """

    ignore_index: int | None = None
    label_smoothing: float = 0.0
    class_weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(
                f"label_smoothing must be at least 0 and below 1, not {self.label_smoothing!r}."
            )
        if self.ignore_index is not None and int(self.ignore_index) != self.ignore_index:
            raise ValueError(f"ignore_index must be an integer, not {self.ignore_index!r}.")
        if self.class_weights is None:
            return
        weights = tuple(float(w) for w in self.class_weights)
        if not weights or not all(0 < w < np.inf for w in weights):
            raise ValueError(
                f"class_weights must be positive numbers, one per class, not {weights!r:.60}. "
                "A class that does not count is `ignore_index=`."
            )
        object.__setattr__(self, "class_weights", weights)

    @property
    def pseudo(self) -> str:
        """Class weights that are not all one, and smoothed labels."""
        weighted = set(self.class_weights or (1.0,)) != {1.0}
        given = {"class_weights": weighted, "label_smoothing": self.label_smoothing > 0}
        return " and ".join(f"`{name}=`" for name, used in given.items() if used)

    def terms(self, outputs: Any, targets: Any) -> Any:
        """Logit of the target less the log of the sum of all exponentials."""
        xp = _functions(outputs)
        if self._blended(outputs, targets):
            labels = self._labels(outputs, targets)
            chosen = (labels * outputs).sum(-1)
            return _by_row(chosen - labels.sum(-1) * xp.logsumexp(outputs, -1))
        kept = self._kept(targets)
        classes = targets if kept is None else xp.where(kept, targets, 0)
        chosen = xp.take(outputs, classes[..., None], -1)[..., 0] - xp.logsumexp(outputs, -1)
        return _by_row(chosen if kept is None else xp.where(kept, chosen, 0.0))

    def mean(self, outputs: Any) -> Any:
        """Probabilities of the classes."""
        return _functions(outputs).softmax(outputs, -1)

    def slope(self, outputs: Any, targets: Any) -> Any:
        """Labels, of mass m, less m times the probabilities p."""
        p = _functions(outputs).softmax(outputs, -1)
        return self._labels(outputs, targets) - self.mass(outputs, targets) * p

    def mass(self, outputs: Any, targets: Any) -> Any:
        """Sum of the labels: zero where the target is ignored, else mostly the class weight."""
        if not self._blended(outputs, targets) and self.ignore_index is None:
            return 1.0
        return self._labels(outputs, targets).sum(-1)[..., None]

    def curvature(self, outputs: Any) -> Product:
        r""":math:`(\mathrm{diag}(p) - p p') u`."""
        p = _functions(outputs).softmax(outputs, -1)
        return lambda u: p * (u - (p * u).sum(-1)[..., None])

    def root(self, outputs: Any) -> Product:
        r""":math:`(\mathrm{diag}(s) - s p') u` with s the square root of p."""
        p = _functions(outputs).softmax(outputs, -1)
        return lambda u: p**0.5 * (u - (p * u).sum(-1)[..., None])

    def draw(self, outputs: Any, rng: np.random.Generator, counts: Any = 1.0) -> Any:
        """Draw class numbers, or shares of the classes where rows count several times.

        From the frequencies of which p is the fit: class weights and smoothing are taken out.
        """
        p = _functions(np.zeros(0)).softmax(np.asarray(outputs, dtype=np.float64), -1)
        if self.pseudo:
            p = p / np.asarray(self.class_weights or 1.0)
            p = p / p.sum(-1, keepdims=True) - self.label_smoothing / p.shape[-1]
            p = np.maximum(p, 0.0) / np.maximum(p, 0.0).sum(-1, keepdims=True)
        often = whole(as_counts(counts))
        often = np.broadcast_to(often.reshape(-1, *[1] * (p.ndim - 2)), p.shape[:-1])
        drawn = rng.multinomial(often, p)
        return np.argmax(drawn, axis=-1) if np.all(often == 1) else drawn / often[..., None]

    def redraw(self, outputs: Any, targets: Any, rng: np.random.Generator, counts: Any) -> Any:
        """Draw new targets; those that are ignored remain so."""
        drawn, kept = super().redraw(outputs, targets, rng, counts), self._kept(targets)
        if kept is None or np.ndim(targets) == np.ndim(outputs):
            return drawn
        if drawn.ndim > kept.ndim:
            return np.where(kept[..., None], drawn, 0.0)
        return np.where(kept, drawn, self.ignore_index)

    def residual(self, outputs: Any, targets: Any) -> Any:
        """Slope over the square root of m p: as the slopes sum to zero, it solves S e = slope."""
        p = _functions(outputs).softmax(outputs, -1)
        return self.slope(outputs, targets) / ((self.mass(outputs, targets) * p) ** 0.5 + TINY)

    def spread(self, outputs: Any) -> Any:
        """One: the classes of a row vary together."""
        return outputs * 0 + 1

    def check(self, outputs: Any, targets: Any) -> None:
        """The targets must be class numbers from 0 to C - 1, or probabilities."""
        shape, classes = np.shape(outputs), np.shape(outputs)[-1]
        if np.ndim(outputs) < 2 or classes < 2:
            raise ValueError(
                f"Categorical() needs logits of shape (n, C) with C > 1 classes, not {shape}. For "
                "one logit per row use Bernoulli()."
            )
        if self.class_weights is not None and len(self.class_weights) != classes:
            raise ValueError(
                f"There are {len(self.class_weights)} class_weights for {classes} classes."
            )
        if np.shape(targets) == shape and np.asarray(targets).dtype.kind == "f":
            return _check_range(targets, 0, 1, "Soft labels are probabilities")
        if np.shape(targets) != shape[:-1]:
            raise ValueError(
                f"Categorical() has logits {shape}, so the targets must have shape {shape[:-1]}, "
                f"not {np.shape(targets)}. The classes are on the last axis."
            )
        if np.asarray(targets).dtype.kind not in "iu":
            raise ValueError(
                "Categorical() needs class numbers of an integer type, not "
                f"{np.asarray(targets).dtype}: convert them, for example with `.long()`."
            )
        advice = "Those without a class are left out by their number, `ignore_index=-100`."
        kept = self._kept(np.asarray(targets))
        counted = targets if kept is None else np.asarray(targets)[kept]
        _check_range(counted, 0, classes - 1, f"There are {classes} logits", advice)

    def _blended(self, outputs: Any, targets: Any) -> bool:
        """Whether a label is more than one class number."""
        weighted = self.class_weights is not None or self.label_smoothing > 0
        return weighted or targets.ndim == outputs.ndim

    def _kept(self, targets: Any) -> Any:
        """Mask of the class numbers that count; None for all."""
        return None if self.ignore_index is None else targets != self.ignore_index

    def _labels(self, outputs: Any, targets: Any) -> Any:
        """Labels q in the shape of the outputs: ones at the targets, smoothed and weighted."""
        xp = _functions(outputs)
        if targets.ndim == outputs.ndim:
            labels = xp.cast(targets, outputs.dtype)
        else:
            kept, ones = self._kept(targets), targets[..., None] == xp.classes(outputs)
            labels = xp.cast(ones if kept is None else ones & kept[..., None], outputs.dtype)
        if self.label_smoothing:
            even = labels.sum(-1)[..., None] / outputs.shape[-1]
            labels = (1 - self.label_smoothing) * labels + self.label_smoothing * even
        if self.class_weights is None:
            return labels
        return labels * xp.constants(self.class_weights, outputs)

    def __repr__(self) -> str:
        """Show the options that are not left at their default, in a few words."""
        given = ((option, getattr(self, option.name)) for option in fields(self))
        shown = [f"{option.name}={v!r:.40}" for option, v in given if v != option.default]
        return f"Categorical({', '.join(shown)})"


def as_counts(counts: Any) -> Any:
    """Make counts an array, with one draw for rows that do not count."""
    often = np.atleast_1d(np.asarray(counts, dtype=np.float64))
    return np.where(often > 0, often, 1.0)


def whole(counts: Any) -> Any:
    """Return counts as integers, if they are."""
    often = np.rint(counts).astype(np.int64)
    if not np.allclose(often, counts, rtol=1e-9, atol=0.0):
        raise UnsupportedModelError(
            "Weights that are no whole numbers are no number of draws from a discrete "
            'distribution. Use `Bootstrap(kind="resample")`, or weights that count repetitions.'
        )
    return often


def _aligned(outputs: Any, targets: Any) -> tuple[Any, Any]:
    """Give outputs (n, 1) the shape of targets (n,): broadcasting would make it (n, n)."""
    targets = _functions(outputs).cast(targets, outputs.dtype)
    return outputs if outputs.shape == targets.shape else outputs.reshape(targets.shape), targets


def _by_row(values: Any) -> Any:
    return values if values.ndim == 1 else values.reshape(values.shape[0], -1).sum(-1)


def _check_range(targets: Any, low: float, high: float, what: str, advice: str = "") -> None:
    values = np.asarray(targets)
    if not np.all((values >= low) & (values <= high)):  # also refuses NaN
        raise ValueError(
            f"{what}, but the targets range from {values.min()} to {values.max()}. {advice}".strip()
        )


@dataclass(frozen=True)
class _Functions:
    """Functions that array libraries name differently, or that need care to be stable."""

    cast: Callable[[Any, Any], Any]
    exp: Callable[[Any], Any]
    gammaln: Callable[[Any], Any]
    sigmoid: Callable[[Any], Any]
    softplus: Callable[[Any], Any]
    softmax: Callable[[Any, int], Any]
    logsumexp: Callable[[Any, int], Any]
    take: Callable[[Any, Any, int], Any]
    classes: Callable[[Any], Any]
    where: Callable[[Any, Any, Any], Any]
    constants: Callable[[Any, Any], Any]  # numbers in the type and place of an array


def _functions(array: Any) -> _Functions:
    """Dispatch on the library of an array."""
    if isinstance(array, np.ndarray):
        return _numpy_functions()
    torch = type(array).__module__.partition(".")[0] == "torch"
    return _torch_functions() if torch else _jax_functions()


@lru_cache
def _numpy_functions() -> _Functions:
    from scipy import special

    # in a fifth of the time of logaddexp
    softplus = lambda x: np.maximum(x, 0) + np.log1p(np.exp(-abs(x)))  # noqa: E731
    return _with_names_of(np, special, special.softmax, softplus)


@lru_cache
def _jax_functions() -> _Functions:
    import jax

    return _with_names_of(jax.numpy, jax.scipy.special, jax.nn.softmax, jax.nn.softplus)


def _with_names_of(xp: Any, special: Any, softmax: Any, softplus: Any) -> _Functions:
    return _Functions(
        cast=xp.asarray,
        exp=xp.exp,
        gammaln=special.gammaln,
        sigmoid=special.expit,
        softplus=softplus,
        softmax=softmax,
        logsumexp=special.logsumexp,
        take=xp.take_along_axis,
        classes=lambda x: xp.arange(x.shape[-1]),
        where=xp.where,
        constants=lambda numbers, x: xp.asarray(numbers, dtype=x.dtype),
    )


@lru_cache
def _torch_functions() -> _Functions:
    import torch

    return _Functions(
        cast=lambda x, dtype: x.to(dtype),
        exp=torch.exp,
        gammaln=torch.lgamma,
        sigmoid=torch.sigmoid,
        # logaddexp has a NaN second derivative at large logits; the threshold is where
        # exp(-x) is lost in float64.
        softplus=lambda x: torch.nn.functional.softplus(x, threshold=37.0),
        softmax=torch.softmax,
        logsumexp=torch.logsumexp,
        take=lambda x, index, axis: torch.take_along_dim(x, index.long(), axis),
        classes=lambda x: torch.arange(x.shape[-1], device=x.device),
        where=torch.where,
        constants=lambda numbers, x: torch.tensor(numbers, dtype=x.dtype, device=x.device),
    )

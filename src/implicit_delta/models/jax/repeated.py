"""Evaluations that are asked for again and again are compiled."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from implicit_delta._core.types import Array, Psi

COMPILED_FROM = 10  # calls: compiling takes about as long as ten of them
KEPT = 4  # evaluations
SAME = 1e-3  # relative: compiled, rounding differs; an evaluation that has changed differs by more


@dataclass(eq=False)
class Repeated:
    """One way to run psi, and its compiled form for those called often.

    Compiled code knows what psi did when it was traced: not what it reads from outside by now. So
    calls at the fitted parameters, where every inference begins, run psi itself, and forget what
    was compiled if it returns something else. A psi that cannot be traced is never compiled.

    Attributes
    ----------
    run : callable
        Psi and theta (d,) to NumPy; psi may do anything.
    trace : callable
        Psi and a flat JAX array to an array, to be compiled.
    """

    run: Callable[[Psi, Array], Any]
    trace: Callable[[Psi, jax.Array], jax.Array]
    _known: dict[Psi, "_Known"] = field(init=False, default_factory=dict, repr=False)

    def __call__(self, psi: Psi, theta: Array, flat: jax.Array, fitted: bool) -> Any:
        """Psi at theta, in NumPy and, as flat, in JAX; `fitted` if it is the model's own."""
        known = self._remember(psi)
        if fitted or known is None:
            value = self.run(psi, theta)
            if known is not None and known.compiled is not None:
                known.forget_unless(value, np.asarray(known.compiled(flat)))
            return value
        known.calls += 1
        if known.calls == COMPILED_FROM:
            known.compile(lambda point: self.trace(psi, point), flat)
        return self.run(psi, theta) if known.compiled is None else np.asarray(known.compiled(flat))

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave what was compiled in this process behind."""
        return Repeated, (self.run, self.trace)

    def _remember(self, psi: Psi) -> "_Known | None":
        """Find what is known of psi, and forget the one that was met longest ago."""
        try:
            known = self._known.pop(psi, None) or _Known()
        except TypeError:  # a callable object without a hash
            return None
        self._known[psi] = known
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]
        return known


@dataclass
class _Known:
    """How often psi was called away from the fitted parameters, and its compiled form."""

    calls: int = 0
    compiled: Callable[[jax.Array], jax.Array] | None = None

    def compile(self, function: Callable[[jax.Array], jax.Array], flat: jax.Array) -> None:
        try:
            compiled = jax.jit(function)
            compiled(flat)
        except Exception:  # whatever psi does that JAX cannot trace; uncompiled, it may do it
            return
        self.compiled = compiled

    def forget_unless(self, value: Any, compiled: Array) -> None:
        fresh = np.asarray(value)
        size = np.max(abs(fresh), initial=0.0) if fresh.shape == compiled.shape else np.nan
        if not np.all(abs(fresh - compiled) <= SAME * size):
            self.calls, self.compiled = 0, None

"""Psi of a pytree: its value, its derivative, and advice when it has none."""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import EvaluationError
from implicit_delta.models.jax.module import JaxFunctional
from implicit_delta.models.jax.sharing import compiled, constants_of, unchanged
from implicit_delta.models.jax.tangent import linearized
from implicit_delta.models.module_checks import GRADIENT_FREE, first_line, refuse_own

NOT_TRACEABLE = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)
ROWS_AT_ONCE = 64  # entries of psi that are pulled back together
COMPILED_FROM = 10  # calls: compiling takes about as long as ten of them
KEPT = 8  # values and Jacobians of evaluations


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Values and Jacobians of evaluations of one pytree, compiled if they are called often.

    Compiled code repeats what psi did when it was traced, whatever psi reads from outside by now.
    So calls at the fitted parameters, where every inference begins, run psi itself, and drop what
    was compiled if its trace is another one now. A psi that cannot be traced is never compiled.

    `fitted` is true where theta (d,) is the model's own. `own` has weak references to the arrays
    that were given to `from_jax`, which psi must not use in place of its argument.
    """

    functional: JaxFunctional
    own: Mapping[str, weakref.ref[Any]] = field(default_factory=dict)
    # The number of calls away from the fitted parameters, and the compiled form.
    _known: dict[Any, tuple[int, Callable[..., Any] | None]] = field(
        init=False, default_factory=dict
    )

    def value(self, psi: Psi, theta: Array, fitted: bool) -> Any:
        """Psi of the pytree with theta as its parameters, in NumPy."""
        with _explained(self.functional):
            value = self._repeat(self._evaluate, psi, theta, fitted)
        if fitted and self.own:
            self._check_own(psi, theta)
        return value

    def jacobian(self, psi: Psi, theta: Array, fitted: bool) -> Array:
        """Jacobian of psi, (K, d), by one backward pass per entry."""
        with _explained(self.functional):
            rows = self._repeat(self._differentiate, psi, theta, fitted)
        return np.asarray(rows, dtype=np.float64)

    def tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        """Psi of the pytree with theta plus delta as its parameters, and of the tangent there."""
        with _explained(self.functional):
            return self._repeat(
                self._at_tangent, psi, np.concatenate([theta, delta]), not np.any(delta)
            )

    def _evaluate(self, psi: Psi, point: Any) -> Any:
        return _called(self.functional, psi, self.functional.pieces(point))

    def _check_own(self, psi: Psi, theta: Array) -> None:
        """Refuse psi if its trace holds an array that was given to `from_jax`."""
        flat = self.functional.flat(theta)
        used = {id(c) for c in constants_of(partial(self._evaluate, psi), flat)}
        for name, reference in self.own.items():
            if id(reference()) in used:
                refuse_own(name, "from_jax", "jax.tree.map(jnp.copy, params)", "params")

    def _at_tangent(self, psi: Psi, point: Any) -> Any:
        """Take theta and delta one after the other, (2 d,), so that compiled code gets both."""
        theta, delta = point[: len(point) // 2], point[len(point) // 2 :]
        with linearized(self.functional, self.functional.pieces(theta)):
            return self._evaluate(psi, theta + delta)

    def _differentiate(self, psi: Psi, point: Any) -> Any:
        """Pull back some entries at a time, to each parameter: uncompiled, JAX compiles cuts."""
        entries, pull = jax.vjp(
            lambda pieces: _as_entries(_called(self.functional, psi, pieces)),
            self.functional.pieces(point),
        )
        xp: Any = np if isinstance(point, np.ndarray) else jnp
        basis = np.eye(entries.size, dtype=entries.dtype)
        parts = np.split(basis, range(ROWS_AT_ONCE, entries.size, ROWS_AT_ONCE))
        pulled = [jax.vmap(pull)(rows)[0] for rows in parts]
        rows = [xp.concatenate([g.reshape(len(g), -1) for g in part], axis=1) for part in pulled]
        return xp.concatenate(rows)

    def _repeat(self, run: Callable[..., Any], psi: Psi, theta: Array, fitted: bool) -> Any:
        """Run a function of psi and the parameters, in NumPy or compiled."""

        def plain() -> Any:
            return self.functional.evaluated(run(psi, theta))

        def function(point: jax.Array) -> jax.Array:
            return _as_array(run(psi, point))

        try:
            calls, fast = self._known.pop((run, psi), (0, None))
        except TypeError:  # a callable object without a hash
            return plain()
        flat = self.functional.flat(theta)
        if fitted:
            value = plain()
            if fast is not None and not unchanged(fast, function, flat):
                calls, fast = 0, None
        else:
            calls += 1
            if calls == COMPILED_FROM:
                fast = _or_none(function, flat)
            value = plain() if fast is None else np.asarray(fast(flat))
        self._known[run, psi] = calls, fast
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]  # called longest ago
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without compiled evaluations, and without arrays of another process."""
        return Evaluator, (self.functional,)


def _called(functional: JaxFunctional, psi: Psi, pieces: list[Any]) -> Any:
    """Call psi; with parameters in float32 if its own arrays are, and do not go with float64."""
    try:
        return functional.call(psi, pieces)
    except TypeError:
        if functional.dtype != np.float64 or functional.given == "float64":
            raise
        narrow = [jnp.asarray(piece).astype(np.float32) for piece in pieces]
        with contextlib.suppress(TypeError):
            return functional.call(psi, narrow)
        raise


def _or_none(function: Callable[[jax.Array], jax.Array], flat: jax.Array) -> Any:
    try:
        made = compiled(function, flat)
        made(flat)
    except Exception:  # whatever psi does that JAX cannot trace; uncompiled, it may do it
        return None
    return made


@contextlib.contextmanager
def _explained(functional: JaxFunctional) -> Iterator[None]:
    """Translate JAX's errors about psi."""
    try:
        yield
    except NOT_TRACEABLE as error:
        raise EvaluationError(
            "psi turns its parameters into plain numbers (NumPy, `float()`, `.item()`), where the "
            f"derivative is lost: {first_line(error)} Compute with jax.numpy. {GRADIENT_FREE}"
        ) from error
    except (TypeError, ValueError) as error:
        text = first_line(error)
        if "callback" in text or "Reverse-mode" in text:
            raise EvaluationError(
                f"psi cannot be differentiated by JAX: {text} Give what it calls a derivative with "
                "`jax.custom_vjp`, or use `jax.lax.scan` for loops of a fixed length. "
                f"{GRADIENT_FREE}"
            ) from error
        if "dtype" in text:
            raise EvaluationError(
                f"psi mixes arrays that do not fit together: {text} The parameters that it is "
                f"given are {functional.dtype}; convert what psi uses with `.astype`, or give "
                "`dtype=` to from_jax."
            ) from error
        raise


def _as_array(value: Any) -> jax.Array:
    """Stack what psi returned."""
    if isinstance(value, (tuple, list)):
        return jnp.stack([jnp.asarray(item) for item in value])
    return jnp.asarray(value)


def _as_entries(value: Any) -> jax.Array:
    """Flatten what psi returned, (K,), and insist on real numbers that can be differentiated."""
    entries = _as_array(value).reshape(-1)
    if not jnp.issubdtype(entries.dtype, jnp.floating):
        raise EvaluationError(
            f"psi returned {entries.dtype}, which has no derivative: a count, a rank, an argmax "
            f"or a comparison. {GRADIENT_FREE}"
        )
    return entries

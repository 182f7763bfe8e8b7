"""Psi of a pytree: its value, its derivative, and what to say when it has none."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import EvaluationError
from implicit_delta.models.jax.module import Functional
from implicit_delta.models.jax.repeated import Repeated
from implicit_delta.models.module_checks import GRADIENT_FREE

NOT_TRACEABLE = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)
ROWS_AT_ONCE = 64  # entries of psi that are pulled back together


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Values and Jacobians of evaluations of one pytree."""

    functional: Functional
    _values: Repeated = field(init=False, repr=False)
    _jacobians: Repeated = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare both kinds of calls."""
        object.__setattr__(self, "_values", Repeated(self._run, self._trace))
        object.__setattr__(self, "_jacobians", Repeated(self._differentiate, self._pull))

    def value(self, psi: Psi, theta: Array, fitted: bool) -> Any:
        """What psi returns for the pytree at theta, as NumPy."""
        with _explained(self.functional):
            return self._values(psi, theta, self.functional.flat(theta), fitted)

    def jacobian(self, psi: Psi, theta: Array, fitted: bool) -> Array:
        """Jacobian of psi, (K, d)."""
        with _explained(self.functional):
            rows = self._jacobians(psi, theta, self.functional.flat(theta), fitted)
        return np.asarray(rows, dtype=np.float64)

    def _run(self, psi: Psi, theta: Array) -> Any:
        return _as_numpy(psi(self.functional.filled(self.functional.pieces(theta))))

    def _trace(self, psi: Psi, flat: jax.Array) -> jax.Array:
        return _as_array(psi(self.functional.tree(flat)))

    def _differentiate(self, psi: Psi, theta: Array) -> Array:
        """One backward pass per entry, with respect to each parameter: JAX compiles no cuts."""
        entries, pull = jax.vjp(
            lambda pieces: _as_entries(psi(self.functional.filled(pieces))),
            self.functional.pieces(theta),
        )
        return np.concatenate([_as_rows(jax.vmap(pull)(rows)[0]) for rows in _basis(entries)])

    def _pull(self, psi: Psi, flat: jax.Array) -> jax.Array:
        entries, pull = jax.vjp(lambda point: _as_entries(psi(self.functional.tree(point))), flat)
        return jnp.concatenate([jax.vmap(pull)(rows)[0] for rows in _basis(entries)])


@contextlib.contextmanager
def _explained(functional: Functional) -> Iterator[None]:
    """Translate JAX's errors about psi."""
    try:
        yield
    except NOT_TRACEABLE as error:
        raise EvaluationError(
            "psi turns its parameters into plain numbers (NumPy, `float()`, `.item()`), where the "
            f"derivative is lost: {_first_line(error)} Compute with jax.numpy. {GRADIENT_FREE}"
        ) from error
    except (TypeError, ValueError) as error:
        text = _first_line(error)
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


def _basis(entries: jax.Array) -> list[Array]:
    """Rows of the identity, some at a time."""
    identity = np.eye(entries.size, dtype=entries.dtype)
    return [identity[i : i + ROWS_AT_ONCE] for i in range(0, entries.size, ROWS_AT_ONCE)]


def _as_rows(gradients: list[jax.Array]) -> Array:
    """Join gradients (k, ...) in the shape of the parameters to (k, d)."""
    flat = [np.asarray(g, dtype=np.float64).reshape(len(g), -1) for g in gradients]
    return np.concatenate(flat, axis=1)


def _as_numpy(value: Any) -> Any:
    if isinstance(value, jax.Array):
        return np.asarray(value)
    if isinstance(value, (tuple, list)):
        return np.array([_as_numpy(item) for item in value])
    return value


def _first_line(error: Exception) -> str:
    line = str(error).strip().partition("\n")[0]
    return line if line.endswith(".") else f"{line}."

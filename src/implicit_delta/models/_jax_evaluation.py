"""Psi of a pytree: its value, its derivative, and what to say when it has none."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from implicit_delta._typing import Array, Psi
from implicit_delta.errors import EvaluationError
from implicit_delta.models._jax_params import Functional
from implicit_delta.models._module_checks import GRADIENT_FREE

NOT_TRACEABLE = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)
ROWS_AT_ONCE = 64  # entries of psi that are pulled back together


def evaluate_psi(functional: Functional, psi: Psi, theta: Array) -> Any:
    """What psi returns for the pytree at theta, as NumPy. Not compiled, so psi may do anything.

    Compiled, a random psi would always return its first draw.
    """
    with _explained(functional):
        return _as_numpy(psi(functional.filled(functional.pieces(theta))))


def differentiate_psi(functional: Functional, psi: Psi, theta: Array) -> Array:
    """Jacobian of psi, (K, d), by one backward pass per entry."""
    with _explained(functional):
        entries, pull = jax.vjp(
            lambda pieces: _as_entries(psi(functional.filled(pieces))), functional.pieces(theta)
        )
        basis = np.eye(entries.size, dtype=entries.dtype)
        parts = [
            _as_rows(jax.vmap(pull)(basis[start : start + ROWS_AT_ONCE])[0])
            for start in range(0, entries.size, ROWS_AT_ONCE)
        ]
    return np.concatenate(parts)


@contextlib.contextmanager
def _explained(functional: Functional) -> Iterator[None]:
    """Translate JAX's errors about psi."""
    try:
        yield
    except NOT_TRACEABLE as error:
        raise EvaluationError(
            "psi turns its parameters into plain numbers (NumPy, `float()`, `.item()`), where their "
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


def _as_entries(value: Any) -> jax.Array:
    """Stack what psi returned, (K,), and insist on real numbers that can be differentiated."""
    if isinstance(value, (tuple, list)):
        value = jnp.stack([jnp.asarray(item) for item in value])
    entries = jnp.asarray(value).reshape(-1)
    if not jnp.issubdtype(entries.dtype, jnp.floating):
        raise EvaluationError(
            f"psi returned {entries.dtype}, which has no derivative: a count, a rank, an argmax "
            f"or a comparison. {GRADIENT_FREE}"
        )
    return entries


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

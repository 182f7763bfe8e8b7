"""What is checked before any work starts: shapes, numbers, and that rows stand alone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.jax.data import Batches
from implicit_delta.models.jax.evaluation import NOT_TRACEABLE
from implicit_delta.models.jax.graph import Program
from implicit_delta.models.jax.terms import Supervised
from implicit_delta.models.module_checks import check_finite, check_one_per_row, check_same

PROBE_ROWS = 4
NOT_ALONE = (
    "The log-likelihood of a row changes with the other rows in its batch (between a batch and its "
    "halves, terms differ by {gap:.2g} of their mean size). Usual causes: dropout that is on, even "
    "with a fixed key, BatchNorm that does not use its running averages (`train=False` or "
    "`use_running_average=True` in Flax, `equinox.nn.inference_mode`), random numbers in the loss, "
    "or arrays that do not come from the batch."
)


def check_shapes(program: Program, flat: jax.Array, arrays: Any, count: int) -> None:
    """Trace the log-likelihood on all rows, and see that it returns one term for each."""
    if isinstance(program.row_terms, Supervised):
        _check_supervised(program, flat, program.row_terms, arrays)
    terms = _shape(program.plain_terms, flat, arrays)
    if not hasattr(terms, "shape"):
        raise ValueError(
            f"loglik(params, batch) returned {type(terms).__name__}, not an array of "
            "log-likelihoods, one per row of the batch."
        )
    check_one_per_row(terms.shape, "loglik(params, batch)")
    if terms.shape != (count,):
        raise ValueError(
            f"loglik(params, batch) returned {terms.shape[0]} terms for a batch of {count} rows; "
            "it must return one log-likelihood per row."
        )


def row_bytes(program: Program, flat: jax.Array, batches: Batches) -> int:
    """Bytes that second derivatives keep for each row, from shapes alone."""
    if batches.count <= PROBE_ROWS:
        return 1

    def residuals(rows: int) -> int:
        def kept(flat: jax.Array, batch: Any) -> Any:
            weights = jnp.ones(rows, dtype=flat.dtype)
            gradient = jax.grad(lambda point: program.weighted_sum(point, batch, weights))
            return jax.vjp(gradient, flat)[1]

        leaves = jax.tree_util.tree_leaves(jax.eval_shape(kept, flat, batches.slice(0, rows)))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    try:
        few, more = residuals(PROBE_ROWS // 2), residuals(PROBE_ROWS)
    except (TypeError, ValueError) as error:
        raise UnsupportedModelError(
            f"The log-likelihood can be computed for all {batches.count} rows, but its second "
            f"derivative for {PROBE_ROWS} of them cannot: {error} It must use the batch that it is "
            "given, of any length, and not the data from outside."
        ) from error
    return max(1, (more - few) // (PROBE_ROWS - PROBE_ROWS // 2))


def check_terms(program: Program, flat: jax.Array, batches: Batches) -> None:
    """Run the loss over all data, and once more over the halves of the first batch."""
    terms = np.concatenate([_terms(program, flat, batch) for batch in batches])
    check_finite(terms, 'dtype="float64"')
    size = batches.bounds[0][1]
    half = size // 2
    if half:
        ends = [(0, half), (size - half, size)]
        whole = [terms[start:stop] for start, stop in ends]
        alone = [_terms(program, flat, batches.slice(start, stop)) for start, stop in ends]
        precision = float(np.finfo(program.functional.dtype).eps)
        check_same(np.concatenate(whole), np.concatenate(alone), precision, NOT_ALONE)


def check_penalty(program: Program, flat: jax.Array) -> None:
    """Insist that a penalty is one finite number."""
    shape = _shape(program.plain_penalty, flat)
    if shape.shape != () or not jnp.issubdtype(shape.dtype, jnp.floating):
        raise ValueError(
            f"penalty(params) returned shape {shape.shape} of {shape.dtype}; it must return one "
            "number, for example `sum(jnp.abs(p).sum() for p in jax.tree.leaves(params))`."
        )
    value = float(program.penalty_value(flat))
    if not np.isfinite(value):
        raise ValueError(f"penalty(params) is {value} at the given parameters.")


def _terms(program: Program, flat: jax.Array, batch: Any) -> Array:
    return np.asarray(program.terms(flat, batch), dtype=np.float64)


def _check_supervised(program: Program, flat: jax.Array, terms: Supervised, batch: Any) -> None:
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        raise UnsupportedModelError(
            f"{type(terms.likelihood).__name__}() needs data (x, y) or (x1, x2, ..., y), not a "
            f"{type(batch).__name__}"
            f"{f' of {len(batch)}' if isinstance(batch, (tuple, list)) else ''}. Give a function "
            "`loglik(params, batch)` that returns the log-likelihood of each row instead."
        )
    if not isinstance(batch[-1], jax.Array):
        raise ValueError(f"The targets are a {type(batch[-1]).__name__}, not an array.")
    shape = _shape(program.outputs, flat, batch).shape
    terms.likelihood.check(np.broadcast_to(0.0, shape), np.asarray(batch[-1]))


def _shape(function: Callable[..., Any], *arguments: Any) -> Any:
    """Trace a function without running it."""
    try:
        return jax.eval_shape(function, *arguments)
    except NOT_TRACEABLE as error:
        line = str(error).strip().partition("\n")[0]
        raise UnsupportedModelError(
            f"The model needs the numbers in its parameters or data, so JAX cannot trace it: "
            f"{line} Write it with jax.numpy, without NumPy, `float()` or `if` on array values. A "
            "log-likelihood in NumPy goes to `from_loglik`."
        ) from error

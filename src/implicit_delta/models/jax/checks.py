"""Checks before any work starts: shapes, numbers, and that rows stand alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.jax.data import Batches
from implicit_delta.models.jax.evaluation import NOT_TRACEABLE
from implicit_delta.models.jax.program import JaxProgram
from implicit_delta.models.jax.sharing import traces_within
from implicit_delta.models.module_checks import (
    Options,
    TermsRounding,
    Words,
    check_finite,
    check_one_per_row,
    check_pair,
    check_same,
    check_targets,
)
from implicit_delta.models.terms import RowTerms, SupervisedTerms, call, terms_of

PROBE_ROWS = 4
WORDS = Words("params", "an array", jax.Array, "data (x, y) or (x1, x2, ..., y), not a")
NOT_ALONE = (
    "The log-likelihood of a row changes with the other rows in its batch (between a batch and its "
    "halves, terms differ by {gap:.2g} of their mean size). Usual causes: dropout that is on, even "
    "with a fixed key, BatchNorm that does not use its running averages (`train=False` or "
    "`use_running_average=True` in Flax, `equinox.nn.inference_mode`), random numbers in the loss, "
    "or arrays that do not come from the batch."
)


def checked_terms(params: Any, likelihood: Any, apply: Any, options: Options) -> RowTerms:
    """Make the terms, and check that `apply` goes with them."""
    terms = terms_of(likelihood, apply, "params", outputs=options.outputs, targets=options.targets)
    if options.outputs is not None and apply is not None:
        raise TypeError("Give apply= or outputs=, but not both: either one makes the outputs.")
    if isinstance(terms, SupervisedTerms):
        return terms if terms.outputs_of else replace(terms, apply=_checked_apply(params, apply))
    if apply is not None:
        raise TypeError(
            "apply= goes with Gaussian(), Bernoulli(), Categorical() or Poisson(). A function "
            "`loglik(params, batch)` calls the model itself: leave apply out."
        )
    return terms


def check_shapes(program: JaxProgram, flat: jax.Array, batches: Batches) -> bool:
    """Trace the log-likelihood on all rows, and insist on one term for each.

    Returns whether it casts what it computes to a narrower type.
    """
    arrays, count = batches.shapes, batches.count
    if isinstance(program.row_terms, SupervisedTerms):
        supervised, likelihood = program.row_terms, program.row_terms.likelihood
        if supervised.pairs:
            check_pair(arrays, likelihood, WORDS)
        targets = supervised.targets(batches.arrays)
        check_targets(targets, WORDS)
        shape = _shape(lambda *args: _checked_outputs(program.outputs(*args)), flat, arrays).shape
        likelihood.check(np.broadcast_to(0.0, shape), np.asarray(targets))
    terms = _shape(program.terms, flat, arrays)
    check_one_per_row(terms, jax.ShapeDtypeStruct, WORDS)
    if terms.shape != (count,):
        raise ValueError(
            f"loglik(params, batch) returned {terms.shape[0]} terms for a batch of {count} rows; "
            "it must return one log-likelihood per row."
        )
    return _narrows(jax.make_jaxpr(program.terms)(flat, arrays).jaxpr, flat.dtype.itemsize)


def _narrows(jaxpr: Any, size: int) -> bool:
    """Whether a trace casts floating-point numbers of this many bytes to shorter ones."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("convert_element_type", "reduce_precision"):
            ends = [v.aval.dtype for v in (*equation.invars, *equation.outvars)]
            real = all(jnp.issubdtype(kind, jnp.floating) for kind in ends)
            if real and ends[0].itemsize >= size > ends[-1].itemsize:
                return True
        if any(_narrows(part, size) for part, _ in traces_within(equation)):
            return True
    return False


def row_bytes(program: JaxProgram, flat: jax.Array, batches: Batches) -> int:
    """Bytes that second derivatives keep for each row, from shapes alone."""
    if batches.count <= PROBE_ROWS:
        return 1

    def kept(flat: jax.Array, batch: Any, weights: jax.Array) -> Any:
        return jax.vjp(lambda point: program.gradient(point, batch, weights), flat)[1]

    def residuals(rows: int) -> int:
        shapes = jax.eval_shape(kept, flat, batches.slice(0, rows), jnp.ones(rows, flat.dtype))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree_util.tree_leaves(shapes))

    try:
        few, more = residuals(PROBE_ROWS // 2), residuals(PROBE_ROWS)
    except (TypeError, ValueError) as error:
        raise UnsupportedModelError(
            f"The log-likelihood can be computed for all {batches.count} rows, but its second "
            f"derivative for {PROBE_ROWS} of them cannot: {error} It must use the batch that it is "
            "given, of any length, and not the data from outside."
        ) from error
    return max(1, (more - few) // (PROBE_ROWS - PROBE_ROWS // 2))


def check_terms(program: JaxProgram, flat: jax.Array, batches: Batches, dtype: Any) -> None:
    """Run the loss over all data, and once more over the halves of the first batch.

    It is rounded to this type.
    """
    functional = program.functional

    def run(batch: Any, point: jax.Array = flat) -> Array:
        return np.asarray(program.run(program.terms, point, batch), dtype=np.float64)

    terms = np.concatenate([run(batch) for batch in batches])
    check_finite(terms, 'dtype="float64"')
    size = batches.bounds[0][1]
    half = size // 2
    if half:
        ends = [(0, half), (size - half, size)]
        whole = np.concatenate([terms[start:stop] for start, stop in ends])
        alone = np.concatenate([run(batches.slice(start, stop)) for start, stop in ends])
        rounding = TermsRounding(
            lambda theta: run(batches.slice(0, size), functional.flat(theta)),
            functional.numpy(flat),
            terms[:size],
            functional.longest_sum,
            float(np.finfo(dtype).eps),
        )
        check_same(whole, alone, rounding, NOT_ALONE)


def check_penalty(program: JaxProgram, flat: jax.Array) -> None:
    """Insist that a penalty, if there is one, is one finite number."""
    if program.penalty is None:
        return
    shape = _shape(lambda flat: jnp.asarray(program.loss(flat)), flat)
    if shape.shape != () or not jnp.issubdtype(shape.dtype, jnp.floating):
        raise ValueError(
            f"penalty(params) returned shape {shape.shape} of {shape.dtype}; it must return one "
            "number, for example `sum(jnp.abs(p).sum() for p in jax.tree.leaves(params))`."
        )
    value = float(program.run(program.loss, flat))
    if not np.isfinite(value):
        raise ValueError(f"penalty(params) is {value} at the given parameters.")


def _checked_apply(params: Any, apply: Any) -> Callable[..., Any]:
    if apply is None and callable(params):
        return call
    if callable(apply):
        return apply  # type: ignore[no-any-return]
    what = f"apply is a {type(apply).__name__}" if apply is not None else "apply= is missing"
    raise TypeError(
        f"{what}: give a function `apply(params, x)` that returns the outputs for a batch of "
        f"inputs. (params is a {type(params).__name__}, which cannot be called without it.)"
        if not callable(params)
        else f"{what}: give a function `apply(params, x)`, or leave it out to call params itself."
    )


def _checked_outputs(outputs: Any) -> jax.Array:
    if not isinstance(outputs, jax.Array):
        raise UnsupportedModelError(
            f"The model returns a {type(outputs).__name__}, not an array of outputs. "
            "Return one, or give a function `loglik(params, batch)` that returns the "
            "log-likelihood of each row of the batch instead of a likelihood."
        )
    return outputs


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

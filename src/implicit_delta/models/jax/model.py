"""The fitted model of a pytree of JAX parameters."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.models.batched import BATCH_BYTES, BatchRows
from implicit_delta.models.facts import Training
from implicit_delta.models.jax import checks
from implicit_delta.models.jax.data import Batches, arrays_of
from implicit_delta.models.jax.evaluation import Evaluator
from implicit_delta.models.jax.language import JaxLanguage
from implicit_delta.models.jax.module import is_widened, own_arrays, separate
from implicit_delta.models.jax.program import JaxProgram
from implicit_delta.models.jax.sharing import share
from implicit_delta.models.jax.states import start_of, states_of
from implicit_delta.models.module_checks import Options, reason_of
from implicit_delta.models.networks import fitted_network, without_double
from implicit_delta.models.terms import RowTerms, SupervisedTerms

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

NARROWS = "it casts to float32 itself"


def make(params: Any, data: Any, likelihood: Any, apply: Any, options: Options) -> "FittedModel":
    """Check and convert what a user gave; see `from_jax`."""
    terms = checks.checked_terms(params, likelihood, apply, options)
    try:
        return _made(params, data, terms, options)
    except Exception as error:
        own = isinstance(error, (ImplicitDeltaError, Warning))
        if own or options.dtype is not None or not is_widened(params):
            raise
        # Some models only work in the type that they are written for.
        model = _made(params, data, terms, replace(options, dtype="float32"))
        return without_double(model, reason_of(error))


def _made(params: Any, data: Any, terms: RowTerms, options: Options) -> "FittedModel":
    functional, theta = separate(params, options.dtype, options.parameters)
    program = JaxProgram(functional, terms, options.penalty)
    with functional.context():
        flat = functional.flat(theta)
        arrays, n = arrays_of(data, functional.dtype)
        everything = Batches(arrays, n, n, functional.dtype)
        narrows = checks.check_shapes(program, flat, everything)
        if narrows and options.dtype is None and is_widened(params):
            raise TypeError(NARROWS)
        cost = partial(checks.row_bytes, program, flat, everything)
        program = share(program, flat, everything.shapes, cost)
        rows = options.batch_size or max(1, BATCH_BYTES // program.row_bytes)
        batches = replace(everything, batch_size=rows)
        checks.check_terms(program, flat, batches, "float32" if narrows else functional.dtype)
        checks.check_penalty(program, flat)
        supervised = isinstance(terms, SupervisedTerms)
        sizes = tuple(stop - start for start, stop in batches.bounds)
        size = program.output_size(flat, next(iter(batches))) if supervised else 0
    training = Training(
        start=start_of(options.start, params, functional),
        checkpoints=states_of("checkpoints", options.checkpoints, params, functional),
        replicates=states_of("replicates", options.replicates, params, functional),
    )
    return fitted_network(
        "from_jax",
        BatchRows(program, batches, sizes, size),
        JaxLanguage(program, theta, Evaluator(functional, own_arrays(params, functional))),
        theta,
        training,
        options,
        NARROWS if narrows and functional.dtype == np.float64 else "",
    )

"""The fitted model of a pytree of JAX parameters."""

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from jax import tree_util

from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import ImplicitDeltaError, UnsupportedModelError
from implicit_delta.models.base import Bonus
from implicit_delta.models.batched import BATCH_BYTES, BatchedModel, Step, in_context
from implicit_delta.models.facts import Facts, Training
from implicit_delta.models.jax import checks
from implicit_delta.models.jax.data import Batches, arrays_of
from implicit_delta.models.jax.evaluation import Evaluator
from implicit_delta.models.jax.graph import JaxProgram
from implicit_delta.models.jax.module import is_parameter, is_widened, own_arrays, separate
from implicit_delta.models.jax.sharing import share
from implicit_delta.models.jax.states import start_of, states_of
from implicit_delta.models.jax.tangent import TangentFunctional, applied
from implicit_delta.models.jax.training import training
from implicit_delta.models.module_checks import EVIDENCE, Options, reason_of
from implicit_delta.models.module_prediction import checked_columns
from implicit_delta.models.program import penalty_of
from implicit_delta.models.terms import RowTerms, SupervisedTerms
from implicit_delta.models.weights import observation_weights

NARROWS = "it casts to float32 itself"


def make(params: Any, data: Any, likelihood: Any, apply: Any, options: Options) -> "JaxModel":
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
        return replace(model, not_double=reason_of(error))


def _made(params: Any, data: Any, terms: RowTerms, options: Options) -> "JaxModel":
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
        columns = checked_columns(
            options.columns,
            options.columns is not None and next(iter(batches))[0],
            isinstance(terms, SupervisedTerms) and terms.pairs and terms.outputs_of is None,
        )
    return JaxModel(
        program=program,
        batches=batches,
        sizes=tuple(stop - start for start, stop in batches.bounds),
        theta=theta,
        weights=observation_weights(options.weights, n, options.weight_kind),
        penalty=penalty_of(program, options.ridge, min(rows, n)),
        names=functional.names,
        facts=Facts(
            Training(
                start=start_of(options.start, params, functional),
                checkpoints=states_of("checkpoints", options.checkpoints, params, functional),
                replicates=states_of("replicates", options.replicates, params, functional),
            )
        ),
        evaluator=Evaluator(functional, own_arrays(params, functional)),
        columns=columns,
        not_double=NARROWS if narrows and functional.dtype == np.float64 else "",
    ).checked(options.l2 == EVIDENCE)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class JaxModel(BatchedModel):
    """A pytree of parameters at its maximum; made by `from_jax`."""

    program: JaxProgram
    batches: Batches
    evaluator: Evaluator

    @property
    def params(self) -> Any:
        """The pytree with theta as its parameters, in the type of `dtype=` or as JAX is set."""
        own = self.functional.own
        with self.functional.context():
            pytree = self.functional.filled(self.functional.pieces(self.theta))
            return tree_util.tree_map(lambda a: a.astype(own) if is_parameter(a) else a, pytree)

    @in_context
    def apply(self, params: Any, *inputs: Any) -> Any:
        """Return the outputs for inputs, by the function that was fitted.

        That is `apply`, or `outputs` with a batch as its only input. Psi should call it so: while
        draws are made in the tangent, it is the tangent's.
        """
        if not isinstance(self.row_terms, SupervisedTerms):
            raise UnsupportedModelError(
                "A loglik function of your own shows no outputs, so that there is nothing to "
                "apply: call your own function. With a likelihood such as `Categorical()` and "
                "`apply=` the outputs are known."
            )
        terms = self.row_terms
        return applied(self.functional.origin, terms.outputs_of or terms.apply, params, *inputs)

    @in_context
    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        if isinstance(self.functional, TangentFunctional):
            return self.evaluate(psi, theta + delta)
        return self.evaluator.tangent(psi, theta, delta)

    def tangent(self) -> "JaxModel":
        terms, origin = self.row_terms, self.functional.origin
        if not isinstance(terms, SupervisedTerms):
            return super().tangent()
        if isinstance(self.functional, TangentFunctional):
            return self
        touching = TangentFunctional(
            **{field.name: getattr(origin, field.name) for field in fields(origin)},
            touched=origin,
            center=self.theta.copy(),
        )
        through = partial(applied, origin, terms.outputs_of or terms.apply)
        if terms.outputs_of:
            terms = replace(terms, outputs_of=through)
        else:
            terms = replace(terms, apply=through)
        return replace(
            self,
            program=replace(self.program, functional=touching, row_terms=terms),
            evaluator=Evaluator(replace(touching, strict=True)),
            facts=self.facts.with_training(replicates=None),  # far from where it touches
        ).with_predictor()

    @in_context
    def evaluate(self, psi: Psi, theta: Array) -> Any:
        return self.evaluator.value(psi, theta, np.array_equal(theta, self.theta))

    @in_context
    def jacobian(self, psi: Psi, theta: Array) -> Array:
        return self.evaluator.jacobian(psi, theta, np.array_equal(theta, self.theta))

    def mean(self, parameters: Any, inputs: Array) -> Any:
        assert isinstance(self.row_terms, SupervisedTerms)
        outputs = self.apply(parameters, inputs.astype(self.functional.dtype))
        return self.row_terms.likelihood.mean(outputs)

    def trainer(self, optimizer: Any, slope: Bonus) -> Step:
        return training(self, optimizer, slope)

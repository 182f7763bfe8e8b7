"""The fitted model of a torch module."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.models.base import Bonus
from implicit_delta.models.batched import BATCH_BYTES, BatchedModel, Step, in_context
from implicit_delta.models.facts import Facts, Training
from implicit_delta.models.module_checks import EVIDENCE, Options, reason_of
from implicit_delta.models.module_prediction import checked_columns
from implicit_delta.models.program import penalty_of
from implicit_delta.models.terms import RowTerms, SupervisedTerms, call, terms_of
from implicit_delta.models.torch import checks
from implicit_delta.models.torch.data import Batches, source_of
from implicit_delta.models.torch.evaluation import differentiate_psi, evaluate_psi
from implicit_delta.models.torch.graph import TorchProgram
from implicit_delta.models.torch.module import is_widened, separate, uncertain
from implicit_delta.models.torch.own_parameters import OwnParameters
from implicit_delta.models.torch.reasons import explained
from implicit_delta.models.torch.states import start_of, states_of
from implicit_delta.models.torch.tangent import TangentFunctional, linearized
from implicit_delta.models.torch.training import training
from implicit_delta.models.torch.wrappers import unwrapped
from implicit_delta.models.weights import observation_weights

PROBE_ROWS = 16
KEPT_BYTES = 2**29  # of the graphs of all batches, to be kept between products


def make(module: nn.Module, data: Any, likelihood: Any, options: Options) -> "TorchModel":
    """Check and convert what a user gave; see `from_torch`."""
    terms = terms_of(
        likelihood, call, "module", nn.modules.loss._Loss, options.outputs, options.targets
    )
    source = source_of(data)
    try:
        return _made(module, source, terms, options)
    except Exception as error:
        own = isinstance(error, (ImplicitDeltaError, Warning))
        if own or options.dtype is not None or not is_widened(module):
            raise
        # Some modules only work in the type that they are written for.
        model = _made(module, source, terms, replace(options, dtype=torch.float32))
        return replace(model, not_double=reason_of(error))


def _made(module: nn.Module, source: Any, terms: RowTerms, options: Options) -> "TorchModel":
    functional, theta = separate(module, options.dtype, options.parameters)
    program = TorchProgram(functional, terms, options.penalty)
    with functional.context(), explained():
        flat = functional.flat(theta)
        probe = Batches(source, PROBE_ROWS, functional.dtype, functional.device)
        cost = checks.row_bytes(program, flat, probe)
        program = replace(program, row_bytes=cost)
        batches = replace(probe, batch_size=options.batch_size or max(1, BATCH_BYTES // cost))
        sizes = checks.check_terms(program, flat, batches)
        checks.check_penalty(program, flat)
        columns = checked_columns(
            options.columns,
            options.columns is not None and next(iter(batches))[0],
            isinstance(terms, SupervisedTerms) and terms.pairs and terms.outputs_of is None,
        )
    return TorchModel(
        program=program,
        batches=batches,
        sizes=sizes,
        theta=theta,
        weights=observation_weights(options.weights, sum(sizes), options.weight_kind),
        penalty=penalty_of(program, options.ridge, sizes[0]),
        names=functional.names,
        facts=Facts(_training_of(module, theta.size, options)),
        keep_graphs=sum(sizes) * cost <= KEPT_BYTES,
        columns=columns,
        own=OwnParameters(uncertain(unwrapped(module), options.parameters)),
    ).checked(options.l2 == EVIDENCE)


def _training_of(module: nn.Module, d: int, options: Options) -> Training:
    chosen = options.parameters
    trainable = sum(p.numel() for p in module.parameters() if p.requires_grad)
    return Training(
        start=start_of(options.start, module, chosen),
        checkpoints=states_of("checkpoints", options.checkpoints, module, chosen),
        replicates=states_of("replicates", options.replicates, module, chosen),
        frozen=0 if chosen is None else trainable - d,
    )


@dataclass(frozen=True, eq=False, repr=False)
class TorchModel(BatchedModel):
    """A torch module at its maximum; made by `from_torch`."""

    program: TorchProgram
    batches: Batches
    own: OwnParameters | None = None

    @property
    def module(self) -> nn.Module:
        """A copy of the module with theta as its parameters, in eval mode.

        It has the types of the module that was given, or the one of `dtype=`.
        """
        return self.functional.filled(self.theta)  # type: ignore[no-any-return]

    @in_context
    def evaluate(self, psi: Psi, theta: Array) -> Any:
        if self.own is not None and np.array_equal(theta, self.theta):
            return self.own.call(evaluate_psi, self.functional, psi, theta)
        return evaluate_psi(self.functional, psi, theta)

    @in_context
    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        if isinstance(self.functional, TangentFunctional):
            return evaluate_psi(self.functional, psi, theta + delta)
        center, step = (self.functional.flat(v).detach() for v in (theta, delta))
        with linearized(self.functional, center, step):
            return evaluate_psi(self.functional, psi, theta + delta)

    @in_context
    def tangent(self) -> "TorchModel":
        whole = self.functional
        center = whole.flat(self.theta.copy()).detach()
        parts = {field.name: getattr(whole, field.name) for field in fields(whole)}
        tangent = TangentFunctional(**parts, center=center)
        program = replace(self.program, functional=tangent)
        facts = self.facts.with_training(replicates=None)  # far from where it touches
        return replace(self, program=program, facts=facts).with_predictor()

    @in_context
    def jacobian(self, psi: Psi, theta: Array) -> Array:
        return differentiate_psi(self.functional, psi, theta)

    def mean(self, parameters: Any, inputs: Array) -> Any:
        assert isinstance(self.row_terms, SupervisedTerms)
        x = torch.as_tensor(inputs, dtype=self.functional.dtype, device=self.functional.device)
        return self.row_terms.likelihood.mean(parameters(x))

    def trainer(self, optimizer: Any, slope: Bonus) -> Step:
        return training(self, optimizer, slope)

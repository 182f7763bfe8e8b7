"""The fitted model of a torch module."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from implicit_delta.errors import ImplicitDeltaError
from implicit_delta.models.batched import BATCH_BYTES, BatchRows
from implicit_delta.models.facts import Training
from implicit_delta.models.module_checks import Options, reason_of
from implicit_delta.models.networks import fitted_network, without_double
from implicit_delta.models.terms import RowTerms, SupervisedTerms, call, terms_of
from implicit_delta.models.torch import checks
from implicit_delta.models.torch.data import Batches, source_of
from implicit_delta.models.torch.language import TorchLanguage
from implicit_delta.models.torch.module import is_widened, separate, uncertain
from implicit_delta.models.torch.own_parameters import OwnParameters
from implicit_delta.models.torch.program import TorchProgram
from implicit_delta.models.torch.reasons import explained
from implicit_delta.models.torch.states import start_of, states_of
from implicit_delta.models.torch.wrappers import unwrapped

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

PROBE_ROWS = 16
KEPT_BYTES = 2**29  # of the graphs of all batches, to be kept between products


def make(module: nn.Module, data: Any, likelihood: Any, options: Options) -> "FittedModel":
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
        return without_double(model, reason_of(error))


def _made(module: nn.Module, source: Any, terms: RowTerms, options: Options) -> "FittedModel":
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
        supervised = isinstance(terms, SupervisedTerms)
        rows = BatchRows(
            program,
            batches,
            sizes,
            program.output_size(flat, next(iter(batches))) if supervised else 0,
            keep_graphs=sum(sizes) * cost <= KEPT_BYTES,
        )
    language = TorchLanguage(
        program, theta, OwnParameters(uncertain(unwrapped(module), options.parameters))
    )
    training = _training_of(module, theta.size, options)
    return fitted_network("from_torch", rows, language, theta, training, options)


def _training_of(module: nn.Module, d: int, options: Options) -> Training:
    chosen = options.parameters
    trainable = sum(p.numel() for p in module.parameters() if p.requires_grad)
    return Training(
        start=start_of(options.start, module, chosen),
        checkpoints=states_of("checkpoints", options.checkpoints, module, chosen),
        replicates=states_of("replicates", options.replicates, module, chosen),
        frozen=0 if chosen is None else trainable - d,
    )

"""Psi of a module: its value, its derivative, and advice when it has none."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import EvaluationError
from implicit_delta.models.constraints import Chart
from implicit_delta.models.language import RestrictedLanguage
from implicit_delta.models.module_checks import GRADIENT_FREE
from implicit_delta.models.torch.graph import pull_back
from implicit_delta.models.torch.module import TorchFunctional
from implicit_delta.models.torch.own_parameters import OwnParameters
from implicit_delta.models.torch.program import TorchProgram
from implicit_delta.models.torch.tangent import TangentFunctional, linearized


@dataclass(frozen=True, eq=False)
class TorchLanguage:
    """Psi gets a module.

    Attributes
    ----------
    program : TorchProgram
    theta : (d,) array
        The fitted parameters.
    own : OwnParameters
        Of the module that was given to `from_torch`, which psi must not use at these.
    """

    program: TorchProgram
    theta: Array
    own: OwnParameters

    @property
    def functional(self) -> TorchFunctional:
        """The module as a function of its flat parameters."""
        return self.program.functional

    @property
    def module(self) -> nn.Module:
        """A copy of the module with the fitted parameters, in eval mode.

        It has the types of the module that was given, or the one of `dtype=`.
        """
        return self.functional.filled(self.theta)

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        with self.functional.context():
            if np.array_equal(theta, self.theta):
                return self.own.call(self._evaluate, psi, theta)
            return self._evaluate(psi, theta)

    def jacobian(self, psi: Psi, theta: Array, units: Callable[[], Array]) -> Array:
        """Jacobian of psi, (K, d), by one backward pass per entry."""
        functional = self.functional
        with functional.context():
            point = functional.flat(theta).detach().requires_grad_()
            entries = _as_tensor(_call(functional, psi, point)).reshape(-1)
            basis = torch.eye(len(entries), dtype=entries.dtype, device=entries.device)
            return np.asarray(functional.numpy(pull_back(entries, point, basis)), theta.dtype)

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        functional = self.functional
        with functional.context():
            if isinstance(functional, TangentFunctional):
                return self._evaluate(psi, theta + delta)
            center, step = (functional.flat(v).detach() for v in (theta, delta))
            with linearized(functional, center, step):
                return self._evaluate(psi, theta + delta)

    def psi_warning(self, psi: Any) -> str:
        return ""

    def along(self, chart: Chart) -> RestrictedLanguage:
        return RestrictedLanguage(self, chart)

    def at(self, theta: Array) -> "TorchLanguage":
        return replace(self, theta=theta)

    def tangent(self, theta: Array) -> "TorchLanguage":
        return replace(self, program=self.program.tangent(theta), theta=theta)

    def _evaluate(self, psi: Psi, theta: Array) -> Any:
        functional = self.functional
        return functional.evaluated(_call(functional, psi, functional.flat(theta).detach()))


def _call(functional: TorchFunctional, psi: Psi, point: Tensor) -> Any:
    try:
        with warnings.catch_warnings():
            # Such a psi is refused below, or by whoever needs its derivative.
            warnings.filterwarnings("ignore", "Converting a tensor with requires_grad=True")
            return functional(psi, point)
    except (RuntimeError, TypeError) as error:
        text = str(error)
        if "numpy()" in text or "Numpy" in text:
            raise EvaluationError(
                "psi turns a tensor that depends on the parameters into NumPy, where its "
                f"derivative is lost ({text}). Compute with torch functions. {GRADIENT_FREE}"
            ) from error
        if "Inference tensors" in text:
            raise EvaluationError(
                "psi uses a tensor that was made under `torch.inference_mode()` and can be in no "
                "graph. Make it outside of that, under `torch.no_grad()`, or use its `.clone()`."
            ) from error
        if "device" in text or "dtype" in text:
            raise EvaluationError(
                f"psi mixes tensors that do not fit together: {text} The module that it is given "
                f"is on {functional.device} in {functional.dtype}; move what psi uses there, for "
                "example with `.to(next(module.parameters()))`."
            ) from error
        raise


def _as_tensor(value: Any) -> Tensor:
    """Stack what psi returned, and insist on a gradient."""
    if isinstance(value, (tuple, list)) and any(isinstance(item, Tensor) for item in value):
        value = torch.stack([torch.as_tensor(item) for item in value])
    if isinstance(value, Tensor) and value.requires_grad:
        return value
    kind = "a tensor without a gradient" if isinstance(value, Tensor) else type(value).__name__
    raise EvaluationError(
        f"psi returned {kind}, so its derivative with respect to the parameters is not known. "
        "Usual causes: `.item()`, `.detach()` or `torch.no_grad()` in psi, an argmax or a "
        "comparison (which have no derivative), or a psi that does not use the module it is "
        "given. A gradient taken within psi needs `create_graph=True`. " + GRADIENT_FREE
    )

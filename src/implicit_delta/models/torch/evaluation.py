"""Psi of a module: its value, its derivative, and advice when it has none."""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import EvaluationError
from implicit_delta.models.module_checks import GRADIENT_FREE
from implicit_delta.models.torch.graph import pull_back
from implicit_delta.models.torch.module import TorchFunctional


def evaluate_psi(functional: TorchFunctional, psi: Psi, theta: Array) -> Any:
    """Psi of the module with theta as its parameters, in NumPy."""
    return functional.evaluated(_call(functional, psi, functional.flat(theta).detach()))


def differentiate_psi(functional: TorchFunctional, psi: Psi, theta: Array) -> Array:
    """Jacobian of psi, (K, d), by one backward pass per entry."""
    point = functional.flat(theta).detach().requires_grad_()
    entries = _as_tensor(_call(functional, psi, point)).reshape(-1)
    basis = torch.eye(len(entries), dtype=entries.dtype, device=entries.device)
    return np.asarray(functional.numpy(pull_back(entries, point, basis)), dtype=theta.dtype)


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

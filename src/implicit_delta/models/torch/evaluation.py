"""Psi of a module: its value, its derivative, and what to say when it has none."""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from implicit_delta._core.types import Array, Psi
from implicit_delta.errors import EvaluationError
from implicit_delta.models.module_checks import GRADIENT_FREE
from implicit_delta.models.torch.module import Functional


def evaluate_psi(functional: Functional, psi: Psi, theta: Array) -> Any:
    """What psi returns for the module at theta, as NumPy."""
    return _as_numpy(_call(functional, psi, functional.flat(theta).detach()))


def differentiate_psi(functional: Functional, psi: Psi, theta: Array) -> Array:
    """Jacobian of psi, (K, d), by one backward pass per entry."""
    with torch.enable_grad():  # the caller may have turned gradients off
        point = functional.flat(theta).detach().requires_grad_()
        entries = _as_tensor(_call(functional, psi, point)).reshape(-1)
        if entries.numel() == 1:
            (gradient,) = torch.autograd.grad(entries[0], point, materialize_grads=True)
            rows = gradient[None]
        else:
            rows = _gradients(entries, point)
    return np.asarray(rows.cpu().numpy(), dtype=theta.dtype)


def _gradients(entries: Tensor, point: Tensor) -> Tensor:
    basis = torch.eye(len(entries), dtype=entries.dtype, device=entries.device)
    options: Any = {"retain_graph": True, "materialize_grads": True}
    try:
        return torch.autograd.grad(entries, point, basis, is_grads_batched=True, **options)[0]
    except (RuntimeError, NotImplementedError):  # an operation that cannot be batched
        return torch.stack([torch.autograd.grad(e, point, **options)[0] for e in entries])


def _call(functional: Functional, psi: Psi, point: Tensor) -> Any:
    try:
        with warnings.catch_warnings():
            # What becomes of such a psi is said below, or by who needs its derivative.
            warnings.filterwarnings("ignore", "Converting a tensor with requires_grad=True")
            return functional(psi, point)
    except (RuntimeError, TypeError) as error:
        text = str(error)
        if "numpy()" in text or "Numpy" in text:
            raise EvaluationError(
                "psi turns a tensor that depends on the parameters into NumPy, where its "
                f"derivative is lost ({text}). Compute with torch functions. {GRADIENT_FREE}"
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


def _as_numpy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, (tuple, list)):
        return np.array([_as_numpy(item) for item in value])
    return value

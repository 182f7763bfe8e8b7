"""Work in a wider type than a module was made for: float64 for one of float32.

Functions in torch raise where types meet (``linear`` of float32 inputs and float64 weights), and
code of users and libraries makes tensors in float32 by default. While the user's functions run, a
mode makes the types meet in the wider one.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

CASTS = {"half": torch.float16, "bfloat16": torch.bfloat16, "float": torch.float32}
COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}

# Functions about the very tensors that are given, of which a converted copy would have no graph.
OF_THESE_TENSORS = {"grad", "backward", "retain_grad", "register_hook"}


class Promotion(TorchFunctionMode):
    """Treat tensors of narrow types as those of a wider one.

    - Arguments of one call have one type: the wide one if any of them has it. Of a call that works
      in place it is the type of what is changed.
    - New tensors (``zeros``, ``randn``, ``zeros_like``) are wide. Random ones are drawn as they are
      in the narrow type, so that they are the same numbers.
    - Casts of a wide tensor to a narrow type (``.float()``, ``dtype=torch.float32``) leave it as it
      is: they were meant to widen half precision, to keep what was there, or to save time.
    - The attribute ``dtype`` is the wide one, which modules compare with that of their weights.

    Parameters
    ----------
    wider : dict of dtypes
        The wide type for each narrow one.
    """

    def __init__(self, wider: dict[torch.dtype, torch.dtype]) -> None:
        super().__init__()
        self.wider, self.wide = wider, set(wider.values())

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name == "__get__":
            value = func(*args, **kwargs)
            return self.wider.get(value, value) if isinstance(value, torch.dtype) else value
        if name in OF_THESE_TENSORS:
            return func(*args, **kwargs)
        found = {tensor.dtype for tensor in _tensors((args, kwargs))}
        if not found or name.endswith("_like") or name.startswith("new_"):
            return self._made(func(*args, **kwargs))
        if found.isdisjoint(self.wide):
            return func(*args, **kwargs)
        if CASTS.get(name) in self.wider:
            return args[0]
        to = self.wider
        if _is_in_place(name) and isinstance(args[0], Tensor) and args[0].dtype in to:
            to = {to[args[0].dtype]: args[0].dtype}
        return func(*_mapped(args, to), **_mapped(kwargs, to))

    def _made(self, result: Any) -> Any:
        if not isinstance(result, Tensor) or result.dtype not in self.wider:
            return result
        wide = result.detach().to(self.wider[result.dtype])
        return wide.requires_grad_() if result.requires_grad else wide


def wider_types(module: nn.Module, dtype: torch.dtype) -> dict[torch.dtype, torch.dtype]:
    """Types that become dtype and its complex partner: none if the module has no narrower one."""
    narrow = [kind for kind in CASTS.values() if kind.itemsize < dtype.itemsize]
    if not any(tensor.dtype in narrow for _, tensor in named_tensors(module)):
        return {}
    pairs = {COMPLEX[torch.float32]: COMPLEX[dtype]} if dtype == torch.float64 else {}
    return {**dict.fromkeys(narrow, dtype), **pairs}


def convert(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Convert a private copy: `Module.to` would take the imaginary part off complex buffers."""

    def converted(tensor: Tensor) -> Tensor:
        if tensor.is_complex():
            return tensor.to(COMPLEX[dtype])
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    converted_module: nn.Module = module._apply(converted)  # type: ignore[no-untyped-call]
    return converted_module


def restore(module: nn.Module, types: dict[str, torch.dtype]) -> nn.Module:
    """Convert parameters and buffers of a private copy to these types, by name."""
    for name, tensor in named_tensors(module):
        tensor.data = tensor.data.to(types.get(name, tensor.dtype))
    return module


def named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Go through the parameters and buffers of a module."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def _is_in_place(name: str) -> bool:
    """Whether a function changes its first argument: ``add_``, ``__iadd__``, ``__setitem__``."""
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in _NOT_IN_PLACE)
    return name.endswith("_")


_NOT_IN_PLACE = {"__invert__", "__index__", "__int__"}


def _tensors(nested: Any) -> Iterator[Tensor]:
    if isinstance(nested, Tensor):
        yield nested
    elif isinstance(nested, (tuple, list)):
        for item in nested:
            yield from _tensors(item)
    elif isinstance(nested, dict):
        for item in nested.values():
            yield from _tensors(item)


def _mapped(nested: Any, to: dict[torch.dtype, torch.dtype]) -> Any:
    """Convert tensors and names of types, in nested tuples, lists and dicts."""
    if isinstance(nested, Tensor):
        return nested.to(to[nested.dtype]) if nested.dtype in to else nested
    if isinstance(nested, torch.dtype):
        return to.get(nested, nested)
    if type(nested) in (tuple, list):
        return type(nested)([_mapped(item, to) for item in nested])
    if isinstance(nested, dict):
        return {key: _mapped(item, to) for key, item in nested.items()}
    return nested

"""A torch module as a function of one flat vector of its trainable parameters."""

import contextlib
import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from implicit_delta.core.precision import MOST_PROMOTED
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.parts import select
from implicit_delta.models.program import Functional
from implicit_delta.models.torch.promotion import (
    Promotion,
    convert,
    named_tensors,
    restore,
    wider_types,
)
from implicit_delta.models.torch.wrappers import plain, unwrapped, usable

# Beyond, float64 copies of float32 parameters would take as much room as the work itself.
MOST_DOUBLE = 5_000_000


@dataclass(frozen=True, eq=False)
class TorchFunctional(Functional):
    """A private copy of a module, in eval mode, without the values of its trainable parameters.

    They come in as one flat tensor (d,), of which every parameter is a view: so derivatives
    flow to that tensor, and no copy of the parameters is kept here. Shared parameters have one
    entry; frozen ones and buffers are part of the copy.
    """

    shell: "_Shell"
    device: torch.device
    wider: dict[torch.dtype, torch.dtype]  # types of the module that become the working type
    types: dict[str, torch.dtype]  # of parameters and buffers that `filled` converts back

    @property
    def module(self) -> nn.Module:
        """The private copy."""
        return self.shell.module

    @property
    def eps(self) -> float:
        return torch.finfo(self.dtype).eps

    @property
    def running_averages(self) -> bool:
        return any(name.endswith("running_mean") for name, _ in self.module.named_buffers())

    def __call__(self, function: Callable[..., Any], flat: Tensor, *arguments: Any) -> Any:
        try:
            return self.call(function, self.views(flat), *arguments)
        finally:
            self.module.eval()  # whatever the function did to it

    def call(self, function: Callable[..., Any], leaves: dict[str, Any], *rest: Any) -> Any:
        """Call ``function(module, *rest)`` with these parameters by name."""
        with Promotion(self.wider) if self.wider else contextlib.nullcontext():
            return functional_call(self.shell, leaves, (function, *rest))

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        """Choose kernels that can be differentiated twice, gradients on."""
        fastpath = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with (
                torch.inference_mode(False),
                torch.enable_grad(),
                sdpa_kernel(SDPBackend.MATH),
            ):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fastpath)

    def flat(self, theta: Array) -> Tensor:
        """Move parameters to the module's type and device, without a copy if possible."""
        array = theta if theta.flags.writeable else theta.copy()  # torch warns of read-only ones
        return torch.as_tensor(array, dtype=self.dtype, device=self.device)

    def numpy(self, values: Any) -> Any:
        return values.detach().cpu().numpy() if isinstance(values, Tensor) else values

    def leaves(self, theta: Array) -> dict[str, nn.Parameter]:
        """Copy theta into parameters as an optimizer wants them, by name."""
        views = self.views(self.flat(theta).clone())
        return {name: nn.Parameter(view) for name, view in views.items()}

    def filled(self, theta: Array) -> nn.Module:
        """Make an ordinary module, in eval mode, with theta as its trainable parameters."""
        leaves = self.leaves(theta)
        named = dict(self.module.named_parameters())
        values = {id(named[name]): leaves[f"module.{name}"] for name, _ in self.layout}
        return restore(copy.deepcopy(self.module, dict(values)), self.types)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Cut flat (d,) into views in the shape of the parameters, by name."""
        pieces = torch.split(flat, [math.prod(shape) for _, shape in self.layout])
        return {
            f"module.{name}": piece.view(shape)
            for (name, shape), piece in zip(self.layout, pieces, strict=True)
        }


class _Shell(nn.Module):
    """Call a function with the inner module, so that `functional_call` reaches all of it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self.module, *arguments)


def separate(
    module: Any, dtype: Any = None, selection: Any = None
) -> tuple[TorchFunctional, Array]:
    """Separate a module into what it computes and its parameters theta, (d,).

    These are the ones that are selected, by default all that require a gradient. Without a dtype,
    modules that are given out again have the types of this one.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}.")
    module = unwrapped(module)
    trainable = uncertain(module, selection)
    _check_parameters(module, trainable)
    first = next(iter(trainable.values()))
    kind = working_type(module, dtype) or _own_type(trainable)
    with torch.inference_mode(False):
        hollow = plain(_hollow(module, trainable))
        types = {name: tensor.dtype for name, tensor in named_tensors(hollow)}
        hollow = _fixed(convert(hollow, kind))
        theta = flatten(list(trainable.values()), kind)
    # Without wrappers inside names differ, and their order does not.
    pairs = zip(module.named_parameters(), hollow.named_parameters(), strict=True)
    layout = tuple((name, tuple(p.shape)) for (old, p), (name, _) in pairs if old in trainable)
    return TorchFunctional(
        layout=layout,
        dtype=kind,
        given=", ".join(sorted({str(p.dtype).removeprefix("torch.") for p in trainable.values()})),
        shell=_Shell(hollow).eval(),
        device=first.device,
        wider=wider_types(module, kind),
        types=types if dtype is None else {},
    ), theta


def working_type(module: nn.Module, dtype: Any = None) -> torch.dtype | None:
    """Type to convert a module to: by default float64 if it is small and on the CPU.

    None for the type that it has.
    """
    for supported in (torch.float32, torch.float64):
        if dtype in (supported, str(supported).removeprefix("torch.")):
            return supported
    if dtype is not None:
        raise ValueError(f"dtype must be torch.float32 or torch.float64, not {dtype!r}.")
    parameters: list[Any] = list(module.parameters())
    if any(nn.parameter.is_lazy(p) or p.device.type != "cpu" for p in parameters):
        return None
    small = sum(p.numel() for p in parameters) <= MOST_PROMOTED
    return torch.float64 if small else None


def is_widened(module: Any) -> bool:
    """Whether the work on a module is done in a wider type than it has, by default."""
    return isinstance(module, nn.Module) and bool(
        working_type(module) and wider_types(module, torch.float64)
    )


def _own_type(trainable: dict[str, nn.Parameter]) -> torch.dtype:
    dtypes = {p.dtype for p in trainable.values()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        raise UnsupportedModelError(
            f"The parameters are of type {', '.join(sorted(map(str, dtypes)))}. Give "
            "`dtype=torch.float32` or `dtype=torch.float64` to have a copy of the module converted."
        )
    return dtypes.pop()


def uncertain(module: nn.Module, selection: Any) -> dict[str, nn.Parameter]:
    """Parameters to be made theta, by name.

    Of the selected ones those that require a gradient, or all if none of them does.
    """
    named = dict(module.named_parameters())
    if selection is not None:
        # a shared parameter has several names
        everywhere = dict(module.named_parameters(remove_duplicate=False))
        chosen = {id(everywhere[name]) for name in select(list(everywhere), selection)}
        named = {name: p for name, p in named.items() if id(p) in chosen}
        if not any(p.requires_grad for p in named.values()):
            return {name: p for name, p in named.items() if p.is_floating_point()}
    return {name: p for name, p in named.items() if p.requires_grad}


def _fixed(module: nn.Module) -> nn.Module:
    """Leave nothing in a private copy that a graph would follow, or may not keep."""
    for part in module.modules():
        for name, p in part.named_parameters(recurse=False):
            if p.is_inference():
                part._parameters[name] = p = nn.Parameter(p.clone(), requires_grad=False)
            p.requires_grad_(False)
        for name, buffer in part.named_buffers(recurse=False):
            part._buffers[name] = usable(buffer)
    return module


def _hollow(module: nn.Module, trainable: dict[str, nn.Parameter]) -> nn.Module:
    """Copy a module without the values of its uncertain parameters."""
    empty = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta"), requires_grad=False)
        for p in trainable.values()
    }
    try:
        return copy.deepcopy(module, dict(empty))
    except Exception as error:
        raise UnsupportedModelError(
            f"The module cannot be copied, and the original is never touched: {error} Usual "
            "causes: a tensor with a gradient kept as an attribute (a cached output, the old "
            "`torch.nn.utils.weight_norm`: use `torch.nn.utils.parametrizations.weight_norm`), or "
            "an open file or lock. Define `__deepcopy__`, or pass a cleaned copy."
        ) from error


def flatten(tensors: Sequence[Tensor], dtype: torch.dtype) -> Array:
    """Join the parameters to one NumPy vector; float64 unless there are very many."""
    vector = torch.cat([t.detach().cpu().reshape(-1) for t in tensors])
    single = dtype == torch.float32 and len(vector) > MOST_DOUBLE
    return vector.to(torch.float32 if single else torch.float64).numpy()


def _check_parameters(module: nn.Module, trainable: dict[str, nn.Parameter]) -> None:
    parameters: Iterable[tuple[str, Any]] = module.named_parameters()
    lazy = [name for name, p in parameters if nn.parameter.is_lazy(p)]
    if lazy:
        raise UnsupportedModelError(
            f"The module has uninitialized lazy parameters ({lazy[0]}): call it once on a batch."
        )
    if not trainable:
        raise UnsupportedModelError(
            "The module has no trainable parameters, so nothing in it is uncertain. Are all of "
            "them frozen? Set `requires_grad_(True)` on those that were fitted."
        )
    if len({p.device for p in trainable.values()}) > 1:
        raise UnsupportedModelError(
            "The trainable parameters are on several devices; move the module to one of them."
        )
    for name, p in trainable.items():
        if not bool(torch.isfinite(p.detach()).all()):
            raise ValueError(
                f"The parameter {name} has entries that are NaN or infinite: the training diverged."
            )

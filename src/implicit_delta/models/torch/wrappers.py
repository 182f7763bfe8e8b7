"""Wrappers around a module (compilation, several devices) and what is inside of them."""

import os
from typing import Any

import torch
from torch import distributed, nn

from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning, UnsupportedModelError

SHARDED = {"FullyShardedDataParallel", "FSDPModule"}  # by name: its package may not be there
SPARSE = (nn.Embedding, nn.EmbeddingBag)


def unwrapped(module: nn.Module) -> nn.Module:
    """Take a module out of `torch.compile`, DataParallel and DistributedDataParallel."""
    while (inner := _inner(module)) is not None:
        module = inner
    if any(_is_sharded(part) for part in module.modules()):
        raise UnsupportedModelError(
            "The module is sharded over processes (FSDP), so none of them has its parameters. "
            "Gather them: with `torch.distributed.checkpoint.state_dict.get_model_state_dict("
            "module, options=StateDictOptions(full_state_dict=True))` on all ranks (with "
            "cpu_offload=True rank 0 alone gets them), load the result into a module that was not "
            "sharded, and give that one."
        )
    return module


def plain(module: nn.Module) -> nn.Module:
    """Unwrap the parts of a private copy, and make the gradients of its embeddings dense."""
    for part in list(module.modules()):
        for name, child in part.named_children():
            if _inner(child) is not None:
                setattr(part, name, unwrapped(child))
        if isinstance(part, SPARSE):
            part.sparse = False  # a graph of flat parameters has no sparse gradients
    return module


def _inner(module: nn.Module) -> nn.Module | None:
    found: Any = None
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        found = module.module
    elif type(module).__name__ == "OptimizedModule":  # torch has no public name for it
        found = getattr(module, "_orig_mod", None)
    return found if isinstance(found, nn.Module) else None


def _is_sharded(module: nn.Module) -> bool:
    if any(kind.__name__ in SHARDED for kind in type(module).__mro__):
        return True
    return any(
        type(p).__name__ == "DTensor" or type(p.data).__name__ == "DTensor"
        for p in module.parameters(recurse=False)
    )


def usable(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor of `torch.inference_mode`, which no graph may keep."""
    return tensor.clone() if tensor.is_inference() else tensor


def warn_alone(module: nn.Module) -> None:
    """Warn where the rows of other ranks are likely to be missing."""
    if not distributed.is_available():
        return
    if distributed.is_initialized():
        several = distributed.get_world_size() > 1
        trained = isinstance(module, nn.parallel.DistributedDataParallel)
        if several and trained:
            warn(
                "The module was trained by several processes (DistributedDataParallel), and only "
                "the rows of this one count. If every rank has its own, give `group="
                "torch.distributed.group.WORLD`; if these are all, give `module.module`.",
                ImplicitDeltaWarning,
            )
    elif "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        warn(
            "This runs under torchrun, but torch.distributed is not initialized, so that `group="
            "torch.distributed.group.WORLD` is None and only the rows of this process count. Call "
            "`torch.distributed.init_process_group()` before.",
            ImplicitDeltaWarning,
        )

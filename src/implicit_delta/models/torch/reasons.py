"""Reasons for what torch cannot differentiate."""

import contextlib
from collections.abc import Iterator

from implicit_delta.errors import UnsupportedModelError

NO_RULE = (
    "torch lacks a derivative of an operation in the model (both curvatures take second ones). "
    "{what} Or hold the parameters before it fixed with `parameters=`, or use `refit`, which only "
    "trains."
)
REASONS = {
    "once_differentiable": (
        "A `torch.autograd.Function` in the model is marked `@once_differentiable`, so it has no "
        "second derivative, which both curvatures take. Remove the mark and write its backward "
        "with torch operations, hold the parameters before it fixed with `parameters=`, or use "
        "`refit`, which only trains."
    ),
    "Inference tensors": (
        "The model uses a tensor that was made under `torch.inference_mode()` and can be in no "
        "graph. Make it outside of that, under `torch.no_grad()`, or use its `.clone()`."
    ),
    "_embedding_bag": NO_RULE.format(
        what="It is `nn.EmbeddingBag`: use `nn.Embedding` with the same weight, and `.mean(1)`, "
        "`.sum(1)` or `.amax(1)` of its result (with a mask for `padding_idx`)."
    ),
    "_cdist": NO_RULE.format(
        what="It is `torch.cdist`: write the distances with differences, "
        "`(x[:, None] - centers).abs().sum(-1)` for p=1."
    ),
    "derivative for": NO_RULE.format(what="Write it with other torch operations."),
    "modified inplace": (
        "The model changes a parameter in place when it is called. Usual cause: `max_norm=` of an "
        "embedding. Rescale its weight once, and set `max_norm` to None."
    ),
    "device meta": (
        "The model uses its parameters after its forward pass is over. Usual cause: "
        "`torch.utils.checkpoint`, which repeats a part of it in the backward pass. Turn it off."
    ),
    "sparse": (
        "The model makes sparse gradients, which have no second derivative. Usual cause: "
        "`F.embedding(..., sparse=True)`; use `nn.Embedding`, or leave `sparse` out."
    ),
}


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Give the reason for what torch cannot differentiate."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        for sign, reason in REASONS.items():
            if sign.lower() in str(error).lower():
                raise UnsupportedModelError(f"{reason} (torch: {error})") from error
        raise

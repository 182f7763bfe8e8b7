"""The tangent of a torch module: its calls are linear in the step from the fitted parameters.

The module stays the object that psi knows: attributes, `eval()`, devices and types of outputs are
its own. Only the calls change: of the module, or of a part of it that psi calls by itself.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.torch.graph import linearize
from implicit_delta.models.torch.module import TorchFunctional

PLAIN = (bool, int, float, complex, str, bytes, type(None))  # outputs that can be compared


@contextlib.contextmanager
def linearized(functional: TorchFunctional, center: Tensor, delta: Tensor) -> Iterator[None]:
    r"""Make each call :math:`f(x; \theta) + J(x) \delta`, of the module and of its parts.

    A part that is called by another one takes part in the derivative of the outer call. Where psi
    chains parts by itself, each is linear in its own parameters: to first order that is the same.
    """
    tangent = _Tangent(functional, center, delta)
    parts = [(part, dict(vars(part))) for part in functional.module.modules()]
    try:
        for part, _ in parts:
            object.__setattr__(part, "forward", partial(tangent, part.forward))
        yield
    finally:
        for part, before in parts:
            vars(part).pop("forward", None)
            vars(part).update({"forward": before["forward"]} if "forward" in before else {})


@dataclass(frozen=True, eq=False)
class TangentFunctional(TorchFunctional):
    """The tangent of a module at its center, as a function of all parameters.

    Its likelihood is concave where that of the outputs is.
    """

    center: Tensor

    def __call__(self, function: Callable[..., Any], flat: Tensor, *arguments: Any) -> Any:
        with linearized(self, self.center, flat - self.center):
            return super().__call__(function, flat, *arguments)


@dataclass(eq=False)
class _Tangent:
    """A call of the module at its center, moved by the derivative along delta."""

    functional: TorchFunctional
    center: Tensor
    delta: Tensor
    inside: bool = field(init=False, default=False)

    def __call__(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.inside:
            return forward(*args, **kwargs)
        self.inside = True
        try:
            return self._moved(lambda _: forward(*args, **kwargs))
        finally:
            self.inside = False

    def _moved(self, function: Callable[[Any], Any]) -> Any:
        def run(flat: Tensor) -> Any:
            return self.functional.call(function, self.functional.views(flat))

        found, structure = self._derived(run)
        if any(slope is None for _, slope in found):
            self._check_still(run, found)
        moved = [value if slope is None else value + slope for value, slope in found]
        return pytree.tree_unflatten(moved, structure)

    def _derived(self, run: Callable[[Tensor], Any]) -> Any:
        """Values and slopes of all outputs, and the structure they are in, by the first way."""
        errors = []
        for way in (self._forwards, self._backwards, self._transformed):
            try:
                return way(run)
            except (RuntimeError, NotImplementedError, TypeError) as error:
                errors.append(error)  # no rule for forward mode; or psi is inside torch.func
        raise UnsupportedModelError(
            f"The module has no derivative in forward mode, nor twice in reverse: {errors[0]} So "
            "it has no tangent. Draw the weights themselves: `Simulation(tangent=False)`."
        ) from errors[0]

    def _forwards(self, run: Callable[[Tensor], Any]) -> Any:
        """Values and slopes by one pass in forward mode; no slope where nothing moves."""
        _load_rules()
        with torch.inference_mode(False), forward_ad.dual_level():
            # Inference mode switches forward mode off, and psi may be in it.
            with forward_ad._set_fwd_grad_enabled(True):
                outputs, structure = pytree.tree_flatten(run(_dual(self.center, self.delta)))
            return [_unpacked(output) for output in outputs], structure

    def _backwards(self, run: Callable[[Tensor], Any]) -> Any:
        """Values and slopes by reverse mode, twice; the slopes cannot be differentiated again."""
        if self.delta.requires_grad:
            raise NotImplementedError("an operation has no rule for forward mode.")
        with torch.enable_grad():
            outputs, structure = pytree.tree_flatten(run(self.center))
            return [self._slope(run, k, output) for k, output in enumerate(outputs)], structure

    def _slope(self, run: Callable[[Tensor], Any], k: int, output: Any) -> tuple[Any, Any]:
        point = self.center.detach().requires_grad_()
        mobile = pytree.tree_leaves(run(point))[k]
        if not isinstance(mobile, Tensor) or not mobile.requires_grad:
            return output, None
        linear = linearize(lambda flat: pytree.tree_leaves(run(flat))[k], self.center)
        return linear.value, linear.forward(self.delta[None])[0]

    def _transformed(self, run: Callable[[Tensor], Any]) -> Any:
        """Values and slopes within a transform such as `torch.vmap`, which knows its own ways."""
        rest: list[Any] = []

        def mobile(flat: Tensor) -> list[Tensor]:
            rest[:] = pytree.tree_flatten(run(flat))
            return [output for output in rest[0] if _is_real(output)]

        pairs = zip(*torch.func.jvp(mobile, (self.center,), (self.delta,)), strict=True)
        outputs, structure = rest
        return [next(pairs) if _is_real(out) else (out, None) for out in outputs], structure

    def _check_still(self, run: Callable[[Tensor], Any], found: Any) -> None:
        """Refuse outputs without a slope that the step moves nevertheless."""
        ends = pytree.tree_leaves(run(self.center + self.delta))
        for (value, slope), end in zip(found, ends, strict=True):
            if slope is None and not _same(value, end):
                raise UnsupportedModelError(
                    f"The module returns {_kind(value)}, which moves with the parameters and has "
                    "no derivative, so that the module has no tangent. Return logits or means from "
                    "the module and take classes, counts or `.item()` in psi; or draw the weights "
                    "themselves: `Simulation(tangent=False)`."
                )


@cache
def _load_rules() -> None:
    """Have torch load its rules for forward mode, without its warning about how it does so."""
    with warnings.catch_warnings(), forward_ad.dual_level():
        warnings.simplefilter("ignore", DeprecationWarning)
        _dual(torch.zeros(1), torch.zeros(1))


def _dual(value: Tensor, slope: Tensor) -> Tensor:
    dual: Tensor = forward_ad.make_dual(value, slope)  # type: ignore[no-untyped-call]
    return dual


def _unpacked(output: Any) -> tuple[Any, Tensor | None]:
    if not isinstance(output, Tensor):
        return output, None
    dual = forward_ad.unpack_dual(output)  # type: ignore[no-untyped-call]
    return dual.primal, dual.tangent


def _is_real(output: Any) -> bool:
    return isinstance(output, Tensor) and output.is_floating_point()


def _same(value: Any, end: Any) -> bool:
    if isinstance(value, Tensor):
        return isinstance(end, Tensor) and torch.equal(value, end)
    return isinstance(value, PLAIN) and bool(value == end)


def _kind(value: Any) -> str:
    return f"{value.dtype} numbers" if isinstance(value, Tensor) else f"a {type(value).__name__}"

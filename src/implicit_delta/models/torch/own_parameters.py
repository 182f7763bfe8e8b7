"""Watch for the user's own module inside psi: its parameters stay while those of psi vary."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from implicit_delta.models.module_checks import refuse_own


class OwnParameters:
    """Weak references to the trainable parameters of the module that was given to `from_torch`.

    Psi is given a copy. An operation within psi on memory of the original (a parameter, a view,
    an entry of its `state_dict()`) has no part in the derivative. After pickling there is no
    original, and nothing to see.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.references = {name: weakref.ref(p) for name, p in parameters.items()}

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function, and refuse it if it has used one of these parameters."""
        alive = ((name, reference()) for name, reference in self.references.items())
        with _Watch({_memory(p): name for name, p in alive if p is not None}) as watch:
            value = function(*arguments)
        if watch.found:
            refuse_own(watch.found[0], "from_torch", "copy.deepcopy(net)", "module")
        return value

    def __reduce__(self) -> Any:
        return OwnParameters, ({},)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Record operations on some memory."""

    def __init__(self, names: Mapping[Any, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names, self.found = names, list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor) and (name := self.names.get(_memory(leaf))):
                self.found.append(name)
        return func(*args, **(kwargs or {}))


def _memory(tensor: Tensor) -> Any:
    """Identify the storage of a tensor; tensors without one have None."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None

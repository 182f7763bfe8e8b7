"""Types of arrays and of evaluations."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Limits: TypeAlias = tuple[Array, Array] | None  # of each parameter, (d,) and (d,)
Psi: TypeAlias = Callable[[Any], Any]
# Psi, a parameter by name, or a list or dict of these, of questions and of wrappers.
Asked: TypeAlias = Psi | str | Sequence[Any] | Mapping[Any, Any]
WeightKind: TypeAlias = Literal["frequency", "precision", "sampling"]

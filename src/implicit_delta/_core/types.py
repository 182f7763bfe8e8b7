"""Types of arrays and of evaluations."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Psi: TypeAlias = Callable[[Any], Any]
Asked: TypeAlias = Psi | str | Sequence[str]  # psi, or parameters by name
WeightKind: TypeAlias = Literal["frequency", "precision", "sampling"]

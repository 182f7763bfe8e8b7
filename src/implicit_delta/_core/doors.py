"""Functions of later rooms that models offer as methods, entered when those rooms are imported."""

from collections.abc import Callable
from typing import Any

DOORS: dict[str, Callable[..., Any]] = {}

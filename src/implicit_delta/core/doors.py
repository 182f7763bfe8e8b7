"""Functions of later rooms that models offer as methods, loaded when those are called."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

# By name alone: an import from a later room would turn the order of the rooms around.
DOORS = {
    "summary": ("implicit_delta.inference.summary", "summary_of"),
    "covariance": ("implicit_delta.inference.summary", "covariance_of"),
    "criterion": ("implicit_delta.inference.summary", "criterion_of"),
    "html": ("implicit_delta.inference.summary", "html_of"),
}


def door(name: str) -> Callable[..., Any]:
    """Load the function behind a door."""
    module, function = DOORS[name]
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found

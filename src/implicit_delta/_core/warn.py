"""Warnings that point at the user's line."""

import sys
import warnings

OURS = {"implicit_delta", "joblib"}  # joblib runs parts of the package


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the first frame outside the package, however deep the call came from."""
    warnings.warn(text, category, stacklevel=_depth())


def _depth() -> int:
    """Count the frames from `warn` to the user's."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and _package(frame.f_globals.get("__name__")) in OURS:
        frame, depth = frame.f_back, depth + 1
    return depth


def _package(module: object) -> str:
    return str(module).partition(".")[0]

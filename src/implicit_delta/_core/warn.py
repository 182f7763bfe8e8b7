"""Warnings that point at the user's line."""

import sys
import warnings
from pathlib import Path
from types import FrameType

PACKAGE = str(Path(__file__).resolve().parents[1])


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the first frame outside the package (and joblib, which runs parts of it)."""
    warnings.warn(text, category, stacklevel=_depth())


def _depth() -> int:
    """Count the frames from `warn` to the user's."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and _ours(frame):
        frame, depth = frame.f_back, depth + 1
    return depth


def _ours(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return frame.f_code.co_filename.startswith(PACKAGE) or module.partition(".")[0] == "joblib"

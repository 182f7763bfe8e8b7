"""Progress bar that appears after two seconds."""

from typing import Any

from tqdm.auto import tqdm


def progress(label: str, total: int | None = None, unit: str = "it") -> Any:
    """Open a bar, a context manager with `update`."""
    return tqdm(desc=label, total=total, unit=unit, delay=2.0, leave=False, dynamic_ncols=True)

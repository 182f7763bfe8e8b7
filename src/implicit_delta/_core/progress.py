"""A progress bar that shows itself only when the work takes longer than two seconds."""

from typing import Any

from tqdm.auto import tqdm


def progress(label: str, total: int | None = None, unit: str = "it") -> Any:
    """Open a bar; use it as a context manager and call its `update`."""
    return tqdm(desc=label, total=total, unit=unit, delay=2.0, leave=False, dynamic_ncols=True)

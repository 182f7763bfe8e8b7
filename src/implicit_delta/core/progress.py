"""Progress bar that appears after two seconds, where somebody can see it.

Bars are drawn in a terminal and in a notebook, and stay out of pipes and log files. The environment
variable ``IMPLICIT_DELTA_PROGRESS`` overrides this: ``off`` hides every bar, ``on`` shows them even
in a pipe. It is read when a bar opens, so a running program may set it in ``os.environ``. Where no
bar is drawn, a wait that is foretold is one line of the logger ``implicit_delta``.
"""

import importlib.util
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from implicit_delta.core.arguments import Counter
from implicit_delta.core.warn import hushed

DELAY = 2.0  # seconds: most calls are done before
SLOW = 0.3  # seconds a call: a few hundred of them are a minute or more
WAIT = 10.0  # seconds after which people wonder
VARIABLE = "IMPLICIT_DELTA_PROGRESS"
SWITCH = {"": None, "auto": None, "on": True, "1": True, "off": False, "0": False}

logger = logging.getLogger("implicit_delta")
logger.addFilter(lambda record: not hushed())


def progress(label: str, total: float | None = None, unit: str = "it") -> Any:
    """Open a bar, a context manager with `update`."""
    from tqdm import tqdm

    notebook, shown = _in_notebook(), _shown()
    # A bar that is shown leaves `disable` alone, so that tqdm's own TQDM_DISABLE still counts.
    look: dict[str, Any] = {"leave": False, "dynamic_ncols": True} if shown else {"disable": True}
    bar = _notebook_bar if notebook and shown else tqdm
    return bar(desc=label, total=total, unit=unit, delay=DELAY, **look)


@contextmanager
def calls_ahead(counter: Counter, label: str, expected: int) -> Iterator[None]:
    """Foretell the number of calls and their time where a call is slow, and show them as they come.

    Inside of another one nothing more is foretold.
    """
    if counter.seconds < SLOW or counter.bar is not None:
        yield
        return
    text = f"{label} ({foretold(expected, counter.seconds)})"
    if expected * counter.seconds >= WAIT and _switch() is None and not _shown():
        logger.warning("%s. %s=on draws a bar, =off hides this line.", text, VARIABLE)
    with progress(text, expected, "call") as bar:
        counter.bar = bar
        try:
            yield
        finally:
            counter.bar = None


def foretold(calls: int, seconds: float) -> str:
    """Spell a number of calls, of so many seconds each."""
    whole = calls * seconds
    time = f"{whole:.0f} s" if whole < 100 else f"{whole / 60:.0f} min"
    return f"about {calls} calls, {time}"


def _shown() -> bool:
    """Tell whether bars are drawn: as the variable has it, or where somebody can see them."""
    switch = _switch() and not hushed()
    return switch if switch is not None else (_in_notebook() or _in_terminal()) and not hushed()


def _switch() -> bool | None:
    """Read the environment variable: on, off, or None for the automatic choice."""
    setting = os.environ.get(VARIABLE, "").strip().lower()
    if setting not in SWITCH:
        raise ValueError(
            f"The environment variable {VARIABLE} is {setting!r}: set it to 'on' or 'off', or to "
            "'auto' for bars in terminals and notebooks only."
        )
    return SWITCH[setting]


def _in_terminal() -> bool:
    """Tell whether errors are printed to a terminal; programs without a console have no stderr."""
    return sys.stderr is not None and sys.stderr.isatty()


def _in_notebook() -> bool:
    """Tell whether a Jupyter kernel runs this; nothing is imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config


def _notebook_bar(**options: Any) -> Any:
    """Open a widget where widgets are installed, else a line of text.

    `tqdm.auto` would warn about the missing widgets. Text goes to stdout: notebooks print stderr in
    red.
    """
    if importlib.util.find_spec("ipywidgets") is None:
        from tqdm import tqdm

        return tqdm(file=sys.stdout, **options)
    from tqdm.notebook import tqdm as widget

    return widget(**options)

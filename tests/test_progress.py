"""Bars appear in terminals and notebooks, stay out of pipes, and can be switched."""

import os
import subprocess
import sys
import textwrap

import pytest

from implicit_delta.core import progress as module

pytestmark = pytest.mark.slow

BAR = """
from implicit_delta.core import progress

progress.DELAY = 0.0
with progress.progress("draws", total=2) as bar:
    bar.update(2)
    bar.refresh()
print("done")
"""
# A Jupyter kernel, as far as tqdm and this package look; with or without widgets.
KERNEL = """
import importlib.util, sys, types

shell = types.SimpleNamespace(config={"IPKernelApp": {}})
sys.modules["IPython"] = types.ModuleType("IPython")
sys.modules["IPython"].get_ipython = lambda: shell
sys.modules["ipywidgets"] = None
"""


def run(code, setting=None, launch=(sys.executable,), **environment):
    env = {k: v for k, v in os.environ.items() if k not in (module.VARIABLE, "TQDM_DISABLE")}
    env |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    env |= {} if setting is None else {module.VARIABLE: setting}
    command = [*launch, "-W", "error", "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (None, False),
        ("", False),
        ("auto", False),
        ("off", False),
        ("0", False),
        ("on", True),
        ("1", True),
        (" ON ", True),
    ],
)
def test_a_pipe_gets_a_bar_only_when_told(setting, shown):
    done = run(BAR, setting)
    assert done.stdout == "done\n"
    assert ("draws" in done.stderr) == shown
    assert shown or not done.stderr


TERMINAL = """
import fcntl, os, pty, struct, sys, termios


process, terminal = pty.fork()
if process == 0:
    os.execv(sys.executable, [sys.executable, "-W", "error", "-c", {code!r}])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
try:
    while read := os.read(terminal, 1000):
        os.write(1, read)
except OSError:  # Linux's way of saying that the other end is closed
    pass
"""


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, True),
        ({"setting": "off"}, False),
        ({"setting": "on"}, True),
        ({"TQDM_DISABLE": "1"}, False),
    ],
)
def test_a_terminal_gets_a_bar_unless_told_otherwise(settings, shown):
    pytest.importorskip("pty", reason="terminals of POSIX")
    # The size of the terminal is set while the program starts: a moment's wait.
    done = run(TERMINAL.format(code="import time; time.sleep(0.2)\n" + BAR), **settings)
    assert "done" in done.stdout, done.stdout + done.stderr
    assert ("draws" in done.stdout) == shown


@pytest.mark.parametrize(("setting", "shown"), [(None, True), ("off", False), ("on", True)])
def test_a_notebook_without_widgets_gets_text_that_is_not_red(setting, shown):
    done = run(KERNEL + "import implicit_delta\n" + BAR, setting)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert ("draws" in done.stdout) == shown


def test_a_notebook_with_widgets_gets_a_widget(monkeypatch):
    widgets = []
    notebook = pytest.importorskip("tqdm.notebook")
    monkeypatch.delenv(module.VARIABLE, raising=False)
    monkeypatch.setattr(module, "_in_notebook", lambda: True)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(notebook, "tqdm", lambda **options: widgets.append(options["desc"]))
    module.progress("draws")
    assert widgets == ["draws"]


def test_a_program_without_stderr_gets_no_bar(monkeypatch):
    monkeypatch.delenv(module.VARIABLE, raising=False)
    monkeypatch.setattr(sys, "stderr", None)
    with module.progress("draws", total=2) as bar:
        bar.update()


def test_the_switch_is_read_when_a_bar_opens(monkeypatch, capsys):
    monkeypatch.setattr(module, "DELAY", 0.0)
    for setting, shown in (("on", True), ("off", False)):
        monkeypatch.setenv(module.VARIABLE, setting)
        with module.progress("draws", total=2) as bar:
            bar.update()
        assert ("draws" in capsys.readouterr().err) == shown


def test_a_switch_that_is_neither_on_nor_off_is_refused(monkeypatch):
    monkeypatch.setenv(module.VARIABLE, "maybe")
    with pytest.raises(ValueError, match="IMPLICIT_DELTA_PROGRESS is 'maybe': set it to 'on'"):
        module.progress("draws")

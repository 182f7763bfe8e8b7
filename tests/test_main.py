"""`python -m implicit_delta` prints versions and extras, and runs the demo."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import implicit_delta as idm
from implicit_delta import __main__ as command
from implicit_delta import demo

pytestmark = pytest.mark.slow
# older matplotlib calls pyparsing by deprecated names
STRICT = ("-W", "error", "-W", "ignore::DeprecationWarning")

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def run(*arguments, folder):
    path = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))}
    return subprocess.run(
        [sys.executable, *STRICT, "-m", "implicit_delta", *arguments],
        cwd=folder, env=os.environ | path, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_versions_extras_and_the_demo_with_its_picture(tmp_path):
    pytest.importorskip("matplotlib")
    done = run("--picture", "launch.png", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert f"implicit-delta {idm.__version__}, Python {sys.version.split()[0]}" in done.stdout
    assert "0.9996, 95 % interval 0.482 to 1.0000" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["launch.png"]


def test_without_the_demo_nothing_is_written(tmp_path):
    done = run("--no-demo", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Extras" in done.stdout
    assert "O-rings" not in done.stdout
    assert not list(tmp_path.iterdir())


def test_help_names_the_switch_of_the_bars(tmp_path):
    assert "IMPLICIT_DELTA_PROGRESS" in run("--help", folder=tmp_path).stdout


def test_what_is_not_installed_comes_with_its_command(monkeypatch, capsys, tmp_path):
    installed = command.version

    def version(name):
        if name in ("matplotlib", "optax"):
            raise command.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "version", version)
    command.main([])
    printed = capsys.readouterr().out
    for extra in ("plot", "jax"):
        assert re.search(
            rf"{extra} +not installed: pip install 'implicit-delta\[{extra}\]'", printed
        )
    assert "O-rings" in printed
    assert not list(tmp_path.iterdir())


def test_a_picture_that_cannot_be_written_is_no_failure(tmp_path):
    pytest.importorskip("matplotlib")
    done = run("--picture", "nowhere/launch.png", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The picture was not written" in done.stdout


@pytest.mark.skipif(not PYPROJECT.exists(), reason="pyproject.toml is not here")
def test_the_extras_are_those_of_the_package():
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(command.EXTRAS) == set(re.findall(r"\w+", everything.split("[")[1]))
    for name, distributions in command.EXTRAS.items():
        asked = {word for line in extras[name] for word in re.findall(r"[a-z][\w-]*", line)}
        assert set(distributions) == asked
    assert set(command.CORE) == {re.match(r"\w+", line)[0] for line in project["dependencies"]}


def test_the_demo_is_a_logistic_regression():
    """The published coefficients: 15.043 at 0 F and -0.2322 per degree."""
    level, slope = idm.infer(demo.fit(), lambda th: [th[0] - 70 * th[1], th[1]]).value
    assert (round(level, 3), round(slope, 4)) == (15.043, -0.2322)

"""Print the lower bounds of pyproject.toml as constraints for pip: numpy>=1.26 as numpy==1.26.

torch keeps the version of constraints.txt: the index has no build for CPUs of its lower bound.
"""

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
BOUND = re.compile(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)")


def requirements(pyproject):
    """Every requirement of the project, its extras and its dependency groups."""
    project = pyproject["project"]
    groups = [*project["optional-dependencies"].values(), *pyproject["dependency-groups"].values()]
    named = [entry for group in groups for entry in group if isinstance(entry, str)]
    return [*project["dependencies"], *named]


if __name__ == "__main__":
    found = map(BOUND.fullmatch, requirements(tomllib.loads(PYPROJECT.read_text())))
    bounds = {match[1]: match[2] for match in found if match}
    print("\n".join(f"{name}=={bound}" for name, bound in bounds.items() if name != "torch"))

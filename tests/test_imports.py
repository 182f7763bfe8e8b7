"""The directions between rooms, held by the import graph of the source."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import implicit_delta

PACKAGE = Path(implicit_delta.__file__).parent
ROOT = "implicit_delta"

NUMERICS = ("calculus", "linalg", "optimize")

# Each room may import from itself and from these: the order of the rooms is the order of the keys.
ALLOWED = {
    "errors": set(),
    "core": {"errors"},
    "likelihoods": {"errors", "core"},
    "calculus": {"errors", "core"},
    "linalg": {"errors", "core"},
    "optimize": {"errors", "core", "linalg"},
    "models": {"errors", "core", "likelihoods", *NUMERICS},
    "evaluation": {"errors", "core", *NUMERICS, "models"},
    "methods": {"errors", "core", *NUMERICS, "models", "evaluation"},
    "estimate": {"errors", "core", *NUMERICS},
    "inference": {"errors", "core", *NUMERICS, "models", "evaluation", "methods", "estimate"},
    "plot": {"estimate"},
    "demo": {"models", "evaluation", "estimate", "inference"},
    # A user of the whole: of the public names, and of what reads and prints texts.
    "command": {ROOT, "errors", "core", "estimate", "demo"},
}
FRAMEWORKS = {"torch", "jax", "optax", "sklearn", "statsmodels"}
STATISTICS = ("log-likelihood", "polish", "l2=", "standard error", "Infinitesimal", "Simulation")


def modules():
    """Every module by its dotted name, with its syntax tree."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = [ROOT, *path.relative_to(PACKAGE).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, ast.parse(path.read_text())


MODULES = dict(modules())


def imports(tree):
    """Pairs of a module and the names taken from it, wherever the statement stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction"
            yield node.module, tuple(alias.name for alias in node.names)


def edges(tree):
    """The modules of the package that a module imports."""
    for module, names in imports(tree):
        if module.partition(".")[0] == ROOT:
            inner = [f"{module}.{name}" for name in names if f"{module}.{name}" in MODULES]
            yield from inner or [module]


def room(module):
    return module.split(".")[1] if "." in module else ROOT


@pytest.mark.parametrize("name", [m for m in MODULES if room(m) in ALLOWED])
def test_a_room_imports_only_from_the_rooms_before_it(name):
    own = room(name)
    taken = {room(target) for target in edges(MODULES[name])} - {own}
    assert taken <= ALLOWED[own]


def test_every_room_is_in_the_order():
    known = set(ALLOWED) | {"testing", "__main__", ROOT}
    assert {room(name) for name in MODULES} <= known
    before = {ROOT}  # which imports all rooms but the last
    for own, allowed in ALLOWED.items():
        assert allowed <= before, f"{own} imports from a room that comes later: a cycle"
        before.add(own)


def test_nothing_but_the_entry_imports_the_command():
    users = {name for name, tree in MODULES.items() if "command" in map(room, edges(tree))}
    assert {room(name) for name in users} <= {"command", "__main__"}


def test_no_module_imports_itself_in_a_circle():
    """At run time: what is imported for types alone does not count."""
    graph = {name: set(edges(_at_run_time(tree))) for name, tree in MODULES.items()}
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            path.append(name)
            for target in graph[name]:
                visit(target)
            done.add(path.pop())

    for name in graph:
        visit(name)


def _at_run_time(tree):
    """Leave out `if TYPE_CHECKING:` and functions, which import when they are called."""
    kept = [
        node
        for node in tree.body
        if not isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    return ast.Module(kept, [])


@pytest.mark.parametrize("name", MODULES)
def test_private_names_stay_in_their_file(name):
    for module, names in imports(MODULES[name]):
        if module.partition(".")[0] == ROOT:
            assert not [n for n in names if n.startswith("_") and n != "core"], module


@pytest.mark.parametrize("name", [m for m in MODULES if room(m) not in ("models", "testing")])
def test_only_models_know_frameworks(name):
    if name == f"{ROOT}.likelihoods":
        pytest.skip("dispatches on the library of the outputs, with lazy imports")
    taken = {module.partition(".")[0] for module, _ in imports(MODULES[name])}
    assert not taken & FRAMEWORKS


@pytest.mark.parametrize("name", [m for m in MODULES if room(m) in NUMERICS])
def test_messages_of_numerics_know_no_statistics(name):
    texts = [
        piece.value
        for node in ast.walk(MODULES[name])
        if isinstance(node, ast.Raise | ast.Assign | ast.Return)
        for piece in ast.walk(node)
        if isinstance(piece, ast.Constant) and isinstance(piece.value, str)
    ]
    assert not [text for text in texts if any(word in text for word in STATISTICS)]


def test_docstrings_open_with_a_verb_or_a_noun():
    opened = [
        f"{name}: {text.splitlines()[0]}"
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and (text := ast.get_docstring(node) or "").startswith(("What ", "How ", "Who "))
    ]
    assert not opened


HEAVY = {
    "scipy.stats", "joblib", "tqdm", "pandas", "matplotlib", "torch", "jax", "statsmodels",
    "sklearn",
}  # fmt: skip
MODEL = """
import numpy as np
y = np.random.default_rng(0).normal(size=50)
model = idm.from_loglik(lambda th: -((y - th[0]) ** 2) / 2, start=[0.0])
"""
FIRST_INFER = MODEL + "str(idm.infer(model, lambda th: th[0]))"


@pytest.mark.parametrize(
    ("statements", "absent"),
    [
        ("", HEAVY | {"numpy", "scipy"}),
        ("[getattr(idm, name) for name in idm.__all__]", HEAVY),
        (FIRST_INFER, HEAVY),
        (MODEL + "str(model.summary())", HEAVY),
    ],
    ids=["import", "all names", "the first infer", "summary alone"],
)
def test_heavy_packages_are_loaded_when_needed(statements, absent):
    program = f"import sys, implicit_delta as idm\n{statements}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
    )  # fmt: skip
    assert not done.stderr
    assert not absent & set(done.stdout.split())


def test_type_checkers_see_the_names_that_are_loaded():
    block = next(node for node in MODULES[ROOT].body if isinstance(node, ast.If)).body
    seen = {alias.asname: node.module for node in block for alias in node.names}
    assert seen == {name: f"{ROOT}.{home}" for name, home in implicit_delta._HOMES.items()}


def test_names_and_rooms_are_found_by_attribute():
    assert set(implicit_delta.__all__) <= set(dir(implicit_delta))
    assert implicit_delta.infer is implicit_delta.inference.infer.infer
    assert implicit_delta.models.model.FittedModel is implicit_delta.FittedModel
    with pytest.raises(AttributeError, match="no attribute 'infre'"):
        implicit_delta.infre  # noqa: B018

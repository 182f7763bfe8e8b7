"""The shape of the source that keeps it small: one final model, backends as parts."""

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import implicit_delta
from implicit_delta.models.model import FittedModel

PACKAGE = Path(implicit_delta.__file__).parent
# What a user calls on a model, beside printing.
FOR_USERS = {"names", "fix", "release", "constrain", "summary", "covariance", "aic", "bic"}
FOR_USERS |= {"module", "params", "apply"}
MOST_MEMBERS = 16


def trees(*folders):
    for folder in folders:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            yield path.relative_to(PACKAGE), ast.parse(path.read_text())


def classes_of_backends():
    """Names of classes in `models` that are rows, outputs or languages, and of no protocol."""
    found = set()
    for path, tree in trees("models"):
        if path.name in ("rows.py", "language.py") and path.parent.name == "models":
            continue  # the contracts
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                members = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
                if {"terms_along", "sum_blocks"} <= members or {"evaluate", "jacobian"} <= members:
                    found.add(node.name)
    return found - {"FittedModel"}


def test_a_fitted_model_has_few_members():
    own = {name for name in vars(FittedModel) if not name.startswith("_")}
    own |= {field.name for field in fields(FittedModel)}
    assert len(own - FOR_USERS) <= MOST_MEMBERS, sorted(own - FOR_USERS)
    assert own >= FOR_USERS


def test_nobody_subclasses_it():
    assert not FittedModel.__subclasses__()
    for path, tree in trees("."):
        for node in ast.walk(tree):
            bases = node.bases if isinstance(node, ast.ClassDef) else []
            assert "FittedModel" not in [ast.unparse(base) for base in bases], path


def test_backends_are_known_to_the_models_alone():
    backends = classes_of_backends()
    assert {"LoglikRows", "EquationRows", "BatchRows", "SumOver", "Given", "Restricted"} <= backends
    for path, tree in trees("evaluation", "methods", "inference", "estimate", "command"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                named = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                assert not named & backends, f"{path}:{node.lineno}: {named & backends}"


def test_rows_hold_no_weights_and_no_penalty():
    for path, tree in trees("models"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or node.name.endswith("Objective"):
                continue
            members = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            if {"terms_along", "sum_blocks"} <= members:
                own = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
                assert not own & {"weights", "penalty"}, f"{path}: {node.name}"


def test_its_docstring_names_its_fields():
    text = inspect.getdoc(FittedModel)
    for field in fields(FittedModel):
        assert f"{field.name} :" in text

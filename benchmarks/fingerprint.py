"""Fingerprint of the code behind a row: that of the library and of the module with its cases."""

import ast
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import implicit_delta

HERE = Path(__file__).parent
LIBRARY = Path(implicit_delta.__file__).parent


def fingerprint(module: ModuleType) -> str:
    """Hash the code; comments, docstrings and the library's own version do not count."""
    texts = [_library(), *map(code, sorted(files(Path(str(module.__file__)))))]
    return sha256("\n".join(texts).encode()).hexdigest()[:12]


def files(path: Path) -> set[Path]:
    """Collect a file and what it imports of this folder, and so on."""
    paths = {path}
    while (more := paths.union(*map(_imported, paths))) != paths:
        paths = more
    return paths


@cache
def _library() -> str:
    text = "\n".join(code(path) for path in sorted(LIBRARY.rglob("*.py")))
    return text.replace(repr(implicit_delta.__version__), "")


@cache
def code(path: Path) -> str:
    """Source without comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        if documented and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


@cache
def _imported(path: Path) -> frozenset[Path]:
    """Modules of this folder that a file imports, at its top or when it needs them."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    names = {name for node in nodes if isinstance(node, ast.ImportFrom) for name in _names(node)}
    return frozenset(found for name in names if (found := HERE / f"{name}.py").exists())


def _names(node: ast.ImportFrom) -> Iterator[str]:
    package, _, name = (node.module or "").partition(".")
    if package == HERE.name:
        yield from [name] if name else [alias.name for alias in node.names]

"""Directive ``messages``: every text that the source raises, or warns with, for one class."""

import ast
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

SOURCE = Path(__file__).parents[2] / "src" / "implicit_delta"
HOLE = "…"  # what depends on the case
DOUBTFUL = "refuse_or_warn"  # text, condition, warning: an error or a warning


@cache
def texts():
    """Return the messages of each class, in the order of the source."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        constants = _assigned(tree.body, [])
        for function, owner in _functions(tree):
            names = _assigned(ast.walk(function), constants)
            for kind, message in _messages(function, owner, names):
                found.setdefault(kind, {})[message] = None
    return {kind: list(messages) for kind, messages in found.items()}


def _functions(tree):
    """Yield each function with the class that it belongs to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from ((item, node.name) for item in node.body if _is_function(item))
    methods = {
        item for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for item in node.body
    }
    yield from (
        (node, None) for node in ast.walk(tree) if _is_function(node) and node not in methods
    )


def _is_function(node):
    return isinstance(node, ast.FunctionDef) and node.name != DOUBTFUL


def _assigned(statements, known):
    """Read the texts that are given names, as (name, line, text): a name may have several."""
    names = list(known)
    for node in statements:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = _text(node.value, names)
            if text:
                names.append((node.targets[0].id, node.lineno, text))
    return names


def _named(node, names):
    """Return the text that a name has at this line."""
    texts = [(line, text) for name, line, text in names if name == node.id and line <= node.lineno]
    return max(texts)[1] if texts else None


def _messages(function, owner, names):
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else None
        text = _text(node.args[0], names)
        if not text or called is None or len(text) < 20:
            continue
        if called == "cls" and owner and owner.endswith("Error"):
            yield owner, text
        elif called.endswith("Error"):
            yield called, text
        elif called == "warn" and len(node.args) > 1 and isinstance(node.args[1], ast.Name):
            if node.args[1].id.endswith("Warning"):
                yield node.args[1].id, text
        elif called == DOUBTFUL and isinstance(node.args[2], ast.Name):
            yield "ConvergenceError", text
            yield node.args[2].id, text


def _text(node, names):
    """Return a text with holes, or nothing if there is no text in it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return _named(node, names)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_text(side, names) or HOLE for side in (node.left, node.right)]
        return None if parts == [HOLE, HOLE] else "".join(parts)
    if isinstance(node, ast.JoinedStr):
        return "".join(_piece(part, names) for part in node.values)
    return None


def _piece(part, names):
    if isinstance(part, ast.Constant):
        return part.value
    named = _named(part.value, names) if isinstance(part.value, ast.Name) else None
    return named or HOLE


class Messages(SphinxDirective):
    """List the messages of the class that is the argument."""

    required_arguments = 1

    def run(self):
        """Make one list; code in backticks stays code."""
        self.env.note_reread()  # in every build: the source changes without the page
        items = nodes.bullet_list()
        for message in texts().get(self.arguments[0], []):
            items += nodes.list_item("", nodes.paragraph("", "", *_marked(message)))
        return [items] if items.children else [nodes.paragraph(text="No message of its own.")]


def _marked(message):
    for i, part in enumerate(message.split("`")):
        if part:
            yield nodes.literal(text=part) if i % 2 else nodes.Text(part)


def setup(app):
    """Register the directive."""
    app.add_directive("messages", Messages)
    return {"parallel_read_safe": True}

"""Directive ``messages``: every text of the source for one class of errors, or one code."""

import ast
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

SOURCE = Path(__file__).parents[2] / "src" / "implicit_delta"
HOLE = "…"  # what depends on the case


@cache
def texts():
    """Return the messages of each class and each code, in the order of the source."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        constants = _assigned(tree.body, [])
        for function, owner in [*_functions(tree), *((node, None) for node in _constants(tree))]:
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
    return isinstance(node, ast.FunctionDef)


def _constants(tree):
    return [node for node in tree.body if isinstance(node, ast.Assign)]


def _is_finding(node):
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Name) and called.id == "Finding" and len(node.args) == 3


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
        if _is_finding(node):
            yield from _of_finding(node, names)
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
        elif called == "warn" and len(node.args) > 1:
            kind = getattr(node.args[1], "id", "")
            if kind.endswith("Warning"):
                yield kind, text


def _of_finding(call, names):
    """Yield the message of a finding by its code, and by the classes that its levels allow."""
    given = {item.arg: item.value for item in call.keywords}
    text = _text(call.args[2], names) or HOLE
    causes = "; or ".join(_clauses(given.get("causes"), names))
    text += f" Usual causes: {causes}." if causes else ""
    text = " ".join([text, *_clauses(given.get("remedies"), names)])
    level = {node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant)}
    classes = {"error": "ImplicitDeltaError", "warning": "ImplicitDeltaWarning"}
    classes |= {kind: node.id for kind, node in given.items() if isinstance(node, ast.Name)}
    if text == HOLE:
        return
    yield call.args[1].value, text
    if level & {"error", "refuse"}:
        yield classes["error"], text
    if level & {"warn", "refuse"}:
        yield classes["warning"], text


def _clauses(node, names):
    return [_text(part, names) or HOLE for part in getattr(node, "elts", [])]


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

"""Source of the scripts: lines of code of an answer, fingerprints, reasons."""

import ast
import hashlib
import io
import re
import tokenize
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.data import FOLDER, OF

SCRIPTS = Path(__file__).parent / "scripts"
IMPORT = re.compile(r"\s*(import|from) ")
NAMED = re.compile(r"(fit|ask)_(\d+)")


@dataclass(frozen=True)
class Script:
    """What a script answers, how long its answers are, and what it says about the others."""

    text: str
    functions: dict = field(repr=False)  # (kind, question): lines of the body
    hand: dict
    cannot: dict
    notes: dict

    @property
    def answers(self):
        return sorted(question for kind, question in self.functions if kind == "ask")

    def lines(self, question):
        """Count the lines of code of both functions."""
        return sum(len(self.functions.get((kind, question), ())) for kind in ("fit", "ask"))

    def separate(self, question):
        """Whether the fit has a function of its own."""
        return ("fit", question) in self.functions

    def fingerprint(self, question):
        """Hash of the code of an answer and of its data."""
        code = [self.functions.get((kind, question), ()) for kind in ("fit", "ask")]
        data = (FOLDER / f"{OF[question]}.csv").read_bytes()
        return hashlib.sha256(repr(code).encode() + data).hexdigest()[:16]


def script(library):
    """Read the script of a library, without running it."""
    if library == "car":
        return _read_r((SCRIPTS / "car.R").read_text())
    return _read_python((SCRIPTS / f"{library}.py").read_text())


def _read_python(text):
    tree, code = ast.parse(text), _code_lines(text)
    functions = {}
    for node in tree.body:
        name = isinstance(node, ast.FunctionDef) and NAMED.fullmatch(node.name)
        if name:
            first, last = node.body[0].lineno, node.end_lineno
            lines = text.splitlines()
            body = [lines[i - 1] for i in range(first, last + 1) if i in code]
            body = [line for line in body if not IMPORT.match(line)]
            functions[name[1], int(name[2])] = body
    tables = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id in ("HAND", "CANNOT", "NOTES")
    }
    return Script(text, functions, tables["HAND"], tables["CANNOT"], tables["NOTES"])


def _code_lines(text):
    """Numbers of the lines that hold more than blanks and comments."""
    empty = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT}
    return {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in empty
        for line in range(token.start[0], token.end[0] + 1)
    }


def _read_r(text):
    functions, body = {}, None
    for line in text.splitlines():
        name = re.match(r"(fit|ask)_(\d+) <- function", line)
        if name:
            body = functions[name[1], int(name[2])] = []
        elif line.startswith("}"):
            body = None
        elif body is not None and line.strip() and not line.strip().startswith("#"):
            body.append(line)
    return Script(text, functions, *(_r_table(text, n) for n in ("HAND", "CANNOT", "NOTES")))


def _r_table(text, name):
    block = re.search(rf"^{name} <- list\((.*?)\)$", text, re.MULTILINE | re.DOTALL)[1]
    return {int(q): reason for q, reason in re.findall(r'"(\d+)" = "([^"]*)"', block)}

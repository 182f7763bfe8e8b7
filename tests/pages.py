"""Run the Python of a Markdown page and compare what it prints with what the page shows.

A fence ``python`` is run; all fences of a page share one namespace. A fence ``text`` right below
one holds its output: what is printed, the last expression, warnings and a final error of this
library. ``...`` stands for any text, line breaks do not matter, and the last digit shown of a
number may be off by one. A fence ``py`` is the code of another library, which sees the page's data
and changes nothing: it is run where that library is installed.

``python tests/pages.py README.md docs/guide/*.md`` writes fresh outputs into the pages, and
pictures into ``docs/images``.
"""

import ast
import contextlib
import importlib.util
import io
import re
import shutil
import sys
import tempfile
import textwrap
import warnings
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import implicit_delta as idm

FENCE = re.compile(r"^```(?P<kind>python|py|text)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
TOKEN = re.compile(rf"(?P<any>\.\.\.)|(?P<number>(?<![\w.]){NUMBER})|(?P<space>\s+)")
REFUSALS = (idm.ImplicitDeltaError, ValueError, TypeError)
WIDTH = 84


@dataclass(frozen=True)
class Block:
    """A piece of code, the line it starts at, and its output, which is None if none is shown."""

    code: str
    line: int
    shown: str | None
    theirs: bool
    end: int  # position behind the code's fence
    shown_at: tuple[int, int] | None  # position of the output's fence

    def imports(self):
        """Names of the top-level packages that the code imports."""
        for node in ast.walk(ast.parse(self.code)):
            if isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.split(".")[0]

    def missing(self):
        """Packages that the code imports and that are not installed."""
        return sorted({name for name in self.imports() if not importlib.util.find_spec(name)})


def blocks(text):
    """Find the code of a page, each piece with the output right below."""
    fences = list(FENCE.finditer(text))
    found = []
    for fence, after in zip_longest(fences, fences[1:]):
        if fence["kind"] == "text":
            continue
        output = after and after["kind"] == "text" and not text[fence.end() : after.start()].strip()
        found.append(
            Block(
                code=fence["body"],
                line=text.count("\n", 0, fence.start()) + 2,
                shown=after["body"] if output else None,
                theirs=fence["kind"] == "py",
                end=fence.end(),
                shown_at=after.span() if output else None,
            )
        )
    return found


def missing(text):
    """Packages that a page needs and that are not installed."""
    return sorted({name for b in blocks(text) if not b.theirs for name in b.missing()})


def run(text, page):
    """Yield each piece of code with what it prints."""
    from matplotlib import pyplot

    pyplot.close("all")
    pyplot.switch_backend("Agg")
    ours, theirs, found = {"__name__": "page"}, {}, blocks(text)
    skipped = any(block.missing() for block in found if block.theirs)
    for block in found:
        if not block.theirs:
            yield block, _output(block, ours, page)
        elif not skipped:
            theirs = ours | theirs  # the same data
            yield block, _output(block, theirs, page)
    pyplot.close("all")


def _output(block, namespace, page):
    """Run a piece of code like a cell of a notebook, at its line of the page."""
    tree = ast.parse("\n" * (block.line - 1) + block.code, filename=page)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter("ignore" if block.theirs else "error")
        warnings.simplefilter("always", idm.ImplicitDeltaWarning)
        warnings.showwarning = lambda text, kind, *_: print(f"{kind.__name__}: {text}")
        try:
            exec(compile(tree, page, "exec"), namespace)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), page, "eval"), namespace)
                print(value) if value is not None else None
        except REFUSALS as error:
            if block.shown is None:
                raise
            print(f"{type(error).__name__}: {error}")
    return printed.getvalue()


def agree(shown, printed):
    """Compare an output with the one that a page shows."""
    pattern, numbers, start = "", [], 0
    shown, printed = shown.strip(), printed.strip()
    for token in TOKEN.finditer(shown):
        pattern += re.escape(shown[start : token.start()])
        start = token.end()
        if token["number"]:
            numbers.append(token["number"])
        pattern += ".*?" if token["any"] else rf"({NUMBER})" if token["number"] else r"\s+"
    pattern += re.escape(shown[start:])
    # a table's columns may be as wide as they like, and so may the lines of a message
    match = re.fullmatch(pattern, printed, re.DOTALL)
    return match is not None and all(map(_close, numbers, match.groups()))


def _close(shown, printed):
    mantissa, _, exponent = shown.lower().partition("e")
    if re.fullmatch(r"[-+]?\d+", shown):
        return int(shown) == float(printed)
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(float(shown) - float(printed)) <= 1.01 * unit


def check(text, page):
    """Run a page and raise an error at the first output that is not the one shown."""
    for block, printed in run(text, page):
        if not agree(block.shown or "", printed):
            shown = block.shown or "nothing\n"
            raise AssertionError(
                f"{page}, line {block.line}: the code prints\n{printed}but the page shows\n{shown}"
                f"If the new output is right: python tests/pages.py {page}"
            )


def rewritten(text, page):
    """Return the page with outputs that agree."""
    for block, printed in reversed(list(run(text, page))):
        if not agree(block.shown or "", printed):
            start, end = block.shown_at or (block.end, block.end)
            gap = "" if block.shown_at else "\n\n"
            text = text[:start] + f"{gap}```text\n{_wrapped(printed)}\n```" + text[end:]
    return text


def _wrapped(printed):
    """Break the long lines of messages, which have no columns."""
    lines = printed.rstrip().splitlines()
    return "\n".join(
        textwrap.fill(line, WIDTH, break_on_hyphens=False)
        if "Error: " in line or "Warning: " in line
        else line
        for line in lines
    )


def main(pages):
    """Write fresh outputs into pages, and the pictures that they save beside the others."""
    images = Path(__file__).parents[1] / "docs" / "images"
    paths = [Path(page).resolve() for page in pages]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for path in paths:
            text = path.read_text()
            new = rewritten(text, path.name)
            print(f"{path.name}: {'unchanged' if new == text else 'written'}")
            path.write_text(new)
        for picture in Path(folder).glob("*.png"):
            shutil.copy(picture, images)


if __name__ == "__main__":
    main(sys.argv[1:])

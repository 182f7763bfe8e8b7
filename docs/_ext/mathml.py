"""Formulas as MathML: every browser draws it, and nothing is fetched from anywhere."""

import re

from docutils.nodes import SkipNode
from docutils.utils.math import MathError, pick_math_environment
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util.logging import getLogger

LARGER = re.compile(r"\\[Bb]igg?[lr]?(?![a-zA-Z])")  # browsers stretch parentheses by themselves


def _inline(writer, node):
    _write(writer, node, node.astext(), as_block=False)


def _block(writer, node):
    source = node.astext()
    environment = pick_math_environment(source)
    if not environment.startswith("equation"):
        source = f"\\begin{{{environment}}}{source}\\end{{{environment}}}"
    writer.body.append('<div class="math">')
    try:
        _write(writer, node, source, as_block=True)
    finally:
        writer.body.append("</div>")


def _write(writer, node, source, as_block):
    try:
        writer.body.append(tex2mathml(LARGER.sub("", source), as_block=as_block))
    except MathError as error:
        getLogger(__name__).warning("%s in %r", error, source, location=node)
    raise SkipNode


def setup(app):
    """Register the renderer, and choose it."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}

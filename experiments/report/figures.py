"""Pictures inside the page, with their size, so that a phone can show them legibly."""

import base64
import struct
from html import escape

from experiments.report.tables import scroller


def picture(path, title):
    """The file as part of the page; on a phone it scrolls at its own size."""
    content = path.read_bytes()
    width, height = struct.unpack(">II", content[16:24])  # of PNG's first chunk, IHDR
    data = base64.b64encode(content).decode()
    image = (
        f'<img src="data:image/png;base64,{data}" alt="{escape(title)}" '
        f'width="{width}" height="{height}" style="--width: {width}px">'
    )
    return scroller(image, f"Figure: {title}", "scroll wide")

"""Write docs/images/report.png: the page of docs/guide/report.md, in a browser at two widths."""

import contextlib
import io
import os
import re
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
WINDOWS = ((1000, "light"), (390, "dark"))
HEIGHT, GAP, COLORS = 1150, 24, 160


def write_page(folder):
    """Run the first piece of code of the guide there."""
    text = (ROOT / "docs" / "guide" / "report.md").read_text()
    code = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1]
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        exec(code, {})
    return Path(folder, "visits.html")


def shots(page):
    """Open a page in windows of several widths."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    with (
        sync_playwright() as driver,
        driver.chromium.launch(
            executable_path=browser, args=["--no-sandbox"] if os.getuid() == 0 else []
        ) as found,
    ):
        for width, scheme in WINDOWS:
            size = {"width": width, "height": HEIGHT}
            with found.new_context(viewport=size, color_scheme=scheme) as context:
                window = context.new_page()
                window.goto(page.as_uri())
                yield Image.open(io.BytesIO(window.screenshot())).convert("RGB")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        pictures = list(shots(write_page(folder)))
    widths = [picture.width for picture in pictures]
    whole = Image.new("RGB", (sum(widths) + GAP * (len(widths) - 1), HEIGHT), "#d9dde3")
    left = 0
    for picture in pictures:
        whole.paste(picture, (left, 0))
        left += picture.width + GAP
    target = ROOT / "docs" / "images" / "report.png"
    whole.quantize(COLORS, method=Image.Quantize.MAXCOVERAGE).save(target, optimize=True)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 1000:.0f} kB")

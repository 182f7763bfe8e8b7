"""The site builds without a warning, its links lead somewhere, and a browser has no complaint."""

import asyncio
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow
for package in (
    "sphinx",
    "myst_parser",
    "numpydoc",
    "pydata_sphinx_theme",
    "sphinx_design",
    "sphinx_gallery",
):
    pytest.importorskip(package)
for path, what in (("docs/conf.py", "pages"), ("results/index.html", "records")):
    if not (ROOT / path).exists():
        pytest.skip(f"the {what} of the site are not here", allow_module_level=True)

# What may be wider than the screen: whether it is, what tells so, and how keys reach it.
REGIONS = """[...document.querySelectorAll("main [role=region]")].map(one => ({
    label: one.getAttribute("aria-label"), wide: one.scrollWidth - one.clientWidth > 1,
    tab: one.tabIndex, told: getComputedStyle(one.firstElementChild, "::before").opacity === "1",
    shadow: getComputedStyle(one.firstElementChild, "::after").opacity === "1"}))"""
# Tables and pictures that stick out of the window, and are in no such region.
CUT = """[...document.querySelectorAll("main table, main img")].filter(one => {
    const box = one.getBoundingClientRect();
    return box.right > innerWidth + 1 && !one.closest("[role=region]");
}).map(one => one.outerHTML.slice(0, 100))"""
# Text that is too small; pictures have theirs of 7 points or more at 110 dots per inch.
SMALL = """(() => {
  const found = [], texts = document.createTreeWalker(
    document.querySelector("article, main"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const one = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !one.checkVisibility()) continue;
    if (parseFloat(getComputedStyle(one).fontSize) < LEAST) found.push(one.outerHTML.slice(0, 100));
  }
  const print = one => 7 * 110 / 72 * one.getBoundingClientRect().width / one.naturalWidth;
  return found.concat([...document.querySelectorAll("main img")].filter(
    one => one.checkVisibility() && print(one) < LEAST).map(one => one.alt));
})()"""
LEAST = 11  # pixels, on a phone
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (390, 1280)
# The theme lets the article scroll sideways, where only code and tables should.
TOO_WIDE = """Math.max(...[...document.querySelectorAll("html, .bd-article-container")].map(
    element => element.scrollWidth - element.clientWidth))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site without running its gallery, from a copy of the pages: the originals stay clean.

    Files are copied too, for links of the changelog start where it really is.
    """
    root = tmp_path_factory.mktemp("site")
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, root)
        elif path.name not in ("docs", "build", ".git", ".venv", ".venv-lowest"):
            (root / path.name).symlink_to(path)
    generated = shutil.ignore_patterns("auto_examples", "generated", "_build")
    shutil.copytree(ROOT / "docs", root / "docs", ignore=generated)
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-D", "plot_gallery=0"]
    built = subprocess.run(
        [*build, "docs", "html"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return root / "html"


class Links(HTMLParser):
    """Targets of the links of a page, its anchors, and the links of its navigation."""

    def __init__(self, page):
        super().__init__()
        self.links, self.anchors, self.navigation, self._depth = [], set(), [], 0
        self.feed(page.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self._depth += tag == "nav"
        self.anchors |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        link = attrs.get("href") if tag == "a" else attrs.get("src")
        if link:
            self.links.append(link)
            if self._depth and tag == "a":
                self.navigation.append(link)

    def handle_endtag(self, tag):
        self._depth -= tag == "nav"


def target(page, link):
    """The file and the anchor that a link leads to, or nothing if it leaves the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    return file, unquote(parts.fragment)


def pages_of(site):
    """Pages of the site, without the report, which is a page of its own, and files of the theme."""
    found = (page for page in site.rglob("*.html") if page.parent.name not in ("report", "_static"))
    return {page.resolve(): Links(page) for page in found}


def test_every_internal_link_leads_somewhere(site):
    pages, broken = pages_of(site), []
    for page, found in pages.items():
        for file, anchor in filter(None, (target(page, link) for link in found.links)):
            known = pages.get(file)
            if not file.exists() or (anchor and known and anchor not in known.anchors):
                broken.append((page.relative_to(site.resolve()), file.name, anchor))
    assert not broken


def test_nothing_is_fetched_from_elsewhere(site):
    for page, found in pages_of(site).items():
        elsewhere = [link for link in found.links if "://" in link]
        assert not [link for link in elsewhere if link.endswith((".js", ".css", ".png", ".svg"))], (
            page
        )


def test_agents_find_their_file_at_the_root(site):
    assert (site / "llms.txt").read_text().startswith("# implicit-delta")


def with_records():
    """Pages that show stored records, and how many."""
    found = {page: page.read_text().count("```{records}") for page in (ROOT / "docs").rglob("*.md")}
    return {page.relative_to(ROOT / "docs"): count for page, count in found.items() if count}


@pytest.mark.parametrize("page", with_records(), ids=str)
def test_no_record_is_missing_from_a_page(site, page):
    text = (site / page.with_suffix(".html")).read_text()
    assert "no such record" not in text
    tables = text.split('<table class="records')[1:]
    pictures = text.count('<div class="picture pan"') - (ROOT / "docs" / page).read_text().count(
        "!["
    )
    assert len(tables) + pictures == with_records()[page]
    assert all(table.split("</table>")[0].count("<tr") > 1 for table in tables)


def test_the_report_links_to_pages_of_the_site(site):
    report = site / "report" / "index.html"
    links = [link for link in Links(report).links if link.startswith("..")]
    assert len(links) >= 4
    assert [link for link in links if not (report.parent / link).resolve().exists()] == []
    sources = Links(ROOT / "results" / "index.html").links
    assert len([link for link in sources if link.endswith(".md")]) == len(links)


ELSEWHERE = """
import records
print(len(records.found("benchmarks")[1]))
try:
    records.found("coverage")
except FileNotFoundError as missing:
    print(missing)
"""


def test_a_source_distribution_has_the_tables_of_what_it_holds(tmp_path):
    """It has the benchmarks, and neither the experiments nor their records."""
    for part in ("docs/_ext", "benchmarks"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("*.pyc"))
    found = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        cwd=tmp_path / "docs" / "_ext",
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    stored = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    assert found.stdout.split() == [str(len(stored)), "experiments"]


def reached(site):
    """Pages that navigation leads to, from the start."""
    todo, seen = [(site / "index.html").resolve()], set()
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".html" or not page.exists():
            continue
        seen.add(page)
        todo += [t[0] for t in (target(page, link) for link in Links(page).navigation) if t]
    return sorted(page.relative_to(site.resolve()).as_posix() for page in seen)


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Address of a headless browser's protocol (Chrome DevTools)."""
    pytest.importorskip("tornado", reason="its websockets drive the browser")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    profile = tmp_path_factory.mktemp("profile")
    process = subprocess.Popen(
        [found, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    port = profile / "DevToolsActivePort"
    for _ in range(300):
        if port.exists() and len(port.read_text().split()) == 2:
            break
        time.sleep(0.1)
    else:
        process.kill()
        pytest.skip("the browser does not start here")
    number, path = port.read_text().split()
    yield f"ws://127.0.0.1:{number}{path}"
    process.terminate()
    process.wait(timeout=20)


class Tab:
    """One tab of the browser: sends commands, and collects what its console complains about."""

    def __init__(self, socket):
        self.socket, self.session, self.count, self.complaints, self.events = (
            socket,
            None,
            0,
            [],
            [],
        )

    async def send(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        await self.socket.write_message(
            json.dumps(message | ({"sessionId": self.session} if self.session else {}))
        )
        while True:
            answer = await self.receive()
            if answer.get("id") == message["id"]:
                assert "error" not in answer, answer
                return answer["result"]

    async def receive(self):
        answer = json.loads(await self.socket.read_message())
        method, params = answer.get("method", ""), answer.get("params", {})
        self.events.append(method)
        entry = params.get("entry", {})
        if method == "Runtime.exceptionThrown" or entry.get("level") == "error":
            self.complaints.append(str(params)[:300])
        if method == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.complaints.append(str(params["args"])[:300])
        return answer

    async def open(self, url):
        """Load a page and return what it complained about."""
        self.complaints, self.events = [], []
        await self.send("Page.navigate", url=url)
        while "Page.loadEventFired" not in self.events:
            await self.receive()
        return self.complaints

    async def value(self, expression):
        """Evaluate an expression of JavaScript, once its promise is kept."""
        found = await self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        return found["result"].get("value")


async def visit(address, browser, width, journey):
    """Open a tab of this width and do something with it."""
    from tornado.websocket import websocket_connect

    socket = await websocket_connect(browser, max_message_size=2**26)
    tab = Tab(socket)
    made = await tab.send("Target.createTarget", url="about:blank")
    joined = await tab.send("Target.attachToTarget", targetId=made["targetId"], flatten=True)
    tab.session = joined["sessionId"]
    for domain in ("Page", "Runtime", "Log"):
        await tab.send(f"{domain}.enable")
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    await tab.send("Emulation.setDeviceMetricsOverride", **screen)
    try:
        return await journey(tab, address)
    finally:
        await tab.send("Target.closeTarget", targetId=made["targetId"])
        socket.close()
        while await socket.read_message() is not None:
            pass  # until the other side has closed it too


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_of_the_navigation_opens_without_a_complaint(site, address, browser, width):
    pages = reached(site)
    assert {"index.html", "guide/which_call.html", "auto_examples/pricing.html"} <= set(pages)

    async def journey(tab, address):
        trouble = {}
        for page in pages:
            complaints = list(await tab.open(f"{address}/{page}"))
            wide = await tab.value(TOO_WIDE)
            if complaints or wide > 1:
                trouble[page] = complaints or f"{wide} pixels too wide"
        return trouble

    assert asyncio.run(visit(address, browser, width, journey)) == {}


def test_search_finds_the_page(address, browser):
    async def journey(tab, address):
        await tab.open(f"{address}/search.html?q=drift")
        for _ in range(100):
            found = await tab.value(
                "[...document.querySelectorAll('#search-results a')].map(a => a.href).join()"
            )
            if "refusals" in (found or ""):
                return found
            await asyncio.sleep(0.1)
        return found

    assert "refusals" in asyncio.run(visit(address, browser, WIDTHS[1], journey))


WIDE = (
    "report/index.html",
    "trust/evidence.html",
    "trust/fidelity.html",
    "project/benchmarks.html",
)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", WIDE)
def test_what_is_wide_scrolls_and_shows_it(address, browser, page, width):
    async def journey(tab, address):
        await tab.open(f"{address}/{page}")
        await tab.value("document.querySelectorAll('details').forEach(one => { one.open = true })")
        await asyncio.sleep(0.5)  # the theme sets what keys reach, and a frame draws the shadows
        small = await tab.value(SMALL.replace("LEAST", str(LEAST)))
        return await tab.value(REGIONS), await tab.value(CUT), small

    regions, cut, small = asyncio.run(visit(address, browser, width, journey))
    assert cut == []
    assert all(one["label"] for one in regions)
    wide = [one for one in regions if one["wide"]]
    assert [one for one in wide if one["tab"] != 0 or not one["told"] or not one["shadow"]] == []
    assert [one for one in regions if not one["wide"] and (one["told"] or one["shadow"])] == []
    if width == min(WIDTHS):
        assert wide
        assert small == []

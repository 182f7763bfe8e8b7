"""Pages in a real browser: they fit, they can be read, and they ask for nothing."""

import os
import shutil
from contextlib import contextmanager

import pytest

playwright = pytest.importorskip("playwright.sync_api")
from report_cases import CASES

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
EXECUTABLE = next(filter(None, map(shutil.which, BROWSERS)), None)
if EXECUTABLE is None:
    pytest.skip(f"no browser is installed ({', '.join(BROWSERS)})", allow_module_level=True)

pytestmark = pytest.mark.slow

WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")
LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA, for text of any size

# Text without enough contrast against the nearest background that is not transparent.
CONTRAST = """least => {
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => {
    const [r, g, b] = numbers(color).slice(0, 3).map(c => c / 255)
      .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (let one = element; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (!(numbers(color)[3] === 0)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || element.closest("title")) continue;
    const style = getComputedStyle(element), svg = element instanceof SVGElement;
    if (style.visibility === "hidden") continue;
    const pair = [light(svg ? style.fill : style.color), light(behind(element))];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    seen += 1;
    if (ratio < least) found.push([texts.currentNode.textContent, ratio]);
  }
  return [seen, found];
}"""
# Elements that stick out of the window, but for what scrolls inside a table.
OUTSIDE = """() => [...document.querySelectorAll("main *")].filter(one => {
  const box = one.getBoundingClientRect();
  return !one.closest(".table, .open") && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map(one => one.outerHTML.slice(0, 120))"""
UNSEEN = """() => [...document.querySelectorAll("svg[role=img]")].filter(one => {
  const box = one.getBoundingClientRect();
  return one.checkVisibility() && (box.width < 60 || box.height < 10);
}).map(one => one.outerHTML.slice(0, 120))"""
# Texts of one picture that lie on top of each other.
OVERLAPS = """() => [...document.querySelectorAll("svg")].flatMap(svg => {
  const boxes = [...svg.querySelectorAll("text")].map(text => text.getBoundingClientRect());
  return boxes.flatMap((a, i) => boxes.slice(0, i).filter(b =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
  )).map(() => svg.outerHTML.slice(0, 200));
})"""
# Drawings of rows that do not span the box of the axis below them.
ASKEW = """() => [...document.querySelectorAll(".strips")].flatMap(strips => {
  const axis = strips.querySelector("svg.scale");
  if (!axis) return [];
  const a = axis.getBoundingClientRect();
  return [...strips.querySelectorAll(".row:not(.axis) > svg")].filter(svg => {
    const b = svg.getBoundingClientRect();
    return Math.abs(a.left - b.left) > 0.5 || Math.abs(a.right - b.right) > 0.5;
  }).map(svg => svg.outerHTML.slice(0, 120));
})"""
BACKGROUND = "() => getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser():
    # A container runs tests as root, where the sandbox does not start.
    how = {"args": ["--no-sandbox"]} if getattr(os, "getuid", lambda: 1)() == 0 else {}
    with playwright.sync_playwright() as driver:
        try:
            found = driver.chromium.launch(executable_path=EXECUTABLE, **how)
        except playwright.Error as error:
            pytest.skip(f"{EXECUTABLE} does not start: {error!s:.200}")
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {
        name: make().report(folder / f"page{i}.html")
        for i, (name, make) in enumerate(CASES.items())
    }


@contextmanager
def opened(browser, path, width, scheme="light"):
    """Open a page with everything unfolded; note its requests and complaints."""
    window = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with browser.new_context(**window) as context:
        page, asked, complaints = context.new_page(), [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        page.evaluate("() => document.querySelectorAll('details').forEach(one => one.open = true)")
        yield page
        assert asked == [path.as_uri()]
        assert complaints == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CASES)
def test_a_page_fits_and_asks_for_nothing(name, width, browser, pages):
    with opened(browser, pages[name], width) as page:
        assert page.evaluate("() => document.documentElement.scrollWidth") == width
        assert page.evaluate(OUTSIDE) == []
        assert page.evaluate(UNSEEN) == []
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(ASKEW) == []
        assert page.evaluate("() => document.querySelectorAll('svg[role=img]').length") > 0


@pytest.mark.parametrize("width", [320, 500, 700, 870])
@pytest.mark.parametrize("name", ["twelve", "influence", "comparison", "scales"])
def test_axes_are_below_what_they_measure(name, width, browser, pages):
    with opened(browser, pages[name], width) as page:
        assert page.evaluate(ASKEW) == []
        assert width < min(WIDTHS) or page.evaluate(OVERLAPS) == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["trouble", "comparison", "parts", "influence", "three hundred"])
def test_text_can_be_read(name, scheme, browser, pages):
    with opened(browser, pages[name], 1280, scheme) as page:
        seen, faint = page.evaluate(CONTRAST, LEAST_CONTRAST)
        assert seen > 40
        assert faint == []


def test_the_colors_follow_the_system_but_not_on_paper(browser, pages):
    found = {}
    for scheme in SCHEMES:
        with opened(browser, pages["one"], 1280, scheme) as page:
            found[scheme] = page.evaluate(BACKGROUND)
            page.emulate_media(media="print", color_scheme=scheme)
            found[scheme, "print"] = page.evaluate(BACKGROUND)
    assert found["light"] != found["dark"]
    assert found["light", "print"] == found["dark", "print"] == found["light"]


def test_names_of_users_stay_text(browser, pages):
    with opened(browser, pages["weird names"], 1280) as page:
        assert page.evaluate("() => document.querySelectorAll('script, img, iframe').length") == 0
        assert "<script>alert(1)</script>" in page.inner_text("main")


def test_the_verdict_leads_to_the_checks(browser, pages):
    with opened(browser, pages["trouble"], 390) as page:
        page.click(".verdict a")
        top = page.evaluate("() => document.querySelector('#checks').getBoundingClientRect().top")
        assert -1 <= top < 900

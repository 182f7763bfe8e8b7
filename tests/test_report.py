"""Pages to show: whole, harmless, self-contained, and true to the estimate."""

import ast
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import report_cases
from report_cases import CASES, WEIRD, estimate
from scipy.stats import norm

import implicit_delta as idm
from implicit_delta.core import thresholds
from implicit_delta.core.findings import Finding
from implicit_delta.estimate import Diagnostics, Estimate
from implicit_delta.estimate.report.advice import WORDS, Words
from implicit_delta.estimate.report.svg import Axis
from implicit_delta.estimate.report.text import listed, shown


def words(text):
    return set(text.split())


VOID = {"meta", "link", "img", "br", "hr"}
TAGS = words(
    """
    html head meta link title style body main header section h1 h2 h3 p b i a ul li div span
    figure figcaption svg line circle rect text polygon polyline details summary table thead
    tbody tr th td pre code dl dt dd
    """
)
ATTRIBUTES = words(
    """
    charset http-equiv content name rel href lang class id style role height width x y x1 x2 y1 y2
    cx cy r rx points viewbox preserveaspectratio text-anchor scope tabindex aria-label
    aria-labelledby aria-hidden
    """
)


class Parsed(HTMLParser):
    """The elements of a page and its text; fails on tags that do not close in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.text = [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())

    def all(self, tag, kind=None):
        found = [attrs for name, attrs in self.elements if name == tag]
        return [a for a in found if kind is None or kind in a.get("class", "").split()]


def written(shown, tmp_path, **how):
    path = shown.report(tmp_path / "page.html", **how)
    return path.read_text(encoding="utf-8")


def parsed(shown, tmp_path, **how):
    return Parsed(written(shown, tmp_path, **how))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Every case once, as written."""
    folder = tmp_path_factory.mktemp("pages")
    return {name: written(make(), folder) for name, make in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_page_is_whole_and_runs_and_loads_nothing(name, pages):
    page = Parsed(pages[name])
    assert pages[name].startswith("<!doctype html>\n<html")
    assert {tag for tag, _ in page.elements} <= TAGS
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in page.elements:
        assert not [key for key in attrs if key.startswith("on") or key in ("src", "srcset")]
        assert attrs.get("href", "#").startswith(("#", "data:,"))
        assert "url(" not in attrs.get("style", "")
    assert not re.search(r"url\(|@import|https?:", pages[name])
    assert "default-src 'none'" in page.all("meta")[1]["content"]
    assert not re.search(r"\b(nan|None|inf)\b|nan%|inf%", page.words)


# Sections of each case beside the answer, the checks and how to repeat it.
SOURCES, OPINIONS, ROWS = "where-the-error-comes-from", "second-opinions", "rows-that-matter-most"
SECTIONS = {
    **dict.fromkeys(["influence", "influence of several"], (OPINIONS, ROWS)),
    **dict.fromkeys(["parts", "parts of many", "parts that add", "trouble"], (SOURCES,)),
    **dict.fromkeys(["draws", "comparison", "pieces", "profile", "bootstrap"], (OPINIONS,)),
}


@pytest.mark.parametrize("name", CASES)
def test_sections_are_those_that_have_something_to_show(name, pages):
    page = Parsed(pages[name])
    sections = [attrs["id"] for attrs in page.all("section")]
    assert sections == ["answer", *SECTIONS.get(name, ()), "checks", "how-to-repeat-it"]
    bodies = re.findall(r"<section.*?</h2>(.*?)</section>", pages[name], re.S)
    assert len(bodies) == len(sections)
    assert all(text_of(f"<main>{body}") for body in bodies)


@pytest.mark.parametrize("name", CASES)
def test_a_page_gives_no_advice_in_python(name, pages):
    read = text_of(pages[name]).partition("How to repeat it")[0]
    for python in (
        "infer(",
        "compare(",
        "polish(",
        "model, psi",
        "strict=",
        "robust=",
        "influence=T",
    ):
        assert python not in read


@pytest.mark.parametrize("name", CASES)
def test_pictures_are_told_in_words(name, pages):
    for attrs in Parsed(pages[name]).all("svg"):
        inner = "viewbox" in attrs or attrs.get("class") == "open"
        told = attrs.get("role") == "img" and attrs["aria-label"]
        assert inner or told or attrs.get("aria-hidden") == "true"


@pytest.mark.parametrize("name", CASES)
def test_places_are_on_the_picture(name, pages):
    page = Parsed(pages[name])
    for tag, attrs in page.elements:
        for key in ("x", "x1", "x2", "cx", "width"):
            place = attrs.get(key, "0%")
            if tag in ("line", "circle", "rect", "text") and place.endswith("%"):
                assert 0 <= float(place[:-1]) <= 100.01
    for attrs in [*page.all("polygon"), *page.all("polyline", "curve")]:
        numbers = [float(x) for x in re.split("[ ,]", attrs["points"])]
        assert all(math.isfinite(x) and -1 <= x <= 1001 for x in numbers)


@pytest.mark.parametrize("text", WEIRD)
@pytest.mark.parametrize("where", ["names", "title", "question", "method", "target", "note"])
def test_whatever_is_written_by_users_is_text(text, where, tmp_path):
    content, how = {}, {}
    if where in ("title", "question"):
        how[where] = text
    elif where == "note":
        found = Diagnostics(notes={text: text, "near": text}, warnings=(text,))
        content["diagnostics"] = found
    else:
        content[where] = (text,) if where == "names" else text
    page = parsed(estimate(1, **content), tmp_path, **how)
    assert {tag for tag, _ in page.elements} <= TAGS
    kept = re.sub(r"[\x00-\x1f\ud800\u202e]", "", text.split()[0])
    assert kept[:20] in page.words.replace("�", "")
    for _, attrs in page.elements:
        assert set(attrs) <= ATTRIBUTES


def test_the_answer_is_a_sentence(tmp_path):
    est = Estimate(0.18, [[0.035**2]], ("average effect",), "by hand")
    page = parsed(est, tmp_path)
    said = "average effect is estimated at 0.180 ; the data are compatible with 0.111 to 0.249"
    assert f"{said} (95% confidence)." in page.words
    assert "(90% confidence)" in parsed(est, tmp_path, confidence_level=0.9).words
    assert "How large is average effect" in page.words


def test_title_and_question_are_shown(tmp_path):
    page = written(estimate(1), tmp_path, title="T & U", question="Is it so?")
    assert "<title>T &amp; U</title>" in page
    assert "<h1>T &amp; U</h1>" in page
    assert "Is it so?" in page
    assert "<h1>Is it so?</h1>" in written(estimate(1), tmp_path, question="Is it so?")


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-math.inf, math.inf, "compatible with any value ("),
        (0.5, math.inf, "compatible with 0.50 and anything above"),
        (-math.inf, 2.0, "compatible with 2.0 and anything below"),
    ],
)
def test_open_intervals_are_said_and_drawn_open(low, high, words, tmp_path):
    from implicit_delta.estimate.report import write_page

    est = Estimate(1.0, [[4.0]], ("ratio",), "profile")
    path = write_page(tmp_path / "p.html", est, pieces=[idm.Interval(low, high)])
    page = Parsed(path.read_text())
    assert words in page.words
    assert len(page.all("svg", "open")) == sum(map(math.isinf, (low, high)))


@pytest.mark.parametrize(
    ("K", "strips", "bands"), [(1, 1, 0), (12, 12, 0), (30, 30, 0), (31, 0, 1)]
)
def test_few_intervals_are_drawn_one_by_one_and_many_as_a_band(K, strips, bands, tmp_path):
    page = parsed(estimate(K), tmp_path)
    assert len(page.all("svg", "strip")) == strips
    assert len(page.all("svg", "wide")) == bands
    assert len(page.all("td")) == 5 * K


def test_a_table_of_very_many_ends(tmp_path):
    K = 1003
    est = Estimate(np.arange(K) * 1.0, np.eye(K), [f"e{k}" for k in range(K)], "by hand")
    page = parsed(est, tmp_path)
    assert len(page.all("td")) == 5000
    assert "3 more are left out here" in page.words


def test_the_interval_is_drawn_where_it_is(tmp_path):
    est = Estimate([1.0, 3.0], np.diag([0.04, 0.09]), ("a", "b"), "by hand")
    page = parsed(est, tmp_path)
    axis = Axis.of([*est.value, *np.ravel(est.confidence_interval())])
    dots = [float(attrs["cx"][:-1]) for attrs in page.all("circle")]
    np.testing.assert_allclose(dots, [100 * axis.share(x) for x in (1.0, 3.0)], atol=0.01)
    spans = page.all("line", "span")
    ends = [[float(span[end][:-1]) for span in spans] for end in ("x1", "x2")]
    for drawn, true in zip(ends, est.confidence_interval(), strict=True):
        np.testing.assert_allclose(drawn, [100 * axis.share(x) for x in true], atol=0.01)


def test_a_value_without_error_keeps_its_digits(tmp_path):
    est = Estimate(3.14159, [[0.0]], ("pi",), "by hand")
    assert "pi is estimated at 3.142 , without any error." in parsed(est, tmp_path).words


def test_a_small_share_is_not_none(tmp_path):
    parts = {"model": [[1.0]], "evaluation": [[0.002]]}
    est = Estimate(1.0, [[1.002]], ("a",), "by hand", parts=parts)
    assert "model 100%, evaluation 0.2%" in parsed(est, tmp_path).words


def test_shares_of_the_budget_are_those_of_the_variance(tmp_path):
    page = parsed(report_cases.with_parts(), tmp_path)
    widths = [float(attrs["width"][:-1]) for attrs in page.all("rect", "part")]
    np.testing.assert_allclose(widths, 3 * [25.0, 75.0, 0.0], atol=0.01)
    assert "add in squares" in page.words


def test_standard_errors_that_add_are_shown_as_such(tmp_path):
    page = parsed(report_cases.with_parts(errors_add=True), tmp_path)
    widths = [float(attrs["width"][:-1]) for attrs in page.all("rect", "part")]
    np.testing.assert_allclose(widths, 3 * [100 / 3, 200 / 3], atol=0.01)
    assert "Shares of the standard error" in page.words


def test_drift_of_a_stopped_training_is_apart(tmp_path):
    page = parsed(report_cases.troubled(), tmp_path)
    assert "Not in the interval is a possible bias" in page.words
    assert re.search(r"would move effect 0 by 0\.1\d* and effect 1 by -0\.2", page.words)


def test_the_rows_with_the_largest_influence_are_named_by_their_index(tmp_path):
    est = report_cases.with_influence()
    page = parsed(est, tmp_path)
    top = est.top_influence(10)
    assert len(page.all("rect", "bar")) == 10
    for row in top.row:
        assert f"row {1000 + row}" in page.words
    error = est.standard_error
    assert f"{top.influence[0, 0] / error:+.2f}" in page.words


def level_of(page, name):
    """The mark of a check."""
    found = re.search(rf'<li><span class="mark (\w+)">(?:(?!<li>).)*?<b>{name}</b>', page)
    return found and found[1]


LIMITS = [
    ("drift", "drift", thresholds.DRIFT_WARNS, thresholds.DRIFT_REFUSES),
    ("nonlinearity", "nonlinearity", thresholds.BEND_WARNS, thresholds.BEND_REFUSES),
    ("shrinkage", "shrinkage", thresholds.SHRINKAGE_WARNS, None),
    ("bias", "bias", thresholds.SHIFT_WARNS, None),
    ("residual", "residual", thresholds.UNCERTAIN, None),
    ("asymmetry", "asymmetry", thresholds.UNCERTAIN, None),
]
NOTES = [
    ("monte_carlo_error", "Monte-Carlo error", thresholds.UNCERTAIN),
    ("nonlinear_share", "nonlinear share", thresholds.NONLINEAR_WARNS),
    ("statistic_shift", "shift", thresholds.SHIFT_WARNS),
    ("smoothing_change", "smoothing change", thresholds.CHANGE_WARNS),
    ("smoothing_error", "smoothing error", thresholds.UNCERTAIN),
    ("end_difference", "end difference", thresholds.ENDS_APART),
]


@pytest.mark.parametrize(("field", "name", "looks", "fails"), LIMITS)
def test_marks_change_where_the_library_warns_and_refuses(field, name, looks, fails, tmp_path):
    def mark(x):
        found = Diagnostics(**{field: x})
        return level_of(written(estimate(1, diagnostics=found), tmp_path), name)

    assert [mark(0.99 * looks), mark(1.01 * looks)] == ["ok", "look"]
    if fails is not None:
        assert [mark(0.99 * fails), mark(1.01 * fails)] == ["look", "problem"]
    assert mark(math.nan) is None


@pytest.mark.parametrize(("field", "name", "looks"), NOTES)
def test_marks_of_notes_change_where_the_library_warns(field, name, looks, tmp_path):
    def mark(x):
        found = Diagnostics(notes={field: x})
        return level_of(written(estimate(1, diagnostics=found), tmp_path), name)

    assert [mark(0.99 * looks), mark(1.01 * looks)] == ["ok", "look"]


def test_a_bootstrap_has_its_own_limit_of_monte_carlo_error(tmp_path):
    notes = {"monte_carlo_error": 0.3, "replicates": 50.0, "failed": 0.0}
    page = written(estimate(1, diagnostics=Diagnostics(notes=notes)), tmp_path)
    assert level_of(page, "Monte-Carlo error") == "ok"
    assert "Refits that gave no value: 0." in page
    assert level_of(page, "failed replicates") == "ok"


def test_a_stopped_training_and_a_debiased_one_have_their_own_limits(tmp_path):
    from implicit_delta.estimate.diagnostics import DEBIASED

    found = Diagnostics(drift=1.5)
    page = written(estimate(1, diagnostics=found, drift=[0.1]), tmp_path)
    assert level_of(page, "drift") == "ok"
    found = Diagnostics(drift=0.2)
    assert level_of(written(estimate(1, diagnostics=found), tmp_path), "drift") == "look"
    page = written(estimate(1, diagnostics=found, target=DEBIASED), tmp_path)
    assert level_of(page, "drift") == "ok"


def test_the_worst_mark_is_at_the_top(tmp_path):
    page = parsed(report_cases.troubled(), tmp_path)
    assert re.search(r"✕ Problem \d checks fail", page.words)
    good = Diagnostics(drift=0.0)
    assert "✓ OK 1 check passed" in parsed(estimate(1, diagnostics=good), tmp_path).words
    assert "nothing was checked" in parsed(estimate(1), tmp_path).words


def test_warnings_of_infer_are_on_the_page_and_in_files(tmp_path):
    y = np.r_[np.zeros(3), np.ones(2)]
    model = idm.from_loglik(lambda th: -0.5 * (y - th[0]) ** 2, theta=[0.45])
    with pytest.warns(idm.DriftWarning) as caught:
        est = idm.infer(model, lambda th: th[0])
    assert est.diagnostics.warnings == (str(caught[0].message),)
    assert "The fit is not finished: going on would move" in parsed(est, tmp_path).words
    est.save(tmp_path / "est.npz")
    loaded = Estimate.load(tmp_path / "est.npz")
    assert loaded.diagnostics.warnings == est.diagnostics.warnings
    finished = idm.infer(idm.polish(model), lambda th: th[0])
    assert finished.diagnostics.warnings == ()
    joined = idm.join(est, finished, independent=True)
    assert joined.diagnostics.warnings == est.diagnostics.warnings


def test_methods_are_side_by_side_with_a_verdict(tmp_path):
    comparison = report_cases.compared()
    text = written(comparison, tmp_path)
    page = Parsed(text)
    verdicts = re.findall(r'class="told (\w+)"', text)
    assert verdicts == ["note", "look", "problem", "note", "ok"]
    assert "no answer: it did not & would not <converge>" in page.words
    assert "2 of 3 agree" not in page.words
    assert "1 of 3 agree" in page.words
    assert level_of(text, "second opinions") == "problem"


def test_a_method_of_ones_own_may_name_its_answers_otherwise(tmp_path):
    def named(model, psi):
        est = idm.infer(model, psi)
        return Estimate(est.value, est.covariance, ("other", "names"), "by hand")

    rates = lambda th: np.exp(th[0]) * np.array([1.0, 2.0])
    page = parsed(idm.compare(report_cases.model(), rates, [named, idm.Infinitesimal()]), tmp_path)
    assert "2 of 2 agree" in page.words


def test_code_in_warnings_is_set_as_code(tmp_path):
    found = Diagnostics(warnings=("Use `robust=<b>` or `x`.",))
    page = written(estimate(1, diagnostics=found), tmp_path)
    assert "Use <code>robust=&lt;b&gt;</code> or <code>x</code>." in page


def test_a_comparison_without_any_estimate_is_refused(tmp_path):
    only = idm.compare(report_cases.model(), lambda th: th[0], {"no": report_cases._refuse})
    with pytest.raises(ValueError, match="would not <converge>"):
        only.report(tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_a_profile_shows_its_own_interval(tmp_path):
    found = idm.profile(report_cases.model(), lambda th: np.exp(th[0]), confidence_level=0.9)
    low, high = found.interval
    page = parsed(found, tmp_path)
    assert f"{low:.2f} to {high:.2f} (90% confidence)" in page.words.replace(" to ", " to ")
    assert "p-value" not in page.words
    assert "Wald" in page.words


def test_values_that_are_not_one_interval_are_all_told_and_drawn(tmp_path):
    """A ratio whose denominator may be zero: everything but a gap around zero."""
    found = report_cases.ratio()
    (_, low), (high, _) = found.pieces[0.95]
    text = written(found, tmp_path)
    page = Parsed(text)
    assert -5 < low < 0 < high < 5
    told = f"compatible with {low:.1f} and anything below, or with {high:.1f} and anything above"
    assert told in page.words
    assert f"[-infinity, {low:.1f}] or [{high:.1f}, infinity]" in page.words
    assert len(page.all("line", "span")) == 2 + 2 + 1
    assert level_of(text, "second opinions") == "problem"
    assert level_of(text, "more than one interval") == "look"


def test_draws_and_influences_are_second_opinions(tmp_path):
    est = report_cases.drawn()
    low, high = est.confidence_interval(kind="percentile")
    page = parsed(est, tmp_path)
    assert f"[{low:.2f}, {high:.2f}]" in page.words or f"[{low:.1f}, {high:.1f}]" in page.words
    assert "seed 7" in page.words
    assert "robust (HC0" in parsed(report_cases.with_influence(), tmp_path).words


def test_the_call_and_the_settings_are_told(tmp_path):
    y = np.random.default_rng(0).poisson(3.0, size=60)
    model = idm.from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])
    est = idm.infer(model, lambda th: th[0], clusters=np.arange(60) % 30)
    page = parsed(est, tmp_path)
    call = "infer(model, psi, Infinitesimal(solver=cholesky), clusters=..., robust='CR0')"
    assert call in page.words
    assert f"implicit-delta {idm.__version__}" in page.words
    assert "Student's t, 29 degrees of freedom" in page.words
    page = parsed(CASES["bootstrap"](), tmp_path)
    assert "bootstrap(fit, data, psi, replicates=50, kind='resample', rng=0)" in page.words


def test_a_page_is_the_same_but_for_its_date(tmp_path):
    est = report_cases.with_influence(3)
    pages = [
        re.sub(r"<dt>written</dt><dd>.*?</dd>", "", written(one, tmp_path)) for one in (est, est)
    ]
    assert pages[0] == pages[1]


def test_the_path_comes_back_and_a_page_is_overwritten(tmp_path):
    target = tmp_path / "a page.HTM"
    target.write_text("old")
    assert estimate(1).report(str(target)) == target
    assert target.read_text(encoding="utf-8").startswith("<!doctype")
    assert b"\r" not in target.read_bytes()


@pytest.mark.parametrize(
    ("place", "error", "words"),
    [
        ("missing/page.html", FileNotFoundError, "no directory .*missing"),
        ("", IsADirectoryError, "is a directory: give the file in it, .*page.html"),
        ("page", ValueError, r"page.html"),
        ("page.npz", ValueError, r"page.html"),
        (".html", ValueError, "HTML file"),
    ],
)
def test_a_path_that_is_no_page_is_refused(place, error, words, tmp_path):
    with pytest.raises(error, match=words):
        estimate(1).report(tmp_path / place)
    assert not list(tmp_path.iterdir())


def test_a_directory_with_the_ending_is_refused(tmp_path):
    (tmp_path / "page.html").mkdir()
    with pytest.raises(IsADirectoryError, match="is a directory"):
        estimate(1).report(tmp_path / "page.html")


@pytest.mark.parametrize("how", [{"title": 3}, {"question": ["a"]}])
def test_texts_are_texts(how, tmp_path):
    with pytest.raises(TypeError, match="is a text, not"):
        estimate(1).report(tmp_path / "page.html", **how)


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_levels_are_checked_before_anything_is_written(level, tmp_path):
    with pytest.raises(ValueError, match="confidence"):
        estimate(1).report(tmp_path / "page.html", confidence_level=level)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("numbers", "least", "most"),
    [
        ([0.11, 0.25], 2, 6),
        ([1e6, 1e6 + 0.01], 1, 6),
        ([-1e308, 1e308], 1, 6),
        ([1e-320, 2e-320], 0, 6),
        ([5.0], 1, 6),
        ([0.0], 1, 6),
        ([math.inf, math.nan], 1, 6),
        ([-3e-9, 7e-9], 2, 6),
    ],
)
def test_ticks_are_few_and_on_the_axis(numbers, least, most):
    axis = Axis.of(numbers)
    ticks = axis.ticks()
    assert least <= len(ticks) <= most
    assert len({label for _, label in ticks}) == len(ticks)
    assert all(axis.low <= tick <= axis.high and 0 <= axis.share(tick) <= 1 for tick, _ in ticks)
    for tick, label in ticks:
        width = axis.high / 2 - axis.low / 2
        assert abs(float(label.replace(",", "")) / 2 - tick / 2) <= 0.02 * width


@pytest.mark.parametrize(
    ("x", "places", "text"),
    [
        (0.18049, 3, "0.180"),
        (1234567.8, -3, "1,235,000"),
        (1234.5, 1, "1,234.5"),
        (-math.inf, 2, "-infinity"),
        (1.23456e-9, 11, "1.23e-09"),
    ],
)
def test_numbers_have_the_digits_that_matter(x, places, text):
    assert shown(x, places) == text


def test_lists_end_in_and():
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"


def text_of(page):
    return " ".join(re.sub("<[^>]+>", " ", page.split("<main>")[1]).split())


RATIO = Estimate([2.0, 0.8], np.diag([0.36, 0.04]), names=("a", "b"), method="Infinitesimal()")
SCALED = [
    ({"transform": "log"}, 2.0 * np.exp(-1.959964 * 0.3), np.log(2.0) / 0.3, 1.0),
    ({"transform": "log", "null": 1.5}, 2.0 * np.exp(-1.959964 * 0.3), np.log(2 / 1.5) / 0.3, 1.5),
    ({"null": 1.0}, 2.0 - 1.959964 * 0.6, 1 / 0.6, 1.0),
    ({}, 2.0 - 1.959964 * 0.6, 2 / 0.6, 0.0),
    ({"transform": "exp"}, np.exp(2.0 - 1.959964 * 0.6), 2 / 0.6, 1.0),
    ({"transform": "exp", "null": 3.0}, np.exp(2.0 - 1.96 * 0.6), (2 - np.log(3)) / 0.6, 3.0),
    ({"transform": (np.log, np.exp)}, 2.0 * np.exp(-1.959964 * 0.3), 2 / 0.6, 0.0),
]


@pytest.mark.parametrize(("how", "low", "statistic", "null"), SCALED)
def test_null_and_transform_of_a_page(how, low, statistic, null, tmp_path):
    page = written(RATIO, tmp_path, **how)
    said = text_of(page)
    assert f"with {low:.2f} to" in said.replace("<", "")
    p_value = 2 * norm.sf(statistic)
    assert ("<0.0001" if p_value < 1e-4 else f"{p_value:.4f}") in said.replace("&lt;", "<")
    assert f"the value is {null:g}." in said.replace("is zero", "is 0")
    name = "exp(a)" if how.get("transform") == "exp" else "a"
    assert f"{name} is estimated at" in said


def test_a_probability_stays_one_on_its_page(tmp_path):
    risk = Estimate(0.91, [[0.128**2]], names=("risk",), method="Infinitesimal()")
    said = text_of(written(risk, tmp_path, transform="logit"))
    low, high = risk.confidence_interval(transform="logit")
    assert f"with {low:.2f} to {high:.2f}" in said
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        written(RATIO, tmp_path, transform="logit")
    with pytest.raises(ValueError, match="null"):
        written(RATIO, tmp_path, null=np.nan)


@pytest.mark.parametrize("null", [0.0, 1.0, 0.97])
def test_the_null_is_marked_and_labeled(null, tmp_path):
    page = written(RATIO, tmp_path, null=null)
    (axis,) = re.findall(r'<svg class="scale".*?</svg>', page)
    assert f">{null:g}</text>" in axis
    assert page.count('class="zero"') == 2


VARIANCES = [
    ("Infinitesimal(solver=cholesky)", {}, "of the model (assumes that it is right"),
    ("FiniteDifference()", {}, "of the model (assumes that it is right"),
    ("Simulation(1000, rng=0)", {}, "of the model (assumes that it is right"),
    ("Bootstrap(kind='parametric', rng=0)", {}, "of the model (assumes that it is right"),
    ("Bootstrap(rng=0)", {}, "between refits to rows drawn anew (assumes that rows are"),
    ("Bootstrap(rng=0) of 40 clusters", {}, "between refits to whole clusters drawn anew"),
    ("Infinitesimal()", {"variance": "clustered (CR2, 40 clusters)"}, "clustered (CR2, 40 clust"),
    ("Infinitesimal()", {"variance": "covariance="}, "from a covariance of the parameters"),
]


@pytest.mark.parametrize(("method", "notes", "words"), VARIANCES)
def test_the_variance_is_always_told(method, notes, words, tmp_path):
    est = replace(RATIO, method=method, diagnostics=Diagnostics(notes=notes))
    assert f"Variance {words}" in text_of(written(est, tmp_path))


def test_nothing_is_claimed_of_a_variance_by_hand(tmp_path):
    assert "Variance" not in text_of(written(replace(RATIO, method="by hand"), tmp_path))


FREEDOM = [
    ("Infinitesimal()", "clustered (CR0, 40 clusters)", 39.0, "There are 40 groups, and the error"),
    ("Infinitesimal()", "clustered (CR2, 40 clusters)", 11.3, "as well as from 12 of equal weight"),
    ("Infinitesimal()", "clustered (CR0, 40 x 8 clusters)", 7.0, "There are 40 x 8 groups"),
    ("Bootstrap(rng=0) of 12 clusters", "", 11.0, "There are 12 groups"),
    ("Infinitesimal()", "robust (HC2)", 20.0, "how the rows that count most here scatter, so"),
    ("Infinitesimal()", "", 20.0, "The scale of the error was itself estimated, so"),
]


@pytest.mark.parametrize(("method", "variance", "df", "words"), FREEDOM)
def test_degrees_of_freedom_have_their_own_reason(method, variance, df, words, tmp_path):
    notes = {"variance": variance} if variance else {}
    est = replace(RATIO, method=method, df=df, diagnostics=Diagnostics(notes=notes))
    said = text_of(written(est, tmp_path))
    assert words in said
    assert ("scale of the error" in said) == (not variance and "clusters" not in method)


def test_a_bend_has_one_number_and_one_verdict(tmp_path):
    bend = Finding("warn", "bend", "psi bends within half a standard error.", number=0.1432)
    found = Diagnostics(nonlinearity=0.0759, warnings=(str(bend),), findings=(bend,))
    said = text_of(written(replace(RATIO, diagnostics=found), tmp_path))
    assert said.count("nonlinearity 0.143 The value bends") == 1
    assert "0.0759" not in said
    assert "is fair" not in said


def test_the_question_in_words_is_the_heading(tmp_path):
    words = "Average of well if treated = 1 in every row, minus the same if treated = 0"
    est = Estimate(
        0.107, [[0.03**2]], names=("treated: 1 - 0",), method="Infinitesimal()",
        diagnostics=Diagnostics(notes={"question": words}),
    )  # fmt: skip
    page = written(est, tmp_path)
    assert f"<h1>{words}</h1>" in page
    assert "This is estimated at 0.107" in text_of(page)
    assert text_of(page).count(words) == 1  # and no setting
    own = text_of(written(est, tmp_path, title="Does it work?"))
    assert f"{words} is estimated at 0.107" in own


def test_the_effect_of_several_groups_is_named_in_words(tmp_path):
    words = "Average of well if treated = 1 in every row, minus the same if treated = 0"
    found = Diagnostics(notes={"question": words})
    est = Estimate([0.1, 0.2], np.eye(2), ("site=a", "site=b"), "by hand", diagnostics=found)
    assert text_of(written(est, tmp_path, question="Does it work?")).count(words) == 1
    assert text_of(written(est, tmp_path)).count(words) == 1


def codes_of_findings():
    """Codes of all findings that the source makes."""
    for path in Path(idm.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = getattr(getattr(node, "func", None), "id", "")
            if called == "Finding" and len(node.args) > 1:
                yield getattr(node.args[1], "value", None)


def test_words_of_findings_are_of_findings_that_there_are():
    assert set(WORDS) <= set(codes_of_findings())


@pytest.mark.parametrize("code", [*WORDS, "of another release"])
def test_a_finding_is_told_in_words_that_fit(code, tmp_path):
    """Its own text is the fallback; what helps is no Python."""
    found = Finding("warn", code, "Own text.", number=0.25, remedies=("Use `infer(model, psi)`.",))
    diagnostics = Diagnostics(warnings=(str(found),), findings=(found,))
    said = text_of(written(replace(RATIO, diagnostics=diagnostics), tmp_path))
    assert "infer(model, psi)" not in said.partition("How to repeat it")[0]
    assert ("Own text." in said) == (not WORDS.get(code, Words()).what)
    assert "{" not in said
    assert said.count("Look") == 2  # the verdict, and the finding


def test_sentences_say_what_they_mean(tmp_path):
    many = Estimate(np.ones(4), np.eye(4), names=tuple("abcd"), method="Infinitesimal()")
    said = text_of(written(many, tmp_path))
    assert "Each interval alone misses in 5% of repetitions; that at least one of the 4" in said
    assert "The target here: what this model would give with unlimited data of this kind." in said


def test_a_page_of_a_comparison_keeps_the_design(tmp_path):
    model, groups = poisson()
    comparison = idm.compare(model, lambda b: np.exp(b[0]), clusters=groups)
    page = comparison.report(tmp_path / "page.html").read_text()
    low, high = idm.infer(model, lambda b: np.exp(b[0]), clusters=groups).confidence_interval()
    said = text_of(page)
    assert f"{low:.2f} to {high:.2f}" in said
    assert "Variance clustered (CR0, 12 clusters)" in said
    assert "no answer: A profile rests on the likelihood alone, and takes no clusters=" in said


def poisson():
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(12), 5)
    y = rng.poisson(np.exp(0.3 + 0.4 * rng.normal(size=12)[groups]))
    return idm.from_loglik(lambda b: y * b[0] - np.exp(b[0]), start=[0.0]), groups


def test_skewness_explains_a_profile(tmp_path):
    y = np.array([3.0, 0.0, 2.0, 5.0, 1.0, 4.0, 2.0, 3.0])
    model = idm.from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])
    rate = lambda th: np.exp(th[0])
    page = idm.profile(model, rate).report(tmp_path / "page.html").read_text()
    said = text_of(page)
    assert "The symmetric interval ignores skewness" in said
    assert "prefer this one." in said
    assert "Find out why" not in said
    assert re.search(r"starts 0\.\d+ and ends 0\.\d+ standard errors lower", said)
    both = idm.compare(model, rate, [idm.Infinitesimal(), idm.profile])
    said = text_of(both.report(tmp_path / "page.html").read_text())
    assert "prefer the profile, if the model is right" in said
    # The reason of a difference between symmetric ones is not known.
    other = idm.compare(model, rate, [idm.Infinitesimal(), idm.Infinitesimal(damping=20.0)])
    said = text_of(other.report(tmp_path / "page.html").read_text())
    assert "Find out why" in said

"""The report shows what the stored records give: claims, verdicts, tables, tiles, times, pictures.

The experiments are run once more on a copy of their records, in which no job may be computed, so
that everything derived is made again and can be compared with what is stored. Last, a verdict is
flipped and records are changed, and the comparisons must notice.
"""

import pytest

pytest.importorskip("experiments")
pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
pytest.importorskip("torch")

import base64
import csv
import hashlib
import json
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import matplotlib as mpl

from experiments import records
from experiments.__main__ import NAMES
from experiments.coverage import __main__ as coverage
from experiments.fidelity import study
from experiments.fidelity.__main__ import PEERS
from experiments.fidelity.columns import COLUMNS
from experiments.fidelity.settings import SETTINGS
from experiments.records import load_records, save_records
from experiments.report.exhibits import EXHIBITS
from experiments.report.page import page
from experiments.times import RECORDS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
if not (RESULTS / "index.html").exists():
    pytest.skip("the records of the experiments are not here", allow_module_level=True)

pytestmark = pytest.mark.slow
mpl.use("Agg")

PARTS = ("one_d", "classification", "vae")
CLAIMS = tuple(f"{part}/claims.json" for part in PARTS)
TABLES = (
    "one_d/coverage_table.csv",
    "one_d/convergence_table.csv",
    "classification/run_times.csv",
    "classification/table.csv",
    "vae/reconstruction_table.csv",
    "fidelity/table.csv",
    "fidelity/summary.csv",
    "fidelity/misses.csv",
    "fidelity/alarms.csv",
    "coverage/table.csv",
)
# Claims first: a study that is not complete leaves nothing behind.
STUDIES = (
    *(name for name in NAMES if name.endswith(".claims")),
    *(name for name in NAMES if not name.endswith((".claims", ".page"))),
)
# Five digits are stored, and a table may have been made before its records were rounded.
ROUNDING = 2e-4


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """Results made again from a copy of the records alone, and what could not be made."""
    folder = tmp_path_factory.mktemp("again")
    copied(folder)
    return folder, {name: remade(folder, name) for name in (*STUDIES, "fidelity", "coverage")}


def copied(folder):
    """Copy the records, without what is derived from them."""
    derived = {Path(name).name for name in (*CLAIMS, *TABLES)} | {"index.html"}
    ignored = shutil.ignore_patterns(*derived, "quick")
    shutil.copytree(RESULTS, folder, ignore=ignored, dirs_exist_ok=True)


def remade(folder, name):
    """Run one experiment without computing a job; the reason if that cannot be."""

    def compute(*_):
        raise LookupError("a job is not stored, or was made with other settings")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_labelled", compute)
        for module in ("classification.costs", "vae.reconstruction"):
            module = import_module(f"experiments.{module}")
            patch.setattr(module, "available", lambda *_, **__: True, raising=False)
        try:
            if name == "fidelity":
                place = study.Place(folder / "fidelity", folder / "cache")
                study.table(SETTINGS, (*COLUMNS, *PEERS), place)
            elif name == "coverage":
                coverage.table(coverage.STUDIES, folder)
            else:
                import_module(f"experiments.{name}").reproduce(folder, n_jobs=1)
        except Exception as reason:  # one test each says so
            return repr(reason)
    return None


@pytest.mark.parametrize("name", [*STUDIES, "fidelity", "coverage"])
def test_every_job_is_stored_with_the_settings_of_the_code(again, name):
    assert again[1][name] is None


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_are_those_of_the_records(again, name):
    assert differing_claims(RESULTS / name, again[0] / name) == []


def differing_claims(one, other):
    """Claims whose text or verdict is in one file and not in the other."""
    found = [[json.dumps(c, sort_keys=True) for c in _read(path)] for path in (one, other)]
    return [c for pair in (found, found[::-1]) for c in pair[0] if c not in pair[1]]


def _read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_the_records(again, name):
    assert differing_rows(RESULTS / name, again[0] / name) == []


def differing_rows(one, other):
    """Rows of two tables that differ by more than the rounding of stored numbers."""
    rows, others = cells(one), cells(other)
    if len(rows) != len(others):
        return [f"{len(rows)} rows and {len(others)}"]
    return [pair for pair in zip(rows, others, strict=True) if not alike(*pair)]


def cells(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def alike(row, other):
    return row.keys() == other.keys() and all(same(row[key], other[key]) for key in row)


def same(text, other):
    try:
        return float(text) == pytest.approx(float(other), rel=ROUNDING, nan_ok=True)
    except ValueError:
        return text == other


def test_every_stored_file_is_compared_or_a_record():
    """A table that is added to the results is added here."""
    raw = {path for pattern, _ in RECORDS.values() for path in RESULTS.glob(pattern)}
    raw |= set(RESULTS.glob("peers/*"))  # answers of peers: tests/test_peers.py
    raw.add(RESULTS / "coverage/before_counts.csv")  # of studies that were not run again
    derived = {RESULTS / name for name in (*CLAIMS, *TABLES, "index.html", "fidelity/table.md")}
    found = {p for p in RESULTS.rglob("*") if p.is_file() and "quick" not in p.parts}
    rest = {path for path in found - raw - derived if path.suffix not in (".png", ".md")}
    assert {path.relative_to(RESULTS).as_posix() for path in rest} == set()


class Shown(HTMLParser):
    """Tiles and tables of the page: each table as rows of texts, by its label or its anchor."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.tiles, self.bad = {}, {}, {}
        self._label = self._cell = self._tile = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "aria-label" in attrs:
            self._label = attrs["aria-label"].removeprefix("Table: ")
        elif tag == "table":
            self._label = attrs.get("id") or self._label
            self.tables[self._label], self.bad[self._label] = [], 0
        elif tag == "tr":
            self.tables[self._label].append([])
            self.bad[self._label] += attrs.get("class") == "bad"
        elif tag in ("td", "th"):
            self._cell = []
        elif tag == "a" and attrs.get("class") in ("yes", "no", "plain"):
            self._tile = attrs["href"].removeprefix("#")

    def handle_data(self, data):
        if self._cell is not None and data != "marked: ":
            self._cell.append(data)
        if self._tile and (count := re.fullmatch(r"(\d+) of (\d+)", data)):
            self.tiles[self._tile] = tuple(map(int, count.groups()))

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.tables[self._label][-1].append("".join(self._cell))
            self._cell = None
        elif tag == "a":
            self._tile = None


@pytest.fixture(scope="module")
def stored_page():
    return (RESULTS / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shown(stored_page):
    return Shown(stored_page)


IMAGE = re.compile(r"data:image/png;base64,([^\"]+)")


def without_pictures(text):
    return IMAGE.sub(lambda found: hashlib.sha256(found[1].encode()).hexdigest(), text)


def test_the_page_is_what_the_records_give(stored_page):
    assert without_pictures(stored_page) == without_pictures(page(RESULTS))


def test_the_pictures_of_the_page_are_the_stored_ones(stored_page):
    pictures = [RESULTS / exhibit.picture for exhibit in EXHIBITS]
    pictures += [RESULTS / "fidelity/ratios.png", ROOT / "docs/images/scaling.png"]
    found = [base64.b64decode(data) for data in IMAGE.findall(stored_page)]
    assert found == [path.read_bytes() for path in pictures]


def by_author():
    """Claims of the paper and of our own, read without the code of the report."""
    every = [c for name in CLAIMS for c in _read(RESULTS / name)]
    own = [c for c in every if c["paper"].startswith("not in the paper")]
    return {"paper": [c for c in every if c not in own], "own": own}


VERDICTS = {"hold": True, "do-not-hold": False}


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("author", ["paper", "own"])
def test_tiles_and_claims_are_those_of_the_files(shown, author, verdict):
    claims = by_author()[author]
    those = [c for c in claims if c["holds"] is VERDICTS[verdict]]
    assert shown.tiles[f"{author}-{verdict}"] == (len(those), len(claims))
    badge = "holds" if VERDICTS[verdict] else "does not hold"
    rows = shown.tables.get(f"{author}-{verdict}", [[]])[1:]
    assert rows == [[badge, c["claim"], c["paper"], c["ours"], c["why"]] for c in those]


def agrees(text, number):
    """Whether a number is shown right, to the digits that are shown; an empty cell is no number."""
    if text == "" or number in ("", None) or number == "nan":
        return text == "" and number in ("", None, "nan")
    percent = "%" in text
    digits = re.match(r"[+-]?[\d,.]+(?:e[+-]?\d+)?", text)[0].replace(",", "")
    mantissa, _, power = digits.partition("e")
    unit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    unit *= 10 ** max(0, len(mantissa) - 3) if power == "" and "." not in mantissa else 1
    return abs(float(digits) - float(number) * (100 if percent else 1)) <= 0.501 * unit + 1e-9


@pytest.mark.parametrize(
    ("text", "number", "right"),
    [("12.3", 12.34, True), ("12.3", 12.4, False), ("84.5% ± 0.5%", 0.8455, True),
     ("84.5%", 0.847, False), ("1,299", 1298.9, True), ("", "", True), ("", 1.0, False),
     ("1.2e-05", 1.24e-5, True), ("1.2e-05", 1.3e-5, False)],
)  # fmt: skip
def test_numbers_are_compared_to_the_digits_that_are_shown(text, number, right):
    assert agrees(text, number) is right


POSITIONAL = {
    "run times": "classification/run_times.csv",
    "standard errors of costs": "classification/table.csv",
}


@pytest.mark.parametrize("label", POSITIONAL)
def test_numbers_of_classification_are_those_of_the_record(shown, label):
    _, *rows = shown.tables[label]
    record = cells(RESULTS / POSITIONAL[label])
    assert len(rows) == len(record) > 0
    for row, stored in zip(rows, record, strict=True):
        for text, value in zip(row, stored.values(), strict=True):
            assert text == value or agrees(text, value), (row, stored)


def test_numbers_of_coverage_are_those_of_the_record(shown):
    _, *rows = shown.tables["coverage of intervals"]
    record = cells(RESULTS / "coverage/table.csv")
    bad = 0
    for row, r in zip(rows, record, strict=True):
        assert [row[k] for k in (0, 1, 2, 4, 6)] == [
            r["task"], r["n"], r["method"], r["replications"], r["failed"],
        ]  # fmt: skip
        share, nominal = int(r["covered"]) / int(r["replications"]), float(r["nominal"])
        assert agrees(row[5], share)
        assert agrees(row[3], nominal)
        assert agrees(row[7], r["warned"])
        silent = (1 - float(r["warned"] or 0)) * int(r["replications"])
        assert row[8] == "few" if silent < 50 else agrees(row[8], r["silent_coverage"])
        bad += abs(share - nominal) > 2 * (nominal * (1 - nominal) / int(r["replications"])) ** 0.5
    assert shown.bad["coverage of intervals"] == bad
    assert shown.bad.get("coverage of intervals, marked rows", 0) == bad
    assert shown.tiles["intervals"] == (bad, len(record))


def test_numbers_of_networks_are_those_of_the_record(shown):
    header, *rows = shown.tables["standard errors over spread"]
    record = {(r["column"], r["question"]): r for r in cells(RESULTS / "fidelity/summary.csv")}
    questions = header[1 : header.index("fair")]
    assert len(rows) * len(questions) == len(record)
    for column, *numbers in rows:
        for question, text in zip(questions, numbers, strict=False):
            assert agrees(text, record[column, question]["geometric_mean"])
        whole = record[column, "all"]
        fair, *counts = numbers[len(questions) :]
        assert agrees(fair, whole["fair"])
        assert counts == [whole[k] for k in ("answered", "silently_wrong", "false_alarms")]
    misses = cells(RESULTS / "fidelity/misses.csv")
    for row, r in zip(shown.tables["misses of the default"][1:], misses, strict=True):
        assert [row[0], row[1], row[3], row[5]] == [
            r["setting"], r["question"], r["reason"], r["warned"],
        ]  # fmt: skip
        assert agrees(row[2], r["ratio"])
        assert agrees(row[4], r["skew"])
    assert shown.bad["misses of the default"] == sum(r["warned"] == "no" for r in misses)
    assert shown.tiles["fidelity"] == (len(misses), len(cells(RESULTS / "fidelity/table.csv")))
    alarms = [list(r.values()) for r in cells(RESULTS / "fidelity/alarms.csv")]
    assert shown.tables["warnings of the default"][1:] == alarms


def test_numbers_of_benchmarks_are_those_of_the_record(shown):
    record = json.loads((ROOT / "benchmarks/results.json").read_text())
    rows = shown.tables["benchmarks"][1:]
    assert {row[0] for row in rows} == set(record)
    for name, *numbers, unit in rows:
        assert unit == record[name]["unit"]
        for text, key in zip(numbers, ("value", "aim", "before"), strict=True):
            assert agrees(text, record[name][key])
    missed = sum(not row["value"] <= row["aim"] for row in record.values())
    assert shown.bad["benchmarks"] == missed
    assert shown.tiles["benchmarks"] == (missed, len(record))


def test_times_are_sums_over_the_jobs_of_the_records(shown):
    for name, minutes, timed, untimed in shown.tables["times"][1:]:
        rows = [r for path in RESULTS.glob(RECORDS[name][0]) for r in load_records(path)]
        took = [row["took"] for row in rows if "took" in row]
        assert int(timed) == len(took)
        assert agrees(minutes, sum(took) / 60) if untimed == "0" else minutes == "not recorded"
    there = {name for name, (pattern, _) in RECORDS.items() if any(RESULTS.glob(pattern))}
    assert {row[0] for row in shown.tables["times"][1:]} == there


def test_every_table_of_the_page_is_compared(shown):
    """A table that is added to the page is added here."""
    compared = {
        *POSITIONAL, "coverage of intervals", "coverage of intervals, marked rows",
        "standard errors over spread", "misses of the default", "warnings of the default",
        "benchmarks", "times",
        "peers", "answers of peers", "answers of peers, marked rows", "what peers cannot do",
        *(f"{author}-{verdict}" for author in ("paper", "own") for verdict in VERDICTS),
    }  # fmt: skip
    assert set(shown.tables) <= compared


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.anchor)
def test_no_figure_is_typed_into_the_words_of_an_exhibit(exhibit):
    """But for the level of intervals and names with a digit."""
    template = re.sub(r"\{[^}]*\}|95 %|l2|T [=-] 1\b", "", exhibit.here)
    assert not re.findall(r"\d|\b(?:two|three|four|five|ten|thousand)\b", template)
    assert exhibit.described(RESULTS, False) in unescape((RESULTS / "index.html").read_text())


@pytest.mark.parametrize("name", CLAIMS)
def test_a_flipped_verdict_is_noticed(again, name, tmp_path):
    claims = _read(RESULTS / name)
    claims[0]["holds"] = not claims[0]["holds"]
    flipped = tmp_path / "claims.json"
    flipped.write_text(json.dumps(claims), encoding="utf-8")
    assert len(differing_claims(flipped, again[0] / name)) == 2


def test_a_flipped_verdict_changes_the_page(stored_page, tmp_path):
    copied(tmp_path)
    for name in CLAIMS:
        claims = _read(RESULTS / name)
        claims[0]["holds"] = not claims[0]["holds"]
        (tmp_path / name).write_text(json.dumps(claims), encoding="utf-8")
    assert Shown(page(tmp_path)).tiles != Shown(stored_page).tiles


def one_more_negative(rows):
    row = next(r for r in rows if (r["kind"], r.get("method")) == ("band", "idm"))
    row["negative_variances"] += 1


def slower_refits(rows):
    for row in rows:
        if (row["dataset"], row.get("method")) == ("vehicle", "sg"):
            row["seconds"] *= 2


def larger_gain(rows):
    max(rows, key=lambda row: row["T"])["improvement"] *= 2


CHANGED = {
    "one_d": ("one_d/fits.csv.gz", one_more_negative),
    "classification": ("classification/records/*.csv", slower_refits),
    "vae": ("vae/reconstruction.csv", larger_gain),
}


@pytest.mark.parametrize("part", CHANGED)
def test_a_changed_record_is_noticed(part, tmp_path):
    pattern, change = CHANGED[part]
    copied(tmp_path)
    for path in tmp_path.glob(pattern):
        rows = load_records(path)
        change(rows)
        save_records(path, rows)
    assert remade(tmp_path, f"{part}.claims") is None
    assert differing_claims(RESULTS / f"{part}/claims.json", tmp_path / f"{part}/claims.json")


def test_a_changed_record_changes_its_table(tmp_path):
    copied(tmp_path)
    path = tmp_path / "fidelity/default" / f"{SETTINGS[0].name}.csv"
    rows = load_records(path)
    rows[0]["se"] *= 3
    save_records(path, rows)
    assert remade(tmp_path, "fidelity") is None
    name = "fidelity/table.csv"
    assert differing_rows(RESULTS / name, tmp_path / name)

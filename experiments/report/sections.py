"""Sections of the report beyond the paper: networks over retrainings, coverage, benchmarks, peers.

Each shows its bad rows, the command that makes its record, and the page of the site with the rest.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from benchmarks.shown import benchmarks
from experiments.command import TOP
from experiments.records import load_records
from experiments.report import stored
from experiments.report.figures import picture
from experiments.report.tables import marked_first, record_table


@dataclass(frozen=True)
class Section:
    """Part of the report on one record.

    Attributes
    ----------
    count : callable
        ``count(results)`` gives the number of bad rows, of all, and what is counted.
    body : callable
        ``body(results)`` gives the HTML. Either raises FileNotFoundError without the record.
    command, page : str
        Target of make, and the page of the site, as a file under docs.
    """

    anchor: str
    link: str
    title: str
    command: str
    page: str
    count: Callable
    body: Callable

    def html(self, results):
        """The body between its heading and its sources, or that there is no record."""
        try:
            bad, total, label = self.count(results)
            body = f"<p><b>{bad} of {total}</b> {escape(label)}</p>{self.body(results)}"
        except FileNotFoundError as missing:
            body = f'<p class="missing">{escape(stored.named(missing))} is not there yet.</p>'
        return body + (
            f'<p class="sources">Made by <code>{self.command}</code>, which resumes. How, and what '
            f'is known of it: <a href="../docs/{self.page}">docs/{self.page}</a>.</p>'
        )

    def tile(self, results):
        """Count for the head of the report; nothing without the record."""
        try:
            return self.count(results)
        except FileNotFoundError:
            return None


def _count_fidelity(results):
    rows = stored.fidelity_cells(results)[1]
    silent = sum(row[-1] for row in stored.fidelity_misses(results)[1])
    low, high = stored.FAIR
    label = (
        f"cells (a network and a question) have a default standard error below {low:g} or above "
        f"{high:g} times the spread of retrainings; {silent} of these came without a warning"
    )
    return sum(row[-1] for row in rows), len(rows), label


def _fidelity(results):
    table = load_records(stored.stored(results, "fidelity/table.csv"))
    settings, least = len({r["setting"] for r in table}), min(r["retrainings"] for r in table)
    return (
        f"<p>{settings} settings, each with at least {least} retrainings on fresh data. Geometric "
        "means of standard error over spread, question by question; <i>fair</i> is the share of "
        f"cells within the bounds, and columns below {stored.FAIR_SHARE:.0%} are marked. "
        "<i>silently wrong</i>: not fair, and without a warning for most of the networks.</p>"
        + record_table(*stored.fidelity(results), "standard errors over spread")
        + picture(stored.fidelity_picture(results), "Standard errors over spread, cell by cell")
        + "<h3>Misses of the default</h3><p>Marked are those without a warning.</p>"
        + record_table(*stored.fidelity_misses(results), "misses of the default")
        + reasons("trust/fidelity.md", "What is known of them")
        + "<h3>Warnings of the default</h3>"
        + record_table(*stored.fidelity_alarms(results), "warnings of the default")
    )


def _count_coverage(results):
    rows = stored.coverage(results)[1]
    table = load_records(stored.stored(results, "coverage/table.csv"))
    off = [r for r, row in zip(table, rows, strict=True) if row[-1]]
    few = sum(r["coverage"] < r["nominal"] for r in off)
    label = (
        f"rows of the coverage table are more than {stored.Z:g} binomial errors from their nominal "
        f"level: {few} cover too rarely, {len(off) - few} too often"
    )
    return len(off), len(rows), label


def _coverage(results):
    return (
        "<p>Data drawn many times from a known truth. <i>warned</i> is the share of those whose "
        "interval came with a warning, <i>silent</i> the coverage of the others; where they are "
        "empty, that was not counted.</p>"
        + marked_first(*stored.coverage(results), "coverage of intervals")
        + reasons("trust/coverage.md", "What the marks are due to")
    )


def _count_benchmarks(results):
    rows = benchmarks()[1]
    return sum(row[-1] for row in rows), len(rows), "benchmarks miss their aim"


def _benchmarks(results):
    grows = "Time and memory of infer against rows, parameters and evaluations"
    path = TOP / "docs/images/scaling.png"
    return (
        "<p>Ratios of CPU time to a formula by hand, counts, and seconds; smaller is better. "
        "Marked are rows above their aim.</p>"
        + record_table(*benchmarks(), "benchmarks")
        + f"<h3>How it grows</h3><p>Stored in benchmarks/scaling.json; {escape(grows.lower())}.</p>"
        + (picture(path, grows) if path.exists() else "")
    )


def _table_of_peers(results):
    """The module that makes the tables of the comparison."""
    stored.stored(results, "peers")
    try:
        from benchmarks.peers import table
    except ModuleNotFoundError as error:
        raise FileNotFoundError("benchmarks/peers") from error
    return table


def _count_peers(results):
    rows = _table_of_peers(results).peers_answers()[1]
    label = "answers, ours among them: another library does better in lines, seconds or error"
    return sum(row[-1] for row in rows), len(rows), label


def _peers(results):
    table = _table_of_peers(results)
    return (
        "<p>The same questions put to other libraries, each in an environment of its own. Seconds "
        "are ratios to ours: below one the other is faster. Marked are rows in which another "
        "library does better.</p>"
        + record_table(*table.peers(), "peers")
        + "<h3>Answer by answer</h3>"
        + marked_first(*table.peers_answers(), "answers of peers")
        + "<h3>What they cannot do</h3>"
        + marked_first(*table.peers_reasons(), "what peers cannot do")
        + reasons("trust/peers.md", "What each does better")
    )


SECTIONS = (
    Section(
        "fidelity", "Networks", "Networks over retrainings", "make fidelity", "trust/fidelity.md",
        _count_fidelity, _fidelity,
    ),
    Section(
        "intervals", "Intervals", "How often the intervals cover", "make coverage",
        "trust/coverage.md", _count_coverage, _coverage,
    ),
    Section(
        "benchmarks", "Benchmarks", "Benchmarks", "make bench", "project/benchmarks.md",
        _count_benchmarks, _benchmarks,
    ),
    Section(
        "peers", "Peers", "Against the peers", "make peers", "trust/peers.md",
        _count_peers, _peers,
    ),
)  # fmt: skip


def reasons(page, words):
    """List that follows these words on a page of the site, so that it is written once."""
    path = TOP / "docs" / page
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    _, found, rest = text.partition(words)
    items = re.match(r"[^\n]*\n+((?:(?:- |  ).*\n)+)", rest) if found else None
    if not items:
        return ""
    parts = [part.replace("\n  ", " ").strip() for part in re.split(r"^- ", items[1], flags=re.M)]
    listed = "".join(f"<li>{_inline(part)}</li>" for part in parts if part)
    return f"<h3>{escape(words)}</h3><ul>{listed}</ul>"


def _inline(text):
    """The little markdown of these lists; links to other pages stay text."""
    text = re.sub(r"\{\w+\}`~?(?:\w+\.)*(\w+)`", r"`\1`", escape(text, quote=False))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", text)
    return re.sub(r"\*([^*]+)\*", r"<i>\1</i>", text)

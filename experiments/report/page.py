"""Page with every figure next to the claims of the paper, and the evidence beyond it.

``reproduce`` writes it to ``index.html`` beside the records. It holds nothing but what these show:
`tests/test_report_records.py` recomputes it.
"""

from html import escape
from pathlib import Path
from string import Template

from experiments.report import stored
from experiments.report.exhibits import EXHIBITS
from experiments.report.figures import picture
from experiments.report.sections import SECTIONS
from experiments.report.tables import claims_table, record_table

TEMPLATE = Path(__file__).with_name("template.html")
VERDICTS = {True: "hold", False: "do not hold"}
AUTHORS = {
    "paper": "of the paper, repeated as written,",
    "own": "of our own, beyond the paper,",
}


def reproduce(results, *, quick=False, seed=0, n_jobs=1, data=None):
    (results / "index.html").write_text(page(results, quick), encoding="utf-8")


def page(results, quick=False):
    """The whole page, for whatever results there are."""
    parts = [*_exhibits(results, quick), *_claims(results)]
    parts += [(s.anchor, s.link, s.title, s.html(results)) for s in SECTIONS]
    parts.append(("times", "Times", "How long it took", times(results)))
    sections = "\n".join(
        f'<section id="{anchor}"><h2>{escape(title)}</h2>{body}</section>'
        for anchor, _, title, body in parts
    )
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        tally=tally(*stored.claims_of(results)),
        beyond=beyond(results),
        links=" ".join(f'<a href="#{part[0]}">{part[1]}</a>' for part in parts),
        sections=sections,
        footer=footer(quick),
    )


def _exhibits(results, quick):
    for exhibit in EXHIBITS:
        body = figure(results, exhibit, quick)
        if exhibit.anchor == "utility":
            body += tables_of_classification(results)
        yield exhibit.anchor, exhibit.link, exhibit.title, body


def _claims(results):
    """The claims of each author: those that do not hold, then those that do."""
    titles = {"paper": "Claims of the paper", "own": "Claims of our own, beyond the paper"}
    for (author, title), claims in zip(titles.items(), stored.claims_of(results), strict=True):
        body = "".join(
            f"<h3>{VERDICTS[verdict].capitalize()}: {len(chosen)} of {len(claims)}</h3>"
            + claims_table(chosen, anchor(author, verdict))
            for verdict in (False, True)
            for chosen in [[c for c in claims if c["holds"] is verdict]]
        )
        yield author, "The paper's claims" if author == "paper" else "Our claims", title, body


def anchor(author, verdict):
    """Name of a table of claims."""
    return f"{author}-{VERDICTS[verdict].replace(' ', '-')}"


def tally(*by_author):
    """Tiles that say whose claims hold and do not, each a link to its table."""
    tiles = []
    for (author, words), claims in zip(AUTHORS.items(), by_author, strict=True):
        for verdict, text in VERDICTS.items():
            count = sum(c["holds"] is verdict for c in claims)
            label = f"claims {words} {text}"
            kind = "yes" if verdict else "no"
            tiles.append(_tile(anchor(author, verdict), kind, count, len(claims), label))
    return "".join(tiles)


def beyond(results):
    """Tiles of the sections beyond the paper: how much of each is bad."""
    found = {section.anchor: section.tile(results) for section in SECTIONS}
    return "".join(_tile(name, "plain", *tile) for name, tile in found.items() if tile)


def _tile(target, kind, count, total, label):
    number = f"<b>{count} of {total}</b>"
    return f'<a class="{kind}" href="#{target}">{number}{escape(label)}</a>'


def figure(results, exhibit, quick=False):
    """Words of the paper, what is shown here, and the picture."""
    path = results / exhibit.picture
    made = path.exists()
    here = exhibit.described(results, quick) if made else "Nothing yet."
    sides = (
        f'<div class="sides"><div><h3>The paper</h3><p>{escape(exhibit.paper)}</p></div>'
        f"<div><h3>Here</h3><p>{escape(here)}</p></div></div>"
    )
    if made:
        return sides + picture(path, exhibit.title)
    name = escape(exhibit.picture)
    return sides + f'<p class="missing">{name} has not been made yet: run the experiments.</p>'


def tables_of_classification(results):
    """Table 1 and all standard errors, as far as they are there."""
    try:
        return (
            "<h3>Table 1: run times in seconds of one core, and ratios</h3>"
            "<p>The bootstrap is as many trainings as in the paper, each as long as the one that "
            "was timed in the same run as the refits, or beside the solve. Polish ends where psi "
            "has come to rest, settle where infer has no drift to warn of.</p>"
            + record_table(*stored.run_times(results), "run times")
            + "<h3>Standard errors side by side</h3>"
            + "<p>Marked are refusals, and fits whose drift is above one standard error.</p>"
            + record_table(*stored.classification(results), "standard errors of costs")
        )
    except FileNotFoundError as missing:
        return f'<p class="missing">{escape(stored.named(missing))} is not there yet.</p>'


def times(results):
    """Minutes of each experiment, and which of them were not recorded."""
    header, rows = stored.times(results)
    if not rows:
        return '<p class="missing">No experiment has been run yet.</p>'
    note = (
        "<p>Sums over the jobs of an experiment, each timed by the clock where it ran, whether in "
        "one run or in several that resumed, and with other work on the machine. Marked are "
        "experiments with jobs from before times were kept.</p>"
    )
    return note + record_table(header, rows, "times")


def footer(quick):
    """Where the rest is."""
    short = (
        "This is the quick version: everything is run, at sizes too small to judge. "
        if quick
        else ""
    )
    return escape(
        f"{short}Seeds, settings and what the paper leaves open are in the modules under "
        "experiments/ of the repository, the records behind the pictures in results/. "
        "make reproduce computes what is missing there and writes this page."
    )

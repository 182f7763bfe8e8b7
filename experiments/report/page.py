"""Page with every figure next to the claims of the paper, written to ``index.html``."""

import base64
from html import escape
from pathlib import Path
from string import Template

from experiments.claim import by_author, load_claims
from experiments.report.exhibits import EXHIBITS
from experiments.report.tables import claims_table, tables_of_classification, times_table

TEMPLATE = Path(__file__).with_name("template.html")


def reproduce(results, *, quick=False, seed=0, n_jobs=1, data=None):
    (results / "index.html").write_text(page(results, quick), encoding="utf-8")


def page(results, quick=False):
    """The whole page, for whatever results there are."""
    claims = claims_of(results)
    parts = []
    for exhibit in EXHIBITS:
        body = figure(results, exhibit)
        if exhibit.anchor == "utility":
            body += tables_of_classification(results)
        parts.append((exhibit.anchor, exhibit.link, exhibit.title, body))
    paper, own = by_author(claims)
    parts.append(("paper", "The paper's claims", "Claims of the paper", claims_table(paper)))
    parts.append(("own", "Our claims", "Claims of our own, beyond the paper", claims_table(own)))
    parts.append(("times", "Times", "How long it took", times_table(results)))
    sections = "\n".join(
        f'<section id="{anchor}"><h2>{escape(title)}</h2>{body}</section>'
        for anchor, _, title, body in parts
    )
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        tally=tally(claims),
        links=" ".join(f'<a href="#{part[0]}">{part[1]}</a>' for part in parts),
        sections=sections,
        footer=footer(quick),
    )


def claims_of(results):
    """Claims of all parts."""
    files = [results / folder / "claims.json" for folder in ("one_d", "classification", "vae")]
    return [claim for path in files if path.exists() for claim in load_claims(path)]


def tally(claims):
    """Tiles that say whose claims hold, and out of how many."""
    paper, own = by_author(claims)
    held, own_held = (sum(bool(claim["holds"]) for claim in part) for part in (paper, own))
    tiles = (
        ("paper", held, len(paper), "claims of the paper hold when repeated as written"),
        (
            "paper",
            len(paper) - held,
            len(paper),
            "claims of the paper do not, for reasons given below",
        ),
        ("own", own_held, len(own), "claims of our own, beyond the paper, hold"),
    )
    return "".join(
        f'<a href="#{anchor}"><b>{number} of {total}</b>{label}</a>'
        for anchor, number, total, label in tiles
    )


def figure(results, exhibit):
    sides = (
        f'<div class="sides"><div><h3>The paper</h3><p>{escape(exhibit.paper)}</p></div>'
        f"<div><h3>Here</h3><p>{escape(exhibit.here)}</p></div></div>"
    )
    path = results / exhibit.picture
    if not path.exists():
        name = escape(exhibit.picture)
        return sides + f'<p class="missing">{name} has not been made yet: run the experiments.</p>'
    data = base64.b64encode(path.read_bytes()).decode()
    image = f'<img src="data:image/png;base64,{data}" alt="{escape(exhibit.title)}">'
    return sides + f'<div class="wide">{image}</div>'


def footer(quick):
    short = (
        "This is the quick version: everything is run, at sizes too small to judge. "
        if quick
        else ""
    )
    return escape(
        f"{short}Seeds, settings and what the paper leaves open are in the modules under "
        "experiments/; the records behind the pictures are in the folders beside this page."
    )

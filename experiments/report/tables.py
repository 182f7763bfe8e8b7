"""HTML of the report's tables: claims as cards on a phone, records as tables that scroll."""

import re
from html import escape

NUMBER = re.compile(r"[+-]?[\d.,]+(e[+-]\d+)?\*?(%| s)?( ± [\d.]+%?)?$")


def claims_table(claims, anchor):
    """Claims of one author and one verdict, in full."""
    if not claims:
        return f'<p class="missing" id="{anchor}">None.</p>'
    heads = "".join(f"<th>{head}</th>" for head in ("", "Claim", "Paper", "Here", "Why"))
    rows = "".join(_claim_row(claim) for claim in claims)
    head = f"<thead><tr>{heads}</tr></thead>"
    return f'<table class="claims" id="{anchor}">{head}<tbody>{rows}</tbody></table>'


def _claim_row(claim):
    holds = bool(claim["holds"])
    cells = [
        f'<td><span class="badge">{"holds" if holds else "does not hold"}</span></td>',
        f"<td><b>{escape(claim['claim'])}</b></td>",
        f'<td data-label="Paper">{escape(claim["paper"])}</td>',
        f'<td data-label="Here">{escape(claim["ours"])}</td>',
        f'<td class="why">{escape(claim["why"])}</td>',
    ]
    return f'<tr class="{"yes" if holds else "no"}">{"".join(cells)}</tr>'


def record_table(header, rows, label):
    """Table of records (see `stored`): numbers to the right, bad rows marked."""
    columns = list(zip(*(row[:-1] for row in rows), strict=True))
    kinds = [' class="number"' if _numeric(column) else "" for column in columns]
    heads = "".join(
        f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, header, strict=True)
    )
    body = "".join(_record_row(cells, kinds, bad) for *cells, bad in rows)
    whole = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return scroller(whole, f"Table: {label}")


def _record_row(cells, kinds, bad):
    mark = '<span class="unseen">marked: </span>' if bad else ""
    texts = [mark + escape(cells[0]), *map(escape, cells[1:])]
    inner = "".join(f"<td{kind}>{text}</td>" for kind, text in zip(kinds, texts, strict=True))
    return f'<tr class="bad">{inner}</tr>' if bad else f"<tr>{inner}</tr>"


def _numeric(column):
    texts = [text for text in column if text]
    return bool(texts) and all(NUMBER.match(text) for text in texts)


def marked_first(header, rows, label):
    """The bad rows, and all of them below a line that opens."""
    bad = [row for row in rows if row[-1]]
    first = record_table(header, bad, f"{label}, marked rows") if bad else ""
    summary = f"<summary>All {len(rows)} rows, {len(bad)} of them marked</summary>"
    return first + f"<details>{summary}{record_table(header, rows, label)}</details>"


def scroller(inner, label, kind="scroll"):
    """Region that scrolls sideways, by keys too."""
    region = f'<div class="{kind}" role="region" tabindex="0" aria-label="{escape(label)}">'
    return f"{region}<div>{inner}</div></div>"

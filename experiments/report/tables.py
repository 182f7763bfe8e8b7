"""Tables of the report: claims, estimates of classification costs, and times."""

from html import escape

from experiments.records import load_records
from experiments.times import whole_times


def claims_table(claims):
    if not claims:
        return '<p class="missing">No claims have been looked at yet.</p>'
    heads = "".join(f"<th>{head}</th>" for head in ("", "Claim", "Paper", "Here", "Why"))
    rows = "".join(_claim_row(claim) for claim in claims)
    return f'<table class="claims"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def _claim_row(claim):
    holds = bool(claim["holds"])
    cells = [
        f'<td><span class="badge">{"holds" if holds else "does not hold"}</span></td>',
        f"<td><b>{_text(claim['claim'])}</b></td>",
        f'<td data-label="Paper">{_text(claim["paper"])}</td>',
        f'<td data-label="Here">{_text(claim["ours"])}</td>',
        f'<td class="why">{_text(claim.get("why", ""))}</td>',
    ]
    return f'<tr class="{"yes" if holds else "no"}">{"".join(cells)}</tr>'


def tables_of_classification(results):
    times = load_records(results / "classification/run_times.csv")
    estimates = load_records(results / "classification/table.csv")
    if not times:
        return ""
    columns = {
        "dataset": "Data set",
        "training": "One training",
        "bootstrap": "50 trainings",
        "sg_refit": "SG-FDIDM",
        "infinitesimal": "Infinitesimal",
        "sg_times_faster": "SG-FDIDM: ratio",
        "sg_with_training_times_faster": "with training",
        "paper_times_faster": "in the paper",
        "infinitesimal_times_faster": "Infinitesimal: ratio",
    }
    errors = {
        "dataset": "Data set",
        "part": "Setting",
        "l2": "l2",
        "method": "Method",
        "value": "Cost",
        "std_error": "Standard error",
        "monte_carlo_error": "Monte-Carlo error, relative",
        "drift": "Drift",
        "seconds": "Seconds",
    }
    shown = [row for row in estimates if "std_error" in row]
    return (
        "<h2>Table 1: run times in seconds of one core, and ratios to the bootstrap</h2>"
        + table(times, columns)
        + "<h2>Standard errors side by side</h2>"
        + table(shown, errors)
    )


def times_table(results):
    rows = list(whole_times(results))
    if not rows:
        return '<p class="missing">No experiment has been timed yet.</p>'
    columns = {"experiment": "Experiment", "minutes": "Minutes of one core", "jobs": "Jobs"}
    note = (
        "<p>Sums over the jobs of an experiment, each timed where it ran, whether in one run or in "
        "several that resumed; two ran at a time.</p>"
    )
    return note + table(rows, columns)


def table(rows, columns):
    """An HTML table of records; numbers to the right."""
    numeric = {c for c in columns if any(isinstance(row.get(c), int | float) for row in rows)}
    kind = {c: ' class="number"' if c in numeric else "" for c in columns}
    heads = "".join(f"<th{kind[c]}>{escape(title)}</th>" for c, title in columns.items())
    body = "".join(
        "<tr>" + "".join(f"<td{kind[c]}>{_cell(row.get(c, ''))}</td>" for c in columns) + "</tr>"
        for row in rows
    )
    whole = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{whole}</div>'


def _cell(value):
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        value = 0.0 if abs(value) < 1e-9 else value  # rounding: the drift of a finished fit
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return _text(value)


def _text(value):
    return escape(str(value))

"""The report: one page with every figure next to what the paper claims, written to index.html."""

import base64
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from experiments.claim import load_claims
from experiments.records import load_records

TEMPLATE = Path(__file__).with_name("report.html")


@dataclass(frozen=True)
class Exhibit:
    """A figure, what the paper says of it, and what is to be seen here."""

    anchor: str
    link: str
    title: str
    picture: str
    paper: str
    here: str


EXHIBITS = (
    Exhibit(
        "sin", "Sin task", "In-between uncertainty: the sin task", "one_d/sin_fit.png",
        "IDM agrees most with the delta method, while the Gaussian process overestimates "
        "uncertainty, particularly when extrapolating. All methods recover the high-level "
        "structure of the covariance, though the scales differ.",
        "Bands of 95 % around each fit and the covariance of its predictions. The last two panels "
        "go beyond the paper: the fit is finished, with an l2 penalty chosen from the data alone.",
    ),
    Exhibit(
        "quadratic", "Quadratic task", "The quadratic task", "one_d/cubic_fit.png",
        "The inputs are evenly dispersed, and there is close alignment between the methods.",
        "The same panels as for the sin task.",
    ),
    Exhibit(
        "convergence", "Convergence", "Convergence in n and in lambda", "one_d/convergence.png",
        "The rescaled error falls with n. There is a wide range of acceptable lambda; values below "
        "0.01 perform poorly, and 0.512 even outperforms the delta method.",
        "The paper's rate is at the edge of stability, so half of it is shown too, and a finished "
        "fit. Shading is one standard error over resamples.",
    ),
    Exhibit(
        "coverage", "Coverage", "Coverage of 95 % intervals", "one_d/coverage.png",
        "Pointwise coverage is near nominal on the quadratic task; on the sin task every method is "
        "20 points or more away.",
        "Share of data sets whose interval holds the truth, at each input.",
    ),
    Exhibit(
        "lengths", "Length", "How long to train: the quadratic task again", "one_d/lengths.png",
        "The interval is the one “after convergence”; the number of steps is not given.",
        "The paper's fits after a thousand to a hundred thousand steps: mean coverage, and "
        "standard errors over the spread of the fits, with the paper's noise variance RSS / n and "
        "with the true one. The figures above are after 10 000 steps.",
    ),
    Exhibit(
        "utility", "Costs", "The cost downstream of a classifier", "classification/utility.png",
        "IDM predicts the distribution of the average cross-entropy on held-out data, with good "
        "coverage, for a fraction of the cost of 50 bootstrap trainings.",
        "Above, as in the paper: no penalty, training stopped after 20 000 steps. Below, the same "
        "question with l2 from cross-validation, at a maximum. MNIST is in single precision, "
        "finished until no entry of the score exceeds 0.1; its finished bootstrap was not run in "
        "full, but with 10 replicates, each until no entry exceeds 1. Numbers are standard errors; "
        "where SG-FDIDM fails, its variance was negative.",
    ),
    Exhibit(
        "vae", "VAE", "Down-weighting the KL term of a VAE", "vae/reconstruction.png",
        "Higher T gives better reconstruction, and this advantage grows with the amount of "
        "variance added to the data.",
        "Gain of reconstruction over T = 1, continued alike, on 1000 training images. The weight T "
        "is given to all images, as the text has it, or to those 1000, as its psi has it; shading "
        "is one standard error over two repeats. Trainings of 8000 steps, continued for 2000.",
    ),
)  # fmt: skip


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
    parts.append(("claims", "Claims", "All claims", claims_table(claims)))
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
    held = sum(bool(claim["holds"]) for claim in claims)
    cells = ((len(claims), "claims looked at"), (held, "hold"), (len(claims) - held, "do not hold"))
    return "".join(f"<div><b>{number}</b>{label}</div>" for number, label in cells)


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


def tables_of_classification(results):
    times = load_records(results / "classification/run_times.csv")
    answers = load_records(results / "classification/table.csv")
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
    shown = [row for row in answers if "std_error" in row]
    return (
        "<h2>Table 1: run times in seconds of one core, and ratios to the bootstrap</h2>"
        + table(times, columns)
        + "<h2>Standard errors side by side</h2>"
        + table(shown, errors)
    )


def times_table(results):
    rows = load_records(results / "times.csv")
    if not rows:
        return '<p class="missing">No experiment has been timed yet.</p>'
    columns = {"experiment": "Experiment", "minutes": "Minutes", "jobs": "Processes"}
    told = (
        "<p>By the clock; of several runs the longest. A run that resumes computes only what is "
        "missing: the processor time of every answer on classification costs is listed there.</p>"
    )
    return told + table(rows, columns)


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


def footer(quick):
    short = (
        "This is the quick version: everything is run, at sizes too small to judge. "
        if quick
        else ""
    )
    return escape(
        f"{short}Seeds, settings and what the paper leaves open are in the modules under "
        "experiments/; the records behind the pictures are beside this page."
    )


def _cell(value):
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        value = 0.0 if abs(value) < 1e-9 else value  # rounding: the drift of a finished fit
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return _text(value)


def _text(value):
    return escape(str(value))

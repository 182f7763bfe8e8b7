"""Directive ``records``: tables made of stored records when the site is built, bad rows included.

The argument names one of the functions below, each of which returns a header and rows, or the path
of a picture. A row whose last entry is True is a bad one, and is marked.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import scipy.special
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import implicit_delta as idm

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
RESULTS = ROOT / "results"
Z = 2.0  # binomial errors beyond which a coverage is marked
AGREES = 1e-6  # relative
FAIR, FAIR_SHARE = (0.67, 1.5), 0.8  # ratios of a standard error to a spread, and share of cells
METHODS = {
    "idm": "paper: refits, both ends alike",
    "literal": "paper: refits against the fit, to the letter",
    "delta": "paper: delta method, damped like the fit",
    "delta_refit": "paper: delta method, damped like the refits",
    "gp": "paper: Gaussian process",
    "simulation": "paper's fit, with its true spread",
    "evidence": "finished fit, l2 of largest evidence",
    "weakest": "finished fit, weakest plausible l2",
    "mixture": "finished fits from four starts",
    "simulation_finished": "finished fit, with its true spread",
}


def coverage():
    """Simulated coverage of each task and method."""
    header = ["task", "n", "method", "nominal", "of", "coverage", "refused", "warned", "silent"]
    rows = []
    for r in _rows("coverage/table.csv"):
        nominal, of = float(r["nominal"]), int(r["replications"])
        found = int(r["covered"]) / of
        error = np.sqrt(nominal * (1 - nominal) / of)
        cells = [r["task"], r["n"], r["method"], f"{nominal:.0%}", r["replications"]]
        silent = float(r["silent_coverage"] or "nan")
        warned = f"{float(r['warned']):.0%}" if r["warned"] else ""
        told = [warned, "" if np.isnan(silent) else f"{silent:.1%}"]
        coverage = f"{found:.1%} ± {error:.1%}"
        rows.append([*cells, coverage, r["failed"], *told, abs(found - nominal) > Z * error])
    return header, rows


def fidelity():
    """Ratios of each column for networks that stopped early, question by question."""
    rows = defaultdict(dict)
    for r in _rows("fidelity/summary.csv"):
        rows[r["column"]][r["question"]] = r
    questions = list(next(iter(rows.values())))
    counts = ["answered", "silently_wrong", "false_alarms"]
    header = ["column", *questions, "fair", "cells", "silently wrong", "false alarms"]
    found = []
    for column, parts in rows.items():
        means = [_number(parts[q]["geometric_mean"]) for q in questions]
        fair = float(parts["all"]["fair"])
        share = "" if np.isnan(fair) else f"{fair:.0%}"
        found.append([column, *means, share, *(parts["all"][c] for c in counts), fair < FAIR_SHARE])
    return header, found


def fidelity_picture():
    """Ratios of the default as dots."""
    return _stored("fidelity/ratios.png")


def fidelity_cells():
    """The same cell by cell; a star where a warning was given."""
    columns = dict.fromkeys(r["column"] for r in _rows("fidelity/summary.csv"))
    header = ["setting", "question", "networks", "spread", "new weights", "order", *columns]
    rows = []
    for r in _rows("fidelity/table.csv"):
        parts = [f"{float(r['spread']):.2g}", _number(r["initialization"]), _number(r["order"])]
        ratios = [_starred(r, column) for column in columns]
        default = float(r["default"] or "nan")
        bad = not FAIR[0] <= default <= FAIR[1]
        rows.append([r["setting"], r["question"], r["default_sets"], *parts, *ratios, bad])
    return header, rows


def fidelity_misses():
    """Cells of the default that are not fair, with the part that is off."""
    header = ["setting", "question", "ratio", "off by more", "skewness", "warned"]
    rows = []
    for r in _rows("fidelity/misses.csv"):
        cells = [_number(r["ratio"]), r["reason"], _number(r["skew"]), r["warned"]]
        rows.append([r["setting"], r["question"], *cells, r["warned"] == "no"])
    return header, rows


def fidelity_alarms():
    """Warnings of the default by category."""
    names = ["warning", "cells", "false_alarms"]
    rows = [[*(r[n] for n in names), False] for r in _rows("fidelity/alarms.csv")]
    return ["warning", "cells", "of them fair"], rows


def tasks():
    """Coverage of the paper's one-dimensional tasks, averaged over inputs."""
    groups = defaultdict(list)
    for r in _rows("one_d/coverage_table.csv"):
        groups[r["task"], r["method"]].append((float(r["covered"]), float(r["x"])))
    header = ["task", "method", "mean coverage", "smallest", "at x"]
    rows = []
    for (task, method), found in groups.items():
        least, where = min(found)
        mean = np.mean([share for share, _ in found])
        rows.append(
            [
                task,
                METHODS.get(method, method),
                f"{mean:.0%}",
                f"{least:.0%}",
                f"{where:g}",
                abs(mean - 0.95) > 0.03,
            ]
        )
    return header, rows


def run_times():
    """Seconds of training, bootstrap, refits and solves."""
    header = [
        "data set",
        "one training",
        "50 trainings",
        "SG-FDIDM",
        "one solve",
        "bootstrap / solve",
    ]
    rows = []
    for r in _rows("classification/run_times.csv"):
        seconds = [
            f"{float(r[name]):.3g} s"
            for name in ("training", "bootstrap", "sg_refit", "infinitesimal")
        ]
        rows.append(
            [r["dataset"], *seconds, f"{float(r['infinitesimal_times_faster']):,.0f}", False]
        )
    return header, rows


def classification():
    """Standard errors of the validation loss by every method."""
    header = ["data set", "fit", "method", "loss", "standard error", "drift", "seconds"]
    rows = []
    for r in _rows("classification/table.csv"):
        cells = [
            f"{float(r[name]):.3g}" if r[name] else ""
            for name in ("value", "std_error", "drift", "seconds")
        ]
        cells[1] = cells[1] or r["why"]
        bad = bool(r["why"]) or float(r["drift"] or 0) > 1
        rows.append([r["dataset"], r["part"], r["method"], *cells, bad])
    return header, rows


def claims():
    """The paper's claims that did not hold when they were repeated."""
    header = ["claim", "paper", "found here"]
    paper, _ = _claims()
    return header, [[c["claim"], c["paper"], c["ours"], False] for c in paper if not c["holds"]]


def claim_counts():
    """Count of the claims that hold, of the paper and of our own."""
    rows = []
    for whose, part in zip(("the paper's", "our own, beyond the paper"), _claims(), strict=True):
        held = Counter(c["holds"] for c in part)
        rows.append([whose, *map(str, (held.total(), held[True], held[False])), False])
    return ["claims", "looked at", "hold", "do not hold"], rows


def goldens():
    """The largest relative difference of a standard error or an interval to that of R."""
    header = ["source", "evaluations", "largest difference"]
    found = [*_delta_method(), *_robust(), *_profiles(), _laplace()]
    rows = [[model, str(count), f"{gap:.1e}", gap > AGREES] for model, count, gap in found]
    return header, rows


def benchmarks():
    """Ratios to formulas by hand and counts, with the aims."""
    stored = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    header = ["work", "stored", "aim", "before", "unit"]
    rows = []
    for name, row in sorted(stored.items()):
        numbers = [row["value"], row["aim"], row["before"]]
        cells = ["" if x is None else f"{x:.3g}" for x in numbers]
        rows.append([name, *cells, row["unit"], not row["value"] <= row["aim"]])
    return header, rows


def hostile():
    """Number of attacks in each file of the hostile suite."""
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    listed = subprocess.run(
        [*collect, "tests/hostile"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    counts = Counter(line.split("::")[0] for line in listed.stdout.splitlines() if "::" in line)
    if not counts:
        raise FileNotFoundError("tests/hostile (or pytest)")
    rows = [[Path(name).stem, str(count), False] for name, count in sorted(counts.items())]
    return ["file", "attacks"], [*rows, ["all", str(counts.total()), False]]


def _number(text):
    value = float(text or "nan")
    return "" if np.isnan(value) else f"{value:.2f}"


def _starred(row, column):
    warned = float(row.get(f"{column}_warned") or 0) >= 0.5
    return _number(row.get(column)) + ("*" if warned else "")


@cache
def _rows(name):
    with _stored(name).open(newline="") as file:
        return list(csv.DictReader(file))


def _claims():
    """Claims of the paper, and those of our own: questions and settings that it does not have."""
    names = [f"{part}/claims.json" for part in ("one_d", "classification", "vae")]
    found = [c for name in names for c in json.loads(_stored(name).read_text(encoding="utf-8"))]
    own = [c for c in found if c["paper"].startswith("not in the paper")]
    return [c for c in found if c not in own], own


def _stored(name):
    if not (RESULTS / name).exists():
        raise FileNotFoundError(f"results/{name}")
    return RESULTS / name


def _cases(name):
    return json.loads((GOLDEN / name).read_text())["cases"].values()


def _function(expression, data):
    """Turn one of R's formulas, written in the names of NumPy, into a function of theta."""
    names = vars(scipy.special) | vars(np) | {name: np.asarray(v) for name, v in data.items()}
    code = compile(expression, "<golden>", "eval")
    return lambda theta: eval(code, names | {"theta": theta})


def _model(case, variance="mle"):
    weights = case["data"].get("weights")
    if "residuals" in case:
        residuals = _function(case["residuals"], case["data"])
        return idm.from_residuals(residuals, case["theta"], weights=weights, variance=variance)
    return idm.from_loglik(_function(case["loglik"], case["data"]), case["theta"], weights=weights)


def _delta_method():
    """car::deltaMethod and its like, with the model's own covariance."""
    for case in _cases("delta_method.json"):
        kinds = next(iter(case["evaluations"].values()))["standard_error"]
        kind = next(k for k in ("observed", "observed_unbiased", "unbiased") if k in kinds)
        model = _model(case, "unbiased")
        gaps = [
            _gap(model, case, e, e["standard_error"][kind], {})
            for e in case["evaluations"].values()
        ]
        yield case["model"], len(gaps), max(gaps)


def _robust():
    """sandwich::sandwich and sandwich::vcovCL."""
    for case in _cases("robust.json"):
        model = _model(case)
        for kind, options in {
            "hc0": {"robust": True},
            "cluster": {"clusters": case["data"]["clusters"]},
        }.items():
            gaps = [
                _gap(model, case, e, e["standard_error"][kind], options)
                for e in case["evaluations"].values()
            ]
            yield f"{case['model']}, {kind}", len(gaps), max(gaps)


def _gap(model, case, evaluation, expected, options):
    psi = _function(evaluation["formula"], case["data"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
        found = idm.infer(model, psi, strict=False, **options)
    return abs(found.standard_error / expected - 1)


def _profiles():
    """Likelihood-ratio limits; the gap is in standard errors."""
    for case in _cases("profile.json"):
        model, gaps = _model(case), []
        for e in case["evaluations"].values():
            psi = _function(e["formula"], case["data"])
            found = idm.profile(model, psi, 0.95).interval
            gaps.append(
                max(abs(np.subtract(found, e["limits"]["0.95"]["profile"]))) / e["standard_error"]
            )
        yield f"profile likelihood: {case['model']}", len(gaps), max(gaps)


def _laplace():
    """Logits of a network by laplace-torch, the only golden values that are not R's."""
    import torch
    from torch import nn

    record = json.loads((GOLDEN / "laplace_softmax.json").read_text())
    layers = [nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)]
    net = nn.Sequential(*layers).double()
    net.load_state_dict({k: torch.tensor(v).double() for k, v in record["state_dict"].items()})
    data = (torch.tensor(record["x"]).double(), torch.tensor(record["y"]))
    model = idm.from_torch(net, data, idm.Categorical(), l2=record["l2"])
    points = torch.tensor(record["points"][: record["joint_points"]]).double()
    ggn = idm.Infinitesimal(curvature="ggn")
    found = idm.infer(model, lambda net: net(points).flatten(), ggn, strict=False).covariance
    expected = np.array(record["joint_covariance"])
    errors = np.sqrt(np.diag(expected))
    gap = np.max(abs(found - expected) / np.outer(errors, errors))
    return "laplace-torch: logits of a 4-8-8-3 softmax network, GGN", len(found), gap


class Records(SphinxDirective):
    """Insert the table or the picture that is the argument."""

    required_arguments = 1

    def run(self):
        """Make it, or say that there is no record."""
        self.env.note_reread()  # in every build: records change without the page
        try:
            found = globals()[self.arguments[0]]()
        except FileNotFoundError as missing:
            return [nodes.paragraph(text=f"There is no such record in this copy: {missing}.")]
        if isinstance(found, Path):
            return [nodes.image(uri=self._relative(found), alt=self.arguments[0])]
        return [_table(*found)]

    def _relative(self, path):
        return os.path.relpath(path, Path(self.env.doc2path(self.env.docname)).parent)


def _table(header, rows):
    table = nodes.table(classes=["records"])
    group = nodes.tgroup(cols=len(header))
    table += group
    group += [nodes.colspec(colwidth=1) for _ in header]
    head, body = nodes.thead(), nodes.tbody()
    group += [head, body]
    head += _row(header, False)
    for *cells, bad in rows:
        body += _row(cells, bad)
    return table


def _row(cells, bad):
    row = nodes.row(classes=["bad"] if bad else [])
    for cell in cells:
        row += nodes.entry("", nodes.paragraph(text=cell))
    return row


def _copy_report(app, error):
    """Put the report on the paper beside the pages."""
    report = RESULTS / "index.html"
    if error is None and app.builder.format == "html" and report.exists():
        folder = Path(app.outdir) / "report"
        folder.mkdir(exist_ok=True)
        shutil.copy(report, folder / "index.html")


def setup(app):
    """Register the directive."""
    app.add_directive("records", Records)
    app.connect("build-finished", _copy_report)
    return {"parallel_read_safe": True}

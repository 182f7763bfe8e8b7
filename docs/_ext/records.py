"""Directive ``records``: tables of stored records when the site is built, bad rows included.

The argument names a function that returns a header and rows, or the path of a picture; a row whose
last entry is True is a bad one, and is marked. Tables of the experiments and of the benchmarks are
made beside these, for the report has them too; those that are computed for the site are made below.
Where the experiments are missing, as in a source distribution, so are their records.
"""

import json
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import scipy.special
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import implicit_delta as idm

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
RESULTS = ROOT / "results"
AGREES = 1e-6  # relative
sys.path.insert(0, str(ROOT))  # for the experiments and the benchmarks


def found(name):
    """Table or picture of this name; FileNotFoundError if this copy has no such record."""
    if name in COMPUTED:
        return COMPUTED[name]()
    beside = {
        "benchmarks": "benchmarks.shown",
        "peers": "benchmarks.peers.table",
        "nist": "benchmarks.nist.table",
    }
    place = beside.get(name.partition("_")[0])
    try:
        module = import_module(place or "experiments.report.stored")
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in ("experiments", "benchmarks"):
            raise FileNotFoundError(error.name) from error
        raise
    make = getattr(module, name)
    return make() if place else make(RESULTS)


def goldens():
    """The largest relative difference of a standard error or an interval to that of R."""
    header = ["source", "evaluations", "largest difference"]
    found = [*_delta_method(), *_robust(), *_profiles(), _laplace()]
    rows = [[model, str(count), f"{gap:.1e}", bool(gap > AGREES)] for model, count, gap in found]
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


COMPUTED = {"goldens": goldens, "hostile": hostile}


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
    """car::deltaMethod and its like, by the observed information; nls has its Gauss-Newton one."""
    for case in _cases("delta_method.json"):
        kinds = next(iter(case["evaluations"].values()))["standard_error"]
        kind = next(k for k in ("observed", "expected_unbiased", "unbiased") if k in kinds)
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
            made = found(self.arguments[0])
        except FileNotFoundError as missing:
            name = Path(missing.filename).name if missing.filename else missing
            return [nodes.paragraph(text=f"There is no such record in this copy: {name}.")]
        if isinstance(made, Path):
            image = nodes.image(uri=self._relative(made), alt=self.arguments[0].replace("_", " "))
            return [nodes.paragraph("", "", image)]
        return [_table(*made)]

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


def _make_scrollable(app, pagename, templatename, context, doctree):
    """Give wide tables and pictures of a page a region that scrolls, by keys too, and shows it."""
    if "body" in context:
        context["body"] = scrollable(context["body"])


def scrollable(body):
    """Wrap tables and pictures that stand alone; see ``site.css`` for the rest."""
    region = '<div class="{} pan" role="region" tabindex="0" aria-label="{}"><div>'
    tables = re.sub(
        r'<div class="pst-scrollable-table-container">(\s*<table.*?</table>\s*)</div>',
        lambda m: f"{region.format('pst-scrollable-table-container', 'Table')}{m[1]}</div></div>",
        body,
        flags=re.DOTALL,
    )
    return re.sub(
        r'<p>(<img [^>]*?alt="([^"]*)"[^>]*>)</p>',
        lambda m: f"{region.format('picture', 'Figure: ' + m[2])}{m[1]}</div></div>",
        tables,
    )


def _copy_report(app, error):
    """Put the report on the paper beside the pages, its links to their sources now to them."""
    report = RESULTS / "index.html"
    if error is None and app.builder.format == "html" and report.exists():
        folder = Path(app.outdir) / "report"
        folder.mkdir(exist_ok=True)
        (folder / "index.html").write_text(linked(report.read_text(encoding="utf-8")), "utf-8")


def linked(report):
    """Turn links to the sources of pages into links to the pages."""
    return re.sub(r'href="\.\./docs/([\w/]+)\.md"', r'href="../\1.html"', report)


def setup(app):
    """Register the directive."""
    app.add_directive("records", Records)
    app.connect("html-page-context", _make_scrollable)
    app.connect("build-finished", _copy_report)
    return {"parallel_read_safe": True}

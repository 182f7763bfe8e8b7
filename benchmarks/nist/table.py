"""Tables of the regressions of NIST for the site: ours beside lmfit's and SciPy's, as stored."""

import json
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
DIGITS = (3, 6)


def read():
    """Fits by library, name and start."""
    ours = json.loads((HERE / "fits.json").read_text())["problems"]
    others = json.loads((HERE / "lmfit_and_scipy.json").read_text())["problems"]
    found = {"implicit-delta": ours}
    for way, label in (("lmfit", "lmfit"), ("scipy", "SciPy `curve_fit`")):
        found[label] = {name: fits[way] for name, fits in others.items()}
    return found


def ratios(ours, others):
    """Calls of ours over theirs, of all fits that have an answer here."""
    return [
        a["calls"] / b["calls"]
        for name in ours
        for a, b in zip(ours[name], others[name], strict=True)
        if min(a["digits"]) > 0
    ]


def nist():
    """Fits whose parameters and standard errors all have so many digits, and calls."""
    found, rows = read(), []
    for label, problems in found.items():
        fits = [fit for both in problems.values() for fit in both]
        solved = [str(sum(min(f["digits"]) >= n for f in fits)) for n in DIGITS]
        ratio = median(ratios(found["implicit-delta"], problems))
        calls = [f"{median(f['calls'] for f in fits):.0f}", f"{ratio:.1f}"]
        rows.append([label, *solved, *calls, False])
    header = ["library", "3 digits", "6 digits", "median calls", "our calls over theirs, median"]
    return header, rows


def nist_problems():
    """Digits and calls of every regression, of both starts."""
    found, rows = read(), []
    for name in found["implicit-delta"]:
        cells = [_cell(fit) for problems in found.values() for fit in problems[name]]
        rows.append([name, *cells, False])
    header = [f"{label}, {start}" for label in found for start in ("far", "close")]
    return ["regression", *header], rows


def _cell(fit):
    return f"{min(fit['digits']):.0f} digits, {fit['calls']} calls" if min(fit["digits"]) else "-"

"""Tables of standard errors and times, and the figure, from the records of `costs`."""

import numpy as np
from scipy.stats import norm

PAPER_SECONDS = {  # Table 1: IDM and bootstrap
    "vehicle": (39, 806),
    "waveform": (129, 2334),
    "satellite": (111, 3192),
    "mnist": (303, 7164),
}
REPLICATES = 50  # of the paper's bootstrap
PARTS = ("paper", "stopped", "starts", "solve", "refits", "finished")  # as the tables have them
PANELS = (("paper", "stopped", "starts"), ("refits", "finished"))
CUT = 4.0  # heights of a histogram, above which a curve is cut
SHOWN = {
    "sg": ("C0", "SG-FDIDM"),
    "stopped": ("C3", "infer, as stopped"),
    "replicated": ("C4", "infer, other starts too"),
    "ggn": ("C1", "Infinitesimal (GGN)"),
    "robust": ("C2", "Infinitesimal, robust"),
}
COLUMNS = (
    "dataset", "part", "l2", "method", "value", "std_error", "monte_carlo_error", "share",
    "training_noise", "initialization", "starts", "drift", "passes", "gain", "moved", "shift",
    "seconds", "why", "refused", "warnings",
)  # fmt: skip


def tabulate(records):
    """All estimates, without the draws, in the order of the paper."""
    order = list(PAPER_SECONDS)
    rows = [row for row in records if "method" in row]
    rows.sort(key=lambda row: (order.index(row["dataset"]), PARTS.index(row["part"])))
    return [
        {column: row[column] for column in COLUMNS if row.get(column, "") != ""} for row in rows
    ]


def titled(name):
    return "MNIST" if name == "mnist" else name.capitalize()


def by_method(records, dataset, part):
    rows = [row for row in records if (row["dataset"], row["part"]) == (dataset, part)]
    return {row["method"]: row for row in rows if "method" in row}


def datasets(records):
    """Data sets that are finished, in the order of the paper."""
    return [n for n in PAPER_SECONDS if all(by_method(records, n, part) for part in PARTS)]


def run_times(records):
    """Table 1, ours and the paper's: seconds, and how many times faster than the bootstrap.

    The refits need one training and `polish`, which leads to where psi has come to rest; the solve
    needs `settle`, until `infer` has no drift to warn of; `solve_at_rest` is one after `polish`.
    All ratios are within one run.
    """
    return [_times(records, name) for name in datasets(records)]


def _times(records, name):
    solve, refits = (
        {method: row["seconds"] for method, row in by_method(records, name, part).items()}
        for part in ("solve", "refits")
    )
    polish = refits["polish"] + refits.get("climb", 0.0)
    sg = {
        "sg_refit": refits["sg"],
        "sg_without_polish": refits["training"] + refits["sg"],
        "sg_total": refits["training"] + polish + refits["sg"],
    }
    solves = {
        "solve": solve["solve"],
        "solve_with_polish": solve["settle"] + solve["solve"],
        "solve_total": solve["training"] + solve["settle"] + solve["solve"],
    }
    at_rest = {"solve_at_rest": refits["polish"] + refits["ggn"]}
    their_idm, their_bootstrap = PAPER_SECONDS[name]
    return {
        "dataset": name,
        "training": refits["training"],
        "bootstrap": float(REPLICATES * refits["training"]),
        "polish": polish,
        **sg,
        "training_of_solve": solve["training"],
        "settle": solve["settle"],
        **solves,
        "passes": by_method(records, name, "solve")["solve"]["passes"],
        **_ratios(sg, REPLICATES * refits["training"]),
        **_ratios(solves, REPLICATES * solve["training"]),
        **_ratios(at_rest, REPLICATES * refits["training"]),
        "paper_times_faster": their_bootstrap / their_idm,
    }


def _ratios(seconds, bootstrap):
    return {f"{stages}_times_faster": bootstrap / each for stages, each in seconds.items()}


def plot(records):
    """Predicted distributions of the cost: as in the paper above, beyond it below."""
    import matplotlib.pyplot as plt

    names = datasets(records)
    figure, axes = plt.subplots(2, len(names), figsize=(3.6 * len(names), 6), squeeze=False)
    for parts, row in zip(PANELS, axes, strict=True):
        for name, ax in zip(names, row, strict=True):
            estimates = {}
            for part in parts:
                estimates |= by_method(records, name, part)
            tallest = _draw(ax, estimates)
            ax.set_title(f"{titled(name)}, {_setting(estimates)}", fontsize=9)
            top = 1.6 * min(ax.get_ylim()[1], CUT * tallest)
            ax.set(xlabel="average cross-entropy", yticks=[], ylim=(0, top))
            ax.locator_params(axis="x", nbins=5)
            ax.legend(fontsize=7, loc="upper right")
    figure.tight_layout()
    return figure


def _setting(estimates):
    if "l2" not in estimates["training"]:
        return "as in the paper"
    return f"at a maximum, $\\ell_2$ = {estimates['training']['l2']:g}"


def _draw(ax, estimates):
    """Draw all estimates, and return the height of the bootstrap's histogram."""
    tallest = np.inf
    for method in ("bootstrap", "warm bootstrap"):
        if method in estimates:
            row = estimates[method]
            draws = np.array(str(row["draws"]).split(), dtype=float)
            label = f"{method} (B = {draws.size}): {row['std_error']:.2g}"
            bins = min(25, 5 + draws.size // 5)
            heights, *_ = ax.hist(draws, bins=bins, density=True, color="0.8", label=label)
            tallest = float(heights.max())
    for method, (color, label) in SHOWN.items():
        row = estimates.get(method, {})
        if "std_error" in row:
            x = row["value"] + row["std_error"] * np.linspace(-3.5, 3.5, 200)
            density = norm.pdf(x, row["value"], row["std_error"])
            line, told = ("--", " (refused)") if "refused" in row else ("-", "")
            text = f"{label}: {row['std_error']:.2g}{told}"
            ax.plot(x, density, color, lw=1.2, ls=line, label=text)
        elif "why" in row:
            ax.plot([], [], color, ls=":", label=f"{label}: {row['why']}")
    return tallest

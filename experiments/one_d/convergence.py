"""Figure "convergence": the error of the variance against n and against lambda, quadratic task.

The error is n^2-rescaled: sqrt(mean of n^2 (V - V_true)^2) over resamples and inputs, where
V_true(x) is the variance of the fitted predictions over the resamples. lambda is on the scale of
half the sum of squared errors (the paper's training objective); on that of the log-likelihood it
is 1 / s2, about 100, times larger.

The rates fall like 1 / n: at the paper's rate for n = 25, gradient descent on a sum over more than
50 observations diverges. Even so it hovers at the edge of stability, and where it happens to stop
adds to the variance of the fits, the more the larger n is. So there is also a fit at half the
rate, which does not hover, and the finished fit with l2 penalty, by the library's methods; the fit
and its l2 are by code of this folder, which is not in the library.
"""

import warnings
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

import implicit_delta as idm
from experiments.one_d.bands import (
    TRAINING,
    Training,
    delta_bands,
    fit_as_paper,
    least_squares,
    penalized_band,
    refits,
)
from experiments.one_d.evidence import maximize_evidence
from experiments.one_d.tasks import QUADRATIC
from experiments.records import resume, save_picture, save_records

HALF = replace(QUADRATIC, rate=QUADRATIC.rate / 2, refit_rate=QUADRATIC.refit_rate / 2)
STYLES = {
    ("paper", "literal"): ("C9", "o-", "IDM, as in the paper"),
    ("paper", "idm"): ("C9", "s:", "IDM, two refits alike"),
    ("paper", "delta"): ("C9", "--", "Delta method, damped like the fit"),
    ("half", "idm"): ("C0", "o-", "IDM, two refits, half the rate"),
    ("half", "delta"): ("C0", "--", "Delta method, half the rate"),
    ("finished", "finite"): ("C3", "o-", "Not in the library: finished fit, refits"),
    ("finished", "infinitesimal"): ("C3", "--", "Not in the library: finished fit, one solve"),
}
MOST_FAILED = 0.2  # of the refits; beyond that no error is reported


@dataclass(frozen=True)
class Config:
    """Sample sizes, lambdas at the smallest of them, and those that are followed along n."""

    sizes: tuple[int, ...] = (25, 50, 100, 200)
    lams: tuple[float, ...] = tuple(round(0.001 * 2**k, 3) for k in range(13))
    followed: tuple[float, ...] = (0.512,)
    finite_lams: tuple[float, ...] = (0.001, 0.004, 0.016, 0.064, 0.128, 0.256, 0.512)
    resamples: int = 50
    inputs: tuple[float, ...] = (-1.0, 0.0, 1.0)
    training: Training = TRAINING


FULL = Config()
QUICK = Config(
    sizes=(25, 50),
    lams=(0.001, 0.064, 0.512, 4.096),
    finite_lams=(0.064, 0.512),
    resamples=6,
    inputs=(-0.5, 0.5),
    training=Training(steps=3_000, refit_steps=300),
)


def run(config=FULL, seed=0, *, path=None, n_jobs=1):
    """Predictions and the variances that every method claims for them."""
    jobs = [(n, k) for k in range(config.resamples) for n in config.sizes]

    def compute(n, resample):
        return one_resample(config, seed, n, resample)

    return resume(
        compute, jobs, ("n", "resample"), path=path, settings=(config, seed), n_jobs=n_jobs,
        label="convergence",
    )  # fmt: skip


def reproduce(results, *, quick=False, seed=0, n_jobs=1, data=None):
    records = run(
        QUICK if quick else FULL, seed, path=results / "one_d/convergence.csv.gz", n_jobs=n_jobs
    )
    save_records(results / "one_d/convergence_table.csv", tabulate(records))
    save_picture(plot(records), results / "one_d/convergence.png")


def one_resample(config, seed, n, resample):
    rng = np.random.default_rng([seed, n, resample])
    x, y = QUADRATIC.draw(rng, n)
    network = config.training.network
    start, at = network.start(rng), np.array(config.inputs)
    first = n == config.sizes[0]
    lams = config.lams if first else config.followed
    rows = trained("paper", QUADRATIC, config, x, y, start, at, lams)
    rows += trained("half", HALF, config, x, y, start, at, lams)
    rows += finished(network, x, y, start, at, config.finite_lams if first else ())
    return [
        {"fit": fit, "method": method, "lam": lam, "x": float(x0), "value": float(v)}
        for fit, method, lam, values in rows
        for x0, v in zip(at, values, strict=True)
    ]


def trained(fit, task, config, x, y, start, at, lams):
    """Rows (fit, method, lambda, values at the inputs)."""
    network = config.training.network
    theta, _ = fit_as_paper(task, x, y, start, config.training)
    value, residual = network.predict(theta, at), y - network.predict(theta, x)
    pushes = np.tile(at, len(lams)), np.repeat(lams, at.size)
    ahead, rest = refits(task, x, y, theta, pushes, at, config.training)
    # of each refit only the prediction that was pushed
    pushed = ahead.reshape(len(lams), at.size, at.size).diagonal(axis1=1, axis2=2)
    noise = np.mean(residual**2)
    delta = delta_bands(task, x, y, theta, at, config.training)["delta"]
    rows = [(fit, "prediction", 0.0, value), (fit, "delta", 0.0, delta.std_error**2)]
    for lam, end in zip(lams, pushed, strict=True):
        rows.append((fit, "idm", lam, noise * (end - rest) / lam))
        rows.append((fit, "literal", lam, noise * (end - value) / lam))
    return rows


def finished(network, x, y, start, at, lams):
    """Rows of the converged fit at the l2 of largest evidence, by the library's methods."""
    fit = maximize_evidence(network, x, y, start)
    band = penalized_band(network, x, y, fit, at)
    rows = [("finished", "prediction", 0.0, band.value)]
    rows.append(("finished", "infinitesimal", 0.0, band.std_error**2))
    model = least_squares(network, x, y, fit.theta, variance="unbiased", l2=fit.l2)
    for lam in lams:
        variances = [_by_refit(network, model, x0, lam / fit.s2) for x0 in at]
        rows.append(("finished", "finite", lam, variances))
    return rows


def _by_refit(network, model, x0, lam):
    psi = lambda theta: network.predict(theta, np.array([x0]))[0]
    method = idm.FiniteDifference(lam=lam, curvature="ggn")
    with warnings.catch_warnings():
        # a push as large as some of these bends psi, which is studied here
        warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
        try:
            return idm.infer(model, psi, method, strict=False).standard_error ** 2
        except idm.ConvergenceError:  # too large a push: L + lambda psi has no maximum nearby
            return np.nan


def tabulate(records):
    """RMSE with its standard error for each n, method and lambda."""
    values = defaultdict(dict)
    for row in records:
        key = row["n"], row["fit"], row["method"], row["lam"]
        values[key][row["resample"], row["x"]] = row["value"]
    table = []
    for (n, fit, method, lam), claimed in values.items():
        if method != "prediction":
            spread = _variance(values[n, fit, "prediction", 0])
            table.append(
                {"n": n, "fit": fit, "method": method, "lam": lam, **_rmse(n, claimed, spread)}
            )
    return table


def _variance(predictions):
    by_input = defaultdict(list)
    for (_, x), value in predictions.items():
        by_input[x].append(value)
    return {x: np.var(values, ddof=1) for x, values in by_input.items()}


def _rmse(n, claimed, spread):
    squares = defaultdict(list)
    for (resample, x), value in claimed.items():
        squares[resample].append((n * (value - spread[x])) ** 2)
    per_resample = np.array([np.mean(parts) for parts in squares.values()])
    failed = np.isnan(per_resample)
    kept = per_resample[~failed]
    if kept.size < 2 or failed.mean() > MOST_FAILED:
        return {"rmse": np.nan, "error": np.nan, "failed": int(failed.sum())}
    rmse = float(np.sqrt(kept.mean()))
    error = float(kept.std(ddof=1) / np.sqrt(kept.size) / (2 * rmse))
    return {"rmse": rmse, "error": error, "failed": int(failed.sum())}


def plot(records):
    """Against n at the lambda that is followed, and against lambda at the smallest n."""
    import matplotlib.pyplot as plt

    table = tabulate(records)
    sizes = sorted({row["n"] for row in table})
    followed = max(row["lam"] for row in table if row["n"] == sizes[-1])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 6))
    for style in STYLES:
        _draw(left, [r for r in table if r["lam"] in (0, followed)], style, "n")
        _draw(right, [r for r in table if r["n"] == sizes[0]], style, "lam")
    left.set(xscale="log", yscale="log", xlabel="n", title=f"IDM at $\\lambda$ = {followed:g}")
    left.set_xticks(sizes, sizes)
    left.minorticks_off()
    right.set(xscale="log", yscale="log", xlabel=r"$\lambda$", title=f"n = {sizes[0]}")
    for ax in (left, right):
        ax.set_ylabel(r"RMSE of $n V$")
    figure.tight_layout(rect=(0, 0.2, 1, 1))
    lines, labels = right.get_legend_handles_labels()
    figure.legend(lines, labels, fontsize=10, loc="lower center", ncols=2, frameon=False)
    return figure


def _draw(ax, table, style, against):
    rows = [r for r in table if (r["fit"], r["method"]) == style and np.isfinite(r["rmse"])]
    rows.sort(key=lambda r: r[against])
    if not rows or (against == "n" and len(rows) == 1):
        return
    color, line, label = STYLES[style]
    x, y, error = (np.array([row[key] for row in rows]) for key in (against, "rmse", "error"))
    if against == "lam" and x[-1] == 0:  # has no lambda: a level
        x, y, error = np.array([1e-3, 4.0]), np.repeat(y, 2), np.repeat(error, 2)
    ax.plot(x, y, line, color=color, label=label, ms=4)
    ax.fill_between(x, np.maximum(y - error, y / 10), y + error, color=color, alpha=0.2, lw=0)

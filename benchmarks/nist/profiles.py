"""Profiles of all parameters of NIST's regressions: are the ends right, and how many calls?

Run with ``python -m benchmarks.nist.profiles [problem ...]``; without problems the table is stored
in ``profiles.json``. Beside each profile stands a walk: the parameter is held, the others are
fitted again by `scipy.optimize.least_squares` (Levenberg-Marquardt, from the last fit), and a
secant finds where the deviance is the quantile. An end is right if refits from several starts,
with the parameter held there, have the deviance of the quantile to 1e-3 of its root. Lanczos1 is
an exact fit and has no profile.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from scipy.special import stdtrit

import implicit_delta as idm
from benchmarks.calls_problems import Counted
from benchmarks.nist import PROBLEMS

STORED = Path(__file__).with_name("profiles.json")
NAMES = [name for name in PROBLEMS if name != "Lanczos1"]
RIGHT = 1e-3  # relative error of the root of the deviance
STEPS = 40  # of the secant
STARTS, SPREAD = 20, 1.0  # further starts of a refit: theta times the exponential of normals


def refit(residuals, theta, j, value):
    """Hold one parameter, and fit the others from theta: all of them, and the squares."""
    others = np.delete(np.arange(theta.size), j)
    sizes = np.where(theta[others] != 0, abs(theta[others]), 1.0)

    def rest(z):
        point = np.insert(z * sizes, j, value)
        found = residuals(point)
        return np.where(np.isfinite(found), found, 1e10)

    found = least_squares(
        rest, theta[others] / sizes, method="lm", ftol=1e-12, xtol=1e-12, gtol=1e-12
    )
    return np.insert(found.x * sizes, j, value), 2 * found.cost


def root_at(residuals, theta, least, noise, j, value):
    """Root of the profiled deviance, and the parameters there."""
    point, squares = refit(residuals, theta, j, value)
    return np.sqrt(max(squares - least, 0.0) / noise), point


def walked(problem, j, root):
    """Ends by the walk, (2,), and its calls."""
    residuals = Counted(problem.residuals)
    least = np.sum(problem.residuals(problem.theta) ** 2)
    noise = least / (problem.y.size - problem.theta.size)
    ends = [side(residuals, problem, least, noise, j, s * root) for s in (-1, 1)]
    return ends, residuals.calls


def side(residuals, problem, least, noise, j, root):
    """Secant on the signed root of the deviance, warm-started."""
    value, error = problem.theta[j], problem.errors[j]
    (before, r_before), theta = (value, 0.0), problem.theta
    value += root * error
    for _ in range(STEPS):
        r, theta = root_at(residuals, theta, least, noise, j, value)
        r = np.sign(root) * r
        if abs(r - root) <= RIGHT * abs(root):
            return float(value)
        if r == r_before:
            break
        step = (root - r) * (value - before) / (r - r_before)
        far = 2 * abs(root) * error
        (before, r_before), value = (value, r), value + float(np.clip(step, -far, far))
    return np.nan


def profiled(problem, j):
    """Ends, calls, and what was said."""
    residuals = Counted(problem.residuals)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        model = idm.from_residuals(residuals, problem.theta)
        before = residuals.calls
        try:
            found = idm.profile(model, lambda th: th[j])
        except idm.ImplicitDeltaError as error:
            return [np.nan, np.nan], residuals.since(before), f"{type(error).__name__}: {error}"
    return [float(end) for end in found.interval], residuals.since(before), ""


def errors_of(problem, j, ends, root):
    """Relative error of the root at each end, the best of refits from several starts."""
    least = np.sum(problem.residuals(problem.theta) ** 2)
    noise = least / (problem.y.size - problem.theta.size)
    found = []
    for end in ends:
        if not np.isfinite(end):
            found.append(np.nan)
            continue
        path = problem.theta
        for share in np.linspace(0, 1, 9)[1:]:  # along the way, as the minimum is that nearby
            value = problem.theta[j] + share * (end - problem.theta[j])
            r, path = root_at(problem.residuals, path, least, noise, j, value)
        for start in starts_of(problem.theta):
            if abs(r / root - 1) > RIGHT:  # another minimum may be lower
                r = np.fmin(r, root_at(problem.residuals, start, least, noise, j, end)[0])
        found.append(float(r / root - 1))
    return found


def starts_of(theta):
    """Further starts: theta itself, and theta times exponentials of normals of either sign."""
    rng = np.random.default_rng(0)
    signs = np.sign(rng.uniform(-1, 3, size=(STARTS, theta.size)))
    return [theta, *(theta * signs * np.exp(SPREAD * rng.normal(size=signs.shape)))]


def measure(name):
    """Rows of one problem, one for each parameter."""
    problem = PROBLEMS[name]
    root = float(stdtrit(problem.y.size - problem.theta.size, 0.975))
    for j in range(problem.theta.size):
        ends, calls, refusal = profiled(problem, j)
        with np.errstate(all="ignore"):
            others, peers = walked(problem, j, root)
            errors = errors_of(problem, j, ends, root)
        yield {
            "problem": name, "parameter": j, "ends": ends, "walk": others, "calls": calls,
            "walk_calls": peers, "errors": errors, "refusal": refusal[:100],
            "right": bool(np.all(np.abs(errors) <= RIGHT)),
        }  # fmt: skip


def main():
    rows = []
    for name in sys.argv[1:] or NAMES:
        for row in measure(name):
            rows.append(row)
            ratio = row["calls"] / row["walk_calls"]
            told = row["refusal"] or " ".join(f"{e:9.1e}" for e in row["errors"])
            agree = np.allclose(
                row["ends"],
                row["walk"],
                rtol=0,
                atol=4e-3 * PROBLEMS[name].errors[row["parameter"]],
            )
            mark = ("right" if row["right"] else "WRONG") + ("" if agree else " (walk differs)")
            print(
                f"{name:9} {row['parameter']} {row['calls']:6} / {row['walk_calls']:5}"
                f" = {ratio:5.2f}  {mark}  {told}",
                flush=True,
            )
    ratios = [row["calls"] / row["walk_calls"] for row in rows]
    print(f"right: {sum(row['right'] for row in rows)} of {len(rows)}")
    print(
        f"calls over those of the walk: median {np.median(ratios):.2f}, largest {max(ratios):.2f}"
    )
    print(f"calls: {sum(r['calls'] for r in rows)}, walk {sum(r['walk_calls'] for r in rows)}")
    if not sys.argv[1:]:
        STORED.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

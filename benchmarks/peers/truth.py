"""References of the ten questions: definitions in 50 digits by mpmath, and one simulation.

A model is the list of its rows' equations m_i(theta), which sum to zero at the estimate. The
Jacobian of the sum and the gradient of psi are central differences with steps of 1e-20, which
leave some thirty digits; nothing of a contestant is used. ``python -m benchmarks.peers.truth``
writes ``results/peers/truth.json`` (minutes, most of them for the simulation).
"""

import json
from pathlib import Path

import numpy as np
from mpmath import MPContext
from scipy.optimize import linprog

from benchmarks.peers.data import L2, NEW, POINTS, load, simulated_rents, weights

PATH = Path(__file__).parents[2] / "results" / "peers" / "truth.json"
STEP = "1e-20"
REPLICATES = 10_000  # of the median regression: 0.7 % Monte-Carlo error
mp = MPContext()
mp.dps = 50
mpf = mp.mpf


def main():
    stored = json.loads(PATH.read_text()) if PATH.exists() else {}
    for question, compute in ANSWERS.items():
        if str(question) not in stored:
            stored[str(question)] = compute()
            PATH.parent.mkdir(parents=True, exist_ok=True)
            PATH.write_text(json.dumps(stored, indent=1) + "\n")
            print(question, str(stored[str(question)])[:100], flush=True)


def odds_ratio():
    table, rows = load(1), logit("well", ["treated", "age", "income"])
    theta = root(rows(table), 4)
    return answer(theta, inverse_information(rows(table), theta), lambda b: mp.exp(b[1]))


def half_dose():
    rows = logit("died", ["dose"])(load(2))
    theta = root(rows, 2)
    return answer(theta, sandwich(rows, theta), lambda b: -b[0] / b[1])


def average_effect():
    table = load(3)
    rows, villages = logit("well", ["treated", "age", "income"])(table), table["village"]
    theta = root(rows, 4)
    others = columns(table, ["age", "income"])

    def effect(b):
        base = [b[0] + b[2] * age + b[3] * income for age, income in others]
        return mp.fsum(logistic(e + b[1]) - logistic(e) for e in base) / len(base)

    return answer(theta, sandwich(rows, theta, villages), effect)


def median_slope():
    """Spread of the slope over simulated data sets with the same sizes of flats."""
    table = load(4)
    size = table["size"].to_numpy()
    seeds = np.random.SeedSequence(0).spawn(REPLICATES)
    slopes = [_simulated_slope(seed, size) for seed in seeds]
    spread = float(np.std(slopes))
    return {
        "value": _slope(size, table["rent"].to_numpy()),
        "spread": spread,
        "monte_carlo_error": _error_of_spread(np.array(slopes)),
        "how": f"{REPLICATES} simulated data sets",
    }


def new_count():
    table = load(5)
    design, years = columns(table, ["age", "smoker"]), [mpf(float(x)) for x in table["years"]]
    counts = [int(y) for y in table["events"]]

    def rows(b):
        for (age, smoker), t, y in zip(design, years, counts, strict=True):
            residual = y - t * mp.exp(b[0] + b[1] * age + b[2] * smoker)
            yield residual, residual * age, residual * smoker

    theta = root(rows, 3, start=[-4, 0.03, 0.5])
    return answer(
        theta,
        sandwich(rows, theta),
        lambda b: NEW["years"] * mp.exp(b[0] + b[1] * NEW["age"] + b[2] * NEW["smoker"]),
    )


def half_time():
    """Gauss-Newton, with the noise variance RSS / (n - d), as in `nls` and `curve_fit`."""
    data = columns(load(6), ["day", "height"])

    def residuals(th):
        return [y - th[0] * mp.exp(-th[1] * mp.exp(-th[2] * t)) for t, y in data]

    def rows(th):
        jacobian = derivative(lambda th: mp.matrix(residuals(th)), th)
        for i, r in enumerate(residuals(th)):
            yield [r * jacobian[i, j] for j in range(3)]

    theta = root(rows, 3, start=[30, 4, 0.09], step="1e-10")
    jacobian = derivative(lambda th: mp.matrix(residuals(th)), theta)
    variance = mp.fsum(r**2 for r in residuals(theta)) / (len(data) - 3)
    covariance = variance * mp.inverse(jacobian.T * jacobian)
    return answer(theta, covariance, lambda th: mp.log(th[1] / mp.log(2)) / th[2])


def weibull_point():
    """Solve for both limits: the likelihood-ratio equation, stationary in the shape."""
    data = [(mpf(float(t)), int(d)) for t, d in load(7)[["time", "failed"]].to_numpy()]
    twenty = -mp.log(mpf("0.05"))

    def loglik(q, k):
        """Log-likelihood of the 95 % point q and the shape k."""
        scale = q / twenty ** (1 / k)
        return mp.fsum(
            (mp.log(k / scale) + (k - 1) * mp.log(t / scale)) * d - (t / scale) ** k
            for t, d in data
        )

    def in_shape(q, k):
        return mp.diff(lambda k: loglik(q, k), k)

    point = mp.findroot(
        lambda q, k: [mp.diff(lambda q: loglik(q, k), q), in_shape(q, k)],
        (20, mpf("1.6")),
        tol=1e-30,
    )
    drop = mp.erfinv(mpf("0.95")) ** 2  # half of the chi-square quantile
    top = loglik(*point)
    limits = [
        mp.findroot(
            lambda q, k: [loglik(q, k) - top + drop, in_shape(q, k)], (start, mpf("1.6")), tol=1e-30
        )[0]
        for start in (point[0] * mpf("0.87"), point[0] * mpf("1.17"))
    ]
    return {"value": float(point[0]), "spread": [float(x) for x in limits], "how": HOW}


def network_loss():
    train, held_out = network_rows(0), network_rows(1)

    def score(theta):
        """Gradient of the log-likelihood with its ridge."""
        parts = [gradient(theta, x, label) for x, label in train]
        yield [mp.fsum(p[j] for p in parts) - mpf(L2) * theta[j] for j in range(len(theta))]

    theta = root(score, 27, start=network_theta())
    covariance = inverse_information(score, theta)
    psi = mp.fsum(loss(theta, *row) for row in held_out) / len(held_out)
    slopes = [gradient(theta, *row) for row in held_out]
    g = mp.matrix([-mp.fsum(s[j] for s in slopes) / len(held_out) for j in range(27)])
    spread = mp.sqrt((g.T * covariance * g)[0])
    return {"value": float(psi), "spread": float(spread), "how": HOW}


def network_logits():
    """Covariance with the Gauss-Newton matrix sum_i J_i' (diag p - p p') J_i + ridge."""
    theta = mp.matrix(network_theta())
    ggn = mpf(L2) * mp.eye(27)
    for x, _ in network_rows(0):
        J = output_slopes(theta, x)
        p = softmax(outputs(theta, x))
        H = mp.diag(p) - mp.matrix(p) * mp.matrix(p).T
        ggn += J.T * H * J
    points = [[mpf(a) for a in x] for x in POINTS]
    J = mp.matrix(15, 27)
    for i, x in enumerate(points):
        J[3 * i : 3 * i + 3, :] = output_slopes(theta, x)
    covariance = J * mp.inverse(ggn) * J.T
    value = [float(z) for x in points for z in outputs(theta, x)]
    spread = [[float(covariance[i, j]) for j in range(15)] for i in range(15)]
    return {"value": value, "spread": spread, "how": HOW}


def weighted_effect():
    """Stack the propensities of a logit and two normalized means."""
    data = columns(load(10), ["age", "risk", "treated", "gain"])

    def rows(b):
        for age, risk, t, y in data:
            p = logistic(b[0] + b[1] * age + b[2] * risk)
            r = t - p
            yield r, r * age, r * risk, t / p * (y - b[3]), (1 - t) / (1 - p) * (y - b[4])

    theta = root(rows, 5, start=[0, 0.5, -0.5, 1.8, 1])
    return answer(theta, sandwich(rows, theta), lambda b: b[3] - b[4])


ANSWERS = dict(
    enumerate(
        [
            odds_ratio, half_dose, average_effect, median_slope, new_count,
            half_time, weibull_point, network_loss, network_logits, weighted_effect,
        ],
        start=1,
    )
)  # fmt: skip
HOW = "50 digits"


def answer(theta, covariance, psi):
    """Apply the delta method to a function of theta."""
    g = derivative(lambda th: mp.matrix([psi(th)]), theta).T
    spread = mp.sqrt((g.T * covariance * g)[0])
    return {"value": float(psi(theta)), "spread": float(spread), "how": HOW}


def root(rows, d, start=None, step=STEP, steps=60):
    """Solve sum_i m_i(theta) = 0 by Newton's method."""
    theta = mp.matrix(start or [0] * d)
    for _ in range(steps):
        move = mp.lu_solve(derivative(total(rows), theta, step), total(rows)(theta))
        theta -= move
        if mp.norm(move) < mpf("1e-25") * mp.norm(theta):
            return theta
    if mp.norm(move) > mpf("1e-8") * mp.norm(theta):
        raise ArithmeticError(f"No root: the last step was {mp.nstr(mp.norm(move), 3)}.")
    return theta


def inverse_information(rows, theta):
    return mp.inverse(-derivative(total(rows), theta))


def sandwich(rows, theta, labels=None):
    """Inverse Jacobian, scatter of rows or of their sums over groups, and its transpose."""
    groups = {}
    for i, row in enumerate(rows(theta)):
        label = i if labels is None else labels[i]
        groups[label] = groups.get(label, mp.zeros(len(theta), 1)) + mp.matrix(list(row))
    meat = mp.zeros(len(theta))
    for m in groups.values():
        meat += m * m.T
    bread = mp.inverse(derivative(total(rows), theta))
    return bread * meat * bread.T


def total(rows):
    return lambda theta: mp.matrix([mp.fsum(c) for c in zip(*rows(theta), strict=True)])


def derivative(function, theta, step=STEP):
    """Jacobian of a vector by central differences, (q, d)."""
    h, slopes = mpf(step), []
    for j in range(len(theta)):
        up, down = theta.copy(), theta.copy()
        up[j] += h
        down[j] -= h
        slopes.append((function(up) - function(down)) / (2 * h))
    return mp.matrix([[s[i] for s in slopes] for i in range(len(slopes[0]))])


def logit(outcome, names):
    """Scores of the rows of a logit with intercept, as a function of the table."""

    def of(table):
        design, ys = columns(table, names), [int(y) for y in table[outcome]]

        def rows(b):
            for x, y in zip(design, ys, strict=True):
                r = y - logistic(b[0] + mp.fsum(b[j + 1] * a for j, a in enumerate(x)))
                yield [r, *(r * a for a in x)]

        return rows

    return of


def columns(table, names):
    return [[mpf(float(x)) for x in row] for row in table[names].to_numpy()]


def logistic(x):
    return 1 / (1 + mp.exp(-x))


def softmax(z):
    e = [mp.exp(a) for a in z]
    return [a / mp.fsum(e) for a in e]


def network_rows(held_out):
    table = load(8)
    table = table[table["held_out"] == held_out]
    return list(zip(columns(table, ["x1", "x2"]), table["label"], strict=True))


def network_theta():
    w = weights()
    parts = (w["0.weight"], w["0.bias"], w["2.weight"], w["2.bias"])
    return [mpf(x) for part in parts for x in np.ravel(part).tolist()]


def hidden(th, x):
    return [mp.tanh(th[2 * k] * x[0] + th[2 * k + 1] * x[1] + th[8 + k]) for k in range(4)]


def outputs(th, x):
    h = hidden(th, x)
    return [mp.fsum(th[12 + 4 * c + k] * h[k] for k in range(4)) + th[24 + c] for c in range(3)]


def output_slopes(th, x):
    """Jacobian of the three logits, (3, 27), in closed form."""
    h, J = hidden(th, x), mp.zeros(3, 27)
    for c in range(3):
        for k in range(4):
            inner = th[12 + 4 * c + k] * (1 - h[k] ** 2)
            J[c, 2 * k], J[c, 2 * k + 1], J[c, 8 + k] = inner * x[0], inner * x[1], inner
            J[c, 12 + 4 * c + k] = h[k]
        J[c, 24 + c] = mpf(1)
    return J


def loss(th, x, label):
    return -mp.log(softmax(outputs(th, x))[label])


def gradient(th, x, label):
    """Slope of the log-likelihood of a row."""
    residual = mp.matrix([(c == label) - p for c, p in enumerate(softmax(outputs(th, x)))])
    return output_slopes(th, x).T * residual


def _simulated_slope(seed, size):
    return _slope(size, simulated_rents(np.random.default_rng(seed), size))


def _slope(x, y):
    """Median regression as a linear program: residuals in two positive parts."""
    n, ones = len(x), np.ones(len(x))
    A = np.column_stack([ones, x, np.eye(n), -np.eye(n)])
    cost = np.concatenate([[0, 0], np.ones(2 * n)])
    bounds = [(None, None)] * 2 + [(0, None)] * (2 * n)
    return float(linprog(cost, A_eq=A, b_eq=y, bounds=bounds, method="highs").x[1])


def _error_of_spread(draws):
    """Standard error of a standard deviation, by the fourth moment."""
    z = draws - draws.mean()
    return float(np.sqrt((np.mean(z**4) - np.mean(z**2) ** 2) / len(z)) / (2 * z.std()))


if __name__ == "__main__":
    main()

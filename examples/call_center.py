"""
A call center: how long will callers wait?
==========================================

A call center predicts the service time of each call from what is known when it comes in, and
answers the shortest expected calls first. The average wait comes out of a simulation: calls
arrive, queue and are served by five people. It depends on the fitted model in two ways, through
the order of the queue and through the service times themselves, and no formula connects them.
How sure can one be of the average wait, given the 3000 calls that the model was fitted to?

The simulator is random, jumps when two calls swap places, and knows nothing of derivatives.

``pip install "implicit-delta[plot]"``. ``REPEATS=20`` in the environment makes it short.
"""

import heapq
import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaincinv, gammaln
from scipy.stats import norm

import implicit_delta as idm

# %%
# Service times
# -------------
# A gamma regression: the logarithm of the mean is linear in three features, and the shape is one
# more parameter. The log-likelihood returns one value per call.

REPEATS = int(os.environ.get("REPEATS", 200))  # histories for the check by brute force
DAYS = min(40, REPEATS)
TRUTH = np.array([1.4, 0.5, -0.3, 0.2, np.log(2.0)])
rng = np.random.default_rng(0)


def features(rng, n):
    return np.column_stack(
        [np.ones(n), rng.normal(size=n), rng.normal(size=n), rng.integers(2, size=n)]
    )


def history(rng, n=3000):
    X = features(rng, n)
    shape = np.exp(TRUTH[4])
    return X, rng.gamma(shape, np.exp(X @ TRUTH[:4]) / shape)


def gamma_loglik(minutes, log_mean, log_shape):
    shape, rate = np.exp(log_shape), np.exp(log_shape - log_mean)
    return shape * np.log(rate) - gammaln(shape) + (shape - 1) * np.log(minutes) - rate * minutes


def fit(X, minutes):
    return idm.from_loglik(
        lambda theta: gamma_loglik(minutes, X @ theta[:4], theta[4]),
        start=[np.log(minutes.mean()), 0, 0, 0, 0],
        names=["constant", "x1", "x2", "x3", "log shape"],
    )


X, minutes = history(rng)
model = fit(X, minutes)
print(idm.infer(model, idm.parameters), end="\n\n")

# %%
# The queue
# ---------
# One day is an event loop with a heap: whenever one of the servers becomes free, the waiting call
# with the smallest key is next, its expected service time or, without a model, its arrival.

SERVERS, CALLS, GAP = 5, 300, 1.3  # one call every 1.3 minutes


def waits(arrival, service, key):
    """Waiting time of each call, in the order of service."""
    free, queue, total, i = [0.0] * SERVERS, [], [], 0
    while len(total) < len(arrival):
        now = free[0]
        if not queue and i < len(arrival):
            now = max(now, arrival[i])
        while i < len(arrival) and arrival[i] <= now:
            heapq.heappush(queue, (key[i], i))
            i += 1
        _, call = heapq.heappop(queue)
        total.append(now - arrival[call])
        heapq.heapreplace(free, now + service[call])
    return total


def day(expected, shape, rng, compare=False):
    """Average wait on one day, shortest expected first; to compare, also first come first."""
    arrival = np.cumsum(rng.exponential(GAP, size=CALLS)).tolist()
    X, luck = features(rng, CALLS), rng.random(CALLS)
    mean = expected(X)
    service = (mean * gammaincinv(shape, luck) / shape).tolist()
    shortest = np.mean(waits(arrival, service, mean.tolist()))
    return np.array([np.mean(waits(arrival, service, arrival)), shortest]) if compare else shortest


def wait(theta, rng, compare=False):
    return day(lambda X: np.exp(X @ theta[:4]), np.exp(theta[4]), rng, compare)


def two_waits(theta, rng):
    return wait(theta, rng, compare=True)


# %%
# The day takes all its randomness from ``rng``: arrivals, features and luck. So the library can
# repeat the same 40 days with other parameters, and a difference is due to the parameters. What is
# left of the randomness in the average over 40 days is the noise in the budget.

days = idm.Replicated(two_waits, repeats=DAYS, rng=1)
draws = idm.Simulation(draws=200, rng=0)
both = idm.infer(model, days, draws, names=["as they come", "shortest first"])
print(both.summary(), end="\n\n")
gain = both.contrast([1, -1], names="gain")
low, high = gain.confidence_interval()
print(f"Priority saves {gain.value:.2f} minutes per call, 95 % interval {low:.2f} to {high:.2f}")
low, high = both.confidence_interval(kind="percentile")
print(f"Wait with priority, by percentiles: {low[1]:.2f} to {high[1]:.2f}", end="\n\n")

# %%
# Three methods, one answer
# -------------------------
# Draws of the parameters, a smoothed slope, and refits without gradients as in the paper,
# by an optimizer of SciPy: lengths are in standard errors.


def cobyqa(fun, x0):
    radii = {"initial_tr_radius": 0.5, "final_tr_radius": 1e-2}
    return minimize(fun, x0, method="COBYQA", options=radii)


shortest = idm.Replicated(wait, repeats=DAYS, rng=1)
ways = {
    "simulation": (shortest, draws),
    "smoothed": (idm.Smoothed(shortest, draws=100, rng=0), idm.Infinitesimal()),
    "refits": (shortest, idm.FiniteDifference(maximizer=cobyqa)),
}
estimates = {}
for name, (psi, method) in ways.items():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", idm.NonlinearityWarning)  # waits grow faster than the load
        estimates[name] = idm.infer(model, psi, method, names=name, strict=False)
    low, high = estimates[name].confidence_interval()
    budget = "  ".join(f"{part} {error:.3f}" for part, error in estimates[name].budget.items())
    print(f"{name:10}  {estimates[name].value:.3f}  interval {low:.3f} to {high:.3f}  {budget}")

# %%
# The same with a small neural network
# ------------------------------------
# Three tanh units in place of the linear predictor, with a weak penalty. Many weights of a network
# are hardly determined by the data, and draws of them wander to networks that fit nothing:
# `Simulation` would warn. The delta method asks for the slope near the fit. `Smoothed` finds it at
# a width of a fifth of a standard error, and checks that half of that makes no difference.

UNITS = 3


def network(theta, X):
    inner, outer = theta[: 4 * UNITS].reshape(4, UNITS), theta[4 * UNITS : -1]
    return np.tanh(X[:, 1:] @ inner[:3] + inner[3]) @ outer[:-1] + outer[-1]


net = idm.from_loglik(
    lambda theta: gamma_loglik(minutes, network(theta, X), theta[-1]),
    start=np.random.default_rng(2).normal(size=5 * UNITS + 2) / 2,
    l2=1.0,
)


def network_wait(theta, rng):
    return day(lambda X: np.exp(network(theta, X)), np.exp(theta[-1]), rng)


psi = idm.Smoothed(idm.Replicated(network_wait, repeats=DAYS, rng=1), width=0.2, draws=100, rng=0)
by_network = idm.infer(net, psi, names="network")
print("\n" + by_network.summary(), end="\n\n")

# %%
# Against brute force
# -------------------
# The truth is known here: fit 200 other histories, and simulate the same days with each.


def shortest_wait(theta):
    return np.mean([wait(theta, np.random.default_rng(seed)) for seed in shortest.seeds()])


values = [shortest_wait(fit(*history(rng)).theta) for _ in range(REPEATS)]
print(f"Standard deviation over {REPEATS} histories: {np.std(values):.3f}")
for name, estimate in estimates.items():
    ratio = estimate.budget["model"] / np.std(values)
    print(f"Standard error due to the model by {name}: {ratio:.2f} times that")

# %%
# The picture: the wait against the expected service time for draws of the parameters, and the
# 200 histories.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
sample = draws.sample(model)[:80]
load = [np.exp(X @ theta[:4]).mean() for theta in sample]
each_day = [
    [two_waits(theta, np.random.default_rng(seed)) for seed in days.seeds()] for theta in sample
]
simulated = np.mean(each_day, axis=1)
for column, name in enumerate(both.names):
    left.plot(load, simulated[:, column], "o", ms=3, color=f"C{column}", label=name)
left.set(xlabel="expected service time (minutes)", ylabel="average wait (minutes)")
left.set_title("Draws of the parameters, same 40 days")
left.legend(frameon=False)
right.hist(values, bins=20, density=True, color="0.8", label=f"{REPEATS} histories")
for color, (name, estimate) in zip(["C0", "C1", "C2"], estimates.items(), strict=True):
    error = estimate.budget["model"]
    grid = np.linspace(estimate.value - 3.5 * error, estimate.value + 3.5 * error, 200)
    right.plot(grid, norm.pdf(grid, estimate.value, error), color, label=name)
right.set(xlabel="average wait (minutes)", yticks=[], title="Error due to the model")
right.legend(frameon=False)
plt.show()

"""
A JAX network: at which temperature does it ferment best?
==========================================================

A brewery has measured the yield of 600 fermentations at temperatures that varied by chance. A
small Equinox network describes yield against temperature, trained with optax as usual. Two
questions: what is the curve, with a band that holds it everywhere at once, and where is its peak?

The peak is an argmax, which has no derivative as it is written. One Newton step from the best
point of a grid gives it one: the implicit function theorem, in a few lines of JAX.

``pip install "implicit-delta[jax,plot]" equinox``.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import implicit_delta as idm

# %%
# Data
# ----
# We know the truth here, and can look later whether the intervals hold it. Temperatures are in
# units of 10 degrees around 25; the measurement has a known standard deviation of 0.1.

NOISE = 0.1
rng = np.random.default_rng(1)


def truth(t):
    return 1.2 * np.tanh(2.0 * (t + 0.6)) - 1.4 * np.tanh(1.8 * (t - 0.8))


t = rng.uniform(-1.5, 1.5, size=600)
yields = truth(t) + NOISE * rng.normal(size=t.size)

# %%
# The network, and a training loop like any other
# -----------------------------------------------
# Two hidden units: a rise with the temperature, and a fall. The loss is a *mean*: the squared error
# over twice the noise variance, and a weight decay.

net = eqx.nn.MLP("scalar", "scalar", width_size=2, depth=1, activation=jnp.tanh,
                 key=jax.random.key(0))  # fmt: skip
DECAY = 1e-3


def predict(net, t):
    return jax.vmap(net)(t)


def loss(net, t, y):
    weights = jax.tree_util.tree_leaves(eqx.filter(net, eqx.is_inexact_array))
    squares = sum(jnp.sum(w**2) for w in weights)
    return jnp.mean((y - predict(net, t)) ** 2) / (2 * NOISE**2) + DECAY / 2 * squares


optimizer = optax.adam(1e-2)


@eqx.filter_jit
def step(net, state):
    gradient = eqx.filter_grad(loss)(net, jnp.asarray(t), jnp.asarray(yields))
    updates, state = optimizer.update(gradient, state)
    return eqx.apply_updates(net, updates), state


state = optimizer.init(eqx.filter(net, eqx.is_inexact_array))
for _ in range(3000):
    net, state = step(net, state)

# %%
# The fitted model
# ----------------
# The log-likelihood is a *sum*, so a decay of the mean loss becomes n times as much. The network
# was trained in float32, which is enough for training; its derivatives are taken in float64. Adam
# stops near the maximum, and `polish` goes the rest of the way.

model = idm.from_jax(
    net, (t, yields), idm.Gaussian(NOISE**2), apply=predict, l2=t.size * DECAY, dtype="float64"
)
grid = np.linspace(-1.5, 1.5, 61)
polished = idm.polish(model, lambda net: predict(net, grid))
model = polished.model
print(model)
print(
    f"polish moved the curve by up to {abs(polished.moved).max():.2g} standard errors", end="\n\n"
)

# %%
# The curve
# ---------
# An evaluation receives a network. `simultaneous=True` makes the band wide enough to hold the
# whole curve at once.

curve = idm.infer(model, lambda net: predict(net, grid))
low, high = curve.confidence_interval()
wide = curve.confidence_interval(simultaneous=True)
inside = np.mean((wide.low < truth(grid)) & (truth(grid) < wide.high))
print(f"Standard errors from {curve.standard_error.min():.3f} to {curve.standard_error.max():.3f}")
print(f"The simultaneous band holds the truth at {inside:.0%} of the grid", end="\n\n")

# %%
# The peak
# --------
# Where the slope is zero. At the root, a Newton step depends on the parameters as the root itself
# does; two steps before lead there.

fine = jnp.linspace(-1.5, 1.5, 301)


def peak(net):
    slope, bend = jax.grad(net), jax.grad(jax.grad(net))
    best = fine[jnp.argmax(predict(net, fine))]
    for _ in range(3):
        best = jax.lax.stop_gradient(best)
        best = best - slope(best) / bend(best)
    return best


best = idm.infer(model, peak, names="best temperature")
print(best.summary(), end="\n\n")
print(f"The truth peaks at {fine[np.argmax(truth(np.asarray(fine)))]:.2f}", end="\n\n")

# %%
# The same question put to other methods: by refits with a little of the evaluation added, and by
# drawing networks from their normal distribution.

methods = [idm.Infinitesimal(), idm.FiniteDifference(), idm.Simulation(400, rng=0)]
print(idm.compare(model, peak, methods))

# %%
# The picture.

fig, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
degrees = 25 + 10 * grid
ax.plot(25 + 10 * t, yields, ".", color="0.6", ms=4, label="600 fermentations")
ax.plot(degrees, truth(grid), "k--", lw=1, label="truth")
ax.fill_between(degrees, *wide, color="C0", alpha=0.15, lw=0, label="95 % band, simultaneous")
ax.fill_between(degrees, low, high, color="C0", alpha=0.3, lw=0, label="95 % interval, pointwise")
ax.plot(degrees, curve.value, color="C0", label="network")
ends = best.confidence_interval()
ax.axvspan(25 + 10 * ends.low, 25 + 10 * ends.high, color="C3", alpha=0.25, lw=0,
           label="best temperature, 95 %")  # fmt: skip
ax.set(xlabel="temperature (C)", ylabel="yield")
ax.legend(frameon=False, fontsize=9)
plt.show()

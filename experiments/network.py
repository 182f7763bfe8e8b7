"""The paper's network in one dimension, one hidden layer of tanh units, and gradient descent.

Everything takes one network or a stack of them: theta is (..., d), x and y are (..., n).
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Network:
    """f(x) = sum_j v_j tanh(w_j x + b_j) + c with theta = (w, b, v, c)."""

    units: int = 50

    @property
    def d(self):
        return 3 * self.units + 1

    def start(self, rng):
        """First parameters as in the paper's Algorithm 2."""
        return rng.uniform(-0.1, 0.1, size=self.d)

    def predict(self, theta, x):
        return self.output(theta, self.hidden(theta, x))

    def jacobian(self, theta, x):
        """Derivative of the predictions, (..., n, d)."""
        hidden = self.hidden(theta, x)
        inner = (1 - hidden**2) * self._outer(theta)[..., None, :]
        ones = np.ones((*hidden.shape[:-1], 1))
        return np.concatenate([inner * x[..., None], inner, hidden, ones], axis=-1)

    def pull(self, theta, x, hidden, r):
        """Jacobian transposed times r, (..., d), without forming the Jacobian."""
        both = np.stack([r * x, r], axis=-2)
        inner = both.sum(-1)[..., None] - both @ hidden**2
        inner *= self._outer(theta)[..., None, :]
        outer = (r[..., None, :] @ hidden)[..., 0, :]
        return np.concatenate(
            [inner[..., 0, :], inner[..., 1, :], outer, r.sum(-1, keepdims=True)], axis=-1
        )

    def hidden(self, theta, x):
        w, b = theta[..., : self.units], theta[..., self.units : 2 * self.units]
        return np.tanh(x[..., None] * w[..., None, :] + b[..., None, :])

    def output(self, theta, hidden):
        return (hidden @ self._outer(theta)[..., None])[..., 0] + theta[..., -1:]

    def _outer(self, theta):
        return theta[..., 2 * self.units : -1]


def as_module(network, theta):
    """The same network as a torch module of inputs (n, 1), in double precision."""
    import torch

    class Module(torch.nn.Module):
        def __init__(self, w, b, v, c):
            super().__init__()
            self.w, self.b, self.v, self.c = (torch.nn.Parameter(p.clone()) for p in (w, b, v, c))

        def forward(self, x):
            return torch.tanh(x * self.w + self.b) @ self.v + self.c

    return Module(*torch.tensor(theta).split([*3 * [network.units], 1]))


def descend(network, theta, x, y, *, rate, steps, push=None):
    """Gradient descent on half the sum of squared errors, less lam * f(x0) if pushed.

    Parameters
    ----------
    push : (x0, lam), optional
        Arrays of shape (...): where the prediction is rewarded, and by how much.

    Returns
    -------
    theta : (..., d) array
    halvings : (...) array
        How often a network started again at half the rate because it had diverged.
    """
    shape = np.broadcast_shapes(theta.shape[:-1], () if push is None else push[0].shape)
    theta = np.broadcast_to(theta, (*shape, network.d))
    end = _steps(network, theta, x, y, rate, steps, push)
    halvings = np.zeros(shape, dtype=int)
    while np.any(lost := ~np.all(np.isfinite(end), axis=-1)):
        halvings += lost
        slower = (rate / 2.0 ** halvings[..., None]).astype(theta.dtype)
        end = np.where(lost[..., None], _steps(network, theta, x, y, slower, steps, push), end)
    return end, halvings


@np.errstate(over="ignore", invalid="ignore")
def _steps(network, theta, x, y, rate, steps, push):
    n, theta = y.shape[-1], theta.copy()
    points = np.broadcast_to(x, (*theta.shape[:-1], n))
    if push is not None:
        # the reward is one more observation whose residual is always -lam
        x0, lam = (part[..., None] for part in push)
        points = np.concatenate([points, x0], axis=-1)
    for _ in range(steps):
        hidden = network.hidden(theta, points)
        residual = network.output(theta, hidden)
        residual[..., :n] -= y
        if push is not None:
            residual[..., n:] = -lam
        theta -= rate * network.pull(theta, points, hidden, residual)
    return theta

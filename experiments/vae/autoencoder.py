"""Variational autoencoder: its evidence lower bound per image, its training, and reconstruction.

The network is that of the implementation which the paper names: 784-128-(100 latent)-128-784 with
ReLU, and the cross-entropy of pixels.
"""

from copy import deepcopy

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

PIXELS, HIDDEN, LATENT = 784, 128, 100
RATE = 1e-3
DRAWS = 4  # of the latent noise, where reconstruction is measured


class Autoencoder(nn.Module):
    """Bernoulli pixels given a normal latent vector, and the normal that approximates it."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2 * LATENT)
        )
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PIXELS)
        )

    def forward(self, x, noise):
        """Reconstruction loss and KL divergence of each image, (b,) and (b,)."""
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        latent = mean + (log_variance / 2).exp() * noise
        logits = self.decoder(latent)
        loss = binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        return loss, (log_variance.exp() + mean**2 - 1 - log_variance).sum(1) / 2


def elbo(module, batch):
    """Evidence lower bound of each image, for its draw of the latent noise: a term, (b,)."""
    loss, divergence = module(*batch)
    return -(loss + divergence)


def reconstruction(module, batch):
    """Negative reconstruction loss of each image, the part of its term that is pushed, (b,)."""
    return -module(*batch)[0]


def mean_reconstruction(X, seed):
    """Make a function of a module: reconstruction per image, over fixed draws of the noise."""
    generator = torch.Generator().manual_seed(seed)
    draws = [torch.randn(len(X), LATENT, generator=generator) for _ in range(DRAWS)]
    return lambda module: sum(reconstruction(module, (X, noise)).mean() for noise in draws) / DRAWS


def train(start, X, steps, batch_size, seed):
    """A copy after some steps of Adam, each on other images and other draws of the noise."""
    module, generator = deepcopy(start), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(module.parameters(), lr=RATE, fused=True)
    for _ in range(steps):
        rows = torch.randint(len(X), (batch_size,), generator=generator)
        noise = torch.randn(batch_size, LATENT, generator=generator)
        optimizer.zero_grad()
        (-elbo(module, (X[rows], noise)).mean()).backward()
        optimizer.step()
    return module


def settling_adam(steps):
    """Make Adam with a rate that falls to zero within these steps, for a list of parameters."""

    def make(parameters):
        optimizer = torch.optim.Adam(parameters, lr=RATE, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
        optimizer.register_step_post_hook(lambda *_: schedule.step())
        return optimizer

    return make

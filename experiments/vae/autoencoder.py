"""Variational autoencoder, its training with weighted images, and its reconstruction quality.

The network is that of the implementation which the paper names: 784-128-(100 latent)-128-784 with
ReLU, and the cross-entropy of pixels.
"""

from copy import deepcopy

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

PIXELS, HIDDEN, LATENT = 784, 128, 100
RATE = 1e-3
DRAWS = 4  # of the latent noise, for psi


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


def train(start, X, weights, steps, batch_size, seed, settle=False):
    """A copy after some steps of Adam on weights * reconstruction + KL."""
    model, generator = deepcopy(start), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps if settle else 1)
        rows = torch.randint(len(X), (batch_size,), generator=generator)
        noise = torch.randn(batch_size, LATENT, generator=generator)
        loss, divergence = model(X[rows], noise)
        optimizer.zero_grad()
        (weights[rows] * loss + divergence).mean().backward()
        optimizer.step()
    return model


@torch.no_grad()
def quality(model, X):
    """Psi, the negative reconstruction loss, and the KL divergence, per image."""
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(len(X), LATENT, generator=generator) for _ in range(DRAWS)]
    loss, divergence = (
        np.mean([float(part.mean()) for part in parts])
        for parts in zip(*(model(X, noise) for noise in draws), strict=True)
    )
    return {"psi": -float(loss), "divergence": float(divergence)}

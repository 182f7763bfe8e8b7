"""Networks: layers of neurons, a convnet and a transformer, one output for each row or three."""

import math

import torch
from torch import nn

from experiments.fidelity.data import LENGTH, SIDE, WORDS

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}


def network(setting, seed):
    """Make the network of a setting with the weights of a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return MAKERS[setting.inputs](
            setting.hidden,
            ACTIVATIONS[setting.activation],
            3 if setting.outcome == "classes" else 1,
        )


class Flat(nn.Module):
    """Outputs (b,) rather than (b, 1)."""

    def forward(self, x):
        return x.squeeze(-1) if x.shape[-1] == 1 else x


def layers(hidden, activation, outputs):
    widths = (6, *hidden)
    blocks = [(nn.Linear(a, b), activation()) for a, b in zip(widths, hidden, strict=False)]
    return nn.Sequential(*sum(blocks, ()), nn.Linear(widths[-1], outputs), Flat())


def convnet(hidden, activation, outputs):
    first, second = hidden
    return nn.Sequential(
        nn.Conv2d(1, first, 3, padding=1), activation(), nn.AvgPool2d(2),
        nn.Conv2d(first, second, 3, padding=1), activation(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(second * (SIDE // 4) ** 2, outputs), Flat(),
    )  # fmt: skip


class Transformer(nn.Module):
    """One block with two heads, layer norms first, and a mean over places."""

    def __init__(self, hidden, activation, outputs, heads=2):
        super().__init__()
        width, inner = hidden
        self.heads = heads
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.neurons = nn.Sequential(nn.Linear(width, inner), activation(), nn.Linear(inner, width))
        self.head = nn.Sequential(nn.Linear(width, outputs), Flat())

    def forward(self, words):
        x = self.words(words) + self.places
        x = x + self._attention(self.before(x))
        x = x + self.neurons(self.between(x))
        return self.head(x.mean(dim=-2))

    def _attention(self, x):
        parts = self.mix(x).unflatten(-1, (3, self.heads, -1)).transpose(-4, -2)
        query, key, value = parts.unbind(dim=-3)  # each (b, heads, places, width)
        weight = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
        return self.out((weight @ value).transpose(-3, -2).flatten(-2))


MAKERS = {"table": layers, "images": convnet, "tokens": Transformer}

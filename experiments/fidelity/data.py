"""Simulated populations: four normal traits, shown as a table, an image or a sequence of tokens.

The outcome depends smoothly on the traits and is noisy, so that classes overlap and no network
learns it perfectly. The group of a row is the sign of its last trait.
"""

from typing import NamedTuple
from zlib import crc32

import numpy as np

SIDE, LENGTH, WORDS = 8, 8, 10
NOISE = 0.5  # standard deviation of a regression's outcome, of a pixel 0.2
TEST, POPULATION = 2000, 20_000
# Meaning of the words: four scores each, the same for everybody.
MEANING = np.random.default_rng(5).normal(size=(WORDS, 4))
MEANING = (MEANING - MEANING.mean(axis=0)) / MEANING.std(axis=0)


class Rows(NamedTuple):
    """Inputs, outcomes and the group of each row."""

    x: np.ndarray
    y: np.ndarray
    group: np.ndarray


def draw(setting, rng, n):
    """Draw n rows of the population of a setting."""
    traits, x = INPUTS[setting.inputs](rng, n)
    return Rows(x, OUTCOMES[setting.outcome](rng, scores(traits)), traits[:, 3] > 0)


def training_rows(setting, number):
    """Draw the data set of this number: the same rows whenever asked."""
    return draw(setting, stream(setting, "data", number), setting.n)


def test_rows(setting):
    """Draw the fixed rows that questions are about."""
    return draw(setting, stream(setting, "test"), TEST)


def population(setting):
    """Draw ten times as many rows, in which statistics hardly jump."""
    return draw(setting, stream(setting, "population"), POPULATION)


def stream(setting, purpose, number=0):
    """Source of random numbers of its own for each setting, purpose and number."""
    return np.random.default_rng([crc32(f"{setting.name} {purpose}".encode()), number])


def scores(traits):
    """Smooth functions of the traits, (n, 3)."""
    a, b, c, group = traits.T[:4]
    first = 1.5 * np.sin(1.5 * a) + 0.8 * b + 0.5 * group
    second = 1.5 * np.cos(1.5 * b) - 0.7 * c
    return np.stack([first, second, b * c + 0.3 * a], axis=1)


# Inputs: traits and what a network sees of them


def table(rng, n):
    """The traits themselves, and two columns that mean nothing."""
    x = rng.normal(size=(n, 6))
    return x, x.astype(np.float32)


def images(rng, n):
    """A spot whose place, width and brightness are the traits."""
    traits = rng.normal(size=(n, 4))
    place = 3.5 + 2 * np.tanh(traits[:, :2])
    width = 1.3 * np.exp(0.4 * np.tanh(traits[:, 2]))
    grid = np.arange(SIDE)
    far = (grid - place[:, :1])[:, :, None] ** 2 + (grid - place[:, 1:])[:, None, :] ** 2
    spot = np.exp(-far / (2 * width**2)[:, None, None])
    pixels = (1.5 + 0.5 * np.tanh(traits[:, 3]))[:, None, None] * spot
    pixels += 0.2 * rng.normal(size=pixels.shape)
    return traits, pixels[:, None].astype(np.float32)


def tokens(rng, n):
    """Words; sums of their meanings are the traits, one of them by the order of the words."""
    words = rng.integers(WORDS, size=(n, LENGTH))
    order = np.linspace(-1, 1, LENGTH)
    traits = MEANING[words].sum(axis=1) / np.sqrt(LENGTH)
    traits[:, 2] = MEANING[words, 2] @ order / np.sqrt(order @ order)
    return traits, words


# Outcomes


def binary(rng, scores):
    return (rng.random(len(scores)) < 1 / (1 + np.exp(-scores[:, 0]))).astype(np.float32)


def classes(rng, scores):
    """The class with the largest score plus Gumbel noise: softmax."""
    return np.argmax(1.5 * scores + rng.gumbel(size=scores.shape), axis=1)


def regression(rng, scores):
    return (scores[:, 0] + NOISE * rng.normal(size=len(scores))).astype(np.float32)


INPUTS = {"table": table, "images": images, "tokens": tokens}
OUTCOMES = {"binary": binary, "classes": classes, "regression": regression}

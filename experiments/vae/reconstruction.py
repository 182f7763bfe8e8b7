"""Figure "vae_idm_T": reconstruction gained by down-weighting the KL term of a VAE by 1 / T.

That is up-weighting the reconstruction by T, and so a push of lambda = T - 1 along psi, the
reconstruction quality. As in the paper's appendix: MNIST, Adam at 0.001, psi the total negative
reconstruction loss on 1000 random training images, and noise from Uniform(0, 1/20) added to every
pixel of a fraction of the images. Left open, and done here:

- The text up-weights the reconstruction of all images, but its psi, and so lambda psi, is that of
  1000 of them. Both are run: T is the weight of "all" images, or of the "evaluated" ones.
- The network is that of `autoencoder`, with minibatches of 128. Pixels are clipped at 1: beyond it
  there is no cross-entropy.
- A training at T = 1 is continued once for every T, with T = 1 among them, on identical
  minibatches and latent noise, so that the noise of training cancels in the difference. The rate
  falls to zero on the way. The first weights, the minibatches and the choice of the evaluated
  images are the same for all fractions of noisy images.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch

from experiments.data import available, load_split
from experiments.records import resume, save_picture, save_records
from experiments.vae.autoencoder import Autoencoder, quality, train

NOISE = 1 / 20
EVALUATED = 1000  # images on which psi is measured
TITLES = {"all": "weight T for all images", "evaluated": "weight T for the 1000 evaluated images"}


@dataclass(frozen=True)
class Config:
    """Weights T (the first is 1), fractions of noisy images, and the lengths of training."""

    weights: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 20.0)
    fractions: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    repeats: int = 2
    images: int = 60_000
    steps: int = 8_000
    further_steps: int = 2_000
    batch_size: int = 128


FULL = Config()
QUICK = Config(
    weights=(1.0, 5.0, 20.0), fractions=(0.0, 1.0), repeats=1, images=5_000, steps=300,
    further_steps=120,
)  # fmt: skip


def run(config=FULL, seed=0, *, path=None, n_jobs=1, data=None):
    """Reconstruction quality for every T, fraction of noisy images and repeat."""
    jobs = [(fraction, k) for k in range(config.repeats) for fraction in config.fractions]

    def compute(fraction, repeat):
        torch.set_num_threads(1)
        X = load_split("mnist", directory=data).X[: config.images]
        return one_line(config, X, fraction, [seed, repeat])

    return resume(
        compute, jobs, ("fraction", "repeat"), path=path, settings=(config, seed), n_jobs=n_jobs,
        label="VAE",
    )  # fmt: skip


def reproduce(results, *, quick=False, seed=0, n_jobs=1, data=None):
    if not available("mnist", data):
        return
    config = QUICK if quick else FULL
    records = run(config, seed, path=results / "vae/reconstruction.csv", n_jobs=n_jobs, data=data)
    save_records(results / "vae/reconstruction_table.csv", tabulate(records))
    save_picture(plot(records), results / "vae/reconstruction.png")


def one_line(config, X, fraction, seed):
    """Train at T = 1, go on from there with every T, and evaluate psi."""
    draws = np.random.default_rng(seed)
    chosen = draws.permutation(len(X))[:EVALUATED]
    first, before, after = (int(s) for s in draws.integers(2**31, size=3))
    X = torch.as_tensor(perturb(X, fraction, draws), dtype=torch.float32)
    ones = torch.ones(len(X))
    torch.manual_seed(first)
    start = train(Autoencoder(), X, ones, config.steps, config.batch_size, before)
    rows = []
    for pushed, images in (("all", slice(None)), ("evaluated", chosen)):
        for T in config.weights:
            weights = ones.clone()
            weights[images] = T
            steps = config.further_steps
            end = train(start, X, weights, steps, config.batch_size, after, settle=True)
            rows.append({"pushed": pushed, "T": T, **quality(end, X[chosen])})
    return [{**row, "improvement": row["psi"] - rows[0]["psi"]} for row in rows]


def perturb(X, fraction, rng):
    """Add noise to all pixels of a random fraction of the images."""
    noisy = X.copy()
    rows = rng.permutation(len(X))[: round(fraction * len(X))]
    noisy[rows] = np.minimum(noisy[rows] + rng.uniform(0, NOISE, size=(len(rows), X.shape[1])), 1)
    return noisy


def tabulate(records):
    """Improvement over T = 1 per image, with its standard error over repeats."""
    gains = defaultdict(list)
    for row in records:
        gains[row["pushed"], row["fraction"], row["T"]].append(row["improvement"])
    return [
        {"pushed": pushed, "fraction": fraction, "T": T, "improvement": float(np.mean(g)),
         "std_error": _error(g)}
        for (pushed, fraction, T), g in sorted(gains.items())
    ]  # fmt: skip


def _error(values):
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else np.nan


def plot(records):
    """Improvement against T, one line per fraction of noisy images."""
    import matplotlib.pyplot as plt

    table = tabulate(records)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2))
    for ax, (pushed, title) in zip(axes, TITLES.items(), strict=True):
        _draw(ax, [row for row in table if row["pushed"] == pushed])
        ax.set(title=title, xlabel="T", ylabel="improvement over T = 1 (nats per image)")
    axes[0].legend(title="images with noise", fontsize=8)
    figure.tight_layout()
    return figure


def _draw(ax, table):
    import matplotlib.pyplot as plt

    fractions = sorted({row["fraction"] for row in table})
    colors = plt.get_cmap("viridis")(np.linspace(0, 0.85, len(fractions)))
    for fraction, color in zip(fractions, colors, strict=True):
        rows = [row for row in table if row["fraction"] == fraction]
        T, gain, error = (np.array([r[k] for r in rows]) for k in ("T", "improvement", "std_error"))
        ax.plot(T, gain, "o-", color=color, ms=4, label=f"{fraction:.0%}")
        ax.fill_between(T, gain - error, gain + error, color=color, alpha=0.25, lw=0)
    weights = sorted({row["T"] for row in table})
    ax.set(xscale="log")
    ax.set_xticks(weights, [f"{T:g}" for T in weights])
    ax.minorticks_off()

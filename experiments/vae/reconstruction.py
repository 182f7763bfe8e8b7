"""Figure "vae_idm_T": reconstruction gained by down-weighting the KL term of a VAE by 1 / T.

That is up-weighting the reconstruction by T, and so a push of lambda = T - 1 along psi, the
reconstruction quality: psi rises by (T - 1) V (Eq. vae_idm). The evidence lower bound of an image
is a term of a fitted model, and ``infer(model, psi, MinibatchPush(T - 1, ...))`` finds V.

As in the paper's appendix: MNIST, Adam at 0.001, psi the total negative reconstruction loss on
1000 random training images, and noise from Uniform(0, 1/20) added to every pixel of a fraction of
the images. Left open, and done here:

- The text up-weights the reconstruction of all images, but its psi, and so lambda psi, is that of
  1000 of them. Both are run: T is the weight of "all" images, or of the "evaluated" ones. Either is
  measured on the 1000: 60 times their psi stands for that of all.
- The network is that of `autoencoder`, with minibatches of 128. Pixels are clipped at 1: beyond it
  there is no cross-entropy.
- A training at T = 1 is continued once for every T, with T = 1 among them, on identical
  minibatches and latent noise, so that the noise of training cancels in the difference. The rate
  falls to zero on the way, in less than an epoch: a term has one draw of the latent noise, which is
  seen once at most. Psi is measured on other draws.
- The first weights, the minibatches and the choice of the evaluated images are the same for all
  fractions of noisy images.

Neither of the library's own doors has this push. `refit` pushes to both sides, and minus
lambda would give images the weight 2 - T: of a negative one there is no maximum.
`StochasticFiniteDifference` needs a psi that is the same in every call, with fixed draws of the
latent noise. In a trial (T = 2, 100 steps) the network learned these 1000 draws: the gain on them
was 1.7 times that on others.

A training that stopped has a drift, by the records often of many standard errors, and beyond one
`infer` refuses in its strict mode. So ``strict=False``: V is the response of this training in as
many steps, not the variance at a maximum.
"""

import warnings
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

import implicit_delta as idm
from experiments.data import available, load_split
from experiments.records import resume, save_picture, save_records
from experiments.vae import autoencoder
from experiments.vae.push import Continuation, MinibatchPush

NOISE = 1 / 20
EVALUATED = 1000  # images on which psi is measured
TITLES = {"all": "weight T for all images", "evaluated": "weight T for the 1000 evaluated images"}


@dataclass(frozen=True)
class Config:
    """Weights T (the first is 1), fractions of noisy images, and the lengths of training."""

    weights: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 20.0)
    fractions: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    repeats: int = 5
    images: int = 60_000
    steps: int = 4_000
    further_steps: int = 400
    batch_size: int = 128


FULL = Config()
QUICK = Config(
    weights=(1.0, 5.0, 20.0), fractions=(0.0, 1.0), repeats=2, images=5_000, steps=300,
    further_steps=35,
)  # fmt: skip


def run(config=FULL, seed=0, *, path=None, n_jobs=1, data=None):
    """Gain of reconstruction for every T, fraction of noisy images and repeat."""
    jobs = [(fraction, k) for k in range(config.repeats) for fraction in config.fractions]

    def compute(fraction, repeat):
        torch.set_num_threads(1)
        return one_line(config, images(data)[: config.images], fraction, [seed, repeat])

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


@lru_cache(1)
def images(data):
    """Training images of MNIST, (60000, 784), read once in a process."""
    return load_split("mnist", directory=data).X


def one_line(config, X, fraction, seed):
    """Train at T = 1, and push from there with every T."""
    draws = np.random.default_rng(seed)
    evaluated = np.zeros(len(X), dtype=bool)
    evaluated[draws.permutation(len(X))[:EVALUATED]] = True
    first, before, latent, after, measured = (int(s) for s in draws.integers(2**31, size=5))
    X = torch.as_tensor(perturb(X, fraction, draws), dtype=torch.float32)
    torch.manual_seed(first)
    start = autoencoder.Autoencoder()
    start = autoencoder.train(start, X, config.steps, config.batch_size, before)
    line = Line.of(start, X, latent, config, after)
    quality = autoencoder.mean_reconstruction(X[evaluated], measured)
    pushes = {"all": np.ones(len(X), dtype=bool), "evaluated": evaluated}
    return [
        {"pushed": name, "T": T, **line.gain(quality, pushed, T - 1)}
        for name, pushed in pushes.items()
        for T in config.weights
    ]


@dataclass(frozen=True)
class Line:
    """A trained autoencoder that is trained on, with and without a push."""

    model: idm.FittedModel
    terms: idm.FittedModel
    training: Continuation
    rest: np.ndarray
    score: np.ndarray

    @classmethod
    def of(cls, start, X, seed, config, after):
        """Make the model of the evidence lower bounds, and of their reconstruction."""
        noise = torch.randn(
            len(X), autoencoder.LATENT, generator=torch.Generator().manual_seed(seed)
        )
        model = idm.from_torch(start, (X, noise), autoencoder.elbo)
        terms = idm.from_torch(start, (X, noise), autoencoder.reconstruction)
        adam = autoencoder.settling_adam(config.further_steps)
        training = Continuation(model, adam, config.further_steps, config.batch_size, after)
        return cls(model, terms, training, training.end(), model.score(model.theta))

    def gain(self, quality, pushed, lam):
        """Gain of quality per image by a push along its sum over some images, and diagnostics."""
        resting = float(quality(self.model.at(self.rest).module).detach())
        if not lam:
            return {"psi": resting, "improvement": 0.0}
        count = int(pushed.sum())
        method = MinibatchPush(lam, self.terms, pushed, self.training, self.rest, self.score)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimate = idm.infer(
                self.model, lambda module: count * quality(module), method, strict=False
            )
        improvement = lam * estimate.standard_error**2 / count
        return {
            "psi": resting + improvement,
            "improvement": improvement,
            "variance": estimate.standard_error**2,
            "drift": estimate.diagnostics.drift,
            "warnings": " ".join(sorted({w.category.__name__ for w in caught})),
        }


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
         "std_error": std_error(g), "repeats": len(g)}
        for (pushed, fraction, T), g in sorted(gains.items())
    ]  # fmt: skip


def std_error(values):
    """Standard error of a mean over repeats; NaN for a single one."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else np.nan


def plot(records):
    """Improvement against T, as in the paper, and against the fraction of noisy images."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(8.2, 7.4))
    for column, (pushed, title) in zip(axes.T, TITLES.items(), strict=True):
        rows = [row for row in records if row["pushed"] == pushed]
        _draw_gains(column[0], tabulate(rows))
        column[0].set(title=title, xlabel="T")
        _draw_changes(column[1], rows)
        column[1].set(xlabel="images with noise")
    axes[0, 0].set(ylabel="gain over T = 1 (nats per image)")
    axes[1, 0].set(ylabel="gain, over that without noise")
    axes[0, 0].legend(title="images with noise", fontsize=9)
    axes[1, 0].legend(fontsize=9)
    figure.tight_layout()
    return figure


def _draw_gains(ax, table):
    fractions, weights = (sorted({row[key] for row in table}) for key in ("fraction", "T"))
    for fraction, color in zip(fractions, _colors(len(fractions)), strict=True):
        rows = [row for row in table if row["fraction"] == fraction]
        T, gain, error = (np.array([r[k] for r in rows]) for k in ("T", "improvement", "std_error"))
        ax.errorbar(T, gain, error, fmt="o-", color=color, ms=4, label=f"{fraction:.0%}")
    ax.set(xscale="log")
    ax.set_xticks(weights, [f"{T:g}" for T in weights])
    ax.minorticks_off()


def _draw_changes(ax, rows):
    """Ratios of gains, paired over repeats: the claim is that they grow from left to right."""
    gain = {(r["T"], r["repeat"], r["fraction"]): r["improvement"] for r in rows}
    weights, repeats, fractions = (sorted({key[k] for key in gain}) for k in range(3))
    first, pushed = fractions[0], weights[1:]
    aside = 0.015 * (np.arange(len(pushed)) - (len(pushed) - 1) / 2)  # bars beside each other
    for T, color, shift in zip(pushed, _colors(len(pushed)), aside, strict=True):
        ratios = [
            [gain[T, k, f] / gain[T, k, first] for k in repeats if (T, k, f) in gain]
            for f in fractions
        ]
        errors = [std_error(found) for found in ratios]
        mean = [np.mean(found) for found in ratios]
        at = np.array(fractions) + shift
        ax.errorbar(at, mean, errors, fmt="o-", color=color, ms=4, label=f"T = {T:g}")
    ax.axhline(1, color="0.7", lw=1, zorder=0)
    ax.set_xticks(fractions, [f"{f:.0%}" for f in fractions])


def _colors(count):
    import matplotlib.pyplot as plt

    return plt.get_cmap("viridis")(np.linspace(0, 0.85, count))

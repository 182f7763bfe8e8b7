"""Claims of the paper on its autoencoder, beside the records."""

from itertools import pairwise

from experiments.claim import claim, save_claims
from experiments.records import load_records
from experiments.vae.reconstruction import TITLES, tabulate


def reproduce(results, **_):
    claims = list(claims_on_reconstruction(load_records(results / "vae/reconstruction.csv")))
    save_claims(results / "vae/claims.json", claims)


def claims_on_reconstruction(records):
    """Claims that the gain grows with T and with the fraction of noisy images."""
    for pushed, title in TITLES.items():
        table = [row for row in tabulate(records) if row["pushed"] == pushed]
        if table:
            yield from _growth(title, table)


def _growth(title, table):
    gains = {(row["T"], row["fraction"]): row for row in table}
    weights, fractions = (sorted({key[k] for key in gains}) for k in (0, 1))
    at = lambda T, f: gains[T, f]["improvement"]
    yield claim(
        f"VAE, {title}: it improves their reconstruction, more so for larger T",
        "the higher T, the better",
        "; ".join(f"T = {T:g}: {at(T, fractions[0]):+.1f} nats" for T in weights[1:]),
        all(at(a, f) < at(b, f) for f in fractions for a, b in pairwise(weights)),
        "Per image, without noise, over T = 1 continued alike. The optimum of a sum gives more to "
        "the part whose weight grows, whatever the data.",
    )
    most = max(fractions, key=lambda f: at(weights[-1], f))
    yield claim(
        f"VAE, {title}: the gain grows with the fraction of noisy images",
        "the gap for T > 1 increases as more variance is introduced",
        f"at T = {weights[-1]:g}: "
        + "; ".join(f"{f:.0%} noisy {_gain(gains[weights[-1], f])}" for f in fractions),
        all(at(T, a) < at(T, b) for T in weights[1:] for a, b in pairwise(fractions)),
        f"With the standard error over repeats. It is largest at {most:.0%} noisy images. Noise is "
        "independent from pixel to pixel, and no latent vector can reconstruct it; a likely reason "
        "is that the gain comes from separating noisy images from clean ones, and when all are "
        "noisy there is nothing to separate.",
    )


def _gain(row):
    return f"{row['improvement']:+.2f} ± {row['std_error']:.2f} nats"

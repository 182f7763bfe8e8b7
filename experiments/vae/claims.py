"""Claims of the paper on its autoencoder, beside the records.

Marks, set before the study was run: a gain grows from one setting to the next if the difference,
paired over repeats, is above its standard error times the t quantile at 95 % (one-sided). A claim
of growth holds if every step grows: with a step that does not, it passes in at most 5 % of studies.
A response is in proportion to lambda = T - 1 if gain / (T - 1) stays within 10 % of what it is for
the smallest push: within 5 % in the standard error, where the library warns.
"""

from collections import defaultdict
from itertools import pairwise

import numpy as np
from scipy.stats import t

from experiments.claim import BEYOND, claim, save_claims
from experiments.records import load_records
from experiments.vae.reconstruction import TITLES, std_error

LEVEL = 0.95
PROPORTION = 0.1
REFUSED = 1.0  # standard errors of drift


def reproduce(results, **_):
    claims = list(claims_on_reconstruction(load_records(results / "vae/reconstruction.csv")))
    save_claims(results / "vae/claims.json", claims)


def claims_on_reconstruction(records):
    """Claims that the gain grows with T and with the fraction of noisy images, and how it does."""
    for pushed, title in TITLES.items():
        rows = [row for row in records if row["pushed"] == pushed]
        if rows:
            gains = gains_by_repeat(rows)
            yield _growth_with_weight(title, gains, rows)
            yield _growth_with_noise(title, gains)
            yield _proportion(title, gains, rows)


def gains_by_repeat(rows):
    """Gains per image by (T, fraction), (repeats,) each, in the order of the repeats."""
    gains = defaultdict(dict)
    for row in rows:
        gains[row["T"], row["fraction"]][row["repeat"]] = row["improvement"]
    return {key: np.array([found[k] for k in sorted(found)]) for key, found in gains.items()}


def direction(differences):
    """1 for differences (repeats,) that are above zero beyond chance, -1 below, 0 for neither."""
    if len(differences) < 2:
        return 0
    clear = t.ppf(LEVEL, len(differences) - 1) * std_error(differences)
    mean = np.mean(differences)
    return int(mean > clear) - int(mean < -clear)


def _growth_with_weight(title, gains, rows):
    weights, fractions = _settings(gains)
    steps = [gains[b, f] - gains[a, f] for f in fractions for a, b in pairwise(weights)]
    return claim(
        f"VAE, {title}: it improves their reconstruction, more so for larger T",
        "the higher T, the better",
        "; ".join(f"T = {T:g}: {_gain(gains[T, fractions[0]])}" for T in weights[1:])
        + f". Of {len(steps)} steps to the next T {_counted(steps)}",
        all(direction(step) > 0 for step in steps),
        f"Per image, without noise, over T = 1 continued alike; mean and standard error of "
        f"{_repeats(gains)} repeats. The optimum of a sum gives more to the part whose weight "
        f"grows, whatever the data. {_drifts(rows)}",
    )


def _growth_with_noise(title, gains):
    weights, fractions = _settings(gains)
    last = weights[-1]
    steps = [gains[T, b] - gains[T, a] for T in weights[1:] for a, b in pairwise(fractions)]
    most = max(fractions, key=lambda f: np.mean(gains[last, f]))
    whole = gains[last, fractions[-1]] - gains[last, fractions[0]]
    return claim(
        f"VAE, {title}: the gain grows with the fraction of noisy images",
        "the gap for T > 1 increases as more variance is introduced",
        f"at T = {last:g}: "
        + "; ".join(f"{f:.0%} noisy {_gain(gains[last, f])}" for f in fractions)
        + f". Of {len(steps)} steps to the next fraction, at all T, {_counted(steps)}",
        all(direction(step) > 0 for step in steps),
        f"Mean and standard error of {_repeats(gains)} repeats; a step grows or falls if its "
        f"difference, paired over repeats, is beyond the {LEVEL:.0%} point of t. The largest gain "
        f"is at {most:.0%} noisy images, and from {fractions[0]:.0%} to {fractions[-1]:.0%} it "
        f"changes by {_gain(whole)}. Noise is independent from pixel to pixel and cannot be "
        "reconstructed from a latent vector, so that more of it need not mean a psi that responds "
        "more; why the fractions differ was not tested.",
    )


def _drifts(rows):
    """Sentence on what strict mode would have refused."""
    drifts = np.array([abs(row["drift"]) for row in rows if "drift" in row])
    return (
        f"In {np.sum(drifts > REFUSED)} of {len(drifts)} answers psi was over a standard error "
        f"short of the end of its training (drift, at most {max(drifts):.0f}), where infer refuses "
        "in its strict mode: strict=False, and V is the response in as many steps."
    )


def _proportion(title, gains, rows):
    weights, fractions = _settings(gains)
    first, *larger = weights[1:]
    slope = lambda T, f: np.mean(gains[T, f]) / (T - 1)
    shares = {T: [slope(T, f) / slope(first, f) for f in fractions] for T in larger}
    pushes = [(row["T"] - 1) * row["variance"] ** 0.5 for row in rows if row["T"] == first]
    return claim(
        f"VAE, {title}: the gain is in proportion to lambda = T - 1",
        f"{BEYOND}, whose Eq. vae_idm has the gain as (T - 1) V, for T - 1 of order o(n)",
        f"gain / (T - 1) over that at T = {first:g}, by fraction of noisy images: "
        + "; ".join(f"T = {T:g}: {min(s):.2f} to {max(s):.2f}" for T, s in shares.items()),
        all(abs(share - 1) <= PROPORTION for found in shares.values() for share in found),
        f"Within {PROPORTION:.0%} would do. V is a slope at lambda = 0, and these pushes are long: "
        f"at T = {first:g} already {min(pushes):.0f} to {max(pushes):.0f} standard errors of psi, "
        "where the library by itself would push by a tenth.",
    )


def _settings(gains):
    """Weights and fractions, in their order."""
    return tuple(sorted({key[k] for key in gains}) for k in (0, 1))


def _repeats(gains):
    return min(map(len, gains.values()))


def _counted(steps):
    found = [direction(step) for step in steps]
    return f"{found.count(1)} grow, {found.count(-1)} fall and {found.count(0)} are undecided"


def _gain(values):
    return f"{np.mean(values):+.2f} ± {std_error(values):.2f} nats"

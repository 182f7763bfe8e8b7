"""Ways to make the data of one replicate: rows, clusters or blocks drawn anew, or new targets."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.findings import Finding
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.linalg.arrays import ratio
from implicit_delta.models.model import FittedModel
from implicit_delta.models.processes import processes_of
from implicit_delta.models.redraws import redraw, redraw_measurements, reweight
from implicit_delta.models.resampling import resampled
from implicit_delta.models.sources import strata_of

SHORT = 0.1  # of a standard error that is too small: five observations
# Times the cube root of n: best for a mean with a first autocorrelation of one half.
USUAL_BLOCK = 1.4
FEWEST_BLOCKS = 4
REDRAWS = 20  # data sets of the model over which the skewness of its influences is averaged
CAUSES = "Usual causes: few observations, rare classes. Use "
SMOOTH = '`Bootstrap(kind="bayesian")`, which keeps every observation in'
OTHERWISE = f"{CAUSES}{SMOOTH}, a penalty (`l2=`), or `infer(model, psi, robust=True)`."
INSTEAD = {  # of a bootstrap of this kind, beside a penalty
    "parametric": ["`infer(model, psi)`", "`profile(model, psi)`"],
    "blocks": ["`infer(model, psi, robust=HAC(lags))`"],
    "bayesian": ["`infer(model, psi, robust=True)`"],
}

ONE_TERM = (
    "Usual causes: a log-likelihood of dependent data, which is one term; or weights that sum to "
    "one, while they count repetitions (multiply them by the number of observations). "
    "`infer(model, psi)` takes the variance from the curvature and draws nothing."
)


class Replication(Protocol):
    """A way to draw data.

    Attributes
    ----------
    clusters : Clusters or None
        Drawn whole.
    from_model : bool
        Whether targets are drawn from the fitted model, which is then believed.
    symmetric : bool
        Whether what is drawn adds no skewness of its own.
    otherwise : str
        Advice where many replicates have no fit.
    """

    @property
    def clusters(self) -> Clusters | None: ...

    @property
    def from_model(self) -> bool: ...

    @property
    def symmetric(self) -> bool: ...

    @property
    def otherwise(self) -> str: ...

    def check(self, model: FittedModel) -> Finding | None:
        """Refuse, before any work, a model whose data cannot be drawn so; find few units."""

    def draw(self, model: FittedModel, rng: np.random.Generator) -> FittedModel:
        """Build the same model at the same theta on drawn data."""

    def reweights(self, model: FittedModel) -> bool:
        """Whether what is drawn differs from the data in the weights alone."""

    def units(self, model: FittedModel, rows: Array) -> tuple[Array, Array]:
        """Influences of what is drawn as one, (G, K), and how often each is there, (G,)."""

    def sources(self, model: FittedModel) -> Iterator[FittedModel]:
        """Yield models on data that are distributed like what is drawn from."""


@dataclass(frozen=True)
class Rows:
    """Spread the number of observations anew, each row in proportion to its own.

    Of each data set by itself; what was measured once is drawn with its stated error.
    """

    kind: str
    clusters: None = None
    from_model: bool = False
    otherwise: str = OTHERWISE

    @property
    def symmetric(self) -> bool:
        return self.kind == "resample"

    def check(self, model: FittedModel) -> Finding | None:
        model.facts.require_rows()
        few = []
        for part in strata_of(model):
            own = model.weights.counts[part]
            if len(strata_of(model)) == 1 or own.size > 1:
                few.append(check_count(float(own.sum()) if np.count_nonzero(own) > 1 else 1.0))
        redraw_measurements(model, np.random.default_rng(0))
        return next(filter(None, few), None)

    def draw(self, model: FittedModel, rng: np.random.Generator) -> FittedModel:
        if (there := resampled(model, self.kind, rng)) is not None:
            return there
        often = np.ones(model.n)
        for part in strata_of(model):
            own = model.weights.counts[part]
            if len(strata_of(model)) == 1 or own.size > 1:
                often[part] = ratio(spread(own, self.kind, rng), own)
        return reweight(redraw_measurements(model, rng), model.weights.values * often)

    def reweights(self, model: FittedModel) -> bool:
        return redraw_measurements(model, np.random.default_rng(0)) is model

    def units(self, model: FittedModel, rows: Array) -> tuple[Array, Array]:
        return rows, model.weights.counts

    def sources(self, model: FittedModel) -> Iterator[FittedModel]:
        yield model


@dataclass(frozen=True)
class WholeClusters:
    """Draw clusters; their observations keep their weights."""

    kind: str
    clusters: Clusters
    from_model: bool = False
    otherwise: str = OTHERWISE

    @property
    def symmetric(self) -> bool:
        return self.kind == "resample"

    def check(self, model: FittedModel) -> Finding | None:
        model.facts.require_rows()
        return check_count(float(self.clusters.count))

    def draw(self, model: FittedModel, rng: np.random.Generator) -> FittedModel:
        if (there := resampled(model, self.kind, rng, self.clusters)) is not None:
            return there
        often = np.append(spread(np.ones(self.clusters.count), self.kind, rng), 0.0)
        return reweight(model, model.weights.values * often[self.clusters.codes])

    def reweights(self, model: FittedModel) -> bool:
        return True

    def units(self, model: FittedModel, rows: Array) -> tuple[Array, Array]:
        counted = model.weights.counts[:, None] * rows
        return self.clusters.sums(counted), np.ones(self.clusters.count)

    def sources(self, model: FittedModel) -> Iterator[FittedModel]:
        yield model


@dataclass(frozen=True)
class Blocks:
    """Draw blocks of successive rows, which keep the dependence within; the end meets the start.

    Attributes
    ----------
    clusters : Clusters
        The blocks that follow one another, for the influences of what is drawn.
    """

    length: int
    clusters: Clusters
    from_model: bool = False
    symmetric: bool = True
    otherwise: str = OTHERWISE

    @classmethod
    def of(cls, n: int, length: int | None) -> "Blocks":
        """Divide a series of n rows; by default as suits a first autocorrelation of one half."""
        chosen = math.ceil(USUAL_BLOCK * n ** (1 / 3)) if length is None else length
        if not 1 <= chosen <= n / FEWEST_BLOCKS:
            raise ValueError(
                f"block={chosen} divides a series of {n} rows into less than {FEWEST_BLOCKS} "
                "blocks, and draws of so few say nothing. It must span the dependence, and leave "
                "many blocks."
            )
        count = n // chosen
        return cls(chosen, Clusters(np.minimum(np.arange(n) // chosen, count - 1), count))

    def check(self, model: FittedModel) -> Finding | None:
        processes_of(model).check_series('Bootstrap(kind="blocks")')
        if np.ptp(model.weights.counts) > 0:
            raise UnsupportedModelError(
                'Bootstrap(kind="blocks") takes the rows for a series, one for each time, and '
                "these have weights. Repeat the rows, or leave the weights out."
            )
        return check_count(float(self.clusters.count))

    def draw(self, model: FittedModel, rng: np.random.Generator) -> FittedModel:
        n = model.n
        starts = rng.integers(n, size=-(-n // self.length))
        rows = (starts[:, None] + np.arange(self.length)).ravel()[:n] % n
        return reweight(model, model.weights.values * np.bincount(rows, minlength=n))

    def reweights(self, model: FittedModel) -> bool:
        return True

    def units(self, model: FittedModel, rows: Array) -> tuple[Array, Array]:
        return self.clusters.sums(rows), np.ones(self.clusters.count)

    def sources(self, model: FittedModel) -> Iterator[FittedModel]:
        yield model


def otherwise_of(kind: str, penalized: bool) -> str:
    """Advise where many replicates have no fit, without what is in use."""
    others = INSTEAD.get(kind, [SMOOTH, *INSTEAD["bayesian"]])
    penalty = [] if penalized else ["a penalty (`l2=`)"]
    *first, last = [*others[:-1], *penalty, others[-1]]
    return f"{CAUSES}{', '.join(first)}{', or ' if first else ''}{last}."


@dataclass(frozen=True)
class NewTargets:
    """Draw the targets from the fitted model, and leave the rest as it is."""

    clusters: None = None
    from_model: bool = True
    symmetric: bool = True
    otherwise: str = (
        "Usual causes: few observations, rare classes. Use a penalty (`l2=`), "
        "`infer(model, psi)`, or `profile(model, psi)`."
    )

    def check(self, model: FittedModel) -> Finding | None:
        if model.weights.kind == "sampling":
            raise UnsupportedModelError(
                "Sampling weights tell how much of a population a row stands for, and not how its "
                "target is distributed, so that draws from the model are not draws of the survey. "
                'Use `Bootstrap(kind="resample")`, or `infer(model, psi)`, which is design-based.'
            )
        redraw(model, np.random.default_rng(0))
        return None

    def draw(self, model: FittedModel, rng: np.random.Generator) -> FittedModel:
        return redraw(model, rng)

    def reweights(self, model: FittedModel) -> bool:
        return False

    def units(self, model: FittedModel, rows: Array) -> tuple[Array, Array]:
        return model.weights.counts[:, None] * rows, np.ones(model.n)

    def sources(self, model: FittedModel) -> Iterator[FittedModel]:
        return (redraw(model, np.random.default_rng(seed)) for seed in range(REDRAWS))


def spread(own: Array, kind: str, rng: np.random.Generator) -> Array:
    """Draw the weights: multinomial counts, or a Dirichlet draw, which is smooth."""
    total = own.sum()
    if kind == "resample":
        counts = rng.multinomial(max(round(total), 1), own / total)
        return counts.astype(np.float64)
    drawn = rng.gamma(own)  # a Dirichlet draw, once it is normalized
    return np.asarray(total * drawn / drawn.sum())


def check_count(
    units: float, causes: str = ONE_TERM, advice: str = "Use `infer(model, psi)`."
) -> Finding | None:
    """Refuse to draw from one unit; find few, whose spread is that of n - 1 out of n."""
    if units < 2:
        raise UnsupportedModelError(
            f"The bootstrap draws observations with replacement, and there is {units:.3g} of them. "
            + causes
        )
    short = 1 - np.sqrt(1 - 1 / units)
    if not short > SHORT:
        return None
    return Finding(
        "warn",
        "few_units",
        f"The bootstrap of {units:.3g} observations or clusters underestimates the standard "
        f"error by about {short:.0%}, and their draws are few.",
        number=float(short),
        remedies=(advice,),
    )

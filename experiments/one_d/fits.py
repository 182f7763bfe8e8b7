"""Figures "sin_fit" and "cubic_fit": fits with 95 % bands, and the covariance of predictions."""

from dataclasses import dataclass

import numpy as np

from experiments.one_d.bands import (
    TRAINING,
    Band,
    Training,
    all_bands,
    draw_starts,
    finished_bands,
    fit_as_paper,
)
from experiments.one_d.coverage import PUBLIC
from experiments.one_d.tasks import TASKS, grid
from experiments.records import resume, save_picture

PICTURES = {"sin": "one_d/sin_fit.png", "quadratic": "one_d/cubic_fit.png"}
BLOCK = 10  # networks that descend together
PANELS = {
    "literal": "IDM, as in the paper",
    "idm": "IDM, two refits alike",
    "delta": "Delta method, damped like the fit",
    "gp": "GP-Matern52",
    "simulation": "True spread of the paper's fit",
    "default": "The library, one call",
    "public": "The library, finished fit",
    "mixture": "Not in the library: four starts",
}


@dataclass(frozen=True)
class Config:
    """Grid points, simulated data sets, and how the network is trained as in the paper."""

    points: int = 80
    simulations: int = 50
    training: Training = TRAINING


FULL = Config()
QUICK = Config(points=21, simulations=6, training=Training(steps=4_000, refit_steps=500))


def run(config=FULL, seed=0, *, path=None, n_jobs=1):
    """Observations, bands and covariances of one data set, and fits of simulated ones."""
    blocks = -(-config.simulations // BLOCK)
    jobs = [(name, block) for name in TASKS for block in range(-2, blocks)]
    special = {-2: by_public_names, -1: one_data_set}

    def compute(name, block):
        if block in special:
            return special[block](config, seed, name)
        return simulate(config, seed, name, block)

    settings = (config, seed)
    return resume(
        compute, jobs, ("task", "block"), path=path, settings=settings, n_jobs=n_jobs, label="fits"
    )


def reproduce(results, *, quick=False, seed=0, n_jobs=1, data=None):
    config = QUICK if quick else FULL
    records = run(config, seed, path=results / "one_d/fits.csv.gz", n_jobs=n_jobs)
    for name, picture in PICTURES.items():
        save_picture(plot(records, name), results / picture)


def one_data_set(config, seed, name):
    task, points = TASKS[name], grid(config.points)
    rng = _stream(seed, name, 0)
    x, y = task.draw(rng)
    bands, raw, _ = all_bands(task, x, y, rng, points, config.training)
    negative = {method: int(np.sum(np.diag(matrix) < 0)) for method, matrix in raw.items()}
    return [{"kind": "data", "x": _pack(x), "y": _pack(y)}] + [
        _row(method, band, negative_variances=negative.get(method, 0))
        for method, band in bands.items()
    ]


def by_public_names(config, seed, name):
    """Bands of the same data set by the library's own routes; 0 where strict mode refuses."""
    task, points, network = TASKS[name], grid(config.points), config.training.network
    rng = _stream(seed, name, 0)
    x, y = task.draw(rng)
    start, *_ = draw_starts(network, rng)
    theta, _ = fit_as_paper(task, x, y, start, config.training)
    bands = {method: make(network, x, y, theta, start, points) for method, make in PUBLIC.items()}
    return [
        _row(method, band, answered=_pack(band.answered * np.ones(points.size)))
        for method, band in bands.items()
    ]


def _row(method, band, **more):
    return {
        "kind": "band",
        "method": method,
        "freedom": float(np.min(band.freedom)),
        "value": _pack(band.value),
        "covariance": _pack(band.covariance),
        **more,
    }


def simulate(config, seed, name, block):
    """Predictions of networks fitted to new data sets, as in the paper and finished."""
    task, points, network = TASKS[name], grid(config.points), config.training.network
    numbers = range(block * BLOCK, min((block + 1) * BLOCK, config.simulations))
    streams = [_stream(seed, name, 1 + number) for number in numbers]
    data = [task.draw(rng) for rng in streams]
    starts = [draw_starts(config.training.network, rng) for rng in streams]
    x, y = (np.array(part) for part in zip(*data, strict=True))
    theta, _ = fit_as_paper(task, x, y, np.array([s[0] for s in starts]), config.training)
    paper = network.predict(theta, points)
    ours = [
        finished_bands(network, *one, some, points)["mixture"].value
        for one, some in zip(data, starts, strict=True)
    ]
    return [
        {"kind": "simulation", "method": method, "value": _pack(value)}
        for method, values in (("simulation", paper), ("simulation_finished", ours))
        for value in values
    ]


def bands_of(records, name):
    """The bands of one task by method; a simulated one is centered at the mean of its fits."""
    rows = [row for row in records if row["task"] == name]
    bands = {
        row["method"]: Band(
            _unpack(row["value"]),
            _square(row["covariance"]),
            row["freedom"],
            _unpack(row["answered"]) > 0 if "answered" in row else True,
        )
        for row in rows
        if row["kind"] == "band"
    }
    for method in ("simulation", "simulation_finished"):
        fits = np.array([_unpack(row["value"]) for row in rows if row.get("method") == method])
        bands[method] = Band(fits.mean(axis=0), np.cov(fits.T))
    return bands


def plot(records, name):
    """Pairs of a fit with its band and its covariance image, two to a row as in the paper."""
    import matplotlib.pyplot as plt

    bands, task = bands_of(records, name), TASKS[name]
    data = next(row for row in records if row["task"] == name and row["kind"] == "data")
    figure, axes = plt.subplots(4, 4, figsize=(10, 10), width_ratios=[1.25, 1, 1.25, 1])
    for (method, title), pair in zip(PANELS.items(), axes.reshape(-1, 2), strict=True):
        band = bands[method]
        _draw_fit(pair[0], task, data, band, grid(band.value.size))
        _draw_covariance(figure, pair[1], band)
        pair[0].set_title(title, fontsize=10, loc="left")
    figure.suptitle(f"{task.formula}      (dotted: refused in strict mode)")
    figure.tight_layout()
    return figure


def _draw_fit(ax, task, data, band, x):
    center, half = band.value, band.half_width()
    answered = np.broadcast_to(band.answered, x.shape)
    ax.fill_between(x, center - half, center + half, where=answered, color="C0", alpha=0.3, lw=0)
    for end in (center - half, center + half):
        ax.plot(x, np.where(answered, np.nan, end), "C0:", lw=1)
    ax.plot(x, center, "C0")
    ax.plot(x, task.truth(x), "k--", lw=0.8)
    ax.plot(_unpack(data["x"]), _unpack(data["y"]), "x", color="C3", ms=3, mew=0.6, alpha=0.6)
    ax.set(xlim=(-2, 2), ylim={"sin": (-2.6, 2.6), "quadratic": (4.2, 6.9)}[task.name])


def _draw_covariance(figure, ax, band):
    limit = np.quantile(np.diag(band.covariance), 0.9)  # the far corners would hide the rest
    image = ax.imshow(
        band.covariance, cmap="RdBu_r", vmin=-limit, vmax=limit, extent=(-2, 2, 2, -2)
    )
    colors = figure.colorbar(image, ax=ax, fraction=0.046, pad=0.04, extend="both")
    colors.ax.tick_params(labelsize=9)
    colors.formatter.set_powerlimits((-2, 2))
    ax.tick_params(labelsize=9)


def _stream(seed, name, number):
    return np.random.default_rng([seed, list(TASKS).index(name), 1_000_000 + number])


def _pack(array):
    return " ".join(f"{value:.4g}" for value in np.ravel(array))


def _unpack(text):
    return np.array(text.split(), dtype=float)


def _square(text):
    values = _unpack(text)
    return values.reshape(int(values.size**0.5), -1)

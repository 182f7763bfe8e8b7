"""The paper's data sets: from a directory, then a cache, then OpenML.

A directory (``--data DIR`` or the environment variable IMPLICIT_DELTA_DATA) and the cache have the
same layout: ``vehicle.csv.gz``, ``waveform.csv.gz`` and ``satellite.csv.gz`` with a header and the
column ``label`` last, and the four original files of MNIST under ``mnist/``. Waveform is a
simulation, so it is generated where it is not found.
"""

import csv
import gzip
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

VARIABLE = "IMPLICIT_DELTA_DATA"
OPENML = {"vehicle": 54, "satellite": 182, "mnist": 554}
NAMES = ("vehicle", "waveform", "satellite", "mnist")
HELD_OUT = 0.2
MNIST_TRAIN = 60_000


class DataNotFoundError(FileNotFoundError):
    """No directory, no cache and no network has the data set."""


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows held out: features (n, p) and class numbers (n,)."""

    X: np.ndarray
    y: np.ndarray
    X_held: np.ndarray
    y_held: np.ndarray

    @property
    def classes(self):
        return int(max(self.y.max(), self.y_held.max())) + 1

    def rows(self, index):
        """The same split with these training rows."""
        return Split(self.X[index], self.y[index], self.X_held, self.y_held)


def load_split(name, seed=0, directory=None):
    """Hold out a random 20 %, or of MNIST its test images, as in the paper's appendix.

    Features are standardized with the moments of the training rows; pixels are scaled to [0, 1].
    """
    X, y = load(name, directory)
    if name == "mnist":
        X = X / 255
        return Split(X[:MNIST_TRAIN], y[:MNIST_TRAIN], X[MNIST_TRAIN:], y[MNIST_TRAIN:])
    order = np.random.default_rng([seed, 20]).permutation(len(y))
    held, kept = np.split(order, [round(HELD_OUT * len(y))])
    center, scale = X[kept].mean(0), X[kept].std(0)
    return Split((X[kept] - center) / scale, y[kept], (X[held] - center) / scale, y[held])


def load(name, directory=None):
    """All rows of a data set: features (n, p) float64 and class numbers (n,)."""
    if name not in NAMES:
        raise ValueError(f"There is no data set {name!r}; there are {', '.join(NAMES)}.")
    for place in places(directory):
        if _present(place, name):
            return _read(place, name)
    if name == "waveform":
        return generate_waveform(5000, np.random.default_rng(1984))
    X, y = _fetch(name)
    _write(cache_directory(), name, X, y)
    return X, y


def available(name, directory=None):
    """Whether the data set can be loaded; if not, the reason is printed."""
    try:
        load(name, directory)
    except DataNotFoundError as error:
        print(f"Skipped: {error}", flush=True)
        return False
    return True


def places(directory=None):
    """Directories to search, first to last."""
    given = directory or os.environ.get(VARIABLE)
    return [*([Path(given)] if given else []), cache_directory()]


def cache_directory():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "implicit-delta"


def generate_waveform(n, rng):
    """Breiman's waveforms (1984): each class mixes two of three triangular waves, plus noise."""
    position = np.arange(1, 22)
    waves = np.array([np.maximum(6 - abs(position - center), 0) for center in (7, 15, 11)])
    first, second = np.array([0, 0, 1]), np.array([1, 2, 2])
    y, share = rng.integers(0, 3, size=n), rng.uniform(size=(n, 1))
    X = share * waves[first[y]] + (1 - share) * waves[second[y]]
    return X + rng.normal(size=X.shape), y


def _present(place, name):
    files = MNIST_FILES if name == "mnist" else (f"{name}.csv.gz",)
    return all((place / file).exists() for file in files)


def _read(place, name):
    if name == "mnist":
        images, labels, more, more_labels = (_read_idx(place / file) for file in MNIST_FILES)
        X = np.concatenate([images, more]).reshape(-1, 784)
        return X.astype(float), np.concatenate([labels, more_labels]).astype(int)
    with gzip.open(place / f"{name}.csv.gz", "rt", newline="") as file:
        header, *rows = csv.reader(file)
    features = [i for i, column in enumerate(header) if column not in ("split", "label")]
    X = np.array([[row[i] for i in features] for row in rows], dtype=float)
    return X, _numbered([row[header.index("label")] for row in rows])


def _write(place, name, X, y):
    place.mkdir(parents=True, exist_ok=True)
    if name == "mnist":
        (place / "mnist").mkdir(exist_ok=True)
        parts = [
            part
            for rows in (slice(MNIST_TRAIN), slice(MNIST_TRAIN, None))
            for part in (X[rows].reshape(-1, 28, 28), y[rows])
        ]
        for file, part in zip(MNIST_FILES, parts, strict=True):
            _write_idx(place / file, part)
        return
    with gzip.open(place / f"{name}.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{i + 1}" for i in range(X.shape[1])), "label"])
        writer.writerows([*row, label] for row, label in zip(X.tolist(), y.tolist(), strict=True))


def _fetch(name):
    from sklearn.datasets import fetch_openml

    try:
        found = fetch_openml(data_id=OPENML[name], as_frame=False, parser="liac-arff")
    except Exception as error:  # every layer between here and OpenML has errors of its own
        raise DataNotFoundError(_advice(name, error)) from error
    return np.asarray(found.data, dtype=float), _numbered(found.target)


def _advice(name, error):
    files = "mnist/*.gz" if name == "mnist" else f"{name}.csv.gz"
    looked = ", ".join(map(str, places()))
    return (
        f"The data set {name!r} is not here: {files} is not in {looked}, and OpenML did not answer "
        f"({type(error).__name__}: {error}). Usually there is no network. Run once with a network, "
        f"or give a directory that holds the files with --data DIR or {VARIABLE}=DIR."
    )


def _numbered(labels):
    return np.unique(np.asarray(labels).astype(str), return_inverse=True)[1]


MNIST_FILES = (
    "mnist/train-images-idx3-ubyte.gz",
    "mnist/train-labels-idx1-ubyte.gz",
    "mnist/t10k-images-idx3-ubyte.gz",
    "mnist/t10k-labels-idx1-ubyte.gz",
)


def _read_idx(path):
    with gzip.open(path) as file:
        _, _, _, dimensions = struct.unpack(">BBBB", file.read(4))
        shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
        return np.frombuffer(file.read(), dtype=np.uint8).reshape(shape)


def _write_idx(path, array):
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    with gzip.open(path, "wb") as file:
        file.write(head + array.astype(np.uint8).tobytes())

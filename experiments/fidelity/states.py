"""Trained networks of the data sets on which standard errors are computed, cached on disk."""

import hashlib

import torch

from experiments.fidelity import data, networks, training
from experiments.fidelity.retrainings import DATA_SETS
from experiments.fidelity.sources import source


def trained(setting, cache):
    """Read the states of the first data sets, or train them like those of the kind "data"."""
    mark = hashlib.sha256(repr((setting, source(data, networks, training))).encode()).hexdigest()
    path = cache / f"{setting.name}.pt"
    if path.exists():
        kept = torch.load(path, weights_only=False)
        if kept["mark"] == mark:
            return kept["states"]
    numbers = range(DATA_SETS)
    stack = training.train(
        setting,
        [0] * DATA_SETS,
        [data.training_rows(setting, number) for number in numbers],
        [data.stream(setting, "order of data", number) for number in numbers],
    )
    states = [stack.of(number) for number in numbers]
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"mark": mark, "states": states}, path)
    return states

"""Retrainings: what changes from one to the next, and the answers of all of them.

==============  ===================================================================================
data            fresh data and a fresh order of minibatches, the same initial weights: the truth
initialization  fresh initial weights too
order           only the order of minibatches is fresh, for each of the first six data sets
bootstrap       resampled rows of each of the first three data sets, and a fresh order
==============  ===================================================================================
"""

import numpy as np

from experiments.fidelity import data
from experiments.fidelity.data import Rows, stream, training_rows
from experiments.fidelity.questions import questions
from experiments.fidelity.training import predictions, train

CHUNK = 20  # trained as one stack, and stored and resumed as one
CHUNKS = {"data": 10, "initialization": 5, "order": 6, "bootstrap": 6}
DATA_SETS = 6  # on which standard errors are computed
DATA_SETS_OF = {"order": DATA_SETS, "bootstrap": 3}
FRESH = 1000  # numbers of data sets from here on belong to fresh initial weights
POPULATION = "_population"  # names answers of the larger sample


def chunks(setting, kind):
    """Numbers of the chunks; without minibatches there is no order."""
    return range(0 if kind == "order" and not setting.batch else CHUNKS[kind])


def answers(setting, kind, chunk):
    """Train a chunk; a row for each network, with its answers on test rows and the population."""
    numbers = [CHUNK * chunk + k for k in range(CHUNK)]
    seeds, rows = KINDS[kind](setting, numbers)
    orders = [stream(setting, f"order of {kind}", number) for number in numbers]
    states = train(setting, seeds, rows, orders).end
    found = [{"number": number} for number in numbers]
    for suffix, fixed in (("", data.test_rows(setting)), (POPULATION, data.population(setting))):
        asked = [q for q in questions(setting, fixed) if q.jumps or not suffix]
        for row, outputs in zip(found, predictions(setting, states, fixed.x), strict=True):
            row.update({q.name + suffix: q.of(outputs) for q in asked})
    return found


def data_set_of(kind, number):
    """The data set that a retraining of the last two kinds belongs to."""
    return number // (CHUNK * CHUNKS[kind] // DATA_SETS_OF[kind])


def _data(setting, numbers):
    return [0] * len(numbers), [training_rows(setting, number) for number in numbers]


def _initialization(setting, numbers):
    rows = [training_rows(setting, FRESH + number) for number in numbers]
    return [1 + number for number in numbers], rows


def _order(setting, numbers):
    rows = [training_rows(setting, data_set_of("order", number)) for number in numbers]
    return [0] * len(numbers), rows


def _bootstrap(setting, numbers):
    rows = [training_rows(setting, data_set_of("bootstrap", number)) for number in numbers]
    return [0] * len(numbers), [
        resampled(r, stream(setting, "bootstrap", number))
        for r, number in zip(rows, numbers, strict=True)
    ]


def resampled(rows, rng):
    index = rng.integers(len(rows.y), size=len(rows.y))
    return Rows(*(np.take(part, index, axis=0) for part in rows))


KINDS = {
    "data": _data,
    "initialization": _initialization,
    "order": _order,
    "bootstrap": _bootstrap,
}

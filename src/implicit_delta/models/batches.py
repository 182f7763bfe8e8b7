"""Scores of batches, and stochastic trainings."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_delta.core.arguments import as_rate
from implicit_delta.core.types import Array
from implicit_delta.models.objective import objective_of
from implicit_delta.models.rows import BatchedRows, TrainableRows

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

RowNumbers: TypeAlias = NDArray[np.integer[Any]]  # of the observations in a batch, (B,)
Bonus: TypeAlias = Callable[[Array, RowNumbers], Array]  # gradient of what is added to L, (d,)


def batch_score(model: "FittedModel", theta: Array, rows: RowNumbers) -> Array:
    """Estimate the score, (d,), from a batch of observations given by their numbers, (B,)."""
    if not isinstance(model.rows, BatchedRows):
        return objective_of(model).weighted_score(theta, model.weights.of_batch(rows))
    own = model.rows.batch_score(theta, model.weights.values, rows)
    return model.n / len(rows) * own - model.penalty.score(theta)


def ascend(
    model: "FittedModel", bonus: Bonus | None, batches: Iterable[RowNumbers], optimizer: Any
) -> Iterator[Array]:
    """Yield theta (d,) after each step of a stochastic training that starts at theta.

    A step climbs ``(L + bonus) / n`` along the score of one batch. The bonus is given by its
    gradient; `optimizer` is a learning rate, or whatever else the backend trains with.
    """
    if isinstance(model.rows, TrainableRows):
        yield from model.rows.ascend(
            model.theta, model.weights.values, model.penalty, bonus, batches, optimizer
        )
        return
    theta, rate = model.theta, as_rate(optimizer)
    for rows in batches:
        slope = batch_score(model, theta, rows)
        theta = theta + rate / model.n * (slope if bonus is None else slope + bonus(theta, rows))
        yield theta

"""Continue a stochastic training to see its noise, and average its states to be rid of it."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from implicit_delta.core.findings import Finding, report
from implicit_delta.core.progress import progress
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.batches import RowNumbers, ascend
from implicit_delta.models.early_stop import early_stopped
from implicit_delta.models.model import FittedModel
from implicit_delta.models.rows import TrainableRows
from implicit_delta.models.states import LEAST

Model = TypeVar("Model", bound=FittedModel)
RUNNING_AVERAGES = Finding(
    "warn",
    "running_averages",
    "The running averages of BatchNorm are still those of the last state, and not those of the "
    "averaged weights.",
    remedies=(
        "With `module = averaged(model).module` call `torch.optim.swa_utils.update_bn(loader, "
        "module)`, and make the model anew with `from_torch(module, ..., checkpoints=states)`.",
    ),
)


def continue_training(
    model: Model,
    optimizer: Any,
    *,
    batch_size: int,
    steps: int = 64,
    every: int = 1,
    warmup: int | None = None,
    rng: int | np.random.Generator | None = None,
) -> Model:
    r"""Train on for a few dozen steps, to see how much the last minibatches have left in psi.

    The result is the same model at the same theta, with the states after these steps as its
    ``checkpoints``: `infer` has the wobble of psi over them as the line ``training`` of its budget.
    It is that of a theta which *is* the last state of such a training; `averaged` makes a model at
    the mean of the states.

    Parameters
    ----------
    model : FittedModel
        Made by `from_torch` or `from_jax`; it is not changed.
    optimizer : float or callable
        That of the training, with its last learning rate: a function that makes a torch
        optimizer of a list of parameters, ``lambda p: torch.optim.Adam(p, lr=1e-3)``; for JAX an
        optax optimizer; or the rate of plain stochastic gradient descent on the *mean* loss. The
        penalty is that of the model (``l2=``): leave a coupled ``weight_decay`` out here.
    batch_size : int
        Rows in a minibatch, as in the training: the noise is in proportion to its inverse.
    steps : int
        Number of states to keep.
    every : int
        Steps from one state to the next. States that are too much alike say little. Psi wobbles
        more within an epoch than from one end to the next, as each row is then seen once: for a
        training that ended with an epoch take ``every=n // batch_size``.
    warmup : int, optional
        Steps before the first state, in which the averages of the optimizer (momentum, Adam's
        second moments) settle, which start anew. By default as many as there are from the first
        state to the last.
    rng : int or numpy.random.Generator, optional
        Order of the rows, which is drawn anew for each epoch.

    Returns
    -------
    FittedModel

    Notes
    -----
    The module is in eval mode: noise of dropout and of the batch statistics of BatchNorm is not
    there. States saved during the training itself (``from_torch(..., checkpoints=)``) have it.

    Examples
    --------
    The mean of 200 numbers by steps of rate 0.1 on minibatches of 10 wobbles with the standard
    deviation :math:`\sqrt{0.1 / (2 - 0.1) / 10}`, and less as each epoch sees all rows:

    >>> import torch
    >>> import implicit_delta as idm
    >>> y = torch.randn(200, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> net = torch.nn.Linear(1, 1, bias=False).double()
    >>> fitted = idm.polish(idm.from_torch(net, (torch.ones_like(y), y), idm.Gaussian(1.0)))
    >>> model = idm.continue_training(fitted, 0.1, batch_size=10, every=3, rng=0)
    >>> est = idm.infer(model, lambda net: net.weight.squeeze())
    >>> {part: round(error, 2) for part, error in est.budget.items()}
    {'model': 0.07, 'training': 0.06, 'total': 0.09}
    """
    trained, _ = _trainable(model, "continue_training")
    least = {"batch_size": 1, "steps": LEAST["checkpoints"], "every": 1, "warmup": 0}
    warmup = steps * every if warmup is None else warmup
    given = {"batch_size": batch_size, "steps": steps, "every": every, "warmup": warmup}
    for name, smallest in least.items():
        if given[name] != int(given[name]) or given[name] < smallest:
            raise ValueError(f"{name} must be an integer from {smallest} on, not {given[name]!r}.")
    if batch_size >= model.n:
        raise ValueError(
            f"batch_size is {batch_size}, and there are {model.n} rows: a training on all of them "
            "in each step has no noise of minibatches, and needs no line for it."
        )
    untied = replace(trained, penalty=trained.penalty.given)  # without what stands for a stop
    batches = islice(_epochs(model.n, int(batch_size), rng), warmup + steps * every)
    with progress("training on", total=warmup + steps * every, unit="step") as bar:
        states = []
        for i, theta in enumerate(ascend(untied, None, batches, optimizer), start=1 - warmup):
            bar.update()
            if i > 0 and i % every == 0:
                states.append(theta.copy())
    found = np.array(states, dtype=model.theta.dtype)
    facts = trained.facts.with_training(checkpoints=found)
    return replace(trained, facts=facts)  # type: ignore[return-value]


def averaged(model: Model) -> Model:
    """Move a model to the average of its checkpoints, where little noise of the training is left.

    The line ``training`` of the budget is then that of the mean: for c independent states the
    wobble of one over c, and more where neighbors are alike (from means of batches of them).

    Parameters
    ----------
    model : FittedModel
        With checkpoints, from ``from_torch(..., checkpoints=)``, `from_jax` or
        `continue_training`; it is not changed.

    Returns
    -------
    FittedModel
        ``averaged(model).module`` is the averaged module (``.params`` in JAX), to be deployed
        with its error bar. Running averages of BatchNorm are those of the last state: recompute
        them, `torch.optim.swa_utils.update_bn(loader, module)`, and make the model anew.
        Replicates are kept: they have the whole noise of *their* minibatches.

    Examples
    --------
    >>> import torch
    >>> import implicit_delta as idm
    >>> y = torch.randn(200, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> net = torch.nn.Linear(1, 1, bias=False).double()
    >>> fitted = idm.polish(idm.from_torch(net, (torch.ones_like(y), y), idm.Gaussian(1.0)))
    >>> model = idm.continue_training(fitted, 0.1, batch_size=10, every=3, rng=0)
    >>> est = idm.infer(idm.averaged(model), lambda net: net.weight.squeeze())
    >>> {part: round(error, 2) for part, error in est.budget.items()}
    {'model': 0.07, 'training': 0.01, 'total': 0.07}
    """
    trained, rows = _trainable(model, "averaged")
    states = trained.facts.training.checkpoints
    if states is None:
        raise ValueError(
            "The model has no checkpoints to average. Give the states of the last steps or epochs, "
            "`from_torch(..., checkpoints=states)`, or make some with `continue_training(model, "
            "optimizer, batch_size=...)`. `polish` and `at` leave them behind."
        )
    if rows.running_averages:
        report([RUNNING_AVERAGES])
    mean = states.mean(axis=0, dtype=np.float64).astype(trained.theta.dtype)
    facts = trained.facts.with_training(before=None)
    moved = replace(trained.at(mean), penalty=trained.penalty.given, facts=facts)
    return early_stopped(moved) if trained.penalty.early_stop else moved  # type: ignore[return-value]


def _trainable(model: Any, name: str) -> tuple[FittedModel, TrainableRows]:
    if isinstance(model, FittedModel) and isinstance(model.rows, TrainableRows):
        return model, model.rows
    if not isinstance(model, FittedModel):
        raise TypeError(f"{name} needs a fitted model, not {type(model).__name__}.")
    raise UnsupportedModelError(
        f"{name} is for networks of `from_torch` and `from_jax`, and this is a model of "
        f"{model.facts.source or 'your own rows'}: its fit has no minibatches, and "
        "`polish(model)` finishes it."
    )


def _epochs(n: int, size: int, rng: int | np.random.Generator | None) -> Iterator[RowNumbers]:
    """Minibatches without end, in epochs that see each row once (but for an incomplete batch)."""
    generator = np.random.default_rng(rng)
    while True:
        order = generator.permutation(n)
        for start in range(0, n - size + 1, size):
            yield order[start : start + size]

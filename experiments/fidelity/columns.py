"""Columns of the table: ways to a standard error, each asked every question of a trained network.

==========  =======================================================================================
default     ``infer(model, psi)``, the model with the start of its training and the last states
robust      the same with ``robust=True``
weights     psi at draws of the weights instead of the tangent: ``Simulation(tangent=False)``
==========  =======================================================================================

Rows of the test sample are fixed, so of the parts of an error those of the model and of the
training count, and that of the evaluation sample does not.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

import implicit_delta as idm
from experiments.fidelity.data import test_rows, training_rows
from experiments.fidelity.networks import network
from experiments.fidelity.questions import questions
from experiments.fidelity.retrainings import DATA_SETS
from experiments.fidelity.states import trained

# States after the last steps, several times the memory of momentum and Adam, which is ten steps.
# Without minibatches there is no noise to see.
CHECKPOINTS = 40
WORDS = 70  # characters of a warning that are kept
COUNTED = ("model", "training")
LIKELIHOODS = {
    "binary": idm.Bernoulli(),
    "classes": idm.Categorical(),
    "regression": idm.Gaussian(),
}


@dataclass(frozen=True)
class Column:
    """A way to a standard error: whether the model knows its training, and options of `infer`."""

    knows_training: bool
    options: Mapping = field(default_factory=dict)


COLUMNS = {
    "default": Column(True),
    "robust": Column(True, {"robust": True}),
    "weights": Column(True, {"method": idm.Simulation(200, tangent=False, rng=0)}),
}
FEW = 2  # data sets, of other columns than the default and where each takes minutes


def data_sets(setting, column):
    """Number of data sets on which a column is asked."""
    return DATA_SETS if column == "default" and setting.inputs == "table" else FEW


def standard_errors(setting, column, number, cache):
    """Ask one column about the network of one data set; a row for each question."""
    way = COLUMNS[column]
    model = fitted(setting, training_rows(setting, number), trained(setting, cache)[number], way)
    rows = test_rows(setting)
    x = double(torch.as_tensor(rows.x))
    ask = lambda psi: asked(lambda: idm.infer(model, psi, **way.options))
    psi = at_draws if "method" in way.options else lambda question, x: question.psi(x)
    return [{"question": q.name, **ask(psi(q, x))} for q in questions(setting, rows)]


def at_draws(question, x):
    """The question as a number, without derivatives: a `Statistic` would not see drawn weights."""
    return lambda net: question.of(net(x).detach())


def fitted(setting, rows, states, way):
    """Make the model, as a user would who kept the start and the last states."""
    net = network(setting, 0)
    net.load_state_dict(states.end)
    known = {}
    if way.knows_training:
        known["start"] = states.start
        known["checkpoints"] = states.steps[-CHECKPOINTS:] if setting.batch else None
    if "method" in way.options:  # to which `infer` adds no ridge
        known["l2"] = "evidence"
    data = tuple(map(torch.as_tensor, (rows.x, rows.y)))
    return idm.from_torch(net, data, LIKELIHOODS[setting.outcome], dtype=torch.float64, **known)


def asked(question: Callable[[], idm.Estimate]) -> dict:
    """Value, parts of the standard error, warnings and cost; or why it was refused."""
    begun = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer = found(question())
        except idm.ImplicitDeltaError as error:
            answer = {"refused": f"{type(error).__name__}: {error}"[:200]}
    return {**answer, **told(caught), "seconds": time.perf_counter() - begun}


def told(caught):
    """Categories and first words of the library's warnings."""
    ours = [w for w in caught if issubclass(w.category, idm.ImplicitDeltaWarning)]
    join = lambda texts: " | ".join(sorted(set(texts)))
    return {
        "warned": join(w.category.__name__ for w in ours),
        "words": join(str(w.message)[:WORDS] for w in ours),
    }


def found(estimate):
    parts = estimate.budget or {"model": estimate.standard_error}
    errors = {name: float(parts[name]) for name in COUNTED if name in parts}
    total = sum(error**2 for error in errors.values()) ** 0.5
    passes = float(estimate.diagnostics.passes)
    return {"value": float(estimate.value), "se": total, **errors, "passes": passes}


def double(x):
    """Float64, as the copy of the module is; words stay numbers of words."""
    return x.double() if x.is_floating_point() else x

"""The column of laplace-torch: ``python -m experiments.fidelity.peers``, in its own environment.

Its posterior of all weights (Gauss-Newton matrix, prior precision by marginal likelihood), with its
linearized predictive: outputs at draws of the weights along the tangent. A logit is given to it as
two outputs, which it needs. ``make bench-env`` says what to install.
"""

import time

import numpy as np
import torch
from torch.func import functional_call, jvp
from torch.utils.data import DataLoader, TensorDataset

from experiments.command import results_folder
from experiments.fidelity.__main__ import parser
from experiments.fidelity.data import population, test_rows, training_rows
from experiments.fidelity.networks import network
from experiments.fidelity.questions import questions
from experiments.fidelity.settings import SETTINGS
from experiments.fidelity.states import trained
from experiments.fidelity.study import Place
from experiments.records import resume

DATA_SETS, DRAWS = 2, 100


def main(arguments=None):
    options = parser().parse_args(arguments)
    torch.set_num_threads(1)
    place = Place(results_folder(options) / "fidelity", options.cache, options.quick)
    for setting in SETTINGS:
        resume(
            lambda number, setting=setting: standard_errors(setting, number, place.cache),
            place.jobs(range(DATA_SETS)),
            ("data_set",),
            path=place.column(setting, "laplace"),
            settings=(setting, DRAWS),
            label=f"laplace: {setting.name}",
        )


class TwoLogits(torch.nn.Module):
    """A logit as two outputs, the first zero."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        f = self.net(x)
        return torch.stack([torch.zeros_like(f), f], dim=-1)


class Column(torch.nn.Module):
    """Outputs (b, 1)."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)[..., None]


WRAPPERS = {"binary": TwoLogits, "classes": torch.nn.Sequential, "regression": Column}


def standard_errors(setting, number, cache):
    """Deviation of each answer over draws; a row that says so where laplace-torch does not run."""
    begun = time.perf_counter()
    net = network(setting, 0)
    net.load_state_dict(trained(setting, cache)[number].end)
    try:
        steps = draws(setting, net, training_rows(setting, number))
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return [{"question": "all", "refused": f"{type(error).__name__}: {error}"[:200]}]
    spent = {"seconds": time.perf_counter() - begun}
    return [
        {"question": question.name, "se": float(np.std(values, ddof=1)), **spent}
        for jumps, rows in ((False, test_rows(setting)), (True, population(setting)))
        for outputs in (along(net, steps, torch.as_tensor(rows.x)),)
        for question in questions(setting, rows)
        if question.jumps == jumps
        for values in ([question.of(f) for f in outputs],)
    ]


def draws(setting, net, rows):
    """Steps from the weights to draws of its posterior, (DRAWS, d)."""
    from laplace import Laplace

    kind = "regression" if setting.outcome == "regression" else "classification"
    x, y = map(torch.as_tensor, (rows.x, rows.y))
    y = y[:, None] if kind == "regression" else y.long()
    posterior = Laplace(WRAPPERS[setting.outcome](net), kind, "all", "full")
    posterior.fit(DataLoader(TensorDataset(x, y), batch_size=100))
    if kind == "regression":
        with torch.no_grad():
            posterior.sigma_noise = (y[:, 0] - net(x)).square().mean().sqrt()
    posterior.optimize_prior_precision(method="marglik")
    torch.manual_seed(0)
    return (posterior.sample(DRAWS) - posterior.mean).detach()


def along(net, steps, x):
    """Outputs of the tangent at each step."""
    state = {name: value.detach() for name, value in net.named_parameters()}
    forward = lambda state: functional_call(net, state, (x,))
    return [sum(jvp(forward, (state,), (like(state, step),))) for step in steps]


def like(state, step):
    parts = step.split([value.numel() for value in state.values()])
    return {
        name: part.view_as(value) for (name, value), part in zip(state.items(), parts, strict=True)
    }


if __name__ == "__main__":
    main()

"""Data sets of the ten questions: seeded, stored as CSV beside this file, and read by all.

``python -m benchmarks.peers.data`` writes them again; the trained network needs torch.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FOLDER = Path(__file__).parent / "data"
L2 = 1.0  # ridge of the network: L2 / 2 |theta|^2 on the sum of the losses
HIDDEN, CLASSES = 4, 3
POINTS = [[0.0, 0.0], [1.0, 0.5], [-1.0, 0.5], [0.5, -1.5], [2.0, 2.0]]  # of question 9
NEW = {"age": 60.0, "smoker": 1.0, "years": 5.0}  # of question 5


def villages():
    """Treatment and health in 40 villages of 15 people, alike within villages."""
    rng = np.random.default_rng(1)
    village = np.repeat(np.arange(40), 15)
    age, income = rng.uniform(20, 70, 600), rng.lognormal(0.0, 0.5, 600)
    treated = (rng.random(600) < _logistic(0.5 * rng.normal(size=40)[village])) * 1
    index = -0.4 + 0.8 * treated + 0.03 * (age - 45) - 0.3 * income
    well = _coin(rng, index + 0.6 * rng.normal(size=40)[village])
    return {"village": village, "treated": treated, "age": age, "income": income, "well": well}


def doses():
    """Deaths of 240 insects at six log doses."""
    rng = np.random.default_rng(2)
    dose = np.repeat(np.linspace(-1.0, 1.5, 6), 40)
    return {"dose": dose, "died": _coin(rng, -0.8 + 2.2 * dose)}


def rents():
    """Rents of 500 flats whose spread grows with their size."""
    rng = np.random.default_rng(4)
    size = rng.uniform(20.0, 120.0, 500)
    return {"size": size, "rent": simulated_rents(rng, size)}


def simulated_rents(rng, size):
    """Rents of flats of given sizes: the law whose median has slope 8."""
    return 200 + 8 * size + (40 + size) * rng.standard_t(4, len(size))


def events():
    """Events in 250 lives under observation, with more spread than Poisson's."""
    rng = np.random.default_rng(5)
    age, smoker = rng.uniform(30, 80, 250), (rng.random(250) < 0.4) * 1
    years = rng.uniform(1.0, 10.0, 250)
    rate = np.exp(-3.0 + 0.03 * (age - 50) + 0.5 * smoker) * rng.gamma(2.0, 0.5, 250)
    return {"age": age, "smoker": smoker, "years": years, "events": rng.poisson(rate * years)}


def growth():
    """Heights on 40 days along Gompertz's curve."""
    rng = np.random.default_rng(6)
    day = np.linspace(1.0, 60.0, 40)
    curve = 30 * np.exp(-4 * np.exp(-0.09 * day))
    return {"day": day, "height": curve + rng.normal(0.0, 1.0, 40)}


def lifetimes():
    """Weibull lifetimes of 120 parts, the test ended after 15."""
    rng = np.random.default_rng(7)
    life = 10 * rng.weibull(1.6, 120)
    return {"time": np.minimum(life, 15.0), "failed": (life < 15.0) * 1}


def classes():
    """Three classes in the plane: 150 rows to train on, 100 held out."""
    rng = np.random.default_rng(8)
    x1, x2 = rng.normal(size=(2, 250))
    scores = np.column_stack([1.5 * x1, 1.5 * np.sin(2 * x2), x1 * x2]) + rng.gumbel(size=(250, 3))
    held_out = (np.arange(250) >= 150) * 1
    return {"x1": x1, "x2": x2, "label": scores.argmax(axis=1), "held_out": held_out}


def trial():
    """Treatment by choice: 500 people, two reasons, and what they gained."""
    rng = np.random.default_rng(10)
    age, risk = rng.normal(size=(2, 500))
    treated = _coin(rng, -0.2 + 0.6 * age - 0.5 * risk)
    gain = 1.0 + 0.8 * treated + age - 0.7 * risk + rng.normal(size=500)
    return {"age": age, "risk": risk, "treated": treated, "gain": gain}


MADE = (villages, doses, rents, events, growth, lifetimes, classes, trial)
OF = {
    1: "villages", 2: "doses", 3: "villages", 4: "rents", 5: "events",
    6: "growth", 7: "lifetimes", 8: "classes", 9: "classes", 10: "trial",
}  # fmt: skip


class Network(NamedTuple):
    """A trained module with its training and held-out rows, as tensors."""

    net: Any
    X: Any
    y: Any
    X_held: Any
    y_held: Any


def read(question):
    """Read what a question is about: a table, or the network."""
    return network() if OF[question] == "classes" else load(question)


def load(question):
    """Read the table of a question."""
    import pandas as pd

    return pd.read_csv(FOLDER / f"{OF[question]}.csv")


def weights():
    """Read the weights of the trained network, as lists."""
    return json.loads((FOLDER / "network.json").read_text())


def network():
    """Make the trained network as a torch module, and its data as tensors."""
    import torch

    net = _untrained()
    state = {name: torch.tensor(w, dtype=torch.float64) for name, w in weights().items()}
    net.load_state_dict(state)
    return Network(net, *_tensors(load(8)))


def train():
    """Train the network to its maximum, by L-BFGS and Newton's steps; return its weights."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    torch.manual_seed(0)
    net, (X, y, _, _) = _untrained(), _tensors(load(8))
    optimizer = torch.optim.LBFGS(
        net.parameters(),
        max_iter=20_000,
        tolerance_grad=1e-12,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def objective(theta):
        state = dict(zip(shapes, theta.split([s.numel() for s in shapes.values()]), strict=True))
        state = {name: part.view(shapes[name]) for name, part in state.items()}
        logits = torch.func.functional_call(net, state, (X,))
        return cross_entropy(logits, y, reduction="sum") + L2 / 2 * theta.square().sum()

    def closure():
        optimizer.zero_grad()
        loss = objective(parameters_to_vector(net.parameters()))
        loss.backward()
        return loss

    shapes = {name: p.shape for name, p in net.named_parameters()}
    optimizer.step(closure)
    theta = parameters_to_vector(net.parameters()).detach()
    for _ in range(3):
        slope = torch.func.grad(objective)(theta)
        theta = theta - torch.linalg.solve(torch.func.hessian(objective)(theta), slope)
    vector_to_parameters(theta, net.parameters())
    return {name: w.tolist() for name, w in net.state_dict().items()}


def main():
    import pandas as pd

    FOLDER.mkdir(exist_ok=True)
    for make in MADE:
        pd.DataFrame(make()).to_csv(FOLDER / f"{make.__name__}.csv", index=False)
    (FOLDER / "network.json").write_text(json.dumps(train(), indent=1) + "\n")


def _untrained():
    from torch import nn

    return nn.Sequential(nn.Linear(2, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES)).double()


def _tensors(table):
    import torch

    X, y = torch.tensor(table[["x1", "x2"]].to_numpy()), torch.tensor(table["label"].to_numpy())
    held = torch.tensor(table["held_out"].to_numpy() == 1)
    return X[~held], y[~held], X[held], y[held]


def _coin(rng, index):
    return (rng.random(len(index)) < _logistic(index)) * 1


def _logistic(x):
    return 1 / (1 + np.exp(-x))


if __name__ == "__main__":
    main()

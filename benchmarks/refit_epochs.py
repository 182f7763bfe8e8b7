"""Variance that `refit` finds after short training runs, over the exact one, and its warnings.

Ten small networks, trained well and then for 30 or 120 epochs more with a bonus; the exact variance
is that of `infer` at the maximum. The figures are in docs/trust/index.md. About two minutes.
"""

import copy
import warnings

import numpy as np

import implicit_delta as idm

ROWS, DECAY, SEEDS, EPOCHS = 300, 1e-3, 5, (30, 120)


def main() -> None:
    """Print a line for each optimizer, psi and number of epochs."""
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    print(f"{'optimizer':8}{'psi':8}{'epochs':>7}  variance over the exact one (* is warned about)")
    for optimizer in ("Adam", "SGD"):
        for psi in ("average", "single"):
            for epochs in EPOCHS:
                found = [ratio(seed, optimizer, psi, epochs) for seed in range(SEEDS)]
                print(f"{optimizer:8}{psi:8}{epochs:7}  {'  '.join(found)}", flush=True)


def ratio(seed: int, optimizer: str, name: str, epochs: int) -> str:
    """Format the ratio, with a star if a `DriftWarning` came."""
    import torch

    torch.manual_seed(seed)
    x, new = torch.randn(ROWS, 3), torch.randn(100, 3)
    y = (x[:, 0] - x[:, 1] * x[:, 2] + torch.randn(ROWS) > 0).double()
    net = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    good = trained(net, x, y, 200, "Adam", lambda net: 0.0)
    average = lambda net: torch.sigmoid(net(new)).mean()
    psi = {"average": average, "single": lambda net: torch.sigmoid(net(new[:1])).squeeze()}[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = idm.polish(idm.from_torch(good, (x, y), idm.Bernoulli(), l2=ROWS * DECAY))
        exact = idm.infer(model, psi, strict=False).standard_error
        caught.clear()
        found = idm.refit(lambda bonus: trained(good, x, y, epochs, optimizer, bonus), psi)
    star = "*" if any(issubclass(w.category, idm.DriftWarning) for w in caught) else " "
    return f"{np.square(found.standard_error / exact):.2f}{star}"


def trained(start, x, y, epochs, optimizer, bonus):
    """Train on minibatches of 100: Adam with a cosine schedule, or SGD at a constant rate."""
    import torch

    net, batches = copy.deepcopy(start), torch.Generator().manual_seed(1)
    adam = optimizer == "Adam"
    steps = (torch.optim.Adam if adam else torch.optim.SGD)(net.parameters(), 0.01 if adam else 0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(steps, epochs) if adam else None
    for _ in range(epochs):
        for rows in torch.randperm(ROWS, generator=batches).split(100):
            steps.zero_grad()
            penalty = DECAY / 2 * sum(p.square().sum() for p in net.parameters())
            logits = net(x[rows]).squeeze(1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, y[rows]) + penalty
            (loss - bonus(net) / ROWS).backward()
            steps.step()
        if schedule is not None:
            schedule.step()
    return net


if __name__ == "__main__":
    main()

"""A program of two ranks, run by test_torch_distributed.py: the name of its part is the argument.

Every rank prints one line of JSON: what it found.
"""

import json
import os
import signal
import sys
import time
import warnings

import numpy as np
import torch
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    TensorDataset,
)

import implicit_delta as idm
from implicit_delta.models.processes import processes_of

N, CUT = 91, 60
rng = np.random.default_rng(8)
X = torch.tensor(rng.normal(size=(N, 2)))
Y = torch.tensor(rng.random(N) < 1 / (1 + np.exp(-X[:, 0].numpy()))).double()[:, None]
VALUES = X @ torch.tensor([[1.0], [-0.5]]).double() + torch.tensor(rng.normal(size=(N, 1)))
WEIGHTS = rng.integers(1, 4, N)
VILLAGE = np.array([f"village {i}" for i in rng.integers(0, 15, N)])
YEAR = rng.integers(0, 9, N)
RANK = int(os.environ.get("RANK", "0"))  # set by torchrun
OWN = slice(0, CUT) if RANK == 0 else slice(CUT, N)


def line():
    net = nn.Linear(2, 1).double()
    with torch.no_grad():
        net.weight[:], net.bias[:] = 0.1, 0.0
    return net


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()


def lasso(module):
    return 0.5 * torch.sqrt(module.weight**2 + 1).sum()


def probabilities(module):
    return torch.sigmoid(module(X[:2]))[:, 0]


def slope(module):
    return module.weight[0, 0] ** 2


def losses(module, data):
    x, y = data
    return nn.functional.binary_cross_entropy_with_logits(module(x), y, reduction="none")[:, 0]


def losses_of_all(module):
    return losses(module, (X, Y))


def losses_of_rank(module, data):
    """Losses of a loader of the rows of a rank."""
    return torch.cat([losses(module, batch) for batch in data])


def spread(units, weight):
    center = np.average(units, weights=weight)
    return float(np.sqrt(np.average((units - center) ** 2, weights=weight)))


class Rows(Dataset):
    """A dataset that is no tensor."""

    def __len__(self):
        return N

    def __getitem__(self, i):
        return X[i], Y[i]


def loader(dataset=None, **options):
    dataset = dataset or TensorDataset(X, Y)
    return DataLoader(dataset, 16, sampler=DistributedSampler(dataset, **options))


def answer(estimate):
    return [np.ravel(estimate.value).tolist(), np.ravel(estimate.standard_error).tolist()]


def sent_by_product(model):
    traffic = processes_of(model).traffic
    before = traffic.sent
    model.information(np.asarray(model.theta), np.ones(3))
    return traffic.sent - before


def pair(net, y=Y, likelihood=None, finish=True, **options):
    """Make the model of one process, and that of all."""
    likelihood = likelihood or idm.Bernoulli()
    one = idm.from_torch(net, (X, y), likelihood, **options)
    if "weights" in options:
        options["weights"] = options["weights"][OWN]
    many = idm.from_torch(
        net, (X[OWN], y[OWN]), likelihood, group=distributed.group.WORLD, **options
    )
    return [idm.polish(model) for model in (one, many)] if finish else [one, many]


def equal():
    """Put every question to one process and to two."""
    found = {}
    one, many = pair(line(), l2=1.0, penalty=lasso)
    found["polish"] = [answer(idm.infer(m, idm.parameters)) for m in (one, many)]
    rows = [lambda h: lambda module: h(module, (X, Y)), idm.on_shards]
    # one process, two; of the second argument the rows of this rank
    questions = {
        "plain": lambda m, on, own: idm.infer(m, probabilities),
        "ggn": lambda m, on, own: idm.infer(m, slope, idm.Infinitesimal(curvature="ggn")),
        "iterative": lambda m, on, own: idm.infer(
            m, slope, idm.Infinitesimal(solver=idm.conjugate_gradient(rtol=1e-12))
        ),
        "robust": lambda m, on, own: idm.infer(m, probabilities, robust=True),
        "HC3": lambda m, on, own: idm.infer(m, slope, robust="HC3"),
        "clusters": lambda m, on, own: idm.infer(m, slope, clusters=VILLAGE[own]),
        "two ways": lambda m, on, own: idm.infer(m, slope, clusters=(VILLAGE[own], YEAR[own])),
        "average": lambda m, on, own: idm.infer(m, idm.Average(lambda net: net(X[:40])[:, 0])),
        "average of training rows": lambda m, on, own: idm.infer(
            m, idm.Average(on(losses), sample="training")
        ),
        "statistic": lambda m, on, own: idm.infer(m, idm.Statistic(on(losses), spread, "training")),
        "simulation": lambda m, on, own: idm.infer(m, slope, idm.Simulation(50, rng=0)),
        "smoothed": lambda m, on, own: idm.infer(m, idm.Smoothed(slope, draws=400, rng=0)),
        "bootstrap": lambda m, on, own: idm.infer(m, slope, idm.Bootstrap(8, rng=0)),
        "difference": lambda m, on, own: idm.infer(m, slope, idm.FiniteDifference()),
        "stochastic": lambda m, on, own: idm.infer(
            m,
            slope,
            idm.StochasticFiniteDifference(1.0, 0.05, batch_size=20, steps=20, samples=2, rng=0),
        ),
    }
    for name, ask in questions.items():
        found[name] = [
            answer(ask(m, on, own))
            for m, on, own in zip((one, many), rows, (slice(None), OWN), strict=True)
        ]
    strong = [idm.infer(m, slope, influence=m is one).top_influence(4) for m in (one, many)]
    found["strongest rows"] = [[np.ravel(s.row).tolist()] for s in strong]
    groups = idm.Average(losses_of_all, "training", by=YEAR)
    own_groups = idm.Average(idm.on_shards(losses), "training", by=YEAR[OWN])
    found["groups of training rows"] = [
        answer(idm.infer(m, psi)) for m, psi in ((one, groups), (many, own_groups))
    ]
    villages = idm.Average(losses_of_all, clusters=VILLAGE)
    own_villages = idm.Average(idm.on_shards(losses), clusters=VILLAGE[OWN])
    found["clusters of an average"] = [
        answer(idm.infer(m, psi)) for m, psi in ((one, villages), (many, own_villages))
    ]
    ends = [idm.profile(m, slope).interval for m in (one, many)]
    found["profile"] = [[[end.low], [end.high]] for end in ends]
    for name, options in {
        "weights": {"weights": WEIGHTS},
        "sampling": {"weights": WEIGHTS / 1.5, "weight_kind": "sampling"},
    }.items():
        found[name] = [answer(idm.infer(m, slope)) for m in pair(line(), l2=1.0, **options)]
    gauss = pair(line(), VALUES, idm.Gaussian())
    found["gaussian"] = [answer(idm.infer(m, slope)) for m in gauss]
    stopped = pair(network(), VALUES, idm.Gaussian(1.0), False, l2="evidence")
    found["evidence"] = [answer(idm.infer(m, lambda net: net(X[:1])[0, 0])) for m in stopped]
    for name, data in {
        "sampler": loader(),
        "shuffled": loader(shuffle=True, seed=3),
        "examples": loader(Rows(), shuffle=False),
        "batch sampler": DataLoader(
            Rows(), batch_sampler=BatchSampler(DistributedSampler(Rows()), 16, False)
        ),
    }.items():
        model = idm.from_torch(
            nn.parallel.DistributedDataParallel(one.module),
            data,
            idm.Bernoulli(),
            l2=1.0,
            penalty=lasso,
            group=distributed.group.WORLD,
        )
        found[name] = [answer(idm.infer(m, slope)) for m in (one, model)]
        advised = idm.Average(idm.on_shards(losses_of_rank), "training")
        found[f"{name}, average"] = [
            answer(idm.infer(one, idm.Average(losses_of_all, "training"))),
            answer(idm.infer(model, advised)),
        ]
        found[f"{name}: rows of the dataset"] = [strong[0].row.tolist(), *labels_of(model)]
    found["rows of ranks"] = labels_of(many)
    alone = [distributed.new_group([rank]) for rank in (0, 1)][RANK]
    whole = TensorDataset(X, Y)
    every = DataLoader(whole, 16, sampler=DistributedSampler(whole, 1, 0))
    single = idm.from_torch(one.module, every, idm.Bernoulli(), l2=1.0, penalty=lasso, group=alone)
    of_order = {
        "one rank, residuals": (idm.Average(residuals, sample="training"), {}),
        "one rank, series": (slope, {"robust": idm.HAC(2)}),
    }
    for name, (psi, options) in of_order.items():
        found[name] = [answer(idm.infer(m, psi, **options)) for m in (one, single)]
    found["rows of one rank"] = idm.infer(single, slope).top_influence(4).label
    normal = nn.Sequential(nn.BatchNorm1d(2, affine=False), nn.Linear(2, 1)).double()
    with torch.no_grad():
        normal[1].weight[:], normal[1].bias[:] = 0.1, 0.0
        normal[0].running_mean += 0.2
    first = idm.from_torch(normal, (X, Y), idm.Bernoulli(), l2=1.0)
    normal[0].running_mean += 0.1 * RANK  # as training leaves it on each rank
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        every = idm.from_torch(
            normal, (X[OWN], Y[OWN]), idm.Bernoulli(), l2=1.0, group=distributed.group.WORLD
        )
    found["running averages told"] = [str(w.message) for w in caught]
    found["running averages"] = [
        answer(idm.infer(idm.polish(m), lambda net: net[1].weight[0, 0])) for m in (first, every)
    ]
    notes = idm.infer(many, slope).diagnostics.notes
    found["notes"] = {key: notes[key] for key in ("shards", "sent", "received")}
    found["n"] = [one.n, many.n]
    few = X[OWN][:9], Y[OWN][:9]
    fewer = idm.from_torch(line(), few, idm.Bernoulli(), l2=1.0, group=distributed.group.WORLD)
    found["of a product"] = [sent_by_product(m) for m in (many, fewer)]
    wide = idm.infer(many, lambda net: slope(net))
    found["again"] = wide.diagnostics.notes["sent"] == notes["sent"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        idm.infer(many, lambda net: torch.sigmoid(9 * net.weight[0, 0]))
    found["told"] = sum(issubclass(w.category, idm.NonlinearityWarning) for w in caught)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        idm.infer(one, lambda net: torch.sigmoid(9 * net.weight[0, 0]))
        idm.from_torch(line(), (X, Y), idm.Bernoulli(), weights=WEIGHTS / 1.5)
    found["told of own models"] = len(caught)
    plain = idm.from_torch(line(), (X[OWN], Y[OWN]), idm.Bernoulli(), group=distributed.group.WORLD)
    if RANK == 0:
        found["printed"] = [str(plain), repr(plain), str(wide), wide.summary(), str(plain.module)]
    else:
        found["printed"] = []
    free = [idm.infer(many, slope, m) for m in (idm.Simulation(20), idm.Bootstrap(4))]
    free.append(idm.infer(many, idm.Smoothed(slope, draws=100)))
    own_stream = idm.Simulation(20, rng=np.random.default_rng(RANK))
    free.append(idm.infer(many, slope, own_stream))
    found["unseeded"] = [answer(estimate) for estimate in free]
    return found


def labels_of(model):
    """Labels of the strongest rows, of sums and of all influences."""
    each = [idm.infer(model, slope, influence=kept) for kept in (False, True)]
    return [list(estimate.top_influence(4).label) for estimate in each]


def residuals(module):
    """Take all rows in the order of the dataset."""
    return (Y - torch.sigmoid(module(X)))[:, 0]


def raising(module, batch):
    if RANK == 1:
        raise KeyError("a column of rank 1")
    return -((batch[1] - module(batch[0])) ** 2)[:, 0]


def later(module, batch):
    """Raise on rank 1 away from the trained parameters alone."""
    if RANK == 1 and float(module.weight[0, 0]) != float(line().weight[0, 0]):
        raise KeyError("on the way")
    return -((batch[1] - module(batch[0])) ** 2)[:, 0] / 2


def faults():
    """Make mistakes one after the other: each is an error on both ranks, and the group goes on."""
    _, many = pair(line(), l2=1.0)
    group = distributed.group.WORLD
    one_net = line()
    if RANK == 1:
        with torch.no_grad():
            one_net.weight += 0.1
    frozen = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)).double()
    for part in frozen:
        for p in part.parameters():
            nn.init.constant_(p, 0.1 + RANK * (part is frozen[0]))
    frozen[0].requires_grad_(False)
    broken = VALUES.clone()
    broken[70] = torch.nan

    def of(data, likelihood=None, net=None, **options):
        return idm.from_torch(
            net or line(), data, likelihood or idm.Bernoulli(), group=group, **options
        )

    own = X[OWN], Y[OWN]
    strided = idm.polish(of(loader(), l2=1.0))

    def nested(module):
        return many.objective(many.theta) * module.weight[0, 0]

    def outside(module):
        raise ZeroDivisionError("in psi") if RANK == 0 else AssertionError("psi on rank 1")

    mistakes = {
        "loglik": lambda: of(own, raising),
        "on the way": lambda: idm.polish(of(own, later)),
        "nan": lambda: of((X[OWN], broken[OWN]), idm.Gaussian(1.0)),
        "empty": lambda: of((X[:CUT] if RANK == 0 else X[:0], Y[OWN] if RANK == 0 else Y[:0])),
        "same rows": lambda: of((X, Y)),
        "same rows, flipped": lambda: of((X.flip(0), Y.flip(0)) if RANK else (X, Y)),
        "other parameters": lambda: of(own, net=one_net),
        "other frozen part": lambda: of(own, net=frozen),
        "other size": lambda: of(
            (X[OWN, : RANK + 1], Y[OWN]), net=nn.Linear(RANK + 1, 1).double()
        ),
        "other l2": lambda: of(own, l2=1.0 + RANK),
        "other dtype": lambda: of(own, dtype=torch.float32 if RANK else torch.float64),
        "other likelihood": lambda: of(own, idm.Gaussian(1.0) if RANK else idm.Bernoulli()),
        "weights": lambda: of(own, weights=WEIGHTS),
        "labels": lambda: idm.infer(many, slope, clusters=VILLAGE),
        "psi": lambda: idm.infer(many, outside),
        "psi asks the model": lambda: idm.infer(many, nested),
        "rows of rank 0": lambda: idm.infer(
            many, idm.Average(lambda module: losses(module, own), sample="training")
        ),
        "order of the dataset": lambda: idm.infer(
            strided, idm.Average(residuals, sample="training")
        ),
        "order of the dataset, whole parts": lambda: idm.infer(
            many, idm.Average(residuals, sample="training")
        ),
        "order of the dataset, groups": lambda: idm.infer(
            strided, idm.Average(residuals, sample="training", by=YEAR)
        ),
        "order of the dataset, smoothed": lambda: idm.infer(
            strided, idm.Smoothed(idm.Average(residuals, sample="training"), rng=0)
        ),
        "order of the dataset, statistic": lambda: idm.infer(
            strided, idm.Statistic(residuals, spread, sample="training")
        ),
        "order of the dataset, bootstrap": lambda: idm.infer(
            strided, idm.Average(residuals, sample="training"), idm.Bootstrap(4, rng=0)
        ),
        "groups of all rows": lambda: idm.infer(
            strided, idm.Average(idm.on_shards(losses_of_rank), by=YEAR)
        ),
        "clusters of all rows": lambda: idm.infer(
            strided, idm.Average(idm.on_shards(losses_of_rank), clusters=VILLAGE)
        ),
        "clusters of all rows, statistic": lambda: idm.infer(
            strided, idm.Statistic(idm.on_shards(losses_of_rank), spread, clusters=VILLAGE)
        ),
        "series": lambda: idm.infer(strided, slope, robust=idm.HAC(2)),
        "blocks": lambda: idm.infer(strided, slope, idm.Bootstrap(4, kind="blocks", rng=0)),
        "other theta": lambda: many.score(np.asarray(many.theta) + RANK),
        "other question": lambda: many.score(many.theta) if RANK else many.objective(many.theta),
        "jobs": lambda: idm.infer(many, slope, idm.Bootstrap(4, rng=0, n_jobs=2)),
        "sampler of others": lambda: of(loader(num_replicas=3, rank=RANK)),
        "no group": lambda: of(own) if group is None else idm.from_torch(
            line(), own, idm.Bernoulli(), group="WORLD"
        ),
    }  # fmt: skip
    found = {}
    for name, mistake in mistakes.items():
        try:
            mistake()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
        else:
            found[name] = "nothing"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        of(loader(drop_last=True))
        idm.from_torch(nn.parallel.DistributedDataParallel(line()), own, idm.Bernoulli())
    found["warnings"] = [str(w.message) for w in caught]
    sharded = fully_shard(line(), mesh=init_device_mesh("cpu", (2,)))
    try:
        of(own, net=sharded)
    except idm.UnsupportedModelError as error:
        found["fsdp"] = str(error)
    whole = line()
    whole.load_state_dict(
        get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True))
    )
    found["gathered"] = of(own, net=whole).n
    found["series in order"] = answer(idm.infer(many, slope, robust=idm.HAC(2)))
    found["series of one"] = answer(idm.infer(pair(line(), l2=1.0)[0], slope, robust=idm.HAC(2)))
    found["goes on"] = answer(idm.infer(many, slope))
    return found


def ended():
    """End a rank in the middle of a fit."""
    calls = []

    def loglik(module, batch):
        calls.append(0)
        if int(os.environ["ENDS"]) == RANK and len(calls) > 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return -((batch[1] - module(batch[0])) ** 2)[:, 0] / 2

    model = idm.from_torch(line(), (X[OWN], Y[OWN]), loglik, group=distributed.group.WORLD)
    return _survived(lambda: idm.infer(model, slope, idm.Bootstrap(50, rng=0), strict=False))


def absent():
    """Ask on rank 0 alone."""
    _, many = pair(line(), l2=1.0)
    if RANK == 1:
        time.sleep(5)
        return {}
    return _survived(lambda: idm.infer(many, slope))


def _survived(question):
    started = time.perf_counter()
    try:
        question()
    except RuntimeError as error:
        return {"error": str(error), "seconds": time.perf_counter() - started}
    return {}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    distributed.init_process_group("gloo")
    result = {"equal": equal, "faults": faults, "ended": ended, "absent": absent}[sys.argv[1]]()
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
    if sys.argv[1] in ("ended", "absent"):
        os._exit(0)  # the group is broken, and its end would wait
    distributed.destroy_process_group()

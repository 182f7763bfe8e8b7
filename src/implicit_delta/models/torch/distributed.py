"""A module whose rows are spread over the ranks of torch.distributed."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn
from torch.utils import data as loading
from torch.utils.data.distributed import DistributedSampler

from implicit_delta._core.warn import hush, warn
from implicit_delta.errors import ImplicitDeltaWarning, NotDeterministicWarning
from implicit_delta.likelihoods import Likelihood
from implicit_delta.models.module_checks import EVIDENCE, Options
from implicit_delta.models.sharded.distributed import Distributed, digest
from implicit_delta.models.sharded.model import ShardedModel
from implicit_delta.models.sharded.ranks import Ranks, ranks_of
from implicit_delta.models.sharded.shard import Shard
from implicit_delta.models.shards import SAME, model_over
from implicit_delta.models.torch.model import TorchModel, make

FEW = 10  # different terms: rows of so few kinds may be the same on two ranks by chance


@dataclass(frozen=True, eq=False, repr=False)
class TorchRanks(ShardedModel):
    """A module at the maximum of all ranks' rows; made by ``from_torch(..., group=)``."""

    @property
    def module(self) -> nn.Module:
        """A copy of the module with theta as its parameters, in eval mode."""
        assert isinstance(self.engine, Distributed)
        own = self.engine.own
        assert isinstance(own, Shard)
        assert isinstance(own.model, TorchModel)
        return own.model.at(np.array(self.theta)).module


def make_over(
    module: nn.Module, data: Any, likelihood: Any, options: Options, group: Any
) -> TorchRanks:
    """Make the model of the rows of all ranks; see `from_torch`."""
    ranks = ranks_of(group)
    hush(ranks.rank > 0)
    by_evidence = options.l2 == EVIDENCE
    own = replace(options, l2=0.0) if by_evidence else options

    def build() -> Shard:
        rows = rows_of(data, ranks)
        return Shard(make(module, rows, likelihood, own), rows, f"rank {ranks.rank}")

    engine = Distributed.of(ranks, build)
    _check_likelihoods(ranks, likelihood)
    _check_thetas(engine)
    _check_rows(engine)
    model = model_over(engine, TorchRanks)
    model = model.tethered() if by_evidence else model
    assert isinstance(model, TorchRanks)
    return model


def rows_of(data: Any, ranks: Ranks) -> Any:
    """Take the rows of a rank out of a loader with a DistributedSampler, each once."""
    sampler = _sampler(data)
    if sampler is None:
        return data
    if (sampler.num_replicas, sampler.rank) != (ranks.count, ranks.rank):
        raise ValueError(
            f"The DistributedSampler is for rank {sampler.rank} of {sampler.num_replicas}, and "
            f"this is rank {ranks.rank} of {ranks.count} of the group: make it without "
            "`num_replicas=` and `rank=`, or give the group that it is for."
        )
    size = len(sampler.dataset)  # type: ignore[arg-type]
    if (sampler.drop_last or data.drop_last) and ranks.rank == 0:
        warn(
            f"The loader drops some of {size} rows in every epoch (drop_last=True). Here every row "
            "of its dataset counts once, which is right if it was shuffled in training. If not, "
            "give every rank a `torch.utils.data.Subset` of the rows that were used.",
            NotDeterministicWarning,
        )
    return loading.DataLoader(
        _every(data.dataset, ranks.rank, ranks.count, size),
        batch_size=data.batch_size,
        collate_fn=data.collate_fn,
    )


def _sampler(data: Any) -> "DistributedSampler[Any] | None":
    if not isinstance(data, loading.DataLoader):
        return None
    found = (data.sampler, getattr(data.batch_sampler, "sampler", None))
    return next((one for one in found if isinstance(one, DistributedSampler)), None)


def _every(dataset: Any, rank: int, count: int, size: int) -> Any:
    """Take every row whose number leaves this rank: as the sampler, but none twice."""
    if isinstance(dataset, loading.TensorDataset):
        return loading.TensorDataset(*(tensor[rank::count] for tensor in dataset.tensors))
    return loading.Subset(dataset, range(rank, size, count))


def theta_of(shard: Shard) -> Any:
    """Return the parameters of a rank."""
    return np.asarray(shard.model.theta)


def print_of(shard: Shard) -> tuple[int, int, int]:
    """Reduce the terms of the rows of a rank to a number; with their number, and of how many."""
    terms = shard.model.terms(np.asarray(shard.model.theta))
    return digest([terms, shard.model.weights], 0), terms.size, np.unique(terms).size


def _check_likelihoods(ranks: Ranks, likelihood: Any) -> None:
    """Refuse likelihoods that differ between ranks, by their names."""
    own = likelihood if isinstance(likelihood, Likelihood) else type(likelihood)
    found = ranks.gathered(str(getattr(likelihood, "__qualname__", own)), "the likelihood")
    if len(set(found)) > 1:
        raise ValueError(f"The ranks have different likelihoods, {', '.join(found)}: give one.")


def _check_thetas(engine: Distributed) -> None:
    """Refuse modules that differ between ranks."""
    first, *others = engine.each(theta_of)
    for rank, other in enumerate(others, 1):
        if other.shape != first.shape:
            continue  # `model_over` names what is not alike
        gap = float(np.max(abs(first - other) / np.maximum(abs(first), 1e-3)))
        if gap > SAME:
            raise ValueError(
                f"The parameters of the module on rank {rank} differ from those on rank 0, by up "
                f"to {gap:.2g} of their size. All ranks need the same trained module: load one "
                "file on all, or train it with DistributedDataParallel, which keeps them alike."
            )


def _check_rows(engine: Distributed) -> None:
    """Refuse the same rows on two ranks: they would count twice."""
    seen: dict[Any, int] = {}
    for rank, (found, n, kinds) in enumerate(engine.each(print_of)):
        if (found, n) not in seen:
            seen[found, n] = rank
            continue
        text = (
            f"Ranks {seen[found, n]} and {rank} have the same {n} rows, which would count twice. "
            "With group= every rank brings its own: give the DataLoader a `DistributedSampler("
            "dataset)`, or each rank its part, `(X[rank::world], y[rank::world])`."
        )
        if kinds > FEW:
            raise ValueError(text)
        warn(text + " If they are other rows that happen to look alike, all is well.",
             ImplicitDeltaWarning)  # fmt: skip

"""A module whose rows are spread over the ranks of torch.distributed."""

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import data as loading
from torch.utils.data.distributed import DistributedSampler

from implicit_delta.core.warn import follow, warn
from implicit_delta.errors import ImplicitDeltaWarning, NotDeterministicWarning
from implicit_delta.likelihoods import Likelihood
from implicit_delta.models.early_stop import early_stopped
from implicit_delta.models.module_checks import EVIDENCE, Options
from implicit_delta.models.sharded.distributed import Distributed, digest
from implicit_delta.models.sharded.language import ShardLanguage
from implicit_delta.models.sharded.ranks import Ranks, ranks_of
from implicit_delta.models.sharded.rows import SumOver
from implicit_delta.models.sharded.shard import Shard
from implicit_delta.models.shards import SAME, model_over
from implicit_delta.models.torch.model import make
from implicit_delta.models.torch.wrappers import unwrapped

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel

MOST_LABELS = 10**6  # texts, of 60 MB; beyond, rows have a number alone


@dataclass(frozen=True, eq=False)
class RowsOfRanks:
    """Labels of rows, made when they are needed.

    The number of each row in the dataset, or its rank and its number there.
    """

    sizes: tuple[int, ...]
    strided: bool

    @cached_property
    def values(self) -> Any:
        ranks, n = len(self.sizes), sum(self.sizes)
        if self.strided:
            return np.concatenate([np.arange(rank, n, ranks) for rank in range(ranks)])
        each = enumerate(self.sizes)
        return np.array([f"rank {rank}, row {i}" for rank, size in each for i in range(size)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.values, dtype)

    def __len__(self) -> int:
        return sum(self.sizes)

    def __getitem__(self, row: Any) -> Any:
        return self.values[row]


@dataclass(frozen=True, eq=False)
class RankLanguage(ShardLanguage):
    """Psi gets the module of rank 0."""

    @property
    def module(self) -> nn.Module:
        """A copy of the module with the fitted parameters, in eval mode: on every rank."""
        assert isinstance(self.engine, Distributed)
        assert isinstance(self.engine.own, Shard)
        model: Any = self.engine.own.model
        module: nn.Module = model.module
        return module


def make_over(
    module: nn.Module, data: Any, likelihood: Any, options: Options, group: Any
) -> "FittedModel":
    """Make the model of the rows of all ranks; see `from_torch`."""
    ranks = ranks_of(group)
    if ranks.rank > 0:
        follow()
    by_evidence = options.l2 == EVIDENCE
    own = replace(options, l2=0.0) if by_evidence else options

    _check_likelihoods(ranks, likelihood)
    common = module_of(module, ranks)

    def build() -> Shard:
        rows = rows_of(data, ranks)
        return Shard(make(common, rows, likelihood, own), rows, f"rank {ranks.rank}")

    engine = Distributed.of(ranks, build)
    engine = replace(engine, strided=_is_strided(engine.own, data, ranks))
    model = model_over(engine)
    assert isinstance(model.rows, SumOver)
    assert isinstance(model.space.language, ShardLanguage)
    sizes = model.rows.sizes
    few = ranks.count > 1 and model.n <= MOST_LABELS
    labels = RowsOfRanks(sizes, engine.strided) if engine.strided or few else None
    space = replace(model.space, language=RankLanguage(model.space.language.engine))
    model = replace(model, space=space, facts=model.facts.with_host(labels=labels))
    return early_stopped(model) if by_evidence else model


def _is_strided(own: Any, data: Any, ranks: Ranks) -> bool:
    """Whether the rows are those of samplers: of every rank, and one for each example."""
    size = own.model.n if isinstance(own, Shard) else 0
    found = ranks.gathered((size, _sampler(data) is not None), "sampler")
    sizes = [n for n, _ in found]
    dealt = [len(range(rank, sum(sizes), ranks.count)) for rank in range(ranks.count)]
    return ranks.count > 1 and sizes == dealt and all(sampled for _, sampled in found)


def module_of(module: nn.Module, ranks: Ranks) -> nn.Module:
    """Take the module of rank 0 on all ranks, if they differ at all.

    Parameters must be alike. Running averages are not, after a training in which each rank went on
    with its own rows; what is saved and used is that of rank 0.
    """
    own = _state(module)
    prints = ranks.gathered(own if own is None else digest(map(_bytes, own.values()), 0), "module")
    if own is None or None in prints or len(set(prints)) == 1:
        return module
    first = ranks.from_first(own, "module")
    gaps = ranks.gathered(_gaps(own, first), "module")
    if None in gaps:  # other sizes, which `model_over` names
        return module
    parameters = {name for name, _ in unwrapped(module).named_parameters()}
    _check_gaps(gaps, parameters, ranks.rank == 0)
    common = copy.deepcopy(unwrapped(module))
    with torch.no_grad():
        for name, tensor in [*common.named_parameters(), *common.named_buffers()]:
            tensor.copy_(first[name])
    return common


def _check_gaps(gaps: list[dict[str, float]], parameters: set[str], rank_0: bool) -> None:
    """Refuse parameters that differ from those of rank 0; tell of buffers that do."""
    moved = [(rank, name, gap) for rank, own in enumerate(gaps) for name, gap in own.items()]
    moved = [found for found in moved if not found[2] <= SAME]
    for rank, name, gap in moved:
        if name in parameters:
            raise ValueError(
                f"The parameters of the module on rank {rank} differ from those on rank 0, {name} "
                f"by up to {gap:.2g} of its size. All ranks need the same trained module: load one "
                "file on all, or train it with DistributedDataParallel, which keeps them alike."
            )
    if moved and rank_0:
        warn(
            f"The ranks have different buffers, {moved[0][1]} first (running averages of "
            "BatchNorm, which each rank takes over its own rows): those of rank 0 are used on all.",
            ImplicitDeltaWarning,
        )


def _state(module: nn.Module) -> dict[str, Tensor] | None:
    """Copy parameters and buffers, unless they are refused in any case."""
    try:
        inner = unwrapped(module)
        named = [*inner.named_parameters(), *inner.named_buffers()]
        return {name: tensor.detach().cpu() for name, tensor in named}
    except Exception:  # no module, or one that is sharded or lazy: `make` tells
        return None


def _bytes(tensor: Tensor) -> Any:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()


def _gaps(own: dict[str, Tensor], first: dict[str, Tensor]) -> dict[str, float] | None:
    """Compare by name, relative to the size of each tensor."""
    if own.keys() != first.keys() or any(own[name].shape != first[name].shape for name in own):
        return None
    return {name: _gap(own[name].double(), first[name].double()) for name in own}


def _gap(own: Tensor, first: Tensor) -> float:
    if not own.numel():
        return 0.0
    return float((own - first).abs().max() / first.abs().max().clamp_min(1e-3))


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
    batch = getattr(data.batch_sampler, "batch_size", 0)
    cut = getattr(data.batch_sampler, "drop_last", False) and sampler.num_samples % batch
    if (cut or (sampler.drop_last and size % ranks.count)) and ranks.rank == 0:
        warn(
            f"The loader drops some of {size} rows in every epoch (drop_last=True). Here every row "
            "of its dataset counts once, which is right if it was shuffled in training. If not, "
            "give every rank a `torch.utils.data.Subset` of the rows that were used.",
            NotDeterministicWarning,
        )
    return loading.DataLoader(
        _every(data.dataset, ranks.rank, ranks.count, size),
        batch_size=getattr(data.batch_sampler, "batch_size", None),
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


def _check_likelihoods(ranks: Ranks, likelihood: Any) -> None:
    """Refuse likelihoods that differ between ranks, by their names."""
    own = likelihood if isinstance(likelihood, Likelihood) else type(likelihood)
    found = ranks.gathered(str(getattr(likelihood, "__qualname__", own)), "the likelihood")
    if len(set(found)) > 1:
        raise ValueError(f"The ranks have different likelihoods, {', '.join(found)}: give one.")

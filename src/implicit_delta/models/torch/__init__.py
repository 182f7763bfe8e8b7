"""PyTorch: any module, any loss that is a sum over observations."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from implicit_delta.core.optional import optional
from implicit_delta.core.types import Array, WeightKind
from implicit_delta.likelihoods import Likelihood
from implicit_delta.models.module_checks import Options
from implicit_delta.models.parts import Selection

if TYPE_CHECKING:
    import torch
    from torch import nn

    from implicit_delta.models.model import FittedModel


def from_torch(
    module: "nn.Module",
    data: Any,
    likelihood: "Likelihood | Callable[[nn.Module, Any], Any]",
    *,
    outputs: "Callable[[nn.Module, Any], Any] | None" = None,
    targets: Callable[[Any], Any] | None = None,
    parameters: Selection | None = None,
    start: Any = None,
    checkpoints: Iterable[Any] | None = None,
    replicates: Iterable[Any] | None = None,
    l2: float | Literal["evidence"] = 0.0,
    penalty: "Callable[[nn.Module], Any] | None" = None,
    batch_size: int | None = None,
    weights: Sequence[float] | Array | None = None,
    weight_kind: WeightKind = "frequency",
    dtype: "torch.dtype | str | None" = None,
    columns: Sequence[str] | None = None,
    group: Any = None,
) -> "FittedModel":
    r"""Make a fitted model of a trained torch module.

    The objective is :math:`L(\theta) = \sum_i w_i \ell_i(\theta) - \text{penalty}(\theta) -
    \tfrac{1}{2} \text{l2}\, |\theta|^2`, with theta all parameters that require a gradient. Give
    what was trained: a penalty left out shows up as drift. The module is copied and never
    changed; the copy is in eval mode, so dropout is off and BatchNorm uses its running averages.

    Parameters
    ----------
    module : torch.nn.Module
        Trained. Frozen parameters and buffers are taken as known; shared ones count once. Psi
        gets what is inside of `torch.compile`, DataParallel or DistributedDataParallel.
    data : tuple of tensors, Dataset, DataLoader or list of batches
        The training data, in any order, without random augmentation. Of a DataLoader its dataset
        is read in order; its shuffling, like its batch size, has no meaning here.
    likelihood : Likelihood or callable
        `Gaussian`, `Bernoulli`, `Categorical` or `Poisson` of the last tensor of a batch, given
        ``module(*others)``, unless `outputs` and `targets` are given; or a function
        ``loglik(module, batch)`` that returns the log-likelihood of each row of a batch, (b,),
        whatever its batches are made of.
    outputs : callable, optional
        ``outputs(module, batch)`` returns the outputs for a batch of any make, with a likelihood
        from the list: ``lambda m, b: m(**b).logits``.
    targets : callable, optional
        ``targets(batch)`` returns the targets of a batch: ``lambda b: b["labels"]``.
    parameters : str, pattern, list or callable, optional
        The parameters that inference is about, by name; all others are taken as known. The start
        of names (``"head"`` for ``head.weight`` and ``head.bias``), a pattern (``"*.bias"``, or a
        regular expression), a list of these, or a function of a name. The module's
        `requires_grad` is not touched; of those that are named, frozen ones count only if all are.
    start : state_dict, module or list of parameters, optional
        State that the training began with, *copied* before it: ``copy.deepcopy(net.state_dict())``,
        or the pretrained module. A training that stopped early is read as a ridge around it; if
        it is not known, around zero, which makes standard errors somewhat larger after a short
        training.
    checkpoints : list of state_dicts, modules or lists of parameters, optional
        States of the last steps or epochs of this training, three or more, evenly spaced and in
        their order, *copied* when they were made: ``copy.deepcopy(module.state_dict())``. What the
        last minibatches left in psi is then the line ``training`` of the budget; see
        `continue_training` and `averaged`.
    replicates : list of modules or state_dicts, optional
        Modules trained again on the same data from other initializations, two or more. The
        spread of psi over them is the line ``initialization`` of the budget, which has the noise of
        minibatches in it and takes the place of ``training``.
    l2 : float or "evidence"
        The penalty ``l2 / 2 * sum(theta ** 2)`` on the sum of the log-likelihoods. The
        `weight_decay` w of SGD or Adam, for a *mean* loss, is ``l2 = n * w``. That of AdamW is
        decoupled and stands for no l2: leave it out, or give "evidence", which takes
        the training for one that stopped early, and finds the ridge around `start` for itself.
    penalty : callable, optional
        A convex function of the module that was subtracted from the summed log-likelihood.
    batch_size : int, optional
        Rows at a time. By default as many as fit into 256 MB with their derivatives; it changes
        speed and memory, not the result.
    weights : (n,) array, optional
        How much each row counts.
    weight_kind : {"frequency", "precision", "sampling"}
        Repetitions of a row; one over its variance, up to a common factor (or the number of times
        that its term counts, of one observation); or the number of units of a population that it
        stands for, as in surveys, with the design-based variance by default.
    dtype : torch.dtype or str, optional
        Type of the copy and of the data: ``torch.float32`` or ``torch.float64``, or their names. By
        default float64 for modules on the CPU with at most a million parameters, frozen ones
        included, and the type of the module otherwise: derivatives in float32 are good to three or
        four digits. Float32 tensors in psi and in the module then meet float64 weights without an
        error. A module that raises an error in float64 stays in its type. The note ``precision`` of
        an estimate says which type was used. ``model.module`` has the types of the given module,
        or this one.
    columns : list of str, optional
        Names of the columns of the inputs, for data (X, y) with X of shape (n, p) and a likelihood
        from the list: questions such as ``average_comparison("dose")`` then work.
    group : torch.distributed.ProcessGroup, optional
        The processes that have the data, ``torch.distributed.group.WORLD`` under `torchrun`: every
        rank makes the same calls, with the same module and with *its own* rows, their `weights`
        and ``clusters=``; all get the same answer. A loader with a `DistributedSampler` gives
        rank r of R the rows r, r + R, ... of its dataset, none twice. Psi is evaluated on rank 0;
        ``Average(on_shards(h))`` evaluates ``h(module, data)`` on the data of every rank. `l2` and
        `penalty` are those of the whole and count once.

    Returns
    -------
    FittedModel
        Psi receives a module; ``model.module`` is one with the parameters of the model. Vectors
        are float64, but float32 for float32 modules of more than 5 million parameters.

    Examples
    --------
    >>> import torch
    >>> from implicit_delta import Gaussian, infer, polish
    >>> X, y = torch.arange(6.0)[:, None], torch.tensor([0.1, 0.9, 2.2, 2.9, 4.1, 5.0])
    >>> line = torch.nn.Linear(1, 1)
    >>> model = polish(from_torch(line, (X, y), Gaussian(0.01)))
    >>> slope = infer(model, lambda line: line.weight.squeeze())
    >>> round(slope.value, 6), round(slope.standard_error, 6)  # 0.1 / sqrt(17.5)
    (0.994286, 0.023905)
    """
    optional("torch", "from_torch")
    from implicit_delta.models.torch.model import make
    from implicit_delta.models.torch.wrappers import warn_alone

    options = Options(l2, penalty, batch_size, weights, weight_kind, dtype)
    options = replace(options, outputs=outputs, targets=targets, parameters=parameters)
    options = replace(options, start=start, checkpoints=checkpoints, replicates=replicates)
    options = replace(options, columns=columns)
    if group is not None:
        from implicit_delta.models.torch.distributed import make_over

        return make_over(module, data, likelihood, options, group)
    warn_alone(module)
    return make(module, data, likelihood, options)

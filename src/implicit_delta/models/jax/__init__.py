"""JAX: any pytree of parameters, any loss that is a sum over observations."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from implicit_delta.core.optional import optional
from implicit_delta.core.types import Array, WeightKind
from implicit_delta.likelihoods import Likelihood
from implicit_delta.models.module_checks import Options
from implicit_delta.models.parts import Selection

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel


def from_jax(
    params: Any,
    data: Any,
    likelihood: Likelihood | Callable[[Any, Any], Any],
    *,
    apply: Callable[..., Any] | None = None,
    outputs: Callable[[Any, Any], Any] | None = None,
    targets: Callable[[Any], Any] | None = None,
    parameters: Selection | None = None,
    start: Any = None,
    checkpoints: Iterable[Any] | None = None,
    replicates: Iterable[Any] | None = None,
    l2: float | Literal["evidence"] = 0.0,
    penalty: Callable[[Any], Any] | None = None,
    batch_size: int | None = None,
    weights: Sequence[float] | Array | None = None,
    weight_kind: WeightKind = "frequency",
    dtype: Any = None,
    columns: Sequence[str] | None = None,
) -> "FittedModel":
    r"""Make a fitted model of a trained pytree of parameters.

    The objective is :math:`L(\theta) = \sum_i w_i \ell_i(\theta) - \text{penalty}(\theta) -
    \tfrac{1}{2} \text{l2}\, |\theta|^2`, with theta all floating-point arrays in the pytree. Give
    what was trained: a penalty left out shows up as drift.

    Parameters
    ----------
    params : pytree
        Trained: nested dicts, Flax parameters, an Equinox module. Its other leaves (functions,
        integers, Python numbers) are settings that stay as they are. Parameters that are taken as
        known are left out of `params` and used by `apply` from outside, or not in `parameters`.
    data : tuple of arrays, another pytree of them, or a list of batches
        The training data, one row per observation in every array, without random augmentation.
    likelihood : Likelihood or callable
        `Gaussian`, `Bernoulli`, `Categorical` or `Poisson` of the last array in data, given
        ``apply(params, *others)``; or a function ``loglik(params, batch)`` that returns the
        log-likelihood of each row of a batch, (b,), where a batch has the structure of data.
        Either way traced by JAX, with dropout off and running averages in normalizations.
    apply : callable, optional
        ``apply(params, x)`` returns the outputs for a batch of inputs, with a likelihood from the
        list. Without it the pytree itself is called, ``params(x)``. A Flax module has it as
        ``net.apply``; an Equinox module takes one row, so it is
        ``lambda net, x: jax.vmap(net)(x)``. Of many models define `apply` once, outside of the
        loop: data of equal shapes compile once.
    outputs : callable, optional
        ``outputs(params, batch)`` returns the outputs for a batch of any make, with a likelihood
        from the list: ``lambda p, b: mlp(p, b["x"])``.
    targets : callable, optional
        ``targets(batch)`` returns the targets of a batch: ``lambda b: b["labels"]``.
    parameters : str, pattern, list or callable, optional
        The parameters that inference is about, by name; all others are taken as known. The start
        of names (``"head"`` for ``head.weight`` and ``head.bias``), a pattern (``"*.bias"``, or a
        regular expression), a list of these, or a function of a name. Names
        are paths, as in ``model.names``.
    start : pytree, optional
        Parameters that the training began with. A training that stopped early is read as a ridge
        around them; if they are not known, around zero.
    checkpoints : list of pytrees, optional
        States of the last steps or epochs of this training, three or more, evenly spaced and in
        their order. What the last minibatches left in psi is then the line ``training`` of the
        budget; see `continue_training` and `averaged`.
    replicates : list of pytrees, optional
        Parameters trained again on the same data from other initializations, two or more. The
        spread of psi over them is the line ``initialization`` of the budget, which has the noise of
        minibatches in it and takes the place of ``training``.
    l2 : float or "evidence"
        The penalty ``l2 / 2 * sum(theta ** 2)`` on the sum of the log-likelihoods. The weight
        decay w of an optimizer of a *mean* loss is ``l2 = n * w``, if it is not decoupled. With
        "evidence" the training is taken for one that stopped early, and the ridge around `start`
        is found.
    penalty : callable, optional
        A convex function of the pytree that was subtracted from the summed log-likelihood.
    batch_size : int, optional
        Rows at a time. By default as many as fit into 256 MB with their derivatives; it changes
        speed and memory, not the result.
    weights : (n,) array, optional
        How much each row counts.
    weight_kind : {"frequency", "precision", "sampling"}
        Repetitions of a row; one over its variance, up to a common factor (or the number of times
        that its term counts, of one observation); or the number of units of a population that it
        stands for, as in surveys, with the design-based variance by default.
    dtype : {"float32", "float64"}, optional
        Type of the copies of the parameters and of the data. By default float64 for models on the
        CPU with at most a million parameters, whether JAX is set to 64 bit or not, and as JAX is
        set otherwise: derivatives in float32 are good to three or four digits. A model that casts
        to float32 itself, or raises an error in float64, is used in float32. The note ``precision``
        of an estimate says which type was used. ``model.params`` is of this type, by default as
        JAX is set.
    columns : list of str, optional
        Names of the columns of the inputs, for data (X, y) with X of shape (n, p) and a likelihood
        from the list: questions such as ``average_comparison("dose")`` then work.

    Returns
    -------
    FittedModel
        Psi receives a pytree like `params`, and is not compiled unless it does so itself.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from implicit_delta import Gaussian, infer, polish
    >>> x, y = jnp.arange(6.0), jnp.array([0.1, 0.9, 2.2, 2.9, 4.1, 5.0])
    >>> start = {"constant": jnp.zeros(()), "slope": jnp.zeros(())}
    >>> line = lambda params, x: params["constant"] + params["slope"] * x
    >>> model = from_jax(start, (x, y), Gaussian(0.01), apply=line)
    >>> slope = infer(polish(model), lambda params: params["slope"])
    >>> round(slope.value, 6), round(slope.standard_error, 6)  # 0.1 / sqrt(17.5)
    (0.994286, 0.023905)
    """
    optional("jax", "from_jax")
    from implicit_delta.models.jax.model import make

    options = Options(l2, penalty, batch_size, weights, weight_kind, dtype)
    options = replace(options, outputs=outputs, targets=targets, parameters=parameters)
    options = replace(options, start=start, checkpoints=checkpoints, replicates=replicates)
    options = replace(options, columns=columns)
    return make(params, data, likelihood, apply, options)

"""Terms of a batch and their derivatives as compiled functions of the flat parameters.

Second derivatives are forward over reverse. A linearization kept between products would save the
forward pass: on a 36-50-6 network with 5148 rows that is a third of the time of a single product
and nothing of that of a block, for several times the memory, so none is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from implicit_delta.models.jax.module import Functional
from implicit_delta.models.jax.terms import Supervised, Written

Compiled: TypeAlias = Callable[..., jax.Array]


@dataclass(frozen=True, eq=False)
class Program:
    """What a model computes on one batch; compiled at the first call for each shape of a batch.

    Shared by all models that differ in theta and weights only.
    """

    functional: Functional
    row_terms: Supervised | Written
    penalty: Callable[[Any], Any] | None = None

    @cached_property
    def terms(self) -> Compiled:
        """Log-likelihood of each row: (d,) and a batch to (b,)."""
        return jax.jit(self.plain_terms)

    @cached_property
    def gradient(self) -> Compiled:
        """Gradient of the weighted sum of the terms, (d,)."""
        return jax.jit(jax.grad(self.weighted_sum))

    @cached_property
    def hessian(self) -> Compiled:
        """Minus the Hessian of the weighted sum times each row of (k, d)."""

        def product(flat: jax.Array, rows: jax.Array, batch: Any, weights: jax.Array) -> jax.Array:
            loss = lambda point: -self.weighted_sum(point, batch, weights)  # noqa: E731
            return _second_derivative(loss, flat, rows)

        return jax.jit(product)

    @cached_property
    def gauss_newton(self) -> Compiled:
        r""":math:`\sum_i w_i J_i' H_i J_i` times each row of (k, d): forwards, curve, backwards."""

        def product(flat: jax.Array, rows: jax.Array, batch: Any, weights: jax.Array) -> jax.Array:
            push = _derivative(lambda point: self.outputs(point, batch), flat)
            outputs, pull = jax.vjp(lambda point: self.outputs(point, batch), flat)
            curve = self._supervised.likelihood.curvature(outputs)
            columns = weights.reshape(-1, *[1] * (outputs.ndim - 1))
            products: jax.Array = jax.vmap(lambda v: pull(columns * curve(push(v)))[0])(rows)
            return products

        return jax.jit(product)

    @cached_property
    def factors(self) -> Compiled:
        r"""Rows U with U'U the same matrix: :math:`\sqrt{w_i} S_i' J_i` of each row i, (b C, d).

        One backward pass per output, instead of d products.
        """

        def factor(flat: jax.Array, inputs: Any, weight: jax.Array) -> jax.Array:
            single = jax.tree_util.tree_map(lambda x: x[None], inputs)
            value, pull = jax.vjp(lambda point: self.outputs(point, (*single, None))[0], flat)
            basis = jnp.eye(value.size, dtype=value.dtype).reshape(-1, *value.shape)
            root = self._supervised.likelihood.root(value)(basis).reshape(value.size, -1)
            (rows,) = jax.vmap(pull)(root.T.reshape(-1, *value.shape))
            scaled: jax.Array = jnp.sqrt(weight) * rows
            return scaled

        def factors(flat: jax.Array, batch: Any, weights: jax.Array) -> jax.Array:
            rows = jax.vmap(factor, (None, 0, 0))(flat, batch[:-1], weights)
            return rows.reshape(-1, flat.size)

        return jax.jit(factors)

    @cached_property
    def along(self) -> Compiled:
        """Derivative of each term along each row of (k, d), (k, b)."""

        def product(flat: jax.Array, rows: jax.Array, batch: Any) -> jax.Array:
            push = _derivative(lambda point: self.plain_terms(point, batch), flat)
            return jax.vmap(push)(rows)

        return jax.jit(product)

    @cached_property
    def penalty_value(self) -> Compiled:
        """The penalty, a number."""
        return jax.jit(self.plain_penalty)

    @cached_property
    def penalty_gradient(self) -> Compiled:
        """Gradient of the penalty, (d,)."""
        return jax.jit(jax.grad(self.plain_penalty))

    @cached_property
    def penalty_hessian(self) -> Compiled:
        """Hessian of the penalty times each row of (k, d)."""
        return jax.jit(lambda flat, rows: _second_derivative(self.plain_penalty, flat, rows))

    def plain_terms(self, flat: jax.Array, batch: Any) -> jax.Array:
        """Log-likelihood of each row, to be traced as a part of something else."""
        return self.row_terms(self.functional.tree(flat), batch)

    def weighted_sum(self, flat: jax.Array, batch: Any, weights: jax.Array) -> jax.Array:
        """Sum of the weighted terms."""
        return weights @ self.plain_terms(flat, batch)

    def outputs(self, flat: jax.Array, batch: Any) -> jax.Array:
        """What the model makes of the inputs, (b, ...)."""
        return self._supervised.outputs(self.functional.tree(flat), batch)

    def plain_penalty(self, flat: jax.Array) -> jax.Array:
        """The penalty, in the shape in which the user returned it."""
        assert self.penalty is not None
        return jnp.asarray(self.penalty(self.functional.tree(flat)))

    def __getstate__(self) -> dict[str, Any]:
        """Leave what was compiled in this process behind."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def _supervised(self) -> Supervised:
        assert isinstance(self.row_terms, Supervised)
        return self.row_terms


def _second_derivative(
    function: Callable[[jax.Array], jax.Array], flat: jax.Array, rows: jax.Array
) -> jax.Array:
    """The Hessian of a number times each row of (k, d)."""
    gradient = jax.grad(function)
    products: jax.Array = jax.vmap(lambda v: jax.jvp(gradient, (flat,), (v,))[1])(rows)
    return products


def _derivative(
    function: Callable[[jax.Array], jax.Array], flat: jax.Array
) -> Callable[[jax.Array], jax.Array]:
    """The derivative J of a function, as v to J v."""

    def forward(v: jax.Array) -> jax.Array:
        moved: jax.Array = jax.jvp(function, (flat,), (v,))[1]
        return moved

    try:
        jax.eval_shape(jax.vmap(forward), flat[None])  # alone, it would fail later
    except TypeError:
        # Some operation has a rule for reverse mode only (custom_vjp). J'u is linear in u: its
        # derivative, in reverse, is J v.
        value, pull = jax.vjp(function, flat)
        _, push = jax.vjp(lambda u: pull(u)[0], jnp.zeros_like(value))
        return lambda v: push(v)[0]
    return forward

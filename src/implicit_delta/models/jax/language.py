"""Language of a pytree: psi gets the parameters as they were given to `from_jax`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax import tree_util

from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.constraints import Chart
from implicit_delta.models.jax.evaluation import Evaluator
from implicit_delta.models.jax.module import JaxFunctional, is_parameter
from implicit_delta.models.jax.program import JaxProgram
from implicit_delta.models.jax.tangent import TangentFunctional
from implicit_delta.models.language import RestrictedLanguage
from implicit_delta.models.terms import SupervisedTerms


@dataclass(frozen=True, eq=False)
class JaxLanguage:
    """Psi gets a pytree.

    Attributes
    ----------
    program : JaxProgram
    theta : (d,) array
        The fitted parameters.
    evaluator : Evaluator
    """

    program: JaxProgram
    theta: Array
    evaluator: Evaluator

    @property
    def functional(self) -> JaxFunctional:
        """The pytree as a function of its flat parameters."""
        return self.program.functional

    @property
    def params(self) -> Any:
        """The pytree with the fitted parameters, in the type of `dtype=` or as JAX is set."""
        functional = self.functional
        with functional.context():
            pytree = functional.filled(functional.pieces(self.theta))
            return tree_util.tree_map(
                lambda a: a.astype(functional.own) if is_parameter(a) else a, pytree
            )

    def apply(self, params: Any, *inputs: Any) -> Any:
        """Return the outputs for inputs, by the function that was fitted.

        That is `apply`, or `outputs` with a batch as its only input. Psi should call it so: while
        draws are made in the tangent, it is the tangent's.
        """
        if not isinstance(self.program.row_terms, SupervisedTerms):
            raise UnsupportedModelError(
                "A loglik function of your own shows no outputs, so that there is nothing to "
                "apply: call your own function. With a likelihood such as `Categorical()` and "
                "`apply=` the outputs are known."
            )
        with self.functional.context():
            return self.program.apply(params, *inputs)

    def evaluate(self, psi: Psi, theta: Array) -> Any:
        with self.functional.context():
            return self.evaluator.value(psi, theta, np.array_equal(theta, self.theta))

    def jacobian(self, psi: Psi, theta: Array, units: Callable[[], Array]) -> Array:
        with self.functional.context():
            return self.evaluator.jacobian(psi, theta, np.array_equal(theta, self.theta))

    def evaluate_tangent(self, psi: Psi, theta: Array, delta: Array) -> Any:
        if isinstance(self.functional, TangentFunctional):
            return self.evaluate(psi, theta + delta)
        with self.functional.context():
            return self.evaluator.tangent(psi, theta, delta)

    def psi_warning(self, psi: Any) -> str:
        return ""

    def along(self, chart: Chart) -> RestrictedLanguage:
        return RestrictedLanguage(self, chart)

    def at(self, theta: Array) -> "JaxLanguage":
        return replace(self, theta=theta)

    def tangent(self, theta: Array) -> "JaxLanguage":
        program = self.program.tangent(theta)
        assert program is not None
        if program is self.program:
            return self.at(theta)
        assert isinstance(program.functional, TangentFunctional)
        evaluator = Evaluator(replace(program.functional, strict=True))
        return JaxLanguage(program, theta, evaluator)

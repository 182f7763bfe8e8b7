"""Watch for predictions with the fitted parameters inside psi: a constant, the usual mistake."""

from dataclasses import dataclass
from threading import get_ident
from typing import Any

import numpy as np

from implicit_delta.core.types import Array, Psi
from implicit_delta.errors import EvaluationError
from implicit_delta.models.statsmodels.constants import fitted_constants


@dataclass(frozen=True, eq=False)
class Watch:
    """The statsmodels model of a fit, whose `predict` is watched while psi is evaluated.

    Away from the fitted parameters a call with these very parameters is one of `results.predict`,
    `results.get_prediction` or ``results.model.predict(results.params, ...)``, which does not move
    with psi's argument. A pickled watch has no model, and sees nothing.
    """

    model: Any
    fitted: Array
    advice: str

    def call(self, psi: Psi, argument: Any, b: Array) -> Any:
        """Call psi with its argument, which is that of coefficients b, and watch."""
        own = getattr(self.model, "__dict__", {"predict": None})
        if "predict" in own or b.tobytes() == self.fitted.tobytes():
            return psi(argument)  # watched already (by another thread), or nothing to tell apart
        own["predict"] = _Watched(self, self.model.predict, get_ident())
        try:
            return psi(argument)
        finally:
            own.pop("predict", None)

    def doubt_of(self, psi: Any) -> str:
        """Describe fitted numbers inside psi, which do not move with its argument."""
        found = fitted_constants(psi, self.fitted)
        if not found:
            return ""
        return (
            f"psi uses {', '.join(found)}: numbers of the fit, which stay as they are while the "
            "parameters vary, so that their part of the error is missing. Write it with psi's own "
            f"argument, `{self.advice}` or `params['name']`; a constant that is meant is best "
            "computed before, `c = float(...)`."
        )

    def __reduce__(self) -> Any:
        return Watch, (None, self.fitted, self.advice)


@dataclass(frozen=True, eq=False)
class _Watched:
    watch: Watch
    predict: Any
    thread: int

    def __call__(self, params: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() == self.thread and self._constant(params):
            raise EvaluationError(
                "psi predicts with the fitted parameters, `results.predict(new)`, and not with the "
                "parameters that it is given: that is a constant, which has no error bar. Write "
                f"`{self.watch.advice}`."
            )
        return self.predict(params, *args, **kwargs)

    def _constant(self, params: Any) -> bool:
        try:
            given = np.asarray(params, dtype=np.float64).ravel(order="F")
        except (TypeError, ValueError):
            return False
        return np.array_equal(given, self.watch.fitted)

"""Watch for predictions with the fitted parameters inside psi: a constant, the usual mistake."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import numpy as np

from implicit_delta._core.types import Array
from implicit_delta.errors import EvaluationError


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

    @contextmanager
    def over(self, b: Array) -> Iterator[None]:
        """Watch while psi is evaluated at coefficients b."""
        own = getattr(self.model, "__dict__", {"predict": None})
        if "predict" in own or np.array_equal(b, self.fitted):
            yield  # watched already (by another thread), or nothing to tell apart
            return
        own["predict"] = _Watched(self, self.model.predict, get_ident())
        try:
            yield
        finally:
            own.pop("predict", None)

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

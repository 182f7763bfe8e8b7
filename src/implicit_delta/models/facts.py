"""Facts about a fit apart from its likelihood: data, not methods."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from implicit_delta.core.clusters import Clusters
from implicit_delta.core.labels import UNNAMED, NamedColumn
from implicit_delta.core.precision import DOUBLE, Precision
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.claimed import Claimed
from implicit_delta.models.prediction import Predictor

if TYPE_CHECKING:
    from implicit_delta.models.equation_roots import Hansen
    from implicit_delta.models.sources import Source
    from implicit_delta.models.starts import Optimum

Curvature: TypeAlias = Literal["hessian", "ggn"]
ScaleRule: TypeAlias = Literal["unbiased", "mle"]

UNFINISHED = (
    "Usual causes: training stopped early, or a penalty used in training was not given "
    "here. Use `polish(model)`, or give the `penalty=` or `l2=` that was used."
)
OTHER_FIT = (
    "Usual causes: an optimizer that stopped early (use `polish(model)`, or fit with a "
    "smaller tolerance and more iterations); a `sample_weight` of the fit that was not "
    "given here; a penalty of the fit that was not; another y or other rows than those of "
    "the fit, or its columns in another order."
)
OTHER_ROOT = "Give the parameters as `start=` instead of `theta=`, to have the root found."


@dataclass(frozen=True, eq=False)
class Training:
    """Training of a network.

    Attributes
    ----------
    start : (d,) array or None
        Where the training began, if that is known.
    no_start : str
        Why it is not.
    checkpoints : (c, d) array or None
        States of the last steps of the training that theta comes from, in their order.
    replicates : (r, d) array or None
        Where other trainings on the same data ended, from other initializations.
    before : (d,) array or None
        Where the training had ended, of a model that `polish` has made.
    frozen : int
        How many other parameters were trained, and are taken as known.
    effective : float
        Number of parameters that the data determine, where the training stopped early.
    by_library : bool
        Whether another library did it, so that rows and weights were given to both.
    """

    start: Array | None = None
    no_start: str = "start= is not given"
    checkpoints: Array | None = None
    replicates: Array | None = None
    before: Array | None = None
    frozen: int = 0
    effective: float = np.nan
    by_library: bool = False


@dataclass(frozen=True, eq=False)
class Host:
    """Facts from the library that has fitted the model.

    Attributes
    ----------
    labels : sequence or None
        Labels of the observations that were used: cluster labels and unit values that have an
        index are aligned with these.
    grouped : bool
        Whether the observations are groups of the host library's rows.
    response : NamedColumn
        The response, if it is a column of a data frame.
    covariance : Claimed or None
        The covariance that the fit states, if it is not the inverse information.
    clusters : Clusters or None
        Groups of rows that the fit takes for dependent.
    predictor : Predictor or None
        Reads tables and predicts, for questions such as `average_comparison`; None if it cannot.
    scale_rule : {"unbiased", "mle"} or None
        How the library has estimated a noise variance or a dispersion, which is a constant here
        but for another fit, as by `FittedModel.fix`.
    drift_causes : str
        Usual causes of parameters that are not at the maximum, and their remedies.
    """

    labels: Any = None
    grouped: bool = False
    response: NamedColumn = UNNAMED
    covariance: Claimed | None = None
    clusters: Clusters | None = None
    predictor: Predictor | None = None
    scale_rule: ScaleRule | None = None
    drift_causes: str = UNFINISHED


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts about a fit apart from its likelihood.

    Attributes
    ----------
    training : Training
        How a network was trained.
    host : Host
        What the library knows that has fitted the model.
    source : str
        Function that made the model, such as "from_loglik".
    notes : mapping of str to str
        Further lines of `print(model)`, by label.
    curvature : {"hessian", "ggn"}
        The default method's choice for a variance that is not robust: "ggn" only where the host
        library's own standard errors rest on it, and where the training stopped early.
    precision : Precision
        Type of the numbers that the rows are computed with.
    hansen : Hansen or None
        J test of estimating equations that are more than the parameters.
    optima : tuple of Optimum
        Maxima that were found from several starts, the best first.
    sources : tuple of Source
        Data sets that are fitted together; empty if there is one.
    df : float
        Degrees of freedom that are left where a noise variance was estimated; infinite otherwise.
    noise_rule : str or None
        By which a noise variance was estimated from the rows; None if none was.
    no_rows : str
        Why the terms are not those of rows; empty if they are.
    no_terms : str
        Why there are no terms at all, but estimates alone; empty if there are.
    no_outputs : str
        Why the outputs of the rows are not known; empty if they are, or for the usual reason.
    """

    training: Training = field(default_factory=Training)
    host: Host = field(default_factory=Host)
    df: float = np.inf
    noise_rule: str | None = None
    no_rows: str = ""
    no_terms: str = ""
    no_outputs: str = ""
    source: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    curvature: Curvature = "hessian"
    precision: Precision = DOUBLE
    hansen: "Hansen | None" = None
    optima: "tuple[Optimum, ...]" = ()
    sources: "tuple[Source, ...]" = ()

    def with_training(self, **changes: Any) -> "Facts":
        """Replace some facts of the training."""
        return replace(self, training=replace(self.training, **changes))

    def with_host(self, **changes: Any) -> "Facts":
        """Replace some facts from the host library."""
        return replace(self, host=replace(self.host, **changes))

    def require_terms(self) -> None:
        """Raise if only estimates and their covariance are known."""
        if self.no_terms:
            raise UnsupportedModelError(self.no_terms)

    def require_rows(self) -> None:
        """Raise if the terms are not those of rows."""
        self.require_terms()
        if self.no_rows:
            raise UnsupportedModelError(self.no_rows)

    def moved(self, step: Array) -> "Facts":
        """Keep what still holds after a step of theta, (d,): states belong to one theta."""
        if not np.any(step):
            return self
        covariance = self.host.covariance and self.host.covariance.after(step)
        facts = self.with_training(checkpoints=None, replicates=None, before=None)
        return facts.with_host(covariance=covariance)


NO_FACTS = Facts()
BY_LIBRARY = Training(no_start="the library keeps no start", by_library=True)

"""The parameter space of a model: names, constraints, fixed parameters, coordinates, language."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from implicit_delta.core.types import Array
from implicit_delta.models.constraints import Chart, Constraints
from implicit_delta.models.language import FittedLanguage, Language, VectorLanguage
from implicit_delta.models.named_theta import Layout

if TYPE_CHECKING:
    from implicit_delta.models.model import FittedModel


@dataclass(frozen=True, eq=False)
class Space:
    """The parameter space of a fitted model.

    Attributes
    ----------
    names : tuple of str or None
        Names of the d parameters, if they have any.
    layout : Layout or None
        Names by which functions of theta get its entries.
    constraints : Constraints or None
        What theta was fitted under, those of fixed parameters included.
    unfixed : Constraints or None
        Constraints without those of fixed parameters.
    fixed : mapping of int to float
        Values of the parameters that `FittedModel.fix` holds, by their places.
    chart : Chart or None
        Of a model in coordinates along its active constraints: how all parameters follow.
    whole : FittedModel or None
        Of such a model: the one of all parameters.
    language : Language
        How psi gets theta.
    """

    names: tuple[str, ...] | None = None
    layout: Layout | None = None
    constraints: Constraints | None = None
    unfixed: Constraints | None = None
    fixed: Mapping[int, float] = field(default_factory=dict)
    chart: Chart | None = None
    whole: "FittedModel | None" = None
    language: Language = field(default_factory=VectorLanguage)

    def __post_init__(self) -> None:
        """Name the entries of theta for psi, where names are all that is given."""
        plain = isinstance(self.language, VectorLanguage) and self.language.layout is None
        if plain and self.names is not None and self.layout is None and self.chart is None:
            layout = Layout(tuple(self.names))
            object.__setattr__(self, "layout", layout)
            object.__setattr__(self, "language", VectorLanguage(layout))

    @property
    def limits(self) -> Constraints | None:
        """Constraints that the model was given, without those of fixed parameters."""
        return self.unfixed if self.fixed else self.constraints

    def at(self, theta: Array) -> "Space":
        """Take another theta for the fitted one."""
        if not isinstance(self.language, FittedLanguage):
            return self
        return replace(self, language=self.language.at(theta))

    def along(self, chart: Chart, whole: "FittedModel") -> "Space":
        """Take the coordinates of a chart."""
        names = self.names and tuple(self.names[j] for j in chart.free)
        language = self.language.along(chart)
        return replace(self, names=names, chart=chart, whole=whole, language=language)

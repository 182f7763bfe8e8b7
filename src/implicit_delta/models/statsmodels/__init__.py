"""Models fitted by statsmodels."""

from implicit_delta.models.statsmodels.model import from_statsmodels

__all__ = ["from_statsmodels"]

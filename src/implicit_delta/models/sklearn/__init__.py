"""Models fitted by scikit-learn."""

from implicit_delta.models.sklearn.model import from_sklearn

__all__ = ["from_sklearn"]

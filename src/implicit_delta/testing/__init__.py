"""The contracts as public checks, for other people's backends and methods too."""

from implicit_delta.testing.methods import check_method as check_method
from implicit_delta.testing.models import check_model as check_model

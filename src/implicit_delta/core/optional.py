"""Import optional libraries, with one message where one is missing."""

from typing import Any

# The extra that installs a library, and its name on the index, where they differ from the module's.
EXTRAS = {"matplotlib": "plot", "optax": "jax", "patsy": "statsmodels"}
NAMES = {"sklearn": "scikit-learn"}


def optional(module: str, user: str) -> Any:
    """Import an optional library for its user, or raise with the command that installs it."""
    try:
        return __import__(module, fromlist=["the module itself, not its package"])
    except ImportError as error:
        library = module.partition(".")[0]
        # A library may be there without one of its own requirements, or broken.
        missing = (error.name or library).partition(".")[0]
        absent = isinstance(error, ModuleNotFoundError)
        state = "is not installed" if absent else f"cannot be imported ({error})"
        raise ImportError(
            f"{user} needs {NAMES.get(missing, missing)}, which {state}: "
            f'`pip install "implicit-delta[{EXTRAS.get(library, library)}]"`.'
        ) from error

"""Old names that are still accepted, with a warning."""

from typing import TypeVar

from implicit_delta._core.warn import warn

T = TypeVar("T")


def renamed(maximizer: T | None, maximize: T | None) -> T | None:
    """Accept `maximize=`, the old name of `maximizer=`."""
    if maximize is None:
        return _checked(maximizer)
    if maximizer is not None:
        raise TypeError("maximize= is the old name of maximizer=; give only maximizer=.")
    text = "maximize= is now called maximizer=; the old name will be removed in 0.3."
    warn(text, DeprecationWarning)
    return _checked(maximize)


def _checked(maximizer: T | None) -> T | None:
    if maximizer is None or hasattr(maximizer, "maximize"):
        return maximizer
    raise TypeError(
        f"maximizer is {maximizer!r:.40}: give the object itself, such as `idm.lbfgs`, or one with "
        "settings, `idm.nelder_mead(tolerance=1e-4)`."
    )

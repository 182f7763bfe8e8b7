"""Old names that are still accepted, with a warning."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from implicit_delta._core.warn import warn

C = TypeVar("C")
T = TypeVar("T")
GONE = "0.3"  # the release without the names that 0.2 deprecates


def old_names(**current: str) -> Callable[[type[C]], type[C]]:
    """Let a dataclass take and show its fields by old names too, ``old_names(old="new")``.

    Fields, their order, `dataclasses.replace` and the signature know the new names alone.
    """

    def accepting(cls: type[C]) -> type[C]:
        init = vars(cls)["__init__"]

        @wraps(init)
        def translating(self: C, *args: Any, **given: Any) -> None:
            for old in current.keys() & given.keys():
                _tell(f"{old}=", f"{current[old]}=", taken=current[old] in given)
                given[current[old]] = given.pop(old)
            init(self, *args, **given)

        readers = {old: property(_reader(cls.__name__, old, new)) for old, new in current.items()}
        for name, member in {"__init__": translating, **readers}.items():
            setattr(cls, name, member)
        return cls

    return accepting


def renamed(maximizer: T | None, maximize: T | None) -> T | None:
    """Accept `maximize=`, the old name of `maximizer=`."""
    if maximize is not None:
        _tell("maximize=", "maximizer=", taken=maximizer is not None)
        maximizer = maximize
    check_maximizer(maximizer)
    return maximizer


def drawn_by_its_method(name: str) -> Callable[..., Any]:
    """Make the old drawing function of a result that draws itself."""

    def draw(result: Any, ax: Any = None, **style: Any) -> Any:
        _tell(f"plot.{name}(result)", "result.plot()")
        return result.plot(ax, **style)

    draw.__doc__ = "Deprecated name of the method `plot` of the result."
    return draw


def check_maximizer(maximizer: object) -> None:
    """Refuse the name of a maximizer, and its class, in its place."""
    if maximizer is not None and not hasattr(maximizer, "maximize"):
        raise TypeError(
            f"maximizer is {maximizer!r:.40}: give the object itself, such as `idm.lbfgs`, or one "
            "with settings, `idm.nelder_mead(tolerance=1e-4)`."
        )


def _tell(old: str, new: str, *, taken: bool = False) -> None:
    if taken:
        raise TypeError(f"{old} is the old name of {new}; give only {new}.")
    text = f"{old} is now called {new}; the old name will be removed in {GONE}."
    warn(text, DeprecationWarning)


def _reader(owner: str, old: str, new: str) -> Callable[[Any], Any]:
    def read(self: Any) -> Any:
        _tell(f"{owner}.{old}", new)
        return getattr(self, new)

    read.__doc__ = f"Deprecated name of `{new}`."
    return read

"""Parameters with names: `th.S`, `th["S"]`, `th[["S", "B"]]`, and an array in all else."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from implicit_delta.calculus.tracing.traced import Node, Traced
from implicit_delta.core.arguments import given_point
from implicit_delta.core.calls import is_spent
from implicit_delta.core.labels import as_names, near_match
from implicit_delta.core.types import Array
from implicit_delta.errors import ConvergenceError

_item = np.ndarray.__getitem__
READ_ONLY = (
    "The parameters are read-only by name. Give other values as `start=` or with "
    "`model.fix(name=...)`, or change a copy by place, `values = np.array(th)`."
)


class Block(NamedTuple):
    """One entry of a dictionary of parameters: its first place, and its shape if it is an array."""

    first: int
    shape: tuple[int, ...] | None

    @property
    def size(self) -> int:
        """Number of its entries."""
        return 1 if self.shape is None else int(np.prod(self.shape))

    @property
    def where(self) -> int | slice:
        """Place in the flat array."""
        return self.first if self.shape is None else slice(self.first, self.first + self.size)


@dataclass(frozen=True)
class Layout:
    """Names of the entries of theta.

    Attributes
    ----------
    names : tuple of str
        Of the d entries: ``"S"``, or ``"beta[0]"`` in an array.
    arrays : tuple of (str, Block)
        Parameters that are arrays.
    """

    names: tuple[str, ...]
    arrays: tuple[tuple[str, Block], ...] = ()

    def __reduce__(self) -> Any:
        return Layout, (self.names, self.arrays)  # without what is kept, a class among it

    @cached_property
    def blocks(self) -> dict[str, Block]:
        """Every name that may be asked for: of entries and of arrays."""
        entries = {name: Block(j, None) for j, name in enumerate(self.names)}
        return entries | dict(self.arrays)

    @cached_property
    def spoken(self) -> tuple[str, ...]:
        """Names as they were given: an array is one of them."""
        inside = {j for _, b in self.arrays for j in range(b.first, b.first + b.size)}
        firsts = {block.first: name for name, block in self.arrays}
        entries = {j: name for j, name in enumerate(self.names) if j not in inside}
        return tuple(name for _, name in sorted((firsts | entries).items()))

    @cached_property
    def kind(self) -> type["NamedTheta"]:
        """The class of arrays for functions of a user: a property for each name.

        That is faster than `__getattr__`, and hides attributes of arrays that a name would be.
        """
        properties: dict[str, Any] = {
            name: property(_refused if hasattr(np.ndarray, name) else self._getter(block), _kept)
            for name, block in self.blocks.items()
        }
        return type("NamedTheta", (NamedTheta,), {"__slots__": (), **properties})

    @staticmethod
    def _getter(block: Block) -> Callable[[Any], Any]:
        index, shape = block.where, block.shape
        if shape is None or len(shape) == 1:
            return lambda theta: _plain_of(theta)[index]
        return lambda theta: _plain_of(theta)[index].reshape(shape)

    def named(self, theta: Any) -> Any:
        """Give an array (d,), traced or not, its names."""
        if isinstance(theta, Traced):
            return NamedTraced(theta.node, self)
        return _with_names(theta, self, self.kind)

    def places(self, name: Any) -> NDArray[np.intp]:
        """Find the entries of a name, (k,)."""
        block = self._block(name)
        return np.arange(block.first, block.first + block.size)

    def take(self, plain: Any, key: Any) -> Any:
        """Take what an index means: a name, a list of them, or whatever arrays know."""
        if isinstance(key, str):
            block = self._block(key)
            part = plain[block.where]
            return part if block.shape is None else part.reshape(block.shape)
        if _are_names(key):
            return plain[np.concatenate([self.places(name) for name in key])]
        return plain[key]

    def _block(self, name: Any) -> Block:
        if name not in self.blocks:
            raise KeyError(f"{name!r} is no parameter: {near_match(str(name), self.spoken)}")
        return self.blocks[name]


class NamedTheta(np.ndarray):
    """Array of parameters with names; what is computed from it, or a slice, is a plain array.

    A name that arrays have as an attribute of their own (`T`, `sum`, `size`) is an item only:
    `th["T"]`, and `th.T` is refused in functions of a user.
    """

    __slots__ = ("_layout", "_plain")  # the second is the array itself, without names
    _layout: Layout | None
    _plain: Array | None

    def __getitem__(self, key: Any) -> Any:
        plain = self._plain
        if plain is None:
            return _item(self, key)
        if type(key) is int or type(key) is slice:
            return plain[key]
        assert self._layout is not None
        return self._layout.take(plain, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, str) or _are_names(key):
            raise TypeError(READ_ONLY)
        super().__setitem__(key, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._layout is not None and name in self._layout.blocks:
            raise AttributeError(READ_ONLY)
        super().__setattr__(name, value)

    def sort(self, *arguments: Any, **options: Any) -> None:
        """Sort in place; the entries lose their names."""
        super().sort(*arguments, **options)
        _nameless(self)

    def partition(self, *arguments: Any, **options: Any) -> None:
        """Partition in place; the entries lose their names."""
        super().partition(*arguments, **options)
        _nameless(self)

    def __getattr__(self, name: str) -> Any:
        if name in ("_layout", "_plain"):  # of a view that NumPy has made
            return None
        layout = self._layout
        if layout is None or (name[:1] == "_" and name not in layout.blocks):
            raise AttributeError(
                f"arrays have no attribute {name!r}; what was sorted, or made of the parameters "
                "otherwise, has no names"
            )
        if name not in layout.blocks:
            raise AttributeError(f"{name!r} is no parameter: {near_match(name, layout.spoken)}")
        if hasattr(np.ndarray, name):
            raise AttributeError(
                f"{name!r} is a parameter, and an attribute of all arrays: write `th[{name!r}]`."
            )
        return layout.take(self._plain, name)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if array.ndim == 0 else np.asarray(array)

    def copy(self, order: Any = "C") -> Any:
        """Copy with the names."""
        plain = np.array(self, order=order)
        return plain if self._layout is None else _with_names(plain, self._layout, type(self))

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __repr__(self) -> str:
        if self._layout is None:
            return repr(np.asarray(self))
        pairs = zip(self._layout.names, self.tolist(), strict=True)
        return f"NamedTheta({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def __reduce__(self) -> Any:
        plain = np.asarray(self)
        return plain.__reduce__() if self._layout is None else (as_named, (plain, self._layout))


class NamedTraced(Traced):
    """Traced array of parameters with names."""

    def __init__(self, node: Node, layout: Layout) -> None:
        super().__init__(node)
        self.layout = layout

    def __getitem__(self, key: Any) -> Any:
        return self.layout.take(Traced(self.node), key)

    def __getattr__(self, name: str) -> Any:
        if name in self.layout.blocks:
            return self.layout.take(Traced(self.node), name)
        return super().__getattr__(name)

    def copy(self) -> Traced:
        """Copy with the names."""
        return NamedTraced(self.node, self.layout)


@dataclass(frozen=True, eq=False)
class Spoken:
    """A function of parameters with names, as one of plain arrays."""

    function: Callable[..., Any]
    layout: Layout

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def keywords(self) -> dict[str, Any]:
        """Data of a log-likelihood made by `functools.partial`, by keyword."""
        return self.function.keywords  # type: ignore[attr-defined,no-any-return]

    def __call__(self, theta: Any, *arguments: Any) -> Any:
        """Name the parameters and call."""
        return self.function(self.layout.named(theta), *arguments)


@contextmanager
def naming_best_point(layout: Layout | None) -> Iterator[None]:
    """Give the best point of a search that has spent its calls the names of the start."""
    try:
        yield
    except ConvergenceError as error:
        if is_spent(error):
            error.theta = as_named(error.theta, layout)
        raise


def speaking(function: Any, layout: Layout | None) -> Any:
    """Let a function of a user see the names, if there are any."""
    return function if function is None or layout is None else Spoken(function, layout)


def as_named(theta: Array, layout: Layout | None) -> Array:
    """Give the parameters of a model their names; their attributes stay those of arrays."""
    return theta if layout is None else _with_names(theta, layout, NamedTheta)


def names_of(layout: Layout | None) -> tuple[str, ...] | None:
    """Names of the entries, if there are any."""
    return None if layout is None else layout.names


def named_point(
    theta: Any, start: Any, l2: float, what: str, names: Any
) -> tuple[Array, Layout | None]:
    """Take the parameters and their names from where they were given: a maximum, or a start."""
    given = start if theta is None else theta
    values, layout = flattened(given, "start" if theta is None else "theta")
    known = values if theta is not None else None
    point = given_point(known, None if start is None else values, l2, what)
    if names is None:
        return point, layout
    labels = as_names(names)
    if isinstance(given, Mapping) and layout is not None and labels != layout.names:
        raise ValueError(
            f"The dictionary has the names {', '.join(layout.names)}, and names= others: leave "
            "one of the two out."
        )
    return point, checked_layout(labels, point.size)


def checked_layout(names: Sequence[str] | None, d: int) -> Layout | None:
    """Check names of d parameters."""
    if names is None:
        return None
    labels = as_names(names)
    if len(labels) != d:
        raise ValueError(f"{len(labels)} names were given for {d} parameters.")
    _check_distinct(labels)
    return Layout(labels)


def flattened(given: Any, what: str) -> tuple[Any, Layout | None]:
    """Write a dictionary, named tuple or labeled series as numbers and names."""
    if isinstance(given, NamedTheta):
        return np.asarray(given), given._layout
    if hasattr(given, "_fields") and hasattr(given, "_asdict"):
        given = given._asdict()
    if isinstance(given, Mapping):
        return _of_mapping(given, what)
    labels = list(getattr(given, "index", ())) if hasattr(given, "to_numpy") else []
    named = labels and _are_names(labels) and len(set(labels)) == len(labels) and "" not in labels
    return given, Layout(tuple(labels)) if named else None


def of_arrays(shapes: Mapping[str, tuple[int, ...] | None]) -> Layout:
    """Name the entries of numbers (no shape) and arrays that follow each other."""
    names: list[str] = []
    arrays: list[tuple[str, Block]] = []
    for name, shape in shapes.items():
        if shape is None:
            names.append(name)
            continue
        arrays.append((name, Block(len(names), shape)))
        names += [f"{name}[{','.join(map(str, place))}]" for place in np.ndindex(*shape)]
    _check_distinct([*names, *(name for name, _ in arrays)])
    return Layout(tuple(names), tuple(arrays))


def _of_mapping(given: Mapping[Any, Any], what: str) -> tuple[Array, Layout]:
    if not given:
        raise ValueError(f"{what}= is an empty dictionary: give a number for each parameter.")
    values = {name: _checked_entry(name, value, what) for name, value in given.items()}
    layout = of_arrays({k: None if v.ndim == 0 else v.shape for k, v in values.items()})
    return np.concatenate([value.ravel() for value in values.values()]), layout


def _checked_entry(name: Any, value: Any, what: str) -> Array:
    """Convert one entry of a dictionary of parameters."""
    if not isinstance(name, str):
        raise TypeError(f"{what}= has the key {name!r}: names of parameters are strings.")
    if isinstance(value, Mapping):
        raise TypeError(
            f"{what}[{name!r}] is a dictionary itself: give one flat dictionary, such as "
            "{'mu': 0.0, 'beta': np.zeros(3)}."
        )
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in "fiub" or array.size == 0:
        raise TypeError(
            f"{what}[{name!r}] is {value!r:.60}, but must be a number, or an array of numbers."
        )
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{what}[{name!r}] is {value!r:.60}: the parameters are not finite.")
    return array.astype(np.float64)


def _check_distinct(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"The name {name!r} is there twice: names of parameters must differ.")
        if not name or name.startswith("__"):
            raise ValueError(f"{name!r} is no name of a parameter: give it one of letters.")
        seen.add(name)


def _are_names(key: Any) -> bool:
    several = isinstance(key, list | tuple | np.ndarray) or hasattr(key, "to_numpy")
    return several and len(key) > 0 and all(isinstance(name, str) for name in key)


def _kept(theta: Any, value: Any) -> NoReturn:
    raise AttributeError(READ_ONLY)


def _plain_of(theta: Any) -> Array:
    plain = theta._plain
    if plain is None:
        raise AttributeError  # `__getattr__` then explains it
    return plain  # type: ignore[no-any-return]


def _nameless(theta: NamedTheta) -> None:
    _set_layout(theta, None)
    _set_plain(theta, None)


def _refused(theta: Any) -> NoReturn:
    raise AttributeError  # `__getattr__` then explains it


def _with_names(theta: Array, layout: Layout, kind: type[NamedTheta]) -> NamedTheta:
    plain = theta if type(theta) is np.ndarray else theta.view(np.ndarray)
    point = plain.view(kind)
    _set_layout(point, layout)  # past `__setattr__`, which refuses names
    _set_plain(point, plain)
    return point


_set_layout, _set_plain = (NamedTheta.__dict__[slot].__set__ for slot in NamedTheta.__slots__)

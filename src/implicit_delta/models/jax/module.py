"""A pytree as a function of one flat vector of its parameters."""

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from implicit_delta.core.precision import MOST_PROMOTED
from implicit_delta.core.types import Array
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.parts import select
from implicit_delta.models.program import Functional


@dataclass(frozen=True, eq=False)
class JaxFunctional(Functional):
    """A pytree without the values of its parameters, the leaves that are floating-point arrays.

    They come in as one flat array (d,), so derivatives flow to that array. All other leaves
    (functions, integers, random keys) are kept here as they are.

    Attributes
    ----------
    structure : PyTreeDef
    leaves : tuple
        In the order of the structure, with None in the place of parameters.
    own : dtype
        Of pytrees that are given out: of `dtype=`, or as JAX is set.
    """

    structure: tree_util.PyTreeDef
    leaves: tuple[Any, ...]
    own: np.dtype[Any]

    @property
    def eps(self) -> float:
        return float(np.finfo(self.dtype).eps)

    def __call__(self, function: Callable[..., Any], flat: Any, *arguments: Any) -> Any:
        return self.call(function, self.pieces(flat), *arguments)

    def call(self, function: Callable[..., Any], pieces: Iterable[Any], *arguments: Any) -> Any:
        """Call ``function(params, *arguments)`` with these arrays as the parameters."""
        return function(self.filled(pieces), *arguments)

    @property
    def origin(self) -> "JaxFunctional":
        """The functional of the model that was fitted; of a tangent, the one it touches."""
        return self

    def parameters(self, flat: jax.Array) -> Any:
        """Build the pytree with nothing but parameters: None in the place of other leaves."""
        pieces = iter(self.pieces(flat))
        leaves = [next(pieces) if leaf is None else None for leaf in self.leaves]
        return tree_util.tree_unflatten(self.structure, leaves)

    def filled(self, pieces: Iterable[Any]) -> Any:
        """Build the pytree with these arrays as its parameters."""
        remaining = iter(pieces)
        leaves = [next(remaining) if leaf is None else _given(leaf) for leaf in self.leaves]
        return tree_util.tree_unflatten(self.structure, leaves)

    def pieces(self, flat: Any) -> list[jax.Array]:
        """Cut flat (d,) into arrays in the shape of the parameters.

        In NumPy if it is there: JAX would compile every cut.
        """
        numpy = isinstance(flat, np.ndarray)
        cuts = np.cumsum([int(np.prod(shape)) for _, shape in self.layout])[:-1]
        cut: list[Any] = np.split(flat, cuts) if numpy else jnp.split(flat, cuts)
        shaped = [piece.reshape(shape) for piece, (_, shape) in zip(cut, self.layout, strict=True)]
        return [self.flat(piece) for piece in shaped] if numpy else shaped

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        """Compute in the working type, and without rounding it.

        Accelerators multiply matrices with fewer digits by default, too few for derivatives.
        """
        with x64(self.dtype == np.float64), jax.default_matmul_precision("float32"):
            yield

    def flat(self, theta: Array) -> jax.Array:
        return jnp.asarray(theta, dtype=self.dtype)

    def numpy(self, values: Any) -> Any:
        return np.asarray(values) if isinstance(values, jax.Array) else values


@dataclass(frozen=True, eq=False)
class _Fixed:
    """A parameter that is taken as known; in NumPy, as JAX would restore float64 as float32."""

    values: Array


def _given(leaf: Any) -> Any:
    return jnp.asarray(leaf.values) if isinstance(leaf, _Fixed) else leaf


def separate(params: Any, dtype: Any, selection: Any = None) -> tuple[JaxFunctional, Array]:
    """Separate a pytree into its structure and its parameters theta, (d,), or those selected."""
    _check_collections(params)
    with_paths, structure = tree_util.tree_flatten_with_path(params)
    named = named_parameters(params)
    _check_parameters(named)
    _check_numbers([(path, leaf) for path, leaf in with_paths if isinstance(leaf, float)])
    names = [name for name, _ in named]
    chosen = set(names) if selection is None else select(names, selection)
    kind = working_type(dtype, [leaf for _, leaf in named])

    def kept(name: str, leaf: Any) -> Any:
        """Everything but the parameters that theta is made of."""
        if not is_parameter(leaf):
            return leaf
        return None if name in chosen else _Fixed(np.asarray(leaf).astype(kind))

    functional = JaxFunctional(
        layout=tuple((name, np.shape(leaf)) for name, leaf in named if name in chosen),
        dtype=kind,
        given=", ".join(sorted({str(leaf.dtype) for name, leaf in named if name in chosen})),
        structure=structure,
        leaves=tuple(kept(_name(path), leaf) for path, leaf in with_paths),
        own=np.dtype(jnp.zeros(0).dtype) if dtype is None else kind,
    )
    return functional, np.concatenate(
        [np.asarray(leaf).astype(np.float64).ravel() for name, leaf in named if name in chosen]
    )


def named_parameters(params: Any) -> list[tuple[str, Any]]:
    """Parameters of a pytree with their paths."""
    with_paths, _ = tree_util.tree_flatten_with_path(params)
    return [(_name(path), leaf) for path, leaf in with_paths if is_parameter(leaf)]


def own_arrays(params: Any, functional: JaxFunctional) -> dict[str, weakref.ref[Any]]:
    """Weak references to the arrays of a pytree that are parameters, by name."""
    chosen = {name for name, _ in functional.layout}
    named = [(name, leaf) for name, leaf in named_parameters(params) if name in chosen]
    return {name: weakref.ref(leaf) for name, leaf in named if isinstance(leaf, jax.Array)}


def working_type(dtype: Any, parameters: Sequence[Any]) -> np.dtype[Any]:
    """Type of the work: by default float64 for a small model on the CPU, or else as JAX is set."""
    if dtype is None:
        on = {d.platform for p in parameters if isinstance(p, jax.Array) for d in p.devices()}
        small = sum(int(p.size) for p in parameters) <= MOST_PROMOTED
        if small and (on or {jax.default_backend()}) == {"cpu"}:
            return np.dtype(np.float64)
        return np.dtype(jnp.zeros(0).dtype)
    for supported in (np.float32, np.float64):
        if dtype in (supported, supported.__name__):
            return np.dtype(supported)
    raise ValueError(f'dtype must be "float32" or "float64", not {dtype!r}.')


def x64(on: bool) -> contextlib.AbstractContextManager[Any]:
    """Switch 64-bit types on or off for a while, in this thread."""
    switch: Any = getattr(jax, "enable_x64", None)
    if switch is None:  # before JAX 0.8
        from jax.experimental import enable_x64 as switch  # type: ignore[attr-defined,no-redef]
    scoped: contextlib.AbstractContextManager[Any] = switch(on)
    return scoped


def is_widened(params: Any) -> bool:
    """Whether the work is done in a wider type than the parameters have, by default."""
    leaves = [leaf for _, leaf in named_parameters(params)]
    return working_type(None, leaves) == np.float64 and any(p.dtype != np.float64 for p in leaves)


def is_parameter(leaf: Any) -> bool:
    """Whether a leaf of a pytree is an array of real or complex numbers."""
    if not isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        return False
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def _name(path: Sequence[Any]) -> str:
    """Join the keys of all levels: ``layers.0.weight``."""
    keys = []
    for entry in path:
        found = (getattr(entry, kind) for kind in ("key", "name", "idx") if hasattr(entry, kind))
        keys.append(str(next(found, entry)))
    return ".".join(keys) or "theta"


def _check_collections(params: Any) -> None:
    """Tell Flax variables with a state from parameters."""
    if isinstance(params, Mapping) and "params" in params and len(params) > 1:
        others = ", ".join(str(key) for key in params if key != "params")
        raise UnsupportedModelError(
            f"params holds trained parameters and also {others}, which are not parameters. Pass "
            '`variables["params"]` with `apply=lambda params, x: net.apply({**variables, "params": '
            "params}, x)`, in which normalizations use their running averages."
        )


def _check_parameters(named: list[tuple[str, Any]]) -> None:
    if not named:
        raise UnsupportedModelError(
            "There are no floating-point arrays in params, so nothing in it is uncertain. Only "
            "arrays are parameters: make those that were fitted arrays with `jnp.asarray`."
        )
    places: dict[int, str] = {}
    for name, leaf in named:
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise UnsupportedModelError(
                f"The parameter {name} is complex. Give its real and imaginary parts as two arrays."
            )
        if not np.all(np.isfinite(np.asarray(leaf).astype(np.float64))):
            raise ValueError(
                f"The parameter {name} has entries that are NaN or infinite: the training diverged."
            )
        if id(leaf) in places:
            raise UnsupportedModelError(
                f"{places[id(leaf)]} and {name} in params are the same array. To JAX these are two "
                "parameters, which would make shared weights count twice: keep it in one place "
                "(`equinox.nn.Shared`, or an `apply` that uses it twice), or copy it if they were "
                "trained separately."
            )
        places[id(leaf)] = name


def _check_numbers(numbers: list[tuple[Any, Any]]) -> None:
    """Python numbers are settings as attributes of a module, but doubtful in plain containers."""
    for path, leaf in numbers:
        plain = not any(isinstance(entry, tree_util.GetAttrKey) for entry in path)
        if plain and not isinstance(leaf, np.generic):
            raise UnsupportedModelError(
                f"{_name(path)} in params is the Python number {leaf!r}. If it was fitted, make it "
                "an array with `jnp.asarray`; if it is a setting, keep it out of params."
            )

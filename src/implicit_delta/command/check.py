"""Versions of the package, of what it needs and of what it can use; and the demo."""

import platform
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

import implicit_delta
from implicit_delta import demo

CORE = ("numpy", "scipy", "joblib", "tqdm")
# The distributions of each extra, as in pyproject.toml.
EXTRAS = {
    "torch": ("torch",),
    "jax": ("jax", "optax"),
    "statsmodels": ("statsmodels",),
    "sklearn": ("scikit-learn",),
    "pandas": ("pandas",),
    "polars": ("polars",),
    "parquet": ("pandas", "pyarrow"),
    "plot": ("matplotlib",),
    "dask": ("dask", "distributed"),
    "duckdb": ("duckdb", "pandas", "pyarrow"),
}
Find = Callable[[str], str]  # a version by the name of a distribution


def report(find: Find = version) -> Iterator[str]:
    """Lines of the report: the package, what it needs, and what it can use."""
    yield f"implicit-delta {implicit_delta.__version__}, Python {platform.python_version()}"
    yield from _table((name, found(name, find) or "not installed") for name in CORE)
    yield "\nExtras"
    yield from _table((extra, _described(extra, find)) for extra in EXTRAS)


def found(distribution: str, find: Find = version) -> str | None:
    """Return the version of a distribution, or None if it is not installed."""
    try:
        return find(distribution)
    except PackageNotFoundError:
        return None


def run_demo(picture: str | None) -> None:
    """Print the demo, and write its picture where a name is given."""
    try:
        demo.main(picture)
    except OSError as error:  # a folder that cannot be written to, not a failure of the package
        print(f"The picture was not written: {error}. Another place: --picture FILE")


def _table(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    return (f"  {name:11}  {text}" for name, text in rows)


def _described(extra: str, find: Find) -> str:
    numbers = {name: found(name, find) for name in EXTRAS[extra]}
    if not all(numbers.values()):
        return f"not installed: pip install 'implicit-delta[{extra}]'"
    return ", ".join(f"{name} {number}" for name, number in numbers.items())

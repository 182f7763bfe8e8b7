"""Versions, extras and a demo: ``python -m implicit_delta``."""

import argparse
import platform
from collections.abc import Iterable, Iterator
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
    "plot": ("matplotlib",),
    "bayes": ("bayesian-optimization",),
    "dask": ("dask", "distributed"),
}


def main(arguments: list[str] | None = None) -> None:
    """Print the versions and the extras, then run the demo."""
    options = _parser().parse_args(arguments)
    print("\n".join(_report()))
    if options.demo:
        print()
        _run_demo(options.picture if _version("matplotlib") else None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m implicit_delta",
        description="Print versions and installed extras, and run a demo.",
        epilog="Progress bars: set the environment variable IMPLICIT_DELTA_PROGRESS to on or off.",
    )
    parser.add_argument("--no-demo", dest="demo", action="store_false", help="only the versions")
    parser.add_argument(
        "--picture",
        default="demo.png",
        metavar="FILE",
        help="file for the picture of the demo, which needs matplotlib (default: demo.png)",
    )
    return parser


def _run_demo(picture: str | None) -> None:
    try:
        demo.main(picture)
    except OSError as error:  # a folder that cannot be written to, not a failure of the package
        print(f"The picture was not written: {error}. Another place: --picture FILE")


def _report() -> Iterator[str]:
    """Lines of the report: the package, what it needs, and what it can use."""
    yield f"implicit-delta {implicit_delta.__version__}, Python {platform.python_version()}"
    yield from _table((name, _version(name) or "not installed") for name in CORE)
    yield "\nExtras"
    yield from _table((extra, _described(extra)) for extra in EXTRAS)


def _table(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    return (f"  {name:11}  {text}" for name, text in rows)


def _described(extra: str) -> str:
    found = {name: _version(name) for name in EXTRAS[extra]}
    if not all(found.values()):
        return f"not installed: pip install 'implicit-delta[{extra}]'"
    return ", ".join(f"{name} {number}" for name, number in found.items())


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()

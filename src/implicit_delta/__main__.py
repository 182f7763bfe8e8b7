"""Versions, extras and a demo: ``python -m implicit_delta``; with a command, ``implicit-delta``."""

import argparse
import sys
from importlib.metadata import PackageNotFoundError, version

from implicit_delta.command.check import CORE, EXTRAS, found, report, run_demo
from implicit_delta.command.main import COMMANDS
from implicit_delta.command.main import main as run

__all__ = ["CORE", "EXTRAS", "PackageNotFoundError", "main", "version"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command that is named; without one, print versions and run the demo."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] and given[0] in (*COMMANDS, "--version"):
        raise SystemExit(run(given))
    options = _parser().parse_args(given)
    print("\n".join(report(version)))
    if options.demo:
        print()
        run_demo(options.picture if found("matplotlib", version) else None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m implicit_delta",
        description="Print versions and installed extras, and run a demo. "
        f"With {', '.join(COMMANDS)} as the first word: the command implicit-delta.",
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


if __name__ == "__main__":
    main()

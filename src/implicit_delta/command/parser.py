"""Options of the command."""

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

import implicit_delta
from implicit_delta.command.failure import Failure
from implicit_delta.command.families import FAMILIES, LINKS, WEIGHTS

PROGRESS = "progress bars: set the environment variable IMPLICIT_DELTA_PROGRESS to on or off."
EXAMPLES = f"""\
examples:
  implicit-delta fit trial.csv "improved ~ dose + C(site)" --family logit --success yes
  implicit-delta fit trial.csv "visits ~ dose + age" --family poisson --exposure years \\
      --ask "average_comparison('dose')" --ask "average_slope('age')" --clusters village
  implicit-delta fit trial.csv "weight ~ dose * C(sex)" --robust HC3 \\
      --ask "contrast('2 * dose')" --json

questions (--ask): average_comparison('x', values=(0, 1), how='difference', by='g'),
  average_slope('x'), average_prediction(by='g'), predictions(datagrid(x=[0, 1])),
  contrast('x - z'), parameters, or the name of a coefficient. They are read as
  calls with plain arguments, never run as code.
formulas: columns, + - * : ** and functions such as C(group), Q("a column"), I(x**2), bs(x, df=4),
  np.log(x).
exit codes: 0 done; 2 nothing honest to print, with one line on stderr that says why; 70 a bug.
{PROGRESS}
"""
DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "space": " ", "semicolon": ";"}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise what the command prints."""
        if "arguments are required" in message:  # lists of columns take all words that follow
            message += "; the file and the formula come first"
        raise Failure(f"{message} (see {self.prog} --help)")


def parser() -> Parser:
    """Make the parser of all commands."""
    top = Parser(
        "implicit-delta",
        description="Error bars on what is computed from a fitted model.",
        epilog=PROGRESS,
        allow_abbrev=False,
    )
    number = f"implicit-delta {implicit_delta.__version__}"
    top.add_argument("--version", action="version", version=number)
    commands = top.add_subparsers(dest="command", metavar="{fit,check,demo}")
    _add_fit(
        commands.add_parser(
            "fit",
            help="fit a model to a table and ask it questions",
            description="Fit a model to a table (CSV or Parquet) and ask it questions.",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
    )
    commands.add_parser("check", help="print versions and installed extras", allow_abbrev=False)
    demo = commands.add_parser("demo", help="run a demo", allow_abbrev=False)
    demo.add_argument("--picture", default="demo.png", metavar="FILE", help="file for its picture")
    return top


def _add_fit(fit: argparse.ArgumentParser) -> None:
    add = fit.add_argument
    add("data", help="a file, CSV (also compressed) or Parquet; - reads CSV from stdin")
    add("formula", help='outcome and columns: "y ~ x + C(group)"')
    add = fit.add_argument_group("model").add_argument
    add("--family", default="ols", help=f"{', '.join(FAMILIES)} (default: ols)")
    add("--link", help=f"of a generalized linear model: {', '.join(LINKS)}")
    add("--weights", metavar="COLUMN", help="of the rows; needs --weight-kind")
    kinds = "rows stand for so many equal ones; one over their variance; survey weights"
    add("--weight-kind", choices=tuple(WEIGHTS), help=kinds)
    add("--offset", metavar="COLUMN", help="added to the linear predictor")
    add("--exposure", metavar="COLUMN", help="of counts; its log is added")
    add("--success", metavar="VALUE", help="the value of the outcome that is 1")
    levels = "values of an ordered outcome, lowest first"
    add("--levels", metavar="A,B,C", type=_levels, default=(), help=levels)
    add = fit.add_argument_group("question").add_argument
    asks = "several times (default: parameters)"
    add("--ask", action="append", metavar="QUESTION", help=asks)
    columns = {"action": "extend", "nargs": "+", "default": [], "metavar": "COLUMN"}
    add("--clusters", **columns, help="one column or two")  # type: ignore[arg-type]
    kinds = "HC0 to HC3, CR0 to CR2, HAC(4)"
    add("--robust", nargs="?", const="plain", metavar="KIND", help=kinds)
    level = _number(float, "between 0 and 1", lambda x: 0 < x < 1)
    add("--level", type=level, default=0.95, help="of confidence (default: 0.95)")
    add("--null", type=float, help="tested against it (default: no effect)")
    add(
        "--transform",
        choices=("log", "logit", "identity", "exp", "expit"),
        help="interval and test on that scale (ratios: log, else identity); or exponentials, "
        "probabilities of logarithms, logits (exp, expit)",
    )
    df = _number(float, "1 or more", lambda x: x >= 1)
    add("--df", type=df, help="degrees of freedom; inf for normal quantiles")
    add("--method", help="such as Bootstrap(500), Simulation, FiniteDifference")
    seed = _number(int, "0 or more", lambda x: x >= 0)
    add("--seed", type=seed, default=0, help="of methods that draw (default: 0)")
    add = fit.add_argument_group("file").add_argument
    add("--delimiter", type=_delimiter, help="of columns (default: comma; tab for .tsv)")
    add("--decimal", type=_letter, default=".", help="decimal mark (default: point)")
    add("--encoding", help="of the text (default: utf-8)")
    add = fit.add_argument_group("output").add_argument
    add("--json", action="store_const", const="json", dest="output", help="as --output json")
    add("--output", choices=("text", "json"), default="text")
    add("--csv", metavar="FILE", help="write the tables of all answers")
    add("--report", metavar="FILE", help="write a page; numbered if several")
    add("--title", metavar="TEXT", help="heading of the page")
    add("--question", metavar="TEXT", help="the question in your words, on the page")
    add("--plot", metavar="FILE", help="draw a picture; numbered if several")
    add("--save", metavar="FILE", help="for Estimate.load (.npz)")
    add("--quiet", action="store_true", help="no notes and no progress on stderr")
    add("--debug", action="store_true", help="show the traceback of an error")


def _number(
    kind: Callable[[str], Any], words: str, holds: Callable[[Any], bool]
) -> Callable[[str], Any]:
    """Make the type of a number with a range."""

    def read(text: str) -> Any:
        value = kind(text)
        if not holds(value):
            raise argparse.ArgumentTypeError(f"a number {words}, not {text:.40}")
        return value

    read.__name__ = kind.__name__  # which argparse names
    return read


def _levels(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _letter(text: str) -> str:
    if len(text) != 1:
        raise argparse.ArgumentTypeError(f"one character, not {text!r:.40}")
    return text


def _delimiter(text: str) -> str:
    return _letter(DELIMITERS.get(text, text))

"""Options of the command."""

import argparse
from typing import NoReturn

import implicit_delta
from implicit_delta.command.failure import Failure
from implicit_delta.command.families import FAMILIES, LINKS

EXAMPLES = """\
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
progress bars: set the environment variable IMPLICIT_DELTA_PROGRESS to on or off.
"""


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
        epilog="progress bars: set the environment variable IMPLICIT_DELTA_PROGRESS to on or off.",
        allow_abbrev=False,
    )
    top.add_argument(
        "--version", action="version", version=f"implicit-delta {implicit_delta.__version__}"
    )
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
    fit.add_argument(
        "data", help="a file, CSV (also compressed) or Parquet; - reads CSV from stdin"
    )
    fit.add_argument("formula", help='outcome and columns: "y ~ x + C(group)"')
    _add_model(fit.add_argument_group("model"))
    _add_question(fit.add_argument_group("question"))
    _add_file(fit.add_argument_group("file"))
    _add_output(fit.add_argument_group("output"))


def _add_model(group: argparse._ArgumentGroup) -> None:
    families, links = ", ".join(FAMILIES), ", ".join(LINKS)
    group.add_argument("--family", default="ols", help=f"{families} (default: ols)")
    group.add_argument("--link", help=f"of a generalized linear model: {links}")
    group.add_argument("--weights", metavar="COLUMN", help="of the rows; needs --weight-kind")
    group.add_argument(
        "--weight-kind",
        choices=("frequency", "precision", "sampling"),
        help="rows stand for so many equal ones; one over their variance; survey weights",
    )
    group.add_argument("--offset", metavar="COLUMN", help="added to the linear predictor")
    group.add_argument("--exposure", metavar="COLUMN", help="of counts; its log is added")
    group.add_argument("--success", metavar="VALUE", help="the value of the outcome that is 1")
    group.add_argument("--levels", metavar="A,B,C", help="values of the outcome, lowest first")


def _add_question(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--ask", action="append", metavar="QUESTION", help="several times (default: parameters)"
    )
    group.add_argument(
        "--clusters", action="extend", nargs="+", metavar="COLUMN", help="one column or two"
    )
    group.add_argument(
        "--robust", nargs="?", const="plain", metavar="KIND", help="HC0 to HC3, CR0 to CR2, HAC(4)"
    )
    group.add_argument("--level", type=float, default=0.95, help="of confidence (default: 0.95)")
    group.add_argument("--null", type=float, help="tested against it (default: no effect)")
    group.add_argument(
        "--transform",
        choices=("log", "logit", "identity", "exp", "expit"),
        help="interval and test on that scale (ratios: log, else identity); or exponentials, "
        "probabilities of logarithms, logits (exp, expit)",
    )
    group.add_argument("--df", type=float, help="degrees of freedom; inf for normal quantiles")
    group.add_argument("--method", help="such as Bootstrap(500), Simulation, FiniteDifference")
    group.add_argument("--seed", type=int, default=0, help="of methods that draw (default: 0)")


def _add_file(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--delimiter", help="of columns (default: comma; tab for .tsv)")
    group.add_argument("--decimal", default=".", help="decimal mark (default: point)")
    group.add_argument("--encoding", help="of the text (default: utf-8)")


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--json", action="store_true", help="print JSON, the same as --output json")
    group.add_argument("--output", choices=("text", "json"), default="text")
    group.add_argument("--csv", metavar="FILE", help="write the tables of all answers")
    group.add_argument("--report", metavar="FILE", help="write a page; numbered if several")
    group.add_argument("--title", metavar="TEXT", help="heading of the page")
    group.add_argument("--question", metavar="TEXT", help="the question in your words, on the page")
    group.add_argument("--plot", metavar="FILE", help="draw a picture; numbered if several")
    group.add_argument("--save", metavar="FILE", help="for Estimate.load (.npz)")
    group.add_argument("--quiet", action="store_true", help="no notes and no progress on stderr")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")

"""Meaning and remedy of findings by their code, for readers who do not write Python.

A code without words of its own is shown by the plain text of the finding.
"""

from collections.abc import Mapping
from typing import NamedTuple

from implicit_delta.core.findings import Finding


class Words(NamedTuple):
    """Text of a finding, with ``{x}`` for its number, where its own uses other words; and remedies.

    `helps` is for the reader of a page, `option` for the user of the command if that differs.
    """

    what: str = ""
    helps: str = ""
    option: str = ""


SCALES = "Give --transform log for a value that is positive, --transform logit for a probability."
UNFINISHED = (
    "Finish the fit before you rely on the interval.",
    "Bring columns of very different size to one scale: scale(x).",
)
NO_MAXIMUM = "Usual causes: a column or a category that separates the outcomes, or very few rows."
SEPARATED = Words("", NO_MAXIMUM, f"{NO_MAXIMUM} Leave the column out, or merge its categories.")
BY_DEFAULT = Words(option="Leave out --method.")
REPEATABLE = Words(helps="A fit that gives the same result twice has no such noise.")

WORDS: Mapping[str, Words] = {
    "bend": Words(
        "The value bends within half a standard error (nonlinearity {x:.2g}, where 0 is a straight "
        "line), so a symmetric interval is doubtful.",
        "An interval from a profile or a bootstrap need not be symmetric.", SCALES,
    ),
    "bent_draws": Words(
        "{x:.0%} of the variance of the value over the draws is not linear in the parameters, and "
        "a robust variance is that of the linear part: it is doubtful here.",
        "A bootstrap is robust and follows a value that bends.", "Give --method Bootstrap.",
    ),
    "nonlinear_draws": Words(
        "{x:.0%} of the variance of the value over the draws is not linear in the parameters: it "
        "has a maximum, a minimum or a wide step here, or the draws reach too far.",
    ),
    "drift": Words(
        "The fit is not finished: going on would move the value by {x:.2g} standard errors.",
        *UNFINISHED,
    ),
    "parameter_drift": Words(
        "The fit is not finished: going on would move a parameter by {x:.2g} standard errors. The "
        "value here depends little on that one.", *UNFINISHED,
    ),
    "debias": Words(
        "The penalty could not be taken out: the value is still {x:.2g} standard errors from that "
        "of a fit without it.", "Fit without the penalty.",
    ),
    "shrinkage": Words(
        "The penalty of the fit has moved the value by {x:.2g} standard errors: the interval is "
        "for the penalized fit, not for the truth.", "A weaker penalty moves it less.",
    ),
    "stop": Words(
        "The training stopped early, and going on with it would move the value by {x:.2g} standard "
        "errors: the interval is for a training that stops there.",
    ),
    "memorized": Words(
        "The residuals of the training rows are too small to measure the error: it is {x:.2g} "
        "times what the curvature of the network implies.",
        "The network has memorized its rows: train on more rows, or stop earlier.",
    ),
    "close_fit": Words(helps="Train on more rows, or stop earlier."),
    "limit": Words(helps="An interval from a profile respects the limits."),
    "one_sided": SEPARATED,
    "parabola": SEPARATED,
    "gauss_newton": Words(helps="The curve fits badly, or a better fit exists."),
    "dispersion": Words(
        "", "A robust variance allows for it, or a model with a dispersion of its own.",
        "Give --robust (--robust HC3 in small samples), or a family with a dispersion of its own, "
        "such as --family negativebinomial for counts.",
    ),
    "pseudo_likelihood": Words("", "A robust variance allows for it.", "Give --robust."),
    "one_cluster": Words(helps="Smaller groups are needed, if these are independent."),
    "few_clusters": Words(
        "", "The correction CR2 allows for few groups.",
        "--robust CR2 allows for few groups; of two kinds of groups, give the kind with fewer.",
    ),
    "coverage": Words(
        "Even if the model is right, a nominal 95% interval covers about {x:.1%} here: the error "
        "rests on few rows or groups, or on a few that count far more than the others.",
        "The corrections HC3 for rows and CR2 for groups allow for it.",
        "Give --robust HC3 for rows, --robust CR2 for clusters, or fewer lags of HAC.",
    ),
    "vanishing_error": Words("", "The variance of the model is safer here.", "Leave out --robust."),
    "monte_carlo_error": Words(
        "", "More draws make it more certain.", 'Take more: --method "Bootstrap(1000)".'
    ),
    "random_fit": REPEATABLE,
    "random_training": REPEATABLE,
    "negative_eigenvalues": BY_DEFAULT,
    "negative_variance": BY_DEFAULT,
    "long_push": BY_DEFAULT,
    "large_push": BY_DEFAULT,
    "jumps": Words(
        "The value jumps near the fit, and its derivative has no part of that: a standard error "
        "away they differ by {x:.0%} of the standard error.",
    ),
}  # fmt: skip


def what(finding: Finding) -> str:
    """Say what was found."""
    own = WORDS.get(finding.code, Words()).what
    return own.format(x=finding.number) if own and finding.number is not None else finding.text


def for_reader(finding: Finding) -> str:
    """Say what was found and what helps, to the reader of a page."""
    return f"{what(finding)} {WORDS.get(finding.code, Words()).helps}".strip()


def for_user(finding: Finding, scale: str | None = None) -> str:
    """Say what was found and what helps, to the user of the command with this --transform."""
    words = WORDS.get(finding.code, Words())
    option = words.option or words.helps
    if option == SCALES and scale in ("log", "logit"):
        option = f"The interval here is made on the {scale} scale instead."
    return f"{what(finding)} {option}".strip()

"""The command that simulates coverage, with a study whose coverage is known; its page."""

import re
import warnings
from operator import itemgetter

import pytest

pytest.importorskip("experiments")

import numpy as np

import implicit_delta as idm
from experiments.command import RESULTS
from experiments.coverage import __main__ as command
from experiments.coverage.study import CHUNK, Outcome, Study, asked
from experiments.records import load_records


def nominal(rng, level):
    """Covers as often as it claims."""
    return {"exact": Outcome(rng.random() < level)}


def fails_half_the_time(rng, level):
    if rng.random() < 0.5:
        raise idm.ConvergenceError("no maximum")
    return {"lucky": Outcome(covered=True)}


@pytest.fixture
def run(tmp_path):
    def run(*studies, **options):
        return command.run(studies, tmp_path, **options)

    return run


def test_coverage_is_the_share_of_replications(run, tmp_path):
    (row,) = run(Study("known", 10, nominal, nominal=0.9, replications=4 * CHUNK))
    assert row["replications"] == 4 * CHUNK
    assert row["coverage"] == row["covered"] / row["replications"]
    assert row["binomial_error"] == pytest.approx(
        np.sqrt(row["coverage"] * (1 - row["coverage"]) / row["replications"]), rel=1e-4
    )
    assert abs(row["coverage"] - 0.9) < 4 * np.sqrt(0.9 * 0.1 / row["replications"])
    (saved,) = load_records(tmp_path / "coverage" / "table.csv")
    assert saved["covered"] == row["covered"]


def test_an_interval_that_could_not_be_made_covers_nothing(run):
    (row,) = run(Study("half", 10, fails_half_the_time), quick=True)
    assert row["covered"] + row["failed"] == row["replications"] == CHUNK
    assert row["failed"] > 0


def test_replications_are_resumed(run, tmp_path):
    study = Study("known", 10, nominal, replications=2 * CHUNK)
    run(study, quick=True)
    (path,) = (tmp_path / "coverage" / "counts").iterdir()
    (kept,) = load_records(path)
    run(study)
    assert load_records(path)[0] == kept
    assert len(load_records(path)) == 2


def told(warn=False, refuse=False, value=1.0):
    """Ask for an estimate with a standard error of one."""

    def ask():
        if warn:
            warnings.warn("doubtful", idm.DriftWarning, stacklevel=2)
        if refuse:
            raise idm.ConvergenceError("no maximum")
        return idm.Estimate(np.array(value), np.array([[1.0]]), names=("psi",), method="given")

    return asked(ask, 0.0, 0.95)


def test_what_a_question_came_with_is_counted():
    assert told() == Outcome(covered=True, error=1.0)
    assert told(value=-2.0) == Outcome(covered=False, error=-2.0)
    assert told(warn=True) == Outcome(covered=True, warned=True, error=1.0)
    assert told(warn=True, refuse=True)[:3] == (False, False, True)
    assert not told(value=2.0)  # an outcome is as true as its interval


def errors_of_two(rng, level):
    """Errors of half and of three standard errors, the latter in every fourth data set."""
    error = 3.0 if rng.random() < 0.25 else 0.5
    error = np.float64(error)  # whose comparisons are booleans of NumPy
    return {"skewed": Outcome(error < 2, warned=error > 2, error=error)}


def test_bias_and_spread_are_of_errors_in_standard_errors(run):
    (row,) = run(Study("skewed", 10, errors_of_two), quick=True)
    rare = 1 - row["coverage"]
    assert row["bias"] == pytest.approx(0.5 + 2.5 * rare)
    expected = 2.5 * np.sqrt(rare * (1 - rare) * CHUNK / (CHUNK - 1))
    assert row["spread"] == pytest.approx(expected, rel=1e-4)
    assert row["above"] == row["warned"] == pytest.approx(rare)
    assert row["silent_coverage"] == 1


def test_comments_do_not_start_a_study_over():
    study = Study("known", 10, nominal)
    assert nominal.__doc__ not in command.code_of(study)
    assert f"def {nominal.__name__}(rng, level):" in command.code_of(study)


def test_two_studies_of_one_name_are_refused(run):
    with pytest.raises(ValueError, match="same task and n"):
        run(Study("one", 10, nominal), Study("one", 10, fails_half_the_time))


def test_the_studies_of_the_command_have_names_of_their_own():
    assert len({(study.task, study.n) for study in command.STUDIES}) == len(command.STUDIES)


# The page and the record behind it

PAGE = (RESULTS.parent / "docs" / "trust" / "coverage.md").read_text(encoding="utf-8")
TABLE = load_records(RESULTS / "coverage" / "table.csv")
PARAGRAPHS = {  # of the page, by the words they open with: tasks and methods that they are about
    "Symmetric intervals of few rows": ["variance of a normal", "odds ratio of a 2 x 2 table"],
    "Normal quantiles": ["normal quantiles"],
    "Plain robust and clustered errors": ["slope of a line", "slope, lognormal", " clusters, "],
    "Poisson errors of overdispersed counts": ["negative binomial under Poisson"],
    "A strong penalty": ["ridge logit, l2 = 20"],
    "Instruments": ["slope by "],
    "Beside a bound": ["upper limit", "signal 0 standard errors from its bound"],
    "Unknown rows": ["unknown rows (bound)"],
    "The model part alone": ["model part alone"],
    "The share on top of a ranking": ["share on top of a ranking"],
    "Profit at the best price": ["profit at the best price"],
    "Refits without a gradient": ["refits without gradient"],
}


def paragraph(words):
    """Text of one item of the page's list."""
    (found,) = (item for item in re.split(r"\n+- |\n\n", PAGE) if item.startswith(f"**{words}"))
    return found


def about(words):
    """Rows of the table that a paragraph is about."""
    return [
        r for r in TABLE if any(part in f"{r['task']}; {r['method']}" for part in PARAGRAPHS[words])
    ]


def is_marked(row):
    """Whether a coverage is more than two binomial errors away from its nominal level."""
    error = np.sqrt(row["nominal"] * (1 - row["nominal"]) / row["replications"])
    return abs(row["coverage"] - row["nominal"]) > 2 * error


def test_the_record_is_whole_but_for_a_control():
    assert {(r["task"], r["n"]) for r in TABLE} <= {(s.task, s.n) for s in command.STUDIES}
    by_hand = (
        ("share on top of a ranking, by hand", 300),
        ("share on top of a ranking, by hand", 1000),
    )
    missing = {(s.task, s.n) for s in command.STUDIES} - {(r["task"], r["n"]) for r in TABLE}
    assert missing <= set(by_hand)  # a control of the third
    assert len({r["release"] for r in TABLE if "release" in r}) == 1


def test_every_marked_row_is_explained_on_the_page():
    explained = [row for words in PARAGRAPHS for row in about(words)]
    assert [row for row in TABLE if is_marked(row) and row not in explained] == []


def counted(task, n, method):
    """Covered data sets of each chunk, as stored."""
    (study,) = (s for s in command.STUDIES if (s.task, s.n) == (task, n))
    rows = load_records(command.counts_path(RESULTS, study))
    return [
        row["covered"] for row in sorted(rows, key=itemgetter("chunk")) if row["method"] == method
    ]


@pytest.mark.parametrize("words", PARAGRAPHS)
def test_a_paragraph_has_marks_to_explain_and_figures_of_its_rows(words):
    rows = about(words)
    assert any(map(is_marked, rows))
    figures = {f"{100 * row[column]:.1f}" for row in rows for column in SHARES if column in row}
    assert set(re.findall(r"([\d.]+) %", paragraph(words))) <= figures


SHARES = ("coverage", "silent_coverage", "warned", "above")


@pytest.mark.parametrize(
    ("words", "task", "n", "method"),
    [
        ("The share on top of a ranking", "share on top of a ranking", 3000, "Simulation"),
        ("Profit at the best price", "profit at the best price", 1000, "Infinitesimal"),
    ],
)
def test_data_sets_that_raised_a_question_are_told_from_the_others(words, task, n, method):
    first, rest = np.split(counted(task, n, method), [4])
    expected = (
        f"{first.sum()} of the first {CHUNK * len(first)} data sets cover, "
        f"{rest.sum()} of the {CHUNK * len(rest)} others"
    )
    assert expected in " ".join(paragraph(words).split())
    share, error = rest.mean() / CHUNK, np.sqrt(0.95 * 0.05 / (CHUNK * len(rest)))
    assert abs(share - 0.95) < 2 * error  # or it is not chance

"""The command that simulates coverage, with a study whose coverage is known."""

import warnings

import pytest

pytest.importorskip("experiments")

import numpy as np

import implicit_delta as idm
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
        np.sqrt(row["coverage"] * (1 - row["coverage"]) / row["replications"])
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
    return {"skewed": Outcome(error < 2, warned=error > 2, error=error)}


def test_bias_and_spread_are_of_errors_in_standard_errors(run):
    (row,) = run(Study("skewed", 10, errors_of_two), quick=True)
    rare = 1 - row["coverage"]
    assert row["bias"] == pytest.approx(0.5 + 2.5 * rare)
    assert row["spread"] == pytest.approx(2.5 * np.sqrt(rare * (1 - rare) * CHUNK / (CHUNK - 1)))
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

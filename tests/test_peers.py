"""Stored answers of the peers: complete, of these scripts, and of these numbers."""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import data, table
from benchmarks.peers.questions import (
    COVARIANCE,
    INTERVAL,
    LIBRARIES,
    OURS,
    PEERS,
    QUESTIONS,
    error,
    value_error,
)
from benchmarks.peers.source import script

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "peers"
PAGE = ROOT / "docs" / "trust" / "peers.md"
SLOW = 4  # the bootstrap
pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="the records are not in this copy")


def load(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def truth():
    return {int(q): found for q, found in load("truth").items()}


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_question_is_answered_or_has_a_reason(library):
    stored = load(library)
    assert list(stored) == [str(q) for q in QUESTIONS]
    for found in stored.values():
        if "cannot" in found:
            assert len(found["cannot"]) > 10
            assert set(found) == {"cannot"}
        else:
            assert np.all(np.isfinite(found["spread"]))
            assert found["ratio"]["both"] > 0


def test_there_are_seven_peers_and_all_answer_something():
    assert len(PEERS) == 7
    for library in PEERS:
        assert sum("cannot" not in found for found in load(library).values()) >= 3


@pytest.mark.parametrize("library", LIBRARIES)
def test_lines_and_reasons_are_those_of_the_scripts(library):
    source = script(library)
    for q, found in load(library).items():
        question = int(q)
        assert (question in source.answers) != (question in source.cannot)
        if "cannot" in found:
            assert found["cannot"] == source.cannot[question]
            continue
        code = source.fingerprint(question) + script(OURS).fingerprint(question)
        assert found["code"] == code, "the script has changed: run `make peers`"
        assert found["lines"] == source.lines(question) > 0
        assert found["hand"] == source.hand.get(question, "")


def test_lines_are_counted_without_blanks_comments_and_imports():
    ours = script(OURS)
    assert ours.functions["ask", 9][0].startswith("    model = ")  # after an import and a blank
    assert len(script("car").functions["ask", 1]) == 2
    assert all(
        line.strip() and not line.strip().startswith("#") for line in ours.functions["fit", 10]
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_values_are_answers_to_the_same_question(library, truth):
    """Fits that stop early are a small part of a standard error away from the reference."""
    for q, found in load(library).items():
        if "cannot" not in found:
            assert value_error(int(q), found["value"], truth[int(q)]) < 0.01


def test_our_errors_are_those_of_arithmetic(truth):
    """All but the bootstrap, whose 200 replicates leave 5 % and whose reference is simulated."""
    for q, found in load(OURS).items():
        if int(q) != SLOW:
            assert error(int(q), found["spread"], truth[int(q)]["spread"]) < table.SAME_ERROR


def test_errors_see_a_wrong_answer(truth):
    for q, found in truth.items():
        assert error(q, found["spread"], found["spread"]) == 0
        wrong = np.asarray(found["spread"]) * 1.1
        assert error(q, wrong, found["spread"]) > 0.05


@pytest.mark.parametrize("question", [q for q in QUESTIONS if q != SLOW])
def test_our_answers_are_those_of_today(question):
    pytest.importorskip("statsmodels")
    if data.OF[question] == "classes":
        pytest.importorskip("torch")
    from benchmarks.peers.answer import given, plain
    from benchmarks.peers.scripts import implicit_delta as ours

    read = data.read(question)
    fit = getattr(ours, f"fit_{question}", given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value, spread = getattr(ours, f"ask_{question}")(fit(read), read)
    found = load(OURS)[str(question)]
    assert error(question, plain(spread), found["spread"]) < 1e-6
    assert np.allclose(plain(value), found["value"], rtol=1e-6)


def test_data_are_those_of_their_seeds():
    for make in data.MADE:
        stored = np.loadtxt(data.FOLDER / f"{make.__name__}.csv", delimiter=",", skiprows=1)
        assert np.allclose(stored, np.column_stack(list(make().values())), rtol=1e-9)


@pytest.mark.slow
def test_a_reference_is_recomputed():
    pytest.importorskip("mpmath")
    pytest.importorskip("pandas")
    from benchmarks.peers import truth as references

    for question in (2, INTERVAL):
        found, stored = references.ANSWERS[question](), load("truth")[str(question)]
        assert np.allclose(found["spread"], stored["spread"], rtol=1e-12)


def test_network_is_at_its_maximum():
    pytest.importorskip("pandas")
    torch = pytest.importorskip("torch")
    net, X, y, *_ = data.network()
    loss = torch.nn.functional.cross_entropy(net(X), y, reduction="sum")
    loss = loss + data.L2 / 2 * sum(p.square().sum() for p in net.parameters())
    slopes = torch.autograd.grad(loss, list(net.parameters()))
    assert max(float(s.abs().max()) for s in slopes) < 1e-12


def test_marked_rows_are_those_where_a_peer_is_better(truth):
    header, rows = table.peers_answers()
    assert all(len(row) == len(header) + 1 for row in rows)
    answered = [
        (q, lib) for q in QUESTIONS for lib in LIBRARIES if "cannot" not in load(lib)[str(q)]
    ]
    assert len(rows) == len(answered)
    for (question, library), row in zip(answered, rows, strict=True):
        theirs, ours = load(library)[str(question)], load(OURS)[str(question)]
        fewer = theirs["lines"] < ours["lines"]
        faster = theirs["ratio"]["both"] * 1.1 < 1
        exact = [error(question, x["spread"], truth[question]["spread"]) for x in (theirs, ours)]
        closer = exact[0] < exact[1] and exact[1] > 1e-6
        peer = library != OURS
        assert row[-1] == (fewer or faster or closer if peer else exact[1] > 1e-6)


def test_tables_hold_all_cells():
    _, answers = table.peers_answers()
    _, reasons = table.peers_reasons()
    assert len(answers) + len(reasons) == len(LIBRARIES) * len(QUESTIONS)
    for make in (table.peers, table.peers_reasons, table.peers_references, table.peers_versions):
        header, rows = make()
        assert all(len(row) == len(header) + 1 and isinstance(row[-1], bool) for row in rows)


def test_words_of_the_page_hold(truth):
    """What the page says that a peer does better, and where we are worst."""
    better = table.better
    for question in (3, 5):
        assert "seconds" in better("statsmodels", question)
    for library in ("statsmodels", "delicatessen"):
        assert "lines" in better(library, 10)
    for library in ("statsmodels", "car"):
        assert {"lines", "seconds", "error"} <= set(better(library, SLOW))
    for library in ("curvlinops", "laplace"):
        assert all("seconds" in better(library, q) for q in (8, COVARIANCE))
    assert all(load("iminuit")[str(q)]["ratio"]["both"] < 0.5 for q in (1, 6, INTERVAL))
    for question in (1, 2):
        assert load("car")[str(question)]["lines"] <= load(OURS)[str(question)]["lines"]


def test_page_types_no_measured_number():
    """Numbers of the page are in its tables; words may count, and 50 digits are a setting."""
    text = re.sub(r"`[^`]*`", "", re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL))
    assert set(re.findall(r"\d+", text)) <= {"50", "1"}


def test_records_name_no_place():
    for path in RESULTS.glob("*.json"):
        assert not re.search(r"/(work|home|root|tmp|usr)/", path.read_text())


def test_covariance_is_a_matrix(truth):
    assert np.shape(truth[COVARIANCE]["spread"]) == (15, 15)

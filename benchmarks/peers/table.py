"""Tables of the site, made from the stored answers.

Marked are rows where a peer is better, and rows of ours with an error.
"""

import json
from functools import cache
from statistics import median

from benchmarks.peers.environments import ROOT
from benchmarks.peers.questions import LIBRARIES, OURS, QUESTIONS, error

RESULTS = ROOT / "results" / "peers"
SAME_ERROR, SAME_TIME = 1e-6, 1.1  # below which an error, and within which a time, is a tie


def peers():
    """Each library in one row: what it answers, and how its answers compare with ours."""
    header = [
        "library", "answers", "of them by hand", "cannot",
        "lines", "seconds", "largest error", "better than ours in",
    ]  # fmt: skip
    return header, [_summary(library) for library in LIBRARIES]


def peers_answers():
    """Each answer in one row: lines, times as ratios to ours, error against the reference."""
    header = [
        "question", "library", "lines", "seconds", "without the fit", "error", "better", "remark",
    ]  # fmt: skip
    return header, [
        _row(question, library)
        for question in QUESTIONS
        for library in LIBRARIES
        if "cannot" not in _answer(library, question)
    ]


def peers_reasons():
    """What a library cannot do, and why."""
    rows = [
        [QUESTIONS[question], LIBRARIES[library], _answer(library, question)["cannot"], False]
        for question in QUESTIONS
        for library in LIBRARIES
        if "cannot" in _answer(library, question)
    ]
    return ["question", "library", "why not"], rows


def peers_references():
    """Reference of each question, and how it was made."""
    rows = [
        [str(q), QUESTIONS[q], _reference(q), _made(q), False] for q in QUESTIONS
    ]  # fmt: skip
    return ["", "question", "reference", "made by"], rows


def peers_versions():
    """Versions of what was compared."""
    rows = []
    for library, name in LIBRARIES.items():
        found = next(a["versions"] for a in _load(library).values() if "versions" in a)[library]
        rows.append([name, ", ".join(f"{p} {v}" for p, v in found.items()), False])
    return ["library", "versions"], rows


def better(library, question):
    """Names of what the peer does better than we do."""
    if library == OURS:
        return []
    theirs, ours = _answer(library, question), _answer(OURS, question)
    if "cannot" in theirs:
        return []
    wins = {
        "lines": theirs["lines"] < ours["lines"],
        "seconds": theirs["ratio"]["both"] < 1 / SAME_TIME,
        "error": _error(library, question) < _error(OURS, question) > SAME_ERROR,
    }
    return [name for name, won in wins.items() if won]


def _row(question, library):
    found = _answer(library, question)
    ratio, separate = found["ratio"], _separate(library, question)
    wins = better(library, question)
    return [
        QUESTIONS[question],
        LIBRARIES[library],
        str(found["lines"]),
        _short(ratio["both"]),
        _short(ratio["ask"]) if separate else "",
        _size(_error(library, question)),
        ", ".join(wins),
        "; ".join(filter(None, [found["hand"] and f"by hand: {found['hand']}", found["note"]])),
        bool(wins) or (library == OURS and _error(OURS, question) > SAME_ERROR),
    ]


def _summary(library):
    answers = {q: _answer(library, q) for q in QUESTIONS}
    given = {q: a for q, a in answers.items() if "cannot" not in a}
    lines = sum(a["lines"] for a in given.values())
    ours = sum(_answer(OURS, q)["lines"] for q in given)
    counts = [sum(name in better(library, q) for q in given) for name in BETTER]
    told = [f"{name}: {count}" for name, count in zip(BETTER, counts, strict=True) if count]
    return [
        LIBRARIES[library],
        str(len(given)),
        str(sum(bool(a["hand"]) for a in given.values())),
        str(len(answers) - len(given)),
        f"{lines}" if library == OURS else f"{lines}, ours {ours}",
        _short(median(a["ratio"]["both"] for a in given.values())),
        _size(max(_error(library, q) for q in given)),
        ", ".join(told),
        any(counts) or (library == OURS and any(_error(OURS, q) > SAME_ERROR for q in given)),
    ]


BETTER = ("lines", "seconds", "error")


def _error(library, question):
    return error(question, _answer(library, question)["spread"], _truth(question)["spread"])


def _separate(library, question):
    return _answer(library, question)["separate"] and _answer(OURS, question)["separate"]


def _reference(question):
    spread = _truth(question)["spread"]
    if isinstance(spread, list):
        return "limits {:.6g}, {:.6g}".format(*spread) if len(spread) == 2 else "a matrix"
    return f"{spread:.6g}"


def _made(question):
    truth = _truth(question)
    noise = truth.get("monte_carlo_error")
    return truth["how"] + (f" (± {noise / truth['spread']:.1%})" if noise else "")


def _answer(library, question):
    return _load(library)[str(question)]


def _truth(question):
    return _load("truth")[str(question)]


@cache
def _load(name):
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise FileNotFoundError(f"results/peers/{name}.json")
    return json.loads(path.read_text())


def _size(error):
    """An error in words that fit its size; below 1e-12 it is that of the last digits."""
    if error < 1e-12:
        return "< 1e-12"
    return f"{error:.0%}" if error >= 0.01 else f"{error:.0e}"


def _short(ratio):
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"

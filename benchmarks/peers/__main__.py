"""Put the ten questions to the libraries: ``python -m benchmarks.peers [--only library ...]``.

An answer that is stored with the same code (of the peer and of ours), data and versions is not
computed again. Environments that are missing are made (gigabytes: four hold torch); R is left out
if it is not there.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
from pathlib import Path
from statistics import median

from benchmarks.peers.data import FOLDER
from benchmarks.peers.environments import PACKAGES, R_PACKAGES, ROOT, make, python
from benchmarks.peers.questions import LIBRARIES, OURS, QUESTIONS
from benchmarks.peers.source import script

RESULTS = ROOT / "results" / "peers"
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ROUNDS, SLOW = 7, 1.0  # one round is enough if an answer takes more seconds
LEAST, MOST = 0.05, 50  # seconds of a round, repeats in a round


def main():
    libraries = [library for library in arguments().only or LIBRARIES if ready(library)]
    ours = Contestant(OURS)
    for library in libraries:
        put(Contestant(library), ours)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(LIBRARIES), metavar="library")
    return parser.parse_args()


def ready(library):
    """Make the environments that are missing; False if R is."""
    make(OURS)
    if library != "car":
        make(library)
    elif not shutil.which("Rscript"):
        print("R is not installed: its answers stay as they are stored")
        return False
    return True


class Contestant:
    """A process in the environment of a library that answers questions."""

    def __init__(self, library):
        if library == "car":
            command = ["Rscript", str(Path(__file__).with_name("answer.R")), str(FOLDER)]
        else:
            command = [str(python(library)), "-m", "benchmarks.peers.answer", library]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | THREADS, stdin=pipe, stdout=pipe, text=True
        )
        self.library, self.script = library, script(library)
        self.versions = self.told("versions", *PACKAGES.get(library, R_PACKAGES))

    def told(self, *words):
        """Send a command and read the JSON object that answers it."""
        print(*words, file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"{self.library} failed at: {' '.join(map(str, words))}")

    def seconds(self, question, repeats=1):
        """CPU seconds of the question alone, and with the fit."""
        found = self.told("round", question, repeats)
        return {"ask": found["ask"], "both": found["fit"] + found["ask"]}


def put(theirs, ours):
    """Put to a library the questions that it has not answered yet, and store each answer."""
    stored = load(theirs.library)
    for question in QUESTIONS:
        found = stored.get(str(question), {})
        key = {
            "code": theirs.script.fingerprint(question) + ours.script.fingerprint(question),
            "versions": {OURS: ours.versions, theirs.library: theirs.versions},
        }
        if question in theirs.script.cannot:
            found = {"cannot": theirs.script.cannot[question]}
        else:
            if any(found.get(name) != value for name, value in key.items()):
                found = compared(theirs, ours, question) | key
                ratio = found["ratio"]["both"]
                print(f"{theirs.library:16} {question:3} {ratio:8.3g} times ours", flush=True)
            found |= described(theirs.script, question)
        store(theirs.library, question, found)


def compared(theirs, ours, question):
    """Answer, and take times in alternating rounds; the ratio is the median over rounds."""
    found = theirs.told("answer", question)
    ours.told("answer", question)
    rounds = [[c.seconds(question) for c in (theirs, ours)]]
    if all(s["both"] < SLOW for s in rounds[0]):
        pair = [(c, repeats_for(s)) for c, s in zip((theirs, ours), rounds[0], strict=True)]
        rounds = [[c.seconds(question, k) for c, k in pair] for _ in range(ROUNDS)]
    return found | {
        "ratio": {k: round(median(a[k] / b[k] for a, b in rounds), 4) for k in ("ask", "both")},
        "milliseconds": {
            k: round(1000 * median(a[k] for a, _ in rounds), 3) for k in ("ask", "both")
        },
    }


def repeats_for(seconds):
    """Number of repeats that make a round long enough for the clock."""
    return min(MOST, math.ceil(LEAST / max(seconds["both"], 1e-3)))


def described(theirs, question):
    """What the script itself tells about an answer."""
    return {
        "lines": theirs.lines(question),
        "separate": theirs.separate(question),
        "hand": theirs.hand.get(question, ""),
        "note": theirs.notes.get(question, ""),
    }


def load(library):
    path = RESULTS / f"{library}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def store(library, question, found):
    RESULTS.mkdir(parents=True, exist_ok=True)
    record = load(library) | {str(question): found}
    record = {str(q): record[str(q)] for q in QUESTIONS if str(q) in record}
    (RESULTS / f"{library}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

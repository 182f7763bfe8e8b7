"""Put the ten questions to the libraries: ``python -m benchmarks.peers [--only library ...]``.

An answer that is stored with the same code (of the peer and of ours), data and versions is not
computed again. Environments that are missing are made (gigabytes: two hold torch); R is left out
if it is not there.
"""

import argparse
import json
import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.peers.data import FOLDER, OF
from benchmarks.peers.environments import BUILD, PACKAGES, R_PACKAGES, ROOT, make, python
from benchmarks.peers.questions import LIBRARIES, OURS, QUESTIONS
from benchmarks.peers.source import script

RESULTS = ROOT / "results" / "peers"
R = Path(__file__).with_name("answer.R")
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def main():
    for library in arguments().only or LIBRARIES:
        if library == "car" and not shutil.which("Rscript"):
            print("R is not installed: its answers stay as they are stored")
            continue
        make(OURS)
        if library != "car":
            make(library)
        put(library)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(LIBRARIES), metavar="library")
    return parser.parse_args()


def put(library):
    """Put the questions that are not yet answered, and store each answer when it is there."""
    ours, theirs = script(OURS), script(library)
    used = {library: versions(library), OURS: versions(OURS)}
    stored = load(library)
    answers = stored["answers"] if stored.get("versions") == used else {}
    kept = {}
    for question in QUESTIONS:
        kept[str(question)] = keep(library, question, answers.get(str(question)), ours, theirs)
        store(library, {"versions": used, "answers": kept})


def keep(library, question, found, ours, theirs):
    """Take a stored answer if its code is the same; else compute it, or give the reason why not."""
    if question in theirs.cannot:
        return {"cannot": theirs.cannot[question]}
    code = theirs.fingerprint(question) + ours.fingerprint(question)
    if found is None or found.get("code") != code:
        found = between(library, question) | {"code": code}
        ratio = found["ratio"]["both"]
        print(f"{LIBRARIES[library]:18} {question:3} {ratio:8.3g} times ours", flush=True)
    return found | {
        "lines": theirs.lines(question),
        "separate": theirs.separate(question),
        "hand": theirs.hand.get(question, ""),
        "note": theirs.notes.get(question, ""),
    }


def between(library, question):
    """Answer between two answers of ours; the ratio is to the mean of both."""
    before = answer(OURS, question)
    found = answer(library, question)
    after = answer(OURS, question)
    seconds = found.pop("seconds")
    ours = {k: (before["seconds"][k] + after["seconds"][k]) / 2 for k in seconds}
    times = {k: round(seconds[k] / ours[k], 4) for k in seconds}
    ms = {k: round(1000 * s, 3) for k, s in seconds.items()}
    return found | {"ratio": times, "milliseconds": ms}


def answer(library, question):
    """Run one answer in a process of the library's own environment."""
    if library == "car":
        return called("Rscript", R, question, FOLDER / f"{OF[question]}.csv")
    return called(python(library), "-m", "benchmarks.peers.answer", library, question)


def versions(library):
    if library == "car":
        return called("Rscript", R, "versions", *R_PACKAGES)
    return called(python(library), "-m", "benchmarks.peers.answer", "versions", *PACKAGES[library])


def called(*command):
    """Run a program and read the JSON object of its last line."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=os.environ | THREADS,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def load(library):
    path = RESULTS / f"{library}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def store(library, record):
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{library}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    BUILD.mkdir(parents=True, exist_ok=True)
    main()

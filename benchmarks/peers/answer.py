"""Answer one question by one library: ``python -m benchmarks.peers.answer library question``.

Run by the driver in the environment of the library; prints a JSON object.
"""

import json
import math
import platform
import sys
import warnings
from importlib import import_module
from importlib.metadata import distributions
from statistics import median
from time import process_time

from benchmarks.peers.data import read

ROUNDS, LEAST, MOST = 7, 0.05, 50  # seconds of a round, repeats in a round


def main():
    if sys.argv[1] == "versions":
        return print(json.dumps(versions(sys.argv[2:])))
    library, question = sys.argv[1], int(sys.argv[2])
    script = import_module(f"benchmarks.peers.scripts.{library}")
    ask, fit = getattr(script, f"ask_{question}"), getattr(script, f"fit_{question}", given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = answered(fit, ask, read(question))
    print("\n" + json.dumps(found))


def given(data):
    """Stand in for a fit: the trained network, or nothing where a library fits as it answers."""
    return getattr(data, "net", None)


def answered(fit, ask, data):
    """Value and spread, with the CPU seconds of `ask` and of both."""
    value, spread = ask(fit(data), data)
    once = sum(timed(fit, ask, data))
    repeats = min(MOST, math.ceil(LEAST / max(once, 1e-6)))
    rounds = [one_round(fit, ask, data, repeats) for _ in range(ROUNDS)]
    seconds = {
        "ask": median(asked for _, asked in rounds),
        "both": median(fitted + asked for fitted, asked in rounds),
    }
    return {"value": plain(value), "spread": plain(spread), "seconds": seconds}


def one_round(fit, ask, data, repeats):
    parts = [timed(fit, ask, data) for _ in range(repeats)]
    return [sum(part) / repeats for part in zip(*parts, strict=True)]


def timed(fit, ask, data):
    start = process_time()
    fitted = fit(data)
    between = process_time()
    ask(fitted, data)
    return between - start, process_time() - between


def plain(numbers):
    """Numbers, arrays and tensors as floats and lists."""
    for convert in ("detach", "tolist"):
        numbers = getattr(numbers, convert, lambda numbers=numbers: numbers)()
    return [plain(x) for x in numbers] if isinstance(numbers, (list, tuple)) else float(numbers)


def versions(packages):
    found = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in distributions()}
    return {"python": platform.python_version()} | {name: found[name] for name in packages}


if __name__ == "__main__":
    main()

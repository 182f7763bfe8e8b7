"""Answer questions by one library: ``python -m benchmarks.peers.answer library``.

Run by the driver in the environment of the library. Reads commands from its input, a line each,
and prints a JSON object for each: ``versions package ...``, ``answer question``, and
``round question repeats``, the CPU seconds of the fit and of the question.
"""

import json
import platform
import sys
import warnings
from functools import cache
from importlib import import_module
from importlib.metadata import distributions
from time import process_time

from benchmarks.peers.data import read


def main():
    script = import_module(f"benchmarks.peers.scripts.{sys.argv[1]}")
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        command, *words = line.split()
        print("\n" + json.dumps(COMMANDS[command](script, *words)), flush=True)


def versions(_, *packages):
    found = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in distributions()}
    return {"python": platform.python_version()} | {name: found[name] for name in packages}


def answer(script, question):
    """Value and spread; the first call is the warm-up, too."""
    fit, ask, data = prepared(script, question)
    value, spread = ask(fit(data), data)
    return {"value": plain(value), "spread": plain(spread)}


def one_round(script, question, repeats):
    """Mean CPU seconds of the fit and of the question."""
    fit, ask, data = prepared(script, question)
    parts = [timed(fit, ask, data) for _ in range(int(repeats))]
    return dict(
        zip(("fit", "ask"), (sum(p) / len(p) for p in zip(*parts, strict=True)), strict=True)
    )


COMMANDS = {"versions": versions, "answer": answer, "round": one_round}


@cache
def prepared(script, question):
    ask, fit = getattr(script, f"ask_{question}"), getattr(script, f"fit_{question}", given)
    return fit, ask, read(int(question))


def given(data):
    """Stand in for a fit: the trained network, or nothing where a library fits as it answers."""
    return getattr(data, "net", None)


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


if __name__ == "__main__":
    main()

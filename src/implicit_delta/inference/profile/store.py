"""File of finished profiles: JSON, one entry for each model, quantity and setting."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from implicit_delta.core.findings import Finding
from implicit_delta.core.types import Array
from implicit_delta.estimate import Interval
from implicit_delta.evaluation import Evaluation
from implicit_delta.inference.profile.result import Curve, Profile
from implicit_delta.models.objective import objective_of

FORMAT = "implicit-delta profiles, 1"
DIGITS = 10  # significant, of what goes into a key: fits repeat to more
BESIDE = 1e-2  # of a standard error: psi and the log-likelihood are looked at there too
CORRUPT = (
    "{path} is no file of profiles: {reason}. Usual causes: another kind of file, or a disk that "
    "was full. Give another `cache=`, or remove the file to start anew."
)


@dataclass(frozen=True, eq=False)
class Store:
    """Finished profiles by key, and the file that they are in."""

    path: Path
    entries: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | Path) -> "Store":
        """Read the file, if there is one; refuse what is none of this kind."""
        path = Path(path)
        if path.is_dir():
            raise ValueError(f"cache= is a directory, {path}: give a file in it, such as a.json.")
        if not path.exists():
            if not path.parent.is_dir():
                raise ValueError(f"cache= is in a directory that does not exist: {path.parent}.")
            return cls(path)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(CORRUPT.format(path=path, reason=error)) from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(CORRUPT.format(path=path, reason=f"it has no format {FORMAT!r}"))
        if not isinstance(content.get("entries"), dict):
            raise ValueError(CORRUPT.format(path=path, reason="it has no entries"))
        return cls(path, content["entries"])

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def read(self, key: str) -> tuple[Profile, list[list[str]]]:
        """Make the profile of an entry, and the warnings that came with it."""
        try:
            entry = self.entries[key]
            if entry["digest"] != _digest_of(entry["profile"]):
                raise ValueError("an entry was changed")
            return _restored(entry["profile"]), entry["told"]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(CORRUPT.format(path=self.path, reason=error)) from None

    def write(self, key: str, profile: Profile, told: Sequence[Sequence[str]]) -> None:
        """Add an entry, and write the whole file beside the old one before that is replaced."""
        content = _content(profile)
        self.entries[key] = {
            "digest": _digest_of(content), "profile": content, "told": [list(t) for t in told],
        }  # fmt: skip
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        beside.write_text(json.dumps({"format": FORMAT, "entries": self.entries}), "utf-8")
        beside.replace(self.path)


def key_of(evaluation: Evaluation, settings: str) -> str:
    """Digest of the model and the question: data, theta, psi there and beside it, settings."""
    model = evaluation.model
    theta, units = model.theta, objective_of(model).units
    beside = theta + BESIDE * units * np.cos(np.arange(theta.size))
    arrays = [
        theta,
        model.weights.values,
        model.rows.terms(theta),
        np.atleast_1d(model.objective(beside)),
        evaluation.value,
        evaluation.jacobian(theta) * units,
        evaluation(beside) - evaluation.value,
    ]
    texts = [
        type(model).__name__,
        str(model.space.constraints),
        model.weights.kind,
        *evaluation.names,
    ]
    parts = [*map(_rounded, arrays), *texts, f"{model.facts.df:.6g}", settings]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _rounded(values: Array) -> str:
    """Write numbers to some digits of the largest of them, so that rounding does not enter."""
    size = float(np.max(np.abs(values), initial=0.0))
    return np.array2string(
        np.round(values / (size or 1.0), DIGITS - 2) + 0.0, threshold=values.size + 1
    ) + f" {size:.{DIGITS - 2}g}"  # fmt: skip


def _content(profile: Profile) -> dict[str, Any]:
    return {
        "value": profile.value,
        "budget": dict(profile.budget),
        "intervals": [[level, *map(float, ends)] for level, ends in profile.intervals.items()],
        "pieces": [
            [level, [list(map(float, piece)) for piece in pieces]]
            for level, pieces in profile.pieces.items()
        ],
        "curve": [list(map(float, column)) for column in profile.curve],
        "name": profile.name,
        "several": profile.several,
        "penalized": profile.penalized,
        "passes": int(profile.passes),
        "seconds": float(profile.seconds),
        "df": float(profile.df),
        "limits": list(profile.limits),
        "side": profile.side,
        "findings": [[f.level, f.code, f.text, f.number] for f in profile.findings],
    }


def _restored(content: dict[str, Any]) -> Profile:
    return Profile(
        **content
        | {
            "intervals": {level: Interval(*ends) for level, *ends in content["intervals"]},
            "pieces": {
                level: tuple(Interval(*piece) for piece in pieces)
                for level, pieces in content["pieces"]
            },
            "curve": Curve(*(np.array(column) for column in content["curve"])),
            "limits": tuple(content["limits"]),
            "findings": tuple(Finding(*stored) for stored in content["findings"]),
        }
    )


def _digest_of(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

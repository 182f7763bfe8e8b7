"""Estimates in files: NumPy's arrays and a line of JSON, so that loading one runs no code."""

import json
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

FORMAT = "implicit-delta estimate"
VERSION = 1


def write(
    path: str | os.PathLike[str], texts: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write numbers, strings and lists of them beside arrays into one ``.npz`` file."""
    header = json.dumps({"format": FORMAT, "version": VERSION, **texts})
    with open(path, "wb") as file:  # a name would be changed if it did not end in .npz
        np.savez_compressed(file, header=np.array(header), **arrays)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what `write` wrote."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as entries:
            header = json.loads(str(entries["header"]))
            arrays = {name: entries[name] for name in entries.files if name != "header"}
    except (KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(_complaint(path)) from error
    if header.get("format") != FORMAT:
        raise ValueError(_complaint(path))
    if header.get("version") != VERSION:
        raise ValueError(
            f"{os.fspath(path)} has version {header.get('version')} of the format, and this "
            f"release reads version {VERSION}. Install the release that wrote it, or a later one."
        )
    return header, arrays


def plain(content: Any) -> Any:
    """Turn NumPy's numbers inside dictionaries into Python's, which JSON knows."""
    if isinstance(content, Mapping):
        return {str(name): plain(entry) for name, entry in content.items()}
    return content.item() if isinstance(content, np.generic) else content


def _complaint(path: str | os.PathLike[str]) -> str:
    return f"{os.fspath(path)} is not an estimate written by `Estimate.save`, or it is damaged."

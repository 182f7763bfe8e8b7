"""Estimates in files: NumPy's arrays and a line of JSON, so that loading one runs no code.

A file is distrusted: names, types, shapes and sizes of its members are held against the number of
evaluations before any of them is unpacked, so that damage costs neither memory nor a wrong number.
"""

import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any, TypeVar

import numpy as np

FORMAT = "implicit-delta estimate"
VERSION = 1  # what changes the meaning of a number gets another one; a new diagnostic does not
DEEPEST = 8  # levels of JSON: a header has three, and notes may have some of their own
UNNOTICED = 2**26  # bytes that may be unpacked from however small a file
PACKED = 500  # times beyond that: numbers shrink by 2, sparse ones by 100, bombs by 1000

BY_ROW = {"influence", "draws", "deviations"}  # (rows, K)
OF_ROWS = {"rows_counts", "rows_labels", "rows_series"}  # (rows,)
OF_ROWS |= {f"rows_way{i}" for i in range(3)}
OF_EACH = {"df", "acceleration", "drift"}  # (K,)
LEFT, MIDDLE = "_left", "_middle"  # of covariances in factors: (K, r) and (r, r)
OPTIONAL = {*BY_ROW, *OF_ROWS, *OF_EACH}

T = TypeVar("T")


class _LaterVersion(Exception):
    """A file of a release that did not exist yet."""


def write(
    path: str | os.PathLike[str], texts: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write numbers, strings and lists of them beside arrays into one ``.npz`` file."""
    header = np.array(json.dumps({"format": FORMAT, "version": VERSION, **texts}))
    content = header.nbytes + sum(np.asarray(array).nbytes for array in arrays.values())
    for save in (np.savez_compressed, np.savez):
        with open(path, "wb") as file:  # a name would be changed if it did not end in .npz
            save(file, header=header, **arrays)
            if content <= _most_content(file.tell()):
                return  # else so monotonous that `read` would take it for a bomb


def read(path: str | os.PathLike[str], build: Callable[[dict[str, Any], dict[str, Any]], T]) -> T:
    """Read what `write` wrote, and build something of its texts and arrays."""
    with open(path, "rb") as file:
        try:
            return build(*_content(file))
        except _LaterVersion as error:
            raise ValueError(f"{os.fspath(path)} {error}") from None
        except Exception as error:  # of many kinds, in the parsers of three formats
            raise ValueError(
                f"{os.fspath(path)} is not an estimate written by `Estimate.save`, or it is "
                "damaged."
            ) from error


def plain(content: Any) -> Any:
    """Turn NumPy's numbers inside dictionaries into Python's, which JSON knows."""
    if isinstance(content, Mapping):
        return {str(name): plain(entry) for name, entry in content.items()}
    return content.item() if isinstance(content, np.generic) else content


def _content(file: IO[bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    with zipfile.ZipFile(file) as archive:
        members = _members(archive, os.fstat(file.fileno()).st_size)
        header = _header(archive, members.pop("header"))
        matrices = ["covariance", *(f"part{i}" for i in range(len(header["parts"])))]
        factored = {name for name in matrices if name + LEFT in members}
        needed = {"value", *(name + LEFT * (name in factored) for name in matrices)}
        allowed = needed | OPTIONAL | {name + MIDDLE for name in factored}
        if not needed <= set(members) <= allowed:
            raise ValueError(f"other arrays than {needed}")
        K = len(header["names"])
        return header, {name: _array(archive, name, entry, K) for name, entry in members.items()}


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """List the members by name, if together they are as large as such a file can be."""
    entries = archive.infolist()
    members = {entry.filename.removesuffix(".npy"): entry for entry in entries}
    if len(members) < len(entries) or sum(entry.compress_size for entry in entries) > size:
        raise ValueError("members that share a name or their bytes")
    if sum(entry.file_size for entry in entries) > _most_content(size):
        raise ValueError("much more content than such a file can have")
    return members


def _most_content(size: int) -> int:
    return max(UNNOTICED, PACKED * size)


def _header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> dict[str, Any]:
    with archive.open(entry) as member:
        shape, _, dtype = _description(member)
        if shape != () or dtype.kind != "U":
            raise ValueError("a header that is not text")
        text = str(np.frombuffer(member.read(), dtype)[0])
    header = json.loads(text)
    if header["format"] != FORMAT or not isinstance(header["version"], int):
        raise ValueError("another format")
    if header["version"] != VERSION:
        raise _LaterVersion(
            f"has version {header['version']} of the format, and this release reads version "
            f"{VERSION}. Install the release that wrote it, or a later one."
        )
    _check_depth(header, DEEPEST)
    for key in ("names", "parts"):
        if not isinstance(header[key], list) or {*map(type, header[key])} - {str}:
            raise TypeError(f"{key} that are not a list of strings")
    if len(set(header["parts"])) < len(header["parts"]) or not isinstance(header["method"], str):
        raise ValueError("parts of the same name, or a method that is not text")
    if not isinstance(header.get("target", ""), str):
        raise TypeError("a target that is not text")
    return dict(header)


def _check_depth(content: Any, levels: int) -> None:
    inside = content.values() if isinstance(content, dict) else content
    if isinstance(content, dict | list):
        if levels == 0:
            raise ValueError("a header of many levels")
        for entry in inside:
            _check_depth(entry, levels - 1)


def _array(
    archive: zipfile.ZipFile, name: str, entry: zipfile.ZipInfo, K: int
) -> np.ndarray[Any, Any]:
    """Read float64 numbers that fit K evaluations, once the member has the size for them."""
    with archive.open(entry) as member:
        shape, fortran, dtype = _description(member)
        if dtype.newbyteorder("=") != np.float64 or not _fits(name, shape, K):
            raise ValueError(f"{name} of {dtype} and shape {shape} for {K} evaluations")
        if entry.file_size - member.tell() != dtype.itemsize * math.prod(shape):
            raise ValueError(f"{name} of another size than its shape {shape}")
        flat = np.frombuffer(member.read(), dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _fits(name: str, shape: tuple[int, ...], K: int) -> bool:
    if name == "value":
        return shape == (K,) or (shape, K) == ((), 1)
    if name in BY_ROW:
        return len(shape) == 2 and shape[1] == K and shape[0] >= 0
    if name in OF_ROWS:
        return len(shape) == 1
    if name.endswith(LEFT):
        return len(shape) == 2 and shape[0] == K
    if name.endswith(MIDDLE):
        return len(shape) == 2 and shape[0] == shape[1]
    return shape == ((K,) if name in OF_EACH else (K, K))


def _description(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the shape, the order and the type of an array, and none of its numbers."""
    parse = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    shape, fortran, dtype = parse[np.lib.format.read_magic(member)](member)
    return shape, fortran, dtype

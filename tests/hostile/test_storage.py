"""Damaged and forged files: `Estimate.load` gives back what was saved, or says that it cannot.

Whatever was done to a file, the only outcomes are the estimate that was saved and a ValueError
with one clear text; and no file makes it take memory that the file itself does not justify.
"""

import io
import json
import pickle
import tracemalloc
import zipfile
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from implicit_delta.estimate import Diagnostics, Estimate

REFUSED = "is not an estimate written by `Estimate.save`, or it is damaged"
MEMORY = 32e6  # bytes that reading a small file may take, NumPy's and zipfile's buffers included

SAVED = Estimate(
    [1.0, 3.0],
    [[0.04, 0.02], [0.02, 0.09]],
    names=("dose", "größe"),
    method="Infinitesimal(solver=cholesky)",
    diagnostics=Diagnostics(drift=1e-9, nonlinearity=0.01, passes=7, notes={"lam": 0.3}),
    influence=np.random.default_rng(1).normal(size=(40, 2)),
    parts={"model": [[0.03, 0.02], [0.02, 0.05]], "evaluation": [[0.01, 0.0], [0.0, 0.04]]},
    draws=np.random.default_rng(0).normal(size=(30, 2)),
)


def content_of(estimate):
    """The members of a saved file: a header, and arrays by name."""
    with TemporaryDirectory() as folder:
        estimate.save(f"{folder}/est")
        with np.load(f"{folder}/est") as entries:
            arrays = {name: entries[name] for name in entries.files}
    return json.loads(str(arrays.pop("header"))), arrays


HEADER, ARRAYS = content_of(SAVED)


def write_members(path, members, compression=zipfile.ZIP_DEFLATED):
    """Write arrays, or bytes as they are, into a zip file."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, member in members.items():
            archive.writestr(f"{name}.npy", member if isinstance(member, bytes) else npy(member))


def npy(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
    return file.getvalue()


def claimed(shape, dtype="<f8", data=b"", version=(1, 0)):
    """The bytes of an array that claims a shape which its data do not have."""
    file = io.BytesIO()
    head = {"descr": dtype, "fortran_order": False, "shape": shape}
    write = {
        (1, 0): np.lib.format.write_array_header_1_0,
        (2, 0): np.lib.format.write_array_header_2_0,
    }
    write[version](file, head)
    return file.getvalue() + data


def forged(path, header=None, **arrays):
    """A file like the saved one, with another header and other arrays; None leaves one out."""
    text = header if isinstance(header, str) else json.dumps({**HEADER, **(header or {})})
    members = {"header": np.array(text), **ARRAYS, **arrays}
    write_members(path, {name: m for name, m in members.items() if m is not None})


def refused(path, text=REFUSED):
    with pytest.raises(ValueError, match=text):
        Estimate.load(path)


def same(one, other):
    return pickle.dumps(one) == pickle.dumps(other)


def test_what_was_saved_is_loaded(tmp_path):
    forged(tmp_path / "est")
    assert same(Estimate.load(tmp_path / "est"), SAVED)


# Random damage: flipped bytes, cuts, swapped and repeated pieces.


def flip(data, rng):
    at = rng.integers(len(data), size=rng.integers(1, 4))
    damaged = bytearray(data)
    for i in at:
        damaged[i] ^= 1 << rng.integers(8)
    return bytes(damaged)


def overwrite(data, rng):
    start = int(rng.integers(len(data)))
    piece = rng.bytes(int(rng.integers(1, 60)))
    return data[:start] + piece + data[start + len(piece) :]


def truncate(data, rng):
    return data[: rng.integers(len(data))]


def drop(data, rng):
    start, length = int(rng.integers(len(data))), int(rng.integers(1, 200))
    return data[:start] + data[start + length :]


def repeat(data, rng):
    start, length = int(rng.integers(len(data))), int(rng.integers(1, 200))
    return data[: start + length] + data[start:]


def swap(data, rng):
    a, b, c = np.sort(rng.integers(len(data), size=3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


DAMAGES = [flip, overwrite, truncate, drop, repeat, swap]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("compressed", [True, False], ids=["compressed", "stored"])
def test_random_damage(damage, compressed, tmp_path):
    """600 files in all: a file that loads has to be the one that was saved."""
    rng = np.random.default_rng([DAMAGES.index(damage), compressed])
    path = tmp_path / "est"
    members = {"header": np.array(json.dumps(HEADER)), **ARRAYS}
    write_members(path, members, zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED)
    whole = path.read_bytes()
    outcomes = []
    for _ in range(50):
        path.write_bytes(damage(whole, rng))
        try:
            outcomes.append(same(Estimate.load(path), SAVED))
        except ValueError as error:
            outcomes.append("damaged" in str(error) or "version" in str(error))
    assert all(outcomes)


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_within_a_member(seed, tmp_path):
    """Wrong bytes with a right checksum: the content is all that can give them away."""
    rng = np.random.default_rng(seed)
    members = {"header": np.array(json.dumps(HEADER)), **ARRAYS}
    name = rng.choice(list(members))
    data = DAMAGES[seed % len(DAMAGES)](npy(members[name]), rng)
    write_members(tmp_path / "est", {**members, name: data})
    try:
        loaded = Estimate.load(tmp_path / "est")
    except ValueError as error:
        assert "damaged" in str(error) or "version" in str(error)  # noqa: PT017
    else:  # a flipped digit makes another number, which nobody can tell from the right one
        assert len(loaded.names) == 2
        assert loaded.summary()


@pytest.mark.parametrize("seed", range(30))
def test_swapped_members(seed, tmp_path):
    rng = np.random.default_rng(seed)
    members = {"header": np.array(json.dumps(HEADER)), **ARRAYS}
    names = list(members)
    one, other = rng.choice(len(names), size=2, replace=False)
    names[one], names[other] = names[other], names[one]
    write_members(tmp_path / "est", dict(zip(names, members.values(), strict=True)))
    fits = {"covariance", "part0", "part1"}  # exchanged, they are still covariances
    rows = {"influence", "draws"}
    exchanged = {names[one], names[other]}
    if exchanged <= fits or exchanged <= rows:
        assert Estimate.load(tmp_path / "est").names == SAVED.names
    else:
        refused(tmp_path / "est")


# Arrays that are none, or not these.

BIG = 2**50
FORGED_ARRAYS = {
    "objects": {"value": np.array([1.0, None], dtype=object)},
    "complex": {"value": np.array([1.0 + 0j, 3.0])},
    "text": {"value": np.array(["1.0", "3.0"])},
    "integers": {"value": np.array([1, 3])},
    "booleans": {"covariance": np.eye(2, dtype=bool)},
    "single": {"covariance": np.eye(2, dtype=np.float32)},
    "dates": {"value": np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]")},
    "records": {"value": np.array([(1.0,), (3.0,)], dtype=[("x", "<f8")])},
    "no_value": {"value": None},
    "no_covariance": {"covariance": None},
    "no_part": {"part1": None},
    "another_part": {"part2": np.eye(2)},
    "another_member": {"weights": np.ones(3)},
    "a_directory": {"../covariance": np.eye(2)},
    "scalar_value": {"value": np.array(1.0)},
    "three_values": {"value": np.ones(3)},
    "no_values": {"value": np.ones(0)},
    "matrix_value": {"value": np.eye(2)},
    "flat_covariance": {"covariance": np.ones(4)},
    "wide_covariance": {"covariance": np.ones((2, 3))},
    "large_covariance": {"covariance": np.eye(3)},
    "deep_covariance": {"covariance": np.ones((2, 2, 1))},
    "narrow_influence": {"influence": np.ones((40, 1))},
    "flat_draws": {"draws": np.ones(60)},
    "nan_value": {"value": np.array([1.0, np.nan])},
    "infinite_covariance": {"covariance": np.diag([1.0, np.inf])},
    "nan_influence": {"influence": np.full((40, 2), np.nan)},
    "negative_variance": {"covariance": np.diag([0.04, -0.09])},
    "negative_part": {"part0": np.diag([0.04, -0.09])},
    "asymmetric": {"covariance": np.array([[0.04, 0.02], [0.03, 0.09]])},
    "asymmetric_part": {"part1": np.array([[0.04, 0.0], [0.03, 0.09]])},
    "huge_value": {"value": claimed((BIG,))},
    "huge_covariance": {"covariance": claimed((BIG, BIG))},
    "huge_influence": {"influence": claimed((BIG, 2))},
    "overflowing_shape": {"influence": claimed((2**62, 2))},
    "more_than_there_is": {"influence": claimed((41, 2), data=ARRAYS["influence"].tobytes())},
    "less_than_there_is": {"influence": claimed((39, 2), data=ARRAYS["influence"].tobytes())},
    "negative_shape": {"influence": claimed((-1, 2), data=ARRAYS["influence"].tobytes())},
    "fractional_shape": {"draws": npy(ARRAYS["draws"]).replace(b"(30, 2)", b"(30., 2)")},
    "later_npy": {"value": b"\x93NUMPY\x09\x00" + npy(ARRAYS["value"])[8:]},
    "no_npy": {"value": b"1.0, 3.0"},
    "empty_member": {"covariance": b""},
    "half_a_header": {"covariance": npy(ARRAYS["covariance"])[:20]},
    "long_npy_header": {"value": claimed((2,), data=ARRAYS["value"].tobytes() + b" " * 10**6)},
    "nested_npy_header": {
        "value": b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 8999 + b"\n"
    },
    "pickle": {"value": pickle.dumps([1.0, 3.0])},
}


@pytest.mark.parametrize("case", FORGED_ARRAYS)
def test_forged_arrays(case, tmp_path):
    forged(tmp_path / "est", **FORGED_ARRAYS[case])
    tracemalloc.start()
    refused(tmp_path / "est")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEMORY


def test_fortran_order_and_other_endianness_are_read(tmp_path):
    swapped = np.asfortranarray(ARRAYS["influence"]).astype(">f8")
    forged(tmp_path / "est", influence=swapped)
    np.testing.assert_array_equal(Estimate.load(tmp_path / "est").influence, SAVED.influence)


# Headers that are none.

DEEP = 10**5
FORGED_HEADERS = {
    "no_json": "estimate, std_error",
    "empty": "",
    "a_list": "[1, 2]",
    "a_number": "7",
    "nothing": "null",
    "another_format": {"format": "another"},
    "no_version": {"version": None},
    "version_in_words": {"version": "one"},
    "no_names": {"names": None},
    "names_in_one": {"names": "ab"},
    "three_names": {"names": ["a", "b", "c"]},
    "numbered_names": {"names": [1, 2]},
    "nested_names": {"names": [["a"], ["b"]]},
    "no_method": {"method": None},
    "a_list_for_a_method": {"method": ["Infinitesimal"]},
    "parts_by_number": {"parts": [1, 2]},
    "parts_as_a_mapping": {"parts": {"model": 1}},
    "one_part": {"parts": ["model"]},
    "the_same_part_twice": {"parts": ["model", "model"]},
    "diagnostics_in_words": {"diagnostics": "good"},
    "no_diagnostics": {"diagnostics": None},
    "drift_in_words": {"diagnostics": {"drift": "small"}},
    "drift_without_end": {"diagnostics": {"passes": 10**400}},
    "drift_of_many": {"diagnostics": {"drift": [0.1, 0.2]}},
    "notes_in_words": {"diagnostics": {"notes": "none"}},
    "errors_add_in_words": {"errors_add": "yes"},
    "nested_lists": "[" * DEEP + "]" * DEEP,
    "nested_objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "nested_notes": json.dumps(HEADER).replace('"lam": 0.3', '"lam": ' + "[" * 400 + "]" * 400),
    "long_number": json.dumps(HEADER).replace('"passes": 7', '"passes": ' + "9" * 5000),
    "cut": json.dumps(HEADER)[:-1],
    "twice": json.dumps(HEADER) * 2,
}


@pytest.mark.parametrize("case", FORGED_HEADERS)
def test_forged_headers(case, tmp_path):
    forged(tmp_path / "est", FORGED_HEADERS[case])
    refused(tmp_path / "est")


@pytest.mark.parametrize(
    "member",
    [
        np.array([json.dumps(HEADER)] * 2),
        np.array(json.dumps(HEADER).encode()),
        np.array(HEADER, dtype=object),
        np.array(3.0),
        claimed((), f"<U{2**40}"),
        npy(np.array(json.dumps(HEADER)))[:-4] + b"\xff\xff\xff\x7f",  # no code point
        None,
    ],
    ids=["two", "bytes", "object", "number", "a_terabyte", "no_code_point", "missing"],
)
def test_forged_header_members(member, tmp_path):
    members = {"header": member, **ARRAYS}
    write_members(tmp_path / "est", {name: m for name, m in members.items() if m is not None})
    refused(tmp_path / "est")


def test_a_later_version_is_named(tmp_path):
    forged(tmp_path / "est", {"version": 5, "names": "another layout"})
    refused(tmp_path / "est", "version 5 of the format.*a later one")


# Bombs: small files that unpack to large ones.


def zeros(path, name, count):
    """A file of a megabyte or less with an array of zeros, in a well-formed member."""
    head = claimed((count, 2))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.npy", npy(np.array(json.dumps(HEADER))))
        for other, array in ARRAYS.items():
            if other != name:
                archive.writestr(f"{other}.npy", npy(array))
        with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            member.write(head)
            for _ in range(count // 2**16):
                member.write(bytes(2**20))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["influence", "draws", "covariance", "junk"])
def test_bombs(name, tmp_path):
    zeros(tmp_path / "est", name, 2**24)
    assert (tmp_path / "est").stat().st_size < 2**19  # for 2**28 bytes
    tracemalloc.start()
    refused(tmp_path / "est")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEMORY


@pytest.mark.slow
def test_a_text_bomb(tmp_path):
    forged(tmp_path / "est", json.dumps(HEADER) + " " * 2**25)
    tracemalloc.start()
    refused(tmp_path / "est")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEMORY


@pytest.mark.slow
@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_bombs_of_better_compression(compression, tmp_path):
    influence = claimed((2**22, 2), data=bytes(2**26))
    members = {"header": np.array(json.dumps(HEADER)), **ARRAYS, "influence": influence}
    write_members(tmp_path / "est", members, compression)
    refused(tmp_path / "est")


def test_members_that_share_their_bytes(tmp_path):
    """All entries of the directory point at one member: a hundred times its size for nothing."""
    path = tmp_path / "est"
    write_members(path, {"header": np.array(json.dumps(HEADER)), "influence": np.ones((4000, 2))})
    with zipfile.ZipFile(path, "a") as archive:
        last = archive.infolist()[-1]
        for i in range(100):
            entry = zipfile.ZipInfo(f"part{i}.npy")
            for field in ("compress_type", "CRC", "compress_size", "file_size", "header_offset"):
                setattr(entry, field, getattr(last, field))
            archive.filelist.append(entry)
            archive.NameToInfo[entry.filename] = entry
        archive._didModify = True
    refused(path)


def test_a_name_that_is_there_twice(tmp_path):
    forged(tmp_path / "est")
    with zipfile.ZipFile(tmp_path / "est", "a") as archive:
        archive.NameToInfo.clear()
        archive.writestr("value.npy", npy(np.array([7.0, 8.0])))
    refused(tmp_path / "est")


@pytest.mark.slow
@pytest.mark.parametrize("rows", [10**5, 5 * 10**6])
def test_large_and_monotonous_is_no_bomb(rows, tmp_path):
    """Influences of a sparse design: nearly all zero, and a real estimate."""
    influence = np.zeros((rows, 2))
    influence[0] = 1.0
    estimate = Estimate([1.0, 2.0], np.eye(2), ("a", "b"), "by hand", influence=influence)
    estimate.save(tmp_path / "est")
    assert same(Estimate.load(tmp_path / "est"), estimate)


# Errors of the operating system, and unknown diagnostics.


def test_errors_of_the_operating_system_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError):
        Estimate.load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        Estimate.load(tmp_path)


def test_unknown_diagnostics_are_kept_as_notes(tmp_path):
    later = {**HEADER["diagnostics"], "warmth": 0.25}
    forged(tmp_path / "est", {"diagnostics": later})
    loaded = Estimate.load(tmp_path / "est")
    assert loaded.diagnostics.notes == {"lam": 0.3, "warmth": 0.25}
    assert "warmth" in loaded.summary()


def test_names_that_repeat_or_are_empty_still_load(tmp_path):
    forged(tmp_path / "est", {"names": ["", ""]})
    assert len(set(Estimate.load(tmp_path / "est").names)) == 2

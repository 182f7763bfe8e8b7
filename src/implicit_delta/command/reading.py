"""Tables from files: CSV in the dialects that pandas reads, compressed or not, and Parquet."""

import hashlib
import io
import os
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from implicit_delta.command.failure import Failure, listed, one_line
from implicit_delta.core.optional import optional

HEAD = 4096  # bytes that tell what a file is
DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','"}
# First bytes of compressed files, whatever their names are.
COMPRESSED = {
    b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
}  # fmt: skip
UTF16 = (b"\xff\xfe", b"\xfe\xff")
EXCEL = (".xlsx", ".xlsm", ".xls", ".ods")


@dataclass(frozen=True, eq=False)
class Table:
    """A data frame, the name of its file, and the digest of its bytes."""

    frame: Any
    name: str
    sha256: str


@dataclass(frozen=True)
class Dialect:
    """Delimiter, decimal mark and encoding; None where the file tells."""

    delimiter: str | None = None
    decimal: str = "."
    encoding: str | None = None


def read_table(source: str, dialect: Dialect | None = None) -> Table:
    """Read a file, or for ``-`` the standard input."""
    pandas = optional("pandas", "implicit-delta fit")
    content = _content(source)
    name = "standard input" if source == "-" else source
    if not content.strip():
        raise Failure(f"{name} is empty.")
    if content.startswith(b"PAR1") or Path(source).suffix in (".parquet", ".pq"):
        frame = _read_parquet(pandas, content, name)
    else:
        frame = _read_csv(pandas, content, name, dialect or Dialect())
    if not len(frame):
        raise Failure(f"{name} has a header and no rows.")
    return Table(_plain(frame), name, hashlib.sha256(content).hexdigest())


def _content(source: str) -> bytes:
    if source == "-" and sys.stdin is None:
        raise Failure("There is no standard input.")
    if source == "-":
        return sys.stdin.buffer.read()
    if os.path.isdir(source):
        raise Failure(f"{source} is a folder: name a file in it.")
    try:
        return Path(source).read_bytes()
    except FileNotFoundError:
        raise Failure(f"There is no file {source}{_beside(source)}.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise Failure(f"{source!r} cannot be read: {reason}.") from None


def _beside(source: str) -> str:
    """List the tables in the folder of a file that does not exist."""
    folder = Path(source).parent
    if not folder.is_dir():
        return f": there is no folder {folder}"
    kinds = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".gz")
    found = sorted(path.name for path in folder.iterdir() if path.suffix in kinds)
    return f"; in that folder there is {listed(found)}" if found else ""


def _read_parquet(pandas: Any, content: bytes, name: str) -> Any:
    try:
        frame = pandas.read_parquet(io.BytesIO(content))
    except ImportError:
        raise Failure(
            f"{name} is Parquet, which needs pyarrow: `pip install 'implicit-delta[parquet]'`, or "
            "save it as CSV."
        ) from None
    except Exception as error:  # of several engines, each with errors of its own
        raise Failure(f"{name} cannot be read as Parquet: {one_line(error):.200}") from None
    named = [level for level in frame.index.names if level is not None]
    frame = frame.reset_index() if named else frame.reset_index(drop=True)
    return frame.assign(**{name: _as_in_csv(frame[name]) for name in frame.columns})


def _as_in_csv(values: Any) -> Any:
    """Give decimals and booleans the types that CSV has: numbers, and objects where some miss."""
    if str(values.dtype).startswith("bool"):
        return values.astype(object if values.isna().any() else bool)
    known = values.dropna()
    if values.dtype.kind == "O" and len(known) and isinstance(known.iloc[0], Decimal):
        return values.astype(object).map(float, na_action="ignore").astype(float)
    return values


def _read_csv(pandas: Any, content: bytes, name: str, dialect: Dialect) -> Any:
    compression = next(
        (kind for magic, kind in COMPRESSED.items() if content.startswith(magic)), None
    )
    encoding = dialect.encoding or ("utf-16" if content.startswith(UTF16) else "utf-8")
    delimiter = dialect.delimiter or ("\t" if Path(name).suffix in (".tsv", ".tab") else ",")
    if compression is None and encoding == "utf-8":
        _refuse_binary(content[:HEAD], name)
    try:
        options = {
            "sep": delimiter,
            "decimal": dialect.decimal,
            "encoding": encoding,
            "compression": compression,
            "skipinitialspace": True,
            "low_memory": False,
            "index_col": False,
        }
        with warnings.catch_warnings():
            # Fields beyond the header would be lost, or make the first column the index.
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            frame = pandas.read_csv(io.BytesIO(content), **options)
        first = pandas.read_csv(io.BytesIO(content), **options, header=None, nrows=1, dtype=str)
    except (UnicodeError, LookupError) as error:
        raise Failure(
            f"{name} is not text in {encoding} ({one_line(error):.100}). For files of older "
            "programs give --encoding latin-1."
        ) from None
    except Exception as error:  # of the parser and of each decompressor
        header = "" if compression else content.partition(b"\n")[0].decode(encoding, "replace")
        _refuse_delimiter([header], delimiter, name)
        if isinstance(error, pandas.errors.ParserWarning):
            raise Failure(
                f"{name} has more fields in its rows than in its header: name every column in the "
                "first line, or give another --delimiter."
            ) from None
        sheet = " Save the sheet as CSV." if Path(name).suffix in EXCEL else ""
        raise Failure(f"{name} cannot be read as CSV: {one_line(error):.200}{sheet}") from None
    names = first.iloc[0].dropna().str.strip()
    if names.duplicated().any():  # pandas would number them
        raise Failure(f"There are several columns named {listed(set(names[names.duplicated()]))}.")
    if len(frame.columns) == 1:
        _refuse_delimiter(frame.columns, delimiter, name)
    return frame


def _refuse_binary(head: bytes, name: str) -> None:
    if b"\0" in head:
        sheet = " Save the sheet as CSV." if Path(name).suffix in EXCEL else ""
        raise Failure(f"{name} is a binary file, neither CSV nor Parquet.{sheet}")


def _refuse_delimiter(header: Iterable[object], delimiter: str, name: str) -> None:
    """Name the delimiter that stands in a header with only one column."""
    text = " ".join(map(str, header))
    for other, shown in DELIMITERS.items():
        if other != delimiter and other in text and delimiter not in text:
            raise Failure(
                f"{name} has one column, {text.strip()!r:.80}: its columns seem to be separated by "
                f"{shown}. Give --delimiter {shown}{_decimal(other)}."
            )


def _decimal(delimiter: str) -> str:
    return ", and --decimal ',' if its numbers have decimal commas" if delimiter == ";" else ""


def _plain(frame: Any) -> Any:
    """Give columns of text the type object, which every formula engine takes; names are text.

    Rows are counted from 1, as people do who look at the file.
    """
    frame = frame.set_axis(range(1, len(frame) + 1), axis=0)
    frame = frame.rename(columns=lambda column: str(column).strip())
    texts = [name for name in frame.columns if str(frame[name].dtype) in ("str", "string")]
    return frame.astype(dict.fromkeys(texts, object))

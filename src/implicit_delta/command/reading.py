"""Tables from files: CSV as pandas reads it, compressed or not, and Parquet."""

import hashlib
import io
import sys
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from implicit_delta.command.failure import Failure, listed, one_line
from implicit_delta.core.optional import optional

HEAD = 4096  # bytes that show what a file is
DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','"}
# First bytes of compressed files, whatever their names are.
COMPRESSED = {
    b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
}  # fmt: skip
UTF16 = (b"\xff\xfe", b"\xfe\xff")
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".gz")
SHEETS = (".xlsx", ".xlsm", ".xls", ".ods")


class Table(NamedTuple):
    """A data frame, the name of its file, and the digest of its bytes."""

    frame: Any
    name: str
    sha256: str


def read_table(
    source: str, delimiter: str | None = None, decimal: str = ".", encoding: str | None = None
) -> Table:
    """Read a file, or for ``-`` the standard input; None is what the file itself shows.

    Columns of text have the type object, which patsy takes. Rows are counted from 1, as people do
    who look at the file.
    """
    pandas = optional("pandas", "implicit-delta fit")
    content, name = _content(source), "standard input" if source == "-" else source
    if not content.strip():
        raise Failure(f"{name} is empty.")
    if content.startswith(b"PAR1") or Path(source).suffix in (".parquet", ".pq"):
        frame = _read_parquet(pandas, content, name)
    else:
        frame = _read_csv(pandas, content, name, delimiter, decimal, encoding)
    if not len(frame):
        raise Failure(f"{name} has a header and no rows.")
    frame = frame.set_axis(range(1, len(frame) + 1), axis=0)
    frame = frame.rename(columns=lambda column: str(column).strip())
    texts = [name for name in frame.columns if str(frame[name].dtype) in ("str", "string")]
    frame = frame.astype(dict.fromkeys(texts, object))
    return Table(frame, name, hashlib.sha256(content).hexdigest())


def _content(source: str) -> bytes:
    if source == "-":
        if sys.stdin is None:
            raise Failure("There is no standard input.")
        return sys.stdin.buffer.read()
    path = Path(source)
    if path.is_dir():
        raise Failure(f"{source} is a folder: name a file in it.")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        folder, there = path.parent, f": there is no folder {path.parent}"
        if folder.is_dir():
            found = sorted(other.name for other in folder.iterdir() if other.suffix in TABLES)
            there = f"; in that folder there is {listed(found)}" if found else ""
        raise Failure(f"There is no file {source}{there}.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise Failure(f"{source!r} cannot be read: {reason}.") from None


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


def _read_csv(
    pandas: Any,
    content: bytes,
    name: str,
    delimiter: str | None,
    decimal: str,
    encoding: str | None,
) -> Any:
    suffix, kinds = Path(name).suffix, COMPRESSED.items()
    compression = next((kind for magic, kind in kinds if content.startswith(magic)), None)
    encoding = encoding or ("utf-16" if content.startswith(UTF16) else "utf-8")
    delimiter = delimiter or ("\t" if suffix in (".tsv", ".tab") else ",")
    sheet = " Save the sheet as CSV." if suffix in SHEETS else ""
    if compression is None and encoding == "utf-8" and b"\0" in content[:HEAD]:
        raise Failure(f"{name} is a binary file, neither CSV nor Parquet.{sheet}")
    options = {
        "sep": delimiter, "decimal": decimal, "encoding": encoding, "compression": compression,
        "skipinitialspace": True, "low_memory": False, "index_col": False,
    }  # fmt: skip
    try:
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
        _check_delimiter(header, delimiter, name)
        if isinstance(error, pandas.errors.ParserWarning):
            raise Failure(
                f"{name} has more fields in its rows than in its header: name every column in the "
                "first line, or give another --delimiter."
            ) from None
        raise Failure(f"{name} cannot be read as CSV: {one_line(error):.200}{sheet}") from None
    names = first.iloc[0].dropna().str.strip()
    if names.duplicated().any():  # pandas would number them
        raise Failure(f"There are several columns named {listed(set(names[names.duplicated()]))}.")
    if len(frame.columns) == 1:
        _check_delimiter(str(frame.columns[0]), delimiter, name)
    return frame


def _check_delimiter(header: str, delimiter: str, name: str) -> None:
    """Refuse a header with only one column that holds another delimiter."""
    for other, shown in DELIMITERS.items():
        if other != delimiter and other in header and delimiter not in header:
            comma = ", and --decimal ',' if its numbers have decimal commas" * (other == ";")
            raise Failure(
                f"{name} has one column, {header.strip()!r:.80}: its columns seem to be separated "
                f"by {shown}. Give --delimiter {shown}{comma}."
            )

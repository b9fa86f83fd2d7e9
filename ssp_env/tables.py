"""Rows of data files: JSON lines and tab-separated values, plain or gzip, and Parquet; and rows as
models, where what is wrong with one is said with its number."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, StringConstraints, ValidationError

from ssp_env.disk import open_maybe_gzip
from ssp_env.errors import DataError

Text = Annotated[str, StringConstraints(pattern=r"\S")]
"""A string that is not blank."""
M = TypeVar("M", bound=BaseModel)

_PARQUET = b"PAR1"
"""First bytes of a Parquet file."""


def read_table(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file, each with its number and fields; the content says what the file is.

    JSON lines hold one object each; blank ones are passed over. A file may also be one JSON array
    of objects, as HotpotQA's are. Tab-separated values begin with a line of the fields' names, as
    DPR's passages do, and quotes in them are doubled. Of two columns without names, the second one
    holds lists of answers (DPR's ``qas``), or the first one numbers (MS MARCO, where quotes are
    text): they are ``question`` and ``answers``, or ``id`` and ``text``. Fields that are null are
    left out: a table has a column where any of its rows has a value. A ``DataError`` names the
    file, and the line that is none of these. Parquet needs pyarrow.

    >>> from tempfile import mkdtemp
    >>> file = Path(mkdtemp(), "psgs.tsv")
    >>> _ = file.write_text('id\\ttext\\ttitle\\n1\\t"A ""city""."\\tVienna\\n')
    >>> list(read_table(file))
    [(2, {'id': '1', 'text': 'A "city".', 'title': 'Vienna'})]
    """
    for number, row in _rows(path):
        yield number, {name: value for name, value in row.items() if value is not None}


def fields_of(row: Iterable[str]) -> str:
    """The fields of a row, in words."""
    return f"the line has {', '.join(map(str, row)) or 'no fields'}"


def read_rows(path: str | Path, kind: type[M]) -> Iterator[tuple[int, M]]:
    """Numbered rows of a file as models of this kind."""
    for line, fields in read_table(path):
        yield line, validated(path, line, fields, kind)


def validated(path: str | Path, line: int, fields: Mapping[str, Any], kind: type[M]) -> M:
    """A row as a model; a ``DataError`` names the field that is at fault."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        missing = first["type"] == "missing"
        has = fields_of(fields) if missing else f"not {first['input']!r:.100}"
        if first["type"] == "list_type" and isinstance(first["input"], str):
            has += f", say {json.dumps([first['input']], ensure_ascii=False):.100}"
        what = f"field {'.'.join(map(str, first['loc']))!r}: {first['msg']}; {has}"
        raise DataError(path, what, line) from None


def _rows(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with open_maybe_gzip(path) as file:
        first = file.readline()
        if not first.startswith(_PARQUET):
            # A byte order mark, which some editors put before the first line, is no part of it.
            lines = chain([first], file)
            yield from _lines(path, (line.removeprefix(b"\xef\xbb\xbf") for line in lines))
            return
    yield from _parquet(path)


def _lines(path: str | Path, raw: Iterator[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    head = next(raw)
    # A tab in the first line makes a table of it, unless it begins as JSON does.
    if b"\t" in head.strip() and head.lstrip()[:1] not in (b"{", b"["):
        yield from _tabbed(path, chain([head], raw))
        return
    if head.lstrip()[:1] == b"[":
        yield from _array(path, head + b"".join(raw))
        return
    for number, line in enumerate(chain([head], raw), start=1):
        try:
            text = line.decode("utf-8")
            if not text.strip():
                continue
            if not isinstance(row := json.loads(text), dict):
                raise ValueError(f"{type(row).__name__} in place of an object")
        except (ValueError, RecursionError) as error:
            what = f"neither JSON Lines, one object per line, nor a table with tabs ({error}); "
            what += 'a plain text has to be an object, such as {"answer": "Vienna"}'
            raise DataError(path, what, number) from error
        yield number, row


def _array(path: str | Path, raw: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        rows = json.loads(raw.decode("utf-8"))
        for row in rows:
            if not isinstance(row, dict):
                raise ValueError(f"{type(row).__name__} in place of an object")
    except (ValueError, RecursionError) as error:
        what = f"neither JSON Lines, nor one JSON array of objects, nor a table with tabs ({error})"
        raise DataError(path, what, 1) from error
    yield from enumerate(rows, start=1)


def _tabbed(path: str | Path, raw: Iterator[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    # By default, csv refuses fields of more than 128 kB, and passages may be longer.
    csv.field_size_limit(2**31 - 1)
    head = next(raw)
    # A passage of MS MARCO may begin with a quote that nothing closes.
    numbered = head.partition(b"\t")[0].isdigit()
    lines = (line.decode("utf-8") for line in chain([head], raw))
    rows = csv.reader(
        lines, delimiter="\t", quoting=csv.QUOTE_NONE if numbered else csv.QUOTE_MINIMAL
    )
    try:
        names = first = next(rows)
        if len(first) == 2 and (first[1].startswith("[") or first[0].isdecimal()):
            names = ["question", "answers"] if first[1].startswith("[") else ["id", "text"]
            yield rows.line_num, dict(zip(names, first, strict=True))
        for row in rows:
            if row and len(row) != len(names):
                what = f"has {len(row)} fields, but {', '.join(names)} are {len(names)}"
                raise DataError(path, what, rows.line_num)
            if row:
                yield rows.line_num, dict(zip(names, row, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        what = f"is no table of tab-separated values ({error})"
        raise DataError(path, what, rows.line_num + 1) from error


def _parquet(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        fix = "pip install pyarrow, or save it as JSON lines"
        raise DataError(path, f"is a Parquet file, which pyarrow reads: {fix}") from None
    try:
        number = 0
        for batch in ParquetFile(path).iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except (ArrowException, OSError) as error:
        raise DataError(path, f"cannot be read as Parquet: {error}") from error

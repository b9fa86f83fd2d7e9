"""Corpora: passages by position and by id, read from Search-R1's JSONL."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast, overload

from ssp_env.errors import DataError
from ssp_env.search.base import Document


class Corpus(Sequence[Document]):
    """An immutable sequence of passages with unique ids."""

    def __init__(self, documents: Iterable[Document], name: str = "corpus") -> None:
        """
        Args:
            documents: the passages, in index order.
            name: what errors and records call it.

        Raises:
            DataError: no passage at all, or an id that occurs twice.
        """
        self.name = name
        self._documents = tuple(documents)
        if not self._documents:
            raise DataError(name, "holds no passage")
        self._by_id = {document.id: document for document in self._documents}
        if len(self._by_id) != len(self._documents):
            seen: set[str] = set()
            twice = next(d.id for d in self._documents if d.id in seen or seen.add(d.id))  # type: ignore[func-returns-value]
            raise DataError(name, f"id {twice!r} occurs twice")

    def __len__(self) -> int:
        return len(self._documents)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | Sequence[Document]:
        return self._documents[index]

    def __iter__(self) -> Iterator[Document]:
        return iter(self._documents)

    def by_id(self, document_id: str) -> Document:
        """The passage with this id.

        Raises:
            KeyError: no such passage.
        """
        return self._by_id[document_id]

    def digest(self) -> str:
        """SHA-256 over ids, titles and texts in order: what an index belongs to."""
        sha = hashlib.sha256()
        for document in self._documents:
            for part in (document.id, document.title, document.text):
                sha.update(part.encode("utf-8", "surrogatepass") + b"\0")
        return sha.hexdigest()


def read_corpus(path: str | Path) -> Corpus:
    """Reads Search-R1's corpus format: one JSON object a line, plain or gzip.

    A line holds ``id`` and either ``contents`` (a title in double quotes, a newline, the text) or
    ``title`` and ``text``.

    Raises:
        DataError: no such file, a line that is not JSON or lacks a field (names file and line).
    """
    return Corpus((_document(path, line, row) for line, row in read_jsonl(path)), name=str(path))


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields ``(line number, object)`` of a JSONL file, plain or gzip; blank lines are passed over.

    Raises:
        DataError: no such file, not readable, or a line that is no JSON object.
    """
    path = Path(path)
    try:
        with _open_text(path) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise DataError(path, f"not JSON ({error.msg} at column {error.colno})", number) from None
                if not isinstance(row, dict):
                    raise DataError(path, f"a JSON object was expected, not {type(row).__name__}", number)
                yield number, row
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DataError(path, f"cannot be read: {error}") from error


def require(path: object, line: int, row: dict[str, Any], field: str, kind: type[Any] | tuple[type[Any], ...]) -> Any:
    """The value of a required field.

    Raises:
        DataError: the field is missing or of another type.
    """
    if field not in row:
        raise DataError(path, f"field {field!r} is missing (the line has: {', '.join(sorted(row)) or 'nothing'})", line)
    if not isinstance(row[field], kind):
        raise DataError(path, f"field {field!r} has the type {type(row[field]).__name__}", line)
    return row[field]


def _open_text(path: Path) -> IO[str]:
    with open(path, "rb") as probe:
        zipped = probe.read(2) == b"\x1f\x8b"
    if zipped:
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8"))
    return open(path, encoding="utf-8")


def _document(path: str | Path, line: int, row: dict[str, Any]) -> Document:
    document_id = str(require(path, line, row, "id", (str, int)))
    if "contents" in row:
        contents: str = require(path, line, row, "contents", str)
        head, newline, text = contents.partition("\n")
        title = head.strip().removeprefix('"').removesuffix('"') if newline else ""
        return Document(document_id, title, text if newline else contents)
    return Document(document_id, require(path, line, row, "title", str), require(path, line, row, "text", str))

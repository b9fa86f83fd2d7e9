"""Corpora: passages by position and by id, read from Search-R1's JSONL.

A :class:`Corpus` holds its passages in memory, a :class:`~ssp_env.search.index.store.PassageStore`
leaves them on disk. Both are :class:`Passages`."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast, overload

from ssp_env.errors import DataError
from ssp_env.types import Document, Passages


class Corpus(Passages):
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
            sha.update(b"".join(encode(document)))
        return sha.hexdigest()


def encode(document: Document) -> tuple[bytes, bytes, bytes]:
    """Id, title and text as bytes, each closed by a zero byte. Lone surrogates, which JSON can
    spell, are kept."""
    id_, title, text = (
        part.encode("utf-8", "surrogatepass")
        for part in (document.id, document.title, document.text)
    )
    return id_ + b"\0", title + b"\0", text + b"\0"


def read_corpus(path: str | Path) -> Corpus:
    """Reads Search-R1's corpus format: one JSON object a line, plain or gzip.

    A line holds ``id`` and either ``contents`` (a title in double quotes, a newline, the text) or
    ``title`` and ``text``.

    Raises:
        DataError: no such file, a line that is not JSON, lacks a field or repeats an id (names file
            and line).
    """
    return Corpus(_passages(path), name=str(path))


def _passages(path: str | Path) -> Iterator[Document]:
    lines: dict[str, int] = {}
    for line, row in read_jsonl(path):
        document = to_document(path, line, row)
        first = lines.setdefault(document.id, line)
        if first != line:
            raise DataError(path, f"id {document.id!r} occurs twice, first in line {first}", line)
        yield document


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields ``(line number, object)`` of a JSONL file, plain or gzip; blank lines are passed over.

    Raises:
        DataError: no such file, not readable, or a line that is no JSON object.
    """
    with JsonLines(path) as lines:
        yield from lines


class JsonLines:
    """A JSONL file, plain or gzip, read line by line; reading can be taken up again where it
    stopped.

    Use it as a context manager and iterate over it: ``(line number, object)``. Blank lines are
    passed over."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lines = 0
        """Lines read so far."""
        self.bytes = 0
        """Bytes of text read so far, after unzipping."""
        self._sha = hashlib.sha256()

    def __enter__(self) -> JsonLines:
        """
        Raises:
            DataError: no such file, not readable, or a pipe.
        """
        try:
            self._raw = open(self.path, "rb")
            if not self._raw.seekable():
                self._raw.close()
                raise DataError(
                    self.path, "cannot be read: it is a pipe or the like; a regular file is wanted"
                )
            zipped = self._raw.read(2) == b"\x1f\x8b"
            self._raw.seek(0)
            self.size = os.fstat(self._raw.fileno()).st_size
        except OSError as error:
            raise DataError(self.path, f"cannot be read: {error}") from error
        self._file = cast(IO[bytes], gzip.open(self._raw)) if zipped else self._raw
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._file.close()
        self._raw.close()

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """
        Raises:
            DataError: not readable, or a line that is no JSON object.
        """
        while line := self._read(lambda: self._file.readline()):
            self.lines += 1
            try:
                # A byte order mark, which some editors put before the first line, is no part of it.
                text = line.decode("utf-8-sig" if self.lines == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(self.path, f"cannot be read: {error}", self.lines) from error
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except json.JSONDecodeError as error:
                if text.lstrip().startswith("["):
                    raise self._no_object("list") from None
                raise DataError(
                    self.path, f"not JSON ({error.msg} at column {error.colno})", self.lines
                ) from None
            except RecursionError:
                raise DataError(self.path, "not a passage: nested too deeply", self.lines) from None
            if not isinstance(row, dict):
                raise self._no_object(type(row).__name__)
            yield self.lines, row

    @property
    def position(self) -> int:
        """Bytes of the file consumed so far, of :attr:`size`; ahead of the lines by what is
        buffered."""
        return self._raw.tell()

    def digest(self) -> str:
        """SHA-256 of the text read so far."""
        return self._sha.hexdigest()

    def skip(self, length: int, lines: int, digest: str) -> bool:
        """Goes to where an earlier reading stopped, and tells whether the file still begins as it
        did then.

        Args:
            length: :attr:`bytes` at that point.
            lines: :attr:`lines` at that point.
            digest: :meth:`digest` at that point.

        Raises:
            DataError: not readable.
        """
        while self.bytes < length and self._read(
            lambda: self._file.read(min(1 << 20, length - self.bytes))
        ):
            pass
        self.lines = lines
        return self.bytes == length and self.digest() == digest

    def at_end(self) -> bool:
        """Whether nothing is left to read (reads on to tell)."""
        return not self._read(lambda: self._file.read(1))

    def _no_object(self, what: str) -> DataError:
        fix = "JSON Lines is wanted, one object a line"
        return DataError(self.path, f"a JSON object was expected, not {what}: {fix}", self.lines)

    def _read(self, read: Callable[[], bytes]) -> bytes:
        try:
            data = read()
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(self.path, f"cannot be read: {error}") from error
        self.bytes += len(data)
        self._sha.update(data)
        return data


def require(
    path: object,
    line: int,
    row: dict[str, Any],
    field: str,
    kind: type[Any] | tuple[type[Any], ...],
) -> Any:
    """The value of a required field. ``true`` and ``false`` are no ``int``.

    Raises:
        DataError: the field is missing or of another type.
    """
    if field not in row:
        raise DataError(
            path,
            f"field {field!r} is missing (the line has: {', '.join(sorted(row)) or 'nothing'})",
            line,
        )
    value = row[field]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DataError(path, f"field {field!r} has the type {type(value).__name__}", line)
    return value


def to_document(path: str | Path, line: int, row: dict[str, Any]) -> Document:
    """The passage that a line of :func:`read_corpus`'s format holds.

    Raises:
        DataError: the line lacks a field (names file and line).
    """
    document_id = str(require(path, line, row, "id", (str, int)))
    if "contents" in row:
        contents: str = require(path, line, row, "contents", str)
        return Document(document_id, *split_contents(contents))
    if "title" not in row:
        formats = (
            '"contents" (a title in double quotes, a newline, the text), or "title" and "text"'
        )
        raise DataError(
            path, f"a passage needs {formats}; the line has: {', '.join(sorted(row))}", line
        )
    return Document(
        document_id, require(path, line, row, "title", str), require(path, line, row, "text", str)
    )


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text. Contents of a single line have no title."""
    head, newline, text = contents.partition("\n")
    if not newline:
        return "", contents
    return head.strip().removeprefix('"').removesuffix('"'), text


def passage_text(document: Document) -> str:
    """What is encoded of a passage: its title, if it has one, on a line of its own before the
    text."""
    return f"{document.title}\n{document.text}" if document.title else document.text

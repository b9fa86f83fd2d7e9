"""Corpora: passages by position and by id, read from Search-R1's JSONL.

A :class:`Corpus` holds its passages in memory, a :class:`~ssp_env.search.store.PassageStore` leaves
them on disk. Both are :class:`Passages`."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from ssp_env.errors import DataError
from ssp_env.types import Document, Passages


class Corpus(Passages):
    """An immutable sequence of passages with unique ids."""

    def __init__(self, documents: Iterable[Document], name: str = "corpus") -> None:
        """``name`` is what errors and records call it.

        Raises:
            DataError: no passage at all, or an id that occurs twice.
        """
        self.name = name
        self._documents = tuple(documents)
        if not self._documents:
            raise DataError(name, "holds no passage")
        self._by_id = {document.id: document for document in self._documents}
        if len(self._by_id) != len(self._documents):
            [(twice, _)] = Counter(document.id for document in self._documents).most_common(1)
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
        """The passage with this id; ``KeyError`` if there is none."""
        return self._by_id[document_id]

    def digest(self) -> str:
        """SHA-256 over ids, titles and texts in order: what an index belongs to."""
        return digest_of(self)


def digest_of(documents: Iterable[Document]) -> str:
    """The digest of a corpus, such as :meth:`Corpus.digest`, from passages one after the other."""
    sha = hashlib.sha256()
    for document in documents:
        sha.update(b"".join(part + b"\0" for part in encode(document)))
    return sha.hexdigest()


def encode(document: Document) -> tuple[bytes, ...]:
    """Id, title and text as UTF-8. Lone surrogates, which JSON can spell, are kept."""
    parts = (document.id, document.title, document.text)
    return tuple(part.encode("utf-8", "surrogatepass") for part in parts)


def read_corpus(path: str | Path) -> Corpus:
    """Reads Search-R1's corpus format: one JSON object per line, plain or gzip.

    A line holds ``id`` and either ``contents`` (a title in double quotes, a newline, the text) or
    ``title`` and ``text``.

    Raises:
        DataError: no such file, a line that is not JSON or lacks a field (names file and line), an
            id that occurs twice.
    """
    return Corpus(read_passages(path), name=str(path))


def read_passages(path: str | Path) -> Iterator[Document]:
    """The passages of a corpus file, of which one is in memory at a time; ids may repeat."""
    for line, row in read_jsonl(path):
        document_id = str(require(path, line, row, "id", (str, int)))
        if "contents" in row:
            title, text = split_contents(require(path, line, row, "contents", str))
        elif "title" in row or "text" in row:
            title, text = (require(path, line, row, name, str) for name in ("title", "text"))
        else:
            raise DataError(path, 'a passage needs "contents", or "title" and "text"', line)
        yield Document(document_id, title, text)


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The ``(line number, object)`` of a JSONL file, plain or gzip. Blank lines are passed over.

    Raises:
        DataError: no such file, a pipe, not readable, or a line that is not a JSON object.
    """
    try:
        with open(path, "rb") as raw:
            if not raw.seekable():
                raise DataError(path, "cannot be read: a regular file is wanted, not a pipe")
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            for number, line in enumerate(gzip.GzipFile(fileobj=raw) if zipped else raw, start=1):
                if (row := _row(path, number, line)) is not None:
                    yield number, row
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(path, f"cannot be read: {error}") from error


def _row(path: str | Path, number: int, line: bytes) -> dict[str, Any] | None:
    """The object of a line, ``None`` for a blank one."""
    try:
        # A byte order mark, which some editors put before the first line, is not part of it.
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        row = json.loads(text) if text.strip() else None
    except (ValueError, RecursionError) as error:
        what = f"not JSON ({error}); JSON Lines is wanted: one object per line"
        raise DataError(path, what, number) from error
    if text.strip() and not isinstance(row, dict):
        what = f"a JSON object was expected, not {type(row).__name__}"
        raise DataError(path, f"{what}; JSON Lines is wanted: one object per line", number)
    return row


def require(path: object, line: int, row: dict[str, Any], field: str, kind: Any) -> Any:
    """The value of a required field. ``kind`` is a type or several; ``true`` is not an ``int``."""
    if field not in row:
        has = ", ".join(sorted(row)) or "nothing"
        raise DataError(path, f"field {field!r} is missing (the line has: {has})", line)
    value = row[field]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DataError(path, f"field {field!r} has the type {type(value).__name__}", line)
    return value


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text. Contents of a single line have no title."""
    head, newline, text = contents.partition("\n")
    if not newline:
        return "", contents
    return head.strip().removeprefix('"').removesuffix('"'), text


def join_contents(document: Document) -> str:
    """Title and text as :func:`split_contents` reads them; line breaks in a title become spaces."""
    title = document.title.replace("\n", " ")
    return f'"{title}"\n{document.text}'


def passage_text(document: Document) -> str:
    """The text that is encoded of a passage: its title, if any, on a line of its own before it."""
    return f"{document.title}\n{document.text}" if document.title else document.text


def well_formed(text: str) -> str:
    """A text that UTF-8 can carry: halves of surrogate pairs that stand alone become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text

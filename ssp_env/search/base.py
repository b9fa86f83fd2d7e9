"""The interface of retrievers, and the corpora that they search, read from files.

A :class:`Corpus` holds its passages in memory, a :class:`~ssp_env.search.store.PassageStore` leaves
them on disk. Both are :class:`Passages`."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from ssp_env.errors import ConfigError, DataError, ServiceError, UsageError
from ssp_env.tables import fields_of, read_table
from ssp_env.types import Document, Passages

Results = list[list[Document] | ServiceError]
"""Per query its ranking, or the error that hit it."""


@runtime_checkable
class Retriever(Protocol):
    """Ranks the passages of a corpus for queries.

    ``search`` takes many queries at once and returns, in the same order, one list per query of at
    most ``k`` documents, best first. A query that matches nothing gets an empty list; a failure
    raises :class:`~ssp_env.errors.ServiceError`, never an empty list. Same queries, same answer.

    Optional methods: ``search_each``, for one that knows which queries of a batch failed, as the
    function :func:`search_each` describes; and ``describe``, for what results depend on (see
    :func:`identify`)."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Ranked documents for each query: any strings, the empty one included."""


def search_each(retriever: Retriever, queries: Sequence[str], k: int) -> Results:
    """One ranking or error per query, from any retriever.

    One without a method of this name is asked for the whole batch; if that fails, for one query at
    a time, so that only those that are hit are errors. Raises ``UsageError`` for other results."""
    if each := getattr(retriever, "search_each", None):
        results: Results = each(queries, k)
    else:
        try:
            results = retriever.search(queries, k)  # type: ignore[assignment]
        except ServiceError as error:
            if len(queries) == 1:
                return [error]
            # The error does not say whose query it was.
            return [result for query in queries for result in search_each(retriever, [query], k)]

    whole = isinstance(results, list | tuple) and len(results) == len(queries)
    # Results of another shape are refused below, like a ranking of another shape.
    for ranking in results if whole else [None]:
        if isinstance(ranking, ServiceError):
            continue
        if isinstance(ranking, list | tuple) and len(ranking) > k:
            raise UsageError(f"the retriever returned {len(ranking)} Documents, k was {k}")
        for found in ranking if isinstance(ranking, list | tuple) else (None,):
            if not (
                isinstance(found, Document)
                and isinstance(found.id, str)
                and isinstance(found.title, str)
                and isinstance(found.text, str)
                and isinstance(found.score, Real | None)
                and math.isfinite(found.score or 0)
            ):
                wanted = f"return a list of {len(queries)} lists, one for each query, with at most "
                wanted += f"{k} Documents each: id, title and text are strings, the score is a "
                wanted += "finite number or None"
                raise UsageError(f"the retriever returned {results!r:.200}; {wanted}")
    return results


def all_found(results: Results) -> list[list[Document]]:
    """The rankings of a batch; raises the first error among the results."""
    for result in results:
        if isinstance(result, ServiceError):
            raise result
    return cast(list[list[Document]], results)


def check_request(queries: Sequence[str], k: int) -> None:
    """Refuses a ``k`` below 1, and one string, which would be searched letter by letter."""
    if k < 1:
        raise ConfigError("k", k, "give at least 1")
    if isinstance(queries, str):
        raise UsageError(f"search takes a list of queries, not one string: {queries!r:.200}")


def identify(retriever: Retriever) -> dict[str, Any]:
    """A retriever's class and what its ``describe``, else its ``corpus`` says, as plain data."""
    parts: dict[str, Any] = {"class": type(retriever).__name__}
    if describe := getattr(retriever, "describe", None):
        return {**parts, **describe()}
    if isinstance(corpus := getattr(retriever, "corpus", None), Passages):
        parts["corpus"] = corpus.digest()
    return parts


# -- corpora -----------------------------------------------------------------------------------


class Corpus(Passages):
    """An immutable sequence of passages with unique ids."""

    def __init__(self, documents: Iterable[Document], name: str = "corpus") -> None:
        self.name = name
        self._documents = tuple(documents)
        if not self._documents:
            raise DataError(name, "holds no passage")
        [(twice, count)] = Counter(each.id for each in self._documents).most_common(1)
        if count > 1:
            raise DataError(name, f"id {twice!r} occurs twice")

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, index: Any) -> Any:
        return self._documents[index]

    def digest(self) -> str:
        return digest_of(self)


def digest_of(documents: Iterable[Document]) -> str:
    """The digest of a corpus, such as :meth:`Corpus.digest`, from passages one after the other."""
    sha = hashlib.sha256()
    for document in documents:
        # A zero behind each part: "ab" and "c" are not "a" and "bc".
        sha.update(b"".join(part + b"\0" for part in encode(document)))
    return sha.hexdigest()


def encode(document: Document) -> tuple[bytes, ...]:
    """Id, title and text as UTF-8. Lone surrogates, which JSON can spell, are kept."""
    parts = (document.id, document.title, document.text)
    return tuple(part.encode("utf-8", "surrogatepass") for part in parts)


def read_corpus(path: str | Path) -> Corpus:
    """The passages of a file, in any of the forms that :func:`read_passages` reads."""
    return Corpus(read_passages(path), name=str(path))


def read_passages(path: str | Path) -> Iterator[Document]:
    """The passages of a corpus file, of which one is in memory at a time; ids may repeat.

    A row has an ``id`` (BEIR: ``_id``), and ``contents``, a title in double quotes, a newline and
    the text, as Search-R1 and FlashRAG have them; or ``text`` and, unless there is none, ``title``,
    as BEIR and DPR have them. :func:`~ssp_env.tables.read_table` says what files may be. A
    ``DataError`` names the file, the line that is none of these, its fields and those wanted."""
    for line, row in read_table(path):
        match row:
            case {"title": str(title), "text": str(text)}:
                pass
            case {"contents": str(contents)}:
                title, text = split_contents(contents)
            case {"text": str(text)} if "title" not in row:
                title = ""
            case _:
                raise DataError(path, f"{_WANTED}; {fields_of(row)}", line)
        name = row.get("id", row.get("_id"))
        if not isinstance(name, str | int):
            raise DataError(path, f"{_WANTED}; {fields_of(row)}", line)
        yield Document(str(name), title, text)


_WANTED = 'a passage needs "id" (or "_id") and, as strings, "text" (or "contents") and any "title"'


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text. Contents of a single line have no title.

    >>> split_contents('"Graz"\\nA city.'), split_contents("A city.")
    (('Graz', 'A city.'), ('', 'A city.'))
    """
    head, newline, text = contents.partition("\n")
    if not newline:
        return "", contents
    return head.strip().removeprefix('"').removesuffix('"'), text


def join_contents(document: Document) -> str:
    """Title and text as Search-R1 writes them; line breaks in a title become spaces. A passage
    without a title is its text."""
    title = document.title.replace("\n", " ")
    return f'"{title}"\n{document.text}' if title else document.text


def passage_text(document: Document) -> str:
    """The text that is encoded of a passage: its title, if any, on a line of its own before it."""
    return f"{document.title}\n{document.text}" if document.title else document.text


def well_formed(text: str) -> str:
    """A text that UTF-8 can carry: halves of surrogate pairs that stand alone become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # Two halves that belong together become the character that they spell.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text

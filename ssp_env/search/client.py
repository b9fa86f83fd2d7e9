"""A client for servers of Search-R1's protocol (over corpora, online, reranking), of FlashRAG's
retrievers, and ``ssp serve``.

Scores are always asked for: without them, Search-R1's own server answers two queries with the wrong
shape. :func:`read_reply` says which shapes of an answer are read."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from math import isfinite
from typing import Any

import httpx

from ssp_env.errors import ServiceError, TransientServiceError
from ssp_env.net import (
    OVERLOADED,
    Client,
    asked_pause,
    by_proxy,
    check_url,
    http_client,
    read_key,
    retried,
    run,
)
from ssp_env.search.base import Results, all_found, check_request, split_contents, well_formed
from ssp_env.types import Document

BATCH = 64
"""Most queries of one request; a larger batch becomes several requests, sent side by side."""
MAX_QUERY = 4096
"""Characters of a query that are sent. A longer one is cut, not refused: it is a policy's doing,
and what a policy does must not look like an outage."""
MAX_REPLY = 32 * 2**20
CONNECTIONS = 16
"""Most requests under way at a time, over all threads that share a retriever."""


class HTTPRetriever(Client[tuple[httpx.AsyncClient, asyncio.Semaphore]]):
    """Asks a server that speaks Search-R1's protocol. May be shared between any number of threads;
    pickled or copied, it opens its own connections. Where the server is away, all queries of a
    request fail together."""

    remote = True
    _endpoint = "/retrieve"

    def __init__(self, url: str, token_env: str | None = None, deadline: float = 60.0) -> None:
        """``/retrieve`` is appended to the address where it is missing, unless it ends in
        ``/batch_search``, as FlashRAG's servers want it; ``token_env`` names the environment
        variable that holds a bearer token; ``deadline`` is the seconds of a whole
        search, of which one request may take a third."""
        check_url("url", url, "http://127.0.0.1:8000")
        self.url = url.rstrip("/")
        self._flashrag = self.url.endswith("/batch_search")
        if not self._flashrag:
            self.url = self.url.removesuffix("/retrieve") + self._endpoint
        self._deadline, self._key = deadline, read_key("search.token_env", token_env)
        key = self._key

        def connect() -> tuple[httpx.AsyncClient, asyncio.Semaphore]:
            # Replies are read as raw bytes, so they must not come compressed.
            headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
            if key:
                headers["Authorization"] = f"Bearer {key}"
            limits = httpx.Limits(max_keepalive_connections=CONNECTIONS)
            client = http_client(url, headers=headers, timeout=None, limits=limits)
            return client, asyncio.Semaphore(CONNECTIONS)

        made_from = url, token_env, deadline
        super().__init__(made_from, connect, lambda made: made[0].aclose())

    @property
    def pages(self) -> HTTPPages:
        """Reads pages of the same server, which only ``ssp serve`` has."""
        return HTTPPages(*self._made_from)

    def describe(self) -> dict[str, Any]:
        """The server's address alone: what it searches may change without notice."""
        return {"server": self.url}

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        return all_found(self.search_each(queries, k))

    def search_each(self, queries: Sequence[str], k: int) -> Results:
        check_request(queries, k)
        return run(self._each(queries, int(k)))

    async def _each(self, queries: Sequence[str], k: int) -> Results:
        # Cut before it is cleaned, as cutting may halve a surrogate pair. Sent once each.
        sent = [well_formed(query[:MAX_QUERY]) for query in queries]
        distinct = list(dict.fromkeys(sent))
        until = asyncio.get_running_loop().time() + self._deadline
        batches = [distinct[start : start + BATCH] for start in range(0, len(distinct), BATCH)]
        answers = await asyncio.gather(*(self._batch(batch, k, until) for batch in batches))

        found = dict(zip(distinct, chain.from_iterable(answers), strict=True))
        # Each query gets a list of its own, so that no caller changes another's.
        results = map(found.__getitem__, sent)
        return [each if isinstance(each, ServiceError) else list(each) for each in results]

    async def _batch(self, queries: list[str], k: int, until: float) -> Results:
        left = until - asyncio.get_running_loop().time()
        try:
            return [*await retried(lambda: self._ask(queries, k, until), left)]
        except ServiceError as error:
            # Where the server is away, single queries would not fare better.
            if len(queries) == 1 or error.fault == "service":
                return [error] * len(queries)

        alone = await asyncio.gather(*(self._batch([query], k, until) for query in queries))
        return list(chain.from_iterable(alone))

    async def _ask(self, queries: list[str], k: int, until: float) -> list[list[Document]]:
        """Sends a request once, when a connection is free."""
        url, raw = self.url, bytearray()
        where = url + by_proxy(url)
        # A batch that a server breaks on is not repeated: each of its queries is asked alone.
        broken: Callable[[str], ServiceError] = partial(TransientServiceError, "search")
        if len(queries) > 1:
            broken = partial(ServiceError, "search", fault="text")
        sent: dict[str, Any] = {"queries": queries, "topk": k, "return_scores": True}
        if self._flashrag:
            sent = {"query": queries, "top_n": k, "return_score": True}
        body = json.dumps(sent).encode()
        client, gate = self.connected()
        try:
            async with (
                asyncio.timeout_at(until),
                gate,
                # httpx's own time-outs are for single reads.
                asyncio.timeout(self._deadline / 3),
                client.stream("POST", url, content=body) as response,
            ):
                async for part in response.aiter_raw():
                    raw += part
                    if len(raw) > MAX_REPLY:
                        raise broken(f"{where}: a reply of more than {MAX_REPLY} bytes")
        except (TimeoutError, httpx.ConnectError) as error:
            what = f"no complete reply within a third of {self._deadline:g} s"
            what = what if isinstance(error, TimeoutError) else f"ConnectError: {error}"
            raise TransientServiceError("search", f"{where}: {what}") from error
        except httpx.RequestError as error:
            raise broken(f"{where}: {type(error).__name__}: {error}") from error

        status = response.status_code
        try:
            if status == 200:
                return read_reply(bytes(raw), len(queries), k)
            what = f"HTTP {status}"
        except ValueError as error:
            what = f"no answer: {error}"
        shown = raw.decode("utf-8", "replace").replace(self._key or "\0", "...")[:200]
        what = f"{where}: {what}; it begins {shown!r}"

        if status in OVERLOADED:
            raise TransientServiceError("search", what, asked_pause(response.headers))
        if status == 200 or status >= 500:
            raise broken(what)
        if status == 401:
            what += " (token_env or --token-env names the variable that holds the server's token)"
        if status == 404 and isinstance(self, HTTPPages):
            what += " (pages are read from `ssp serve` alone: leave open out of game.tools)"
        # These statuses are about what was sent: malformed, too long, or refused.
        raise ServiceError("search", what, fault="text" if status in (400, 413, 422) else "service")


class HTTPPages(HTTPRetriever):
    """Reads the pages of an `ssp serve`."""

    reads_on = True
    _endpoint = "/open"


def read_reply(raw: bytes, count: int, k: int) -> list[list[Document]]:
    """The rankings that a reply holds, where ``count`` queries asked for ``k`` documents each.

    Documents keep the server's order; what it repeats, and what is beyond ``k``, is dropped. A hit
    is a ``document`` with its ``score``, or a document alone. A document is an object with
    ``contents``, or ``title`` and ``text``, or a string. Score, title and id may be missing or
    null. Of documents that share an id, such as pieces of a page, all but the first get one of
    their own. What a search may come to find is never an error: nothing, null, an empty text.

    ``ValueError`` for anything else: it is no answer of such a server.

    >>> read_reply(b'{"result": [[{"id": 7, "contents": "A city."}, null]]}', count=1, k=3)
    [[Document(id='7', title='', text='A city.', score=None)]]
    """
    try:
        result = json.loads(raw)
        result = result["result"] if isinstance(result, dict) else result
        if _is_pair(result, count):
            # FlashRAG's retrievers return documents and scores apart.
            result = [
                [{"document": d, "score": s} for d, s in zip(*both, strict=False)]
                for both in zip(*result, strict=True)
            ]
        if count == 1 and result == []:
            result = [[]]  # Search-R1's reranking server leaves out a query without documents
        if not isinstance(result, list) or len(result) != count:
            raise ValueError(f"a list of {count} lists is wanted as 'result'")
        if any(not isinstance(ranking, list | None) for ranking in result):
            raise ValueError(f"a list of {count} lists is wanted as 'result'")
        return [_ranking(hits or (), k) for hits in result]
    except (RecursionError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"no documents with contents, or title and text ({error!r})") from error


def _is_pair(result: Any, count: int) -> bool:
    """True for the documents of all queries, and their scores."""
    if not isinstance(result, list) or len(result) != 2:
        return False
    # Rankings of two queries are a list of two as well; scores are no documents.
    documents, scores = result
    return (
        isinstance(documents, list)
        and isinstance(scores, list)
        and len(documents) == len(scores) == count
        and all(isinstance(each, list) for each in (*documents, *scores))
        and not any(isinstance(score, dict | list) for row in scores for score in row)
    )


def _ranking(hits: Iterable[Any], k: int) -> list[Document]:
    """The first ``k`` different documents, each with an id of its own."""
    # Documents are equal when id, title and text are.
    different = dict.fromkeys(found for found in map(_document, hits) if found is not None)
    ranking: dict[str, Document] = {}
    for document in different:
        if document.id in ranking:
            # Two passages of one id could not be told apart in a game's evidence.
            document = replace(document, id=f"{document.id}/{_digest(document)}")
        ranking.setdefault(document.id, document)
    return list(ranking.values())[:k]


def _document(hit: Any) -> Document | None:
    """The document of a hit; ``None`` where the server found nothing to show."""
    row = hit.get("document", hit) if isinstance(hit, dict) else hit
    if row is None or row == {}:
        return None
    if isinstance(row, str):
        row = {"contents": row}
    contents, title, text = (_text(row.get(name)) for name in ("contents", "title", "text"))
    # A text counts beside a title, or where there are no contents, which have a title in them.
    if isinstance(text, str) and (isinstance(title, str) or contents is None):
        title = title or ""
    elif isinstance(contents, str):
        title, text = split_contents(contents)
    elif {"contents", "text"} & row.keys() and contents is None and text is None:
        return None
    else:
        raise TypeError(f"a document with the fields {', '.join(row) or 'none'}")
    if not f"{title}{text}".strip():
        return None

    document = Document("", well_formed(str(title)), well_formed(text), _score(hit))
    # Search-R1's BM25 sends no id: what is written is what it is. In some corpora it is a number.
    name = row.get("id", row.get("_id"))
    return replace(document, id=_digest(document) if name is None else well_formed(str(name)))


def _text(value: Any) -> Any:
    """A text, also where a table made a number of it."""
    return str(value) if isinstance(value, int | float) else value


def _score(hit: Any) -> float | None:
    """A hit's score; ``None`` where it has none, or none that is a number."""
    try:
        score = float(hit["score"])
    except (LookupError, TypeError, ValueError, OverflowError):
        return None
    return score if isfinite(score) else None


def _digest(document: Document) -> str:
    return hashlib.sha256(f"{document.title}\n{document.text}".encode()).hexdigest()[:16]

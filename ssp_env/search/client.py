"""A client for servers that speak Search-R1's protocol: theirs and ``ssp serve``.

Extra fields of a reply are passed over. Scores are always asked for: without them, Search-R1's own
server answers two queries with the wrong shape."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from math import isfinite
from typing import Any

import httpx

from ssp_env.errors import ServiceError, TransientServiceError
from ssp_env.net import (
    OVERLOADED,
    Client,
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

    def __init__(self, url: str, token_env: str | None = None, deadline: float = 60.0) -> None:
        """``/retrieve`` is appended to the address where it is missing; ``token_env`` names the
        environment variable that holds a bearer token; ``deadline`` is the seconds of a whole
        search, of which one request may take a third."""
        check_url("url", url, "http://127.0.0.1:8000")
        self.url = url.rstrip("/").removesuffix("/retrieve") + "/retrieve"
        self._deadline, self._key = deadline, read_key("search.token_env", token_env)
        key = self._key

        def connect() -> tuple[httpx.AsyncClient, asyncio.Semaphore]:
            headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
            if key:
                headers["Authorization"] = f"Bearer {key}"
            limits = httpx.Limits(max_keepalive_connections=CONNECTIONS)
            client = http_client(url, headers=headers, timeout=None, limits=limits)
            return client, asyncio.Semaphore(CONNECTIONS)

        made_from = url, token_env, deadline
        super().__init__(made_from, connect, lambda made: made[0].aclose())

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
        body = json.dumps({"queries": queries, "topk": k, "return_scores": True}).encode()
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
            asked = response.headers.get("Retry-After", "").strip()
            raise TransientServiceError("search", what, float(asked) if asked.isdecimal() else None)
        if status == 200 or status >= 500:
            raise broken(what)
        if status == 401:
            what += " (token_env or --token-env names the variable that holds the server's token)"
        raise ServiceError("search", what, fault="text" if status in (400, 413, 422) else "service")


def read_reply(raw: bytes, count: int, k: int) -> list[list[Document]]:
    """The rankings that a reply holds, where ``count`` queries asked for ``k`` documents each.

    ``ValueError`` for anything else: a ranking that is wrong in silence would be trained on."""
    try:
        result = json.loads(raw)["result"]
        if [type(ranking) for ranking in result] != [list] * count:
            raise ValueError(f"a list of {count} lists is wanted as 'result'")
        rankings = [[_document(hit) for hit in ranking] for ranking in result]
    except (RecursionError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no documents with contents, or title and text ({error!r})") from error
    for ranking in rankings:
        if len(ranking) > k or len({found.id for found in ranking}) < len(ranking):
            raise ValueError(f"a ranking of more than {k} documents, or with one twice")
    return rankings


def _document(hit: Any) -> Document:
    row, score = hit["document"], float(hit["score"])
    if not isfinite(score):
        raise ValueError("a score that is not finite")
    title, text = row.get("title", ""), row.get("text")
    if "contents" in row:
        title, text = split_contents(row["contents"])
    title, text = well_formed(title), well_formed(text)

    # Search-R1's BM25 sends no id: what is written is what it is. In some corpora it is a number.
    if (name := row.get("id")) is None:
        name = hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16]
    return Document(well_formed(str(name)), title, text, score)

"""Joins concurrent requests of the search server into calls of its retriever."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from time import perf_counter, sleep

from ssp_env.errors import ServiceError
from ssp_env.search.base import Retriever, check_count
from ssp_env.types import Document

Rankings = list[list[Document]]

MAX_BATCH = 256
"""Most queries of a call that joins requests; a larger request has its own."""
_LONGEST_PAUSE = 0.002


class QueueFull(Exception):
    """More queries wait than the batcher takes."""


@dataclass(slots=True, eq=False)
class _Request:
    queries: Sequence[str]
    k: int
    future: Future[Rankings] = field(default_factory=Future)


class Batcher:
    """Hands requests to a retriever, one call at a time, in its own thread.

    Requests that arrive while the retriever is busy become its next call: oldest first, equal ``k``
    together. A call that fails, but not by an outage, is repeated request by request, so that one
    that the retriever chokes on fails alone."""

    def __init__(self, retriever: Retriever, max_waiting: int) -> None:
        """``max_waiting`` is the most queries that wait."""
        self._retriever, self._waiting, self._max_waiting = retriever, 0, max_waiting
        self._inbox: SimpleQueue[_Request] = SimpleQueue()
        # A daemon: a retriever that hangs does not keep the process alive.
        Thread(target=self._work, name="search backend", daemon=True).start()

    async def search(self, queries: Sequence[str], k: int) -> Rankings:
        """Waits for the rankings of a request; raises what the retriever raised, or QueueFull."""
        if self._waiting + len(queries) > self._max_waiting:
            raise QueueFull
        request = _Request(queries, k)
        self._waiting += len(queries)
        self._inbox.put(request)
        try:
            return await asyncio.wrap_future(request.future)  # cancelled, it is dropped
        finally:
            self._waiting -= len(queries)

    def _work(self) -> None:
        """The thread: answers one batch after another."""
        pending: deque[_Request] = deque()
        pause = 0.0
        while True:
            if not pending:
                pending.append(self._inbox.get())
            # Clients that got their answers together ask again together, a moment later. A call
            # that started at once would miss all but the first of them.
            sleep(pause)
            while not self._inbox.empty():
                pending.append(self._inbox.get())

            k, room = pending[0].k, MAX_BATCH
            batch, left = list[_Request](), deque[_Request]()
            for request in pending:
                if batch and (request.k != k or len(request.queries) > room):
                    left.append(request)
                elif request.future.set_running_or_notify_cancel():
                    batch.append(request)
                    k, room = request.k, room - len(request.queries)
            pending = left

            begin = perf_counter()
            if batch:
                self._answer(batch)
            pause = min(_LONGEST_PAUSE, (perf_counter() - begin) / 4)

    def _answer(self, batch: list[_Request]) -> None:
        """Gives each request its rankings, or the reason why it has none."""
        queries = [query for request in batch for query in request.queries]
        try:
            rankings = self._retriever.search(queries, batch[0].k)
            check_count(rankings, queries)
        except Exception as error:
            if len(batch) > 1 and not (
                isinstance(error, ServiceError) and error.fault == "service"
            ):
                for request in batch:
                    self._answer([request])
            else:
                for request in batch:
                    request.future.set_exception(error)
            return

        each = iter(rankings)
        for request in batch:
            request.future.set_result(list(islice(each, len(request.queries))))

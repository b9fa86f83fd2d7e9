"""Joins concurrent requests of the search server into calls of its retriever."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from time import perf_counter, sleep

from ssp_env.errors import ServiceError, UsageError
from ssp_env.search.base import Retriever, check_count
from ssp_env.types import Document

Rankings = list[list[Document]]

MAX_BATCH = 256
"""Most queries of a call that joins requests; a larger request has its own."""
_LONGEST_PAUSE = 0.002
_logger = logging.getLogger(__name__)


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
        self._waiting = 0
        self._retriever, self._max_waiting = retriever, max_waiting
        self._inbox: SimpleQueue[_Request] = SimpleQueue()

        # A daemon: a retriever that hangs does not keep the process alive.
        Thread(target=self._work, name="search backend", daemon=True).start()

    async def search(self, queries: Sequence[str], k: int) -> Rankings:
        """Waits for the rankings of a request, always on the same event loop. Cancel it to give up.

        Raises:
            QueueFull: there is no room for it.
            Exception: what the retriever raised.
        """
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

            begin = perf_counter()
            if batch := self._take(pending):
                self._answer(batch)
            pause = min(_LONGEST_PAUSE, (perf_counter() - begin) / 4)

    def _take(self, pending: deque[_Request]) -> list[_Request]:
        """Takes the oldest request and those that fit to it; cancelled ones are dropped."""
        batch: list[_Request] = []
        left: list[_Request] = []
        room = MAX_BATCH
        while pending and room > 0:
            request = pending.popleft()
            if batch and (request.k != batch[0].k or len(request.queries) > room):
                left.append(request)
            elif request.future.set_running_or_notify_cancel():
                batch.append(request)
                room -= len(request.queries)

        pending.extendleft(reversed(left))
        return batch

    def _answer(self, batch: list[_Request]) -> None:
        """Gives each request its rankings, or the reason why it has none."""
        queries, k = [query for request in batch for query in request.queries], batch[0].k
        try:
            rankings = self._retriever.search(queries, k)
            check_count(rankings, queries)
            if any(len(ranking) > k for ranking in rankings):
                raise UsageError("the retriever gave more documents than were asked for")
        except Exception as error:
            outage = isinstance(error, ServiceError) and error.fault == "service"
            if len(batch) > 1 and not outage:
                _logger.warning("%d requests failed together: %s", len(batch), error)
                for request in batch:
                    self._answer([request])
            else:
                for request in batch:
                    request.future.set_exception(error)
            return

        each = iter(rankings)
        for request in batch:
            request.future.set_result(list(islice(each, len(request.queries))))

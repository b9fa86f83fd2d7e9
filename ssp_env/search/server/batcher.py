"""Joins concurrent requests into backend calls."""

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
from ssp_env.search.server.metrics import Metrics
from ssp_env.types import Document

Rankings = list[list[Document]]

OUTAGE_AFTER = 3
"""Outages in a row, of requests that are repeated alone, after which the others are given up."""

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

    What arrives while the backend is busy becomes its next call: oldest first, equal ``k``
    together, at most ``max_batch`` queries. A larger request has a call of its own. A call that
    fails is repeated request by request, so that one that the backend chokes on fails alone."""

    def __init__(
        self, retriever: Retriever, max_batch: int, max_waiting: int, metrics: Metrics | None = None
    ) -> None:
        """``retriever``, ``max_batch``, ``max_waiting``: as in ``ServerConfig``."""
        self.waiting = 0
        """Queries that wait for their answer."""
        self._retriever, self._metrics = retriever, metrics or Metrics()
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._inbox: SimpleQueue[_Request] = SimpleQueue()

        # A daemon: a backend that hangs does not keep the process alive.
        Thread(target=self._work, name="search backend", daemon=True).start()

    async def search(self, queries: Sequence[str], k: int) -> Rankings:
        """Waits for the rankings of a request, always on the same event loop. Cancel it to give up.

        Raises:
            QueueFull: there is no room for it.
            Exception: what the retriever raised.
        """
        if self.waiting + len(queries) > self._max_waiting:
            raise QueueFull

        request = _Request(queries, k)
        self._count(len(queries))
        self._inbox.put(request)
        try:
            return await asyncio.wrap_future(request.future)  # cancelled, it is dropped
        finally:
            self._count(-len(queries))

    def _count(self, change: int) -> None:
        self.waiting += change
        self._metrics.queue.set(self.waiting)

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
        """Takes the oldest request and what goes with it; what was given up is dropped."""
        batch: list[_Request] = []
        left: list[_Request] = []
        room = self._max_batch
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
        queries = [query for request in batch for query in request.queries]
        begin = perf_counter()
        try:
            rankings = self._ask(queries, batch[0].k)
        except Exception as error:
            if len(batch) > 1:
                _logger.warning("%d requests failed together: %s", len(batch), error)
                self._one_by_one(batch)
            else:
                batch[0].future.set_exception(error)
            return

        self._metrics.batch.observe(len(queries))
        self._metrics.backend.observe(perf_counter() - begin)
        each = iter(rankings)
        for request in batch:
            request.future.set_result(list(islice(each, len(request.queries))))

    def _ask(self, queries: list[str], k: int) -> Rankings:
        rankings = self._retriever.search(queries, k)
        check_count(rankings, queries)
        if any(len(ranking) > k for ranking in rankings):
            raise UsageError("the retriever gave more documents than were asked for")
        return rankings

    def _one_by_one(self, batch: list[_Request]) -> None:
        outages = 0
        for request in batch:
            # During an outage each of them may take as long as a time-out.
            if outages == OUTAGE_AFTER:
                what = "the backend failed for the requests before this one"
                request.future.set_exception(ServiceError("search", what))
                continue

            self._answer([request])
            outage = isinstance(request.future.exception(), ServiceError)
            outages = outages + 1 if outage else 0

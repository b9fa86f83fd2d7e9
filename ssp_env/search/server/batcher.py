"""Joins concurrent requests into backend calls."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from time import perf_counter

from ssp_env.errors import ServiceError
from ssp_env.search.base import Retriever
from ssp_env.search.server.wire import WrongAnswer
from ssp_env.types import Document

Rankings = list[list[Document]]

OUTAGE_AFTER = 3
"""Single requests of a failed batch that fail with a ``ServiceError`` in a row before the rest is
given up."""

_logger = logging.getLogger(__name__)


class QueueFull(Exception):
    """More queries wait than the batcher takes."""


@dataclass(slots=True, eq=False)
class _Request:
    queries: Sequence[str]
    k: int
    future: asyncio.Future[Rankings]


@dataclass(frozen=True, slots=True)
class Call:
    """A finished backend call, for the metrics."""

    requests: int
    queries: int
    seconds: float


class Batcher:
    """Hands requests to a retriever, one call at a time in a thread of its own, so that the event
    loop stays free.

    What arrives while the backend is busy waits and then goes in one call, oldest first, equal
    ``k`` together. A call that fails is repeated request by request, so that a request that the
    backend chokes on fails alone."""

    def __init__(
        self,
        retriever: Retriever,
        *,
        max_batch: int,
        max_waiting: int,
        window: float,
        observe: Callable[[Call], None],
    ) -> None:
        """Starts the thread; to be called in the event loop that :meth:`submit` is called in.

        Args:
            retriever: the backend.
            max_batch: queries after which a call takes no further request.
            max_waiting: queries that may wait.
            window: most seconds that an idle backend waits for company; see :meth:`_pause`.
            observe: told about each call, in the event loop.
        """
        self.waiting = 0
        """Queries that wait for the backend, those in the running call not counted."""
        self._retriever, self._observe = retriever, observe
        self._max_batch, self._max_waiting, self._window = max_batch, max_waiting, window
        self._loop = asyncio.get_running_loop()
        self._pending: deque[_Request] = deque()
        self._busy, self._closed = False, False
        self._start_at: asyncio.Handle | None = None
        self._pausing = False
        self._last_seconds, self._expected = 0.0, 0
        self._inbox: SimpleQueue[list[_Request] | None] = SimpleQueue()
        # A daemon: a backend that hangs does not keep the process.
        Thread(target=self._work, name="search backend", daemon=True).start()

    def submit(self, queries: Sequence[str], k: int) -> asyncio.Future[Rankings]:
        """Queues a request. Its future takes the rankings, or what the retriever raised; cancel it
        to give up.

        Raises:
            QueueFull: no room for it.
        """
        if self.waiting + len(queries) > self._max_waiting:
            raise QueueFull
        future: asyncio.Future[Rankings] = self._loop.create_future()
        self._pending.append(_Request(queries, k, future))
        self.waiting += len(queries)
        if not self._busy:
            self._schedule()
        return future

    def close(self) -> None:
        """Ends the thread after the call that it is in. Requests that wait are not answered any
        more."""
        self._closed = True
        self._inbox.put(None)

    def _schedule(self) -> None:
        """Sees to it that a call starts, at the end of this turn of the loop or when the pause is
        over."""
        pause = 0.0
        if len(self._pending) < self._expected and self.waiting < self._max_batch:
            pause = self._pause()
        if self._start_at is not None:
            if pause or not self._pausing:
                return
            self._start_at.cancel()
        self._pausing = pause > 0
        self._start_at = (
            self._loop.call_later(pause, self._start)
            if pause
            else self._loop.call_soon(self._start)
        )

    def _pause(self) -> float:
        """How long an idle backend waits for company, unless as many requests as there were last
        time are here before.

        Clients that got their answers together ask again together, a moment later; a call that
        started at once would miss all but the first of them, for the whole length of a call. Two
        fifths of the last call is what that moment may cost. A cheap backend would lose more than
        it could gain, and does not wait."""
        pause = min(self._window, self._last_seconds / 2.5)
        return pause if pause >= 0.001 else 0.0

    def _start(self) -> None:
        self._start_at = None
        batch = self._take()
        if batch:
            self._busy = True
            self._inbox.put(batch)

    def _take(self) -> list[_Request]:
        """The oldest request and what goes with it; requests that were given up are dropped."""
        batch: list[_Request] = []
        left: deque[_Request] = deque()
        size = 0
        while self._pending and size < self._max_batch:
            request = self._pending.popleft()
            if request.future.done():
                self.waiting -= len(request.queries)
            elif batch and (
                request.k != batch[0].k or size + len(request.queries) > self._max_batch
            ):
                left.append(request)
            else:
                batch.append(request)
                size += len(request.queries)
        self._pending.extendleft(reversed(left))
        self.waiting -= size
        return batch

    def _deliver(
        self, batch: list[_Request], outcomes: list[Rankings | Exception], seconds: float
    ) -> None:
        self._busy = False
        # As many requests as there are now: those that get their answer, and those that wait.
        self._last_seconds, self._expected = seconds, len(batch) + len(self._pending)
        self._observe(Call(len(batch), sum(len(request.queries) for request in batch), seconds))
        for request, outcome in zip(batch, outcomes, strict=True):
            if request.future.done():
                continue
            if isinstance(outcome, Exception):
                request.future.set_exception(outcome)
            else:
                request.future.set_result(outcome)
        if self._pending:
            self._schedule()

    def _work(self) -> None:
        while (batch := self._inbox.get()) is not None:
            begin = perf_counter()
            outcomes = self._answer(batch)
            if not self._closed:
                self._loop.call_soon_threadsafe(
                    self._deliver, batch, outcomes, perf_counter() - begin
                )

    def _answer(self, batch: list[_Request]) -> list[Rankings | Exception]:
        """The rankings of each request, or why it has none."""
        try:
            rankings = self._search(
                [query for request in batch for query in request.queries], batch[0].k
            )
        except Exception as error:
            if len(batch) == 1:
                _logger.error("a search failed", exc_info=error)
                return [error]
            _logger.warning(
                "a batch of %d requests failed and is repeated one by one: %s", len(batch), error
            )
            return self._one_by_one(batch)
        parts: list[Rankings | Exception] = []
        end = 0
        for request in batch:
            start, end = end, end + len(request.queries)
            parts.append(rankings[start:end])
        return parts

    def _one_by_one(self, batch: list[_Request]) -> list[Rankings | Exception]:
        outcomes: list[Rankings | Exception] = []
        outages = 0
        for request in batch:
            if outages == OUTAGE_AFTER or request.future.done():
                outcomes.append(
                    ServiceError("search", "the backend failed for the requests before this one")
                )
                continue
            outcome = self._answer([request])[0]
            outcomes.append(outcome)
            outages = outages + 1 if isinstance(outcome, ServiceError) else 0
        return outcomes

    def _search(self, queries: list[str], k: int) -> Rankings:
        """
        Raises:
            WrongAnswer: not the shape that was asked for.
        """
        rankings = self._retriever.search(queries, k)
        if len(rankings) != len(queries) or any(len(ranking) > k for ranking in rankings):
            lengths = sorted({len(ranking) for ranking in rankings})
            shape = f"{len(rankings)} rankings of {lengths} documents"
            raise WrongAnswer(
                f"the retriever answered {len(queries)} queries, k = {k}, with {shape}"
            )
        return rankings

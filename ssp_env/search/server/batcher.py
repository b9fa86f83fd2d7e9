"""Joins concurrent requests into backend calls."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from threading import Thread

from ssp_env.errors import ServiceError, UsageError
from ssp_env.search.base import Retriever, check_count
from ssp_env.types import Document

Rankings = list[list[Document]]

OUTAGE_AFTER = 3
"""Outages in a row, of requests that are repeated alone, after which the others are given up."""

_WINDOW = 0.002
_logger = logging.getLogger(__name__)


class QueueFull(Exception):
    """More queries wait than the batcher takes."""


@dataclass(slots=True, eq=False)
class _Piece:
    """A request, or as much of it as one backend call takes."""

    queries: Sequence[str]
    k: int
    future: asyncio.Future[Rankings]


class Batcher:
    """Hands requests to a retriever, one call at a time, in its own thread.

    What arrives while the backend is busy becomes its next call: oldest first, equal ``k``
    together, at most ``max_batch`` queries. A larger request takes several calls. A call that fails
    is repeated request by request, so that a request that the backend chokes on fails alone."""

    def __init__(
        self,
        retriever: Retriever,
        max_batch: int,
        max_waiting: int,
        observe: Callable[[int, int, float], None] = lambda requests, queries, seconds: None,
    ) -> None:
        """
        Args:
            retriever, max_batch, max_waiting: as in ``ServerConfig``.
            observe: called after each backend call, in the batcher's thread, with its numbers of
                requests and queries, and its seconds.
        """
        self.waiting = 0
        """Queries that wait for their answer."""
        self._retriever, self._observe = retriever, observe
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._pending: deque[_Piece] = deque()
        self._busy = False
        self._timer: asyncio.Handle | None = None
        self._paused = False
        self._seconds, self._expected = 0.0, 0  # of the last call
        self._inbox: SimpleQueue[list[_Piece]] = SimpleQueue()

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

        size, loop = self._max_batch, asyncio.get_running_loop()
        pieces = [
            _Piece(queries[start : start + size], k, loop.create_future())
            for start in range(0, len(queries), size)
        ]
        self.waiting += len(queries)
        self._pending.extend(pieces)
        self._schedule(loop)
        try:
            if len(pieces) == 1:
                return await pieces[0].future
            parts = await asyncio.gather(*(piece.future for piece in pieces))
        finally:
            self.waiting -= len(queries)
            for piece in pieces:
                piece.future.cancel()  # what has not begun is dropped
        return [ranking for part in parts for ranking in part]

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Calls an idle backend at the end of this turn of the loop, or a moment later.

        Clients that got their answers together ask again together, a moment later. A call that
        started at once would miss all but the first of them, for the whole length of a call."""
        pause = min(_WINDOW, self._seconds / 2.5)
        few = len(self._pending) < self._expected and pause >= _WINDOW / 2
        if self._busy or not self._pending:
            return
        if self._timer is not None:
            if few or not self._paused:
                return
            self._timer.cancel()
        self._paused = few
        self._timer = loop.call_later(pause if few else 0.0, self._start)

    def _start(self) -> None:
        self._timer = None
        batch = self._take()
        if batch:
            self._busy = True
            self._inbox.put(batch)

    def _take(self) -> list[_Piece]:
        """Takes the oldest piece and what goes with it; what was given up is dropped."""
        batch: list[_Piece] = []
        left: list[_Piece] = []
        room = self._max_batch
        while self._pending and room > 0:
            piece = self._pending.popleft()
            if piece.future.done():
                continue
            if not batch or (piece.k == batch[0].k and len(piece.queries) <= room):
                batch.append(piece)
                room -= len(piece.queries)
            else:
                left.append(piece)

        self._pending.extendleft(reversed(left))
        return batch

    def _work(self) -> None:
        """The thread: answers one batch after another."""
        while True:
            batch = self._inbox.get()
            outcomes = self._answer(batch)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop = batch[0].future.get_loop()
                loop.call_soon_threadsafe(self._deliver, loop, batch, outcomes)

    def _deliver(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: list[_Piece],
        outcomes: list[Rankings | Exception],
    ) -> None:
        """Ends the waiting of a batch, in the event loop."""
        for piece, outcome in zip(batch, outcomes, strict=True):
            if piece.future.done():  # given up
                continue
            if isinstance(outcome, Exception):
                piece.future.set_exception(outcome)
            else:
                piece.future.set_result(outcome)

        # As many requests as there are now: those that get their answer, and those that wait.
        self._busy, self._expected = False, len(batch) + len(self._pending)
        self._schedule(loop)

    def _answer(self, batch: list[_Piece]) -> list[Rankings | Exception]:
        """The rankings of each piece, or why it has none."""
        queries = [query for piece in batch for query in piece.queries]
        begin = time.perf_counter()
        try:
            rankings = self._retriever.search(queries, batch[0].k)
            check_count(rankings, queries)
            if any(len(ranking) > batch[0].k for ranking in rankings):
                raise UsageError("the retriever gave more documents than were asked for")
        except Exception as error:
            if len(batch) > 1:
                _logger.warning("%d requests failed together: %s", len(batch), error)
                return self._one_by_one(batch)
            return [error]

        self._seconds = time.perf_counter() - begin
        self._observe(len(batch), len(queries), self._seconds)
        each = iter(rankings)
        return [list(islice(each, len(piece.queries))) for piece in batch]

    def _one_by_one(self, batch: list[_Piece]) -> list[Rankings | Exception]:
        outcomes: list[Rankings | Exception] = []
        outages = 0
        for piece in batch:
            # During an outage each of them may take as long as a time-out.
            if outages == OUTAGE_AFTER:
                what = "the backend failed for the requests before this one"
                outcomes.append(ServiceError("search", what))
                continue
            outcomes += self._answer([piece])
            outages = outages + 1 if isinstance(outcomes[-1], ServiceError) else 0
        return outcomes

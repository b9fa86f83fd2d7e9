"""What ``/metrics`` shows, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from ssp_env.search.server.batcher import Call

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Metrics:
    """Counters of one application; two applications in a process do not share them."""

    def __init__(self, waiting: Callable[[], int], ready: Callable[[], bool]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "ssp_search_requests",
            "Requests by path and status.",
            ["path", "status"],
            registry=self._registry,
        )
        self._latency = Histogram(
            "ssp_search_request_seconds",
            "Seconds from a request's head to the end of its answer, /retrieve alone.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._batch_queries = Histogram(
            "ssp_search_batch_queries",
            "Queries a backend call.",
            buckets=_SIZES,
            registry=self._registry,
        )
        self._batch_requests = Histogram(
            "ssp_search_batch_requests",
            "Requests a backend call.",
            buckets=_SIZES,
            registry=self._registry,
        )
        self._backend = Histogram(
            "ssp_search_backend_seconds",
            "Seconds a backend call.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        queue = Gauge(
            "ssp_search_queue_queries",
            "Queries that wait for the backend.",
            registry=self._registry,
        )
        queue.set_function(waiting)
        state = Gauge("ssp_search_ready", "1 while requests are welcome.", registry=self._registry)
        state.set_function(ready)
        self._by_label: dict[tuple[str, int], Counter] = {}

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts a finished request."""
        label = (path, status)
        counter = self._by_label.get(label)
        if counter is None:
            counter = self._by_label[label] = self._requests.labels(path, str(status))
        counter.inc()
        if path == "/retrieve":
            self._latency.observe(seconds)

    def call(self, call: Call) -> None:
        """Counts a finished backend call."""
        self._batch_requests.observe(call.requests)
        self._batch_queries.observe(call.queries)
        self._backend.observe(call.seconds)

    def text(self) -> bytes:
        """The page."""
        return generate_latest(self._registry)

"""What ``/metrics`` shows, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counters of one application; two applications in a process do not share them."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        """``waiting``: how many queries wait for their answer now."""
        registry = self.registry = CollectorRegistry()

        def histogram(name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"ssp_search_{name}", what, buckets=buckets, registry=registry)

        self.requests = Counter(
            "ssp_search_requests", "By path and status.", ["path", "status"], registry=registry
        )
        self.cut = Counter("ssp_search_cut_queries", "Queries that were cut.", registry=registry)
        self.latency = histogram("request_seconds", "Of /retrieve alone.", _SECONDS)
        self.backend = histogram("backend_seconds", "Seconds per backend call.", _SECONDS)
        self.batch_requests = histogram("batch_requests", "Requests per backend call.", _SIZES)
        self.batch_queries = histogram("batch_queries", "Queries per backend call.", _SIZES)
        queue = Gauge("ssp_search_queue_queries", "Queries that wait.", registry=registry)
        queue.set_function(waiting)

    def call(self, requests: int, queries: int, seconds: float) -> None:
        """Counts a finished backend call."""
        self.batch_requests.observe(requests)
        self.batch_queries.observe(queries)
        self.backend.observe(seconds)

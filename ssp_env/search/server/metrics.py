"""What ``/metrics`` shows, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of one application; two applications in a process do not share them."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        """``waiting``: how many queries wait for their answer now."""
        self.registry = CollectorRegistry()
        own: Any = {"namespace": "ssp_search", "registry": self.registry}
        self.requests = Counter("requests", "By path and status.", ["path", "status"], **own)
        self.cut = Counter("cut_queries", "Queries that were cut.", **own)
        self.latency = Histogram("request_seconds", "Of /retrieve alone.", **own)
        self.backend = Histogram("backend_seconds", "Seconds per backend call.", **own)
        self.batch = Histogram("batch_queries", "Queries per call.", buckets=_SIZES, **own)
        Gauge("queue_queries", "Queries that wait.", **own).set_function(waiting)

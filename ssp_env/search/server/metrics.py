"""What ``/metrics`` shows, in Prometheus' text format."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of one application; two applications in a process do not share them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: Any = {"namespace": "ssp_search", "registry": self.registry}
        self.requests = Counter("requests", "By path and status.", ["path", "status"], **own)
        self.cut = Counter("cut_queries", "Queries that were cut.", **own)
        self.queue = Gauge("queue_queries", "Queries that wait for their answer.", **own)
        self.latency = Histogram("request_seconds", "Of /retrieve alone.", **own)
        self.backend = Histogram("backend_seconds", "Seconds per backend call.", **own)
        self.batch = Histogram("batch_queries", "Queries per call.", buckets=_SIZES, **own)

"""The search server as a Ray Serve deployment: replicas behind Ray's proxies, on one machine or
many.

Each replica has its own index and batcher. Ray restarts a replica that dies; requests
that were in it get an error, which a retrying client outlives. ``/metrics`` shows the replica that
happens to answer."""

from __future__ import annotations

import signal
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ssp_env.errors import ConfigError
from ssp_env.search.base import Retriever
from ssp_env.search.server.app import build_app
from ssp_env.search.server.config import ServerConfig
from ssp_env.search.server.run import address

APP = "ssp-search"
"""What Ray calls the application."""


def run_on_ray(
    open_retriever: Callable[[], Retriever],
    config: ServerConfig,
    replicas: int,
    on_ready: Callable[[str], None],
) -> None:
    """Deploys on the Ray cluster that ``RAY_ADDRESS`` names or this machine is in, or else on one
    of its own. Returns after SIGTERM, once the requests in progress are answered.

    Args:
        open_retriever: loads the index, in each replica.
        config: the settings. Ray's proxies bind ``host`` and ``port`` on each machine that has a
            replica.
        replicas: how many.
        on_ready: called with the address once all replicas answer.

    Raises:
        ConfigError: a port of 0, or fewer than one replica.
        KeyboardInterrupt: SIGINT ended it.
    """
    if config.port == 0:
        fix = "with Ray, name the port: each machine's proxy binds the same one"
        raise ConfigError("port", 0, fix)
    if replicas < 1:
        raise ConfigError("replicas", replicas, "at least one has to answer")

    import ray
    from ray import serve

    deployment = serve.deployment(
        name="SearchServer",
        num_replicas=replicas,
        max_ongoing_requests=1024,  # what waits in a replica is what its batcher joins
        health_check_period_s=2,
        health_check_timeout_s=10,
        graceful_shutdown_timeout_s=config.answer_seconds,
        logging_config={"enable_access_log": False},
    )
    ingress: Any = serve.ingress(lambda: build_app(open_retriever(), config))
    signals: SimpleQueue[int] = SimpleQueue()

    ray.init(log_to_driver=False, ignore_reinit_error=True)
    try:
        serve.start(http_options={"host": config.host, "port": config.port})
        serve.run(deployment(ingress()).bind(), name=APP)

        # Not before: Ray and Serve set handlers of their own while they start.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda sig, frame: signals.put(sig))
        on_ready(address(config.host, config.port))
        ended_by = signals.get()
        serve.delete(APP)
    finally:
        ray.shutdown()
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt

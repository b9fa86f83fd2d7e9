"""The search server as a Ray Serve deployment: replicas behind Ray's proxies, on one machine or
many.

Each replica has its own index and batcher. Ray restarts a replica that dies; requests
that were in it get an error, which a retrying client outlives. ``/metrics`` shows the replica that
happens to answer."""

from __future__ import annotations

import signal
from collections.abc import Callable
from threading import Event
from typing import Any

from ssp_env.errors import ConfigError
from ssp_env.search.base import Retriever
from ssp_env.search.server.app import build_app
from ssp_env.search.server.config import ServerConfig

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
    import ray
    from ray import serve

    if config.port == 0:
        fix = "with Ray, name the port: each machine's proxy binds the same one"
        raise ConfigError("port", 0, fix)
    if replicas < 1:
        raise ConfigError("replicas", replicas, "at least one has to answer")

    deployment = serve.deployment(
        name="SearchServer",
        num_replicas=replicas,
        # What waits in a replica is what its batcher joins: Ray's default of 5 would make every
        # batch a small one.
        max_ongoing_requests=1024,
        health_check_period_s=2,
        health_check_timeout_s=10,
        graceful_shutdown_timeout_s=config.answer_seconds,
        logging_config={"enable_access_log": False},
    )
    ingress: Any = serve.ingress(lambda: build_app(open_retriever(), config))
    stop = Event()
    signals: list[int] = []

    def on_signal(sig: int, frame: object) -> None:
        signals.append(sig)
        stop.set()

    ray.init(log_to_driver=False, ignore_reinit_error=True)
    try:
        serve.start(http_options={"host": config.host, "port": config.port})
        serve.run(deployment(ingress()).bind(), name=APP)

        # Not before: Ray and Serve set handlers of their own while they start.
        signal.signal(signal.SIGINT, on_signal)
        signal.signal(signal.SIGTERM, on_signal)
        host = f"[{config.host}]" if ":" in config.host else config.host
        on_ready(f"http://{host}:{config.port}")
        while not stop.wait(1):
            pass
        serve.delete(APP)
    finally:
        ray.shutdown()
    if signals[0] == signal.SIGINT:
        raise KeyboardInterrupt

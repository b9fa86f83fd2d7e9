"""How the search server starts and stops."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from serverkit import Served, stub


def test_it_listens_once_the_index_is_loaded_and_nothing_holds_up_its_end(tmp_path: Path) -> None:
    with stub(tmp_path / "log", loading=1.5, answer_seconds=1.0) as served:
        time.sleep(0.5)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{served.url}/healthz")
        served.wait_ready()

        with socket.create_connection(("127.0.0.1", served.port)) as slow:
            slow.sendall(b"POST /retr")
            assert served.retrieve("hang").status_code == 504
            begin = time.monotonic()
            assert served.stop() == 0
            assert time.monotonic() - begin < 5


def ask_until(over: threading.Event, served: Served, name: int, outcomes: dict[str, str]) -> None:
    """A client that asks one question after another; notes what each came to."""
    with httpx.Client(base_url=served.url, timeout=30, verify=False) as client:
        while not over.is_set():
            query = f"client {name} question {len(outcomes)}"
            try:
                answer = client.post("/retrieve", json={"queries": [query], "topk": 1})
                right = answer.json()["result"][0][0]["id"] == f"{query}/0"
                outcomes[query] = "right" if right else answer.text
            except httpx.TransportError as error:
                outcomes[query] = f"lost: {error!r}"
                time.sleep(0.01)


def test_stopped_under_load_it_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    over, outcomes = threading.Event(), dict[str, str]()
    with stub(tmp_path / "log", seconds=0.02) as served, ThreadPoolExecutor(24) as pool:
        clients = [pool.submit(ask_until, over, served, name, outcomes) for name in range(24)]
        while len(outcomes) < 100:
            time.sleep(0.01)
        assert served.stop() == 0
        over.set()
        for client in clients:
            client.result(30)
        searched = {query for call in served.calls() for query in call}
    assert all(outcome == "right" or "lost" in outcome for outcome in outcomes.values())
    assert {outcomes[query] for query in searched} == {"right"}

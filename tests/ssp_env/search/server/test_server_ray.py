"""The search server on Ray Serve: a replica that dies costs its clients a retry, no more."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from serverkit import Served, ssp_serve

from ssp_env.errors import ServiceError
from ssp_env.net.retry import RetryPolicy
from ssp_env.search.client import HTTPConfig, HTTPRetriever
from ssp_env.worlds import open_world

TITLE = open_world("small").corpus[0].title


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    options = ["--ray", "--replicas", "2", "--world", "small"]
    # "local" keeps it off any cluster that this machine may be in.
    environment = {"RAY_ADDRESS": "local", "RAY_DISABLE_IMPORT_WARNING": "1"}
    with ssp_serve(tmp_path / "log", *options, **environment) as served:
        yield served
        assert served.stop() == 0


def replicas(served: Served) -> set[int]:
    """Process ids of the replicas of this server's cluster: children of its children by name."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            title = (entry / "cmdline").read_text() if entry.name.isdecimal() else ""
            if title.startswith("ray::ServeReplica:ssp-search") and _descends(
                int(entry.name), served.process.pid
            ):
                found.add(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def _ask_for(served: Served, seconds: float) -> tuple[int, int]:
    """One client that tries again: questions that were answered, and failures on the way."""
    answered = failures = 0
    ends = time.monotonic() + seconds
    with HTTPRetriever(HTTPConfig(served.url, retry=RetryPolicy(attempts=1))) as retriever:
        while time.monotonic() < ends:
            try:
                assert retriever.search([TITLE], 1)[0][0].title == TITLE
                answered += 1
            except ServiceError:
                failures += 1
                time.sleep(0.1)
    return answered, failures


def test_a_replica_that_is_killed_under_load_costs_no_request_for_good_and_comes_back(
    served: Served,
) -> None:
    before = replicas(served)
    assert len(before) == 2
    assert httpx.get(f"{served.url}/status").json() == "ok"
    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(_ask_for, served, 3.0) for _ in range(8)]
        time.sleep(1.0)
        os.kill(min(before), signal.SIGKILL)
        counts = [client.result() for client in clients]
    answered, failures = (sum(column) for column in zip(*counts, strict=True))
    assert answered > 50
    assert failures < answered / 10
    for _ in range(200):
        now = replicas(served)
        if len(now) == 2 and now != before:
            break
        time.sleep(0.1)
    assert len(now - before) == 1
    assert served.retrieve(TITLE, topk=1).status_code == 200

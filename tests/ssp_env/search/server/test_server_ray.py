"""The search server on Ray Serve: a replica that dies costs its clients a retry, no more."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serverkit import SSP, Served, ask, free_port, start

from ssp_env.worlds import open_world

TITLE = open_world("small").corpus[0].title


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    port = free_port()
    command = [SSP, "serve", "--ray", "--replicas", "2", "--world", "small", "--port", str(port)]
    # "local" keeps it off any cluster that this machine may be in.
    served = start(
        tmp_path / "log", command, port, RAY_ADDRESS="local", RAY_DISABLE_IMPORT_WARNING="1"
    )
    try:
        served.wait_ready()
        yield served
    finally:
        served.process.send_signal(signal.SIGTERM)
        try:
            assert served.process.wait(30) == 0
        finally:
            served.process.kill()


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


async def _until_answered(port: int, body: bytes) -> tuple[bytes, int]:
    """The answer, and how many tries it took: what a retrying client does."""
    for attempt in range(1, 40):
        try:
            status, answer = await asyncio.wait_for(ask(port, body), 10)
        except (OSError, EOFError):
            status, answer = 0, b""
        if status == 200:
            return answer, attempt
        assert status in (0, 500, 502, 503), answer
        await asyncio.sleep(0.1)
    raise AssertionError(f"no answer for good: {status} {answer!r}")


async def _press(served: Served, seconds: float) -> tuple[int, int]:
    """Questions that were answered, and tries beyond the first, while one replica is killed."""
    end = time.monotonic() + seconds
    answered, retries = 0, 0

    async def client(name: int) -> None:
        nonlocal answered, retries
        body = json.dumps(
            {"queries": [TITLE, str(name)], "topk": 1, "return_scores": True}
        ).encode()
        while time.monotonic() < end:
            answer, attempts = await _until_answered(served.port, body)
            assert TITLE in json.loads(answer)["result"][0][0]["document"]["contents"]
            answered, retries = answered + 1, retries + attempts - 1

    async def kill() -> None:
        await asyncio.sleep(1.0)
        os.kill(min(replicas(served)), signal.SIGKILL)

    await asyncio.gather(kill(), *(client(name) for name in range(16)))
    return answered, retries


def test_a_replica_that_is_killed_under_load_costs_no_request_for_good_and_comes_back(
    served: Served,
) -> None:
    before = replicas(served)
    assert len(before) == 2
    assert httpx.get(f"{served.url}/status").json() == "ok"
    answered, retries = asyncio.run(_press(served, 4.0))
    assert answered > 100
    assert retries < answered / 10
    for _ in range(200):
        now = replicas(served)
        if len(now) == 2 and now != before:
            break
        time.sleep(0.1)
    assert len(now - before) == 1
    assert served.retrieve(TITLE, topk=1).status_code == 200

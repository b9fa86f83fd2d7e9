"""``ssp view``: the server's answers, also while a run goes on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from small_runs import add_step, make_run

from experiments.report.page import row
from experiments.report.server import Viewer
from experiments.run.rundir import RunDirectory
from ssp_env.errors import RunError, SSPError
from ssp_env.replay import read_games


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run that is at its first step."""
    return make_run(tmp_path / "run", steps=1, finished=False)


@pytest.fixture
def port(run: RunDirectory) -> Iterator[int]:
    with Viewer([str(run.path)], "127.0.0.1", 0) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def ask(port: int, path: str, **headers: str) -> tuple[int, Any]:
    """Status and answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=headers)
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    text = gzip.decompress(body).decode()
    is_json = reply.headers["Content-Type"].startswith("application/json")
    return reply.status, json.loads(text) if is_json else text


def test_a_run_is_followed_while_it_goes_on(run: RunDirectory, port: int) -> None:
    status, page = ask(port, "/")
    assert status == 200
    assert "connect-src &#39;self&#39;" in page
    assert ask(port, "/api/state")[1]["state"].startswith("at step 1 of ")

    add_step(run, 2)
    with open(run.metrics, "a") as file:
        file.write('{"step": 3, "ga')  # a line that is being written
    status, state = ask(port, "/api/state")
    assert status == 200
    assert [step for step, _ in state["runs"][0]["steps"]] == [1, 2]
    assert state["state"].startswith("at step 2 of ")

    _, index = ask(port, "/api/index?run=0&steps=2,7")
    records = [saved.record for saved in read_games(run.games / "step_000002.jsonl")]
    assert index == {"2": [row(record) for record in records]}
    _, game = ask(port, "/api/game?run=0&step=2&slot=0")
    assert records[0].question in game
    assert "loss mask 1" in game

    # Played again after a resume: another version, other rows.
    versions = dict(state["runs"][0]["steps"])
    _, before = ask(port, "/api/index?run=0&steps=1")
    (run.games / "step_000001.jsonl").unlink()
    run.metrics.write_text("".join(run.metrics.read_text().splitlines(True)[:1]))
    add_step(run, 1, seed=5)
    _, state = ask(port, "/api/state")
    assert dict(state["runs"][0]["steps"])[1] != versions[1]
    assert ask(port, "/api/index?run=0&steps=1")[1] != before


def test_what_is_not_there_is_said_in_words(run: RunDirectory, port: int) -> None:
    for path in (
        "/api/game?run=1&step=1&slot=0",
        "/api/game?run=0&step=9&slot=0",
        "/api/game?run=0&step=1&slot=99",
        "/api/game?run=-1&step=1&slot=0",
        "/api/index",
        "/api/index?run=x&steps=1",
        "/../../etc/passwd",
    ):
        status, answer = ask(port, path)
        assert (status, bool(answer["error"])) == (404, True), path
    assert ask(port, "/", Host="evil.example:80")[0] == 403

    file = run.games / "step_000001.jsonl"
    file.write_text(file.read_text(encoding="utf-8")[:-40])
    status, answer = ask(port, "/api/index?run=0&steps=1")
    assert status == 500
    assert "step_000001.jsonl:" in answer["error"]


def test_nothing_is_served_of_what_is_no_run(tmp_path: Path, run: RunDirectory) -> None:
    with pytest.raises(RunError, match="is no run directory"):
        Viewer([str(tmp_path / "nothing")], "127.0.0.1", 0)
    with (
        Viewer([str(run.path)], "127.0.0.1", 0) as server,
        pytest.raises(SSPError, match=f"--port {server.server_port}"),
    ):
        Viewer([str(run.path)], "127.0.0.1", server.server_port)

"""``ssp view``: the server's answers while a run goes on; the page in headless Chromium, where each
view shows what it should and the console stays silent."""

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

from ssp_env.replay import read_games
from ssp_experiments.report.page import row
from ssp_experiments.report.server import Viewer
from ssp_experiments.run.rundir import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """The first trial of a sweep, at its first step."""
    return make_run(tmp_path / "trials" / "run", steps=1, finished=False)


@pytest.fixture
def port(run: RunDirectory) -> Iterator[int]:
    with Viewer([str(run.path.parents[1])], "127.0.0.1", 0) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def ask(port: int, path: str, **headers: str) -> tuple[int, Any]:
    """Status and answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Accept-Encoding": "gzip", **headers})
    reply = connection.getresponse()
    text = gzip.decompress(reply.read()).decode()
    connection.request("GET", path, headers=headers)
    assert connection.getresponse().read().decode() == text
    connection.close()
    is_json = reply.headers["Content-Type"].startswith("application/json")
    return reply.status, json.loads(text) if is_json else text


def test_runs_of_a_sweep_are_followed_while_they_go_on(run: RunDirectory, port: int) -> None:
    status, page = ask(port, "/")
    assert status == 200
    assert "connect-src &#39;self&#39;" in page
    assert ask(port, "/api/state")[1]["state"].startswith("at step 1 of ")

    add_step(run, 2)
    with open(run.metrics, "a") as file:
        file.write('{"step": 3, "ga')  # a line that is being written
    _, state = ask(port, "/api/state")
    assert [step for step, _ in state["runs"][0]["steps"]] == [1, 2]
    assert state["state"].startswith("at step 2 of ")

    _, index = ask(port, "/api/index?run=0&steps=2,7")
    records = [saved.record for saved in read_games(run.games / "step_000002.jsonl")]
    assert index == {"2": [row(record) for record in records]}
    _, game = ask(port, "/api/game?run=0&step=2&slot=0")
    assert records[0].question in game
    assert "loss mask 1" in game

    # Played again after a resume: another version, other rows.
    versions, before = dict(state["runs"][0]["steps"]), ask(port, "/api/index?run=0&steps=1")
    run.metrics.write_text("".join(run.metrics.read_text().splitlines(True)[:1]))
    add_step(run, 1, seed=5)
    assert dict(ask(port, "/api/state")[1]["runs"][0]["steps"])[1] != versions[1]
    assert ask(port, "/api/index?run=0&steps=1") != before

    make_run(run.path.with_name("before it in the alphabet"), steps=2)
    assert [len(run["steps"]) for run in ask(port, "/api/state")[1]["runs"]] == [2, 2]
    assert {*ask(port, "/api/index?run=1&steps=1,2")[1]} == {"1", "2"}

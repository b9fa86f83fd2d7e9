"""``ssp view``: what the server answers, also while a run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from small_runs import add_step, make_run

from experiments.report.games import read_step, rows, step_files
from experiments.report.server import Viewer, open_server
from experiments.run.rundir import RunDirectory
from ssp_env.errors import RunError, SSPError
from ssp_env.replay import read_games


class Client:
    """Asks a server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, **headers: str) -> tuple[int, Any, str]:
        """Status, answer and its tag."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        is_json = reply.headers["Content-Type"] == "application/json" and body
        return reply.status, json.loads(body) if is_json else body, reply.headers["ETag"]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run that is at its first step."""
    return make_run(tmp_path / "run", steps=1, finished=False)


@pytest.fixture
def client(run: RunDirectory) -> Iterator[Client]:
    with open_server(Viewer([str(run.path)]), "127.0.0.1", 0) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield Client(server.server_port)
        server.shutdown()
        thread.join()


def test_a_run_is_followed_while_it_goes_on(run: RunDirectory, client: Client) -> None:
    status, page, _ = client.ask("/")
    assert status == 200
    assert b"connect-src 'self'" in page
    _, state, tag = client.ask("/api/state")
    assert state["runs"][0]["done"] == 1
    assert not state["runs"][0]["finished"]
    assert client.ask("/api/state", **{"If-None-Match": tag})[0] == 304

    add_step(run, 2)
    with open(run.metrics, "a") as file:
        file.write('{"step": 3, "ga')  # a line that is being written
    status, state, _ = client.ask("/api/state", **{"If-None-Match": tag})
    assert status == 200
    assert [step for step, _ in state["runs"][0]["steps"]] == [1, 2]
    assert state["runs"][0]["done"] == 2

    _, index, _ = client.ask("/api/index?run=0&steps=2,7")
    assert index.keys() == {"2"}
    records = [saved.record for saved in read_games(run.games / "step_000002.jsonl")]
    assert index["2"] == rows(records)
    _, chunk, _ = client.ask("/api/games?run=0&step=2")
    assert [game["slot"] for game in chunk["games"]] == [0, 1, 2, 3, 4]
    assert chunk["pieces"] == {}
    _, chunk, _ = client.ask("/api/games?run=0&step=2&tokens=1")
    assert chunk["pieces"]

    # Played again after a resume: another version, other rows.
    versions = dict(state["runs"][0]["steps"])
    (run.games / "step_000001.jsonl").unlink()
    run.metrics.write_text("".join(run.metrics.read_text().splitlines(True)[:1]))
    add_step(run, 1, seed=5)
    _, state, _ = client.ask("/api/state")
    assert dict(state["runs"][0]["steps"])[1] != versions[1]
    _, again, _ = client.ask("/api/index?run=0&steps=1")
    assert again["1"] == rows(game.record for game in read_step(step_files(run.games)[0]))


def test_text_is_found_within_games(run: RunDirectory, client: Client) -> None:
    (first, *_) = [saved.record for saved in read_games(run.games / "step_000001.jsonl")]
    query = first.trajectories[0].searches[0].query
    _, found, _ = client.ask(f"/api/find?run=0&text={query.upper().replace(' ', '%20')}")
    assert [1, 0] in found
    assert client.ask("/api/find?run=0&text=%3C%2Fscript")[1] == [[1, 2]]
    assert client.ask("/api/find?run=0&text=nobody%20wrote%20this")[1] == []


def test_what_is_not_there_is_told_in_words(run: RunDirectory, client: Client) -> None:
    for path in ("/api/games?run=1&step=1", "/api/games?run=0&step=9", "/api/games?run=-1&step=1"):
        status, answer, _ = client.ask(path)
        assert status == 404
        assert answer["error"]
    assert client.ask("/../../etc/passwd")[0] == 404
    assert client.ask("/", Host="evil.example:80")[0] == 403

    file = run.games / "step_000001.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace('"format":4', '"format":9', 1))
    status, answer, _ = client.ask("/api/index?run=0&steps=1")
    assert status == 500
    assert "step_000001.jsonl:1" in answer["error"]


def test_nothing_is_served_of_what_is_no_run(tmp_path: Path, run: RunDirectory) -> None:
    with pytest.raises(RunError, match="is no run directory"):
        Viewer([str(tmp_path / "nothing")])
    with (
        open_server(Viewer([str(run.path)]), "127.0.0.1", 0) as server,
        pytest.raises(SSPError, match=f"--port {server.server_port}"),
    ):
        open_server(Viewer([str(run.path)]), "127.0.0.1", server.server_port)

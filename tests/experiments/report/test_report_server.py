"""``ssp view``: the server's answers while a run goes on; the page in headless Chromium, where each
view shows what it should and the console stays silent."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from small_runs import GAMES, add_step, make_run

from experiments.report.page import row
from experiments.report.server import Viewer
from experiments.run.rundir import RunDirectory
from ssp_env.replay import read_games

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


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
    text = gzip.decompress(reply.read()).decode()
    connection.close()
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


def shown(url: str, profile: Path) -> str:
    """The page's elements once its scripts are done."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    options += [f"--user-data-dir={profile}", "--window-size=390,844"]
    command = [str(CHROMIUM), *options, "--virtual-time-budget=5000", "--dump-dom", url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "CONSOLE" not in result.stderr
    body = result.stdout[result.stdout.index("<body") :]
    return re.sub(r"<script\b.*?</script>", "", body, flags=re.DOTALL)


@needs_chromium
def test_every_view_of_a_page(page: Path, tmp_path: Path) -> None:
    # Charts are drawn in animation frames, which a busy machine may not come to in virtual time.
    views = (shown(page.as_uri(), tmp_path / str(number)) for number in range(4))
    overview = next(view for view in views if view.count("<canvas") > 5)
    assert "2 seeds" in overview

    games = shown(f"{page.as_uri()}#games", tmp_path)
    assert games.count('<a class="row') == 2 * 2 * GAMES
    assert 'class="differ"' in shown(f"{page.as_uri()}#settings", tmp_path)

    # Hostile text is text.
    game = shown(f"{page.as_uri()}#seed0/1/2", tmp_path)
    assert "why &lt;/script&gt;&lt;script&gt;window.hacked" in game
    assert "<img" not in game
    assert game.count('<span class="own d') > 3


@needs_chromium
def test_a_live_page(port: int, tmp_path: Path) -> None:
    game = shown(f"http://127.0.0.1:{port}/#run/1/0", tmp_path / "profile")
    assert ">live<" in game
    assert "step 1, slot 0" in game
    assert game.count('<a class="row') == GAMES

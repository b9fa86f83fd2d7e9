"""Services that go away or talk rubbish, and a disk without room."""

from __future__ import annotations

import json
import re
import resource
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.faults.processes import learners_of
from benchmarks.runs import (
    PATIENCE,
    begin,
    command_of,
    figures,
    games,
    serving,
    sets,
    train,
    wait_for,
)
from ssp_env.replay import read_games
from ssp_env.search.index import build_index
from ssp_env.worlds.mini import MiniWorld

AWAY = 20.0
"""Seconds for which the search server is gone."""
ROOM = 1_000_000
"""Bytes that a file may have on the disk without room; the policy has more than twice as many."""


def search(place: Path, seed: int) -> dict[str, Any]:
    """Kills the search server for a while; see the package's head."""
    corpus = place / "corpus.jsonl"
    passages = [{"id": d.id, "title": d.title, "text": d.text} for d in MiniWorld().corpus]
    corpus.write_text("".join(f"{json.dumps(passage)}\n" for passage in passages))
    build_index(corpus, place / "index", "bm25")

    calm, hit = place / "calm", place / "hit"
    with serving("--index", str(place / "index")) as (url, _):
        train(calm, "--search", url, steps=4, seed=seed)

    with serving("--index", str(place / "index")) as (url, server):
        run = begin(command_of(hit, "--search", url, steps=4, seed=seed))
        wait_for(hit / "games" / "step_000001.jsonl", run)
        server.kill()
        server.wait()
        time.sleep(AWAY)

        with serving("--index", str(place / "index"), port=int(url.rpartition(":")[2])):
            _, errors = run.communicate(timeout=PATIENCE)

    void = [line.get("void_games", 0.0) for line in figures(hit)]
    rewards = [
        game.record.proposer_reward
        for file in sorted((hit / "games").iterdir())
        for game in read_games(file)
        if game.record.outcome == "void"
    ]
    return {
        "seconds_away": AWAY,
        "status": run.returncode,
        "void_games": void,
        "rewards_of_void_games": rewards,
        "games_are_those_of_a_calm_run": games(hit) == games(calm),
        "tracebacks": errors.count("Traceback"),
        "held": run.returncode == 0
        and not errors.count("Traceback")
        and all(reward is None for reward in rewards)
        and (bool(sum(void)) or games(hit) == games(calm)),
    }


def judge(place: Path, seed: int) -> dict[str, Any]:
    """Has the judge answer rubbish during a step; see the package's head."""
    run = place / "run"
    server = _Judge(run / "games")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    api = {"openai.base_url": url, "openai.model": "judge", "openai.judge": "true"}
    done = train(run, *sets({**api, "openai.attempts": 2}), steps=3, seed=seed)
    server.shutdown()
    server.server_close()
    if done.returncode:
        return {"status": done.returncode, "said": done.stderr.splitlines()[-3:], "held": False}

    lines = figures(run)
    void = [
        game.record
        for game in read_games(run / "games" / "step_000002.jsonl")
        if game.record.outcome == "void"
    ]
    return {
        "status": done.returncode,
        "asked": server.asked,
        "rubbish": server.rubbish,
        "void_games": [line.get("void_games", 0.0) for line in lines],
        "said": sorted({game.outage.what for game in void if game.outage is not None})[:2],
        "held": done.returncode == 0
        and server.rubbish > 0
        and bool(void)
        and [bool(line.get("void_games")) for line in lines] == [False, False, True, False]
        and all(game.proposer_reward is None and game.solve_rate is None for game in void)
        and "Traceback" not in done.stderr,
    }


def disk(place: Path, seed: int) -> dict[str, Any]:
    """Leaves no room for a checkpoint; see the package's head."""
    return _full(place, seed, {}, lambda run: run)


def shared_disk(place: Path, seed: int) -> dict[str, Any]:
    """Leaves none to one of two learners that share the policy; see the package's head."""
    two = {"compute.learners": 2, "compute.sharding": "fsdp2"}
    return _full(place, seed, two, lambda run: learners_of(run)[0])


def _full(
    place: Path, seed: int, given: dict[str, Any], who: Callable[[int], int]
) -> dict[str, Any]:
    """Runs with these settings; ``who`` says which process has no room, from the run's own."""
    calm, full = place / "calm", place / "full"
    train(calm, *sets(given), steps=4, seed=seed)
    ended = begin(command_of(full, *sets(given), steps=4, seed=seed))
    wait_for(full / "games" / "step_000001.jsonl", ended)
    resource.prlimit(who(ended.pid), resource.RLIMIT_FSIZE, (ROOM, ROOM))
    _, errors = ended.communicate(timeout=PATIENCE)
    left = [path.name for path in (full / "checkpoints").glob("*")]
    resumed = train(full, "--resume", steps=4, seed=seed)
    said = errors.strip().splitlines()[-1]
    return {
        "status": ended.returncode,
        "said": re.sub(r"/\S*/faults\S*?/", "", said),
        "checkpoints_left": left,
        "status_of_the_resumed_run": resumed.returncode,
        "metrics_differ": figures(calm) != figures(full),
        "held": ended.returncode == 2
        and "File too large" in said
        and not left
        and resumed.returncode == 0
        and figures(calm) == figures(full)
        and "Traceback" not in errors,
    }


class _Judge(ThreadingHTTPServer):
    """Calls everything right, and talks rubbish between the first two steps' ends."""

    daemon_threads = True

    def __init__(self, games: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._games, self.asked, self.rubbish = games, 0, 0

    def reply(self) -> str:
        self.asked += 1
        first, second = (self._games / f"step_{step:06d}.jsonl" for step in (1, 2))
        if not first.exists() or second.exists():
            return "verdict: correct"
        self.rubbish += 1
        return "Bananas are berries, botanically."


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Judge

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the screen."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"message": {"content": self.server.reply()}}
        body = json.dumps({"choices": [message]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

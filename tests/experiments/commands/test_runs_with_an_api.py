"""A verifier and judge behind an OpenAI-compatible API, and an outage of it in mid-run."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from runs import SETTINGS, all_games, arguments, metrics

from ssp_env.cli import main

pytestmark = pytest.mark.usefixtures("cluster")


class Server(ThreadingHTTPServer):
    """Calls everything right, except that it is down between two files' appearing."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls: Counter[str] = Counter()
        self.down_after: Path | None = None
        self.up_after: Path | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def down(self) -> bool:
        if self.down_after is None or not self.down_after.exists():
            return False
        return self.up_after is None or not self.up_after.exists()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = request["messages"][0]["content"]
        asked = (
            "judge"
            if "verdict: correct" in prompt
            else "verifier"
            if "<answer>" in prompt
            else "greeting"
        )
        self.server.calls[asked] += 1
        reply = {
            "judge": "verdict: correct",
            "verifier": "<answer>what it says</answer>",
            "greeting": "ready",
        }[asked]
        body = json.dumps({"choices": [{"message": {"content": reply}}]}).encode()
        self.send_response(503 if self.server.down else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def command(policy: Path, out: Path, server: Server, *more: str) -> list[str]:
    settings = (
        *(one for one in SETTINGS if not one.startswith(("game.verifier", "game.noise"))),
        "evaluation.per_group=1",
    )
    served = (f"openai.base_url={server.url}", "openai.model=big", "openai.attempts=1")
    return arguments(
        policy, out, "--quiet", "--verifier", "openai", *more, settings=(*settings, *served)
    )


def test_outage_voids_the_games_that_it_hits_and_training_goes_on(
    server: Server, policy: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    server.down_after, server.up_after = (
        run / "games" / f"step_{step:06d}.jsonl" for step in (1, 2)
    )
    # Verified questions are few where the judge is strict; here it finds everything right.
    assert main([*command(policy, run, server, "--set", "openai.judge=true"), "--steps", "3"]) == 0
    assert set(server.calls) == {"greeting", "verifier", "judge"}
    void = [line.get("void_games", 0.0) for line in metrics(run)]
    assert void[2] > 0
    assert void[1] == void[3] == 0
    hit = [game for game in all_games(run) if game.outcome == "void"]
    assert len(hit) == void[2]
    assert all(game.proposer_reward is None and game.solve_rate is None for game in hit)
    for game in hit:
        assert game.outage is not None
        assert game.outage.service == game.reason
        assert "503" in game.outage.what
    assert metrics(run)[3]["learner_updates"] == 1
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["verifier"], summary["void_games"], summary["void_questions"]) == (
        "openai",
        sum(void),
        0,
    )

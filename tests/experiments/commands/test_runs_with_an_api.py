"""A verifier and judge behind an OpenAI-compatible API, and an outage of it in mid-run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import SETTINGS, all_games, arguments, metrics
from scripted_model import ChatServer

from ssp_env.cli import main

pytestmark = pytest.mark.usefixtures("cluster")


class Model:
    """Calls everything right, except that it is down between two files' appearing."""

    def __init__(self, down_after: Path, up_after: Path) -> None:
        self.down_after, self.up_after = down_after, up_after
        self.asked: set[str] = set()

    def __call__(self, prompt: str) -> str | tuple[int, bytes]:
        verifies = "verifier" if "<answer>" in prompt else "greeting"
        self.asked.add("judge" if "verdict: correct" in prompt else verifies)
        if self.down_after.exists() and not self.up_after.exists():
            return 503, b"down"
        return "<answer>what it says</answer>\nverdict: correct"


def command(policy: Path, out: Path, url: str, *more: str) -> list[str]:
    settings = (
        *(one for one in SETTINGS if not one.startswith(("game.verifier", "game.noise"))),
        "per_group=1",
    )
    served = (f"openai.base_url={url}", "openai.model=big")
    return arguments(
        policy, out, "--quiet", "--verifier", "openai", *more, settings=(*settings, *served)
    )


def test_outage_voids_the_games_that_it_hits_and_training_goes_on(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssp_env.judge.chat.CALLS", 1)
    run = tmp_path / "run"
    model = Model(*(run / "games" / f"step_{step:06d}.jsonl" for step in (1, 2)))
    with ChatServer(model) as server:
        # Verified questions are few where the judge is strict; here it finds everything right.
        options = command(policy, run, server.url, "--set", "judge=openai")
        assert main([*options, "--steps", "3"]) == 0
    assert model.asked == {"greeting", "verifier", "judge"}
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

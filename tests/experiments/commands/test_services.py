"""Training with an index directory, a server, and a model behind an API that is down in mid-run."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from runs import SETTINGS, SSP, all_games, arguments, environment, metrics, timeless
from scripted_model import ChatServer

from ssp_env.cli import main
from ssp_env.search.index import build_index
from ssp_env.worlds.mini import MiniWorld

pytestmark = pytest.mark.usefixtures("cluster")


def train(policy: Path, out: Path, *more: str) -> Path:
    assert main([*arguments(policy, out, "--quiet"), *more]) == 0
    return out


# -- search ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index directory of the mini-wiki's passages."""
    folder = tmp_path_factory.mktemp("files")
    passages = [{"id": d.id, "title": d.title, "text": d.text} for d in MiniWorld().corpus]
    (folder / "c.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in passages))
    build_index(folder / "c.jsonl", folder / "index")
    return folder / "index"


@pytest.fixture(scope="module")
def indexed(policy: Path, index: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps that search the index directory, without an interruption."""
    out = tmp_path_factory.mktemp("runs") / "indexed"
    return train(policy, out, "--search", str(index), "--steps", "2")


@contextmanager
def serving(index: Path) -> Iterator[str]:
    """``ssp serve`` in a process of its own; its address."""
    command = [SSP, "serve", "--in", str(index), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )
    try:
        assert process.stdout is not None
        address = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
        assert address is not None
        yield address[0]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_server_plays_the_same_games_and_may_move_before_a_resume(
    policy: Path, indexed: Path, index: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for steps, more in (("1", []), ("2", ["--resume"])):
        with serving(index) as url:
            train(policy, run, "--search", url, "--steps", steps, *more)
            served = json.loads((run / "summary.json").read_text())["fingerprint"]["retriever"]
            assert served == {"class": "HTTPRetriever", "server": f"{url}/retrieve"}
    # The run that was cut in two also evaluated where it stopped. All else is the same, up
    # to the rounding of batches that came together in another order.
    for ours, theirs in zip(timeless(run), timeless(indexed), strict=True):
        for name, figure in theirs.items():
            rounded = isinstance(figure, float)
            assert ours[name] == (pytest.approx(figure, abs=1e-5) if rounded else figure), name


# -- a model behind an API ---------------------------------------------------------------------


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

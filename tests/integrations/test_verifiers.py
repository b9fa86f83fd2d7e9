"""The verifiers package, evaluated by verifiers' own command against a scripted server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded import Recorded, by_trajectory

from ssp_env import Rules, ServiceError
from ssp_env.search.bm25 import BM25Retriever

pytest.importorskip("verifiers", reason="verifiers is not installed; run: make integrations")

PACKAGE = Path(__file__).parents[2] / "examples" / "integrations" / "verifiers"
sys.path.insert(0, str(PACKAGE))


def evaluate(url: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What ``vf-eval`` says."""
    paths = [str(PACKAGE), str(Path(__file__).parents[2])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", "KEY": "x"}
    command = [str(Path(sys.executable).with_name("vf-eval")), "ssp-verifiers", "-m", "stub"]
    command += ["--client.base-url", url, "--client.api-key-var", "KEY", "-o", str(folder)]
    command += ["--no-push", "--no-rich", "--env.taskset.world", "mini", *arguments]
    command += ["--env.taskset.tokenizer", "bpe"]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)


def traces(folder: Path) -> list[dict[str, Any]]:
    """All traces of the one run in a folder, in the order of our trajectories."""
    (file,) = folder.glob("*/traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    episodes.sort(key=lambda episode: episode["task"]["data"]["seed"])
    order = {"proposer": 0, "verifier": 1, "closed_book": 2, "solver": 3}
    for episode in episodes:
        place = lambda t: (order[t["info"]["ssp"]["role"]], t["info"]["ssp"]["attempt"])  # noqa: E731
        episode["traces"].sort(key=place)
    return [trace for episode in episodes for trace in episode["traces"]]


def test_their_command_records_our_rewards(tmp_path: Path) -> None:
    recorded = Recorded(3)
    with recorded.server() as server:
        ran = evaluate(server.url, tmp_path, "-n", "3", "-r", "1")
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert {head["Authorization"] for head in server.headers} == {"Bearer x"}

    found, games = traces(tmp_path), recorded.games
    told = [(t["agent"]["name"], t["info"]["ssp"]["attempt"], t["rewards"]) for t in found]
    assert told == [
        (role, attempt, {"game": {"score": reward, "weight": 1.0}})
        for role, attempt, reward in by_trajectory(games)
    ]
    assert all(trace["ok"] for trace in found)
    assert sum(len(trace["calls"]) for trace in found) == len(server.bodies)
    lengths = [len(t.ids) for game in games for t in game.trajectories()]
    assert [trace["info"]["ssp"]["tokens"] for trace in found] == lengths


def play(url: str, rules: Rules) -> Any:
    """One episode, played in this process."""
    import verifiers.v1 as vf
    from ssp_verifiers import SspEnv, SspEnvConfig, SspTasksetConfig

    game = SspTasksetConfig(id="ssp-verifiers", world="mini", tokenizer="bpe")
    env = SspEnv(SspEnvConfig(taskset=game))
    env.rules = rules
    config = vf.EvalClientConfig(base_url=url, api_key_var="KEY")

    async def episode() -> Any:
        async with env.serving():
            context = vf.ModelContext(model="stub", client=config, sampling=vf.SamplingConfig())
            (task,) = env.taskset.take(1)
            played = await env.run_episode(task, context)
            return played, env.complete(played)

    return asyncio.run(episode())


class Down(BM25Retriever):
    def search(self, queries: Any, k: int) -> Any:
        raise ServiceError("search", "gone")


def test_outages_are_errors_of_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search server and a model that are gone: no reward in either."""
    monkeypatch.setenv("KEY", "x")
    recorded = Recorded(1)
    with recorded.server() as server:
        down = replace(recorded.rules, retriever=Down(recorded.rules.corpus))
        episode, complete = play(server.url, down)
    (trace,) = episode.traces
    assert (dict(trace.rewards), trace.ok, complete) == ({}, False, False)
    assert [error.type for error in trace.errors] == ["ToolsetError"]
    assert trace.info["ssp"]["outcome"] == "void"

    episode, complete = play(server.url, recorded.rules)
    (trace,) = episode.traces
    assert (dict(trace.rewards), trace.ok, complete) == ({}, False, False)
    assert {error.type for error in trace.errors} == {"ProviderError"}
    assert trace.info["ssp"]["reason"] == "engine"


def test_games_out_of_range_are_none() -> None:
    """An index that no game has is told of in verifiers' own way."""
    import verifiers.v1 as vf
    from ssp_verifiers import SspTaskset, SspTasksetConfig

    games = SspTaskset(SspTasksetConfig(id="ssp-verifiers", games=3, first_seed=5))
    assert [task.data.seed for task in games] == [5, 6, 7]
    assert [task.data.seed for task in games.include(idx=["2:9"])] == [7]
    assert list(games.include(idx=["7:9"])) == []
    endless = SspTaskset(SspTasksetConfig(id="ssp-verifiers"))
    with pytest.raises(ValueError, match="infinite"):
        endless.shuffle()
    assert isinstance(games, vf.Taskset)

"""The verifiers package, evaluated by verifiers' own command against a scripted server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import compress
from pathlib import Path
from typing import Any

import pytest
from recorded import Recorded, by_trajectory
from scripted_model import ChatServer, cut

import ssp_env
from ssp_env import Rules

# By its module: the folder of the adapter has the same name.
pytest.importorskip("verifiers.v1", reason="verifiers is not installed; run: make integrations")

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


def play(url: Any, rules: Rules, **seats: Any) -> Any:
    """One episode, played in this process; ``seats`` are limits of the solver's."""
    import verifiers.v1 as vf
    from ssp_verifiers import SspEnv, SspEnvConfig, SspTasksetConfig

    game = SspTasksetConfig(id="ssp-verifiers", world="mini", tokenizer="bpe")
    config_of_env = SspEnvConfig(taskset=game)
    solver = config_of_env.solver.model_copy(update=seats)
    env = SspEnv(config_of_env.model_copy(update={"solver": solver}))
    env.rules = rules
    config = url
    if isinstance(url, str):
        config = vf.EvalClientConfig(base_url=url, api_key_var="KEY")

    async def episode() -> Any:
        async with env.serving():
            context = vf.ModelContext(model="stub", client=config, sampling=vf.SamplingConfig())
            (task,) = env.taskset.take(1)
            played = await env.run_episode(task, context)
            return played, env.complete(played)

    return asyncio.run(episode())


def test_outages_are_errors_of_their_kind(
    monkeypatch: pytest.MonkeyPatch, without_search: Callable[[Rules], None]
) -> None:
    """A search server and a model that are gone: no reward in either."""
    monkeypatch.setenv("KEY", "x")
    recorded = Recorded(1)
    with recorded.server() as server:
        without_search(recorded.rules)
        episode, complete = play(server.url, recorded.rules)
    (trace,) = episode.traces
    assert (dict(trace.rewards), trace.ok, complete) == ({}, False, False)
    assert [error.type for error in trace.errors] == ["ToolsetError"]
    assert trace.info["ssp"]["outcome"] == "void"

    episode, complete = play(server.url, recorded.rules)
    (trace,) = episode.traces
    assert (dict(trace.rewards), trace.ok, complete) == ({}, False, False)
    assert {error.type for error in trace.errors} == {"ProviderError"}
    assert trace.info["ssp"]["reason"] == "engine"


def test_a_limit_of_a_seat_is_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "x")
    recorded = Recorded(1)
    with recorded.server() as server:
        episode, complete = play(server.url, recorded.rules, max_turns=1)
    told = [trace.info["ssp"] for trace in episode.traces]
    assert complete
    assert {one["outcome"] for one in told} == {"valid"}
    limited = [one for one in told if one["role"] == "solver"]
    assert limited
    assert {one["limit"] for one in limited} == {"max_turns"}


class GenerateServer(ChatServer):
    """vLLM's endpoint of token ids in and out, which writes what was recorded."""

    path = "/inference/v1/generate"

    def __init__(self, recorded: Recorded) -> None:
        self.tokenizer = recorded.rules.tokenizer
        known = {self.tokenizer.decode(ids): text for ids, text in recorded.writing.items()}
        super().__init__(lambda text: known.get(text) or (404, text.encode()))

    def texts(self, body: Any) -> list[str]:
        return [self.tokenizer.decode(body["token_ids"])]

    def success(self, reply: str, body: Any) -> bytes:
        ids = self.tokenizer.encode(cut(reply, body["sampling_params"]["stop"]))
        told = [{"token": f"token_id:{i}", "logprob": -0.5, "top_logprobs": []} for i in ids]
        choice = {"index": 0, "token_ids": ids, "logprobs": {"content": told}}
        return json.dumps(
            {"request_id": "1", "choices": [{**choice, "finish_reason": "stop"}]}
        ).encode()


def test_the_gateways_own_tokens_are_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their training client renders messages itself. With a template that adds nothing and keeps
    thoughts, its text and the ids that the policy wrote are those of our trajectories. The ids of
    prompts and documents are not: theirs are of the whole text, while no token of ours spans the
    edge of outside text."""
    import verifiers.v1 as vf

    monkeypatch.setenv("KEY", "x")
    packaged = Path(ssp_env.__file__).parent / "tokenizers" / "data" / "bpe"
    for file in packaged.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    thought = "<think>{{ m['reasoning_content'] }}</think>"
    shown = "{% if m['reasoning_content'] %}" + thought + "{% endif %}{{ m['content'] }}"
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config["chat_template"] = "{% for m in messages %}" + shown + "{% endfor %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))

    recorded = Recorded(1)
    with GenerateServer(recorded) as server:
        client = vf.TrainClientConfig(
            base_url=server.url, api_key_var="KEY", renderer_model_name=str(tmp_path)
        )
        episode, complete = play(client, recorded.rules)
    assert complete, [trace.errors for trace in episode.traces]
    place = {"proposer": 0, "solver": 1}
    traces = sorted(episode.traces, key=lambda t: (place[t.agent.name], t.info["ssp"]["attempt"]))
    told = recorded.rules.tokenizer.decode
    for trace, own in zip(traces, recorded.games[0].trajectories(), strict=True):
        assert trace.info["ssp"]["tokens"] == len(own.ids)
        (branch,) = trace.branches
        theirs = list(compress(branch.token_ids, branch.sampled_mask))
        assert told(branch.token_ids) == told(own.ids)
        assert theirs == list(compress(own.ids, own.mask))
        assert branch.token_ids != own.ids
        assert branch.logprobs == [-0.5 * one for one in branch.sampled_mask]

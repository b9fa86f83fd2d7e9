"""Search self-play as an environment of verifiers: proposer and solver are its agents.

    vf-eval ssp-verifiers -n 2 -m MODEL --client.base-url http://127.0.0.1:8000/v1 --no-push

An episode is a game, and each of its trajectories is a trace with the reward that this package
pays. What an outage made void has an error of its own kind and no reward. A seat that reaches a
limit of verifiers' own, such as ``max_turns``, has said its last word: that is no outage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.dialects.chat import message_to_wire

from ssp_env import Rules, ServiceError, Trajectory
from ssp_env.envs.chat import failure_of, play_turns, reward_of
from ssp_env.envs.driver import GameDriver
from ssp_env.envs.setup import set_up
from ssp_env.errors import require_version
from ssp_env.net import http_client

__all__ = ["SspEnv", "SspHarness", "SspTaskset"]

require_version("verifiers", "0.4.0")

KINDS: dict[str, type[vf.RolloutError]] = {"search": vf.ToolsetError, "engine": vf.ProviderError}
"""How verifiers calls the failure of a service; a judge or verifier is a ``TaskError``."""


class SspTasksetConfig(vf.TasksetConfig):
    """Which games are played; see the keywords of every interface in docs/environment.md."""

    world: str = "wiki-mini"
    world_options: dict[str, Any] = Field(default_factory=dict)
    tokenizer: str | None = None
    game: dict[str, Any] = Field(default_factory=dict)
    search: dict[str, Any] | str | None = None
    first_seed: int = 0
    games: int | None = None
    """How many games there are; without end if ``None``."""

    def rules(self) -> Rules:
        """The rules of these games."""
        given = {name: getattr(self, name) for name in ("world", "tokenizer", "search", "game")}
        options = {"world_options": self.world_options} if self.world_options else {}
        setup: Any = {name: value for name, value in given.items() if value} | options
        return set_up(setup).rules


class SspData(vf.TaskData):
    """A game by its seed."""

    seed: int


class SspTask(vf.Task[SspData]):
    """A game; its rewards are paid by the environment."""


class SspTaskset(vf.Taskset[SspTask, SspTasksetConfig]):
    """Games by consecutive seeds."""

    def __init__(self, config: SspTasksetConfig) -> None:
        super().__init__(config)
        self.INFINITE = config.games is None

    def load(self) -> Iterator[SspTask]:
        """One task after another."""
        seed, left = self.config.first_seed, self.config.games
        while left is None or left > 0:
            yield SspTask(SspData(prompt=None, seed=seed), self.config.task)
            seed, left = seed + 1, None if left is None else left - 1


class SspHarness(vf.Harness[vf.HarnessConfig]):
    """One call per turn, in this process: the game is the loop."""

    APPENDS_SYSTEM_PROMPT = SUPPORTS_RESUME = True
    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Asks for the next turn; the gateway notes a failure on the trace."""
        system, prompt = self.resolve_prompt(data)
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages += [message_to_wire(message) for message in prompt or ()]
        async with http_client(endpoint, timeout=None) as client:
            reply = await client.post(
                f"{endpoint}/chat/completions",
                json={"model": ctx.model, "messages": messages},
                headers={"Authorization": f"Bearer {secret}"},
            )
        failed = reply.is_error
        return vf.ProgramResult(int(failed), "", reply.text[:2000] if failed else "")


_STOP = ["</search>", "</question>", "</answer>"]
_SEAT = vf.AgentConfig(
    runtime=vf.SubprocessConfig(),
    sampling=vf.SamplingConfig(stop=_STOP, include_stop_str_in_output=True),
)


class SspEnvConfig(vf.EnvConfig):
    """The seats. A server other than vLLM may want another ``sampling``."""

    proposer: vf.AgentConfig = _SEAT
    solver: vf.AgentConfig = _SEAT
    verifier: vf.AgentConfig = _SEAT
    """The solver as it verifies, where the policy does that; nothing is learnt from it."""
    closed_book: vf.AgentConfig = _SEAT
    """The solver as it answers from memory, where that gate is on."""


def _said(segment: vf.Segment) -> str:
    """The turn as it was written: a gateway takes thoughts apart."""
    thought = getattr(segment.messages[-1], "reasoning_content", None)
    said = segment.last_reply or ""
    return f"<think>{thought}</think>{said}" if thought else said


class SspEnv(vf.Env[SspEnvConfig]):
    """The game as an episode."""

    def __init__(self, config: SspEnvConfig) -> None:
        super().__init__(config)
        self.rules: Rules = self.taskset.config.rules()

    async def setup(self, agents: vf.Agents) -> None:
        """Keeps attempts to verify out of training."""
        agents.verifier.trainable = False

    async def run(self, task: vf.Task[SspData], agents: vf.Agents) -> None:
        """Plays a game, then pays its traces."""
        driver = GameDriver(self.rules)
        await asyncio.to_thread(driver.reset, task.data.seed)
        opened: dict[int, vf.Interaction] = {}

        async with AsyncExitStack() as stack:

            async def write(trajectory: Trajectory, text: str) -> str:
                key = trajectory.key
                if key not in opened:
                    own = vf.Task(vf.TaskData(prompt=None))
                    interaction = getattr(agents, trajectory.role.value).interaction(own)
                    opened[key] = await stack.enter_async_context(interaction)
                segment = await opened[key].turn(text)
                if segment.terminated:
                    trace = opened[key].trace
                    last = trace.last_error
                    if last is None and trace.is_truncated:
                        return ""  # a limit of the seat, such as max_turns: a turn without action
                    raise ServiceError("engine", "no turn" if last is None else last.message)
                return _said(segment)

            await play_turns(driver, write)

        # Closing them has stamped the traces as fine.
        self._pay(driver, opened)

    def _pay(self, driver: GameDriver, opened: dict[int, vf.Interaction]) -> None:
        game = driver.game
        told = {"outcome": game.outcome.value, "reason": game.reason, "answer": game.truth.answer}
        told |= {"question": game.question, "solve_rate": game.solve_rate}
        for trajectory in game.trajectories():
            if trajectory.key not in opened:
                continue
            trace = opened[trajectory.key].trace
            place = {"role": trajectory.role.value, "attempt": game.number_of(trajectory)}
            trace.info["ssp"] = told | place | {"tokens": len(trajectory.ids)}
            if trace.is_truncated:
                trace.info["ssp"]["limit"] = trace.stop_condition
            failure = failure_of(game, trajectory)
            reward = reward_of(game, trajectory)
            if failure is None:
                trace.record_reward("game", 0.0 if reward is None else reward)
                trace.record_metric("searches", len(trajectory.searches))
            elif not trace.errors:
                what = f"{failure} failed: the game counts for nothing"
                trace.record_error(KINDS.get(failure, vf.TaskError)(what))

    def complete(self, episode: vf.Episode) -> bool:
        """Whether the game counts; it may without an attempt that is void."""
        played = [trace.info.get("ssp", {}) for trace in episode.traces]
        return not episode.errors and all(
            one.get("outcome") in ("valid", "invalid") for one in played
        )

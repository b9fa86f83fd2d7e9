"""Every interface, driven by the same script, and what came of it in one form. Needs Ray (imported,
never started). Vectors are compared with single envs in envs/test_turns.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scripted import Script, turn

import ssp_env
from ssp_env.game.game import Game
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.trajectory import Trajectory
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.types import Role, World

Seen = tuple[str, bytes, bytes, dict[str, Any]]
"""Role, tokens, mask and info, as a token-level interface shows them."""


@dataclass
class Outcome:
    """All that an interface told of a game."""

    record: GameRecord
    rewards: dict[str, float]
    flags: tuple[bool, bool]
    infos: list[dict[str, Any]]
    """At the beginning of each turn, and at the end."""
    seen: list[Seen] = field(default_factory=list)
    """Before each token; nothing behind interfaces that take whole turns."""

    def of(self, role: Role) -> Outcome:
        """What one role has seen of it."""
        infos = [info for info in self.infos if info["role"] in (role.value, "")]
        rewards = {role.value: self.rewards[role.value]}
        seen = [s for s in self.seen if s[0] == role.value]
        return Outcome(self.record, rewards, self.flags, infos, seen)

    @property
    def unseen(self) -> Outcome:
        """As an interface of whole turns tells it."""
        return replace(self, seen=[])


class ScriptPlayer:
    """A script as a player."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        for trajectory in trajectories:
            trajectory.feed_turn(turn(trajectory, self._script))


Told = tuple[dict[str, Any], dict[str, float], Sequence[Any]]
"""Info, rewards, flags."""


def play(env: Any, info: dict[str, Any], write: Callable[[Trajectory], Told]) -> Outcome:
    """Plays a game that was reset, one turn after the other."""
    infos, flags, rewards = [info], (False, False), {}
    while not any(flags):
        current = next(t for t in env.game.trajectories() if not t.done)
        info, rewards, flags = write(current)  # type: ignore[assignment]
        infos.append(info)
    return outcome(env, env.game, rewards, flags, infos)


def outcome(
    env: Any, game: Game, rewards: dict[str, float], flags: Sequence[Any], infos: Sequence[Any]
) -> Outcome:
    ended = bool(flags[0]), bool(flags[1])
    return Outcome(record_game(game, env.rules), rewards, ended, list(map(_plain, infos)))


def by_tokens(
    env: Any,
    info: dict[str, Any],
    script: Script,
    look: Callable[[], tuple[Any, dict[str, Any]]],
    step: Callable[[int], Told],
    name: str = "observation",
) -> Outcome:
    """Plays a game token by token; notes all that is seen."""
    seen: list[Seen] = []

    def write(trajectory: Trajectory) -> Told:
        before = len(trajectory.searches)
        for token in turn(trajectory, script):
            observation, info = look()
            mask = observation["action_mask"].astype(np.int8).tobytes()
            seen.append((trajectory.role.value, observation[name].tobytes(), mask, _plain(info)))
            told = step(token)
            if trajectory.done or len(trajectory.searches) > before:
                return told
        raise AssertionError("a scripted turn that does not end")

    return replace(play(env, info, write), seen=seen)


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if name != "action_mask"}


def aec(seed: int, script: Script, **setup: Any) -> Outcome:
    env = ssp_env.raw_env(**setup)
    env.reset(seed=seed)

    def step(token: int) -> Told:
        env.step(token)
        assert env.infos["proposer"] == env.infos["solver"]
        (terminated,), (truncated,) = set(env.terminations.values()), set(env.truncations.values())
        return env.infos["solver"], dict(env.rewards), (terminated, truncated)

    return by_tokens(env, env.infos["proposer"], script, lambda: env.last()[::4], step)


def rllib(seed: int, script: Script, **setup: Any) -> Outcome:
    from ssp_env.envs.rllib import SearchSelfPlayMultiAgentEnv

    env = SearchSelfPlayMultiAgentEnv(setup)
    shown = env.reset(seed=seed)
    paid = {"proposer": 0.0, "solver": 0.0}

    def look() -> tuple[Any, dict[str, Any]]:
        ((agent, observation),) = shown[0].items()
        return observation, shown[1][agent]

    def step(token: int) -> Told:
        nonlocal shown
        (agent,) = shown[0]
        observations, rewards, terminated, truncated, infos = env.step({agent: token})
        shown = observations, infos
        for who, reward in rewards.items():
            paid[who] += reward
        told = next(iter(infos.values()))
        assert all(info == told for info in infos.values())
        return told, paid, (terminated["__all__"], truncated["__all__"])

    return by_tokens(env, look()[1], script, look, step, "observations")


def text(seed: int, script: Script, role: Role | None = None, **setup: Any) -> Outcome:
    """An interface of texts, of both roles or of one."""
    if role is None:
        env: Any = ssp_env.TextGame(**setup)
    else:
        env = ssp_env.TextRole(role.value, ScriptPlayer(script), **setup)

    def write(trajectory: Trajectory) -> Told:
        _, paid, *flags, info = env.step(script(trajectory))
        return info, paid if role is None else {role.value: paid}, flags

    return play(env, env.reset(seed=seed)[1], write)


def batch(seeds: range, script: Script, **setup: Any) -> list[Outcome]:
    env = ssp_env.TurnVectorEnv(len(seeds), **setup)
    turns = env.reset(seed=seeds[0])
    infos: list[list[Any]] = [[info] for info in env.infos]
    while not env.done:
        moved = {t.game for t in turns}
        turns = env.step([turn(t.trajectory, script) for t in turns])
        for i in moved:
            infos[i].append(env.infos[i])

    def end(game: Game, told: list[Any]) -> Outcome:
        paid = {"proposer": game.proposer_reward or 0.0, "solver": game.solver_reward or 0.0}
        void = game.outcome == "void"
        return outcome(env, game, paid, (not void, void), told)

    return list(map(end, env.games, infos))


def single(role: Role, seed: int, script: Script, **setup: Any) -> Outcome:
    """A Gymnasium interface, of one role."""
    kind = ssp_env.SolverEnv if role is Role.SOLVER else ssp_env.ProposerEnv
    env = kind(other=ScriptPlayer(script), **setup)
    shown = env.reset(seed=seed)

    def step(token: int) -> Told:
        nonlocal shown
        observation, reward, terminated, truncated, info = env.step(token)
        shown = observation, info
        assert (info["action_mask"] == observation["action_mask"]).all()
        assert (env.action_masks() == observation["action_mask"]).all()
        return info, {role.value: float(reward)}, (terminated, truncated)

    return by_tokens(env, shown[1], script, lambda: shown, step)


ROOMY = {"max_prompt_tokens": 3000, "max_response_tokens": 3000, "max_document_tokens": 500}
"""Budgets for tokenizers of many tokens a word."""
SEEDS = range(5, 7)
"""Of the games that all interfaces are compared by."""


_RETRIEVERS: dict[World, BM25Retriever] = {}


def through_all_interfaces(script: Script, texts: bool, **setup: Any) -> list[Outcome]:
    """Plays the games of ``SEEDS`` through each interface, compares, and returns them."""
    world = setup["world"]
    if "retriever" not in setup:
        own = _RETRIEVERS[world] = _RETRIEVERS.get(world) or BM25Retriever(world.corpus)
        setup["retriever"] = own
    whole = [aec(seed, script, **setup) for seed in SEEDS]
    assert batch(SEEDS, script, **setup) == [told.unseen for told in whole]
    for seed, told in zip(SEEDS, whole, strict=True):
        assert rllib(seed, script, **setup) == told
        assert not texts or text(seed, script, **setup) == told.unseen
        for role in (Role.PROPOSER, Role.SOLVER):
            own = told.of(role)
            if own.seen:  # otherwise, the one-role interfaces deal another game
                assert single(role, seed, script, **setup) == own
                assert not texts or text(seed, script, role, **setup) == own.unseen
    return whole

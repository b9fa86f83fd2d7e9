"""Every door, driven by the same script, and what came of it in one form. Needs Ray (imported,
never started)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scripted import Script, turn

import ssp_env
from ssp_env.doors.dealer import Dealer
from ssp_env.doors.setup import set_up
from ssp_env.game.game import Game
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.types import Role, World

Seen = tuple[str, bytes, bytes, dict[str, Any]]
"""Role, tokens, mask and info, as a token-level door shows them."""


@dataclass
class Outcome:
    """All that a door told of a game."""

    record: GameRecord
    trajectories: list[Any]
    rewards: dict[str, float]
    flags: tuple[bool, bool]
    infos: list[dict[str, Any]]
    """At the beginning of each turn, and at the end."""
    seen: list[Seen] = field(default_factory=list)
    """Before each token; nothing behind doors that take whole turns."""

    def of(self, role: Role) -> Outcome:
        """What one role has seen of it."""
        infos = [info for info in self.infos if info["role"] in (role.value, "")]
        rewards = {role.value: self.rewards[role.value]}
        seen = [s for s in self.seen if s[0] == role.value]
        return Outcome(self.record, self.trajectories, rewards, self.flags, infos, seen)


class ScriptPlayer:
    """A script as a player."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        for trajectory in trajectories:
            trajectory.feed_turn(turn(trajectory, self._script))


def current(game: Game) -> Trajectory:
    """The trajectory that is to be written in a door that plays one after the other."""
    return next(t for t in game.trajectories() if not t.done)


def outcome(
    game: Game,
    rules: Rules,
    rewards: dict[str, float],
    flags: Any,
    infos: list[Any],
    seen: Sequence[Seen] = (),
) -> Outcome:
    trajectories = [
        (t.role, t.ids, bytes(t.mask), t.logprobs, t.ending, t.result, t.searches)
        for t in game.trajectories()
    ]
    record, plain = record_game(game, rules), [_plain(info) for info in infos]
    return Outcome(
        record, trajectories, rewards, (bool(flags[0]), bool(flags[1])), plain, list(seen)
    )


def _tokens(game: Game, script: Script, step: Callable[[int, Trajectory], None]) -> None:
    """One turn, token by token, as far as it is taken."""
    trajectory = current(game)
    before = len(trajectory.searches)
    for token in turn(trajectory, script):
        step(token, trajectory)
        if trajectory.done or len(trajectory.searches) > before:
            return
    raise AssertionError("a scripted turn that does not end")


def _look(role: str, observation: Any, info: dict[str, Any], name: str = "observation") -> Seen:
    mask = observation["action_mask"].astype(np.int8).tobytes()
    return role, observation[name].tobytes(), mask, _plain(info)


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if name != "action_mask"}


# -- both roles --------------------------------------------------------------------------------


def rounds(seed: int, script: Script, **setup: Any) -> Outcome:
    """Whole turns, one after the other, without any door."""
    rules = set_up(setup).rules
    dealer = Dealer(rules)
    dealer.seed(seed)
    played, infos = dealer.deal(), []
    while pending := played.pending():
        infos.append(ssp_env.doors.observation.turn_info(played, pending[0]))
        pending[0].feed_turn(turn(pending[0], script))
        played.advance()
    (game,) = played.games
    void = game.outcome == "void"
    rewards = {"proposer": game.proposer_reward or 0.0, "solver": game.solver_reward or 0.0}
    infos.append(ssp_env.doors.observation.final_info(game, rules.config.attempts))
    return outcome(game, rules, rewards, (not void, void), infos)


def aec(seed: int, script: Script, *, env: Any = None, **setup: Any) -> Outcome:
    env = ssp_env.raw_env(**setup) if env is None else env
    env.reset(seed=seed)
    seen: list[Seen] = []
    infos = []

    def step(token: int, trajectory: Trajectory) -> None:
        seen.append(_look(trajectory.role.value, env.last()[0], env.last()[4]))
        env.step(token)

    while not (env.terminations["proposer"] or env.truncations["proposer"]):
        assert env.infos["proposer"] == env.infos["solver"]
        infos.append(env.infos[env.agent_selection])
        _tokens(env.game, script, step)
    flags = [{env.terminations[a] for a in env.agents}, {env.truncations[a] for a in env.agents}]
    assert [len(flag) for flag in flags] == [1, 1], "both end alike"
    assert env.infos["proposer"] == env.infos["solver"]
    return outcome(
        env.game,
        env.rules,
        dict(env.rewards),
        [f.pop() for f in flags],
        [*infos, env.infos["solver"]],
        seen,
    )


def rllib(seed: int, script: Script, **setup: Any) -> Outcome:
    from ssp_env.doors.rllib import SearchSelfPlayMultiAgentEnv

    env = SearchSelfPlayMultiAgentEnv(setup)
    observations, told = env.reset(seed=seed)
    seen: list[Seen] = []
    infos, paid, flags = [], {"proposer": 0.0, "solver": 0.0}, (False, False)

    def step(token: int, trajectory: Trajectory) -> None:
        nonlocal observations, told, flags
        ((agent, observation),) = observations.items()
        seen.append(_look(trajectory.role.value, observation, told[agent], "observations"))
        observations, rewards, terminated, truncated, told = env.step({agent: token})
        for who, reward in rewards.items():
            paid[who] += reward
        flags = terminated["__all__"], truncated["__all__"]

    while not any(flags):
        infos.append(next(iter(told.values())))
        _tokens(env.game, script, step)
    assert all(info == told["proposer"] for info in told.values())
    return outcome(env.game, env.rules, paid, flags, [*infos, told["proposer"]], seen)


def text(seed: int, script: Script, **setup: Any) -> Outcome:
    return _texts(ssp_env.TextGame(**setup), None, seed, script)


def _texts(env: Any, role: Role | None, seed: int, script: Script) -> Outcome:
    """A game behind a door of texts, which pays one role or both."""
    _, info = env.reset(seed=seed)
    infos, paid, flags = [info], 0.0, (False, False)
    while not any(flags):
        written = script(current(env.game))
        assert isinstance(written, str)
        _, paid, *flags, info = env.step(written)  # type: ignore[assignment]
        infos.append(info)
    rewards: Any = paid if role is None else {role.value: paid}
    return outcome(env.game, env.rules, rewards, flags, infos)


def batch(seeds: range, script: Script, **setup: Any) -> list[Outcome]:
    env = ssp_env.GameBatch(len(seeds), **setup)
    turns = env.reset(seed=seeds[0])
    infos: list[list[Any]] = [[info] for info in env.infos]
    while not env.done:
        moved = {t.game for t in turns}
        turns = env.step([turn(t.trajectory, script) for t in turns])
        for i in moved:
            infos[i].append(env.infos[i])
    outcomes = []
    for game, told in zip(env.games, infos, strict=True):
        rewards = {"proposer": game.proposer_reward or 0.0, "solver": game.solver_reward or 0.0}
        void = game.outcome == "void"
        outcomes.append(outcome(game, env.rules, rewards, (not void, void), told))
    return outcomes


# -- one role ----------------------------------------------------------------------------------


def single(role: Role, seed: int, script: Script, **setup: Any) -> Outcome:
    kind = ssp_env.SolverEnv if role is Role.SOLVER else ssp_env.ProposerEnv
    env = kind(other=ScriptPlayer(script), **setup)
    observation, info = env.reset(seed=seed)
    seen: list[Seen] = []
    infos, paid, flags = [], 0.0, (False, False)

    def step(token: int, trajectory: Trajectory) -> None:
        nonlocal observation, info, paid, flags
        seen.append(_look(role.value, observation, info))
        assert (info["action_mask"] == observation["action_mask"]).all()
        assert (env.action_masks() == observation["action_mask"]).all()
        observation, reward, *flags, info = env.step(token)  # type: ignore[assignment]
        paid += float(reward)

    while not any(flags):
        infos.append(info)
        _tokens(env.game, script, step)
    return outcome(env.game, env.rules, {role.value: paid}, flags, [*infos, info], seen)


def vector(role: Role, seeds: range, script: Script, **setup: Any) -> list[Outcome]:
    """Stops each game at its end, before the next one begins."""
    kind = ssp_env.SolverVectorEnv if role is Role.SOLVER else ssp_env.ProposerVectorEnv
    env = kind(len(seeds), other=ScriptPlayer(script), **setup)
    observations, info = env.reset(seed=seeds[0])
    count, rules = len(seeds), env._envs[0].rules
    seen: list[list[Seen]] = [[] for _ in seeds]
    infos: list[list[Any]] = [[_unstack(info, i)] for i in range(count)]
    ends: dict[int, Outcome] = {}
    queues: list[list[int]] = [[] for _ in seeds]
    eos = int(rules.tokenizer.eos_id or 0)
    while len(ends) < count:
        actions = []
        for i, own in enumerate(env._envs):
            if i not in ends:
                if not queues[i]:
                    queues[i] = list(turn(current(own.game), script))
                own_look = {name: array[i] for name, array in observations.items()}
                seen[i].append(_look(role.value, own_look, _unstack(info, i)))
            actions.append(queues[i].pop(0) if i not in ends else eos)
        games = [own.game for own in env._envs]
        before = [sum(len(t.searches) for t in game.trajectories()) for game in games]
        observations, rewards, terminated, truncated, info = env.step(np.array(actions))
        for i, game in enumerate(games):
            if i in ends:
                continue
            if terminated[i] or truncated[i]:
                told = [*infos[i], _unstack(info, i)]
                flags = terminated[i], truncated[i]
                ends[i] = outcome(
                    game, rules, {role.value: float(rewards[i])}, flags, told, seen[i]
                )
            elif sum(len(t.searches) for t in game.trajectories()) > before[i]:
                queues[i] = []
                infos[i].append(_unstack(info, i))
    return [ends[i] for i in range(count)]


def _unstack(info: dict[str, Any], i: int) -> dict[str, Any]:
    own = {
        name: values[i]
        for name, values in info.items()
        if not name.startswith("_") and info[f"_{name}"][i]
    }
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in own.items()
    }


def text_role(role: Role, seed: int, script: Script, **setup: Any) -> Outcome:
    env = ssp_env.TextRole(role.value, other=ScriptPlayer(script), **setup)
    return _texts(env, role, seed, script)


# -- all of them -------------------------------------------------------------------------------


SEEDS = range(5, 8)
"""Of the games that all doors are compared by."""


def strip_seen(told: Outcome) -> Outcome:
    """As a door of whole turns tells it."""
    return replace(told, seen=[])


_RETRIEVERS: dict[World, BM25Retriever] = {}


def through_all_doors(script: Script, texts: bool, **setup: Any) -> list[Outcome]:
    """Plays the games of ``SEEDS`` through each door, compares, and returns them."""
    world = setup["world"]
    if "retriever" not in setup:
        setup["retriever"] = _RETRIEVERS[world] = _RETRIEVERS.get(world) or BM25Retriever(
            world.corpus
        )
    whole = [aec(seed, script, **setup) for seed in SEEDS]
    for seed, expected in zip(SEEDS, whole, strict=True):
        assert rounds(seed, script, **setup) == strip_seen(expected)
        assert rllib(seed, script, **setup) == expected
        if texts:
            assert text(seed, script, **setup) == strip_seen(expected)
    batched = batch(SEEDS, script, **setup)
    if setup["game"].attempts > 1:  # attempts are played side by side there, and so are their turns
        batched = [replace(told, infos=[]) for told in batched]
        assert batched == [replace(expected, seen=[], infos=[]) for expected in whole]
        return whole
    assert batched == [strip_seen(expected) for expected in whole]
    for role in (Role.PROPOSER, Role.SOLVER):
        own = [expected.of(role) for expected in whole]
        reached = [any(s[0] == role.value for s in expected.seen) for expected in own]
        for seed, expected, there in zip(SEEDS, own, reached, strict=True):
            if there:  # else the one-role doors deal another game
                assert single(role, seed, script, **setup) == expected
            if there and texts:
                assert text_role(role, seed, script, **setup) == strip_seen(expected)
        if all(reached):
            assert vector(role, SEEDS, script, **setup) == own
    return whole

"""The RLlib door, with RLlib's own episodes; `examples/rllib_ppo.py` has its env runners too."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.tune.registry import ENV_CREATOR, _global_registry

import ssp_env
import ssp_env.doors.rllib
from ssp_env.doors.rllib import SearchSelfPlayMultiAgentEnv
from ssp_env.errors import ServiceError
from ssp_env.players import MiniPlayer, Player, RandomLegalPlayer
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.types import World
from ssp_env.worlds import open_world


class Fragile(BM25Retriever):
    """Fails on every third call."""

    calls = 0

    def search(self, queries: Any, k: int) -> Any:
        self.calls += 1
        if self.calls % 3 == 0:
            raise ServiceError("search", "down")
        return super().search(queries, k)


def queued(env: SearchSelfPlayMultiAgentEnv, player: Player) -> list[int]:
    """The next turn's tokens: what a player writes in a copy of the trajectory."""
    shadow = next(t for t in env.game.trajectories() if not t.done)
    copied = copy.deepcopy(shadow)
    player.play([copied])
    return copied.ids[len(shadow.ids) :]


def test_rllibs_episodes_take_every_game() -> None:
    """Valid, invalid and void games: complete episodes of one kind of end, with all that was
    paid."""
    world: World = open_world("small")
    game = {"attempts": 3, "invalid_reward": -0.5}
    setup = {"world": world, "retriever": Fragile(world.corpus), "game": game}
    env, rng = SearchSelfPlayMultiAgentEnv(setup), np.random.default_rng(0)
    players = MiniPlayer(env.rules.tags), RandomLegalPlayer(env.rules, rng)
    spaces = {"observation_space": env.observation_spaces, "action_space": env.action_spaces}
    outcomes = set()
    for seed in range(24):
        observations, infos = env.reset(seed=seed)
        episode = MultiAgentEpisode(**spaces, agent_module_ids={})
        episode.add_env_reset(observations=observations, infos=infos)
        queue: list[int] = []
        while not episode.is_done:
            queue = queue or queued(env, players[1 - seed % 2])
            (agent,) = episode.get_agents_to_act()
            actions = {agent: queue.pop(0)}
            observations, rewards, terminateds, truncateds, infos = env.step(actions)
            assert all(env.observation_spaces[a].contains(o) for a, o in observations.items())
            flags = {"terminateds": terminateds, "truncateds": truncateds}
            episode.add_env_step(observations, actions, rewards, infos, **flags)

        outcomes.add(env.game.outcome.value)
        assert episode.is_truncated == (env.game.outcome == "void")
        assert episode.is_terminated != episode.is_truncated
        paid = {"proposer": env.game.proposer_reward, "solver": env.game.solver_reward}
        written = dict.fromkeys(paid, 0)
        for trajectory in env.game.trajectories():
            own = "proposer" if trajectory.role == "proposer" else "solver"
            written[own] += sum(trajectory.mask)
        assert set(episode.agent_episodes) == {a for a, tokens in written.items() if tokens}
        for agent, own_episode in episode.agent_episodes.items():
            assert own_episode.get_return() == (paid[agent] or 0.0)
            assert len(own_episode) == written[agent], "every token that it wrote is a step"
    assert outcomes == {"valid", "invalid", "void"}


def test_the_name_makes_the_env_and_can_be_sent_to_workers() -> None:
    creator = _global_registry.get(ENV_CREATOR, ssp_env.rllib.register())
    env = pickle.loads(pickle.dumps(creator))({"world": "small"})
    assert isinstance(env, SearchSelfPlayMultiAgentEnv)
    copied = pickle.loads(pickle.dumps(env))
    for each in (env, copied):
        each.reset(seed=2)
    assert env.game.truth == copied.game.truth

"""The RLlib door, with RLlib's own episodes and env runner. Ray is imported and never started."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.examples.rl_modules.classes.random_rlm import RandomRLModule
from ray.tune.registry import ENV_CREATOR, _global_registry

import ssp_env
import ssp_env.doors.rllib
from ssp_env.doors.rllib import SearchSelfPlayMultiAgentEnv
from ssp_env.errors import ServiceError
from ssp_env.players import MiniPlayer, Player, RandomLegalPlayer
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.types import World
from ssp_env.worlds import open_world

WORDS = {"world": "small"}


class Chance(RandomRLModule):
    """Plays at random, and is asked as a torch module is."""

    framework = "torch"


class Fragile(BM25Retriever):
    """Fails on every third call."""

    calls = 0

    def search(self, queries: Any, k: int) -> Any:
        self.calls += 1
        if self.calls % 3 == 0:
            raise ServiceError("search", "down")
        return super().search(queries, k)


def turns(env: SearchSelfPlayMultiAgentEnv, player: Player) -> list[int]:
    """The next turn's tokens: what a player writes in a copy of the trajectory."""
    shadow = next(t for t in env.game.trajectories() if not t.done)
    copied = pickle.loads(pickle.dumps(shadow))
    player.play([copied])
    return copied.ids[len(shadow.ids) :]


@pytest.mark.parametrize("attempts", [1, 3])
def test_rllibs_episodes_take_every_game(attempts: int) -> None:
    """Valid, invalid and void games: complete episodes of one kind of end, with all that was
    paid."""
    world: World = open_world("small")
    setup = {
        "world": world,
        "retriever": Fragile(world.corpus),
        "game": {"attempts": attempts, "invalid_reward": -0.5},
    }
    env = SearchSelfPlayMultiAgentEnv(setup)
    mini, chance = (
        MiniPlayer(env.rules.config.tags),
        RandomLegalPlayer(env.rules, np.random.default_rng(0)),
    )
    outcomes = set()
    for seed in range(24):
        observations, infos = env.reset(seed=seed)
        spaces = {
            "observation_space": env.observation_spaces,
            "action_space": env.action_spaces,
        }
        episode = MultiAgentEpisode(agent_module_ids={}, **spaces)
        episode.add_env_reset(observations=observations, infos=infos)
        player: Player = mini if seed % 2 else chance
        queue: list[int] = []
        while not episode.is_done:
            queue = queue or turns(env, player)
            actions = {agent: queue.pop(0) for agent in episode.get_agents_to_act()}
            assert len(actions) == 1
            observations, rewards, terminateds, truncateds, infos = env.step(actions)
            for agent, observation in observations.items():
                assert env.observation_spaces[agent].contains(observation)
            ends = {"terminateds": terminateds, "truncateds": truncateds}
            episode.add_env_step(observations, actions, rewards, infos, **ends)
        game = env.game
        outcomes.add(game.outcome.value)
        assert episode.is_truncated == (game.outcome == "void")
        assert episode.is_terminated != episode.is_truncated
        paid = {"proposer": game.proposer_reward, "solver": game.solver_reward}
        written = dict.fromkeys(paid, 0)
        for trajectory in game.trajectories():
            written["proposer" if trajectory.role == "proposer" else "solver"] += sum(
                trajectory.mask
            )
        for agent, own in episode.agent_episodes.items():
            assert own.get_return() == (paid[agent] or 0.0)
            assert len(own) == written.pop(agent), "every token that it wrote is a step"
            ends = own.is_terminated, own.is_truncated
            assert ends == (episode.is_terminated, episode.is_truncated)
        assert not any(written.values()), "the others never had a turn"
    assert outcomes == {"valid", "invalid", "void"}


@pytest.mark.filterwarnings(
    "ignore:.*Overriding environment rllib-multi-agent-env-v0"
)  # Ray's own, from the second on
def test_rllibs_env_runner_samples_it() -> None:
    setup = {"world": "mini", "tokenizer": "bytes", "game": {"max_response_tokens": 40}}
    specs = {name: RLModuleSpec(module_class=Chance) for name in ("proposer", "solver")}
    config = PPOConfig().environment(ssp_env.rllib.register(), env_config=setup)
    config.env_runners(num_envs_per_env_runner=2, batch_mode="complete_episodes", num_env_runners=0)
    config.multi_agent(policies={*specs}, policy_mapping_fn=lambda agent, *_, **__: agent)
    config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
    runner = MultiAgentEnvRunner(config=config)
    try:
        episodes = runner.sample(num_episodes=4, random_actions=False)
    finally:
        runner.stop()
    assert len(episodes) >= 4
    assert all(episode.is_done and "proposer" in episode.agent_episodes for episode in episodes)


def test_the_name_makes_the_env_and_can_be_sent_to_workers() -> None:
    name = ssp_env.rllib.register()
    assert name == "SearchSelfPlay-v0"
    creator = _global_registry.get(ENV_CREATOR, name)
    sent = pickle.loads(pickle.dumps(creator))
    env = sent(WORDS)
    assert isinstance(env, SearchSelfPlayMultiAgentEnv)
    copied = pickle.loads(pickle.dumps(env))
    for each in (env, copied):
        each.reset(seed=2)
    assert env.game.truth == copied.game.truth

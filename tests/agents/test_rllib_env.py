"""The RLlib interface, with RLlib's episodes and env runners; `examples/rllib_ppo.py` learns by
it."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from random_player import RandomLegalPlayer
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.examples.rl_modules.classes.random_rlm import RandomRLModule
from ray.rllib.execution.rollout_ops import synchronous_parallel_sample
from ray.tune.registry import ENV_CREATOR, _global_registry

import ssp_env
import ssp_env.envs.rllib
from ssp_env.envs.rllib import CountAbsentAgents, SearchSelfPlayMultiAgentEnv
from ssp_env.errors import ServiceError
from ssp_env.players import MiniPlayer, Player
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
    """Valid, invalid and void games: complete episodes of one kind of end, with all that was paid.

    The name makes the env; both can be sent to workers."""
    world: World = open_world("small")
    game = {"attempts": 3, "invalid_reward": -0.5}
    setup = {"world": world, "retriever": Fragile(world.corpus), "game": game}
    creator = _global_registry.get(ENV_CREATOR, ssp_env.rllib.register())
    env, rng = pickle.loads(pickle.dumps(creator))(setup), np.random.default_rng(0)
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

    copied = pickle.loads(pickle.dumps(env))
    for each in (env, copied):
        each.reset(seed=2)
    assert env.game.truth == copied.game.truth


class Careless(RandomRLModule):
    """Plays at random, and rarely what is not legal."""

    framework = "torch"

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        mask = torch.as_tensor(batch[Columns.OBS]["action_mask"])
        return {Columns.ACTIONS: torch.multinomial(mask + 0.02, 1)[:, 0]}


def test_agent_steps_are_counted_in_games_that_the_solver_never_sees() -> None:
    """RLlib's own count of an absent agent is not a number (ray issue 62635)."""

    torch.manual_seed(0)
    agents = ("proposer", "solver")
    specs = {name: RLModuleSpec(module_class=Careless) for name in agents}
    game = {"filters": (), "verifier": "none"}
    config = PPOConfig().environment(
        ssp_env.rllib.register(), env_config={"world": "small", "game": game}
    )
    config.env_runners(num_env_runners=0, batch_mode="complete_episodes")
    config.multi_agent(
        policies={*agents},
        policy_mapping_fn=lambda agent, *_, **__: agent,
        count_steps_by="agent_steps",
    )
    config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
    runner = MultiAgentEnvRunner(config=config.callbacks([CountAbsentAgents]))
    group = SimpleNamespace(num_remote_workers=lambda: 0, local_env_runner=runner)
    how: dict[str, Any] = {"_uses_new_env_runners": True, "_return_metrics": True}
    episodes, _ = synchronous_parallel_sample(worker_set=group, max_agent_steps=400, **how)
    assert {len(episode.agent_episodes) for episode in episodes} == {1, 2}
    assert sum(episode.agent_steps() for episode in episodes) >= 400

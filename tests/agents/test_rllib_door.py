"""The RLlib door, with RLlib's own env runners; `examples/rllib_ppo.py` learns with them."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.examples.rl_modules.classes.random_rlm import RandomRLModule
from ray.rllib.execution.rollout_ops import synchronous_parallel_sample
from ray.tune.registry import ENV_CREATOR, _global_registry

import ssp_env
import ssp_env.doors.rllib
from ssp_env.doors.rllib import CountAbsentAgents, SearchSelfPlayMultiAgentEnv


class Careless(RandomRLModule):
    """Plays at random, and rarely what is not legal."""

    framework = "torch"

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        mask = torch.as_tensor(batch[Columns.OBS]["action_mask"])
        return {Columns.ACTIONS: torch.multinomial(mask + 0.02, 1)[:, 0]}


def test_agent_steps_are_counted_in_games_that_the_solver_never_sees() -> None:
    """RLlib's own count of an absent agent is not a number (ray issue 62635)."""

    def sampled(*callbacks: type) -> list[Any]:
        torch.manual_seed(0)
        agents = ("proposer", "solver")
        specs = {name: RLModuleSpec(module_class=Careless) for name in agents}
        config = (
            PPOConfig()
            .environment(
                ssp_env.rllib.register(),
                env_config={"world": "small", "game": {"filters": (), "verifier": "none"}},
            )
            .env_runners(num_env_runners=0, batch_mode="complete_episodes")
            .multi_agent(
                policies={*agents},
                policy_mapping_fn=lambda agent, *_, **__: agent,
                count_steps_by="agent_steps",
            )
            .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
            .callbacks([*callbacks])
        )
        runner = MultiAgentEnvRunner(config=config)
        group = SimpleNamespace(num_remote_workers=lambda: 0, local_env_runner=runner)
        try:
            episodes, _ = synchronous_parallel_sample(
                worker_set=group,
                max_agent_steps=400,
                _uses_new_env_runners=True,
                _return_metrics=True,
            )
        finally:
            runner.stop()
        return list(episodes)

    with pytest.raises(ValueError, match="NaN"):
        sampled()
    episodes = sampled(CountAbsentAgents)
    assert {len(episode.agent_episodes) for episode in episodes} == {1, 2}
    assert sum(episode.agent_steps() for episode in episodes) >= 400


def test_the_name_makes_the_env_and_can_be_sent_to_workers() -> None:
    creator = _global_registry.get(ENV_CREATOR, ssp_env.rllib.register())
    env = pickle.loads(pickle.dumps(creator))({"world": "small"})
    assert isinstance(env, SearchSelfPlayMultiAgentEnv)
    copied = pickle.loads(pickle.dumps(env))
    for each in (env, copied):
        each.reset(seed=2)
    assert env.game.truth == copied.game.truth

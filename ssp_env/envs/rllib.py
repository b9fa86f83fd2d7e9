"""The game as an RLlib ``MultiAgentEnv``. Importing this module needs Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ssp_env.envs.aec import PROPOSER, SOLVER, SearchSelfPlayEnv
from ssp_env.errors import MissingExtra, UsageError
from ssp_env.game.game import Game

try:
    from ray.rllib.callbacks.callbacks import RLlibCallback
    from ray.rllib.env.multi_agent_env import MultiAgentEnv
    from ray.rllib.utils.metrics import NUM_AGENT_STEPS_SAMPLED
    from ray.tune.registry import register_env
except ImportError as error:
    raise MissingExtra("the RLlib environment", "train") from error

ENV_NAME = "SearchSelfPlay-v0"

_PerAgent = dict[str, Any]


class SearchSelfPlayMultiAgentEnv(MultiAgentEnv):  # type: ignore[misc]
    """The AEC env's game, in RLlib's form: only the agent whose turn it is gets an observation.

    Observations are dicts with the keys that RLlib's ``ActionMaskingTorchRLModule`` looks for:
    ``observations`` (see :class:`~ssp_env.envs.observation.Observer`) and ``action_mask``, float32
    (vocabulary,). At the end, all agents that have played get their last observation and their
    reward, and end together, but for the solver of an invalid game, which RLlib never saw."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """``config`` is RLlib's ``env_config``: the fields of :class:`~ssp_env.envs.setup.Setup`,
        and ``render_mode``."""
        super().__init__()
        self._env = SearchSelfPlayEnv(**dict(config or {}))
        self._env.driver.needs_turn = True
        self.rules, self.render_mode = self._env.rules, self._env.render_mode

        # Never emptied: RLlib's check of an env looks up in it who took part in the last step.
        self.agents = self.possible_agents = list(self._env.possible_agents)

        space: Any = self._env.observation_space(PROPOSER)
        mask = gym.spaces.Box(0.0, 1.0, space["action_mask"].shape, np.float32)
        shown = gym.spaces.Dict({"observations": space["observation"], "action_mask": mask})
        self.observation_spaces = dict.fromkeys(self.agents, shown)
        self.action_spaces = {agent: self._env.action_space(agent) for agent in self.agents}

    @property
    def game(self) -> Game:
        return self._env.game

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_PerAgent, _PerAgent]:
        """Begins a game that has a first turn: RLlib cannot end an episode in its reset.

        Arguments as of :meth:`~ssp_env.envs.driver.GameDriver.reset`."""
        self._env.reset(seed=seed, options=options)
        return self._seen([self._env.agent_selection])

    def step(
        self, action_dict: _PerAgent
    ) -> tuple[_PerAgent, _PerAgent, _PerAgent, _PerAgent, _PerAgent]:
        """Takes the token of the agent whose turn it is."""
        env = self._env
        if env.trajectory is None:
            raise UsageError("the game is over: call reset()")

        agent = env.agent_selection
        if set(action_dict) != {agent}:
            what = f"give an action for it alone, not for {sorted(action_dict)}"
            raise UsageError(f"it is the turn of {agent!r}: {what}")
        env.step(action_dict[agent])

        # At the end, an agent without a turn is left out: RLlib cannot end one that it never saw.
        over = env.trajectory is None
        agents = [a for a in self.agents if env.latest[a]] if over else [env.agent_selection]
        observations, infos = self._seen(agents)
        rewards = {a: env.rewards[a] for a in agents}

        # No flags of single agents: RLlib takes an episode for terminated in which all have one,
        # truncated or not.
        terminated = {"__all__": any(env.terminations.values())}
        truncated = {"__all__": any(env.truncations.values())}
        return observations, rewards, terminated, truncated, infos

    def render(self) -> str | None:
        return self._env.render()

    def _seen(self, agents: Sequence[str]) -> tuple[_PerAgent, _PerAgent]:
        observations = {}
        for agent in agents:
            seen = self._env.observe(agent)
            mask = seen["action_mask"].astype(np.float32)
            observations[agent] = {"observations": seen["observation"], "action_mask": mask}
        return observations, {agent: self._env.infos[agent] for agent in agents}


class CountAbsentAgents(RLlibCallback):  # type: ignore[misc]
    """Counts 0 steps of an agent that had no turn in a sample: the solver of invalid games.

    RLlib makes that count "not a number", and ``count_steps_by="agent_steps"`` with
    ``batch_mode="complete_episodes"`` ends with a ValueError (ray issue 62635). With
    ``config.callbacks(CountAbsentAgents)`` it does not; nor with ``env_steps``, the default."""

    def on_sample_end(self, *, metrics_logger: Any, **kwargs: Any) -> None:
        for agent in (PROPOSER, SOLVER):
            metrics_logger.log_value((NUM_AGENT_STEPS_SAMPLED, agent), 0, reduce="sum")


def register() -> str:
    """Registers the environment with Ray, for ``config.environment("SearchSelfPlay-v0")``, and
    returns its name."""
    register_env(ENV_NAME, SearchSelfPlayMultiAgentEnv)
    return ENV_NAME

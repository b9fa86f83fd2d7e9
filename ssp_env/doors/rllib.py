"""The game as an RLlib ``MultiAgentEnv``. Importing this module needs Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from ssp_env.doors.aec import SearchSelfPlayEnv
from ssp_env.doors.one_role import MOST_REDEALS
from ssp_env.errors import MissingExtra, UsageError

try:
    from ray.rllib.env.multi_agent_env import MultiAgentEnv
    from ray.tune.registry import register_env
except ImportError as error:
    raise MissingExtra("the RLlib environment", "pip install '.[train]' in the checkout") from error

ENV_NAME = "SearchSelfPlay-v0"

_PerAgent = dict[str, Any]


class SearchSelfPlayMultiAgentEnv(MultiAgentEnv):  # type: ignore[misc]
    """The AEC env's game, in RLlib's form: only the agent whose turn it is gets an observation.

    Observations are dicts with the keys that RLlib's ``ActionMaskingTorchRLModule`` looks for:
    ``observations`` (see :class:`~ssp_env.doors.observation.Observer`) and ``action_mask``, float32
    (vocabulary,). At the end, all agents that have played get their last observation and their
    reward, and end together; an agent that never had a turn (the solver of an invalid game) is not
    mentioned at all, since RLlib cannot end an agent that it never saw."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            config: RLlib's ``env_config``: the fields of :class:`~ssp_env.doors.setup.Setup`, and
                ``render_mode``.
        """
        super().__init__()
        self._env = SearchSelfPlayEnv(**dict(config or {}))
        self.render_mode = self._env.render_mode

        self.possible_agents = list(self._env.possible_agents)

        # Never emptied: RLlib's check of an env looks up in it who took part in the last step.
        self.agents = list(self.possible_agents)

        self.observation_spaces, self.action_spaces = {}, dict(self._env.action_spaces)
        for agent, space in self._env.observation_spaces.items():
            mask = gym.spaces.Box(0.0, 1.0, space["action_mask"].shape, np.float32)
            spaces = {"observations": space["observation"], "action_mask": mask}
            self.observation_spaces[agent] = gym.spaces.Dict(spaces)

        self._started = False
        self._played: dict[str, None] = {}

    @property
    def rules(self) -> Any:
        """The rules that the game is played by."""
        return self._env.rules

    @property
    def game(self) -> Any:
        """The current game."""
        return self._env.game

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_PerAgent, _PerAgent]:
        """Begins a game that has a first turn: RLlib cannot end an episode in its reset.

        Args:
            seed: decides every draw of this and the following games.
            options: the subject of the game; see :meth:`~ssp_env.doors.dealer.Dealer.deal`.
        """
        for _ in range(MOST_REDEALS):
            self._env.reset(seed=seed, options=options)
            if not self._over:
                break
            seed = None
        else:
            what = f"{MOST_REDEALS} games in a row ended before the first turn"
            raise UsageError(f"{what}, the last one as {self.game.reason}")

        self._started, self._played = True, {}
        agent = self._env.agent_selection
        return self._observe(agent), {agent: self._env.infos[agent]}

    def step(
        self, action_dict: _PerAgent
    ) -> tuple[_PerAgent, _PerAgent, _PerAgent, _PerAgent, _PerAgent]:
        """Takes the token of the agent whose turn it is."""
        if not self._started:
            raise UsageError("call reset() first")
        if self._over:
            raise UsageError("the game is over: call reset()")

        env = self._env
        agent = env.agent_selection
        if set(action_dict) != {agent}:
            raise UsageError(
                f"it is the turn of {agent!r}: give an action for it alone, not for "
                f"{sorted(action_dict)}"
            )

        self._played[agent] = None
        env.step(action_dict[agent])

        if not self._over:
            agent = env.agent_selection
            going_on = {"__all__": False}
            return (
                self._observe(agent),
                {agent: 0.0},
                going_on,
                dict(going_on),
                {agent: env.infos[agent]},
            )

        seen = [a for a in self.possible_agents if a in self._played]

        # An agent without a turn is left out: RLlib cannot end an agent that it never saw.
        observations = {a: obs for a in seen for obs in self._observe(a).values()}
        rewards = {a: env.rewards[a] for a in seen}

        # No flags of single agents: RLlib takes an episode for terminated in which all have one,
        # truncated or not.
        terminated, truncated = (
            {"__all__": all(flags.values())} for flags in (env.terminations, env.truncations)
        )
        return observations, rewards, terminated, truncated, {a: env.infos[a] for a in seen}

    def render(self) -> str | None:
        """As in the AEC env."""
        return self._env.render()

    @property
    def _over(self) -> bool:
        return any(self._env.terminations.values()) or any(self._env.truncations.values())

    def _observe(self, agent: str) -> _PerAgent:
        seen = self._env.observe(agent)
        return {
            agent: {
                "observations": seen["observation"],
                "action_mask": seen["action_mask"].astype(np.float32),
            },
        }


def register() -> str:
    """Registers the environment with Ray, for ``config.environment("SearchSelfPlay-v0")``.

    Returns:
        Its name.
    """
    register_env(ENV_NAME, SearchSelfPlayMultiAgentEnv)
    return ENV_NAME

"""The PettingZoo AEC environment: one game at a time, one token per action."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import gymnasium as gym
import numpy as np
from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from ssp_env.envs.driver import RENDER_MODES, GameDriver
from ssp_env.envs.observation import Observation, Observer, Watcher
from ssp_env.envs.setup import Setup, set_up
from ssp_env.errors import one_of
from ssp_env.game.game import Game
from ssp_env.game.trajectory import Trajectory
from ssp_env.types import Role

PROPOSER, SOLVER = "proposer", "solver"


def env(render_mode: str | None = None, **setup: Unpack[Setup]) -> AECEnv:
    """The environment with PettingZoo's check of the order of calls; it checks tokens itself.

    ``render_mode`` is ``ansi`` (a string), ``human`` (colours on the terminal, after each turn) or
    ``None``; for the others see :class:`~ssp_env.envs.setup.Setup`."""
    return OrderEnforcingWrapper(SearchSelfPlayEnv(render_mode, **setup))


class SearchSelfPlayEnv(AECEnv):  # type: ignore[misc]
    """One game, token by token: the proposer writes a question, then the solver attempts it.

    With ``verifier="policy"``, the solver first reads the documents of the verification. Both
    agents live to the end of the game and end together. Rewards are paid then: the proposer's
    reward, and the solver's mean over its attempts; an invalid game pays ``invalid_reward`` and 0
    (or what the solver's answer to the closed book earns), and terminates like a valid one. A void
    game pays nothing and is truncated. ``infos`` report the outcome. Observations:
    :class:`~ssp_env.envs.observation.Observer`."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "ssp/SearchSelfPlay-v0",
        "render_modes": RENDER_MODES,
        "render_fps": 4,
        "is_parallelizable": False,
    }

    def __init__(self, render_mode: str | None = None, **setup: Unpack[Setup]) -> None:
        super().__init__()
        resolved = set_up(setup)
        self.driver = GameDriver(resolved.rules, render_mode=render_mode)
        self._observer = Observer(resolved)

        self.rules, self.render_mode = resolved.rules, render_mode
        self.possible_agents = [PROPOSER, SOLVER]
        self._watchers = {agent: Watcher(self._observer) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> gym.Space[Any]:
        return self._observer.observation_space

    def action_space(self, agent: str) -> gym.Space[Any]:
        return self._observer.action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Starts a game; arguments as of :meth:`~ssp_env.envs.driver.GameDriver.reset`."""
        self.driver.reset(seed, options)
        self.agents = list(self.possible_agents)
        self.agent_selection = PROPOSER
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.latest: dict[str, Trajectory | None] = dict.fromkeys(self.agents)
        """Each agent's last trajectory; ``None`` before its first."""
        self._begin_turn()

    def step(self, action: int | np.integer[Any] | None) -> None:
        driver = self.driver
        # PettingZoo's dead step: the agent is removed.
        if driver.over and self.agents:
            self._was_dead_step(action)
            return

        turn_ended = driver.turn.feed((action,))  # type: ignore[arg-type]
        self._cumulative_rewards[self.agent_selection] = 0.0
        if turn_ended:
            driver.advance()
            self._begin_turn()

    def observe(self, agent: str) -> Observation:
        """The agent's current trajectory, or a single end (or padding) token before its first."""
        one_of("agent", agent, self._watchers)
        return self._watchers[agent].look(self.latest[agent])

    def render(self) -> str | None:
        return self.driver.render()

    @property
    def game(self) -> Game:
        return self.driver.game

    @property
    def trajectory(self) -> Trajectory | None:
        """The trajectory that the next token goes to; ``None`` when the game is over."""
        return None if self.driver.over else self.driver.turn

    def _begin_turn(self) -> None:
        """Selects the agent that writes next, and sets rewards, flags and infos of both."""
        driver = self.driver
        if not driver.over:
            self.agent_selection = PROPOSER if driver.turn.role is Role.PROPOSER else SOLVER
            self.latest[self.agent_selection] = driver.turn

        self.rewards, terminated, truncated = driver.result
        # One flag for both agents: PettingZooEnv of RLlib never ends an episode with two different
        # ones.
        self.terminations = dict.fromkeys(self.agents, terminated)
        self.truncations = dict.fromkeys(self.agents, truncated)
        self.infos = {agent: dict(driver.info) for agent in self.agents}
        self._accumulate_rewards()


raw_env = SearchSelfPlayEnv
"""The environment without wrappers, by PettingZoo's name for it."""

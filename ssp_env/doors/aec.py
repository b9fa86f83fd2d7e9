"""The PettingZoo AEC environment: one game at a time, one token per action."""

from __future__ import annotations

import operator
from typing import Any, ClassVar, Unpack

import gymnasium as gym
import numpy as np
from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, OrderEnforcingWrapper

from ssp_env.doors.dealer import Dealer
from ssp_env.doors.observation import (
    Observation,
    Observer,
    Watcher,
    final_info,
    result_of,
    turn_info,
)
from ssp_env.doors.setup import Setup, set_up
from ssp_env.errors import RenderModeError, UsageError
from ssp_env.game.game import Game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.game.transcript import LiveView, render_ansi
from ssp_env.types import Role
from ssp_env.worlds import WORLDS

PROPOSER, SOLVER = "proposer", "solver"


def env(render_mode: str | None = None, **setup: Unpack[Setup]) -> AECEnv:
    """The environment with PettingZoo's usual checks.

    Args:
        render_mode: ``ansi`` (a string), ``human`` (colours on the terminal, after each turn) or
            ``None``.
        setup: the game; see :class:`~ssp_env.doors.setup.Setup`.

    Raises:
        ConfigError: a setting that cannot work.
        TokenizerError: a tokenizer that cannot spell the tags.
    """
    return OrderEnforcingWrapper(AssertOutOfBoundsWrapper(raw_env(render_mode, **setup)))


def raw_env(render_mode: str | None = None, **setup: Unpack[Setup]) -> SearchSelfPlayEnv:
    """The environment without wrappers; takes what :func:`env` takes."""
    return SearchSelfPlayEnv(render_mode, **setup)


class SearchSelfPlayEnv(AECEnv):  # type: ignore[misc]
    """One game, token by token: the proposer writes a question, then the solver attempts it.

    With ``verifier="policy"``, the solver first reads the documents of the verification. Both
    agents live to the end of the game and end together. Rewards are paid then: the proposer's
    reward, and the solver's mean over its attempts; an invalid game pays ``invalid_reward`` and 0
    (or what the solver's answer to the closed book earns), and terminates like a valid one. A void
    game pays nothing and is truncated. ``infos`` report the outcome. Observations:
    :class:`~ssp_env.doors.observation.Observer`.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "ssp/SearchSelfPlay-v0",
        "render_modes": ["ansi", "human"],
        "render_fps": 4,
        "is_parallelizable": False,
    }

    def __init__(self, render_mode: str | None = None, **setup: Unpack[Setup]) -> None:
        """Takes what :func:`env` takes."""
        super().__init__()
        check_render_mode(render_mode, self.metadata)
        resolved = set_up(setup, "render_mode")

        self.rules: Rules = resolved.rules
        self.render_mode = render_mode
        self._live = LiveView(self.rules)
        self._observer, self._dealer = Observer(resolved), Dealer(resolved.rules)

        self.possible_agents = [PROPOSER, SOLVER]

        # Kept, since PettingZoo wants the same space object at every call.
        self.observation_spaces = {
            agent: self._observer.observation_space() for agent in self.possible_agents
        }
        self.action_spaces = {
            agent: self._observer.action_space() for agent in self.possible_agents
        }

        self._started: Round | None = None

    # -- PettingZoo ----------------------------------------------------------------------------

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """The same object at each call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gym.Space[Any]:
        """The same object at each call."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Starts a game.

        Args:
            seed: decides the answer, the noise and every other draw of this and the following
                games.
            options: the subject of the game; see :meth:`~ssp_env.doors.dealer.Dealer.deal`.
        """
        self._dealer.seed(seed)
        self._started = self._dealer.deal(options)

        self.agents = list(self.possible_agents)
        self.agent_selection = PROPOSER
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}

        self._watchers: dict[str, Watcher] = {}
        self._begin_turn()
        self._accumulate_rewards()

    def step(self, action: int | np.integer[Any] | None) -> None:
        """Takes the selected agent's next token."""
        round_ = self._round
        if not self.agents:
            raise UsageError("the game is over: call reset()")

        agent = self.agent_selection

        # PettingZoo's dead step: the agent is removed.
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return

        turn_ended = self._current.feed((as_token(agent, action),))
        self._cumulative_rewards[agent] = 0.0

        if turn_ended:  # nothing is paid in the middle of a turn
            self._clear_rewards()
            round_.advance()
            self._begin_turn()
            self._accumulate_rewards()
            if self.render_mode == "human":
                self._live.show(self.game)

    def observe(self, agent: str) -> Observation:
        """The agent's current trajectory, or a single end (or padding) token before its first."""
        _ = self._round
        if agent not in self.possible_agents:
            known = " and ".join(self.possible_agents)
            raise UsageError(f"there is no agent {agent!r}; the agents are {known}")
        watcher = self._watchers.get(agent)
        return self._observer.empty() if watcher is None else watcher.look()

    def last(
        self, observe: bool = True
    ) -> tuple[Observation | None, float, bool, bool, dict[str, Any]]:
        """Observation, reward since its last turn, flags and info of the selected agent."""
        _ = self._round
        seen: tuple[Observation | None, float, bool, bool, dict[str, Any]] = super().last(observe)
        return seen

    def render(self) -> str | None:
        """The game so far: a string in mode ``ansi``, printed in mode ``human``."""
        return render(self.game, self.rules, self.render_mode)

    def close(self) -> None:
        """Nothing to close."""

    # -- the game ------------------------------------------------------------------------------

    @property
    def game(self) -> Game:
        """The current game."""
        return self._round.games[0]

    @property
    def trajectory(self) -> Trajectory | None:
        """The trajectory that the next token goes to; ``None`` when the game is over."""
        pending = self._round.pending()
        return pending[0] if pending else None

    @property
    def _round(self) -> Round:
        if self._started is None:
            raise UsageError("call reset() first")
        return self._started

    def _begin_turn(self) -> None:
        """Selects the agent that writes next, or ends the game."""
        pending = self._round.pending()
        if not pending:
            self._finish()
            return
        self._current: Trajectory = pending[0]
        self.agent_selection = PROPOSER if self._current.role is Role.PROPOSER else SOLVER

        # A new trajectory of the same agent (its next attempt) needs a new watcher.
        watcher = self._watchers.get(self.agent_selection)
        if watcher is None or watcher.trajectory is not self._current:
            self._watchers[self.agent_selection] = Watcher(self._observer, self._current)
        for agent in self.agents:
            self.infos[agent] = turn_info(self._round, self._current)

    def _finish(self) -> None:
        self.rewards, terminated, truncated = result_of(self._round)
        # One flag for both agents: PettingZooEnv of RLlib never ends an episode with two different
        # ones.
        self.terminations = dict.fromkeys(self.agents, terminated)
        self.truncations = dict.fromkeys(self.agents, truncated)
        info = final_info(self.game, self.rules.config.attempts)
        self.infos = {agent: dict(info) for agent in self.agents}


def check_render_mode(render_mode: str | None, metadata: dict[str, Any]) -> None:
    """Refuses a mode that the metadata do not list."""
    if render_mode is not None and render_mode not in metadata["render_modes"]:
        hint = f"; a world is named as world={render_mode!r}" if render_mode in WORLDS else ""
        raise RenderModeError("render_mode", render_mode, f"choose 'ansi', 'human' or None{hint}")


def render(game: Game, rules: Rules, render_mode: str | None) -> str | None:
    """The game so far: a string in mode ``ansi``, printed in mode ``human``."""
    if render_mode == "ansi":
        return render_ansi(game, rules)
    if render_mode == "human":
        LiveView(rules).show(game)
    else:
        gym.logger.warn("render() was called without a render_mode")
    return None


def as_token(agent: str, action: int | np.integer[Any] | None) -> int:
    """An action as a plain number."""
    try:
        return operator.index(action)  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(f"{agent} is alive: it needs a token, not {action!r}") from None

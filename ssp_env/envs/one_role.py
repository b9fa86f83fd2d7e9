"""One role, one token per step, as Gymnasium environments: ``ssp/Solver-v0``, ``ssp/Proposer-v0``;
``gymnasium.make_vec`` makes vectors of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ssp_env.envs.driver import RENDER_MODES, GameDriver
from ssp_env.envs.observation import Info, Observation, Observer, Watcher
from ssp_env.envs.setup import Setup, set_up
from ssp_env.game.game import Game
from ssp_env.players import Player
from ssp_env.types import Question, Role


class OneRoleEnv(gym.Env[Observation, np.int64]):
    """One token per step. An episode is one trajectory of the role; the reward comes at its end.

    ``info`` holds the AEC env's ``infos``, and ``action_mask``. A void game is truncated, with
    reward 0."""

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 4}  # noqa: RUF012
    role: ClassVar[Role]

    def __init__(
        self,
        other: Player | None = None,
        questions: Sequence[Question] | None = None,
        render_mode: str | None = None,
        **setup: Unpack[Setup],
    ) -> None:
        """
        Args:
            other: plays the other role (and the verifier, if that is the policy); scripted when not
                given.
            questions: for the solver: draw from these, with no proposer.
            render_mode: ``ansi``, ``human`` or ``None``.
            setup: the game; a solver makes one attempt, whatever ``game.attempts`` says.
        """
        resolved = set_up(setup)
        self.driver = GameDriver(resolved.rules, self.role, other, questions, render_mode)
        self.rules, self.render_mode = self.driver.rules, render_mode
        self._observer = Observer(resolved)
        self._watcher = Watcher(self._observer)

    # Not attributes: copies of the environment share them.
    @property
    def observation_space(self) -> gym.Space[Any]:  # type: ignore[override]
        return self._observer.observation_space

    @property
    def action_space(self) -> gym.Space[Any]:  # type: ignore[override]
        return self._observer.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begins an episode at the role's first turn; games that end before it are begun anew.

        Arguments as of :meth:`~ssp_env.envs.driver.GameDriver.reset`."""
        super().reset(seed=seed)
        self.driver.reset(seed, options)
        return self._look()

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, Info]:
        if self.driver.turn.feed((action,)):  # type: ignore[arg-type]
            self.driver.advance()
        observation, info = self._look()
        return observation, *self.driver.result, info

    def action_masks(self) -> NDArray[np.bool_]:
        """The action mask as booleans, where sb3-contrib looks for it."""
        return self._observer.mask(self.driver.trajectory).astype(bool)

    def render(self) -> str | None:  # type: ignore[override]
        return self.driver.render()

    @property
    def game(self) -> Game:
        return self.driver.game

    def _look(self) -> tuple[Observation, Info]:
        observation = self._watcher.look(self.driver.trajectory)
        return observation, self.driver.info | {"action_mask": observation["action_mask"]}


class SolverEnv(OneRoleEnv):
    """You solve. Questions come from a proposer who is played for you, or are given."""

    role = Role.SOLVER


class ProposerEnv(OneRoleEnv):
    """You propose. The verifier and the solver's attempts are played for you."""

    role = Role.PROPOSER

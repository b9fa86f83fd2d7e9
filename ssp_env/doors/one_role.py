"""Gymnasium environments of one role: ``ssp/Solver-v0`` and ``ssp/Proposer-v0``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat, Unpack

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ssp_env.doors.aec import as_token, check_render_mode
from ssp_env.doors.dealer import Dealer, single_attempt
from ssp_env.doors.infos import Info
from ssp_env.doors.observation import Observation, Observer, Watcher
from ssp_env.doors.seats import Seat, advance_seats
from ssp_env.doors.setup import ResolvedSetup, Setup, set_up
from ssp_env.errors import UsageError
from ssp_env.game.game import Game
from ssp_env.game.transcript import LiveView, render_ansi, render_human
from ssp_env.players import Player, player_for
from ssp_env.types import Question, Role


class OneRoleEnv(gym.Env[Observation, np.int64]):
    """One token per step. An episode is one trajectory of the role; the reward comes at its end.

    ``info`` holds what the AEC env's ``infos`` hold, and ``action_mask``. A void game is truncated,
    with reward 0."""

    metadata: dict[str, Any] = {"render_modes": ["ansi", "human"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        role: Role,
        resolved: ResolvedSetup,
        other: Player | None,
        questions: Sequence[Question] | None,
        render_mode: str | None,
    ) -> None:
        check_render_mode(render_mode, self.metadata)
        self.render_mode = render_mode

        self._observer = Observer(resolved)
        self.rules = resolved.rules

        self._live = LiveView(resolved.rules)
        self.other = player_for(resolved.rules, other)
        self.seat = Seat(Dealer(resolved.rules, questions), role)

        self._watcher: Watcher | None = None

        self.observation_space = self._observer.observation_space()
        self.action_space = self._observer.action_space()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begins an episode at the role's first turn; games that end before it are dealt anew.

        Args:
            seed: decides every draw of this and the following episodes.
            options: what the game is about; see :meth:`~ssp_env.doors.dealer.Dealer.deal`.

        Raises:
            UsageError: an option that is unknown or does not fit; a hundred games in a row ended
                before the role's turn.
            ServiceError: the hundredth of them was void.
        """
        super().reset(seed=seed)

        self.begin(seed, options)
        advance_seats([self.seat], self.other)
        return self.look()

    def step(self, action: np.int64 | int) -> tuple[Observation, SupportsFloat, bool, bool, Info]:
        """Takes the next token.

        Raises:
            UsageError: a step before the first reset or after the end, or an action outside the
                space.
        """
        if self.feed(action):
            advance_seats([self.seat], self.other)
            if self.render_mode == "human":
                self._live.show(self.game)

        observation, info = self.look()
        return observation, self.seat.reward, *self.seat.flags, info

    # A step in parts, for vector envs, which advance many seats at once.

    def begin(self, seed: int | None, options: dict[str, Any] | None) -> None:
        """Deals the next game; the seat has still to be advanced to its turn."""
        self.seat.dealer.seed(seed)
        self.seat.deal(options)

    def feed(self, action: np.int64 | int) -> bool:
        """Takes the next token; returns whether it ended the turn: the seat must advance then."""
        if self.seat.over:
            raise UsageError("the game is over: call reset()")
        if self.seat.trajectory is None:  # an error interrupted the reset
            raise UsageError("call reset() first")
        return self.seat.trajectory.feed((as_token(self.seat.role, action),))

    def look(self) -> tuple[Observation, Info]:
        """Observation and info of a seat that waits for its own role, or whose game is over."""
        observation = self._watch().look()
        return observation, self.seat.info | {"action_mask": observation["action_mask"]}

    def action_masks(self) -> NDArray[np.bool_]:
        """The action mask as booleans, where sb3-contrib looks for it.

        Raises:
            UsageError: before the first reset.
        """
        return self._observer.mask(self._watch().trajectory).astype(bool)

    def render(self) -> str | None:  # type: ignore[override]
        """The game so far: a string in mode ``ansi``, printed in mode ``human``."""
        if self.render_mode == "ansi":
            return render_ansi(self.seat.game, self.rules)
        if self.render_mode == "human":
            render_human(self.seat.game, self.rules)
            return None
        gym.logger.warn("render() was called without a render_mode")
        return None

    @property
    def game(self) -> Game:
        """The game that is played."""
        return self.seat.game

    def _watch(self) -> Watcher:
        trajectory = self.seat.trajectory
        if trajectory is None:  # a reset goes on to the role's turn
            raise UsageError("call reset() first")

        if self._watcher is None or self._watcher.trajectory is not trajectory:
            self._watcher = self._observer.watch(trajectory)
        return self._watcher


class SolverEnv(OneRoleEnv):
    """You solve. Questions come from a proposer who is played for you, or are given."""

    def __init__(
        self,
        other: Player | None = None,
        questions: Sequence[Question] | None = None,
        render_mode: str | None = None,
        **setup: Unpack[Setup],
    ) -> None:
        """
        Args:
            other: plays the proposer (and the verifier, if that is the policy); scripted when not
                given.
            questions: draw from these instead.
            render_mode: ``ansi``, ``human`` or ``None``.
            setup: the game; see :class:`~ssp_env.doors.setup.Setup`. One attempt is played,
                whatever ``game.attempts`` says.

        Raises:
            ConfigError: a setting that cannot work.
        """
        resolved = solver_setup(setup, "other", "questions", "render_mode")
        super().__init__(Role.SOLVER, resolved, other, questions, render_mode)


class ProposerEnv(OneRoleEnv):
    """You propose. The verifier and the solver's attempts are played for you."""

    def __init__(
        self, other: Player | None = None, render_mode: str | None = None, **setup: Unpack[Setup]
    ) -> None:
        """
        Args:
            other: plays the solver (and the verifier, if that is the policy); scripted when not
                given.
            render_mode: ``ansi``, ``human`` or ``None``.
            setup: the game; see :class:`~ssp_env.doors.setup.Setup`.

        Raises:
            ConfigError: a setting that cannot work.
        """
        super().__init__(
            Role.PROPOSER, set_up(setup, "other", "render_mode"), other, None, render_mode
        )


def solver_setup(setup: Setup, *own: str) -> ResolvedSetup:
    """As :func:`~ssp_env.doors.setup.set_up`, for a solver's view: one attempt per question."""
    resolved = set_up(setup, *own)
    return ResolvedSetup(single_attempt(resolved.rules), resolved.view)

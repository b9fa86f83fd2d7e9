"""Gymnasium environments of one role: ``ssp/Solver-v0`` and ``ssp/Proposer-v0``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ssp_env.doors.aec import as_token, check_render_mode, render
from ssp_env.doors.dealer import Dealer
from ssp_env.doors.observation import Info, Observation, Observer, Watcher, info_of, result_of
from ssp_env.doors.setup import ResolvedSetup, Setup, set_up
from ssp_env.errors import ServiceError, UsageError
from ssp_env.game.game import Game, Origin
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round, advance_all
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.game.transcript import LiveView
from ssp_env.players import Player, scripted_player
from ssp_env.types import Question, Role

MOST_REDEALS = 100
"""Games in a row that may end before one's first turn."""


class Episode:
    """One game at a time, seen from one role; a player plays the rest."""

    def __init__(
        self,
        role: Role,
        setup: Setup,
        other: Player | None,
        questions: Sequence[Question] | None = None,
        own: Sequence[str] = (),
    ) -> None:
        """
        Args:
            role: the role that is yours. A solver makes one attempt per question.
            setup: see :class:`~ssp_env.doors.setup.Setup`.
            other: plays everything else; scripted when not given.
            questions: for the solver: draw from these, with no proposer.
            own: keywords of the door itself, to be offered for an unknown one.
        """
        rules, view = set_up(setup, *own)
        if role is Role.SOLVER:
            rules = replace(rules, config=rules.config.replace(attempts=1))
        self.rules, self.view = rules, view

        self.role, self.other = role, other or scripted_player(self.rules)
        self.dealer = Dealer(self.rules, questions)
        self.round: Round | None = None
        """The round of the present game; ``None`` before the first one."""
        self.own: Trajectory | None = None
        """Your trajectory; ``None`` before your first turn."""
        self.info: Info = {}
        """As in the AEC env, at the beginning of your turn or at the end of the game."""
        self._options: Mapping[str, Any] | None = None

    def deal(self, options: Mapping[str, Any] | None = None) -> None:
        """Begins the next game; :func:`advance_episodes` brings it to your turn."""
        dealt = self.dealer.deal(options)
        if self.role is Role.PROPOSER and dealt.games[0].origin is not Origin.PROPOSED:
            raise UsageError("the question is given: there is nothing to propose")
        self.round, self._options, self.own = dealt, options, None

    def advance(self) -> None:
        """Plays on to your next turn, or to the end of the game."""
        advance_episodes([self])

    @property
    def game(self) -> Game:
        """The present game."""
        if self.round is None:
            raise UsageError("call reset() first")
        return self.round.games[0]

    @property
    def over(self) -> bool:
        """True once the present game has ended."""
        return self.round is not None and self.round.done

    @property
    def trajectory(self) -> Trajectory:
        """Your trajectory."""
        if self.own is None:
            raise UsageError("call reset() first")
        return self.own

    @property
    def turn(self) -> Trajectory:
        """Your trajectory, which waits for tokens."""
        if self.over:
            raise UsageError("the game is over: call reset()")
        return self.trajectory

    @property
    def result(self) -> tuple[float, bool, bool]:
        """Reward (0 in the middle of a game), terminated, truncated."""
        assert self.round is not None
        rewards, terminated, truncated = result_of(self.round)
        return rewards[self.role.value], terminated, truncated


def advance_episodes(episodes: Sequence[Episode]) -> None:
    """Plays on until each waits for its own role or its game is over, in batches.

    A game that ends before the role's turn is dealt again, with the same options: an episode needs
    a first move.

    Args:
        episodes: any, dealt already, with one player of the other roles.
    """
    redeals = dict.fromkeys(episodes, 0)
    while True:
        rounds = {each: each.round for each in episodes if each.round is not None}
        advance_all(list(rounds.values()))

        # All other roles' turns are written first, in one call.
        others = [(r, t) for each, r in rounds.items() for t in r.pending() if t.role != each.role]
        if others:
            _play_others(episodes[0].other, others)
            continue

        for episode, round_ in rounds.items():
            pending = round_.pending()
            episode.own = pending[0] if pending else episode.own
            episode.info = info_of(round_)

        # Their games ended before their first turn.
        idle = [episode for episode in episodes if episode.own is None]
        if not idle:
            return

        for episode in idle:
            redeals[episode] += 1
            if redeals[episode] > MOST_REDEALS:
                what = f"{MOST_REDEALS} games in a row ended before the {episode.role}'s turn"
                if episode.game.outcome is Outcome.VOID:
                    raise ServiceError(str(episode.game.reason), what)
                fix = "see that the budgets and the other player suit this game"
                raise UsageError(f"{what}, the last one as {episode.game.reason}; {fix}")
            episode.deal(episode._options)


def _play_others(other: Player, turns: Sequence[tuple[Round, Trajectory]]) -> None:
    try:
        other.play([trajectory for _, trajectory in turns])
    except ServiceError as error:
        for round_, trajectory in turns:
            round_.void([trajectory], error)
        return

    for _, trajectory in turns:
        if trajectory.waiting is Waiting.POLICY:
            what = f"the player left a {trajectory.role}'s turn unfinished"
            raise UsageError(f"{what}: write it with feed_turn()")


class OneRoleEnv(gym.Env[Observation, np.int64]):
    """One token per step. An episode is one trajectory of the role; the reward comes at its end.

    ``info`` holds the AEC env's ``infos``, and ``action_mask``. A void game is truncated, with
    reward 0."""

    metadata: dict[str, Any] = {"render_modes": ["ansi", "human"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, episode: Episode, render_mode: str | None) -> None:
        check_render_mode(render_mode, self.metadata)
        self.episode, self.render_mode = episode, render_mode
        self.rules, self.other = episode.rules, episode.other

        self._observer, self._live = (
            Observer(ResolvedSetup(self.rules, episode.view)),
            LiveView(self.rules),
        )
        self._watcher: Watcher | None = None

        self.observation_space = self._observer.observation_space()
        self.action_space = self._observer.action_space()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begins an episode at the role's first turn; games that end before it are dealt anew.

        Args:
            seed: decides every draw of this and the following episodes.
            options: the subject of the game; see :meth:`~ssp_env.doors.dealer.Dealer.deal`.
        """
        super().reset(seed=seed)
        self.begin(seed, options)
        self.episode.advance()
        return self.look()

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, Info]:
        """Takes the next token."""
        if self.feed(action):
            self.episode.advance()
            if self.render_mode == "human":
                self._live.show(self.game)

        observation, info = self.look()
        return observation, *self.episode.result, info

    # A step in parts, for vector envs, which advance many episodes at once.

    def begin(self, seed: int | None, options: dict[str, Any] | None) -> None:
        """Deals the next game; the episode has still to be advanced to its first turn."""
        self.episode.dealer.seed(seed)
        self.episode.deal(options)

    def feed(self, action: np.int64 | int) -> bool:
        """Takes the next token; True if it ended the turn: the episode must advance then."""
        return self.episode.turn.feed((as_token(self.episode.role, action),))

    def look(self) -> tuple[Observation, Info]:
        """Observation and info of an episode that waits for its role, or whose game is over."""
        trajectory = self.episode.trajectory
        if self._watcher is None or self._watcher.trajectory is not trajectory:
            self._watcher = Watcher(self._observer, trajectory)

        observation = self._watcher.look()
        return observation, self.episode.info | {"action_mask": observation["action_mask"]}

    def action_masks(self) -> NDArray[np.bool_]:
        """The action mask as booleans, where sb3-contrib looks for it."""
        return self._observer.mask(self.episode.trajectory).astype(bool)

    def render(self) -> str | None:  # type: ignore[override]
        """The game so far: a string in mode ``ansi``, printed in mode ``human``."""
        return render(self.game, self.rules, self.render_mode)

    @property
    def game(self) -> Game:
        """The game that is played."""
        return self.episode.game


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
        """
        own = "other", "questions", "render_mode"
        super().__init__(Episode(Role.SOLVER, setup, other, questions, own), render_mode)


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
        """
        own = "other", "render_mode"
        super().__init__(Episode(Role.PROPOSER, setup, other, None, own), render_mode)

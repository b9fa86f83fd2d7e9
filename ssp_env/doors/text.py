"""Strings in, strings out, one turn per step: for LLM agents of other frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from ssp_env.doors.dealer import Dealer
from ssp_env.doors.observation import Info, info_of, result_of
from ssp_env.doors.one_role import Episode
from ssp_env.doors.setup import Setup, set_up
from ssp_env.errors import ConfigError, UsageError, one_of
from ssp_env.game.game import Game
from ssp_env.game.round import Round
from ssp_env.game.trajectory import Trajectory
from ssp_env.players import Player
from ssp_env.types import Question, Role


class TextGame:
    """Both roles.

    ``info["role"]`` is the next one to write: ``proposer``, ``solver``, ``verifier`` or
    ``closed_book``.

    Each step returns the text that its writer has not seen yet: the prompt at the beginning of a
    trajectory, later the results of a search, nothing at the end. Text after the first complete
    action of a turn is dropped."""

    def __init__(self, **setup: Unpack[Setup]) -> None:
        """
        Args:
            setup: see :class:`~ssp_env.doors.setup.Setup`. ``bpe`` is a good tokenizer for text.
        """
        self.rules = set_up(setup).rules

        self._dealer = Dealer(self.rules)
        self._started: Round | None = None
        self._reader = _Reader()

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Begins a game: the first prompt, and info as in the AEC env.

        Args:
            seed: decides every draw of this and the following games.
            options: the subject of the game; see :meth:`~ssp_env.doors.dealer.Dealer.deal`.
        """
        self._dealer.seed(seed)
        self._started = self._dealer.deal(options)
        return self._show()

    def step(self, text: str) -> tuple[str, dict[str, float], bool, bool, Info]:
        """Takes a turn; returns the next text, both rewards, terminated, truncated, info."""
        round_ = self._round
        if round_.done:
            raise UsageError("the game is over: call reset()")

        _write(round_.pending()[0], text)
        round_.advance()

        paid, terminated, truncated = result_of(round_)
        shown, info = self._show()
        return shown, paid, terminated, truncated, info

    @property
    def game(self) -> Game:
        """The game that is played."""
        return self._round.games[0]

    @property
    def _round(self) -> Round:
        if self._started is None:
            raise UsageError("call reset() first")
        return self._started

    def _show(self) -> tuple[str, Info]:
        pending = self._round.pending()
        return self._reader.read(pending[0]) if pending else "", info_of(self._round)


class TextRole:
    """One role, with a number as its reward; a player plays the rest."""

    def __init__(
        self,
        role: str = "solver",
        other: Player | None = None,
        questions: Sequence[Question] | None = None,
        **setup: Unpack[Setup],
    ) -> None:
        """
        Args:
            role: ``solver`` (one attempt per episode) or ``proposer``.
            other: plays everything else; scripted when not given.
            questions: for the solver: draw from these, with no proposer.
            setup: see :class:`~ssp_env.doors.setup.Setup`.
        """
        one_of("role", role, ("proposer", "solver"))

        if questions is not None and role != "solver":
            raise ConfigError("questions", questions, "only a solver is given questions")

        own = "role", "other", "questions"
        self._episode = Episode(Role(role), setup, other, questions, own)
        self.rules = self._episode.rules
        self._reader = _Reader()

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Begins an episode at the role's first turn: its prompt, and info as in the AEC env.

        Args:
            seed: decides every draw of this and the following games.
            options: the subject of the game; see :meth:`~ssp_env.doors.dealer.Dealer.deal`.
        """
        self._episode.dealer.seed(seed)
        self._episode.deal(options)
        self._episode.advance()
        return self._show(), self._episode.info

    def step(self, text: str) -> tuple[str, float, bool, bool, Info]:
        """Takes a turn; returns the next text, the reward, terminated, truncated, info."""
        _write(self._episode.turn, text)
        self._episode.advance()
        return self._show(), *self._episode.result, self._episode.info

    @property
    def game(self) -> Game:
        """The game that is played."""
        return self._episode.game

    def _show(self) -> str:
        return "" if self._episode.over else self._reader.read(self._episode.trajectory)


class _Reader:
    """Decodes the tokens that the environment has written since the last time."""

    def __init__(self) -> None:
        self._trajectory: Trajectory | None = None

    def read(self, trajectory: Trajectory) -> str:
        ids, start = trajectory.ids, 0
        if trajectory is self._trajectory:
            start = len(ids) - trajectory.mask[::-1].index(1)

        self._trajectory = trajectory
        return trajectory.limits.tokenizer.decode(ids[start:])


def _write(trajectory: Trajectory, text: str) -> None:
    if not isinstance(text, str):
        raise UsageError(f"a turn is a string, not {type(text).__name__}")
    trajectory.feed_turn(trajectory.limits.tokenizer.encode(text))

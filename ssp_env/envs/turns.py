"""A whole turn per step: many games at once, as token ids for LLM engines, which work in batches;
or one game, as strings for LLM agents of other frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ssp_env.envs.driver import GameDriver
from ssp_env.envs.observation import Info, Observer, info_of
from ssp_env.envs.setup import Setup, set_up
from ssp_env.errors import ServiceError, UsageError, whole_number
from ssp_env.game.batch import GameBatch, advance_all
from ssp_env.game.game import Game
from ssp_env.game.trajectory import Trajectory
from ssp_env.players import Player
from ssp_env.types import Question, Role


@dataclass(frozen=True)
class Turn:
    """A turn that waits for the tokens of its role."""

    game: int
    """Index of its game in the environment."""
    trajectory: Trajectory
    """The tokens so far, and the budgets; only to be read."""
    attempt: int
    """Index of its attempt in the game, from 0 up; -1 where the turn is of no attempt."""
    attempts: int
    _env: TurnVectorEnv = field(repr=False, compare=False)

    @property
    def role(self) -> Role:
        return self.trajectory.role

    @property
    def ids(self) -> list[int]:
        """All tokens of the trajectory so far: prompt, turns, observations."""
        return self.trajectory.ids

    def mask_after(self, written: Sequence[int]) -> NDArray[np.int8]:
        """int8 (vocabulary,): 1 on every token that may follow ``written``, the turn so far.

        With the view's ``legal_moves``, every token with which a well-formed turn can go on;
        without, everything but padding."""
        return self._env.observer.mask(self.trajectory, written)


class TurnVectorEnv:
    """Independent games side by side, a whole turn per step; their searches go to the retriever as
    one batch.

    The ``n`` attempts of a game are played at the same time, so a game may have several turns open.
    Game ``i`` after ``reset(seed)`` is the AEC env's game after ``reset(seed + i)``."""

    def __init__(self, num_games: int, **setup: Unpack[Setup]) -> None:
        num_games = whole_number("num_games", num_games, 1)
        self._resolved = set_up(setup)
        self.rules = self._resolved.rules
        self._drivers = [GameDriver(self.rules) for _ in range(num_games)]
        self._batches: list[GameBatch] = []

    @cached_property
    def observer(self) -> Observer:
        """Masks of the view; made when one is asked for: many tokenizers have no legal moves."""
        return Observer(self._resolved)

    def reset(self, seed: int | None = None) -> list[Turn]:
        """Begins all games anew, and returns their first turns; without a seed, new games."""
        first = None if seed is None else whole_number("seed", seed, 0)
        for i, driver in enumerate(self._drivers):
            driver.begin(None if first is None else first + i)
        self._batches = [driver.batch for driver in self._drivers]
        return self.turns

    @property
    def turns(self) -> list[Turn]:
        """The open turns, by game; none when all games are over."""
        attempts = self.rules.config.attempts
        return [
            Turn(i, t, batch.games[0].number_of(t), attempts, self)
            for i, batch in enumerate(self._batches)
            for t in batch.pending()
        ]

    def step(
        self, written: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float]] | None = None
    ) -> list[Turn]:
        """Takes one whole turn for each open one, and returns the turns that are open afterwards.

        Args:
            written: token ids, in the order of :attr:`turns`; tokens after a first complete action
                are dropped.
            logprobs: behaviour log-probability of each; zeros when not given.
        """
        if not self._batches:
            raise UsageError("call reset() first")

        turns = self.turns
        behaviour = [None] * len(turns) if logprobs is None else logprobs
        try:
            pairs = list(zip(turns, written, behaviour, strict=True))
        except (TypeError, ValueError) as error:
            what = f"{len(turns)} turns are open: give a list of token ids for each"
            raise UsageError(f"{what}, and as many of log-probabilities, if any") from error

        # All are checked before any is taken.
        checked = []
        for i, (turn, ids, behaviour_of_turn) in enumerate(pairs):
            try:
                checked.append(
                    (turn.trajectory, turn.trajectory.limits.checked(ids, behaviour_of_turn))
                )
            except UsageError as error:
                raise UsageError(f"turn {i}: {error}") from error
        for trajectory, (whole, behaviour_of_turn) in checked:
            trajectory.append_turn(whole, behaviour_of_turn)
        advance_all(self._batches)
        return self.turns

    def void(self, turns: Sequence[Turn], error: ServiceError) -> list[Turn]:
        """Voids these turns, whose player failed for good, as :meth:`GameBatch.void` does; games of
        other turns go on. The error's ``service`` becomes the reason."""
        for turn in turns:
            self._batches[turn.game].void([turn.trajectory], error)
        advance_all(self._batches)
        return self.turns

    @property
    def done(self) -> bool:
        return all(batch.done for batch in self._batches)

    @property
    def games(self) -> list[Game]:
        return [batch.games[0] for batch in self._batches]

    @property
    def infos(self) -> list[Info]:
        """The AEC env's ``infos``; with several open turns, those of the first one."""
        return [info_of(batch) for batch in self._batches]


class _TextTurns:
    """A game of strings: each step returns the text that its writer has not seen yet.

    That is the prompt at the beginning of a trajectory, later the results of a search, and nothing
    at the end. Text after the first complete action of a turn is dropped."""

    def __init__(self, driver: GameDriver) -> None:
        self._driver, self.rules = driver, driver.rules

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Begins a game at your first turn: its prompt, and info as in the AEC env.

        Arguments as of :meth:`~ssp_env.envs.driver.GameDriver.reset`."""
        self._driver.reset(seed, options)
        return self._show(), self._driver.info

    def step(self, text: str) -> tuple[str, Any, bool, bool, Info]:
        """Takes a turn; returns the next text, the reward (of both agents by name, where you play
        both), terminated, truncated, info."""
        self._driver.turn.feed_text(text)
        self._driver.advance()
        return self._show(), *self._driver.result, self._driver.info

    @property
    def game(self) -> Game:
        return self._driver.game

    def _show(self) -> str:
        """Text of the tokens that the environment has written since the last time."""
        if self._driver.over:
            return ""
        # What follows the last token that was written was added by the environment.
        trajectory = self._driver.turn
        # Of a trajectory without a turn, rfind gives -1: all of it is new.
        return trajectory.text_from(trajectory.mask.rfind(1) + 1)


class TextGame(_TextTurns):
    """Both roles; ``info["role"]`` is the next one to write.

    Keywords are those of :class:`~ssp_env.envs.setup.Setup`; ``bpe`` is a good tokenizer here."""

    def __init__(self, **setup: Unpack[Setup]) -> None:
        super().__init__(GameDriver(set_up(setup).rules))


class TextRole(_TextTurns):
    """One role, with a number as its reward; a player plays the rest."""

    def __init__(
        self,
        role: str = "solver",
        other: Player | None = None,
        questions: Sequence[Question] | None = None,
        **setup: Unpack[Setup],
    ) -> None:
        """``role`` is ``solver`` (one attempt per episode) or ``proposer``; other arguments as of
        :class:`~ssp_env.envs.one_role.OneRoleEnv`."""
        super().__init__(GameDriver(set_up(setup).rules, role, other, questions))

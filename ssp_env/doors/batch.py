"""Both roles in many games at once, one turn per step: for LLM engines, which work in batches."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from ssp_env.doors.dealer import Dealer
from ssp_env.doors.observation import Info, Observer, info_of
from ssp_env.doors.setup import Setup, set_up
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.game import Game
from ssp_env.game.round import Round, advance_all
from ssp_env.game.trajectory import Trajectory
from ssp_env.types import Role


@dataclass(frozen=True)
class Turn:
    """An open turn, which waits to be written."""

    game: int
    """Index of the game in the batch."""
    trajectory: Trajectory
    """The tokens so far, and the budgets; only to be read."""
    attempt: int = -1
    """Index of its attempt in the game, from 0 up; -1 where the turn is of no attempt."""
    attempts: int = 0
    """Number of attempts in its game."""
    _batch: GameBatch | None = field(default=None, repr=False, compare=False)

    @property
    def role(self) -> Role:
        """Role that writes the turn."""
        return self.trajectory.role

    @property
    def ids(self) -> list[int]:
        """All tokens of the trajectory so far: prompt, turns, observations."""
        return self.trajectory.ids

    @property
    def action_mask(self) -> NDArray[np.int8]:
        """int8 (vocabulary,): 1 on every token that may begin the turn; see :meth:`mask_after`."""
        return self.mask_after(())

    def mask_after(self, written: Sequence[int]) -> NDArray[np.int8]:
        """int8 (vocabulary,): 1 on every token that may follow.

        With the view's ``legal_moves``, every token with which a well-formed turn can go on;
        without, everything but padding.

        Args:
            written: the turn so far.
        """
        assert self._batch is not None, "turns come from a batch"
        return self._batch.observer.mask(self.trajectory, written)


class GameBatch:
    """Independent games side by side; their searches go to the retriever as one batch.

    The ``n`` attempts of a game are played at the same time, so a game may have several turns open.
    Game ``i`` after ``reset(seed)`` is the AEC env's game after ``reset(seed + i)``.
    """

    def __init__(self, num_games: int, **setup: Unpack[Setup]) -> None:
        """
        Args:
            num_games: number of games.
            setup: see :class:`~ssp_env.doors.setup.Setup`.
        """
        if num_games < 1:
            raise ConfigError("num_games", num_games, "must be at least 1")

        resolved = set_up(setup, "num_games")
        self.rules, self._resolved = resolved.rules, resolved
        self._dealers = [Dealer(self.rules) for _ in range(num_games)]
        self._started: list[Round] = []

    @cached_property
    def observer(self) -> Observer:
        """Masks of the view; made when one is asked for: many tokenizers have no legal moves."""
        return Observer(self._resolved)

    def reset(self, seed: int | None = None) -> list[Turn]:
        """Begins all games anew and returns the open turns."""
        for i, dealer in enumerate(self._dealers):
            dealer.seed(None if seed is None else seed + i)

        self._started = [dealer.deal() for dealer in self._dealers]
        return self.turns

    @property
    def turns(self) -> list[Turn]:
        """The open turns, by game; none when all games are over."""
        attempts = self.rules.config.attempts
        return [
            Turn(i, t, round_.games[0].number_of(t), attempts, self)
            for i, round_ in enumerate(self._rounds)
            for t in round_.pending()
        ]

    def step(
        self, written: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float]] | None = None
    ) -> list[Turn]:
        """Takes one whole turn for each open one, and returns the turns that are open afterwards.

        Args:
            written: token ids, in the order of :attr:`turns`; tokens after a first complete action
                are dropped.
            logprobs: behaviour log-probability of each; zeros when not given.

        Raises:
            UsageError: before the first reset, not one turn for each open one, not one
                log-probability per token, text, or an id outside the vocabulary (nothing is taken
                then).
        """
        turns = self.turns
        if len(written) != len(turns):
            raise UsageError(f"{len(turns)} turns are open, but {len(written)} were written")
        if logprobs is not None and len(logprobs) != len(turns):
            raise UsageError(f"{len(turns)} turns are open, {len(logprobs)} with log-probabilities")

        size = self.rules.tokenizer.vocab_size
        for i, ids in enumerate(written):  # all are checked before any is taken
            if isinstance(ids, str):
                fix = "token ids are wanted; encode it with rules.tokenizer, or play a TextGame"
                raise UsageError(f"turn {i} is text: {fix}")
            whole = list(map(operator.index, ids))
            if whole and not 0 <= min(whole) <= max(whole) < size:
                what = f"turn {i} has a token outside the action space"
                raise UsageError(f"{what} 0 .. {size - 1}: {reprlib.repr(ids)}")
            if logprobs is not None and len(logprobs[i]) != len(ids):
                what = f"turn {i} has {len(ids)} tokens, but {len(logprobs[i])} log-probabilities"
                raise UsageError(what)

        for i, turn in enumerate(turns):
            turn.trajectory.feed_turn(written[i], None if logprobs is None else logprobs[i])

        advance_all(self._started)
        return self.turns

    def void(self, turns: Sequence[Turn], error: ServiceError) -> list[Turn]:
        """Voids these turns, whose player failed for good.

        A turn of an attempt to solve makes that attempt void, and the game only if too few others
        remain; any other turn makes its game void.

        Args:
            turns: of :attr:`turns`.
            error: the outage; its ``service`` becomes the reason of games that are void.

        Raises:
            UsageError: another kind of error (nothing is voided then), or before the first reset.
        """
        if not isinstance(error, ServiceError):
            what = f"a game is void for a ServiceError, not for {error!r}"
            raise UsageError(f'{what}; wrap it: ServiceError("engine", str(error))')

        # Games of other turns go on.
        for turn in turns:
            self._rounds[turn.game].void([turn.trajectory], error)
        advance_all(self._rounds)
        return self.turns

    @property
    def done(self) -> bool:
        """True once all games are over."""
        return all(round_.done for round_ in self._rounds)

    @property
    def games(self) -> list[Game]:
        """The games, with their trajectories, outcomes and rewards."""
        return [round_.games[0] for round_ in self._rounds]

    @property
    def infos(self) -> list[Info]:
        """The AEC env's ``infos``; with several open turns, those of the first one."""
        return [info_of(round_) for round_ in self._rounds]

    @property
    def _rounds(self) -> list[Round]:
        if not self._started:
            raise UsageError("call reset() first")
        return self._started

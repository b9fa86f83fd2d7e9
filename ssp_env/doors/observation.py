"""Observations and infos: an agent's trajectory as arrays, its legal tokens, and the game's state.

Infos are the same behind every door and follow from seed and tokens. Their keys and lengths are the
same at every step and no value is ``None``: clients keep infos in arrays.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ssp_env.doors.setup import ResolvedSetup
from ssp_env.errors import ConfigError
from ssp_env.game.config import UNMASKED, suited
from ssp_env.game.game import Game
from ssp_env.game.legal import LegalMoves
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.game.trajectory import Trajectory
from ssp_env.types import Immutable

Observation = dict[str, NDArray[Any]]
Info = dict[str, Any]


class Observer(Immutable):
    """Spaces and observations behind every token-level door.

    An observation is a dict. ``observation`` is int32 (``rules.longest_trajectory``,), the
    trajectory padded on the right; with ``view.window`` int32 (window,), its end, padded on the
    left; with ``view.one_hot`` float32 (window * vocabulary,).
    ``action_mask`` is int8 (vocabulary,): 1 on what may be written next."""

    def __init__(self, resolved: ResolvedSetup) -> None:
        """
        Args:
            resolved: rules and view.
        """
        rules, self._view = resolved
        tokenizer = rules.tokenizer

        self._resolved = resolved
        self._size, self.pad_id = tokenizer.vocab_size, tokenizer.pad_id
        self._empty_token = tokenizer.pad_id if tokenizer.eos_id is None else tokenizer.eos_id

        self.whole = self._view.window is None
        self.length = self._view.window or rules.longest_trajectory
        self.padding = _padding(self.length, self.pad_id)

        self._mask = np.ones(self._size, dtype=np.int8)
        if tokenizer.pad_id != tokenizer.eos_id:
            self._mask[tokenizer.pad_id] = 0

        self._legal: LegalMoves | None = None
        if self._view.legal_moves:
            try:
                self._legal = LegalMoves(rules)
            except ConfigError as error:
                world = rules.world.name
                if not suited(world)[1].legal_moves:
                    raise
                fix = f"{error.fix}, or disable the default view of the world {world!r}: {UNMASKED}"
                raise ConfigError(error.field, error.value, fix) from None

    def __reduce__(self) -> tuple[object, ...]:
        # Padding and masks would be most of a pickled game.
        return type(self), (self._resolved,)

    def observation_space(self) -> gym.spaces.Dict:
        """A new space object."""
        if self._view.one_hot:
            observation = _FromZero(1, self.length * self._size, np.float32)
        else:
            observation = _FromZero(self._size - 1, self.length, np.int32)

        mask = _FromZero(1, self._size, np.int8)
        return gym.spaces.Dict({"observation": observation, "action_mask": mask})

    def action_space(self) -> gym.spaces.Discrete[np.int64]:
        """A new space object: one token."""
        return gym.spaces.Discrete(self._size)

    def empty(self) -> Observation:
        """The observation before a first turn: a single end (or padding) token."""
        return {"observation": self.encode([self._empty_token]), "action_mask": self._mask.copy()}

    def mask(self, trajectory: Trajectory, written: Sequence[int] = ()) -> NDArray[np.int8]:
        """1 on every token that may be written next; ``written`` goes on what has been fed."""
        return self._mask.copy() if self._legal is None else self._legal.mask(trajectory, written)

    def encode(self, ids: Sequence[int]) -> NDArray[Any]:
        """Tokens in the form of the space."""
        row = np.full(self.length, self.pad_id, dtype=np.int32)
        if self.whole:
            row[: len(ids)] = ids
            return row

        tail = ids[-self.length :]
        row[self.length - len(tail) :] = tail

        if not self._view.one_hot:
            return row

        flat = np.zeros((self.length, self._size), dtype=np.float32)
        flat[np.arange(self.length), row] = 1
        return flat.reshape(-1)


class Watcher:
    """Observes one trajectory; copies only new tokens, so that long transcripts cost no more."""

    __slots__ = ("_filled", "_observer", "_tokens", "trajectory")

    def __init__(self, observer: Observer, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self._observer, self._filled = observer, 0
        self._tokens = np.empty(0, dtype=np.int32)

    def __deepcopy__(self, memo: dict[int, Any]) -> Watcher:
        """A watcher of the trajectory's copy, which reads its tokens anew when it looks."""
        return Watcher(self._observer, copy.deepcopy(self.trajectory, memo))

    def look(self) -> Observation:
        """The observation as it is now, in arrays of its own."""
        observer, ids = self._observer, self.trajectory.ids
        if not observer.whole:
            return {
                "observation": observer.encode(ids),
                "action_mask": observer.mask(self.trajectory),
            }

        # Doubled, so that the cost per token stays constant as the transcript grows.
        filled = self._filled
        if len(ids) > len(self._tokens):
            grown = np.empty(min(2 * len(ids), observer.length), dtype=np.int32)
            grown[:filled] = self._tokens[:filled]
            self._tokens = grown
        if len(ids) > filled:
            self._tokens[filled : len(ids)] = ids[filled:]
            self._filled = len(ids)

        parts = self._tokens[: self._filled], observer.padding[self._filled :]
        mask = observer.mask(self.trajectory)
        return {"observation": np.concatenate(parts), "action_mask": mask}


@lru_cache
def _padding(length: int, pad_id: int) -> NDArray[np.int32]:
    """Shared by all envs, since it would be a good part of a game's memory."""
    padding = np.full(length, pad_id, dtype=np.int32)
    padding.flags.writeable = False
    return padding


class _FromZero(gym.spaces.Box):
    """A vector space from 0 to ``high``; its bounds take no memory, nor do those of its copies."""

    def __init__(self, high: int, length: int, dtype: Any) -> None:
        super().__init__(0, high, (length,), dtype)
        self._made_of = (high, length, dtype)

        bounds = (np.broadcast_to(np.array(bound, dtype), (length,)) for bound in (0, high))
        self.low, self.high = bounds
        self.bounded_below = self.bounded_above = np.broadcast_to(np.array(True), (length,))

    def __reduce__(self) -> tuple[object, ...]:
        # What samples are drawn from; all else follows from the arguments.
        return type(self), self._made_of, {"_np_random": self._np_random}

    def __deepcopy__(self, memo: dict[int, Any]) -> _FromZero:
        twin = copy.copy(self)
        twin._np_random = copy.deepcopy(self._np_random, memo)
        return twin

    def __copy__(self) -> _FromZero:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin


def info_of(round_: Round) -> Info:
    """Infos of a round of one game, which waits for tokens or is over."""
    pending = round_.pending()
    if pending:
        return turn_info(round_, pending[0])
    return final_info(round_.games[0], round_.rules.config.attempts)


def turn_info(round_: Round, current: Trajectory) -> Info:
    """At the beginning of a turn: phase, role, and the rest of the budgets."""
    attempts = round_.rules.config.attempts
    return {
        "phase": round_.phase.value,
        "role": current.role.value,
        "tokens_left": current.tokens_left,
        "searches_left": current.limits.max_searches - len(current.searches),
        "attempt": round_.games[0].number_of(current),
        "attempts": attempts,
        "attempt_rewards": (0.0,) * attempts,
        "attempt_counts": (False,) * attempts,
        "closed_book_reward": 0.0,
        "outcome": "pending",
        "reason": "",
        "question": "",
        "answer": "",
        "solve_rate": 0.0,
    }


def final_info(game: Game, attempts: int) -> Info:
    """At the end of a game: its outcome, question and answer, and the pay of each attempt.

    Attempts are judged together when all have ended: ``attempt_rewards`` are theirs, in order, and
    ``attempt_counts`` says which were judged (an outage may have hit others). ``outcome`` is
    ``valid``, ``invalid`` or ``void``. ``solve_rate`` is only meaningful in valid games; ``reason``
    and ``question`` may be empty.
    """
    # As long as the game's attempts could be, whether or not they were made.
    rewards = [attempt.reward for attempt in game.attempts]
    rewards += [None] * (attempts - len(rewards))
    return {
        "phase": "done",
        "role": "",
        "tokens_left": 0,
        "searches_left": 0,
        "attempt": -1,
        "attempts": attempts,
        "attempt_rewards": tuple(reward or 0.0 for reward in rewards),
        "attempt_counts": tuple(reward is not None for reward in rewards),
        "closed_book_reward": game.closed_book_reward or 0.0,
        "outcome": game.outcome.value,
        "reason": game.reason or "",
        "question": game.question or "",
        "answer": game.truth.answer,
        "solve_rate": game.solve_rate or 0.0,
    }


def result_of(round_: Round) -> tuple[dict[str, float], bool, bool]:
    """Rewards by agent (0 in the middle of a game), terminated, truncated.

    A void game pays nothing and is truncated, since an outage does not end play.
    """
    game = round_.games[0]
    paid = {"proposer": game.proposer_reward, "solver": game.solver_reward}
    void = game.outcome is Outcome.VOID
    rewards = {agent: float(reward or 0.0) for agent, reward in paid.items()}
    return rewards, round_.done and not void, round_.done and void
